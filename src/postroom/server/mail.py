"""The methods `mail/*`: conversations, each method for both protocols at once, agent-inbox's and MAP's.

Parameters may have either protocol's names: `id` or `conversationId`; `agentId`, `participantId` or none, for the
agent that is calling. Answers hold the fields of both (`formats/mail.py`). Unknown parameters are ignored, as both
protocols do. No agent acts for another: a call that names another agent is refused.

Lists without `limit`, `cursor`, `filter` or `order` are answered whole: programs of agent-inbox know no pages, and
those of MAP see that there is no more. With any of these a page is 50 rows, and the cursor is the last row's id.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..core import conversations
from ..core import threads as core_threads
from ..core.conversations import ConversationRequest, Guest, TurnRequest, turn_in
from ..core.threads import TurnFilter
from ..core.validation import as_list, check_count
from ..core.verb import snake
from ..errors import Invalid, Missing
from ..formats.inbox import milliseconds, present
from ..formats.mail import (
    conversation_record,
    presence_record,
    seat_record,
    stats_record,
    thread_record,
    thread_records,
    turn_record,
)
from ..formats.map import map_message
from ..model.message import is_typed, payload_to_parts
from ..model.thread import TURN, letter_of_turn
from .table import Method, Param

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..core.conversations import View
    from ..model.message import Message
    from ..model.thread import Shape
    from ..room import Room


MAX_ROWS = 10_000  # rows in one answer


def conversation(params: Mapping[str, Any]) -> str:
    """Return the id of the conversation: `conversationId`, or `id` in agent-inbox's protocol."""
    id = params.get("conversation_id") or params.get("id")
    if not id:
        raise Invalid("is missing", field="conversation_id")
    return str(id)


def acting_agent(room: Room, params: Mapping[str, Any]) -> str:
    """Return the agent that a call names, or the one that is calling. The verb checks whether that is allowed."""
    agent = named_agent(params) or room.principal.agent
    if not agent:
        raise Invalid("is missing", field="participant_id", hint="who are you?")
    return str(agent)


def named_agent(params: Mapping[str, Any]) -> str | None:
    """Return the agent that a call names."""
    return params.get("participant_id") or params.get("agent_id")


def limit_of(value: Any) -> int:
    return min(check_count(value, "limit"), MAX_ROWS)


def page(name: str, rows: Sequence[dict[str, Any]], limit: int | None) -> dict[str, Any]:
    """Return a page of rows, whether there are more, and the cursor to go on from."""
    shown, more = list(rows[:limit]), limit is not None and len(rows) > limit
    answer: dict[str, Any] = {name: shown, "hasMore": more}
    return answer | {"nextCursor": shown[-1]["id"]} if more else answer


def turns_wanted(params: Mapping[str, Any]) -> TurnFilter:
    """Return which turns are wanted, by the fields of `filter` and of `mail/replay`."""
    words = {snake(name): value for name, value in params.items() if value is not None}
    after = words.get("after_turn_id") or words.get("from_turn_id") or words.get("cursor")
    return TurnFilter(
        thread=_text(words, "thread_id"),
        content_types=tuple(as_list(words.get("content_types", ()), "content_types")),
        participant=_text(words, "participant_id"),
        after=_turn_id(after, "after_turn_id"),
        before=_turn_id(words.get("before_turn_id"), "before_turn_id"),
        since=_since(words),
        until=read_time(words.get("before_timestamp"), "before_timestamp"),
    )


def turns_between(view: View, params: Mapping[str, Any]) -> TurnFilter:
    """Return the turns from one to another, including both; or those of one thread."""
    words = {snake(name): value for name, value in params.items() if value is not None}
    letters = view.letters
    first, last = _turn_id(words.get("from_turn_id"), "scope"), _turn_id(words.get("to_turn_id"), "scope")
    start = 0 if first is None else letters.index(turn_in(view, first))
    end = len(letters) - 1 if last is None else letters.index(turn_in(view, last))
    return TurnFilter(
        thread=_text(words, "thread_id"),
        after=letters[start - 1].id if start else None,
        before=letters[end + 1].id if end + 1 < len(letters) else None,
    )


def list_filter(params: Mapping[str, Any]) -> dict[str, Any]:
    words = {snake(name): value for name, value in params.items() if value is not None}
    for name in ("status", "type"):
        if name in words:
            words[name] = as_list(words[name], name)
    for name in ("created_after", "created_before"):
        words[name] = read_time(words.get(name), name)
    return words


