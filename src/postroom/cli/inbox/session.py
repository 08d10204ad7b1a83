"""What was written and not sent, in files: it is there again after a crash, a closed window or a kill.

One folder for each mailbox of each room, below the user's state; one file for each letter that is answered.
"""

from __future__ import annotations

import os
import time
from contextlib import closing, suppress
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ...clock import SystemClock
from ...core import inbox
from ...environment import drafts_folder
from ...errors import Conflict, IllegalMove, PostroomError, UnknownAgent, UnknownMessage
from ...formats.plain import plain_message
from ...model.codec import blake2b
from ...model.message import Part
from ...model.names import HUMAN, meant
from ...model.task import ESCALATION
from ...store.address import place_of
from ..context import editor, run_editor
from ..escalation import questions_first, waiting_for
from ..output import BAR, Screen, barred, width, wrapped
from ..screen import LiveScreen
from ..views import thread
from . import state
from .screen import Keyboard, extent, frame
from .state import GONE, Desk, Do, Edit, Leave, Open

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ...mailbox import Mailbox
    from ...model.message import Message
    from ...store.protocol import Watch
    from ..context import Context
    from ..escalation import Entry, Texts
    from ..output import Answer
    from ..screen import Frame
    from .screen import Key
    from .state import Draft


ENDING = ".md"


class Drafts:
    """The drafts of one mailbox."""

    def __init__(self, room: str, mailbox: str) -> None:
        """`room`: where it lies."""
        whose = f"{Path(room).resolve()} {mailbox}".encode("utf-8", "surrogateescape")
        name = blake2b(whose, digest_size=8).hexdigest()
        self.folder = Path(drafts_folder()) / name
        self._kept: dict[Draft, str] = {}  # as the files have it

    def load(self) -> dict[Draft, str]:
        """All that is there."""
        self._kept = {}
        for file in sorted(self.folder.glob(f"*{ENDING}")) if self.folder.is_dir() else ():
            letter, _, verb = file.name.removesuffix(ENDING).rpartition(" ")
            draft = letter, verb.replace("_", " ")
            with suppress(OSError):  # one that cannot be read must not keep anybody from their mail
                self._kept[draft] = self.read(draft)
        self._kept = {draft: text for draft, text in self._kept.items() if text.strip()}
        return dict(self._kept)

    def read(self, draft: Draft) -> str:
        """What its file says; one line end at the very end belongs to an editor. Bytes that are no text stay."""
        with self.place(draft).open(encoding="utf-8", errors="surrogateescape") as file:
            return file.read().removesuffix("\n")

    def keep(self, drafts: Mapping[Draft, str]) -> None:
        """Let the files say this."""
        for draft in self._kept.keys() - drafts.keys():
            self.place(draft).unlink(missing_ok=True)
        for draft, text in drafts.items():
            if self._kept.get(draft) != text:
                self.write(draft, text)
        self._kept = dict(drafts)

    def place(self, draft: Draft) -> Path:
        """Where a draft is. Ids of letters are safe as names of files."""
        letter, verb = draft
        return self.folder / f"{letter} {verb.replace(' ', '_')}{ENDING}"

    def write(self, draft: Draft, text: str) -> Path:
        """All of it, or what was there before; for its owner alone."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = self.place(draft)
        fresh = place.with_suffix(".new")
        opened = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(opened, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        self._kept[draft] = text
        return fresh.replace(place)


# One thing that waits, whole: its letter, and what was said before it in the same thread.

MOST_BEFORE = 20  # letters
MOST_LETTERS = 200_000  # of the alphabet, of one thing that is shown
MOST_FACT = 3  # lines; a letter may have ten thousand recipients
FURTHER_IN = "    "


def read(box: Mailbox, entry: Entry) -> tuple[Message, list[Message]]:
    """Its letter, and those before it in its thread, the newest first. Stamps nothing: it is not shown yet."""
    letters = box.thread(entry["thread"])
    earlier = list(takewhile(lambda message: message.id != entry["letter"], letters))
    if len(earlier) == len(letters):
        raise UnknownMessage(f"the letter {entry['letter']} is gone", field="letter")
    return letters[len(earlier)], earlier[::-1][:MOST_BEFORE]


def lines_of(screen: Screen, letter: Message, earlier: Sequence[Message]) -> list[str]:
    """As lines of the screen's width."""
    text = thread(screen, {"letters": [_plain(letter)]})
    if earlier:
        text += "\n".join(["", "Before it:", "", thread(screen, {"letters": list(map(_plain, earlier))})])
    shown, left = text[:MOST_LETTERS].split("\n"), len(text) - MOST_LETTERS
    if left > 0:
        shown += ["", f"… {left} characters more; postroom read {letter.id} shows them all"]
    return [piece for line in shown for piece in _folded(line, screen.width)]


