"""The hooks' first look: who asks, where the mail is, and whether there is surely nothing to show.

A host runs a hook at every prompt and waits for it, and mostly there is nothing: so this loads next to nothing,
and whatever is unusual is left to `hook`. A hook takes two seconds at most, and never fails a session.
"""

from __future__ import annotations

import _thread
import os
import time

from ..whereabouts import variable

TYPE_CHECKING = False  # what `typing` says too, without its weight
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from .parse import Call

SECONDS = 2.0  # for all of it, where POSTROOM_HOOK_SECONDS does not say otherwise
PROMPT = "hook prompt"
_FIRST_WORD = 50  # milliseconds for a host that has not yet said what it wants to say
_MOST_SAID = 256 * 1024  # bytes of it
_LONGEST_REPLY = 64 * 2**20


def quick_hook(call: Call) -> str | None:
    """What to print when that is certain; None: run the command."""
    agent = agent_of(call.values)
    if not agent:
        return ""
    _thread.start_new_thread(_end_in_time, ())
    _go_where_the_host_is()
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


def exchange(path: str, lines: bytes, replies: int) -> bytes:
    """Say some lines to a daemon and hear as many replies, on one connection."""
    from _socket import AF_UNIX, SOCK_STREAM, socket  # noqa: PLC0415 - `socket` itself is heavy

    line = socket(AF_UNIX, SOCK_STREAM)
    try:
        line.settimeout(seconds())
        line.connect(path)
        line.sendall(lines)
        heard = b""
        while heard.count(b"\n") < replies:
            piece = line.recv(2**16)
            if not piece or len(heard) > _LONGEST_REPLY:
                raise ConnectionResetError(f"the post room at {path} hung up")
            heard += piece
        return heard
    finally:
        line.close()


def _is_surely_nothing(values: Mapping[str, Any], agent: str) -> bool:
    from .glance import is_plain_name, room_of  # noqa: PLC0415 - loaded already

    if not is_plain_name(agent):
        return False
    if socket := socket_of(values):
        return _socket_has_nothing(socket, agent)
    if folder := folder_of(values):
        from ..daemon.inbox_files import InboxFolder  # noqa: PLC0415 - only where there are such files

        return not InboxFolder(folder).peek(agent)
    path = room_of(values.get("room"), [])
    if path is None:
        return False
    from .light import Uninterrupted  # noqa: PLC0415

    with Uninterrupted():
        import apsw  # noqa: F401, PLC0415 - the weight of the whole look

        from ..store.sqlite.glance import is_surely_empty  # noqa: PLC0415

    return is_surely_empty(path, agent)


def _socket_has_nothing(path: str, agent: str) -> bool:
    asked = f'{{"action":"check_inbox","agentId":"{agent}","unreadOnly":true,"limit":1}}\n'
    try:
        return exchange(path, asked.encode(), 1) == b'{"ok":true,"messages":[]}\n'
    except OSError:  # whoever comes next tells
        return False


def seconds() -> float:
    """How long a session waits for its mail at most."""
    said = variable("POSTROOM_HOOK_SECONDS")
    return min(float(said), 600.0) if said.isascii() and said.isdecimal() else SECONDS


def _end_in_time() -> None:
    time.sleep(seconds())
    os.write(2, b"postroom: the mail could not be looked at in %g s; it is all still there\n" % seconds())
    os._exit(0)


# -- what the host says


def _go_where_the_host_is() -> None:
    """A host tells its working folder; the room of the project is looked for from there."""
    folder = said_by_host(_heard(), "cwd")
    if folder.startswith("/"):
        try:  # noqa: SIM105 - light
            os.chdir(folder)
        except OSError:  # it is gone; where we are will do
            pass


def _heard() -> bytes:
    """What is on standard input, if anything is; never waits for somebody who says nothing."""
    if os.isatty(0):
        return b""
    from select import POLLIN, poll  # noqa: PLC0415 - only for hooks

    ready = poll()
    ready.register(0, POLLIN)
    said = b""
    while len(said) < _MOST_SAID and ready.poll(_FIRST_WORD):
        piece = os.read(0, 2**16)
        if not piece:
            break
        said += piece
    return said


def said_by_host(said: bytes, name: str) -> str:
    """A text of the host's JSON. Inside a text a quote stands behind a backslash, so no prompt can look like a
    field; and what was cut off behind does no harm.
    """
    _, found, rest = said.partition(b'"%s"' % name.encode())
    value = rest.lstrip(b" \t\r\n").removeprefix(b":").lstrip(b" \t\r\n") if found else b""
    if not value.startswith(b'"'):
        return ""
    end = 1
    while end < len(value) and value[end : end + 1] != b'"':
        end += 2 if value[end : end + 1] == b"\\" else 1
    if end >= len(value):
        return ""
    text = value[: end + 1]
    if b"\\" not in text:
        return text[1:-1].decode("utf-8", "surrogateescape")
    import json  # noqa: PLC0415 - few folders need it

    return str(json.loads(text))
