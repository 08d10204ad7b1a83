"""The plan of an installation: the changes to each file, computed, checked and shown as a diff before any write.

It also reports the present state: which of our entries a host's files hold, and which programs it would start.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from difflib import unified_diff
from typing import TYPE_CHECKING, Any, NamedTuple

from ..recipes import words_of
from . import files as install_files
from .json_edit import value_at
from .pieces import OwnFile, entries_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .layouts import HostFiles
    from .pieces import Piece


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
        raise install_files.refused(*layout.obstacle)
    if not _is_ours(layout):
        raise install_files.refused(layout.own or "", "exists and is not ours", "move it away first")
    pieces = [*layout.pieces, *([layout.rules] if rules else [])]
    changes = _changes(pieces, layout.root, is_install=True)
    # Before the folders are made: afterwards nobody could say which were there.
    marks = {_mark(change.path, layout): None for change in changes if change.after is not None}
    return (*changes, *(FileChange(mark, None, MADE_TEXT, FILE_MODE) for mark in marks if mark))


def to_uninstall(layout: HostFiles) -> Plan:
    """Return the plan that removes all pieces."""
    # The manifest, by which the folder is known as ours, goes last.
    pieces = [*(reversed(layout.pieces) if _is_ours(layout) else ())]
    if install_files.may_be_touched(layout.rules.path, layout.root):
        pieces.append(layout.rules)
    folders = {folder: None for piece in pieces for folder in install_files.folders_above(piece.path, layout.root)}
    marks = [OwnFile(os.path.join(folder, install_files.MADE), None) for folder in folders]
    return _changes([*pieces, *marks], layout.root, is_install=False)


def _mark(path: str, layout: HostFiles) -> str | None:
    """Return the path of the mark in the outermost folder that is made for this file, unless that is our own.

    An empty folder without a mark was there before us, so it stays when we go.
    """
    above = list(install_files.folders_above(path, layout.root))
    made = [folder for folder in above if not os.path.isdir(folder)]
    is_needed = made and layout.own not in above[above.index(made[-1]) :]
    return os.path.join(made[-1], install_files.MADE) if is_needed else None


def _changes(pieces: Sequence[Piece], root: str, *, is_install: bool) -> Plan:
    changes = [_change(piece, root, is_install=is_install) for piece in pieces]
    return tuple(change for change in changes if change.before != change.after)


def _change(piece: Piece, root: str, *, is_install: bool) -> FileChange:
    found = install_files.look(piece.path, root)
    text = found.text if found else ""
    with install_files.error_with_path(piece.path):
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
    manifest = install_files.look(os.path.join(layout.own, MANIFEST), layout.root)
    try:
        return manifest is not None and value_at(json.loads(manifest.text), "name") == os.path.basename(layout.own)
    except ValueError:
        return False


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
        with install_files.error_with_path(piece.path):
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
    if not install_files.may_be_touched(layout.rules.path, layout.root):
        return False
    found = install_files.look(layout.rules.path, layout.root)
    return found is not None and bool(layout.rules.ours(found.text))


def _texts(layout: HostFiles) -> Iterator[tuple[Piece, str]]:
    for piece in layout.pieces:
        found = install_files.look(piece.path, layout.root)
        yield piece, "" if found is None else found.text
