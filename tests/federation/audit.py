"""Letters that say which they are, and what became of them: lost, twice, out of order."""

from __future__ import annotations

import time
from collections import Counter

from postroom import draft
from postroom.model.delivery import State
from postroom.model.query import Query
from tests.daemons import until
from tests.federation.systems import System

QUIET = 1.2  # seconds in which nothing more comes
PATIENCE = 120.0  # seconds for all of it, on a machine that has other things to do


class Mail:
    """Letters of each of `senders` at one system to each of `readers` at another, numbered by pair; they may go by
    a third one.
    """

    def __init__(
        self,
        here: System,
        there: System,
        senders: tuple[str, ...],
        readers: tuple[str, ...],
        by: System | None = None,
    ) -> None:
        self.here, self.there, self._by = here, there, by
        self._senders, self._readers = senders, readers
        self._said: list[str] = []
        self._number = 0

    def send(self, times: int) -> None:
        """So many times one of each pair."""
        first, self._number = self._number, self._number + times
        for sender in self._senders:
            numbers = range(first + 1, self._number + 1)
            message = [(reader, f"{sender}>{reader} {n:06}") for n in numbers for reader in self._readers]
            letters = [draft(f"{reader}@{self.there.name}", text) for reader, text in message]
            self.here.room.mailbox(sender).send_many(letters)
            self._said += [text for _, text in message]

    def waiting(self) -> int:
        """How many are still on their way."""
        boxes = [f"{reader}@{self.there.name}" for reader in self._readers]
        rooms = [one.room for one in (self.here, self._by) if one is not None]
        queued = [Query(mailbox=box, states=(State.QUEUED,)) for box in boxes]
        return sum(sum(room.core.store.count(one).values()) for room in rooms for one in queued)

    def came(self) -> list[str]:
        """What lies there, as it came."""
        return [text for reader in self._readers for text in self.there.texts(reader)]

    def problems(self, patience: float = PATIENCE) -> set[str]:
        """Once none waits any more, and all have come or no more come."""
        until(lambda: not self.waiting(), patience)
        end, seen = time.monotonic() + QUIET, -1
        while time.monotonic() < end:
            many = len(self.came())
            if many == len(self._said):
                break
            if many != seen:
                end, seen = time.monotonic() + QUIET, many
            time.sleep(0.05)
        return verdict(self._said, self.came())


def verdict(message: list[str], came: list[str]) -> set[str]:
    counted = Counter(came)
    return {
        *({"lost"} if set(message) - counted.keys() else ()),
        *({"twice"} if any(many > 1 for many in counted.values()) else ()),
        *({"made up"} if counted.keys() - set(message) else ()),
        *(
            {"out of order"}
            if any(not _is_ordered(pair, came) for pair in {one.split()[0] for one in message})
            else ()
        ),
    }


def _is_ordered(pair: str, came: list[str]) -> bool:
    """Each for the first time it came: one that comes twice is no matter of order."""
    of_pair = list(dict.fromkeys(one for one in came if one.split()[0] == pair))
    return of_pair == sorted(of_pair)
