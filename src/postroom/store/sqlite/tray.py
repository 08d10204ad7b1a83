"""The tray at the door: whoever is in the room takes along the letters of those who wait.

With many writers most time goes by in changing places, and each place costs a sync. So one who must wait lays its
letter into the tray, in memory the writers share; who is in writes it in its own transaction, under its own sync.

Only a shortcut, like the tap on the shoulder (`turns`). It is safe because a letter has an id, and the same letter
twice is one letter: whose carrier was killed, or is too slow, goes in and posts it again. An answer counts only
if it is whole (a checksum) and is to this very letter (a ticket; no two letters have the same).
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from binascii import crc32

from .futex import Futex, has_futex
from .lock import LAID_AT, TRAY_AT

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
    if not has_futex() or not hasattr(fcntl, "F_OFD_SETLK") or not _make_room(descriptor):
        return NoTray()
    return Tray(descriptor)


def _lock_on(place: int) -> bytes:
    return _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _OWNERS_AT + place, 1, 0)


def _make_room(descriptor: int) -> bool:
    """Room on the disk, not only in the file: touching a hole on a full disk would kill the process. What others
    have written there meanwhile stays.
    """
    try:
        os.posix_fallocate(descriptor, 0, _END)
    except OSError:
        return False
    return True
