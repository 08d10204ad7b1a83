"""What a command works with: its options, the caller, the room, and notes to the user.

`Context` opens nothing before it is needed, so that a mistake on the command line is reported before any file is
touched. `perform` carries out the verb of the command with the values of the options. Ids that Postroom made may be
shortened to a beginning that only one of them has.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..clock import SystemClock
from ..core.authorize import OWNER
from ..core.core import core_of, open_core
from ..core.deliveries import taken_back
from ..core.proof import is_person, people_names
from ..core.verb import perform
from ..environment import (
    Uninterrupted,
    environment,
    own_room,
    project_room,
    state_folder,
    variable,
)
from ..errors import BadStore, Invalid, NotAllowed, PostroomError
from ..model.names import check_agent, fold
from ..model.names import meant as mailbox_of
from ..settings import NO_SUCH_SETTING, Settings, chosen_settings
from ..store.address import absolute, file_of, is_there, place_of, served_at, server_of
from .answer import Answer, printable, screen_of
from .errors import NOTHING, OK, CannotCreate, Misconfigured, NoInput, Usage
from .parse import meant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from ..core.authorize import Principal
    from ..core.core import Core
    from ..core.verb import Verb
    from ..hosts.sessions import Session
    from ..mailbox import Mailbox
    from ..model.message import Message
    from ..room import Room
    from .answer import Screen
    from .daemon import Daemon
    from .output import Progress
    from .parse import Call

    View = Callable[[Screen, Mapping[str, Any]], str] | None


# -- notes on standard error, for people: where --json is set, standard error is empty or holds one error


def note(call: Call, text: str) -> None:
    """Print a note on one line, whatever it quotes."""
    if "json" in call.values:
        return
    line = text if text.isprintable() else ascii(text)[1:-1]
    sys.stderr.write(f"postroom: {line}\n")
    sys.stderr.flush()


def note_unknown(call: Call, name: str, others: Sequence[str]) -> None:
    """Print a similar name, where no agent has this one."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for mistakes

    from .quick import could_be  # noqa: PLC0415 - only for mistakes

    close = [other for other in others if could_be(name.lower(), other.lower())]
    for similar in get_close_matches(name, close, 1):
        note(call, f"nobody here is called {name!r}; did you mean {similar!r}?")


# -- the program and the room, named so that they mean the same in every folder


def program() -> list[str]:
    """Return the words that start this program, by whole paths: a host may have another PATH than the shell."""
    started = os.path.abspath(sys.argv[0])
    is_script = os.path.basename(started) == "postroom" and os.access(started, os.X_OK)
    return (
        [started] if is_script else [sys.executable, "-P", "-m", "postroom"]
    )  # -P: never import from the working folder


def typed_program() -> str:
    """Return the words that start this program as a user types them in a shell."""
    from shlex import quote  # noqa: PLC0415 - only for lines to paste
    from shutil import which  # noqa: PLC0415 - only for lines to paste

    found = which("postroom")  # another installation may come first, with other extras
    is_ours = found is not None and [os.path.realpath(found)] == [os.path.realpath(word) for word in program()]
    return "postroom" if is_ours else " ".join(map(quote, program()))


def whole_address(store: str) -> str:
    """Return a room's absolute address; a plain path where that is enough. A room in memory keeps its address."""
    if place_of(store) is None:
        return server_of(store) or store
    path = absolute(store).removeprefix("sqlite:")
    return path if ":" not in path or file_of(store) is None else absolute(store)


def is_own(store: str) -> bool:
    """Return whether this is the user's own room, which is opened where no other is named or found."""
    path = file_of(store)
    return path is not None and os.path.abspath(path) == os.path.abspath(own_room(environment()))


# -- shortened ids. An id that a user chose is never shortened: `job-1` must not mean `job-10` once it is gone.

WHOLE = 26  # characters of an id that Postroom made
LEAST = 4  # characters of a beginning that is accepted
_SHOWN = (10, 12, 14)  # characters of a beginning that is shown: the first that is enough
_MOST = 20  # candidates that are read
_LISTED = 5  # candidates that an error lists
_DIGITS = frozenset("0123456789ABCDEFGHJKMNPQRSTVWXYZ")
_LETTERS = frozenset({"letters", "sent", "dead", "tasks"})  # completions of the options that take a letter's id


