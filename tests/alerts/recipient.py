"""A witness of one recipient with several channels: each has a witness of its own, and what is counted here is how
often the recipient is alerted, by whichever channel.
"""

from __future__ import annotations

import msgspec

from postroom.model.query import Moment
from tests.alerts.witness import HOUR, SLACK, Seen, Witness, left


class RecipientAlert(msgspec.Struct):
    """One alert to the recipient, by one channel or several."""

    boot: str
    at: float
    known: set[str]  # what had come by then
    notified: set[str] = set()  # by which channels
    rung: set[tuple[str, str]] = set()  # channel and letter, less what failed


class Recipient:
    """A record of all that the recipient was alerted to, checked at each step."""

    def __init__(self, channels: tuple[str, ...]) -> None:
        self.witnesses = {channel: Witness() for channel in channels}
        self.letters: dict[str, Seen] = {}  # as anybody can know them; alerts are known to each channel
        self.rings: list[tuple[str, float]] = []
        self._alerts: list[RecipientAlert] = []
        self._last: dict[str, RecipientAlert] = {}

    def rang(self, channel: str, ids: tuple[str, ...], now: Moment, late: set[str]) -> None:
        """Record an alert on this channel for these letters. `late`: letters that came while it was prepared."""
        self._agree()
        last, witness = self._standing(now), self.witnesses[channel]
        joins = last is not None and all(self._may_join(channel, id, last) for id in ids)
        cap, pause = left(self._times(now), now)
        held_back = late
        if last is not None and joins and (cap > SLACK or pause > SLACK):
            held_back = late | {id for id in self.letters if not self._may_join(channel, id, last)}
        witness.rang(ids, now, held_back)
        if last is None or not joins:
            is_urgent = any(self.letters[id].is_urgent for id in ids)
            assert pause <= SLACK or is_urgent, "no pause between two alerts"
            assert cap <= SLACK, "more alerts in an hour than are allowed"
            last = RecipientAlert(boot=now.boot, at=now.steady, known=self.letters.keys() - late)
            lately = [one for one in self._alerts if one.boot == now.boot and one.at + HOUR > now.steady]
            self._alerts = [*lately, last]  # nobody joins what was before that any more
        last.notified.add(channel)
        last.rung |= {(channel, id) for id in ids}
        self._last[channel] = last
        self.rings.append((now.boot, now.steady))

    def later(self, channel: str, seconds: float | None, now: Moment) -> None:
        """Record that the channel stays silent, and when to look again."""
        self._agree()
        last, (cap, pause) = self._standing(now), left(self._times(now), now)

        def held(id: str) -> float:
            if last is not None and self._may_join(channel, id, last):
                return 0.0
            return cap if self.letters[id].is_urgent else max(cap, pause)

        self.witnesses[channel].later(seconds, now, held)

    def failed(self, channel: str) -> None:
        """Record that the last alert on this channel failed."""
        if self.witnesses[channel].last:
            self._last[channel].rung -= {(channel, id) for id in self.witnesses[channel].last}
        self.witnesses[channel].failed()

    def rests(self) -> None:
        """Nothing will be rung for any more unless something comes."""
        self._agree()
        for witness in self.witnesses.values():
            witness.rests()

    def _may_join(self, channel: str, id: str, alert: RecipientAlert) -> bool:
        """Each channel may join once, and again for what failed."""
        is_retry = self.witnesses[channel].letters[id].failures > 0
        return id in alert.known and (channel not in alert.notified or is_retry)

    def _standing(self, now: Moment) -> RecipientAlert | None:
        """Return the last alert that got through on some channel."""
        return next((one for one in reversed(self._alerts) if one.rung and one.boot == now.boot), None)

    def _times(self, now: Moment) -> list[tuple[str, float]]:
        return [(one.boot, one.at) for one in self._alerts if one.rung and one.boot == now.boot]

    def _agree(self) -> None:
        """What became of a letter is the same on all channels."""
        for id, seen in self.letters.items():
            for witness in self.witnesses.values():
                its = witness.letters.setdefault(id, Seen(word=seen.word, is_old=seen.is_old))
                its.is_read, its.is_over, its.is_held = seen.is_read, seen.is_over, seen.is_held
