"""Reconciliation of the index with the mail folders, which other programs may change at any time.

The files are the truth. Under the writer lock and in one transaction, `reconcile` takes in what other programs
added, moved, rewrote or deleted. What files do not hold (leases, attempts) stays as the index has it. A letter
never changes: a file whose letter differs from the accepted one is damaged, while its state may change and other
programs may add fields.

| the file | what the index has of it | what is done |
|---|---|---|
| new, a letter | nothing | the letter and its delivery are added |
| new, a letter | the letter, no delivery here | a delivery is added |
| new, a letter | a delivery whose file is gone | the file was moved: the delivery gets the state it shows |
| new, a letter | a delivery whose file is there | a copy: set aside; after a crash, the earlier of both goes |
| new, another letter with a taken id | a letter with this id | it is added under an id made from its path |
| changed, the accepted letter | a delivery | the delivery gets the state that the file shows |
| changed, anything else | a delivery | set aside, and the accepted letter is written again |
| new, no letter | nothing | set aside, once it was unchanged for ten seconds |
| new, a letter of the postmaster | nothing | set aside, unless we wrote it, or the index was lost |
| new, a letter signed by a removed key | nothing | added without its proof, with the same exceptions |
| gone | an open delivery | it becomes a dead letter |
| gone | a settled delivery | it is dropped |
| in a folder that cannot be read | anything | nothing: it is neither new nor gone |
| moved, changed or gone | an open delivery of a person | it is set aside, and the letter is written again (G12) |

Only a person settles what waits for that person, and only Postroom writes as the postmaster. After a boot or a
crash the index may be older than such a file: then the file counts where the journal holds the step that wrote it,
for a crash of a room is easily faked. An index without any letter was lost, and the files are all there is.

Whatever is wrong with one file, `_parse_all` (reading) and `_admit` (indexing) set only that file aside, and all
other mail goes on (G2).
"""

from __future__ import annotations

import gc
import logging
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import apsw
from msgspec.structs import replace

from ...errors import Busy, Damaged, LookAlike, NameTaken, PostroomError, Unreadable
from ...model.agent import guard_from
from ...model.codec import blake2b, convert
from ...model.delivery import OPEN, UNSENT, Attempt, Lease, State, open_delivery
from ...model.message import OWN_NOTES
from ...model.names import POSTMASTER, fold
from ...model.record import GUARD, TASKS
from ...model.task import TASK_UPDATE, RecordBuffer, TaskStatus, answer, open_task, task_above, task_on, write_task
from ..protocol import Put
from ..sqlite import rows
from ..sqlite.writes import WriteTransaction
from . import durable as files_durable
from . import letter_files
from .durable import Stamp
from .layouts.base import OWN
from .ledger import ChangedFile
from .quarantine import Quarantine, why_taken
from .tree import changed_at, is_text
from .watch import is_gone, is_settled

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from ...model.delivery import Delivery
    from ...model.message import Message, Recipient
    from .connection import FileConnection
    from .layouts.base import FileState, Layout
    from .ledger import IndexedFile
    from .letter_files import ParsedFile
    from .watch import FileChanges


FOREIGN_LEASE = 3600.0  # seconds that a letter claimed by another program is left to it
DELETED = "its file was deleted"
NOT_THEIRS = "only the person settles what waits in this mailbox"
# Errors of the room or the machine, which say nothing about the file at hand; but a few errors of SQLite say that
# a value from the file cannot be stored.
_OF_THE_ROOM = (OSError, MemoryError, UnicodeDecodeError, Damaged, Busy, apsw.Error)
_OF_THE_FILE = (apsw.ConstraintError, apsw.TooBigError, apsw.MismatchError, apsw.RangeError)
_log = logging.getLogger("postroom")


def is_same(first: Message, second: Message) -> bool:
    """Return whether both are the same letter, apart from recipients and fields added by other programs."""
    return replace(first, recipients=(), extra={}) == replace(second, recipients=(), extra={})


