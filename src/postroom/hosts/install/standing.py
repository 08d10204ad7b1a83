"""What is in place: how much of ours a host's files hold, and which programs it would start because of that."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from . import ground

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .layouts import Layout
    from .pieces import Piece


class Standing(NamedTuple):
    """How things stand with one host in one place."""

    is_any: bool  # is anything of ours there?
    is_all: bool  # is every hook and server of this version there, in every file that needs one?
    programs: tuple[str, ...]  # each once


def standing(layout: Layout) -> Standing:
    """It only looks. Who the hooks say they are for, and what they start, does not matter."""
    programs: list[str] = []
    there, missing = [], []
    for piece, text in _texts(layout):
        with ground.telling_where(piece.path):
            is_there = bool(piece.take_out(text, for_good=False))
            there.append(is_there)
            missing.append(not piece.is_whole(text) if is_there else bool(piece.put_in(text)))
            programs += piece.programs(text) if is_there else ()
    return Standing(any(there), not any(missing), tuple(dict.fromkeys(programs)))


def has_rules(layout: Layout) -> bool:
    """Is a block of ours among the rules? In a file that may not be touched there is none to look after."""
    if not ground.may_be_touched(layout.rules.path, layout.root):
        return False
    found = ground.look(layout.rules.path, layout.root)
    return found is not None and bool(layout.rules.take_out(found.text, for_good=True))


def _texts(layout: Layout) -> Iterator[tuple[Piece, str]]:
    for piece in layout.pieces:
        found = ground.look(piece.path, layout.root)
        yield piece, "" if found is None else found.text
