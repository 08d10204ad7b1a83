"""Asking a method of the table as a wire would: what is said is checked, then done."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st

from postroom import PostroomError, Room
from postroom.core.verb import from_params
from postroom.formats.errors import mail_problem
from postroom.server.mail import MAIL
from postroom.server.requests import in_json

# JSON as our letters may hold it: no NUL, no lone surrogates, integers of 64 bits.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
)
JSON = st.recursive(
    SCALARS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
TYPED = st.builds(
    lambda kind, fields: {"type": kind, **{k: v for k, v in fields.items() if k != "type"}},
    st.sampled_from(["text", "data", "event", "file", "reference", "x-own", "x-content", "x-", "tool", ""]) | TEXT,
    st.dictionaries(st.sampled_from(["text", "data", "event", "path", "uri", "content"]) | TEXT, JSON, max_size=3),
)
PAYLOADS = JSON | TYPED
_WORDS = st.sampled_from(
    ["c-1", "turn-x", "ann", "thread-x", "beginning", "private", "postmaster", -1, 10**20, 1.5e300]
)
_NAMES = """id role permissions type ids roles fromTurnId toTurnId threadId contentTypes participantId
    afterTimestamp beforeTimestamp afterTurnId status createdAfter from limit recentTurns stats content contentType
    visibility text"""
_INNER = st.dictionaries(st.sampled_from(_NAMES.split()), _WORDS | JSON, max_size=4)
ANYTHING = _WORDS | JSON | _INNER | st.lists(_INNER, max_size=2)


def ask(room: Room, name: str, **message: Any) -> dict[str, Any]:
    request = from_params(MAIL[f"mail/{name}"], message)
    answer: dict[str, Any] = in_json(request, request.run(room.core, room.principal))
    assert answer == msgspec.json.decode(msgspec.json.encode(answer))  # nothing but plain JSON
    return answer


def refused(room: Room, name: str, **message: Any) -> dict[str, Any]:
    """How it is refused, in the numbers of `mail/*`."""
    with pytest.raises(PostroomError) as caught:
        ask(room, name, **message)
    problem = mail_problem(caught.value)
    assert problem is not None, caught.value
    return problem
