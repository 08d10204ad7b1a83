"""What went wrong, in the words of each dialect. Everything a program needs to act on it travels along."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..errors import (
    Busy,
    Conflict,
    IllegalMove,
    Invalid,
    Missing,
    NotAllowed,
    QuotaFull,
    Refused,
    TooFast,
    UnknownAgent,
    UnknownMessage,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..errors import PostroomError


class NoSuchMethod(Missing):
    """Nobody serves this method."""

    code = 4003

    def __str__(self) -> str:
        return self.message  # in exactly the words of agent-inbox


PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
TOKEN_NEEDED, BAD_TOKEN = 1000, 1006  # MAP's
NOT_FOUND = -32001  # anything that is not there, but conversations and what is in them (`mail_problems`)

# The first that fits, the narrowest first. Where MAP has a code, it is that one.
CODES: tuple[tuple[type[PostroomError], int], ...] = (
    (NoSuchMethod, METHOD_NOT_FOUND),
    (Invalid, INVALID_PARAMS),
    (NotAllowed, 1003),
    (QuotaFull, 4002),
    (TooFast, 4001),
    (Busy, 4000),
    (UnknownAgent, 2001),
    (UnknownMessage, NOT_FOUND),
    (Missing, NOT_FOUND),
    (Refused, 2003),
    (Conflict, 3001),
)


def rpc_error(error: PostroomError) -> dict[str, Any]:
    """As JSON-RPC says it."""
    known = next((code for kind, code in CODES if isinstance(error, kind)), INTERNAL_ERROR)
    code = BAD_TOKEN if is_bad_token(error) else known
    return {"code": code, "message": str(error), "data": details(error)}


def is_bad_token(error: PostroomError) -> bool:
    """Was a token shown that is worth nothing? That is another thing than not to be allowed something."""
    return isinstance(error, NotAllowed) and error.field == "token"


def socket_error(error: PostroomError) -> dict[str, Any]:
    """As agent-inbox says it: a text; what we know more stands beside it."""
    return {"ok": False, "error": str(error), **details(error)}


def details(error: PostroomError) -> dict[str, Any]:
    return dict(_details(error))


def _details(error: PostroomError) -> Iterator[tuple[str, Any]]:
    yield "name", type(error).__name__
    yield "code", error.code
    yield "retryable", error.temporary
    if error.field:
        yield "field", error.field
    if error.hint:
        yield "hint", error.hint
    if error.keys:
        yield "keys", list(error.keys)  # with which to send again
    if error.retry_after is not None:
        yield "retry_after", error.retry_after  # seconds


# What went wrong in `mail/*`, in the numbers both dialects know.
#
# They are MAP's numbers (mail 1.1), the same on every wire, and stand in `data.code`, too.
# What is no matter of conversations (a value of the wrong kind, a full disk) is left to the general table.

CLOSED, NO_PARTICIPANT, NO_PERMISSION = 10001, 10002, 10003
NO_CONVERSATION, NO_TURN, NO_THREAD, BAD_CONTENT, NO_PARENT = 10000, 10004, 10005, 10006, 10010

# (error, the field it names) -> MAP's number. None stands for any field; the first row that fits counts.
NUMBERS: tuple[tuple[type[PostroomError], str | None, int], ...] = (
    (UnknownMessage, None, NO_TURN),
    (Missing, "conversation", NO_CONVERSATION),
    (Missing, "parent_conversation", NO_PARENT),
    (Missing, "turn", NO_TURN),
    (Missing, "thread", NO_THREAD),
    (IllegalMove, "conversation", CLOSED),
    (IllegalMove, "status", CLOSED),
    (NotAllowed, "participant", NO_PARTICIPANT),
    (NotAllowed, None, NO_PERMISSION),
    (Invalid, "content", BAD_CONTENT),
)


class Problem(Struct, frozen=True):
    """The error object of an answer."""

    code: int
    message: str
    data: dict[str, Any]


def mail_problem(error: PostroomError) -> Problem | None:
    """None: nothing that is special to conversations."""
    number = _number(error)
    if number is None:
        return None
    details = {"field": error.field, "hint": error.hint, "error": type(error).__name__, "number": error.code}
    data = {"code": number, "category": "mail", "retryable": error.temporary, "details": details}
    if number == NO_CONVERSATION:
        return Problem(number, "Conversation not found", data)
    return Problem(number, str(error), data)


def _number(error: PostroomError) -> int | None:
    if isinstance(error, UnknownAgent) or is_bad_token(error):
        return None
    for kind, field, number in NUMBERS:
        if isinstance(error, kind) and (field is None or field == error.field or _is_inside(error, field)):
            return number
    return None


def _is_inside(error: PostroomError, field: str) -> bool:
    """The body of a turn's letter is its content: `body[0].text`."""
    return field == "content" and (error.field or "").startswith(("body", "content"))
