"""The methods `mail/*`: conversations, each method for both protocols at once, agent-inbox's and MAP's.

Parameters may have either protocol's names: `id` or `conversationId`; `agentId`, `participantId` or none, for the
agent that is calling. Answers hold the fields of both (`formats/mail.py`). Unknown parameters are ignored, as both
protocols do. No agent acts for another: a call that names another agent is refused.

Lists without `limit`, `cursor`, `filter` or `order` are answered whole: programs of agent-inbox know no pages, and
those of MAP see that there is no more. With any of these a page is 50 rows, and the cursor is the last row's id.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from ..core import conversations
from ..core import threads as core_threads
from ..core.conversations import turn_in
from ..core.proof import people_names
from ..core.threads import TurnFilter
from ..core.verb import perform, set_parameters, snake, verb
from ..errors import Invalid, Missing
from ..formats.inbox import milliseconds, present
from ..formats.mail import (
    conversation_record,
    presence_record,
    read_guest,
    read_turn,
    seat_record,
    stats_record,
    thread_record,
    thread_records,
    turn_record,
)
from ..formats.map import map_message
from ..model.thread import TURN, letter_of_turn, thread_of
from ..model.values import as_list, check_count
from .requests import ForeignVerb, time_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..core.authorize import Principal
    from ..core.conversations import View
    from ..core.core import Core
    from ..core.verb import V, Verb
    from ..model.message import Message


MAX_ROWS = 10_000  # rows in one answer
PAGE = 50  # rows where a page is asked for without `limit`


def limit_of(value: Any) -> int:
    return min(check_count(value, "limit"), MAX_ROWS)


def page_limit(limit: int | None, *paging: Any) -> int | None:
    """Return the length of a page, or None: nothing that asks for pages was given, and all is answered."""
    if limit is None:
        return None if all(one is None for one in paging) else PAGE
    return limit_of(limit)


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
        until=time_of(words.get("before_timestamp"), "before_timestamp"),
    )


def turns_between(view: View, words: Mapping[str, Any], thread: str | None) -> list[Message]:
    """Return the turns from one to another, including both; or those of one thread."""
    letters = view.letters
    first, last = _turn_id(words.get("from_turn_id"), "scope"), _turn_id(words.get("to_turn_id"), "scope")
    start = 0 if first is None else letters.index(turn_in(view, first))
    end = len(letters) - 1 if last is None else letters.index(turn_in(view, last))
    return [letter for letter in letters[start : end + 1] if thread in {None, thread_of(letter)}]


def list_filter(params: Mapping[str, Any]) -> dict[str, Any]:
    words = {snake(name): value for name, value in params.items() if value is not None}
    for name in ("status", "type"):
        if name in words:
            words[name] = as_list(words[name], name)
    for name in ("created_after", "created_before"):
        words[name] = time_of(words.get(name), name)
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


_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)  # nothing was written before


def _since(words: Mapping[str, Any]) -> datetime | None:
    """Return the time after which turns are wanted. `after_timestamp` excludes that time; `from_timestamp`
    includes it, because two turns may share it and none must be missed.
    """
    start = time_of(words.get("from_timestamp"), "from_timestamp")
    if start is not None:
        return max(start, _EARLIEST) - timedelta(milliseconds=1)
    return time_of(words.get("after_timestamp"), "after_timestamp")


def _text(words: Mapping[str, Any], name: str) -> str | None:
    value = words.get(name)
    if value is not None and not isinstance(value, str):
        raise Invalid("must be text", field=name)
    return value


def _turn_id(value: Any, field: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise Invalid("must be a turn's id", field=field)
    return None if value is None else letter_of_turn(value)


# -- the verbs

MAIL: dict[str, type[Verb]] = {}
_LIMIT = "how many at most; 50 where a page is asked for"
_CURSOR = "go on behind this one: the last answer's nextCursor"
_THREAD = "a thread of the conversation"
_SUBJECT = "one line"
_METADATA = "anything; returned as it is"
_RECORD = "the conversation's fields in both spellings"


def _mail(name: str, result: str, **declared: Any) -> Callable[[V], V]:
    """Declare a method. Almost all are slow: a conversation is read from its letters, and may have many."""
    action = "converse" if declared.get("writes", True) else "talks"
    fields = {"action": action, "strict": False, "slow": True, **declared}
    return verb(f"mail/{name}", result, registry=MAIL, **fields)


class ConversationVerb(ForeignVerb, kw_only=True):
    """A request about one conversation."""

    id: Annotated[str | None, "agent-inbox's name for conversation_id"] = None
    conversation_id: Annotated[str | None, "the conversation"] = None

    @property
    def conversation(self) -> str:
        """The id of the conversation, under either protocol's name."""
        id = self.conversation_id or self.id
        if not id:
            raise Invalid("is missing", field="conversation_id")
        return id

    def view(self, core: Core, principal: Principal) -> View:
        return perform(core, principal, conversations.ViewConversation(conversation=self.conversation))