def is_as_accepted(layout: Layout, known: Message, parsed: ParsedFile, folder: str, name: str) -> bool:
    """Return whether a file still holds the letter `known` that was accepted."""
    message = parsed.message
    if known.id != message.id:  # it may be a second letter with this id
        message = replace(message, id=another_id(message.id, folder, name))
    if not is_same(known, message):
        return False
    added = [r for r in parsed.message.recipients if r not in known.recipients and r.address != parsed.mailbox]
    return not added and not _is_misspelt(layout, known, parsed, name)


def another_id(id: str, folder: str, name: str) -> str:
    """Return the id of a second letter with a taken id: derived from its path, so it is stable."""
    home = folder.partition("/")[0]
    return f"{id[:180]}.{blake2b(f'{home}/{name}'.encode(), digest_size=5).hexdigest()}"


def _is_misspelt(layout: Layout, known: Message, parsed: ParsedFile, name: str) -> bool:
    """Return whether a field is missing and an unknown one is there, as after damage to a field name."""
    if parsed.message.extra.keys() <= known.extra.keys():
        return False
    written = letter_files.fields_of(layout, known, parsed.mailbox, name=name, order=parsed.order)
    missing = written.keys() - parsed.fields.keys()
    if OWN_NOTES & parsed.fields.keys():  # earlier versions wrote these beside our key
        missing -= {OWN}
    return bool(missing)


def unindexed(conn: FileConnection, changes: FileChanges) -> FileChanges:
    """Return the changes that the index does not have yet. Most changes in the folders are our own."""
    found: dict[str, set[str] | None] = {}
    for folder, names in changes.items():
        if names is None:
            found[folder] = None
            continue
        unknown = {
            name for name in names if conn.tree.layout.may_hold(name) and not _is_indexed(conn, folder, name)
        }
        if unknown:
            found[folder] = unknown
    return found


def _is_indexed(conn: FileConnection, folder: str, name: str) -> bool:
    if not is_text(name):
        return False
    held = conn.ledger.file_at(folder, name)
    try:
        stamp = Stamp.of(os.lstat(f"{conn.tree.path(folder)}/{name}"))
    except FileNotFoundError:
        return held is None
    return held is not None and held.stamp == stamp


class TaskImporter:
    """The task records that follow from letters found in files.

    The letters may come from other programs, or be our own after the index was lost. An update that the record
    already contains is skipped. Records can be derived from the letters again, so a failing journal is ignored.
    """

    def __init__(self, conn: FileConnection) -> None:
        self._conn = conn
        self._arrived: list[tuple[Message, Delivery]] = []
        self._letters_by_task: dict[tuple[str, str], set[str]] = {}  # ids of opening letters, by (party, task id)
        self._known: set[str] = set()  # parties whose stored tasks are in that table

    def note(self, message: Message, delivery: Delivery) -> None:
        """Note that a letter arrived in a mailbox. Called in the order of acceptance."""
        if message.task is not None and delivery.reason != UNSENT:
            self._arrived.append((message, delivery))

    def enter(self, writing: WriteTransaction) -> Sequence[Put]:
        """Write the task records that changed, and return them."""
        if not self._arrived:
            return ()
        self._pages = RecordBuffer(self._conn.records)
        letters = [(replace(m, sender=self._current_name(m.sender)), delivery) for m, delivery in self._arrived]
        for message, delivery in letters:
            if delivery.kind == "to":
                self._open(message, delivery.mailbox)
        positions = {message.id: position for position, (message, _) in enumerate(letters)}
        people = self._conn.people()
        for message, _ in letters:  # whatever the clocks of other programs say, an update follows its task
            is_unproven = message.proof is None and fold(message.sender) in people
            if message.kind == TASK_UPDATE and not is_unproven:  # no task moves in a person's name (G12)
                self._update(message, positions)
        puts = [Put(record=record) for record in self._pages.changed()]
        writing.apply(puts)
        with suppress(OSError):
            self._conn.journal_records(puts, durable=False)
        return puts

    def _open(self, message: Message, mailbox: str) -> None:
        opened = open_task(message)
        if opened is not None and task_on(self._pages, opened.giver, opened.letter) is None:
            self._write(replace(opened, receiver=self._current_name(mailbox)))

    def _update(self, message: Message, positions: dict[str, int]) -> None:
        task = task_above(self._pages, message) or self._task_named(message)
        if task is None:
            return
        if task.last != task.letter and positions[message.id] <= positions.get(task.last, -1):
            return  # the record already contains a later letter
        # Another program names the letter it answers, or only the task. It does not know our thread ids.
        after = answer(task, replace(message, thread_id=task.thread))
        if after != task:
            self._write(after)

    def _task_named(self, message: Message) -> TaskStatus | None:
        """Return the only task of the sender with this id, for an update that names no letter of the task."""
        if message.task is None:
            return None
        party = message.sender
        if party not in self._known:
            self._known.add(party)
            for record in self._conn.records(TASKS + party):
                self._remember_task(party, convert(record.value, TaskStatus))
        letters = self._letters_by_task.get((party, message.task.id), ())
        return task_on(self._pages, party, *letters) if len(letters) == 1 else None

    def _remember_task(self, party: str, task: TaskStatus) -> None:
        self._letters_by_task.setdefault((party, task.id), set()).add(task.letter)

    def _write(self, task: TaskStatus) -> None:
        write_task(self._pages, task)
        for party in (task.giver, task.receiver):
            self._remember_task(party, task)

    def _current_name(self, name: str) -> str:
        """Return the present name of an agent that may have been renamed."""
        guard = self._pages.read(GUARD, name)
        return (guard_from(guard).moved_to if guard is not None else None) or name


