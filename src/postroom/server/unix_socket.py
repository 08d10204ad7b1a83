"""The Unix socket: accepts callers, reads their lines, writes the replies in the order of the requests.

A caller that does not read its replies is not read from either, so that they take bounded memory; what waits for
all callers together is bounded, too (`UnixServer.note_unread`). A request is carried out even when its caller has
gone meanwhile; only waiting for mail ends with it.

`SocketPath` owns the path of the socket and its lock; `LineConnection` is one caller; `UnixServer` accepts them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import select
import socket
import stat
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ..errors import BadStore, NameTaken, NotAllowed
from ..formats.errors import socket_error
from ..model.codec import encode
from ..own_file import LockFile
from .callers import TURN, Caller, Connection
from .client import is_same_user
from .protocol import LineSplitter, largest_frame, read_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..map.server import MapServer
    from ..policy.limits import Limits
    from .broker import Broker
    from .executor import Executor
    from .protocol import Request


class HangupWatch:
    """Calls `gone` when the other side of a half-closed connection is closed: after the end of the stream was
    read, asyncio reports none. Without epoll it is noticed at the next write instead. The loop watches the same
    socket, so this needs a descriptor of its own.
    """

    def __init__(self, transport: asyncio.Transport, gone: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._poll = select.epoll() if hasattr(select, "epoll") else None
        if self._poll is not None:
            self._poll.register(transport.get_extra_info("socket"), 0)  # no events: a hangup is always reported
            self._loop.add_reader(self._poll.fileno(), self._on_hangup, gone)

    def _on_hangup(self, gone: Callable[[], None]) -> None:
        self.close()  # once: it stays closed
        gone()

    def close(self) -> None:
        if self._poll is not None:
            self._loop.remove_reader(self._poll.fileno())
            self._poll.close()
            self._poll = None


log = logging.getLogger("postroom")
MAX_PATH_BYTES = 107  # of a socket's path, by the kernel
BACKLOG = 512


class SocketPath:
    """The path of a socket, locked while the server runs, so that two servers never share one.

    The holder of the lock file next to the socket may bind it, and remove a socket that a dead server left.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        if len(os.fsencode(self.path)) > MAX_PATH_BYTES:
            text = f"{self.path} is longer than a socket's path may be"
            raise BadStore(text, field="socket", hint="name a shorter one: --socket PATH")
        self._lock = LockFile(f"{self.path}.lock")

    def take(self) -> socket.socket:
        """Lock the path, and return the bound socket, which only its owner can open."""
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            if (holder := self._lock.take()) is not None:
                text = f"{holder} serves {self.path} already"
                hint = "stop it first, or choose another --socket"
                raise NameTaken(text, field="socket", hint=hint)  # noqa: TRY301 - nothing is locked
            self._lock.write(f"process {os.getpid()}")
            self._clear()
            return self._bind()
        except OSError as error:
            self.leave()
            raise BadStore(f"cannot listen at {self.path}: {error.strerror}", field="socket") from error
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """Remove the socket, then release the lock."""
        if self._lock.is_held:
            self._clear()
            self._lock.leave()

    def _clear(self) -> None:
        """Remove the socket of a dead server: we hold the lock. Anything else at the path is not
        ours to remove.
        """
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(found.st_mode):
            raise BadStore(
                f"{self.path} exists and is not a socket", field="socket", hint="choose another --socket"
            )
        # An agent-inbox daemon does not take our lock. Its socket would be removed under its feet.
        if _is_served(self.path):
            text = f"another program serves {self.path} already"
            raise NameTaken(
                text, field="socket", hint="an agent-inbox daemon? stop it, or choose another --socket"
            )
        os.unlink(self.path)

    def _bind(self) -> socket.socket:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)  # so that the socket is never open to other users, not even for a moment
        try:
            listening.bind(self.path)
        except BaseException:
            listening.close()
            raise
        finally:
            os.umask(before)
        listening.listen(BACKLOG)
        listening.setblocking(False)
        return listening


