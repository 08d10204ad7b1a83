"""The commands of the service: open it, and say who may call."""

from __future__ import annotations

import gc
import json
import sys
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from .. import service
from ..daemon import logs
from ..daemon.app import serve
from ..daemon.extras import MCP, SERVE, has_mcp, run
from ..daemon.options import options
from ..model.codec import to_plain
from .answers import Answer
from .escape import one_line
from .places import is_own, program, typed_program, whole_address
from .tables import facts, hint, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..service.tokens import Token
    from .answers import Screen
    from .context import Context


def run_serve(context: Context) -> Iterator[Answer]:
    """Answers once, when everything listens; then serves until it is stopped."""
    chosen = options(
        context.get("room"),
        dict(context.get("set", ())),
        sockets=context.get("socket", ()),
        http=context.get("http"),
        names=context.get("http_name", ()),
        certificate=context.get("tls_cert", ""),
        key=context.get("tls_key", ""),
        inboxes=context.get("inboxes", ""),
        map_link={
            name: said for name in ("server", "scope", "name", "expose") if (said := context.get(f"map_{name}"))
        },
        map=context.get("map", ""),
        peers=context.get("peers", ""),
        log_level=context.get("log_level", "info"),
    )
    logs.start(chosen.log_level)

    def told(where: dict[str, Any]) -> None:
        view = partial(_open, lacks_http=bool(chosen.host) and where["http"] is None)
        sys.stdout.write(Answer(context.name, where, view).text(context.screen))
        sys.stdout.flush()

    gc.set_threshold(2000, 10, 10)  # this one runs for long
    run(serve(chosen, told))
    return iter(())


def _open(screen: Screen, data: Mapping[str, Any], *, lacks_http: bool) -> str:
    pairs = [("Room", whole_address(data["room"])), ("Known as", data["system"])]
    pairs += [("Socket", path) for path in data["sockets"]]
    pairs += [
        (name, data[key])
        for name, key in (
            ("HTTP", "http"),
            ("MCP", "mcp"),
            ("MAP", "map"),
            ("Inbox files", "inboxes"),
        )
        if data.get(key)
    ]
    if data.get("map_link"):
        pairs.append(("Links to", f"{data['map_link']} (the log says when the link is up)"))
    if lacks_http:
        pairs.append(("HTTP", f"off; it needs the extra: {SERVE}"))
    return "The post room is open. Ctrl-C closes it.\n\n" + facts(screen, pairs) + _next(data) + _paste(data)


def _next(data: Mapping[str, Any]) -> str:
    """What to type in another terminal, whatever folder that is in. A room in memory cannot be reached so."""
    if data["room"].startswith("memory:"):
        return ""
    room = "" if is_own(data["room"]) else f" --room {quote(whole_address(data['room']))}"

    def line(command: str) -> str:
        return f"{typed_program()} {command}{room}"

    lines = [line("send bob --as ann --body Hello"), line("check --as bob")]
    if data.get("http"):
        lines += [line("token create --agent carl"), _curl(_from_here(data["http"])), line("check --as ann")]
    return "\nIn another terminal, type:\n" + "".join(f"  {line}\n" for line in lines)


def _from_here(url: str) -> str:
    """Who listens everywhere is called by the name in its certificate: nobody is called `0.0.0.0`."""
    return url.replace("//0.0.0.0", "//THIS-HOST").replace("//[::]", "//THIS-HOST")


def _curl(url: str) -> str:
    """A letter by HTTP, from carl, who has a token by now."""
    call = '{"jsonrpc": "2.0", "id": 1, "method": "mail/send", "params": {"to": "ann", "body": "Hello by HTTP"}}'
    told = "-H 'Authorization: Bearer THE-TOKEN' -H 'Content-Type: application/json'"
    return f"curl {url} {told} -d '{call}'"


def _paste(data: Mapping[str, Any]) -> str:
    """What an agent's configuration needs."""
    socket = data["sockets"][0]
    theirs = f"For a program that knows agent-inbox: INBOX_SOCKET_PATH={quote(socket)}\n"
    if not has_mcp():
        return f"\nFor agents with MCP, install the extra: {MCP}\n{theirs}"
    command, *before = program()
    server = {"command": command, "args": [*before, "mcp", "--socket", socket, "--as", "NAME"]}
    config = json.dumps({"mcpServers": {"postroom": server}})
    told = "For an agent with MCP, paste this into its configuration, with a name of its own:"
    return f"\n{told}\n  {config}\n{theirs}"


# -- tokens


def run_token_create(context: Context) -> Answer:
    agent, scopes, words = context.get("agent"), context.get("scope"), context.get("note", "")
    office, caller = context.room._office, context.room.principal
    text, token = service.tokens.create(office, caller, agent, scopes, words)
    return Answer(context.name, {"token": text, "about": _plain(token)}, _created)


def run_token_list(context: Context) -> Answer:
    found = service.tokens.everyone(context.room._office, context.room.principal)
    return Answer(context.name, {"tokens": [_plain(token) for token in found]}, _list)


def run_token_revoke(context: Context) -> Answer:
    gone = service.tokens.revoke(context.room._office, context.room.principal, context.get("id"))
    return Answer(context.name, {"about": _plain(gone)}, _revoked)


def run_token_unseal(context: Context) -> Answer:
    office = context.room._office
    agent = service.tokens.unseal(office, context.room.principal, context.get("agent"))
    return Answer(context.name, {"agent": agent, "sealed": service.tokens.sealed(office)}, _unsealed)


def _plain(token: Token) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(asdict(token))
    del plain["hash"]
    return plain


def _created(_screen: Screen, data: Mapping[str, Any]) -> str:
    whose = data["about"]["agent"] or "an operator"
    told = f"For {one_line(whose)}. It is not shown again; keep it where only its user can read it.\n"
    return f"{data['token']}\n\n{told}"


def _list(screen: Screen, data: Mapping[str, Any]) -> str:
    if not data["tokens"]:
        return "No tokens yet.\n" + hint(screen, "token create --agent NAME")
    rows = [
        (
            t["id"],
            t["agent"] or "(operator)",
            ", ".join(t["scopes"]),
            "revoked" if t["revoked_at"] else "live",
            t["note"],
        )
        for t in data["tokens"]
    ]
    return table(screen, ("ID", "AGENT", "GOOD FOR", "STATE", "NOTE"), rows)


def _row(token: Mapping[str, Any]) -> tuple[str, ...]:
    state = "revoked" if token["revoked_at"] else "live"
    return token["id"], token["agent"] or "(operator)", ", ".join(token["scopes"]), state, token["note"]


def _revoked(_screen: Screen, data: Mapping[str, Any]) -> str:
    return f"{data['about']['id']} is worth nothing now.\n"


def _unsealed(_screen: Screen, data: Mapping[str, Any]) -> str:
    return f"{one_line(data['agent'])} is not sealed: on the socket, whoever says so speaks for it.\n"
