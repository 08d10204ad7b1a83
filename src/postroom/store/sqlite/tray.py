"""How writers that meet at the lock wait and help each other: futexes, turns, and the tray of letters.

Waiting writers sleep on a shared word in the lock file (a futex, on Linux) until the writer that leaves wakes the
next one. A waiting writer can also lay its letters into the tray, a shared map in the lock file; the writer that
holds the lock writes them along with its own and answers once they are durable.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import struct
import sys
import time
from binascii import crc32
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...errors import PostroomError
from ...model.codec import decode_message, encode
from ...model.delivery import Delivery
from ..protocol import Move, Post, Posted, must_last
from .lock import LAID_AT, TRAY_AT, TURN_AT, WAITING_AT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..protocol import Plan, Write
    from .lock import WriterLock


SYSCALL = {"x86_64": 202, "aarch64": 98, "riscv64": 98}  # futex(2), by machine
EVERYONE = 0x7FFFFFFF
_WAIT, _WAKE = 0, 1


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def has_futex() -> bool:
    return sys.platform == "linux" and os.uname().machine in SYSCALL


class Futex:
    """Words of 32 bits in a map of a file, each named by where it lies."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._first = ctypes.c_uint32.from_buffer(memory)
        self._address = ctypes.addressof(self._first)
        self._number = SYSCALL[os.uname().machine]
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._syscall.argtypes = [ctypes.c_long, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32]
        self._syscall.argtypes += [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32]

    def wait(self, at: int, value: int, seconds: float) -> None:
        """Sleep until somebody wakes us, if the word still has this value; but not for longer than this."""
        pause = _Timespec(int(seconds), int(seconds % 1 * 1e9))
        self._syscall(self._number, self._address + at, _WAIT, value, ctypes.byref(pause), None, 0)

    def wake(self, at: int, count: int = 1) -> None:
        self._syscall(self._number, self._address + at, _WAKE, count, None, None, 0)

    def close(self) -> None:
        """Before the memory is closed."""
        del self._first


# A tap on the shoulder for whoever is next in line: a futex in memory the writers share.
#
# Only a hint. Who holds the room is decided by the lock alone; a tap that is lost, because its giver was killed,
# costs the next writer a few milliseconds. Without futexes (macOS) writers ask again after short random pauses.

_SIZE = TURN_AT + 8
_TURN = TURN_AT // 4  # the same, counted in words
NAP, LONG_NAP = 0.005, 0.1  # seconds after which a sleeper asks by itself: soon at first, then less and less often
SHORTEST, LONGEST = 0.00002, 0.0003  # seconds between two tries, where nobody can be tapped


class Pauses:
    """Without futexes: everybody asks again after a short random pause, so nobody is ahead for long."""

    def read(self) -> int:
        return 0

    def wait(self, turn: int, seconds: float) -> None:  # noqa: ARG002 - there are no turns here
        time.sleep(min(SHORTEST + (LONGEST - SHORTEST) * os.urandom(1)[0] / 255, seconds))

    def expect(self) -> None:
        pass

    def tap(self) -> None:
        pass

    def close(self) -> None:
        pass


