"""The commands that copy a whole room: into another room, as JSON lines for any store, or as a backup file."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from errno import EDQUOT, EFBIG, EIO, ENOSPC
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, BinaryIO

from msgspec.structs import asdict

from ..core.portable import check_head
from ..errors import BadStore, Conflict, Invalid, Missing, PostroomError, StoreFailing, TooLarge
from ..maintenance import copy_room, restore
from ..model.codec import to_plain
from ..store.address import file_of, folder_of, place_of
from ..store.sqlite.place import belongs_to
from . import views
from .answer import Answer
from .command import Option, command
from .context import STDIN
from .errors import CannotCreate, NoInput, Usage, exit_code
from .output import Progress, hint, one_line, sayable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..core.portable import Imported
    from ..model.report import BackupReport
    from .answer import Screen
    from .context import Context


_FORCE = Option("--force", help="replace a file that is there", kind="flag")


FULL = {ENOSPC, EDQUOT, EFBIG, EIO}  # errors of the disk, not of the name of a file


# -- another room


@command(
    "rooms copy",
    Option("SRC", help="the room to copy, by path or address", required=True, complete="files"),
    Option("DST", help="the room to copy to; made if it is not there", required=True, complete="files"),
    about="The rooms may be of any kind, and DST need not be empty. Letters keep their ids and keys: a second"
    " run copies only what is new, and brings states up to date. The later state wins, and what is done stays"
    " done. Names, cards, templates, tasks, escalations and blocks come along. A copy that is cut off leaves"
    " both rooms whole; the same command goes on. Mounts keep rooms in step. An address with a ? needs quotes in a shell. See [rooms in mail folders](migrating.md#rooms-in-mail-folders).",
    examples=(("postroom rooms copy room.db 'files:mail?layout=nanobot'", "into folders, as nanobot has them"),),
    json="letters states names records refused",
)
def run_copy(context: Context) -> Answer:
    if "room" in context.values:
        raise Usage("has no place here: SRC and DST say which rooms", field="--room")
    settings = dict(context.get("set", ()))
    with Progress("copying", quiet=context.screen.json) as progress, _as_rooms():
        source, target = context.get("src"), context.get("dst")
        _check_parent(target)
        done = copy_room(source, target, progress=progress.tell, **settings)
    data = to_plain(asdict(done))
    return Answer(context.name, data, copied, code=exit_code(Conflict()) if done.refused else 0)


def _check_parent(target: str) -> None:
    """Refuse to make a room in a folder that does not exist: its name is probably mistyped."""
    try:
        folder = Path(os.path.realpath(place_of(target) or ".")).parent
    except BadStore as refused:
        refused.field = "DST"
        raise
    if not folder.exists():
        raise CannotCreate(f"there is no folder {folder}", field="DST", hint=f"mkdir -p {quote(str(folder))}")


@contextmanager
def _as_rooms() -> Iterator[None]:
    """Rename the fields of errors to the arguments SRC and DST."""
    try:
        yield
    except PostroomError as refused:
        refused.field = {"source": "SRC", "target": "DST"}.get(refused.field or "", refused.field)
        if isinstance(refused, Missing) and refused.field == "SRC":
            raise NoInput(refused.message, field="SRC", hint=refused.hint) from None
        raise


# -- JSON lines


@command(
    "rooms export",
    Option("FILE", help="where to; standard output by default", complete="files"),
    _FORCE,
    about="A file is written beside its place and put there when it is whole; one that is there already is refused"
    " without --force.",
    examples=(("postroom rooms export room.jsonl", "a copy that any store can read"),),
    json="file lines bytes",
    looks=True,
)
def run_export(context: Context) -> Answer | Iterator[Answer]:
    context.check_room()
    target = context.get("file")
    if target in {None, STDIN}:
        if context.get("json"):
            raise Usage("needs a FILE: standard output is the export itself", field="--json")
        for line in context.room.export():
            sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()
        return iter(())
    return _export_to(context, _place(context, target))


def _place(context: Context, name: str) -> Path:
    """Return where a new file may be put."""
    target = Path(name)
    if target.is_dir():
        raise CannotCreate(f"{name!a} is a folder", field="FILE", hint="name a file in it")
    if target.exists() and not target.is_file():
        raise CannotCreate(f"{name!a} is no plain file", field="FILE", hint="choose another name")
    if _is_inside(context.settings.store, target):
        raise CannotCreate(f"{name!a} is a file of the room itself", field="FILE", hint="choose another name")
    if os.path.lexists(target) and not context.get("force"):
        raise CannotCreate(f"{name!a} is there already", field="FILE", hint="--force replaces it")
    return target


def _is_inside(room: str, target: Path) -> bool:
    """Return whether this is a file of the room, or in the folder that is the room."""
    file, folder = file_of(room), folder_of(room)
    if file is not None:
        return belongs_to(Path(file), target)
    return folder is not None and Path(os.path.realpath(target)).is_relative_to(os.path.realpath(folder))


def _export_to(context: Context, target: Path) -> Answer:
    """Write an export beside its place, and put it there when it is whole."""
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    room = context.room
    lines = 0
    try:
        with Progress("exporting", quiet=context.screen.json) as progress, _created(beside) as file:
            for line in room.export(progress=progress.tell):
                file.write(line + b"\n")
                lines += 1
            file.flush()
            os.fsync(file.fileno())
        size = beside.stat().st_size
        beside.replace(target)
    except OSError as broken:
        kind = StoreFailing if broken.errno in FULL else CannotCreate
        raise kind(f"{str(target)!a} cannot be written: {broken.strerror}", field="FILE") from None
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
    return Answer(context.name, {"file": sayable(str(target)), "lines": lines, "bytes": size}, views.numbers)


def _created(path: Path) -> BinaryIO:
    """Create a file for its owner alone; never open one that exists."""
    return os.fdopen(
        os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb"
    )


@command(
    "rooms import",
    Option("FILE", help="where from; - is standard input", required=True, complete="files"),
    about="A file that does not begin as an export makes no room. If the import is interrupted, or a line is"
    " refused, the lines before it stay: run the same import again, with the whole or corrected file, and it"
    " goes on where it stopped.",
    examples=(("postroom rooms import --room other.db room.jsonl", "into a new room"),),
    json="letters records names",
)
def run_import(context: Context) -> Answer:
    source = context.get("file")
    if source == STDIN:
        if sys.stdin is None:
            raise NoInput("standard input is closed", field="FILE")
        taken = _load(context, _lines(sys.stdin.buffer, None, context))
    else:
        try:
            with open(source, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                taken = _load(context, _lines(file, size, context))
        except OSError as broken:
            raise NoInput(f"{source!a} cannot be read: {broken.strerror}", field="FILE") from None
    return Answer(context.name, to_plain(asdict(taken)), views.numbers)


def _load(context: Context, lines: Iterator[bytes]) -> Imported:
    """Load an export. The head is checked first, so that other input makes no room."""
    head = next(lines, b"")
    check_head(context.settings, head)
    return context.room.load(chain([head], lines))


def _lines(file: BinaryIO, size: int | None, context: Context) -> Iterator[bytes]:
    """Yield the lines of a file, none longer than a letter and its deliveries may be."""
    longest = context.settings.max_message_bytes + 64 * 1024 * 1024
    done = 0
    with Progress("importing", whole=size, quiet=context.screen.json) as progress:
        while line := file.readline(longest + 1):
            if len(line) > longest:
                raise TooLarge(f"has a line over {longest} bytes", field="FILE")
            done += len(line)
            progress.tell(done)
            yield line.rstrip(b"\r\n")


# -- the room's own file


@command(
    "rooms backup",
    Option("FILE", help="where to", required=True, complete="files"),
    _FORCE,
    about="The copy is the whole room at one moment, in one file. Other processes need not wait for it. The file"
    " gets its name when it is on the disk, so there is never a partial backup.",
    examples=(("postroom rooms backup monday.db", "now"), ("postroom rooms backup monday.db --force", "again")),
    json="path letters bytes seconds kept",
    looks=True,
)
def run_backup(context: Context) -> Answer:
    context.check_room()
    target = _place(context, context.get("file"))
    if not target.absolute().parent.is_dir():
        raise CannotCreate(f"there is no folder {str(target.parent)!a}", field="FILE")
    room = context.room
    with Progress("backing up", quiet=context.screen.json) as progress, _as_arguments({"path": "FILE"}):
        done = room.backup(target, overwrite=bool(context.get("force")), progress=progress.tell)
    return Answer(context.name, _plain(done), backed_up)


@command(
    "rooms restore",
    Option("FILE", help="the backup", required=True, complete="files"),
    Option("--force", help="replace a room that holds mail; it is kept beside the new one", kind="flag"),
    about="The backup is checked first. Nobody may have the room open meanwhile: if anybody has, the error names"
    " the process, and nothing happens. --room says which room.",
    examples=(("postroom rooms restore monday.db --room other.db", "into a new room"),),
    json="path letters bytes seconds kept",
)
def run_restore(context: Context) -> Answer:
    source = context.get("file")
    try:
        with open(source, "rb"):
            pass
    except OSError as broken:
        raise NoInput(f"{source!a} cannot be read: {broken.strerror}", field="FILE") from None
    context.check_folder()
    settings = dict(context.get("set", ()))
    with Progress("restoring", quiet=context.screen.json) as progress, _as_arguments({"backup": "FILE"}):
        done = restore(
            source,
            context.settings.store or None,
            overwrite=bool(context.get("force")),
            progress=progress.tell,
            **settings,
        )
    return Answer(context.name, _plain(done), restored)


@contextmanager
def _as_arguments(names: dict[str, str]) -> Iterator[None]:
    """Rename the fields of errors to arguments of the command, and add hints about its options."""
    try:
        yield
    except PostroomError as refused:
        refused.field = names.get(refused.field or "", refused.field)
        if isinstance(refused, Conflict):
            refused.hint = "--force replaces it; a room that is replaced is kept beside the new one"
        if (
            type(refused) is BadStore and refused.field == "FILE"
        ):  # the fault is in the file, not in the room's address
            bad = Invalid if "backup" in names else CannotCreate
            raise bad(refused.message, field="FILE", hint=refused.hint) from None
        raise


def _plain(report: BackupReport) -> dict[str, Any]:
    result: dict[str, Any] = to_plain(asdict(report))
    return {name: sayable(value) if isinstance(value, str) else value for name, value in result.items()}


# -- views


def copied(_screen: Screen, data: Mapping[str, Any]) -> str:
    """Show what was copied in one sentence, and a line for each thing that was refused."""
    words = (
        ("letters", "{:,} new letters"),
        ("states", "{:,} states brought up to date"),
        ("names", "{:,} names"),
        ("records", "{:,} records"),
    )
    typed = ", ".join(text.format(data[name]) for name, text in words if data[name])
    lines = [f"Copied: {typed}." if typed else "Nothing is new."]
    lines += [f"Refused {one_line(each['what'])}: {one_line(each['why'])}" for each in data["refused"]]
    return "\n".join(lines) + "\n"


def backed_up(screen: Screen, data: Mapping[str, Any]) -> str:
    return f"Copied {_amount(data)} to {one_line(data['path'])}\n" + hint(
        screen, f"rooms restore {quote(data['path'])}", "puts it back"
    )


def restored(_screen: Screen, data: Mapping[str, Any]) -> str:
    kept = f"The room that was there is kept as {one_line(data['kept'])}\n" if data["kept"] else ""
    return f"Restored {_amount(data)} to {one_line(data['path'])}\n{kept}"


def _amount(data: Mapping[str, Any]) -> str:
    return f"{data['letters']:,} letters ({data['bytes']:,} bytes, {data['seconds']:.1f} s)"
