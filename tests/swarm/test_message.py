"""A Message as a plain value: its fields and words are the design's, there and back."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from postroom import swarm
from postroom.swarm import HandoffContext, MailboxManager, Message, MessagePriority, MessageStatus, MessageType

WHEN = datetime(2026, 1, 3, 14, 30)  # noqa: DTZ001 - as in the design
FILE: dict[str, Any] = {
    "id": "MSG-abc123def456",
    "from_agent": "architect",
    "to_agent": "implementer",
    "swarm_name": "swarm_dev",
    "type": "handoff",
    "subject": "Parser",
    "body": "It is yours.",
    "payload": {"n": 1},
    "priority": 3,
    "created_at": "2026-01-03T14:30:00",
    "expires_at": None,
    "status": "read",
    "read_at": "2026-01-03T15:00:00",
    "completed_at": None,
    "reply_to": None,
    "thread_id": "MSG-root",
    "context": {"next_steps": ["build", "test"], "job_id": None},
    "attachments": ["a.md"],
    "tags": ["handoff"],
}


def message(**more: Any) -> Message:
    params: dict[str, Any] = {
        "id": "MSG-1",
        "from_agent": "a",
        "to_agent": "b",
        "swarm_name": None,
        "type": MessageType.REQUEST,
        "subject": "S",
        "body": "B",
        "payload": {},
        "priority": MessagePriority.NORMAL,
        "created_at": WHEN,
        "expires_at": None,
    }
    return Message(**(params | more))


def test_a_file_comes_back_as_it_was() -> None:
    assert FILE == Message.from_dict(FILE).to_dict()


def test_the_fields_stand_in_the_designs_order_with_its_defaults() -> None:
    assert list(FILE) == [each.name for each in fields(Message)] == list(message().to_dict())
    defaults = {each.name for each in fields(Message) if each.default is not MISSING}
    made = {each.name for each in fields(Message) if each.default_factory is not MISSING}
    assert {"status", "read_at", "completed_at", "reply_to", "thread_id"} == defaults
    assert {"context", "attachments", "tags"} == made


def test_the_words_are_the_designs() -> None:
    assert "request response notification handoff escalation".split() == [each.value for each in MessageType]
    assert {"LOW": 1, "NORMAL": 2, "HIGH": 3, "URGENT": 4} == {each.name: each.value for each in MessagePriority}
    words = "unread read processing completed archived failed".split()
    assert words == [each.value for each in MessageStatus]


def test_what_may_be_missing_in_a_file_is_filled_in() -> None:
    least = {name: FILE[name] for name in "id from_agent to_agent type subject body priority created_at".split()}
    read = Message.from_dict(least)
    assert (read.swarm_name, read.payload, read.status, read.tags) == (None, {}, MessageStatus.UNREAD, [])


@pytest.mark.parametrize("name", "id from_agent to_agent type subject body priority created_at".split())
def test_what_must_not_be_missing_is_missed(name: str) -> None:
    with pytest.raises(KeyError, match=name):
        Message.from_dict({key: value for key, value in FILE.items() if key != name})


def test_a_time_with_a_zone_is_read_as_local_time() -> None:
    aware = WHEN.astimezone(UTC)
    for form in (aware.isoformat(), aware.isoformat().replace("+00:00", "Z"), WHEN.isoformat()):
        assert WHEN == Message.from_dict(FILE | {"created_at": form}).created_at


def test_markdown_has_the_designs_layout() -> None:
    expected = [
        "## [HIGH] Parser", "", "**From:** architect", "**Type:** handoff", "**Priority:** HIGH",
        "**Sent:** 2026-01-03 14:30", "**Thread:** MSG-root", "**Swarm:** swarm_dev", "", "---", "",
        "It is yours.", "", "### Context", "", "- **next_steps:**", "  - build", "  - test", "- **job_id:** None",
        "", "### Attachments", "", "- `a.md`", "", "### Payload", "", "```json", "{", '  "n": 1', "}", "```",
    ]  # fmt: skip
    assert "\n".join(expected) == Message.from_dict(FILE).to_markdown()


def test_markdown_of_a_plain_letter_says_no_more_than_it_has() -> None:
    expected = [
        "##  S",
        "",
        "**From:** a",
        "**Type:** request",
        "**Priority:** NORMAL",
        "**Sent:** 2026-01-03 14:30",
    ]
    assert "\n".join([*expected, "", "---", "", "B"]) == message().to_markdown()
    assert message(priority=MessagePriority.URGENT).to_markdown().startswith("## [URGENT] S\n")


def test_a_handoffs_context_has_the_designs_fields() -> None:
    expected: dict[str, Any] = {
        "work_completed": "x", "files_modified": [], "files_created": [], "current_state": "", "state_file": None,
        "next_steps": [], "blockers": [], "dependencies": [], "related_escalations": [], "job_id": None,
        "notes": "",
    }  # fmt: skip
    assert list(expected.items()) == list(HandoffContext("x").to_dict().items())


SIGNATURES = {
    "send": "from_agent to_agent subject body message_type priority payload context swarm_name reply_to thread_id"
    " expires_at attachments tags",
    "handoff": "from_agent to_agent subject handoff_context priority swarm_name additional_notes",
    "broadcast": "from_agent swarm_name subject body message_type priority exclude kwargs",
    "check_mailbox": "agent_name unread_only message_types min_priority",
    "read_message": "message_id",
    "mark_processing": "message_id",
    "mark_completed": "message_id archive",
    "reply": "original_message_id from_agent body payload",
    "get_thread": "thread_id",
    "get_pending_count": "agent_name",
}
FUNCTIONS = {
    "get_mailbox_manager": "mailboxes_dir",
    "send_message": "from_agent to_agent subject body priority kwargs",
    "check_my_mailbox": "agent_name unread_only",
    "send_handoff": "from_agent to_agent subject work_completed current_state next_steps files_modified blockers"
    " swarm_name priority",
    "broadcast_to_swarm": "from_agent swarm_name subject body priority",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_verb_takes_what_the_design_says_in_its_order(name: str) -> None:
    taken = list(inspect.signature(getattr(MailboxManager, name)).parameters)[1:]
    assert SIGNATURES[name].split() == taken


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_takes_what_the_design_says_in_its_order(name: str) -> None:
    assert FUNCTIONS[name].split() == list(inspect.signature(getattr(swarm, name)).parameters)


def test_times_at_this_edge_have_no_zone(manager: MailboxManager) -> None:
    sent = manager.send("a", "b", "s", "x", expires_at=WHEN.replace(year=2999))
    read = manager.read_message(sent.id)
    assert read is not None and read.read_at is not None
    assert sent.created_at.tzinfo is None is read.read_at.tzinfo
    assert WHEN.replace(year=2999) == read.expires_at
    assert timedelta(0) <= read.read_at - read.created_at < timedelta(minutes=1)
