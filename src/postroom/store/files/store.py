"""The store protocol on folders of files: the files are the truth, and a SQLite index beside them answers queries.

`FileStore` is a `SqliteStore` whose room is the index `.postroom/index.db`. Before each query it takes in what
other programs did to the files. At each commit `FileTransaction` writes the files inside the transaction that
changes the index. A damaged or deleted index is no loss: it is rebuilt from the files and the journal.
"""

from __future__ import annotations

import json
import os
from _random import Random
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from ...errors import BadStore, Damaged, StoreFailing, UnknownMessage, Unreadable
from ...model.codec import encode
from ..sqlite import ground, rows
from ..sqlite.connection import translate, translated
from ..sqlite.store import SqliteStore
from ..sqlite.wal import REPLACED
from . import durable as files_durable
from . import examine, reconcile, recovery, watch
from .connection import FileConnection
from .letter_files import LARGEST
from .tree import INDEX, OWN_FOLDER, MailFolders
from .watch import DirWatcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ...clock import Clock
    from ...errors import PostroomError
    from ...model.query import Found
    from ...model.report import Finding, Progress
    from ..notification import ProcessNotifier
    from ..protocol import Plan, Posted, Watch, Write
    from ..queries import Statement
    from ..sqlite.rows import Row
    from .layouts.base import Layout, Plain
    from .registry import Registry
    from .watch import FileChanges


_FILES = """
SELECT j.key, f.folder, f.name FROM json_each(?) j CROSS JOIN files f ON f.number = j.value AND f.mailbox = ?
ORDER BY j.key"""
_ID = """
SELECT l.id FROM files f JOIN letters l ON l.number = f.number
WHERE f.mailbox = ? AND f.folder = ? AND f.name = ?"""
T = TypeVar("T")
# Errors while changes are taken in after which a reader may still use the index as it is.
_TRANSIENT = (OSError, StoreFailing, apsw.FullError, apsw.IOError, apsw.ReadOnlyError, apsw.CantOpenError)
_TRIES = 3  # to open an index that another program deletes meanwhile


