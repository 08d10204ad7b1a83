"""What went wrong, in the words of each dialect. Everything a program needs to act on it travels along."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import (
    Busy,
    Conflict,
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
