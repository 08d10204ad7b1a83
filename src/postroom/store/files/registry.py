"""What stands in the registry's file, as far as we know: one row per agent, in the order in which they came.

Tables of the index, beside those of `ledger`. They can be lost: then the file and the cards tell.
"""

from __future__ import annotations

import json
import os
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw
from msgspec import ValidationError
from msgspec.structs import replace

from ...clock import SystemClock
from ...errors import PostroomError, Unreadable
from ...model.agent import Beat, Card, Status
from ...model.codec import blake2b, convert
from ...model.record import ACTIVE_TASKS, BEAT, CARD
from ...model.values import read_json
from ..protocol import Put
from . import durable as files_durable
from . import entries as files_entries
from .durable import Stamp
from .quarantine import ASIDE, note_aside
from .reconcile import Adopting

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
UNKNOWN = Stamp(0, 0, 0)  # of a file that must be looked at, whatever it looks like
_REMEMBERED = 16  # former versions of an entry by which a stale copy is known
_KEEP = """
INSERT INTO entries VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (agent) DO UPDATE SET entry = ?2, older = ?3, beat = ?4, until = ?5"""
_TEXT = """
SELECT group_concat('  ' || json_quote(agent) || ': ' || entry, char(44, 10) ORDER BY rowid)
FROM entries WHERE entry IS NOT NULL"""
_OUTDATED = """
SELECT e.agent FROM entries e JOIN records r ON r.kind = ? AND r.key = e.agent
WHERE e.entry IS NOT NULL AND (r.revision <> e.beat OR e.until < ?)"""


class Line(NamedTuple):
    """One agent's."""

    entry: Any = None  # None: it stands there no more, or never did
    older: tuple[str, ...] = ()


