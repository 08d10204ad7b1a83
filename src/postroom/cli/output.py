"""What a command prints for people: tables, harmless text, and a progress bar.

Everything another agent wrote passes through `one_line`, `body_lines` or `cell` before it is printed: control and
bidi characters, line separators and invisible characters are written out, and each line of a body stands behind a
bar. So no letter can look like the program's own words.

On a terminal an answer is laid out for people; elsewhere it is Markdown.
"""

from __future__ import annotations

import os
import re
import sys
import time
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, TypeAlias
from unicodedata import category, east_asian_width

from ..core.presentation import defuse, show_hidden
from .answer import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .answer import Screen

    View = Callable[[Screen, Mapping[str, Any]], str]


# -- text that others wrote, made harmless

BAR = "│ "
_NO_WIDTH = {"Mn", "Me", "Cf"}
_LONG = 86400 * 1000  # seconds; what was longer ago is shown by its date
_MOST = 8  # characters to a column: characters without a width could go on for ever


def one_line(text: str) -> str:
    """Return a text on one line, whatever it holds."""
    return defuse(show_hidden(printable(text).replace("\t", " ").replace("\n", "\\n")))


def body_lines(text: str) -> list[str]:
    """Return every line of a body, each behind a bar."""
    return [f"{BAR}{show_hidden(line.expandtabs(4))}" for line in printable(text).split("\n")]


def cell(text: str) -> str:
    """Return a text for a cell of a Markdown table."""
    return one_line(text).replace("\\", "\\\\").replace("|", "\\|")


def width(text: str) -> int:
    """Return how many columns a text takes on a terminal, as nearly as can be known."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def cut(text: str, columns: int) -> str:
    """Cut a text to at most this many columns; an ellipsis shows that something was cut off."""
    if width(text) <= columns:
        return text
    kept, used = [], 1
    for character in text:
        used += _columns(character)
        if used > columns:
            break
        kept.append(character)
    return "".join(kept) + "…"


def wrapped(text: str, columns: int) -> list[str]:
    """Fold a text at its blanks; a word that is too long for a line is broken anywhere."""
    lines, line = [], ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if len(longer) <= _MOST * columns and width(longer) <= columns:
            line = longer
            continue
        if line:
            lines.append(line)
        *full, line = broken(word, columns)
        lines += full
    return [*lines, line]


def barred(line: str, columns: int) -> list[str]:
    """Fold a line of a body; each line of the result has the bar."""
    return [f"{BAR}{piece}" for piece in wrapped(line.removeprefix(BAR), columns - len(BAR))]


def begun(lines: Sequence[str], columns: int, most: int) -> list[str]:
    """Return the beginning of a body, folded, on at most `most` lines; an ellipsis shows that it goes on."""
    pieces = [piece for line in lines for piece in barred(line, columns)]
    if len(pieces) <= most:
        return pieces
    return [*pieces[: most - 1], cut(f"{pieces[most - 1]} …", columns)]


def broken(text: str, columns: int) -> list[str]:
    """Break a text anywhere into lines of this width, each with at least one character, in linear time."""
    lines, start, used = [], 0, 0
    for place, character in enumerate(text):
        wide = _columns(character)
        if place > start and (used + wide > columns or place - start >= _MOST * columns):
            lines.append(text[start:place])
            start, used = place, 0
        used += wide
    return [*lines, text[start:]]


def ago(time: datetime | None, now: datetime) -> str:
    """Return how long ago a time was, or in how long it comes, in few words."""
    if time is None:
        return ""
    seconds = (now - time).total_seconds()
    if 0 <= seconds < 4.5:
        return "just now"
    if abs(seconds) >= _LONG:
        return time.date().isoformat()
    return f"{span(seconds, 0)} ago" if seconds >= 0 else f"in {span(-seconds, 0)}"


def due(time: datetime | None, now: datetime) -> str:
    """Return in how long something is due, or how long it has been overdue."""
    seconds = (now - time).total_seconds() if time else -1.0
    return f"{span(seconds, 0)} overdue" if seconds >= 0 else ago(time, now)


_UNITS = (("ms", 0.001, 1000), ("s", 1, 100), ("min", 60, 100), ("h", 3600, 48))  # up to so many of each


def span(seconds: float | None, digits: int = 1) -> str:
    """Return a span of time in few letters, where no digits are wanted in whole seconds; nothing for none."""
    if seconds is None:
        return ""
    for unit, size, most in _UNITS if digits else _UNITS[1:]:
        if seconds < size * most:
            return f"{seconds / size:.{digits * (unit == 's' and seconds < 10)}f} {unit}"
    return f"{seconds / 86400:,.0f} d"


def moment(time: datetime) -> str:
    """Return a time as people write it, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z")


