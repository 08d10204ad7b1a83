"""What was asked for: flags beat POSTROOM_*, which beats agent-inbox's INBOX_*."""

from __future__ import annotations

import ipaddress
import os
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from ..core import peers as core_peers
from ..core.authorize import OWNER
from ..core.peers import TOKENS, check_peer, check_pin, hashed, without_tokens
from ..environment import config_path, environment, first_variable, own_room, variable
from ..errors import BadStore, Invalid
from ..map.visit import Wants, checked
from ..model.message import DEFAULT_SCOPE
from ..model.names import check_scope, fold
from ..model.peer import Peer
from ..room import chosen_settings
from ..server.tls import fingerprint_of_pem, first_certificate
from ..settings import SERVICE_DEFAULTS, Settings
from ..store.address import file_of, place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..core.core import Core


DEFAULT_HTTP = "127.0.0.1:4650"
OFF, OPEN = "off", "open"
SOCKET = "postroom.sock"  # beside the room


class Options(Struct, frozen=True, kw_only=True):
    """A daemon, as it is asked for."""

    settings: Settings
    sockets: tuple[str, ...]  # whole paths: who is told of one may stand in another folder
    host: str = ""  # empty: no HTTP
    port: int = 0
    names: tuple[str, ...] = ()  # by which HTTP is called besides its address
    is_asked: bool = False  # was HTTP asked for, or is it the default?
    certificate: str = ""
    key: str = ""
    map: Literal["token", "open", "off"] = "token"  # who may connect to the MAP server
    inboxes: str = ""  # the folder of inbox.jsonl files; empty: none are written
    map_link: Wants | None = None  # to a MAP server
    peers: str = ""  # the file of peers; empty: there is none
    scope: str = DEFAULT_SCOPE  # of what agent-inbox's programs say without one
    log_level: str = "info"

    @property
    def is_loopback(self) -> bool:
        return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback


def options(
    store: str | None,
    params: dict[str, str],
    *,
    sockets: Sequence[str] = (),
    http: str | None = None,
    names: Sequence[str] = (),
    certificate: str = "",
    key: str = "",
    inboxes: str = "",
    map_link: Mapping[str, str] | None = None,
    map: str = "",
    peers: str = "",
    log_level: str = "info",
) -> Options:
    """Checked options."""
    settings = chosen_settings(store or inbox_store(), params | _inbox_system(), SERVICE_DEFAULTS)
    request = http or variable("POSTROOM_HTTP") or _inbox_http()
    host, port = _address(request or DEFAULT_HTTP)
    if bool(certificate) != bool(key):
        raise Invalid("needs both a certificate and its key", field="tls", hint="--tls-cert and --tls-key")
    chosen = Options(
        settings=settings,
        sockets=tuple(dict.fromkeys(os.path.abspath(path) for path in sockets or [_socket(settings)])),
        host=host,
        port=port,
        names=tuple(_name(name) for name in names),
        is_asked=bool(request),
        certificate=certificate,
        key=key,
        inboxes=_folder(inboxes or variable("POSTROOM_INBOXES") or variable("INBOX_DIR")),
        map_link=_map_link(map_link or {}),
        map=_map(map or variable("POSTROOM_MAP") or "token"),
        peers=_peers(peers or variable("POSTROOM_PEERS"), settings),
        scope=check_scope(first_variable("POSTROOM_SCOPE", "INBOX_SCOPE") or DEFAULT_SCOPE, "scope"),
        log_level=log_level,
    )
    if host and chosen.map == "open" and not chosen.is_loopback:
        raise Invalid(f"{host} can be reached from outside; there MAP needs tokens", field="map", hint="token")
    if host and not chosen.is_loopback and not certificate:
        hint = "--tls-cert and --tls-key, or listen at 127.0.0.1"
        raise Invalid(f"{host} can be reached from outside; that needs TLS", field="http", hint=hint)
    return chosen


