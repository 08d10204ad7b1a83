"""Letters never change: is what a file says what was accepted?

States may change, and strangers may add fields of their own. All else is damage, or none of their business.
"""

from __future__ import annotations

import gc
import logging
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import apsw
from msgspec.structs import replace

from ...clock import SystemClock
from ...errors import Busy, Damaged, LookAlike, NameTaken, PostroomError, Unreadable
from ...model.agent import EVERYONE, OPEN_DOOR, Beat, Card, guard_from, guard_value
from ...model.codec import blake2b, convert, to_plain
from ...model.delivery import OPEN, UNSENT, Attempt, Lease, State, open_delivery
from ...model.message import OWN_NOTES
from ...model.names import check_agent, fold
from ...model.record import ACTIVE_TASKS, BEAT, CARD, GUARD, MEMBER, TASKS, Record
from ...model.task import TASK_UPDATE, Pages, Standing, answer, open_task, task_above, task_on, write_task
from ..protocol import Put
from ..sqlite import rows
from ..sqlite.writes import Writing
from . import durable as files_durable
from . import entries, letter_files
from .durable import Stamp
from .layouts.base import OWN, Where, time_or_none
from .ledger import Seen
from .quarantine import Quarantine, why_taken
from .tree import changed_at, is_text
from .watch import is_settled

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from ...model.delivery import Delivery
    from ...model.message import Message, Recipient
    from ...model.query import Moment
    from .connection import FileConnection
    from .layouts.base import FileState, Layout, Plain
    from .ledger import Held
    from .letter_files import ParsedFile
    from .watch import News


def is_same(first: Message, second: Message) -> bool:
    """The same letter, whoever else got it, and whatever strangers wrote into it beside what it says."""
    return replace(first, recipients=(), extra={}) == replace(second, recipients=(), extra={})


def is_as_accepted(layout: Layout, known: Message, sheet: ParsedFile, folder: str, name: str) -> bool:
    """Is this the letter that the index knows?"""
    message = sheet.message
    if known.id != message.id:  # it may be a second letter with the same id
        message = replace(message, id=another_id(message.id, folder, name))
    if not is_same(known, message):
        return False
    strange = [r for r in sheet.message.recipients if r not in known.recipients and r.address != sheet.mailbox]
    return not strange and not _is_misspelt(layout, known, sheet, name)


def another_id(id: str, folder: str, name: str) -> str:
    """Of a second letter with the same id: from where it lies, so that it is always the same."""
    home = folder.partition("/")[0]
    return f"{id[:180]}.{blake2b(f'{home}/{name}'.encode(), digest_size=5).hexdigest()}"


def _is_misspelt(layout: Layout, known: Message, sheet: ParsedFile, name: str) -> bool:
    """A field is missing, and another is there that nobody knew: one damaged byte in its name does that."""
    if sheet.message.extra.keys() <= known.extra.keys():
        return False
    written = letter_files.fields_of(layout, known, sheet.mailbox, name=name, order=sheet.order)
    missing = written.keys() - sheet.fields.keys()
    if OWN_NOTES & sheet.fields.keys():  # earlier versions wrote those beside our key, and maybe nothing under it
        missing -= {OWN}
    return bool(missing)


# Is there really something new? Most of what is seen in the folders was done by us, and is in the index.


def unknown(here: FileConnection, news: News) -> News:
    """What of it the index does not know yet."""
    found: News = {}
    for folder, names in news.items():
        if names is None:
            found[folder] = None
            continue
        strange = {
            name for name in names if here.places.layout.may_hold(name) and not _is_known(here, folder, name)
        }
        if strange:
            found[folder] = strange
    return found


def _is_known(here: FileConnection, folder: str, name: str) -> bool:
    if not is_text(name):
        return False
    held = here.ledger.held(folder, name)
    try:
        stamp = Stamp.of(os.lstat(f"{here.places.path(folder)}/{name}"))
    except FileNotFoundError:
        return held is None
    return held is not None and held.stamp == stamp


