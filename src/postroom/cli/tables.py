"""Tables, lists of facts, colours, hints: how anything is laid out on a terminal, and as Markdown elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .answers import Screen
from .escape import cell, cut, one_line, width

_COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_WIDEST = 60  # columns of a column that is not the last


def painted(screen: Screen, text: str, colour: str) -> str:
    return f"\033[{_COLOURS[colour]}m{text}\033[0m" if screen.colour and colour else text


def hint(screen: Screen, text: str) -> str:
    """What to type next: for people only."""
    return painted(screen, f"  {text}", "dim") + "\n" if screen.tables else ""


def table(
    screen: Screen,
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    paint: Mapping[str, str] | None = None,
    *,
    mark: Callable[[str], str] | None = None,
) -> str:
    """Rows under their titles. On a terminal the last column gets the space that is left, and `mark` may colour
    words in it; elsewhere: Markdown.
    """
    if not screen.tables:
        lines = [titles, ["---"] * len(titles), *([cell(text) for text in row] for row in rows)]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)
    shown = [[one_line(text) for text in row] for row in rows]
    widths = [min(max(width(text) for text in column), _WIDEST) for column in zip(titles, *shown, strict=True)]
    spare = screen.width - sum(widths[:-1]) - 2 * (len(widths) - 1)
    widths[-1] = max(min(widths[-1], spare), 10)
    heading = painted(
        screen, "  ".join(_padded(t, w) for t, w in zip(titles, widths, strict=True)).rstrip(), "bold"
    )
    lines = [_row(screen, row, widths, paint or {}, mark) for row in shown]
    return "".join(f"{line}\n" for line in [heading, *lines])


def _row(
    screen: Screen,
    row: Sequence[str],
    widths: Sequence[int],
    paint: Mapping[str, str],
    mark: Callable[[str], str] | None,
) -> str:
    cells = [_padded(cut(text, room), room) for text, room in zip(row, widths, strict=True)]
    painted_cells = [painted(screen, shown, paint.get(text, "")) for shown, text in zip(cells, row, strict=True)]
    if mark is not None:
        painted_cells[-1] = mark(cells[-1])
    return "  ".join(painted_cells).rstrip()


def _padded(text: str, columns: int) -> str:
    return text + " " * (columns - width(text))


def facts(screen: Screen, pairs: Sequence[tuple[str, str]]) -> str:
    """Names and values, one on each line; what is empty is left out."""
    shown = [(name, one_line(value)) for name, value in pairs if value]
    if not screen.tables:
        return "".join(f"- {name}: {value}\n" for name, value in shown)
    room = max((len(name) for name, _ in shown), default=0)
    return "".join(f"{painted(screen, name.ljust(room), 'dim')}  {value}\n" for name, value in shown)
