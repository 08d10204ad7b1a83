"""The command that hosts start for an agent: mail as an MCP server."""

from __future__ import annotations

import gc
import json
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..daemon.options import inbox_store
from ..hosts.whose import session_around_us
from ..ipc.client import SocketDesk
from ..mcp.sdk import need_sdk
from ..model.names import check_agent, check_scope
from ..room import chosen_settings
from ..whereabouts import AUTH_TOKEN, first_variable, variable
from .answers import Answer, sayable
from .exits import Usage
from .notes import note

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .answers import Screen
    from .context import Context

AGENT = ("POSTROOM_AGENT", "INBOX_AGENT_ID")
SCOPE = ("POSTROOM_SCOPE", "INBOX_SCOPE")


def run_mcp(context: Context) -> Iterator[Answer]:
    """Serves until the host hangs up, and has nothing else to say: standard output is the wire."""
    agent, scope = _said(context, "as", AGENT), _said(context, "scope", SCOPE)
    if agent:
        check_agent(agent, "--as")
    if scope:
        check_scope(scope, "--scope")
    if context.get("config"):
        need_sdk()  # a host would only say that it failed
        yield Answer(context.name, _config(context), _shown)
        if "as" not in context.values:
            told = "where the host has no hooks of Postroom, the agent must be named: --as NAME, or POSTROOM_AGENT"
            note(context.call, told)
        return
    need_sdk()
    path = _socket(context)
    if not path and "room" not in context.values and (theirs := inbox_store()):
        context.values["room"] = theirs
    room = None if path else context.room  # what is wrong with it is told before a second is spent on loading
    from ..mcp import stdio  # noqa: PLC0415 - the SDK

    gc.freeze()  # what was loaded stays
    gc.set_threshold(2000, 10, 10)  # this one runs for long
    if room is not None:
        stdio.run(stdio.serve_room(room, __version__, agent=lambda: agent or _of_the_session(), scope=scope))
    else:
        call = SocketDesk(path, token=variable(AUTH_TOKEN)).call
        stdio.run(stdio.serve(call, __version__, agent=lambda: agent or _of_the_session(), scope=scope))


def _of_the_session() -> str | None:
    """The agent of the session whose host started us."""
    session = session_around_us()
    return session.agent if session else None


def _socket(context: Context) -> str:
    """The daemon's socket, where one is named. A room that is named by hand beats the variables."""
    if "room" in context.values and "socket" in context.values:
        raise Usage("a daemon's socket and a room: which of them?", field="--socket")
    if "room" in context.values:
        return ""
    theirs = "" if variable("POSTROOM_STORE") else variable("INBOX_SOCKET_PATH")
    path: str = context.get("socket") or variable("POSTROOM_SOCKET") or theirs
    return path


def _said(context: Context, option: str, variables: tuple[str, ...]) -> str | None:
    said: str = context.get(option) or first_variable(*variables)
    return said or None


def _config(context: Context) -> dict[str, Any]:
    """As most hosts want it. All paths are whole: a host may start it in another folder, with another PATH."""
    from .places import program, whole_address, whole_path  # noqa: PLC0415 - a server needs none of it

    command, *before = program()
    whole = {"room": lambda room: whole_address(chosen_settings(room, {}).store), "socket": whole_path}
    args = [*before, "mcp"]
    for option in ("as", "room", "socket", "scope"):
        if said := context.get(option):
            args += [f"--{option}", sayable(whole[option](said) if option in whole else said)]
    return {"name": "postroom", "command": sayable(command), "args": args, "env": {}}


def _shown(_screen: Screen, data: Mapping[str, Any]) -> str:
    told = {name: data[name] for name in ("command", "args")}
    return json.dumps({"mcpServers": {data["name"]: told}}, indent=2, ensure_ascii=True) + "\n"
