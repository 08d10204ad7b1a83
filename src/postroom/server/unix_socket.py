"""Has a caller that says no more hung up, or only half closed? After the end was read, asyncio does not tell."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import resource
import select
import socket
import stat
import struct
from collections import deque
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from ..errors import BadStore, NameTaken, NotAllowed
from ..formats.errors import socket_error
from ..model.codec import encode
from .callers import Caller
from .executor import ReplyQueue
from .protocol import ROOM_FOR_MORE, Lines, Request, read_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from ..map.lines import MapLines
    from ..map.server import MapServer
    from ..policy.limits import Limits
    from .broker import Broker
    from .executor import Executor, JobFuture


class Hangup:
    """Calls `gone` when the other side is closed. Without epoll, that is noticed at the next write instead.
    It watches a socket that the loop watches itself, so it needs a descriptor of its own.
    """

    def __init__(self, transport: asyncio.Transport, gone: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._poll = select.epoll() if hasattr(select, "epoll") else None
        if self._poll is not None:
            self._poll.register(transport.get_extra_info("socket"), 0)  # nothing: that it is closed is always told
            self._loop.add_reader(self._poll.fileno(), self._hear, gone)

    def _hear(self, gone: Callable[[], None]) -> None:
        self.close()  # once: it stays closed
        gone()

    def close(self) -> None:
        if self._poll is not None:
            self._loop.remove_reader(self._poll.fileno())
            self._poll.close()
            self._poll = None


# Staying awake for a caller who comes back at once.
#
# A thread that sleeps until the next line comes wakes late, and to cold caches: a seventh of a small call. So who
# said its last line within a moment of an answer is waited for as long, awake; who did not costs nothing. Other
# threads, and whoever else wants this processor, get their turn meanwhile.

MOMENT = 0.0002  # seconds


class Lingering:
    """For one caller, by the descriptor of its connection."""

    def __init__(self, descriptor: int) -> None:
        self._ear = select.poll()
        self._ear.register(descriptor, select.POLLIN)
        self._answered = 0.0
        self._is_quick = False  # did it come back at once?

    def hear(self) -> None:
        """It has said something."""
        self._is_quick = perf_counter() < self._answered + MOMENT

    def linger(self) -> None:
        """It was answered: if it is quick, until it says more, for a moment. What it says is left to the loop."""
        self._answered = perf_counter()
        if not self._is_quick:
            return
        end, has_come = self._answered + MOMENT, self._ear.poll
        while not has_come(0) and perf_counter() < end:
            os.sched_yield()


# Callers that do not read their replies: what waits for all of them together stays bounded.
#
# What may be large is begun a few at a time, and not while too much waits already. Who then has read nothing for
# a
# while is cut off. Large lines, too, are looked at a few at a time.

log = logging.getLogger("postroom")
AT_ONCE = 4  # calls whose replies may be large; and large lines
MOST = 64 * 1024 * 1024  # bytes of replies that wait for their readers, and those that are begun
PATIENCE = 5.0  # seconds for who reads nothing, while others wait because of it


class Unread:
    """Of one socket."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._begun = 0  # calls under way whose replies may be large
        self._looked = 0  # large lines under way
        self._full: set[Connection] = set()
        self._waiting: dict[Connection, None] = {}  # in the order they came

    @property
    def has_room(self) -> bool:
        """May something large be begun?"""
        return self._begun < AT_ONCE and not (self._full and self._is_too_much)

    @property
    def _is_too_much(self) -> bool:
        return sum(connection.unsent for connection in self._full) > MOST

    def begin(self, large: JobFuture) -> None:
        self._begun += 1
        large.add_done_callback(self._end)

    @property
    def may_look(self) -> bool:
        """May a large line be looked at?"""
        return self._looked < AT_ONCE

    def looked(self, line: JobFuture) -> None:
        self._looked += 1
        line.add_done_callback(self._end_look)

    def _end_look(self, _: JobFuture) -> None:
        self._looked -= 1
        self._wake()

    def _end(self, _: JobFuture) -> None:
        self._begun -= 1
        self._wake()

    def wait(self, connection: Connection) -> None:
        """It goes on when there is room."""
        self._waiting[connection] = None

    def filled(self, connection: Connection) -> None:
        self._full.add(connection)
        self._loop.call_later(PATIENCE, self._look_at, connection, connection.unsent)

    def emptied(self, connection: Connection) -> None:
        """It reads, or is gone."""
        self._full.discard(connection)
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for other in waiting:
            self._loop.call_soon(other.go_on)

    def _look_at(self, connection: Connection, before: int) -> None:
        if connection not in self._full:
            return
        now = connection.unsent
        if self._is_too_much and now >= before:
            log.warning("a caller that reads none of its replies was cut off")
            connection.cut()
        else:
            self._wake()  # some of it was read: there may be room by now
            self._loop.call_later(PATIENCE, self._look_at, connection, now)


