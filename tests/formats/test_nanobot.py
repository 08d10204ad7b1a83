"""Fields of a letter on nanobot's bus (N1): what comes in with a letter can go out with another."""

from __future__ import annotations

import pytest
from hypothesis import given
from msgspec.structs import replace

from postroom import Invalid
from postroom.formats import nanobot
from postroom.formats.nanobot import BusFields, bus_fields, read_bus_fields
from postroom.model.message import Message
from tests.formats.drawn import FULL, letters

MOST = 5


def fields_of(message: Message) -> BusFields:
    """What a message may set of a letter."""
    task = message.task if message.kind == "task" else None
    return BusFields(
        is_task=message.kind == "task",
        task_id=task.id if task else None,
        deadline=task.deadline if task else None,
        ttl=message.hops,
    )


def again(message: Message) -> BusFields:
    return read_bus_fields(bus_fields(message), MOST, pytest.fail)


def sent(message: Message) -> Message:
    """As local code sends one: a task, or a message, that has a hop left."""
    is_task = message.kind == "task"
    return replace(
        message, kind="task" if is_task else "message", task=message.task if is_task else None,
        hops=max(message.hops, 1),
    )  # fmt: skip


@given(letters.map(sent))
def test_what_comes_in_can_go_out(message: Message) -> None:
    assert fields_of(message) == again(message)


@pytest.mark.parametrize("lost", ["TYPE", "TASK", "TTL"])
def test_the_loss_of_any_field_would_be_found(lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    message = replace(FULL, kind="task")
    written = bus_fields(message)
    assert fields_of(message) == read_bus_fields(written, MOST, pytest.fail)
    monkeypatch.setattr(nanobot, lost, "mailbox_other")
    assert fields_of(message) != read_bus_fields(written, MOST, lambda _: None)


def test_the_bytes_of_files_stay_behind() -> None:
    message = replace(FULL, parts=(*FULL.parts, type(FULL.parts[0])("file", path="a.txt", bytes="aGk=")))
    assert {"type": "file", "path": "a.txt"} == bus_fields(message)["mailbox_parts"][-1]


@pytest.mark.parametrize("due", ["soon", ""])
def test_a_deadline_that_is_no_time_is_refused(due: str) -> None:
    with pytest.raises(Invalid, match=r"mailbox_task\.deadline"):
        read_bus_fields({"mailbox_type": "task", "mailbox_task": {"deadline": due}}, MOST, pytest.fail)
