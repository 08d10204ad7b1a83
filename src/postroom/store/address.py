"""Store addresses: `memory:`, `sqlite:/room.db`, `files:/folder?layout=swarm`, `postgresql://host/database`, or
the path of a SQLite file.

Opens the store that an address names, and tells where it lies. Stores are imported here when they are opened, so
that no program pays for a store that it does not use.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple

from .. import own_file
from ..clock import SystemClock
from ..environment import how_to_install, state_folder
from ..errors import BadStore, Invalid
from ..model.codec import blake2b
from ..model.values import passes

if TYPE_CHECKING:
    from ..clock import Clock
    from .postgres.store import PostgresStore
    from .protocol import Store


ADDRESS_RULE = (
    "sqlite:/path/to/room.db, a path with a / or that ends in .db, files:/folder?layout=nanobot (chipset, swarm),"
    " postgresql://user@host/database?schema=NAME, or memory:"
)


class RoomAddress(NamedTuple):
    """An address, parsed."""

    scheme: Literal["memory", "sqlite", "files", "postgresql"]
    place: str  # the path of the file or folder; empty for a room in memory or on a server
    layout: str = ""  # of a room of files
    server: str = ""  # the whole address of a room on a server


def parse(address: str) -> RoomAddress:
    """Return the parts of an address; BadStore for what is no address."""
    if not isinstance(address, str) or not address or "\0" in address:
        raise BadStore(f"{address!a} is not an address", field="store", hint=ADDRESS_RULE)
    scheme, colon, rest = address.partition(":")
    if colon and scheme in {"postgresql", "postgres"}:
        from .postgres.address import parse as parse_server  # noqa: PLC0415 - see the docstring

        return RoomAddress("postgresql", "", server=str(parse_server(address)))
    if colon and scheme == "memory":
        if rest:
            raise BadStore(f"memory: takes no name, got {rest!a}", field="store")
        return RoomAddress("memory", "")
    if colon and scheme == "sqlite":
        return RoomAddress("sqlite", _path(rest, address))
    if colon and scheme == "files":
        return _parse_files(rest, address)
    if not colon and (address.endswith(".db") or "/" in address):
        return RoomAddress("sqlite", _path(address, address))
    raise BadStore(f"{address!a} names no store that exists here", field="store", hint=ADDRESS_RULE)


def _parse_files(rest: str, address: str) -> RoomAddress:
    from .files.layouts.paths import NAMES  # noqa: PLC0415 - see the docstring

    root, _, choice = rest.partition("?")
    key, _, layout = choice.partition("=")
    if key != "layout" or layout not in NAMES:
        hint = f"files:{root or '/folder'}?layout=" + " or ".join(NAMES)
        raise BadStore(f"{address!a} names no layout", field="store", hint=hint)
    return RoomAddress("files", _path(root.rstrip("/") or root, address), layout)


def _path(path: str, address: str) -> str:
    path = path.removeprefix("//")
    is_text = passes(UnicodeEncodeError, lambda: os.fsencode(os.path.expanduser(path)))  # no lone surrogate
    place = os.path.expanduser(path) if is_text else ""
    # SQLite would read what follows a `?` as options of its own. A `~` that is left names no user.
    if not place or place.startswith("~") or path.endswith("/") or "?" in path or "\n" in path:
        raise BadStore(f"{address!a} names no file", field="store", hint=ADDRESS_RULE)
    return place


def open_store(
    address: str,
    *,
    clock: Clock | None = None,
    durable: bool,
    busy_timeout: float,
    makes: bool = True,
    people: frozenset[str] = frozenset(),
) -> Store:
    """Open the store at this address, made if it does not exist; without `makes` its folder must exist.

    `people` holds the folded names of people, for whom other programs settle nothing.
    """
    scheme, place, layout, server = parse(address)
    if scheme == "postgresql":
        return _open_server(server, clock=clock, durable=durable, busy_timeout=busy_timeout)
    if scheme == "memory":
        from .sqlite.memory import MemoryStore  # noqa: PLC0415 - see the docstring

        return MemoryStore(clock=clock, busy_timeout=busy_timeout)
    if scheme == "sqlite":
        from .sqlite.store import SqliteStore  # noqa: PLC0415 - see the docstring

        return SqliteStore(place, clock=clock, durable=durable, busy_timeout=busy_timeout)
    from .files.layouts.base import layout_named  # noqa: PLC0415 - see the docstring
    from .files.store import FileStore  # noqa: PLC0415

    # Before anything is written: files of another layout would be set aside as damaged.
    is_marked = _check_layout(place, layout)
    shape = layout_named(layout)
    store = FileStore(
        place, shape, clock=clock, durable=durable, busy_timeout=busy_timeout, makes=makes, people=people
    )
    if not is_marked:
        _write_mark(place, layout)
    return store


def _open_server(address: str, *, clock: Clock | None, durable: bool, busy_timeout: float) -> Store:
    # A machine's own clock says nothing of leases that are held elsewhere; only tests set another one.
    chosen = None if isinstance(clock, SystemClock) else clock
    return _server_store()(address, clock=chosen, durable=durable, busy_timeout=busy_timeout)


def _server_store() -> type[PostgresStore]:
    try:
        from .postgres.store import PostgresStore  # noqa: PLC0415 - see the docstring
    except ImportError as missing:
        hint = how_to_install("postgres")
        raise BadStore(f"a room on PostgreSQL needs {missing.name}", field="store", hint=hint) from None
    return PostgresStore


def is_on_server(address: str) -> bool:
    """Return whether the server that this address names holds the room; it is asked, and nothing is made."""
    return _server_store().exists(address)


def _write_mark(folder: str, layout: str) -> None:
    """Write the layout's name beside the index; the next opener does so if that folder was deleted."""
    with suppress(FileNotFoundError):
        own_file.write(_mark(folder), None, f"{layout}\n", 0o600)


