"""The rules of rings (B2) in a room, over any history: what is safe first, looked at again, told once by whoever
is quicker; and a twin of each that the witness finds out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from postroom import IllegalMove, Room, Work
from postroom.core import alerts
from postroom.model import delivery
from postroom.model.alert import Rung
from postroom.model.delivery import Delivery
from postroom.model.query import Query
from postroom.settings import Settings
from postroom.store.protocol import Move, Write
from tests.alerts.histories import (
    BRIEF,
    CHANNELS,
    EXAMPLES,
    HISTORIES,
    SEVERAL,
    History,
    Ringer,
    history,
    plant,
    play,
)
from tests.alerts.witness import LIMITS
from tests.contract.stores import CORE, Kind
from tests.letters import on_barrier

LEASE = 600_000.0  # seconds; longer than a history
RULES = {name: getattr(LIMITS, name) for name in LIMITS.__struct_fields__ if name.startswith("ring_")}


class InARoom(Ringer):
    """Ringers at bob's mailbox, with some mail from before, and a rival of each way."""

    def __init__(self, kind: Kind, folder: Path, channels: tuple[str, ...]) -> None:
        super().__init__(channels)
        self._kind, self._folder = kind, folder
        self._open()
        self._held: dict[str, Work] = {}
        self._unsafe: set[str] = set()
        self._late: set[str] | None = None  # what came since the sync; None: nothing comes then
        for word in ("urgent", "normal"):
            self.send(word, is_old=True)
        for channel in channels:
            self._bob.begin_alerts(channel)

    def _open(self) -> None:
        self.store = self._kind.open(self._folder, self.clock.moment.boot)
        chosen = Settings(**RULES, backoff_first=LIMITS.backoff_first, max_attempts=1000)
        one, other = (Room(self.store, chosen, clock=self.clock) for _ in range(2))
        self._ann, self._bob, self._rival = one.mailbox("ann"), one.mailbox("bob"), other.mailbox("bob")
        on_barrier(self.store, self._synced)

    def send(self, word: str, *, is_old: bool = False) -> None:
        brief = {"expires": BRIEF} if word == "brief" else {"priority": word}
        if not is_old:
            self.let_time_pass()  # a send does a share of what is due, as every verb that writes
        id = self._ann.send("bob", word, **brief).id
        self.note(id, word, is_old=is_old)
        self._unsafe.add(id)

    def let_time_pass(self) -> None:
        super().let_time_pass()
        self._bob.counts()  # whoever looks finds what time did

    def touch(self, what: str, id: str) -> None:
        self.let_time_pass()
        seen = self.witness.letters[id]
        if seen.is_over or (what in {"claim", "release"} and seen.is_held == (what == "claim")):
            return
        if what == "read":
            self._bob.read(id)
            seen.is_read = True
        elif what == "ack":
            (self._held.pop(id, None) or self._bob.read(id)).ack()
            seen.is_over, seen.is_held = True, False
        elif what == "claim":
            (self._held[id],) = self._bob.claim(1, lease=LEASE, thread=id)
            seen.is_held = True
        elif what == "release":
            self._held.pop(id).release()
            seen.is_held = False
        else:
            with suppress(IllegalMove):  # somebody has it, or had
                self._ann.unsend(id)
                seen.is_over = True

    def reboot(self, _: None = None) -> None:
        """No lease outlives it."""
        super().reboot()
        if self._kind.lasts:
            self.store.close()
            self._open()
        for id in self._held:
            self.witness.letters[id].is_held = False
        self._held.clear()

    def fail(self, channel: str | None = None) -> None:
        channel = channel or self.channels[0]
        if lost := self.witness.witnesses[channel].last:
            self._bob.alert_failed(channel, lost, "exit 1")
        self.witness.failed(channel)

    def look_by(self, channel: str, meanwhile: str | None) -> float | None:
        self.let_time_pass()
        before = self._deliveries()
        self._late = set() if meanwhile == "send" else None
        outcome = self._bob.next_alert(channel, may_alert=lambda: self._let_happen(channel, meanwhile))
        late, self._late = self._late or set(), None
        assert meanwhile or before == self._deliveries(), "a ring moved a letter"
        if isinstance(outcome, Rung):
            self._rang(outcome, late)
            return 0.0
        self.witness.later(channel, outcome.seconds, self.clock.moment)
        return outcome.seconds

    def _let_happen(self, channel: str, meanwhile: str | None) -> bool:
        """After the first look, and before what is rung for is written down."""
        if meanwhile in {"read", "ack"}:
            for id in [id for id, seen in self.witness.letters.items() if seen.is_fresh]:
                self.touch(meanwhile, id)
        elif meanwhile in {"rival", "other"}:
            other = self.channels[self.channels.index(channel) - 1] if meanwhile == "other" else channel
            if outcome := self._rival.next_alert(other):
                self._rang(outcome, set())
        return True

    def _synced(self, sync: Callable[[], object]) -> None:
        sync()
        self._unsafe.clear()
        if self._late is not None:
            self.send("normal")
            self._late |= self._unsafe

    def _rang(self, rung: Rung, late: set[str]) -> None:
        assert not self._unsafe & {*rung.ids}, "rung for before it was safe"
        open_here = [s for s in self.witness.letters.values() if not (s.is_read or s.is_over or s.is_held)]
        assert len(open_here) == rung.unread, "it tells a wrong number of unread letters"
        self.witness.rang(rung.way, rung.ids, self.clock.moment, late)

    def _deliveries(self) -> list[Delivery]:
        return [found.delivery for found in self.store.find(Query(mailbox="bob", order="age"))]