# Where a socket stands, and whose it is. Two daemons never share one, and what a dead one left behind is cleared.
#
# Beside the socket lies a lock file. Whoever holds its lock may bind; so a socket is removed only when nobody can
# be
# behind it. The lock file stays: removing it would let two hold two of them.

LONGEST = 107  # bytes of a socket's path that the kernel takes
BACKLOG = 512


class Place:
    """A socket's place, held while the daemon lives."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        if len(os.fsencode(self.path)) > LONGEST:
            text = f"{self.path} is longer than a socket's path may be"
            raise BadStore(text, field="socket", hint="name a shorter one: --socket PATH")
        self._lock = -1

    def take(self) -> socket.socket:
        """The bound socket, for its owner alone."""
        folder = os.path.dirname(self.path)
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            self._hold()
            self._clear()
            return self._bind()
        except OSError as error:
            self.leave()
            raise BadStore(f"cannot listen at {self.path}: {error.strerror}", field="socket") from error
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """The socket goes first, the lock last."""
        if self._lock >= 0:
            self._clear()
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def _hold(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(f"{self.path}.lock", flags, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(lock)
            text = f"process {holder} serves {self.path} already"
            raise NameTaken(text, field="socket", hint="stop it first, or choose another --socket") from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        self._lock = lock

    def _clear(self) -> None:
        """Nobody is behind it: we hold the lock. Anything but a socket is somebody's file."""
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(found.st_mode):
            raise BadStore(
                f"{self.path} is there and is no socket", field="socket", hint="choose another --socket"
            )
        if _answers(self.path):
            text = f"somebody serves {self.path} already, and not by our rules"
            raise NameTaken(
                text, field="socket", hint="an agent-inbox daemon? stop it, or choose another --socket"
            )
        os.unlink(self.path)

    def _bind(self) -> socket.socket:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)  # never open to others, not even for a moment
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


def _answers(path: str) -> bool:
    """Is there a living process behind this socket that does not know of our lock?"""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knock:
        knock.settimeout(1)
        try:
            knock.connect(path)
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
        return True


# One caller at the socket: what it says, line by line, and the replies in the order of what was said.
#
# A caller that does not read is not read from either, so that its replies take bounded memory; one that says much
# is
# heard for a moment, then the others are. What was said is carried out even when the caller has gone meanwhile;
# only
# waiting for mail ends with it.

TURN = 0.005  # seconds for which one caller is heard; then others get their turn
MUCH = 64 * 1024  # bytes that came at once: others get their turn before more is read
LARGE = 64 * 1024  # bytes of a line that may be many times as large in memory
_CREDENTIALS = struct.Struct("iII")  # pid, uid, gid


