"""Files in letters: read on the sender's side, enclosed as bytes. No recipient ever follows a path."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path

from ..errors import Invalid, NotAllowed, TooLarge
from ..model.parts import Part


def enclose(part: Part, root: str, largest: int, field: str) -> Part:
    """The part with the file's bytes in it, or a refusal. A part that has its bytes already stays as it is."""
    if part.get("bytes") is not None:
        return part
    content = read_below(part["path"], root, largest, f"{field}.path")
    fields = part.to_json() | {"bytes": base64.b64encode(content).decode(), "size": len(content)}
    return Part(**fields)


def read_below(path: str, root: str, largest: int, field: str) -> bytes:
    """The bytes of a regular file with one name, below `root`, not reached through a link at its end."""
    base = Path(os.path.realpath(root))
    real = Path(os.path.realpath(base / path))
    if not real.is_relative_to(base):
        raise NotAllowed(f"{path!a} lies outside {base}", field=field, hint="see the setting file_root")
    try:
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as broken:
        reason = broken.strerror if isinstance(broken, OSError) else str(broken)
        raise Invalid(f"{path!a} cannot be read: {reason}", field=field) from None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            raise NotAllowed(f"{path!a} is not a regular file with one name", field=field)
        content = file.read(largest + 1)
    if len(content) > largest:
        raise TooLarge(f"{path!a} is over {largest} bytes", field=field, hint="send a reference instead")
    return content
