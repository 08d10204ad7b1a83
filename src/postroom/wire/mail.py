"""The methods `mail/*`, each serving both dialects at once: agent-inbox's and MAP's.

What is said may be said in either dialect's words: `id` or `conversationId`; `agentId`, `participantId` or nobody,
for the agent that is calling. What is answered holds both dialects' fields (`mail_records.py`). A parameter nobody
knows is ignored, as both do. Nobody speaks for another: an agent that names somebody else is refused.

Lists without `limit`, `cursor`, `filter` or `order` are answered whole: agent-inbox's programs know no pages, and
MAP's see that there is no more. With any of these words a page is 50 rows, and the cursor is the last row's id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import Invalid, Missing
from ..model.content import is_typed, payload_to_parts
from ..model.talk import TURN, letter_of_turn
from ..service import conversing, retelling, talks, turning
from ..service.conversing import Guest, Opening
from ..service.retelling import Wanted
from ..service.turning import Saying
from .inbox_records import milliseconds, present
from .mail_records import (
    conversation_record,
    map_message,
    presence_record,
    seat_record,
    stats_record,
    thread_record,
    thread_records,
    turn_record,
)
from .mail_words import (
    around,
    conversation,
    limit_of,
    list_filter,
    paged,
    speaker,
    suits,
    turns_wanted,
)
from .table import snake

if TYPE_CHECKING:
    from ..model.message import Message
    from ..model.talk import Shape
    from ..room import Room
    from ..service.talks import View

PAGE = 50


def create(room: Room, said: dict[str, Any]) -> dict[str, Any]:
    creator = opener(said) or room.principal.agent
    opening = Opening(
        id=said.get("id") or said.get("conversation_id"),
        scope=said.get("scope", room._default_scope),
        subject=said.get("subject"),
        type=said.get("type"),
        metadata=said.get("metadata"),
        creator=creator,
        parent=said.get("parent_conversation_id"),
        parent_turn=said.get("parent_turn_id"),
        guests=tuple(_guest(one) for one in said.get("initial_participants", [])),
    )
    first = said.get("initial_turn")
    saying = None if first is None else _saying({snake(name): value for name, value in first.items()})
    view = conversing.create(room._office, room.principal, opening, saying)
    record, seat = conversation_record(view), talks.seat_in(room._office, view, creator) if creator else None
    return record | present(
        conversation=record,
        participant=seat_record(seat) if seat else None,
        initialTurn=turn_record(view.letters[-1]) if saying else None,
    )


def opener(said: dict[str, Any]) -> str | None:
    return said.get("agent_id") or said.get("participant_id")


def get(room: Room, said: dict[str, Any]) -> dict[str, Any]:
    view, include = _look(room, said), said.get("include", {})
    newest = include.get("recentTurns")
    turns = [turn_record(letter) for letter in view.letters]
    summary = retelling.summary(room._office, view, Wanted()) if include.get("stats") else None
    return _whole(view, turns) | present(
        participants=[seat_record(seat) for seat in view.seats],
        recentTurns=turns[-limit_of(newest) :] if isinstance(newest, int) and newest else None,
        stats=stats_record(summary) if summary else None,
    )


def list_all(room: Room, said: dict[str, Any]) -> dict[str, Any]:
    limit = limit_of(said.get("limit", PAGE)) if said.keys() & {"limit", "cursor", "filter"} else None
    wanted = list_filter(said.get("filter", {}))
    rows: list[dict[str, Any]] = []
    for view in talks.conversations(room._office, room.principal, said.get("scope"), said.get("cursor")):
        if suits(view, wanted):
            rows.append(conversation_record(view))
        if limit is not None and len(rows) > limit:
            break
    return paged("conversations", rows, limit)


def close(room: Room, said: dict[str, Any]) -> dict[str, Any]:
    status = said.get("status", "completed")
    view = conversing.close(room._office, room.principal, conversation(said), status)
    return {"ok": True, "conversation": conversation_record(view)}


def reopen(room: Room, said: dict[str, Any]) -> dict[str, Any]:
    view = conversing.reopen(room._office, room.principal, conversation(said))
    return {
        "conversationId": view.talk.id,
        "status": view.talk.status,
        "ok": True,
        "conversation": conversation_record(view),
    }


def join(room: Room, said: dict[str, Any]) -> dict[str, Any]:
    agent, catch_up = speaker(room, said), said.get("catch_up")
    view = conversing.join(room._office, room.principal, conversation(said), agent, said.get("role"))
    joined = {"ok": True, "conversation": conversation_record(view), **_seated(room, view, agent)}
    if catch_up is None:
        return joined
    start = catch_up.get("from")
    place = "from_turn_id" if isinstance(start, str) and start.startswith(TURN) else "from_timestamp"
    wanted = present({"limit": catch_up.get("limit", PAGE), place: None if start == "beginning" else start})
    history = replay(room, {"conversation_id": view.talk.id, **wanted})
    return joined | present(history=history["turns"], historyCursor=history.get("nextCursor"))


def leave(room: Room, said: dict[str, Any]) -> dict[str, Any]:
    left = conversing.leave(room._office, room.principal, conversation(said), speaker(room, said))
    return {"ok": True, "success": True, "leftAt": milliseconds(left)}


def invite(room: Room, said: dict[str, Any]) -> dict[str, Any]:
    named = said.get("participant") or {"id": said.get("agent_id") or said.get("participant_id")}
    guest = _guest({"role": said.get("role"), **named})
    view = conversing.invite(room._office, room.principal, conversation(said), guest)
    return {"ok": True, "invited": True, **_seated(room, view, guest.agent)}


def turn(room: Room, said: dict[str, Any]) -> dict[str, Any]:
    who = speaker(room, said)
    message = turning.turn(room._office, room.principal, conversation(said), who, _saying(said))
    record = turn_record(message)
    return record | {"turn": record}


def turns(room: Room, said: dict[str, Any]) -> dict[str, Any]:
    view = _look(room, said)
    order, cursor = said.get("order", "asc"), said.get("cursor")
    if order not in {"asc", "desc"}:
        raise Invalid("must be asc or desc", field="order")
    limit = limit_of(said.get("limit", PAGE)) if said.keys() & {"limit", "cursor", "filter", "order"} else None
    place = {} if cursor is None else {"after_turn_id" if order == "asc" else "before_turn_id": cursor}
    found = retelling.turns(room._office, view, turns_wanted({**said.get("filter", {}), **place}))
    found = found if order == "asc" else found[::-1]
    return paged("turns", _told(found, limit), limit)


def create_thread(room: Room, said: dict[str, Any]) -> dict[str, Any]:
    id = conversation(said)
    strand = conversing.start_thread(
        room._office,
        room.principal,
        id,
        letter_of_turn(said["root_turn_id"]),
        parent=said.get("parent_thread_id"),
        subject=said.get("subject"),
    )
    record = thread_record(strand, id, [])
    return record | {"thread": record}


def threads(room: Room, said: dict[str, Any]) -> dict[str, Any]:
    rows = thread_records(_look(room, said))
    parent, cursor = said.get("parent_thread_id"), said.get("cursor")
    if parent is not None:
        rows = [row for row in rows if row.get("parent_thread_id") == parent]
    if cursor is not None:
        ids = [row["id"] for row in rows]
        if cursor not in ids:
            raise Missing(f"no thread {cursor!r} in this conversation", field="thread")
        rows = rows[ids.index(cursor) + 1 :]
    limit = limit_of(said.get("limit", PAGE)) if said.keys() & {"limit", "cursor"} else None
    return paged("threads", rows, limit)


def summary(room: Room, said: dict[str, Any]) -> dict[str, Any]:
    view = _look(room, said)
    told = retelling.summary(room._office, view, around(view, said.get("scope", {})))
    ends = {"firstTurn": told.first, "lastTurn": told.last}
    return {
        "conversationId": view.talk.id,
        "summary": told.text,
        "generated": False,  # no model wrote it: these are counts
        "status": view.talk.status,
        "stats": stats_record(told),
        "participants": [seat_record(seat) for seat in told.seats],
        "threads": thread_records(view),
    } | present({name: None if letter is None else turn_record(letter) for name, letter in ends.items()})


def replay(room: Room, said: dict[str, Any]) -> dict[str, Any]:
    view = _look(room, said)
    found = retelling.turns(room._office, view, turns_wanted(said))
    count = said.get("count")
    found = found if count is None else found[-limit_of(count) :]
    limit = limit_of(said["limit"]) if "limit" in said else None
    rows = _told(found, limit)
    return _whole(view, rows) | paged("turns", rows, limit) | {"missedCount": len(found)}


def _told(letters: list[Message], limit: int | None) -> list[dict[str, Any]]:
    """As many as a page takes, and one that shows that there are more: the others need no words."""
    return [turn_record(letter) for letter in (letters if limit is None else letters[: limit + 1])]


def presence(room: Room, said: dict[str, Any]) -> dict[str, Any]:
    view = _look(room, said)
    present_ones = retelling.presence(room._office, view)
    return {"conversationId": view.talk.id, "participants": [presence_record(one) for one in present_ones]}


def recent(room: Room, said: dict[str, Any]) -> dict[str, Any]:
    """Whoever was away takes them in one after another, so the oldest comes first."""
    limit = limit_of(said.get("limit", PAGE))
    letters = talks.recent(room._office, room.principal, said.get("scope"), limit)[::-1]
    return {
        "messages": [map_message(letter) for letter in letters],
        "turns": [turn_record(letter) for letter in letters],
    }


def _look(room: Room, said: dict[str, Any]) -> View:
    return talks.look(room._office, room.principal, conversation(said))


def _whole(view: View, turns: list[dict[str, Any]]) -> dict[str, Any]:
    return {"conversation": conversation_record(view), "turns": turns, "threads": thread_records(view)}


def _seated(room: Room, view: View, agent: str) -> dict[str, Any]:
    """Whoever gives the seat up again at once is not shown."""
    seat = talks.seat_in(room._office, view, agent)
    return {} if seat is None else {"participant": seat_record(seat)}


def _guest(said: Any) -> Guest:
    if not isinstance(said, dict):
        raise Invalid("must be an object", field="participant", hint="id, role, permissions")
    return Guest(agent=said.get("id"), role=said.get("role"), permissions=said.get("permissions") or {})


def _saying(said: dict[str, Any]) -> Saying:
    if "content" not in said:
        raise Invalid("is missing", field="content")
    content, kind = said["content"], said.get("content_type")
    shape: Shape = "content" if is_typed(content) else "bare"
    if kind in {None, "text"} and isinstance(content, dict) and _is_text(content):
        shape, content = "text", content["text"]  # MAP's clients say text so; a reader of the inbox wants the text
    said_kind = content["type"] if kind is None and is_typed(content) else kind
    reply = said.get("in_reply_to")
    return Saying(
        body=payload_to_parts(content),
        content_type="text" if said_kind is None else said_kind,
        shape=shape,
        thread=said.get("thread_id"),
        reply_to=letter_of_turn(reply) if isinstance(reply, str) else reply,
        source=said.get("source_message_id"),
        visibility=said.get("visibility"),
        metadata=said.get("metadata") or {},
        priority=said.get("importance"),
        subject=said.get("subject"),
        key=said.get("key"),
    )


def _is_text(content: dict[str, Any]) -> bool:
    return content.keys() == {"text"} and isinstance(content["text"], str)
