"""The codec of `mail/*`: conversations, turns and threads in both dialects at once.

agent-inbox's fields are snake_case with times as text; MAP's are camelCase with times in milliseconds. No name
means two things, so one object serves both: each client reads the fields that it knows.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ..core.conversations import Guest, TakeTurn
from ..core.threads import type_of
from ..errors import Invalid
from ..model.message import content_of, content_type, is_typed, payload_to_parts
from ..model.thread import conversation_of, letter_of_turn, note_of, reply_of, thread_of, turn_id
from .inbox import milliseconds, present, stamp

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..core.conversations import View
    from ..core.threads import Summary
    from ..model.agent import Agent
    from ..model.message import Message
    from ..model.thread import Participant, Shape, ThreadRecord


NOBODY = "system"  # MAP's name for the creator of an object that no agent created


def conversation_record(view: View) -> dict[str, Any]:
    talk = view.talk
    return present(
        id=talk.id,
        scope=talk.scope,
        subject=talk.subject or None,
        status=talk.status,
        participants=[seat_record(seat) for seat in view.seats],
        metadata=talk.metadata,
        created_at=stamp(talk.created_at),
        updated_at=stamp(view.updated_at),
        type=talk.type,
        participantCount=len(view.seats),
        parentConversationId=talk.parent,
        parentTurnId=talk.parent_turn,
        createdAt=milliseconds(talk.created_at),
        updatedAt=milliseconds(view.updated_at),
        closedAt=None if talk.closed_at is None else milliseconds(talk.closed_at),
        createdBy=talk.created_by or NOBODY,
    )


def seat_record(seat: Participant) -> dict[str, Any]:
    """Return a participant."""
    return present(
        agent_id=seat.agent,
        role=seat.role or None,
        joined_at=stamp(seat.joined_at),
        id=seat.agent,
        type="agent",
        joinedAt=milliseconds(seat.joined_at),
        leftAt=None if seat.left_at is None else milliseconds(seat.left_at),
        permissions=seat.permissions,
    )


def turn_record(message: Message) -> dict[str, Any]:
    note, thread, reply = note_of(message), thread_of(message), reply_of(message)
    kind = content_type(message) if note is None else note.content_type
    answers = None if reply is None else turn_id(reply)
    # A letter that was not sent as a turn counts as one all the same; MAP calls that intercepted.
    intercepted = {"type": "intercepted", "messageId": message.id}
    return present(
        id=turn_id(message.id),
        conversation_id=conversation_of(message),
        participant_id=message.sender,
        source_message_id=(note.source if note else None) or message.id,
        content_type=kind,
        thread_id=thread,
        in_reply_to=answers,
        importance=message.priority.name.lower(),
        created_at=stamp(message.created_at),
        conversationId=conversation_of(message),
        participant=message.sender,
        timestamp=milliseconds(message.created_at),
        contentType=kind,
        threadId=thread,
        inReplyTo=answers,
        source=intercepted if note is None else {"type": "explicit", "method": "mail/turn"},
        visibility=note.visibility if note else None,
        status="complete",
        metadata=message.metadata,
    ) | {"content": turn_content(message)}


def read_turn(fields: Mapping[str, Any]) -> TakeTurn:
    """Return the turn in these fields of either dialect, whose names are in snake case."""
    if "content" not in fields:
        raise Invalid("is missing", field="content")
    content, kind = fields["content"], fields.get("content_type")
    shape: Shape = "content" if is_typed(content) else "bare"
    is_text = isinstance(content, dict) and content.keys() == {"text"} and isinstance(content["text"], str)
    if kind in {None, "text"} and is_text:
        shape, content = "text", content["text"]  # MAP's clients send text as an object
    if kind is None:
        kind = content["type"] if is_typed(content) else "text"
    reply = fields.get("in_reply_to")
    return TakeTurn(
        body=payload_to_parts(content),
        content_type=kind,
        shape=shape,
        thread=fields.get("thread_id"),
        reply_to=letter_of_turn(reply) if isinstance(reply, str) else reply,
        source=fields.get("source_message_id"),
        visibility=fields.get("visibility"),
        metadata=fields.get("metadata") or {},
        priority=fields.get("importance"),
        subject=fields.get("subject"),
        key=fields.get("key"),
    )


def read_guest(fields: Any) -> Guest:
    """Return the participant that is to be invited."""
    if not isinstance(fields, dict):
        raise Invalid("must be an object", field="participant", hint="its keys are id, role and permissions")
    return Guest(agent=fields.get("id"), role=fields.get("role"), permissions=fields.get("permissions") or {})


def turn_content(message: Message) -> Any:
    """Return the content of a turn in its original form."""
    content, note = content_of(message.parts), note_of(message)
    if note is None or note.shape == "content":
        return content
    if note.shape == "text":
        return {"text": content.get("text")}
    return content.get("text" if content.get("type") == "text" else "data")


def thread_records(view: View) -> list[dict[str, Any]]:
    turns: dict[str | None, list[Message]] = {}
    for letter in view.letters:
        turns.setdefault(thread_of(letter), []).append(letter)
    return [thread_record(strand, view.talk.id, turns.get(strand.id, [])) for strand in view.strands]


def thread_record(strand: ThreadRecord, conversation: str, turns: Sequence[Message]) -> dict[str, Any]:
    last = max([strand.created_at, *(letter.created_at for letter in turns)])
    return present(
        id=strand.id,
        conversation_id=conversation,
        root_turn_id=turn_id(strand.root),
        parent_thread_id=strand.parent,
        subject=strand.subject or None,
        created_at=stamp(strand.created_at),
        conversationId=conversation,
        rootTurnId=turn_id(strand.root),
        parentThreadId=strand.parent,
        turnCount=len(turns),
        participantCount=len({letter.sender for letter in turns}),
        createdAt=milliseconds(strand.created_at),
        updatedAt=milliseconds(last),
        createdBy=strand.created_by or NOBODY,
    )


def stats_record(view: View, summary: Summary) -> dict[str, Any]:
    return {
        "totalTurns": len(summary.turns),
        "turnsByContentType": dict(Counter(map(type_of, summary.turns))),
        "turnsByParticipant": dict(summary.speakers),
        "lettersByKind": dict(Counter(letter.kind for letter in summary.turns)),
        "activeParticipants": len(view.seats),
        "threadCount": summary.threads,
    }


def presence_record(seat: Participant, agent: Agent | None) -> dict[str, Any]:
    seen = agent.presence.last_active_at if agent else None
    return seat_record(seat) | present(
        participantId=seat.agent,
        presence=agent.presence.inbox_word if agent else "unknown",  # it never registered
        lastActiveAt=None if seen is None else milliseconds(seen),
    )
