"""Several commits of one thread in one transaction: most of what a commit costs is paid once for all of them.

Each is all or nothing. When the transaction ends, all of them are in the room, or none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw

from ..base import Undone, must_last
from .committing import Committed
from .writing import Writing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..base import Plan, Write
    from .connection import Connection

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
