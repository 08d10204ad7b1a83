"""What went wrong in `mail/*`, in the numbers both dialects know.

They are MAP's numbers (mail 1.1), the same on every wire, and stand in `data.code`, too.
What is no matter of conversations (a value of the wrong kind, a full disk) is left to the general table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..errors import IllegalMove, Invalid, Missing, NotAllowed, UnknownAgent, UnknownMessage
from .problems import is_bad_token

if TYPE_CHECKING:
    from ..errors import PostroomError

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
