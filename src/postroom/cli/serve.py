"""The commands of the server: serve, tokens for its callers, and mcp, which a host starts."""

from __future__ import annotations

import gc
import json
import os
import sys
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from .. import __version__
from ..app import app
from ..app.app import has_mcp, run, serve
from ..app.options import FLAGS, inbox_store, options
from ..environment import AUTH_TOKEN, first_variable, how_to_install, variable, whole_path
from ..hosts.sessions import session_around_us
from ..mcp.sdk import need_sdk
from ..model.names import check_agent, check_scope
from ..server.client import SocketClient
from ..settings import chosen_settings
from .answer import printable
from .command import LIMIT, Option, command
from .context import is_own, note, program, typed_program, whole_address
from .errors import Usage
from .output import listing, record, says, secret

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..app.options import Options
    from ..server.visits import Visits
    from .answer import Answer, Screen
    from .context import Context
    from .output import Column


@command(
    "serve",
    Option(
        "--socket",
        name="sockets",
        help="where to listen; beside the room by default",
        many=True,
        metavar="PATH",
        complete="files",
    ),
    Option("--http", help="address and port, or off; 127.0.0.1:4650 by default", metavar="HOST:PORT"),
    Option(
        "--http-name",
        name="names",
        help="a name by which HTTP is called besides its address, with a port where one is forwarded",
        many=True,
        metavar="NAME",
    ),
    Option(
        "--tls-cert",
        name="certificate",
        help="a certificate, to be reached from outside",
        metavar="FILE",
        complete="files",
    ),
    Option("--tls-key", name="key", help="its key", metavar="FILE", complete="files"),
    Option(
        "--map",
        help="who may connect by MAP: with a token (by default), anybody on this machine (open), nobody (off)",
        kind="word",
        choices=("token", "open", "off"),
    ),
    Option("--inboxes", help="write inbox.jsonl files into this folder", metavar="FOLDER", complete="files"),
    Option("--map-server", help="link the room to a MAP server", metavar="URL"),
    Option("--map-scope", help="the scope in which our agents are there", metavar="NAME"),
    Option("--map-name", help="the name of the link's own agent there; the room's by default", metavar="NAME"),
    Option(
        "--map-expose",
        help="which of our agents are shown there: all (the default), none, or names with commas",
        metavar="NAMES",
    ),
    Option(
        "--peers",
        help="a file with the other systems that are peers of this room, or off; by default peers.toml beside the config"
        " file, for your own room alone",
        metavar="FILE",
        complete="files",
    ),
    Option(
        "--log-level",
        help="the lowest level that is logged; info by default",
        kind="word",
        choices=("debug", "info", "warning", "error"),
    ),
    about="Serves until it is stopped by Ctrl-C, SIGTERM or SIGHUP, and runs the maintenance of the room"
    " meanwhile. There is one daemon per room and socket; a second one is refused, and the error names the first."
    " The socket is for you alone. HTTP and WebSocket need a token (postroom tokens create), on this machine"
    " too. The log goes to stderr.\n\nINBOX_SOCKET_PATH, INBOX_HTTP_PORT, INBOX_SQLITE_PATH and INBOX_DIR are"
    " honoured; POSTROOM_SOCKET, POSTROOM_HTTP, POSTROOM_STORE, POSTROOM_INBOXES and the options take"
    " precedence. INBOX_MAP_ENABLED, INBOX_MAP_SERVER, INBOX_MAP_SCOPE and INBOX_MAP_SYSTEM_ID likewise;"
    " POSTROOM_MAP_TOKEN is shown to the server (POSTROOM_MAP_METHOD: bearer or api-key).",
    examples=(
        ("postroom serve", "the room of this project, or your own"),
        ("postroom serve --socket ~/.claude/agent-inbox/inbox.sock --http off", "in the place of agent-inbox"),
    ),
    json="pid room sockets http mcp dashboard map inboxes map_link",
)
def run_serve(context: Context) -> Iterator[Answer]:
    """Serve until stopped; answer once, when everything listens."""
    chosen = options(context.get("room"), dict(context.get("set", ())), **context.passed_options(*FLAGS))
    app.start(chosen.log_level)

    def report(where: dict[str, Any], visits: Visits) -> None:
        link = ""
        if where["http"] is not None and sys.stdout.isatty():  # never into a file or the journal
            link = visits.link(visits.open(chosen.settings.human, is_proven=False)[0])
        view = partial(_open, chosen=chosen, link=link)
        sys.stdout.write(context.shown(where, view).text(context.screen))
        sys.stdout.flush()

    gc.set_threshold(2000, 10, 10)  # a server runs long enough to collect garbage
    run(serve(chosen, report))
    return iter(())


