"""The plan of an installation: the changes to each file, computed, checked and shown as a diff before any write.

It also reports the present state: which of our entries a host's files hold, and which programs it would start.
"""

from __future__ import annotations

import json
import os
import shlex
from collections import Counter
from difflib import unified_diff
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from . import files as install_files
from . import json_edit, text_edit
from .files import Entry, Receipt
from .json_edit import value_at
from .text_edit import Edit, apply, lines_of, undoing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from .files import Found
    from .json_edit import IsOurs
    from .layouts import Layout


PROGRAM = "postroom"


def programs_in(value: Any) -> Iterator[str]:
    """Yield the program of every hook and server in a value."""
    if isinstance(value, list):
        for one in value:
            yield from programs_in(one)
    elif isinstance(value, dict):
        if words := words_of(value):
            yield words[0]
        for one in value.values():
            yield from programs_in(one)


def calls_in(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each hook and server in a value, followed by its keys; not their values."""
    if isinstance(value, list):
        for one in value:
            yield from calls_in(one, path)
    elif isinstance(value, dict):
        if isinstance(value.get("command"), str):
            yield (*path, *sorted(value))
        for key, one in value.items():
            yield from calls_in(one, (*path, key))


def words_of(value: dict[str, Any]) -> list[str]:
    """Return the command of an entry as a list of words; the entry holds arguments, or a line for a shell."""
    command, args = value.get("command"), value.get("args")
    if not isinstance(command, str):
        return []
    if isinstance(args, list):
        return [command, *map(str, args)]
    try:
        return shlex.split(command)
    except ValueError:  # an unclosed quote
        return [command]


def is_our_server(value: Any) -> bool:
    """Return whether an entry starts `postroom mcp`, no matter who wrote it."""
    words = words_of(value) if isinstance(value, dict) else []
    names = [word.rpartition("/")[2] for word in words]
    return any(pair == (PROGRAM, "mcp") for pair in zip(names, words[1:], strict=False))


# -- our part of one file: a whole file, a few values in JSON, a table in TOML, or a block of text

if TYPE_CHECKING:
    # The values to add, given the rest of the file.
    Wanted = Callable[[Any], Mapping[str, Any]]


class Piece(Protocol):
    """Our part of the file at `path`."""

    path: str
    whole: bool  # whether the whole file is ours

    def take_out(self, text: str, *, for_good: bool) -> Sequence[Edit]:
        """Return the edits that cut out our part, even if others changed it. `for_good`: it is not added again."""
        ...

    def put_in(self, text: str) -> Sequence[Edit]:
        """Return the edits that add our part to a text without it. They only insert."""
        ...

    def is_in_place(self, text: str) -> bool:
        """Return whether our part is there, complete and up to date."""
        ...

    def is_whole(self, text: str) -> bool:
        """Return whether all hooks and servers of this version are there, with any program and agent."""
        ...

    def programs(self, text: str) -> Iterator[str]:
        """Yield the programs that a host starts because of our part."""
        ...


class OwnFile:
    """A file that is entirely ours."""

    whole = True

    def __init__(self, path: str, content: str) -> None:
        self.path = path
        self._content = content

    def take_out(self, text: str, *, for_good: bool) -> list[Edit]:  # noqa: ARG002 - all the same here
        return [Edit(0, len(text))] if text else []

    def put_in(self, text: str) -> list[Edit]:
        return [Edit(len(text), len(text), self._content)]

    def is_in_place(self, text: str) -> bool:
        return text == self._content

    def is_whole(self, text: str) -> bool:
        if not self.path.endswith(".json"):
            return True
        wanted, found = (json_edit.parse(one, comments=False).value for one in (self._content, text))
        return Counter(calls_in(wanted)) <= Counter(calls_in(found))

    def programs(self, text: str) -> Iterator[str]:
        if self.path.endswith(".json"):
            yield from programs_in(json_edit.parse(text, comments=False).value)


class JsonValues:
    """Members and elements of a JSON file. Ours are recognised by their content."""

    whole = False

    def __init__(self, path: str, wanted: Wanted, is_ours: IsOurs, *, comments: bool) -> None:
        self.path = path
        self._wanted = wanted
        self._is_ours = is_ours
        self._comments = comments

    def take_out(self, text: str, *, for_good: bool) -> list[Edit]:  # noqa: ARG002 - all the same here
        return json_edit.take_out(text, self._parsed(text), self._is_ours) if text.strip() else []

    def put_in(self, text: str) -> list[Edit]:
        if not text.strip():
            return [Edit(len(text), len(text), json.dumps(self._wanted({}), indent=2, ensure_ascii=False) + "\n")]
        node = self._parsed(text)
        return json_edit.put_in(text, node, self._wanted(node.value))

    def is_in_place(self, text: str) -> bool:
        if not text.strip():
            return False
        wanted = json_edit.parse(json.dumps(self._wanted_in(text)), comments=False)
        return self._ours(wanted) == self._ours(self._parsed(text))

    def is_whole(self, text: str) -> bool:
        ours = json_edit.ours_in(self._parsed(text), self._is_ours)
        found = Counter(call for path, value in ours for call in calls_in(value, path))
        return Counter(calls_in(self._wanted_in(text))) <= found

    def programs(self, text: str) -> Iterator[str]:
        for _, value in json_edit.ours_in(self._parsed(text), self._is_ours) if text.strip() else ():
            yield from programs_in(value)

    def _wanted_in(self, text: str) -> Mapping[str, Any]:
        return self._wanted(self._parsed(apply(text, self.take_out(text, for_good=True))).value)

    def _ours(self, node: json_edit.Node) -> list[tuple[Any, Any]]:
        return sorted(json_edit.ours_in(node, self._is_ours), key=repr)

    def _parsed(self, text: str) -> json_edit.Node:
        return json_edit.parse(text, comments=self._comments)


class TomlTable:
    """A table of a TOML file, under a comment of ours. A table of that name without it belongs to others."""

    whole = False

    def __init__(self, path: str, mark: str, name: Sequence[str], wanted: Wanted) -> None:
        self.path = path
        self._mark = mark
        self._name = name
        self._wanted = wanted

    def take_out(self, text: str, *, for_good: bool) -> list[Edit]:
        return text_edit.take_table(text, self._mark, self._name, below=for_good)

    def put_in(self, text: str) -> list[Edit]:
        table = self._wanted(text_edit.parse(text))
        return text_edit.put_table(text, self._mark, self._name, table) if table else []

    def is_in_place(self, text: str) -> bool:
        cuts = self.take_out(text, for_good=False)
        wanted = self._wanted(text_edit.parse(apply(text, cuts)))
        found = json_edit.value_at(text_edit.parse(text), *self._name) if cuts else {}
        return bool(cuts) == bool(wanted) and wanted.items() <= found.items()

    def is_whole(self, text: str) -> bool:
        return bool(self.take_out(text, for_good=False))

    def programs(self, text: str) -> Iterator[str]:
        if self.take_out(text, for_good=False):
            yield from programs_in(json_edit.value_at(text_edit.parse(text), *self._name))


class TextBlock:
    """A block in a file of rules for models."""

    whole = False

    def __init__(self, path: str, content: str, host: str) -> None:
        self.path = path
        self._content = content.rstrip("\n")
        self._marks = text_edit.marks_of(host)

    def take_out(self, text: str, *, for_good: bool) -> list[Edit]:  # noqa: ARG002 - all the same here
        return text_edit.take_block(text, self._content, self._marks)

    def put_in(self, text: str) -> list[Edit]:
        return text_edit.put_block(text, self._content, self._marks)

    def is_in_place(self, text: str) -> bool:
        return text_edit.block_in(text, self._marks) == self._content

    def is_whole(self, text: str) -> bool:
        return text_edit.block_in(text, self._marks) is not None

    def programs(self, text: str) -> Iterator[str]:  # noqa: ARG002 - a text starts nothing
        yield from ()


# -- the plan

FILE_MODE = 0o600
MANIFEST = ".claude-plugin/plugin.json"  # names the plugin in a skills folder


class Change(NamedTuple):
    """The text of one file before and after. None means that there is no file."""

    path: str
    before: str | None
    after: str | None
    mode: int


class Plan(NamedTuple):
    """The changes of one installation, and the receipt that is true after them."""

    changes: tuple[Change, ...]
    receipt: Receipt
    make: tuple[str, ...] = ()  # folders, the outermost first
    drop: tuple[str, ...] = ()  # folders that go if nothing is left in them, the innermost first


def to_install(layout: Layout, held: Receipt, *, rules: bool) -> Plan:
    """Return the plan that installs all pieces, and with `rules` the text for models."""
    if layout.obstacle:
        raise install_files.refused(*layout.obstacle)
    if not _is_ours(layout, held):
        raise install_files.refused(layout.own or "", "exists and is not ours", "move it away first")
    pieces = [*layout.pieces, *([layout.rules] if rules else [])]
    made = list(
        dict.fromkeys(folder for one in pieces for folder in install_files.missing_folders(one.path, layout.root))
    )
    files = {path: entry for path, entry in held.files.items() if path not in _stale(layout, held)}
    changes = list(_removals(layout, held))
    for piece in pieces:
        found = install_files.look(piece.path, layout.root)
        with install_files.error_with_path(piece.path):
            if found is not None and piece.is_in_place(found.text):
                continue
            bare = _without(piece, found, held, for_good=False)
            edits = piece.put_in(bare)
        if found is None and not edits:
            continue
        change = Change(piece.path, found and found.text, apply(bare, edits), found.mode if found else FILE_MODE)
        changes.append(change)
        files[piece.path] = _entry(change, edits, held)
    receipt = Receipt(files, tuple(dict.fromkeys([*held.folders, *made])), layout.place)
    return Plan(_real(changes), receipt, make=tuple(made))


def to_uninstall(layout: Layout, held: Receipt) -> Plan:
    """Return the plan that removes all pieces, and the folders that are empty then."""
    is_ours = _is_ours(layout, held)
    pieces = [*(layout.pieces if is_ours else ()), *([layout.rules] if _has_our_rules(layout, held) else [])]
    changes = list(_removals(layout, held))
    for piece in pieces:
        found = install_files.look(piece.path, layout.root)
        if found is None:
            continue
        with install_files.error_with_path(piece.path):
            bare = _without(piece, found, held, for_good=True)
        made = piece.whole or (piece.path in held.files and held.files[piece.path].made)
        changes.append(Change(piece.path, found.text, None if made and _is_blank(bare) else bare, found.mode))
    own = (
        {os.path.dirname(piece.path) for piece in layout.pieces} | {layout.own}
        if layout.own and is_ours
        else set()
    )
    drop = sorted({*held.folders, *filter(None, own)}, key=len, reverse=True)
    return Plan(_real(changes), Receipt(), drop=tuple(drop))


def diff(changes: Sequence[Change]) -> str:
    """Return the changes in the format of `diff -u`."""
    return "".join(line for change in changes for line in _diff(change))


def _diff(change: Change) -> Iterable[str]:
    before, after = (os.devnull if text is None else change.path for text in (change.before, change.after))
    for line in unified_diff(lines_of(change.before or ""), lines_of(change.after or ""), before, after):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _without(piece: Piece, found: Found | None, held: Receipt, *, for_good: bool) -> str:
    """Return the text of a file without our part; as it was before, if it was not changed since."""
    if found is None:
        return ""
    entry = held.files.get(piece.path)
    edits: Sequence[Edit] | None = entry.undoing(found.text) if entry else None
    if edits is None:
        edits = piece.take_out(found.text, for_good=for_good)
    return apply(found.text, edits)


def _entry(change: Change, edits: Sequence[Edit], held: Receipt) -> Entry:
    before = held.files.get(change.path)
    made = change.before is None or (before is not None and before.made)
    cuts = tuple((cut.start, cut.end) for cut in undoing(edits))
    return Entry(install_files.digest(change.after or ""), cuts, made)


def _is_ours(layout: Layout, held: Receipt) -> bool:
    """Return whether our own folder does not exist yet, or is ours by the receipt or its manifest."""
    if layout.own is None or not os.path.lexists(layout.own):
        return True
    if any(path.startswith(f"{layout.own}/") for path in held.files):
        return True
    manifest = install_files.look(os.path.join(layout.own, MANIFEST), layout.root)
    try:
        return manifest is not None and value_at(json.loads(manifest.text), "name") == os.path.basename(layout.own)
    except ValueError:
        return False


def _has_our_rules(layout: Layout, held: Receipt) -> bool:
    """Return whether our rules may be in their file. A file that may not be changed holds none, unless noted."""
    return layout.rules.path in held.files or install_files.may_be_touched(layout.rules.path, layout.root)


def _stale(layout: Layout, held: Receipt) -> list[str]:
    """Return files of ours that an older version installed, and this one does not."""
    wanted = {piece.path for piece in layout.pieces}
    return [path for path in held.files if layout.own and path.startswith(f"{layout.own}/") and path not in wanted]


def _removals(layout: Layout, held: Receipt) -> Iterator[Change]:
    for path in _stale(layout, held):
        if found := install_files.look(path, layout.root):
            yield Change(path, found.text, None, found.mode)


def _real(changes: Iterable[Change]) -> tuple[Change, ...]:
    return tuple(change for change in changes if change.before != change.after)


def _is_blank(text: str) -> bool:
    return text.strip().removeprefix("\ufeff") in {"", "{}"}


# -- the present state


class InstallState(NamedTuple):
    """The state of the installation for one host in one place."""

    is_any: bool  # whether anything of ours is there
    is_all: bool  # whether all hooks and servers of this version are there, in every file
    programs: tuple[str, ...]  # each once


def install_state(layout: Layout) -> InstallState:
    """Return the state of an installation, for any agent and program. This changes nothing."""
    programs: list[str] = []
    there, missing = [], []
    for piece, text in _texts(layout):
        with install_files.error_with_path(piece.path):
            is_there = bool(piece.take_out(text, for_good=False))
            there.append(is_there)
            missing.append(not piece.is_whole(text) if is_there else bool(piece.put_in(text)))
            programs += piece.programs(text) if is_there else ()
    return InstallState(any(there), not any(missing), tuple(dict.fromkeys(programs)))


def has_rules(layout: Layout) -> bool:
    """Return whether our block is among the rules. A file that may not be changed holds none."""
    if not install_files.may_be_touched(layout.rules.path, layout.root):
        return False
    found = install_files.look(layout.rules.path, layout.root)
    return found is not None and bool(layout.rules.take_out(found.text, for_good=True))


def _texts(layout: Layout) -> Iterator[tuple[Piece, str]]:
    for piece in layout.pieces:
        found = install_files.look(piece.path, layout.root)
        yield piece, "" if found is None else found.text
