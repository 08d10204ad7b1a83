"""Tasks, threads, conversations and cursors: folds over letters, and words from outside."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from msgspec.structs import replace

from postroom.errors import IllegalMove, Invalid, NotAllowed, PostroomError, StaleRevision
from postroom.model.message import Message, Recipient, TaskNote
from postroom.model.record import Cursor, pair_key
from postroom.model.task import (
    MOVES,
    TaskState,
    check_move,
    check_mover,
    check_state,
    movers,
)
from postroom.model.thread import (
    conversation_of,
    fold_conversation,
    fold_thread,
    general_conversation,
    general_scope,
    tag_conversation,
    turn_of,
)
from tests.letters import after, fold_task, letter


def task_letter(id: str, state: str = "pending", *, sender: str = "bob", **note: Any) -> Message:
    """By ann, who gives the task to bob, or by bob."""
    about = TaskNote(id="t1", state=state, **note)
    if state == "pending":
        return letter(id, kind="task", task=about)
    return letter(id, ["ann"], sender=sender, kind="task_update", task=about, thread_id="m1", created_at=after(9))


# -- tasks


@pytest.mark.parametrize(("before", "next_one"), [*itertools.product(TaskState, TaskState)])
def test_the_table_decides_every_move_of_a_task(before: TaskState, next_one: TaskState) -> None:
    if next_one in MOVES[before]:
        check_move(before, next_one)
        return
    with pytest.raises(IllegalMove, match=f"a task that is {before} cannot become {next_one}") as refused:
        check_move(before, next_one)
    assert ("none, it is final" in str(refused.value)) == (not MOVES[before])


def test_every_state_of_a_task_is_in_the_table() -> None:
    assert set(MOVES) == set(TaskState)


def test_a_word_that_is_no_task_state_is_refused() -> None:
    assert check_state("working", "state") is TaskState.WORKING
    with pytest.raises(Invalid, match="input_required") as refused:
        check_state("done", "state")
    assert refused.value.field == "state"


def test_a_task_is_what_its_letters_say() -> None:
    task = fold_task(
        [
            letter("chat"),
            task_letter("m1", deadline=after(60), reason="please"),
            task_letter("m2", "accepted"),
            letter("m3", ["ann"], sender="bob", kind="task_update", task=TaskNote(id="other", state="rejected")),
            task_letter("m4", "pending"),
            task_letter("m5", "working", deadline=after(90)),
            task_letter("m6", "completed", reason="here you are"),
            task_letter("m7", "working"),
        ]
    )

    assert task is not None
    assert (task.id, task.letter, task.giver, task.receiver) == ("t1", "m1", "ann", "bob")
    assert (task.state, task.reason, task.last) == (TaskState.COMPLETED, "here you are", "m6")
    assert (task.opened_at, task.moved_at) == (after(0), after(9))
    assert task.deadline == after(60)  # its receiver cannot put it off


def test_only_giver_and_receiver_move_a_task_each_in_their_part() -> None:
    opened = task_letter("m1")
    accepted = task_letter("m2", "accepted")
    for forged in (
        task_letter("m3", "completed", sender="eve"),
        task_letter("m3", "completed", sender="ann"),
        task_letter("m3", "canceled"),
        replace(task_letter("m3", "completed"), kind="message"),
        replace(task_letter("m3", "completed"), thread_id="another"),
    ):
        task = fold_task([opened, accepted, forged])
        assert task is not None
        assert (task.state, task.last) == (TaskState.ACCEPTED, "m2")
    task = fold_task([opened, accepted, task_letter("m3", "canceled", sender="ann")])
    assert task is not None
    assert task.state is TaskState.CANCELED


@pytest.mark.parametrize(("before", "next_one"), [(a, b) for a, targets in MOVES.items() for b in targets])
def test_every_legal_move_has_a_mover(before: TaskState, next_one: TaskState) -> None:
    opened = fold_task([task_letter("m1")])
    assert opened is not None
    task = replace(opened, state=before)
    allowed = movers(before, next_one)
    assert ("giver" in allowed) == (next_one is TaskState.CANCELED or before is TaskState.INPUT_REQUIRED)
    for role, agent in (("giver", "ann"), ("receiver", "bob")):
        if role in allowed:
            check_mover(task, agent, next_one)
        else:
            with pytest.raises(NotAllowed, match=f"only the {allowed[0]} of a task can make it {next_one}"):
                check_mover(task, agent, next_one)
    with pytest.raises(NotAllowed):
        check_mover(task, "eve", next_one)


def test_letters_without_a_task_tell_of_none() -> None:
    opening = task_letter("m1")
    two = (Recipient("bob"), Recipient("cleo"))
    assert fold_task([]) is None
    assert fold_task([letter("m1")]) is None
    assert fold_task([replace(opening, kind="message")]) is None
    assert fold_task([replace(opening, task=TaskNote(id="t1", state="working"))]) is None
    assert fold_task([replace(opening, recipients=two)]) is None
    assert fold_task([replace(opening, recipients=(Recipient("broadcast:team"),))]) is None
    assert fold_task([replace(opening, recipients=(Recipient("bob"), Recipient("cleo", "cc")))]) is not None


# -- threads and conversations


def test_a_thread_is_its_root_and_the_replies() -> None:
    hidden = Recipient("eve", "bcc")
    root = Message(
        id="m1",
        sender="ann",
        recipients=(Recipient("bob"), hidden, Recipient("broadcast:team")),
        created_at=after(0),
        subject="tea?",
    )
    reply = letter("m2", ["ann", "cleo"], sender="bob", thread_id="m1", subject="yes", created_at=after(5))

    thread = fold_thread([root, reply])
    assert (thread.id, thread.subject, thread.count) == ("m1", "tea?", 2)
    assert thread.participants == ("ann", "bob", "cleo")
    assert (thread.started_at, thread.last_at) == (after(0), after(5))


def test_a_conversation_is_explicit_or_by_tag_and_scope_or_the_scopes_catch_all() -> None:
    assert conversation_of(letter("m1", conversation_id="c1", thread_tag="tag")) == "c1"
    assert conversation_of(letter("m1", thread_tag="tag", scope="team")) == tag_conversation("tag", "team")
    assert conversation_of(letter("m1", scope="team")) == general_conversation("team") == "conv-general:team"
    assert tag_conversation("tag", "team") != tag_conversation("tag", "other") != tag_conversation("other", "team")
    assert tag_conversation("a", "b") == tag_conversation("a", "b")
    assert (general_scope("conv-general:team"), general_scope("conv-1")) == ("team", None)


def test_a_conversation_counts_its_threads_and_turns() -> None:
    letters = [
        letter("m1", conversation_id="c1", subject="plan"),
        letter("m2", ["cleo"], conversation_id="c1", thread_id="m1", created_at=after(3)),
    ]

    folded = fold_conversation(letters)
    assert (folded.id, folded.scope, folded.subject) == ("c1", "default", "plan")
    assert (folded.threads, folded.turns, folded.last_at) == (1, 2, after(3))
    assert folded.participants == ("ann", "bob", "cleo")
    assert fold_conversation([letter("m1", thread_tag="release")]).subject == "release"
    assert fold_conversation([letter("m1", subject="plan")]).subject == "General"


def test_a_turn_is_a_letter_seen_as_a_contribution() -> None:
    turn = turn_of(letter("m2", in_reply_to="m1", thread_id="m1"))

    assert (turn.id, turn.message_id, turn.in_reply_to) == ("turn-m2", "m2", "turn-m1")
    assert (turn.thread_id, turn.conversation_id) == ("m1", "conv-general:default")
    assert turn_of(letter("m1")).in_reply_to is None


# -- cursors, records, errors


def test_a_cursor_comes_through_text_unchanged() -> None:
    cursor = Cursor("room", "epoch", 7)

    assert Cursor.parse(str(cursor)) == cursor == Cursor.parse(cursor)


@pytest.mark.parametrize(
    "text",
    ["", "a:b", "a:b:c", "a:b:-1", "a:b:1:..", "a:b:1:c:d", "a:b:", "a:b:\u0663", "a:b:1.5", 7, "a/b:c:1"],
)
def test_what_is_no_cursor_is_refused(text: Any) -> None:
    with pytest.raises(Invalid) as refused:
        Cursor.parse(text)
    assert refused.value.field == "cursor"


def test_a_spent_key_belongs_to_its_sender() -> None:
    assert pair_key("ann", "k") != pair_key("bob", "k")


def test_an_error_says_where_what_and_what_to_do() -> None:
    error = Invalid("is empty", field="to", hint="name someone")
    assert str(error) == "to: is empty (name someone)"
    error.keys = ("k1",)
    assert str(error) == "to: is empty (name someone) [retry with key='k1']"
    assert str(StaleRevision()) == "The thing changed since it was read."


def all_errors(root: type[PostroomError] = PostroomError) -> list[type[PostroomError]]:
    """Our errors; another test may have made one of its own in this process."""
    ours = [child for child in root.__subclasses__() if child.__module__.startswith("postroom.")]
    return [root, *(error for child in ours for error in all_errors(child))]


def test_every_error_has_its_own_code_and_says_whether_trying_again_helps() -> None:
    errors = all_errors()
    codes = [error.code for error in errors]

    assert len(set(codes)) == len(codes)
    assert {error for error in errors if error.temporary} >= {StaleRevision}
    assert all(error.__doc__ for error in errors)
