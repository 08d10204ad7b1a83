"""A letter that was taken back is gone from everything that tells of letters: tasks, search, trace, numbers."""

from __future__ import annotations

import pytest

from postroom import IllegalMove, Room, State, TaskState, UnknownMessage
from postroom.model.record import ACTIVE_TASKS, DUE, TASKS
from postroom.store.protocol import record_keys
from postroom.store.sqlite import search
from tests.letters import everything
from tests.renaming import rename
from tests.rooms import FakeClock, RoomFactory, spoken


def test_the_task_of_an_unsent_letter_is_canceled_and_its_receiver_never_knows(
    factory: RoomFactory, room: Room, clock: FakeClock
) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    id = ann.give_task("bob", "x", deadline=60, session={"chat": 7}).id
    ann.unsend(id)
    task = ann.task(id)
    assert (task.state, task.reason, task.session) == (TaskState.CANCELED, "unsent", {"chat": 7})
    assert ann.tasks(states="pending") == []
    assert bob.tasks() == []
    with pytest.raises(UnknownMessage):
        bob.task(id)
    with pytest.raises(IllegalMove):
        task.cancel("again")
    clock.advance(61)
    assert room.sweep().overdue == 0
    assert ann.check() == []
    assert (
        record_keys(factory.store, TASKS + "bob")
        == record_keys(factory.store, DUE)
        == record_keys(factory.store, ACTIVE_TASKS)
        == []
    )


def test_who_had_read_it_sees_that_the_task_is_canceled(room: Room) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    id = ann.give_task("bob", "x", cc="carol").id
    task = bob.task(bob.read(id))
    ann.unsend(id)
    for act in (task.accept, task.admit, lambda: task.reject("no")):
        with pytest.raises(IllegalMove):
            act()
    assert [(t.state, t.reason) for t in bob.tasks()] == [(TaskState.CANCELED, "unsent")]


def test_a_copy_that_was_read_shows_the_receiver_nothing(room: Room) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    id = ann.give_task("bob", "x", cc="carol").id
    room.mailbox("carol").read(id)
    ann.unsend(id)
    assert bob.tasks() == []


@pytest.mark.parametrize("ack", [True, False])
def test_a_task_that_was_taken_on_cannot_be_unsent(factory: RoomFactory, room: Room, ack: bool) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    id = ann.give_task("bob", "x").id
    bob.task(id).accept(ack=ack)  # without, its letter lies in the inbox as before
    before = everything(factory.store)
    with pytest.raises(IllegalMove, match="too late to unsend"):
        ann.unsend(id)
    assert everything(factory.store) == before
    bob.task(id).complete()
    assert ann.task(id).state is TaskState.COMPLETED


def test_a_step_of_a_task_cannot_be_taken_back(factory: RoomFactory, room: Room) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    id = ann.give_task("bob", "x").id
    step = bob.task(id).accept()
    rename(room, "bob", "bert")
    before = everything(factory.store)
    with pytest.raises(IllegalMove, match="a step of a task"):
        room.mailbox("bert").unsend(step.id)
    assert everything(factory.store) == before
    other = room.mailbox("bert").send("ann", "x", kind="task_update", task={"id": "not-here", "state": "accepted"})
    room.mailbox("bert").unsend(other.id)  # moved nothing
    assert factory.store.get((step.id,))


def test_a_canceled_task_stays_so_when_its_letter_is_unsent(room: Room) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    id = ann.give_task("bob", "x").id
    bob.task(id).accept(ack=False)
    ann.task(id).cancel("never mind")
    ann.unsend(id)
    assert (ann.task(id).state, ann.task(id).reason) == (TaskState.CANCELED, "never mind")


def test_a_task_is_taken_back_by_its_giver_under_another_name(room: Room) -> None:
    id = room.mailbox("ann").give_task("bob", "x").id
    rename(room, "ann", "anna")
    rename(room, "bob", "bert")
    room.mailbox("anna").unsend(id)
    rename(room, "anna", "ann")
    assert [task.state for task in room.mailbox("ann").tasks()] == ["canceled"]
    assert room.mailbox("bert").tasks() == []
    rename(room, "bert", "bob")
    assert room.mailbox("bob").tasks() == []


def test_an_unsent_task_may_be_given_again_with_another_key(room: Room) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    first = ann.give_task("bob", "x", key="k")
    ann.unsend(first.id)
    assert ann.give_task("bob", "x", key="k").repeated
    assert bob.tasks() == []
    second = ann.give_task("bob", "x", key="k2")
    bob.task(second.id).accept()


# -- looking


@pytest.mark.parametrize("indexed", [False, True])
def test_an_unsent_letter_is_found_by_its_sender_and_by_who_had_read_it(
    room: Room, monkeypatch: pytest.MonkeyPatch, indexed: bool
) -> None:
    ann = room.mailbox("ann")
    id = ann.send(["bob", "carol"], "psst").id
    if indexed:
        monkeypatch.setattr(search, "FEW", 0)
        room.sweep()
    room.mailbox("carol").read(id)
    ann.unsend(id)
    for query in ("psst", "from:ann", "to:bob", "-x"):
        assert room.mailbox("bob").search(query) == []
        assert spoken(room.mailbox("carol").search(query)) == ["psst"]
        assert spoken(ann.search(query)) == ["psst"]


def test_the_trace_of_an_unsent_letter_is_for_its_sender_and_who_had_read_it(room: Room) -> None:
    ann = room.mailbox("ann")
    id = ann.send(["bob", "carol"], "psst").id
    room.mailbox("carol").read(id)
    ann.unsend(id)
    errors = []
    for wrong in (id, "0" * len(id)):
        with pytest.raises(UnknownMessage) as refused:
            room.mailbox("bob").trace(wrong)
        errors.append(str(refused.value).replace(wrong, "ID"))
    assert errors[0] == errors[1]
    assert [stop.mailbox for stop in room.mailbox("carol").trace(id).stops] == ["carol"]
    for trace in (ann.trace(id), room.trace(id)):
        assert [(stop.mailbox, stop.state, stop.reason) for stop in trace.stops] == [
            ("bob", State.DEAD, "unsent"),
            ("carol", State.DEAD, "unsent"),
        ]


def test_numbers_do_not_tell_a_receiver_of_what_it_never_saw(room: Room) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    ids = [ann.send("bob", text).id for text in ("seen", "unseen")]
    bob.read(ids[0])
    for id in ids:
        ann.unsend(id)
    assert bob.stats().dead == len(bob.dead()) == 1
    assert room.stats().states[State.DEAD] == 2  # the operator counts what is there
    message = " ".join(finding.what for finding in room.doctor().findings)
    assert "1 dead letters lie at bob" in message


def test_the_doctor_is_silent_about_letters_that_nobody_can_look_at(room: Room) -> None:
    room.mailbox("ann").unsend(room.mailbox("ann").send("bob", "x").id)
    assert not any("dead" in finding.what for finding in room.doctor().findings)
