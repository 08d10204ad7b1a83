"""Connections of HTTP that stay: `/ws`, JSON-RPC in text frames, both ways; and `GET /subscribe`, the events of
the room as server-sent events. Each event carries its cursor as its id: a client that comes back with
`Last-Event-ID` gets what it missed. `Outbox` holds what waits to be written to one of them.

Replies come in the order of the requests, notifications between them. A client that does not read is not read from
either, so that its replies take bounded memory; it gets events it missed from its cursor when it reads again.

event: message.created data: {"id": ..., "postroom": {...}} id: 0f3c...:1a2b:42
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from ..core.authorize import Principal
from ..core.verb import snake
from ..errors import Invalid, PostroomError
from ..formats.events import stream_data
from ..model.codec import encode
from .callers import TURN, Caller, Connection
from .events import MAIL_FIELDS
from .http import CLOSE, CONNECTION, Disconnected, header_values, read_body
from .protocol import Call, read_rpc, unreadable

if TYPE_CHECKING:
    from collections.abc import Callable

    from .callers import RequestCaller
    from .http import Headers, Receive, Scope, Send
    from .http_app import HttpApp
    from .http_server import WebSocketGuard
    from .protocol import Request


CLOSE_SECONDS = 0.5  # to write the last messages, before the connection is aborted
MAX_WAITING_BYTES = 256 * 1024  # one notification more at most


class Outbox:
    """The messages that wait to be written to one client. `abort` ends the connection."""

    def __init__(self, abort: Callable[[], object]) -> None:
        self._abort = abort
        self._abort_timer: asyncio.TimerHandle | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._ready = asyncio.Event()
        self.is_closed = False
        self.has_refused = False  # was a message refused since the last `take`?

    @property
    def is_full(self) -> bool:
        return self._size >= MAX_WAITING_BYTES

    def offer(self, piece: bytes) -> bool:
        """Add a message if there is room. Return whether it was taken."""
        if not self.has_room():
            return False
        self.add(piece)
        return True

    def has_room(self) -> bool:
        """Return whether a message may be offered. After False the caller is resumed when there is room."""
        if self.is_closed or self.is_full:
            self.has_refused = True
            return False
        return True

    def add(self, piece: bytes) -> None:
        """Add a message though there may be no room: `Connection` bounds the replies."""
        self._pieces.append(piece)
        self._size += len(piece)
        self._ready.set()

    async def take(self) -> list[bytes]:
        """Wait for messages and return all of them; an empty list if the outbox is closed."""
        await self._ready.wait()
        pieces, self._pieces, self._size = self._pieces, [], 0
        if not self.is_closed:
            self._ready.clear()
        return pieces

    def close(self) -> None:
        """Take no more messages. Those that wait may be written for CLOSE_SECONDS; then the connection is aborted,
        for the client may never read them.
        """
        if not self.is_closed:
            self.is_closed = True
            self._abort_timer = asyncio.get_running_loop().call_later(CLOSE_SECONDS, self._abort)
            self._ready.set()

    def drop(self) -> None:
        """Close at once, without the messages that wait."""
        self._pieces, self._size = [], 0
        self.close()

    def written(self) -> None:
        """Note that all messages were written."""
        if self._abort_timer is not None:
            self._abort_timer.cancel()


GOING_AWAY, NOT_TEXT, EXPELLED = 1001, 1003, 1008
AUTHENTICATE = "authenticate"
FIRST_SECONDS = 5.0  # in which a page says who it is
FIRST_BYTES = 4096  # of the frame in which it does
NOBODY = Principal("a page that has not said who it is", scopes=frozenset())


class WebSocketConnection(Connection):
    """One WebSocket connection. MAP's connections override how frames are parsed and what carries them out."""

    def __init__(self, app: HttpApp, principal: Principal | None, scope: Scope, send: Send) -> None:
        super().__init__(app.executor)
        self._app = app
        self._send_event = send
        self._guard: WebSocketGuard = scope["state"][CONNECTION]
        self._outbox = Outbox(self._guard.abort)
        self._has_begun = asyncio.Event()  # set when all that was read was begun
        self.code, self.reason = GOING_AWAY, ""  # sent when this side ends the connection
        self.caller = self._open_caller(principal)

    def _open_caller(self, principal: Principal | None) -> RequestCaller:
        assert principal is not None  # noqa: S101 - /ws needs a token
        app = self._app
        return Caller(app.executor, app.broker, push=self.push, expel=self._on_expelled, principal=principal)

    def _parse(self, message: str) -> Request | None:
        try:
            return read_rpc(read_body(message, self._app.limits))
        except PostroomError as broken:
            return unreadable(str(broken))

    async def run(self, receive: Receive) -> None:
        reading = asyncio.ensure_future(self._read(receive))
        reading.add_done_callback(lambda _: self._outbox.close())
        try:
            with self._app.closing_with(self._outbox.close):
                await self._write()
        finally:
            reading.cancel()
            self.caller.close()  # so that no letter is handed to a client that is gone
        if reading.done() and not reading.cancelled():
            reading.result()

    async def _read(self, receive: Receive) -> None:
        """Read what the client sends, one message after the other, until it sends no more."""
        for number in itertools.count(1):
            message = await receive()
            if message["type"] == "websocket.disconnect":
                self._on_disconnect(message.get("code", 0))
                return
            self._guard.note_message()
            text: str | None = message.get("text")
            if text is None:
                self.code = NOT_TEXT
                return
            self._has_begun.clear()
            self._messages.append(text)
            self.begin_requests()
            await self._has_begun.wait()
            if number % TURN == 0:
                await asyncio.sleep(0)

    def _drained(self) -> None:
        self._has_begun.set()

    def _on_disconnect(self, code: int) -> None:
        """Note the code with which the client ended the connection, or uvicorn because of what it sent."""

    @property
    def _is_full(self) -> bool:
        return self._outbox.is_full

    def _send(self, replies: list[bytes]) -> None:
        for reply in replies:
            self._outbox.add(reply)

    # -- replies and notifications

    def push(self, notice: dict[str, Any]) -> bool:
        return self._outbox.has_room() and self._outbox.offer(encode(notice))

    def _on_expelled(self) -> None:
        self.code = EXPELLED
        self._outbox.drop()

    async def _write(self) -> None:
        while pieces := await self._outbox.take():
            mark = self._sent_mark()
            for piece in pieces:
                if self._guard.is_closing:
                    raise Disconnected
                await self._send_event({"type": "websocket.send", "text": piece.decode()})
            self._on_written(mark)
            self.begin_requests()
            if self._outbox.has_refused and not self._outbox.is_closed:
                self._outbox.has_refused = False
                self.caller.resume()

    async def send_close(self) -> None:
        """Send the closing frame. A client that does not take it in time is disconnected."""
        if not self._guard.is_closing:
            await self._send_event({"type": "websocket.close", "code": self.code, "reason": self.reason})
        self._outbox.written()

    def _sent_mark(self) -> int:
        """Return a number for the messages that are being written; MAP counts its deliveries by it."""
        return 0

    def _on_written(self, mark: int) -> None:
        """Note that the messages with this number were written."""


