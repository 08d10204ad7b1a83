"""Loading libraries: with as little as they need, and never interrupted in the middle."""

from __future__ import annotations

import os
import sys
import time
from _signal import SIG_BLOCK, SIG_UNBLOCK, SIGINT, pthread_sigmask  # type: ignore[import-not-found] # it is light
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self
from unicodedata import category, east_asian_width

from ..core import presentation
from ..core.presentation import harmless, visible
from ..environment import variable
from ..model.codec import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TextIO

    from ..model.message import Message


class Uninterrupted:
    """Ctrl-C waits until the block is left: a library in C whose loading is interrupted may crash the program."""

    def __enter__(self) -> None:
        pthread_sigmask(SIG_BLOCK, {SIGINT})

    def __exit__(self, *how: object) -> None:
        pthread_sigmask(SIG_UNBLOCK, {SIGINT})


# How wide a terminal is, for what is written to it: answers, help, errors.

NARROWEST = 40


def columns(stream: TextIO) -> int:
    """As wide as the terminal is; a person's COLUMNS beats what it says of itself."""
    args = variable("COLUMNS")
    if args.isascii() and args.isdecimal() and len(args) < 5:
        return max(int(args), NARROWEST)
    try:
        return max(os.get_terminal_size(stream.fileno()).columns, NARROWEST)
    except OSError:
        return 80


# Text that others wrote, made harmless to show. Everything a peer said goes through here before it is printed.
#
# Control and bidi characters, line separators and what cannot be seen are written out. A body keeps its lines,
# each
# behind a bar, so that no letter can look like the words of the house.

BAR = "│ "
_NO_WIDTH = {"Mn", "Me", "Cf"}
_MOST = 8  # characters to a column: what takes no room of its own could else go on for ever


def one_line(text: str) -> str:
    """On one line, whatever it holds."""
    return harmless(visible(_whole(text).replace("\t", " ").replace("\n", "\\n")))


def body_lines(text: str) -> list[str]:
    """Every line of a body, behind its bar."""
    return [f"{BAR}{visible(line.expandtabs(4))}" for line in _whole(text).split("\n")]


def cell(text: str) -> str:
    """Inside a Markdown table."""
    return one_line(text).replace("\\", "\\\\").replace("|", "\\|")


def width(text: str) -> int:
    """Columns on a terminal, as nearly as one can tell."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def cut(text: str, columns: int) -> str:
    """At most so many columns; what is cut off is shown by a dot."""
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
    """On as many lines as it takes, broken at blanks; a word that is too long is broken anywhere."""
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
    """A line of a body on as many as it takes; the bar goes on."""
    return [f"{BAR}{piece}" for piece in wrapped(line.removeprefix(BAR), columns - len(BAR))]


def begun(lines: Sequence[str], columns: int, most: int) -> list[str]:
    """The first of a body's lines, folded, on so many at most; a dot where it goes on."""
    pieces = [piece for line in lines for piece in barred(line, columns)]
    if len(pieces) <= most:
        return pieces
    return [*pieces[: most - 1], cut(f"{pieces[most - 1]} …", columns)]


def broken(text: str, columns: int) -> list[str]:
    """On lines of this width, broken anywhere, each with one character at least. Looks once at each of them."""
    lines, start, used = [], 0, 0
    for place, character in enumerate(text):
        wide = _columns(character)
        if place > start and (used + wide > columns or place - start >= _MOST * columns):
            lines.append(text[start:place])
            start, used = place, 0
        used += wide
    return [*lines, text[start:]]


def ago(time: datetime | str | None, now: datetime) -> str:
    """How long ago, or in how long, in few words."""
    if time is None:
        return ""
    when = datetime.fromisoformat(time) if isinstance(time, str) else time
    seconds = (now - when).total_seconds()
    if seconds >= 0 and round(seconds) < 5:
        return "just now"
    span = _span(abs(seconds))
    if not span:
        return when.date().isoformat()
    return f"{span} ago" if seconds >= 0 else f"in {span}"


def due(time: str | None, now: datetime) -> str:
    """In how long something is due, or for how long it is overdue already."""
    seconds = (now - datetime.fromisoformat(time)).total_seconds() if time else -1.0
    return f"{_span(seconds) or 'long'} overdue" if seconds >= 0 else ago(time, now)


def _span(seconds: float) -> str:
    for unit, size, most in (("s", 1, 90), ("min", 60, 90), ("h", 3600, 36), ("d", 86400, 1_000_000)):
        if seconds < size * most:
            return f"{round(seconds / size)} {unit}"
    return ""