def _plain(letter: Message) -> dict[str, Any]:
    """As a person reads it: of what an escalation encloses for programs, the reason."""
    return plain_message(replace(letter, parts=tuple(map(_in_words, letter.parts))))


def _in_words(part: Part) -> Part:
    about = part.get("data") if part.get("schema") == ESCALATION else None
    return (
        Part("text", text=f"Reason: {about['reason']}") if isinstance(about, dict) and "reason" in about else part
    )


def _folded(line: str, columns: int) -> list[str]:
    """To this width. Behind a bar, the bar goes on. What the house says of a letter is kept short, and goes on
    further in: a long subject could else begin a line as the house does.
    """
    if line.startswith(BAR):
        return barred(line, columns)
    if width(line) <= columns:
        return [line]
    first, *more = wrapped(line, columns - len(FURTHER_IN))
    return [first, *(f"{FURTHER_IN}{piece}" for piece in more)][:MOST_FACT]


# A wish, done at the mailbox. Each is one commit of a verb that the other commands have, too.

if TYPE_CHECKING:
    Deed = Callable[[Mailbox, Entry, str, dict[str, Any]], object]


def do(box: Mailbox, wish: Do) -> str:
    """Do it, and say what was done; or a refusal, and nothing was."""
    _check_waiting(box, wish.entry)
    deed, result = _DEEDS[wish.verb.name]
    try:
        deed(box, wish.entry, wish.words, {"key": wish.retry} if wish.retry else {})
    except IllegalMove:  # somebody was quicker, between the look and this
        _check_waiting(box, wish.entry)
        raise
    return result.format(wish.entry["from"])


def _check_waiting(box: Mailbox, entry: Entry) -> None:
    """Whoever was quicker, here or elsewhere, decided it: a second answer would only confuse."""
    now = {one["letter"]: one for one in waiting_for(box, opened=True)}.get(entry["letter"])
    if now is None:
        raise Conflict(f"{GONE} Nothing was done.")
    if now["state"] != entry["state"]:
        raise Conflict(f"The task is {now['state']} by now. Nothing was done.")


def _answer(box: Mailbox, entry: Entry, words: str, fields: dict[str, Any]) -> None:
    """Done with the letter, and answered, by whoever is first: once it is seen open, the commit sees to that."""
    letter = box.read(entry["letter"])
    _check_waiting(box, entry)
    letter.ack_and_reply(words, **fields)


def _say(word: str) -> Deed:
    """An answer that begins with this word."""
    return lambda box, entry, words, fields: _answer(box, entry, f"{word}: {words}" if words else word, fields)


