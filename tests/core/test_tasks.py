"""Tasks (D4): given and moved by letters, by the table alone, each by whoever may; seen by nobody else."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from postroom import (
    IdTaken,
    IllegalMove,
    Invalid,
    LeaseLost,
    LookAlike,
    Mailbox,
    NotAllowed,
    PostroomError,
    Refused,
    Room,
    State,
    Task,
    TaskState,
    UnknownMessage,
    draft,
)
from postroom.core.authorize import agent_principal
from postroom.model.task import MOVES
from tests.letters import everything, fold_task
from tests.rooms import FakeClock, RoomFactory, texts

# state -> how a task gets there, and who makes the move
VERBS: dict[TaskState, tuple[str, Callable[[Task], object]]] = {
    TaskState.ACCEPTED: ("bob", lambda task: task.accept()),
    TaskState.REJECTED: ("bob", lambda task: task.reject("no time")),
    TaskState.WORKING: ("bob", lambda task: task.start()),
    TaskState.COMPLETED: ("bob", lambda task: task.complete("42")),
    TaskState.FAILED: ("bob", lambda task: task.fail("out of memory")),
    TaskState.INPUT_REQUIRED: ("bob", lambda task: task.ask("Which one?")),
    TaskState.CANCELED: ("ann", lambda task: task.cancel("never mind")),
}
WAYS: dict[TaskState, tuple[TaskState, ...]] = {
    TaskState.PENDING: (),
    TaskState.ACCEPTED: (TaskState.ACCEPTED,),
    TaskState.REJECTED: (TaskState.REJECTED,),
    TaskState.WORKING: (TaskState.ACCEPTED, TaskState.WORKING),
    TaskState.INPUT_REQUIRED: (TaskState.ACCEPTED, TaskState.WORKING, TaskState.INPUT_REQUIRED),
    TaskState.COMPLETED: (TaskState.ACCEPTED, TaskState.COMPLETED),
    TaskState.FAILED: (TaskState.ACCEPTED, TaskState.WORKING, TaskState.FAILED),
    TaskState.CANCELED: (TaskState.ACCEPTED, TaskState.CANCELED),
}


@pytest.fixture
def ann(room: Room) -> Mailbox:
    return room.mailbox("ann")


@pytest.fixture
def bob(room: Room) -> Mailbox:
    return room.mailbox("bob")


def give(ann: Mailbox, state: TaskState = TaskState.PENDING) -> str:
    """A task of ann's for bob that went as far as this state; its id."""
    id = ann.give_task("bob", "Sort ten million rows.", subject="Sorting").id
    for step in WAYS[state]:
        who, act = VERBS[step]
        act(ann.room.mailbox(who).task(id))
    return id


# -- the life of a task


def test_a_task_is_given_taken_on_and_done_by_letters(ann: Mailbox, bob: Mailbox) -> None:
    sent = ann.give_task(
        "bob", "Sort ten million rows.", subject="Sorting", callback={"theirs": 1}, priority="high"
    )
    assert (sent.message.kind, sent.message.task and sent.message.task.id) == ("task", sent.id)
    task = bob.task(sent.id)
    task.accept()
    task.start("On it.")
    result = task.complete("Sorted.", data={"rows": 10})
    assert [letter.kind for letter in ann.check()] == ["task_update"] * 3
    letters = ann.thread(sent.id)
    notes = [letter.task for letter in letters]
    assert [(note.id, note.state) for note in notes if note] == [
        (sent.id, "pending"), (sent.id, "accepted"), (sent.id, "working"), (sent.id, "completed")
    ]  # fmt: skip
    assert [letter.text for letter in letters] == ["Sort ten million rows.", "accepted", "On it.", "Sorted."]
    last = letters[-1]
    assert last == result.message
    assert (last.in_reply_to, last.subject, last.priority.name) == (sent.id, "Re: Sorting", "HIGH")
    assert last.callback == {"theirs": 1}  # echoed
    assert ann.task(sent.id).state is task.state is TaskState.COMPLETED


def test_a_question_is_asked_and_answered(ann: Mailbox, bob: Mailbox) -> None:
    id = give(ann, TaskState.WORKING)
    theirs, ours = bob.task(id), ann.task(id)
    theirs.ask("Which order?")
    assert ours.refresh() is TaskState.INPUT_REQUIRED
    ours.answer("Ascending.")
    assert (ours.state, theirs.refresh()) == (TaskState.WORKING, TaskState.WORKING)
    assert [letter.text for letter in theirs.letters()][-2:] == ["Which order?", "Ascending."]
    theirs.ask("Really?")
    theirs.start("Going on without.")  # its receiver need not wait for ever
    theirs.complete()
    assert ours.refresh() is TaskState.COMPLETED


