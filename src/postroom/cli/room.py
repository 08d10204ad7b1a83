"""The commands about rooms: make one, show it, follow its changes, keep it tidy, copy it, back it up and restore it."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, BinaryIO

from msgspec.structs import asdict

from ..core.portable import read_head
from ..environment import PROJECT, ROOM
from ..errors import BadStore, Conflict, Invalid, Missing, PostroomError, StoreFailing, TooLarge
from ..formats.plain import plain
from ..maintenance import copy_room, restore
from ..model.codec import to_plain
from ..room import open as open_room
from ..store.address import file_of, folder_of, place_of
from ..store.sqlite.place import belongs_to
from . import views
from .command import Option, command
from .errors import CannotCreate, NoInput, Usage, cannot_write, exit_code
from .output import page, says
from .text import STDIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .answer import Answer
    from .context import Context


_OLDER = Option(
    "--older-than", help="settled so long ago, such as 30d; by default as the settings decide", kind="seconds",
    metavar="SPAN",
)  # fmt: skip
_FORCE = Option("--force", help="replace a file that is there", kind="flag")


@command(
    "init",
    Option("FOLDER", help="the project's folder; the working one by default", complete="files"),
    about="Makes .postroom/room.db, which every command and every program below this folder then uses, as git finds"
    " .git. The folder is for you alone and keeps itself out of git. If there is a room already, nothing happens.",
    examples=(("postroom init", "here"),),
    json="path made",
    no_room="the room is made in FOLDER",
)
def run_init(context: Context) -> Answer:
    folder = Path.cwd() / context.get("folder", ".") / PROJECT
    if not folder.parent.is_dir():
        raise CannotCreate(f"there is no folder {folder.parent}", field="FOLDER", hint="make it first")
    path = folder / ROOM
    made = not path.exists()
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / ".gitignore").write_text("*\n", encoding="ascii")  # mail does not belong into version control
        open_room(path).close()
    except (OSError, BadStore, StoreFailing) as broken:
        why = broken.strerror if isinstance(broken, OSError) else broken.message
        raise CannotCreate(f"{path} cannot be made: {why}", field="FOLDER") from None
    what = "Made" if made else "There already is"
    return context.shown(
        {"path": str(path), "made": made}, says(f"{what} {{path}}", "$ send NAME --as ME --body TEXT")
    )


@command(
    "rooms",
    Option("--settings", help="every setting in force, too", kind="flag"),
    examples=(("postroom rooms", "where am I"),),
    json="store exists mailboxes quarantined cursor settings passed_by",
    looks=True,
)
def run_room(context: Context) -> Answer:
    room = context.room
    known = to_plain(asdict(room.settings)) if context.get("settings") or context.get("json") else {}
    data = {
        "store": room.settings.store,
        "exists": not context.is_new_room,
        "mailboxes": room.mailboxes(),
        "quarantined": room.quarantined(),
        "cursor": _cursor(context),
        "settings": known,
        "passed_by": [{"path": path, "why": why} for path, why in context.passed_by],
    }
    return context.shown(data, views.room)


def _cursor(context: Context) -> str | None:
    """Return the room's cursor; None where there is no room yet."""
    return None if context.is_new_room else str(context.room.cursor())


@command(
    "rooms changes",
    Option(
        "CURSOR",
        name="since",
        help="a cursor that rooms, rooms changes or wait printed; without one, only the present cursor is shown",
    ),
    verb="inbox.GetChanges",
    view=views.changes,
    examples=(("postroom rooms changes", "a cursor to begin with"),),
    looks=True,
)
def run_changes(context: Context) -> Answer:
    if "since" in context.values:
        return context.answer()
    return context.shown({"changes": [], "cursor": _cursor(context)}, views.changes)


# -- care