# Letters about tasks that were found in files enter the book of tasks, in the transaction that takes them in.
#
# They may be strangers', or our own after the index was lost: what the book knows already is not told it again.
# What
# is entered is told by the letters, so a journal that cannot be written fails nobody.


class Entering:
    """Of one look at the folders."""

    def __init__(self, here: FileConnection) -> None:
        self._here = here
        self._came: list[tuple[Message, Delivery]] = []
        self._called: dict[tuple[str, str], set[str]] = {}  # letters that opened tasks, by party and name
        self._known: set[str] = set()  # parties whose tasks of before are among these

    def note(self, message: Message, delivery: Delivery) -> None:
        """A letter came, at this mailbox. In the order of acceptance."""
        if message.task is not None and delivery.reason != UNSENT:
            self._came.append((message, delivery))

    def enter(self, writing: Writing) -> Sequence[Put]:
        """What changed in the book."""
        if not self._came:
            return ()
        self._pages = Pages(self._here.records)
        results = [(replace(m, sender=self._resident(m.sender)), delivery) for m, delivery in self._came]
        for message, delivery in results:
            if delivery.kind == "to":
                self._open(message, delivery.mailbox)
        places = {message.id: place for place, (message, _) in enumerate(results)}
        for message, _ in results:  # whatever the clocks of strangers say, an answer comes after its task
            if message.kind == TASK_UPDATE:
                self._update(message, places)
        puts = [Put(record=record) for record in self._pages.changed()]
        writing.apply(puts)
        self._journal(puts)
        return puts

    def _open(self, message: Message, mailbox: str) -> None:
        opened = open_task(message)
        if opened is not None and task_on(self._pages, opened.giver, opened.letter) is None:
            self._write(replace(opened, receiver=self._resident(mailbox)))

    def _update(self, message: Message, places: dict[str, int]) -> None:
        task = task_above(self._pages, message) or self._task_called(message)
        if task is None:
            return
        if task.last != task.letter and places[message.id] <= places.get(task.last, -1):
            return  # the book is further than this letter
        # A stranger names the letter it answers, or only the task. Our threads it does not know.
        after = answer(task, replace(message, thread_id=task.thread))
        if after != task:
            self._write(after)

    def _task_called(self, message: Message) -> Standing | None:
        """The one task of its sender that has this name, where the letter it answers says nothing of one."""
        if message.task is None:
            return None
        party = message.sender
        if party not in self._known:
            self._known.add(party)
            for record in self._here.records(TASKS + party):
                self._learn(party, convert(record.value, Standing))
        letters = self._called.get((party, message.task.id), ())
        return task_on(self._pages, party, *letters) if len(letters) == 1 else None

    def _learn(self, party: str, task: Standing) -> None:
        self._called.setdefault((party, task.id), set()).add(task.letter)

    def _write(self, task: Standing) -> None:
        write_task(self._pages, task)
        for party in (task.giver, task.receiver):
            self._learn(party, task)

    def _resident(self, name: str) -> str:
        """Who is meant by a name today."""
        guard = self._pages.read(GUARD, name)
        return (guard_from(guard).moved_to if guard is not None else None) or name

    def _journal(self, puts: Sequence[Put]) -> None:
        if puts:
            writes = [{"put": to_plain(self._here.record_as_written(put))} for put in puts]
            with suppress(OSError):
                line = {"n": self._here.ledger.next_line(), "writes": writes}
                self._here.journal.append(line, durable=False)


# What strangers wrote about agents enters the room: as cards, guards, memberships and signs of life.
#
# Inside a transaction of `registry`. A name that nobody can have here stays in the file as it is, and that is
# all.

_TAKEN = """
SELECT name FROM mailboxes WHERE folded = ?1 UNION ALL SELECT '' FROM aliases WHERE folded = ?1"""