def _map(word: str) -> Literal["token", "open", "off"]:
    if word not in {"token", "open", OFF}:
        raise Invalid(f"{word!a} says nothing about MAP", field="map", hint=f"token, open or {OFF}")
    return cast('Literal["token", "open", "off"]', word)


def _peers(named: str, settings: Settings) -> str:
    """The file that was named; for the user's own room, the one beside the config file. Another room does not take
    its peers from there: whom one room trusts is no peer of the next.
    """
    if named:
        return "" if named == OFF else os.path.abspath(named)
    file = file_of(settings.store)
    is_own = file is not None and os.path.abspath(file) == os.path.abspath(own_room(environment()))
    beside = os.path.join(os.path.dirname(config_path(environment())), NAME)
    return beside if is_own and os.path.lexists(beside) else ""


def _name(text: str) -> str:
    """A name as it stands in a Host header; with a port, where one is forwarded to ours."""
    name, colon, port = text.partition(":")
    is_name = bool(name) and text.isascii() and all(c.isalnum() or c in ".-" for c in name)
    if not is_name or (colon and not (port.isdigit() and 0 < int(port) < 65536)):
        hint = "such as mail.example.com, or 127.0.0.1:5650 for a port that is forwarded"
        raise Invalid(f"{text!a} is no name of a machine", field="http-name", hint=hint)
    return f"{name.lower()}:{int(port)}" if colon else name.lower()


def _folder(named: str) -> str:
    return os.path.abspath(named) if named else ""


def inbox_store() -> str | None:
    """agent-inbox names its database by a variable of its own."""
    path = variable("INBOX_SQLITE_PATH")
    if not path or variable("POSTROOM_STORE"):
        return None
    if _is_of_agent_inbox(path):
        text = f"{path} is agent-inbox's own database"
        hint = "unset INBOX_SQLITE_PATH or name another file; Postroom keeps mail in a room of its own"
        raise BadStore(text, field="INBOX_SQLITE_PATH", hint=hint)
    return f"sqlite:{os.path.abspath(path)}"


