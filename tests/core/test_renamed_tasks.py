"""A task goes on when one of its two parties gets another name: nothing of it is kept under the old one."""

from __future__ import annotations

from typing import Any

import pytest

from postroom import Invalid, NotAllowed, Room, State, TaskState, UnknownAgent, UnknownMessage
from postroom.model.record import ACTIVE_TASKS, DUE, SESSION, TASKS
from postroom.store.protocol import record_keys
from tests.renaming import rename
from tests.rooms import FakeClock, RoomFactory, addresses, texts

WHO = pytest.mark.parametrize("who", ["ann", "bob", "both"])


def give(room: Room, **fields: Any) -> str:
    return room.mailbox("ann").give_task("bob", "Sort it", deadline=60, session={"chat": 7}, **fields).id


def rename_parties(room: Room, who: str) -> tuple[str, str]:
    """What giver and receiver are called afterwards."""
    if who in {"ann", "both"}:
        rename(room, "ann", "anna")
    if who in {"bob", "both"}:
        rename(room, "bob", "bert")
    return ("ann" if who == "bob" else "anna"), ("bob" if who == "ann" else "bert")


@WHO
def test_a_task_is_taken_on_and_finished_under_other_names(factory: RoomFactory, who: str) -> None:
    room = factory.room()
    id = give(room, key="a key")
    giver, receiver = rename_parties(room, who)
    factory.reopen()
    room = factory.room()
    ann, bob = room.mailbox(giver), room.mailbox(receiver)
    for box in (ann, bob):
        (task,) = box.tasks(states="pending")
        assert (task.id, task.giver, task.receiver) == (id, giver, receiver)
    task = bob.task(bob.check()[0])
    task.accept()
    assert bob.read(id).state is State.DONE
    assert [t.id for t in ann.tasks("given", states="accepted")] == [id]
    bob.task(id).start()
    bob.task(id).ask("Which?")
    ann.task(id).answer("This one")
    bob.task(id).complete("done")
    assert ann.task(id).state is TaskState.COMPLETED
    assert "done" in texts(ann.check())
    assert ann.task(id).session == {"chat": 7}


@WHO
def test_what_is_under_way_goes_on(factory: RoomFactory, room: Room, who: str) -> None:
    room.mailbox("bob").register(max_concurrent_tasks=1)
    first, second = give(room), give(room)
    room.mailbox("bob").task(first).accept()
    giver, receiver = rename_parties(room, who)
    ann, bob = room.mailbox(giver), room.mailbox(receiver)
    assert room.agent(receiver).presence.current_tasks == (first,)
    assert not bob.task(second).admit()  # busy with one of at most one
    update = ann.check()[0]
    assert bob.task(second).state is TaskState.REJECTED
    assert ann.task(update).id == first  # found by a letter from before
    ann.task(first).cancel("never mind")
    assert bob.task(first).state is TaskState.CANCELED
    assert room.agent(receiver).presence.current_tasks == ()
    left = [name for name in ("ann", "bob") if name not in (giver, receiver)]
    for name in left:
        assert record_keys(factory.store, TASKS + name) == []
        assert factory.store.records(ACTIVE_TASKS, name) == []
    assert {key.split()[0] for key in record_keys(factory.store, SESSION)} == {giver}


@WHO
def test_a_deadline_is_reported_to_the_giver_of_today(
    factory: RoomFactory, room: Room, clock: FakeClock, who: str
) -> None:
    give(room)
    giver, receiver = rename_parties(room, who)
    clock.advance(61)
    assert room.sweep().overdue == 1
    (notice,) = room.mailbox(giver).check()
    assert notice.kind == "task_overdue"
    assert receiver in notice.text
    assert record_keys(factory.store, DUE) == []


def test_a_task_given_to_oneself_follows(room: Room) -> None:
    id = room.mailbox("ann").give_task("ann", "x").id
    rename(room, "ann", "anna")
    anna = room.mailbox("anna")
    anna.task(id).accept()
    anna.task(id).complete()
    assert [task.state for task in anna.tasks()] == ["completed"]


def test_a_task_for_later_is_not_seen_before_it_comes(room: Room, clock: FakeClock) -> None:
    id = give(room, at=30)
    _, receiver = rename_parties(room, "both")
    bert = room.mailbox(receiver)
    assert bert.tasks() == []
    clock.advance(31)
    assert [task.id for task in bert.tasks()] == [id]


