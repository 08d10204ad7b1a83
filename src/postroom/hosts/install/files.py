"""The files of hosts: reading them, deciding which are left alone, and the receipts of what was installed.

Files of other users, files that are not UTF-8 text and some links are left alone. Many people keep their
configuration elsewhere and link to it: such links are followed and kept. The files of a project come from other
people and may link anywhere: there, no link that leads out of the project is followed.
"""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ...errors import Invalid, Refused
from .text_edit import Edit

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


# -- receipts
#
# A receipt is kept from `install` to `uninstall`, so that files are restored to the byte. It holds the places and
# lengths of what we inserted, and nothing that others wrote. It counts only for a file that is unchanged since.
# Without a receipt, our entries are recognised by their content.

_WHAT = "What `postroom install` put into these files, for `postroom uninstall`."


class Entry(msgspec.Struct, frozen=True):
    """The part of a receipt for one file."""

    digest: str  # of the file as we left it
    cuts: tuple[tuple[int, int], ...]  # start and end of each text that we inserted
    made: bool  # was there no file before?

    def undoing(self, text: str) -> list[Edit] | None:
        """Return the edits that restore the file; None if it has changed since."""
        return [Edit(start, end) for start, end in self.cuts] if digest(text) == self.digest else None


class Receipt(msgspec.Struct, frozen=True, omit_defaults=False):
    """The record of one installation: one host in one place."""

    files: dict[str, Entry] = {}
    folders: tuple[str, ...] = ()  # the folders that we created, the outermost first
    place: str = ""  # the folder of the host's configuration
    what: str = _WHAT


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def path_of(folder: str, host: str, place: str) -> str:
    """Return the path of the receipt for this host and place."""
    return os.path.join(folder, f"{host}-{digest(place)[:16]}.json")


def places(folder: str, host: str) -> list[str]:
    """Return the places for which there is a receipt of this host."""
    try:
        names = [name for name in sorted(os.listdir(folder)) if name.startswith(f"{host}-")]
    except OSError:
        return []
    return [place for name in names if (place := load(os.path.join(folder, name)).place)]


def load(path: str) -> Receipt:
    """Read a receipt; return an empty one if there is none, or none that can be read."""
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=Receipt)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return Receipt()


def dump(receipt: Receipt) -> str:
    return msgspec.json.format(msgspec.json.encode(receipt), indent=1).decode() + "\n"