def test_a_reason_is_reported_in_the_note_and_in_the_text(ann: Mailbox, bob: Mailbox) -> None:
    id = give(ann)
    result = bob.task(id).reject("no time\nat all").message
    assert result.task
    assert result.text == result.task.reason == ann.task(id).reason == "no time\nat all"


@pytest.mark.parametrize(("before", "after"), [*itertools.product(TaskState, VERBS)])
def test_the_table_decides_every_verb_in_every_state(
    factory: RoomFactory, ann: Mailbox, before: TaskState, after: TaskState
) -> None:
    id = give(ann, before)
    who, act = VERBS[after]
    task = ann.room.mailbox(who).task(id)
    assert task.is_final == (not MOVES[before])
    if after in MOVES[before]:
        act(task)
        assert task.state is ann.task(id).state is after
        return
    untouched = everything(factory.store)
    with pytest.raises(IllegalMove, match=f"a task that is {before} cannot become {after}") as refused:
        act(task)
    assert refused.value.hint == f"legal from here: {', '.join(MOVES[before]) or 'none, it is final'}"
    assert everything(factory.store) == untouched
    assert ann.task(id).state is before


@pytest.mark.parametrize("before", [state for state, moves in MOVES.items() if moves])
def test_each_party_makes_its_own_moves_and_no_other(
    factory: RoomFactory, ann: Mailbox, before: TaskState
) -> None:
    id = give(ann, before)
    for after in MOVES[before]:
        who, act = VERBS[after]
        if before is TaskState.INPUT_REQUIRED:
            continue  # either goes on
        wrong = "bob" if who == "ann" else "ann"
        untouched = everything(factory.store)
        with pytest.raises(NotAllowed):
            act(ann.room.mailbox(wrong).task(id))
        assert everything(factory.store) == untouched


# -- the letter that opened it


def test_taking_on_and_acknowledging_is_one_commit(room: Room, ann: Mailbox, bob: Mailbox) -> None:
    give(ann)
    work = bob.claim()
    assert work
    before = room.cursor()
    with work:
        bob.task(work).accept()
        assert (work.state, work.is_settled) == (State.DONE, True)
    changes, _ = room.changes(before)
    assert {"posted", "moved"} <= {change.what for change in changes}
    assert bob.claim() is None


def test_a_task_that_is_looked_at_only_is_acknowledged_too(ann: Mailbox, bob: Mailbox) -> None:
    id = give(ann)
    bob.task(id).reject("no")
    assert bob.read(id).state is State.DONE
    assert bob.dead() == []


def test_while_an_agent_holds_the_letter_no_other_agent_moves_the_task(
    factory: RoomFactory, ann: Mailbox, bob: Mailbox, clock: FakeClock
) -> None:
    id = give(ann)
    first = bob.claim(lease=60)
    assert first
    untouched = everything(factory.store)
    for stranger in (bob.task(id), bob.task(bob.task(id).letters()[0].id)):
        with pytest.raises(LeaseLost):
            stranger.accept()
    assert everything(factory.store) == untouched
    clock.advance(61)
    second = bob.claim(lease=60)
    assert second
    with pytest.raises(LeaseLost):
        bob.task(first).accept()
    bob.task(second).accept()
    assert ann.task(id).state is TaskState.ACCEPTED


def test_without_an_ack_the_letter_is_offered_again_if_its_holder_dies(
    ann: Mailbox, bob: Mailbox, clock: FakeClock
) -> None:
    id = give(ann)
    work = bob.claim(lease=60)
    assert work
    bob.task(work).accept(ack=False)
    assert work.state is State.CLAIMED
    clock.advance(61)  # and the worker is dead
    again = bob.claim(lease=60)
    assert again
    task = bob.task(again)
    assert (again.id, task.state) == (id, TaskState.ACCEPTED)
    task.start()
    assert not again.is_settled
    task.complete("at last")
    assert again.is_settled
    assert bob.claim() is None


def test_a_dead_letter_opens_nothing_until_it_is_revived(ann: Mailbox, bob: Mailbox) -> None:
    id = give(ann)
    bob.read(id).reject("not now")
    with pytest.raises(IllegalMove, match="its letter is dead: not now"):
        bob.task(id).accept()
    bob.revive(id)
    bob.task(id).accept()
    assert ann.task(id).state is TaskState.ACCEPTED


