"""Files in letters: enclosed as bytes. Only a path that the sender's own code names by `postroom.file` is read."""

from __future__ import annotations

import binascii
import errno
import os
import stat
from pathlib import Path
from typing import Any

from ..errors import Invalid, NotAllowed, TooLarge
from ..model.parts import LocalFile, Part, part_from_json

_HINT = "the file's bytes as base64; a path is read only by postroom.file(path) and --file PATH"


def enclosed(source: Any, part: Part, root: str, largest: int, field: str) -> Part:
    """Return the checked file part `part` with its bytes, or refuse it.

    `source`, from which the part was made, decides. A `LocalFile` is read here. A `Part` without bytes came in a
    letter or from a foreign format, and stays a reference. A JSON object without bytes is refused, because any
    caller may have written it.
    """
    if part.get("bytes") is not None:
        _check_bytes(part["bytes"], f"{field}.bytes")
    elif isinstance(source, LocalFile):
        return read(part, root, largest, field)
    elif not isinstance(source, Part):
        raise Invalid("is missing: a file part in JSON brings its content", field=f"{field}.bytes", hint=_HINT)
    return part


def read(part: Part, root: str, largest: int, field: str) -> Part:
    """Return a file part with the bytes of the file that it names."""
    content = read_below(part["path"], root, largest, f"{field}.path")
    fields = part.to_json() | {"bytes": binascii.b2a_base64(content, newline=False).decode(), "size": len(content)}
    return part_from_json(fields)


def read_below(path: str, root: str, largest: int, field: str) -> bytes:
    """The bytes of a regular file with one name, below `root`, not reached through a link at its end."""
    base = Path(os.path.realpath(root))
    folder = Path(os.path.realpath((base / path).parent))
    if not folder.is_relative_to(base):
        raise NotAllowed(
            f"{path!a} lies outside {base}",
            field=field,
            hint="copy it there, or set file_root to a folder above both",
        )
    try:
        content = _read(folder / Path(path).name, largest + 1)
    except OSError as broken:
        why = "links are not followed" if broken.errno == errno.ELOOP else broken.strerror
        raise Invalid(f"{path!a} cannot be read: {why}", field=field) from None
    if content is None:
        hint = "no folder, no device, no file with a second name (hard link); send a copy of the file"
        raise NotAllowed(f"{path!a} is not a regular file with one name", field=field, hint=hint)
    if len(content) > largest:
        raise TooLarge(f"{path!a} is over {largest} bytes", field=field, hint="send a reference instead")
    return content


def _read(path: Path, most: int) -> bytes | None:
    """Up to `most` bytes; None when this is no regular file, or one with a second name."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            return None
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(descriptor)


def _check_bytes(content: Any, field: str) -> None:
    try:
        binascii.a2b_base64(content, strict_mode=True)
    except (TypeError, ValueError, binascii.Error):
        raise Invalid("is not base64 text", field=field, hint=_HINT) from None
