"""One commit: get in or be served, write what is ours and what others laid out, leave, sync, answer.

The order is what keeps the promises: nobody is told of a letter before it is safe. A letter that cannot be
carried, or whose carrier was killed, is posted by its own writer, who hears why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import apsw
import msgspec
from msgspec.structs import replace

from ...errors import PostroomError
from .. import sqlite
from ..base import Posted, Write, must_last, sends
from .writing import Writing

if TYPE_CHECKING:
    from ..base import Plan
    from .connection import Beside, Connection
    from .laid import Laid
    from .parcels import Parcel


class Committed(msgspec.Struct, frozen=True):
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
            here.lock.check_hurry()
            # Nobody else can do what goes beside it.
            laid = None if here.beside else sqlite.laid.lay(here.lock.tray, writes, durable=durable)
            inside = here.lock.stand_in_line() if laid is None else laid.stand_in_line(here.lock)
        if laid is not None and laid.posted is not None:
            return Committed(laid.writes, laid.posted)
        here.mend()
        done = _write(here, writes, durable=durable)
        here.commits += 1
        return done if laid is None else replace(done, posted=laid.corrected(done.posted))
    finally:
        if inside:
            here.lock.leave()


def make_safe(here: Connection, done: Committed) -> None:
    """After the room was left: what must last is made to last, and those we wrote for are told."""
    try:
        if here.beside is not None:
            here.beside.make_safe()
        if done.must_sync:
            here.log.sync(here.lock)
    except BaseException:
        turn_back(here, done.carried)
        raise
    for slot, answer in done.carried:
        here.lock.tray.reply(slot, answer)


# -- inside


def _write(here: Connection, writes: Sequence[Write] | Plan, *, durable: bool) -> Committed:
    parcels = here.lock.tray.take() if here.lock.is_laid else ()
    try:
        done = _transact(here, writes, _open(parcels) if parcels else (), durable=durable)
    except (NotCarried, apsw.FullError):
        if not parcels:
            raise
        turn_back(here, parcels)
        done = _transact(here, writes, (), durable=durable)
    except BaseException:
        turn_back(here, parcels)
        raise
    if done.must_sync:
        here.log.hasten(here.lock)
    if done.writes or done.carried:
        here.log.tend(here.lock)
    return done


def _transact(
    here: Connection,
    writes: Sequence[Write] | Plan,
    parcels: Sequence[tuple[int, Parcel]],
    *,
    durable: bool,
    in_need: bool = False,
) -> Committed:
    """One transaction. If the disk is full, one more for what sends nothing, with what is kept for that."""
    database, execute, beside, planned = here.database, here.names.cursor.execute, here.beside, writes
    begun: Beside | None = None  # else it still has what was before
    try:
        execute("BEGIN IMMEDIATE")
        planned = writes() if callable(writes) else writes
        if here.lock.is_short and (parcels or sends(planned)):
            here.log.check_room(here.lock)
        writing = Writing(database, here.names)
        if beside is not None:
            begun = beside
            beside.prepare(planned)
        posted = writing.apply(planned)
        carried = _carry(writing, parcels) if parcels else ()
        if beside is not None:
            beside.carry_out(planned, posted)
        execute("COMMIT")
    except BaseException as error:
        is_known = database.in_transaction or isinstance(error, apsw.Error)  # else it may have been committed
        if database.in_transaction:
            database.execute("ROLLBACK")
        if begun is not None:
            (begun.undo if is_known else begun.doubt)()
        is_full = isinstance(error, apsw.FullError) and not in_need and not parcels
        if not is_full or callable(planned) or sends(planned):
            raise
    else:
        writing.remember(alone=True)  # files have no numbers
        if beside is not None:
            beside.settle()
        must_sync = (durable and any(map(must_last, planned))) or (bool(parcels) and _any_durable(parcels))
        return Committed(planned, posted, must_sync, carried)
    here.log.relieve(here.lock)
    return _transact(here, planned, (), durable=durable, in_need=True)


class NotCarried(Exception):
    """A letter of somebody else cannot be written here and now. Its writer will find out why."""


def _open(parcels: Sequence[tuple[int, bytes]]) -> list[tuple[int, Parcel]]:
    try:
        return [(slot, sqlite.parcels.unpack(parcel)) for slot, parcel in parcels]
    except msgspec.DecodeError as strange:  # laid out by another version of this program
        raise NotCarried from strange


def _carry(writing: Writing, parcels: Sequence[tuple[int, Parcel]]) -> list[tuple[int, bytes]]:
    """The answers to those who laid them out, once all is safe."""
    try:
        return [(slot, parcel.answer(writing.apply(parcel.writes()))) for slot, parcel in parcels]
    except (PostroomError, apsw.Error) as refused:
        raise NotCarried from refused


def _any_durable(parcels: Sequence[tuple[int, Parcel]]) -> bool:
    return any(parcel.durable for _, parcel in parcels)


def turn_back(here: Connection, parcels: Sequence[tuple[int, bytes]]) -> None:
    for slot, _ in parcels:
        here.lock.tray.reply(slot, None)
