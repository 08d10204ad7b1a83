"""Whether a peer may be kept as it is said: names, addresses, permissions, and nothing that is not enforced."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from ..errors import Invalid
from ..model.message import same_name
from ..model.names import check_name, check_scope
from ..model.peer import AUTHS, EVERYWHERE, EXPOSURES
from ..model.values import check_label, check_line

if TYPE_CHECKING:
    from ..model.peer import Peer

PIN_RULE = "sha256: and 64 hex digits, as postroom peers trust shows it"
TOKENS = frozenset({"bearer", "api-key"})  # proofs that are a token
_HEX = re.compile(r"[0-9a-f]{64}")


def check_peer(peer: Peer, ours: str = "") -> Peer:
    """The peer as it may be kept, or an error that names what is wrong."""
    system = check_name(peer.system, "system")
    if ours and same_name(system, ours):
        raise Invalid(f"{system!r} is what we are called ourselves", field="system", hint="name the other system")
    _check_words(peer)
    url = check_url(peer.url) if peer.url else ""
    _check_auth(peer, url)
    _check_exposure(peer)
    for name in peer.relays_for:
        if ours and same_name(name, ours):
            raise Invalid(f"{name!r} is what we are called ourselves", field="relays-for", hint="leave it out")
        if not (peer.is_mount and name == EVERYWHERE):  # only who mounted a room leads it everywhere
            check_name(name, "relays-for")
    for scope, allowed in peer.scopes.items():
        _check_permission(scope, allowed)
    if peer.auth == "mtls" and peer.pin and not (peer.is_dialled or peer.certificate):
        hint = "postroom peers trust SYSTEM --certificate FILE"
        raise Invalid(
            "one that calls us is asked for its certificate, which must be known", field="pin", hint=hint
        )
    return replace(peer, url=url, pin=check_pin(peer.pin, "pin") if peer.pin else "")


def check_pin(value: Any, field: str) -> str:
    """A fingerprint, also as openssl writes it."""
    text = check_line(value, field, 200)
    pin = text.lower().replace("sha256 fingerprint=", "").replace(":", "").removeprefix("sha256")
    if not _HEX.fullmatch(pin):
        raise Invalid(f"{text!a} is no fingerprint", field=field, hint=PIN_RULE)
    return f"sha256:{pin}"


def check_url(url: Any) -> str:
    """Where a peer is reached; without a path, at the one that Postroom serves."""
    text = check_line(url, "url", 2000)
    hint = "such as wss://mail.example.com:4650/map"
    try:
        split = urlsplit(text)
        host, _ = split.hostname or "", split.port
    except ValueError:
        raise Invalid(f"{text!a} is no address", field="url", hint=hint) from None
    if split.scheme not in {"ws", "wss"} or not host or " " in text:
        raise Invalid(f"{text!a} is no address of a WebSocket", field="url", hint=hint)
    if split.username is not None or split.query or split.fragment:
        told = "holds more than a place"
        raise Invalid(told, field="url", hint="a token is given by --token-file, never in an address")
    if split.scheme == "ws" and not is_loopback(host):
        told = f"{host} is another machine; that needs TLS"
        raise Invalid(told, field="url", hint="wss://, or ws:// to a tunnel that ends at 127.0.0.1")
    return text if split.path else f"{text}/map"


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_words(peer: Peer) -> None:
    if peer.auth not in AUTHS:
        hint = f"{', '.join(AUTHS)}; others, such as did:wba, would not be enforced"
        raise Invalid(f"there is no proof {peer.auth!a} here", field="auth", hint=hint)
    if peer.exposure not in EXPOSURES:
        raise Invalid(f"there is no exposure {peer.exposure!a}", field="exposure", hint=", ".join(EXPOSURES))
    if peer.token:
        token = check_label(peer.token, "token", 500)
        if not token.isascii():
            raise Invalid("is no token", field="token", hint="one line of ASCII, as it was shown over there")


def _check_auth(peer: Peer, url: str) -> None:
    if peer.is_mount:
        return
    if peer.auth not in TOKENS and (peer.token or peer.proof):
        told = f"a token says nothing where auth is {peer.auth}"
        raise Invalid(told, field="token", hint="no token; or auth bearer or api-key")
    if peer.auth == "none" and url and not is_loopback(urlsplit(url).hostname or ""):
        told = "none is for a peer on this machine that cannot show a token"
        raise Invalid(told, field="auth", hint="bearer, api-key or mtls")
    if peer.auth == "mtls" and url and not url.startswith("wss:"):
        raise Invalid("mtls needs TLS", field="url", hint="wss://")
    if peer.auth in TOKENS and url and not peer.token:
        told = "what do we show there?"
        hint = "--token-file FILE, or - for standard input, with what postroom peers add showed over there"
        raise Invalid(told, field="token", hint=hint)


def _check_exposure(peer: Peer) -> None:
    for tag in peer.tags:
        check_label(tag, "tag")
    if peer.exposure == "tagged" and not peer.tags:
        raise Invalid("tagged needs a tag", field="tag", hint="--tag NAME; a scope counts as one")
    if peer.tags and peer.exposure != "tagged":
        hint = "--exposure tagged, or no tags"
        raise Invalid(f"tags say nothing where exposure is {peer.exposure}", field="tag", hint=hint)


def _check_permission(scope: str, allowed: tuple[str, ...]) -> None:
    hint = "OURS=SYSTEM, OURS=SYSTEM/SCOPE or OURS=*"
    if scope != EVERYWHERE:
        check_scope(scope, "scope")
    if not allowed:
        raise Invalid(f"scope {scope!r} is allowed nothing", field="scope", hint=f"leave it out, or say {hint}")
    for one in allowed:
        system, slash, theirs = one.partition("/")
        if one != EVERYWHERE:
            check_name(system, "scope")
        if slash:
            check_scope(theirs, "scope")
