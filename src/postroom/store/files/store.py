"""The files behind letters, for those who want them as they are: by delivery, and back by name."""

from __future__ import annotations

import json
import os
import time
from _random import Random
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from ...errors import BadStore, Damaged, StoreFailing, UnknownMessage, Unreadable
from ...model.codec import encode
from ..sqlite import ground
from ..sqlite.connection import translate, translated
from ..sqlite.store import SqliteStore
from ..sqlite.wal import REPLACED
from . import durable as files_durable
from . import examine, reconcile, recovery, watch
from .connection import FileConnection
from .folders import Places
from .reconcile import LARGEST
from .tree import INDEX, OWN_FOLDER
from .watch import DirWatcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ...errors import PostroomError
    from ...model.query import Found
    from ...model.report import Finding, Progress
    from ..protocol import Plan, Posted, Watch, Write
    from ..sqlite.queries import Statement
    from ..sqlite.rows import Row
    from .layouts.base import Layout, Plain
    from .registry import Registry
    from .watch import News


_FILES = """
SELECT f.folder, f.name FROM json_each(?) j CROSS JOIN files f ON f.number = j.value AND f.mailbox = ?
ORDER BY j.key"""
_ID = """
SELECT l.id FROM files f JOIN letters l ON l.number = f.number
WHERE f.mailbox = ? AND f.folder = ? AND f.name = ?"""


def parsed_files(here: FileConnection, found: Sequence[Found]) -> Iterator[tuple[str, Plain]]:
    """Name and content of each file, in this order. What a stranger took away or broke just now is left out."""
    if not found:
        return
    mailbox, _ = here.mailbox(found[0].delivery.mailbox)
    numbers = [one.delivery.number for one in found]
    rows: list[tuple[Any, ...]] = here.database.execute(_FILES, (encode(numbers).decode(), mailbox)).fetchall()
    for folder, name in rows:
        try:
            raw, _ = files_durable.read(f"{here.places.path(folder)}/{name}", LARGEST)
            fields = json.loads(raw)
        except (FileNotFoundError, Unreadable, ValueError, RecursionError):
            continue
        if isinstance(fields, dict):
            yield name, fields


def id_at(here: FileConnection, mailbox: str, place: str, name: str) -> str | None:
    """The letter whose file lies there."""
    try:
        number, owner = here.mailbox(mailbox)
    except UnknownMessage:
        return None
    folder = here.places.folder(here.ledger.home(number, owner), place)
    id: str | None = here.database.execute(_ID, (number, folder, name)).get
    return id


# The store protocol on folders of files: the files are the truth, a SQLite index beside them answers.
#
# All questions are the index's. Before each, what strangers did to the files is taken in; at each commit, the
# files
# are written first and the index follows in the same step.

T = TypeVar("T")
_PASSING = (OSError, StoreFailing, apsw.FullError, apsw.IOError, apsw.ReadOnlyError, apsw.CantOpenError)
_TRIES = 3  # to open an index that somebody deletes meanwhile


