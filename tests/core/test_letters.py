"""What a letter carries (L1 to L4): every field arrives as it was written."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import postroom
from postroom import Invalid, Part, Priority, Recipient, Room
from postroom.model.message import Message, TaskNote
from tests.rooms import FakeClock, RoomFactory, texts

EVERYTHING: dict[str, Any] = {
    "cc": ["carol"],
    "bcc": "dave",
    "data": {"answer": [1, 2.5, None, True, {"deep": "ä"}]},
    "subject": "Sorting: 日本語 🎉",
    "kind": "work_assignment",
    "priority": "urgent",
    "scope": "research",
    "thread_tag": "sorting talk",
    "conversation_id": "conv:1",
    "task": {"id": "task-1", "state": "working", "deadline": "2030-02-01T00:00:00Z", "reason": "asked"},
    "callback": {"session": "s-1", "nested": [1]},
    "context": {"work": "half done"},
    "attachments": ["a.txt", "b c.txt"],
    "tags": ["x", "y z"],
    "metadata": {"k": {"v": [1, "2"]}},
    "key": "once",
    "id": "outside:id-1",
    "extra": {"X-Unknown": 1},
}


def test_every_field_arrives_as_it_was_written(factory: RoomFactory, room: Room, clock: FakeClock) -> None:
    room.mailbox("ann").send("bob", "body", expires=timedelta(hours=1), **EVERYTHING)
    factory.reopen()
    got = factory.room().mailbox("dave").read("outside:id-1").message
    assert got == Message(
        id="outside:id-1",
        sender="ann",
        recipients=(Recipient("bob"), Recipient("carol", "cc"), Recipient("dave", "bcc")),
        created_at=clock.wall,
        kind="work_assignment",
        subject="Sorting: 日本語 🎉",
        parts=(postroom.text("body"), postroom.data(EVERYTHING["data"])),
        priority=Priority.URGENT,
        scope="research",
        expires_at=clock.wall + timedelta(hours=1),
        thread_tag="sorting talk",
        conversation_id="conv:1",
        hops=3,
        trace=("ann",),
        task=TaskNote(
            id="task-1", state="working", deadline=got.task.deadline if got.task else None, reason="asked"
        ),
        callback={"session": "s-1", "nested": [1]},
        context={"work": "half done"},
        attachments=("a.txt", "b c.txt"),
        tags=("x", "y z"),
        metadata={"k": {"v": [1, "2"]}},
        key="once",
        extra={"X-Unknown": 1},
    )
    assert got.task
    assert got.task.deadline
    assert got.task.deadline.isoformat() == "2030-02-01T00:00:00+00:00"


def test_what_the_caller_changes_after_sending_changes_no_letter(room: Room) -> None:
    params: dict[str, Any] = {"list": [1]}
    sent = room.mailbox("ann").send("bob", metadata=params, data=params)
    params["list"].append(2)
    (letter,) = room.mailbox("bob").check()
    assert sent.message.metadata == letter.message.metadata == letter.data == {"list": [1]}


PARTS: list[tuple[Any, Part]] = [
    ("plain", postroom.text("plain")),
    (postroom.text("**bold**"), Part("text", text="**bold**")),
    (postroom.data([1], schema="numbers"), Part("data", data=[1], schema="numbers")),
    ({"type": "data", "data": None}, Part("data", data=None)),
    (postroom.event("started"), Part("event", event="started")),
    (postroom.event("started", {"by": "me"}), Part("event", event="started", data={"by": "me"})),
    (postroom.reference("https://x.test/"), Part("reference", uri="https://x.test/")),
    (postroom.reference("https://x.test/", "X"), Part("reference", uri="https://x.test/", label="X")),
    ({"type": "x-own", "any": {"thing": 1}}, Part("x-own", any={"thing": 1})),
    ({"type": "text", "text": "t", "source-field": 7}, Part("text", text="t", **{"source-field": 7})),
]


@pytest.mark.parametrize(("message", "kept"), PARTS, ids=lambda value: repr(value)[:40])
def test_a_part_of_each_type_arrives_as_it_is(room: Room, message: Any, kept: Part) -> None:
    room.mailbox("ann").send("bob", message)
    room.mailbox("ann").send("bob", [message, "and more"])
    one, two = room.mailbox("bob").check()
    assert one.parts == (kept,)
    assert two.parts == (kept, postroom.text("and more"))


BAD_PARTS: list[tuple[Any, str]] = [
    ({"type": "text"}, "body[0].text"),
    ({"type": "text", "text": 5}, "body[0].text"),
    ({"type": "data"}, "body[0].data"),
    ({"type": "data", "data": 1, "schema": 2}, "body[0].schema"),
    ({"type": "event"}, "body[0].event"),
    ({"type": "reference", "label": "x"}, "body[0].uri"),
    ({"type": "file"}, "body[0].path"),
    ({"type": "file", "path": "a", "bytes": 5}, "body[0].bytes"),
    ({"type": "file", "path": "a", "bytes": "not base64!"}, "body[0].bytes"),
    ({"type": "picture"}, "body[0].type"),
    ({"type": "x-"}, "body[0].type"),
    ({"type": 5}, "body[0].type"),
    ({}, "body[0].type"),
    (Part("text", text="\ud800"), "body[0].text"),
    ([["nested"]], "body[0]"),
    (["fine", 5], "body[1]"),
    (5, "body"),
    (b"bytes", "body"),
    ({"a"}, "body"),
]


@pytest.mark.parametrize(("message", "field"), BAD_PARTS, ids=lambda value: repr(value)[:40])
def test_a_part_that_is_none_is_refused_by_its_place(room: Room, message: Any, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        room.mailbox("ann").send("bob", message)
    assert refused.value.field == field
    assert room.mailboxes() == []


@pytest.mark.parametrize("word", ["message", "task_update", "merge_notification", "my.own:kind-2"])
def test_a_kind_is_an_open_word(room: Room, word: str) -> None:
    room.mailbox("ann").send("bob", "x", kind=word)
    assert [letter.kind for letter in room.mailbox("bob").check(kinds=word)] == [word]


def test_an_inbox_answers_by_priority_then_by_age_whatever_the_clock_says(room: Room, clock: FakeClock) -> None:
    ann = room.mailbox("ann")
    message: list[tuple[str, Any]] = [
        ("n1", "normal"),
        ("l1", 1),
        ("u1", "URGENT"),
        ("n2", Priority.NORMAL),
        ("h", "high"),
    ]
    for text, priority in message:
        ann.send("bob", text, priority=priority)
        clock.jump(-3600)
    ann.send("bob", "u2", priority=4)
    assert texts(room.mailbox("bob").check()) == ["u1", "u2", "h", "n1", "n2", "l1"]


def test_an_empty_letter_is_a_letter(room: Room) -> None:
    room.mailbox("ann").send("bob")
    (letter,) = room.mailbox("bob").check()
    assert (letter.text, letter.parts, letter.data) == ("", (), None)


def test_a_task_note_may_be_given_as_itself(room: Room) -> None:
    sent = room.mailbox("ann").send("bob", task=TaskNote(id="t-1"))
    assert sent.message.task == TaskNote(id="t-1")


def test_a_letter_from_outside_keeps_its_id_for_life(room: Room) -> None:
    ann = room.mailbox("ann")
    ann.send("bob", "one", id="MSG-1")
    assert ann.send("bob", "one", id="MSG-1").repeated
    with pytest.raises(postroom.IdTaken) as refused:
        room.mailbox("carol").send("bob", "other", id="MSG-1")
    assert refused.value.field == "id"
    assert len(room.mailbox("bob").check()) == 1
