"""Enclosed files, put into a folder: each under a name that is safe, none outside it, none over another.

The name of a file is its sender's word, and senders are strangers. Only its last piece counts, without what would
hide it, name an option, or mislead the eye.
"""

from __future__ import annotations

import binascii
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import Invalid, StoreFailing
from ..store.opening import file_of
from .answers import sayable
from .copies import FULL
from .exits import CannotCreate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..model.message import Message
    from ..model.parts import Part
    from .context import Context

LONGEST = 200  # bytes of a name: file systems take 255
MOST = 1000  # files of one name
NAMELESS = "file"
_FORBIDDEN = frozenset('/\\:*?"<>|')  # by some file system, or by every one


def folder_for(context: Context) -> Path:
    """The folder that was named, made if need be; looked at before the letter is."""
    folder = Path(context.get("save"))
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as broken:
        what = f"{str(folder)!a} cannot be used: {broken.strerror}"
        raise CannotCreate(what, field="--save", hint="name a folder") from None
    return folder


def save(context: Context, message: Message, folder: Path) -> list[dict[str, Any]]:
    """The files of a letter, and where they are now."""
    room, saved = file_of(context.settings.store), []
    for part in message.parts:
        content = _content(part)
        if content is not None:
            place = _write(folder, _apart(folder, safe_name(part["path"]), room), content)
            saved.append({"path": part["path"], "file": sayable(str(place)), "bytes": len(content)})
    return saved


def safe_name(path: str) -> str:
    """What a file is called here, whatever its sender called it."""
    last = path.replace("\\", "/").rstrip("/").rpartition("/")[2]
    seen = "".join(c for c in last if c.isprintable() and c not in _FORBIDDEN)
    stem, dot, end = seen.lstrip(".-~ ").rstrip(". ").rpartition(".")
    if not dot:
        stem, end = end, ""
    ending = f"{dot}{_cut(end, LONGEST // 4)}" if dot else ""
    return f"{_cut(stem, LONGEST - len(ending.encode()))}{ending}" or NAMELESS


def _cut(text: str, most: int) -> str:
    return text.encode("utf-8", "ignore")[:most].decode("utf-8", "ignore")


def _content(part: Part) -> bytes | None:
    """The bytes that are enclosed; None when this is no file, or one that was not enclosed."""
    held = part.get("bytes") if part.type == "file" else None
    if not isinstance(held, str):
        return None
    try:
        return binascii.a2b_base64(held, strict_mode=True)
    except (ValueError, binascii.Error):
        raise Invalid(f"{part['path']!a} is not base64 text", field="--save") from None


def _apart(folder: Path, name: str, room: str | None) -> str:
    """Not as the room's own files are called: a log that was planted beside a room would be taken for its own."""
    own = room is not None and os.path.realpath(folder / name).startswith(os.path.realpath(room))
    return f"saved-{name}" if own else name


def _write(folder: Path, name: str, content: bytes) -> Path:
    """Under the first name that is free."""
    for place in _places(folder, name):
        try:
            descriptor = os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
        except OSError as broken:
            raise _failed(place, broken) from None
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
        except OSError as broken:
            with suppress(OSError):
                place.unlink()
            raise _failed(place, broken) from None
        return place
    raise CannotCreate(f"there are too many files called {name!a}", field="--save", hint="name another folder")


def _places(folder: Path, name: str) -> Iterator[Path]:
    yield folder / name
    stem, dot, end = name.rpartition(".")
    for number in range(2, MOST + 1):
        yield folder / (f"{stem}-{number}{dot}{end}" if dot else f"{name}-{number}")


def _failed(place: Path, broken: OSError) -> CannotCreate | StoreFailing:
    kind = StoreFailing if broken.errno in FULL else CannotCreate
    return kind(f"{str(place)!a} cannot be written: {broken.strerror}", field="--save")