def complete_ids(context: Context) -> None:
    """Replace beginnings of ids by whole ids, wherever the command takes a letter's id."""
    for option in context.call.command.options if context.call.command else ():
        value: Any = context.get(option.name)
        if option.complete in _LETTERS and value is not None:
            whole = [_whole(context, word) for word in value] if option.many else _whole(context, value)
            context.values[option.name] = whole


def short(context: Context, id: str) -> str:
    """Return as much of an id as the next command needs."""
    if len(id) != WHOLE or not _DIGITS.issuperset(id) or not caller_of(context) or context.is_of_room:
        return id
    return next((id[:length] for length in _SHOWN if _beginning(context, id[:length]) == [id]), id)


def _whole(context: Context, word: str) -> str:
    """Return the id that is meant. A word that begins no id is left for the command to refuse."""
    if not LEAST <= len(word) < WHOLE or not _DIGITS.issuperset(word) or context.is_new_room:
        return word
    if not caller_of(context) and not context.is_of_room:
        return word
    found = _beginning(context, word)
    if word in found or not found:
        return word
    made = [id for id in found if len(id) == WHOLE and _DIGITS.issuperset(id)]
    if len(made) > 1:
        more = ", …" if len(made) > _LISTED else ""
        raise Invalid(f"{word!r} begins several ids", field="ID", hint=", ".join(made[:_LISTED]) + more)
    return made[0] if made else word


def _beginning(context: Context, word: str) -> list[str]:
    from ..core.search import FindIds  # noqa: PLC0415 - only for commands with an ID

    mailbox = "" if context.is_of_room else check_agent(context.me, "mailbox")
    try:
        return perform(context.core, OWNER, FindIds(agent_id=mailbox, prefix=word, limit=_MOST))
    except PostroomError:  # the command itself reports what is wrong
        return []


def caller_of(context: Context) -> str:
    return context.get("as") or variable("POSTROOM_AGENT")


# -- the context of a command

_NUMBERS = (
    ("float", "is not a number of seconds", "digits without a unit, such as 90"),
    ("int", "is not a whole number", "digits"),
)


