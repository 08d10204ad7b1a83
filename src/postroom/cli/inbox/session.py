"""The terminal inbox at work: the loop that joins screen, keyboard and mailbox.

Texts that are not sent yet are kept in files, so that they survive a crash, a closed window or a kill: one folder
for each mailbox of each room, below the user's state folder; one file for each letter and verb. Each effect is one
commit of a verb that other commands have, too. An idle inbox sleeps, and writes nothing.
"""

from __future__ import annotations

import time
from contextlib import closing, suppress
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ... import own_file
from ...clock import SystemClock
from ...core.actions import COMPOSE, SEEN, SENT, TAKEN_BACK, Act
from ...core.deliveries import taken_back
from ...core.proof import is_person, is_unproven
from ...core.verb import perform, seconds_to_sleep
from ...environment import state_folder
from ...errors import PostroomError, UnknownAgent, UnknownMessage
from ...formats.plain import plain
from ...model.codec import blake2b
from ...model.delivery import UNSENT, State
from ...model.message import Part
from ...model.names import HUMAN, meant
from ...model.task import ESCALATION, TASK_UPDATE
from ...store.address import local_place
from ..answer import Screen
from ..output import BAR, barred, width, wrapped
from ..screen import LiveScreen
from ..text import editor, run_editor
from ..views import thread
from . import state
from .screen import Keyboard, extent, frame
from .state import ASKS_AGAIN, Do, Edit, InboxState, Leave, Open, Refresh

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from ...mailbox import Mailbox
    from ...model.message import Message
    from ...model.report import Stop
    from ...store.protocol import Watch
    from ..answer import Answer
    from ..context import Context
    from ..escalation import Entry
    from ..screen import Frame
    from .screen import Key
    from .state import Draft


# -- drafts

ENDING = ".md"


class Drafts:
    """The drafts of one mailbox."""

    def __init__(self, room: str, mailbox: str) -> None:
        whose = f"{Path(room).resolve()} {mailbox}".encode("utf-8", "surrogateescape")
        name = blake2b(whose, digest_size=8).hexdigest()
        self.folder = Path(state_folder("drafts")) / name
        self._kept: dict[Draft, str] = {}  # the content of the files

    def load(self) -> dict[Draft, str]:
        """Return all drafts."""
        self._kept = {}
        for file in sorted(self.folder.glob(f"*{ENDING}")) if self.folder.is_dir() else ():
            letter, _, verb = file.name.removesuffix(ENDING).rpartition(" ")
            draft = letter, verb.replace("_", " ")
            with suppress(OSError):  # an unreadable file must not keep the inbox from opening
                self._kept[draft] = self.read(draft)
        self._kept = {draft: text for draft, text in self._kept.items() if text.strip()}
        return dict(self._kept)

    def read(self, draft: Draft) -> str:
        """Return the text of a draft, without the last line end, which an editor adds. Other bytes are kept."""
        with self.place(draft).open(encoding="utf-8", errors="surrogateescape") as file:
            return file.read().removesuffix("\n")

    def keep(self, drafts: Mapping[Draft, str]) -> None:
        """Write changed drafts, and remove the files of others."""
        for draft in self._kept.keys() - drafts.keys():
            self.place(draft).unlink(missing_ok=True)
        for draft, text in drafts.items():
            if self._kept.get(draft) != text:
                self.write(draft, text)
        self._kept = dict(drafts)

    def place(self, draft: Draft) -> Path:
        """Return the file of a draft. Ids of letters are safe as names of files."""
        letter, verb = draft
        return self.folder / f"{letter} {verb.replace(' ', '_')}{ENDING}"

    def write(self, draft: Draft, text: str) -> Path:
        """Write a draft atomically, for its owner alone."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = self.place(draft)
        own_file.write(str(place), None, text, 0o600)
        self._kept[draft] = text
        return place


# -- one entry whole: its letter, and the earlier letters of its thread

MOST_BEFORE = 20  # earlier letters
MOST_SENT = 20  # letters that were sent
MOST_CHARACTERS = 200_000  # of one entry that is shown
MOST_FACT = 3  # lines; a letter may have ten thousand recipients
FURTHER_IN = "    "


def read(box: Mailbox, entry: Entry) -> tuple[Message, list[Message], set[str]]:
    """Return the letter of an entry, the earlier ones of its thread, newest first, and the ids of those that were
    taken back; mark nothing as read.
    """
    letters = box.thread(entry["thread"])
    earlier = list(takewhile(lambda message: message.id != entry["letter"], letters))
    if len(earlier) == len(letters):
        raise UnknownMessage(f"the letter {entry['letter']} is gone", field="letter")
    letter, shown = letters[len(earlier)], earlier[::-1][:MOST_BEFORE]
    return letter, shown, taken_back(box.room.core, [one.id for one in (letter, *shown)])


def lines_of(screen: Screen, letter: Message, earlier: Sequence[Message], gone: Collection[str]) -> list[str]:
    """Return letters as lines of the screen's width."""
    text, *before = (
        (f"[{TAKEN_BACK}]\n" if one.id in gone else "") + thread(screen, {"letters": [_plain(one)]})
        for one in (letter, *earlier)
    )
    text += "\n".join(["", "Before it:", "", *before]) if before else ""
    shown, left = text[:MOST_CHARACTERS].split("\n"), len(text) - MOST_CHARACTERS
    if left > 0:
        shown += ["", f"… {left} characters more; postroom read {letter.id} shows them all"]
    return [piece for line in shown for piece in _folded(line, screen.width)]


