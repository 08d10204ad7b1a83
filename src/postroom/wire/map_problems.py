"""What went wrong, in the numbers of MAP's SDK: `{code, message, data: {category, retryable, details}}`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import (
    Busy,
    Conflict,
    IdTaken,
    IllegalMove,
    Invalid,
    Missing,
    NameTaken,
    NotAllowed,
    QuotaFull,
    Refused,
    TooFast,
    UnknownAgent,
)
from .mail_problems import mail_problem
from .problems import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    NOT_FOUND,
    PARSE_ERROR,
    NoSuchMethod,
)
from .problems import details as all_details

if TYPE_CHECKING:
    from ..errors import PostroomError

AUTH_REQUIRED, AUTH_FAILED, AUTH_EXPIRED, DENIED, NO_METHOD, BAD_CREDENTIALS = 1000, 1001, 1002, 1003, 1005, 1006
NO_ADDRESS, NO_AGENT, NO_SCOPE, NOT_DELIVERED = 2000, 2001, 2002, 2003
EXISTS, BAD_STATE, TERMINATED = 3000, 3001, 3003
EXHAUSTED, TOO_FAST, OVER_QUOTA = 4000, 4001, 4002
NO_SYSTEM = 5001

# A number's thousands, and the category that stands for them.
_CATEGORIES = {1: "auth", 2: "routing", 3: "agent", 4: "resource", 5: "federation", 10: "mail"}
# (error, the field it names) -> number. None stands for any field; the first row that fits counts.
NUMBERS: tuple[tuple[type[PostroomError], str | None, int], ...] = (
    (NoSuchMethod, None, METHOD_NOT_FOUND),
    (NotAllowed, "auth", AUTH_REQUIRED),
    (NotAllowed, "token", BAD_CREDENTIALS),
    (NotAllowed, "method", NO_METHOD),
    (NotAllowed, None, DENIED),
    (Invalid, None, INVALID_PARAMS),
    (UnknownAgent, None, NO_AGENT),
    (Missing, "scope", NO_SCOPE),
    (Missing, "system", NO_SYSTEM),
    (Missing, "to", NO_ADDRESS),
    (Missing, None, NOT_FOUND),
    (NameTaken, None, EXISTS),
    (IdTaken, "scope_id", EXISTS),
    (IllegalMove, "agent", TERMINATED),
    (IllegalMove, None, BAD_STATE),
    (QuotaFull, None, OVER_QUOTA),
    (TooFast, None, TOO_FAST),
    (Busy, None, EXHAUSTED),
    (Refused, None, NOT_DELIVERED),
    (Conflict, None, BAD_STATE),
)
_PROTOCOL = frozenset({PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, NOT_FOUND})
_RETRY_SOON = 1000  # milliseconds after which trying again may help, where nothing more is known


def number_of(error: PostroomError) -> int:
    for kind, field, number in NUMBERS:
        if isinstance(error, kind) and (field is None or field == error.field):
            return number
    return INTERNAL_ERROR


def retry_after_ms(error: PostroomError) -> int:
    return _RETRY_SOON if error.retry_after is None else round(error.retry_after * 1000)


def category_of(number: int) -> str:
    if number in _PROTOCOL:
        return "protocol"
    return _CATEGORIES.get(number // 1000, "internal")


def map_error(error: PostroomError, *, of_mail: bool = False) -> dict[str, Any]:
    """The error of a reply. `of_mail`: conversations have numbers of their own."""
    special = mail_problem(error) if of_mail else None
    number = number_of(error) if special is None else special.data["code"]
    data: dict[str, Any] = {"category": category_of(number), "retryable": error.temporary}
    if error.temporary:
        data["retryAfterMs"] = retry_after_ms(error)
    return {"code": number, "message": str(error), "data": data | {"details": all_details(error)}}


def failure(id: Any, number: int, why: str) -> dict[str, Any]:
    """A reply to what could not be understood."""
    error = {"code": number, "message": why, "data": {"category": category_of(number), "retryable": False}}
    return {"jsonrpc": "2.0", "id": id, "error": error}
