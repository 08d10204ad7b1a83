"""The first look of a hook: is there surely nothing to show?

A host runs hooks at every prompt and between any two steps, and waits for them; mostly there is nothing. So this
module imports next to nothing and answers only that. Whatever is unusual is left to the command. A hook takes two
seconds at most, and never fails a session.
"""

from __future__ import annotations

import _thread
import os
import time

from ..constants import safe_form
from ..environment import (
    AUTH_TOKEN,
    PREFIX,
    Uninterrupted,
    config_path,
    environment,
    own_room,
    project_room,
    variable,
)
from . import claude, codex, gemini
from .events import BETWEEN, PROMPT, START, STOP
from .input import HOST, PERHAPS, read_input, read_object, text_of
from .sessions import BUSY, IDLE, OVER, Session, find, is_played

DIALECTS = {"claude": claude, "codex": codex, "gemini": gemini}
FILES = "files:"
# Variables that change no rule.
_NO_SETTINGS = frozenset(
    {"AGENT", "STORE", "TOKEN", "ID", "LETTER", "SOCKET", "HTTP", "INBOXES", "PEERS", "HOOK_SECONDS"}
)
_NAME = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


# Rooms.


def chosen_room_has_nothing(
    values: dict[str, object], mailbox: str, passed_by: list[tuple[str, str]], others: list[str] | None = None
) -> bool:
    """Has the room that these options choose surely nothing unread? Where no room was made yet, nobody has mail;
    one that was named with `--room` and is not there is a typing error, which the command reports.
    """
    room = room_of(str(values.get("room", "")), passed_by)
    if room is None:
        return False
    return ("room" not in values and _is_not_made(room)) or room_has_nothing(room, mailbox, others)


def _is_not_made(room: str) -> bool:
    if room.startswith(FILES):  # whether the address is sound is for the store to judge
        return False
    try:
        os.stat(room)
    except OSError as missing:
        return isinstance(missing, FileNotFoundError)
    return False


def room_has_nothing(room: str, mailbox: str, others: list[str] | None = None) -> bool:
    """Has it surely nothing unread? `room` is its file, or the address of one of files. Where nobody there is
    called so, the names there are are put into `others`.
    """
    with Uninterrupted():
        from ..store.peek import is_surely_empty  # noqa: PLC0415 - SQLite, which is most of what a look costs
    return is_surely_empty(room, mailbox, others)


def room_of(named: str, passed_by: list[tuple[str, str]]) -> str | None:
    """The room's file as the settings would choose it, or the address of one of files; None when that takes more
    than a look.
    """
    args = environment()
    if any(name.startswith(PREFIX) and name.removeprefix(PREFIX) not in _NO_SETTINGS for name in args):
        return None
    if os.path.exists(config_path(args)):
        return None
    address = named or variable("POSTROOM_STORE")
    if not address:
        return project_room(passed_by=passed_by) or own_room(args)
    if address.startswith(FILES):
        return address
    path = address.removeprefix("sqlite:").removeprefix("//")
    unusual = not path or ":" in path or "?" in path or "\n" in path or path.startswith("~") or path.endswith("/")
    if unusual or not (address.startswith("sqlite:") or path.endswith(".db") or "/" in path):
        return None
    return path


def is_plain_name(name: str) -> bool:
    """A name that the house allows, without a swarm; any other is looked at properly."""
    return 0 < len(name) <= 128 and _NAME.issuperset(name) and name[0] not in "._-"


# The state folder of a chipset.

LAYOUT = "?layout=chipset"
_LONGEST = 1024 * 1024  # bytes of a file


def state_of(room: str) -> str:
    """Return the state folder of a room's address, or nothing where the room is no chipset's."""
    is_one = room.startswith("files:") and room.endswith(LAYOUT)
    return room.removeprefix("files:").removesuffix(LAYOUT) if is_one else ""


def has_nothing(state: str, agent: str, since: float, *, only_new: bool) -> bool:
    """Is there surely nothing for the agent, on its hook or in its nudge slot?"""
    about = (state, agent, since)
    return not may_have_work(*about, only_new=only_new) and not may_have_nudge(*about, only_new=only_new)


def may_have_work(state: str, agent: str, since: float, *, only_new: bool) -> bool:
    """May there be work on the agent's hook that nobody took up?

    `only_new`: what has not changed since `since`, the time of the session's last hook, was told before.
    """
    hook, written = _read(f"{state}/hooks", f"{agent.replace('/', '_')}.json")
    return text_of(hook, "status") == "pending" and not (only_new and written < since)


def may_have_nudge(state: str, agent: str, since: float, *, only_new: bool) -> bool:
    """May there be a nudge that the agent has not handled? An answer to its own nudge is told once in any case."""
    name = agent.replace("/", "_")
    nudge, written = _read(f"{state}/nudge", name, "/latest.json")
    if not nudge or (written < since and (only_new or nudge.get("type") == "nudge_response")):
        return False
    handled, _ = _read(f"{state}/.postroom/nudges", f"{name}.json")
    return text_of(handled, "handled") != text_of(nudge, "timestamp") or not text_of(nudge, "timestamp")


