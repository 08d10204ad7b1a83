"""A witness who knows the rules of rings and nothing of how they are kept: sees what is sent, read, acknowledged
and rung for at one mailbox, in one way, and complains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from postroom.model.query import Moment
from postroom.policy.limits import Limits

LIMITS = Limits(
    ring_gather=0.3,
    ring_cooldown=20.0,
    ring_hourly=4,
    ring_again=300.0,
    ring_most=2,
    ring_tries=2,
    backoff_first=30.0,
)
HOUR = 3600.0
GATHER_MOST = 2.0  # seconds for which the first of several letters waits
SLACK = 0.002  # seconds; sums of floats are not exact


class Seen(msgspec.Struct):
    """A letter, as anybody can know it."""

    word: str  # its priority; `brief` is one that expires
    is_old: bool = False  # it was there when somebody began to ring
    is_read: bool = False
    is_over: bool = False
    is_held: bool = False
    rings: list[tuple[str, float]] = []  # boot and uptime
    failed: list[bool] = []  # of each ring

    @property
    def is_urgent(self) -> bool:
        return self.word == "urgent"

    @property
    def is_fresh(self) -> bool:
        """Must its recipient still be told?"""
        done = self.is_read or self.is_over or self.is_held or self.rings
        return not (done or self.is_old or self.word == "low")

    @property
    def failures(self) -> int:
        """In a row, up to now."""
        return next((n for n, failed in enumerate(reversed(self.failed)) if not failed), len(self.failed))


class Witness:
    """A record of all alerts on one channel, checked at each step."""

    def __init__(self) -> None:
        self.letters: dict[str, Seen] = {}
        self.rings: list[tuple[str, float]] = []
        self.last: tuple[str, ...] = ()  # what was rung for last, unless that failed

    def rang(self, ids: tuple[str, ...], now: Moment, late: set[str]) -> None:
        """A ring for these letters. `late`: those that came while it was made ready."""
        assert ids and len(ids) == len(set(ids)), "a ring is for letters, each once"
        results = [self.letters[id] for id in ids]
        assert not any(seen.is_over for seen in results), "rung for what is dealt with"
        assert not any(seen.is_held for seen in results), "rung for what somebody works on"
        assert not any(seen.is_old for seen in results), "the backlog was rung for"
        assert not any(seen.word == "low" for seen in results), "rung for mail of low priority"
        for seen in results:
            _check_its_time(seen, now)
        fresh = {id for id, seen in self.letters.items() if seen.is_fresh}
        assert not fresh - late - {*ids}, "not all were told together"
        self._check_pauses(results, now)
        self.rings.append((now.boot, now.steady))
        self.last = ids
        for seen in results:
            seen.rings.append((now.boot, now.steady))
            seen.failed.append(False)

    def later(self, seconds: float | None, now: Moment, held: Callable[[str], float] = lambda _: 0.0) -> None:
        """No ring now; when to look again. `held`: how long a letter has to wait for other reasons than ours."""
        fresh = {id: seen for id, seen in self.letters.items() if seen.is_fresh}
        if not fresh:
            return
        assert seconds is not None, "somebody was never told"
        allowed = min(max(self._allowed(seen, now), held(id)) for id, seen in fresh.items())
        assert seconds <= allowed + SLACK, "somebody is told too late"

    def failed(self) -> None:
        """The last ring did not get through."""
        for id in self.last:
            self.letters[id].failed[-1] = True
        self.last = ()

    def rests(self) -> None:
        """Nothing will be rung for any more unless something comes."""
        assert not any(seen.is_fresh for seen in self.letters.values()), "somebody was never told"
        for seen in self.letters.values():
            if not seen.rings or seen.is_over or seen.is_held:
                continue
            if 0 < seen.failures < LIMITS.ring_tries:
                assert seen.is_read and not seen.is_urgent, "a ring that failed was never tried again"
            if seen.is_urgent and not seen.failures:
                assert seen.failed.count(False) == LIMITS.ring_most, "urgent mail was not rung for again"

    def _allowed(self, seen: Seen, now: Moment) -> float:
        cap, pause = left(self.rings, now)
        return cap if seen.is_urgent else max(cap, pause, GATHER_MOST)

    def _check_pauses(self, results: list[Seen], now: Moment) -> None:
        cap, pause = left(self.rings, now)
        assert pause <= SLACK or any(seen.is_urgent for seen in results), "no pause between two rings"
        assert cap <= SLACK, "more rings in an hour than there may be"


def left(times: Sequence[tuple[str, float]], now: Moment) -> tuple[float, float]:
    """Seconds until there are fewer than so many in an hour, and until the pause after the last one is over."""

    def until(count: int, span: float) -> float:
        lately = [at for boot, at in times if boot == now.boot][-count:]
        return max(lately[0] + span - now.steady, 0.0) if len(lately) == count else 0.0

    return until(LIMITS.ring_hourly, HOUR), until(1, LIMITS.ring_cooldown)


def _check_its_time(seen: Seen, now: Moment) -> None:
    if not seen.rings:
        assert not seen.is_read, "rung for what is read"
        return
    boot, at = seen.rings[-1]
    since = now.steady - at if boot == now.boot else now.steady
    if seen.failures:
        assert seen.failures < LIMITS.ring_tries, "rung for after it was given up"
        pause = LIMITS.backoff_first * 2 ** (seen.failures - 1) if boot == now.boot else 0.0
        assert since >= pause - SLACK, "tried again too soon"
        assert seen.is_urgent or not seen.is_read, "tried again for what is read"
        return
    assert seen.is_urgent, "rung for twice"
    assert since >= LIMITS.ring_again - SLACK, "rung for again too soon"
    assert seen.failed.count(False) < LIMITS.ring_most, "rung for too often"
