"""Stores of files with one planted bug each: such as only a store of this kind can have.

Bugs that any store could have are in `bugs.py`. Most are planted in a module: they are for processes of their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw

from postroom.model.codec import decode_message
from postroom.model.message import Message
from postroom.store.files import durable as files_durable
from postroom.store.files import journal, reconcile, recovery, transaction
from postroom.store.files.connection import FileConnection
from postroom.store.files.store import FileStore
from postroom.store.sqlite import ground, rows, wal
from postroom.store.sqlite.lock import WriterLock

_PATHS = (
    ground,
    wal,
    files_durable,
    reconcile,
    journal,
    transaction,
    recovery,
)  # that sync folders
_FILES = (files_durable, journal)  # that sync what they wrote


# -- syncs


class Unsynced(FileStore):
    """Reports success before the letter is on the disk."""

    def __init__(self, *place: Any, **settings: Any) -> None:
        super().__init__(*place, durable=False, **settings)


class OfNoName(FileStore):
    """Never syncs a folder: the bytes of a letter are safe, under no name."""

    def __init__(self, *place: Any, **settings: Any) -> None:
        _plant(_PATHS, "sync_path", lambda _path: None)
        super().__init__(*place, **settings)


class Unread(FileStore):
    """Gives a letter its name before what it says is on the disk."""

    def __init__(self, *place: Any, **settings: Any) -> None:
        _plant((files_durable,), "sync_file", lambda _descriptor: None)
        super().__init__(*place, **settings)


class Shrugging(FileStore):
    """A folder that cannot be synced is nobody's business."""

    def __init__(self, *place: Any, **settings: Any) -> None:
        _plant(_PATHS, "sync_path", _sync_or_shrug)
        super().__init__(*place, **settings)


def _sync_or_shrug(path: ground.Place, sync: Callable[[ground.Place], None] = ground.sync_path) -> None:
    with suppress(OSError):
        sync(path)


class Swallowing(FileStore):
    """A letter or a line that cannot be synced is nobody's business."""

    def __init__(self, *place: Any, **settings: Any) -> None:
        _plant(_FILES, "sync_file", _sync_or_swallow)
        super().__init__(*place, **settings)


def _sync_or_swallow(descriptor: int) -> None:
    with suppress(OSError):
        os.fdatasync(descriptor)


class Retrying(FileStore):
    """A sync that fails is tried again, on the same descriptor, and then believed."""

    def __init__(self, *place: Any, **settings: Any) -> None:
        _plant(_FILES, "sync_file", _sync_or_sync)
        super().__init__(*place, **settings)


def _sync_or_sync(descriptor: int) -> None:
    try:
        os.fdatasync(descriptor)
    except OSError:
        os.fdatasync(descriptor)


def _plant(modules: Sequence[Any], name: str, bug: Callable[..., object]) -> None:
    """In a process of its own."""
    for module in modules:
        vars(module)[name] = bug


# -- transactions and full disks


class Loose(FileStore):
    """No journal: the steps of a commit are done one after the other, and a crash leaves some of them."""

    def connection(self) -> FileConnection:
        conn = super().connection()
        conn.on_commit.__class__ = _LooseTransaction
        return conn


class _LooseTransaction(transaction.FileTransaction):
    def _write_journal_line(self, lasting: list[transaction.Step]) -> None:
        pass


class Careless(FileStore):
    """Sets nothing aside for a full disk, and moves letters by copying them."""

    def __init__(self, *place: Any, **settings: Any) -> None:
        _plant((transaction,), "MoveFile", _Copying)
        super().__init__(*place, **settings)

    def connection(self) -> FileConnection:
        conn = super().connection()
        conn.log.__class__ = _CarelessLog
        return conn


class _CarelessLog(wal.Log):
    def check_disk_space(self, lock: WriterLock) -> None:
        pass

    def release_reserve(self, lock: WriterLock) -> None:  # noqa: ARG002 - there is nothing to give up
        raise apsw.FullError


class _Copying(transaction.MoveFile, tag="Shift"):
    def do(self, *, durable: bool) -> None:
        former = Path(self.former, self.name)
        files_durable.make_folder(self.folder)
        files_durable.write_new(self.folder, self.name, former.read_bytes(), durable=durable)
        former.unlink()


class Forgetful(FileStore):
    """Forgets whose ack it was that moved a file, where the index did not get to know of it."""

    def __init__(self, *place: Any, **settings: Any) -> None:
        reconcile.Reconciler._lease_of = lambda *_: None  # type: ignore[method-assign]
        super().__init__(*place, **settings)


# -- damage


class Trusting(FileStore):
    """Takes whatever the index or a file says for the letter that was accepted."""

    def __init__(self, *place: Any, **settings: Any) -> None:
        self._kept = (rows.sound, reconcile.is_as_accepted)
        rows.sound, reconcile.is_as_accepted = _believed, lambda *_: True
        super().__init__(*place, **settings)

    def close(self) -> None:
        super().close()
        rows.sound, reconcile.is_as_accepted = self._kept


def _believed(sum: int, body: bytes) -> Message:
    return decode_message(body)


class Unindexed(FileStore):
    """Looks at every letter to find the first."""

    def __init__(self, *place: Any, **settings: Any) -> None:
        super().__init__(*place, **settings)
        self.connection().database.execute("DROP INDEX IF EXISTS deliveries_unread")


BUGS: dict[str, type[FileStore]] = {
    "unsynced": Unsynced,
    "of no name": OfNoName,
    "unread": Unread,
    "shrugging": Shrugging,
    "swallowing": Swallowing,
    "retrying": Retrying,
    "loose": Loose,
    "careless": Careless,
    "forgetful": Forgetful,
    "trusting": Trusting,
    "unindexed": Unindexed,
}
