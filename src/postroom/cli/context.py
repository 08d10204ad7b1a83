"""What a command works with: its options, the caller, the room, the text of a letter, and notes to the user.

`Context` opens nothing before it is needed, so that a mistake on the command line is reported before any file is
touched. The text of a letter comes from an option, from standard input or from an editor; it is bounded, and
refused unless it is UTF-8. Ids that Postroom made may be shortened to a beginning that only one of them has.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, BinaryIO

from ..core.verb import parameters, perform
from ..environment import Uninterrupted, environment, own_room, project_room, sessions_folder, variable
from ..errors import BadStore, Invalid, PostroomError, TooLarge
from ..model.names import check_agent
from ..room import Room, chosen_settings
from ..room import open as open_room
from ..settings import NO_SUCH_SETTING, Settings
from ..store.address import absolute, file_of, is_there, place_of
from .answer import Answer, screen_of
from .errors import Abandoned, CannotCreate, Misconfigured, NoInput, Usage
from .parse import meant
from .quick import could_be

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Any, TypeVar

    from ..core.verb import Verb
    from ..hosts.sessions import Session
    from ..mailbox import Mailbox
    from .answer import Screen
    from .parse import Call

    T = TypeVar("T")
    View = Callable[[Screen, Mapping[str, Any]], str] | None


STDIN = "-"


# -- the text of a letter


def body_text(context: Context, *, optional: bool = False) -> str | None:
    """Return the text of --body, else what is piped in, else what the user writes in an editor.

    Where there is other content (`optional`), standard input is read only if --body asks for it: a pipe that
    nobody closes must not hold up a letter.
    """
    body: str | None = context.get("body")
    if body is not None and context.get("edit"):
        raise Usage("is either given or edited", field="--body")
    if body == STDIN:
        return read_stdin(context, "body")
    if body is not None:
        return body
    if context.get("edit"):
        return _edited(context)
    if optional:
        return None
    if sys.stdin is not None and not sys.stdin.isatty():
        text = read_stdin(context, "body")
        if not text and not context.get("subject"):
            raise Invalid("is empty", field="body", hint="say it with --body or pipe it in")
        return text or None
    return _edited(context)


def read_stdin(context: Context, field: str) -> str:
    if sys.stdin is None:
        raise NoInput("standard input is closed", field=field)
    return _decoded(_bounded(sys.stdin.buffer, context, field), field)


def read_source(context: Context, source: str, field: str) -> str:
    """Return the text of a file, or of standard input for `-`."""
    if source == STDIN:
        return read_stdin(context, field)
    try:
        with open(source, "rb") as file:
            return _decoded(_bounded(file, context, field, most=64), field)
    except OSError as broken:
        raise NoInput(f"{source!a} cannot be read: {broken.strerror}", field=field) from None


def _bounded(file: BinaryIO, context: Context, field: str, most: int = 1) -> bytes:
    """Read at most `most` times the size of a letter, so that no input fills the memory."""
    largest = context.settings.max_message_bytes * most
    raw = file.read(largest + 1)
    if len(raw) > largest:
        raise TooLarge(
            f"is over {largest} bytes",
            field=field,
            hint="send a --reference to it, or raise the setting max_message_bytes",
        )
    return raw


def _decoded(raw: bytes, field: str) -> str:
    """Decode UTF-8, without the last line end: it belongs to the pipe or the editor."""
    try:
        return raw.decode().removesuffix("\n")
    except UnicodeDecodeError as broken:
        raise Invalid(
            f"is not UTF-8 text (byte {broken.start})", field=field, hint="enclose it with --file"
        ) from None


def _edited(context: Context) -> str:
    import tempfile  # noqa: PLC0415 - only for people
    from pathlib import Path  # noqa: PLC0415

    if not editor() or sys.stdin is None or not sys.stdin.isatty():
        raise Usage("there is no text", field="--body", hint="say it with --body, pipe it in, or set EDITOR")
    context.draft = Path(tempfile.mkdtemp(prefix="postroom-")) / "letter.md"
    context.draft.touch(mode=0o600)
    run_editor(context.draft)
    with context.draft.open("rb") as file:
        text = _decoded(_bounded(file, context, "body"), "body")
    if not text.strip():
        context.drop_draft()
        raise Abandoned
    return text


def editor() -> str:
    """Return the command of the user's editor; empty where none is set."""
    return variable("VISUAL") or variable("EDITOR")


def run_editor(draft: Path) -> None:
    """Run the user's editor on a file until it ends."""
    import subprocess  # noqa: PLC0415 - only for people
    from shlex import split  # noqa: PLC0415 - only for people

    try:
        done = subprocess.run([*split(editor()), str(draft)], check=False)  # noqa: S603 - the user's own
    except (OSError, ValueError) as broken:
        raise Usage(f"the editor cannot be started: {broken}", field="EDITOR") from None
    if done.returncode != 0:
        raise Abandoned(f"the editor ended with {done.returncode}, so nothing was sent")


