"""MAP on the Unix socket, one JSON message in each line.

A connection whose first line is `map/connect`, or another system's `map/federation/connect`, speaks MAP from then
on. agentic-mesh does so, with its dotted method names. Behind each message to an agent goes `map/ping`: its answer
is the receipt, for a program answers it after it has read the lines before it. An error is as good an answer as
any.

A program that can open the socket belongs to the user who runs the post room, and needs no token; one that shows a
token is admitted by that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ..core.authorize import SOCKET
from ..formats.map import CONNECT, MEET, spellings
from .connection import MapConnection
from .session import unreadable

if TYPE_CHECKING:
    import asyncio

    from ..server.protocol import Request
    from ..server.unix_socket import Connection
    from .server import MapServer


_OPENING = frozenset({CONNECT, *spellings(MEET)})
_OPENING_BYTES = tuple(word.encode() for word in _OPENING)


def opening_params(line: bytes | None) -> dict[str, Any] | None:
    """Return the parameters of a line that opens MAP; None: it is some other line."""
    if line is None or not any(word in line for word in _OPENING_BYTES):
        return None
    try:
        args = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(args, dict) or args.get("method") not in _OPENING:
        return None
    params = args.get("params")
    return params if isinstance(params, dict) else {}


class MapLines:
    """One MAP connection on the Unix socket, in the place of the connection's caller."""

    def __init__(self, connection: Connection, map_server: MapServer, params: dict[str, Any]) -> None:
        self._connection = connection
        self._conn = MapConnection(map_server, self, None if params.get("auth") else SOCKET, is_near=True)

    def read(self, line: bytes | None) -> Request | dict[str, Any] | None:
        if line is None:
            return self._conn.refuse(unreadable("this line is too long"))
        return self._conn.read(line)

    # -- as the caller of a connection

    def carry_out(self, request: Request) -> asyncio.Future[Any]:
        return self._conn.carry_out(request)

    def resume(self) -> None:
        """Go on: first with the ping that found no room, then with more messages."""
        agents = self._conn.agents
        ping = agents.ping(agents.sent_count) if agents.pinged_up_to < agents.sent_count else None
        if ping is not None and self._connection.push(ping):
            agents.pinged_up_to = agents.sent_count
        self._conn.resume()

    def replies_sent(self) -> None:
        self._conn.replies_sent()

    def give_up(self) -> None:
        """Do nothing: messages without a receipt stay unread, which `close` sees to."""

    def close(self) -> None:
        self._conn.close()

    # -- as the transport of a MapConnection

    def push(self, notice: dict[str, Any]) -> bool:
        return self._connection.push(notice)

    def end(self, code: int, reason: str = "", *, at_once: bool) -> None:  # noqa: ARG002 - lines have no codes
        if at_once:
            self._connection.abort()
        else:
            self._connection.end()
