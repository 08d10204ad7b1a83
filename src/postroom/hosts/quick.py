"""The quick check of a hook: whether there is surely nothing to show.

A host runs hooks at every prompt and between any two steps, and waits for them; mostly there is no mail. So this
module imports next to nothing and answers only that case; every other case is left to the full command. A hook
takes two seconds at most, and never fails a session.
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
from .dialects import BETWEEN, DIALECTS, HOST, PERHAPS, PROMPT, START, STOP, read_file, read_input, text_of
from .sessions import BUSY, IDLE, OVER, Session, find, is_played

FILES = "files:"
# Variables that change no setting which matters here. With any other, the full command runs.
_NO_SETTINGS = frozenset(
    {"AGENT", "STORE", "TOKEN", "ID", "LETTER", "SOCKET", "HTTP", "INBOXES", "PEERS", "HOOK_SECONDS"}
)
_NAME = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


# Rooms.


def chosen_room_has_nothing(
    values: dict[str, object], mailbox: str, passed_by: list[tuple[str, str]], others: list[str] | None = None
) -> bool:
    """Return whether the room that these options choose has surely nothing unread.

    Nobody has mail in a room that was not created yet. But a room that is named with `--room` and does not exist
    is a typing error, which the full command reports.
    """
    room = room_of(str(values.get("room", "")), passed_by)
    if room is None:
        return False
    return ("room" not in values and _is_not_made(room)) or room_has_nothing(room, mailbox, others)


def _is_not_made(room: str) -> bool:
    if room.startswith(FILES):  # the store checks such an address
        return False
    try:
        os.stat(room)
    except OSError as missing:
        return isinstance(missing, FileNotFoundError)
    return False


def room_has_nothing(room: str, mailbox: str, others: list[str] | None = None) -> bool:
    """Return whether a mailbox surely has nothing unread.

    `room` is the file of a SQLite room, or the address of a mail folder. If the room has no such mailbox, the
    names that it has are added to `others`.
    """
    with Uninterrupted():
        from ..store.peek import is_surely_empty  # noqa: PLC0415 - SQLite is most of the cost of a check
    return is_surely_empty(room, mailbox, others)


def room_of(named: str, passed_by: list[tuple[str, str]]) -> str | None:
    """Return the file of the room that the settings choose, or the address of a mail folder.

    None means that only the full command can find the room.
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
    """Return whether a name is valid and without a swarm; any other is left to the full command."""
    return 0 < len(name) <= 128 and _NAME.issuperset(name) and name[0] not in "._-"


# The state folder of a chipset.

LAYOUT = "?layout=chipset"
_LONGEST = 1024 * 1024  # bytes of a file


def state_of(room: str) -> str:
    """Return the state folder of a room's address, or an empty text if it is not a chipset's."""
    is_one = room.startswith("files:") and room.endswith(LAYOUT)
    return room.removeprefix("files:").removesuffix(LAYOUT) if is_one else ""


def may_have_work(state: str, agent: str, since: float, *, only_new: bool) -> bool:
    """Return whether there may be work on the agent's hook that nobody has started.

    With `only_new`, work that has not changed since `since`, the time of the session's last hook, does not count:
    it was shown before.
    """
    hook, written = _read(f"{state}/hooks", f"{agent.replace('/', '_')}.json")
    return text_of(hook, "status") == "pending" and not (only_new and written < since)


def may_have_nudge(state: str, agent: str, since: float, *, only_new: bool) -> bool:
    """Return whether there may be an unhandled nudge for the agent. An answer to its own nudge is shown once."""
    name = agent.replace("/", "_")
    nudge, written = _read(f"{state}/nudge", name, "/latest.json")
    if not nudge or (written < since and (only_new or nudge.get("type") == "nudge_response")):
        return False
    handled, _ = _read(f"{state}/.postroom/nudges", f"{name}.json")
    return text_of(handled, "handled") != text_of(nudge, "timestamp") or not text_of(nudge, "timestamp")


def _read(folder: str, name: str, rest: str = "") -> tuple[dict[str, object], float]:
    """Return the object in a file and the time when it was written; an empty one if there is no such file.

    Names that differ only in case are one agent's. A file that cannot be read counts as missing, as it does for
    the full command.
    """
    try:
        if not os.path.lexists(f"{folder}/{name}"):
            name = next(one for one in os.listdir(folder) if one.lower() == name.lower())
        return read_file(f"{folder}/{name}{rest}", _LONGEST)
    except (OSError, StopIteration):
        return {}, 0.0


# Hooks.

SECONDS = 2.0  # for the whole hook, unless POSTROOM_HOOK_SECONDS is set
HOOK_PROMPT = "hook prompt"
_LONGEST_REPLY = 64 * 2**20


class Look:
    """The result of a quick check: the text to print (None: the full command must run), and the host's input."""

    def __init__(self, text: str | None, host_input: dict[str, object] | None = None) -> None:
        self.text = text
        self.host_input = host_input or {}


def look(command: str, values: dict[str, object]) -> Look:
    """Run the quick check of a hook, by its command and options."""
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
    """Return the name of the agent; agent-inbox has its own variable for it."""
    return str(values.get("as") or variable("POSTROOM_AGENT") or variable("INBOX_AGENT_ID"))