def test_when_the_update_is_refused_the_letter_stays(factory: RoomFactory, ann: Mailbox, bob: Mailbox) -> None:
    id = give(ann)
    task: Any = bob.task(id)
    acts: list[Callable[[], object]] = [
        lambda: task.accept(body=object()),
        lambda: task.accept(kind="message"),
        lambda: task.accept(in_reply_to=id),
        lambda: task.accept(cc="carol"),
        lambda: task.accept(bcc="carol"),
        lambda: task.accept(at=60),
        lambda: task.accept(colour="red"),
        lambda: task.reject(5),
        lambda: task.reject("x" * 2001),
        lambda: task.reject("\0"),
        lambda: task.admit(5),
    ]
    for act in acts:
        untouched = everything(factory.store)
        with pytest.raises(Invalid):
            act()
        assert everything(factory.store) == untouched
    assert bob.read(id).state is State.UNREAD


# -- giving


def test_a_task_is_for_one_agent_and_others_may_have_a_copy(
    factory: RoomFactory, ann: Mailbox, room: Room
) -> None:
    for to in (["bob", "carol"], "broadcast:team", ["bob", "broadcast:team"]):
        room.mailbox("bob").register(scopes=["team"])
        untouched = everything(factory.store)
        with pytest.raises(Invalid, match="a task is for one agent") as refused:
            ann.give_task(to, "x")
        assert refused.value.field == "to"
        assert everything(factory.store) == untouched
    sent = ann.give_task("bob", "x", cc="carol", bcc="dave")
    assert texts(room.mailbox("carol").check()) == ["x"]
    for other in ("carol", "dave"):
        assert room.mailbox(other).tasks() == []
        with pytest.raises(UnknownMessage):
            room.mailbox(other).task(sent.id)


@pytest.mark.parametrize("key", ["rows-of-monday", "a key with blanks"])
def test_the_same_key_gives_one_task(ann: Mailbox, bob: Mailbox, clock: FakeClock, key: str) -> None:
    first = ann.give_task("bob", "x", key=key, deadline=3600)
    clock.advance(10)
    again = ann.give_task("bob", "x", key=key, deadline=3600)
    assert (again.repeated, again.id) == (True, first.id)
    bob.task(first.id).accept()
    clock.advance(3600)
    over = clock.wall - timedelta(seconds=10)
    assert ann.give_task("bob", "x", key=key, deadline=over).repeated  # though it has moved on, and is overdue
    assert [task.state for task in ann.tasks()] == [TaskState.ACCEPTED]
    with pytest.raises(IdTaken):
        ann.give_task("bob", "something else", key=key)


def test_a_retry_with_the_first_letters_id_as_key_gives_one_task(ann: Mailbox) -> None:
    first = ann.give_task("bob", "x")
    assert ann.give_task("bob", "x", key=first.id).id == first.id
    assert len(ann.tasks()) == 1


def test_a_step_with_a_key_is_made_once(ann: Mailbox, bob: Mailbox) -> None:
    task = bob.task(give(ann))
    first = task.accept(key="k")
    task.start()
    again = task.accept(key="k")
    assert (again.repeated, again.id, task.state) == (True, first.id, TaskState.WORKING)
    assert len(ann.check()) == 2


def test_an_agent_may_give_itself_a_task(ann: Mailbox) -> None:
    task = ann.task(ann.give_task("ann", "Tidy up").id)
    task.accept()
    task.cancel()
    assert [(t.giver, t.receiver, t.state) for t in ann.tasks("received")] == [("ann", "ann", TaskState.CANCELED)]


# -- finding


def test_tasks_are_listed_by_role_and_state_the_last_moved_first(room: Room, ann: Mailbox, bob: Mailbox) -> None:
    clock: FakeClock = room.core.clock  # type: ignore[assignment]
    ids = []
    for _ in range(3):
        ids.append(give(ann))
        clock.advance(1)
    back = bob.give_task("ann", "And one back").id
    clock.advance(1)
    bob.task(ids[0]).accept()
    assert [task.id for task in bob.tasks()] == [ids[0], back, ids[2], ids[1]]
    assert [task.id for task in bob.tasks("received")] == [ids[0], ids[2], ids[1]]
    assert [task.id for task in bob.tasks("given")] == [back] == [task.id for task in ann.tasks("received")]
    assert [task.id for task in bob.tasks(states="accepted")] == [ids[0]]
    assert [task.id for task in bob.tasks("received", states=["pending", "accepted"], limit=2)] == [ids[0], ids[2]]
    assert room.mailbox("carol").tasks() == []


