"""The registry file of the nanobot layout: one JSON file with an entry for every agent.

The cards in the room are the truth; the file is for programs that read and write it by themselves. `Registry` does
both directions, under the writer lock:

    publish_changes   after a commit that changed an agent, show it in the file before success is reported
    import_changes    when the file is not as we left it, take in what other programs changed (`AgentImporter`)

The file is replaced as a whole by an exchange, and the version that comes out is compared with the one that was
read: a change by another program in between is imported, and no entry is lost. `RegistrySnapshot` is what the
index knows of the file. It can be lost: the file and the cards hold everything.

A plain heartbeat does not write the file; the first one after REFRESH seconds brings all entries up to date.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw
from msgspec import ValidationError
from msgspec.structs import replace

from ...errors import PostroomError, Unreadable
from ...model.agent import EVERYONE, NO_GUARD, Card, Heartbeat, Status, guard_from, guard_value
from ...model.codec import blake2b, convert, to_plain
from ...model.names import check_agent, fold
from ...model.record import ACTIVE_TASKS, BEAT, CARD, GUARD, MEMBER, Record
from ...model.values import read_json
from ..protocol import Put
from ..sqlite.writes import WriteTransaction
from . import durable as files_durable
from . import entries
from .durable import Stamp
from .layouts.base import time_or_none
from .quarantine import QUARANTINE, record_quarantined

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from ...model.query import Moment
    from ..protocol import Write
    from .connection import FileConnection
    from .layouts.base import Plain


TABLES = """
CREATE TABLE IF NOT EXISTS entries (
    agent TEXT UNIQUE NOT NULL,
    entry TEXT,             -- as it stands in the file; NULL: it is to be there no more
    older TEXT NOT NULL,    -- short hashes of what stood there before we changed it
    beat INTEGER NOT NULL,  -- the revision of the sign of life that it shows
    until REAL              -- the uptime from which it shows too much life; NULL: it shows none
);
CREATE TABLE IF NOT EXISTS registry (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 1),
    inode INTEGER NOT NULL,
    size INTEGER NOT NULL,
    written INTEGER NOT NULL,
    at REAL NOT NULL        -- the uptime when it was last published
);"""
NAMES = ("entries", "registry")
UNKNOWN = Stamp(0, 0, 0)  # of a file that must be read, whatever its stamp
_REMEMBERED = 16  # former versions of an entry, by which a stale copy is recognised
_KEEP = """
INSERT INTO entries VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (agent) DO UPDATE SET entry = ?2, older = ?3, beat = ?4, until = ?5"""
_TEXT = """
SELECT group_concat('  ' || json_quote(agent) || ': ' || entry, char(44, 10) ORDER BY rowid)
FROM entries WHERE entry IS NOT NULL"""
_OUTDATED = """
SELECT e.agent FROM entries e JOIN records r ON r.kind = ? AND r.key = e.agent
WHERE e.entry IS NOT NULL AND (r.revision <> e.beat OR e.until < ?)"""


class SnapshotEntry(NamedTuple):
    """The entry of one agent, as last seen in the file."""

    entry: Any = None  # None: the file has no entry of this agent
    older: tuple[str, ...] = ()  # digests of former versions


class RegistrySnapshot:
    """The content of the registry file as the index knows it: one row per agent, in the order they came."""

    def __init__(self, database: apsw.Connection) -> None:
        self._database = database

    def _ask(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._database.execute(sql, values).fetchall()

    def get(self, agent: str) -> SnapshotEntry:
        sql = "SELECT entry, older FROM entries WHERE agent = ?"
        for entry, older in self._ask(sql, agent):
            return SnapshotEntry(None if entry is None else json.loads(entry), tuple(older.split()))
        return SnapshotEntry()

    def record_found(self, agent: str, entry: Any, older: Sequence[str]) -> None:
        """Record an entry as found in the file."""
        self._database.execute(_KEEP, (agent, _text(entry), " ".join(older), 0, None))

    def record_change(self, agent: str, entry: Any, *, beat: int = 0, until: float | None = None) -> None:
        """Record an entry that we write. If its former version reappears, another program had an old copy."""
        former = self.get(agent)
        # A program that rewrites the whole file from an old copy brings old entries back: they are known by
        # this.
        older = former.older if former.entry is None else (*former.older, digest_of(former.entry))[-_REMEMBERED:]
        text = None if entry is None else _text(entry)
        self._database.execute(_KEEP, (agent, text, " ".join(older), beat, until))

    def entries(self) -> dict[str, Any]:
        sql = "SELECT agent, entry FROM entries WHERE entry IS NOT NULL"
        return {agent: json.loads(entry) for agent, entry in self._ask(sql)}

    def text(self) -> bytes:
        """Return the content of the file, joined from the stored entries: most of them did not change."""
        text: str | None = self._database.execute(_TEXT).get
        return b"{}" if text is None else f"{{\n{text}\n}}".encode()

    def agents_with_cards(self) -> list[str]:
        """Return all agents that have a card."""
        sql = "SELECT key FROM records WHERE kind = ? ORDER BY key"
        return [agent for (agent,) in self._ask(sql, CARD)]

    def outdated(self, uptime: float) -> list[str]:
        """Return the agents with a newer heartbeat than their entry shows, or with none for too long."""
        return [agent for (agent,) in self._ask(_OUTDATED, BEAT, uptime)]

    # -- the file

    def stamp(self) -> Stamp | None:
        """Return the stamp of the file as last written or read; None if there was no file."""
        for row in self._ask("SELECT inode, size, written FROM registry"):
            return Stamp(*row)
        return None

    def published_at(self) -> float | None:
        at: float | None = self._database.execute("SELECT at FROM registry").get
        return at

    def set_stamp(self, stamp: Stamp | None, uptime: float) -> None:
        if stamp is None:
            self._database.execute("DELETE FROM registry")
        else:
            self._database.execute("INSERT OR REPLACE INTO registry VALUES (1, ?, ?, ?, ?)", (*stamp, uptime))


def digest_of(entry: Any) -> str:
    return blake2b(json.dumps(entry, sort_keys=True).encode(), digest_size=8).hexdigest()


def _text(entry: Any) -> str:
    """Return an entry as it stands in the file, indented by one level."""
    return json.dumps(entry, ensure_ascii=False, indent=2).replace("\n", "\n  ")


# -- the file

REFRESH = 1.0  # seconds by which `last_heartbeat` in the file may lag behind while any agent sends heartbeats
WRITE_GRACE = 1.0  # seconds after a change in which another program may still be writing the file
LARGEST = 64 * 1024 * 1024  # bytes
DEEPEST = 64 + 8
_ABOUT_AGENTS = {CARD, BEAT, ACTIVE_TASKS}
_log = logging.getLogger("postroom")


class ImportedFile(NamedTuple):
    """The content of the file after it was imported."""

    entries: dict[str, Any]
    stamp: Stamp | None
    imported: list[str]  # agents whose entries were new or changed


class Registry:
    """The registry file, for one connection. All but `has_changed` is called under the writer lock."""

    def __init__(self, conn: FileConnection, name: str, *, durable: bool) -> None:
        self._conn = conn
        self._snapshot = RegistrySnapshot(conn.database)
        self._name = name
        self._folder = conn.tree.home
        self._path = f"{self._folder}/{name}"
        self._durable = durable
        self._seen: Stamp | None = None

    # -- publishing

    def prepare(self, writes: Sequence[Write]) -> None:
        """Make the mailbox folders of every agent that gets a card, inside the transaction."""
        for write in writes:
            if isinstance(write, Put) and write.record.kind == CARD and write.record.value is not None:
                self._make_folders(write.record.key)

    def _make_folders(self, agent: str) -> None:
        """Make the folders of a mailbox, unsynced: if they are lost, the first letter makes them again."""
        tree = self._conn.tree
        home = self._conn.ledger.home_of(*self._conn.mailbox(agent))
        for folder in (home, *(f"{home}/{place}" for place in tree.layout.places[:2])):
            with suppress(FileExistsError):
                os.mkdir(tree.path(folder), mode=0o700)

    def publish_changes(self, writes: Sequence[Write]) -> None:
        """Show committed changes in the file. The commit is done, so a failing disk is only logged."""
        puts = [write.record for write in writes if isinstance(write, Put) and write.record.kind in _ABOUT_AGENTS]
        if not puts:
            return
        left = {record.key for record in puts if record.kind == CARD and record.value is None}
        try:
            self._publish_changes({record.key for record in puts}, left)
        except (OSError, apsw.Error) as failed:
            _log.warning("%s could not be written: %s", self._path, failed)
            with suppress(apsw.Error):
                self.forget()

    def _publish_changes(self, agents: set[str], left: set[str]) -> None:
        moment = self._conn.now()
        changed = {agent for agent in agents if agent in left or self._is_outdated(agent, moment)}
        is_due, is_lost = self._is_due(moment), self._snapshot.stamp() == UNKNOWN
        if not changed and not is_due and not is_lost:
            return
        with self._conn.database:
            # A change of another program is taken in first, or ours would overwrite it.
            known = self._stamp()
            if known != self._snapshot.stamp():
                known = self._import_file(self._path, changed).stamp
            for agent in left:
                self._snapshot.record_change(agent, None)
            if is_lost:
                self._update_entries(self._snapshot.agents_with_cards(), moment, only_if_needed=True)
            self._update_entries([*changed, *(self._snapshot.outdated(moment.steady) if is_due else ())], moment)
            self._publish(known, changed, moment)

    def _is_due(self, moment: Moment) -> bool:
        at = self._snapshot.published_at()
        return at is not None and not 0 <= moment.steady - at < REFRESH

    # -- importing what other programs wrote

    def has_changed(self) -> bool:
        """Return whether another program changed the file. Called before every query: it costs one `lstat`."""
        stamp = self._stamp()
        if stamp == self._seen and stamp is not None:
            return False
        if stamp != self._snapshot.stamp():
            return True
        self._seen = stamp
        return False

    def import_changes(self) -> None:
        """Take in what other programs wrote, and publish the file again where it differs from the cards."""
        if self._is_half_written():
            return
        moment = self._conn.now()
        with self._conn.database:
            is_lost = self._snapshot.stamp() == UNKNOWN  # then any entry may be outdated
            found = self._import_file(self._path, set())
            self._update_entries(
                self._snapshot.agents_with_cards() if is_lost else found.imported, moment, only_if_needed=True
            )
            if found.entries == self._snapshot.entries():
                self._snapshot.set_stamp(found.stamp, moment.steady)
            else:
                self._publish(found.stamp, set(), moment)

    def forget(self) -> None:
        """Forget the stamp of the file, so that it is read again."""
        self._seen = None
        self._snapshot.set_stamp(UNKNOWN, 0.0)

    def _import_file(self, path: str, skip: set[str]) -> ImportedFile:
        """Import the entries of a file, except those of the agents in `skip`, which we are about to change."""
        try:
            raw, stamp = files_durable.read(path, LARGEST)
            found = _parsed(raw, self._name)
        except FileNotFoundError:
            return ImportedFile({}, None, [])
        except PostroomError as wrong:
            self._set_aside(path, str(wrong))
            return ImportedFile({}, None, [])
        importer, imported = AgentImporter(self._conn, self._conn.now(), stamp.time), []
        for agent, entry in found.items():
            former = self._snapshot.get(agent)
            # Other programs rewrite the whole file from a copy they read earlier: an old version of an entry is
            # no change.
            if entry == former.entry or agent in skip or digest_of(entry) in former.older:
                continue  # unchanged, or a stale copy of a version that we replaced
            importer.import_entry(agent, entry, former.entry)
            self._snapshot.record_found(agent, entry, former.older)
            imported.append(agent)
        importer.finish(durable=self._durable)
        return ImportedFile(found, stamp, imported)

    def _is_half_written(self) -> bool:
        """Return whether another program may still be writing the file in place."""
        try:
            _parsed(files_durable.read(self._path, LARGEST)[0], self._name)
        except FileNotFoundError:
            return False
        except PostroomError:
            # Broken and just written: its writer may be in the middle. Later it counts as damaged.
            return 0 <= time.time_ns() - _written(self._path) < WRITE_GRACE * 1e9
        return False

    def _set_aside(self, path: str, why: str) -> None:
        """Move a file that is no registry into the quarantine folder."""
        aside, name = f"{self._folder}/{QUARANTINE}", f"{self._name}.{os.urandom(3).hex()}"
        files_durable.make_folder(aside)
        try:
            files_durable.rename_new(path, f"{aside}/{name}")
        except FileNotFoundError:
            return
        _log.warning("%s was set aside as %s/%s: %s", self._path, QUARANTINE, name, why)
        record_quarantined(self._conn, f"{QUARANTINE}/{name}", why)

    # -- entries

    def _is_outdated(self, agent: str, moment: Moment) -> bool:
        """Return whether the file shows an agent wrongly, apart from its last heartbeat."""
        shown, (current, *_) = self._snapshot.get(agent).entry, self._current_entry(agent, moment)
        if current is None:
            return False
        return not isinstance(shown, dict) or _lasting(current) != _lasting(entries.normal(agent, shown))

    def _update_entries(self, agents: Iterable[str], moment: Moment, *, only_if_needed: bool = False) -> None:
        for agent in agents:
            current, beat, until = self._current_entry(agent, moment)
            if current is not None and not (only_if_needed and not self._is_outdated(agent, moment)):
                self._snapshot.record_change(agent, current, beat=beat, until=until)

    def _current_entry(self, agent: str, moment: Moment) -> tuple[Plain | None, int, float | None]:
        """Return the right entry now, the revision of its heartbeat, and the uptime until which it holds."""
        card, beat, active = (self._conn.record(kind, agent) for kind in (CARD, BEAT, ACTIVE_TASKS))
        if card is None:
            return None, 0, None
        try:
            heartbeat = None if beat is None else convert(beat.value, Heartbeat)
            tasks = () if active is None else tuple(active.value)
            entry = entries.current_entry(convert(card.value, Card), heartbeat, tasks, moment)
        except (ValidationError, TypeError):  # a store keeps any record; this one is no valid card
            return None, 0, None
        until = None if heartbeat is None or entry["status"] == Status.OFFLINE else entries.silent_from(heartbeat)
        return entry, 0 if beat is None else beat.revision, until

    # -- the file

    def _publish(self, known: Stamp | None, skip: set[str], moment: Moment) -> None:
        """Replace the file; repeat if the version that comes out is not the one that was imported."""
        while True:
            text, mode = self._snapshot.text(), self._mode()
            temporary, stamp = files_durable.write_temporary(self._folder, text, durable=self._durable, mode=mode)
            try:
                # Swapped, not replaced: what comes out is looked at, so nothing written since our last read is
                # lost.
                if not files_durable.exchange(temporary, self._path) or Stamp.of(os.lstat(temporary)) == known:
                    break
                found = self._import_file(temporary, skip)  # another program wrote it after we read it
                self._update_entries(found.imported, moment, only_if_needed=True)
                known = stamp
            finally:
                files_durable.remove(temporary)
        self._snapshot.set_stamp(stamp, moment.steady)
        self._seen = None

    def _mode(self) -> int | None:
        """Return the mode that another program gave the file, to keep it; None for our default, owner only."""
        try:
            found = os.lstat(self._path)
        except FileNotFoundError:
            return None
        # Never executable, and always readable for its owner.
        chosen = stat.S_IMODE(found.st_mode) & 0o666
        is_file = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
        return chosen | 0o600 if is_file and chosen & 0o077 else None

    def _stamp(self) -> Stamp | None:
        try:
            return Stamp.of(os.lstat(self._path))
        except FileNotFoundError:
            return None


def _parsed(raw: bytes, name: str) -> dict[str, Any]:
    found = read_json(raw, name, depth=DEEPEST, largest=LARGEST)
    if not isinstance(found, dict):
        raise Unreadable("it holds no object")
    return found


def _lasting(entry: Plain) -> Plain:
    return {name: value for name, value in entry.items() if name != "last_heartbeat"}


def _written(path: str) -> int:
    try:
        return os.lstat(path).st_mtime_ns
    except FileNotFoundError:
        return 0


# -- importing entries of other programs

_TAKEN = """
SELECT name FROM mailboxes WHERE folded = ?1 UNION ALL SELECT '' FROM aliases WHERE folded = ?1"""


class AgentImporter:
    """The import of registry entries into the room: as cards, guards, memberships and heartbeats.

    Used inside a transaction of `Registry`. An entry under a name that no agent can have stays in the file as it
    is.
    """

    def __init__(self, conn: FileConnection, moment: Moment, written: datetime) -> None:
        self._conn = conn
        self._writing = WriteTransaction(conn.database, conn.names)
        self._moment = moment
        self._written = written
        self._lasting: list[Put] = []

    def import_entry(self, agent: str, entry: Any, base: Any) -> None:
        """Import one entry; `base` is the version of it that we knew."""
        if not isinstance(entry, dict) or not self._is_usable_name(agent):
            return
        held, beat, active = (self._conn.record(kind, agent) for kind in (CARD, BEAT, ACTIVE_TASKS))
        tasks = () if active is None else tuple(active.value)
        heartbeat = None if beat is None else convert(beat.value, Heartbeat)
        card = None if held is None else convert(held.value, Card)
        before: Plain = base if isinstance(base, dict) else _before(card, entry)
        current = {} if card is None else entries.current_entry(card, heartbeat, tasks, self._moment)
        fields = entries.merged(current, before, entry)
        self._put(
            BEAT, agent, to_plain(entries.beat_in(entry, before, heartbeat, tasks, self._moment)), durable=False
        )
        found = entries.card_in(agent, fields, self._written)
        # A person's card says who may write to the person: no other program changes it (G12).
        if found != card and fold(agent) not in self._conn.people():
            self._write_card(found, card)

    def finish(self, *, durable: bool) -> None:
        """Journal the imported cards: they are kept like our own, whatever becomes of the file."""
        self._writing.remember()
        self._conn.journal_records(self._lasting, durable=durable)

    def _write_card(self, card: Card, former: Card | None) -> None:
        self._put(CARD, card.id, to_plain(card))
        held = self._conn.record(GUARD, card.id)
        guard = NO_GUARD if held is None else guard_from(held.value)
        allowed = (EVERYONE,) if EVERYONE in card.allow_from else card.allow_from
        self._put(GUARD, card.id, guard_value(replace(guard, allow=allowed)))
        left = set() if former is None else set(former.scopes) - set(card.scopes)
        for scope in (*card.scopes, *left):
            self._put(MEMBER + scope, card.id, None if scope in left else True)

    def _put(self, kind: str, key: str, value: Any, *, durable: bool = True) -> None:
        held = self._conn.record(kind, key)
        if value == (None if held is None else held.value):
            return
        revision = 0 if held is None else held.revision
        put = Put(record=Record(kind=kind, key=key, value=value, revision=revision), durable=durable)
        self._writing.apply([put])
        if durable:
            self._lasting.append(put)

    def _is_usable_name(self, agent: str) -> bool:
        """Return whether an agent can have this name: it is valid, and not taken in any spelling."""
        try:
            if check_agent(agent, "agent_id") != agent:
                return False
        except PostroomError:
            return False
        taken = [name for (name,) in self._conn.database.execute(_TAKEN, (fold(agent),)).fetchall()]
        return all(name == agent for name in taken)


def _before(card: Card | None, entry: Plain) -> Plain:
    """Return the assumed former entry if none is known, such that the later registered of two cards counts."""
    registered = time_or_none(entry.get("registered_at"))
    if card is None or (registered is not None and registered > card.registered_at):
        return {}
    return {name: value for name, value in entry.items() if name not in entries.RUNTIME}