def socket_of(values: dict[str, object]) -> str:
    """Return the socket of a daemon, if one is named. Our own variables win over those of agent-inbox."""
    if "room" in values:
        return ""
    theirs = "" if variable("POSTROOM_STORE") else variable("INBOX_SOCKET") or variable("INBOX_SOCKET_PATH")
    return variable("POSTROOM_SOCKET") or theirs


def folder_of(values: dict[str, object]) -> str:
    """Return the folder of inbox files, if neither a room nor a socket is named."""
    if "room" in values or variable("POSTROOM_STORE") or socket_of(values):
        return ""
    return variable("POSTROOM_INBOXES") or variable("INBOX_DIR")


def exchange(path: str, lines: bytes, replies: int, patience: float = 0.0) -> bytes:
    """Send lines to a daemon on one connection, and return as many replies.

    `patience` is the time in seconds for each read; by default that for which a session waits.
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
                raise ConnectionResetError(f"the server at {path} closed the connection")
            received += piece
            replies -= piece.count(b"\n")  # count in each piece once: replies may be long
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
    """Return whether no file of this agent holds a line. A file whose name begins with the agent's counts, too.

    If one of our names is not a regular file, the full command reports it.
    """
    stem = safe_form(agent)
    try:
        with os.scandir(os.path.expanduser(folder)) as found:
            for entry in found:
                is_ours = entry.name.startswith(stem) and entry.name.endswith(".inbox.jsonl")
                if not is_ours and entry.name not in {".names", ".lock"}:
                    continue
                if not entry.is_file(follow_symlinks=False) or (is_ours and entry.stat().st_size):
                    return False
            return True
    except FileNotFoundError:
        return True
    except OSError:  # the full command reports it
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
    except OSError:  # the full command reports it
        return False


def seconds() -> float:
    """Return for how many seconds a session waits for its mail at most."""
    text = variable("POSTROOM_HOOK_SECONDS")
    return min(float(text), 600.0) if text.isascii() and text.isdecimal() and text.strip("0") else SECONDS


def end_in_time() -> None:
    """Start a thread that ends this process when its time is over, so that no session waits longer."""
    _thread.start_new_thread(_end, ())


def _end() -> None:
    time.sleep(seconds())
    os.write(2, b"postroom: the mail could not be looked at in %g s; it is all still there\n" % seconds())
    os._exit(0)  # 0: a host treats any other exit as a failure of the session


def go_where_the_host_is(folder: str) -> None:
    """Change to the working folder of the host, from which the room of the project is found."""
    if folder.startswith("/"):
        try:
            os.chdir(folder)
        except (OSError, ValueError):  # it was removed: stay here
            pass


def _look_for_host(command: str, values: dict[str, object]) -> Look:
    host_input = read_input(HOST)
    dialect, event = DIALECTS[host_of(command)], text_of(host_input, "hook_event_name")
    moment, is_waiter = dialect.events.get(event), "wait" in values
    if not event or (moment is None and not is_waiter):
        _tell_ignored(event)
        return Look("")
    if is_waiter:
        session = find(host_of(command), text_of(host_input, "session_id"))
        # At a start, the waiter of an earlier run does not count: it is ending.
        is_waited_for = session is not None and moment != START and session.has_waiter
        return Look("" if is_waited_for else None, host_input)
    end_in_time()
    go_where_the_host_is(text_of(host_input, "cwd"))
    if host_input.get("agent_id"):
        return Look("")  # a subagent of the session: the mail is not for it
    if moment not in {BETWEEN, PROMPT, STOP} or not values.keys() <= {"as", "room"}:
        return Look(None, host_input)
    session = find(host_of(command), text_of(host_input, "session_id"))
    is_ours = session is not None and is_going_on(session, named_agent(values, dialect.agent))
    if session is None or not is_ours or not _has_nothing(session, moment):
        return Look(None, host_input)
    holds = 0 if moment == PROMPT and is_typed(dialect.untyped, host_input) else None
    text: str | None = ""
    try:
        session.mark(IDLE if moment == STOP else BUSY, holds)
    except OSError:  # the full command reports it
        text = None
    return Look(text, host_input)


def _tell_ignored(event: str) -> None:
    """Print on standard error why no mail is shown.

    A host has more events than we use, and they are ignored in silence, except for a person at a terminal. Input
    without an event is always an error.
    """
    if not event:
        _warn("postroom: no mail is shown: standard input held no JSON object with a hook_event_name")
    elif is_played():
        _warn(f"postroom: nothing is done at the event {event[:80]!a}; docs/agents.md says how to play host")


def _warn(text: str) -> None:
    """Write one line to standard error, if it is open."""
    try:
        os.write(2, f"{text}\n".encode())
    except OSError:
        pass


def host_of(command: str) -> str:
    return command.removeprefix("hook ")


def named_agent(values: dict[str, object], agent_variable: str) -> str:
    """Return the name of the session's agent, if an option or a variable names it."""
    return agent_of(values) or (variable(agent_variable) if agent_variable else "")


def is_typed(untyped: tuple[str, ...], host_input: dict[str, object]) -> bool:
    """Return whether a person typed the prompt. A text that wakes the session comes as a prompt, too."""
    return not text_of(host_input, "prompt").startswith(untyped)


def is_going_on(session: Session, name: str) -> bool:
    """Return whether a session has not ended, and belongs to the named agent, if one is named."""
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
    state, only_new = state_of(session.room), moment == BETWEEN
    about = (state, session.agent, session.heard_at)
    return not state or not (may_have_work(*about, only_new=only_new) or may_have_nudge(*about, only_new=only_new))
