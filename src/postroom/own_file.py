"""Small files beside the rooms, written whole or not at all: drafts, sessions, and files for other programs.

A file that other programs look for, such as a unit, bears a mark. One without it is somebody else's: the commands
that write such files leave it as it is.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def held(path: str, mark: str = "") -> str | None:
    """Return the text of a file; empty if it is not text with our mark, None if there is nothing at its path."""
    if not os.path.lexists(path):
        return None
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError):  # a link, a folder, not text: not ours
        return ""
    return text if mark in text else ""


def outcome(before: str | None, text: str) -> str:
    """Return what writing this text does, by what `held` returned before."""
    if before is None:
        return "written"
    return "unchanged" if before == text else "replaced"


def write(
    path: str, before: str | None, text: str, mode: int, place: Callable[[str, str], None] = os.replace
) -> None:
    """Write a changed file, whole or not at all. `place` gives it its name; `os.link` replaces no other file."""
    if before == text:
        return
    # In the same folder, so that the rename stays on one file system; one draft for each process.
    draft = f"{path}.{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(draft, flags, 0o600), "w", encoding="utf-8", errors="surrogateescape") as file:
            os.fchmod(file.fileno(), mode)  # the umask may have removed permissions
            file.write(text)
        place(draft, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)
