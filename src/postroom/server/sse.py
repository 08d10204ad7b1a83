"""`GET /subscribe`: what happens, as server-sent events. Each carries its cursor as its id: whoever comes back
with `Last-Event-ID` hears what it missed.

    event: message.created
    data: {"id": ..., "postroom": {...}}
    id: 0f3c...:1a2b:42
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from ..errors import Invalid
from ..model.codec import encode
from .callers import Caller
from .events import stream_data
from .http import CLOSE, every
from .table import snake
from .uvicorn_protocol import ABORT
from .websocket import Outbox

if TYPE_CHECKING:
    from ..core.authorize import Principal
    from .http import Headers, Receive, Scope, Send
    from .http_app import HttpApp


COMMENT = b":\n\n"  # says that we are still here
_LISTS = ("event_types", "scopes", "from_agents", "priorities")
_OF_MAIL = ("conversation_id", "thread_id", "participant_id", "content_type")
_WORDS = {"message.sent": "message.created"}  # what MAP calls otherwise than agent-inbox's streams do
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-accel-buffering", b"no"),
    CLOSE,  # a stream is the last thing on its connection
]


async def serve_stream(house: HttpApp, principal: Principal, scope: Scope, receive: Receive, send: Send) -> None:
    """Until either side ends it. What is wrong with the wishes is raised before anything is sent."""
    outbox = Outbox(scope["state"][ABORT])
    caller = Caller(
        house.executor,
        house.broker,
        push=lambda notice: outbox.offer(event_of(notice)),
        expel=outbox.drop,
        principal=principal,
    )
    try:
        outbox.add(COMMENT)  # so that the head goes out at once
        caller.subscribe(wishes(scope["query_string"], scope["headers"]))
        caller.replies_sent()
        with house.ended_by(outbox.close), house.kept_alive(outbox, COMMENT):
            gone = asyncio.ensure_future(_until_gone(receive, outbox))
            try:
                await _write(outbox, caller, send)
            finally:
                gone.cancel()
    finally:
        caller.close()


async def _write(outbox: Outbox, caller: Caller, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    while pieces := await outbox.take():
        await send({"type": "http.response.body", "body": b"".join(pieces), "more_body": True})
        if outbox.has_refused and not outbox.is_closed:
            outbox.has_refused = False
            caller.resume()
    await send({"type": "http.response.body", "body": b""})
    outbox.emptied()


async def _until_gone(receive: Receive, outbox: Outbox) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    outbox.close()


def event_of(notice: dict[str, Any]) -> bytes:
    """A notice as a server-sent event. The type may be an agent's own word: it stays on its line."""
    params = notice["params"]
    event = params["event"]
    kind = " ".join(str(event["type"]).split())
    type = _WORDS.get(kind, kind)
    lines = (type.encode(), encode(stream_data(type, event["data"])), str(params["cursor"]).encode())
    return b"event: %b\ndata: %b\nid: %b\n\n" % lines


def wishes(query: bytes, headers: Headers) -> dict[str, Any]:
    """What is asked for, as in `map/subscribe`: a filter, and from where on. A header beats the address, for a
    browser that comes back calls the same address again.
    """
    filter: dict[str, Any] = {}
    mail: dict[str, str] = {}
    since: str | None = None
    for name, value in parse_qsl(query.decode("ascii", "replace"), keep_blank_values=True, max_num_fields=100):
        plain = snake(name)
        if plain in _LISTS:
            filter.setdefault(plain, []).extend(filter_word for filter_word in value.split(",") if filter_word)
        elif plain in _OF_MAIL:
            mail[plain] = value
        elif plain == "agent":
            filter[plain] = value
        elif plain == "since":
            since = value
        else:
            hint = ", ".join((*_LISTS, *_OF_MAIL, "agent", "since"))
            raise Invalid("unknown query parameter", field=ascii(name)[1:-1][:100], hint=hint)
    last = [one for one in every(headers, b"last-event-id") if one]  # an empty one says nothing
    return {"filter": filter | ({"mail": mail} if mail else {}), "since": last[0] if last else since}
