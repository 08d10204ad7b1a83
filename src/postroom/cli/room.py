"""The commands that look after a room: make it, show it, follow its changes, sweep, archive and purge it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from ..environment import PROJECT, ROOM
from ..errors import BadStore, StoreFailing
from ..model.codec import to_plain
from ..room import open as open_room
from . import views
from .answer import Answer
from .command import Option, command
from .errors import CannotCreate, Usage
from .output import Progress, sayable

if TYPE_CHECKING:
    from .context import Context


OLDER = Option("--older-than", help="settled so long ago, such as 30d", kind="seconds", metavar="SPAN")


@command(
    "init",
    Option("FOLDER", help="the project's folder; the working one by default", complete="files"),
    about="Makes .postroom/room.db, which every command and every program below this folder then uses, as git finds"
    " .git. The folder is for you alone and keeps itself out of git. Where it is there already, nothing happens.",
    examples=(("postroom init", "here"),),
    json="path made",
)
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
        (folder / ".gitignore").write_text("*\n", encoding="ascii")  # mail does not belong into version control
        open_room(path).close()
    except (OSError, BadStore, StoreFailing) as broken:
        why = broken.strerror if isinstance(broken, OSError) else broken.message
        raise CannotCreate(f"{path} cannot be made: {why}", field="FOLDER") from None
    return Answer(context.name, {"path": sayable(str(path)), "made": made}, views.made)


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
    settings = {name: sayable(value) if isinstance(value, str) else value for name, value in known.items()}
    data = {
        "store": sayable(room.settings.store),
        "exists": not context.is_new_room,
        "mailboxes": room.mailboxes(),
        "quarantined": room.quarantined(),
        "cursor": _cursor(context),
        "settings": settings,
        "passed_by": [{"path": sayable(path), "why": why} for path, why in context.passed_by],
    }
    return Answer(context.name, data, views.room)


def _cursor(context: Context) -> str | None:
    """Return the room's cursor; None where there is no room yet."""
    cursor = context.room.cursor()
    return None if context.is_new_room else str(cursor)


@command(
    "rooms changes",
    Option(
        "CURSOR",
        help="a cursor that rooms, rooms changes or wait printed; without one, only the present cursor is shown",
    ),
    Option("-n", "--limit", help="at most so many; 1000 by default", kind="count", metavar="N"),
    examples=(("postroom rooms changes", "a cursor to begin with"),),
    json="changes cursor",
    looks=True,
)
def run_changes(context: Context) -> Answer:
    if "cursor" not in context.values:
        return Answer(context.name, {"changes": [], "cursor": _cursor(context)}, views.changes)
    found, cursor = context.room.changes(context.get("cursor"), context.get("limit", 1000))
    data = {"changes": [to_plain(asdict(change)) for change in found], "cursor": str(cursor)}
    return Answer(context.name, data, views.changes)


@command(
    "rooms janitor",
    about="Run it regularly, from cron or a timer. It is safe at any time, from any number of processes.",
    examples=(("postroom rooms janitor", "one round"),),
    json="lapsed delivered expired buried archived purged forgotten trimmed climbed overdue indexed",
    looks=True,
)
def run_janitor(context: Context) -> Answer:
    with Progress("sweeping", quiet=context.screen.json) as progress:
        done = context.room.sweep(progress=progress.tell)
    return Answer(context.name, to_plain(asdict(done)), views.numbers)


@command(
    "rooms archive",
    OLDER,
    about="By default what the setting archive_after says. It stays readable.",
    examples=(("postroom rooms archive --older-than 1h", "all that was done an hour ago"),),
    json="archived",
    looks=True,
)
def run_archive(context: Context) -> Answer:
    with Progress("archiving", quiet=context.screen.json) as progress:
        archived = context.room.archive(older_than=context.get("older_than"), progress=progress.tell)
    return Answer(context.name, {"archived": archived}, views.numbers)


@command(
    "rooms purge",
    OLDER,
    Option("--keep", help="keep the newest so many, whatever their age", kind="count", metavar="N"),
    about="By default what the settings retain_for and retain_count say. Open mail is never deleted; ids and keys"
    " stay remembered.",
    examples=(("postroom rooms purge --older-than 90d", "what was settled three months ago"),),
    json="purged",
    looks=True,
)
def run_purge(context: Context) -> Answer:
    with Progress("purging", quiet=context.screen.json) as progress:
        purged = context.room.purge(**context.passed_options("older_than", "keep"), progress=progress.tell)
    return Answer(context.name, {"purged": purged}, views.numbers)
