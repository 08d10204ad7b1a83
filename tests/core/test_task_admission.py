"""Admission of tasks (D5): giver, deadline, share and capability decide; the giver is answered either way."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from postroom import (
    Card,
    DeadlinePassed,
    Invalid,
    LeaseLost,
    Mailbox,
    Message,
    NotAllowed,
    PostroomError,
    QuotaFull,
    Room,
    State,
    TaskState,
)
from tests.letters import everything
from tests.rooms import FakeClock, RoomFactory


@pytest.fixture
def bob(room: Room) -> Mailbox:
    box = room.mailbox("bob")
    box.register(capabilities=["python", "sql"], max_concurrent_tasks=2)
    return box


def give(room: Room, **fields: Any) -> str:
    return room.mailbox("ann").give_task("bob", "Sort it", **fields).id


def answer(room: Room, id: str) -> tuple[str, str | None]:
    """What the giver is told last: the state and the reason in the letter itself."""
    note = room.mailbox("ann").thread(id)[-1].task
    assert note is not None
    return note.state, note.reason


def test_a_task_that_nothing_speaks_against_is_accepted_in_one_commit(room: Room, bob: Mailbox) -> None:
    id = give(room, deadline=60, metadata={"required_capabilities": ["sql"]})
    task = bob.task(id)
    assert task.admit()
    assert answer(room, id) == ("accepted", None)
    assert bob.read(id).state is State.DONE


def test_a_giver_that_is_no_longer_allowed_is_rejected_as_unauthorized(room: Room, bob: Mailbox) -> None:
    id = give(room)
    bob.register(allow_from=["carol"])
    with pytest.raises(NotAllowed):  # new ones do not even come in
        give(room)
    with pytest.raises(NotAllowed):
        bob.task(id).accept()
    task = bob.task(id)
    assert not task.admit()
    assert answer(room, id) == ("rejected", "unauthorized")
    assert (task.state, task.reason) == (TaskState.REJECTED, "unauthorized")


def test_a_task_past_its_deadline_is_rejected(
    factory: RoomFactory, room: Room, bob: Mailbox, clock: FakeClock
) -> None:
    id = give(room, deadline=60)
    clock.advance(60)
    task = bob.task(id)
    untouched = everything(factory.store)
    with pytest.raises(DeadlinePassed) as refused:
        task.accept()
    assert refused.value.field == "deadline"
    assert everything(factory.store) == untouched
    assert not bob.task(id).admit()
    assert answer(room, id) == ("rejected", "deadline")


def test_what_was_taken_on_in_time_may_be_finished_late(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    id = give(room, deadline=60)
    bob.task(id).accept()
    clock.advance(3600)
    bob.task(id).complete("late, but here")
    assert answer(room, id)[0] == "completed"


def test_a_task_too_many_is_rejected_until_one_is_over(factory: RoomFactory, room: Room, bob: Mailbox) -> None:
    first, second, third, fourth = (give(room) for _ in range(4))
    assert bob.task(first).admit()
    assert bob.task(second).admit()
    bob.task(second).start()
    untouched = everything(factory.store)
    with pytest.raises(QuotaFull, match="busy with 2 of at most 2 tasks") as full:
        bob.task(third).accept()
    assert full.value.temporary
    assert everything(factory.store) == untouched
    assert not bob.task(third).admit()
    assert answer(room, third) == ("rejected", "quota")
    bob.task(second).complete()
    assert bob.task(fourth).admit()


def test_a_question_that_waits_for_its_answer_keeps_its_place(room: Room, bob: Mailbox) -> None:
    ids = [give(room) for _ in range(3)]
    for id in ids[:2]:
        bob.task(id).accept()
        bob.task(id).start()
        bob.task(id).ask("Which?")
    with pytest.raises(QuotaFull):
        bob.task(ids[2]).accept()


@pytest.mark.parametrize(
    ("required", "reason"),
    [
        (["python", "sql"], None),
        ("sql", None),
        ([], None),
        (["sql", "rust", "go"], "lacks rust, go"),
        ("rust", "lacks rust"),
        (5, "required_capabilities is not a list of words"),
        ([5], "required_capabilities is not a list of words"),
    ],
)
def test_the_built_in_judge_goes_by_the_card(room: Room, bob: Mailbox, required: Any, reason: str | None) -> None:
    id = give(room, metadata={"required_capabilities": required})
    assert bob.task(id).admit() == (reason is None)
    assert answer(room, id) == ("accepted" if reason is None else "rejected", reason)


def test_a_judge_of_ones_own_sees_card_and_letter(room: Room, bob: Mailbox) -> None:
    request: list[tuple[str, str]] = []

    def judge(card: Card, letter: Message) -> str | None:
        request.append((card.id, letter.text))
        return None if "python" in letter.text else "only python here"

    id = give(room, bcc="dave")
    assert not bob.task(id).admit(judge)
    assert request == [("bob", "Sort it")]
    assert answer(room, id) == ("rejected", "only python here")


def test_a_judge_is_not_asked_when_the_rules_say_no(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    id = give(room, deadline=1)
    clock.advance(2)

    def judge(card: Card, letter: Message) -> str | None:
        raise AssertionError

    assert not bob.task(id).admit(judge)


def test_a_judge_that_fails_or_talks_nonsense_decides_nothing(
    factory: RoomFactory, room: Room, bob: Mailbox
) -> None:
    id = give(room)
    untouched = everything(factory.store)
    for nonsense in (5, False, "x" * 3000, "\ud800"):
        with pytest.raises(Invalid) as refused:
            bob.task(id).admit(lambda *_, message=nonsense: message)
        assert refused.value.field == "judge"
    with pytest.raises(ZeroDivisionError):
        bob.task(id).admit(lambda *_: str(1 / 0))
    assert everything(factory.store) == untouched
    assert not bob.task(id).admit(lambda *_: "")
    assert answer(room, id) == ("rejected", "not fit")


def test_a_judge_may_take_its_time_and_the_rules_are_asked_again(
    room: Room, bob: Mailbox, clock: FakeClock
) -> None:
    id = give(room, deadline=60)

    def slow(card: Card, letter: Message) -> str | None:
        clock.advance(61)
        return None

    assert not bob.task(id).admit(slow)
    assert answer(room, id) == ("rejected", "deadline")


def test_a_judge_that_is_overtaken_hears_of_it(room: Room, bob: Mailbox) -> None:
    id = give(room)

    def overtaken(card: Card, letter: Message) -> str | None:
        bob.task(id).reject("quicker")
        return None

    with pytest.raises(PostroomError, match="a task that is rejected cannot become accepted"):
        bob.task(id).admit(overtaken)
    assert answer(room, id) == ("rejected", "quicker")


def test_who_never_registered_takes_tasks_by_the_defaults(room: Room) -> None:
    ids = [room.mailbox("ann").give_task("dave", str(n)).id for n in range(4)]
    dave = room.mailbox("dave")
    assert [dave.task(id).admit() for id in ids] == [True, True, True, False]
    assert (
        not room.mailbox("eve")
        .task(room.mailbox("ann").give_task("eve", "x", metadata={"required_capabilities": "x"}).id)
        .admit()
    )


def test_a_task_that_an_agent_holds_is_admitted_by_its_holder(room: Room, bob: Mailbox) -> None:
    id = give(room)
    work = bob.claim()
    assert work
    with pytest.raises(LeaseLost):
        bob.task(id).admit()
    task = bob.task(work)
    assert task.admit(ack=False)
    assert not work.is_settled
    task.complete()
    assert work.is_settled


def test_an_automatic_answer_causes_no_other(room: Room, bob: Mailbox) -> None:
    """Both sides admit whatever comes; it ends after one answer."""
    ann = room.mailbox("ann")
    id = give(room)
    for _ in range(3):
        for box in (ann, bob):
            for letter in box.check():
                try:
                    box.task(letter).admit()
                except PostroomError:
                    letter.ack()
    assert [letter.kind for letter in room.thread(id)] == ["task", "task_update"]


def test_a_giver_hears_of_its_task_though_it_takes_no_other_mail(room: Room, bob: Mailbox) -> None:
    id = give(room)
    room.mailbox("ann").register(allow_from=["carol"])
    with pytest.raises(NotAllowed):
        bob.send("ann", "chat")
    bob.task(id).accept()
    bob.register(allow_from=["carol"])
    room.mailbox("ann").task(id).cancel("never mind")
    assert bob.task(id).state is TaskState.CANCELED


def test_many_who_admit_at_once_never_take_one_too_many(room: Room, bob: Mailbox) -> None:
    ids = [give(room) for _ in range(8)]
    start = threading.Barrier(8)
    taken: list[bool] = []

    def admit(id: str) -> None:
        task = room.mailbox("bob").task(id)
        start.wait(30)
        taken.append(task.admit())

    threads = [threading.Thread(target=admit, args=(id,)) for id in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(taken) == [False] * 6 + [True] * 2
    assert len(room.agent("bob").presence.current_tasks) == 2


def test_a_deadline_that_is_over_already_is_refused_when_given(factory: RoomFactory, room: Room) -> None:
    for over in (0, -1, timedelta(0), factory.clock.wall):
        untouched = everything(factory.store)
        with pytest.raises(DeadlinePassed) as refused:
            give(room, deadline=over)
        assert refused.value.field == "deadline"
        assert everything(factory.store) == untouched
