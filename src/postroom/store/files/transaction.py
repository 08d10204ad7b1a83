"""What a commit does to files, step by step. Each can be done again after a crash, and taken back after a failure.

What fails leaves nothing behind. Paths are whole. A step says which folders must be synced once it is done;
nothing here syncs a folder.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import apsw
from msgspec import Struct

from ...errors import Invalid, NameTaken, StaleRevision, StoreFailing, Unreadable
from ...model.codec import to_plain
from ...model.delivery import State
from ...model.values import read_json
from ..protocol import Forget, Introduce, Move, Post, Put, Rename, must_last
from ..sqlite.rows import micros
from ..sqlite.wal import is_full
from . import durable as files_durable
from . import journal, letter_files
from .durable import sync_path
from .journal import DONE
from .ledger import Seat
from .tree import OWN_FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...model.delivery import Delivery
    from ...model.message import Message
    from ..protocol import Posted, Write
    from .connection import FileConnection
    from .durable import Stamp
    from .ledger import Held


class Create(Struct, tag=True, kw_only=True):
    """A letter comes."""

    folder: str
    name: str
    content: bytes

    @property
    def folders(self) -> tuple[str, ...]:
        return (self.folder,)

    def do(self, *, durable: bool) -> Stamp:
        files_durable.make_folder(self.folder)
        return files_durable.write_new(self.folder, self.name, self.content, durable=durable)

    def undo(self) -> None:
        _unlink(f"{self.folder}/{self.name}")


class Rewrite(Struct, tag=True, kw_only=True):
    """A letter says something else about its state, maybe in another folder. There is always one copy."""

    folder: str
    name: str
    content: bytes
    former: str  # the folder where it lay
    was: bytes = b""  # what it said, to take it back

    @property
    def folders(self) -> tuple[str, ...]:
        return (self.folder,) if self.folder == self.former else (self.folder, self.former)

    def do(self, *, durable: bool, spare: str = "") -> Stamp:
        files_durable.make_folder(self.folder)
        if spare:
            stamp = files_durable.replace_by(spare, self.folder, self.name, self.content, durable=durable)
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
        """It takes the place of the only copy, so it is synced whoever asked."""
        files_durable.replace(self.former, self.name, self.was, durable=True)
        if self.folder != self.former:
            _unlink(f"{self.folder}/{self.name}")


class Shift(Struct, tag=True, kw_only=True):
    """A letter goes to another folder, as it is."""

    folder: str
    name: str
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
        with suppress(FileNotFoundError):  # a stranger has taken it since
            files_durable.rename_new(f"{self.folder}/{self.name}", f"{self.former}/{self.name}")


class Remove(Struct, tag=True, kw_only=True):
    """A letter is deleted. It cannot be taken back, so it comes last."""

    folder: str
    name: str

    @property
    def folders(self) -> tuple[str, ...]:
        return (self.folder,)

    def do(self, *, durable: bool) -> None:  # noqa: ARG002
        _unlink(f"{self.folder}/{self.name}")

    def undo(self) -> None:
        """The journal has it, and will do it."""


class Resettle(Struct, tag=True, kw_only=True):
    """A mailbox's folder gets another name. Empty folders that somebody made there make room for it."""

    former: str
    folder: str

    @property
    def folders(self) -> tuple[str, ...]:
        return (os.path.dirname(self.folder),)

    def do(self, *, durable: bool) -> None:  # noqa: ARG002
        if os.path.lexists(self.former):
            _make_room(self.folder)
            os.rename(self.former, self.folder)

    def undo(self) -> None:
        if os.path.lexists(self.folder) and not os.path.lexists(self.former):
            os.rename(self.folder, self.former)


Step = Create | Rewrite | Shift | Remove | Resettle


def do_again(step: Step) -> None:
    """After a crash: as far as it was not done. A letter that came and went on since is left where it is."""
    if isinstance(step, Create):
        with suppress(FileExistsError):
            step.do(durable=True)
    elif isinstance(step, (Rewrite, Shift)):
        former = f"{step.former}/{step.name}"
        if os.path.lexists(former):
            try:
                step.do(durable=True)
            except FileExistsError:
                pass
            except FileNotFoundError:
                if os.path.lexists(former):  # else a stranger was quicker
                    raise
    elif isinstance(step, Resettle):
        if is_vacant(step.folder):
            step.do(durable=True)
    else:
        step.do(durable=True)