def test_a_task_is_found_by_any_of_its_letters_and_by_its_name(ann: Mailbox, bob: Mailbox) -> None:
    id = ann.give_task("bob", "x", key="the-name").id
    update = bob.task(id).accept()
    plain = bob.reply(id, "By the way …")
    answer = ann.check(kinds="task_update")[0]
    for way in (id, "the-name", update.id, plain.id, answer):
        assert ann.task(way).id == id
    assert bob.task(update.id).id == id
    ann.give_task("carol", "x", key="other")
    eve = ann.room.mailbox("eve")
    eve.give_task("bob", "mine", key="the-name")
    with pytest.raises(Invalid, match="2 tasks have this id"):
        bob.task("the-name")
    assert ann.task("the-name").id == id


def test_another_spelling_finds_no_tasks_and_is_reported(ann: Mailbox, room: Room) -> None:
    id = give(ann)
    for act in (room.mailbox("Bob").tasks, lambda: room.mailbox("Bob").task(id)):
        with pytest.raises(LookAlike):
            act()


def test_what_is_no_task_is_unknown(ann: Mailbox, bob: Mailbox) -> None:
    for sent in (
        ann.send("bob", "x"),
        ann.send("bob", "x", kind="task"),  # says nothing about a task
        ann.send("bob", "x", task={"id": "t"}),
        ann.send(["bob", "carol"], "x", kind="task", task={"id": "t"}),
    ):
        with pytest.raises(UnknownMessage):
            bob.task(sent.id)
    assert bob.tasks() == []


def test_a_task_sent_for_later_is_nobodys_before_it_comes(
    ann: Mailbox, bob: Mailbox, clock: FakeClock, room: Room
) -> None:
    id = ann.give_task("bob", "x", at=60).id
    assert (bob.tasks(), [task.id for task in ann.tasks()]) == ([], [id])
    with pytest.raises(UnknownMessage):
        bob.task(id)
    clock.advance(60)
    assert [task.id for task in bob.tasks()] == [id]
    bob.task(id).accept()


def test_a_task_shows_itself_in_short(ann: Mailbox, bob: Mailbox) -> None:
    id = ann.give_task("bob", "x", subject="Sorting", id="t-1", deadline=60).id
    task = bob.task(id)
    assert repr(task) == "<Task t-1 from ann to bob 'Sorting' (pending)>"
    assert repr(ann.task(ann.give_task("bob", "x", id="t-2").id)) == "<Task t-2 from ann to bob (pending)>"
    assert (task.subject, task.thread, task.reason) == ("Sorting", "t-1", None)
    assert task.deadline is not None


# -- letters that did not come by the verbs


def test_letters_sent_by_hand_move_a_task_too_if_they_may(ann: Mailbox, bob: Mailbox) -> None:
    id = ann.send("bob", "x", kind="task", task={"id": "their-own-name", "deadline": "2040-01-01T00:00:00Z"}).id
    assert [task.state for task in bob.tasks("received")] == [TaskState.PENDING]
    note = {"id": "their-own-name", "state": "accepted"}
    first = bob.reply(id, "ok", kind="task_update", task=note)
    assert ann.task(id).state is TaskState.ACCEPTED
    bob.reply(first.id, "done", kind="task_update", task=note | {"state": "completed", "reason": "easy"})
    assert (ann.task(id).state, ann.task(id).reason) == (TaskState.COMPLETED, "easy")


def test_letters_that_may_not_move_a_task_are_only_letters(room: Room, ann: Mailbox, bob: Mailbox) -> None:
    id = ann.give_task("bob", "x", cc="carol").id
    carol, eve = room.mailbox("carol"), room.mailbox("eve")
    done = {"id": id, "state": "accepted"}
    carol.reply(id, "I did it", kind="task_update", task=done)
    eve.send("ann", "me too", kind="task_update", task=done)
    ann.reply(id, "say yes", kind="task_update", task=done)
    bob.reply(id, "done", kind="task_update", task=done | {"state": "completed"})
    bob.reply(id, "ok", kind="task_update", task=done | {"id": "another"})
    bob.reply(id, "ok", task=done)
    bob.forward(id, "dave", "please do this")
    assert ann.task(id).state is TaskState.PENDING
    assert room.mailbox("dave").tasks() == carol.tasks() == eve.tasks() == []
    assert [letter.text for letter in ann.check(kinds="task_update")] == ["I did it", "me too", "done", "ok"]


