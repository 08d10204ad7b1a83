"""The first words of a visit: who we are, and by which token; and what the server says of itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..lines.line import LineLost, MapRefusal
from ..wire.map_names import CONNECT, SOFTWARE, VERSION
from .wants import METHODS

if TYPE_CHECKING:
    from ..lines.line import Line
    from .wants import Wants


FIRST_ANSWER = 10.0  # seconds


class Welcome(Struct, frozen=True, kw_only=True):
    """What the server says of itself."""

    name: str
    session: str  # what it calls this connection
    is_postroom: bool  # then its name is that of another room, and not of a net of them
    resume: str  # a token with which a later visit goes on with this one
    back: tuple[str, ...]  # the ids of agents of ours that it gave back with that: their mail may come at once
    method: str  # how it wants to see our token
    keeps_meta: bool  # the SDK's own server says that its protocol is "2024-12", and drops `meta`
    takes_acks: bool  # does it keep a message until we say that it was put down?


async def greet(line: Line, wants: Wants, name: str, resume: str) -> Welcome:
    """MapRefusal: we are not let in."""
    said: dict[str, Any] = {
        "protocolVersion": VERSION,
        "participantType": "agent",
        "name": name,
        "capabilities": {"delivery": {"acks": True}},  # a word of ours; others pass it over
    }
    told, method = await _let_in(line, wants, said | ({"resumeToken": resume} if resume else {}))
    info, token, session = _object(told.get("systemInfo")), told.get("resumeToken"), told.get("sessionId")
    system = info.get("name")
    return Welcome(
        name=system if isinstance(system, str) else "",
        session=session if isinstance(session, str) else "",
        is_postroom=info.get("software") == SOFTWARE,
        resume=token if isinstance(token, str) else "",
        back=tuple(row["id"] for row in _rows(told.get("reclaimedAgents"))),
        method=method,
        keeps_meta=told.get("protocolVersion") == VERSION,
        takes_acks=_object(_object(told.get("capabilities")).get("delivery")).get("acks") is True,
    )


def credentials(wants: Wants, method: str) -> dict[str, str]:
    return {"method": method, "credential": wants.token}


async def _let_in(line: Line, wants: Wants, said: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """With the token, shown as we were told to; and once more as the server says it wants to see it."""
    auth = {"auth": credentials(wants, wants.method)} if wants.token else {}
    told = await _first_answer(line, **said, **auth)
    if not _is_shut(told):
        return told, wants.method
    methods = _object(told["authRequired"]).get("methods")
    if not wants.token:
        raise MapRefusal({"code": 1000, "message": f"it wants one of {methods}; set POSTROOM_MAP_TOKEN"})
    other = next((word for word in METHODS if isinstance(methods, list) and word in methods), wants.method)
    if other != wants.method:
        told = await line.ask(CONNECT, **said, auth=credentials(wants, other))
    if _is_shut(told):
        raise MapRefusal(told.get("error") or {"code": 1006, "message": f"the token is not taken; {methods} is"})
    return told, other


async def _first_answer(line: Line, **said: Any) -> dict[str, Any]:
    """What takes connections and says nothing is something else, or not wired up."""
    try:
        async with asyncio.timeout(FIRST_ANSWER):
            return await line.ask(CONNECT, **said)
    except TimeoutError:
        told = f"it takes the connection, and did not answer {CONNECT} in {FIRST_ANSWER:g} s (is it a MAP server?)"
        raise LineLost(told) from None


def _is_shut(told: dict[str, Any]) -> bool:
    return "authRequired" in told and not told.get("sessionId")


def _rows(value: Any) -> list[dict[str, Any]]:
    rows = value if isinstance(value, list) else []
    return [row for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
