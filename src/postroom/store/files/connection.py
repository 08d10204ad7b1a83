"""One thread's connection to a room of files: the index, with journal, ledger and registry beside it.

The first connection after a boot or a crash recovers: it brings index and files together again (`recovery`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ...constants import INDEX_APPLICATION
from ...errors import StoreFailing, UnknownMessage, Unreadable
from ...model.codec import to_plain
from ...model.message import is_broadcast, same_name
from ...model.names import BROADCAST, PEOPLE, check_party, fold
from ...model.record import EVERYONE, IDENTITY, MEMBER, PERSON, Record, names_of_key
from ..sqlite import rows
from ..sqlite.connection import Connection
from ..sqlite.wal import REPLACED
from . import durable as files_durable
from . import letter_files, recovery, registry
from .durable import keep_spare_file
from .journal import Journal
from .layouts.base import Where
from .ledger import NAMES, TABLES, Ledger
from .letter_files import LARGEST
from .registry import NAMES as REGISTRY_TABLE_NAMES
from .registry import TABLES as REGISTRY_TABLES
from .transaction import FileTransaction
from .tree import OWN_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...clock import Clock
    from ...model.delivery import Delivery
    from ...model.message import Message, Recipient
    from ...model.query import Moment
    from ..protocol import Put
    from .durable import Stamp
    from .letter_files import ParsedFile
    from .tree import MailFolders
    from .watch import DirWatcher


SHAPE = 0x52D59752  # CRC-32 of the definitions in an index, as SQLite keeps them
_MAILBOX = """
SELECT id, name FROM mailboxes WHERE folded = ?1
UNION ALL SELECT m.id, m.name FROM aliases a JOIN mailboxes m ON m.id = a.mailbox WHERE a.folded = ?1"""
_DELIVERIES = f"""
SELECT d.mailbox, {rows.DELIVERY} FROM deliveries d JOIN mailboxes m ON m.id = d.mailbox WHERE d.number = ?"""
_OF_KIND = "SELECT key, revision, value FROM records WHERE kind = ?"
_ONE_OF_KIND = f"{_OF_KIND} AND key = ?"
_RECORD = "SELECT revision FROM records WHERE kind = ? AND key = ?"


class FileConnection(Connection):
    """A connection to the index; each of its commits calls the `FileTransaction` in `beside`."""

    application = INDEX_APPLICATION
    more_tables = TABLES + REGISTRY_TABLES
    names_of_tables = NAMES + REGISTRY_TABLE_NAMES
    shape = SHAPE
    is_derived = True

    def __init__(
        self,
        path: str,
        *,
        boot: str,
        busy_timeout: float,
        tree: MailFolders,
        watcher: DirWatcher,
        clock: Clock,
        durable: bool,
        people: frozenset[str],
    ) -> None:
        self._people = people
        self.tree = tree
        self.watcher = watcher
        self.boot = boot
        self._clock = clock
        own = f"{tree.root}/{OWN_FOLDER}"
        self.journal = Journal(own)
        self._durable = durable
        super().__init__(path, boot=boot, busy_timeout=busy_timeout)
        # Kept while all is well, for the time when the disk has no inode left.
        keep_spare_file(f"{own}/spare")
        # Last: while it is opened and recovered, the index changes without a FileTransaction.
        self.on_commit = FileTransaction(self, durable=durable)

    def begin(self, boot: str) -> None:
        """Open the tables under the lock, and recover after a boot or crash, which may have cost unsynced data."""
        self._check_lock()
        self.ledger = Ledger(self.database, self.tree.layout)
        name = self.tree.layout.registry
        self.registry = registry.Registry(self, name, durable=self._durable) if name else None
        is_first = self.database.execute("SELECT boot FROM room").get != boot
        if is_first:
            self.lock.mark_sync_failed()  # until recovery is done: after a crash the next process has to repeat it
        super().begin(boot)
        # The warning in the lock file is not synced: a disk that was away without a boot may have lost it and a
        # part of the index too. The journal is synced and has all of it (G2).
        if is_first or self.lock.sync_failed or not self.journal.is_settled(self.ledger.last_line()):
            recovery.recover(self)
            self.lock.clear_sync_failed()
            self.lock.sync_failed = False

    def recover(self) -> None:
        self._check_lock()
        if self.lock.sync_failed:
            self.log.check_in_place(self.path, self.inode)
            if self.database.in_transaction:
                self.database.execute("ROLLBACK")
            recovery.recover(self)
        super().recover()

    def _check_lock(self) -> None:
        """Raise if the lock file was replaced: `.postroom` may be deleted at any time, also in part."""
        if not self.lock.is_in_place():
            raise StoreFailing("the lock of the index was replaced or deleted", hint=REPLACED)

    def now(self) -> Moment:
        """Return the present moment, in the boot that the room was opened in."""
        return replace(self._clock.now(), boot=self.boot)

    def identity(self) -> tuple[int, ...]:
        """Return the inodes of the index files. An index without its log counts as another, older one."""
        return tuple(_inode_at(f"{self.path}{end}") for end in ("", "-wal", ".lock"))

    def is_current(self) -> bool:
        """Return whether the opened index is still the one on disk."""
        try:
            return os.stat(self.path).st_ino == self.inode and self.lock.is_in_place()
        except OSError:
            return False

    def close(self) -> None:
        super().close()
        self.journal.close()

    # -- queries

    def mailbox(self, name: str) -> tuple[int, str]:
        """Return the number and the present name of a mailbox."""
        found: tuple[int, str] | None = self.database.execute(_MAILBOX, (fold(name),)).get
        if found is None:
            raise UnknownMessage
        return found

    def owner_of(self, folder: str) -> str:
        """Return the mailbox that a folder belongs to, or would belong to; raise Invalid if no mailbox can."""
        owner = self.ledger.owner(folder)
        return owner[1] if owner else check_party(self.tree.layout.mailbox(folder), "folder")

    def deliveries(self, message: Message, number: int) -> Iterator[tuple[int, str, Delivery]]:
        """Yield mailbox number, mailbox name and delivery for every recipient of a letter."""
        found: list[rows.Row] = self.database.execute(_DELIVERIES, (number,)).fetchall()
        for mailbox, *row in found:
            delivery = rows.delivery(message, tuple(row))
            yield mailbox, delivery.mailbox, delivery

    def parse(self, folder: str, name: str, mailbox: str) -> tuple[ParsedFile, Stamp]:
        """Return the letter in a file of a mailbox, and the stamp of the file; raise Unreadable if it is none."""
        raw, stamp = files_durable.read(f"{self.tree.path(folder)}/{name}", LARGEST)
        where = Where(mailbox, self.tree.of(folder)[1], name, stamp.time)
        parsed = letter_files.parse_file(self.tree.layout, raw, where)
        if parsed.message.proof is not None:  # any program may have written it, or copied the file to this mailbox
            parsed = parsed._replace(message=self._proven(parsed.message, mailbox))
        return parsed, stamp

    def _proven(self, message: Message, mailbox: str) -> Message:
        """Return a letter with its proof, if a person signed it in this room and for this mailbox."""
        is_to = any(self._is_for(to, mailbox) for to in message.recipients)
        from ...model.person import with_proof  # noqa: PLC0415 - only for people

        room = self.record(IDENTITY, EVERYONE)
        return (
            with_proof(message, room.value, self.records(PERSON))
            if room and is_to
            else replace(message, proof=None)
        )

    def _is_for(self, to: Recipient, mailbox: str) -> bool:
        """Return whether a recipient whom the person signed is this mailbox, or its scope. A bcc is not signed."""
        if is_broadcast(to.address):
            members = self.records(MEMBER + to.address.removeprefix(BROADCAST))
            return to.kind != "bcc" and any(same_name(member.key, mailbox) for member in members)
        return to.kind != "bcc" and same_name(to.address, mailbox)

    def proven_now(self, message: Message) -> Message:
        """Return a letter that is new here, without the proof of a removed key: its thief could date it back."""
        key = None if message.proof is None else self.record(PERSON, message.proof.key)
        return message if key is None or key.value["removed_at"] is None else replace(message, proof=None)

    def people(self) -> frozenset[str]:
        """Return the folded names of people, for whom other programs settle nothing (G12)."""
        return (
            PEOPLE
            | self._people
            | {fold(name) for record in self.records(PERSON) for name in names_of_key(record.value)}
        )

    def number_of(self, id: str) -> int | None:
        number: int | None = self.database.execute("SELECT number FROM letters WHERE id = ?", (id,)).get
        return number

    def letter(self, number: int) -> tuple[Message, int]:
        """Return a letter and its position in time, in microseconds."""
        sql = """SELECT sum, body, min(created_at, coalesce(
            (SELECT min(place) FROM files f WHERE f.number = l.number), created_at
        )) FROM letters l WHERE number = ?"""
        found: list[rows.Row] = self.database.execute(sql, (number,)).fetchall()
        if not found:
            raise Unreadable("the index has lost a letter whose file it knows")
        sum, body, place = found[0]
        return rows.sound(sum, body), place

    def record(self, kind: str, key: str) -> Record | None:
        found = self.records(kind, key)
        return found[0] if found else None

    def records(self, kind: str, key: str | None = None) -> list[Record]:
        """Return the records of a kind, or the one with this key.

        There are two statements, because one for both would scan all of a kind to find one: a heartbeat among
        1,000 agents took half as long again as among 10.
        """
        execute = self.database.execute
        found: list[rows.Row] = (
            execute(_OF_KIND, (kind,)) if key is None else execute(_ONE_OF_KIND, (kind, key))
        ).fetchall()
        decode = msgspec.json.decode
        return [Record(kind=kind, key=k, value=decode(value), revision=revision) for k, revision, value in found]

    def journal_records(self, puts: Sequence[Put], *, durable: bool) -> None:
        """Append records that were taken from files to the journal: an index made anew has them, too."""
        if puts:
            writes = [{"put": to_plain(self.record_as_written(put))} for put in puts]
            self.journal.append({"n": self.ledger.next_line(), "writes": writes}, durable=durable)

    def record_as_written(self, put: Put) -> Record:
        """Return the record with the revision that the index gave it."""
        revision = self.database.execute(_RECORD, (put.record.kind, put.record.key)).get
        return replace(put.record, revision=revision or 0)


def _inode_at(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0