def _plain(letter: Message) -> dict[str, Any]:
    """Return a letter as a person reads it: of the data that an escalation encloses, only the reason."""
    shown: dict[str, Any] = plain(replace(letter, parts=tuple(map(_in_words, letter.parts))), times=True)
    return shown


def _in_words(part: Part) -> Part:
    about = part.get("data") if part.get("schema") == ESCALATION else None
    return (
        Part("text", text=f"Reason: {about['reason']}") if isinstance(about, dict) and "reason" in about else part
    )


def _folded(line: str, columns: int) -> list[str]:
    """Fold a line to this width. A line of the body keeps its bar.

    A line of the head is kept short and continues indented: a long subject could else forge a line of the head.
    """
    if line.startswith(BAR):
        return barred(line, columns)
    if width(line) <= columns:
        return [line]
    first, *more = wrapped(line, columns - len(FURTHER_IN))
    return [first, *(f"{FURTHER_IN}{piece}" for piece in more)][:MOST_FACT]


# -- effects at the mailbox


def do(box: Mailbox, effect: Do) -> str:
    """Carry out an action and return what was done; raise where nothing was done."""
    entry, is_new = effect.entry, effect.verb is COMPOSE
    request = Act(
        agent_id=box.name,
        action=effect.verb.name,
        letter="" if is_new else entry["letter"],
        words=effect.words,
        state=entry["state"],
        key=effect.retry or None,
    )
    return perform(box.room.core, box.room.principal, request).done


def sent(box: Mailbox) -> list[Entry]:
    """Return the letters that were sent, as entries with what became of them, the newest first."""
    return [
        plain(letter, times=True)
        | {
            "what": "sent",
            "state": _step(letter) or _outcome(box.trace(letter.id).stops),
            "letter": letter.id,
            "since": letter.created_at,
            "from": ", ".join(recipient.address for recipient in letter.recipients),
            "due_at": None,
            "read": None,
            "unproven": is_unproven(box.room.core, letter),
        }
        for letter in box.sent(MOST_SENT)
    ]


def _step(letter: Message) -> str:
    """Return the state to which a letter moved a task, which cannot be taken back; empty if it moved none."""
    return letter.task.state if letter.kind == TASK_UPDATE and letter.task is not None else ""


def _outcome(stops: Sequence[Stop]) -> str:
    """Return what became of a letter; as long as it is "sent" or "seen", it can be taken back."""
    if all(stop.reason == UNSENT for stop in stops):
        return TAKEN_BACK
    if all(stop.state in {State.QUEUED, State.UNREAD} and not stop.attempts for stop in stops):
        return SEEN if any(stop.read_at for stop in stops) else SENT
    return "done" if all(stop.state is State.DONE for stop in stops) else "in work"