def passes_filter(view: View, words: Mapping[str, Any]) -> bool:
    """Return whether a conversation passes the filter of a list."""
    talk = view.talk
    return (
        ("status" not in words or talk.status in words["status"])
        and ("type" not in words or talk.type in words["type"])
        and ("participant_id" not in words or view.seat(words["participant_id"]) is not None)
        and ("parent_conversation_id" not in words or talk.parent == words["parent_conversation_id"])
        and (words["created_after"] is None or talk.created_at > words["created_after"])
        and (words["created_before"] is None or talk.created_at < words["created_before"])
    )


def read_time(value: Any, field: str) -> datetime | None:
    """Return the time of a value: milliseconds since 1970, or ISO 8601."""
    if value is None or isinstance(value, datetime):
        return value
    try:
        if isinstance(value, str):
            time = datetime.fromisoformat(value)
            return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    hint = f"milliseconds since 1970, such as {milliseconds(datetime(2030, 1, 1, tzinfo=UTC))}"
    raise Invalid("is not a time", field=field, hint=hint)


_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)  # nothing was written before


def _since(words: Mapping[str, Any]) -> datetime | None:
    """Return the time after which turns are wanted. `after_timestamp` excludes that time; `from_timestamp`
    includes it, because two turns may share it and none must be missed.
    """
    start = read_time(words.get("from_timestamp"), "from_timestamp")
    if start is not None:
        return max(start, _EARLIEST) - timedelta(milliseconds=1)
    return read_time(words.get("after_timestamp"), "after_timestamp")


def _text(words: Mapping[str, Any], name: str) -> str | None:
    value = words.get(name)
    if value is not None and not isinstance(value, str):
        raise Invalid("must be text", field=name)
    return value


