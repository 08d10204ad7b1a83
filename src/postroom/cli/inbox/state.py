"""The state of the terminal inbox: what waits, what is chosen, what is being written.

`pressed` takes a state and a key and returns the next state, and the effect that the key asks for. All of it is
pure. The chosen entry is known by its letter, not by its place, so that new mail does not move the choice. A text
belongs to the entry that it answers, and stays a draft until it is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ...core import actions
from ...core.actions import COMPOSE, DONE, GONE, KEYS, Action
from ..output import width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..escalation import Entry
    from .screen import Key


# -- the line that is being edited


class Line(Struct, frozen=True):
    """A text, and the place of the cursor in it."""

    text: str = ""
    at: int = 0


def line_of(text: str) -> Line:
    return Line(text, len(text))


def typed(line: Line, key: Key) -> Line:
    """Return the line after a key."""
    before, after = line.text[: line.at], line.text[line.at :]
    if key.text:
        return Line(before + key.text + after, line.at + len(key.text))
    back, on, word = _back(before), _on(after), _word(before)
    after_key = {
        "backspace": Line(before[:back] + after, back),
        "delete": Line(before + after[on:], line.at),
        "ctrl-u": Line(after, 0),
        "ctrl-w": Line(before[:word] + after, word),
        "left": Line(line.text, back),
        "right": Line(line.text, line.at + on),
        "home": Line(line.text, 0),
        "end": line_of(line.text),
    }
    return after_key.get(key.name, line)


def _back(before: str) -> int:
    """Return where the last character begins, with its combining marks."""
    place = max(len(before) - 1, 0)
    while place > 0 and before[place] != "\n" and width(before[place]) == 0:
        place -= 1
    return place


def _word(before: str) -> int:
    """Return where the last word begins."""
    words = before.rstrip()
    return len(words) - len(words.split()[-1]) if words else 0


def _on(after: str) -> int:
    """Return where the first character ends, with its combining marks."""
    place = min(1, len(after))
    while place < len(after) and after[place] != "\n" and width(after[place]) == 0:
        place += 1
    return place


# -- what can be done with each entry

NEW = {"what": "new", "letter": "new-letter", "from": "", "subject": "", "read": None, "state": None, "text": ""}


def offered(entry: Entry) -> tuple[Action, ...]:
    """Return the actions on an entry."""
    return actions.offered(entry["what"], entry["state"])


def in_own_words(entry: Entry) -> Action | None:
    """Return the verb for which `e` opens the editor, if there is one."""
    by_key = {verb.key: verb for verb in offered(entry)}
    return by_key.get("c") or by_key.get("r")


# -- the state

Draft = tuple[str, str]  # the id of the letter that is answered, and the name of the verb


class Writing(Struct, frozen=True):
    """A text that is being written for a verb."""

    entry: dict[str, Any]
    verb: Action
    line: Line = Line()
    retry: str = ""  # the key of a letter that failed temporarily: nothing is sent twice

    @property
    def draft(self) -> Draft:
        return self.entry["letter"], self.verb.name


ASKS_AGAIN = "Leave with q; postroom inbox asks for the key again."


class InboxState(Struct, frozen=True, kw_only=True):
    """Everything that the terminal inbox knows."""

    me: str
    entries: tuple[dict[str, Any], ...] = ()
    chosen: str = ""  # the id of its letter
    opened: dict[str, Any] | None = None  # the entry that is read
    scroll: int = 0  # lines of its letter above the screen
    writing: Writing | None = None
    drafts: Mapping[Draft, str] = {}  # texts that are not sent yet
    sure_of: str = ""  # the letter for which x was pressed once, and a second x confirms
    shows_keys: bool = False
    shows_sent: bool = False  # the entries are letters that were sent
    only_looks: bool = False  # the person's key is not open: nothing can be answered
    notice: str = ""  # a message of the program

    @property
    def current(self) -> Entry | None:
        """The entry that is read, else the chosen one; None where it no longer waits."""
        letter = self.chosen if self.opened is None else self.opened["letter"]
        return next((entry for entry in self.entries if entry["letter"] == letter), None)

    @property
    def place(self) -> int:
        """The place of the chosen entry."""
        return next((place for place, one in enumerate(self.entries) if one["letter"] == self.chosen), 0)


class Open(Struct, frozen=True):
    """Show an entry whole."""

    entry: dict[str, Any]


class Do(Struct, frozen=True):
    """Carry out a verb on an entry."""

    entry: dict[str, Any]
    verb: Action
    words: str = ""
    retry: str = ""


class Edit(Struct, frozen=True):
    """Open the editor on a text."""

    writing: Writing


class Leave(Struct, frozen=True):
    """Leave the inbox."""


class Refresh(Struct, frozen=True):
    """Read the entries anew: the state shows others."""


Effect: TypeAlias = Open | Do | Edit | Leave | Refresh  # what a key asks to be done outside of the state


class Extent(NamedTuple):
    """The number of rows of a list or letter that fit, and the number of lines of the letter."""

    rows: int
    lines: int = 0


def arrived(state: InboxState, entries: Sequence[Entry]) -> InboxState:
    """Return the state with the entries that wait now. The choice stays; a vanished one moves to its neighbour."""
    found = tuple(entries)
    if not any(entry["letter"] == state.chosen for entry in found):
        near = found[min(state.place, len(found) - 1)]["letter"] if found else ""
        state = replace(state, chosen=near, sure_of="")
    return replace(state, entries=found, writing=_about_now(state.writing, found))


def _about_now(writing: Writing | None, found: Sequence[Entry]) -> Writing | None:
    """Return a text with its entry as it stands now, where the verb still applies."""
    if writing is None:
        return None
    now = next((one for one in found if one["letter"] == writing.entry["letter"]), writing.entry)
    return replace(writing, entry=now) if writing.verb in offered(now) else writing


def pressed(state: InboxState, key: Key, extent: Extent) -> tuple[InboxState, Effect | None]:
    """Return the state after a key, and the effect that it asks for."""
    state = replace(state, notice="")
    if state.writing is not None:
        return _write(state, state.writing, key)
    if state.shows_keys:
        return replace(state, shows_keys=False), None
    if key.name == "?":
        return replace(state, shows_keys=True), None
    if state.only_looks and key.name in KEYS:
        return replace(state, notice=f"You can only look here. {ASKS_AGAIN}"), None
    if state.current is not None and (wanted := _wanted(state, state.current, key)) is not None:
        return wanted
    state = replace(state, sure_of="")
    return _read(state, key, extent) if state.opened is not None else _choose(state, key, extent)


def refused(state: InboxState, why: str, retry: str = "") -> InboxState:
    """Return the state after a refused effect. The text is still there."""
    writing = None if state.writing is None else replace(state.writing, retry=retry)
    return replace(state, notice=why, writing=writing)


def done(state: InboxState, action: Do, message: str) -> InboxState:
    """Return the state after a verb was carried out: back at the list, without its draft.

    Where a letter is done without an answer, all its drafts go.
    """
    gone = [
        (letter, verb)
        for letter, verb in state.drafts
        if letter == action.entry["letter"] and (verb == action.verb.name or action.verb is DONE)
    ]
    drafts = {draft: text for draft, text in state.drafts.items() if draft not in gone}
    return replace(state, writing=None, opened=None, scroll=0, sure_of="", drafts=drafts, notice=message)


def begin(state: InboxState, entry: Entry, verb: Action) -> Writing:
    """Begin a text for a verb, or go on with its draft."""
    return Writing(entry, verb, line_of(state.drafts.get((entry["letter"], verb.name), "")))


def written(state: InboxState, text: str) -> InboxState:
    """Replace the text that is being written."""
    if state.writing is None:
        return state
    return _keep(state, replace(state.writing, line=line_of(text), retry=""))


def _wanted(state: InboxState, entry: Entry, key: Key) -> tuple[InboxState, Effect | None] | None:
    """Return the next state and effect where a key means a verb; None for another key."""
    if key.name == "e":
        verb = in_own_words(entry)
        if verb is None:
            return None
        writing = begin(state, entry, verb)
        return replace(state, writing=writing, sure_of=""), Edit(writing)
    verb = next((verb for verb in offered(entry) if verb.key == key.name), None)
    if verb is None:
        return None
    if verb.asks:
        return replace(state, writing=begin(state, entry, verb), sure_of=""), None
    if verb is DONE and state.sure_of != entry["letter"] and (doubt := _doubt(state, entry)):
        again = f"{doubt} {verb.key} again: done with it."
        return replace(state, sure_of=entry["letter"], notice=again), None
    return state, Do(entry, verb)


def _doubt(state: InboxState, entry: Entry) -> str:
    """Return why `x` asks for confirmation; empty where nothing would be lost."""
    if any(letter == entry["letter"] for letter, _ in state.drafts):
        return "Your answer to it was not sent."
    return "" if entry["read"] or state.opened is not None else "You have not opened it."


def _write(state: InboxState, writing: Writing, key: Key) -> tuple[InboxState, Effect | None]:
    entry, verb, text = writing.entry, writing.verb, writing.line.text
    match key.name:
        case "esc":
            return replace(state, writing=None, notice=_kept(state, entry) if text else ""), None
        case "enter" if not text.strip() and not verb.optional:
            return replace(state, notice="It needs words. Esc goes back."), None
        case "enter":
            return state, Do(entry, verb, text.strip(), writing.retry)
        case "ctrl-e":
            return state, Edit(writing)
    line = typed(writing.line, key)
    same = line.text == text
    return _keep(state, replace(writing, line=line, retry=writing.retry if same else "")), None


def _kept(state: InboxState, entry: Entry) -> str:
    waits = entry["what"] == "new" or any(one["letter"] == entry["letter"] for one in state.entries)
    return "Kept: the same key shows it again." if waits else f"{GONE} What you wrote stays among your drafts."


def _keep(state: InboxState, writing: Writing) -> InboxState:
    """Record the text that is being written as a draft."""
    drafts = {**state.drafts, writing.draft: writing.line.text}
    if not writing.line.text:
        del drafts[writing.draft]
    return replace(state, writing=writing, drafts=drafts)


def _choose(state: InboxState, key: Key, extent: Extent) -> tuple[InboxState, Effect | None]:
    """Handle a key at the list."""
    to = _moved(key, state.place, extent.rows, len(state.entries) - 1)
    if to is not None and state.entries:
        return replace(state, chosen=state.entries[to]["letter"]), None
    if key.name in {"enter", "newline", "right", "o"} and state.current is not None:
        return _open(state, state.current)
    if key.name == COMPOSE.key:
        return replace(state, writing=begin(state, NEW, COMPOSE)), None
    if key.name == "s":
        return replace(state, shows_sent=not state.shows_sent, entries=(), chosen="", sure_of=""), Refresh()
    return state, Leave() if key.name == "q" else None


def _read(state: InboxState, key: Key, extent: Extent) -> tuple[InboxState, Effect | None]:
    """Handle a key at an opened letter."""
    end = max(extent.lines - extent.rows, 0)
    to = _moved(key, state.scroll, extent.rows, end)
    if to is not None:
        return replace(state, scroll=to), None
    if key.name in {"n", "p"} and state.entries:
        gone_from = state.current is None  # then the neighbour is chosen already
        step = (1 if key.name == "n" else -1) * (not gone_from)
        return _open(state, state.entries[min(max(state.place + step, 0), len(state.entries) - 1)])
    if key.name in {"q", "esc", "left"}:
        return replace(state, opened=None, scroll=0), None
    return state, None


def _open(state: InboxState, entry: Entry) -> tuple[InboxState, Effect | None]:
    return replace(state, opened=entry, chosen=entry["letter"], scroll=0, sure_of=""), Open(entry)


def _moved(key: Key, at: int, page: int, last: int) -> int | None:
    """Return the place to which a key moves; None where it moves nothing."""
    to = {
        "up": at - 1, "k": at - 1, "down": at + 1, "j": at + 1, "pgup": at - page, "pgdn": at + page,
        " ": at + page, "home": 0, "g": 0, "end": last, "G": last,
    }.get(key.name)  # fmt: skip
    return None if to is None else max(min(to, last), 0)