def _mark(folder: str) -> str:
    return os.path.join(folder, ".postroom", "layout")


def _check_layout(folder: str, layout: str) -> bool:
    """Refuse a folder of another layout, whose files would be misread.

    Return whether the layout's name is written. It stands beside the index.
    """
    try:
        with open(_mark(folder), encoding="ascii", errors="replace") as file:
            first = file.read(100).strip()
    except OSError:
        first = ""
    if not first:
        _check_letters(folder, layout)
    elif first != layout:
        raise BadStore(
            f"the mail in {folder} is laid out as {first}'s",
            field="store",
            hint=f"files:{folder}?layout={first}; if that was a mistake, delete {_mark(folder)}",
        )
    return bool(first)


def _check_letters(folder: str, layout: str) -> None:
    """Refuse a folder that was never opened and whose files are of another layout."""
    from .files.letter_files import other_layout  # noqa: PLC0415 - see the docstring

    found = other_layout(folder, layout)
    if found is not None:
        raise BadStore(
            f"the mail in {folder} is laid out as {found}'s, not as {layout}'s",
            field="store",
            hint=f"files:{folder}?layout={found}",
        )


def folder_of(address: str) -> str | None:
    """Return the folder that the address of a room of files names; None for any other store."""
    found = parse(address)
    return found.place if found.scheme == "files" else None


def file_of(address: str) -> str | None:
    """Return the file that a store's address names; None for a store that has none."""
    found = parse(address)
    return found.place if found.scheme == "sqlite" else None


def place_of(address: str) -> str | None:
    """Return the file or folder of a room; None for one without, BadStore for what is no address."""
    return parse(address).place or None


def server_of(address: str) -> str | None:
    """Return the whole address of a room on a server; None for any other room."""
    return parse(address).server or None


def local_place(address: str) -> str | None:
    """Return where this machine keeps what goes with a room: sockets, locks, drafts. None for a room in memory.

    That is beside the room, and for a room on a server in a folder of the user's own.
    """
    _, place, _, server = parse(address)
    if not server:
        return place or None
    name = blake2b(server.encode(), digest_size=8).hexdigest()
    return os.path.join(state_folder("rooms"), name, "room")


# -- who serves a room on this machine

AT = " at "  # before the path of the socket, in the lock file


def served_at(store: str) -> str | None:
    """Return the socket of the server that serves a room now; None if none does."""
    holder = own_file.lock_holder(lock_path(store) or "")
    return None if holder is None else holder.partition(AT)[2] or None


def lock_path(store: str) -> str | None:
    """Return the lock file of the server of a room; None for a room in memory."""
    place = local_place(store)
    return None if place is None else f"{os.path.realpath(place)}.serving"


def check_usable(address: str) -> None:
    """Refuse an address where no room can be made or opened, as far as that shows without making anything."""
    from .sqlite import ground  # noqa: PLC0415 - see the docstring

    scheme, place, layout, _ = parse(address)
    if place:
        ground.check_usable(place, is_folder=scheme == "files")
    if layout:
        _check_layout(place, layout)


def is_there(address: str) -> bool | None:
    """Return whether there is a room; any folder counts as one. None if unknown, or where there is no file."""
    place = place_of(address)
    if place is None:
        return None
    try:
        return not is_blank(place)
    except FileNotFoundError:
        return False
    except OSError:
        return None


def is_blank(place: str) -> bool:
    """Return whether this is an empty file without a log or a note of one: then it never was a room."""
    from .sqlite.note import number_in  # noqa: PLC0415 - see the docstring

    found = os.stat(place)
    # An emptied room still has a log, or a note of how far it reached: that is damage, not a free place (G2).
    if found.st_size or not stat.S_ISREG(found.st_mode) or number_in(f"{place}.lock"):
        return False
    with suppress(FileNotFoundError):
        return os.stat(f"{place}-wal").st_size == 0
    return True


def absolute(address: str) -> str:
    """Return a room's address with an absolute path."""
    scheme, place, layout, server = parse(address)
    if server:
        return server
    if not place:
        raise Invalid("a room in memory is gone when it ends", field="room", hint="name a file")
    return f"{scheme}:{os.path.abspath(place)}{f'?layout={layout}' if layout else ''}"