class Reconciler:
    """One reconciliation of some folders with the index."""

    def __init__(self, conn: FileConnection, *, after_crash: bool, journaled: frozenset[tuple[str, str]]) -> None:
        self._conn = conn
        self._journaled = journaled
        self._layout, self._tree, self._ledger = conn.tree.layout, conn.tree, conn.ledger
        self._writing = WriteTransaction(conn.database, conn.names)
        self._after_crash = after_crash
        self._now = conn.now()
        self._quarantine = Quarantine(conn)
        self._retry: dict[str, set[str]] = {}
        self._tasks = TaskImporter(conn)
        self._positions: dict[int, dict[Recipient, int]] = {}  # of recipients, by letter number
        self._to_notify: set[str] = set()
        self._owners: dict[str, str] = {}  # mailbox by folder: one may hold thousands of files
        self._numbers: dict[tuple[str, str, str], int] = {}  # mailbox number by folder, mailbox name and sender
        self._people = conn.people()
        self._is_lost = after_crash and not conn.database.execute("SELECT EXISTS (SELECT 1 FROM letters)").get

    def run(self, changes: FileChanges) -> tuple[set[str], FileChanges]:
        """Take in the changes; return the mailboxes to notify, and the changes to look at again later."""
        # Times are taken before the folders are listed: a change in between then shows at the next look.
        changed = {folder: changed_at(self._tree.path(folder)) for folder in changes}
        fresh: list[ChangedFile] = []
        gone: dict[tuple[str, str], IndexedFile] = {}
        for folder, names in changes.items():
            self._compare(folder, names, fresh, gone)
        # In the order of the letters' times, so that numbers follow it: file systems list names in any order
        # (G7).
        for file, parsed in sorted(self._parse_all(fresh), key=lambda each: (each[1].order, each[0].name)):
            self._admit(file, parsed, gone)
        # Deletions last: until now a new file may have turned out to be the one that is missing.
        for (folder, name), held in gone.items():
            self._handle_deleted(folder, name, held)
        for folder in (folder for folder, names in changes.items() if names is None):
            if (at := changed[folder]) is None:
                self._ledger.clear_folder_time(folder)
            # A time that is too recent may not change with the next write, so the folder is read again.
            elif is_settled(at) and folder not in self._retry:
                self._ledger.set_folder_time(folder, at)
        entered = self._tasks.enter(self._writing)
        self._writing.remember()
        if entered and self._conn.registry is not None and not self._after_crash:  # then all of it is read again
            self._conn.registry.publish_changes(entered)
        return self._to_notify, self._retry

    # -- comparing

    def _compare(
        self,
        folder: str,
        names: set[str] | None,
        fresh: list[ChangedFile],
        gone: dict[tuple[str, str], IndexedFile],
    ) -> None:
        there = self._listed(folder, names)
        if there is None:  # unreadable: its files count neither as new nor as deleted
            return
        # SQLite stores UTF-8 only, so the index could not name this file.
        for name in [name for name in there if not is_text(name)]:
            self._set_aside(ChangedFile(folder, name, there.pop(name)), "its name is not UTF-8")
        if names is None:
            known = self._ledger.files_in(folder)
        else:
            named = filter(is_text, names)
            # Only what the caller names: the rest of a folder of thousands is not read.
            known = {name: held for name in named if (held := self._ledger.file_at(folder, name)) is not None}
        for name, stamp in there.items():
            held = known.get(name)
            if held is None or held.stamp != stamp:
                fresh.append(ChangedFile(folder, name, stamp, held))
        gone |= {(folder, name): held for name, held in known.items() if name not in there}

    def _listed(self, folder: str, names: set[str] | None) -> dict[str, Stamp] | None:
        path, there = self._tree.path(folder), {}
        try:
            files_durable.check_folder(path)
            candidates = os.listdir(path) if names is None else names
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except PermissionError as closed:
            _log.warning("%s cannot be looked into: %s", path, closed.strerror)
            return None
        for name in candidates:
            if self._layout.may_hold(name):
                try:
                    there[name] = Stamp.of(os.lstat(f"{path}/{name}"))
                except FileNotFoundError:
                    continue
        return there

    # -- reading

    def _parse_all(self, fresh: list[ChangedFile]) -> list[tuple[ChangedFile, ParsedFile]]:
        found = []
        for file in fresh:
            home, _ = self._tree.of(file.folder)
            owner = self._owners.get(home) or self._owner(home)
            if owner is None:
                continue
            try:
                parsed, stamp = self._conn.parse(file.folder, file.name, owner)
            except FileNotFoundError:
                continue
            except Unreadable as wrong:
                self._set_aside(file, str(wrong))
                continue
            if file.held is None:  # nothing to compare with: saves memory for thousands of files
                parsed = parsed._replace(fields={})
            found.append((file._replace(stamp=stamp), parsed))
        return found

    def _owner(self, home: str) -> str | None:
        try:
            name = self._conn.owner_of(home)
        except PostroomError as wrong:
            if home not in self._tree.warned_paths:
                self._tree.warned_paths.add(home)
                _log.warning("%s is not a mailbox: %s", self._tree.path(home), wrong)
            return None
        self._owners[home] = name
        return name

    def _set_aside(self, file: ChangedFile, why: str) -> None:
        if not self._quarantine.put(file, why):
            self._retry.setdefault(file.folder, set()).add(file.name)

    # -- new letters

    def _admit(self, file: ChangedFile, parsed: ParsedFile, gone: dict[tuple[str, str], IndexedFile]) -> None:
        """Index one file, or set it aside if the index cannot store it."""
        try:
            with self._conn.database:  # a savepoint: a rejected file leaves nothing in the index
                self._import_letter(file, parsed, gone)
        except (NameTaken, LookAlike) as taken:
            self._forget_names()
            self._set_aside(file, why_taken(taken, self._tree.of(file.folder)[0]))
        except Exception as wrong:
            # A failing disk or a damaged index must not send good letters to quarantine.
            if isinstance(wrong, _OF_THE_ROOM) and not isinstance(wrong, _OF_THE_FILE):
                raise
            self._forget_names()
            self._set_aside(_finished(file), _why_not_kept(wrong, parsed))

    def _forget_names(self) -> None:
        """Forget cached mailboxes, whose rows were rolled back together with the file."""
        self._writing = WriteTransaction(self._conn.database, self._conn.names)
        self._owners.clear()
        self._numbers.clear()

    def _import_letter(
        self, file: ChangedFile, parsed: ParsedFile, gone: dict[tuple[str, str], IndexedFile]
    ) -> None:
        message = parsed.message
        held = file.held
        if held is not None and not is_as_accepted(
            self._layout, self._conn.letter(held.number)[0], parsed, file.folder, file.name
        ):
            self._set_aside(_finished(file), "it does not say what was accepted")
            return
        first = self._letter(message.id)
        # Other programs may reuse ids. The second letter is kept under an id of its own (G2).
        if first is not None and not is_same(first[1], message):
            message = replace(message, id=another_id(message.id, file.folder, file.name))
            first = self._letter(message.id)
            if first is not None and not is_same(first[1], message):
                self._set_aside(_finished(file), "its id is that of another letter")
                return
        mailbox = self._mailbox_of(file, parsed)
        if first is None:
            # Our own letters are in the index before any reader looks, unless the index is older or was lost (G8).
            if not self._is_lost and (file.folder, file.name) not in self._journaled:
                if message.sender == POSTMASTER:
                    self._set_aside(_finished(file), "only Postroom writes in the name of postmaster")
                    return
                message = self._conn.proven_now(message)
            number = self._writing.insert_letter(message)
            self._positions[number] = _positions_in(parsed)
            self._deliver_first(file, parsed._replace(message=message), number, mailbox)
            return
        number, known = first
        if known.extra != message.extra:  # other programs may add fields
            known = replace(known, extra=message.extra)
            self._writing.replace_letter(number, known)
        if held is None:  # else the index has all of them
            self._merge_recipients(number, known, parsed)
        self._deliver(file, parsed, number, mailbox, message, gone)

    def _deliver_first(self, file: ChangedFile, parsed: ParsedFile, number: int, mailbox: int) -> None:
        delivery = self._delivery_of(parsed, number, file.stamp.time)
        self._writing.insert_delivery(delivery, number, mailbox)
        self._ledger.add_file(number, mailbox, file.folder, file.name, file.stamp, parsed.order)
        if delivery.state in {State.UNREAD, State.QUEUED}:
            self._to_notify.add(parsed.mailbox)
        self._tasks.note(parsed.message, delivery)

    def _deliver(
        self,
        file: ChangedFile,
        parsed: ParsedFile,
        number: int,
        mailbox: int,
        message: Message,
        gone: dict[tuple[str, str], IndexedFile],
    ) -> None:
        if self._delivery(number, mailbox) is None:
            self._deliver_first(file, parsed._replace(message=message), number, mailbox)
            return
        kept = self._ledger.path_of(number, mailbox)
        if kept is not None and kept != (file.folder, file.name) and kept not in gone:
            was = self._ledger.file_at(*kept)
            if was is None or not is_gone(f"{self._tree.path(kept[0])}/{kept[1]}"):
                self._second_copy(file, *kept, number, mailbox, parsed)
                return
            # Another program moved it while the commit that wrote it ran: the index did not know it when the
            # changes were collected, so they name only the new path (G4, G5).
            gone[kept] = was
        delivery = self._delivery(number, mailbox)
        is_moved = delivery is not None and parsed.state.state is not self._layout.visible_state(delivery)
        if kept is not None and is_moved and self._waits_for_person(delivery, file.folder, file.name):
            self._set_aside(_finished(file), NOT_THEIRS)
            return
        self._update_state(number, mailbox, parsed)
        if kept is None:
            self._ledger.add_file(number, mailbox, file.folder, file.name, file.stamp, parsed.order)
        else:  # a file that is gone there and new here is one letter that changed its state, not a deletion
            self._ledger.update_file(number, mailbox, file.folder, file.name, file.stamp)
            gone.pop(kept, None)

    def _second_copy(
        self, file: ChangedFile, folder: str, name: str, number: int, mailbox: int, parsed: ParsedFile
    ) -> None:
        """Resolve a letter found twice in a mailbox.

        After a crash in the middle of a move the later state counts; otherwise another program made a copy.
        """
        is_persons = self._waits_for_person(self._delivery(number, mailbox), file.folder, name)
        if self._after_crash and file.name == name and not is_persons:
            earlier, later = sorted((folder, file.folder), key=self._rank)
            # Recovery has synced both folders before, so removing the earlier copy loses nothing.
            os.unlink(f"{self._tree.path(earlier)}/{name}")
            if later == file.folder:
                self._ledger.update_file(number, mailbox, file.folder, file.name, file.stamp)
                self._update_state(number, mailbox, parsed)
            return
        self._set_aside(_finished(file), "it is a copy of another file")

    def _rank(self, folder: str) -> int:
        """Return how late in a letter's life this folder comes."""
        order = {place: rank for rank, place in enumerate((".queued", *self._layout.places[:2]))}
        return order.get(self._tree.of(folder)[1], 0)

    def _merge_recipients(self, number: int, first: Message, parsed: ParsedFile) -> None:
        """Complete the recipients: those hidden from each other are known only from all files together."""
        missing = [recipient for recipient in parsed.message.recipients if recipient not in first.recipients]
        if not missing:
            return
        if not parsed.positions:  # this file names all of them
            self._writing.replace_letter(number, replace(first, recipients=parsed.message.recipients))
            return
        positions = self._positions.get(number, {}) | _positions_in(parsed)
        self._positions[number] = positions
        whole = sorted(
            [*first.recipients, *missing], key=lambda recipient: positions.get(recipient, len(positions))
        )
        self._writing.replace_letter(number, replace(first, recipients=tuple(whole)))

    def _delivery_of(self, parsed: ParsedFile, number: int, written: datetime) -> Delivery:
        kinds = {recipient.address: recipient.kind for recipient in parsed.message.recipients}
        opened = open_delivery(parsed.message, parsed.mailbox, kinds.get(parsed.mailbox, "to"), written)
        return self._with_state(replace(opened, number=number, revision=self._first_revision()), parsed)

    def _first_revision(self) -> int:
        """Return a random revision, so that a delivery read from a former index cannot be moved in this one."""
        return 1 + int.from_bytes(os.urandom(4))

    def _mailbox_of(self, file: ChangedFile, parsed: ParsedFile) -> int:
        """Return the number of the mailbox that a file lies in, and introduce mailbox and sender."""
        home, _ = self._tree.of(file.folder)
        at = (home, parsed.mailbox, parsed.message.sender)
        if at in self._numbers:
            return self._numbers[at]
        self._writing.mailbox(parsed.message.sender, "sender", known=True)
        number, _ = self._writing.mailbox(parsed.mailbox, "to")
        if self._layout.folder(parsed.mailbox) == home:  # else this agent has another folder
            self._ledger.assign_home(home, number, parsed.mailbox)
            self._owners[home] = parsed.mailbox
        self._numbers[at] = number
        return number

    # -- changed states

    def _update_state(self, number: int, mailbox: int, parsed: ParsedFile) -> None:
        """Set the state in the index to the one in the file."""
        delivery = self._delivery(number, mailbox)
        if delivery is None:
            return
        if parsed.state.state is not self._layout.visible_state(delivery):
            after = self._with_state(replace(delivery, revision=delivery.revision + 1), parsed)
        elif self._layout.read_state_differs(delivery, parsed.state):
            after = replace(delivery, revision=delivery.revision + 1, read_at=parsed.state.read_at)
        else:
            return
        self._writing.set_delivery(after, number, mailbox)
        if after.state is State.UNREAD:
            self._to_notify.add(delivery.mailbox)

    def _with_state(self, delivery: Delivery, parsed: ParsedFile) -> Delivery:
        """Return the delivery in the state that its file shows."""
        found, now = parsed.state, self._now.wall
        changed = replace(
            delivery,
            state=found.state,
            lease=self._lease_of(delivery, found.state),
            read_at=found.read_at or delivery.read_at,
            due_at=found.due_at,
            archived_at=found.archived_at or (now if found.is_put_away else None),
            reason=found.reason,
            delivered_at=None if found.state is State.QUEUED else delivery.delivered_at or now,
        )
        if found.state is State.DONE:
            at = found.acked_at or now
            return replace(changed, acked_at=at, read_at=changed.read_at or at)
        if found.state is State.DEAD:
            return replace(changed, dead_at=found.dead_at or now, history=self._history_of(delivery, found))
        return replace(changed, acked_at=None, dead_at=None)

    def _history_of(self, delivery: Delivery, found: FileState) -> tuple[Attempt, ...]:
        """Return the attempts, with the last one of a holder that crashed before the index had it."""
        if not self._after_crash or delivery.state is not State.CLAIMED or delivery.lease is None:
            return delivery.history
        last = Attempt(at=found.dead_at or self._now.wall, holder=delivery.lease.holder, reason=found.reason or "")
        return (*delivery.history, last)

    def _lease_of(self, delivery: Delivery, state: State) -> Lease | None:
        """Return the lease of a delivery whose state was read from a file.

        A claim found in a file belongs to another program: nobody holds its token, and after a crash of ours its
        holder is dead. An ack that was interrupted after its file was moved keeps its lease, so that its holder
        may repeat it (G5).
        """
        if state is State.DONE and self._after_crash:
            return delivery.lease
        if state is not State.CLAIMED:
            return None
        until = 0.0 if self._after_crash else self._now.steady + FOREIGN_LEASE
        return Lease(token=os.urandom(16).hex(), holder="stranger", until=until, boot=self._conn.boot)

    def _handle_deleted(self, folder: str, name: str, held: IndexedFile) -> None:
        """Drop a delivery whose file was deleted; an open one becomes a dead letter instead."""
        if self._ledger.file_at(folder, name) != held:
            return
        delivery = self._delivery(held.number, held.mailbox)
        if self._waits_for_person(delivery, folder, name):
            self._quarantine.write_again(ChangedFile(folder, name, held.stamp), held)
            return
        self._ledger.drop_file(held.number, held.mailbox)
        if delivery is None:
            return
        # Nobody acknowledged it, so it must not vanish in silence: a dead letter can be listed (G6).
        if delivery.state in OPEN:
            dead = replace(
                delivery,
                revision=delivery.revision + 1,
                state=State.DEAD,
                dead_at=self._now.wall,
                reason=DELETED,
                lease=None,
            )
            self._writing.set_delivery(dead, held.number, held.mailbox)
        else:
            self._writing.delete_delivery(held.number, held.mailbox)

    def _waits_for_person(self, delivery: Delivery | None, folder: str, name: str) -> bool:
        """Return whether the letter in this file waits for a person: then no other program settles it."""
        is_ours = (folder, name) in self._journaled
        is_open = delivery is not None and delivery.state in OPEN and not is_ours
        return is_open and delivery is not None and fold(delivery.mailbox) in self._people

    # -- the index

    def _letter(self, id: str) -> tuple[int, Message] | None:
        sql = "SELECT number, sum, body FROM letters WHERE id = ?"
        found: list[rows.Row] = self._conn.database.execute(sql, (id,)).fetchall()
        return (found[0][0], rows.sound(*found[0][1:])) if found else None

    def _delivery(self, number: int, mailbox: int) -> Delivery | None:
        message, _ = self._conn.letter(number)
        held = self._conn.deliveries(message, number)
        return next((delivery for at, _, delivery in held if at == mailbox), None)