def moment(time: str) -> str:
    """A time as people write it, to the second."""
    return datetime.fromisoformat(time).strftime("%Y-%m-%d %H:%M:%S %Z")


def _columns(character: str) -> int:
    if category(character) in _NO_WIDTH:
        return 0
    return 2 if east_asian_width(character) in {"W", "F"} else 1


def _whole(text: str) -> str:
    """Without half characters."""
    return text.encode("utf-8", "backslashreplace").decode()


# Tables, lists of facts, colours, hints: how anything is laid out on a terminal, and as Markdown elsewhere.

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

    args = (("--as", screen.caller), ("--room", screen.room))
    return "".join(
        f" {name} {quote(one_line(value))}" for name, value in args if value and f"{name} " not in command
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


# What a command gives back, and the one place where it becomes text: JSON, or what people read.
#
# `data` is what programs rely on; its fields are those of the command table. `view` says the same to people.

SCHEMA = 1  # of every JSON document; grows when a field changes its meaning or goes


class Screen:
    """Where the answer is shown."""

    def __init__(
        self,
        *,
        json: bool,
        tables: bool,
        colour: bool,
        width: int,
        now: datetime | None = None,
        caller: str = "",
        room: str = "",
        short: Callable[[str], str] = str,
    ) -> None:
        self.json = json
        self.tables = tables  # a terminal; else Markdown, for a file, a pipe or a prompt
        self.colour = colour
        self.width = width
        self._now = now
        self.caller = caller  # who calls, when the next command must say it again
        self.room = room  # likewise, the room
        self.short = short  # an id as a table shows it
        self.human = "human"  # what the person's mailbox is called; the settings may say otherwise

    @cached_property
    def now(self) -> datetime:
        """The time at the first look at it, or what was handed in."""
        if self._now is not None:
            return self._now
        from ..clock import SystemClock  # noqa: PLC0415 - help needs no clock

        return SystemClock().now().wall


class Answer:
    """One answer. Commands that keep answering give several."""

    def __init__(
        self,
        command: str,
        data: Mapping[str, Any],
        view: Callable[[Screen, Mapping[str, Any]], str],
        *,
        letters: tuple[Message, ...] = (),
        code: int = 0,
    ) -> None:
        self.command = command
        self.data = data
        self.view = view
        self.letters = letters  # as they were accepted, for views that fence them
        self.code = code

    def text(self, screen: Screen) -> str:
        if screen.json:
            answer = encode({"schema": SCHEMA, "command": self.command, **self.data})
            return presentation.harmless_json(answer).decode() + "\n"
        return self.view(screen, {**self.data, "accepted": self.letters})


def sayable(text: str) -> str:
    """A path may hold bytes that are no text; they are written out."""
    return text.encode("utf-8", "backslashreplace").decode()


# How far a long command is: a bar on standard error, on a terminal only. Nothing of it stays.

PACE = 0.1  # seconds between two looks
_BAR = 24


def _terminal_columns() -> int:
    with suppress(OSError):
        return os.get_terminal_size(sys.stderr.fileno()).columns
    return 80


class Progress:
    """A bar where the whole is known, else a count. As a context manager it wipes itself away."""

    def __init__(self, what: str, *, whole: int | None = None, quiet: bool = False) -> None:
        self._what = what
        self._whole = whole
        self._shown = sys.stderr.isatty() and not quiet
        self._next = 0.0

    def tell(self, done: int, whole: int | None = None) -> None:
        """So much is done, and of how much, if that is known only now."""
        self._whole = whole or self._whole
        if not self._shown or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + PACE
        self._write(f"\r{self._what} {self._bar(done)}\033[K")

    def _bar(self, done: int) -> str:
        if not self._whole:
            return f"{done:,}"
        share = min(done / self._whole, 1.0)
        bar = min(_BAR, _terminal_columns() - len(self._what) - len(" [] 100%") - 1)
        if bar < 4:
            return f"{share:.0%}"
        filled = int(share * bar)
        return f"[{'#' * filled}{'.' * (bar - filled)}] {share:.0%}"

    def _write(self, text: str) -> None:
        with suppress(OSError):  # nobody looks any more
            sys.stderr.write(text)
            sys.stderr.flush()

    def __enter__(self) -> Self:
        return self

    def wipe(self) -> None:
        """Nothing of it is left on the line, where an answer is to be written."""
        if self._shown and self._next:
            self._write("\r\033[K")
            self._next = 0.0

    def __exit__(self, *how: object) -> None:
        self.wipe()