class Adopting:
    """One look at the registry."""

    def __init__(self, here: FileConnection, moment: Moment, written: datetime) -> None:
        self._here = here
        self._writing = Writing(here.database, here.names)
        self._moment = moment
        self._written = written
        self._lasting: list[Put] = []

    def adopt(self, agent: str, entry: Any, base: Any) -> None:
        if not isinstance(entry, dict) or not self._can_be_called(agent):
            return
        held, beat, active = (self._here.record(kind, agent) for kind in (CARD, BEAT, ACTIVE_TASKS))
        tasks = () if active is None else tuple(active.value)
        sign = None if beat is None else convert(beat.value, Beat)
        card = None if held is None else convert(held.value, Card)
        before: Plain = base if isinstance(base, dict) else _before(card, entry)
        current = {} if card is None else entries.shown_entry(card, sign, tasks, self._moment)
        fields = entries.merged(current, before, entry)
        self._put(BEAT, agent, to_plain(entries.beat_in(entry, before, sign, tasks, self._moment)), durable=False)
        found = entries.card_in(agent, fields, self._written)
        if found != card:
            self._write_card(found, card)

    def finish(self, *, durable: bool) -> None:
        """A stranger's card lasts as ours do, whatever becomes of the file."""
        self._writing.remember()
        if self._lasting:
            puts = [{"put": to_plain(self._here.record_as_written(put))} for put in self._lasting]
            line = {"n": self._here.ledger.next_line(), "writes": puts, "steps": []}
            self._here.journal.append(line, durable=durable)

    def _write_card(self, card: Card, former: Card | None) -> None:
        self._put(CARD, card.id, to_plain(card))
        held = self._here.record(GUARD, card.id)
        guard = OPEN_DOOR if held is None else guard_from(held.value)
        allowed = (EVERYONE,) if EVERYONE in card.allow_from else card.allow_from
        self._put(GUARD, card.id, guard_value(replace(guard, allow=allowed)))
        left = set() if former is None else set(former.scopes) - set(card.scopes)
        for scope in (*card.scopes, *left):
            self._put(MEMBER + scope, card.id, None if scope in left else True)

    def _put(self, kind: str, key: str, value: Any, *, durable: bool = True) -> None:
        held = self._here.record(kind, key)
        if value == (None if held is None else held.value):
            return
        revision = 0 if held is None else held.revision
        put = Put(record=Record(kind=kind, key=key, value=value, revision=revision), durable=durable)
        self._writing.apply([put])
        if durable:
            self._lasting.append(put)

    def _can_be_called(self, agent: str) -> bool:
        """It is a name, nobody else's, and reads like nobody else's."""
        try:
            if check_agent(agent, "agent_id") != agent:
                return False
        except PostroomError:
            return False
        taken = [name for (name,) in self._here.database.execute(_TAKEN, (fold(agent),)).fetchall()]
        return all(name == agent for name in taken)


def _before(card: Card | None, entry: Plain) -> Plain:
    """What stood in the file, where nobody remembers: of two cards, the later counts."""
    registered = time_or_none(entry.get("registered_at"))
    if card is None or (registered is not None and registered > card.registered_at):
        return {}
    return {name: value for name, value in entry.items() if name not in entries.RUNTIME}


# Index and files are brought together: what strangers put into the folders, moved, rewrote or took away.
#
# Under the room's lock, in one transaction. The files are the truth; what they cannot say (leases, attempts)
# stays
# as the index has it. A file that is no letter is set aside where it blocks nobody: whatever is wrong with one
# file,
# `_sheets` (reading) and `_admit` (keeping) set that file aside, and everybody else's mail goes on (G2).

STRANGERS_LEASE = 3600.0  # seconds that a letter which a stranger works on is left to it
LARGEST = 16 * 1024 * 1024  # bytes
DELETED = "its file was deleted"
# Errors that say something about the room or the machine, and nothing about the file that was just taken in; of
# SQLite's own errors, a few say that a value cannot be kept.
_OF_THE_ROOM = (OSError, MemoryError, UnicodeDecodeError, Damaged, Busy, apsw.Error)
_OF_THE_FILE = (apsw.ConstraintError, apsw.TooBigError, apsw.MismatchError, apsw.RangeError)
_log = logging.getLogger("postroom")