class Connection(asyncio.Protocol):
    """One caller."""

    def __init__(self, server: UnixServer) -> None:
        self._server = server
        self._lines = Lines(server.limits.max_message_bytes + ROOM_FOR_MORE)
        self._waiting: deque[bytes | None] = deque()  # lines that came, and were not looked at
        self._next: Request | dict[str, Any] | None = None  # what was looked at, and not begun
        self._size = 0  # of the line that was looked at last
        self._owing = ReplyQueue(self._carry_out, self._settle)
        self._unsent: list[bytes] = []  # replies that were not written yet
        self._transport: asyncio.Transport | None = None
        self._is_full = False  # does the caller not read its replies?
        self._is_ended = False  # will it say no more?
        self._is_resting = False  # is it not read from just now?
        self._is_over = False  # is its turn over for now?
        self._hangup: Hangup | None = None
        self._lingering: Lingering | None = None
        self.caller: Caller | MapLines | None = None
        self._read: Callable[[bytes | None], Request | dict[str, Any] | None] = self._first

    # -- what the loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # of a stream
        self._transport = transport
        peer = transport.get_extra_info("socket")
        self._server.enter(self, peer.fileno())
        if not _is_ours(peer):
            self._write(socket_error(NotAllowed("this socket serves the user who runs the post room")))
            self._flush()
            transport.close()
            return
        self._lingering = Lingering(peer.fileno())
        self.caller = self._server.open_caller(self.push, self.cut)

    def data_received(self, data: bytes) -> None:
        if self.caller is None or self._lingering is None:
            return
        self._lingering.hear()
        self._waiting += self._lines.feed(data)
        self._server.executor.hear_out(self.caller, self.go_on)
        if len(data) > MUCH:
            self._end_turn()
            self._breathe()
        if not (self._owing or self._is_over) and self._server.executor.has_only(self.caller):
            self._lingering.linger()

    def eof_received(self) -> bool:
        """The caller may have half closed; what it said last is still answered."""
        self._is_ended = True
        self._waiting += self._lines.last()
        self.go_on()
        self._end_if_done()
        self._listen_for_hangup()
        return True

    def _listen_for_hangup(self) -> None:
        """The loop does not hear of it while nothing is read, and a letter is not handed to nobody."""
        transport, caller = self._transport, self.caller
        if self._hangup is None and transport is not None and caller is not None:
            self._hangup = Hangup(transport, caller.give_up)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - it is gone, whyever
        self._transport = None
        if self._hangup is not None:
            self._hangup.close()
        self._server.go(self)
        self._server.unread.emptied(self)
        if self.caller is not None:
            self.caller.close()
        self._is_full = False
        self.go_on()  # what it said is carried out all the same

    @property
    def unsent(self) -> int:
        """Bytes of replies that wait for the caller to read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def pause_writing(self) -> None:
        self._is_full = True
        self._server.unread.filled(self)
        self._breathe()

    def resume_writing(self) -> None:
        self._is_full = False
        self._server.unread.emptied(self)
        if self.caller is not None:
            self.caller.resume()
        self.go_on()

    # -- carrying out

    def go_on(self) -> None:
        """Begin what can be begun, in order."""
        end = perf_counter() + TURN
        while not (self._is_full or self._is_over) and (self._waiting or self._next is not None):
            if perf_counter() > end:
                self._end_turn()
                break
            request = self._next
            if request is None:
                if not self._may_look():
                    break
                request = self._look()
            if request is None:  # it answers us
                continue
            if not self._owing.has_room(request) or self._must_wait(request):
                self._next = request
                break
            self._next = None
            self._owing.begin(request, self._size)
        self._breathe()

    def _end_turn(self) -> None:
        """Until the next round of the loop, in which others are heard, too."""
        if not self._is_over:
            self._is_over = True
            self._server.loop.call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._is_over = False
        self.go_on()
        self._end_if_done()

    def _may_look(self) -> bool:
        """May the next line be looked at? Not many large ones at once, of this caller and of all."""
        line = self._waiting[0]
        if line is None or len(line) <= LARGE:
            return True
        return self._owing.may_hear(len(line)) and not self._must_wait_for(self._server.unread.may_look)

    def _look(self) -> Request | dict[str, Any] | None:
        line = self._waiting.popleft()
        self._size = 0 if line is None else len(line)
        return self._read(line)

    def _first(self, line: bytes | None) -> Request | dict[str, Any] | None:
        """In which dialect it speaks from now on."""
        map_server = self._server.map_server
        map_lines = None if map_server is None else map_server.speak_lines(self, line)
        if map_lines is None or self.caller is None:
            self._read = self._later
        else:
            self.caller.close()
            self.caller, self._read = map_lines, map_lines.read
        return self._read(line)

    def _later(self, line: bytes | None) -> Request | dict[str, Any]:
        return read_line(line, self._server.limits)

    def _must_wait(self, request: Request | dict[str, Any]) -> bool:
        """Is so much owed to those who do not read that nothing large may be begun for anybody who is here?"""
        return (
            isinstance(request, Request) and request.is_large and self._must_wait_for(self._server.unread.has_room)
        )

    def _must_wait_for(self, room: bool) -> bool:
        if room or self._transport is None:
            return False
        self._server.unread.wait(self)
        return True

    def _breathe(self) -> None:
        """Read on only while there is room."""
        must_rest = self._is_full or self._is_over or self._next is not None or bool(self._waiting)
        if must_rest is self._is_resting or self._transport is None or self._is_ended:
            return
        if self._transport.is_closing():
            return
        self._is_resting = must_rest
        if must_rest:
            self._transport.pause_reading()
            self._listen_for_hangup()
        else:
            self._transport.resume_reading()

    def _carry_out(self, request: Request) -> JobFuture:
        assert self.caller is not None  # noqa: S101 - who is nobody is not read from
        owed = self.caller.carry_out(request)
        if request.is_large and not owed.done():
            self._server.unread.begin(owed)
        if self._size > LARGE and not owed.done():
            self._server.unread.looked(owed)
        return owed

    def _settle(self) -> None:
        """Write the replies that are there, as far as they are in order."""
        for reply in self._owing.take():
            self._write(reply)
        if self._owing:  # more may follow in this very moment
            self._server.loop.call_soon(self._flush)
        else:
            self._flush()
        if self.caller is not None:
            self.caller.replies_sent()
        if self._waiting or self._next is not None:
            self._server.loop.call_soon(self.go_on)
        else:
            self._breathe()
        self._end_if_done()

    # -- replying

    def _write(self, reply: Any) -> None:
        """With the next flush: what is told together takes one call of the system."""
        line = encode(reply) + b"\n"
        self._owing.note_size(len(line))
        self._unsent.append(line)

    def _flush(self) -> None:
        lines, self._unsent = self._unsent, []
        if lines and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(lines))

    def push(self, notice: dict[str, Any]) -> bool:
        """Something nobody asked for just now. False: the caller does not read; try again when it does."""
        if self._is_full or self._transport is None or self._transport.is_closing():
            return False
        self._write(notice)
        self._flush()
        return True  # it is taken, and may be the last for now

    def _end_if_done(self) -> None:
        if not self._is_ended or self._transport is None:
            return
        if not self._waiting and self._next is None and not self._owing:
            self._flush()
            self._transport.close()

    def end(self) -> None:
        """The daemon stops. What is under way is answered first."""
        self._is_ended = True
        self._waiting.clear()
        self._next = None
        self._end_if_done()

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _is_ours(peer: socket.socket) -> bool:
    """Is the caller the user we run as, or root? Where the system does not tell, the socket's mode has decided."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    _, user, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return user in {os.geteuid(), 0}


