"""The plan of an installation: the changes to each file, computed, checked and shown as a diff before any write.

Files of other users, files that are not UTF-8 text and some links are left alone. Many people keep their
configuration elsewhere and link to it: such links are followed and kept. The files of a project come from other
people and may link anywhere: there, no link that leads out of the project is followed.

Each file is written in one step: the new contents are written to drafts next to the files, and synced. Then every
file is checked once more, and the drafts are renamed. Whatever goes wrong before that leaves all files as they
were; after a kill in between, each file is old or new, and the next call continues.

It also reports the present state: which of our entries a host's files hold, and which programs it would start.
"""

from __future__ import annotations

import json
import os
import stat
from collections import Counter
from contextlib import contextmanager, suppress
from difflib import unified_diff
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import Invalid, Refused
from ...model.values import passes
from ..recipes import words_of
from .pieces import OwnFile, entries_in, value_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from .layouts import HostFiles
    from .pieces import Piece


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


# -- the plan


FILE_MODE = 0o600
MANIFEST = ".claude-plugin/plugin.json"  # names the plugin in a skills folder
MADE_TEXT = "Postroom made this folder; its uninstall removes it, unless something else is in it.\n"


class FileChange(NamedTuple):
    """The text of one file before and after. None means that there is no file."""

    path: str
    before: str | None
    after: str | None
    mode: int


Plan = tuple[FileChange, ...]


def to_install(layout: HostFiles, *, rules: bool) -> Plan:
    """Return the plan that installs all pieces, and with `rules` the text for models."""
    if layout.obstacle:
        raise refused(*layout.obstacle)
    if not _is_ours(layout):
        raise refused(layout.own or "", "exists and is not ours", "move it away first")
    pieces = [*layout.pieces, *([layout.rules] if rules else [])]
    changes = _changes(pieces, layout.root, is_install=True)
    # Before the folders are made: afterwards nobody could say which were there.
    marks = {_mark(change.path, layout): None for change in changes if change.after is not None}
    return (*changes, *(FileChange(mark, None, MADE_TEXT, FILE_MODE) for mark in marks if mark))


def to_uninstall(layout: HostFiles) -> Plan:
    """Return the plan that removes all pieces."""
    # The manifest, by which the folder is known as ours, goes last.
    pieces = [*(reversed(layout.pieces) if _is_ours(layout) else ())]
    if may_be_touched(layout.rules.path, layout.root):
        pieces.append(layout.rules)
    folders = {folder: None for piece in pieces for folder in folders_above(piece.path, layout.root)}
    marks = [OwnFile(os.path.join(folder, MADE), None) for folder in folders]
    return _changes([*pieces, *marks], layout.root, is_install=False)


def _mark(path: str, layout: HostFiles) -> str | None:
    """Return the path of the mark in the outermost folder that is made for this file, unless that is our own.

    An empty folder without a mark was there before us, so it stays when we go.
    """
    above = list(folders_above(path, layout.root))
    made = [folder for folder in above if not os.path.isdir(folder)]
    is_needed = made and layout.own not in above[above.index(made[-1]) :]
    return os.path.join(made[-1], MADE) if is_needed else None


def _changes(pieces: Sequence[Piece], root: str, *, is_install: bool) -> Plan:
    changes = [_change(piece, root, is_install=is_install) for piece in pieces]
    return tuple(change for change in changes if change.before != change.after)


def _change(piece: Piece, root: str, *, is_install: bool) -> FileChange:
    found = look(piece.path, root)
    text = found.text if found else ""
    with error_with_path(piece.path):
        if is_install:
            after = text if is_in_place(piece, text) else piece.added(text)
        else:
            after = piece.without(text) if piece.ours(text) else text
    is_gone = after != text and after.strip().removeprefix("\ufeff") in {"", "{}"}
    is_absent = is_gone or (found is None and not after)
    return FileChange(
        piece.path,
        found and found.text,
        None if is_absent else after,
        found.mode if found else FILE_MODE,
    )


def is_in_place(piece: Piece, text: str) -> bool:
    """Return whether our part is there, complete and up to date."""
    return piece.ours(text) == piece.ours(piece.added(text))


def diff(changes: Sequence[FileChange]) -> str:
    """Return the changes in the format of `diff -u`."""
    return "".join(line for change in changes for line in _diff(change))


def _diff(change: FileChange) -> Iterable[str]:
    before, after = (os.devnull if text is None else change.path for text in (change.before, change.after))
    for line in unified_diff(_lines(change.before), _lines(change.after), before, after):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _lines(text: str | None) -> list[str]:
    """Return the lines, each with its newline. Unlike `splitlines`, only a newline ends a line, as for a host."""
    *whole, rest = (text or "").split("\n")
    return [f"{line}\n" for line in whole] + ([rest] if rest else [])


def _is_ours(layout: HostFiles) -> bool:
    """Return whether our own folder holds nothing yet, or is ours by its manifest."""
    if layout.own is None or not any(names for _, _, names in os.walk(layout.own)):
        return True
    manifest = look(os.path.join(layout.own, MANIFEST), layout.root)
    try:
        return manifest is not None and value_at(json.loads(manifest.text), "name") == os.path.basename(layout.own)
    except ValueError:
        return False


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


# -- the present state


class InstallState(NamedTuple):
    """The state of the installation for one host in one place."""

    is_any: bool  # whether anything of ours is there
    is_all: bool  # whether all hooks and servers of this version are there, in every file
    programs: tuple[str, ...]  # each once


def install_state(layout: HostFiles) -> InstallState:
    """Return the state of an installation, for any agent and program. This changes nothing."""
    there, missing, programs = [], [], []
    for piece, text in _texts(layout):
        with error_with_path(piece.path):
            found, wanted = piece.ours(text), piece.ours(piece.added(text))
        there.append(bool(found))
        missing.append(bool(wanted) > bool(found) or bool(_kinds(wanted) - _kinds(found)))
        programs += [words_of(entry)[0] for _, entry in entries_in(found)]
    return InstallState(any(there), not any(missing), tuple(dict.fromkeys(programs)))


def _kinds(values: list[Any]) -> Counter[tuple[str, ...]]:
    """Count the hooks and servers of each kind: by their place and the keys that they have."""
    return Counter((*path, *sorted(entry)) for path, entry in entries_in(values))


def has_rules(layout: HostFiles) -> bool:
    """Return whether our block is among the rules. A file that may not be changed holds none."""
    if not may_be_touched(layout.rules.path, layout.root):
        return False
    found = look(layout.rules.path, layout.root)
    return found is not None and bool(layout.rules.ours(found.text))


def _texts(layout: HostFiles) -> Iterator[tuple[Piece, str]]:
    for piece in layout.pieces:
        found = look(piece.path, layout.root)
        yield piece, "" if found is None else found.text
