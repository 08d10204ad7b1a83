"""Any value in any field (L7): an error that names the field and helps, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from postroom import Invalid, LookAlike, PostroomError, Refused, Room
from tests.core.bad_values import CARD, NAMES, SENT, TASKS, acts
from tests.letters import everything
from tests.rooms import RoomFactory


@pytest.fixture
def used(factory: RoomFactory) -> Room:
    """A room in which `coder` is known and has a letter."""
    room = factory.room()
    room.mailbox("coder").register()
    room.mailbox("ann").send("coder", "hello", id="known")
    return room


def inside(error: PostroomError, field: str) -> bool:
    return error.field is not None and (error.field == field or error.field.startswith((f"{field}.", f"{field}[")))


def helpful(error: PostroomError) -> bool:
    return 5 < len(str(error)) < 2000 and str(error).isprintable()


def unchanged(factory: RoomFactory, act: Callable[..., object], *value: Any, **named: Any) -> PostroomError:
    """The error of `act`, which wrote nothing."""
    before = everything(factory.store)
    with pytest.raises(PostroomError) as refused:
        act(*value, **named)
    assert everything(factory.store) == before
    return refused.value


@pytest.mark.parametrize("field", SENT)
def test_a_bad_value_in_a_sent_field_is_named_and_nothing_is_written(
    factory: RoomFactory, used: Room, field: str
) -> None:
    for value in SENT[field]:
        values = {"to": "coder", "body": "x"} | {field: value}
        error = unchanged(factory, used.mailbox("ann").send, **values)
        assert inside(error, field), (field, str(error))
        assert helpful(error), str(error)
        assert not error.temporary


@pytest.mark.parametrize("task", TASKS, ids=range(len(TASKS)))
def test_a_bad_task_note_is_refused(factory: RoomFactory, used: Room, task: Any) -> None:
    assert inside(unchanged(factory, used.mailbox("ann").send, "coder", task=task), "task")


def test_a_bad_name_opens_no_mailbox(room: Room) -> None:
    for name in NAMES:
        if name in ("postmaster", "Postmaster"):
            continue
        with pytest.raises(Invalid) as refused:
            room.mailbox(name)
        assert refused.value.field == "mailbox"


@pytest.mark.parametrize("name", ["Coder", "CODER"])
def test_a_look_alike_is_nobody(factory: RoomFactory, used: Room, name: str) -> None:
    ann, other = used.mailbox("ann"), used.mailbox(name)
    errors = [
        ("to", unchanged(factory, ann.send, name, "x")),
        ("to", unchanged(factory, ann.send, ["new", "new2", name], "x")),
        ("sender", unchanged(factory, other.send, "ann", "x")),
        ("id", unchanged(factory, other.register)),
    ]
    for field, error in errors:
        assert isinstance(error, LookAlike)
        assert error.field == field
        assert "coder" in str(error)


def test_two_spellings_in_one_letter_are_refused(factory: RoomFactory, used: Room) -> None:
    assert unchanged(factory, used.mailbox("ann").send, ["New", "new"], "x").field == "to"


@pytest.mark.parametrize("name", ["postmaster", "Postmaster", "POSTMASTER"])
def test_no_caller_writes_as_the_post_room(factory: RoomFactory, used: Room, name: str) -> None:
    box = used.mailbox(name)
    assert unchanged(factory, box.send, "coder", "x").field == "sender"
    assert unchanged(factory, box.reply, "known", "x").field == "sender"
    assert unchanged(factory, box.register).field == "id"
    assert unchanged(factory, used.mailbox("ann").send, name, "x").field == "to"


def test_what_is_over_already_is_not_sent(factory: RoomFactory, used: Room) -> None:
    for expires in (timedelta(0), -1, factory.clock.wall, factory.clock.wall - timedelta(days=1)):
        error = unchanged(factory, used.mailbox("ann").send, "coder", expires=expires)
        assert isinstance(error, Refused)
        assert error.field == "expires"


def test_a_bad_value_in_any_other_verb_is_named_and_nothing_is_written(factory: RoomFactory, used: Room) -> None:
    used.mailbox("ann").register(scopes=["team"])
    for field, act, values in acts(used.mailbox("coder")):
        for value in values:
            error = unchanged(factory, act, value)
            assert inside(error, field), (field, str(error))
            assert isinstance(error, Invalid), (field, str(error))
            assert helpful(error), str(error)


@pytest.mark.parametrize("field", CARD)
def test_a_bad_value_on_a_card_is_named_and_nothing_is_written(
    factory: RoomFactory, used: Room, field: str
) -> None:
    for value in CARD[field]:
        error = unchanged(factory, used.mailbox("coder").register, **{field: value})
        assert isinstance(error, Invalid)
        assert inside(error, field)
        assert helpful(error)
