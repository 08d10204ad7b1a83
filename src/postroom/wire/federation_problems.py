"""What became of a letter at another system, in the numbers of MAP's SDK, and read again from them.

| number | | the letter |
|---|---|---|
| 5000, 4000, 4001, 4002, or `retryable` | not now | waits, and is sent again |
| 1000 to 1006, 5002 | this connection is not trusted | waits until it is |
| 5001, 5003, 5010, 5011, and all else | no | is dead, and its sender is told |

One letter may be for several: `refused` beside `routed` names those who did not get it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..errors import (
    Busy,
    Conflict,
    HopsSpent,
    Invalid,
    LoopDetected,
    Missing,
    NotAllowed,
    QuotaFull,
    Refused,
    StaleRevision,
    TooFast,
    UnknownAgent,
)
from .map_problems import (
    AUTH_REQUIRED,
    BAD_CREDENTIALS,
    EXHAUSTED,
    NO_SYSTEM,
    OVER_QUOTA,
    TOO_FAST,
    category_of,
)
from .problems import INTERNAL_ERROR, details

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..errors import PostroomError

PREFIX = "map/federation"  # so begin the names of its methods, in both spellings
AFTER = "after"  # the field of a refusal because of an earlier letter
UNAVAILABLE, NOT_TRUSTED, REJECTED, LOOP, TOO_FAR = 5000, 5002, 5003, 5010, 5011
_RETRY_SOON = 1000  # milliseconds
# (error, the field it names) -> number. None stands for any field; the first row that fits counts.
NUMBERS: tuple[tuple[type[PostroomError], str | None, int], ...] = (
    (LoopDetected, None, LOOP),
    (HopsSpent, None, TOO_FAR),
    (NotAllowed, "auth", NOT_TRUSTED),
    (NotAllowed, "token", NOT_TRUSTED),
    (NotAllowed, "systemId", NOT_TRUSTED),
    (UnknownAgent, None, REJECTED),
    (Missing, "system", NO_SYSTEM),
    (Missing, "to", NO_SYSTEM),
    (QuotaFull, None, OVER_QUOTA),
    (TooFast, None, TOO_FAST),
    (Busy, None, UNAVAILABLE),
    (StaleRevision, None, UNAVAILABLE),
    (Refused, None, REJECTED),
    (Invalid, None, REJECTED),
    (Missing, None, REJECTED),
    (Conflict, None, REJECTED),
)
_NOT_NOW = frozenset({UNAVAILABLE, EXHAUSTED, TOO_FAST, OVER_QUOTA})
_AUTH = frozenset({*range(AUTH_REQUIRED, BAD_CREDENTIALS + 1), NOT_TRUSTED})


class Refusal(Struct, frozen=True):
    """Why somebody at another system did not get a letter."""

    code: int | None  # None: it says none
    message: str
    is_temporary: bool = False
    is_behind: bool = False  # it waits for an earlier letter, and for nothing else
    is_ours: bool = False  # it was not even sent, by a rule of ours

    @property
    def is_of_trust(self) -> bool:
        """Is it about the connection, and not about the letter?"""
        return self.code in _AUTH

    @property
    def waits(self) -> bool:
        return self.is_temporary or self.code in _NOT_NOW or self.is_of_trust or self.code == INTERNAL_ERROR


def number_of(error: PostroomError) -> int:
    for kind, field, number in NUMBERS:
        if isinstance(error, kind) and (field is None or field == error.field):
            return number
    return UNAVAILABLE if error.temporary else INTERNAL_ERROR


def federation_error(error: PostroomError) -> dict[str, Any]:
    """The error of a reply."""
    number = number_of(error)
    data: dict[str, Any] = {"category": category_of(number), "retryable": error.temporary}
    if error.temporary:
        data["retryAfterMs"] = _RETRY_SOON
    return {"code": number, "message": str(error), "data": data | {"details": details(error)}}


def routed(id: str, problems: Sequence[tuple[str, PostroomError | None]]) -> dict[str, Any]:
    """What is told of a letter, by the names of those it was for. Raises if nobody got it: trying again helps if
    it may help with one of them.
    """
    refused = [(agent, problem) for agent, problem in problems if problem is not None]
    if refused and len(refused) == len(problems) and len({number_of(problem) for _, problem in refused}) == 1:
        raise refused[0][1]
    return {"routed": True, "messageId": id} | ({"refused": list(_rows(refused))} if refused else {})


def each_of(told: dict[str, Any], many: int) -> list[dict[str, Any]]:
    """What is told of each of several letters. Of one that nothing is told of, nothing."""
    rows = told.get("letters")
    found = rows if isinstance(rows, list) else []
    return [_dict(row) for row in found[:many]] + [{}] * (many - len(found))


def _rows(refused: Iterable[tuple[str, PostroomError]]) -> Iterable[dict[str, Any]]:
    for agent, problem in refused:
        yield {
            "agent": agent,
            "code": number_of(problem),
            "message": str(problem),
            "temporary": problem.temporary,
        } | ({"field": problem.field} if problem.field else {})


def refusals(told: dict[str, Any]) -> dict[str, Refusal]:
    """Those who did not get a letter that was routed, by name."""
    rows = told.get("refused")
    found = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return {str(row.get("agent")): read_refusal(row) for row in found}


def read_refusal(said: Any) -> Refusal:
    """From an error, or from a row of `refused`."""
    told = said if isinstance(said, dict) else {}
    data = _dict(told.get("data"))
    is_temporary = told.get("temporary") is True or data.get("retryable") is True
    is_behind = AFTER in (told.get("field"), _dict(data.get("details")).get("field"))
    code = told.get("code")
    return Refusal(
        code if isinstance(code, int) else None, str(told.get("message"))[:300], is_temporary, is_behind
    )


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
