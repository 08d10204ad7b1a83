"""One commit: get in or be served, write what is ours and what others laid out, leave, sync, answer.

The order is what keeps the promises: nobody is told of a letter before it is safe. A letter that cannot be
carried, or whose carrier was killed, is posted by its own writer, who hears why.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import apsw
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...errors import PostroomError
from ..base import Plan, Posted, Write, must_last
from .connection import Connection
from .lock import WriterLock
from .tray import ANSWERED, TAKEN, TURNED_BACK, NoTray, Tray
from .turns import NAP
from .writing import Writing

if TYPE_CHECKING:
    from .parcels import Parcel

SLOW = 0.25  # seconds after which a carrier that has written a letter is taken for dead


class Committed(Struct, frozen=True, gc=False):
    """What became of it. It is in the room; `make_safe` before anybody is told."""

    writes: Sequence[Write]
    posted: tuple[Posted, ...]
    must_sync: bool = False
    carried: Sequence[tuple[int, bytes]] = ()  # the answers to letters of others, by slot


def commit(here: Connection, writes: Sequence[Write] | Plan, *, durable: bool) -> Committed:
    """Write, or have it written by whoever is in the room."""
    laid: Laid | None = None
    inside = True  # or not: to leave a room one is not in is harmless, to stay is not
    try:
        if not here.lock.take_at_once():
            laid = lay(here.lock.tray, writes, durable=durable)
            inside = here.lock.stand_in_line() if laid is None else laid.stand_in_line(here.lock)
        if laid is not None and laid.posted is not None:
            return Committed(laid.writes, laid.posted)
        here.mend()
        done = _write(here, writes, durable=durable)
        return done if laid is None else laid.corrected(done)
    finally:
        if inside:
            following = here.lock.tray.choose()
            here.lock.leave()
            if following >= 0:
                here.lock.tray.wake(following)


def make_safe(here: Connection, done: Committed) -> None:
    """After the room was left: what must last is made to last, and those we wrote for are told."""
    try:
        if done.must_sync:
            here.log.sync(here.lock)
    except BaseException:
        _turn_back(here, done.carried)
        raise
    for slot, answer in done.carried:
        here.lock.tray.reply(slot, answer)


# -- inside


def _write(here: Connection, writes: Sequence[Write] | Plan, *, durable: bool) -> Committed:
    parcels = here.lock.tray.take()
    try:
        done = _transact(here, writes, _open(parcels) if parcels else (), durable=durable)
    except NotCarried:
        _turn_back(here, parcels)
        done = _transact(here, writes, (), durable=durable)
    except BaseException:
        _turn_back(here, parcels)
        raise
    if done.writes or done.carried:
        here.log.tend(here.lock)
    return done


def _transact(
    here: Connection, writes: Sequence[Write] | Plan, parcels: Sequence[tuple[int, Parcel]], *, durable: bool
) -> Committed:
    database = here.database
    try:
        database.execute("BEGIN IMMEDIATE")
        planned = writes() if callable(writes) else writes
        writing = Writing(database, here.names)
        posted = writing.apply(planned)
        carried = _carry(writing, parcels) if parcels else ()
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
    writing.remember()
    must_sync = (durable and any(map(must_last, planned))) or any(parcel.durable for _, parcel in parcels)
    return Committed(planned, posted, must_sync, carried)


class NotCarried(Exception):
    """A letter of somebody else cannot be written here and now. Its writer will find out why."""


def _open(parcels: Sequence[tuple[int, bytes]]) -> list[tuple[int, Parcel]]:
    from .parcels import unpack  # noqa: PLC0415 - most never meet anybody

    try:
        return [(slot, unpack(parcel)) for slot, parcel in parcels]
    except msgspec.DecodeError as strange:  # laid out by another version of this program
        raise NotCarried from strange


def _carry(writing: Writing, parcels: Sequence[tuple[int, Parcel]]) -> list[tuple[int, bytes]]:
    """The answers to those who laid them out, once all is safe."""
    try:
        return [(slot, parcel.answer(writing.apply(parcel.writes()))) for slot, parcel in parcels]
    except (PostroomError, apsw.Error) as refused:
        raise NotCarried from refused


def _turn_back(here: Connection, parcels: Sequence[tuple[int, bytes]]) -> None:
    for slot, _ in parcels:
        here.lock.tray.reply(slot, None)


# -- outside


def lay(tray: Tray | NoTray, writes: Sequence[Write] | Plan, *, durable: bool) -> Laid | None:
    """Lay it into the tray, if it is something that others can carry, and if there is place for it."""
    if isinstance(tray, NoTray) or callable(writes):
        return None
    from .parcels import pack  # noqa: PLC0415 - see above

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

    def stand_in_line(self, lock: WriterLock) -> bool:
        """Wait until it is answered for (False) or it is our own turn (True)."""
        try:
            end = time.monotonic() + lock.timeout
            patience = NAP
            while True:
                state = self._tray.look()
                if state == ANSWERED and self._hear():
                    return False
                if state in {ANSWERED, TURNED_BACK}:  # or answered, but not to this
                    return lock.stand_in_line()
                now = time.monotonic()
                if state == TAKEN and not self._was_taken:
                    self._was_taken, patience = True, SLOW
                elif lock.take_at_once():
                    return self._tray.look() != ANSWERED or not self._hear()
                lock.check_patience(end - now)
                self._tray.wait(state, min(end - now, patience))
        finally:
            self._tray.take_back()

    def corrected(self, done: Committed) -> Committed:
        """Where our carrier was killed after it had written our letter, we met our own letter, and no other."""
        if not self._was_taken:
            return done
        return replace(done, posted=tuple([replace(posted, repeated=False) for posted in done.posted]))

    def _hear(self) -> bool:
        from .parcels import unpack_answer  # noqa: PLC0415 - see above

        answer = self._tray.answer()
        if answer is not None:
            self.posted = unpack_answer(answer, self._ticket)
        return self.posted is not None
