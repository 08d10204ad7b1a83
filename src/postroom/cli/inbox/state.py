"""A text that is being written: letters come in, and go, at one place. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ...model.task import TaskState
from ..output import width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..escalation import Entry
    from .screen import Key


class Line(Struct, frozen=True):
    """A text, and the place in it."""

    text: str = ""
    at: int = 0


def line_of(text: str) -> Line:
    return Line(text, len(text))


def typed(line: Line, key: Key) -> Line:
    """The line after this key."""
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
    """Where the last letter begins, with all that is put onto it."""
    place = max(len(before) - 1, 0)
    while place > 0 and before[place] != "\n" and width(before[place]) == 0:
        place -= 1
    return place


def _word(before: str) -> int:
    """Where the last word begins."""
    words = before.rstrip()
    return len(words) - len(words.split()[-1]) if words else 0


def _on(after: str) -> int:
    """Where the first letter ends, with all that is put onto it."""
    place = min(1, len(after))
    while place < len(after) and after[place] != "\n" and width(after[place]) == 0:
        place += 1
    return place


# What can be done with each thing that waits, and by which key: one table, for keys, hints and help.


class Verb(Struct, frozen=True):
    """One thing to do."""

    key: str
    name: str  # of the deed, too
    asks: str = ""  # for words, in a line below; empty: it takes none
    optional: bool = False  # may the words be left out?


APPROVE = Verb("a", "approve", "Words, if you like:", True)
DECLINE = Verb("d", "decline", "Why?")
REPLY = Verb("r", "reply", "Your answer:")
ANSWER = Verb("r", "answer", "Your answer:")
ACCEPT = Verb("a", "accept", "Words, if you like:", True)
REJECT = Verb("d", "reject", "Why?")
COMPLETE = Verb("c", "complete", "The result, if there is one:", True)
FAIL = Verb("d", "give up", "Why?")
WRITE = Verb("r", "write", "Your letter:")
DONE = Verb("x", "done")

# What each key is for, whatever it is pressed at.
KEYS = {
    "a": "approve what is asked; accept a task",
    "d": "decline it, reject a task, give one up; you say why",
    "r": "answer in your own words; to a task: write to who gave it",
    "c": "a task is complete; your words are its result",
    "x": "done with a letter or news; an unread one asks once more",
    "e": "answer in $VISUAL or $EDITOR; of a task you took on: its result",
}

# What waits, and, of a task, where it stands.
OFFERED: dict[str, tuple[Verb, ...]] = {
    "escalation": (APPROVE, DECLINE, REPLY),
    "question": (ANSWER,),
    f"task {TaskState.PENDING}": (ACCEPT, REJECT, WRITE),
    f"task {TaskState.ACCEPTED}": (COMPLETE, REJECT, WRITE),
    f"task {TaskState.WORKING}": (COMPLETE, FAIL, WRITE),
    "letter": (REPLY, DONE),
    "news": (DONE,),
}


def offered(entry: Entry) -> tuple[Verb, ...]:
    """What can be done with this."""
    what = entry["what"]
    return OFFERED.get(f"task {entry['state']}" if what == "task" else what, ())


def in_own_words(entry: Entry) -> Verb | None:
    """What is written at length, if anything: that for which the editor is opened at once."""
    by_key = {verb.key: verb for verb in offered(entry)}
    return by_key.get("c") or by_key.get("r")


# Where the person is: what waits, what is chosen, what is being written. Keys go in, wishes come out. Pure.
#
# What is chosen is known by its letter, not by its place: mail that comes meanwhile moves nobody's hand. What is
# written belongs to what it answers, and stays until it was sent.

Draft = tuple[str, str]  # the letter that is answered, and the verb
GONE = "It no longer waits for you."


class Writing(Struct, frozen=True):
    """Words for a deed."""

    entry: dict[str, Any]
    verb: Verb
    line: Line = Line()
    retry: str = ""  # a key, when the same words failed for a time: nothing is sent twice

    @property
    def draft(self) -> Draft:
        return self.entry["letter"], self.verb.name


class Desk(Struct, frozen=True, kw_only=True):
    """All that is known of one sitting at the inbox."""

    me: str
    entries: tuple[dict[str, Any], ...] = ()
    chosen: str = ""  # by its letter
    opened: dict[str, Any] | None = None  # what is read, if anything
    scroll: int = 0  # lines of it that are above the screen
    writing: Writing | None = None
    drafts: Mapping[Draft, str] = {}  # what was written and not sent
    sure_of: str = ""  # the letter for which x was pressed once, and asked again
    shows_keys: bool = False
    notice: str = ""  # a word from the house

    @property
    def current(self) -> Entry | None:
        """What keys are about: what is read, else what is chosen; None when it does not wait any more."""
        letter = self.chosen if self.opened is None else self.opened["letter"]
        return next((entry for entry in self.entries if entry["letter"] == letter), None)

    @property
    def place(self) -> int:
        """Where the chosen one stands."""
        return next((place for place, one in enumerate(self.entries) if one["letter"] == self.chosen), 0)


class Open(Struct, frozen=True):
    """Show this whole."""

    entry: dict[str, Any]


class Do(Struct, frozen=True):
    """Do this with that."""

    entry: dict[str, Any]
    verb: Verb
    words: str = ""
    retry: str = ""


class Edit(Struct, frozen=True):
    """Go on writing this in the editor."""

    writing: Writing


class Leave(Struct, frozen=True):
    """Enough for now."""


Wish: TypeAlias = Open | Do | Edit | Leave  # what the person wants to happen outside of the desk


class Extent(NamedTuple):
    """How much fits: rows of the list or of a letter; and how many lines the letter has."""

    rows: int
    lines: int = 0


def arrived(desk: Desk, entries: Sequence[Entry]) -> Desk:
    """What waits now. What is chosen stays so; if it is gone, its neighbour is."""
    found = tuple(entries)
    if not any(entry["letter"] == desk.chosen for entry in found):
        near = found[min(desk.place, len(found) - 1)]["letter"] if found else ""
        desk = replace(desk, chosen=near, sure_of="")
    return replace(desk, entries=found, writing=_about_now(desk.writing, found))


def _about_now(writing: Writing | None, found: Sequence[Entry]) -> Writing | None:
    """What is written, about its entry as it stands now, where it waits and can still be done."""
    if writing is None:
        return None
    now = next((one for one in found if one["letter"] == writing.entry["letter"]), writing.entry)
    return replace(writing, entry=now) if writing.verb in offered(now) else writing


def pressed(desk: Desk, key: Key, extent: Extent) -> tuple[Desk, Wish | None]:
    """The desk after a key, and what is wished for."""
    desk = replace(desk, notice="")
    if desk.writing is not None:
        return _write(desk, desk.writing, key)
    if desk.shows_keys:
        return replace(desk, shows_keys=False), None
    if key.name == "?":
        return replace(desk, shows_keys=True), None
    if desk.current is not None and (wanted := _wanted(desk, desk.current, key)) is not None:
        return wanted
    desk = replace(desk, sure_of="")
    return _read(desk, key, extent) if desk.opened is not None else _choose(desk, key, extent)


def refused(desk: Desk, why: str, retry: str = "") -> Desk:
    """It was not done. What was written is still there."""
    writing = None if desk.writing is None else replace(desk.writing, retry=retry)
    return replace(desk, notice=why, writing=writing)


def done(desk: Desk, deed: Do, message: str) -> Desk:
    """It was done: what was written for it is sent, and one is back at the list. Of a letter that one is done with
    without an answer, all drafts go.
    """
    gone = [
        (letter, verb)
        for letter, verb in desk.drafts
        if letter == deed.entry["letter"] and (verb == deed.verb.name or deed.verb is DONE)
    ]
    drafts = {draft: text for draft, text in desk.drafts.items() if draft not in gone}
    return replace(desk, writing=None, opened=None, scroll=0, sure_of="", drafts=drafts, notice=message)


def begin(desk: Desk, entry: Entry, verb: Verb) -> Writing:
    """Words for this; or those that were written before."""
    return Writing(entry, verb, line_of(desk.drafts.get((entry["letter"], verb.name), "")))


def written(desk: Desk, text: str) -> Desk:
    """What is being written says this now."""
    if desk.writing is None:
        return desk
    return _keep(desk, replace(desk.writing, line=line_of(text), retry=""))


def _wanted(desk: Desk, entry: Entry, key: Key) -> tuple[Desk, Wish | None] | None:
    """What a key that means a deed brings about; None for another key."""
    if key.name == "e":
        verb = in_own_words(entry)
        if verb is None:
            return None
        writing = begin(desk, entry, verb)
        return replace(desk, writing=writing, sure_of=""), Edit(writing)
    verb = next((verb for verb in offered(entry) if verb.key == key.name), None)
    if verb is None:
        return None
    if verb.asks:
        return replace(desk, writing=begin(desk, entry, verb), sure_of=""), None
    if verb is DONE and desk.sure_of != entry["letter"] and (doubt := _doubt(desk, entry)):
        again = f"{doubt} {verb.key} again: done with it."
        return replace(desk, sure_of=entry["letter"], notice=again), None
    return desk, Do(entry, verb)


def _doubt(desk: Desk, entry: Entry) -> str:
    """Why one may not mean to be done with it; empty when nothing is lost by that."""
    if any(letter == entry["letter"] for letter, _ in desk.drafts):
        return "Your answer to it was not sent."
    return "" if entry["read"] or desk.opened is not None else "You have not opened it."


def _write(desk: Desk, writing: Writing, key: Key) -> tuple[Desk, Wish | None]:
    entry, verb, text = writing.entry, writing.verb, writing.line.text
    match key.name:
        case "esc":
            return replace(desk, writing=None, notice=_kept(desk, entry) if text else ""), None
        case "enter" if not text.strip() and not verb.optional:
            return replace(desk, notice="It needs words. Esc goes back."), None
        case "enter":
            return desk, Do(entry, verb, text.strip(), writing.retry)
        case "ctrl-e":
            return desk, Edit(writing)
    line = typed(writing.line, key)
    same = line.text == text
    return _keep(desk, replace(writing, line=line, retry=writing.retry if same else "")), None


def _kept(desk: Desk, entry: Entry) -> str:
    waits = any(one["letter"] == entry["letter"] for one in desk.entries)
    return "Kept: the same key shows it again." if waits else f"{GONE} What you wrote stays among your drafts."


def _keep(desk: Desk, writing: Writing) -> Desk:
    """What is written is a draft at once."""
    drafts = {**desk.drafts, writing.draft: writing.line.text}
    if not writing.line.text:
        del drafts[writing.draft]
    return replace(desk, writing=writing, drafts=drafts)


def _choose(desk: Desk, key: Key, extent: Extent) -> tuple[Desk, Wish | None]:
    """Keys at the list."""
    to = _moved(key, desk.place, extent.rows, len(desk.entries) - 1)
    if to is not None and desk.entries:
        return replace(desk, chosen=desk.entries[to]["letter"]), None
    if key.name in {"enter", "newline", "right", "o"} and desk.current is not None:
        return _open(desk, desk.current)
    return desk, Leave() if key.name == "q" else None


def _read(desk: Desk, key: Key, extent: Extent) -> tuple[Desk, Wish | None]:
    """Keys at a letter."""
    end = max(extent.lines - extent.rows, 0)
    to = _moved(key, desk.scroll, extent.rows, end)
    if to is not None:
        return replace(desk, scroll=to), None
    if key.name in {"n", "p"} and desk.entries:
        gone_from = desk.current is None  # then its neighbour is chosen already
        step = (1 if key.name == "n" else -1) * (not gone_from)
        return _open(desk, desk.entries[min(max(desk.place + step, 0), len(desk.entries) - 1)])
    if key.name in {"q", "esc", "left"}:
        return replace(desk, opened=None, scroll=0), None
    return desk, None


def _open(desk: Desk, entry: Entry) -> tuple[Desk, Wish | None]:
    return replace(desk, opened=entry, chosen=entry["letter"], scroll=0, sure_of=""), Open(entry)


def _moved(key: Key, at: int, page: int, last: int) -> int | None:
    """Where a key leads from here; None for one that moves nothing."""
    to = {
        "up": at - 1, "k": at - 1, "down": at + 1, "j": at + 1, "pgup": at - page, "pgdn": at + page,
        " ": at + page, "home": 0, "g": 0, "end": last, "G": last,
    }.get(key.name)  # fmt: skip
    return None if to is None else max(min(to, last), 0)
