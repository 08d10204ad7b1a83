"""One commit: get in or be served, write what is ours and what others laid out, leave, sync, answer.

The order is what keeps the promises: nobody is told of a letter before it is safe. A letter that cannot be
carried, or whose carrier was killed, is posted by its own writer, who hears why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import apsw
import msgspec
from msgspec.structs import replace

from ...errors import PostroomError, StoreFailing
from ..protocol import Posted, Undone, Write, must_last, rung_by, sends
from . import tray
from .writes import Writing

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ..notification import ProcessNotifier
    from ..protocol import Plan
    from .connection import Beside, Connection
    from .tray import Laid, Parcel


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
            laid = None if here.beside else tray.lay(here.lock.tray, writes, durable=durable)
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
        return [(slot, tray.unpack(parcel)) for slot, parcel in parcels]
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


# Commits of one thread that are made safe together: one sync for all of them, then the answers and the bells.


class Gathering:
    """What one thread commits inside it. At its end all is made safe, whatever happened. `joined`: in as few
    transactions as can be.
    """

    def __init__(
        self, bells: ProcessNotifier, local: Any, grasp: Callable[[set[str]], list[int]], *, joined: bool
    ) -> None:
        self._bells = bells
        self._grasp = grasp
        self._local = local  # the thread's own: where a commit finds this
        self._joined = joined
        self._joint: Joint | None = None
        self._open: list[tuple[Connection, Committed]] = []  # in the transaction that is open
        self._kept: list[tuple[Connection, Committed]] = []
        self._grasped: list[int] = []
        self._failed: BaseException | None = None  # Undone: nothing at all was written

    def __enter__(self) -> None:
        self._local.gathering = self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._local.gathering = None
        try:
            self.end_transaction()
        finally:
            self._make_safe()
        if self._failed is not None:  # in the midst of it
            raise self._failed

    def commit(self, here: Connection, writes: Sequence[Write] | Plan, *, durable: bool) -> Committed:
        if self._joint is not None and self._joint.is_full:
            self.end_transaction()
        if self._failed is not None:
            raise self._failed
        if self._joint is None and self._joined:
            self._joint = Joint.begin(here)
        if self._joint is not None:
            done = self._joint.commit(writes, durable=durable)
            self._open.append((here, done))
        else:
            done = commit(here, writes, durable=durable)
            self._kept.append((here, done))
            self._grasped += self._grasp(rung_by(done.writes, done.posted))
        return done

    def end_transaction(self) -> None:
        """What was committed so far is in the room then."""
        joint, self._joint = self._joint, None
        if joint is not None:
            done, self._open = self._open, []
            try:
                joint.end()
            except BaseException as error:
                is_known = isinstance(error, Undone) and not self._kept
                self._failed = error if is_known else StoreFailing("not all of it could be written")
                raise self._failed from error
            # The letters can be seen by now: whoever hangs a bell later finds them by looking.
            self._kept += done
            self._grasped += self._grasp({name for _, one in done for name in rung_by(one.writes, one.posted)})

    def _make_safe(self) -> None:
        """One sync covers all that stands before it in the same log; a connection that was dropped has its own."""
        try:
            last = {here: done for here, done in self._kept if done.must_sync}
            for here, done in last.items():
                make_safe(here, replace(done, carried=()) if done.carried else done)
        except BaseException:
            for here, done in self._kept:
                turn_back(here, done.carried)
            raise
        else:
            for here, done in self._kept:
                if done.carried:
                    make_safe(here, replace(done, must_sync=False))
            self._bells.ring(self._grasped)
        finally:
            self._bells.let_go(self._grasped)


# Several commits of one thread in one transaction: most of what a commit costs is paid once for all of them.
#
# Each is all or nothing. When the transaction ends, all of them are in the room, or none.

MOST = 16  # commits in one transaction; whoever stands in line waits for all of them


class Joint:
    """A transaction that is open, with the writers' lock held. Call `end`, whatever happens."""

    def __init__(self, here: Connection) -> None:
        self._here = here
        self._execute = here.names.cursor.execute
        self._is_lost = False
        self._must_sync = False
        self.commits = 0

    @classmethod
    def begin(cls, here: Connection) -> Joint | None:
        """None: somebody is in, or there is more to do than to write; then each commit sees to it itself."""
        lock, is_open = here.lock, False
        if here.beside is not None:
            return None
        try:
            if not lock.take_at_once() or lock.is_laid or lock.is_short or lock.warned:
                return None
            here.mend()
            here.names.cursor.execute("BEGIN IMMEDIATE")
            is_open = True
            return cls(here)
        finally:
            if not is_open:
                lock.leave()

    @property
    def is_full(self) -> bool:
        return self._is_lost or self.commits >= MOST

    def commit(self, writes: Sequence[Write] | Plan, *, durable: bool) -> Committed:
        """What becomes of it, if the transaction ends well."""
        database, writing = self._here.database, Writing(self._here.database, self._here.names)
        self._execute("SAVEPOINT one")
        try:
            planned = writes() if callable(writes) else writes
            posted = writing.apply(planned)
            self._execute("RELEASE one")
        except BaseException:
            self._is_lost = not database.in_transaction  # some errors end all of it
            if not self._is_lost:
                self._execute("ROLLBACK TO one; RELEASE one")
            raise
        writing.remember(alone=True)
        self.commits += 1
        self._here.commits += 1
        must_sync = durable and any(map(must_last, planned))
        self._must_sync = self._must_sync or must_sync
        return Committed(planned, posted, must_sync)

    def end(self) -> None:
        """Commit, and leave the room. Undone: nothing of it is there."""
        here = self._here
        try:
            if not self._is_lost:
                self._commit()
                if self._must_sync:
                    here.log.hasten(here.lock)
                here.log.tend(here.lock)
        except BaseException:
            here.names.forget()
            raise
        finally:
            here.lock.leave()
        if self._is_lost:
            here.names.forget()
            raise Undone

    def _commit(self) -> None:
        try:
            self._execute("COMMIT")
        except apsw.Error as error:
            if self._here.database.in_transaction:
                self._here.database.execute("ROLLBACK")
            raise Undone from error