def run(kind: Kind, steps: History, channels: tuple[str, ...] = CHANNELS[:1]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ringer = InARoom(kind, Path(folder), channels)
        try:
            play(ringer, steps)
        finally:
            ringer.store.close()


@pytest.mark.parametrize("kind", CORE, ids=lambda kind: kind.name)
def test_the_rules_hold_in_a_room_whatever_happens(kind: Kind) -> None:
    @settings(max_examples=EXAMPLES)
    @given(HISTORIES)
    def played(steps: History) -> None:
        run(kind, steps)

    played()


@pytest.mark.parametrize("kind", CORE, ids=lambda kind: kind.name)
def test_the_rules_hold_in_a_room_with_several_channels(kind: Kind) -> None:
    @settings(max_examples=EXAMPLES)
    @given(SEVERAL)
    def played(steps: History) -> None:
        run(kind, steps, CHANNELS)

    played()


STALE = "letters = _record_alert(core, mailbox, way, moment, until, self.least, self.on_alert, within)"
AT_ONCE = (
    f"letters = alerted_letters(core, [seen.found[id] for id in verdict.ring]); {STALE.removeprefix('letters = ')}"
)
# name -> what the witness says, a history (letters 0 and 1 are old), and the line that is wrong
BUGS: dict[str, tuple[Any, ...]] = {
    "no sync": (
        "rung for before it was safe", "normal, wait 1, look",
        alerts.NextAlert, "run", "core.store.commit(())", "pass",
    ),
    "what came after the sync": (
        "rung for before it was safe", "urgent, look send",
        alerts, "_record_alert", "log, moment, until, least)", "log, moment, until + 99, least)",
    ),
    "no second look": (
        "rung for what is read", "normal, wait 1, look read", alerts.NextAlert, "run", STALE, AT_ONCE,
    ),
    "two ringers": (
        "rung for twice", "normal, wait 1, look rival", alerts.NextAlert, "run", STALE, AT_ONCE,
    ),
    "no cold start": (
        "the backlog was rung for", "wait 1, look", alerts.BeginAlerts, "run", "core.store.cursor().number", "0",
    ),
    "what comes back": (
        "somebody was never told", "normal, claim 2, normal, wait 1, look, release 2",
        alerts, "not_new", ", *(_number(f) - 1 for f in core.store.find(held))", ",", alerts,
    ),
    "what it rang for already": (
        "rung for twice", "normal, claim 2, normal, wait 1, look",
        alerts, "_new", "audit_of(core, mailbox, f.message.id).last(way) is None", "True",
    ),
    "what somebody holds": (
        "rung for what somebody works on", "urgent, look, claim 2, wait 301, look",
        alerts, "look", " if f.delivery.state is State.UNREAD", "", alerts,
    ),
    "two channels at once": (
        "somebody is told too late", "urgent, look exec other, urgent, look exec other, urgent, look exec",
        alerts, "_record_alert", "seen.waiting, log, before, ", "seen.waiting, log, type(before)(), ",
    ),
    "a broken channel is counted": (
        "not all were told together", "normal, wait 1, look exec, fail exec, normal, wait 1, look hook",
        alerts.AlertFailed, "run", "[last.telling for last in lost.values()]", "[]",
    ),
    "what was not told counts as told": (
        "somebody was never told", "normal, wait 1, look exec, normal, wait 1, look hook",
        alerts, "_record_alert", "min(recipient_alert.up_to, not_new(", "max(recipient_alert.up_to, not_new(",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", CORE, ids=lambda kind: kind.name)
@pytest.mark.parametrize("name", BUGS)
def test_what_goes_wrong_in_a_room_is_found_out(name: str, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    complaint, words, *bug = BUGS[name]
    run(kind, history(words), CHANNELS)
    plant(monkeypatch, *bug)
    with pytest.raises(AssertionError, match=complaint):
        run(kind, history(words), CHANNELS)


def test_a_ring_that_reads_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """An alert about a letter does not mark it as seen."""
    rightly: Callable[..., list[Write]] = alerts.audit_writes

    def wrongly(core: Any, mailbox: str, ids: Sequence[str], change: Any) -> list[Write]:
        found = core.store.find(Query(mailbox=mailbox, message_ids=tuple(ids)))
        read = [Move(f.delivery, delivery.read(f.delivery, core.now().wall), "read") for f in found]
        return [*rightly(core, mailbox, ids, change), *read]

    run(CORE[0], history("normal, wait 1, look"))
    monkeypatch.setattr(alerts, "audit_writes", wrongly)
    with pytest.raises(AssertionError, match="a ring moved a letter"):
        run(CORE[0], history("normal, wait 1, look"))