class RegistrySnapshot:
    """Inside a transaction, or to ask."""

    def __init__(self, database: apsw.Connection) -> None:
        self._database = database

    def _ask(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._database.execute(sql, values).fetchall()

    def line(self, agent: str) -> Line:
        sql = "SELECT entry, older FROM entries WHERE agent = ?"
        for entry, older in self._ask(sql, agent):
            return Line(None if entry is None else json.loads(entry), tuple(older.split()))
        return Line()

    def keep(self, agent: str, entry: Any, older: Sequence[str]) -> None:
        """It was found there."""
        self._database.execute(_KEEP, (agent, _text(entry), " ".join(older), 0, None))

    def change(self, agent: str, entry: Any, *, beat: int = 0, until: float | None = None) -> None:
        """We write this instead: whoever puts back what stood there has an old copy."""
        line = self.line(agent)
        older = line.older if line.entry is None else (*line.older, sum_of(line.entry))[-_REMEMBERED:]
        text = None if entry is None else _text(entry)
        self._database.execute(_KEEP, (agent, text, " ".join(older), beat, until))

    def whole(self) -> dict[str, Any]:
        sql = "SELECT agent, entry FROM entries WHERE entry IS NOT NULL"
        return {agent: json.loads(entry) for agent, entry in self._ask(sql)}

    def text(self) -> bytes:
        """The file, as the design writes it. Put together from its lines: most of them did not change."""
        text: str | None = self._database.execute(_TEXT).get
        return b"{}" if text is None else f"{{\n{text}\n}}".encode()

    def everyone(self) -> list[str]:
        """All agents with a card."""
        sql = "SELECT key FROM records WHERE kind = ? ORDER BY key"
        return [agent for (agent,) in self._ask(sql, CARD)]

    def outdated(self, uptime: float) -> list[str]:
        """Agents that gave a sign of life since, or none for too long."""
        return [agent for (agent,) in self._ask(_OUTDATED, BEAT, uptime)]

    # -- the file

    def stamp(self) -> Stamp | None:
        """Of the file as one of us left it or last read it; None where there was none."""
        for row in self._ask("SELECT inode, size, written FROM registry"):
            return Stamp(*row)
        return None

    def published_at(self) -> float | None:
        at: float | None = self._database.execute("SELECT at FROM registry").get
        return at

    def note(self, stamp: Stamp | None, uptime: float) -> None:
        if stamp is None:
            self._database.execute("DELETE FROM registry")
        else:
            self._database.execute("INSERT OR REPLACE INTO registry VALUES (1, ?, ?, ?, ?)", (*stamp, uptime))


def sum_of(entry: Any) -> str:
    return blake2b(json.dumps(entry, sort_keys=True).encode(), digest_size=8).hexdigest()


def _text(entry: Any) -> str:
    """As it stands in the file, one step in; a line break inside a text is written otherwise."""
    return json.dumps(entry, ensure_ascii=False, indent=2).replace("\n", "\n  ")


# The registry of the nanobot layout: one file that shows every agent, published from the cards in the room.
#
# The room is the truth; the file is for those who read and write it by themselves. It is exchanged whole, under
# the
# room's lock, and what comes out is looked at: whoever wrote meanwhile is heard, and nobody's entry is lost.
#
#     tell      after a commit that changed an agent: the file shows it before anybody is told
#     take_in   when the file is not as we left it: what strangers changed enters the room (`adopting`)
#
# A plain sign of life does not write the file; the first one after REFRESH seconds brings all of them up to date.

REFRESH = 1.0  # seconds: the file's `last_heartbeat` lags behind no more than this while anybody beats
SLOW_STRANGER = 1.0  # seconds: somebody may still be writing a file that was changed so lately
LARGEST = 64 * 1024 * 1024  # bytes
DEEPEST = 64 + 8
_ABOUT_AGENTS = {CARD, BEAT, ACTIVE_TASKS}


class Found(NamedTuple):
    """What stood in the file, after it was taken in."""

    entries: dict[str, Any]
    stamp: Stamp | None
    adopted: list[str]  # whose entries were new or changed


class Registry:
    """Of one connection. All but `is_news` is called under the room's lock."""

    def __init__(self, here: FileConnection, name: str, *, durable: bool) -> None:
        self._here = here
        self._roll = RegistrySnapshot(here.database)
        self._name = name
        self._folder = here.places.home
        self._path = f"{self._folder}/{name}"
        self._durable = durable
        self._seen: Stamp | None = None
        self._clock = SystemClock()

    # -- what we say

    def prepare(self, writes: Sequence[Write]) -> None:
        """In the transaction: whoever has a card has the folders of a mailbox."""
        for write in writes:
            if isinstance(write, Put) and write.record.kind == CARD and write.record.value is not None:
                self._settle(write.record.key)

    def _settle(self, agent: str) -> None:
        """Not synced: if they are lost, the first letter makes them again."""
        places = self._here.places
        home = self._here.ledger.home(*self._here.mailbox(agent))
        for folder in (home, *(f"{home}/{place}" for place in places.layout.places[:2])):
            with suppress(FileExistsError):
                os.mkdir(places.path(folder), mode=0o700)

    def tell(self, writes: Sequence[Write]) -> None:
        """After the commit: show it. It is true already, so a disk that refuses fails nobody."""
        puts = [write.record for write in writes if isinstance(write, Put) and write.record.kind in _ABOUT_AGENTS]
        if not puts:
            return
        left = {record.key for record in puts if record.kind == CARD and record.value is None}
        try:
            self._tell({record.key for record in puts}, left)
        except (OSError, apsw.Error) as failed:
            _warn("%s could not be written: %s", self._path, failed)
            with suppress(apsw.Error):
                self.forget()

    def _tell(self, agents: set[str], left: set[str]) -> None:
        moment = self._moment()
        changed = {agent for agent in agents if agent in left or self._is_shown_otherwise(agent, moment)}
        is_due, is_lost = self._is_due(moment), self._roll.stamp() == UNKNOWN
        if not changed and not is_due and not is_lost:
            return
        with self._here.database:
            known = self._stamp()
            if known != self._roll.stamp():
                known = self._read_in(self._path, changed).stamp
            for agent in left:
                self._roll.change(agent, None)
            if is_lost:
                self._show(self._roll.everyone(), moment, only_if_needed=True)
            self._show([*changed, *(self._roll.outdated(moment.steady) if is_due else ())], moment)
            self._publish(known, changed, moment)

    def _is_due(self, moment: Moment) -> bool:
        at = self._roll.published_at()
        return at is not None and not 0 <= moment.steady - at < REFRESH

    # -- what strangers say

    def is_news(self) -> bool:
        """Is the file not as one of us left it? Asked often: it costs one look at the file's times."""
        stamp = self._stamp()
        if stamp == self._seen and stamp is not None:
            return False
        if stamp != self._roll.stamp():
            return True
        self._seen = stamp
        return False

    def take_in(self) -> None:
        if self._is_half_written():
            return
        moment = self._moment()
        with self._here.database:
            is_lost = self._roll.stamp() == UNKNOWN  # then nobody knows what is shown of whom
            found = self._read_in(self._path, set())
            self._show(self._roll.everyone() if is_lost else found.adopted, moment, only_if_needed=True)
            if found.entries == self._roll.whole():
                self._roll.note(found.stamp, moment.steady)
            else:
                self._publish(found.stamp, set(), moment)

    def forget(self) -> None:
        """Look at the file again, whatever it looks like."""
        self._seen = None
        self._roll.note(UNKNOWN, 0.0)

    def _read_in(self, path: str, skip: set[str]) -> Found:
        """Take in what stands there, but for those of whom we know better by now."""
        try:
            raw, stamp = files_durable.read(path, LARGEST)
            found = _parsed(raw, self._name)
        except FileNotFoundError:
            return Found({}, None, [])
        except PostroomError as wrong:
            self._set_aside(path, str(wrong))
            return Found({}, None, [])
        adopting, adopted = Adopting(self._here, self._moment(), stamp.time), []
        for agent, entry in found.items():
            line = self._roll.line(agent)
            if entry == line.entry or agent in skip or sum_of(entry) in line.older:
                continue  # nothing new, or a copy of what we have changed since
            adopting.adopt(agent, entry, line.entry)
            self._roll.keep(agent, entry, line.older)
            adopted.append(agent)
        adopting.finish(durable=self._durable)
        return Found(found, stamp, adopted)

    def _is_half_written(self) -> bool:
        """A stranger that does not write aside is given its time."""
        try:
            _parsed(files_durable.read(self._path, LARGEST)[0], self._name)
        except FileNotFoundError:
            return False
        except PostroomError:
            return 0 <= time.time_ns() - _written(self._path) < SLOW_STRANGER * 1e9
        return False

    def _set_aside(self, path: str, why: str) -> None:
        """Where nobody stumbles over it."""
        aside, name = f"{self._folder}/{ASIDE}", f"{self._name}.{os.urandom(3).hex()}"
        files_durable.make_folder(aside)
        try:
            files_durable.rename_new(path, f"{aside}/{name}")
        except FileNotFoundError:
            return
        _warn("%s was set aside as %s/%s: %s", self._path, ASIDE, name, why)
        note_aside(self._here, f"{ASIDE}/{name}", why)

    # -- what is shown of whom

    def _is_shown_otherwise(self, agent: str, moment: Moment) -> bool:
        """Is something else true of it than the file says, its last heartbeat aside?"""
        shown, (wanted, *_) = self._roll.line(agent).entry, self._wanted(agent, moment)
        if wanted is None:
            return False
        return not isinstance(shown, dict) or _lasting(wanted) != _lasting(files_entries.normal(agent, shown))

    def _show(self, agents: Iterable[str], moment: Moment, *, only_if_needed: bool = False) -> None:
        for agent in agents:
            wanted, beat, until = self._wanted(agent, moment)
            if wanted is not None and not (only_if_needed and not self._is_shown_otherwise(agent, moment)):
                self._roll.change(agent, wanted, beat=beat, until=until)

    def _wanted(self, agent: str, moment: Moment) -> tuple[Plain | None, int, float | None]:
        """The entry that is true now, of which sign of life, and for how long if there comes none."""
        card, beat, active = (self._here.record(kind, agent) for kind in (CARD, BEAT, ACTIVE_TASKS))
        if card is None:
            return None, 0, None
        try:
            sign = None if beat is None else convert(beat.value, Beat)
            tasks = () if active is None else tuple(active.value)
            shown = files_entries.shown_entry(convert(card.value, Card), sign, tasks, moment)
        except (ValidationError, TypeError):  # a store keeps any record; this is none that can be shown
            return None, 0, None
        until = None if sign is None or shown["status"] == Status.OFFLINE else files_entries.silent_from(sign)
        return shown, 0 if beat is None else beat.revision, until

    # -- the file

    def _publish(self, known: Stamp | None, skip: set[str], moment: Moment) -> None:
        """Exchange the file, until what comes out is what was taken in."""
        while True:
            text, mode = self._roll.text(), self._mode()
            aside, stamp = files_durable.write_aside(self._folder, text, durable=self._durable, mode=mode)
            try:
                if not files_durable.exchange(aside, self._path) or Stamp.of(os.lstat(aside)) == known:
                    break
                found = self._read_in(aside, skip)  # a stranger wrote it after we had looked
                self._show(found.adopted, moment, only_if_needed=True)
                known = stamp
            finally:
                files_durable.remove(aside)
        self._roll.note(stamp, moment.steady)
        self._seen = None

    def _mode(self) -> int | None:
        """Who may read it stays as a stranger chose it; None: it is ours to choose, or for us alone anyway."""
        try:
            found = os.lstat(self._path)
        except FileNotFoundError:
            return None
        chosen = stat.S_IMODE(found.st_mode) & 0o666
        is_file = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
        return chosen | 0o600 if is_file and chosen & 0o077 else None

    def _stamp(self) -> Stamp | None:
        try:
            return Stamp.of(os.lstat(self._path))
        except FileNotFoundError:
            return None

    def _moment(self) -> Moment:
        return replace(self._clock.now(), boot=self._here.boot)


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


def _warn(text: str, *values: object) -> None:
    import logging  # noqa: PLC0415 - heavy, and rare

    logging.getLogger("postroom").warning(text, *values)
