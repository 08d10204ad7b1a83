"""The way to a SQLite file: a connection for each thread, and questions whose answers are sound or set aside."""

from __future__ import annotations

import weakref
from _thread import _local  # what `threading` calls local, without the rest of it
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from ...errors import Damaged, Unreadable
from ...model.names import fold
from .. import sqlite
from . import forks, ground, rows
from .connection import Connection, translate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .asking import Statement
    from .gathering import Gathering

T = TypeVar("T")
_ABANDONED: list[object] = []  # connections of a parent process: never touched, so never closed, after a fork


class _Local(_local):
    """What each thread has for itself."""

    # Found in the class, and not missed: a missing attribute is an error made and thrown away, at every commit.
    connection: Connection | None = None
    gathering: Gathering | None = None


class Access:
    """What the store builds on."""

    def __init__(self, path: ground.Place, *, boot: str, busy_timeout: float) -> None:
        self.path = ground.prepare(path)
        self._boot = boot
        self._busy_timeout = busy_timeout
        self._local = _Local()
        self._open: weakref.WeakSet[Connection] = weakref.WeakSet()  # one goes when its thread ends
        self._forks = forks.count

    def _here(self) -> Connection:
        """This thread's connection, opened on first use."""
        if self._forks != forks.count:
            _ABANDONED.append([*self._open, self._local])
            self._local, self._open, self._forks = _Local(), weakref.WeakSet(), forks.count
        connection = self._local.connection
        if connection is None:
            connection = self._connect()
            self._local.connection = connection
            self._open.add(connection)
        return connection

    def _connect(self) -> Connection:
        return Connection(self.path, boot=self._boot, busy_timeout=self._busy_timeout)

    def _drop(self, here: Connection) -> None:
        """Forget this thread's connection; closed when nobody uses it any more."""
        if self._local.connection is here:
            self._local.connection = None

    def _ask(self, sql: str, values: list[Any]) -> list[rows.Row]:
        """All rows at once: nothing holds a view of the room open while anyone thinks or waits."""
        here = self._here()
        here.log.check_index()
        try:
            return here.asking.execute(sql, values).fetchall()
        except apsw.Error as error:
            if isinstance(error, (apsw.IOError, apsw.CorruptError, apsw.NotADBError)):
                here.log.check_whole()
            raise translate(error, self.path) from error
        except UnicodeDecodeError as error:
            here.asking = here.database.cursor()  # the other has not come to its end
            raise self._damaged(error) from None

    def _damaged(self, why: Exception) -> Damaged:
        return Damaged(f"{self.path} is damaged: {why}", hint=rows.SALVAGE)

    def _names(self, sql: str) -> list[str]:
        found = [name for (name,) in self._ask(sql, [])]
        if not all(isinstance(name, str) for name in found):
            raise self._damaged(TypeError("a mailbox has lost its name"))
        return sorted(found)

    def _sound(self, make: Callable[[rows.Row], T], *questions: Statement) -> list[T]:
        """The answers as values. A damaged letter is set aside, and the questions are asked again without it."""
        tried: set[int] = set()
        while True:
            sound, damaged = [], []
            for sql, values in questions:
                for row in self._ask(sql, values):
                    try:
                        sound.append(make(row))
                    except Unreadable as damage:
                        damaged.append((row[0], damage))
            if not damaged:
                return sound
            for number, why in damaged:
                if number in tried:  # it cannot be set aside: what finds it is damaged too
                    raise self._damaged(why)
                self._set_aside(number, why)
            tried |= {number for number, _ in damaged}

    def _set_aside(self, number: int, damage: Unreadable) -> None:
        here = self._here()
        import logging  # noqa: PLC0415 - heavy, and damage is rare

        logging.getLogger("postroom").warning("letter %d in %s was set aside: %s", number, self.path, damage)
        if here.database.in_transaction:  # a plan is looking: its commit carries this along
            sqlite.quarantine.quarantine(here.database, number)
            return
        try:
            with here.lock, here.database:
                sqlite.quarantine.quarantine(here.database, number)
        except apsw.Error as error:  # more is damaged than this letter
            raise translate(error, self.path) from error

    def _numbers(self, mailboxes: Sequence[str]) -> list[int]:
        committed, known = self._here().names.committed, []
        for name in mailboxes:
            held = committed.get(name)
            if held is None:
                break
            known.append(held[0])
        else:
            return known
        marks = ", ".join("?" * len(mailboxes))
        sql = f"SELECT id, name FROM mailboxes WHERE folded IN ({marks})"
        return [number for number, name in self._ask(sql, [*map(fold, mailboxes)]) if name in mailboxes]

    def _close_connections(self) -> None:
        for connection in list(self._open):
            connection.close()
        self._open.clear()
        self._local = _Local()
