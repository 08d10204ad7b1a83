"""The terminal side of the inbox: from the bytes of a keyboard to keys, and from the state to lines on a screen.

Bytes come in pieces: half a character, or half an escape sequence, waits for the rest. Text that others wrote
passes through `one_line` and `body_lines`: it can neither leave its line nor look like the program's own words.
"""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, NamedTuple

from ...core.actions import GONE, KEYS, TAKEN_BACK
from ...core.waiting_list import MOST
from ...model.message import UNPROVEN
from ...model.task import TaskState
from ..escalation import about, presses
from ..output import BAR, ago, begun, body_lines, broken, cut, one_line, painted, table, width, wrapped
from ..screen import Frame
from .state import Extent, offered

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import terminal_size

    from ..answer import Screen
    from ..escalation import Entry
    from .state import InboxState, Writing


# -- keys

_PASTE, _PASTED = "\033[200~", "\033[201~"  # around text that is pasted
# A sequence of keys, the beginning of one, or one character.
_NEXT = re.compile(
    r"\033(?:\[[0-9;<=>?]*[ -/]*[@-~]|O[ -~])|(?P<half>\033(?:\[[0-9;<=>?]*[ -/]*|O)?\Z)|.", re.DOTALL
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_NAMED = {
    "\033": "esc", "\n": "enter", "\r": "enter", "\x7f": "backspace", "\x08": "backspace", "\x01": "home", "\x05": "ctrl-e",
    "\x0e": "down", "\x10": "up", "\x15": "ctrl-u", "\x17": "ctrl-w",
    "\033[A": "up", "\033[B": "down", "\033[C": "right", "\033[D": "left", "\033[H": "home", "\033[F": "end",
    "\033OA": "up", "\033OB": "down", "\033OC": "right", "\033OD": "left", "\033OH": "home", "\033OF": "end",
    "\033[1~": "home", "\033[4~": "end", "\033[7~": "home", "\033[8~": "end", "\033[3~": "delete",
    "\033[5~": "pgup", "\033[6~": "pgdn",
}  # fmt: skip


class Key(NamedTuple):
    """A key by its name, and the text that it writes, if any. The name of a letter is the letter."""

    name: str
    text: str = ""


class Keyboard:
    """A decoder from bytes to keys."""

    def __init__(self) -> None:
        self._letters = codecs.getincrementaldecoder("utf-8")("replace")
        self._left = ""
        self._pasted: str | None = None  # so far, while something is pasted

    @property
    def waits(self) -> bool:
        """Whether half a key is left. If nothing follows soon, it was Esc: call `flush`."""
        return bool(self._left) and self._pasted is None

    def feed(self, received: bytes) -> list[Key]:
        """Return the keys that are complete with these bytes."""
        self._left += self._letters.decode(received)
        keys: list[Key] = []
        while self._left:
            if self._pasted is not None:
                text, end, rest = self._left.partition(_PASTED)
                if not end:
                    keep = len(_PASTED) - 1  # half of the end may be there
                    self._pasted, self._left = self._pasted + self._left[:-keep], self._left[-keep:]
                    break
                whole = (self._pasted + text).replace("\r\n", "\n").replace("\r", "\n")
                keys.append(Key("paste", _CONTROL.sub("", whole)))
                self._pasted, self._left = None, rest
                continue
            found = _NEXT.match(self._left)
            if found is None or found.lastgroup == "half":
                break
            self._left = self._left[found.end() :]
            if found[0] == _PASTE:
                self._pasted = ""
            else:
                keys.append(self._key(found[0]))
        return keys

    def flush(self) -> list[Key]:
        """Return what is left as keys: nothing more came, so Esc is the key itself."""
        left, self._left = self._left, ""
        return [Key("esc"), *(Key(letter, letter) for letter in left[1:])]

    def _key(self, taken: str) -> Key:
        name = _NAMED.get(taken, "")
        if name == "enter" and self._left[:1].isprintable() and self._left:
            return Key("newline", "\n")  # too fast to be typed: pasted at a terminal without bracketed paste
        if name:
            return Key(name)
        return Key(taken, taken) if len(taken) == 1 and taken.isprintable() else Key("unknown")


# -- the state as lines on a screen, never more or longer than fit

LOW = 12  # lines; a lower screen shows the list alone
_COLOURS = {
    "escalation": "yellow", "question": "yellow", "task": "cyan", "accepted": "green", "working": "green",
    "news": "dim", TAKEN_BACK: "dim",
}  # fmt: skip
_TITLES, _SENT_TITLES = ("SINCE", "WHAT", "FROM", "ABOUT"), ("SINCE", "WHAT", "TO", "ABOUT")
_LEAST_NAME = 10  # columns
_LONGEST = 500  # characters of a text on one line
_MOVES = (
    ("↑ ↓ j k", "the one above, the one below"),
    ("Space g G", "a page on; to the beginning, to the end"),
    ("Enter o", "open it: the letter whole, and what was said before it"),
    ("s", "what you sent, and back to what waits"),
    ("n p", "when one is open: the next, the one before"),
    ("q Esc ←", "back to the list; q there leaves"),
    ("?", "this page"),
)
_WRITING = (
    ("Enter", "sends it"),
    ("Esc", "goes back; what you wrote is kept, the same key shows it"),
    ("Ctrl-E", "goes on in the editor"),
    ("Ctrl-U Ctrl-W", "wipes all before the cursor; the last word"),
)
_AT_THE_LINE = "Enter sends  Esc goes back and keeps it  Ctrl-E editor"


def frame(state: InboxState, screen: Screen, letter: Sequence[str], size: terminal_size) -> Frame:
    """Return the whole screen. `letter` is the opened letter, in lines of this width."""
    lines_below, cursor = _foot(state, size)
    foot = [painted(screen, line, colour) for line, colour in lines_below]
    room = max(size.lines - len(foot) - 1, 0)
    if state.shows_keys:
        body = _keys(screen, size.columns)
    elif state.opened is not None:
        body = [_shown(screen, line) for line in letter[state.scroll : state.scroll + room]]
    else:
        body = _list(state, screen, room, size)
    title = painted(screen, cut(_title(state, screen, len(letter), room), size.columns), "bold")
    above = [title, *body[:room], *[""] * (room - len(body))]
    left_out = max(len(above) + len(foot) - size.lines, 0)  # on a terminal of hardly any lines
    lines = [*above, *foot][left_out:]
    return Frame(lines, None if cursor is None else (max(len(above) + cursor[0] - left_out, 0), cursor[1]))


def extent(state: InboxState, letter: Sequence[str], size: terminal_size) -> Extent:
    """Return how many rows fit of the list or letter through which keys move."""
    around = 1 + len(_foot(state, size)[0]) + (0 if state.opened is not None else 1)
    return Extent(max(size.lines - around, 1), len(letter))


# -- the parts of it


def _title(state: InboxState, screen: Screen, lines: int, room: int) -> str:
    """Return the title: the mailbox, and how much waits since when, or which lines of a letter are shown."""
    count = len(state.entries)
    if state.shows_sent and state.opened is None:
        return f"{state.me}: sent, the newest first"
    if not count:
        return f"{state.me}: nothing waits"
    if state.opened is not None and state.current is not None:
        seen = (
            f"; lines {state.scroll + 1} to {min(state.scroll + room, lines)} of {lines}" if lines > room else ""
        )
        return f"{state.me}: {state.place + 1} of {count}{seen}"
    oldest = ago(min(entry["since"] for entry in state.entries), screen.now)
    more = " or more" if count >= MOST else ""  # no more than MOST letters are read
    waits = "1 waits; it came" if count == 1 else f"{count}{more} wait; the oldest came"
    return f"{state.me}: {waits} {oldest}"


def _list(state: InboxState, screen: Screen, room: int, size: terminal_size) -> list[str]:
    """Return the list of entries, and the beginning of the chosen one."""
    if not state.entries and state.shows_sent:
        return ["", "Nothing was sent yet."]
    if not state.entries:
        return ["", *wrapped(f"Agents write to {state.me}. What comes appears here by itself.", size.columns)]
    below = _beginning(state, screen, size) if size.lines >= LOW else []
    rows = max(room - len(below) - 1, 1)
    top = min(max(state.place - rows // 2, 0), max(len(state.entries) - rows, 0))
    shown = state.entries[top : top + rows]
    screen.width = size.columns - 2
    titles = _SENT_TITLES if state.shows_sent else _TITLES
    heading, *lines = table(
        screen, titles, [_row(state, screen, entry) for entry in shown], _COLOURS, drop=titles[:-1]
    ).splitlines()
    marked = [f"{_mark(state, entry)}{line}" for entry, line in zip(shown, lines, strict=True)]
    return [f"  {heading}", *marked, *[""] * (rows - len(marked)), *below]


def _row(state: InboxState, screen: Screen, entry: Entry) -> tuple[str, ...]:
    """Return the row of an entry. A long name is cut, to leave room for the subject."""
    draft = ["draft"] if any(letter == entry["letter"] for letter, _ in state.drafts) else []
    draft += [UNPROVEN] if entry.get("unproven") else []
    marks = "".join(f"[{word}] " for word in (*draft, *presses(entry, screen.now)))
    subject = marks + (about(entry) or entry["text"][:_LONGEST])
    sender = cut(one_line(entry["from"]), max(screen.width // 4, _LEAST_NAME))
    # A task that was accepted is in the person's own hands, and looks so.
    has_own_word = entry["what"] == "sent" or (entry["what"] == "task" and entry["state"] != TaskState.PENDING)
    what = entry["state"] if has_own_word else entry["what"]
    return ago(entry["since"], screen.now), what, sender, subject


def _mark(state: InboxState, entry: Entry) -> str:
    chosen, unread = ">" * (entry["letter"] == state.chosen), "*" * (entry["read"] is False)
    return f"{chosen}{unread}".ljust(2)


def _beginning(state: InboxState, screen: Screen, size: terminal_size) -> list[str]:
    """Return the first words of the chosen entry, behind their bar.

    A notice takes the place of the last line, so that the list does not move.
    """
    text = "" if state.current is None else state.current["text"][:_LONGEST]
    most = 1 if size.lines < 2 * LOW else 2 if state.notice else 3
    pieces = begun(body_lines(text), size.columns, most)
    return [painted(screen, "─" * size.columns, "dim"), *pieces, *[""] * (most - len(pieces))]


def _shown(screen: Screen, line: str) -> str:
    """Return a line of a letter; its head is dim, its text is not."""
    return line if line.startswith(BAR) else painted(screen, line, "dim")


def _keys(screen: Screen, columns: int) -> list[str]:
    """Return the page of all keys."""
    lines: list[str] = []
    for heading, rows in (("WHAT TO DO", tuple(KEYS.items())), ("AROUND", _MOVES), ("WHILE YOU WRITE", _WRITING)):
        lines.append(painted(screen, heading, "bold"))
        lines += [cut(f"  {keys.ljust(13)}  {about}", columns) for keys, about in rows]
    return lines


# -- the foot: a notice, and either the keys or the text that is being written


def _foot(state: InboxState, size: terminal_size) -> tuple[list[tuple[str, str]], tuple[int, int] | None]:
    """Return the lines of the foot, each with its colour, and the place of the cursor while a text is written."""
    folded = wrapped(one_line(state.notice), size.columns)[: max(size.lines // 4, 1)] if state.notice else []
    notice = [(line, "yellow") for line in folded]
    if state.writing is None:
        return [*notice, (cut(_hints(state), size.columns), "dim")], None
    text, (row, column) = _text(state.writing, size)
    request = cut(_question(state, state.writing), size.columns)
    lines = [(request, "bold"), *((line, "") for line in text), (cut(_AT_THE_LINE, size.columns), "dim")]
    return [*notice, *lines], (len(notice) + 1 + row, column)


def _hints(state: InboxState) -> str:
    """Return the keys that can be pressed now."""
    if state.shows_keys:
        return "any key goes back"
    entry = state.current
    verbs = [f"{verb.key} {verb.name}" for verb in offered(entry)] if entry is not None else []
    verbs = ["only look"] if state.only_looks else verbs
    if state.opened is not None:
        back = [GONE] if entry is None else []
        return "  ".join([*back, *verbs, "q back", "? keys"])
    other = "s back" if state.shows_sent else "s sent" if state.only_looks else "w write  s sent"
    return "  ".join([*verbs, *(["Enter open"] if entry is not None else []), other, "? keys", "q leave"])


def _question(state: InboxState, writing: Writing) -> str:
    """Return what the text is for, and whose question it answers."""
    entry = writing.entry
    if entry["what"] == "new":
        return f"A new letter. {writing.verb.asks}"
    waits = any(one["letter"] == entry["letter"] for one in state.entries)
    subject = f" ({one_line(about(entry))})" if about(entry) else ""
    what = f"{writing.verb.name.capitalize()}: {entry['what']} from {entry['from']}{subject}. {writing.verb.asks}"
    return what if waits else f"{GONE} {what}"


def _text(writing: Writing, size: terminal_size) -> tuple[list[str], tuple[int, int]]:
    """Return the text that is being written, in as many lines as fit, and the place of the cursor."""
    columns, most = size.columns - 2, max(size.lines // 3, 1)
    before = broken(_plain(writing.line.text[: writing.line.at]), columns)
    if width(before[-1]) >= columns:
        before.append("")
    pieces = broken(_plain(writing.line.text), columns)
    pieces += [""] * (len(before) - len(pieces))
    top = max(0, min(len(before) - 1 - most // 2, len(pieces) - most))
    shown = pieces[top : top + most]
    marks = ["> " if top + at == 0 else "  " for at in range(len(shown))]
    place = len(before) - 1 - top
    return [f"{mark}{piece}" for mark, piece in zip(marks, shown, strict=True)], (place, width(before[-1]) + 2)


def _plain(text: str) -> str:
    """Return a text on one line, with a mark for each line end."""
    return one_line(text.replace("\n", "⏎"))
