"""The quick answers: there is nothing unread, said without loading the library.

Hooks ask at every prompt, and mostly there is nothing. When it is not certain, or anything unusual was said, there
is no quick answer, and the command runs as usual.
"""

from __future__ import annotations

import _thread
import os
import time
from typing import TYPE_CHECKING

from ..environment import AUTH_TOKEN, PREFIX, config_path, environment, own_room, project_room, variable
from ..hosts.events import BETWEEN, PROMPT, START, STOP
from ..hosts.input import HOST, hear, read_object, text_of
from ..hosts.sessions import BUSY, IDLE, OVER, find
from .context import note_passed_by, note_unknown
from .main import end
from .output import Uninterrupted
from .table import FILE_OF

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ..hosts.sessions import Session
    from .parse import Call


FILES = "files:"
NO_MAIL = "No unread mail for {0}.\n"
NO_DIGEST = "You have no unread letters.\n"
_NO_COUNTS = '"urgent":0,"high":0,"normal":0,"low":0,"total":0'
_SAID = frozenset({"as", "room", "json", "peek"})  # with any other option the library must check its value
# Variables that change no rule.
_NO_SETTINGS = frozenset(
    {"AGENT", "STORE", "TOKEN", "ID", "LETTER", "SOCKET", "HTTP", "INBOXES", "PEERS", "HOOK_SECONDS"}
)
_NAME = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")

# command -> (text, fields of the JSON answer), for a mailbox {0} without unread mail
_EMPTY = {
    "check": (NO_MAIL, '"mailbox":"{0}","letters":[]'),
    "counts": ("", f'"mailbox":"{{0}}",{_NO_COUNTS}'),
    "digest": (NO_DIGEST, '"mailbox":"{0}","text":"You have no unread letters."'),
}


def quick_answer(call: Call) -> str | None:
    """What to print, or None: run the command."""
    if call.name.startswith("hook ") and "help" not in call.values:
        return _quick_hook(call)
    empty = _EMPTY.get(call.name)
    if empty is None or not call.values.keys() <= _SAID:
        return None
    text, fields = empty
    wanted = f'{{"schema":1,"command":"{call.name}",{fields}}}\n' if "json" in call.values else text
    me = call.values.get("as") or variable("POSTROOM_AGENT")
    if not wanted or not is_plain_name(me):
        return None
    passed_by: list[tuple[str, str]] = []
    others: list[str] = []
    if not chosen_room_has_nothing(call.values, me, passed_by, others):
        return None
    note_passed_by(call, passed_by)
    note_unknown(call, me, others)
    return wanted.replace("{0}", me)


def _quick_hook(call: Call) -> str | None:
    if FILE_OF[call.name] == "hosts":
        return quick_host(call)

    return quick_hook(call)


def chosen_room_has_nothing(
    values: Mapping[str, Any], mailbox: str, passed_by: list[tuple[str, str]], others: list[str] | None = None
) -> bool:
    """Has the room that these options choose surely nothing unread? Where no room was made yet, nobody has mail;
    one that was named with `--room` and is not there is a typing error, which the command reports.
    """
    room = room_of(values.get("room"), passed_by)
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
        import apsw  # noqa: F401, PLC0415 - the weight of the whole look; not before it is needed

        if room.startswith(FILES):
            from ..store.files.peek import is_surely_empty  # noqa: PLC0415
        else:
            from ..store.sqlite.peek import is_surely_empty  # noqa: PLC0415

    return is_surely_empty(room, mailbox, others)


def room_of(named: str | None, passed_by: list[tuple[str, str]]) -> str | None:
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


# A hook's first look into a chipset's state folder: is there surely no work and no nudge to tell an agent of?
#
# It reads at most three small files and loads next to nothing. What is unusual counts as "maybe", and is left to
# `chipset`, which reads the same files with care.

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


def _read(folder: str, name: str, rest: str = "") -> tuple[Mapping[str, Any], float]:
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


# The hooks' first look: who asks, where the mail is, and whether there is surely nothing to show.
#
# A host runs a hook at every prompt and waits for it, and mostly there is nothing: so this loads next to nothing,
# and whatever is unusual is left to `hook`. A hook takes two seconds at most, and never fails a session.

SECONDS = 2.0  # for all of it, where POSTROOM_HOOK_SECONDS does not say otherwise
HOOK_PROMPT = "hook prompt"
_LONGEST_REPLY = 64 * 2**20


