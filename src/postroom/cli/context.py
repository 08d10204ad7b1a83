"""The text of a letter: from an option, from standard input, or from an editor. Bounded, and UTF-8 or refused."""

from __future__ import annotations

import os
import sys
from functools import cached_property, partial
from shlex import quote
from shutil import which
from typing import TYPE_CHECKING, BinaryIO

from ..app.unit import absolute
from ..environment import environment, own_room, project_room, sessions_folder, variable
from ..errors import BadStore, Invalid, PostroomError, TooLarge
from ..store.address import file_of, place_of
from .errors import Abandoned, CannotCreate, Misconfigured, NoInput, Usage
from .output import Screen, Uninterrupted
from .parse import meant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import Any, TypeVar

    from ..hosts.sessions import Session
    from ..mailbox import Mailbox
    from ..room import Room
    from ..settings import Settings
    from .parse import Call


STDIN = "-"


def text_of(context: Context, *, optional: bool = False) -> str | None:
    """What was said with --body, else what is piped in, else what is written in the editor. When there is other
    content (`optional`), only what was asked for: a pipe that nobody closes must not hold up a letter.
    """
    words: str | None = context.get("body")
    if words is not None and context.get("edit"):
        raise Usage("is either given or edited", field="--body")
    if words == STDIN:
        return read_stdin(context, "body")
    if words is not None:
        return words
    if context.get("edit"):
        return _edited(context)
    if optional:
        return None
    if sys.stdin is not None and not sys.stdin.isatty():
        text = read_stdin(context, "body")
        if not text and not context.get("subject"):
            raise Invalid(
                "is empty", field="body", hint="say it with --body or pipe it in; bare words are recipients"
            )
        return text or None
    return _edited(context)


def read_stdin(context: Context, field: str) -> str:
    if sys.stdin is None:
        raise NoInput("standard input is closed", field=field)
    return _decoded(_bounded(sys.stdin.buffer, context, field), field)


def read_source(context: Context, source: str, field: str) -> str:
    """The text of a file, or of standard input for `-`."""
    if source == STDIN:
        return read_stdin(context, field)
    try:
        with open(source, "rb") as file:
            return _decoded(_bounded(file, context, field, most=64), field)
    except OSError as broken:
        raise NoInput(f"{source!a} cannot be read: {broken.strerror}", field=field) from None


def _bounded(file: BinaryIO, context: Context, field: str, most: int = 1) -> bytes:
    """At most `most` times the size of a letter: nobody fills our memory."""
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
    """One line end at the very end belongs to the pipe or the editor, not to the text."""
    try:
        return raw.decode().removesuffix("\n")
    except UnicodeDecodeError as broken:
        raise Invalid(
            f"is not UTF-8 text (byte {broken.start})", field=field, hint="enclose it with --file"
        ) from None


def _edited(context: Context) -> str:
    import tempfile  # noqa: PLC0415 - people write few letters, programs many
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
    """The user's own, as they start it; empty when they have none."""
    return variable("VISUAL") or variable("EDITOR")


def run_editor(draft: Path) -> None:
    """The user's editor, at this file, until it ends."""
    import shlex  # noqa: PLC0415 - likewise
    import subprocess  # noqa: PLC0415

    try:
        done = subprocess.run([*shlex.split(editor()), str(draft)], check=False)  # noqa: S603 - the user's own
    except (OSError, ValueError) as broken:
        raise Usage(f"the editor cannot be started: {broken}", field="EDITOR") from None
    if done.returncode != 0:
        raise Abandoned(f"the editor ended with {done.returncode}, so nothing was sent")


# A word beside the answer, on standard error, for people. Programs that ask for JSON hear none: there, standard
# error is empty or one error.


def note(call: Call, text: str) -> None:
    """Say this, on one line, whatever it quotes."""
    if "json" in call.values:
        return
    line = text if text.isprintable() else ascii(text)[1:-1]
    sys.stderr.write(f"postroom: {line}\n")
    sys.stderr.flush()


def note_passed_by(call: Call, passed_by: Sequence[tuple[str, str]]) -> None:
    """The nearest that looks like the project's room and is not used."""
    for path, why in passed_by[:1]:
        what_to_do = "postroom init makes a room of your own, --room names another"
        note(call, f"{path} {why}, so it is not used: {what_to_do}")


def note_unknown(call: Call, name: str, others: Sequence[str]) -> None:
    """Nobody is called so: was one of these meant?"""
    close = [other for other in others if _could_be(name.lower(), other.lower())]
    if not close:
        return
    from difflib import get_close_matches  # noqa: PLC0415 - only for mistakes

    for similar in get_close_matches(name, close, 1):
        note(call, f"nobody here is called {name!r}; did you mean {similar!r}?")


def _could_be(word: str, other: str) -> bool:
    """At most two letters are wrong. Names that differ in their numbers alone are a row of agents, no mistake."""
    if _without_digits(word) == _without_digits(other):
        return False
    left, wrong = list(other), 0
    for letter in word:
        if letter in left:
            left.remove(letter)
        else:
            wrong += 1
    return max(wrong, len(left)) <= (1 if len(word) < 4 else 2)


def _without_digits(word: str) -> str:
    return "".join(letter for letter in word if not letter.isdigit())


# This program and a room, named so that they mean the same from anywhere: for lines that are typed or pasted.