class ParticipantVerb(ConversationVerb, kw_only=True):
    """A request about an agent in a conversation."""

    agent_id: Annotated[str | None, "which agent; by default, the one that is calling"] = None
    participant_id: Annotated[str | None, "MAP's name for agent_id"] = None

    def acting(self) -> str | None:
        return self.participant_id or self.agent_id

    def agent(self, principal: Principal) -> str:
        """Return the agent that the request names, or the one that is calling. Core checks whether it may."""
        agent = self.participant_id or self.agent_id or principal.agent
        if not agent:
            raise Invalid("is missing", field="participant_id", hint="name an agent, or use an agent's token")
        return agent


@_mail("create", f"{_RECORD}; conversation, participant, initialTurn", action="join", slow=False)
class Create(ParticipantVerb, kw_only=True):
    """Open a conversation, with a first turn if one is given. Its creator takes part in it."""

    whose: ClassVar[str | None] = "agent_id"

    scope: Annotated[str | None, "where it belongs; default"] = None
    subject: Annotated[str | None, _SUBJECT] = None
    metadata: Annotated[dict[str, Any] | None, _METADATA] = None
    type: Annotated[str | None, "multi-agent, user-session, agent-task or mixed"] = None
    parent_conversation_id: Annotated[str | None, "another one it came out of"] = None
    parent_turn_id: Annotated[str | None, "and the turn there"] = None
    initial_participants: Annotated[
        list[Any] | None, "further participants: objects with id, role, permissions"
    ] = None
    initial_turn: Annotated[dict[str, Any] | None, "contentType, content, visibility"] = None

    def acting(self) -> str | None:
        return self.agent_id or self.participant_id

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        creator, first = self.acting() or principal.agent, self.initial_turn
        opening = conversations.OpenConversation(
            id=self.id or self.conversation_id,
            scope=core.default_scope if self.scope is None else self.scope,
            subject=self.subject,
            type=self.type,
            metadata=self.metadata,
            creator=creator,
            parent=self.parent_conversation_id,
            parent_turn=self.parent_turn_id,
            guests=tuple(read_guest(one) for one in self.initial_participants or ()),
            first=None if first is None else read_turn({snake(name): value for name, value in first.items()}),
        )
        view = perform(core, principal, opening)
        record, seat = conversation_record(view), conversations.seat_in(core, view, creator) if creator else None
        return record | present(
            conversation=record,
            participant=seat_record(seat) if seat else None,
            initialTurn=turn_record(view.letters[-1]) if first is not None else None,
        )


@_mail(
    "get",
    "conversation, participants, turns, threads; recentTurns and stats where they are asked for",
    writes=False,
)
class Get(ConversationVerb, kw_only=True):
    """A conversation with its turns and threads."""

    include: Annotated[dict[str, Any] | None, "participants, threads, recentTurns (how many), stats"] = None

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        view, include = self.view(core, principal), self.include or {}
        newest = include.get("recentTurns")
        turns = [turn_record(letter) for letter in view.letters]
        summary = core_threads.summary(core, view, view.letters) if include.get("stats") else None
        return _with_turns(view, turns) | present(
            participants=[seat_record(seat) for seat in view.seats],
            recentTurns=turns[-limit_of(newest) :] if isinstance(newest, int) and newest else None,
            stats=stats_record(view, summary) if summary else None,
        )


