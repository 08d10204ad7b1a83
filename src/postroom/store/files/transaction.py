"""The file side of a commit: the steps that create, rewrite, move and remove letter files.

A `FileTransaction` is called by the commit of `store.sqlite` inside the transaction that changes the index, and
once more after the writer lock is released. A commit of a single step needs no journal, because a rename is
atomic. A commit of several steps, or one that writes records (which no layout has a file for), is first written to
the journal as one line, so that all of it happens or none; and so is one that settles mail of a person, so that
recovery can tell it from what other programs did (G12).

Each step can be repeated after a crash and undone after a failure. A step that fails leaves nothing behind. A step
names the folders that must be synced after it; `FileTransaction` syncs them.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw
import msgspec
from msgspec import Struct

from ...errors import Invalid, StaleRevision, StoreFailing, Unreadable
from ...model.codec import to_plain
from ...model.delivery import OPEN, State
from ...model.names import POSTMASTER, fold
from ...model.values import read_json
from ..protocol import Forget, Introduce, Move, Post, Put, Rename, must_last
from ..sqlite.rows import micros
from ..sqlite.wal import is_full
from . import durable as files_durable
from . import journal, letter_files
from .durable import sync_path
from .journal import DONE
from .letter_files import LARGEST
from .tree import OWN_FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...model.delivery import Delivery
    from ...model.message import Message
    from ..protocol import Posted, Write
    from .connection import FileConnection
    from .durable import Stamp


class FileStep(Struct, kw_only=True):
    """A step that leaves a letter file in this folder, or takes it out of there."""

    folder: str
    name: str

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders to sync after it; the one that gets a file comes first."""
        return (self.folder,)


class CreateFile(FileStep, tag="Create", kw_only=True):
    """The step that writes the file of a new letter."""

    content: bytes

    def do(self, *, durable: bool) -> Stamp:
        files_durable.make_folder(self.folder)
        return files_durable.write_new(self.folder, self.name, self.content, durable=durable)

    def undo(self) -> None:
        _unlink(f"{self.folder}/{self.name}")


class RewriteFile(FileStep, tag="Rewrite", kw_only=True):
    """The step that writes a letter file with a new state, maybe in another folder. One copy always exists."""

    content: bytes
    former: str  # the folder that holds the file before this step
    was: bytes = b""  # the content before this step, for `undo`

    @property
    def folders(self) -> tuple[str, ...]:
        return (self.folder,) if self.folder == self.former else (self.folder, self.former)

    def do(self, *, durable: bool, spare: str = "") -> Stamp:
        # The new file first, then the old one goes: a crash in between leaves two copies, which recovery tells
        # apart; never none.
        files_durable.make_folder(self.folder)
        if spare:
            stamp = files_durable.replace_using_spare(spare, self.folder, self.name, self.content, durable=durable)
        else:
            stamp = files_durable.replace(self.folder, self.name, self.content, durable=durable)
        if self.folder != self.former:
            try:
                _unlink(f"{self.former}/{self.name}")
            except OSError:  # all or nothing
                _unlink(f"{self.folder}/{self.name}")
                raise
        return stamp

    def undo(self) -> None:
        """Write the former content again, always synced: it replaces the only copy."""
        files_durable.replace(self.former, self.name, self.was, durable=True)
        if self.folder != self.former:
            _unlink(f"{self.folder}/{self.name}")


class MoveFile(FileStep, tag="Shift", kw_only=True):
    """The step that moves a letter file to another folder, unchanged."""

    former: str

    @property
    def folders(self) -> tuple[str, ...]:
        return (self.folder, self.former)

    def do(self, *, durable: bool) -> None:  # noqa: ARG002 - there is no content to sync
        source, target = f"{self.former}/{self.name}", f"{self.folder}/{self.name}"
        try:
            files_durable.check_folder(self.folder)
            files_durable.rename_new(source, target)
        except FileNotFoundError:
            files_durable.make_folder(self.folder)
            files_durable.rename_new(source, target)

    def undo(self) -> None:
        with suppress(FileNotFoundError):  # another program has moved it since
            files_durable.rename_new(f"{self.folder}/{self.name}", f"{self.former}/{self.name}")


