"""What was asked for: flags beat POSTROOM_*, which beats agent-inbox's INBOX_*."""

from __future__ import annotations

import ipaddress
import os
from typing import TYPE_CHECKING, Literal, cast

from msgspec import Struct

from ..errors import BadStore, Invalid
from ..map_link.wants import Wants, checked
from ..model.message import DEFAULT_SCOPE
from ..model.names import check_scope
from ..room import chosen_settings
from ..settings import SERVICE_DEFAULTS, Settings
from ..store.opening import file_of, place_of
from ..whereabouts import config_path, environment, first_variable, own_room, variable
from .peers_file import NAME as PEERS_FILE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    said: dict[str, str],
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
    settings = chosen_settings(store or inbox_store(), said | _inbox_system(), SERVICE_DEFAULTS)
    asked = http or variable("POSTROOM_HTTP") or _inbox_http()
    host, port = _address(asked or DEFAULT_HTTP)
    if bool(certificate) != bool(key):
        raise Invalid("needs both a certificate and its key", field="tls", hint="--tls-cert and --tls-key")
    chosen = Options(
        settings=settings,
        sockets=tuple(dict.fromkeys(os.path.abspath(path) for path in sockets or [_socket(settings)])),
        host=host,
        port=port,
        names=tuple(_name(name) for name in names),
        is_asked=bool(asked),
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
    beside = os.path.join(os.path.dirname(config_path(environment())), PEERS_FILE)
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
        told = f"{path} is agent-inbox's own database"
        hint = "unset INBOX_SQLITE_PATH or name another file; Postroom keeps mail in a room of its own"
        raise BadStore(told, field="INBOX_SQLITE_PATH", hint=hint)
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


def _map_link(said: Mapping[str, str]) -> Wants | None:
    """What was asked for of a link to a MAP server: options beat POSTROOM_MAP_*, which beats INBOX_MAP_*."""
    theirs = _inbox_map_link()
    names = ("server", "scope", "name", "expose", "token", "method")
    ours = {name: variable(f"POSTROOM_MAP_{name.upper()}") for name in names}
    given = theirs | {name: text for name, text in ours.items() if text} | dict(said)
    return checked(Wants(**given)) if given.get("server") else None


def _inbox_map_link() -> dict[str, str]:
    """agent-inbox dials only where it is told to."""
    if variable("INBOX_MAP_ENABLED") != "true":
        return {}
    told = {
        "server": variable("INBOX_MAP_SERVER"),
        "scope": first_variable("INBOX_MAP_SCOPE", "INBOX_SCOPE"),
        "name": variable("INBOX_MAP_SYSTEM_ID"),
    }
    if not told["server"] and not variable("POSTROOM_MAP_SERVER"):
        raise Invalid("is true, and nothing names the server", field="INBOX_MAP_ENABLED", hint="INBOX_MAP_SERVER")
    return {name: text for name, text in told.items() if text}


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
