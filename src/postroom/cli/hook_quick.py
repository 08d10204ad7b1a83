"""The hooks' first look: who asks, where the mail is, and whether there is surely nothing to show.

A host runs a hook at every prompt and waits for it, and mostly there is nothing: so this loads next to nothing,
and whatever is unusual is left to `hook`. A hook takes two seconds at most, and never fails a session.
"""

from __future__ import annotations

import _thread
import os
import time

from ..whereabouts import AUTH_TOKEN, variable

TYPE_CHECKING = False  # what `typing` says too, without its weight
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from .parse import Call

SECONDS = 2.0  # for all of it, where POSTROOM_HOOK_SECONDS does not say otherwise
PROMPT = "hook prompt"
_LONGEST_REPLY = 64 * 2**20


def quick_hook(call: Call) -> str | None:
    """What to print when that is certain; None: run the command."""
    agent = agent_of(call.values)
    if not agent:
        return ""
    end_in_time()
    from ..hosts.heard import PERHAPS, hear, text_of  # noqa: PLC0415 - only where there is somebody to hear for

    go_where_the_host_is(text_of(hear(PERHAPS), "cwd"))
    if call.name != PROMPT or not call.values.keys() <= {"as", "room"}:
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
        heard = bytearray()
        while replies > 0:
            piece = line.recv(2**20)
            if not piece or len(heard) > _LONGEST_REPLY:
                raise ConnectionResetError(f"the post room at {path} hung up")
            heard += piece
            replies -= piece.count(b"\n")  # each piece is looked at once: replies may be long
        return bytes(heard)
    finally:
        line.close()


def _is_surely_nothing(values: Mapping[str, Any], agent: str) -> bool:
    from .glance import chosen_room_has_nothing, is_plain_name  # noqa: PLC0415 - loaded already

    if not is_plain_name(agent):
        return False
    if socket := socket_of(values):
        return socket_has_nothing(socket, agent)
    if folder := folder_of(values):
        return folder_has_nothing(folder, agent)
    return chosen_room_has_nothing(values, agent, [])


def folder_has_nothing(folder: str, agent: str) -> bool:
    from ..daemon.inbox_files import InboxFolder  # noqa: PLC0415 - only where there are such files
    from ..errors import PostroomError  # noqa: PLC0415 - loaded already

    try:
        return not InboxFolder(folder).peek(agent)
    except (OSError, PostroomError):  # whoever comes next tells
        return False


def socket_has_nothing(path: str, agent: str) -> bool:
    asked = f'{{"action":"check_inbox","agentId":"{agent}","unreadOnly":true,"limit":1}}\n'
    token = variable(AUTH_TOKEN)
    if token and not (token.isascii() and token.isprintable() and '"' not in token and "\\" not in token):
        return False
    shown = f'{{"action":"authenticate","token":"{token}"}}\n' if token else ""
    try:
        heard = exchange(path, (shown + asked).encode(), 2 if token else 1)
        return heard.splitlines()[-1] == b'{"ok":true,"messages":[]}'
    except OSError:  # whoever comes next tells
        return False


def seconds() -> float:
    """How long a session waits for its mail at most."""
    said = variable("POSTROOM_HOOK_SECONDS")
    return min(float(said), 600.0) if said.isascii() and said.isdecimal() and said.strip("0") else SECONDS


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