@_mail("list", "conversations, hasMore, nextCursor", writes=False)
class List(ForeignVerb, kw_only=True):
    """Conversations, the most recently active first."""

    scope: Annotated[str | None, "only those of this scope"] = None
    filter: Annotated[
        dict[str, Any] | None,
        "status, type, participantId, parentConversationId, createdAfter, createdBefore",
    ] = None
    limit: Annotated[int | None, _LIMIT] = None
    cursor: Annotated[str | None, _CURSOR] = None

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        limit = page_limit(self.limit, self.cursor, self.filter)
        wanted = list_filter(self.filter or {})
        rows: list[dict[str, Any]] = []
        listed = conversations.ViewConversations(scope=self.scope, after=self.cursor)
        for found in perform(core, principal, listed):
            view = found
            if "participant_id" in wanted and not found.is_whole:
                view = perform(core, principal, conversations.ViewConversation(conversation=found.talk.id))
            if passes_filter(view, wanted):
                rows.append(conversation_record(view))
            if limit is not None and len(rows) > limit:
                break
        return page("conversations", rows, limit)


@_mail("close", "ok, conversation")
class Close(ConversationVerb, kw_only=True):
    """End a conversation: no more turns. Closing again is no error."""

    status: Annotated[str, "completed (the default), archived, paused or failed"] = "completed"

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        closing = conversations.CloseConversation(conversation=self.conversation, status=self.status)
        view = perform(core, principal, closing)
        return {"ok": True, "conversation": conversation_record(view)}


@_mail("reopen", "conversationId, status, ok, conversation")
class Reopen(ConversationVerb, kw_only=True):
    """Let a closed conversation go on."""

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        view = perform(core, principal, conversations.ReopenConversation(conversation=self.conversation))
        return {
            "conversationId": view.talk.id,
            "status": view.talk.status,
            "ok": True,
            "conversation": conversation_record(view),
        }


@_mail("join", "ok, conversation, participant; history and historyCursor with catchUp", action="join")
class Join(ParticipantVerb, kw_only=True):
    """Take part: every later turn is delivered. Joining again is no error."""

    whose: ClassVar[str | None] = "agent_id"

    role: Annotated[str | None, "as what"] = None
    catch_up: Annotated[dict[str, Any] | None, "from (a turn or a time), limit"] = None

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        agent, wanted = self.agent(principal), self.catch_up
        joining = conversations.JoinConversation(conversation=self.conversation, agent_id=agent, role=self.role)
        view = perform(core, principal, joining)
        joined = {"ok": True, "conversation": conversation_record(view), **_participant(core, view, agent)}
        if wanted is None:
            return joined
        start = wanted.get("from")
        place = "from_turn_id" if isinstance(start, str) and start.startswith(TURN) else "from_timestamp"
        since = {} if start == "beginning" else {place: start}
        missed = Replay(conversation_id=view.talk.id, limit=wanted.get("limit", PAGE), **since)
        history = missed.run(core, principal)
        return joined | present(history=history["turns"], historyCursor=history.get("nextCursor"))


@_mail("leave", "ok, success, leftAt", action="converse")
class Leave(ParticipantVerb, kw_only=True):
    """Leave: later turns are not delivered. Leaving again is no error."""

    whose: ClassVar[str | None] = "agent_id"

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        leaving = conversations.LeaveConversation(conversation=self.conversation, agent_id=self.agent(principal))
        left = perform(core, principal, leaving).at
        return {"ok": True, "success": True, "leftAt": milliseconds(left)}


@_mail("invite", "ok, invited, participant")
class Invite(ParticipantVerb, kw_only=True):
    """Add a participant."""

    role: Annotated[str | None, "as what"] = None
    participant: Annotated[dict[str, Any] | None, "instead of agent_id and role: id, role, permissions"] = None

    def acting(self) -> None:
        return None  # the agent in the request is the guest

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        named = self.participant or {"id": self.agent_id or self.participant_id}
        guest = read_guest({"role": self.role, **named})
        view = perform(core, principal, conversations.Invite(conversation=self.conversation, guest=guest))
        return {"ok": True, "invited": True, **_participant(core, view, guest.agent)}


