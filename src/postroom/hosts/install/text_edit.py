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
    """Return the edits that cut the inserted texts out of the result of these edits."""
    moved, found = 0, []
    for start, end, new in sorted(edits):
        found.append(Edit(start + moved, start + moved + len(new)))
        moved += len(new) - (end - start)
    return found


def lines_of(text: str) -> list[str]:
    """Return the lines, each with its newline. Unlike `splitlines`, only a newline ends a line, as for a host."""
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
    """Return the edit that adds the block at the end."""
    newline = "\r\n" if "\r\n" in text else "\n"
    before = "" if not text.strip() else newline if text.endswith("\n") else newline * 2
    lines = [marks.begin, *content.splitlines(), marks.end]
    return [Edit(len(text), len(text), before + newline.join(lines) + newline)]


def take_block(text: str, content: str, marks: Marks) -> list[Edit]:
    """Return the edits that cut out every block, with the blank line before it.

    If one of its two comments is missing, the end of the block is unknown: then only lines that we wrote are cut.
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
    """Return the text between the two comments; None if there is no whole block."""
    lines = text.splitlines()
    if lines.count(marks.begin) != 1 or lines.count(marks.end) != 1:
        return None
    return "\n".join(lines[lines.index(marks.begin) + 1 : lines.index(marks.end)])


def _places(lines: Sequence[str], mark: str) -> list[int]:
    return [place for place, line in enumerate(lines) if line.strip() == mark]


def _known(lines: Sequence[str], places: range, known: set[str]) -> set[int]:
    """Return the first of these places, and those that follow it as long as we wrote their lines."""
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
# One comment above it marks it. Hosts add tables of their own after ours, so there is no mark at its end: it ends
# where the next table begins.


def parse(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    except (tomllib.TOMLDecodeError, RecursionError) as broken:
        raise Invalid(f"not TOML: {broken}") from None


def put_table(text: str, mark: str, name: Sequence[str], table: Mapping[str, Any]) -> list[Edit]:
    """Return the edit that adds the table at the end."""
    newline = "\r\n" if "\r\n" in text else "\n"
    before = "" if not text.strip() else newline if text.endswith("\n") else newline * 2
    lines = [mark, _header(name), *(f"{key} = {_value(value)}" for key, value in table.items())]
    edits = [Edit(len(text), len(text), before + newline.join(lines) + newline)]
    _check_others(text, edits, name)
    return edits


def take_table(text: str, mark: str, name: Sequence[str], *, below: bool) -> list[Edit]:
    """Return the edits that cut out the table under our mark, with the blank line before it.

    Tables of others stay. With `below`, tables inside ours go too: a host keeps there what its user allowed, and
    refuses them without ours.
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
    """Return the lines of our table: from the blank line before the mark to its last value."""
    end = mark + 1
    if mark + 1 < len(lines) and lines[mark + 1].strip() == header:
        end = next(span for first, span in _tables(lines) if first == mark + 1)
    return (mark - 1 if mark and not lines[mark - 1].strip() else mark), end


def _tables(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the lines of each table, from its header to its last value: a later comment is about the next one."""
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
    """Write a value as TOML: as JSON does, except that TOML requires an escape for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _check_others(text: str, edits: Sequence[Edit], name: Sequence[str]) -> None:
    """Refuse edits that change another table: a table changed by others may hold lines that look like its end."""
    before = parse(text)
    try:
        same = _others(before, name) == _others(parse(apply(text, edits)), name)
    except Invalid:
        same = False
    if not same:
        raise Refused(f"{_header(name)} cannot be separated from the rest of the file", hint="correct it by hand")


def _others(value: dict[str, Any], name: Sequence[str]) -> dict[str, Any]:
    """Return all tables but the one with this name, without parents that hold nothing else."""
    first, *rest = name
    inner = value.get(first)
    kept = {key: one for key, one in value.items() if key != first}
    if not rest or inner is None:
        return kept
    left = _others(inner, rest) if isinstance(inner, dict) else inner
    return {**kept, first: left} if left else kept
