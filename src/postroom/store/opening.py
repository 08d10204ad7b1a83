"""From a store's address to the store: `memory:`, `sqlite:/room.db`, `files:/folder?layout=swarm`, or a path."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from ..errors import BadStore

if TYPE_CHECKING:
    from .base import Store

ADDRESS_RULE = (
    "sqlite:/path/to/room.db, a path with a / or that ends in .db, files:/folder?layout=nanobot (chipset, swarm),"
    " or memory:"
)


def open_store(address: str, *, boot: str, durable: bool, busy_timeout: float) -> Store:
    """The store at this address, made if it is not there."""
    scheme, rest = _parse(address)
    if scheme == "memory":
        return _open_memory(rest)
    if scheme == "files":
        return _open_files(rest, address, boot=boot, durable=durable, busy_timeout=busy_timeout)
    return _open_sqlite(rest, address, boot=boot, durable=durable, busy_timeout=busy_timeout)


def _parse(address: str) -> tuple[Literal["memory", "sqlite", "files"], str]:
    if not isinstance(address, str) or not address or "\0" in address:
        raise BadStore(f"{address!a} is not an address", field="store", hint=ADDRESS_RULE)
    scheme, colon, rest = address.partition(":")
    if colon and scheme == "memory":
        return "memory", rest
    if colon and scheme == "sqlite":
        return "sqlite", rest
    if colon and scheme == "files":
        return "files", rest
    if not colon and (address.endswith(".db") or "/" in address):
        return "sqlite", address
    raise BadStore(f"{address!a} names no store that exists here", field="store", hint=ADDRESS_RULE)


def _open_memory(rest: str) -> Store:
    from .memory import MemoryStore  # noqa: PLC0415 - a store's weight is paid by those who open it

    if rest:
        raise BadStore(f"memory: takes no name, got {rest!a}", field="store")
    return MemoryStore(os.urandom(8).hex())


def _open_sqlite(path: str, address: str, *, boot: str, durable: bool, busy_timeout: float) -> Store:
    from .sqlite.store import SqliteStore  # noqa: PLC0415 - see above

    return SqliteStore(_file(path, address), boot=boot, durable=durable, busy_timeout=busy_timeout)


def _open_files(rest: str, address: str, *, boot: str, durable: bool, busy_timeout: float) -> Store:
    from .files.layouts import NAMES, layout_named  # noqa: PLC0415 - see above
    from .files.store import FileStore  # noqa: PLC0415

    root, _, choice = rest.partition("?")
    key, _, layout = choice.partition("=")
    if key != "layout" or layout not in NAMES:
        hint = f"files:{root or '/folder'}?layout=" + " or ".join(NAMES)
        raise BadStore(f"{address!a} names no layout", field="store", hint=hint)
    folder = _file(root.rstrip("/") or root, address)
    return FileStore(folder, layout_named(layout), boot=boot, durable=durable, busy_timeout=busy_timeout)


def file_of(address: str) -> str | None:
    """The file a store's address names; None for a store that has none."""
    scheme, rest = _parse(address)
    return _file(rest, address) if scheme == "sqlite" else None


def _file(path: str, address: str) -> str:
    path = path.removeprefix("//")
    if not path or path.endswith("/") or "?" in path or "\n" in path:
        raise BadStore(f"{address!a} names no file", field="store", hint=ADDRESS_RULE)
    try:
        place = os.path.expanduser(path)
        os.fsencode(place)
    except UnicodeEncodeError:  # half a character
        raise BadStore(f"{address!a} names no file", field="store", hint=ADDRESS_RULE) from None
    if place.startswith("~"):  # a user nobody knows
        raise BadStore(f"{address!a} names no file", field="store", hint=ADDRESS_RULE)
    return place
