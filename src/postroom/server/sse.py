"""`GET /subscribe`: events of the room as server-sent events. Each carries its cursor as its id: a client that
comes back with `Last-Event-ID` gets what it missed.

event: message.created data: {"id": ..., "postroom": {...}} id: 0f3c...:1a2b:42
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from ..core.verb import snake
from ..errors import Invalid
from ..formats.events import stream_data
from ..model.codec import encode
from .callers import Caller
from .events import MAIL_FIELDS
from .http import CLOSE, header_values
from .http_connection import CONNECTION
from .websocket import Outbox

if TYPE_CHECKING:
    from ..core.authorize import Principal
    from .http import Headers, Receive, Scope, Send
    from .http_app import HttpApp


COMMENT = b":\n\n"  # says that the server is alive
KEEP_ALIVE = 20.0  # seconds without an event after which it is sent
_LIST_FIELDS = ("event_types", "scopes", "from_agents", "priorities")
_STREAM_TYPES = {"message.sent": "message.created"}  # MAP's type → that of agent-inbox's streams
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-accel-buffering", b"no"),
    CLOSE,  # a stream is the last thing on its connection
]


async def serve_stream(app: HttpApp, principal: Principal, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve a stream until either side ends it. Invalid parameters are raised before anything is sent."""
    outbox = Outbox(scope["state"][CONNECTION].abort)
    caller = Caller(
        app.executor,
        app.broker,
        push=lambda notice: outbox.offer(sse_event(notice)),
        expel=outbox.drop,
        principal=principal,
    )
    try:
        outbox.add(COMMENT)  # so that the headers are sent at once
        caller.subscribe(subscribe_params(scope["query_string"], scope["headers"]))
        caller.replies_sent()
        with app.closing_with(outbox.close):
            gone = asyncio.ensure_future(_wait_for_disconnect(receive, outbox))
            try:
                await _write(app, outbox, caller, send)
            finally:
                gone.cancel()
    finally:
        caller.close()


async def _write(app: HttpApp, outbox: Outbox, caller: Caller, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    while pieces := await _next(app, outbox):
        await send({"type": "http.response.body", "body": b"".join(pieces), "more_body": True})
        if outbox.has_refused and not outbox.is_closed:
            outbox.has_refused = False
            caller.resume()
    await send({"type": "http.response.body", "body": b""})
    outbox.written()


async def _next(app: HttpApp, outbox: Outbox) -> list[bytes]:
    """Return what waits to be written; after KEEP_ALIVE seconds without anything, a comment."""
    try:
        async with asyncio.timeout(KEEP_ALIVE):
            return await outbox.take()
    except TimeoutError:
        app.broker.look()  # a notification of the store may have been missed
        return [COMMENT]


async def _wait_for_disconnect(receive: Receive, outbox: Outbox) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    outbox.close()


def sse_event(notice: dict[str, Any]) -> bytes:
    """Return a notification as a server-sent event. An agent may have chosen the type: it must stay
    on one line.
    """
    params = notice["params"]
    event = params["event"]
    kind = " ".join(str(event["type"]).split())
    type = _STREAM_TYPES.get(kind, kind)
    lines = (type.encode(), encode(stream_data(type, event["data"])), str(params["cursor"]).encode())
    return b"event: %b\ndata: %b\nid: %b\n\n" % lines


def subscribe_params(query: bytes, headers: Headers) -> dict[str, Any]:
    """Return the parameters of `map/subscribe` that a request asks for: a filter, and where to start. The header
    `Last-Event-ID` wins over the URL, because a browser that reconnects calls the same URL again.
    """
    filter: dict[str, Any] = {}
    mail: dict[str, str] = {}
    since: str | None = None
    for name, value in parse_qsl(query.decode("ascii", "replace"), keep_blank_values=True, max_num_fields=100):
        plain = snake(name)
        if plain in _LIST_FIELDS:
            filter.setdefault(plain, []).extend(filter_word for filter_word in value.split(",") if filter_word)
        elif plain in MAIL_FIELDS:
            mail[plain] = value
        elif plain == "agent":
            filter[plain] = value
        elif plain == "since":
            since = value
        else:
            hint = ", ".join((*_LIST_FIELDS, *MAIL_FIELDS, "agent", "since"))
            raise Invalid("unknown query parameter", field=ascii(name)[1:-1][:100], hint=hint)
    last = [one for one in header_values(headers, b"last-event-id") if one]  # an empty one means none
    return {"filter": filter | ({"mail": mail} if mail else {}), "since": last[0] if last else since}
