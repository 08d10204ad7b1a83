"""The table of `mail/*`: what may be said to each method, and what it answers. Checks and docs are made of it.

Almost all are `slow`: a conversation is told by its letters, and may have many.
"""

from __future__ import annotations

from typing import Any

from . import mail
from .mail_words import named_speaker
from .table import Method, Param

_ID = Param("id", "text", "the conversation, in agent-inbox's word")
_CONVERSATION = Param("conversation_id", "text", "the conversation")
_AGENT = Param("agent_id", "text", "who it is about; without it, the agent that is calling")
_PARTICIPANT = Param("participant_id", "text", "the same, in another word")
_LIMIT = Param("limit", "count", "how many at most; 50 where a page is asked for")
_CURSOR = Param("cursor", "text", "go on behind this one: the last answer's nextCursor")
_THREAD = Param("thread_id", "text", "a thread of the conversation")
_SUBJECT = Param("subject", "text", "one line")
_METADATA = Param("metadata", "object", "anything; shown as it was said")
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
        "Open a conversation, with its first turn if one is said. Whoever opens it sits in it.",
        f"{_RECORD}; conversation, participant, initialTurn",
        run=mail.create,
        params=(
            *_WHICH,
            *_WHO,
            Param("scope", "text", "where it belongs; default"),
            _SUBJECT,
            _METADATA,
            Param("type", "text", "multi-agent, user-session, agent-task or mixed"),
            Param("parent_conversation_id", "text", "another one it came out of"),
            Param("parent_turn_id", "text", "and the turn there"),
            Param("initial_participants", "list", "who else sits in it: objects with id, role, permissions"),
            Param("initial_turn", "object", "contentType, content, visibility"),
        ),
        action="join",
        whose="agent_id",
        speaker=mail.opener,
        slow=False,
    ),
    _method(
        "get",
        "A conversation with its turns and threads.",
        "conversation, participants, turns, threads; recentTurns and stats where they are asked for",
        run=mail.get,
        params=(*_WHICH, Param("include", "object", "participants, threads, recentTurns (how many), stats")),
        writes=False,
    ),
    _method(
        "list",
        "Conversations, the most recently active first.",
        "conversations, hasMore, nextCursor",
        run=mail.list_all,
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
        "End a conversation: no more turns. Again is no error.",
        "ok, conversation",
        run=mail.close,
        params=(*_WHICH, Param("status", "text", "completed (the default), archived, paused or failed")),
    ),
    _method(
        "reopen",
        "Let a closed conversation go on.",
        "conversationId, status, ok, conversation",
        run=mail.reopen,
        params=_WHICH,
    ),
    _method(
        "join",
        "Take a seat: every later turn comes. Again is no error.",
        "ok, conversation, participant; history and historyCursor with catchUp",
        run=mail.join,
        params=(
            *_WHICH,
            *_WHO,
            Param("role", "text", "as what"),
            Param("catch_up", "object", "from (a turn or a time), limit"),
        ),
        action="join",
        whose="agent_id",
        speaker=named_speaker,
    ),
    _method(
        "leave",
        "Give up a seat: later turns do not come. Again is no error.",
        "ok, success, leftAt",
        run=mail.leave,
        params=(*_WHICH, *_WHO),
        action="join",
        whose="agent_id",
        speaker=named_speaker,
    ),
    _method(
        "invite",
        "Give somebody a seat.",
        "ok, invited, participant",
        run=mail.invite,
        params=(
            *_WHICH,
            *_WHO,
            Param("role", "text", "as what"),
            Param("participant", "object", "the same: id, role, permissions"),
        ),
    ),
    _method(
        "turn",
        "Say something: a letter to everybody else in the conversation, all or none.",
        "the turn's fields in both spellings; turn",
        run=mail.turn,
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
        speaker=named_speaker,
    ),
    _method(
        "turns/list",
        "The turns of a conversation, the oldest first. Of one that is not there: none.",
        "turns, hasMore, nextCursor",
        run=mail.turns,
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
        run=mail.create_thread,
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
        run=mail.threads,
        params=(*_WHICH, Param("parent_thread_id", "text", "only those inside it"), _LIMIT, _CURSOR),
        writes=False,
    ),
    _method(
        "summary",
        "A conversation in numbers and lists. No model is asked: generated is false.",
        "conversationId, summary, generated, status, stats, participants, threads, firstTurn, lastTurn",
        run=mail.summary,
        params=(*_WHICH, Param("scope", "object", "fromTurnId, toTurnId, threadId")),
        writes=False,
    ),
    _method(
        "replay",
        "What was missed: the turns after a turn or from a time on, or the last so many.",
        "conversation, turns, threads, hasMore, nextCursor, missedCount",
        run=mail.replay,
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
        run=mail.presence,
        params=_WHICH,
        writes=False,
    ),
    _method(
        "recent",
        "The last letters of all conversations, the oldest of them first.",
        "messages as MAP writes them; turns",
        run=mail.recent,
        params=(_LIMIT, Param("scope", "text", "only those of this scope")),
        writes=False,
    ),
)
