"""JSON-RPC by POST. Nothing of a body is read before its caller is known; never more than a letter needs."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..callers import Caller
from ..errors import PostroomError
from ..model.values import read_json
from ..wire import rpc
from ..wire.problems import PARSE_ERROR
from ..wire.session import DEEPER, ROOM_FOR_MORE, Asked, read_value
from .gate import every
from .replies import Reply, refused, told

if TYPE_CHECKING:
    from ..outcome import Outcome
    from ..policy.limits import Limits
    from ..service.authorize import Principal
    from .house import House
    from .replies import Headers, Receive, Scope

BODY_SECONDS = 30.0  # for a whole body
RETRY = (b"retry-after", b"1")
CLOSING = refused(503, "the server is shutting down; try again", RETRY)


class Gone(Exception):
    """The caller has hung up."""


def largest(limits: Limits) -> int:
    """Bytes of one body, or one frame."""
    return limits.max_message_bytes + ROOM_FOR_MORE


def read_rpc(raw: bytes | str, limits: Limits) -> Asked | dict[str, Any]:
    """What it asks for in JSON-RPC, or the refusal of what is no JSON. No other dialect is spoken here."""
    try:
        value = read_json(raw, "body", depth=limits.max_depth + DEEPER, largest=largest(limits))
    except PostroomError as broken:
        return rpc.unreadable(str(broken))
    if rpc.is_rpc(value):
        return read_value(value)
    wrong = rpc.read_call(value)
    assert isinstance(wrong, dict)  # noqa: S101 - it does not say `jsonrpc`
    return Asked([wrong])


def too_large(most: int) -> Reply:
    return refused(413, f"the body is larger than {most} bytes", code=PARSE_ERROR)


async def serve_call(house: House, principal: Principal, scope: Scope, receive: Receive) -> Reply:
    """The answer to a POST."""
    limits = house.limits
    if not _is_json(scope["headers"]):
        return refused(415, "the body must be application/json")
    most = largest(limits)
    if declared(scope["headers"]) > most:
        return too_large(most)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await _read(receive, most)
    except TimeoutError:
        return refused(408, f"the body did not come within {BODY_SECONDS:g} seconds")
    if body is None:
        return too_large(most)
    asked = read_rpc(body, limits)
    if not isinstance(asked, Asked):
        return told(400, asked)
    return await _carry_out(house, principal, asked, receive)


async def _carry_out(house: House, principal: Principal, asked: Asked, receive: Receive) -> Reply:
    caller = Caller(house.desk, house.hub, principal=principal)
    owed = caller.carry_out(asked)
    if asked.is_long and not owed.done():
        await _unless_gone(house, owed, receive)
        if owed.cancelled():
            return CLOSING
    reply = await owed
    return Reply(204) if reply is None else told(200, reply)


async def _unless_gone(house: House, owed: Outcome, receive: Receive) -> None:
    """Whoever hangs up waits no more: a letter is not handed to nobody. Nor does anybody when the house closes."""
    gone = asyncio.ensure_future(receive())
    with house.ended_by(owed.cancel):
        await asyncio.wait([asyncio.ensure_future(owed.wait()), gone], return_when=asyncio.FIRST_COMPLETED)
    if not owed.done():
        owed.cancel()
        raise Gone
    gone.cancel()
    with suppress(asyncio.CancelledError):
        await gone


async def _read(receive: Receive, most: int) -> bytes | None:
    """The body; None when there is too much of it."""
    pieces, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        piece = message.get("body", b"")
        size += len(piece)
        if size > most:
            return None
        pieces.append(piece)
        more = message.get("more_body", False)
    return b"".join(pieces)


def _is_json(headers: Headers) -> bool:
    """Exactly: a page of another site may send text and forms without asking, but not this."""
    given = every(headers, b"content-type")
    return len(given) == 1 and given[0].partition(";")[0].strip().lower() == "application/json"


def declared(headers: Headers) -> int:
    given = every(headers, b"content-length")
    return int(given[0]) if given and given[0].isdecimal() else 0