_DEEDS: dict[str, tuple[Deed, str]] = {
    state.APPROVE.name: (_say("approved"), "Approved; {} is told."),
    state.DECLINE.name: (_say("declined"), "Declined; {} is told."),
    state.REPLY.name: (_answer, "Answered {}."),
    state.ANSWER.name: (
        lambda box, entry, words, fields: box.task(entry["id"]).answer(words, **fields),
        "Answered {}.",
    ),
    state.ACCEPT.name: (
        lambda box, entry, words, fields: box.task(entry["id"]).accept(words or None, **fields),
        "Accepted; {} is told. It waits here until it is complete.",
    ),
    state.REJECT.name: (
        lambda box, entry, words, fields: box.task(entry["id"]).reject(words, **fields),
        "Rejected; {} is told why.",
    ),
    state.COMPLETE.name: (
        lambda box, entry, words, fields: box.task(entry["id"]).complete(words or None, **fields),
        "Complete; {} has the result.",
    ),
    state.FAIL.name: (
        lambda box, entry, words, fields: box.task(entry["id"]).fail(words, **fields),
        "Given up; {} is told why.",
    ),
    state.WRITE.name: (
        lambda box, entry, words, fields: box.reply(entry["letter"], words, **fields),
        "Written to {}.",
    ),
    state.DONE.name: (lambda box, entry, _words, _fields: box.read(entry["letter"]).ack(), "Done with it."),
}


# A person sits at the inbox: the loop that joins screen, ear, keyboard and mailbox.
#
# It sleeps until a key is pressed, a bell rings, or time itself brings something. An idle inbox writes nothing.

PERSON = "person"  # the program on a person's card
HOST, WHERE = "inbox", "terminal"  # what is kept of a letter that was shown
MOST_TASKS = 1000  # a person takes on what they like
LOOK = 5.0  # seconds between two looks, at most: what others did to our mail rings no bell
PACE = 0.25  # seconds between two looks, at least, however often it rings
REST = 4  # times as long as a look took; then keys are heard at once, however much waits
DEAF = 0.1  # seconds between two questions to an ear that cannot be slept on
HALF = 0.05  # seconds for the second half of a key


class KeyScreen(LiveScreen):
    """Lines that are too long end at the margin, whatever a terminal thinks of their width; what is pasted is said
    to be.
    """

    enter = LiveScreen.enter + "\033[?7l\033[?2004h"
    leave = "\033[?2004l\033[?7h" + LiveScreen.leave


def sit(context: Context) -> Iterator[Answer]:
    """Until the person leaves. Nothing is left to say then."""
    context.check_named_room()
    context.looks = False  # who waits for mail needs a room where it can come
    box = context.mailbox
    introduce(box)
    core = box.room._core
    with closing(core.store.watch([box.name])) as ear, KeyScreen() as screen:
        Sitting(context, box, screen, ear).run()
    yield from ()


def introduce(box: Mailbox) -> None:
    """The person's card, when there is none yet: then they are listed, and known. They come and go, and never
    expire; whoever acts for an agent leaves its card alone.
    """
    if box.name != meant(HUMAN, box.room.settings.human):
        return
    try:
        box.room.agent(box.name)
    except UnknownAgent:
        box.register(program=PERSON, max_concurrent_tasks=MOST_TASKS)
        box.leave(dormant=True)