def _read(folder: str, name: str, rest: str = "") -> tuple[dict[str, object], float]:
    """Return what a file holds and when it was written; nothing where there is no such file.

    Names that differ in case alone are one agent's. A file that cannot be read says nothing here, as it does for
    whoever reads it with care.
    """
    try:
        if not os.path.lexists(f"{folder}/{name}"):
            name = next(one for one in os.listdir(folder) if one.lower() == name.lower())
        file = os.open(f"{folder}/{name}{rest}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return read_object(os.read(file, _LONGEST)), os.fstat(file).st_mtime
        finally:
            os.close(file)
    except (OSError, StopIteration):
        return {}, 0.0


# Hooks.

SECONDS = 2.0  # for all of it, where POSTROOM_HOOK_SECONDS does not say otherwise
HOOK_PROMPT = "hook prompt"
_LONGEST_REPLY = 64 * 2**20


class Look:
    """What a first look found: the text to print, or None where the command must run; and what the host said."""

    def __init__(self, text: str | None, host_input: dict[str, object] | None = None) -> None:
        self.text = text
        self.host_input = host_input or {}


def look(command: str, values: dict[str, object]) -> Look:
    """Take the first look of a hook, by its command and options."""
    if host_of(command) in DIALECTS:
        return _look_for_host(command, values)
    agent = agent_of(values)
    if not agent:
        return Look("")
    end_in_time()
    go_where_the_host_is(text_of(read_input(PERHAPS), "cwd"))
    if command != HOOK_PROMPT or not values.keys() <= {"as", "room"}:
        return Look(None)
    return Look("" if _is_surely_nothing(values, agent) else None)


def agent_of(values: dict[str, object]) -> str:
    """Who asks. agent-inbox has a name of its own for it."""
    return str(values.get("as") or variable("POSTROOM_AGENT") or variable("INBOX_AGENT_ID"))


def socket_of(values: dict[str, object]) -> str:
    """Where a daemon listens, if one is named. A room that was named for us beats what was said to agent-inbox."""
    if "room" in values:
        return ""
    theirs = "" if variable("POSTROOM_STORE") else variable("INBOX_SOCKET") or variable("INBOX_SOCKET_PATH")
    return variable("POSTROOM_SOCKET") or theirs


def folder_of(values: dict[str, object]) -> str:
    """The folder of inbox files, where that is all that is named."""
    if "room" in values or variable("POSTROOM_STORE") or socket_of(values):
        return ""
    return variable("POSTROOM_INBOXES") or variable("INBOX_DIR")


def exchange(path: str, lines: bytes, replies: int, patience: float = 0.0) -> bytes:
    """Say some lines to a daemon and hear as many replies, on one connection. `patience`: seconds for each piece,
    where that is more than a session waits.
    """
    from _socket import AF_UNIX, SOCK_STREAM, socket  # noqa: PLC0415 - `socket` itself is heavy

    line = socket(AF_UNIX, SOCK_STREAM)
    try:
        line.settimeout(patience or seconds())
        line.connect(path)
        line.sendall(lines)
        received = bytearray()
        while replies > 0:
            piece = line.recv(2**20)
            if not piece or len(received) > _LONGEST_REPLY:
                raise ConnectionResetError(f"the post room at {path} hung up")
            received += piece
            replies -= piece.count(b"\n")  # each piece is looked at once: replies may be long
        return bytes(received)
    finally:
        line.close()


def _is_surely_nothing(values: dict[str, object], agent: str) -> bool:
    if not is_plain_name(agent):
        return False
    if socket := socket_of(values):
        return socket_has_nothing(socket, agent)
    if folder := folder_of(values):
        return folder_has_nothing(folder, agent)
    return chosen_room_has_nothing(values, agent, [])


def folder_has_nothing(folder: str, agent: str) -> bool:
    """Say whether no file of this agent holds a line. A name that begins like it counts as its own.

    What is no regular file under a name that is ours is left to the command, which reports it.
    """
    names = (safe_form(agent), ".names", ".lock")
    try:
        with os.scandir(os.path.expanduser(folder)) as found:
            ours = [entry for entry in found if entry.name.startswith(names)]
            return all(entry.is_file(follow_symlinks=False) for entry in ours) and not any(
                entry.stat().st_size for entry in ours if entry.name.startswith(names[0])
            )
    except FileNotFoundError:
        return True
    except OSError:  # the command reports it
        return False


def socket_has_nothing(path: str, agent: str) -> bool:
    question = f'{{"action":"check_inbox","agentId":"{agent}","unreadOnly":true,"limit":1}}\n'
    token = variable(AUTH_TOKEN)
    if token and not (token.isascii() and token.isprintable() and '"' not in token and "\\" not in token):
        return False
    shown = f'{{"action":"authenticate","token":"{token}"}}\n' if token else ""
    try:
        received = exchange(path, (shown + question).encode(), 2 if token else 1)
        return received.splitlines()[-1] == b'{"ok":true,"messages":[]}'
    except OSError:  # whoever comes next tells
        return False


def seconds() -> float:
    """How long a session waits for its mail at most."""
    args = variable("POSTROOM_HOOK_SECONDS")
    return min(float(args), 600.0) if args.isascii() and args.isdecimal() and args.strip("0") else SECONDS


def end_in_time() -> None:
    """From now on: no session waits for longer than it should."""
    _thread.start_new_thread(_end, ())


def _end() -> None:
    time.sleep(seconds())
    os.write(2, b"postroom: the mail could not be looked at in %g s; it is all still there\n" % seconds())
    os._exit(0)


def go_where_the_host_is(folder: str) -> None:
    """A host tells its working folder; the room of the project is looked for from there."""
    if folder.startswith("/"):
        try:
            os.chdir(folder)
        except (OSError, ValueError):  # it is gone; where we are will do
            pass


def _look_for_host(command: str, values: dict[str, object]) -> Look:
    host_input = read_input(HOST)
    dialect, event = DIALECTS[host_of(command)], text_of(host_input, "hook_event_name")
    moment, is_waiter = dialect.EVENTS.get(event), "wait" in values
    if not event or (moment is None and not is_waiter):
        _tell_ignored(event)
        return Look("")
    if is_waiter:
        return Look("" if _is_waited_for(command, host_input, moment) else None, host_input)
    end_in_time()
    go_where_the_host_is(text_of(host_input, "cwd"))
    if host_input.get("agent_id"):
        return Look("")  # it is a helper's that works for the session, and the mail is not its own
    if moment not in {BETWEEN, PROMPT, STOP} or not values.keys() <= {"as", "room"}:
        return Look(None, host_input)
    session = find(host_of(command), text_of(host_input, "session_id"))
    is_ours = session is not None and is_going_on(session, name_said(values, dialect.AGENT))
    if session is None or not is_ours or not _has_nothing(session, moment):
        return Look(None, host_input)
    holds = 0 if moment == PROMPT and is_typed(dialect.UNTYPED, host_input) else None
    is_marked = _is_marked(session, IDLE if moment == STOP else BUSY, holds)
    return Look("" if is_marked else None, host_input)


def _is_waited_for(command: str, host_input: dict[str, object], moment: str | None) -> bool:
    """Has the session a waiter already? One that starts may have that of an earlier life, which just ends."""
    session = find(host_of(command), text_of(host_input, "session_id"))
    return session is not None and moment != START and session.has_waiter


def _is_marked(session: Session, turn: str, holds: int | None) -> bool:
    try:
        session.mark(turn, holds)
    except OSError:  # whoever comes next tells
        return False
    return True


def _tell_ignored(event: str) -> None:
    """Say on standard error why nothing is shown. A host has more events than we need, and hears nothing of those;
    a person at a terminal would wonder. Input without an event is a mistake, whoever reads of it.
    """
    if not event:
        _warn("postroom: no mail is shown: standard input held no JSON object with a hook_event_name")
    elif is_played():
        _warn(f"postroom: nothing is done at the event {event[:80]!a}; docs/hosts.md says how to play host")


def _warn(text: str) -> None:
    """Write one line to standard error, if anybody reads it."""
    try:
        os.write(2, f"{text}\n".encode())
    except OSError:
        pass


def host_of(command: str) -> str:
    return command.removeprefix("hook ")


def name_said(values: dict[str, object], agent_variable: str) -> str:
    """Return the name of the session's agent, if anybody said it."""
    return agent_of(values) or (variable(agent_variable) if agent_variable else "")


def is_typed(untyped: tuple[str, ...], host_input: dict[str, object]) -> bool:
    """Say whether a person wrote to the session. What wakes it comes as a prompt, too."""
    return not text_of(host_input, "prompt").startswith(untyped)


def is_going_on(session: Session, name: str) -> bool:
    """Is it the session that was begun, with the same agent, if anybody says which?"""
    return session.turn != OVER and name in {"", session.agent}


def _has_nothing(session: Session, moment: str) -> bool:
    if not is_plain_name(session.agent):
        return False
    if session.socket:
        return socket_has_nothing(session.socket, session.agent)
    if session.folder:
        return folder_has_nothing(session.folder, session.agent)
    if not session.room.startswith(("/", FILES)) or not room_has_nothing(session.room, session.agent):
        return False
    if not session.room.startswith(FILES):
        return True

    state = state_of(session.room)
    return not state or has_nothing(state, session.agent, session.heard_at, only_new=moment == BETWEEN)
