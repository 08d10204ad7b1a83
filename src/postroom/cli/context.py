"""What a command works with: what was said, who is calling, the room, where the answer goes."""

from __future__ import annotations

import os
import sys
from functools import cached_property, partial

from ..errors import BadStore, Invalid
from ..whereabouts import environment, own_room, project_room, sessions_folder, variable
from .answers import Screen
from .exits import CannotCreate, Misconfigured, NoInput, Usage
from .ids import short
from .light import Uninterrupted
from .notes import note_passed_by, note_unknown
from .parse import meant

TYPE_CHECKING = False  # what `typing` says too, without its weight
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any, TypeVar

    from ..errors import PostroomError
    from ..hosts.sessions import Session
    from ..mailbox import Mailbox
    from ..room import Room
    from ..settings import Settings
    from .parse import Call

    T = TypeVar("T")

_NUMBERS = (
    ("float", "is not a number of seconds", "digits without a unit, such as 90"),
    ("int", "is not a whole number", "digits"),
)


class Context:
    """One call of the program. Everything is made when it is first needed: an error in what was said comes before
    any file is touched.
    """

    def __init__(self, call: Call) -> None:
        self.call = call
        self.values = call.values
        self.name = call.name
        self.looks = call.command is not None and call.command.looks  # makes no room
        self.draft: Path | None = None  # what was written in an editor, until it is sent

    def get(self, name: str, default: Any = None) -> Any:
        return self.values.get(name, default)

    def given(self, *names: str, **renamed: str) -> dict[str, Any]:
        """What was said of these, under the library's names; what was not said is left out."""
        wanted = {name: name for name in names} | renamed
        return {theirs: self.values[ours] for theirs, ours in wanted.items() if ours in self.values}

    @cached_property
    def session(self) -> Session | None:
        """The session of the agent host that started us, where nobody says who is calling."""
        if self.get("as") or variable("POSTROOM_AGENT") or not os.path.isdir(sessions_folder()):  # noqa: PTH112
            return None
        from ..hosts.whose import session_around_us  # noqa: PLC0415 - only where there are sessions

        return session_around_us()

    @cached_property
    def me(self) -> str:
        name: str = self.get("as") or variable("POSTROOM_AGENT") or (self.session.agent if self.session else "")
        if not name:
            raise Usage("who are you?", field="--as", hint="say --as NAME, or set POSTROOM_AGENT")
        try:
            name.encode()
        except UnicodeEncodeError:
            raise Usage("is not UTF-8 text", field="POSTROOM_AGENT") from None
        return name

    def default_me(self, name: str) -> None:
        """Who is calling, when nobody says so."""
        if not variable("POSTROOM_AGENT") and self.session is None:
            self.values.setdefault("as", name)

    @cached_property
    def mailbox(self) -> Mailbox:
        from ..model.names import check_agent  # noqa: PLC0415 - what is about the program itself needs none of it

        check_agent(self.me, "mailbox")  # before a room is made for a name that cannot be
        return self.room.mailbox(self.me)

    def act(self, verb: Callable[[Mailbox], T]) -> T:
        """Do this at the caller's mailbox. Where the room is not there yet it is tried in memory first, so that
        what is refused leaves no empty room behind.
        """
        self.try_out(verb)
        return verb(self.mailbox)

    def act_in_room(self, verb: Callable[[Room], T]) -> T:
        """The same for what belongs to the room."""
        if self.is_new_room:
            verb(self._room_in_memory())
        return verb(self.room)

    def try_out(self, verb: Callable[[Mailbox], object]) -> None:
        """Where the room is not there yet: would this be refused?"""
        if self.is_new_room:
            verb(self._room_in_memory().mailbox(self.me))

    @cached_property
    def settings(self) -> Settings:
        """The settings in force; a wrong one is told before the room is opened."""
        from ..room import chosen_settings  # noqa: PLC0415

        try:
            chosen = chosen_settings(self._room_said, dict(self.get("set", ())))
        except Invalid as wrong:
            raise _wrong_setting(wrong) from None
        self.screen.human = chosen.human
        if not self.get("room") and not variable("POSTROOM_STORE"):
            note_passed_by(self.call, self.passed_by)
        if chosen.store.startswith("memory:"):
            raise BadStore("a room in memory is gone when the command ends", field="store", hint="name a file")
        return chosen

    @property
    def _room_said(self) -> str | None:
        """The room that was named; where none was, that of the session around us."""
        said: str | None = self.get("room")
        return said if said or variable("POSTROOM_STORE") or self.session is None else self.session.room or None

    @cached_property
    def passed_by(self) -> list[tuple[str, str]]:
        """What looks like the project's room on the way up and is not used, and why."""
        found: list[tuple[str, str]] = []
        project_room(passed_by=found)
        return found

    @cached_property
    def is_new_room(self) -> bool:
        """Is there no room at this address yet? Anything else that is wrong with it is told when it is opened."""
        from ..store.opening import is_there  # noqa: PLC0415

        return is_there(self.settings.store) is False

    @cached_property
    def room(self) -> Room:
        """The room. A command that only looks makes none: where it was named by hand, that was a typing error;
        else nobody has sent anything yet, and it is as good as empty.
        """
        if self.is_new_room and self.looks:
            self.check_named_room()
            return self._room_in_memory()
        self.check_folder()
        with Uninterrupted():
            from ..room import open as open_room  # noqa: PLC0415
            from ..store.sqlite import store  # noqa: F401, PLC0415 - loaded here, so that opening loads nothing more
        return open_room(self.settings.store, **dict(self.get("set", ())))

    def note_if_unknown(self) -> None:
        """Nothing was found: is the caller's name a typing error? An agent that is merely new hears nothing."""
        known = self.room.mailboxes()
        note_unknown(self.call, self.mailbox.name, () if self.mailbox.name in known else known)

    def check_named_room(self) -> None:
        """A room that was named by hand, and is not there, was a typing error."""
        if "room" in self.values and self.is_new_room:
            what = f"there is no room at {self.get('room')}"
            raise NoInput(what, field="--room", hint="postroom send makes one, so does init")

    def check_room(self) -> None:
        """There must be a room, whoever named it."""
        self.check_named_room()
        if self.is_new_room:
            what = f"there is no room at {self.settings.store.removeprefix('sqlite:')} yet"
            raise NoInput(what, field="store", hint="postroom send makes one, so does init")

    def check_folder(self) -> None:
        """A room that was named by hand is made in a folder that is there: else that was a typing error, too."""
        if "room" not in self.values or not self.is_new_room:
            return
        from ..store.opening import place_of  # noqa: PLC0415

        file = place_of(self.settings.store) or ""
        folder = os.path.dirname(os.path.realpath(file))  # noqa: PTH120 - light
        if not os.path.lexists(folder) and os.path.realpath(file) != os.path.realpath(own_room(environment())):
            from shlex import quote  # noqa: PLC0415 - only for mistakes

            hint = f"mkdir -p {quote(folder)}"
            raise CannotCreate(f"there is no folder {folder}", field="--room", hint=hint)

    def _room_in_memory(self) -> Room:
        """An empty room with these settings, which nobody else sees."""
        from ..room import Room  # noqa: PLC0415
        from ..store.memory import MemoryStore  # noqa: PLC0415 - only where there is no room yet

        return Room(MemoryStore(os.urandom(8).hex()), self.settings)

    @cached_property
    def screen(self) -> Screen:
        terminal = sys.stdout.isatty()
        wish = self.get("color", "auto")
        plain = variable("NO_COLOR") or variable("TERM") == "dumb"
        return Screen(
            json=bool(self.get("json")),
            tables=terminal or wish == "always",
            colour=wish == "always" or (wish == "auto" and terminal and not plain),
            width=_columns() if terminal else 100,
            caller=said if (said := self.get("as", "")) != variable("POSTROOM_AGENT") else "",
            room=self.get("room", ""),
            short=partial(short, self) if terminal else str,
        )

    def keep_draft(self, error: PostroomError) -> None:
        """It was not sent: say where the text is, if there is any."""
        if self.draft is None or not self.draft.exists():
            return
        if not self.draft.stat().st_size:
            self.drop_draft()
        else:
            kept = f"your text is kept in {self.draft}"
            error.hint = f"{error.hint}; {kept}" if error.hint else kept

    def drop_draft(self) -> None:
        if self.draft is not None:
            self.draft.unlink(missing_ok=True)
            try:  # noqa: SIM105 - light
                os.rmdir(self.draft.parent)  # noqa: PTH106 - ours
            except OSError:  # the editor left something beside it
                pass


def _columns() -> int:
    from .width import columns  # noqa: PLC0415 - only for people

    return columns(sys.stdout)


def _wrong_setting(wrong: Invalid) -> Misconfigured:
    """In the words of whoever typed it."""
    from ..settings import NO_SUCH_SETTING, Settings  # noqa: PLC0415 - loaded already, by whoever was wrong

    what, name, hint = wrong.message, wrong.field or "", wrong.hint
    if what == NO_SUCH_SETTING and name:
        hint = meant(name, Settings.__struct_fields__) or hint
    for kind, words, rule in _NUMBERS:
        if what == f"Expected `{kind}`, got `str`":
            what, hint = words, rule
    return Misconfigured(what, field=wrong.field, hint=hint)
