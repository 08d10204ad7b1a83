"""Errors in the form of each dialect: JSON-RPC, agent-inbox's socket, and `mail/*`.

Each form carries everything that a program needs to act on an error: its name and code, whether a retry helps, the
field and a hint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from .. import errors
from ..errors import (
    Busy,
    Conflict,
    IllegalMove,
    Invalid,
    Missing,
    NotAllowed,
    PostroomError,
    QuotaFull,
    Refused,
    TooFast,
    TooLarge,
    UnknownAgent,
    UnknownMessage,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


class NoSuchMethod(Missing):
    """There is no such method."""

    code = 4003

    def __str__(self) -> str:
        return self.message  # exactly the text of agent-inbox


PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
TOKEN_NEEDED, BAD_TOKEN = 1000, 1006  # codes of MAP
NOT_FOUND = -32001  # for everything except conversations and their contents, see `mail_problem`

# (error, its field) -> number. None matches any field; the first matching row counts.
Numbers = tuple[tuple[type[PostroomError], str | None, int], ...]


def number_in(rows: Numbers, error: PostroomError, field: str | None) -> int | None:
    """Return the number of an error about this field; None if no row matches."""
    return next((number for kind, of, number in rows if isinstance(error, kind) and of in {None, field}), None)


# The first match counts, so narrow classes come first. MAP's codes are used where it has one.
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
    """Return the error object of JSON-RPC."""
    known = next((code for kind, code in CODES if isinstance(error, kind)), INTERNAL_ERROR)
    code = BAD_TOKEN if is_bad_token(error) else known
    return {"code": code, "message": str(error), "data": details(error)}


# The HTTP status of an error: that of the first class that fits.
STATUS: tuple[tuple[type[PostroomError], int], ...] = (
    (TooLarge, 413),
    (Invalid, 400),
    (NotAllowed, 403),
    (Refused, 422),
    (Missing, 404),
    (TooFast, 429),
    (Busy, 503),
    (Conflict, 409),
)


def http_status(error: PostroomError) -> int:
    """Return the HTTP status of an error."""
    if is_bad_token(error):
        return 401
    return next((status for kind, status in STATUS if isinstance(error, kind)), 500)


def is_bad_token(error: PostroomError) -> bool:
    """Return whether the caller showed an invalid token, rather than lacking a permission."""
    return isinstance(error, NotAllowed) and error.field == "token"


def socket_error(error: PostroomError) -> dict[str, Any]:
    """Return the error of agent-inbox's socket: a text, with our details beside it."""
    return {"ok": False, "error": str(error), **details(error)}


def details(error: PostroomError) -> dict[str, Any]:
    """Return the details of an error that are set."""
    known = {"name": type(error).__name__, "code": error.code, "retryable": error.temporary}
    keys = [*error.keys]  # the idempotency keys for sending again
    more = {"field": error.field, "hint": error.hint, "keys": keys, "retry_after": error.retry_after}  # seconds
    return known | {name: value for name, value in more.items() if value not in (None, "", [])}


# Errors of `mail/*`. They have MAP's codes (mail 1.1) on every protocol, also in `data.code`. Errors that do not
# concern conversations (a value of the wrong type, a full disk) have the codes of the general table.

CLOSED, NO_PARTICIPANT, NO_PERMISSION = 10001, 10002, 10003
NO_CONVERSATION, NO_TURN, NO_THREAD, BAD_CONTENT, NO_PARENT = 10000, 10004, 10005, 10006, 10010

NUMBERS: Numbers = (
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


def mail_problem(error: PostroomError) -> dict[str, Any] | None:
    """Return the error object for an error that concerns conversations; None for any other."""
    number = _number(error)
    if number is None:
        return None
    details = {"field": error.field, "hint": error.hint, "error": type(error).__name__, "number": error.code}
    return {
        "code": number,
        "message": "Conversation not found" if number == NO_CONVERSATION else str(error),
        "data": {"code": number, "category": "mail", "retryable": error.temporary, "details": details},
    }


def _number(error: PostroomError) -> int | None:
    if isinstance(error, UnknownAgent) or is_bad_token(error):
        return None
    # The body of a letter (`body[0].text`) is the content of a turn.
    field = "content" if (error.field or "").startswith(("body", "content")) else error.field
    return number_in(NUMBERS, error, field)


# -- errors in replies, as their callers raise them


def result_of(line: bytes) -> Any:
    """Return the result in a reply, or raise its error."""
    if not line:
        raise Busy("the post room closed the connection", hint="try again")
    reply = msgspec.json.decode(line)
    if "jsonrpc" in reply:
        if "error" in reply:
            raise refused(reply["error"]["message"], reply["error"].get("data") or {})
        return reply["result"]
    if reply.pop("ok", False):
        return reply
    raise refused(reply.get("error", ""), reply)


def refused(text: str, data: Mapping[str, Any]) -> PostroomError:
    """Return the error that the server raised, by its class if this version knows it."""
    kind = getattr(errors, str(data.get("name")), None)
    if not (isinstance(kind, type) and issubclass(kind, PostroomError)):
        kind = Busy if data.get("retryable") else Refused
    field, hint = data.get("field"), data.get("hint")
    plain = text.removeprefix(f"{field}: ") if field else text
    error = kind(plain.removesuffix(f" ({hint})") if hint else plain, field=field, hint=hint)
    error.keys = tuple(data.get("keys", ()))
    error.retry_after = data.get("retry_after")
    return error
