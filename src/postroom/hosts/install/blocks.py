"""A block of ours in a text for models, between two comments that no model is shown as its task.

They name the host: two hosts may read one file, by a link, and each has a block of its own in it then.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from .edits import Edit, lines_of

if TYPE_CHECKING:
    from collections.abc import Sequence


class Marks(NamedTuple):
    """The two comments of one host's block."""

    begin: str
    end: str


def marks_of(host: str) -> Marks:
    told = f"Written by `postroom install {host}`, taken out by `postroom uninstall {host}`."
    return Marks(f"<!-- postroom {host}: begin. {told} -->", f"<!-- postroom {host}: end -->")


def put_in(text: str, content: str, marks: Marks) -> list[Edit]:
    """What adds the block at the end."""
    newline = "\r\n" if "\r\n" in text else "\n"
    before = "" if not text.strip() else newline if text.endswith("\n") else newline * 2
    lines = [marks.begin, *content.splitlines(), marks.end]
    return [Edit(len(text), len(text), before + newline.join(lines) + newline)]


def take_out(text: str, content: str, marks: Marks) -> list[Edit]:
    """What cuts out every block, with the blank line before it. Where one of its two comments is gone, nobody
    knows how far it went: then only those lines go that we wrote.
    """
    lines = lines_of(text)
    known = {line.strip() for line in content.splitlines()}
    gone: set[int] = set()
    for begin, following in pairwise([*_places(lines, marks.begin), len(lines)]):
        end = next((at for at in _places(lines, marks.end) if begin < at < following), None)
        gone |= _known(lines, range(begin, following), known) if end is None else set(range(begin, end + 1))
        if begin and not lines[begin - 1].strip():
            gone.add(begin - 1)
    for end in _places(lines, marks.end):
        gone |= set() if end in gone else _known(lines, range(end, -1, -1), known)
    return [Edit(at := sum(map(len, lines[:place])), at + len(lines[place])) for place in sorted(gone)]


def block_in(text: str, marks: Marks) -> str | None:
    """What stands between the two comments; None where there is no whole block."""
    lines = text.splitlines()
    if lines.count(marks.begin) != 1 or lines.count(marks.end) != 1:
        return None
    return "\n".join(lines[lines.index(marks.begin) + 1 : lines.index(marks.end)])


def _places(lines: Sequence[str], mark: str) -> list[int]:
    return [place for place, line in enumerate(lines) if line.strip() == mark]


def _known(lines: Sequence[str], places: range, known: set[str]) -> set[int]:
    """The first of these places, and as many as follow of which we know that we wrote them."""
    found, blank = {places[0]}, set()
    for place in places[1:]:
        line = lines[place].strip()
        if line and line not in known:
            break
        blank.add(place)
        if line:
            found, blank = found | blank, set()
    return found