def program() -> list[str]:
    """How it is started, by whole paths: a host may have another PATH than the shell."""
    started = os.path.abspath(sys.argv[0])
    is_script = os.path.basename(started) == "postroom" and os.access(started, os.X_OK)
    return [started] if is_script else [sys.executable, "-P", "-m", "postroom"]  # never one of the working folder


def typed_program() -> str:
    """The same as one types it in a shell."""
    found = which("postroom")  # another one may be on the path, with other extras
    is_ours = found is not None and [os.path.realpath(found)] == [os.path.realpath(word) for word in program()]
    return "postroom" if is_ours else " ".join(map(quote, program()))


def whole_address(store: str) -> str:
    """A room's address; a plain path where that does. A room in memory has no other."""
    if place_of(store) is None:
        return store
    path = absolute(store).removeprefix("sqlite:")
    return path if ":" not in path or file_of(store) is None else absolute(store)


def whole_path(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def is_own(store: str) -> bool:
    """Is it the room that is opened where none is named, nor a project's is around?"""
    path = file_of(store)
    return path is not None and os.path.abspath(path) == os.path.abspath(own_room(environment()))


# Ids that the house made, shortened: a beginning that only one of them has is shown and understood for the whole.
#
# An id that somebody chose is always said whole: `job-1` must never mean `job-10` because the one is gone.

WHOLE = 26  # characters of such an id
LEAST = 4  # of a beginning that is understood
_SHOWN = (10, 12, 14)  # of one that is shown: the first that is enough
_MOST = 20  # candidates that are looked at
_TOLD = 5  # and told
_DIGITS = frozenset("0123456789ABCDEFGHJKMNPQRSTVWXYZ")
_LETTERS = frozenset({"letters", "sent", "dead", "tasks"})  # what options that take a letter's id complete


def complete_ids(context: Context) -> None:
    """Put whole ids in the place of their beginnings, wherever the command takes a letter's id."""
    for option in context.call.command.options if context.call.command else ():
        args: Any = context.get(option.name)
        if option.complete in _LETTERS and args is not None:
            whole = [_whole(context, word) for word in args] if option.many else _whole(context, args)
            context.values[option.name] = whole


def short(context: Context, id: str) -> str:
    """As much of an id as the next command needs."""
    if len(id) != WHOLE or not _DIGITS.issuperset(id) or not _caller(context) or _is_operator(context):
        return id
    return next((id[:length] for length in _SHOWN if _beginning(context, id[:length]) == [id]), id)


def _whole(context: Context, word: str) -> str:
    """The id that is meant. What nothing begins with is left for the command to refuse."""
    if not LEAST <= len(word) < WHOLE or not _DIGITS.issuperset(word) or context.is_new_room:
        return word
    if not _caller(context) and not _is_operator(context):
        return word
    found = _beginning(context, word)
    if word in found or not found:
        return word
    made = [id for id in found if len(id) == WHOLE and _DIGITS.issuperset(id)]
    if len(made) > 1:
        more = ", …" if len(made) > _TOLD else ""
        raise Invalid(f"{word!r} begins several ids", field="ID", hint=", ".join(made[:_TOLD]) + more)
    return made[0] if made else word


def _beginning(context: Context, word: str) -> list[str]:
    from ..core.search import ids_beginning  # noqa: PLC0415 - only for what is shortened

    room = context.room
    mailbox = None if _is_operator(context) else context.mailbox.name
    try:
        return ids_beginning(room._core, room._principal, mailbox, word, _MOST)
    except PostroomError:  # the command itself tells what is wrong
        return []


def _caller(context: Context) -> str:
    return context.get("as") or variable("POSTROOM_AGENT")


def _is_operator(context: Context) -> bool:
    """Does the command show the whole room's mail?"""
    return bool(context.get("everyone")) or (context.name == "trace" and not _caller(context))


# What a command works with: what was said, who is calling, the room, where the answer goes.

if TYPE_CHECKING:
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

    def options_given(self, *names: str, **renamed: str) -> dict[str, Any]:
        """What was said of these, under the library's names; what was not said is left out."""
        wanted = {name: name for name in names} | renamed
        return {theirs: self.values[ours] for theirs, ours in wanted.items() if ours in self.values}

    @cached_property
    def session(self) -> Session | None:
        """The session of the agent host that started us, where nobody says who is calling."""
        if self.get("as") or variable("POSTROOM_AGENT") or not os.path.isdir(sessions_folder()):
            return None
        from ..hosts.sessions import session_around_us  # noqa: PLC0415 - only where there are sessions

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
        text: str | None = self.get("room")
        return text if text or variable("POSTROOM_STORE") or self.session is None else self.session.room or None

    @cached_property
    def passed_by(self) -> list[tuple[str, str]]:
        """What looks like the project's room on the way up and is not used, and why."""
        found: list[tuple[str, str]] = []
        project_room(passed_by=found)
        return found

    @cached_property
    def is_new_room(self) -> bool:
        """Is there no room at this address yet? Anything else that is wrong with it is told when it is opened."""
        from ..store.address import is_there  # noqa: PLC0415

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
        from ..store.address import place_of  # noqa: PLC0415

        file = place_of(self.settings.store) or ""
        folder = os.path.dirname(os.path.realpath(file))
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
            caller=args if (args := self.get("as", "")) != variable("POSTROOM_AGENT") else "",
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
                os.rmdir(self.draft.parent)
            except OSError:  # the editor left something beside it
                pass


def _columns() -> int:
    from .output import columns  # noqa: PLC0415 - only for people

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
