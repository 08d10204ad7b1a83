"""The files of hosts: which are left alone, and how they are read and written.

Files of other users, files that are not UTF-8 text and some links are left alone. Many people keep their
configuration elsewhere and link to it: such links are followed and kept. The files of a project come from other
people and may link anywhere: there, no link that leads out of the project is followed.

Each file is written in one step: the new contents are written to drafts next to the files, and synced. Then every
file is checked once more, and the drafts are renamed. Whatever goes wrong before that leaves all files as they
were; after a kill in between, each file is old or new, and the next call continues.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from ...errors import Invalid, Refused
from ...model.values import passes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .layouts import HostFiles
    from .plan import FileChange, Plan


MOST = 4 * 2**20  # bytes; no settings file is as long
FOLDER_MODE = 0o700
MADE = ".made-by-postroom"  # the file that marks the outermost folder that we made
LEADS_AWAY = "is a link that leads nowhere, or out of the folder"


class HostFile(NamedTuple):
    """The text and the mode of a file."""

    text: str
    mode: int


def look(path: str, root: str) -> HostFile | None:
    """Read a file below `root`; return None if there is none, and raise Refused if it may not be changed."""
    for folder in reversed(list(folders_above(path, root))):
        if _checked(folder, stat.S_ISDIR, "is not a folder") is None:
            return None
    found = _checked(path, stat.S_ISREG, "is not a regular file")
    return None if found is None else HostFile(_text(path), stat.S_IMODE(found.st_mode))


def resolve_link(path: str, within: str | None) -> str:
    """Return the path to which links lead from here.

    A link that leads nowhere, or out of the folder `within`, is not followed: `look` refuses its path.
    """
    # People keep settings in a repository and link to them: the target is written, and the link stays.
    real = os.path.realpath(path)
    is_out = within is not None and not real.startswith(f"{within}{os.sep}")
    return path if is_out or (real != path and not os.path.lexists(real) and _is_dangling(path)) else real


def may_be_touched(path: str, root: str) -> bool:
    """Return whether `look` allows this file to be changed, or to be created."""
    return passes(Refused, look, path, root)


@contextmanager
def error_with_path(path: str) -> Iterator[None]:
    """Add the path of the file to an error about its content."""
    try:
        yield
    except (Invalid, Refused) as wrong:
        raise refused(path, wrong.message, wrong.hint) from None


def refused(path: str, why: str, hint: str | None = None) -> Refused:
    return Refused(f"{why}; nothing was written", field=path, hint=hint)


def folders_above(path: str, root: str) -> Iterator[str]:
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


def _checked(path: str, is_right: Callable[[int], bool], otherwise: str) -> os.stat_result | None:
    """Return the status of a file or folder, None without one; raise Refused if it is not ours to write to."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as broken:
        raise refused(path, f"cannot be looked at: {broken.strerror}") from None
    is_closed = not found.st_mode & stat.S_IWUSR or not os.access(path, os.W_OK)
    faults = (
        (stat.S_ISLNK(found.st_mode), LEADS_AWAY, "put the lines in by hand, where it leads to"),
        (not is_right(found.st_mode), otherwise, None),
        (found.st_uid != os.geteuid(), "belongs to another user", None),
        (is_closed, "may not be written", f"chmod u+rw {path}"),
        (stat.S_ISREG(found.st_mode) and found.st_size > MOST, f"is longer than {MOST} bytes", None),
    )
    for is_so, why, hint in faults:
        if is_so:
            raise refused(path, why, hint)
    return found


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


# -- carrying out a plan


def carry_out(changes: Plan, layout: HostFiles) -> None:
    """Write and remove files, all or none; make the folders that they need, and remove those that we made."""
    drafts: dict[str, str] = {}
    made: list[str] = []
    try:
        for change in changes:
            if change.after is not None:
                made += _make_folders(change.path, layout.root)
                drafts[change.path] = _write_draft(change.path, change.after, change.mode)
        # All checks before the first rename: whatever is refused, every file is still as it was.
        for change in changes:
            _check_unchanged(change, layout.root)
        for change in changes:
            _apply(change, drafts)
        gone = [change.path for change in changes if change.after is None]
        ours = [layout.own, *(os.path.dirname(path) for path in gone if os.path.basename(path) == MADE)]
        below = tuple(os.path.join(folder, "") for folder in ours if folder)
        above = {folder for path in gone for folder in folders_above(path, layout.root)}
        made = [folder for folder in above if os.path.join(folder, "").startswith(below)]
    finally:
        for draft in drafts.values():
            with suppress(FileNotFoundError):
                os.unlink(draft)
        for folder in sorted(made, key=len, reverse=True):
            with suppress(OSError):  # unless something is in it
                os.rmdir(folder)


def _make_folders(path: str, root: str) -> Iterator[str]:
    """Make the folders of a path that do not exist; yield each."""
    for folder in reversed(list(folders_above(path, root))):
        with suppress(FileExistsError):
            os.mkdir(folder, FOLDER_MODE)
            yield folder


def _write_draft(path: str, text: str, mode: int) -> str:
    """Write and sync a draft next to the file, and return its path. A draft of a killed call is replaced."""
    draft = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.postroom")
    with suppress(FileNotFoundError):
        os.unlink(draft)
    descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(text.encode())
            file.flush()
            # Of the file that it replaces: a settings file with tokens must not become readable to others.
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
    except OSError:
        os.unlink(draft)
        raise
    return draft


def _check_unchanged(change: FileChange, root: str) -> None:
    """Refuse a file that its host, or somebody else, has written since it was shown."""
    found = look(change.path, root)
    if (found and found.text) != change.before:
        raise refused(change.path, "was changed meanwhile", "run the command again")


def _apply(change: FileChange, drafts: dict[str, str]) -> None:
    if change.after is None:
        os.unlink(change.path)
    else:
        os.replace(drafts[change.path], change.path)
