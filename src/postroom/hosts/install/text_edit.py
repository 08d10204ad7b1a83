"""Edits of text and TOML files: inserting and cutting, and undoing that. Pure functions."""

from __future__ import annotations

import json
import tomllib
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import Invalid, Refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class Edit(NamedTuple):
    """A replacement of the text from `start` to `end`."""

    start: int
    end: int
    text: str = ""


def apply(text: str, edits: Sequence[Edit]) -> str:
    """Apply edits, each at its position in the original text. They must not overlap."""
    pieces, at = [], 0
    for start, end, new in sorted(edits):
        pieces += [text[at:start], new]
        at = end
    return "".join([*pieces, text[at:]])


def undoing(edits: Sequence[Edit]) -> list[Edit]:
    """What cuts out again, of the text that came about, all that these put in."""
    moved, found = 0, []
    for start, end, new in sorted(edits):
        found.append(Edit(start + moved, start + moved + len(new)))
        moved += len(new) - (end - start)
    return found


def lines_of(text: str) -> list[str]:
    """Its lines, each with its end. Only a newline ends one: other characters do for Python, not for a host."""
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + ([rest] if rest else [])


# -- a block of ours in a text for models
#
# It stands between two comments that name the host: two hosts may read one file by a link, each with its own
# block.


class Marks(NamedTuple):
    """The two comments of one host's block."""

    begin: str
    end: str


def marks_of(host: str) -> Marks:
    text = f"Written by `postroom install {host}`, taken out by `postroom uninstall {host}`."
    return Marks(f"<!-- postroom {host}: begin. {text} -->", f"<!-- postroom {host}: end -->")


def put_block(text: str, content: str, marks: Marks) -> list[Edit]:
    """What adds the block at the end."""
    newline = "\r\n" if "\r\n" in text else "\n"
    before = "" if not text.strip() else newline if text.endswith("\n") else newline * 2
    lines = [marks.begin, *content.splitlines(), marks.end]
    return [Edit(len(text), len(text), before + newline.join(lines) + newline)]


def take_block(text: str, content: str, marks: Marks) -> list[Edit]:
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


# -- a table of ours in a TOML file
#
# One comment above it marks it. Hosts write tables of their own behind ours, so it has no mark at its end: it ends
# where the next table begins.


def parse(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    except (tomllib.TOMLDecodeError, RecursionError) as broken:
        raise Invalid(f"no TOML: {broken}") from None


def put_table(text: str, mark: str, name: Sequence[str], table: Mapping[str, Any]) -> list[Edit]:
    """What adds the table at the end."""
    newline = "\r\n" if "\r\n" in text else "\n"
    before = "" if not text.strip() else newline if text.endswith("\n") else newline * 2
    lines = [mark, _header(name), *(f"{key} = {_value(value)}" for key, value in table.items())]
    edits = [Edit(len(text), len(text), before + newline.join(lines) + newline)]
    _check_others(text, edits, name)
    return edits


def take_table(text: str, mark: str, name: Sequence[str], *, below: bool) -> list[Edit]:
    """What cuts out the table under our mark, with the blank line before it. Tables of others stay. Those below
    ours, in which a host keeps what its user allowed, go only if asked for: alone they are an error.
    """
    lines = lines_of(text)
    at = next((place for place, line in enumerate(lines) if line.strip() == mark), None)
    if at is None:
        return []
    spans = [_own(lines, at, _header(name))]
    if below:
        spans += [span for span in _tables(lines) if lines[span[0]].strip().startswith(_header(name)[:-1] + ".")]
    edits = [Edit(_place(lines, first), _place(lines, end)) for first, end in spans]
    _check_others(text, edits, name)
    return edits


def _own(lines: Sequence[str], mark: int, header: str) -> tuple[int, int]:
    """From the blank line before the mark to behind the table's last value."""
    end = mark + 1
    if mark + 1 < len(lines) and lines[mark + 1].strip() == header:
        end = next(span for first, span in _tables(lines) if first == mark + 1)
    return (mark - 1 if mark and not lines[mark - 1].strip() else mark), end


def _tables(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The lines of each table, from its header to behind its last value: a comment behind is on what follows."""
    headers = [place for place, line in enumerate(lines) if line.lstrip().startswith("[")]
    for first, following in pairwise([*headers, len(lines)]):
        end = following
        while end > first + 1 and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
            end -= 1
        yield first, end


def _place(lines: Sequence[str], number: int) -> int:
    return sum(map(len, lines[:number]))


def _header(name: Sequence[str]) -> str:
    return f"[{'.'.join(name)}]"


def _value(value: Any) -> str:
    """JSON's texts, numbers and lists are TOML's, but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _check_others(text: str, edits: Sequence[Edit], name: Sequence[str]) -> None:
    """All else must say what it said: a table that somebody changed may hold lines that only look like an end."""
    before = parse(text)
    try:
        same = _others(before, name) == _others(parse(apply(text, edits)), name)
    except Invalid:
        same = False
    if not same:
        raise Refused(f"{_header(name)} cannot be told from the rest of it", hint="put it right by hand")


def _others(value: dict[str, Any], name: Sequence[str]) -> dict[str, Any]:
    """All but what is under this name; and what would be empty without it."""
    first, *rest = name
    inner = value.get(first)
    kept = {key: one for key, one in value.items() if key != first}
    if not rest or inner is None:
        return kept
    left = _others(inner, rest) if isinstance(inner, dict) else inner
    return {**kept, first: left} if left else kept