class Turns:
    """With futexes: the one who leaves wakes one who waits."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, _SIZE)
        self._words = memoryview(self._memory).cast("I")
        self._futex = Futex(self._memory)

    def read(self) -> int:
        """Whose turn it is. Read it before the last try; sleep only if it has not changed since."""
        return self._words[_TURN]

    def wait(self, turn: int, seconds: float) -> None:
        """Sleep until somebody taps, but not for longer than this."""
        self._futex.wait(TURN_AT, turn, seconds)

    def expect(self) -> None:
        """Say that somebody waits. Whoever leaves after this taps."""
        self._memory[WAITING_AT] = 1

    def tap(self) -> None:
        """After leaving: wake one who waits, if anybody does."""
        if self._memory[WAITING_AT]:
            self._memory[WAITING_AT] = 0
            self._words[_TURN] = (self._words[_TURN] + 1) & 0xFFFFFFFF
            self._futex.wake(TURN_AT)

    def close(self) -> None:
        self._futex.close()
        self._words.release()
        self._memory.close()


def open_turns(descriptor: int) -> Turns | Pauses:
    """The turns kept in the lock file, or pauses where there can be none."""
    if not has_futex() or not _make_room(descriptor):
        return Pauses()
    return Turns(descriptor)


def _make_room(descriptor: int) -> bool:
    """Written, not only reserved: touching a hole on a full disk would kill the process."""
    try:
        if len(os.pread(descriptor, _SIZE, 0)) < _SIZE:
            os.pwrite(descriptor, bytes(_SIZE - TURN_AT), TURN_AT)
    except OSError:
        return False
    return True


# What lies in the tray: letters and acknowledgements as a carrier needs them, and the answer to them.
#
# Only what may be said twice: if the carrier is killed, the owner says it again. Loaded when somebody must wait
# for
# the first time.

_MOST = 4  # writes in one parcel; more are quicker in person
_REPEATABLE = "ack"


class Enclosed(Struct, array_like=True, gc=False):
    """A letter to be posted."""

    encoded: bytes
    deliveries: tuple[Delivery, ...]
    copies: tuple[str, ...]
    quota: int | None
    outbox: int | None
    known_only: bool

    def post(self) -> Post:
        return Post(
            message=decode_message(self.encoded),
            encoded=self.encoded,
            deliveries=self.deliveries,
            copies=self.copies,
            quota=self.quota,
            outbox=self.outbox,
            known_only=self.known_only,
            admit=_come_yourself,
        )


class Parcel(Struct, array_like=True, gc=False):
    """All that a carrier needs. Change its shape's number whenever a carrier needs more."""

    shape: Literal[2]
    ticket: bytes
    durable: bool  # must it be synced before it is answered?
    letters: tuple[Enclosed, ...]
    moves: tuple[Move, ...]

    def writes(self) -> list[Write]:
        return [*self.moves, *(letter.post() for letter in self.letters)]

    def answer(self, posted: Sequence[Posted]) -> bytes:
        return _pack(Answer(self.ticket, tuple([_said(one) for one in posted])))


Said = tuple[str, int, bool, tuple[str, ...]]


class Answer(Struct, array_like=True, gc=False):
    """It was written. A refusal is never carried back: the owner comes and hears it."""

    ticket: bytes
    posted: tuple[Said, ...]


def _said(posted: Posted) -> Said:
    return posted.message_id, posted.number, posted.repeated, posted.unknown


def _come_yourself(_post: Post) -> Post:
    raise PostroomError("a guard must be asked, and only its sender knows how")


_pack = msgspec.msgpack.Encoder().encode
_parcel = msgspec.msgpack.Decoder(Parcel).decode
_answer = msgspec.msgpack.Decoder(Answer).decode


def pack(writes: Sequence[Write], *, durable: bool) -> tuple[bytes, bytes] | None:
    """The parcel, and the ticket that its answer will bear: no two parcels have the same."""
    letters = tuple([_enclosed(write) for write in writes if isinstance(write, Post) and not write.routes])
    moves = tuple([write for write in writes if isinstance(write, Move) and write.action == _REPEATABLE])
    if len(letters) + len(moves) != len(writes) or len(writes) > _MOST:
        return None
    ticket = os.urandom(12)
    return _pack(Parcel(2, ticket, durable and any(map(must_last, writes)), letters, moves)), ticket


def _enclosed(post: Post) -> Enclosed:
    encoded = post.encoded or encode(post.message)
    return Enclosed(encoded, post.deliveries, post.copies, post.quota, post.outbox, post.known_only)


def unpack(parcel: bytes) -> Parcel:
    return _parcel(parcel)


def unpack_answer(answer: bytes, ticket: bytes) -> tuple[Posted, ...] | None:
    """What became of what bears this ticket; None if the answer is to something else."""
    try:
        value = _answer(answer)
    except msgspec.DecodeError:
        return None
    if value.ticket != ticket:
        return None
    return tuple([Posted(message_id=id, number=n, repeated=r, unknown=u) for id, n, r, u in value.posted])


# The tray at the door: whoever is in the room takes along the letters of those who wait.
#
# With many writers most time goes by in changing places, and each place costs a sync. So one who must wait lays
# its
# letter into the tray, in memory the writers share; who is in writes it in its own transaction, under its own
# sync.
#
# Only a shortcut, like the tap on the shoulder (`turns`). It is safe because a letter has an id, and the same
# letter
# twice is one letter: whose carrier was killed, or is too slow, goes in and posts it again. An answer counts only
# if it is whole (a checksum) and is to this very letter (a ticket; no two letters have the same).