# -- the loop

PERSON = "person"  # the program on a person's card
HOST, WHERE = "inbox", "terminal"  # recorded with a letter that was shown
MOST_TASKS = 1000  # on the card: a person has no limit
LOOK = 5.0  # seconds between two looks, at most: changes by others to this mailbox notify nobody
PACE = 0.25  # seconds between two looks, at least, however many notifications come
REST = 4  # the pause is this many times as long as a look took, so that keys are handled at once
POLL = 0.1  # seconds between two looks at a watch that has no descriptor
HALF = 0.05  # seconds to wait for the second half of a key


class KeyScreen(LiveScreen):
    """A screen without line wrapping, and with bracketed paste: pasted text is marked as such."""

    enter = LiveScreen.enter + "\033[?7l\033[?2004h"
    leave = "\033[?2004l\033[?7h" + LiveScreen.leave


def run_terminal(context: Context) -> Iterator[Answer]:
    """Run the terminal inbox until the person leaves; print nothing afterwards."""
    context.check_named_room()
    context.looks = False  # mail can arrive only in a room that exists
    box = context.mailbox
    refusal = sign_in(box)
    context.asks_passphrase = False  # the prompt would stand in the drawn screen, and the passphrase in a draft
    core = box.room.core
    with closing(core.store.watch([box.name])) as watch, KeyScreen() as screen:
        InboxSession(context, box, screen, watch, refusal).run()
    yield from ()


NO_KEY = "No key here: you can write, but not approve. Run `postroom people add` once in a terminal."


def sign_in(box: Mailbox) -> str:
    """Take the person's key before the screen is drawn, and register the person where they have no card yet.

    The card is dormant, so that it never expires. Return why nothing can be answered here; empty where it can.
    """
    signer = box.principal.signer
    if signer is None:
        return NO_KEY if is_person(box.room.core, box.name) else ""
    try:
        signer.key_for(box.room.core, box.name)  # its passphrase is asked for now
        if box.name == meant(HUMAN, box.room.settings.human):
            box.room.agent(box.name)
    except UnknownAgent:
        box.register(program=PERSON, max_concurrent_tasks=MOST_TASKS)
        box.leave(dormant=True)
    except PostroomError as refused:
        return f"You can look here, and answer nothing: {_words(refused)}"
    return ""