def test_a_task_may_follow_another_in_its_thread(ann: Mailbox, bob: Mailbox) -> None:
    first = give(ann, TaskState.COMPLETED)
    second = ann.give_task("bob", "And again", in_reply_to=first)
    assert second.message.thread == first
    bob.task(second.id).accept()
    assert (ann.task(first).state, ann.task(second.id).state) == (TaskState.COMPLETED, TaskState.ACCEPTED)


def test_several_tasks_in_one_commit_are_each_entered(room: Room, ann: Mailbox, bob: Mailbox) -> None:
    ids = [f"t-{n}" for n in range(5)]
    ann.send_many([draft("bob", id, kind="task", id=id, task={"id": id}) for id in ids])
    assert {task.id for task in bob.tasks("received")} == set(ids)
    room.mailbox("bob").register(max_concurrent_tasks=10)
    steps = [
        draft("ann", "ok", kind="task_update", in_reply_to=id, task={"id": id, "state": state})
        for id in ids
        for state in ("accepted", "working")
    ]
    bob.send_many(steps)
    assert {task.state for task in ann.tasks("given")} == {TaskState.WORKING}
    assert set(room.agent("bob").presence.current_tasks) == set(ids)


@pytest.mark.parametrize("state", TaskState)
def test_what_is_kept_of_a_task_is_what_its_letters_say(room: Room, ann: Mailbox, state: TaskState) -> None:
    id = give(ann, state)
    result = fold_task(room.thread(id))
    assert result is not None
    assert ann.task(id).standing == room.mailbox("bob").task(id).standing == result
    assert result.state is state


# -- races and privacy


def test_of_many_who_take_a_task_on_at_once_one_does(room: Room, ann: Mailbox) -> None:
    ids = [give(ann) for _ in range(3)]
    room.mailbox("bob").register(max_concurrent_tasks=100)
    won: list[str] = []
    lost: list[PostroomError] = []
    start = threading.Barrier(6)

    def take() -> None:
        bob = room.mailbox("bob")
        start.wait(30)
        for id in ids:
            try:
                bob.task(id).accept()
                won.append(id)
            except PostroomError as error:
                lost.append(error)

    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(won) == sorted(ids)
    assert {type(error) for error in lost} == {IllegalMove}
    assert len(lost) == 15


def test_a_third_agent_sees_nothing_of_a_task(factory: RoomFactory, ann: Mailbox) -> None:
    id = give(ann, TaskState.WORKING)
    eve = factory.room(agent_principal("eve")).mailbox("eve")
    assert eve.tasks() == []
    errors = []
    for request in (id, "not-there"):
        with pytest.raises(UnknownMessage) as refused:
            eve.task(request)
        errors.append(str(refused.value).replace(request, "ID"))
    assert errors[0] == errors[1]
    with pytest.raises(NotAllowed):
        factory.room(agent_principal("eve")).mailbox("bob").tasks()


def test_only_the_giver_answers_and_only_what_was_asked(room: Room) -> None:
    id = room.mailbox("ann").give_task("bob", "Sort it").id
    theirs, ours = room.mailbox("bob").task(id), room.mailbox("ann").task(id)
    theirs.accept()
    for task in (theirs, ours):
        with pytest.raises(Refused):
            task.answer("x")
    theirs.start()
    theirs.ask("Which order?")
    with pytest.raises(NotAllowed, match="only the giver"):
        theirs.answer("x")
    ours.answer("Ascending")
    assert theirs.refresh() == TaskState.WORKING


def test_the_tasks_of_all_mailboxes_are_listed_once_each(room: Room) -> None:
    first = room.mailbox("ann").give_task("bob", "one", session={"chat": 1}).id
    second = room.mailbox("bob").give_task("carl", "two").id
    own = room.mailbox("carl").give_task("carl", "three").id
    room.mailbox("bob").task(first).accept()
    assert {first, second, own} == {task.id for task in room.tasks()}
    assert [(first, "ann", {"chat": 1})] == [
        (task.id, task.giver, task.session) for task in room.tasks(states="accepted")
    ]
    assert 1 == len(room.tasks(limit=1))
