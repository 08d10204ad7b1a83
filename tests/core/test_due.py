"""What is due by the clock is done by whoever uses the room, without a server and without a janitor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from postroom import Room
from postroom.core import due
from postroom.core.core import NextLook
from postroom.errors import StoreBusy
from postroom.model.query import Query
from postroom.model.record import DUE
from tests.rooms import FakeClock, RoomFactory, texts

DAY = 24 * 3600
WRITES: dict[str, Callable[[Room], object]] = {
    "check": lambda room: room.mailbox("carl").check(),
    "block": lambda room: room.mailbox("carl").block("dan"),
    "claim": lambda room: room.mailbox("carl").claim(),
    "register": lambda room: room.mailbox("carl").register(),
    "send": lambda room: room.mailbox("carl").send("dan", "x"),
}


def kinds(room: Room, agent: str) -> list[str]:
    """The kinds of the letters of an agent, looked at in the store, which applies nothing."""
    return [letter.message.kind for letter in stored(room, agent)]


def stored(room: Room, agent: str) -> list[Any]:
    return room.core.store.find(Query(mailbox=agent, order="age"))


@pytest.mark.parametrize("name", WRITES)
def test_after_a_deadline_the_next_write_of_anybody_tells_the_giver(
    factory: RoomFactory, clock: FakeClock, name: str
) -> None:
    room, other = factory.room(), factory.room()
    room.mailbox("ann").give_task("bob", "x", deadline=60)
    clock.advance(59)
    WRITES[name](other)
    assert kinds(room, "ann") == []
    clock.advance(1)
    WRITES[name](other)
    assert kinds(room, "ann") == ["task_overdue"]
    clock.advance(DAY)
    WRITES[name](room)
    assert kinds(room, "ann") == ["task_overdue"] and room.core.store.records(DUE) == []


def test_an_unanswered_question_climbs_at_the_next_write(room: Room, clock: FakeClock) -> None:
    room.mailbox("ann").escalate("which?", reason="blocked", ladder=["bob", "carl"])
    assert kinds(room, "carl") == []
    clock.advance(DAY)
    room.mailbox("dan").check()
    assert kinds(room, "carl") == ["escalation"]
    assert kinds(room, "ann") == ["escalation_update"]


def test_mail_of_others_expires_and_arrives_at_the_next_write(room: Room, clock: FakeClock) -> None:
    room.mailbox("ann").send("bob", "short", expires=10)
    room.mailbox("ann").send("bob", "late", at=10)
    clock.advance(10)
    room.mailbox("dan").check()
    assert [str(one.delivery.state) for one in stored(room, "bob")] == ["dead", "unread"]


class Counting:
    """A store that counts what it is asked."""

    def __init__(self, store: Any) -> None:
        self.store, self.asked = store, Counter[str]()

    def __getattr__(self, name: str) -> Any:
        self.asked[name] += 1
        return getattr(self.store, name)


def check_asks_nothing(room: Room) -> None:
    """Between two looks, a write asks the store what it asks by itself, and nothing else."""
    counting = Counting(room.core.store)
    core = due_core(room, counting)
    due.do_some(core)
    first = sum(counting.asked.values())
    assert first > 0, "it does not look"
    for _ in range(100):
        due.do_some(core)
    assert first == sum(counting.asked.values()), "it looks between two looks"


def due_core(room: Room, store: Any) -> Any:
    return replace(room.core, store=store, next_look=NextLook())


def test_a_write_between_two_looks_asks_nothing_of_the_store(room: Room) -> None:
    room.mailbox("ann").give_task("bob", "x", deadline=60)
    check_asks_nothing(room)


def test_a_second_look_reads_no_deadline_again(room: Room) -> None:
    for _ in range(due.FEW + 1):
        room.mailbox("ann").give_task("bob", "x", deadline=60)
    counting = Counting(room.core.store)
    core = due_core(room, counting)

    def read_by_a_look() -> int:
        counting.asked.clear()
        due._look(core, core.now())
        return counting.asked["records"] - 2  # one for the escalations, one for the keys

    assert due.FEW + 1 == read_by_a_look() and 0 == read_by_a_look()
    room.mailbox("ann").give_task("bob", "another", deadline=30)
    assert 1 == read_by_a_look() and 0 == read_by_a_look()
    assert due.FEW + 2 == len(core.next_look.deadlines)


def test_one_look_reads_a_part_of_many_deadlines_and_later_looks_the_others(
    room: Room, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due, "MOST_READ", 3)
    given = [room.mailbox("ann").give_task("bob", "x", deadline=60).id for _ in range(8)]
    core = due_core(room, Counting(room.core.store))
    for read in (3, 6, 8):
        due._look(core, core.now())
        assert read == len(core.next_look.deadlines)
        clock.advance(1)
    assert sorted(given) == sorted(core.next_look.deadlines)
    first = [due._deadlines(due_core(room, room.core.store), core.now()).keys()]
    clock.advance(1)
    assert first != [due._deadlines(due_core(room, room.core.store), core.now()).keys()]


def test_a_look_at_every_write_is_found_out(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug."""
    monkeypatch.setattr(due, "LOOK_EVERY", 0.0)
    monkeypatch.setattr(due, "SHARE", 0)
    with pytest.raises(AssertionError, match="between two looks"):
        check_asks_nothing(room)


def test_a_look_that_takes_long_is_followed_by_a_longer_pause(
    room: Room, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([0.0, 0.02])
    monkeypatch.setattr(due, "perf_counter", lambda: next(times))
    core = due_core(room, room.core.store)
    due.do_some(core)
    assert core.next_look.at == clock.now().steady + 20


def test_only_a_few_of_many_are_done_at_once(room: Room, clock: FakeClock) -> None:
    for number in range(due.FEW + 5):
        room.mailbox("ann").give_task("bob", str(number), deadline=60)
    clock.advance(60)
    room.mailbox("dan").check()
    assert len(kinds(room, "ann")) == due.FEW
    clock.advance(due.LOOK_EVERY)
    room.mailbox("dan").check()
    assert len(kinds(room, "ann")) == due.FEW + 5


def test_what_is_due_but_cannot_be_done_fails_nobodys_call(
    room: Room, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object) -> None:
        raise StoreBusy("another process writes")

    room.mailbox("ann").give_task("bob", "x", deadline=60)
    clock.advance(60)
    monkeypatch.setattr(due, "_look", busy)
    assert texts(room.mailbox("bob").check()) == ["x"]
    monkeypatch.undo()
    clock.advance(due.LOOK_EVERY)
    room.mailbox("bob").check()
    assert kinds(room, "ann") == ["task_overdue"]
