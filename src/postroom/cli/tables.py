"""Tables, lists of facts, colours, hints: how anything is laid out on a terminal, and as Markdown elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..service.present import harmless
from .escape import cell, cut, one_line, width

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .answers import Screen

_COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_WIDEST = 60  # columns of one column, but the last
_LEAST = 10  # of one that holds more than that
_GAP = "  "


def painted(screen: Screen, text: str, colour: str) -> str:
    return f"\033[{_COLOURS[colour]}m{text}\033[0m" if screen.colour and colour else text


def state_word(held: Mapping[str, Any]) -> str:
    """Of a delivery. What is unread in the sense of its table, and was read, is called so."""
    return "read" if held["state"] == "unread" and held["read_at"] else str(held["state"])


def hint(screen: Screen, command: str, what: str = "") -> str:
    """What to type next, whole, so that it can be pasted; and what it does. For people only."""
    if not screen.tables:
        return ""
    why = f"  # {what}" if what else ""
    return painted(screen, f"  postroom {one_line(command)}{again(screen, command)}{why}", "dim") + "\n"


def again(screen: Screen, command: str) -> str:
    """The caller and the room, as they were said: the next command needs them too."""
    from shlex import quote  # noqa: PLC0415 - most have both in their environment

    said = (("--as", screen.caller), ("--room", screen.room))
    return "".join(
        f" {name} {quote(one_line(value))}" for name, value in said if value and f"{name} " not in command
    )


def table(
    screen: Screen,
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    paint: Mapping[str, str] | None = None,
    *,
    mark: Callable[[str], str] | None = None,
    drop: Sequence[str] = (),
) -> str:
    """Rows under their titles. On a terminal they fit: columns get narrower, then some are left out, those of
    `drop` first; and `mark` may colour words in the last one. Elsewhere: Markdown, whole.
    """
    if not screen.tables:
        lines = [titles, ["---"] * len(titles), *([cell(text) for text in row] for row in rows)]
        return "".join(harmless(f"| {' | '.join(line)} |") + "\n" for line in lines)
    shown = [[one_line(text) for text in row] for row in rows]
    natural = [max(width(text) for text in column) for column in zip(titles, *shown, strict=True)]
    wanted = [*(min(want, _WIDEST) for want in natural[:-1]), natural[-1]]
    widths = _fitted(titles, wanted, screen.width, drop)
    heading = [_padded(cut(titles[place], room), room) for place, room in widths.items()]
    lines = [painted(screen, _GAP.join(heading).rstrip(), "bold")]
    lines += [_row(screen, row, widths, paint or {}, mark) for row in shown]
    return "".join(f"{line}\n" for line in lines)


def _fitted(titles: Sequence[str], wanted: Sequence[int], columns: int, drop: Sequence[str]) -> dict[int, int]:
    """Place of a column -> its width. The first column says what a row is about: it stays, and stays whole."""
    least = [
        wanted[0],
        *(min(want, max(len(title), _LEAST)) for title, want in zip(titles[1:], wanted[1:], strict=True)),
    ]
    kept = list(range(len(titles)))
    inner = [place for place in reversed(kept[1:-1]) if titles[place] not in drop]
    for place in [*(titles.index(title) for title in drop), *inner, kept[-1]]:
        if _total(least, kept) <= columns or len(kept) == 1:
            break
        kept.remove(place)
    widths = {place: min(least[place], columns) for place in kept}
    for place in kept:  # what is left is given out from the left
        spare = columns - _total(widths, kept)
        widths[place] += max(0, min(spare, wanted[place] - widths[place]))
    return widths


def _total(widths: Sequence[int] | Mapping[int, int], kept: Sequence[int]) -> int:
    return sum(widths[place] for place in kept) + len(_GAP) * (len(kept) - 1)


def _row(
    screen: Screen,
    row: Sequence[str],
    widths: Mapping[int, int],
    paint: Mapping[str, str],
    mark: Callable[[str], str] | None,
) -> str:
    cells = {place: _padded(cut(row[place], room), room) for place, room in widths.items()}
    coloured = {place: painted(screen, shown, paint.get(row[place], "")) for place, shown in cells.items()}
    last = len(row) - 1
    if mark is not None and last in cells:
        coloured[last] = mark(cells[last])
    return _GAP.join(coloured.values()).rstrip()


def _padded(text: str, columns: int) -> str:
    return text + " " * (columns - width(text))


def facts(screen: Screen, pairs: Sequence[tuple[str, str]]) -> str:
    """Names and values, one on each line; what is empty is left out."""
    shown = [(name, one_line(value)) for name, value in pairs if value]
    if not screen.tables:
        return "".join(f"- {name}: {value}\n" for name, value in shown)
    room = max((len(name) for name, _ in shown), default=0)
    return "".join(f"{painted(screen, name.ljust(room), 'dim')}  {value}\n" for name, value in shown)