# -- notes on standard error, for people: where --json is set, standard error is empty or holds one error


def note(call: Call, text: str) -> None:
    """Print a note on one line, whatever it quotes."""
    if "json" in call.values:
        return
    line = text if text.isprintable() else ascii(text)[1:-1]
    sys.stderr.write(f"postroom: {line}\n")
    sys.stderr.flush()


def note_passed_by(call: Call, passed_by: Sequence[tuple[str, str]]) -> None:
    """Print why the nearest file that looks like the project's room is not used."""
    for path, why in passed_by[:1]:
        what_to_do = "postroom init makes a room of your own, --room names another"
        note(call, f"{path} {why}, so it is not used: {what_to_do}")


def note_unknown(call: Call, name: str, others: Sequence[str]) -> None:
    """Print a similar name, where no agent has this one."""
    close = [other for other in others if could_be(name.lower(), other.lower())]
    if not close:
        return
    from difflib import get_close_matches  # noqa: PLC0415 - only for mistakes

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
        return store
    path = absolute(store).removeprefix("sqlite:")
    return path if ":" not in path or file_of(store) is None else absolute(store)


def whole_path(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


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
    if len(id) != WHOLE or not _DIGITS.issuperset(id) or not _caller(context) or context.is_of_room:
        return id
    return next((id[:length] for length in _SHOWN if _beginning(context, id[:length]) == [id]), id)


def _whole(context: Context, word: str) -> str:
    """Return the id that is meant. A word that begins no id is left for the command to refuse."""
    if not LEAST <= len(word) < WHOLE or not _DIGITS.issuperset(word) or context.is_new_room:
        return word
    if not _caller(context) and not context.is_of_room:
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

    room = context.room
    mailbox = None if context.is_of_room else context.mailbox.name
    try:
        request = FindIds(agent_id=mailbox or "", prefix=word, limit=_MOST)
        return perform(room.core, room.principal, request).ids
    except PostroomError:  # the command itself reports what is wrong
        return []


def _caller(context: Context) -> str:
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
        self.draft: Path | None = None  # the file written in an editor, until it is sent

    def get(self, name: str, default: Any = None) -> Any:
        return self.values.get(name, default)

    def passed_options(self, *names: str, **renamed: str) -> dict[str, Any]:
        """Return the values of those options that were passed, under the library's names."""
        wanted = {name: name for name in names} | renamed
        return {theirs: self.values[ours] for theirs, ours in wanted.items() if ours in self.values}

    @cached_property
    def session(self) -> Session | None:
        """The session of the agent host that started this process, where no caller is named."""
        if self.get("as") or variable("POSTROOM_AGENT") or not os.path.isdir(sessions_folder()):
            return None
        from ..hosts.sessions import session_around_us  # noqa: PLC0415 - only where there are sessions

        return session_around_us()

    @cached_property
    def me(self) -> str:
        name: str = self.get("as") or variable("POSTROOM_AGENT") or (self.session.agent if self.session else "")
        if not name:
            options = self.call.command.options if self.call.command else ()
            whole = "; --everyone asks for all agents" if any(one.name == "everyone" for one in options) else ""
            raise Usage("who are you?", field="--as", hint=f"say --as NAME, or set POSTROOM_AGENT{whole}")
        try:
            name.encode()
        except UnicodeEncodeError:
            raise Usage("is not UTF-8 text", field="POSTROOM_AGENT") from None
        return name

    @property
    def is_of_room(self) -> bool:
        """Whether the command is about the whole room, and not about one agent."""
        is_usual = self.call.command is not None and self.call.command.of_room
        return bool(self.get("everyone")) or (is_usual and not _caller(self))

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
        asked = verb or (self.call.command.verb if self.call.command else None)
        if asked is None:
            raise TypeError(f"{self.name} calls no verb")
        if self.is_new_room and not self.looks:
            at_once = {"timeout": 0.0} if asked.declaration().waits else {}
            self._perform_in(self._room_in_memory(), asked, params | at_once)
        return self._perform_in(self.room, asked, params)

    def _perform_in(self, room: Room, verb: type[Verb], params: dict[str, Any]) -> Any:
        known = parameters(verb)
        given: dict[str, Any] = {}
        for option in self.call.command.options if self.call.command else ():
            if option.field in known and option.name in self.values:
                given[option.field] = option.value if option.kind == "flag" else self.values[option.name]
        if "agent_id" in known and not self.is_of_room:
            given["agent_id"] = self.me
        request, declaration = verb(**given | params), verb.declaration()
        if not (declaration.slow or declaration.many) or self.screen.json or not sys.stderr.isatty():
            return perform(room.core, room.principal, request)
        from .output import Patience  # noqa: PLC0415 - only on a terminal

        with Patience(f"postroom {self.name}"):
            return perform(room.core, room.principal, request)

    def answer(self, view: View = None, **params: Any) -> Answer:
        """Carry out the command's verb, and return its result as an answer."""
        from .views import anything  # noqa: PLC0415 - only for commands that are a verb

        command = self.call.command
        return self.answer_with(self.perform(**params), view or (command.view if command else None) or anything)

    def answer_with(self, result: Any, view: Any, **more: Any) -> Answer:
        """Return the result of a verb as an answer. Where it is empty, a similar name is noted."""
        from ..formats.plain import plain, plain_result  # noqa: PLC0415 - only for commands that are a verb

        command = self.call.command
        verb = command.verb if command else None
        shown = plain_result(verb.declaration(), result) if verb else plain(result)
        data = dict(command.shape(self, result) if command and command.shape else shown)
        is_mine = verb is not None and "agent_id" in parameters(verb) and not self.is_of_room
        if is_mine and not any(value for name, value in data.items() if name != "mailbox"):
            self.note_if_unknown()
        letters = getattr(result, "letters", None) or [getattr(result, "letter", None)]
        messages = tuple(getattr(one, "message", one) for one in letters if one is not None)
        return Answer(self.name, more | data, view, letters=messages)

    def act(self, verb: Callable[[Mailbox], T]) -> T:
        """Carry out a verb at the caller's mailbox.

        Where there is no room yet, it is tried in memory first, so that a refused verb leaves no empty room
        behind.
        """
        self.try_out(verb)
        return verb(self.mailbox)

    def act_in_room(self, verb: Callable[[Room], T]) -> T:
        """Carry out a verb of the room, tried in memory first where there is no room yet."""
        if self.is_new_room:
            verb(self._room_in_memory())
        return verb(self.room)

    def try_out(self, verb: Callable[[Mailbox], object]) -> None:
        """Raise what a verb would be refused for, where there is no room yet."""
        if self.is_new_room:
            verb(self._room_in_memory().mailbox(self.me))

    @cached_property
    def settings(self) -> Settings:
        """The settings in force. A wrong one is reported before the room is opened."""
        try:
            chosen = chosen_settings(self._named_room, dict(self.get("set", ())))
        except Invalid as wrong:
            raise _wrong_setting(wrong) from None
        self.screen.human = chosen.human
        if not self.get("room") and not variable("POSTROOM_STORE"):
            note_passed_by(self.call, self.passed_by)
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
    def room(self) -> Room:
        """The room. A command that only reads makes none: it gets an empty room in memory instead.

        A room that was named with --room and does not exist is an error: the name is probably mistyped.
        """
        if self.is_new_room and self.looks:
            self.check_named_room()
            return self._room_in_memory()
        self.check_folder()
        with Uninterrupted():
            from ..store.sqlite import store  # noqa: F401, PLC0415 - loaded uninterrupted, not on opening
        return open_room(self.settings.store, **dict(self.get("set", ())))

    def note_if_unknown(self) -> None:
        """Print a similar name where nothing was found and the caller is unknown."""
        known = self.room.mailboxes()
        note_unknown(self.call, self.mailbox.name, () if self.mailbox.name in known else known)

    def check_named_room(self) -> None:
        """Refuse a room that was named with --room and does not exist: its name is probably mistyped."""
        if "room" in self.values and self.is_new_room:
            what = f"there is no room at {self.get('room')}"
            raise NoInput(what, field="--room", hint="postroom send makes one, so does init")

    def check_room(self) -> None:
        """Refuse to go on where there is no room, however it was chosen."""
        self.check_named_room()
        if self.is_new_room:
            what = f"there is no room at {self.settings.store.removeprefix('sqlite:')} yet"
            raise NoInput(what, field="store", hint="postroom send makes one, so does init")

    def check_folder(self) -> None:
        """Refuse to make a room named with --room in a folder that does not exist."""
        if "room" not in self.values or not self.is_new_room:
            return
        file = place_of(self.settings.store) or ""
        folder = os.path.dirname(os.path.realpath(file))
        if not os.path.lexists(folder) and os.path.realpath(file) != os.path.realpath(own_room(environment())):
            from shlex import quote  # noqa: PLC0415 - only for lines to paste

            hint = f"mkdir -p {quote(folder)}"
            raise CannotCreate(f"there is no folder {folder}", field="--room", hint=hint)

    def _room_in_memory(self) -> Room:
        """Return an empty room with these settings that only this process sees."""
        from ..store.sqlite.memory import MemoryStore  # noqa: PLC0415 - only where there is no room yet

        return Room(MemoryStore(), self.settings)

    @cached_property
    def screen(self) -> Screen:
        screen = screen_of(self.call)
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


def _wrong_setting(wrong: Invalid) -> Misconfigured:
    """Describe a wrong setting in the words of the command line."""
    what, name, hint = wrong.message, wrong.field or "", wrong.hint
    if what == NO_SUCH_SETTING and name:
        hint = meant(name, Settings.__struct_fields__) or hint
    for kind, words, rule in _NUMBERS:
        if what == f"Expected `{kind}`, got `str`":
            what, hint = words, rule
    return Misconfigured(what, field=wrong.field, hint=hint)