def quick_hook(call: Call) -> str | None:
    """What to print when that is certain; None: run the command."""
    agent = agent_of(call.values)
    if not agent:
        return ""
    end_in_time()
    from ..hosts.input import PERHAPS, hear, text_of  # noqa: PLC0415 - only where there is somebody to hear for

    go_where_the_host_is(text_of(hear(PERHAPS), "cwd"))
    if call.name != HOOK_PROMPT or not call.values.keys() <= {"as", "room"}:
        return None
    return "" if _is_surely_nothing(call.values, agent) else None


def agent_of(values: Mapping[str, Any]) -> str:
    """Who asks. agent-inbox has a name of its own for it."""
    return str(values.get("as") or variable("POSTROOM_AGENT") or variable("INBOX_AGENT_ID"))


def socket_of(values: Mapping[str, Any]) -> str:
    """Where a daemon listens, if one is named. A room that was named for us beats what was said to agent-inbox."""
    if "room" in values:
        return ""
    theirs = "" if variable("POSTROOM_STORE") else variable("INBOX_SOCKET") or variable("INBOX_SOCKET_PATH")
    return variable("POSTROOM_SOCKET") or theirs


def folder_of(values: Mapping[str, Any]) -> str:
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


def _is_surely_nothing(values: Mapping[str, Any], agent: str) -> bool:

    if not is_plain_name(agent):
        return False
    if socket := socket_of(values):
        return socket_has_nothing(socket, agent)
    if folder := folder_of(values):
        return folder_has_nothing(folder, agent)
    return chosen_room_has_nothing(values, agent, [])


def folder_has_nothing(folder: str, agent: str) -> bool:
    from ..app.inbox_files import InboxFolder  # noqa: PLC0415 - only where there are such files
    from ..errors import PostroomError  # noqa: PLC0415 - loaded already

    try:
        return not InboxFolder(folder).peek(agent)
    except (OSError, PostroomError):  # whoever comes next tells
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
        try:  # noqa: SIM105 - light
            os.chdir(folder)
        except (OSError, ValueError):  # it is gone; where we are will do
            pass


# The first look of a host's hook: is there surely nothing to say? Then the session is marked, and that is all.
#
# A host calls between any two steps and waits, and mostly there is nothing. What is unusual is left to `hosts`.


def quick_host(call: Call) -> str | None:
    """What to print when that is certain: nothing. None: run the command."""
    args = call.host_input = hear(HOST)
    dialect, event = dialect_of(call.name), text_of(args, "hook_event_name")
    moment, is_waiter = dialect.EVENTS.get(event), "wait" in call.values
    if not event or (moment is None and not is_waiter):
        _tell_ignored(event)
        return ""  # nothing to us
    if is_waiter:
        return "" if _is_waited_for(call.name, args, moment) else None
    end_in_time()
    go_where_the_host_is(text_of(args, "cwd"))
    if args.get("agent_id"):
        return ""  # it is a helper's that works for the session, and the mail is not its own
    if moment not in {BETWEEN, PROMPT, STOP} or not call.values.keys() <= {"as", "room"}:
        return None
    session = find(host_of(call.name), text_of(args, "session_id"))
    is_ours = session is not None and is_going_on(session, name_said(call.values, dialect))
    if session is None or not is_ours or not _has_nothing(session, moment):
        return None
    holds = 0 if moment == PROMPT and is_typed(dialect, args) else None
    return "" if _is_marked(session, IDLE if moment == STOP else BUSY, holds) else None


def _is_waited_for(command: str, args: Mapping[str, Any], moment: str | None) -> bool:
    """Has the session a waiter already? One that starts may have that of an earlier life, which just ends."""
    session = find(host_of(command), text_of(args, "session_id"))
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
    from ..hosts.sessions import is_played  # noqa: PLC0415 - most hooks are for something

    if not event:
        end("postroom: no mail is shown: standard input held no JSON object with a hook_event_name\n", 0)
    elif is_played():
        end(f"postroom: nothing is done at the event {event[:80]!a}; docs/hosts.md says how to play host\n", 0)


def host_of(command: str) -> str:
    return command.removeprefix("hook ")


def dialect_of(command: str) -> Any:
    """The module that knows how this host speaks."""
    name = host_of(command)
    return __import__(f"{__package__.rpartition('.')[0]}.hosts.{name}", fromlist=[name])  # importlib weighs more


def name_said(values: Mapping[str, Any], dialect: Any) -> str:
    """Who the session's agent is, if anybody said so."""
    return agent_of(values) or (variable(dialect.AGENT) if dialect.AGENT else "")


def is_typed(dialect: Any, args: Mapping[str, Any]) -> bool:
    """Did somebody say something to the session? What wakes it comes as a prompt, too."""
    return not text_of(args, "prompt").startswith(dialect.UNTYPED)


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
