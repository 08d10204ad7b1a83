"""The wall clock jumps an hour to and fro, and the machine reboots, while mail is sent, held, expired and sorted.

Order is that of acceptance, leases go by uptime, and nothing that is not settled goes away but for its sender's
expiry. One audit looks at all of it, after every jump; each twin is a store or a clock that believes the wall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from postroom import Room, draft
from postroom.errors import LeaseLost, PostroomError, Resync
from postroom.letter import Work
from postroom.model.query import Found, Moment, Query
from postroom.settings import Settings
from postroom.store.base import Store
from postroom.store.sqlite.store import SqliteStore
from tests.contract.stores import STORES, Kind
from tests.rooms import FakeClock

HOUR = 3600.0
JUMPS = (HOUR, -HOUR, -HOUR, HOUR, HOUR, HOUR, -2 * HOUR, -HOUR, HOUR)
LASTING = [kind for kind in STORES if kind.lasts]
Open = Callable[[Path, str], Store]


class OneClock(FakeClock):
    """Measures leases by the wall: its uptime is a wall clock too."""

    def now(self) -> Moment:
        return replace(self.moment, steady=self.moment.wall.timestamp())


class SortedByTheClock(SqliteStore):
    """The oldest first: by the time on the letter."""

    def find(self, query: Query) -> list[Found]:
        found = super().find(replace(query, limit=None))
        return sorted(found, key=lambda each: each.message.created_at)[: query.limit]


class BlindToTheFuture(SqliteStore):
    """A letter that comes from a later time than now is not there yet."""

    now: datetime | None = None

    def overdue(self, moment: Moment, mailboxes: Sequence[str] | None, limit: int) -> list[Found]:
        self.now = moment.wall
        return super().overdue(moment, mailboxes, limit)

    def find(self, query: Query) -> list[Found]:
        found = super().find(query)
        return [each for each in found if self.now is None or each.message.created_at <= self.now]


class OfNoBoot(SqliteStore):
    """Does not notice that the machine was started anew."""

    def __init__(self, path: Path, *, boot: str) -> None:  # noqa: ARG002 - that is the bug
        super().__init__(path, boot="always the same")


class Forgiving(SqliteStore):
    """Leases go on after a boot, as if their holders had lived on."""

    def __init__(self, path: Path, *, boot: str) -> None:
        super().__init__(path, boot=boot)
        sql = "UPDATE deliveries SET lease_boot = ?, lease_until = 1e9 WHERE state = 2"
        self._here().database.execute(sql, (boot,))


def planted(bug: type[SqliteStore]) -> Open:
    return lambda folder, boot: bug(folder / "room.db", boot=boot)


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


@pytest.mark.parametrize("kind", STORES, ids=lambda kind: kind.name)
def test_a_wall_clock_that_jumps_changes_no_order_ends_no_lease_and_deletes_nothing(
    kind: Kind, tmp_path: Path
) -> None:
    clock = FakeClock()
    with opened(kind.open, tmp_path, clock) as room:
        assert audit_of_jumps(room, clock) == []


@pytest.mark.parametrize(
    ("open_store", "clock", "finds"),
    [
        (planted(SqliteStore), OneClock(), "held was lost"),
        (planted(SortedByTheClock), FakeClock(), "claimed"),
        (planted(BlindToTheFuture), FakeClock(), "after"),
    ],
    ids=["leases by the wall", "sorted by the wall", "blind to the future"],
)
def test_the_audit_finds_who_believes_the_wall_clock(
    tmp_path: Path, open_store: Open, clock: FakeClock, finds: str
) -> None:
    with opened(open_store, tmp_path, clock) as room:
        assert any(complaint.startswith(finds) for complaint in audit_of_jumps(room, clock))


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


@pytest.mark.parametrize("kind", STORES, ids=lambda kind: kind.name)
def test_only_its_senders_expiry_ends_a_letter(kind: Kind, tmp_path: Path) -> None:
    clock = FakeClock()
    with opened(kind.open, tmp_path, clock) as room:
        assert audit_of_expiry(room, clock) == []


class Impatient(SqliteStore):
    """What is unread for a day is done, by the wall clock."""

    def overdue(self, moment: Moment, mailboxes: Sequence[str] | None, limit: int) -> list[Found]:
        sql = "UPDATE deliveries SET state = 4, dead_at = ?1 WHERE state = 1 AND delivered_at < ?1 - 86400000000"
        self._here().database.execute(sql, (int(moment.wall.timestamp() * 1_000_000),))
        return super().overdue(moment, mailboxes, limit)


class Dropping(SqliteStore):
    """What has expired is not buried: it is gone."""

    def overdue(self, moment: Moment, mailboxes: Sequence[str] | None, limit: int) -> list[Found]:
        sql = "DELETE FROM deliveries WHERE expires_at <= ?"
        self._here().database.execute(sql, (int(moment.wall.timestamp() * 1_000_000),))
        return super().overdue(moment, mailboxes, limit)


@pytest.mark.parametrize(
    ("bug", "finds"), [(Impatient, "after a jump of 3600000.0 s there is []"), (Dropping, "among the dead is []")]
)
def test_the_audit_finds_a_store_that_ends_mail_of_its_own_accord_or_drops_what_expired(
    tmp_path: Path, bug: type[SqliteStore], finds: str
) -> None:
    clock = FakeClock()
    with opened(planted(bug), tmp_path, clock) as room:
        assert audit_of_expiry(room, clock) == [finds]


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


@pytest.mark.parametrize("kind", LASTING, ids=lambda kind: kind.name)
def test_after_a_reboot_old_leases_are_over_and_old_cursors_start_anew(kind: Kind, tmp_path: Path) -> None:
    assert audit_of_a_reboot(kind.open, tmp_path) == []


@pytest.mark.parametrize(
    ("bug", "finds"), [(OfNoBoot, "a cursor outlived its boot"), (Forgiving, "a lease outlived its boot")]
)
def test_the_audit_finds_a_store_that_does_not_notice_a_reboot(
    tmp_path: Path, bug: type[SqliteStore], finds: str
) -> None:
    assert finds in audit_of_a_reboot(planted(bug), tmp_path)
