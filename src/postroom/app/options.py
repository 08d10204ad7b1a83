"""The options of `postroom serve`, and its file of peers. Flags win over POSTROOM_*, which win over agent-inbox's
INBOX_* variables.

`peers.toml` has a table for each peer, applied when the server starts; the room holds the truth. Fields in the
file win, and fields it leaves out get their defaults; but withdrawn trust, pins and tokens stay as the room has
them unless the file says otherwise. A peer that was in the file and is gone from it is removed, and so are all of
them if there is no file any more. A peer that was added by hand stays.
"""

from __future__ import annotations

import ipaddress
import os
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from ..core import peers as core_peers
from ..core.authorize import OWNER
from ..core.peers import TOKENS, check_peer, check_pin, without_tokens
from ..environment import config_path, environment, first_variable, own_room, variable
from ..errors import BadStore, Invalid
from ..map.link import LinkOptions
from ..model.codec import token_hash
from ..model.message import DEFAULT_SCOPE
from ..model.names import check_scope, fold
from ..model.peer import Peer
from ..server.http import HttpAddress
from ..server.tls import fingerprint_of_pem, first_certificate
from ..settings import SERVICE_DEFAULTS, Settings, chosen_settings
from ..store.address import file_of, local_place

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..core.core import Core


DEFAULT_HTTP = "127.0.0.1:4650"
OFF, OPEN = "off", "open"
SOCKET = "postroom.sock"  # in the folder of the room


class Options(HttpAddress, frozen=True, kw_only=True):
    """The checked options of a server, and its address for HTTP."""

    settings: Settings
    sockets: tuple[str, ...]  # absolute paths: the programs that use them may run in another folder
    is_asked: bool = False  # was HTTP requested, or is it the default?
    map: Literal["token", "open", "off"] = "token"  # who may connect to the MAP server
    inboxes: str = ""  # the folder of inbox.jsonl files; empty: none are written
    map_link: LinkOptions | None = None  # to a MAP server
    peers: str = ""  # the file of peers; empty: there is none
    scope: str = DEFAULT_SCOPE  # of calls by agent-inbox's programs that name none
    log_level: str = "info"


# The options of the command, each with the variables that set it, too: the first that is set wins.
FLAGS: dict[str, tuple[str, ...]] = {
    "sockets": ("POSTROOM_SOCKET", "INBOX_SOCKET_PATH"),
    "http": ("POSTROOM_HTTP",),
    "names": (),
    "certificate": (),
    "key": (),
    "map": ("POSTROOM_MAP",),
    "inboxes": ("POSTROOM_INBOXES", "INBOX_DIR"),
    **{f"map_{name}": (f"POSTROOM_MAP_{name.upper()}",) for name in LinkOptions.__struct_fields__},
    "peers": ("POSTROOM_PEERS",),
    "log_level": (),
}


def options(store: str | None, params: dict[str, str], **flags: Any) -> Options:
    """Return the options by flags, environment and defaults, checked."""
    flagged = {name: flags.get(name) or first_variable(*variables) for name, variables in FLAGS.items()}
    settings = chosen_settings(store or inbox_store(), params | _inbox_system(), SERVICE_DEFAULTS)
    sockets = flagged["sockets"] or _socket(settings)
    request = flagged["http"] or _inbox_http()
    host, port = _address(request or DEFAULT_HTTP)
    if bool(flagged["certificate"]) != bool(flagged["key"]):
        raise Invalid("needs both a certificate and its key", field="tls", hint="--tls-cert and --tls-key")
    link = _inbox_map_link() | {
        name: text for name in LinkOptions.__struct_fields__ if (text := flagged[f"map_{name}"])
    }
    chosen = Options(
        settings=settings,
        sockets=tuple(dict.fromkeys(map(os.path.abspath, [sockets] if isinstance(sockets, str) else sockets))),
        host=host,
        port=port,
        names=tuple(_name(name) for name in flagged["names"]),
        is_asked=bool(request),
        certificate=flagged["certificate"],
        key=flagged["key"],
        inboxes=os.path.abspath(flagged["inboxes"]) if flagged["inboxes"] else "",
        map_link=LinkOptions(**link) if link.get("server") else None,
        map=_map(flagged["map"] or "token"),
        peers=_peers(flagged["peers"], settings),
        scope=check_scope(first_variable("POSTROOM_SCOPE", "INBOX_SCOPE") or DEFAULT_SCOPE, "scope"),
        log_level=flagged["log_level"] or "info",
    )
    if host and chosen.map == "open" and not chosen.is_loopback:
        raise Invalid(
            f"{host} can be reached from outside; there MAP needs tokens", field="map", hint="set map to token"
        )
    if host and not chosen.is_loopback and not chosen.certificate:
        raise Invalid(
            f"{host} can be reached from outside; that needs TLS",
            field="http",
            hint="--tls-cert and --tls-key, or listen at 127.0.0.1",
        )
    return chosen


