"""The client of the Unix socket: one connection per call, so that the server may restart in between."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

from ..errors import Busy
from ..formats.errors import result_of
from ..model.codec import encode
from .protocol import PREFIX, own_verb

if TYPE_CHECKING:
    from collections.abc import Mapping


PATIENCE = 5.0  # seconds for a server that is just starting
PAUSE = 0.1  # seconds between two tries to connect
SLACK = 30.0  # seconds for an answer, besides the time that the call itself waits
_CREDENTIALS = struct.Struct("iII")  # pid, uid, gid
_LONGEST_LINE = 256 * 2**20  # bytes of an answer: many letters


class SocketClient:
    """Calls verbs of a running post room."""

    def __init__(self, path: str, *, token: str = "", patience: float = PATIENCE) -> None:
        self.path = path
        self._token = token
        self._patience = patience

    async def call(self, name: str, params: Mapping[str, Any]) -> Any:
        """Carry out a verb and return its result; an error of the server is raised here."""
        reader, writer = await self._connect()
        try:
            writer.write(self._lines(name, params))
            await writer.drain()
            async with asyncio.timeout(_seconds(params)):
                if self._token:
                    result_of(await reader.readline())
                return result_of(await reader.readline())
        except (OSError, ValueError, TimeoutError) as broken:
            raise _gone(self.path, broken) from broken
        finally:
            writer.close()

    def ask(self, name: str, params: Mapping[str, Any]) -> Any:
        """Like `call`, for a thread without an event loop."""
        return asyncio.run(self.call(name, params))

    def _lines(self, name: str, params: Mapping[str, Any]) -> bytes:
        login = encode({"action": "authenticate", "token": self._token}) + b"\n" if self._token else b""
        # In JSON-RPC: agent-inbox's actions of the same name return less.
        method = PREFIX + name if own_verb(name) is not None else name
        if "/" in method:
            request: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": method, "params": dict(params)}
        else:
            request = {"action": name, **params}
        return login + encode(request) + b"\n"

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        end = time.monotonic() + self._patience
        while True:
            try:
                return await asyncio.open_unix_connection(self.path, limit=_LONGEST_LINE)
            except OSError as away:
                is_starting = isinstance(away, FileNotFoundError | ConnectionRefusedError)
                if not is_starting or time.monotonic() >= end:
                    raise _gone(self.path, away) from away
            await asyncio.sleep(PAUSE)


def _seconds(params: Mapping[str, Any]) -> float:
    waits = params.get("timeout", 30)
    return SLACK + (waits if isinstance(waits, int | float) else 0)


def _gone(path: str, why: Exception) -> Busy:
    text = f"no post room answers at {path}: {str(why) or type(why).__name__}"
    return Busy(text, field="socket", hint="postroom serve starts one")


def is_same_user(peer: socket.socket) -> bool:
    """Return whether the other end is the user of this process, or root.

    Where the system cannot report it, the mode of the socket has decided.
    """
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    _, user, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return user in {os.geteuid(), 0}