def _open(screen: Screen, data: Mapping[str, Any], *, chosen: Options, link: str) -> str:
    needs = f"off; it needs the extra: {how_to_install('serve')}" if chosen.host else ""
    look = f"{link} (once, within a minute, to look; to answer: postroom dashboard)"
    opened: dict[str, Column] = {
        "Room": lambda _, data: whole_address(data["room"]),
        "Known as": "system",
        "Socket": "sockets",
        "HTTP": lambda _, data: data["http"] or needs,
        "MCP": "mcp",
        "MAP": "map",
        "Inbox files": "inboxes",
        "Dashboard": lambda _, data: (look if link else "postroom dashboard opens it") if data["http"] else "",
        "Links to": lambda _, data: (
            f"{data['map_link']} (the log says when the link is up)" * bool(data["map_link"])
        ),
    }
    text = "The post room is open. Ctrl-C closes it.\n\n"
    return text + record(opened)(screen, data) + _next(data, chosen) + _paste(data)


def _next(data: Mapping[str, Any], chosen: Options) -> str:
    """Return what to type in another terminal, in any folder. A room in memory cannot be reached so."""
    if data["room"].startswith("memory:"):
        return ""
    room = "" if is_own(data["room"]) else f" --room {quote(whole_address(data['room']))}"

    def line(command: str) -> str:
        return f"{typed_program()} {command}{room}"

    lines = [line("send bob --as ann --body Hello"), line("check --as bob")]
    if data.get("http"):
        lines += [line("tokens create --agent carl"), _curl(data["http"], chosen), line("check --as ann")]
    return "\nIn another terminal, type:\n" + "".join(f"  {line}\n" for line in lines)


def _curl(url: str, chosen: Options) -> str:
    """Return a command that sends a letter by HTTP, as the agent of the token."""
    if chosen.certificate:
        # A certificate holds names and not the address at which we listen; often nobody else has signed it.
        name = chosen.names[0].partition(":")[0] if chosen.names else "THIS-HOST"
        url = f"--cacert {quote(os.path.abspath(chosen.certificate))} https://{name}:{urlsplit(url).port}"
    call = '{"to": "ann", "body": "Hello by HTTP"}'
    text = "-H 'Authorization: Bearer THE-TOKEN' -H 'Content-Type: application/json'"
    return f"curl {url}/v1/send {text} -d '{call}'"


def _paste(data: Mapping[str, Any]) -> str:
    """Return what to paste into an agent's configuration."""
    socket = data["sockets"][0]
    theirs = f"For a program that knows agent-inbox: INBOX_SOCKET_PATH={quote(socket)}\n"
    if not has_mcp():
        return f"\nFor agents with MCP, install the extra: {how_to_install('mcp')}\n{theirs}"
    command, *before = program()
    server = {"command": command, "args": [*before, "mcp", "--socket", socket, "--as", "NAME"]}
    config = json.dumps({"mcpServers": {"postroom": server}})
    text = "For an agent with MCP, paste this into its configuration, with a name of its own:"
    return f"\n{text}\n  {config}\n{theirs}"


# -- tokens


@command(
    "tokens create",
    Option(
        "--scope",
        help="what it is good for: read, send, work, manage; all by default. operator, which is everything, is for a"
        " token without --agent",
        many=True,
        name="scopes",
        metavar="WORD",
    ),
    Option("--note", help="a note for people, such as the user of the token", metavar="TEXT"),
    verb="tokens.CreateToken",
    shape=lambda _, made: {"token": made.text, "about": made.token},
    view=secret(
        "token",
        "For {about.agent}.",
        "It is not shown again; keep it where only its user can read it.",
    ),
    about="Only a hash of it is kept. From now on the agent is sealed: over the socket, nobody acts for it without"
    " a token, and callers without a token act as the one agent they name and cannot manage the room. The"
    " library and these commands, which open the room itself, are not affected.",
    examples=(
        ("postroom tokens create --agent coder", "for everything that is coder's"),
        ("postroom tokens create --scope operator", "for everything"),
    ),
    json="token about",
)
def run_create_token(context: Context) -> Answer:
    """Make a token; one for an operator only where no agent was meant."""
    if context.get("as") and not context.get("agent"):
        raise Usage(
            "names the caller, not whose token it is",
            field="--as",
            hint=f"--agent {context.get('as')} makes a token for that agent; without --as it is an operator's token",
        )
    return context.answer()


command(
    "tokens",
    LIMIT,
    verb="tokens.ListTokens",
    view=listing(
        "tokens",
        {
            "ID": "id",
            "AGENT": lambda _, token: token["agent"] or "(operator)",
            "GOOD FOR": "scopes",
            "STATE": lambda _, token: "revoked" if token["revoked_at"] else "live",
            "NOTE": "note",
        },
        "No tokens yet.",
        first="tokens create --agent NAME",
    ),
    examples=(("postroom tokens", "who may call"),),
    looks=True,
)
command(
    "tokens revoke",
    Option("ID", name="id", help="as postroom tokens shows it", required=True),
    verb="tokens.RevokeToken",
    shape=lambda _, gone: {"about": gone},
    view=says("{about.id} is revoked: it is good for nothing now."),
    about="Its agent stays sealed: over the socket, nobody acts for it without another token, until tokens unseal.",
    examples=(('postroom tokens revoke "$TOKEN_ID"', "it leaked"),),
    json="about",
    looks=True,
)
command(
    "tokens unseal",
    verb="tokens.Unseal",
    view=says("{agent} is not sealed: on the socket, any caller may act for it."),
    about="Its tokens stay valid; tokens revoke ends them. Unsealing twice is no error.",
    examples=(("postroom tokens unseal --agent coder", "it needs no token any more"),),
    looks=True,
)