class Sitting:
    """One person at one mailbox."""

    def __init__(self, context: Context, box: Mailbox, screen: LiveScreen, ear: Watch) -> None:
        self._context, self._box, self._screen, self._ear = context, box, screen, ear
        self._keyboard = Keyboard()
        self._drafts = Drafts(place_of(context.settings.store) or "", box.name)
        self._texts: Texts = {}
        self._looked = self._look_at = 0.0
        self._pace = PACE
        self._letter: tuple[Message, Sequence[Message]] | None = None
        self._page: tuple[int, list[str]] = (0, [])  # the letter, folded to so many columns
        self._desk = Desk(me=box.name, drafts=self._drafts.load())

    def run(self) -> None:
        while True:
            if time.monotonic() >= self._look_at:
                self._look()
            self._screen.draw(self._picture)
            received = self._screen.listen(self._pause(), self._ear.fileno())
            if received.gone:
                return
            if self._ear.rung():
                self._look_at = min(self._look_at, self._looked + self._pace)
            keys = self._keyboard.feed(received.keys) if received.keys else []
            if not received.keys and not received.rung and self._keyboard.waits:
                keys = self._keyboard.flush()
            if not all(self._press(key) for key in keys):
                return

    def _pause(self) -> float:
        left = max(self._look_at - time.monotonic(), 0.001)
        left = min(left, DEAF) if self._ear.fileno() < 0 else left
        return min(left, HALF) if self._keyboard.waits else left

    def _look(self) -> None:
        """What waits now."""
        core = self._box.room._core
        began = time.monotonic()
        try:
            found = waiting_for(self._box, opened=True, texts=self._texts)
            pause = min(inbox.seconds_to_sleep(core, [self._box.name]), LOOK)
        except PostroomError as failed:
            self._desk, pause = replace(self._desk, notice=_words(failed)), LOOK
        else:
            self._desk = state.arrived(self._desk, questions_first(found))
        self._looked = time.monotonic()
        self._pace = max(PACE, REST * (self._looked - began))
        self._look_at = self._looked + max(pause, self._pace)

    def _press(self, key: Key) -> bool:
        """False when the person leaves."""
        size = self._screen.size()
        self._desk, wish = state.pressed(self._desk, key, extent(self._desk, self._lines(size), size))
        self._keep()
        match wish:
            case Open():
                self._open(wish)
            case Edit():
                self._edit(wish)
            case Do():
                self._do(wish)
        return not isinstance(wish, Leave)

    def _keep(self) -> None:
        """What is written is in its file before anything else happens."""
        try:
            self._drafts.keep(self._desk.drafts)
        except OSError as broken:
            self._desk = replace(self._desk, notice=f"what you write cannot be kept in a file: {broken.strerror}")

    # -- what is wished for

    def _open(self, wish: Open) -> None:
        """Show it; then it was shown."""
        try:
            self._letter = read(self._box, wish.entry)
            self._page = (0, [])
            self._screen.draw(self._picture)
            self._box.mark_shown(wish.entry["letter"], HOST, WHERE)
        except PostroomError as failed:
            self._desk = replace(state.refused(self._desk, _words(failed)), opened=None)
        self._look()

    def _edit(self, wish: Edit) -> None:
        """In the person's own editor, which has the terminal meanwhile. It is not sent yet: they see it first."""
        draft = wish.writing.draft
        if not editor():
            self._desk = state.refused(self._desk, "there is no editor: set VISUAL or EDITOR")
            return
        try:
            place = self._drafts.write(draft, wish.writing.line.text)
            try:
                with self._screen.lent():
                    run_editor(place)
            finally:  # however it ended, what it wrote is there
                self._desk = state.written(self._desk, self._drafts.read(draft))
        except (PostroomError, OSError) as failed:
            self._desk = state.refused(self._desk, _words(failed))
        else:
            self._desk = replace(self._desk, notice="Enter sends it, Esc keeps it.")
        self._keep()

    def _do(self, wish: Do) -> None:
        self._desk = replace(self._desk, notice="…")
        self._screen.draw(self._picture)
        try:
            result = do(self._box, wish)
        except PostroomError as refused:
            self._desk = state.refused(self._desk, _words(refused), refused.key or "")
        else:
            self._desk = state.done(self._desk, wish, result)
            self._keep()
        self._look()

    # -- what is shown

    def _picture(self, size: os.terminal_size) -> Frame:
        screen = self._context.screen
        screen.now = SystemClock().now().wall
        return frame(self._desk, screen, self._lines(size), size)

    def _lines(self, size: os.terminal_size) -> list[str]:
        """The letter that is read, folded anew when the terminal changes its width."""
        if self._desk.opened is None or self._letter is None:
            return []
        if self._page[0] != size.columns:
            plain = Screen(json=False, tables=True, colour=False, width=size.columns, now=SystemClock().now().wall)
            self._page = size.columns, lines_of(plain, *self._letter)
        return self._page[1]


def _words(failed: PostroomError | OSError) -> str:
    """Why not, in one line."""
    if isinstance(failed, OSError):
        return failed.strerror or str(failed)
    where = f"{failed.field}: " if failed.field else ""
    return f"{where}{failed.message}" + (f" ({failed.hint})" if failed.hint else "")