@_mail("turn", "the turn's fields in both spellings; turn", action="send")
class Turn(ParticipantVerb, kw_only=True):
    """Add a turn: a letter to all other participants, all or none."""

    whose: ClassVar[str | None] = "participant_id"

    content: Annotated[Any, "text, an object with a type, or any JSON"]
    content_type: Annotated[str | None, "what it is; text, or the content's type"] = None
    thread_id: Annotated[str | None, _THREAD] = None
    in_reply_to: Annotated[str | None, "a turn"] = None
    source_message_id: Annotated[str | None, "the message it was made of, elsewhere"] = None
    importance: Annotated[str | None, "low, normal, high or urgent"] = None
    visibility: Annotated[
        dict[str, Any] | None, "for whom: type all, participants (ids), role (roles) or private"
    ] = None
    subject: Annotated[str | None, _SUBJECT] = None
    metadata: Annotated[dict[str, Any] | None, _METADATA] = None
    key: Annotated[str | None, "with it, to say it again is safe: it is one turn"] = None

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        turn = read_turn(set_parameters(self))
        turn.conversation, turn.agent_id = self.conversation, self.agent(principal)
        record = turn_record(perform(core, principal, turn))
        return record | {"turn": record}


@_mail("turns/list", "turns, hasMore, nextCursor", writes=False)
class ListTurns(ConversationVerb, kw_only=True):
    """The turns of a conversation, the oldest first. Of one that is not there: none."""

    filter: Annotated[
        dict[str, Any] | None, "threadId, contentTypes, participantId, after and before: TurnId, Timestamp"
    ] = None
    order: Annotated[str | None, "asc or desc"] = None
    limit: Annotated[int | None, _LIMIT] = None
    cursor: Annotated[str | None, _CURSOR] = None

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        order = "asc" if self.order is None else self.order
        if order not in {"asc", "desc"}:
            raise Invalid("must be asc or desc", field="order")
        limit = page_limit(self.limit, self.cursor, self.filter, self.order)
        wanted = dict(self.filter or {})
        if self.cursor is not None:
            wanted["after_turn_id" if order == "asc" else "before_turn_id"] = self.cursor
        turns = core_threads.ViewTurns(
            conversation=self.conversation,
            wanted=turns_wanted(wanted),
            newest_first=order == "desc",
            limit=None if limit is None else limit + 1,  # one more shows that there are more
        )
        found = perform(core, principal, turns).letters
        return page("turns", _turn_rows(found, limit), limit)


@_mail("thread/create", "the thread's fields in both spellings; thread")
class CreateThread(ConversationVerb, kw_only=True):
    """Open a thread at a turn."""

    root_turn_id: Annotated[str, "the turn it starts from"]
    parent_thread_id: Annotated[str | None, "the thread around it"] = None
    subject: Annotated[str | None, _SUBJECT] = None

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        opening = conversations.StartThread(
            conversation=self.conversation,
            root=letter_of_turn(self.root_turn_id),
            parent=self.parent_thread_id,
            subject=self.subject,
        )
        record = thread_record(perform(core, principal, opening), self.conversation, [])
        return record | {"thread": record}


@_mail("thread/list", "threads, hasMore, nextCursor", writes=False)
class ListThreads(ConversationVerb, kw_only=True):
    """Threads: those that were opened, and those that replies made."""

    parent_thread_id: Annotated[str | None, "only those inside it"] = None
    limit: Annotated[int | None, _LIMIT] = None
    cursor: Annotated[str | None, _CURSOR] = None

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        rows = thread_records(self.view(core, principal))
        if self.parent_thread_id is not None:
            rows = [row for row in rows if row.get("parent_thread_id") == self.parent_thread_id]
        if self.cursor is not None:
            ids = [row["id"] for row in rows]
            if self.cursor not in ids:
                raise Missing(f"no thread {self.cursor!r} in this conversation", field="thread")
            rows = rows[ids.index(self.cursor) + 1 :]
        return page("threads", rows, page_limit(self.limit, self.cursor))


