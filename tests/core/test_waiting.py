"""Waiting (M14): woken by what arrives, bounded, and with a cursor nothing is missed."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from postroom import Cursor, LookAlike, Mailbox, Resync, Room
from postroom.core import inbox, verb
from postroom.core.authorize import Principal, agent_principal
from postroom.core.core import Core
from postroom.core.verb import seconds_to_sleep
from postroom.model.query import Found, Moment, Query
from postroom.settings import Settings
from tests.contract.stores import Kind
from tests.rooms import FakeClock, RoomFactory, texts

T = TypeVar("T")
LONG = 30.0  # seconds; a test that waits so long has failed


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def ticking(kind: Kind, tmp_path: Path) -> Iterator[Room]:
    """A room whose clock runs."""
    from postroom.clock import SystemClock

    clock = SystemClock()
    with Room(kind.open(tmp_path, clock.now().boot), Settings(), clock=clock) as room:
        yield room


def while_waiting(pool: ThreadPoolExecutor, room: Room, wait: Callable[[], T], act: Callable[[], object]) -> T:
    """What `wait` returns when `act` is done after it has set its watch."""
    listening = threading.Event()
    hang = room.core.store.watch

    def watch(mailboxes: list[str]) -> object:
        received = hang(mailboxes)
        listening.set()
        return received

    room.core.store.watch = watch  # type: ignore[assignment, method-assign]
    waiting: Future[T] = pool.submit(wait)
    assert listening.wait(LONG)
    act()
    return waiting.result(LONG)


def test_a_waiter_is_woken_by_a_letter_from_another_thread(pool: ThreadPoolExecutor, ticking: Room) -> None:
    bob = ticking.mailbox("bob")
    letter = while_waiting(pool, ticking, lambda: bob.wait(LONG), lambda: ticking.mailbox("ann").send("bob", "x"))
    assert letter
    assert letter.text == "x"
    assert letter.delivery.read_at


def test_a_worker_is_woken_too(pool: ThreadPoolExecutor, ticking: Room) -> None:
    bob = ticking.mailbox("bob")
    work = while_waiting(
        pool, ticking, lambda: bob.claim(timeout=LONG), lambda: ticking.mailbox("ann").send("bob", "x")
    )
    assert work
    work.ack()


def test_a_worker_is_woken_by_what_another_gives_back(pool: ThreadPoolExecutor, ticking: Room) -> None:
    ticking.mailbox("ann").send("bob", "x")
    held = ticking.mailbox("bob").claim()
    assert held
    again = while_waiting(pool, ticking, lambda: ticking.mailbox("bob").claim(timeout=LONG), held.release)
    assert again


def test_one_may_wait_at_many_mailboxes(pool: ThreadPoolExecutor, ticking: Room) -> None:
    letter = while_waiting(
        pool,
        ticking,
        lambda: ticking.wait(["bob", "carol"], LONG),
        lambda: ticking.mailbox("ann").send("carol", "x"),
    )
    assert letter
    assert letter.delivery.mailbox == "carol"
    letter.ack()


def test_the_most_urgent_of_many_mailboxes_comes_first(room: Room) -> None:
    room.mailbox("ann").send("bob", "old")
    room.mailbox("ann").send("carol", "urgent", priority="urgent")
    found = [room.wait(("bob", "carol"), 0) for _ in range(3)]
    assert [letter and letter.text for letter in found] == ["urgent", "old", None]
    room.mailbox("ann").send("bob", "x")
    assert room.wait("bob", 0)


def test_a_waiter_gets_none_when_the_time_is_up(room: Room) -> None:
    bob = room.mailbox("bob")
    began = time.monotonic()
    assert bob.wait(0) is None
    assert bob.wait(0.02) is None
    assert bob.claim(timeout=0.02) is None
    assert bob.claim(3, timeout=0.02) == []
    assert 0.06 <= time.monotonic() - began < LONG


def test_mail_for_someone_else_does_not_end_the_wait(pool: ThreadPoolExecutor, ticking: Room) -> None:
    found = while_waiting(
        pool, ticking, lambda: ticking.mailbox("bob").wait(0.2), lambda: ticking.mailbox("ann").send("carol", "x")
    )
    assert found is None


def test_a_waiter_is_woken_by_mail_that_comes_due(ticking: Room) -> None:
    ticking.mailbox("ann").send("bob", "later", at=timedelta(milliseconds=60))
    letter = ticking.mailbox("bob").wait(LONG)
    assert letter
    assert letter.text == "later"


@pytest.mark.parametrize("bug", ["", "timers before the look are forgotten"])
def test_mail_that_comes_due_during_a_look_is_found_at_once(
    room: Room, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, bug: str
) -> None:
    room.mailbox("ann").send("bob", "later", at=timedelta(seconds=50))
    run, looks = inbox.Wait.run, itertools.count()

    def slow(self: inbox.Wait, core: Core, principal: Principal) -> Any:
        found = run(self, core, principal)
        if next(looks) == 1:  # the first one after the watch is set
            clock.advance(51)
        return found

    def forgetful(core: Core, mailboxes: Sequence[str], _began: Moment) -> float:
        return seconds_to_sleep(core, mailboxes, core.now())

    monkeypatch.setattr(inbox.Wait, "run", slow)
    if bug:
        monkeypatch.setattr(verb, "seconds_to_sleep", forgetful)
    began = time.monotonic()
    assert room.mailbox("bob").wait(0.5 if bug else LONG)
    assert (time.monotonic() - began >= 0.5) == bool(bug)


def test_a_worker_is_woken_by_a_lease_that_ends_and_by_a_pause_that_is_over(kind: Kind, tmp_path: Path) -> None:
    from postroom.clock import SystemClock

    settings = Settings(backoff_first=0.05)
    with Room(kind.open(tmp_path, SystemClock().now().boot), settings, clock=SystemClock()) as room:
        room.mailbox("ann").send("bob", "x")
        bob = room.mailbox("bob")
        assert bob.claim(lease=0.05)
        again = bob.claim(timeout=LONG)
        assert again
        failed = time.monotonic()
        again.fail("once more")
        assert bob.claim(timeout=LONG)
        assert time.monotonic() - failed > 0.09  # the second pause is a tenth; a slow moment makes it no shorter


def test_with_a_cursor_nothing_is_missed(room: Room) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    ann.send("bob", "before")
    cursor: Cursor | str = str(room.cursor())
    for text in ("1", "2", "3", "4"):
        ann.send("bob", text, priority="urgent" if text == "3" else "normal")
    bob.check(1)  # read
    bob.check(1)[0].ack()  # done
    bob.check(1)[0].reject("dead")
    assert bob.claim()  # claimed
    seen = []
    while letter := bob.wait(0, since=cursor):
        seen.append(letter.text)
        cursor = letter.cursor
    assert seen == ["1", "2", "3", "4"]


def test_a_cursor_of_an_agent_misses_nothing_and_repeats_nothing(room: Room, clock: FakeClock) -> None:
    """Also when a letter with a set time came last, and when the room keeps no change that old."""
    bob, carl = room.mailbox("bob"), room.acting_as(agent_principal("carl"))
    assert 0 == carl.cursor().number
    bob.send("carl", "late", at=60)
    bob.send("carl", "early")
    clock.advance(61)
    assert 2 == len(carl.mailbox("carl").check(peek=True))
    since = carl.cursor()
    for _ in range(5):
        bob.send("alice", "x")
    assert since == carl.cursor() and since.number < room.cursor().number
    room.core.store.trim(1)
    assert carl.mailbox("carl").wait(0, since=since) is None
    bob.send("carl", "next")
    letter = carl.mailbox("carl").wait(0, since=str(since))
    assert letter and "next" == letter.text


def test_a_cursor_wakes_by_the_age_of_letters_at_many_mailboxes(room: Room) -> None:
    cursor = room.cursor()
    room.mailbox("ann").send("carol", "1")
    room.mailbox("ann").send("bob", "2", priority="urgent")
    first = room.wait(["bob", "carol"], 0, since=cursor, peek=True)
    assert first
    assert first.text == "1"
    second = room.wait(["bob", "carol"], 0, since=first.cursor)
    assert second
    assert second.text == "2"
    assert room.wait(["bob", "carol"], 0, since=second.cursor) is None


def test_a_cursor_misses_no_mail_that_comes_late(room: Room, clock: FakeClock) -> None:
    ann = room.mailbox("ann")
    ann.send("bob", "late", at=60)
    cursor = room.cursor()
    ann.send("carol", "1")
    ann.send("bob", "2")
    clock.advance(61)
    room.sweep()
    ann.send("carol", "3")
    seen = []
    while letter := room.wait(["bob", "carol"], 0, since=cursor):
        seen.append(letter.text)
        cursor = letter.cursor
    assert seen == ["1", "2", "late", "3"]


def test_a_cursor_outlives_a_restart(factory: RoomFactory, room: Room) -> None:
    cursor = str(room.cursor())
    room.mailbox("ann").send("bob", "x")
    factory.reopen()
    letter = factory.room().mailbox("bob").wait(0, since=cursor)
    assert letter
    assert letter.text == "x"


@pytest.mark.parametrize("stale", ["another:room:5", "trimmed", "future"])
def test_a_cursor_that_is_no_longer_valid_starts_from_the_beginning(
    factory: RoomFactory, clock: FakeClock, stale: str
) -> None:
    room = factory.room(retain_changes=1)
    cursor = str(room.cursor())
    room.mailbox("ann").send("bob", "first")
    if stale == "trimmed":
        for _ in range(3):
            room.mailbox("bob").check(unread_only=False)[0].ack()
            room.mailbox("ann").send("bob", "more")
        assert room.sweep().trimmed
    elif stale == "future":
        cursor = cursor.rpartition(":")[0] + ":999999"
    else:
        cursor = stale
    with pytest.raises(Resync):
        room.changes(cursor)
    letter = room.mailbox("bob").wait(0, since=cursor)
    assert letter
    assert letter.text == "first"


def test_a_filtered_worker_sleeps_through_other_mail(pool: ThreadPoolExecutor, ticking: Room) -> None:
    bob = ticking.mailbox("bob")

    def send_both() -> None:
        ticking.mailbox("ann").send("bob", "other", kind="note")
        ticking.mailbox("ann").send("bob", "wanted", kind="task")

    work = while_waiting(pool, ticking, lambda: bob.claim(timeout=LONG, kinds="task"), send_both)
    assert work
    assert work.text == "wanted"
    assert texts(bob.check()) == ["other"]


def test_changes_tell_what_happened_since_a_cursor(room: Room) -> None:
    cursor = room.cursor()
    sent = room.mailbox("ann").send("bob", "x").id
    room.mailbox("bob").check()[0].ack()
    changes, after = room.changes(str(cursor))
    assert [change.what for change in changes] == ["posted", "moved", "moved"]
    assert {change.message_id for change in changes} == {sent}
    assert room.changes(after) == ([], after)
    assert len(room.changes(cursor, 1)[0]) == 1


def read_on(room: Room, names: list[str], since: Cursor) -> list[tuple[str, str]]:
    """Everything a reader gets who goes on from letter to letter."""
    got = []
    while letter := room.wait(names, 0, since=since, peek=True):
        got.append((letter.delivery.mailbox, letter.text))
        since = Cursor.parse(str(letter.cursor))
    return got


def test_a_cursor_from_the_very_beginning_misses_nothing(room: Room, clock: FakeClock) -> None:
    since = room.cursor()
    ann = room.mailbox("ann")
    ann.send("bob", "later", at=5)
    ann.send("bob", "now")
    clock.advance(10)
    assert read_on(room, ["bob"], since) == [("bob", "now"), ("bob", "later")]


def test_a_cursor_goes_through_every_mailbox_a_letter_went_to(room: Room) -> None:
    since = room.cursor()
    ann = room.mailbox("ann")
    ann.send(["x", "team/y"], "both")
    ann.send("team/y", "second")
    expected = [("team/y", "both"), ("x", "both"), ("team/y", "second")]
    assert read_on(room, ["x", "team/y"], since) == expected


def test_what_comes_between_two_looks_does_not_overtake(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    since, ann, store = room.cursor(), room.mailbox("ann"), room.core.store
    find = store.find
    sent: list[bool] = []

    def find_and_send(query: Query) -> list[Found]:
        found = find(query)
        if query.mailbox == "x" and not sent:
            sent.append(True)
            ann.send("x", "first")
            ann.send("y", "second")
        return found

    monkeypatch.setattr(store, "find", find_and_send)
    assert room.wait(["x", "y"], 0, since=since, peek=True) is None
    assert read_on(room, ["x", "y"], since) == [("x", "first"), ("y", "second")]


def test_a_reader_under_another_spelling_gets_an_error(room: Room) -> None:
    room.mailbox("ann").send("bob", "hello")
    for look in (
        Mailbox.check,
        Mailbox.claim,
        Mailbox.counts,
        lambda box: box.wait(0),
        lambda box: list(box.work(timeout=0)),
    ):
        with pytest.raises(LookAlike, match="write 'bob'"):
            look(room.mailbox("Bob"))