class RemoveFile(FileStep, tag="Remove", kw_only=True):
    """The step that deletes a letter file. It cannot be undone, so it comes last."""

    def do(self, *, durable: bool) -> None:  # noqa: ARG002
        _unlink(f"{self.folder}/{self.name}")

    def undo(self) -> None:
        """Do nothing: the journal line holds the step, and recovery completes it."""


Step = CreateFile | RewriteFile | MoveFile | RemoveFile


def do_again(step: Step) -> None:
    """Complete a step after a crash, as far as it was not done. A file that was moved on since is left alone."""
    if isinstance(step, CreateFile):
        # It was written before the crash. A file of that name is never another letter: `_create` chose a free
        # one.
        with suppress(FileExistsError):
            step.do(durable=True)
    elif isinstance(step, (RewriteFile, MoveFile)):
        former = f"{step.former}/{step.name}"
        if os.path.lexists(former):
            try:
                step.do(durable=True)
            except FileExistsError:
                pass
            except FileNotFoundError:
                if os.path.lexists(former):  # else another program moved it meanwhile
                    raise
    else:
        step.do(durable=True)


def to_json(steps: list[Step], home: str) -> list[Any]:
    """Return the steps as JSON, with paths relative to `home`: a room may be moved before it is opened again."""
    plain: list[dict[str, Any]] = to_plain(steps)
    return [_each_path(step, lambda path: path.removeprefix(f"{home}/")) for step in plain]


def from_json(entry: Any, home: str) -> list[Step]:
    """Return the steps of a journal line, with absolute paths."""
    # Earlier versions renamed the folders of renamed agents. A folder keeps its name now, and its mail is found.
    kept = [step for step in entry if step["type"] != "Resettle"]
    return msgspec.convert([_each_path(step, lambda path: f"{home}/{path}") for step in kept], list[Step])