class InboxSession:
    """One person at one mailbox, until they leave."""

    def __init__(self, context: Context, box: Mailbox, screen: LiveScreen, watch: Watch, notice: str) -> None:
        self._context, self._box, self._screen, self._watch = context, box, screen, watch
        self._keyboard = Keyboard()
        self._drafts = Drafts(local_place(context.settings.store) or "", box.name)
        self._looked = self._look_at = 0.0
        self._pace = PACE
        self._letter: tuple[Message, Sequence[Message], Collection[str]] | None = None
        self._page: tuple[int, list[str]] = (0, [])  # the opened letter, folded to so many columns
        only_looks = notice not in {"", NO_KEY}
        notice = f"{notice}. {ASKS_AGAIN}" if only_looks else notice
        self._state = InboxState(me=box.name, drafts=self._drafts.load(), notice=notice, only_looks=only_looks)

    def run(self) -> None:
        while True:
            if time.monotonic() >= self._look_at:
                self._look()
            self._screen.draw(self._picture)
            received = self._screen.listen(self._pause(), self._watch.fileno())
            if received.gone:
                return
            if self._watch.notified():
                self._look_at = min(self._look_at, self._looked + self._pace)
            keys = self._keyboard.feed(received.keys) if received.keys else []
            if not received.keys and not received.notified and self._keyboard.waits:
                keys = self._keyboard.flush()
            if not all(self._press(key) for key in keys):
                return

    def _pause(self) -> float:
        left = max(self._look_at - time.monotonic(), 0.001)
        left = min(left, POLL) if self._watch.fileno() < 0 else left
        return min(left, HALF) if self._keyboard.waits else left

    def _look(self) -> None:
        """Read what waits now."""
        core = self._box.room.core
        began, moment = time.monotonic(), core.now()
        try:
            waits = not self._state.shows_sent
            found = (
                [plain(entry, times=True) for entry in self._box.waiting(opened=True)]
                if waits
                else sent(self._box)
            )
            pause = min(seconds_to_sleep(core, [self._box.name], moment), LOOK)
        except PostroomError as failed:
            self._state, pause = replace(self._state, notice=_words(failed)), LOOK
        else:
            self._state = state.arrived(self._state, found)
        self._looked = time.monotonic()
        self._pace = max(PACE, REST * (self._looked - began))
        self._look_at = self._looked + max(pause, self._pace)

    def _press(self, key: Key) -> bool:
        """Handle a key; return False where the person leaves."""
        size = self._screen.size()
        self._state, effect = state.pressed(self._state, key, extent(self._state, self._lines(size), size))
        self._keep()
        match effect:
            case Open():
                self._open(effect)
            case Edit():
                self._edit(effect)
            case Do():
                self._do(effect)
            case Refresh():
                self._look()
        return not isinstance(effect, Leave)

    def _keep(self) -> None:
        """Write drafts to their files, before anything else happens."""
        try:
            self._drafts.keep(self._state.drafts)
        except OSError as broken:
            self._state = replace(
                self._state, notice=f"what you write cannot be kept in a file: {broken.strerror}"
            )

    # -- effects

    def _open(self, effect: Open) -> None:
        """Show a letter, and record that it was shown."""
        try:
            self._letter = read(self._box, effect.entry)
            self._page = (0, [])
            self._screen.draw(self._picture)
            if effect.entry["what"] != "sent" and not self._state.only_looks:
                self._box.mark_shown(effect.entry["letter"], HOST, WHERE)
        except PostroomError as failed:
            self._state = replace(state.refused(self._state, _words(failed)), opened=None)
        self._look()

    def _edit(self, effect: Edit) -> None:
        """Edit a text in the person's editor, which has the terminal meanwhile. It is not sent yet."""
        draft = effect.writing.draft
        if not editor():
            self._state = state.refused(self._state, "there is no editor: set VISUAL or EDITOR")
            return
        try:
            place = self._drafts.write(draft, effect.writing.line.text)
            try:
                with self._screen.lent():
                    run_editor(place)
            finally:  # however the editor ended, its file is there
                self._state = state.written(self._state, self._drafts.read(draft))
        except (PostroomError, OSError) as failed:
            self._state = state.refused(self._state, _words(failed))
        else:
            self._state = replace(self._state, notice="Enter sends it, Esc keeps it.")
        self._keep()

    def _do(self, effect: Do) -> None:
        self._state = replace(self._state, notice="…")
        self._screen.draw(self._picture)
        try:
            result = do(self._box, effect)
        except PostroomError as refused:
            self._state = state.refused(self._state, _words(refused), refused.key or "")
        else:
            self._state = state.done(self._state, effect, result)
            self._keep()
        self._look()

    # -- the screen

    def _picture(self, size: os.terminal_size) -> Frame:
        screen = self._context.screen
        screen.now = SystemClock().now().wall
        return frame(self._state, screen, self._lines(size), size)

    def _lines(self, size: os.terminal_size) -> list[str]:
        """Return the opened letter, folded again when the terminal changes its width."""
        if self._state.opened is None or self._letter is None:
            return []
        if self._page[0] != size.columns:
            plain = Screen(json=False, tables=True, colour=False, width=size.columns, now=SystemClock().now().wall)
            plain.people = self._context.screen.people
            self._page = size.columns, lines_of(plain, *self._letter)
        return self._page[1]


def _words(failed: PostroomError | OSError) -> str:
    """Return why something failed, in one line."""
    if isinstance(failed, OSError):
        return failed.strerror or str(failed)
    where = f"{failed.field}: " if failed.field not in {None, "id", "letter"} else ""  # nobody typed these
    return f"{where}{failed.message}" + (f" ({failed.hint})" if failed.hint else "")