async def serve_frames(
    app: HttpApp,
    principal: Principal | None,
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    """Serve a WebSocket connection until either side ends it.

    Without a principal it is a page, which can set no header: its first frame says who it is.
    """
    await receive()  # websocket.connect
    await send({"type": "websocket.accept"})
    connection = WebSocketConnection(app, principal or NOBODY, scope, send)
    if principal is None:
        app.unknown += 1
        try:
            if not await _authenticated(app, connection, receive, send):
                connection.code, connection.reason = EXPELLED, "say first who you are"
                connection.caller.close()
                await connection.send_close()
                return
        finally:
            app.unknown -= 1
    await run_until_closed(connection, receive)


async def _authenticated(app: HttpApp, connection: WebSocketConnection, receive: Receive, send: Send) -> bool:
    """Carry out the first frame of a page, and return whether it has said who it is."""
    try:
        async with asyncio.timeout(FIRST_SECONDS):
            message = await receive()
    except TimeoutError:
        return False
    text = message.get("text")
    if message["type"] == "websocket.disconnect" or text is None or len(text) > FIRST_BYTES:
        return False
    try:
        request = read_rpc(read_body(text, app.limits))
    except PostroomError:
        return False
    if not isinstance(request, Call) or request.is_notification or request.method != AUTHENTICATE:
        return False
    reply = await connection.caller.carry_out(request)
    await send({"type": "websocket.send", "text": encode(reply).decode()})
    return "error" not in reply


async def run_until_closed(connection: WebSocketConnection, receive: Receive) -> None:
    await connection.run(receive)
    await connection.send_close()


# -- server-sent events


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
        await caller.subscribe(subscribe_params(scope["query_string"], scope["headers"]))
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