class Context:
    """One run of the program. Settings, room and mailbox are made when they are first needed."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.values = call.values
        self.name = call.name  # as it was typed, where an earlier version called it so
        self.looks = call.command is not None and call.command.looks  # a command that only reads makes no room
        self.asks_passphrase = True  # not while a screen is drawn
        self.draft: Path | None = None  # the file written in an editor, until it is sent
        self._progress: Progress | None = None

    def get(self, name: str, default: Any = None) -> Any:
        return self.values.get(name, default)

    def passed_options(self, *names: str) -> dict[str, Any]:
        """Return the values of those options that were passed."""
        return {name: self.values[name] for name in names if name in self.values}

    @cached_property
    def session(self) -> Session | None:
        """The session of the agent host that started this process, where no caller is named."""
        if self.get("as") or variable("POSTROOM_AGENT") or not os.path.isdir(state_folder("sessions")):
            return None
        from ..hosts.sessions import session_around_us  # noqa: PLC0415 - only where there are sessions

        return session_around_us()

    @cached_property
    def me(self) -> str:
        name: str = self.get("as") or variable("POSTROOM_AGENT") or (self.session.agent if self.session else "")
        if not name:
            whole = "; --everyone asks for all agents" if "everyone" in self.options else ""
            raise Usage(
                "no agent is named",
                field="--as",
                hint=f"--as NAME names you, or POSTROOM_AGENT; a person: --as human{whole}",
            )
        try:
            name.encode()
        except UnicodeEncodeError:
            raise Usage("is not UTF-8 text", field="POSTROOM_AGENT") from None
        return name

    @property
    def is_of_room(self) -> bool:
        """Whether the command is about the whole room, and not about one agent."""
        is_usual = self.call.command is not None and self.call.command.of_room
        return bool(self.get("everyone")) or (is_usual and not caller_of(self))

    def default_me(self, name: str) -> None:
        """Set the caller where none is named."""
        if not variable("POSTROOM_AGENT") and self.session is None:
            self.values.setdefault("as", name)

    @cached_property
    def mailbox(self) -> Mailbox:
        check_agent(self.me, "mailbox")  # before a room is made for a name that cannot be
        return self.room.mailbox(self.me)

    def perform(self, verb: type[Verb] | None = None, **params: Any) -> Any:
        """Carry out a verb, or that of the command, with the values of the options; `params` take precedence.

        Where there is no room yet, a verb that makes one is tried in memory first, so that a refused one leaves no
        empty room behind.
        """
        request = self._request(verb, params)
        declaration, known = request.declaration(), request.__struct_fields__
        if self.is_new_room and not self.looks:
            trial = replace(request, timeout=0.0) if declaration.waits else request
            perform(self._core_in_memory(), OWNER, trial)
        if (declaration.waits and getattr(request, "timeout", 0) != 0) or not sys.stderr.isatty():
            return perform(self.core, self.principal, request)
        with self.progress() as progress:  # another process may hold the room for a while
            if "progress" in known:
                request = replace(request, progress=progress.tell)
            return perform(self.core, self.principal, request)

    def _request(self, verb: type[Verb] | None, params: dict[str, Any]) -> Verb:
        wanted = verb or (self.call.command.verb if self.call.command else None)
        if wanted is None:
            raise TypeError(f"{self.name} calls no verb")
        known = wanted.__struct_fields__
        fields = {name: value for name, value in self.values.items() if name in known} | params
        if verb is None and "body" in known and "body" not in params and "edit" in self.options:
            from .text import content  # noqa: PLC0415 - only for commands that take a text

            body = content(self)
            fields |= {"body": body} if body is not None else {}
        if "agent_id" in known and not self.is_of_room:
            fields["agent_id"] = self.me
        return wanted(**fields)

    def progress(self, whole: int | None = None) -> Progress:
        """Return a line that shows on a terminal how far the command is, or for how long it has taken."""
        from .output import Progress  # noqa: PLC0415 - not for most commands

        self._progress = Progress(self.name, whole=whole, quiet=self.screen.json)
        return self._progress

    def answer(self, view: View = None, **params: Any) -> Answer:
        """Carry out the command's verb, and return its result as an answer."""
        daemon = self._daemon
        if daemon is not None and self.call.command and self.call.command.shape is None:
            from .daemon import NotThere, messages_in, with_times  # noqa: PLC0415 - only for rooms on a server

            try:
                request = self._request(None, params)
                with self.progress():
                    data = daemon.ask(request)
            except NotThere:
                pass
            else:
                if self.screen.json:
                    return self._answer(data, (), view)
                return self._answer(with_times(request.declaration(), data), messages_in(data), view)
        return self.answer_with(self.perform(**params), view)

    def answer_with(self, result: Any, view: View = None, **more: Any) -> Answer:
        """Return the result of a verb as an answer. Where it is empty, a similar name is noted."""
        from ..formats.plain import plain, plain_result  # noqa: PLC0415 - only for commands that are a verb

        command = self.call.command
        verb = command.verb if command else None
        if command and command.shape:
            data = _fields(command.shape(self, result))
        else:
            data = dict(
                plain_result(verb.declaration(), result, times=True) if verb else plain(result, times=True)
            )
        letters = getattr(result, "letters", None) or [getattr(result, "letter", None)]
        messages = tuple(getattr(one, "message", one) for one in letters if one is not None)
        return self._answer(data, messages, view, more)

    def _answer(
        self, data: dict[str, Any], messages: tuple[Message, ...], view: View, more: dict[str, Any] | None = None
    ) -> Answer:
        from .output import fields as anything  # noqa: PLC0415 - only for commands that are a verb

        command = self.call.command
        verb = command.verb if command else None
        if command and command.named:
            mine = {"mailbox": self.me} if "mailbox" in command.named and verb else {}
            data = mine | {name: value for name, value in data.items() if name in command.named}
        is_mine = verb is not None and "agent_id" in verb.__struct_fields__ and not self.is_of_room
        if is_mine and not any(value for name, value in data.items() if name != "mailbox"):
            self.note_if_unknown()
        view = view or (command.view if command else None) or anything
        is_vain = command is not None and command.waits_for and not data[command.waits_for]
        return Answer(self.name, (more or {}) | data, view, letters=messages, code=NOTHING if is_vain else OK)

    # -- the post room that serves this room, where the room is on a server

    @cached_property
    def _daemon(self) -> Daemon | None:
        """The post room that serves a room on a server here; None also for what it has not: settings and keys."""
        socket = None if self.get("set") or not server_of(self.settings.store) else served_at(self.settings.store)
        if socket is None:
            return None
        from .daemon import Daemon, NotThere  # noqa: PLC0415 - only for rooms on a server

        try:
            daemon = Daemon(socket)
        except NotThere:
            return None
        if self._has_caller and fold(mailbox_of(self.me, self.settings.human)) in daemon.people:
            return None
        self.screen.people = lambda: daemon.people
        return daemon

    def shown(self, data: Mapping[str, Any], view: View = None, *, code: int = OK) -> Answer:
        """Return values as an answer: each with the fields of its JSON, and times as times, for the view."""
        from .output import fields  # noqa: PLC0415 - not for commands that are hooks

        declared = self.call.command.view if self.call.command else None
        return Answer(self.name, _fields(data), view or declared or fields, code=code)

    @cached_property
    def options(self) -> frozenset[str]:
        """The names of the values that the command takes."""
        return frozenset(option.name for option in (self.call.command.options if self.call.command else ()))

    @cached_property
    def settings(self) -> Settings:
        """The settings in force. A wrong one is reported before the room is opened."""
        try:
            chosen = chosen_settings(self._named_room, dict(self.get("set", ())))
        except Invalid as wrong:
            raise _wrong_setting(wrong) from None
        self.screen.human = chosen.human
        if not self.get("room") and not variable("POSTROOM_STORE"):
            for path, why in self.passed_by[:1]:  # the nearest
                what_to_do = "postroom init makes a room of your own, --room names another"
                note(self.call, f"{path} {why}, so it is not used: {what_to_do}")
        if chosen.store.startswith("memory:"):
            raise BadStore("a room in memory is gone when the command ends", field="store", hint="name a file")
        return chosen

    @property
    def _named_room(self) -> str | None:
        """The room that was named; else that of the host's session which started this process."""
        text: str | None = self.get("room")
        return text if text or variable("POSTROOM_STORE") or self.session is None else self.session.room or None

    @cached_property
    def passed_by(self) -> list[tuple[str, str]]:
        """Files above the working folder that look like the project's room and are not used, and why."""
        found: list[tuple[str, str]] = []
        project_room(passed_by=found)
        return found

    @cached_property
    def is_new_room(self) -> bool:
        """Whether there is no room at this address yet. Other faults are reported when it is opened."""
        return is_there(self.settings.store) is False

    @cached_property
    def core(self) -> Core:
        """The room. A command that only reads makes none: it gets an empty room in memory instead.

        A room that was named with --room and does not exist is an error: the name is probably mistyped.
        """
        if self.is_new_room and self.looks:
            self.check_named_room()
            return self._core_in_memory()
        self.check_folder()
        with Uninterrupted():
            from ..store.sqlite import store  # noqa: F401, PLC0415 - loaded uninterrupted, not on opening
        core = open_core(self.settings, SystemClock())
        self.screen.people = partial(people_names, core)
        self.screen.taken_back = partial(taken_back, core)
        return core

    @cached_property
    def room(self) -> Room:
        """The room as the Python API has it, for commands that need more than verbs."""
        from ..room import room_of  # noqa: PLC0415 - most commands perform a verb and need no more

        return room_of(self.core, self.principal)

    def try_out(self, verb: Callable[[Mailbox], object], principal: Principal = OWNER) -> None:
        """Where there is no room yet, try in memory first, so that a refused request leaves no empty room behind."""
        if self.is_new_room:
            from ..room import room_of  # noqa: PLC0415 - rare

            verb(room_of(self._core_in_memory(), principal).mailbox(self.me))

    def _core_in_memory(self) -> Core:
        """Return an empty room with these settings that only this process sees."""
        from ..store.sqlite.memory import MemoryStore  # noqa: PLC0415 - only where there is no room yet

        return core_of(MemoryStore(), self.settings)

    # The rest of what hooks need of a command: see `postroom.hosts.sources.Access`.

    @cached_property
    def principal(self) -> Principal:
        """The owner of the room, with the key of the person who types, where a person is the caller."""
        name = mailbox_of(check_agent(self.me, "mailbox"), self.settings.human) if self._has_caller else ""
        if not name or not is_person(self.core, name):
            return OWNER
        from ..core.key_file import KeyFile, session_mark  # noqa: PLC0415 - for people alone

        at_terminal = any(end is not None and end.isatty() for end in (sys.stdin, sys.stdout, sys.stderr))
        if not (self.settings.human_key or at_terminal or self.agent_around or session_mark(self.core, name)):
            return OWNER  # a script without a key: it may send, and answers nothing
        key = KeyFile(
            self.settings.human_key,
            at_terminal=at_terminal,
            ask=self._passphrase if at_terminal else None,
            tell=partial(note, self.call),
            inside=self.agent_around,
        )
        return replace(OWNER, signer=key)

    @cached_property
    def agent_around(self) -> str:
        """The agent in whose session this process runs, whoever is named as the caller; empty if in none."""
        if not os.path.isdir(state_folder("sessions")):
            return ""
        from ..hosts.sessions import session_around_us  # noqa: PLC0415 - only where there are sessions

        session = session_around_us()
        return session.agent if session else ""

    def check_no_agent(self, mailbox: str) -> None:
        """Raise NotAllowed inside an agent's session, if this is a person's mailbox: no agent takes its alerts."""
        if is_person(self.core, mailbox):
            from ..core.key_file import check_no_session  # noqa: PLC0415 - for people alone

            check_no_session(self.core, mailbox, self.agent_around)

    def _passphrase(self, prompt: str) -> str:
        """Ask for a passphrase at the terminal, without a line of progress there."""
        from getpass import getpass  # noqa: PLC0415 - only for encrypted keys

        if not self.asks_passphrase:
            raise NotAllowed("the person's key is not open", field="human_key", hint="start the command again")
        if self._progress is not None:
            self._progress.end()
        return getpass(prompt)

    @property
    def _has_caller(self) -> bool:
        return not self.is_of_room and bool(caller_of(self) or self.session)

    @property
    def room_address(self) -> str:
        return whole_address(self.settings.store)

    def choose(self, agent: str, room: str = "") -> None:
        self.values |= {"as": agent} | ({"room": room} if room else {})

    def warn(self, text: str) -> None:
        note(self.call, text)

    def note_if_unknown(self) -> None:
        """Print a similar name where nothing was found and the caller is unknown."""
        if self._daemon is None:
            name, known = self.mailbox.name, self.room.mailboxes()
        else:
            name, known = mailbox_of(self.me, self.settings.human), self._daemon.mailboxes()
        note_unknown(self.call, name, () if name in known else known)

    def check_named_room(self) -> None:
        """Refuse a room that was named with --room and does not exist: its name is probably mistyped."""
        if "room" in self.values and self.is_new_room:
            raise NoInput(
                f"there is no room at {self.get('room')}", field="--room", hint="postroom send makes one"
            )

    def check_room(self) -> None:
        """Refuse to go on where there is no room, however it was chosen."""
        self.check_named_room()
        if self.is_new_room:
            raise NoInput(
                f"there is no room at {self.settings.store.removeprefix('sqlite:')} yet",
                field="store",
                hint="postroom send makes one",
            )

    def check_folder(self) -> None:
        """Refuse to make a room named with --room in a folder that does not exist."""
        if "room" not in self.values or not self.is_new_room:
            return
        file = place_of(self.settings.store) or ""
        folder = os.path.dirname(os.path.realpath(file))
        if not os.path.lexists(folder) and os.path.realpath(file) != os.path.realpath(own_room(environment())):
            from shlex import quote  # noqa: PLC0415 - only for lines to paste

            raise CannotCreate(f"there is no folder {folder}", field="--room", hint=f"mkdir -p {quote(folder)}")

    @cached_property
    def screen(self) -> Screen:
        screen = screen_of(self.call)
        screen.note = self.warn
        if sys.stdout.isatty():
            screen.short = partial(short, self)
        return screen

    def keep_draft(self, error: PostroomError) -> None:
        """Add to an error where the text of the unsent letter is kept, if there is any."""
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
            with suppress(OSError):  # the editor left something beside it
                self.draft.parent.rmdir()


def _fields(value: Any) -> Any:
    """Return a value as its JSON has it, but with times as times; every text in it can be printed."""
    from ..formats.plain import plain  # noqa: PLC0415 - not for commands that are hooks

    if isinstance(value, dict):
        return {name: _fields(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_fields(one) for one in value]
    return printable(value if isinstance(value, str) else plain(value, times=True))


def _wrong_setting(wrong: Invalid) -> Misconfigured:
    """Describe a wrong setting in the words of the command line."""
    what, name, hint = wrong.message, wrong.field or "", wrong.hint
    if what == NO_SUCH_SETTING and name:
        hint = meant(name, Settings.__struct_fields__) or hint
    for kind, words, rule in _NUMBERS:
        if what == f"Expected `{kind}`, got `str`":
            what, hint = words, rule
    return Misconfigured(what, field=wrong.field, hint=hint)