def _map(word: str) -> Literal["token", "open", "off"]:
    if word not in {"token", "open", OFF}:
        raise Invalid(f"{word!a} is not a mode of MAP", field="map", hint=f"token, open or {OFF}")
    return cast('Literal["token", "open", "off"]', word)


def _peers(named: str, settings: Settings) -> str:
    """Return the file of peers: the one that is named, else, for the user's own room, that next to the config
    file. Other rooms do not use that one: a peer that one room trusts is not a peer of another.
    """
    if named:
        return "" if named == OFF else os.path.abspath(named)
    file = file_of(settings.store)
    is_own = file is not None and os.path.abspath(file) == os.path.abspath(own_room(environment()))
    default = os.path.join(os.path.dirname(config_path(environment())), NAME)
    return default if is_own and os.path.lexists(default) else ""


def _name(text: str) -> str:
    """Return a name as a Host header has it; with a port, if another port is forwarded to ours."""
    name, colon, port = text.partition(":")
    is_name = bool(name) and text.isascii() and all(c.isalnum() or c in ".-" for c in name)
    if not is_name or (colon and not (port.isdigit() and 0 < int(port) < 65536)):
        raise Invalid(
            f"{text!a} is not a host name",
            field="http-name",
            hint="such as mail.example.com, or 127.0.0.1:5650 for a port that is forwarded",
        )
    return f"{name.lower()}:{int(port)}" if colon else name.lower()


def inbox_store() -> str | None:
    """Return the room at the path in agent-inbox's variable for its database, if that is set."""
    path = variable("INBOX_SQLITE_PATH")
    if not path or variable("POSTROOM_STORE"):
        return None
    if _is_of_agent_inbox(path):
        raise BadStore(
            f"{path} is agent-inbox's own database",
            field="INBOX_SQLITE_PATH",
            hint="unset INBOX_SQLITE_PATH or name another file; Postroom keeps mail in a room of its own",
        )
    return f"sqlite:{os.path.abspath(path)}"


