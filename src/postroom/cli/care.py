"""The commands that look after a room: making, sweeping, moving it as a whole."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from msgspec.structs import asdict

from ..errors import BadStore, StoreFailing, TooLarge
from ..model.codec import to_plain
from ..room import open as open_room
from ..whereabouts import PROJECT, ROOM
from . import views
from .answers import Answer, sayable
from .context import Context
from .exits import CannotCreate, NoInput, Usage
from .progress import Progress
from .text import STDIN


def run_init(context: Context) -> Answer:
    if "room" in context.values:
        raise Usage("has no place here: the room is made in FOLDER", field="--room")
    folder = Path.cwd() / context.get("folder", ".") / PROJECT
    if not folder.parent.is_dir():
        raise CannotCreate(f"{folder.parent} is not a folder", field="FOLDER")
    path = folder / ROOM
    made = not path.exists()
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / ".gitignore").write_text("*\n", encoding="ascii")  # mail is nobody else's business
        open_room(path).close()
    except (OSError, BadStore, StoreFailing) as broken:
        why = broken.strerror if isinstance(broken, OSError) else broken.message
        raise CannotCreate(f"{path} cannot be made: {why}", field="FOLDER") from None
    return Answer(context.name, {"path": sayable(str(path)), "made": made}, views.made)


def run_room(context: Context) -> Answer:
    room = context.room
    known = to_plain(asdict(room.settings)) if context.get("settings") or context.get("json") else {}
    settings = {name: sayable(value) if isinstance(value, str) else value for name, value in known.items()}
    data = {
        "store": sayable(room.settings.store),
        "mailboxes": room.mailboxes(),
        "quarantined": room.quarantined(),
        "cursor": str(room.cursor()),
        "settings": settings,
    }
    return Answer(context.name, data, views.room)


def run_changes(context: Context) -> Answer:
    if "cursor" not in context.values:
        return Answer(context.name, {"changes": [], "cursor": str(context.room.cursor())}, views.changes)
    found, cursor = context.room.changes(context.get("cursor"), context.get("limit", 1000))
    data = {"changes": [to_plain(asdict(change)) for change in found], "cursor": str(cursor)}
    return Answer(context.name, data, views.changes)


def run_janitor(context: Context) -> Answer:
    with Progress("sweeping", quiet=context.screen.json) as progress:
        done = context.room.sweep(progress=progress.tell)
    return Answer(context.name, to_plain(asdict(done)), views.numbers)


def run_archive(context: Context) -> Answer:
    with Progress("archiving", quiet=context.screen.json) as progress:
        archived = context.room.archive(older_than=context.get("older_than"), progress=progress.tell)
    return Answer(context.name, {"archived": archived}, views.numbers)


def run_purge(context: Context) -> Answer:
    with Progress("purging", quiet=context.screen.json) as progress:
        purged = context.room.purge(**context.given("older_than", "keep"), progress=progress.tell)
    return Answer(context.name, {"purged": purged}, views.numbers)


# -- export and import


def run_export(context: Context) -> Answer | Iterator[Answer]:
    target = context.get("file")
    if target in {None, STDIN}:
        if context.get("json"):
            raise Usage("needs a FILE: standard output is the export itself", field="--json")
        for line in context.room.export():
            sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()
        return iter(())
    return _export_to(context, Path(target))


def _export_to(context: Context, target: Path) -> Answer:
    """Written beside its place and put there when it is whole."""
    if target.exists() and not context.get("force"):
        raise CannotCreate(f"{str(target)!a} is there already", field="FILE", hint="--force replaces it")
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
        raise CannotCreate(f"{str(target)!a} cannot be written: {broken.strerror}", field="FILE") from None
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
    return Answer(context.name, {"file": sayable(str(target)), "lines": lines, "bytes": size}, views.numbers)


def _created(path: Path) -> BinaryIO:
    """For its owner alone, and never somebody's file that is there."""
    return os.fdopen(
        os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb"
    )


def run_import(context: Context) -> Answer:
    source = context.get("file")
    if source == STDIN:
        if sys.stdin is None:
            raise NoInput("standard input is closed", field="FILE")
        taken = context.room.load(_lines(sys.stdin.buffer, None, context))
    else:
        try:
            with open(source, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                taken = context.room.load(_lines(file, size, context))
        except OSError as broken:
            raise NoInput(f"{source!a} cannot be read: {broken.strerror}", field="FILE") from None
    return Answer(context.name, to_plain(asdict(taken)), views.numbers)


def _lines(file: BinaryIO, size: int | None, context: Context) -> Iterator[bytes]:
    """Line by line, none longer than a letter and its deliveries may be."""
    longest = context.settings.max_message_bytes + 64 * 1024 * 1024
    done = 0
    with Progress("importing", whole=size, quiet=context.screen.json) as progress:
        while line := file.readline(longest + 1):
            if len(line) > longest:
                raise TooLarge(f"has a line over {longest} bytes", field="FILE")
            done += len(line)
            progress.tell(done)
            yield line.rstrip(b"\r\n")