def _is_of_agent_inbox(path: str) -> bool:
    """Has it agent-inbox's tables?"""
    if not os.path.isfile(path):
        return False
    import apsw  # noqa: PLC0415 - only where that variable is set

    try:
        database = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        names = {str(name) for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        database.close()
    except apsw.Error:  # whatever it is, opening it as a room will tell
        return False
    return {"messages", "recipients", "conversations", "turns"} <= names


def _inbox_http() -> str:
    port = variable("INBOX_HTTP_PORT")
    if port == "0":
        return OFF
    return f"127.0.0.1:{port}" if port else ""


def _map_link(params: Mapping[str, str]) -> Wants | None:
    """What was asked for of a link to a MAP server: options beat POSTROOM_MAP_*, which beats INBOX_MAP_*."""
    theirs = _inbox_map_link()
    names = ("server", "scope", "name", "expose", "token", "method")
    ours = {name: variable(f"POSTROOM_MAP_{name.upper()}") for name in names}
    value = theirs | {name: text for name, text in ours.items() if text} | dict(params)
    return checked(Wants(**value)) if value.get("server") else None


def _inbox_map_link() -> dict[str, str]:
    """agent-inbox dials only where it is told to."""
    if variable("INBOX_MAP_ENABLED") != "true":
        return {}
    result = {
        "server": variable("INBOX_MAP_SERVER"),
        "scope": first_variable("INBOX_MAP_SCOPE", "INBOX_SCOPE"),
        "name": variable("INBOX_MAP_SYSTEM_ID"),
    }
    if not result["server"] and not variable("POSTROOM_MAP_SERVER"):
        raise Invalid("is true, and nothing names the server", field="INBOX_MAP_ENABLED", hint="INBOX_MAP_SERVER")
    return {name: text for name, text in result.items() if text}


def _inbox_system() -> dict[str, str]:
    named = variable("INBOX_SYSTEM_ID")
    return {"system": named} if named and not variable("POSTROOM_SYSTEM") else {}


def _socket(settings: Settings) -> str:
    named = variable("POSTROOM_SOCKET") or variable("INBOX_SOCKET_PATH")
    if named:
        return named
    place = place_of(settings.store)
    if place is None:
        raise Invalid("a room in memory has no place for a socket", field="socket", hint="--socket PATH")
    return os.path.join(os.path.dirname(place), SOCKET)


def _address(text: str) -> tuple[str, int]:
    if text == OFF:
        return "", 0
    host, colon, digits = text.rpartition(":")
    host = host.strip("[]") if colon else "127.0.0.1"
    if not digits.isascii() or not digits.isdecimal() or int(digits) > 65535:
        raise Invalid(f"{text!a} is no address", field="http", hint=f"such as {DEFAULT_HTTP}, or {OFF}")
    try:
        ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise Invalid(f"{host!a} is no address of this machine", field="http", hint=DEFAULT_HTTP) from None
    return host, int(digits)


# A file of peers, `peers.toml`: a table for each, applied when the daemon starts. The room keeps what is true.
#
# What the file says of a peer holds, and what it leaves out is as by default; whether somebody withdrew trust,
# what
# was pinned and which tokens there are stays as the room has it, unless the file says otherwise. A peer that
# stood
# in the file and is gone from it is removed, and so are all where there is no file any more. One that was added
# by
# hand stays.

NAME = "peers.toml"
_LARGEST = 1_000_000


class PeerTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a table of the file may hold. Secrets stand in files of their own, beside it."""

    url: str = ""
    auth: str = "bearer"  # which words there are is told by who checks the whole
    token_file: str = ""  # what we show there
    accept_file: str = ""  # what it shows here
    pin: str = ""
    certificate_file: str = ""
    exposure: str = "gateway"  # likewise
    tags: tuple[str, ...] = ()
    scopes: dict[str, tuple[str, ...]] = {}
    relays_for: tuple[str, ...] = ()
    relays_to: bool = False


_AS_SAID = ("url", "auth", "exposure", "tags", "scopes", "relays_for", "relays_to")


def apply(core: Core, path: str, ours: str) -> list[str]:
    """Make the room's peers those of the file; the names of those that changed. All of it, or nothing and why."""
    tables = _read(path) if path else {}
    folder = os.path.dirname(os.path.abspath(path))
    steps = {system: _step(system, params, folder) for system, params in tables.items()}
    made = [_checked(core, path, system, step, ours) for system, step in steps.items()]
    _check_apart(path, made, core_peers.all_peers(core))
    before = core_peers.all_peers(core)
    for system, step in steps.items():
        core_peers.change(core, OWNER, system, step, ours=ours)
    kept = {fold(system) for system in tables}
    for peer in before.values():
        if peer.of_file and fold(peer.system) not in kept:
            core_peers.remove(core, OWNER, peer.system)
    after = core_peers.all_peers(core)
    return sorted(name for name in before | after if before.get(name) != after.get(name))


def _read(path: str) -> dict[str, PeerTable]:
    import tomllib  # noqa: PLC0415 - most have no such file

    try:
        tables = tomllib.loads(_text(path, path, mask=0o022, wrong="others can write it", mode="644"))
    except ValueError as broken:
        raise Invalid(f"cannot be read: {broken}", field=path, hint="mend or remove it") from None
    return {system: _said(path, system, table) for system, table in tables.items()}


def _said(path: str, system: str, table: Any) -> PeerTable:
    if isinstance(table, dict) and "token" in table:
        hint = "token_file = a file that holds it, which only you can read"
        raise Invalid("a token does not stand here", field=f"{path}: {system}.token", hint=hint)
    try:
        return msgspec.convert(table, PeerTable)
    except msgspec.ValidationError as broken:
        hint = f"a table for each peer, with any of {', '.join(PeerTable.__struct_fields__)}"
        raise Invalid(str(broken), field=f"{path}: {system}", hint=hint) from None


def _step(system: str, params: PeerTable, folder: str) -> Callable[[Peer | None], Peer]:
    """From what is known of a peer to what the file says of it."""
    changes: dict[str, Any] = {name: value for name, value in asdict(params).items() if name in _AS_SAID}
    token = _secret(folder, system, params.token_file, "token_file")
    shows = _secret(folder, system, params.accept_file, "accept_file")
    pinned = _pinned(folder, system, params)
    changes |= {"token": token} if token else {}

    def step(held: Peer | None) -> Peer:
        known = held or Peer(system=system)
        known = known if params.auth in TOKENS else without_tokens(known)
        peer = replace(known, **changes, of_file=True)
        if shows and peer.proof != hashed(shows):
            peer = replace(peer, proof=hashed(shows), former_proof="", former_until=None)
        if pinned and pinned["pin"] != peer.pin:
            peer = replace(peer, **pinned, alert="")
        if peer.auth in TOKENS and not (peer.proof or peer.is_dialled):
            hint = f"accept_file = a file that holds it; postroom peers add {system} makes and shows one"
            raise Invalid("what does it show when it calls?", field="accept_file", hint=hint)
        return peer

    return step


def _pinned(folder: str, system: str, params: PeerTable) -> dict[str, str]:
    if params.certificate_file:
        place = _beside(folder, params.certificate_file)
        pem = _text(place, f"{system}.certificate_file", mask=0o022, wrong="others can write it", mode="644")
        pin = fingerprint_of_pem(pem, f"{system}.certificate_file")
        return {"pin": pin, "certificate": first_certificate(pem)}
    return {"pin": check_pin(params.pin, f"{system}.pin"), "certificate": ""} if params.pin else {}


def _secret(folder: str, system: str, name: str, key: str) -> str:
    if not name:
        return ""
    field = f"{system}.{key}"
    text = _text(_beside(folder, name), field, mask=0o077, wrong="others can read it", mode="600").strip()
    if len(text) < 16 or len(text.split()) != 1 or not text.isascii():
        raise Invalid("is no token", field=field, hint="one line of at least 16 ASCII characters without blanks")
    return text


def _text(path: str, field: str, *, mask: int, wrong: str, mode: str) -> str:
    """The text of a file that only its owner has a hand in."""
    try:
        with open(path, encoding="utf-8") as file:
            state = os.fstat(file.fileno())
            if state.st_uid not in {os.geteuid(), 0} or state.st_mode & mask:
                raise Invalid(f"{path}: {wrong}", field=field, hint=f"chmod {mode}, and own it")
            return file.read(_LARGEST)
    except (OSError, UnicodeDecodeError) as broken:
        raise Invalid(f"{path} cannot be read: {broken}", field=field, hint="mend or remove it") from None


def _beside(folder: str, name: str) -> str:
    return os.path.join(folder, os.path.expanduser(name))


def _check_apart(path: str, made: Sequence[Peer], held: Mapping[str, Peer]) -> None:
    """Two tables for one system would leave one of them unheeded, and two systems with one token could each be the
    other.
    """
    named: dict[str, Peer] = {}
    for peer in made:
        if fold(peer.system) in named:
            hint = "case does not count"
            raise Invalid("stands here twice", field=f"{path}: {peer.system}", hint=hint)
        named[fold(peer.system)] = peer
    shown: dict[str, str] = {}
    for peer in ({fold(peer.system): peer for peer in held.values()} | named).values():
        other = shown.setdefault(peer.proof, peer.system) if peer.proof else peer.system
        if other != peer.system:
            hint = "a token of its own for each system"
            raise Invalid(f"{other!r} shows the same token", field=f"{path}: {peer.system}.accept_file", hint=hint)


def _checked(core: Core, path: str, system: str, step: Callable[[Peer | None], Peer], ours: str) -> Peer:
    """Before anything is written. An error names the table as well."""
    try:
        return check_peer(step(core_peers.peer(core, system)), ours)
    except Invalid as wrong:
        wrong.field = f"{path}: {system}.{wrong.field}"
        raise