class Reconciling:
    """One look at some folders."""

    def __init__(self, here: FileConnection, *, after_crash: bool) -> None:
        self._here = here
        self._layout, self._places, self._ledger = here.places.layout, here.places, here.ledger
        self._writing = Writing(here.database, here.names)
        self._after_crash = after_crash
        self._now = SystemClock().now()
        self._aside = Quarantine(here, self._now)
        self._later: News = {}
        self._entering = Entering(here)
        self._seats: dict[int, dict[Recipient, int]] = {}  # of the letters that came, as far as files tell
        self._rung: set[str] = set()
        self._owners: dict[str, str] = {}  # whose folder is whose: thousands of files may lie in one
        self._numbers: dict[tuple[str, str, str], int] = {}  # of mailboxes, by folder, name and who wrote there

    def run(self, news: News) -> tuple[set[str], News]:
        """Whose bells to ring, and what is to be looked at again."""
        changed = {folder: changed_at(self._places.path(folder)) for folder in news}
        fresh: list[Seen] = []
        gone: dict[tuple[str, str], Held] = {}
        for folder, names in news.items():
            self._compare(folder, names, fresh, gone)
        if gone:
            fresh = [seen for seen in fresh if not self._was_moved(seen, gone)]
        for seen, where, sheet in sorted(self._sheets(fresh), key=lambda each: (each[2].order, each[0].name)):
            self._admit(seen, where, sheet, gone)
        for (folder, name), held in gone.items():
            self._vanished(folder, name, held)
        for folder in (folder for folder, names in news.items() if names is None):
            if (at := changed[folder]) is None:
                self._ledger.forget_note(folder)
            elif is_settled(at) and folder not in self._later:
                self._ledger.note(folder, at)
        entered = self._entering.enter(self._writing)
        self._writing.remember()
        if entered and self._here.registry is not None and not self._after_crash:  # else all of it is looked at
            self._here.registry.tell(entered)
        return self._rung, self._later

    # -- comparing

    def _compare(
        self, folder: str, names: set[str] | None, fresh: list[Seen], gone: dict[tuple[str, str], Held]
    ) -> None:
        there = self._listed(folder, names)
        if there is None:  # nobody can tell what is in it, and nothing in it is gone
            return
        for name in [name for name in there if not is_text(name)]:
            self._set_aside(Seen(folder, name, there.pop(name)), "its name is not UTF-8")
        if names is None:
            known = self._ledger.held_in(folder)
        else:
            named = filter(is_text, names)
            known = {name: held for name in named if (held := self._ledger.held(folder, name)) is not None}
        for name, stamp in there.items():
            held = known.get(name)
            if held is None or held.stamp != stamp:
                fresh.append(Seen(folder, name, stamp, held))
        gone |= {(folder, name): held for name, held in known.items() if name not in there}

    def _listed(self, folder: str, names: set[str] | None) -> dict[str, Stamp] | None:
        path, there = self._places.path(folder), {}
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

    def _was_moved(self, seen: Seen, gone: dict[tuple[str, str], Held]) -> bool:
        """A file that lay elsewhere in the same mailbox, as it is: its letter need not be read again."""
        home, _place = self._places.of(seen.folder)
        for other in self._layout.places:
            at = (self._places.folder(home, other), seen.name)
            held = gone.get(at)
            if held is None or held.stamp != seen.stamp:
                continue
            where = self._where(seen)
            if where is None:
                return False
            try:
                raw, stamp = files_durable.read(f"{self._places.path(seen.folder)}/{seen.name}", LARGEST)
                sheet = letter_files.parse_file(self._layout, raw, where, LARGEST)
            except (FileNotFoundError, Unreadable):
                return False
            del gone[at]
            self._ledger.relocate(held.number, held.mailbox, seen.folder, seen.name, stamp)
            self._retell(held.number, held.mailbox, sheet)
            return True
        return False

    # -- reading

    def _sheets(self, fresh: list[Seen]) -> list[tuple[Seen, Where, ParsedFile]]:
        found = []
        for seen in fresh:
            where = self._where(seen)
            if where is None:
                continue
            try:
                raw, stamp = files_durable.read(f"{self._places.path(seen.folder)}/{seen.name}", LARGEST)
                sheet = letter_files.parse_file(self._layout, raw, where, LARGEST)
                if seen.held is None:  # nothing to compare it with: thousands of them need not be kept
                    sheet = sheet._replace(fields={})
                found.append((seen._replace(stamp=stamp), where, sheet))
            except FileNotFoundError:
                continue
            except Unreadable as wrong:
                self._set_aside(seen, str(wrong))
        return found

    def _where(self, seen: Seen) -> Where | None:
        home, place = self._places.of(seen.folder)
        name = self._owners.get(home) or self._owner(home)
        return Where(name, place, seen.name, seen.stamp.time) if name else None

    def _owner(self, home: str) -> str | None:
        try:
            name = self._here.whose(home)
        except PostroomError as wrong:
            if home not in self._places.complained:
                self._places.complained.add(home)
                _log.warning("%s is no mailbox: %s", self._places.path(home), wrong)
            return None
        self._owners[home] = name
        return name

    def _set_aside(self, seen: Seen, why: str) -> None:
        if not self._aside.put(seen, why):
            names = self._later.setdefault(seen.folder, set())
            if names is not None:
                names.add(seen.name)

    # -- letters that came

    def _admit(self, seen: Seen, where: Where, sheet: ParsedFile, gone: dict[tuple[str, str], Held]) -> None:
        """Take one file in, or set it aside if anything about it cannot be kept."""
        try:
            with self._here.database:  # a savepoint: a file that is not taken leaves nothing in the index
                self._take_in(seen, where, sheet, gone)
        except (NameTaken, LookAlike) as taken:
            self._forget_names()
            self._set_aside(seen, why_taken(taken, self._places.of(seen.folder)[0]))
        except Exception as wrong:
            if isinstance(wrong, _OF_THE_ROOM) and not isinstance(wrong, _OF_THE_FILE):
                raise
            self._forget_names()
            self._set_aside(_old(seen), _why_not_kept(wrong, sheet))

    def _forget_names(self) -> None:
        """Mailboxes that were entered together with a file that was not taken are not there."""
        self._writing = Writing(self._here.database, self._here.names)
        self._owners.clear()
        self._numbers.clear()

    def _take_in(self, seen: Seen, where: Where, sheet: ParsedFile, gone: dict[tuple[str, str], Held]) -> None:
        message = sheet.message
        held = seen.held
        if held is not None and not is_as_accepted(
            self._layout, self._here.letter(held.number)[0], sheet, seen.folder, seen.name
        ):
            self._set_aside(_old(seen), "it does not say what was accepted")
            return
        first = self._letter(message.id)
        if first is not None and not is_same(first[1], message):
            message = replace(message, id=another_id(message.id, seen.folder, seen.name))
            first = self._letter(message.id)
            if first is not None and not is_same(first[1], message):
                self._set_aside(_old(seen), "its id is that of another letter")
                return
        mailbox = self._mailbox_of(seen, sheet)
        if first is None:
            number = self._writing.insert_letter(message)
            self._seats[number] = _seated(sheet)
            self._deliver_first(seen, where, sheet._replace(message=message), number, mailbox)
            return
        number, known = first
        if known.extra != message.extra:  # what strangers add is theirs
            known = replace(known, extra=message.extra)
            self._writing.replace_letter(number, known)
        if held is None:  # else the index knows them all
            self._merge_recipients(number, known, sheet)
        self._deliver(seen, where, sheet, number, mailbox, message, gone)

    def _deliver_first(self, seen: Seen, where: Where, sheet: ParsedFile, number: int, mailbox: int) -> None:
        delivery = self._delivery_of(sheet.message, where, sheet, number)
        self._writing.insert_delivery(delivery, number, mailbox)
        self._ledger.keep(number, mailbox, seen.folder, seen.name, seen.stamp, sheet.order)
        if delivery.state in {State.UNREAD, State.QUEUED}:
            self._rung.add(sheet.mailbox)
        self._entering.note(sheet.message, delivery)

    def _deliver(
        self,
        seen: Seen,
        where: Where,
        sheet: ParsedFile,
        number: int,
        mailbox: int,
        message: Message,
        gone: dict[tuple[str, str], Held],
    ) -> None:
        if self._delivery(number, mailbox) is None:
            self._deliver_first(seen, where, sheet._replace(message=message), number, mailbox)
            return
        kept = self._ledger.kept(number, mailbox)
        if kept is not None and kept != (seen.folder, seen.name) and kept not in gone:
            self._second_copy(seen, *kept, number, mailbox, sheet)
            return
        self._retell(number, mailbox, sheet)
        self._ledger.keep(number, mailbox, seen.folder, seen.name, seen.stamp, sheet.order)
        if kept is not None:
            gone.pop(kept, None)

    def _second_copy(
        self, seen: Seen, folder: str, name: str, number: int, mailbox: int, sheet: ParsedFile
    ) -> None:
        """One letter twice in a mailbox. After a crash the later state is meant; else a stranger made a copy."""
        if self._after_crash and seen.name == name:
            earlier, later = sorted((folder, seen.folder), key=self._rank)
            os.unlink(f"{self._places.path(earlier)}/{name}")
            if later == seen.folder:
                self._ledger.relocate(number, mailbox, seen.folder, seen.name, seen.stamp)
                self._retell(number, mailbox, sheet)
            return
        self._set_aside(_old(seen), "it is a copy of another file")

    def _rank(self, folder: str) -> int:
        """How far in its life a letter is that lies there."""
        order = {place: rank for rank, place in enumerate((".queued", *self._layout.places[:2]))}
        return order.get(self._places.of(folder)[1], 0)

    def _merge_recipients(self, number: int, first: Message, sheet: ParsedFile) -> None:
        """Recipients that are hidden from each other are known only from all files together."""
        missing = [recipient for recipient in sheet.message.recipients if recipient not in first.recipients]
        if not missing:
            return
        if not sheet.seats:  # it knows all of them
            self._writing.replace_letter(number, replace(first, recipients=sheet.message.recipients))
            return
        seats = self._seats.get(number, {}) | _seated(sheet)
        self._seats[number] = seats
        whole = sorted([*first.recipients, *missing], key=lambda recipient: seats.get(recipient, len(seats)))
        self._writing.replace_letter(number, replace(first, recipients=tuple(whole)))

    def _delivery_of(self, message: Message, where: Where, sheet: ParsedFile, number: int) -> Delivery:
        kinds = {recipient.address: recipient.kind for recipient in message.recipients}
        opened = open_delivery(message, sheet.mailbox, kinds.get(sheet.mailbox, "to"), where.written)
        return self._as_told(replace(opened, number=number, revision=self._first_revision()), sheet)

    def _first_revision(self) -> int:
        """None that an index before had, too: what was looked up there moves nothing here."""
        return 1 + int.from_bytes(os.urandom(4))

    def _mailbox_of(self, seen: Seen, sheet: ParsedFile) -> int:
        """The mailbox of the folder a file lies in."""
        home, _ = self._places.of(seen.folder)
        at = (home, sheet.mailbox, sheet.message.sender)
        if at in self._numbers:
            return self._numbers[at]
        self._writing.mailbox(sheet.message.sender, "sender", known=True)
        number, _ = self._writing.mailbox(sheet.mailbox, "to")
        if self._layout.folder(sheet.mailbox) == home:  # else it is another folder of somebody who has one
            self._ledger.settle(home, number, sheet.mailbox)
            self._owners[home] = sheet.mailbox
        self._numbers[at] = number
        return number

    # -- states that changed

    def _retell(self, number: int, mailbox: int, sheet: ParsedFile) -> None:
        """Let the index tell what the file tells."""
        delivery = self._delivery(number, mailbox)
        if delivery is None:
            return
        if sheet.state.state is not self._layout.shown(delivery):
            result = self._as_told(replace(delivery, revision=delivery.revision + 1), sheet)
        elif self._layout.rereads(delivery, sheet.state):
            result = replace(delivery, revision=delivery.revision + 1, read_at=sheet.state.read_at)
        else:
            return
        self._writing.set_delivery(result, number, mailbox)
        if result.state is State.UNREAD:
            self._rung.add(delivery.mailbox)

    def _as_told(self, delivery: Delivery, sheet: ParsedFile) -> Delivery:
        result, now = sheet.state, self._now.wall
        changed = replace(
            delivery,
            state=result.state,
            lease=self._lease_of(delivery, result.state),
            read_at=result.read_at or delivery.read_at,
            due_at=result.due_at,
            archived_at=result.archived_at or (now if result.is_put_away else None),
            reason=result.reason,
            delivered_at=None if result.state is State.QUEUED else delivery.delivered_at or now,
        )
        if result.state is State.DONE:
            at = result.acked_at or now
            return replace(changed, acked_at=at, read_at=changed.read_at or at)
        if result.state is State.DEAD:
            return replace(changed, dead_at=result.dead_at or now, history=self._history_of(delivery, result))
        return replace(changed, acked_at=None, dead_at=None)

    def _history_of(self, delivery: Delivery, result: FileState) -> tuple[Attempt, ...]:
        """With the last word of a holder that was cut off after it was written: it may be repeated, too."""
        if not self._after_crash or delivery.state is not State.CLAIMED or delivery.lease is None:
            return delivery.history
        last = Attempt(
            at=result.dead_at or self._now.wall, holder=delivery.lease.holder, reason=result.reason or ""
        )
        return (*delivery.history, last)

    def _lease_of(self, delivery: Delivery, state: State) -> Lease | None:
        """A claim in a file is a stranger's: nobody can show its token, and after a crash of ours its holder is
        dead. An ack that was cut off after its file was moved keeps its lease: its holder may repeat it (G5).
        """
        if state is State.DONE and self._after_crash:
            return delivery.lease
        if state is not State.CLAIMED:
            return None
        until = 0.0 if self._after_crash else self._now.steady + STRANGERS_LEASE
        return Lease(token=os.urandom(16).hex(), holder="stranger", until=until, boot=self._here.boot)

    def _vanished(self, folder: str, name: str, held: Held) -> None:
        """No file any more. Open mail is not lost in silence; what was done with is simply gone."""
        if self._ledger.held(folder, name) != held:
            return
        self._ledger.drop(held.number, held.mailbox)
        delivery = self._delivery(held.number, held.mailbox)
        if delivery is None:
            return
        if delivery.state in OPEN:
            result = {"state": State.DEAD, "dead_at": self._now.wall, "reason": DELETED, "lease": None}
            dead = replace(delivery, revision=delivery.revision + 1, **result)
            self._writing.set_delivery(dead, held.number, held.mailbox)
        else:
            self._writing.delete_delivery(held.number, held.mailbox)

    # -- the index

    def _letter(self, id: str) -> tuple[int, Message] | None:
        sql = "SELECT number, sum, body FROM letters WHERE id = ?"
        found: list[rows.Row] = self._here.database.execute(sql, (id,)).fetchall()
        return (found[0][0], rows.sound(*found[0][1:])) if found else None

    def _delivery(self, number: int, mailbox: int) -> Delivery | None:
        message, _ = self._here.letter(number)
        held = self._here.deliveries(message, number)
        return next((delivery for at, _, delivery in held if at == mailbox), None)


def reconcile(here: FileConnection, news: News, *, after_crash: bool = False) -> tuple[set[str], News]:
    """Whose bells to ring, and what is to be looked at again."""
    with _without_collecting(), here.database:  # a savepoint, where somebody is in a transaction already
        found = Reconciling(here, after_crash=after_crash).run(news)
    return found  # noqa: RET504 - mypy believes that a transaction may swallow errors


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Of many letters a fifth of the time would go into looking for garbage, and there is none."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _seated(sheet: ParsedFile) -> dict[Recipient, int]:
    return dict(zip(sheet.message.recipients, sheet.seats, strict=False))


def _why_not_kept(wrong: Exception, sheet: ParsedFile) -> str:
    if isinstance(wrong, apsw.ConstraintError):
        return f"its key {sheet.message.key!r} is that of another letter of {sheet.message.sender}"
    return f"it cannot be kept: {wrong!r}"


def _old(seen: Seen) -> Seen:
    """A file that nobody is still writing."""
    return seen._replace(stamp=seen.stamp._replace(written=0))
