"""Letters as models get and write them over MCP (I2): what one model writes, another reads, and nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from postroom import Invalid, Room
from postroom.core.verb import from_params, perform
from postroom.formats import mcp
from postroom.formats.mcp import record
from postroom.mcp.tools import TOOLS
from postroom.model.codec import encode
from postroom.model.message import Message, part_from_json, payload_to_parts
from postroom.settings import Settings
from postroom.store.sqlite.memory import MemoryStore
from tests.formats.asking import PAYLOADS
from tests.formats.drawn import FULL, letters
from tests.rooms import FakeClock

ROOM = Room(MemoryStore(), Settings(inbox_quota=10**6, thread_rate=0), clock=FakeClock())
HAD = ROOM.mailbox("bob").send("ann", "a question").id  # that others answer
ARGUMENTS = ("subject", "content", "threadTag", "importance", "inReplyTo")  # of send_message, and of a record


def call(name: str, **arguments: Any) -> Any:
    return perform(
        ROOM.core,
        ROOM.principal,
        from_params(TOOLS[name], {"agentId" if name == "task" else "from": "ann", **arguments}),
    )


def said(record: dict[str, Any]) -> dict[str, Any]:
    return {name: record[name] for name in ARGUMENTS if name in record}


def sent_again(message: Message) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a model gets of a letter, and what it gets of the letter that a call with the same arguments sends."""
    before = msgspec.json.decode(encode(record(message)))
    id = call("send_message", to="bob", **said(before))["messageId"]
    return said(before), said(record(ROOM.core.store.get((id,))[id].message))


TYPED = PAYLOADS.map(lambda payload: tuple(map(part_from_json, payload_to_parts(payload))))
SAID = st.builds(
    replace,
    letters,
    subject=st.sampled_from(["", "a line", "ein Gruß"]),
    parts=TYPED,
    in_reply_to=st.none() | st.just(HAD),
)


@given(SAID)
def test_what_a_model_gets_of_a_letter_it_can_send_again(message: Message) -> None:
    if message.in_reply_to is not None:  # an answer without a subject or a thread takes its parent's
        message = replace(message, subject=message.subject or "s")
    before, again = sent_again(message)
    assert before == again


@pytest.mark.parametrize("lost", ARGUMENTS)
def test_the_loss_of_any_field_would_be_found(lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    message = replace(FULL, in_reply_to=HAD, parts=FULL.parts[1:])
    before, again = sent_again(message)
    assert before == again and before.keys() == {*ARGUMENTS}
    whole = mcp._without_empty
    monkeypatch.setattr(mcp, "_without_empty", lambda fields: whole(fields | {lost: None}))
    assert before != said(record(message))


def test_the_loss_of_the_type_of_a_content_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    message = replace(FULL, in_reply_to=None, parts=tuple(map(part_from_json, payload_to_parts({"type": "x"}))))
    monkeypatch.setattr(mcp, "payload_to_parts", lambda content: payload_to_parts([content]))
    before, again = sent_again(message)
    assert before["content"] != again["content"]


@pytest.mark.parametrize("content", [{}, {"type": 1}, {"text": "x"}])
def test_a_content_without_a_type_is_refused(content: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="type"):
        call("send_message", to="bob", content=content)


def test_a_letter_and_a_task_have_no_empty_fields() -> None:
    id = ROOM.mailbox("ann").send("bob", "x").id
    found = record(ROOM.core.store.get((id,))[id].message)
    assert {"id", "from", "content", "importance", "createdAt", "thread", "kind"} == found.keys()
    task = ROOM.mailbox("ann").give_task("bob", "y").id
    found = call("task", action="status", messageId=task)["task"]
    assert {"id", "state", "giver", "receiver", "thread", "is_final"} == found.keys()