def is_vacant(folder: str) -> bool:
    """Could a mailbox move in here? Nothing is there, or only empty folders."""
    if not os.path.lexists(folder):
        return True
    try:
        files_durable.check_folder(folder)
        return not any(os.listdir(within) for within in _within(folder))
    except NotADirectoryError:
        return False


def _make_room(folder: str) -> None:
    with suppress(FileNotFoundError):
        for within in _within(folder):
            os.rmdir(within)


def _within(folder: str) -> list[str]:
    return [f"{folder}/{name}" for name in os.listdir(folder)]


def to_json(steps: list[Step], home: str) -> list[Any]:
    """With paths below the home of mailboxes: a room may be carried elsewhere before it is opened again."""
    plain: list[dict[str, Any]] = to_plain(steps)
    return [_each_path(step, lambda path: path.removeprefix(f"{home}/")) for step in plain]


def from_json(entry: Any, home: str) -> list[Step]:
    import msgspec  # noqa: PLC0415

    return msgspec.convert([_each_path(step, lambda path: f"{home}/{path}") for step in entry], list[Step])


def _each_path(step: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    return {name: change(value) if name in {"folder", "former"} else value for name, value in step.items()}


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


# What a commit does beside the index: the files that are the truth.
#
# Called inside the transaction that has just changed the index, and after the room was left. One step needs no
# journal: a rename is the commit. Several steps, and records, which no design has a file for, are written into
# the
# journal first, so that all of them happen or none.

At = tuple[int, int, str, int]  # a delivery by letter and mailbox, its folder, and the letter's place in time
LARGEST = 16 * 1024 * 1024  # bytes of a file that is read at all


class FileTransaction:
    """Of one connection: for one commit after the other."""

    def __init__(self, here: FileConnection, *, durable: bool) -> None:
        self._here = here
        self._places, self._layout, self._ledger = here.places, here.places.layout, here.ledger
        self._durable = durable
        self._known: dict[str, Seat] = {}  # mailboxes by name, as they are while nobody else writes
        self._place = 0  # in time, of the last letter that we know of
        self._clear()

    def _clear(self) -> None:
        self._steps: list[tuple[Step, At | None, bool]] = []  # with its delivery; must it last?
        self._resettled: list[Resettle] = []  # those of them that come first
        self._entries: list[dict[str, Any]] = []
        self._done: list[Step] = []
        self._unsynced: dict[str, bool] = {}  # folders, and whether a letter came into them
        self._journal_was: int | None = None  # its length before this commit's line
        self._forgotten: list[int] = []  # letters that will be gone from the index, by their numbers
        self._told: list[Write] = []  # all but letters and what happens to them: it may be in the registry

    # -- inside the transaction

    def prepare(self, writes: Sequence[Write]) -> None:
        """Before the index changes: what is still known, and what will be gone from it."""
        self._clear()
        names = self._here.names
        if self._known and names.seal != names.sealed():
            self._known.clear()
        for write in writes:
            if isinstance(write, (Post, Move)):
                continue
            self._told.append(write)
            if isinstance(write, Forget) and (number := self._here.number_of(write.message_id)) is not None:
                self._forgotten.append(number)

    def carry_out(self, writes: Sequence[Write], posted: Sequence[Posted]) -> None:
        if self._told:
            self._make_way(self._told)
        posts = 0
        for write in writes:
            if isinstance(write, Post):
                self._post(write, posted[posts])
                posts += 1
            elif isinstance(write, Move):
                self._move(write)
            else:
                self._other(write)
        if not self._steps and not self._entries:
            return
        self._here.lock.warn()  # until the index knows it too: whoever comes after a crash looks at everything
        try:
            self._do()
        except OSError as failed:
            self.undo()
            if is_full(failed):
                raise apsw.FullError(str(failed)) from failed
            raise self._naming_folders(failed) from failed
        except BaseException:
            self.undo()
            raise

    def _make_way(self, writes: Sequence[Write]) -> None:
        """Before all else, so that every path is one under the last name."""
        if self._here.registry is not None:
            self._here.registry.prepare(writes)
        for write in writes:
            if isinstance(write, Rename):
                self._resettle(write)

    def _naming_folders(self, failed: OSError) -> OSError:
        """The same, with what one can do something about: what is written aside has a name that nobody knows."""
        paths = [path for path in (failed.filename, failed.filename2) if isinstance(path, str)]
        if failed.errno != errno.ENOTDIR:  # else it should be the folder
            paths = [path if os.path.isdir(path) else os.path.dirname(path) for path in paths]
        return OSError(failed.errno, failed.strerror, " or ".join(dict.fromkeys(paths)) or None)

    def undo(self) -> None:
        """The index does not have it: take it back, as far as that can be done."""
        try:
            for step in reversed(self._done):
                step.undo()
            if self._journal_was is not None:
                self._here.journal.cut(self._journal_was)
            if (self._steps or self._entries) and not self._here.journal.is_torn:
                self._here.lock.clear_warning()
        except OSError:
            return  # the warning stands: the next one in looks at everything
        finally:
            self.doubt()

    def doubt(self) -> None:
        """Whether the index has it is not known: the warning stands, and the next one in looks at everything."""
        self._known.clear()
        self._place = 0
        self._clear()

    def settle(self) -> None:
        """The index has it too."""
        if self._told and self._here.registry is not None:
            self._here.registry.tell(self._told)
        if self._steps or self._entries:
            self._here.lock.clear_warning()
        if self._journal_was is not None:
            journal.compact_if_long(self._here)

    def make_safe(self) -> None:
        """After the room was left: the names last as well."""
        try:
            self._sync_folders()
        except StoreFailing:  # the next one in syncs every folder, before anybody is told of this letter
            with suppress(OSError):  # a disk that takes no warning either
                self._here.lock.warn()
            raise

    def _do(self) -> None:
        if len(self._steps) == 1 and not self._entries:
            self._take(*self._steps[0])
            return
        for step, _, _ in self._steps:
            if isinstance(step, Shift):
                self._check_there(self._until_now(step.former), step.name)
        lasting = [step for step, _, must in self._steps if must]
        if self._entries or len(lasting) > 1:
            self._note(lasting)
        for each in sorted(self._steps, key=_is_last):
            self._take(*each)
        if self._journal_was is not None and lasting:
            self._sync_folders()
            self._here.journal.append(DONE, durable=self._durable)

    def _take(self, step: Step, at: At | None, must: bool) -> None:
        """One step."""
        stamp: Stamp | None = None
        if isinstance(step, Shift):
            self._shift(step)
        elif isinstance(step, Rewrite):
            stamp = self._rewrite(step)
        else:
            stamp = step.do(durable=self._durable and must)
        self._done.append(step)
        if at is not None:
            self._enter(step, at, stamp)
        folders = step.folders
        if self._durable and (must or len(folders) > 1):
            self._must_sync(*folders)

    def _enter(self, step: Step, at: At, stamp: Stamp | None) -> None:
        """Into the ledger."""
        number, mailbox, folder, place = at
        if stamp is None:
            self._ledger.move(number, mailbox, folder)
        elif isinstance(step, Create):
            self._ledger.keep(number, mailbox, folder, step.name, stamp, place)
        elif isinstance(step, Rewrite):
            self._ledger.relocate(number, mailbox, folder, step.name, stamp)

    def _rewrite(self, step: Rewrite) -> Stamp:
        """It takes the place of the only copy: that must last, even if the news in it need not."""
        try:
            return step.do(durable=self._durable)
        except OSError as failed:
            if not is_full(failed):
                raise
        return step.do(durable=self._durable, spare=f"{self._places.root}/{OWN_FOLDER}/spare")

    def _shift(self, step: Shift) -> None:
        try:
            step.do(durable=True)
        except FileNotFoundError:
            self._check_there(step.former, step.name)
            raise

    def _check_there(self, folder: str, name: str) -> None:
        if not files_durable.is_there(f"{folder}/{name}"):
            raise self._astray(folder, name)

    def _must_sync(self, new: str, former: str | None = None) -> None:
        """A move is safe in its new folder before it is in the old one: there is never a moment without a copy."""
        self._unsynced.setdefault(new, True)
        if former is not None:
            self._unsynced[former] = False

    def _sync_folders(self) -> None:
        """A sync that failed is not tried again, not even on a full disk: the next one might only look well."""
        folders = self._unsynced
        try:
            for folder in sorted(folders, key=folders.__getitem__, reverse=True) if len(folders) > 1 else folders:
                sync_path(folder)
        except OSError as failed:
            raise StoreFailing(f"the disk did not take the letter: {failed.strerror}") from None
        self._unsynced = {}

    def _note(self, lasting: list[Step]) -> None:
        """One line with all of it. The index counts the lines, and knows which of them it has."""
        line = {
            "n": self._ledger.next_line(),
            "writes": self._entries,
            "steps": to_json(lasting, self._places.home),
        }
        self._journal_was = self._here.journal.append(line, durable=self._durable)

    def _below_home(self, path: str) -> str:
        return path[len(self._places.home) + 1 :]

    # -- letters

    def _post(self, write: Post, outcome: Posted) -> None:
        if outcome.repeated:
            self._make_sure(outcome.message_id)
            return
        post, number = outcome.written or write, outcome.number
        seats = self._seats(post, number)
        if not seats:
            return
        seat = seats[0]
        # A time that the sender chose may lie far ahead: no letter stands later than when it was sent, or all that
        # follow would have to stand there, too.
        created = post.message.created_at
        sent = min(created, post.deliveries[0].delivered_at or created)
        self._place = order = max(max(self._place, seat.latest) + 1, micros(sent))
        if len(seats) == 1:
            delivery = post.deliveries[0]
            self._create(post.message, number, seat, delivery, order)
            if seat.home is not None:
                self._known[delivery.mailbox] = seat
            return
        self._known.clear()
        dealt = {mailbox: delivery for mailbox, _, delivery in self._here.deliveries(post.message, number)}
        for seat in seats:
            self._create(post.message, number, seat, dealt[seat.mailbox], order)

    def _seats(self, post: Post, number: int) -> list[Seat]:
        """Where it goes. While nobody else writes, the mailbox of a letter before need not be asked for again."""
        if len(post.deliveries) == 1 and not post.copies:
            known = self._known.get(post.deliveries[0].mailbox)
            if known is not None:
                return [known]
        return self._ledger.seats(number)

    def _make_sure(self, id: str) -> None:
        """Whoever sent it first may have been killed, or had no luck, before its name was safe."""
        number = self._here.number_of(id)
        if number is not None and self._durable:
            for _, folder, _ in self._ledger.all_of(number):
                self._unsynced.setdefault(self._places.path(folder), True)

    def _create(self, message: Message, number: int, seat: Seat, delivery: Delivery, order: int) -> None:
        home = seat.home or self._ledger.home(seat.mailbox, seat.owner)
        folder = self._places.folder(home, self._layout.place(delivery))
        path = self._places.path(folder)
        name = self._layout.file_name(message, order)
        if files_durable.is_there(f"{self._until_now(path)}/{name}"):  # a stranger's, or of another letter
            stem = name.removesuffix(self._layout.ending)
            name = f"{stem}-{os.urandom(4).hex()}{self._layout.ending}"
        content = letter_files.file_of(self._layout, message, seat.owner, delivery, name=name, order=order)
        step = Create(folder=path, name=name, content=content)
        self._steps.append((step, (number, seat.mailbox, folder, order), True))

    # -- everything else

    def _other(self, write: Write) -> None:
        if isinstance(write, Put):
            if write.durable:
                self._entries.append({"put": to_plain(self._here.record_as_written(write))})
        elif isinstance(write, Forget):
            self._entries.append({"forget": write.message_id})
            self._forget(self._forgotten.pop(0))
        elif isinstance(write, Rename):
            self._entries.append({"rename": [write.old, write.new]})
        elif isinstance(write, Introduce):
            self._entries.append({"introduce": [write.mailbox, write.known]})

    def _move(self, move: Move) -> None:
        number, name, after = move.before.number, move.before.mailbox, move.after
        held = self._here.names.committed.get(name)  # a name means one mailbox for ever
        mailbox = self._here.mailbox(name)[0] if held is None else held[0]
        kept = self._ledger.kept(number, mailbox)
        if after.mailbox != name:
            message, order = self._here.letter(number)
            self._create(message, number, Seat(*self._here.mailbox(after.mailbox)), after, order)
            if kept is not None:
                self._steps.append((Remove(folder=self._places.path(kept[0]), name=kept[1]), None, True))
                self._ledger.drop(number, mailbox)
            return
        if kept is None:  # its file was deleted by somebody
            if after.state is not State.DEAD:
                _, owner = self._here.mailbox(name)
                message, order = self._here.letter(number)
                self._create(message, number, Seat(mailbox, owner), after, order)
            return
        lies_in, file = kept
        home, place = self._places.of(lies_in)
        former = self._places.path(lies_in)
        target = self._places.folder(home, self._layout.place(after))
        folder = self._places.path(target)
        if self._layout.changes_content(move.before, after):
            fields, was = self._fields(former, file, self._ledger.held(lies_in, file))
            if letter_files.told_at(self._layout, fields, place, name).state is not self._layout.shown(
                move.before
            ):
                raise self._astray(former, file)
            self._layout.show(fields, after)
            content = self._layout.dump(fields)
            step: Step = Rewrite(folder=folder, name=file, content=content, former=former, was=was)
        elif folder != former:
            step = Shift(folder=folder, name=file, former=former)
        else:
            return
        self._steps.append((step, (number, mailbox, target, 0), must_last(move)))

    def _fields(self, folder: str, name: str, held: Held | None) -> tuple[dict[str, Any], bytes]:
        """What stands in a file, with all that strangers wrote into it."""
        known = None if held is None else held.stamp
        try:
            raw, _ = files_durable.read(f"{self._until_now(folder)}/{name}", LARGEST, known)
            fields = read_json(raw, name, depth=letter_files.DEEPEST, largest=LARGEST)
        except (FileNotFoundError, Unreadable, Invalid):
            raise self._astray(folder, name) from None
        if not isinstance(fields, dict):
            raise self._astray(folder, name)
        return fields, raw

    def _astray(self, folder: str, name: str) -> StaleRevision:
        """A stranger was quicker: what it did is looked at before the next question."""
        self._here.eyes.put_back({self._below_home(self._until_now(folder)): {name}})
        return StaleRevision()

    def _forget(self, number: int) -> None:
        for mailbox, folder, name in self._ledger.all_of(number):
            self._steps.append((Remove(folder=self._places.path(folder), name=name), None, True))
            self._ledger.drop(number, mailbox)

    def _resettle(self, write: Rename) -> None:
        self._known.clear()
        mailbox, name = self._here.mailbox(write.new)
        former, folder = self._ledger.home(mailbox, write.old), self._layout.folder(name)
        if former == folder:
            return
        self._ledger.resettle(former, folder, mailbox, name)
        step = Resettle(former=self._places.path(former), folder=self._places.path(folder))
        if not is_vacant(self._until_now(step.folder)):
            raise NameTaken(
                f"the folder {self._places.below_root(folder)!r} is there, and not empty",
                field="new",
                hint="move elsewhere what is in it",
            )
        self._resettled.append(step)
        self._steps.append((step, None, True))

    def _until_now(self, path: str) -> str:
        """Where this folder lies before the first step is done."""
        for step in reversed(self._resettled):
            if path == step.folder or path.startswith(f"{step.folder}/"):
                path = step.former + path[len(step.folder) :]
        return path


def _is_last(each: tuple[Step, At | None, bool]) -> bool:
    return isinstance(each[0], Remove)
