"""The files of hosts: reading them, and deciding which are left alone.

Files of other users, files that are not UTF-8 text and some links are left alone. Many people keep their
configuration elsewhere and link to it: such links are followed and kept. The files of a project come from other
people and may link anywhere: there, no link that leads out of the project is followed.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from ...errors import Invalid, Refused

if TYPE_CHECKING:
    from collections.abc import Iterator


MOST = 4 * 2**20  # bytes; no settings file is as long
LEADS_AWAY = "is a link that leads nowhere, or out of the folder"


class Found(NamedTuple):
    """The text and the mode of a file."""

    text: str
    mode: int


def look(path: str, root: str) -> Found | None:
    """Read a file below `root`; return None if there is none, and raise Refused if it may not be changed."""
    for folder in reversed(list(_folders_above(path, root))):
        if not _check_folder(folder):
            return None
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as broken:
        raise refused(path, f"cannot be looked at: {broken.strerror}") from None
    _check_file(path, found)
    return Found(_text(path), stat.S_IMODE(found.st_mode))


def resolve_link(path: str, within: str | None) -> str:
    """Return the path to which links lead from here.

    A link that leads nowhere, or out of the folder `within`, is not followed: `look` refuses its path.
    """
    real = os.path.realpath(path)
    is_out = within is not None and not real.startswith(f"{within}{os.sep}")
    return path if is_out or (real != path and not os.path.lexists(real) and _is_dangling(path)) else real


def may_be_touched(path: str, root: str) -> bool:
    """Return whether `look` allows this file to be changed, or to be created."""
    try:
        look(path, root)
    except Refused:
        return False
    return True


def missing_folders(path: str, root: str) -> list[str]:
    """Return the folders that must be created for this path, the outermost first."""
    return [folder for folder in reversed(list(_folders_above(path, root))) if not os.path.lexists(folder)]


def folders_inside(path: str, root: str) -> list[str]:
    """Return the folders of a path that lie below the root."""
    return [folder for folder in _folders_above(path, root) if folder.startswith(os.path.join(root, ""))]


@contextmanager
def error_with_path(path: str) -> Iterator[None]:
    """Add the path of the file to an error about its content."""
    try:
        yield
    except (Invalid, Refused) as wrong:
        raise refused(path, wrong.message, wrong.hint) from None


def refused(path: str, why: str, hint: str | None = None) -> Refused:
    return Refused(f"{why}; nothing was written", field=path, hint=hint)


def _folders_above(path: str, root: str) -> Iterator[str]:
    """Yield the folders of a path, from the innermost up to the root; outside the root, the innermost alone."""
    folder = os.path.dirname(path)
    while folder != root and folder.startswith(os.path.join(root, "")):
        yield folder
        folder = os.path.dirname(folder)
    yield folder


def _is_dangling(path: str) -> bool:
    """Return whether this path, or a folder above it, is a link that leads nowhere."""
    while path != os.path.dirname(path):
        if os.path.islink(path) and not os.path.exists(path):
            return True
        path = os.path.dirname(path)
    return False


def _check_folder(path: str) -> bool:
    """Return whether a folder exists; raise Refused if it is not ours to write to."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    except OSError as broken:
        raise refused(path, f"cannot be looked at: {broken.strerror}") from None
    if stat.S_ISLNK(found.st_mode):
        raise refused(path, LEADS_AWAY, "put the files in place by hand, or make it a folder")
    if not stat.S_ISDIR(found.st_mode):
        raise refused(path, "is no folder")
    _check_owner(path, found)
    if not os.access(path, os.W_OK | os.X_OK):
        raise refused(path, "may not be written to")
    return True


def _check_file(path: str, found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise refused(path, LEADS_AWAY, "put the lines in by hand, where it leads to")
    if not stat.S_ISREG(found.st_mode):
        raise refused(path, "is no plain file")
    _check_owner(path, found)
    if not found.st_mode & stat.S_IWUSR or not os.access(path, os.R_OK | os.W_OK):
        raise refused(path, "may not be written", f"chmod u+rw {path}")
    if found.st_size > MOST:
        raise refused(path, f"is longer than {MOST} bytes")


def _check_owner(path: str, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise refused(path, "belongs to another user")


def _text(path: str) -> str:
    try:
        # O_NOFOLLOW: the path may have become a link since it was checked.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            return file.read(MOST + 1).decode()
    except OSError as broken:
        raise refused(path, f"cannot be read: {broken.strerror}") from None
    except UnicodeDecodeError:
        raise refused(path, "is no UTF-8 text") from None
