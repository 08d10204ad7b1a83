"""A witness of one recipient with several bells: each has a witness of its own, and what is counted here is how
often the recipient is told, whatever rings.
"""

from __future__ import annotations

import msgspec

from postroom.model.query import Moment
from tests.alerts.witness import HOUR, SLACK, Seen, Witness, left


class RecipientAlert(msgspec.Struct):
    """One moment in which somebody is told, by one bell or several."""

    boot: str
    at: float
    known: set[str]  # what had come by then
    notified: set[str] = set()  # by which bells
    rung: set[tuple[str, str]] = set()  # bell and letter, less what failed


class Recipient:
    """Told of everything that happens."""

    def __init__(self, ways: tuple[str, ...]) -> None:
        self.bells = {way: Witness() for way in ways}
        self.letters: dict[str, Seen] = {}  # as anybody can know them; rings are known to each bell
        self.rings: list[tuple[str, float]] = []
        self._tellings: list[RecipientAlert] = []
        self._last: dict[str, RecipientAlert] = {}

    def rang(self, way: str, ids: tuple[str, ...], now: Moment, late: set[str]) -> None:
        """A ring of this bell for these letters. `late`: those that came while it was made ready."""
        self._agree()
        last, bell = self._standing(now), self.bells[way]
        joins = last is not None and all(self._may_join(way, id, last) for id in ids)
        cap, pause = left(self._times(now), now)
        held_back = late
        if last is not None and joins and (cap > SLACK or pause > SLACK):
            held_back = late | {id for id in self.letters if not self._may_join(way, id, last)}
        bell.rang(ids, now, held_back)
        if last is None or not joins:
            is_urgent = any(self.letters[id].is_urgent for id in ids)
            assert pause <= SLACK or is_urgent, "no pause between two tellings"
            assert cap <= SLACK, "told more often in an hour than one may be"
            last = RecipientAlert(boot=now.boot, at=now.steady, known=self.letters.keys() - late)
            lately = [one for one in self._tellings if one.boot == now.boot and one.at + HOUR > now.steady]
            self._tellings = [*lately, last]  # nobody joins what was before that any more
        last.notified.add(way)
        last.rung |= {(way, id) for id in ids}
        self._last[way] = last
        self.rings.append((now.boot, now.steady))

    def later(self, way: str, seconds: float | None, now: Moment) -> None:
        """No ring of this bell now; when to look again."""
        self._agree()
        last, (cap, pause) = self._standing(now), left(self._times(now), now)

        def held(id: str) -> float:
            if last is not None and self._may_join(way, id, last):
                return 0.0
            return cap if self.letters[id].is_urgent else max(cap, pause)

        self.bells[way].later(seconds, now, held)

    def failed(self, way: str) -> None:
        """The last ring of this bell did not get through."""
        if self.bells[way].last:
            self._last[way].rung -= {(way, id) for id in self.bells[way].last}
        self.bells[way].failed()

    def rests(self) -> None:
        """Nothing will be rung for any more unless something comes."""
        self._agree()
        for bell in self.bells.values():
            bell.rests()

    def _may_join(self, way: str, id: str, telling: RecipientAlert) -> bool:
        """Each bell once, and again for what failed."""
        is_retry = self.bells[way].letters[id].failures > 0
        return id in telling.known and (way not in telling.notified or is_retry)

    def _standing(self, now: Moment) -> RecipientAlert | None:
        """The last one that some bell got through for, as far as anybody knows."""
        return next((one for one in reversed(self._tellings) if one.rung and one.boot == now.boot), None)

    def _times(self, now: Moment) -> list[tuple[str, float]]:
        return [(one.boot, one.at) for one in self._tellings if one.rung and one.boot == now.boot]

    def _agree(self) -> None:
        """What became of a letter is the same for all bells."""
        for id, seen in self.letters.items():
            for bell in self.bells.values():
                its = bell.letters.setdefault(id, Seen(word=seen.word, is_old=seen.is_old))
                its.is_read, its.is_over, its.is_held = seen.is_read, seen.is_over, seen.is_held
