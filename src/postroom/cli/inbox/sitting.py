"""A person sits at the inbox: the loop that joins screen, ear, keyboard and mailbox.

It sleeps until a key is pressed, a bell rings, or time itself brings something. An idle inbox writes nothing.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ... import service
from ...clock import SystemClock
from ...errors import PostroomError, UnknownAgent
from ...model.names import HUMAN, meant
from ...store.opening import place_of
from ..answers import Screen
from ..live import LiveScreen
from ..text import editor, run_editor
from ..waiting import questions_first, waiting_for
from . import desk as desks
from .deeds import do
from .desk import Desk, Do, Edit, Leave, Open
from .drafts import Drafts
from .keys import Keyboard
from .pictures import extent, frame
from .reading import lines_of, read

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from ...mailbox import Mailbox
    from ...model.message import Message
    from ...store.base import Watch
    from ..answers import Answer
    from ..context import Context
    from ..live import Frame
    from ..waiting import Texts
    from .keys import Key

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
    office = box.room._office  # noqa: SLF001 - the ear of the room
    with closing(office.store.watch([box.name])) as ear, KeyScreen() as screen:
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
            heard = self._screen.listen(self._pause(), self._ear.fileno())
            if heard.gone:
                return
            if self._ear.rung():
                self._look_at = min(self._look_at, self._looked + self._pace)
            keys = self._keyboard.feed(heard.keys) if heard.keys else []
            if not heard.keys and not heard.rung and self._keyboard.waits:
                keys = self._keyboard.flush()
            if not all(self._press(key) for key in keys):
                return

    def _pause(self) -> float:
        left = max(self._look_at - time.monotonic(), 0.001)
        left = min(left, DEAF) if self._ear.fileno() < 0 else left
        return min(left, HALF) if self._keyboard.waits else left

    def _look(self) -> None:
        """What waits now."""
        office = self._box.room._office  # noqa: SLF001 - when time brings something is no verb
        began = time.monotonic()
        try:
            found = waiting_for(self._box, opened=True, texts=self._texts)
            pause = min(service.waiting.seconds_to_sleep(office, [self._box.name]), LOOK)
        except PostroomError as failed:
            self._desk, pause = replace(self._desk, notice=_words(failed)), LOOK
        else:
            self._desk = desks.arrived(self._desk, questions_first(found))
        self._looked = time.monotonic()
        self._pace = max(PACE, REST * (self._looked - began))
        self._look_at = self._looked + max(pause, self._pace)

    def _press(self, key: Key) -> bool:
        """False when the person leaves."""
        size = self._screen.size()
        self._desk, wish = desks.pressed(self._desk, key, extent(self._desk, self._lines(size), size))
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
            self._desk = replace(desks.refused(self._desk, _words(failed)), opened=None)
        self._look()

    def _edit(self, wish: Edit) -> None:
        """In the person's own editor, which has the terminal meanwhile. It is not sent yet: they see it first."""
        draft = wish.writing.draft
        if not editor():
            self._desk = desks.refused(self._desk, "there is no editor: set VISUAL or EDITOR")
            return
        try:
            place = self._drafts.write(draft, wish.writing.line.text)
            try:
                with self._screen.lent():
                    run_editor(place)
            finally:  # however it ended, what it wrote is there
                self._desk = desks.written(self._desk, self._drafts.read(draft))
        except (PostroomError, OSError) as failed:
            self._desk = desks.refused(self._desk, _words(failed))
        else:
            self._desk = replace(self._desk, notice="Enter sends it, Esc keeps it.")
        self._keep()

    def _do(self, wish: Do) -> None:
        self._desk = replace(self._desk, notice="…")
        self._screen.draw(self._picture)
        try:
            told = do(self._box, wish)
        except PostroomError as refused:
            self._desk = desks.refused(self._desk, _words(refused), refused.key or "")
        else:
            self._desk = desks.done(self._desk, wish, told)
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