def test_a_task_given_to_a_former_name_lies_with_its_owner(room: Room) -> None:
    room.mailbox("bob").register()
    rename(room, "bob", "bert")
    receipt = room.mailbox("ann").give_task("bob", "x")
    assert addresses(receipt.message) == ["bob"]
    bert = room.mailbox("bert")
    assert [task.receiver for task in bert.tasks()] == ["bert"]
    bert.task(receipt.id).accept()
    bert.task(receipt.id).complete()
    assert room.mailbox("ann").task(receipt.id).state is TaskState.COMPLETED


def test_a_task_is_deleted_with_its_letter_whatever_its_parties_are_called(
    factory: RoomFactory, room: Room, clock: FakeClock
) -> None:
    id = give(room)
    room.mailbox("bob").task(id).reject("no")
    giver, receiver = rename_parties(room, "both")
    clock.advance(91 * 24 * 3600)
    assert room.sweep().purged >= 1
    for name in (giver, receiver):
        assert record_keys(factory.store, TASKS + name) == []
    assert record_keys(factory.store, SESSION) == []


def test_the_holder_of_a_task_under_an_old_name_gets_the_new_one(room: Room) -> None:
    id = give(room)
    task, value = room.mailbox("bob").task(id), room.mailbox("ann").task(id)
    rename_parties(room, "both")
    for act in (task.accept, task.admit, lambda: task.reject("no")):
        with pytest.raises(UnknownAgent, match="'bert'"):
            act()
    with pytest.raises(UnknownAgent, match="'anna'"):
        value.cancel("x")


# -- who may give one


def test_a_task_of_a_blocked_giver_is_rejected_as_unauthorized(room: Room) -> None:
    id = give(room)
    bob = room.mailbox("bob")
    bob.block("ann")  # it never registered: there is no card to ask
    with pytest.raises(NotAllowed):
        bob.task(id).accept()
    assert not bob.task(id).admit()
    assert room.mailbox("ann").task(id).reason == "unauthorized"


def test_a_giver_that_was_blocked_or_allowed_under_another_name_is_the_same(room: Room) -> None:
    bob = room.mailbox("bob")
    bob.register(allow_from=["ann"])
    first, second = give(room), give(room)
    giver, _ = rename_parties(room, "ann")
    assert bob.task(first).admit()
    bob.block("ann")
    assert not bob.task(second).admit()
    assert room.mailbox(giver).task(second).reason == "unauthorized"


# -- whoever can do it


def test_a_task_for_a_skill_lies_with_the_chosen_agent(room: Room) -> None:
    for name in ("bob", "carol"):
        room.mailbox(name).register(capabilities=["python"])
    ann = room.mailbox("ann")
    receipt = ann.give_task("any:python", "x", key="k", session={"chat": 1})
    (chosen,) = receipt.routed
    box = room.mailbox(chosen)
    assert [(task.id, task.receiver) for task in ann.tasks()] == [(receipt.id, chosen)]
    box.task(receipt.id).accept()
    box.task(receipt.id).complete("done")
    assert ann.task(receipt.id).state is TaskState.COMPLETED
    assert ann.give_task("any:python", "x", key="k").repeated
    (other,) = {"bob", "carol"} - {chosen}
    with pytest.raises(UnknownMessage):
        room.mailbox(other).task(receipt.id)


def test_who_is_busy_with_a_task_is_not_chosen(room: Room) -> None:
    for name in ("bob", "carol"):
        room.mailbox(name).register(capabilities=["python"])
    ann = room.mailbox("ann")
    ids = [ann.give_task("bob", "x").id for _ in range(2)]
    for id in ids:
        room.mailbox("bob").task(id).accept()
    for _ in range(3):  # open letters weigh less than a task
        ann.send("carol", "a letter")
    for _ in range(2):
        (chosen,) = ann.give_task("any:python", "y").routed
        assert chosen == "carol"
    for id in ids:
        room.mailbox("bob").task(id).complete()
    assert ann.give_task("any:python", "z").routed == ("bob",)


def test_a_task_that_nobody_can_do_is_not_opened(factory: RoomFactory, room: Room) -> None:
    before = factory.store.cursor()
    with pytest.raises(UnknownAgent):
        room.mailbox("ann").give_task("any:python", "x")
    with pytest.raises(Invalid):
        room.mailbox("ann").give_task(["any:python", "any:sql"], "x")
    assert factory.store.cursor() == before