# -- the MCP server

AGENT = ("POSTROOM_AGENT", "INBOX_AGENT_ID")
SCOPE = ("POSTROOM_SCOPE", "INBOX_SCOPE")


@command(
    "mcp",
    Option(
        "--socket",
        help="ask the daemon behind this socket instead of opening the room; else POSTROOM_SOCKET, else INBOX_SOCKET_PATH",
        metavar="PATH",
        complete="files",
        against=("room",),
    ),
    Option(
        "--scope",
        help="the team of letters and agents for which none is named; else POSTROOM_SCOPE, else INBOX_SCOPE",
        metavar="NAME",
        complete="scopes",
    ),
    Option("--config", help="start nothing; print what a host's configuration needs to start it", kind="flag"),
    about="Hosts such as Claude Code, Codex and Gemini CLI start it and talk to it; [the page about it](mcp.md)"
    " has the lines for each. It opens the room itself, or asks a daemon, and ends when the host hangs up."
    " Needs the extra mcp.\n\nA tool call that names no agent acts as the"
    " agent of --as, POSTROOM_AGENT or INBOX_AGENT_ID, else as the agent of the session whose host started"
    " the server. A daemon that requires tokens needs POSTROOM_AUTH_TOKEN. Nothing but JSON-RPC goes to"
    " standard output.",
    examples=(("postroom mcp --as coder --config", "what to put into a host's configuration"),),
    json="name command args env",
)
def run_mcp(context: Context) -> Iterator[Answer]:
    """Serve MCP until the host closes the connection. Standard output carries the protocol and nothing else."""
    agent, scope = _chosen(context, "as", AGENT), _chosen(context, "scope", SCOPE)
    if agent:
        check_agent(agent, "--as")
    if scope:
        check_scope(scope, "--scope")
    if context.get("config"):
        need_sdk()  # reported here: a host would only report a failed server
        yield context.shown(_config(context), _shown)
        if "as" not in context.values:
            text = "where the host has no hooks of Postroom, the agent must be named: --as NAME, or POSTROOM_AGENT"
            note(context.call, text)
        return
    need_sdk()
    path = _socket(context)
    if not path and "room" not in context.values and (theirs := inbox_store()):
        context.values["room"] = theirs
    room = None if path else context.room  # opened first: loading the SDK takes a second
    from ..mcp import server  # noqa: PLC0415 - the SDK

    gc.freeze()  # loaded modules are never collected
    gc.set_threshold(2000, 10, 10)  # a server runs long enough to collect garbage
    if room is not None:
        server.run(server.serve_room(room, __version__, agent=lambda: agent or _of_the_session(), scope=scope))
    else:
        call = SocketClient(path, token=variable(AUTH_TOKEN)).call
        server.run(server.serve(call, __version__, agent=lambda: agent or _of_the_session(), scope=scope))


def _of_the_session() -> str | None:
    """Return the agent of the session whose host started this process."""
    session = session_around_us()
    return session.agent if session else None


def _socket(context: Context) -> str:
    """Return the server's socket, where one is named. --room takes precedence over the variables."""
    if "room" in context.values:
        return ""
    theirs = "" if variable("POSTROOM_STORE") else variable("INBOX_SOCKET_PATH")
    path: str = context.get("socket") or variable("POSTROOM_SOCKET") or theirs
    return path


def _chosen(context: Context, option: str, variables: tuple[str, ...]) -> str | None:
    text: str = context.get(option) or first_variable(*variables)
    return text or None


def _config(context: Context) -> dict[str, Any]:
    """Return the configuration of the server. Paths are whole: a host may use another folder and PATH."""
    command, *before = program()
    whole = {"room": lambda room: whole_address(chosen_settings(room, {}).store), "socket": whole_path}
    args = [*before, "mcp"]
    for option in ("as", "room", "socket", "scope"):
        if values := context.get(option):
            args += [f"--{option}", printable(whole[option](values) if option in whole else values)]
    return {"name": "postroom", "command": printable(command), "args": args, "env": {}}


def _shown(_screen: Screen, data: Mapping[str, Any]) -> str:
    server = {name: data[name] for name in ("command", "args")}
    return json.dumps({"mcpServers": {data["name"]: server}}, indent=2, ensure_ascii=True) + "\n"