def _each_path(step: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    return {name: change(value) if name in {"folder", "former"} else value for name, value in step.items()}


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


# -- one commit


class Target(NamedTuple):
    """What the ledger notes of a step: whose file lies where then."""

    number: int  # of the letter
    mailbox: int
    folder: str
    order: int = 0  # the position in time of a new letter


class FileTransaction:
    """The file changes of one commit after the other, for one connection."""

    def __init__(self, conn: FileConnection, *, durable: bool) -> None:
        self._conn = conn
        self._tree, self._layout, self._ledger = conn.tree, conn.tree.layout, conn.ledger
        self._durable = durable
        self._clear()

    def _clear(self) -> None:
        self._steps: list[tuple[Step, Target, bool]] = []  # with its ledger entry; must it be synced?
        self._entries: list[dict[str, Any]] = []
        self._done: list[Step] = []
        self._unsynced: dict[str, bool] = {}  # folders, and whether a file was added to them
        self._needs_line = False  # recovery must know that we did this, and no other program
        self._journal_size: int | None = None  # the length of the journal before this commit's line
        self._forgotten: list[int] = []  # numbers of letters that this commit deletes from the index
        self._other_writes: list[Write] = []  # all but Post and Move; they may concern the registry
        self._last_order = 0  # the position in time of the last letter of this commit

    # -- inside the transaction

    def prepare(self, writes: Sequence[Write]) -> None:
        """Note what the index will no longer know after it has changed."""
        self._clear()
        for write in writes:
            if isinstance(write, (Post, Move)):
                continue
            self._other_writes.append(write)
            if isinstance(write, Forget) and (number := self._conn.number_of(write.message_id)) is not None:
                self._forgotten.append(number)

    def carry_out(self, writes: Sequence[Write], posted: Sequence[Posted]) -> None:
        """Change the files as these writes say, or raise and leave them as they were."""
        if self._other_writes and self._conn.registry is not None:
            self._conn.registry.prepare(self._other_writes)
        outcomes = iter(posted)
        for write in writes:
            if isinstance(write, Post):
                self._post(write, next(outcomes))
            elif isinstance(write, Move):
                self._move(write)
            else:
                self._add_entry(write)
        if not self._steps and not self._entries:
            return
        # Until the index is committed too, a crash makes the next process compare every folder with the index.
        self._conn.lock.mark_sync_failed()
        try:
            self._perform()
        except OSError as failed:
            self.undo()
            if is_full(failed):
                raise apsw.FullError(str(failed)) from failed
            raise _with_folder_names(failed) from failed
        except BaseException:
            self.undo()
            raise

    def undo(self) -> None:
        """Undo the steps, as the index transaction was rolled back."""
        try:
            for step in reversed(self._done):
                step.undo()
            if self._journal_size is not None:
                self._conn.journal.cut(self._journal_size)
            if (self._steps or self._entries) and not self._conn.journal.is_torn:
                self._conn.lock.clear_sync_failed()
        except OSError:
            return  # the warning in the lock file stays: the next process compares everything
        finally:
            self._clear()

    def doubt(self) -> None:
        """Leave the warning in place, as it is unknown whether the index was committed."""
        self._clear()

    def settle(self) -> None:
        """Finish after the index was committed: publish to the registry, compact the journal."""
        if self._other_writes and self._conn.registry is not None:
            self._conn.registry.publish_changes(self._other_writes)
        if self._steps or self._entries:
            self._conn.lock.clear_sync_failed()
        if self._journal_size is not None:
            journal.compact_if_long(self._conn)

    def make_safe(self) -> None:
        """Sync the folders, after the lock was released and before success is reported (G1)."""
        try:
            self._sync_folders()
        except StoreFailing:  # recovery syncs every folder before any reader sees this letter
            with suppress(OSError):  # the disk may refuse the warning, too
                self._conn.lock.mark_sync_failed()
            raise

    # -- doing the steps

    def _perform(self) -> None:
        """Do the planned steps, with a journal line first unless a single step is all."""
        # One rename is atomic by itself: no journal line, one sync less.
        if len(self._steps) == 1 and not self._entries and not self._needs_line:
            self._perform_step(*self._steps[0])
            return
        # A claim or a read stamp need not survive a power cut, so it needs no journal line either.
        lasting = [step for step, _, must in self._steps if must]
        # Synced before the first step, so that recovery can complete the rest (G2).
        if self._entries or len(lasting) > 1 or self._needs_line:
            self._write_journal_line(lasting)
        # A removal cannot be undone, so it comes last.
        for each in sorted(self._steps, key=lambda each: isinstance(each[0], RemoveFile)):
            self._perform_step(*each)
        # All names are durable before the line that says so: recovery trusts a `done` line.
        if self._journal_size is not None and lasting:
            self._sync_folders()
            self._conn.journal.append(DONE, durable=self._durable)

    def _perform_step(self, step: Step, at: Target, must: bool) -> None:
        """Do one step, and note in the ledger where its file lies now."""
        number, mailbox, folder, order = at
        if isinstance(step, CreateFile):
            stamp = step.do(durable=self._durable and must)
            self._ledger.add_file(number, mailbox, folder, step.name, stamp, order)
        elif isinstance(step, RewriteFile):
            stamp = self._rewrite_file(step)
            self._ledger.update_file(number, mailbox, folder, step.name, stamp)
        elif isinstance(step, MoveFile):
            self._move_file(step)
            self._ledger.move_file(number, mailbox, folder)
        else:
            step.do(durable=True)
            self._ledger.drop_file(number, mailbox)
        self._done.append(step)
        # A move between folders is synced in any case: half of it on the disk is two copies, or none.
        if self._durable and (must or len(step.folders) > 1):
            new, *former = step.folders
            self._unsynced.setdefault(new, True)
            self._unsynced |= dict.fromkeys(former, False)

    def _rewrite_file(self, step: RewriteFile) -> Stamp:
        """Rewrite a file, always synced: it replaces the only copy. A full disk takes the spare file."""
        try:
            return step.do(durable=self._durable)
        except OSError as failed:
            if not is_full(failed):
                raise
        return step.do(durable=self._durable, spare=f"{self._tree.root}/{OWN_FOLDER}/spare")

    def _move_file(self, step: MoveFile) -> None:
        try:
            step.do(durable=True)
        except FileNotFoundError:
            if not os.path.lexists(f"{step.former}/{step.name}"):
                raise self._stale(step.former, step.name) from None
            raise

    def _sync_folders(self) -> None:
        """Sync the noted folders. A failed sync is never retried: the second may only seem to succeed."""
        folders = self._unsynced
        try:
            # Folders that got a file come first: after a power cut in between there may be two copies, never none
            # (G1).
            for folder in sorted(folders, key=folders.__getitem__, reverse=True):
                sync_path(folder)
        except OSError as failed:
            raise StoreFailing(f"the disk did not take the letter: {failed.strerror}") from None
        self._unsynced = {}

    def _write_journal_line(self, lasting: list[Step]) -> None:
        """Append one line with all of the commit. The index stores the number of the last line it contains."""
        line = {
            "n": self._ledger.next_line(),
            "writes": self._entries,
            "steps": to_json(lasting, self._tree.home),
        }
        self._journal_size = self._conn.journal.append(line, durable=self._durable)

    # -- planning the steps of each write

    def _post(self, write: Post, outcome: Posted) -> None:
        """Plan the files of a new letter, one for each mailbox."""
        if outcome.repeated:
            self._resync(outcome.message_id)
            return
        message, number = (outcome.written or write).message, outcome.number
        if message.sender == POSTMASTER or message.proof is not None:
            self._needs_line = True
        # Read back from the index: for a broadcast the writes hold only the first delivery and a list of names.
        deliveries = list(self._conn.deliveries(message, number))
        if not deliveries:
            return
        # A time that the sender chose may lie far ahead. No letter is ordered after its delivery, or all later
        # letters would have to follow it.
        _, _, first = deliveries[0]
        sent = min(message.created_at, first.delivered_at or message.created_at)
        # A rebuilt index orders letters by this time. It only grows, so a clock set back changes nothing (G7).
        latest = max(self._last_order, self._ledger.last_place())
        self._last_order = max(latest + 1, micros(sent))
        for mailbox, owner, delivery in deliveries:
            self._create(message, number, mailbox, owner, delivery, self._last_order)

    def _resync(self, id: str) -> None:
        """Sync the folders of a letter that is sent again: its first sender may have died before the sync."""
        number = self._conn.number_of(id)
        if number is not None and self._durable:
            for _, folder, _ in self._ledger.files_of(number):
                self._unsynced.setdefault(self._tree.path(folder), True)

    def _create(
        self, message: Message, number: int, mailbox: int, owner: str, delivery: Delivery, order: int
    ) -> None:
        folder = self._tree.folder(self._ledger.home_of(mailbox, owner), self._layout.place(delivery))
        path = self._tree.path(folder)
        name = self._layout.file_name(message, order)
        # The name may be taken by another program or another letter.
        if os.path.lexists(f"{path}/{name}"):
            stem = name.removesuffix(self._layout.ending)
            name = f"{stem}-{os.urandom(4).hex()}{self._layout.ending}"
        content = letter_files.render_file(self._layout, message, owner, delivery, name=name, order=order)
        step = CreateFile(folder=path, name=name, content=content)
        self._steps.append((step, Target(number, mailbox, folder, order), True))

    def _add_entry(self, write: Write) -> None:
        if isinstance(write, Put):
            if write.durable:
                self._entries.append({"put": to_plain(self._conn.record_as_written(write))})
        elif isinstance(write, Forget):
            self._entries.append({"forget": write.message_id})
            self._forget(self._forgotten.pop(0))
        elif isinstance(write, Rename):
            self._entries.append({"rename": [write.old, write.new]})
        elif isinstance(write, Introduce):
            self._entries.append({"introduce": [write.mailbox, write.known]})

    def _move(self, move: Move) -> None:
        """Plan the step that brings the file of a delivery to its new state."""
        number, name, after = move.before.number, move.before.mailbox, move.after
        if move.before.state in OPEN and must_last(move) and fold(name) in self._conn.people():
            self._needs_line = True
        mailbox, owner = self._conn.mailbox(name)
        kept = self._ledger.path_of(number, mailbox)
        if after.mailbox != name:
            message, order = self._conn.letter(number)
            self._create(message, number, *self._conn.mailbox(after.mailbox), after, order)
            if kept is not None:
                # The copy in the new mailbox is created first, and removals are done last (G4).
                self._remove(number, mailbox, *kept)
            return
        if kept is None:  # its file was deleted by another program
            # Write it again where its owner can still get it; a dead letter without a file needs none.
            if after.state is not State.DEAD:
                message, order = self._conn.letter(number)
                self._create(message, number, mailbox, owner, after, order)
            return
        indexed_folder, file = kept
        home, place = self._tree.of(indexed_folder)
        former = self._tree.path(indexed_folder)
        target = self._tree.folder(home, self._layout.place(after))
        folder = self._tree.path(target)
        if self._layout.changes_content(move.before, after):
            fields, was = self._fields(indexed_folder, file)
            found = letter_files.state_at(self._layout, fields, place, name)
            # Compare and set, against the file: the index may not have seen yet what another program wrote.
            if found.state is not self._layout.visible_state(move.before):  # another program changed it
                raise self._stale(former, file)
            self._layout.write_state(fields, after)
            content = self._layout.dump(fields)
            step: Step = RewriteFile(folder=folder, name=file, content=content, former=former, was=was)
        elif folder != former:
            step = MoveFile(folder=folder, name=file, former=former)
        else:
            return
        self._steps.append((step, Target(number, mailbox, target), must_last(move)))

    def _fields(self, folder: str, name: str) -> tuple[dict[str, Any], bytes]:
        """Return the content of a letter file, parsed and raw, with the fields that other programs added."""
        path, held = self._tree.path(folder), self._ledger.file_at(folder, name)
        try:
            raw, _ = files_durable.read(f"{path}/{name}", LARGEST, held and held.stamp)
            fields = read_json(raw, name, depth=letter_files.DEEPEST, largest=LARGEST)
        except (FileNotFoundError, Unreadable, Invalid):
            raise self._stale(path, name) from None
        if not isinstance(fields, dict):
            raise self._stale(path, name)
        return fields, raw

    def _stale(self, path: str, name: str) -> StaleRevision:
        """Return the error for a file that another program changed, and have the file compared again."""
        self._conn.watcher.put_back({path.removeprefix(f"{self._tree.home}/"): {name}})
        return StaleRevision()

    def _forget(self, number: int) -> None:
        for mailbox, folder, name in self._ledger.files_of(number):
            self._remove(number, mailbox, folder, name)

    def _remove(self, number: int, mailbox: int, folder: str, name: str) -> None:
        step = RemoveFile(folder=self._tree.path(folder), name=name)
        self._steps.append((step, Target(number, mailbox, folder), True))


def _with_folder_names(failed: OSError) -> OSError:
    """Return the error with folders instead of files: the name of a temporary file helps nobody."""
    paths = [path for path in (failed.filename, failed.filename2) if isinstance(path, str)]
    if failed.errno != errno.ENOTDIR:  # then the path itself should have been a folder
        paths = [path if os.path.isdir(path) else os.path.dirname(path) for path in paths]
    return OSError(failed.errno, failed.strerror, " or ".join(dict.fromkeys(paths)) or None)