def reconcile(
    conn: FileConnection,
    changes: FileChanges,
    *,
    after_crash: bool = False,
    journaled: frozenset[tuple[str, str]] = frozenset(),
) -> tuple[set[str], FileChanges]:
    """Take in changed files; return the mailboxes to notify, and the changes to look at again later.

    `journaled` holds folder and name of the files whose last change is in the journal and not in the index.
    """
    with _without_collecting(), conn.database:  # a savepoint if a transaction is open already
        found = Reconciler(conn, after_crash=after_crash, journaled=journaled).run(changes)
    return found  # noqa: RET504 - mypy believes that a transaction may swallow errors


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Turn the garbage collector off: it takes a fifth of the time for many letters, and finds nothing."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _positions_in(parsed: ParsedFile) -> dict[Recipient, int]:
    return dict(zip(parsed.message.recipients, parsed.positions, strict=False))


def _why_not_kept(error: Exception, parsed: ParsedFile) -> str:
    if isinstance(error, apsw.ConstraintError):
        return f"its key {parsed.message.key!r} is that of another letter of {parsed.message.sender}"
    return f"it cannot be kept: {error!r}"


def _finished(file: ChangedFile) -> ChangedFile:
    """Return the file as one that no program is still writing, so that it is set aside at once."""
    return file._replace(stamp=file.stamp._replace(written=0))