SLOTS = 16  # who finds none free waits for its own turn
SIZE = 8192  # of one; larger letters wait for their own turn

# What a slot says. Its owner lays out and takes back; the rest is said by whoever is in the room, or was.
EMPTY = 0
WAITING = 1  # for a carrier, or for its owner's turn
TAKEN = 2  # somebody is writing it, or has written it and is making it safe
ANSWERED = 3  # safe
TURNED_BACK = 4  # its owner must come in person

_CALLS_AT = TRAY_AT + 4 * SLOTS  # in the lock file, after a word for each slot: another, on which its owner sleeps
_SLOTS_AT = 4096
_END = _SLOTS_AT + SLOTS * SIZE
_HEAD = struct.Struct("<II")  # length and checksum
_OWNERS_AT = (
    1 << 32
)  # bytes that are locked and never written, two for each slot: it has an owner, or will have one
_FLOCK = struct.Struct("hhqqi4x")


class Tray:
    """One connection's view of the tray, and its own slot in it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._memory = mmap.mmap(descriptor, _END)
        words = memoryview(self._memory)[: _CALLS_AT + 4 * SLOTS].cast("I")
        self._states = words[TRAY_AT // 4 :][:SLOTS]
        self._calls = words[_CALLS_AT // 4 :]
        self._futex = Futex(self._memory)
        self._slot = -1  # none yet: most never have to wait
        self._next = 0  # where to look first for who comes next

    # -- one's own letter

    def lay(self, parcel: bytes) -> bool:
        """Lay a letter out; False where there is no place for it."""
        if len(parcel) > SIZE - _HEAD.size or not self._own_a_slot():
            return False
        self._write(self._slot, parcel)
        self._states[self._slot] = WAITING
        self._memory[LAID_AT] = 1
        return True

    def look(self) -> tuple[int, int]:
        """What became of it so far, and how often its owner was called."""
        called: int = self._calls[self._slot]  # first: a call in between is not slept through
        return self._states[self._slot], called

    def answer(self) -> bytes | None:
        return self._read(self._slot)

    def wait(self, called: int, seconds: float) -> None:
        """Sleep until somebody calls again, but not for longer than this."""
        self._futex.wait(_CALLS_AT + 4 * self._slot, called, seconds)

    def take_back(self) -> None:
        self._states[self._slot] = EMPTY

    # -- the letters of others, under the writers' lock

    def take(self) -> list[tuple[int, bytes]]:
        """All that wait: slot and parcel. Every one of them must be replied to."""
        self._memory[LAID_AT] = 0  # before looking: what is laid out meanwhile is found by the next
        found = []
        for slot, state in enumerate(self._states.tolist()):
            if state == WAITING and self._has_owner(slot) and (parcel := self._read(slot)) is not None:
                self._states[slot] = TAKEN
                found.append((slot, parcel))
        return found

    # -- after leaving

    def call(self) -> None:
        """Wake one whose letter was not taken along: the room is free."""
        states: list[int] = self._states.tolist()
        if WAITING in states:
            order = [*range(self._next, SLOTS), *range(self._next)]  # another one each time
            slot = next(place for place in order if states[place] == WAITING)
            self._next = slot + 1
            self._wake(slot)

    def reply(self, slot: int, answer: bytes | None) -> None:
        """To one whose letter was taken: it is safe; or, with no answer, its owner must come in person."""
        if self._states[slot] == TAKEN:  # else its owner did not wait for us
            if answer is not None:
                self._write(slot, answer)
            self._states[slot] = TURNED_BACK if answer is None else ANSWERED
            self._wake(slot)

    def _wake(self, slot: int) -> None:
        self._calls[slot] = (self._calls[slot] + 1) & 0xFFFFFFFF
        self._futex.wake(_CALLS_AT + 4 * slot)

    def close(self) -> None:
        self._futex.close()
        self._states.release()
        self._calls.release()
        self._memory.close()

    def _own_a_slot(self) -> bool:
        """The locks on a slot end with its owner, however it ends. The slot is empty before it has an owner, so
        that nobody takes what a dead one left there for ours.
        """
        for slot in range(SLOTS) if self._slot < 0 else ():
            try:
                fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, _lock_on(SLOTS + slot))
                self._states[slot] = EMPTY
                fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, _lock_on(slot))
            except OSError:
                continue
            self._slot = slot
            break
        return self._slot >= 0

    def _has_owner(self, slot: int) -> bool:
        """A letter whose sender is gone is not sent for it: nobody would know when."""
        held = fcntl.fcntl(self._descriptor, fcntl.F_OFD_GETLK, _lock_on(slot))
        return bool(_FLOCK.unpack(held)[0] != fcntl.F_UNLCK)

    def _write(self, slot: int, body: bytes) -> None:
        at = _SLOTS_AT + slot * SIZE
        self._memory[at : at + _HEAD.size + len(body)] = _HEAD.pack(len(body), crc32(body)) + body

    def _read(self, slot: int) -> bytes | None:
        at = _SLOTS_AT + slot * SIZE
        length, checksum = _HEAD.unpack_from(self._memory, at)
        body = self._memory[at + _HEAD.size : at + _HEAD.size + min(length, SIZE - _HEAD.size)]
        return body if crc32(body) == checksum else None


class NoTray:
    """Where nobody can be woken, or the disk has no place for a tray: everyone comes in person."""

    def take(self) -> list[tuple[int, bytes]]:
        return []

    def call(self) -> None:
        pass

    def reply(self, slot: int, answer: bytes | None) -> None:
        pass

    def close(self) -> None:
        pass


def open_tray(descriptor: int) -> Tray | NoTray:
    """The tray in this lock file."""
    if not has_futex() or not hasattr(fcntl, "F_OFD_SETLK") or not _grow_file(descriptor):
        return NoTray()
    return Tray(descriptor)


def _lock_on(place: int) -> bytes:
    return _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _OWNERS_AT + place, 1, 0)


def _grow_file(descriptor: int) -> bool:
    """Room on the disk, not only in the file: touching a hole on a full disk would kill the process. What others
    have written there meanwhile stays.
    """
    try:
        os.posix_fallocate(descriptor, 0, _END)
    except OSError:
        return False
    return True


# What we laid into the tray, and how we wait: until it is answered for, or it is our own turn.

SLOW = 0.25  # seconds after which a carrier that took something along is taken for dead


def lay(tray: Tray | NoTray, writes: Sequence[Write] | Plan, *, durable: bool) -> Laid | None:
    """Lay it into the tray, if it is something that others can carry, and if there is place for it."""
    if isinstance(tray, NoTray) or callable(writes):
        return None
    packed = pack(writes, durable=durable)
    return Laid(tray, writes, packed[1]) if packed is not None and tray.lay(packed[0]) else None


class Laid:
    """What we laid into the tray."""

    def __init__(self, tray: Tray, writes: Sequence[Write], ticket: bytes) -> None:
        self.writes = writes
        self.posted: tuple[Posted, ...] | None = None  # until it is answered
        self._tray = tray
        self._ticket = ticket
        self._was_taken = False

    def wait_turn(self, lock: WriterLock) -> bool:
        """Wait until it is answered for (False) or it is our own turn (True)."""
        try:
            end = time.monotonic() + lock.timeout
            patience = NAP
            while True:
                state, called = self._tray.look()
                if state == ANSWERED and self._hear():
                    return False
                was_taken, self._was_taken = self._was_taken, self._was_taken or state != WAITING
                if state in {ANSWERED, TURNED_BACK}:  # or answered, but not to this
                    return lock.wait_turn()
                now = time.monotonic()
                if state == TAKEN and not was_taken:
                    patience = SLOW
                elif lock.try_acquire():
                    state, _ = self._tray.look()  # again: from now on nobody takes it along
                    self._was_taken = self._was_taken or state != WAITING
                    if state != ANSWERED or not self._hear():
                        return True
                    lock.release()  # it was answered for meanwhile
                    return False
                lock.check_timeout(end - now)
                self._tray.wait(called, min(end - now, patience))
                patience = min(2 * patience, LONG_NAP)
        finally:
            self._tray.take_back()

    def corrected(self, posted: tuple[Posted, ...]) -> tuple[Posted, ...]:
        """Where our carrier was killed after it had written our letter, we met our own letter, and no other."""
        if not self._was_taken:
            return posted
        own = {write.message.id for write in self.writes if isinstance(write, Post)}
        return tuple([replace(one, repeated=False) if one.message_id in own else one for one in posted])

    def _hear(self) -> bool:
        answer = self._tray.answer()
        if answer is not None:
            self.posted = unpack_answer(answer, self._ticket)
        return self.posted is not None