class FileStore(SqliteStore):
    """A room in a folder that other programs may use at the same time."""

    vouches = False
    notifier: ProcessNotifier

    def __init__(
        self,
        root: ground.Place,
        layout: Layout,
        *,
        clock: Clock | None = None,
        durable: bool = True,
        busy_timeout: float = 30.0,
        makes: bool = True,
        people: frozenset[str] = frozenset(),
    ) -> None:
        """Open the room in folder `root`; `makes` also creates that folder where it is missing.

        `people` holds further folded names of people, for whom other programs settle nothing.
        """
        self.root = os.path.realpath(root)
        self.layout = layout
        self._must_last = durable
        self._people = people
        self._chance = Random()
        self._last_id = 0
        self.made_anew = ""  # why the index was rebuilt, if it was
        self._index: tuple[int, ...] = ()  # the identity of the index that was last opened
        tree = MailFolders(self.root, layout)
        if makes:
            ground.make_folder(self.root)
        self._make_own_folder()
        if tree.home != self.root:  # it must exist before it is watched
            self._make_within(tree.home)
        self._tree = tree
        self.archives_by_sending = tree.layout.archives_by_sending
        self.fresh_id = self._fresh_id
        self._watcher = DirWatcher(tree, lambda: self.connection().ledger)
        # The index itself is never synced: it can be rebuilt from the files.
        index = f"{self.root}/{OWN_FOLDER}/{INDEX}"
        super().__init__(index, clock=clock, durable=False, busy_timeout=busy_timeout)

    def _fresh_id(self, sender: str) -> str:
        # Ids of one process never go back, even if the clock does; a layout writes them in microseconds.
        now = max(rows.micros(self.clock.now().wall) * 1000, self._last_id + 1000)
        self._last_id = now
        return self.layout.fresh_id(sender, now, self._chance.getrandbits(32))

    # -- writing

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        if not writes:
            with translated(self.root):
                recovery.sync_all(self.root)
            return ()
        if callable(writes):
            self._take_in_changes()  # a plan reads only the index
        try:
            return super().commit(writes)
        except StoreFailing as failing:  # a replaced index is noticed before anything is written
            if os.path.lexists(self.path) and failing.hint != REPLACED:
                raise
        except Damaged as broken:
            self._rebuild_index(broken)
        return super().commit(writes)  # the index was deleted or damaged, and is now rebuilt from the files

    # -- reading

    def query(self, sql: str, values: list[Any]) -> list[Row]:
        self._take_in_changes()
        try:
            return super().query(sql, values)
        except Damaged as broken:
            self._rebuild_index(broken)
        return super().query(sql, values)

    def fetch(self, make: Callable[[Row], T], *questions: Statement) -> list[T]:
        try:
            return super().fetch(make, *questions)
        except Damaged as broken:
            self._rebuild_index(broken)
        return super().fetch(make, *questions)

    def set_aside(self, number: int, damage: Unreadable) -> None:  # noqa: ARG002 - the file still has the letter
        raise self.damaged(damage)

    def quarantined(self) -> list[str]:
        """Return the paths below the root of files that were set aside and are still there."""
        return [path for path in super().quarantined() if os.path.lexists(f"{self.root}/{path}")]

    def _rebuild_index(self, broken: Damaged) -> None:
        """Delete a damaged index; the next connection rebuilds it from the files."""
        conn = self.connection()
        if conn.database.in_transaction:  # inside a plan: this commit fails, and the next one rebuilds
            raise broken
        self.drop(conn)
        self._delete_index(broken, conn.inode)

    def _delete_index(self, broken: PostroomError, inode: int | None = None) -> None:
        self.made_anew = str(broken)
        recovery.delete_index(self.root, inode)

    def examine(self, *, repair: bool, full: bool, progress: Progress) -> Iterator[Finding]:
        self._take_in_changes()
        yield from examine.examine(self, durable=self._must_last, repair=repair, full=full, progress=progress)

    def _take_in_changes(self) -> None:
        """Bring the index up to date with what other programs did to the files."""
        conn = self.connection()
        if conn.database.in_transaction:
            return
        if not conn.is_current():  # the index was deleted: a new connection rebuilds it
            self.drop(conn)
            conn = self.connection()
        try:
            self._check_for_changes(conn)
        except (apsw.Error, OSError, UnicodeDecodeError) as error:
            broken = self.damaged(error) if isinstance(error, UnicodeDecodeError) else translate(error, self.path)
            if not isinstance(broken, Damaged):
                raise broken from error
            self._rebuild_index(broken)
        except Damaged as broken:
            self._rebuild_index(broken)

    def _check_for_changes(self, conn: FileConnection) -> None:
        if conn.registry is not None and conn.registry.has_changed():
            self._import_registry(conn, conn.registry)
        # Our own commits show up here too; `unindexed` drops them.
        changes = self._watcher.poll()
        if changes and (unindexed := reconcile.unindexed(conn, changes)):
            self._reconcile(conn, unindexed)

    def _reconcile(self, conn: FileConnection, changes: FileChanges) -> None:
        try:
            with conn.writing():
                to_notify, retry = reconcile.reconcile(conn, changes)
        except _TRANSIENT:  # the index can be read all the same
            self._watcher.put_back(changes)
            return
        except BaseException:
            self._watcher.put_back(changes)
            raise
        if retry:
            self._watcher.put_back(retry)
        signals = self.notifier.open_signals(to_notify)
        self.notifier.notify(signals)
        self.notifier.close_signals(signals)

    def _import_registry(self, conn: FileConnection, registry: Registry) -> None:
        """Take in agents that other programs wrote into the registry file."""
        with translated(self.path), conn.writing():
            # Asked again under the lock: another process may have taken it in meanwhile.
            if registry.has_changed():
                registry.import_changes()

    # -- the files of letters

    def file_contents(self, found: Sequence[Found]) -> list[tuple[Found, str, Plain]]:
        """Return these letters, all of one mailbox, in this order, each with name and content of its file.

        Letters whose files another program has just deleted or damaged are left out.
        """
        if not found:
            return []
        conn = self.connection()
        mailbox, _ = conn.mailbox(found[0].delivery.mailbox)
        # As one JSON value: a statement for each letter would cost more than the files.
        numbers = encode([one.delivery.number for one in found]).decode()
        files: list[tuple[Any, ...]] = conn.database.execute(_FILES, (numbers, mailbox)).fetchall()
        contents = []
        for key, folder, name in files:
            try:
                # The file, not the index: `poll` shows what other programs have put into it.
                raw, _ = files_durable.read(f"{conn.tree.path(folder)}/{name}", LARGEST)
                fields = json.loads(raw)
            except (FileNotFoundError, Unreadable, ValueError, RecursionError):
                continue
            if isinstance(fields, dict):
                contents.append((found[key], name, fields))
        return contents

    def id_at(self, mailbox: str, place: str, name: str) -> str | None:
        """Return the id of the letter in this file of a mailbox; None if there is none."""
        self._take_in_changes()
        conn = self.connection()
        try:
            number, owner = conn.mailbox(mailbox)
        except UnknownMessage:
            return None
        folder = conn.tree.folder(conn.ledger.home_of(number, owner), place)
        id: str | None = conn.database.execute(_ID, (number, folder, name)).get
        return id

    def has_folder(self, mailbox: str) -> bool:
        """Return whether the folder of this mailbox exists, with or without mail."""
        return os.path.isdir(self._tree.path(self.layout.folder(mailbox)))

    def make_folder(self, mailbox: str) -> None:
        """Create the folder for new mail of a mailbox, so that other programs find it."""
        folder = self._tree.folder(self.layout.folder(mailbox), self.layout.places[0])
        try:
            files_durable.make_folder(self._tree.path(folder))
        except FileNotFoundError:
            raise self._folder_gone() from None
        except OSError as refused:
            raise translate(refused, self._tree.path(folder)) from refused

    def recheck(self, changes: FileChanges) -> None:
        """Compare these files with the index again, whatever their stamps say."""
        conn = self.connection()
        with conn.lock:
            for folder, names in changes.items():
                conn.ledger.mark_changed(folder, names or set())
        self._reconcile(conn, changes)

    # -- waiting

    def batch(self) -> AbstractContextManager[None]:
        return nullcontext()  # each letter is a file of its own, synced by itself

    def watch(self, mailboxes: Sequence[str]) -> Watch:
        with translated(self.path):
            return watch.watch(self.notifier, self._tree, mailboxes, self._is_unindexed)

    def _is_unindexed(self, folder: str, name: str) -> bool:
        return bool(reconcile.unindexed(self.connection(), {folder: {name}}))

    def close(self) -> None:
        super().close()
        self._watcher.close()

    # -- care

    def backup(self, path: Path, *, overwrite: bool, progress: Progress) -> int:
        """Copy the index, which holds every letter in full: the copy is a room in one file."""
        self._take_in_changes()
        return super().backup(path, overwrite=overwrite, progress=progress)

    # -- connections

    def connect(self) -> FileConnection:
        # Other programs may delete `.postroom` at any moment, also while it is opened.
        for _ in range(_TRIES):
            self._make_own_folder()
            try:
                return self._open_index()
            except (Damaged, BadStore, StoreFailing) as broken:
                if recovery.is_index_broken(broken):
                    self._delete_index(broken)
                elif not recovery.was_deleted(broken):
                    raise
        self._make_own_folder()
        return self._open_index()

    def _make_own_folder(self) -> None:
        self._make_within(f"{self.root}/{OWN_FOLDER}")

    def _make_within(self, folder: str) -> None:
        """Create a folder below the root, never the root itself: if that was deleted, mail must not go on."""
        try:
            os.mkdir(folder, mode=0o700)
        except FileNotFoundError:
            raise self._folder_gone() from None
        except OSError:  # it exists, or this call reports what is wrong
            ground.make_folder(folder)
        else:
            self._sync_new_folder(folder)

    def _sync_new_folder(self, folder: str) -> None:
        """Sync a new folder; remove it if that fails, so that the next try creates and syncs it again."""
        try:
            ground.sync_path(self.root)
        except OSError as broken:
            with suppress(OSError):
                os.rmdir(folder)
            raise translate(broken, folder) from None

    def _folder_gone(self) -> StoreFailing:
        return StoreFailing(f"the folder {self.root} is gone", field="store")

    def _open_index(self) -> FileConnection:
        opened = FileConnection(
            self.path,
            boot=self.boot,
            busy_timeout=self.busy_timeout,
            tree=self._tree,
            watcher=self._watcher,
            clock=self.clock,
            durable=self._must_last,
            people=self._people,
        )
        # Another index than the one this store knew: what the old one had noted must be compared again.
        if self._index not in {(), opened.identity()}:
            self._recheck_everything()
        self._index = opened.identity()
        return opened

    def _recheck_everything(self) -> None:
        """Have every folder compared again after the index was replaced.

        Another process may have written files and noted them in the deleted index; the new one, or one that lost
        its log, may not have them.
        """
        self._watcher.put_back(dict.fromkeys(self._tree.folders()))

    if TYPE_CHECKING:

        def connection(self) -> FileConnection:
            """Return this thread's connection, as made by `connect`."""