def _columns(character: str) -> int:
    if category(character) in _NO_WIDTH:
        return 0
    return 2 if east_asian_width(character) in {"W", "F"} else 1


# -- tables, lists of facts, colours, hints

_COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_WIDEST = 60  # columns of one column, but the last
_LEAST = 10  # columns that a column keeps, if its content is longer
_GAP = "  "


def painted(screen: Screen, text: str, colour: str) -> str:
    return f"\033[{_COLOURS[colour]}m{text}\033[0m" if screen.colour and colour else text


def state_word(delivery: Mapping[str, Any]) -> str:
    """Return the state of a delivery as people call it: an unread delivery whose letter was opened is "read"."""
    if delivery["forwarded"]:
        return f"forwarded to {delivery['forwarded']['where']}"
    return "read" if delivery["state"] == "unread" and delivery["read_at"] else str(delivery["state"])


def hint(screen: Screen, command: str, what: str = "") -> str:
    """Return the command to type next, ready to be pasted, and what it does; nothing where no person reads."""
    if not screen.tables:
        return ""
    why = f"  # {what}" if what else ""
    return painted(screen, f"  postroom {one_line(command)}{again(screen, command)}{why}", "dim") + "\n"


def again(screen: Screen, command: str) -> str:
    """Return the options for caller and room, as they were passed to this command: the next one needs them too."""
    from shlex import quote  # noqa: PLC0415 - most callers have both in their environment

    options = (("--as", screen.caller), ("--room", screen.room))
    return "".join(
        f" {name} {quote(one_line(value))}" for name, value in options if value and f"{name} " not in command
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
    """Return rows under their titles: on a terminal fitted to its width, elsewhere a whole Markdown table.

    To fit, columns get narrower, then some are left out, those of `drop` first. `paint` maps the text of a cell to
    its colour, and `mark` may colour words in the last column.
    """
    if not screen.tables:
        lines = [titles, ["---"] * len(titles), *([cell(text) for text in row] for row in rows)]
        return "".join(defuse(f"| {' | '.join(line)} |") + "\n" for line in lines)
    shown = [[one_line(text) for text in row] for row in rows]
    natural = [max(width(text) for text in column) for column in zip(titles, *shown, strict=True)]
    wanted = [*(min(want, _WIDEST) for want in natural[:-1]), natural[-1]]
    widths = _fitted(titles, wanted, screen.width, drop)
    heading = [_padded(cut(titles[place], room), room) for place, room in widths.items()]
    lines = [painted(screen, _GAP.join(heading).rstrip(), "bold")]
    lines += [_row(screen, row, widths, paint or {}, mark) for row in shown]
    return "".join(f"{line}\n" for line in lines)


def _fitted(titles: Sequence[str], wanted: Sequence[int], columns: int, drop: Sequence[str]) -> dict[int, int]:
    """Return the width of each shown column, by its place. The first column identifies a row and stays whole."""
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
    for place in kept:  # spare width is given out from the left
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
    """Return names and values, one pair on each line; empty values are left out."""
    shown = [(name, one_line(value)) for name, value in pairs if value]
    if not screen.tables:
        return "".join(f"- {name}: {value}\n" for name, value in shown)
    room = max((len(name) for name, _ in shown), default=0)
    return "".join(f"{painted(screen, name.ljust(room), 'dim')}  {value}\n" for name, value in shown)


# -- views of records: what to show of each, by the title under which it stands

# A path to a value, such as card.name, or a function that returns the text.
Column: TypeAlias = "str | Callable[[Screen, Mapping[str, Any]], str]"


def listing(
    name: str,
    columns: Mapping[str, Column],
    empty: str = "",
    *,
    first: str = "",
    then: tuple[str, str] | None = None,
    paint: Mapping[str, str] | None = None,
    drop: Sequence[str] = (),
) -> View:
    """Return a view of the records in a field of an answer: a table with these columns.

    Where there are none it says so (`empty`), and what to type `first`; `then` is what to type with the records.
    """

    def view(screen: Screen, data: Mapping[str, Any]) -> str:
        if not data[name]:
            return (f"{empty}\n" if empty else "") + (hint(screen, first) if first else "")
        rows = [[_shown(screen, one, column) for column in columns.values()] for one in data[name]]
        return table(screen, tuple(columns), rows, paint, drop=drop) + (hint(screen, *then) if then else "")

    return view


def record(columns: Mapping[str, Column], name: str = "") -> View:
    """Return a view of one record: the answer itself, or the one in a field of it."""

    def view(screen: Screen, data: Mapping[str, Any]) -> str:
        one = data[name] if name else data
        return facts(screen, [(title, _shown(screen, one, column)) for title, column in columns.items()])

    return view


def page(*views: View, apart: str = "\n") -> View:
    """Return a view of several views, one below the other; one that shows nothing is left out."""

    def view(screen: Screen, data: Mapping[str, Any]) -> str:
        return apart.join(filter(None, (one(screen, data) for one in views)))

    return view


def says(*lines: str, each: str = "", none: str = "") -> View:
    """Return a view of lines with values of the answer in them, such as {peer.system} or {seconds:.1f}.

    A line is left out where a value in it is empty; a list that stands alone gets a line for each entry; and what
    begins with $ is what to type next. With `each`, the lines are those of each record in that field. Where no line is
    left, it says `none`.
    """

    def view(screen: Screen, data: Mapping[str, Any]) -> str:
        said = (_said(screen, line, one) for one in (data[each] if each else [data]) for line in lines)
        return "".join(said) or (f"{none}\n" if none else "")

    return view


_PLACE = re.compile(r"\{([\w.]+)(?::([^}]+))?\}")


def _said(screen: Screen, line: str, one: Mapping[str, Any]) -> str:
    values = {place[0]: _value(one, place[1]) for place in _PLACE.finditer(line)}
    if any(value is False or not (value or isinstance(value, (int, float))) for value in values.values()):
        return ""
    for place, value in values.items():
        if isinstance(value, list) and line.strip() == place:
            return "".join(f"{one_line(line.replace(place, str(entry)))}\n" for entry in value)
    words = {place[0]: in_words(values[place[0]], screen.now, place[2]) for place in _PLACE.finditer(line)}
    if line.startswith("$ "):
        from shlex import quote  # noqa: PLC0415 - only for lines to paste

        command, _, what = line[2:].partition("  # ")
        return hint(screen, _PLACE.sub(lambda place: quote(words[place[0]]), command), what)
    return f"{one_line(_PLACE.sub(lambda place: words[place[0]], line))}\n"


def secret(field: str, *lines: str) -> View:
    """Return a view of a secret, and below it these lines. A file or a pipe gets it alone, and a person the lines."""
    about = says(*lines)

    def view(screen: Screen, data: Mapping[str, Any]) -> str:
        if screen.tables:
            return f"{data[field]}\n\n{about(screen, data)}"
        screen.note(" ".join(about(screen, data).split()))
        return f"{data[field]}\n"

    return view


def _shown(screen: Screen, one: Mapping[str, Any], column: Column) -> str:
    if not isinstance(column, str):
        return column(screen, one)
    value = _value(one, column)
    return screen.short(value) if column == "id" and isinstance(value, str) else in_words(value, screen.now)


def _value(one: Any, path: str) -> Any:
    for step in path.split("."):
        one = None if one is None else one.get(step)
    return one


def in_words(value: Any, now: datetime | None = None, form: str | None = None) -> str:
    """Return a value in words."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, datetime):
        return moment(value) if now is None else ago(value, now)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return format(value, form or ",")
    if isinstance(value, dict):
        return "; ".join(f"{name}: {in_words(each, now)}" for name, each in value.items() if each is not None)
    return ", ".join(in_words(each, now) for each in value)


def fields(screen: Screen, data: Mapping[str, Any]) -> str:
    """Show an answer for which there is no view of its own: its values, and a table for each list of records."""
    lists = {
        name: value for name, value in data.items() if isinstance(value, (list, tuple)) and name != "accepted"
    }
    tables = {name: value for name, value in lists.items() if value and isinstance(value[0], dict)}
    pairs: list[tuple[str, str]] = []
    for name, value in data.items():
        if name not in tables and name != "accepted":
            inner = value if isinstance(value, dict) else {name: value}
            pairs += [(one.replace("_", " "), in_words(each, screen.now)) for one, each in inner.items()]
    shown = facts(screen, pairs)
    for records in tables.values():
        titles = [title for title, value in records[0].items() if not isinstance(value, (list, dict))]
        rows = [[in_words(one.get(title), screen.now) for title in titles] for one in records]
        shown += table(screen, [title.replace("_", " ").upper() for title in titles], rows)
    return shown or "Nothing.\n"


# -- progress

PACE = 0.1  # seconds between two updates
_BAR = 24


class Progress:
    """A line on standard error, on a terminal only: how much is done, or after a second for how long it has taken.

    As a context manager it wipes itself away at the end.
    """

    def __init__(self, what: str, *, whole: int | None = None, quiet: bool = False) -> None:
        self._what, self._whole = what, whole
        self._is_shown = sys.stderr.isatty() and not quiet
        self._next = 0.0
        self._is_written = False

    def tell(self, done: int, whole: int | None = None) -> None:
        """Show how much is done, and of how much, if that is known only now."""
        self._whole = whole or self._whole
        if self._is_shown and time.monotonic() >= self._next:
            self._next = time.monotonic() + PACE
            self._write(f"\r{self._what} {self._bar(done)}\033[K")

    def _bar(self, done: int) -> str:
        if not self._whole:
            return f"{done:,}"
        share, columns = min(done / self._whole, 1.0), 80
        with suppress(OSError):
            columns = os.get_terminal_size(sys.stderr.fileno()).columns
        bar = min(_BAR, columns - len(self._what) - len(" [] 100%") - 1)
        filled = int(share * bar)
        return f"[{'#' * filled}{'.' * (bar - filled)}] {share:.0%}" if bar >= 4 else f"{share:.0%}"

    def _count_seconds(self) -> None:
        """Show that the command is still at work, as long as it does not tell how much is done."""
        seconds = 0
        while not self._over.wait(1.0):
            seconds += 1
            if not self._next:
                self._write(f"\r{self._what}: {seconds} s\033[K")

    def _write(self, text: str) -> None:
        self._is_written = True
        with suppress(OSError):  # the terminal is gone
            sys.stderr.write(text)
            sys.stderr.flush()

    def __enter__(self) -> Self:
        if self._is_shown:
            from threading import Event, Thread  # noqa: PLC0415 - only on a terminal

            self._over = Event()
            self._counter = Thread(target=self._count_seconds, daemon=True)
            self._counter.start()
        return self

    def __exit__(self, *how: object) -> None:
        self.end()

    def end(self) -> None:
        """Clear the line, so that an answer or a question can be written there, and write no other."""
        if self._is_shown:
            self._over.set()
            self._counter.join()
        if self._is_written:
            self._write("\r\033[K")
        self._is_shown = self._is_written = False
