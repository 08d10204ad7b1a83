"""One caller at the socket: what it says, line by line, and the replies in the order of what was said.

A caller that does not read is not read from either, so that its replies take bounded memory; one that says much is
heard for a moment, then the others are. What was said is carried out even when the caller has gone meanwhile; only
waiting for mail ends with it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from ..errors import NotAllowed
from ..model.codec import encode
from ..owing import Owing
from ..wire.lines import Lines
from ..wire.problems import socket_error
from ..wire.session import ROOM_FOR_MORE, Asked, read_line
from .hangup import Hangup
from .lingering import Lingering

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..callers import Caller
    from ..outcome import Outcome
    from .map_lines import MapLines
    from .server import Server

TURN = 0.005  # seconds for which one caller is heard; then others get their turn
MUCH = 64 * 1024  # bytes that came at once: others get their turn before more is read
LARGE = 64 * 1024  # bytes of a line that may be many times as large in memory
_CREDENTIALS = struct.Struct("iII")  # pid, uid, gid


class Connection(asyncio.Protocol):
    """One caller."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._lines = Lines(server.limits.max_message_bytes + ROOM_FOR_MORE)
        self._waiting: deque[bytes | None] = deque()  # lines that came, and were not looked at
        self._next: Asked | dict[str, Any] | None = None  # what was looked at, and not begun
        self._size = 0  # of the line that was looked at last
        self._owing = Owing(self._carry_out, self._settle)
        self._unsent: list[bytes] = []  # replies that were not written yet
        self._transport: asyncio.Transport | None = None
        self._is_full = False  # does the caller not read its replies?
        self._is_ended = False  # will it say no more?
        self._is_resting = False  # is it not read from just now?
        self._is_over = False  # is its turn over for now?
        self._hangup: Hangup | None = None
        self._lingering: Lingering | None = None
        self.caller: Caller | MapLines | None = None
        self._read: Callable[[bytes | None], Asked | dict[str, Any] | None] = self._first

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
        self._server.desk.hear_out(self.caller, self.go_on)
        if len(data) > MUCH:
            self._end_turn()
            self._breathe()
        if not (self._owing or self._is_over) and self._server.desk.has_only(self.caller):
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
            asked = self._next
            if asked is None:
                if not self._may_look():
                    break
                asked = self._look()
            if asked is None:  # it answers us
                continue
            if not self._owing.has_room(asked) or self._must_wait(asked):
                self._next = asked
                break
            self._next = None
            self._owing.begin(asked, self._size)
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

    def _look(self) -> Asked | dict[str, Any] | None:
        line = self._waiting.popleft()
        self._size = 0 if line is None else len(line)
        return self._read(line)

    def _first(self, line: bytes | None) -> Asked | dict[str, Any] | None:
        """In which dialect it speaks from now on."""
        reception = self._server.reception
        map_lines = None if reception is None else reception.speak_lines(self, line)
        if map_lines is None or self.caller is None:
            self._read = self._later
        else:
            self.caller.close()
            self.caller, self._read = map_lines, map_lines.read
        return self._read(line)

    def _later(self, line: bytes | None) -> Asked | dict[str, Any]:
        return read_line(line, self._server.limits)

    def _must_wait(self, asked: Asked | dict[str, Any]) -> bool:
        """Is so much owed to those who do not read that nothing large may be begun for anybody who is here?"""
        return isinstance(asked, Asked) and asked.is_large and self._must_wait_for(self._server.unread.has_room)

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

    def _carry_out(self, asked: Asked) -> Outcome:
        assert self.caller is not None  # noqa: S101 - who is nobody is not read from
        owed = self.caller.carry_out(asked)
        if asked.is_large and not owed.done():
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
            self.caller.told()
        if self._waiting or self._next is not None:
            self._server.loop.call_soon(self.go_on)
        else:
            self._breathe()
        self._end_if_done()

    # -- replying

    def _write(self, reply: Any) -> None:
        """With the next flush: what is told together takes one call of the system."""
        line = encode(reply) + b"\n"
        self._owing.told(len(line))
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