def _turn_id(value: Any, field: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise Invalid("must be a turn's id", field=field)
    return None if value is None else letter_of_turn(value)


# -- the methods

PAGE = 50


def create(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    creator = named_creator(params) or room.principal.agent
    opening = ConversationRequest(
        id=params.get("id") or params.get("conversation_id"),
        scope=params.get("scope", room.core.default_scope),
        subject=params.get("subject"),
        type=params.get("type"),
        metadata=params.get("metadata"),
        creator=creator,
        parent=params.get("parent_conversation_id"),
        parent_turn=params.get("parent_turn_id"),
        guests=tuple(_guest(one) for one in params.get("initial_participants", [])),
    )
    first = params.get("initial_turn")
    saying = None if first is None else _turn_content({snake(name): value for name, value in first.items()})
    view = conversations.create(room.core, room.principal, opening, saying)
    record, seat = (
        conversation_record(view),
        conversations.seat_in(room.core, view, creator) if creator else None,
    )
    return record | present(
        conversation=record,
        participant=seat_record(seat) if seat else None,
        initialTurn=turn_record(view.letters[-1]) if saying else None,
    )


def named_creator(params: dict[str, Any]) -> str | None:
    return params.get("agent_id") or params.get("participant_id")


def get(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    view, include = _look(room, params), params.get("include", {})
    newest = include.get("recentTurns")
    turns = [turn_record(letter) for letter in view.letters]
    summary = core_threads.summary(room.core, view, TurnFilter()) if include.get("stats") else None
    return _with_turns(view, turns) | present(
        participants=[seat_record(seat) for seat in view.seats],
        recentTurns=turns[-limit_of(newest) :] if isinstance(newest, int) and newest else None,
        stats=stats_record(summary) if summary else None,
    )


def list_all(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    limit = limit_of(params.get("limit", PAGE)) if params.keys() & {"limit", "cursor", "filter"} else None
    wanted = list_filter(params.get("filter", {}))
    rows: list[dict[str, Any]] = []
    for view in conversations.conversations(room.core, room.principal, params.get("scope"), params.get("cursor")):
        if passes_filter(view, wanted):
            rows.append(conversation_record(view))
        if limit is not None and len(rows) > limit:
            break
    return page("conversations", rows, limit)


def close(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    status = params.get("status", "completed")
    view = conversations.close(room.core, room.principal, conversation(params), status)
    return {"ok": True, "conversation": conversation_record(view)}


def reopen(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    view = conversations.reopen(room.core, room.principal, conversation(params))
    return {
        "conversationId": view.talk.id,
        "status": view.talk.status,
        "ok": True,
        "conversation": conversation_record(view),
    }


def join(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    agent, catch_up = acting_agent(room, params), params.get("catch_up")
    view = conversations.join(room.core, room.principal, conversation(params), agent, params.get("role"))
    joined = {"ok": True, "conversation": conversation_record(view), **_participant(room, view, agent)}
    if catch_up is None:
        return joined
    start = catch_up.get("from")
    place = "from_turn_id" if isinstance(start, str) and start.startswith(TURN) else "from_timestamp"
    wanted = present({"limit": catch_up.get("limit", PAGE), place: None if start == "beginning" else start})
    history = replay(room, {"conversation_id": view.talk.id, **wanted})
    return joined | present(history=history["turns"], historyCursor=history.get("nextCursor"))


def leave(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    left = conversations.leave(room.core, room.principal, conversation(params), acting_agent(room, params))
    return {"ok": True, "success": True, "leftAt": milliseconds(left)}


def invite(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    named = params.get("participant") or {"id": params.get("agent_id") or params.get("participant_id")}
    guest = _guest({"role": params.get("role"), **named})
    view = conversations.invite(room.core, room.principal, conversation(params), guest)
    return {"ok": True, "invited": True, **_participant(room, view, guest.agent)}


def turn(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    agent = acting_agent(room, params)
    message = conversations.turn(room.core, room.principal, conversation(params), agent, _turn_content(params))
    record = turn_record(message)
    return record | {"turn": record}


def turns(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    view = _look(room, params)
    order, cursor = params.get("order", "asc"), params.get("cursor")
    if order not in {"asc", "desc"}:
        raise Invalid("must be asc or desc", field="order")
    limit = limit_of(params.get("limit", PAGE)) if params.keys() & {"limit", "cursor", "filter", "order"} else None
    place = {} if cursor is None else {"after_turn_id" if order == "asc" else "before_turn_id": cursor}
    found = core_threads.filter_turns(room.core, view, turns_wanted({**params.get("filter", {}), **place}))
    found = found if order == "asc" else found[::-1]
    return page("turns", _turn_rows(found, limit), limit)


def create_thread(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    id = conversation(params)
    strand = conversations.start_thread(
        room.core,
        room.principal,
        id,
        letter_of_turn(params["root_turn_id"]),
        parent=params.get("parent_thread_id"),
        subject=params.get("subject"),
    )
    record = thread_record(strand, id, [])
    return record | {"thread": record}


def threads(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    rows = thread_records(_look(room, params))
    parent, cursor = params.get("parent_thread_id"), params.get("cursor")
    if parent is not None:
        rows = [row for row in rows if row.get("parent_thread_id") == parent]
    if cursor is not None:
        ids = [row["id"] for row in rows]
        if cursor not in ids:
            raise Missing(f"no thread {cursor!r} in this conversation", field="thread")
        rows = rows[ids.index(cursor) + 1 :]
    limit = limit_of(params.get("limit", PAGE)) if params.keys() & {"limit", "cursor"} else None
    return page("threads", rows, limit)


def summary(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    view = _look(room, params)
    result = core_threads.summary(room.core, view, turns_between(view, params.get("scope", {})))
    ends = {"firstTurn": result.first, "lastTurn": result.last}
    return {
        "conversationId": view.talk.id,
        "summary": result.text,
        "generated": False,  # no model wrote it: these are counts
        "status": view.talk.status,
        "stats": stats_record(result),
        "participants": [seat_record(seat) for seat in result.seats],
        "threads": thread_records(view),
    } | present({name: None if letter is None else turn_record(letter) for name, letter in ends.items()})


def replay(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    view = _look(room, params)
    found = core_threads.filter_turns(room.core, view, turns_wanted(params))
    count = params.get("count")
    found = found if count is None else found[-limit_of(count) :]
    limit = limit_of(params["limit"]) if "limit" in params else None
    rows = _turn_rows(found, limit)
    return _with_turns(view, rows) | page("turns", rows, limit) | {"missedCount": len(found)}


def _turn_rows(letters: list[Message], limit: int | None) -> list[dict[str, Any]]:
    """Return the rows of a page, and one more that shows that there are more."""
    return [turn_record(letter) for letter in (letters if limit is None else letters[: limit + 1])]


def presence(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    view = _look(room, params)
    present_ones = core_threads.presence(room.core, view)
    return {"conversationId": view.talk.id, "participants": [presence_record(one) for one in present_ones]}


def recent(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    """Return the newest turns, the oldest of them first: a client that was away reads them in this order."""
    limit = limit_of(params.get("limit", PAGE))
    letters = conversations.recent_letters(room.core, room.principal, params.get("scope"), limit)[::-1]
    return {
        "messages": [map_message(letter) for letter in letters],
        "turns": [turn_record(letter) for letter in letters],
    }


def _look(room: Room, params: dict[str, Any]) -> View:
    return conversations.get_view(room.core, room.principal, conversation(params))


def _with_turns(view: View, turns: list[dict[str, Any]]) -> dict[str, Any]:
    return {"conversation": conversation_record(view), "turns": turns, "threads": thread_records(view)}


def _participant(room: Room, view: View, agent: str) -> dict[str, Any]:
    """Return the participant that joined; nothing if it has left again by now."""
    seat = conversations.seat_in(room.core, view, agent)
    return {} if seat is None else {"participant": seat_record(seat)}


def _guest(params: Any) -> Guest:
    if not isinstance(params, dict):
        raise Invalid("must be an object", field="participant", hint="id, role, permissions")
    return Guest(agent=params.get("id"), role=params.get("role"), permissions=params.get("permissions") or {})


def _turn_content(params: dict[str, Any]) -> TurnRequest:
    if "content" not in params:
        raise Invalid("is missing", field="content")
    content, kind = params["content"], params.get("content_type")
    shape: Shape = "content" if is_typed(content) else "bare"
    if kind in {None, "text"} and isinstance(content, dict) and _is_text(content):
        shape, content = "text", content["text"]  # MAP's clients send text as an object
    content_type = content["type"] if kind is None and is_typed(content) else kind
    reply = params.get("in_reply_to")
    return TurnRequest(
        body=payload_to_parts(content),
        content_type="text" if content_type is None else content_type,
        shape=shape,
        thread=params.get("thread_id"),
        reply_to=letter_of_turn(reply) if isinstance(reply, str) else reply,
        source=params.get("source_message_id"),
        visibility=params.get("visibility"),
        metadata=params.get("metadata") or {},
        priority=params.get("importance"),
        subject=params.get("subject"),
        key=params.get("key"),
    )


def _is_text(content: dict[str, Any]) -> bool:
    return content.keys() == {"text"} and isinstance(content["text"], str)


# -- the table. Almost all are `slow`: a conversation is read from its letters, and may have many.

_ID = Param("id", "text", "agent-inbox's name for conversation_id")
_CONVERSATION = Param("conversation_id", "text", "the conversation")
_AGENT = Param("agent_id", "text", "which agent; by default, the one that is calling")
_PARTICIPANT = Param("participant_id", "text", "MAP's name for agent_id")
_LIMIT = Param("limit", "count", "how many at most; 50 where a page is asked for")
_CURSOR = Param("cursor", "text", "go on behind this one: the last answer's nextCursor")
_THREAD = Param("thread_id", "text", "a thread of the conversation")
_SUBJECT = Param("subject", "text", "one line")
_METADATA = Param("metadata", "object", "anything; returned as it is")
_WHICH = (_ID, _CONVERSATION)
_WHO = (_AGENT, _PARTICIPANT)
_RECORD = "the conversation's fields in both spellings"


def _method(name: str, about: str, result: str, **row: Any) -> Method:
    action = "converse" if row.get("writes", True) else "talks"
    fields = {"action": action, "strict": False, "slow": True, **row}
    return Method(name=f"mail/{name}", about=about, result=result, **fields)


MAIL: tuple[Method, ...] = (
    _method(
        "create",
        "Open a conversation, with a first turn if one is given. Its creator takes part in it.",
        f"{_RECORD}; conversation, participant, initialTurn",
        run=create,
        params=(
            *_WHICH,
            *_WHO,
            Param("scope", "text", "where it belongs; default"),
            _SUBJECT,
            _METADATA,
            Param("type", "text", "multi-agent, user-session, agent-task or mixed"),
            Param("parent_conversation_id", "text", "another one it came out of"),
            Param("parent_turn_id", "text", "and the turn there"),
            Param("initial_participants", "list", "further participants: objects with id, role, permissions"),
            Param("initial_turn", "object", "contentType, content, visibility"),
        ),
        action="join",
        whose="agent_id",
        speaker=named_creator,
        slow=False,
    ),
    _method(
        "get",
        "A conversation with its turns and threads.",
        "conversation, participants, turns, threads; recentTurns and stats where they are asked for",
        run=get,
        params=(*_WHICH, Param("include", "object", "participants, threads, recentTurns (how many), stats")),
        writes=False,
    ),
    _method(
        "list",
        "Conversations, the most recently active first.",
        "conversations, hasMore, nextCursor",
        run=list_all,
        params=(
            Param("scope", "text", "only those of this scope"),
            Param(
                "filter",
                "object",
                "status, type, participantId, parentConversationId, createdAfter, createdBefore",
            ),
            _LIMIT,
            _CURSOR,
        ),
        writes=False,
    ),
    _method(
        "close",
        "End a conversation: no more turns. Closing again is no error.",
        "ok, conversation",
        run=close,
        params=(*_WHICH, Param("status", "text", "completed (the default), archived, paused or failed")),
    ),
    _method(
        "reopen",
        "Let a closed conversation go on.",
        "conversationId, status, ok, conversation",
        run=reopen,
        params=_WHICH,
    ),
    _method(
        "join",
        "Take part: every later turn is delivered. Joining again is no error.",
        "ok, conversation, participant; history and historyCursor with catchUp",
        run=join,
        params=(
            *_WHICH,
            *_WHO,
            Param("role", "text", "as what"),
            Param("catch_up", "object", "from (a turn or a time), limit"),
        ),
        action="join",
        whose="agent_id",
        speaker=named_agent,
    ),
    _method(
        "leave",
        "Leave: later turns are not delivered. Leaving again is no error.",
        "ok, success, leftAt",
        run=leave,
        params=(*_WHICH, *_WHO),
        action="join",
        whose="agent_id",
        speaker=named_agent,
    ),
    _method(
        "invite",
        "Add a participant.",
        "ok, invited, participant",
        run=invite,
        params=(
            *_WHICH,
            *_WHO,
            Param("role", "text", "as what"),
            Param("participant", "object", "instead of agent_id and role: id, role, permissions"),
        ),
    ),
    _method(
        "turn",
        "Add a turn: a letter to all other participants, all or none.",
        "the turn's fields in both spellings; turn",
        run=turn,
        params=(
            *_WHICH,
            *_WHO,
            Param("content", "any", "text, an object with a type, or any JSON", required=True),
            Param("content_type", "text", "what it is; text, or the content's type"),
            _THREAD,
            Param("in_reply_to", "text", "a turn"),
            Param("source_message_id", "text", "the message it was made of, elsewhere"),
            Param("importance", "text", "low, normal, high or urgent"),
            Param("visibility", "object", "for whom: type all, participants (ids), role (roles) or private"),
            _SUBJECT,
            _METADATA,
            Param("key", "text", "with it, to say it again is safe: it is one turn"),
        ),
        action="send",
        whose="participant_id",
        speaker=named_agent,
    ),
    _method(
        "turns/list",
        "The turns of a conversation, the oldest first. Of one that is not there: none.",
        "turns, hasMore, nextCursor",
        run=turns,
        params=(
            *_WHICH,
            Param(
                "filter",
                "object",
                "threadId, contentTypes, participantId, after and before: TurnId, Timestamp",
            ),
            Param("order", "text", "asc or desc"),
            _LIMIT,
            _CURSOR,
        ),
        writes=False,
    ),
    _method(
        "thread/create",
        "Open a thread at a turn.",
        "the thread's fields in both spellings; thread",
        run=create_thread,
        params=(
            *_WHICH,
            Param("root_turn_id", "text", "the turn it starts from", required=True),
            Param("parent_thread_id", "text", "the thread around it"),
            _SUBJECT,
        ),
    ),
    _method(
        "thread/list",
        "Threads: those that were opened, and those that replies made.",
        "threads, hasMore, nextCursor",
        run=threads,
        params=(*_WHICH, Param("parent_thread_id", "text", "only those inside it"), _LIMIT, _CURSOR),
        writes=False,
    ),
    _method(
        "summary",
        "A conversation in numbers and lists. No model is asked: generated is false.",
        "conversationId, summary, generated, status, stats, participants, threads, firstTurn, lastTurn",
        run=summary,
        params=(*_WHICH, Param("scope", "object", "fromTurnId, toTurnId, threadId")),
        writes=False,
    ),
    _method(
        "replay",
        "What was missed: the turns after a turn or from a time on, or the last so many.",
        "conversation, turns, threads, hasMore, nextCursor, missedCount",
        run=replay,
        params=(
            *_WHICH,
            Param("from_turn_id", "text", "the last turn that was seen"),
            Param("from_timestamp", "any", "a time, in milliseconds since 1970 or ISO 8601; that time, too"),
            Param("count", "count", "the last so many"),
            _THREAD,
            Param("content_types", "texts", "only these"),
            _LIMIT,
            _CURSOR,
        ),
        writes=False,
    ),
    _method(
        "presence",
        "Who is in a conversation, and how they are.",
        "conversationId, participants: each with presence active, idle, offline or unknown",
        run=presence,
        params=_WHICH,
        writes=False,
    ),
    _method(
        "recent",
        "The last letters of all conversations, the oldest of them first.",
        "messages as MAP writes them; turns",
        run=recent,
        params=(_LIMIT, Param("scope", "text", "only those of this scope")),
        writes=False,
    ),
)