def _is_of_agent_inbox(path: str) -> bool:
    """Return whether a database has agent-inbox's tables."""
    if not os.path.isfile(path):
        return False
    import apsw  # noqa: PLC0415 - only where that variable is set

    try:
        database = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        names = {str(name) for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        database.close()
    except apsw.Error:  # opening it as a room will raise a better error
        return False
    return {"messages", "recipients", "conversations", "turns"} <= names


def _inbox_http() -> str:
    port = variable("INBOX_HTTP_PORT")
    if port == "0":
        return OFF
    return f"127.0.0.1:{port}" if port else ""


def _inbox_map_link() -> dict[str, str]:
    """Return agent-inbox's variables for a link; it connects only if INBOX_MAP_ENABLED is true."""
    if variable("INBOX_MAP_ENABLED") != "true":
        return {}
    variables = {
        "server": variable("INBOX_MAP_SERVER"),
        "scope": first_variable("INBOX_MAP_SCOPE", "INBOX_SCOPE"),
        "name": variable("INBOX_MAP_SYSTEM_ID"),
    }
    if not variables["server"] and not variable("POSTROOM_MAP_SERVER"):
        raise Invalid("is true, but no server is named", field="INBOX_MAP_ENABLED", hint="set INBOX_MAP_SERVER")
    return {name: text for name, text in variables.items() if text}


def _inbox_system() -> dict[str, str]:
    named = variable("INBOX_SYSTEM_ID")
    return {"system": named} if named and not variable("POSTROOM_SYSTEM") else {}


def _socket(settings: Settings) -> str:
    place = local_place(settings.store)
    if place is None:
        raise Invalid("a room in memory has no place for a socket", field="socket", hint="--socket PATH")
    return os.path.join(os.path.dirname(place), SOCKET)


def _address(text: str) -> tuple[str, int]:
    if text == OFF:
        return "", 0
    host, colon, digits = text.rpartition(":")
    host = host.strip("[]") if colon else "127.0.0.1"
    if not digits.isascii() or not digits.isdecimal() or int(digits) > 65535:
        raise Invalid(f"{text!a} is not an address", field="http", hint=f"such as {DEFAULT_HTTP}, or {OFF}")
    try:
        ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise Invalid(f"{host!a} is not an IP address", field="http", hint=DEFAULT_HTTP) from None
    return host, int(digits)


# -- the file of peers

NAME = "peers.toml"
_MAX_BYTES = 1_000_000


class PeerTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table of one peer. Secrets are in files of their own."""

    url: str = ""
    auth: str = "bearer"  # checked by `check_peer`
    token_file: str = ""  # the token we show there
    accept_file: str = ""  # the token it shows here
    pin: str = ""
    certificate_file: str = ""
    exposure: str = "gateway"  # checked by `check_peer`
    tags: tuple[str, ...] = ()
    scopes: dict[str, tuple[str, ...]] = {}
    relays_for: tuple[str, ...] = ()
    relays_to: bool = False


_COPIED_FIELDS = ("url", "auth", "exposure", "tags", "scopes", "relays_for", "relays_to")


def apply(core: Core, path: str, ours: str) -> list[str]:
    """Make the room's peers those of the file, all or nothing. Return the names of those that changed."""
    tables = _read(path) if path else {}
    folder = os.path.dirname(os.path.abspath(path))
    steps = {system: _step(system, params, folder) for system, params in tables.items()}
    made = [_checked(core, path, system, step, ours) for system, step in steps.items()]
    _check_distinct(path, made, core_peers.all_peers(core))
    before = core_peers.all_peers(core)
    for system, step in steps.items():
        core_peers.change(core, system, step, ours=ours)
    kept = {fold(system) for system in tables}
    for peer in before.values():
        if peer.of_file and fold(peer.system) not in kept:
            core_peers.RemovePeer(system=peer.system).run(core, OWNER)
    after = core_peers.all_peers(core)
    return sorted(name for name in before | after if before.get(name) != after.get(name))


def _read(path: str) -> dict[str, PeerTable]:
    import tomllib  # noqa: PLC0415 - most have no such file

    try:
        tables = tomllib.loads(_text(path, path, mask=0o022, wrong="others can write it", mode="644"))
    except ValueError as broken:
        raise Invalid(f"cannot be read: {broken}", field=path, hint="correct or remove the file") from None
    return {system: _table(path, system, table) for system, table in tables.items()}


def _table(path: str, system: str, table: Any) -> PeerTable:
    if isinstance(table, dict) and "token" in table:
        raise Invalid(
            "a token may not be written in this file",
            field=f"{path}: {system}.token",
            hint="token_file = a file that holds it, which only you can read",
        )
    try:
        return msgspec.convert(table, PeerTable)
    except msgspec.ValidationError as broken:
        raise Invalid(
            str(broken),
            field=f"{path}: {system}",
            hint=f"a table for each peer, with any of {', '.join(PeerTable.__struct_fields__)}",
        ) from None


def _step(system: str, params: PeerTable, folder: str) -> Callable[[Peer | None], Peer]:
    """Return the change from the peer as the room has it to the peer as the file has it."""
    changes: dict[str, Any] = {name: value for name, value in asdict(params).items() if name in _COPIED_FIELDS}
    token = _secret(folder, system, params.token_file, "token_file")
    shows = _secret(folder, system, params.accept_file, "accept_file")
    pinned = _pinned(folder, system, params)
    changes |= {"token": token} if token else {}

    def step(held: Peer | None) -> Peer:
        known = held or Peer(system=system)
        known = known if params.auth in TOKENS else without_tokens(known)
        peer = replace(known, **changes, of_file=True)
        if shows and peer.proof != token_hash(shows):
            peer = replace(peer, proof=token_hash(shows), former_proof="", former_until=None)
        if pinned and pinned["pin"] != peer.pin:
            peer = replace(peer, **pinned, alert="")
        if peer.auth in TOKENS and not (peer.proof or peer.is_dialled):
            raise Invalid(
                "no token is set for this peer to show",
                field="accept_file",
                hint=f"set accept_file to a file with the token; postroom peers add {system} makes and shows one",
            )
        return peer

    return step


def _pinned(folder: str, system: str, params: PeerTable) -> dict[str, str]:
    if params.certificate_file:
        file = _path_of(folder, params.certificate_file)
        pem = _text(file, f"{system}.certificate_file", mask=0o022, wrong="others can write it", mode="644")
        pin = fingerprint_of_pem(pem, f"{system}.certificate_file")
        return {"pin": pin, "certificate": first_certificate(pem)}
    return {"pin": check_pin(params.pin, f"{system}.pin"), "certificate": ""} if params.pin else {}


def _secret(folder: str, system: str, name: str, key: str) -> str:
    if not name:
        return ""
    field = f"{system}.{key}"
    text = _text(_path_of(folder, name), field, mask=0o077, wrong="others can read it", mode="600").strip()
    if len(text) < 16 or len(text.split()) != 1 or not text.isascii():
        raise Invalid(
            "is not a token", field=field, hint="one line of at least 16 ASCII characters without blanks"
        )
    return text


def _text(path: str, field: str, *, mask: int, wrong: str, mode: str) -> str:
    """Return the text of a file; refuse one that is not ours, or that others may write (or read, by `mask`)."""
    try:
        with open(path, encoding="utf-8") as file:
            # fstat of the open file, not stat of its path: the file may be replaced in between.
            state = os.fstat(file.fileno())
            if state.st_uid not in {os.geteuid(), 0} or state.st_mode & mask:
                raise Invalid(
                    f"{path}: {wrong}",
                    field=field,
                    hint=f"chmod {mode} {path}; the file must belong to you or root",
                )
            return file.read(_MAX_BYTES)
    except (OSError, UnicodeDecodeError) as broken:
        raise Invalid(f"{path} cannot be read: {broken}", field=field, hint="correct or remove the file") from None


def _path_of(folder: str, name: str) -> str:
    return os.path.join(folder, os.path.expanduser(name))


def _check_distinct(path: str, made: Sequence[Peer], held: Mapping[str, Peer]) -> None:
    """Refuse two tables for one system, and two systems with one token: each could pose as the other."""
    named: dict[str, Peer] = {}
    for peer in made:
        if fold(peer.system) in named:
            raise Invalid(
                "this system is listed twice",
                field=f"{path}: {peer.system}",
                hint="names that differ only in case are the same",
            )
        named[fold(peer.system)] = peer
    shown: dict[str, str] = {}
    for peer in ({fold(peer.system): peer for peer in held.values()} | named).values():
        other = shown.setdefault(peer.proof, peer.system) if peer.proof else peer.system
        if other != peer.system:
            raise Invalid(
                f"{other!r} shows the same token",
                field=f"{path}: {peer.system}.accept_file",
                hint="a token of its own for each system",
            )


def _checked(core: Core, path: str, system: str, step: Callable[[Peer | None], Peer], ours: str) -> Peer:
    """Return the peer as it will be, checked before anything is written. An error names the table, too."""
    try:
        return check_peer(step(core_peers.peer(core, system)), ours)
    except Invalid as wrong:
        wrong.field = f"{path}: {system}.{wrong.field}"
        raise