class FileStore(SqliteStore):
    """A room in a folder that others may use too."""

    vouches = False

    def __init__(
        self,
        root: ground.Place,
        layout: Layout,
        *,
        boot: str,
        durable: bool = True,
        busy_timeout: float = 30.0,
        makes: bool = True,
    ) -> None:
        """`makes`: also the folder itself, where it is not there."""
        self.root = os.path.realpath(root)
        self.layout = layout
        self._must_last = durable
        self._chance = Random()
        self._last_id = 0
        self.made_anew = ""  # why the index was, if it was
        self._index: tuple[int, ...] = ()  # which one it was when it was last opened
        places = Places(self.root, layout)
        if makes:
            ground.make_folder(self.root)
        self._make_own_folder()
        if places.home != self.root:  # before anybody listens there
            self._make_within(places.home)
        self._places = places
        self.archives_by_sending = places.layout.archives_by_sending
        self._eyes = DirWatcher(places, self._noted, self._used)
        super().__init__(f"{self.root}/{OWN_FOLDER}/{INDEX}", boot=boot, durable=False, busy_timeout=busy_timeout)

    def fresh_id(self, sender: str) -> str:
        now = max(time.time_ns(), self._last_id + 1000)
        self._last_id = now
        return self.layout.fresh_id(sender, now, self._chance.getrandbits(32))

    # -- writing

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        if callable(writes):
            self._freshen()  # what it looks at inside is the index alone
        try:
            return super().commit(writes)
        except StoreFailing as failing:  # one that was replaced is noticed before anything is written
            if os.path.lexists(self.path) and failing.hint != REPLACED:
                raise
        except Damaged as broken:
            self._make_anew(broken)
        return super().commit(writes)  # the index was deleted or damaged: it is made anew from the files

    def sync(self) -> None:
        with translated(self.root):
            recovery.sync_all(self.root)

    # -- asking

    def _ask(self, sql: str, values: list[Any]) -> list[Row]:
        self._freshen()
        try:
            return super()._ask(sql, values)
        except Damaged as broken:
            self._make_anew(broken)
        return super()._ask(sql, values)

    def _sound(self, make: Callable[[Row], T], *questions: Statement) -> list[T]:
        try:
            return super()._sound(make, *questions)
        except Damaged as broken:
            self._make_anew(broken)
        return super()._sound(make, *questions)

    def _set_aside(self, number: int, damage: Unreadable) -> None:  # noqa: ARG002 - its file has it whole
        raise self._damaged(damage)

    def quarantined(self) -> list[str]:
        """Files that were set aside, by their paths below the root, as long as they lie there."""
        return [path for path in super().quarantined() if os.path.lexists(f"{self.root}/{path}")]

    def _make_anew(self, broken: Damaged) -> None:
        """A damaged index is no loss: the files have it all."""
        here = self._here()
        if here.database.in_transaction:  # a plan is looking: its commit fails, and the next finds it mended
            raise broken
        self._drop(here)
        self._throw_away(broken, here.inode)

    def _throw_away(self, broken: PostroomError, inode: int | None = None) -> None:
        self.made_anew = str(broken)
        recovery.throw_away(self.root, inode)

    def examine(self, *, repair: bool, full: bool, progress: Progress) -> Iterator[Finding]:
        self._freshen()
        index = examine.examine_index(
            self._here(), self.path, durable=self._must_last, repair=repair, full=full, progress=progress
        )
        yield from examine.examine(self, index, repair=repair, full=full)
        yield from examine.examine_surroundings(self, repair=repair, full=full)

    def _freshen(self) -> None:
        """Take in what strangers did."""
        here = self._here()
        if here.database.in_transaction:
            return
        if not here.is_current():  # the index was deleted: another is made from the files
            self._drop(here)
            here = self._here()
        try:
            self._look_around(here)
        except (apsw.Error, OSError, UnicodeDecodeError) as error:
            broken = self._damaged(error) if isinstance(error, UnicodeDecodeError) else translate(error, self.path)
            if not isinstance(broken, Damaged):
                raise broken from error
            self._make_anew(broken)
        except Damaged as broken:
            self._make_anew(broken)

    def _look_around(self, here: FileConnection) -> None:
        if here.registry is not None and here.registry.is_news():
            self._hear(here, here.registry)
        news = self._eyes.look()
        if news and (unknown := reconcile.unknown(here, news)):
            self._take_in(here, unknown)

    def _take_in(self, here: FileConnection, news: News) -> None:
        try:
            with here.lock:
                here.mend()
                rung, later = reconcile.reconcile(here, news)
                here.log.tend(here.lock)
        except BaseException as failed:
            self._eyes.put_back(news)
            if isinstance(failed, _PASSING):  # what the index knows can be read all the same
                return
            raise
        if later:
            self._eyes.put_back(later)
        bells = self._grasp(rung)
        self._bells.ring(bells)
        self._bells.let_go(bells)

    def _hear(self, here: FileConnection, registry: Registry) -> None:
        """Of agents that strangers wrote down."""
        with translated(self.path), here.lock:
            here.mend()
            if registry.is_news():
                registry.take_in()
                here.log.tend(here.lock)

    def _noted(self) -> dict[str, int]:
        return self._here().ledger.noted()

    def _used(self) -> list[str]:
        return self._here().ledger.used_folders()

    # -- the files themselves

    def sheets(self, found: Sequence[Found]) -> list[tuple[str, Plain]]:
        """Names and contents of the files of these letters, all of one mailbox; what is gone is left out."""
        return list(parsed_files(self._here(), found))

    def id_at(self, mailbox: str, place: str, name: str) -> str | None:
        """The letter in this file of a mailbox; None if there is none."""
        self._freshen()
        return id_at(self._here(), mailbox, place, name)

    def has_folder(self, mailbox: str) -> bool:
        """Has somebody made the folder of this mailbox, whether mail lies there or not?"""
        return os.path.isdir(self._places.path(self.layout.folder(mailbox)))

    def make_folder(self, mailbox: str) -> None:
        """So that strangers find where its mail is put."""
        folder = self._places.folder(self.layout.folder(mailbox), self.layout.places[0])
        try:
            files_durable.make_folder(self._places.path(folder))
        except FileNotFoundError:
            raise self._gone() from None
        except OSError as refused:
            raise translate(refused, self._places.path(folder)) from refused

    def connection(self) -> FileConnection:
        """This thread's."""
        return self._here()

    def set_right(self, news: News) -> None:
        """Look at these files, whatever their times say."""
        here = self._here()
        with here.lock:
            for folder, names in news.items():
                here.ledger.doubt(folder, names or set())
        self._take_in(here, news)

    # -- waiting

    def gathered(self, *, joined: bool = False) -> AbstractContextManager[None]:  # noqa: ARG002 - nothing is joined
        return nullcontext()  # each letter is a file of its own, synced by itself

    def watch(self, mailboxes: Sequence[str]) -> Watch:
        with translated(self.path):
            return watch.watch(self._bells, self._places, mailboxes, self._is_news)

    def _is_news(self, folder: str, name: str) -> bool:
        return bool(reconcile.unknown(self._here(), {folder: {name}}))

    def close(self) -> None:
        super().close()
        self._eyes.close()

    # -- care

    def backup(self, path: Path, *, overwrite: bool, progress: Progress) -> int:
        """The index has all of every letter: a copy of it is a room in one file."""
        self._freshen()
        return super().backup(path, overwrite=overwrite, progress=progress)

    # -- connections

    def _connect(self) -> FileConnection:
        for _ in range(_TRIES):
            self._make_own_folder()
            try:
                return self._open_index()
            except (Damaged, BadStore, StoreFailing) as broken:
                if recovery.can_help(broken):
                    self._throw_away(broken)
                elif not recovery.was_deleted(broken):
                    raise
        self._make_own_folder()
        return self._open_index()

    def _make_own_folder(self) -> None:
        self._make_within(f"{self.root}/{OWN_FOLDER}")

    def _make_within(self, folder: str) -> None:
        """Never with the root: mail would go on in an empty folder in its place."""
        try:
            os.mkdir(folder, mode=0o700)
        except FileNotFoundError:
            raise self._gone() from None
        except OSError:  # it is there, or whoever checks it says what is wrong
            ground.make_folder(folder)
        else:
            self._make_last(folder)

    def _make_last(self, folder: str) -> None:
        """One that was just made. Where that fails it goes again: whoever tries once more makes it anew."""
        try:
            ground.sync_path(self.root)
        except OSError as broken:
            with suppress(OSError):
                os.rmdir(folder)
            raise translate(broken, folder) from None

    def _gone(self) -> StoreFailing:
        return StoreFailing(f"the folder {self.root} is gone", field="store")

    def _open_index(self) -> FileConnection:
        opened = FileConnection(
            self.path,
            boot=self._boot,
            busy_timeout=self._busy_timeout,
            places=self._places,
            eyes=self._eyes,
            durable=self._must_last,
        )
        if self._index not in {(), opened.identity()}:
            self._look_everywhere()
        self._index = opened.identity()
        return opened

    def _look_everywhere(self) -> None:
        """Whoever was at work when the last index was deleted wrote into that one, and what was seen of it was
        compared with that one. What it did to files, this one may not know; nor does one without its log.
        """
        self._eyes.put_back(dict.fromkeys(self._places.folders()))

    if TYPE_CHECKING:

        def _here(self) -> FileConnection:
            """As made by `_connect`."""
