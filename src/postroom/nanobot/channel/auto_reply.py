"""Who is answered by itself, and how often. What ends a chat between two polite agents stands here, not in a
prompt.

An answer that we mail by ourselves says so, and such a letter is never answered by itself. A letter to many is
not, nor is a notification. What a model writes in a turn that mail began goes to somebody else, as a relay with
its hops counted, or is the answer. Nobody is written to, or listened to, more often than the pace allows: what is
over it waits. And what an agent writes to one peer by itself, with no word of a person in between, is bounded in
each conversation and over all of them (G11).
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from typing import TYPE_CHECKING, NamedTuple

from ...model.message import is_broadcast
from ...model.names import fold
from ...model.task import TASK_UPDATE

if TYPE_CHECKING:
    from ...model.delivery import Delivery
    from ...model.message import Message


MARK = "auto_submitted"  # in a letter's metadata, as RFC 3834 has it in a header
AUTOMATIC = {MARK: "auto-replied"}
UNANSWERED = frozenset({TASK_UPDATE, "notification", "response", "completion_report", "merge_notification"})
MOST_ROUNDS = 10  # results and new errands in one session, with no word of its person in between
MOST_REFUSALS = 3  # told in one chat, with no word of its person in between
MINUTE, HOUR = 60.0, 3600.0  # seconds
EVERYWHERE = ""  # in the place of one conversation: all of them
MOST_PLACES = 10_000  # conversations that are counted at once


def is_automatic(letter: Message) -> bool:
    """Was this written by a house or a program by itself?"""
    return letter.is_automatic or letter.metadata.get(MARK, "no") != "no"


def wants_answer(letter: Message, delivery: Delivery) -> bool:
    """Is the model's last word mailed back to whoever sent this?"""
    to_many = any(is_broadcast(recipient.address) for recipient in letter.recipients)
    return not is_automatic(letter) and letter.kind not in UNANSWERED and delivery.kind == "to" and not to_many


class Pace:
    """At most `most` events of each peer within `window` seconds. `now` is a time of any monotonic clock."""

    def __init__(self, most: int, window: float = MINUTE) -> None:
        self.most = most
        self._window = window
        self._seen: defaultdict[str, deque[float]] = defaultdict(deque)

    def wait(self, peer: str, now: float) -> float:
        """For how many seconds the next event of this peer has to wait."""
        seen = self._seen[fold(peer)]
        while seen and now - seen[0] >= self._window:
            seen.popleft()
        return 0.0 if len(seen) < self.most else self._window - (now - seen[0])

    def allows(self, peer: str, now: float) -> bool:
        """Count one more event, if there is room for it."""
        if self.wait(peer, now):
            return False
        self._seen[fold(peer)].append(now)
        return True

    def waiting(self, now: float) -> frozenset[str]:
        """The folded names of the peers whose next event has to wait."""
        found = frozenset(peer for peer in tuple(self._seen) if self.wait(peer, now))
        self._seen = defaultdict(deque, {peer: seen for peer, seen in self._seen.items() if seen})
        return found

    def clear(self) -> None:
        self._seen.clear()


class Stop(NamedTuple):
    """Why a mail may not be written now."""

    why: str
    is_first: bool


class Automatic:
    """What one agent does for its peers by itself, counted until a person writes (G11).

    Mails are counted for each peer in one conversation, and over all conversations within an hour. `replies` are
    turns begun by a peer that replies to our mails: a program that answers every automatic answer is slowed down.
    """

    def __init__(self, per_conversation: int, per_hour: int) -> None:
        self.replies = Pace(per_hour, HOUR)
        self._most = per_conversation
        self._mails = Pace(per_hour, HOUR)
        self._counts: Counter[tuple[str, str]] = Counter()  # by conversation and peer
        self._stopped: set[tuple[str, str]] = set()  # likewise: stops that were reported

    def stop(self, place: str, peer: str, rounds: int, now: float) -> Stop | None:
        """Count one more mail, or say why it may not be written. `rounds` is the depth of the chain of results
        that led to it, which is remembered with each letter and so outlives a restart.
        """
        key = place, fold(peer)
        if max(rounds, self._counts[key]) >= self._most:
            why = f"{self._most} mails or rounds in one conversation without a word of the person"
            return Stop(why, is_first=self.is_first(peer, place))
        if not self._mails.allows(peer, now):
            why = f"{self._mails.most} mails to {peer} within an hour without a word of the person"
            return Stop(why, is_first=self.is_first(peer))
        self._counts[key] += 1
        if len(self._counts) > MOST_PLACES:
            del self._counts[next(iter(self._counts))]  # the oldest
        return None

    def is_first(self, peer: str, place: str = EVERYWHERE) -> bool:
        """Is this the first stop there since a person wrote? Only the first is reported."""
        before = len(self._stopped)
        self._stopped.add((place, fold(peer)))
        return len(self._stopped) > before

    def person_wrote(self, place: str = EVERYWHERE) -> None:
        """Start over: in the conversation in which a person wrote, or, after a letter to the agent, everywhere."""
        self._mails.clear()
        self.replies.clear()
        over = {EVERYWHERE, place}
        self._stopped = {key for key in self._stopped if place and key[0] not in over}
        self._counts = Counter({key: count for key, count in self._counts.items() if place and key[0] not in over})
