"""MAP in lines of JSON, on the same socket: a connection whose first line is `map/connect`, or another system's
`map/federation/connect`, speaks MAP from then on.

So agentic-mesh frames it, with its dotted names. Behind each message that is handed over goes a question,
`map/ping`: its answer is the receipt, for a program answers it after it has read the lines before it. An error is
as good an answer as any; so say those who do not know the word.

Whoever can open the socket is the user who runs the post room, and needs no token, as in the other dialects there;
one that shows a token is let in by that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ..core.authorize import SOCKET
from ..formats.map import CONNECT, MEET, spellings
from .connection import Talk
from .session import unreadable

if TYPE_CHECKING:
    from ..server.executor import JobFuture
    from ..server.protocol import Request
    from ..server.unix_socket import Connection
    from .server import MapServer


_FIRST = frozenset({CONNECT, *spellings(MEET)})
_WORDS = tuple(word.encode() for word in _FIRST)


def first_word(line: bytes | None) -> dict[str, Any] | None:
    """What is said with it, if this line says one of those."""
    if line is None or not any(word in line for word in _WORDS):
        return None
    try:
        args = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(args, dict) or args.get("method") not in _FIRST:
        return None
    params = args.get("params")
    return params if isinstance(params, dict) else {}


class MapLines:
    """Speaks in the place of the connection's caller."""

    def __init__(self, connection: Connection, map_server: MapServer, params: dict[str, Any]) -> None:
        self._connection = connection
        self._talk = Talk(map_server, self, None if params.get("auth") else SOCKET, is_near=True)

    def read(self, line: bytes | None) -> Request | dict[str, Any] | None:
        if line is None:
            return self._talk.refuse(unreadable("this line is too long"))
        return self._talk.read(line)

    # -- as the caller of a connection

    def carry_out(self, request: Request) -> JobFuture:
        return self._talk.carry_out(request)

    def resume(self) -> None:
        """There is room: for the question that found none, then for more."""
        talk = self._talk
        question = talk.sign(talk.sent_count) if talk.signed < talk.sent_count else None
        if question is not None and self._connection.push(question):
            talk.signed = talk.sent_count
        talk.resume()

    def replies_sent(self) -> None:
        self._talk.replies_sent()

    def give_up(self) -> None:
        """Nobody reads any more. What was handed over has no receipt: that is for the end."""

    def close(self) -> None:
        self._talk.close()

    # -- as the rim of a talk

    def push(self, notice: dict[str, Any]) -> bool:
        return self._connection.push(notice)

    def end(self, code: int, reason: str = "", *, at_once: bool) -> None:  # noqa: ARG002 - lines have no codes
        if at_once:
            self._connection.cut()
        else:
            self._connection.end()
