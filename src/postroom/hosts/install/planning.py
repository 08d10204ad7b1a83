"""What would be done to which file, before anything is done: looked at, checked, and shown as a diff."""

from __future__ import annotations

import json
import os
from difflib import unified_diff
from typing import TYPE_CHECKING, NamedTuple

from . import ground, receipts
from .edits import apply, lines_of, undoing
from .json_edit import value_at
from .receipts import Entry, Receipt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .edits import Edit
    from .ground import Found
    from .layouts import Layout
    from .pieces import Piece

FILE_MODE = 0o600
MANIFEST = ".claude-plugin/plugin.json"  # says whose a folder in a skills folder is


class Change(NamedTuple):
    """One file: what it holds and what it shall hold. None: it is not there."""

    path: str
    before: str | None
    after: str | None
    mode: int


class Plan(NamedTuple):
    """Changes that belong together, and the receipt that will be true after them."""

    changes: tuple[Change, ...]
    receipt: Receipt
    make: tuple[str, ...] = ()  # folders, the outermost first
    drop: tuple[str, ...] = ()  # folders that go if nothing is left in them, the innermost first


def to_install(layout: Layout, held: Receipt, *, rules: bool) -> Plan:
    """What puts everything in place; the rules only if asked for."""
    if layout.obstacle:
        raise ground.refused(*layout.obstacle)
    if not _is_ours(layout, held):
        raise ground.refused(layout.own or "", "is there and is not ours", "move it away first")
    pieces = [*layout.pieces, *([layout.rules] if rules else [])]
    made = list(
        dict.fromkeys(folder for one in pieces for folder in ground.missing_folders(one.path, layout.root))
    )
    files = {path: entry for path, entry in held.files.items() if path not in _stale(layout, held)}
    changes = list(_removals(layout, held))
    for piece in pieces:
        found = ground.look(piece.path, layout.root)
        with ground.telling_where(piece.path):
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
    """What takes everything out again, and the folders in which nothing is left then."""
    is_ours = _is_ours(layout, held)
    pieces = [*(layout.pieces if is_ours else ()), *([layout.rules] if _has_our_rules(layout, held) else [])]
    changes = list(_removals(layout, held))
    for piece in pieces:
        found = ground.look(piece.path, layout.root)
        if found is None:
            continue
        with ground.telling_where(piece.path):
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
    """As `diff -u` tells it."""
    return "".join(line for change in changes for line in _diff(change))


def _diff(change: Change) -> Iterable[str]:
    before, after = (os.devnull if text is None else change.path for text in (change.before, change.after))
    for line in unified_diff(lines_of(change.before or ""), lines_of(change.after or ""), before, after):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _without(piece: Piece, found: Found | None, held: Receipt, *, for_good: bool) -> str:
    """The file's text without ours: as it was, where nobody else changed it."""
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
    return Entry(receipts.digest(change.after or ""), cuts, made)


def _is_ours(layout: Layout, held: Receipt) -> bool:
    """May we write into the folder that is to be ours alone? It is not there, or says that it is ours."""
    if layout.own is None or not os.path.lexists(layout.own):
        return True
    if any(path.startswith(f"{layout.own}/") for path in held.files):
        return True
    manifest = ground.look(os.path.join(layout.own, MANIFEST), layout.root)
    try:
        return manifest is not None and value_at(json.loads(manifest.text), "name") == os.path.basename(layout.own)
    except ValueError:
        return False


def _has_our_rules(layout: Layout, held: Receipt) -> bool:
    """May ours be in it? Where nothing was put into a file that may not be touched, it is in nobody's way."""
    return layout.rules.path in held.files or ground.may_be_touched(layout.rules.path, layout.root)


def _stale(layout: Layout, held: Receipt) -> list[str]:
    """Whole files of ours that an older version had, and this one has not."""
    wanted = {piece.path for piece in layout.pieces}
    return [path for path in held.files if layout.own and path.startswith(f"{layout.own}/") and path not in wanted]


def _removals(layout: Layout, held: Receipt) -> Iterator[Change]:
    for path in _stale(layout, held):
        if found := ground.look(path, layout.root):
            yield Change(path, found.text, None, found.mode)


def _real(changes: Iterable[Change]) -> tuple[Change, ...]:
    return tuple(change for change in changes if change.before != change.after)


def _is_blank(text: str) -> bool:
    return text.strip().removeprefix("\ufeff") in {"", "{}"}