@_mail(
    "summary",
    "conversationId, summary, generated, status, stats, participants, threads, firstTurn, lastTurn",
    writes=False,
)
class Summarise(ConversationVerb, kw_only=True):
    """A conversation in numbers and lists. No model is asked: generated is false."""

    scope: Annotated[dict[str, Any] | None, "fromTurnId, toTurnId, threadId"] = None

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        view = self.view(core, principal)
        wanted = {snake(name): value for name, value in (self.scope or {}).items() if value is not None}
        thread = _text(wanted, "thread_id")
        turns = turns_between(view, wanted, thread)
        result = core_threads.summary(core, view, turns, thread)
        ends = {"firstTurn": turns[0], "lastTurn": turns[-1]} if turns else {}
        return {
            "conversationId": view.talk.id,
            "summary": result.text,
            "generated": False,  # no model wrote it: these are counts
            "status": view.talk.status,
            "stats": stats_record(view, result),
            "participants": [seat_record(seat) for seat in view.seats],
            "threads": thread_records(view),
        } | {name: turn_record(letter) for name, letter in ends.items()}


@_mail("replay", "conversation, turns, threads, hasMore, nextCursor, missedCount", writes=False)
class Replay(ConversationVerb, kw_only=True):
    """What was missed: the turns after a turn or from a time on, or the last so many."""

    from_turn_id: Annotated[str | None, "the last turn that was seen"] = None
    from_timestamp: Annotated[Any, "a time, in milliseconds since 1970 or ISO 8601; that time, too"] = None
    count: Annotated[int | None, "the last so many"] = None
    thread_id: Annotated[str | None, _THREAD] = None
    content_types: Annotated[str | list[str] | None, "only these"] = None
    limit: Annotated[int | None, _LIMIT] = None
    cursor: Annotated[str | None, _CURSOR] = None

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        view = self.view(core, principal)
        wanted = core_threads.ViewTurns(conversation=self.conversation, wanted=turns_wanted(set_parameters(self)))
        found = wanted.run(core, principal).letters  # the view has asked for the right
        found = found if self.count is None else found[-limit_of(self.count) :]
        limit = None if self.limit is None else limit_of(self.limit)
        rows = _turn_rows(found, limit)
        return _with_turns(view, rows) | page("turns", rows, limit) | {"missedCount": len(found)}


@_mail(
    "presence",
    "conversationId, participants: each with presence active, idle, offline or unknown",
    writes=False,
)
class Presence(ConversationVerb, kw_only=True):
    """Who is in a conversation, and how they are."""

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        view = self.view(core, principal)
        rows = [presence_record(*one) for one in core_threads.participants(core, view)]
        return {"conversationId": view.talk.id, "participants": rows}


@_mail("recent", "messages as MAP writes them; turns", writes=False)
class Recent(ForeignVerb, kw_only=True):
    """The last letters of all conversations, the oldest of them first."""

    limit: Annotated[int, _LIMIT] = PAGE
    scope: Annotated[str | None, "only those of this scope"] = None

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        recent = conversations.RecentLetters(scope=self.scope, limit=limit_of(self.limit))
        letters = perform(core, principal, recent).letters[::-1]
        people = people_names(core)
        return {
            "messages": [map_message(letter, people) for letter in letters],
            "turns": [turn_record(letter) for letter in letters],
        }


# -- what they share


def _turn_rows(letters: list[Message], limit: int | None) -> list[dict[str, Any]]:
    """Return the rows of a page, and one more that shows that there are more."""
    return [turn_record(letter) for letter in (letters if limit is None else letters[: limit + 1])]


def _with_turns(view: View, turns: list[dict[str, Any]]) -> dict[str, Any]:
    return {"conversation": conversation_record(view), "turns": turns, "threads": thread_records(view)}


def _participant(core: Core, view: View, agent: str) -> dict[str, Any]:
    """Return the participant that joined; nothing if it has left again by now."""
    seat = conversations.seat_in(core, view, agent)
    return {} if seat is None else {"participant": seat_record(seat)}
