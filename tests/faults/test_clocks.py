"""The wall clock jumps an hour to and fro, and the machine reboots, while mail is sent, held, expired and sorted.

Order is that of acceptance, leases go by uptime, and nothing that is not settled goes away but for its sender's
expiry. One audit looks at all of it, after every jump; each twin is a store or a clock that believes the wall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from postroom import Room, draft
from postroom.core import outbox
from postroom.errors import LeaseLost, PostroomError, Resync
from postroom.letter import Work
from postroom.model.peer import Peer
from postroom.model.query import Moment
from postroom.policy import retry
from postroom.settings import Settings
from postroom.store.protocol import Store
from tests.contract.stores import STORES
from tests.core.peering import know_peer
from tests.faults.kinds import KINDS, Kind
from tests.rooms import FakeClock

HOUR = 3600.0
CENTURIES = 2_400_000 * HOUR  # some 270 years
JUMPS = (HOUR, -HOUR, -HOUR, HOUR, HOUR, HOUR, -2 * HOUR, -HOUR, HOUR)
Open = Callable[[Path, str], Store]
EVERY: dict[str, Open] = {kind.name: kind.open for kind in STORES} | {kind.name: kind.open for kind in KINDS}
MARKS = {kind.name: [getattr(pytest.mark, kind.mark)] for kind in KINDS if kind.mark}
NAMES = [pytest.param(name, marks=MARKS.get(name, ())) for name in EVERY]


class OneClock(FakeClock):
    """Measures leases by the wall: its uptime is a wall clock too."""

    def now(self) -> Moment:
        return replace(self.moment, steady=self.moment.wall.timestamp())


@contextmanager
def opened(open_store: Open, folder: Path, clock: FakeClock) -> Iterator[Room]:
    """A room that keeps settled mail for a minute only, so that its janitor has something to delete."""
    store = open_store(folder, clock.moment.boot)
    try:
        yield Room(store, Settings(retain_for=60.0, archive_after=1.0), clock=clock)
    finally:
        store.close()


# -- jumps


def audit_of_jumps(room: Room, clock: FakeClock) -> list[str]:
    """Send, hold and sweep under a clock that jumps; all that went wrong."""
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    ann.send("bob", "held")
    held = bob.claim(lease=1000)
    assert held is not None
    ends = clock.moment.steady + 1000
    wrong, sent = [], []
    for number, jump in enumerate(JUMPS):
        clock.jump(jump)
        clock.tick(100)
        ann.send("bob", f"letter {number}")
        sent.append(f"letter {number}")
        room.sweep()
        there = [letter.text for letter in bob.check(None, peek=True) if letter.text != "held"]
        if there != sent:
            wrong.append(f"after {clock.moment.steady} s: {there}, not {sent}")
        if clock.moment.steady < ends:
            wrong += [f"{held.text} was lost" for _ in lost(held)]
    return wrong + out_of_order(room, sent)


def lost(work: Work) -> Iterator[None]:
    """Does its holder hold it no longer?"""
    assert work.delivery.lease is not None
    try:
        work._mailbox.held(work.id, work.delivery.lease.token)
    except PostroomError:
        yield


def out_of_order(room: Room, sent: Sequence[str]) -> list[str]:
    """Claim all: they come in the order of acceptance."""
    got = []
    while (work := room.mailbox("bob").claim()) is not None:
        if work.text != "held":
            got.append(work.text)
        work.ack()
    return [] if got == list(sent) else [f"claimed {got}, not {list(sent)}"]


@pytest.mark.parametrize("name", NAMES)
def test_a_wall_clock_that_jumps_changes_no_order_ends_no_lease_and_deletes_nothing(
    name: str, tmp_path: Path
) -> None:
    clock = FakeClock()
    with opened(EVERY[name], tmp_path, clock) as room:
        assert audit_of_jumps(room, clock) == []


@pytest.mark.parametrize(("bug", "finds"), [("sorted by the clock", "claimed"), ("blind to the future", "after")])
def test_the_audit_finds_a_store_that_believes_the_wall_clock(
    kind: Kind, tmp_path: Path, bug: str, finds: str
) -> None:
    clock = FakeClock()
    with opened(kind.with_bug(bug), tmp_path, clock) as room:
        assert any(complaint.startswith(finds) for complaint in audit_of_jumps(room, clock))


def test_the_audit_finds_leases_that_go_by_the_wall_clock(kind: Kind, tmp_path: Path) -> None:
    clock = OneClock()
    with opened(kind.open, tmp_path, clock) as room:
        assert "held was lost" in audit_of_jumps(room, clock)


# -- expiry


def audit_of_expiry(room: Room, clock: FakeClock) -> list[str]:
    """A letter that its sender lets expire in two hours, and one that never does: what went wrong."""
    room.mailbox("ann").send("bob", "for two hours", expires=2 * HOUR)
    room.mailbox("ann").send("bob", "for ever")
    wrong = []
    both, one = ["for two hours", "for ever"], ["for ever"]
    for jump, open_mail in (
        (HOUR, both),
        (-2 * HOUR, both),
        (HOUR + 1, both),
        (3 * HOUR, one),
        (1000 * HOUR, one),
    ):
        clock.jump(jump)
        room.sweep()
        there = [letter.text for letter in room.mailbox("bob").check(None, peek=True)]
        if there != open_mail:
            wrong.append(f"after a jump of {jump} s there is {there}")
        dead = [letter.text for letter in room.mailbox("bob").dead()]
        if jump == 3 * HOUR and dead != ["for two hours"]:  # later its time among the dead is over too
            wrong.append(f"among the dead is {dead}")
    return wrong


@pytest.mark.parametrize("name", NAMES)
def test_only_its_senders_expiry_ends_a_letter(name: str, tmp_path: Path) -> None:
    clock = FakeClock()
    with opened(EVERY[name], tmp_path, clock) as room:
        assert audit_of_expiry(room, clock) == []


@pytest.mark.parametrize(
    ("bug", "finds"),
    [("impatient", "after a jump of 3600000.0 s there is []"), ("dropping", "among the dead is []")],
)
def test_the_audit_finds_a_store_that_ends_mail_of_its_own_accord_or_drops_what_expired(
    kind: Kind, tmp_path: Path, bug: str, finds: str
) -> None:
    clock = FakeClock()
    with opened(kind.with_bug(bug), tmp_path, clock) as room:
        assert audit_of_expiry(room, clock) == [finds]


# -- retries


def audit_of_retries(room: Room, clock: FakeClock) -> list[str]:
    """A holder fails, and a link, while the clock is in another century; then it is put right: what does not come
    back within the longest pause. What its sender set for later does not come before.
    """
    core, ann, bob = room.core, room.mailbox("ann"), room.mailbox("bob")
    know_peer(room, Peer(system="far"))
    ann.send_many([draft("bob", "failed"), draft("zoe@far", "not taken")])
    clock.jump(CENTURIES)
    work = bob.claim()
    assert work is not None
    work.fail("no luck")
    (found,) = outbox.next_letters(core, ["zoe@far"], 9)
    outbox.record_delay(core, found, "busy", clock.wall + retry.pause(1, core.limits, 1))
    wrong = [] if bob.claim() is None and not outbox.waiting_mailboxes(core) else ["tried again at once"]
    clock.jump(-CENTURIES)
    ann.send_many([draft(name, "for next year", at=8760 * HOUR) for name in ("bob", "zoe@far")])
    clock.advance(max(core.limits.backoff_most, core.limits.outbox_retry_cap))
    again = bob.claim()
    if again is None or again.text != "failed":
        wrong.append("a letter waits for another century")
    if bob.claim() is not None:
        wrong.append("a letter came before its time")
    names = outbox.waiting_mailboxes(core)
    ready = [one.message.text for one in outbox.next_letters(core, names, 9)]
    return wrong if ready == ["not taken"] else [*wrong, f"the link would take {ready}"]


@pytest.mark.parametrize("name", NAMES)
def test_no_try_waits_for_longer_than_the_longest_pause_under_any_clock(name: str, tmp_path: Path) -> None:
    clock = FakeClock()
    with opened(EVERY[name], tmp_path, clock) as room:
        assert audit_of_retries(room, clock) == []


def test_the_audit_finds_a_store_that_waits_for_another_century(kind: Kind, tmp_path: Path) -> None:
    clock = FakeClock()
    with opened(kind.with_bug("patient"), tmp_path, clock) as room:
        assert audit_of_retries(room, clock) == ["a letter waits for another century", "the link would take []"]


# -- reboot


def audit_of_a_reboot(open_store: Open, folder: Path) -> list[str]:
    """Leases and cursors from before a reboot: what went wrong with them after it."""
    clock = FakeClock()
    with opened(open_store, folder, clock) as room:
        room.mailbox("ann").send_many([draft("bob", text) for text in ("first", "second")])
        held = room.mailbox("bob").claim(lease=100_000)
        cursor = room.cursor()
        room.mailbox("ann").send("bob", "third")
    assert held is not None and held.delivery.lease is not None
    clock.reboot()
    with opened(open_store, folder, clock) as room:
        return [
            *_not_refused(room, held.id, held.delivery.lease.token),
            *_not_answered(room, str(cursor)),
            *([] if _claim_all(room, clock) == ["first", "second", "third"] else ["not all is offered again"]),
        ]


def _not_refused(room: Room, id: str, token: str) -> Iterator[str]:
    try:
        room.mailbox("bob").held(id, token).ack()
    except LeaseLost:
        return
    yield "a lease outlived its boot"


def _not_answered(room: Room, cursor: str) -> Iterator[str]:
    """An old cursor is answered with 'start from the present', and the present works."""
    try:
        room.changes(cursor)
        yield "a cursor outlived its boot"
    except Resync:
        now = room.cursor()
    else:
        return
    room.mailbox("ann").send("cleo", "after the reboot")
    changes, _ = room.changes(now)
    if [change.what for change in changes] != ["posted"]:
        yield f"a new cursor tells {changes}"


def _claim_all(room: Room, clock: FakeClock) -> list[str]:
    room.mailbox("bob").claim()  # lets time pass: what lapsed waits for its next try
    clock.advance(100)
    got = []
    while (work := room.mailbox("bob").claim(lease=100_000)) is not None:
        got.append(work.text)
    return sorted(got)


def test_after_a_reboot_old_leases_are_over_and_old_cursors_start_again(kind: Kind, tmp_path: Path) -> None:
    assert audit_of_a_reboot(kind.open, tmp_path) == []


@pytest.mark.parametrize(
    ("bug", "finds"), [("of no boot", "a cursor outlived its boot"), ("forgiving", "a lease outlived its boot")]
)
def test_the_audit_finds_a_store_that_does_not_notice_a_reboot(
    kind: Kind, tmp_path: Path, bug: str, finds: str
) -> None:
    assert finds in audit_of_a_reboot(kind.with_bug(bug), tmp_path)