command(
    "rooms janitor",
    verb="retention.SweepRoom",
    view=views.numbers,
    about="Run it regularly, from cron or a timer. It is safe at any time, from any number of processes.",
    examples=(("postroom rooms janitor", "one round"),),
    looks=True,
)
command(
    "rooms archive",
    _OLDER,
    verb="retention.Archive",
    view=views.numbers,
    about="By default what the setting archive_after names. It stays readable.",
    examples=(("postroom rooms archive --older-than 1h", "all that was done an hour ago"),),
    looks=True,
)
command(
    "rooms purge",
    _OLDER,
    Option("--keep", help="keep the newest so many, whatever their age", kind="count", metavar="N"),
    verb="retention.Purge",
    view=views.numbers,
    about="By default what the settings retain_for and retain_count name. Open mail is never deleted; ids and keys"
    " stay remembered.",
    examples=(("postroom rooms purge --older-than 90d", "what was settled three months ago"),),
    looks=True,
)

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
    no_room="SRC and DST are the rooms",
)
def run_copy(context: Context) -> Answer:
    source, target, settings = context.get("src"), context.get("dst"), dict(context.get("set", ()))
    with context.progress() as progress, _fields_as(source="SRC", target="DST", store="DST"):
        folder = Path(os.path.realpath(place_of(target) or ".")).parent
        if not folder.exists():  # the name is probably mistyped
            raise CannotCreate(f"there is no folder {folder}", field="DST", hint=f"mkdir -p {quote(str(folder))}")
        done = copy_room(source, target, progress=progress.tell, **settings)
    code = exit_code(Conflict()) if done.refused else 0
    return context.shown(
        plain(done), page(views.numbers, says("Refused {what}: {why}", each="refused"), apart=""), code=code
    )


@contextmanager
def _fields_as(hint: str = "", **arguments: str) -> Iterator[None]:
    """Name the arguments of the command in errors, in place of the parameters of the library."""
    try:
        yield
    except PostroomError as refused:
        refused.field = arguments.get(refused.field or "", refused.field)
        if isinstance(refused, Conflict) and hint:
            refused.hint = hint
        if isinstance(refused, Missing) and refused.field == "SRC":
            raise NoInput(refused.message, field="SRC", hint=refused.hint) from None
        if type(refused) is BadStore and refused.field == "FILE":  # the file is wrong, not the room's address
            bad = Invalid if "backup" in arguments else CannotCreate
            raise bad(refused.message, field="FILE", hint=refused.hint) from None
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
        raise CannotCreate(f"{name!a} is not a regular file", field="FILE", hint="choose another name")
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
        with context.progress() as progress, _created(beside) as file:
            for line in room.export(progress=progress.tell):
                file.write(line + b"\n")
                lines += 1
            file.flush()
            os.fsync(file.fileno())
        size = beside.stat().st_size
        beside.replace(target)
    except OSError as broken:
        raise cannot_write(f"{str(target)!a}", broken, "FILE") from None
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
    return context.shown({"file": str(target), "lines": lines, "bytes": size}, views.numbers)


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
    if source == STDIN and sys.stdin is None:
        raise NoInput("standard input is closed", field="FILE")
    try:
        with open(sys.stdin.fileno() if source == STDIN else source, "rb", closefd=source != STDIN) as file:
            size = None if source == STDIN else os.fstat(file.fileno()).st_size
            lines = _lines(file, size, context)
            head = next(lines, b"")
            read_head(head, context.settings)  # first, so that other input makes no room
            taken = context.room.load(chain([head], lines))
    except OSError as broken:
        raise NoInput(f"{source!a} cannot be read: {broken.strerror}", field="FILE") from None
    return context.shown(plain(taken), views.numbers)


def _lines(file: BinaryIO, size: int | None, context: Context) -> Iterator[bytes]:
    """Yield the lines of a file, none longer than a letter and its deliveries may be."""
    longest = context.settings.max_message_bytes + 64 * 1024 * 1024
    done = 0
    with context.progress(size) as progress:
        while line := file.readline(longest + 1):
            if len(line) > longest:
                raise TooLarge(f"has a line over {longest} bytes", field="FILE")
            done += len(line)
            progress.tell(done)
            yield line.rstrip(b"\r\n")


# -- the room's own file

_FORCED = "--force replaces it; a room that is replaced is kept beside the new one"
_AMOUNT = "{letters:,} letters ({bytes:,} bytes, {seconds:.1f} s)"


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
    with context.progress() as progress, _fields_as(_FORCED, path="FILE"):
        done = room.backup(target, overwrite=bool(context.get("force")), progress=progress.tell)
    back = "$ rooms restore {path}  # puts it back"
    return context.shown(plain(done), says(f"Copied {_AMOUNT} to {{path}}", back))


@command(
    "rooms restore",
    Option("FILE", help="the backup", required=True, complete="files"),
    Option("--force", help="replace a room that holds mail; it is kept beside the new one", kind="flag"),
    about="The backup is checked first. Nobody may have the room open meanwhile: if anybody has, the error names"
    " the process, and nothing happens. --room names the room.",
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
    with context.progress() as progress, _fields_as(_FORCED, backup="FILE"):
        done = restore(
            source,
            context.settings.store or None,
            overwrite=bool(context.get("force")),
            progress=progress.tell,
            **settings,
        )
    kept = "The room that was there is kept as {kept}"
    return context.shown(plain(done), says(f"Restored {_AMOUNT} to {{path}}", kept))