def _is_served(path: str) -> bool:
    """Return whether a program that does not know our lock listens at this socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knock:
        knock.settimeout(1)
        try:
            knock.connect(path)
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
        return True


MAX_UNREAD_BYTES = 32 * 1024 * 1024  # of replies that wait for their readers
MAX_PACKET = 64 * 1024  # after more bytes at once the others get their turn before more is read


class LineConnection(Connection, asyncio.Protocol):
    """One connection at the socket."""

    def __init__(self, server: UnixServer) -> None:
        super().__init__(server.executor)
        self._server = server
        self._splitter = LineSplitter(largest_frame(server.limits))
        self._transport: asyncio.Transport | None = None
        self._is_served = False  # does it belong to the user of the post room?
        self._is_unread = False  # does the client not read its replies?
        self._is_ended = False  # has it sent its last line, or does the server stop?
        self._is_paused = False  # is it not read from just now?
        self._hangup_watch: HangupWatch | None = None
        self._parse_line: Callable[[bytes | None], Request | None] = self._parse_first

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # of a stream
        peer = transport.get_extra_info("socket")
        self._server.enter(self, peer.fileno())
        if not is_same_user(peer):
            # The mode of the socket keeps others out. This also holds where the file system knows no modes (G8).
            self._send([encode(socket_error(NotAllowed("this socket serves the user who runs the post room")))])
            transport.close()
            return
        self.caller = self._server.open_caller(self.push, self.abort)
        self._is_served = True

    def data_received(self, data: bytes) -> None:
        if self._is_served:
            # While more lines wait than one turn begins, nothing is read: a client that only writes fills nothing.
            self._messages += self._splitter.feed(data)
            if len(self._messages) > TURN or len(data) > MAX_PACKET:
                self._pause_reading()
                self._rest()
            self.begin_requests()

    def eof_received(self) -> bool:
        """Answer the last lines though the client has closed its side of the connection."""
        # `echo ... | nc -U` closes its side at once, and still waits for the answer.
        self._is_ended = True
        self._messages += self._splitter.last()
        self._watch_hangup()
        self.begin_requests()
        return True

    def _watch_hangup(self) -> None:
        """Notice a hangup while nothing is read: a letter must not be handed to a client that is gone."""
        if self._hangup_watch is None and self._transport is not None and self._is_served:
            self._hangup_watch = HangupWatch(self._transport, self._give_up)

    def _give_up(self) -> None:
        if isinstance(self.caller, Caller):  # messages of MAP without a receipt stay unread anyway
            self.caller.give_up()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - for whatever reason
        self._transport = None
        self._is_ended = True
        if self._hangup_watch is not None:
            self._hangup_watch.close()
        self._server.go(self)
        self._is_unread = False
        if self._is_served:
            self.caller.close()
            self.begin_requests()  # those that came before are carried out all the same

    @property
    def unsent(self) -> int:
        """Bytes of replies that wait for the client to read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def pause_writing(self) -> None:
        self._is_unread = True
        self._server.note_unread(self)

    def resume_writing(self) -> None:
        self._is_unread = False
        self._server.unread.pop(self, None)
        if self._is_served:
            self.caller.resume()
            self.begin_requests()

    # -- requests

    def _drained(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._is_ended:
            if not self._replies:
                self._transport.close()
        elif self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    def _pause_reading(self) -> None:
        """Stop reading: a connection is read only while its lines can be processed."""
        if not self._is_paused and self._transport is not None and not self._transport.is_closing():
            self._is_paused = True
            self._transport.pause_reading()
            self._watch_hangup()

    def _parse(self, message: bytes | None) -> Request | None:
        return self._parse_line(message)

    def _parse_first(self, line: bytes | None) -> Request | None:
        """Choose by the first line whether this connection speaks MAP from now on, and parse it."""
        # MAP and our own words share one socket: the first line decides, so that clients need no second path.
        map_server = self._server.map_server
        map_connection = None if map_server is None else map_server.speak_lines(self, line)
        if map_connection is None:
            self._parse_line = partial(read_line, limits=self._server.limits)
        else:
            self.caller.close()
            self.caller, self._parse_line = map_connection, map_connection.read
        return self._parse_line(line)

    # -- replies

    @property
    def _is_full(self) -> bool:
        return self._is_unread

    def _send(self, replies: list[bytes]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"\n".join([*replies, b""]))

    def push(self, notice: dict[str, Any]) -> bool:
        """Send a notification. Return False if the client does not read; its caller is resumed when it does."""
        if self._is_unread or self._transport is None or self._transport.is_closing():
            return False
        self._send([encode(notice)])
        return True

    def end(self) -> None:
        """Close the connection once the requests under way are answered: the server stops."""
        self._is_ended = True
        self._messages.clear()
        self._next = None
        self.begin_requests()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


STOP_SECONDS = 0.7  # for calls under way when the server stops
WARN_SECONDS = 60.0  # between two warnings that no more connections can be opened


class UnixServer:
    """Accepts callers at one Unix socket."""

    def __init__(self, executor: Executor, broker: Broker, path: str, map_server: MapServer | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.limits: Limits = executor.core.limits
        self.socket_path = SocketPath(path)
        self.connections: set[LineConnection] = set()
        self.executor = executor
        self._broker = broker
        self.map_server = map_server  # for connections that speak MAP
        self._listening: asyncio.Server | None = None
        self._all_gone = asyncio.Event()  # no connection is open
        self.unread: dict[LineConnection, None] = {}  # connections whose callers do not read, the longest first
        self._warned_at = -WARN_SECONDS  # when, by the loop's time

    async def start(self) -> None:
        listening = self.socket_path.take()
        self._listening = await self.loop.create_unix_server(
            lambda: LineConnection(self),
            sock=listening,
            backlog=BACKLOG,  # asyncio calls listen again
        )

    async def stop(self) -> None:
        """Accept no more callers, answer calls under way for STOP_SECONDS, then close all connections."""
        if self._listening is not None:
            self._listening.close()
        for connection in list(self.connections):
            connection.end()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS if self.connections else 0):
                await self._all_gone.wait()
        for connection in list(self.connections):
            connection.abort()
        self.socket_path.leave()

    def enter(self, connection: LineConnection, handle: int) -> None:
        self.connections.add(connection)
        self._all_gone.clear()
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if handle == most - 1 and self.loop.time() - self._warned_at >= WARN_SECONDS:
            self._warned_at = self.loop.time()
            log.warning(
                "all %d file handles are in use, and new connections are refused: "
                "raise the limit (ulimit -n), or let callers close their connections",
                most,
            )

    def note_unread(self, connection: LineConnection) -> None:
        """Note that a caller does not read. While too much waits, the longest of those who do not are cut off."""
        self.unread[connection] = None
        while len(self.unread) > 1 and sum(one.unsent for one in self.unread) > MAX_UNREAD_BYTES:
            log.warning("a caller that does not read its replies was disconnected")
            first = next(iter(self.unread))
            del self.unread[first]
            first.abort()

    def go(self, connection: LineConnection) -> None:
        self.connections.discard(connection)
        self.unread.pop(connection, None)
        if not self.connections:
            self._all_gone.set()

    def open_caller(self, push: Callable[[dict[str, Any]], bool], expel: Callable[[], None]) -> Caller:
        return Caller(self.executor, self._broker, push=push, expel=expel)