# Accepts callers at one socket, and ends in good order.

GRACE = 0.7  # seconds for what is under way when the daemon stops
TELL_AGAIN = 60.0  # seconds until it is said once more that nobody else fits in


class UnixServer:
    """One socket."""

    def __init__(self, executor: Executor, broker: Broker, path: str, map_server: MapServer | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.limits: Limits = executor.room.settings
        self.place = Place(path)
        self.connections: set[Connection] = set()
        self.executor = executor
        self._broker = broker
        self.map_server = map_server  # of those who speak MAP
        self._listening: asyncio.Server | None = None
        self._gone = asyncio.Event()  # nobody is here any more
        self.unread = Unread(self.loop)
        self._told_full = -TELL_AGAIN  # when, by the loop's time

    async def start(self) -> None:
        listening = self.place.take()
        self._listening = await self.loop.create_unix_server(
            lambda: Connection(self),
            sock=listening,
            backlog=BACKLOG,  # it listens again, with its own number
        )

    async def stop(self) -> None:
        """Nobody new; what is under way is answered, for a moment; then everybody goes."""
        if self._listening is not None:
            self._listening.close()
        for connection in list(self.connections):
            connection.end()
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE if self.connections else 0):
                await self._gone.wait()
        for connection in list(self.connections):
            connection.cut()
        self.place.leave()

    def enter(self, connection: Connection, handle: int) -> None:
        self.connections.add(connection)
        self._gone.clear()
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if handle == most - 1 and self.loop.time() - self._told_full >= TELL_AGAIN:
            self._told_full = self.loop.time()
            log.warning(
                "all %d handles for open files are taken, and newcomers are turned away: "
                "raise the limit (ulimit -n), or let callers close their connections",
                most,
            )

    def go(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if not self.connections:
            self._gone.set()

    def open_caller(self, push: Callable[[dict[str, Any]], bool], expel: Callable[[], None]) -> Caller:
        return Caller(self.executor, self._broker, push=push, expel=expel)
