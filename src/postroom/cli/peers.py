"""The commands about other systems: who is a peer, what each may, and proof of who they are."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial
from getpass import getpass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from .. import service
from ..daemon.holding import served_at
from ..errors import Busy, Invalid, PostroomError
from ..ipc.client import SocketDesk
from ..model.address import system_of
from ..model.codec import to_plain
from ..model.peer import shown
from ..policy.trust import speaks_for
from ..tls import certificate_at, fingerprint_of_pem, first_certificate
from ..whereabouts import AUTH_TOKEN, variable
from . import peer_views as views
from .answers import Answer
from .exits import NOT_NOW, Usage
from .notes import note
from .text import STDIN, read_source

if TYPE_CHECKING:
    from ..model.peer import Peer
    from ..room import Room
    from .context import Context


def run_peers_add(context: Context) -> Answer:
    said = context.given("url", "auth", "exposure")
    lists = {name: word for name, word in _LISTS.items() if word in context.values}
    said |= {name: tuple(one for one in context.get(word) if one) for name, word in lists.items()}
    if "scope" in context.values:
        said["scopes"] = _scopes(context.get("scope"))
    if "relays_to" in context.values:
        said["relays_to"] = context.get("relays_to") == "yes"
    if "token_file" in context.values:
        said["token"] = _token(context)
    before, token, peer = context.act_in_room(partial(_add, context.get("system"), said))
    if token and not context.screen.tables:
        note(context.call, views.how_to_bring(context.room.system, peer.system, views.WHERE))
    changed = None if before is None else _changed(before, peer)
    former = {name: _plain(before)[name] for name in changed or () if before is not None and name != "token"}
    data = {"peer": _plain(peer), "token": token or None, "changed": changed, "former": former}
    return Answer(context.name, data, partial(views.added, context.room.system))


_LISTS = {"tags": "tag", "relays_for": "relays_for"}
_SAID = ("url", "auth", "token", "exposure", "tags", "scopes", "relays_for", "relays_to")


def _token(context: Context) -> str:
    """Its line, whatever stands below it. At a terminal it is typed unseen."""
    source = context.get("token_file")
    is_typed = source == STDIN and sys.stdin is not None and sys.stdin.isatty()
    text = _typed(context.get("system")) if is_typed else read_source(context, source, "--token-file")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise Invalid("holds no token", field="--token-file", hint="what peers add showed over there")
    return lines[0]


def _typed(system: str) -> str:
    try:
        return getpass(f"The token that {system!a} showed for us: ")
    except EOFError:  # Ctrl-D
        return ""


def _add(system: str, said: dict[str, Any], room: Room) -> tuple[Peer | None, str, Peer]:
    before = service.peers.peer(room._office, system)
    return before, *service.peers.add(room._office, room.principal, system, said, ours=room.system)


def _changed(before: Peer, after: Peer) -> list[str]:
    return [name for name in _SAID if getattr(before, name) != getattr(after, name)]


def _scopes(rules: list[tuple[str, str] | None]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for ours, theirs in filter(None, rules):
        found[ours] = (*found.get(ours, ()), theirs)
    return found


def run_peers_list(context: Context) -> Answer:
    found = service.peers.everyone(context.room._office, context.room.principal)
    links = _links(context) if found else {}
    waiting, stranded = service.elsewhere.waiting_by_way(context.room._office)
    peers = [_plain(peer) | _now(peer, links, waiting) for peer in found]
    told = {"system": context.room.system, "peers": peers, "stranded": stranded}
    return Answer(context.name, told, views.listed)


def _now(peer: Peer, links: dict[str, Any], waiting: dict[str, int]) -> dict[str, Any]:
    return {"link": links.get(peer.system), "waiting": waiting.get(peer.system, 0)}


def _links(context: Context) -> dict[str, Any]:
    """How they are, where the room is served. A daemon that does not say so is none that could be asked."""
    with suppress(PostroomError):
        return {link.pop("system"): link for link in _ask(context, "links")["links"]}
    return {}


def why_it_waits(context: Context, mailbox: str) -> str | None:
    """What keeps a letter for another system here, though there is a way: that the link is down, and why."""
    office = context.room._office
    if served_at(context.room.settings.store) is None:
        return "waits: nobody serves this room"
    peer = service.elsewhere.peer_towards(office, service.peers.all_peers(office), system_of(mailbox))
    link = None if peer is None else _links(context).get(peer.system)
    if peer is None or link is None or link["state"] == "connected":
        return None
    return f"waits: {peer.system} is {link['state']}" + (f", {link['problem']}" if link["problem"] else "")


def run_peers_ping(context: Context) -> Answer:
    if "system" in context.values:
        told = _ask(context, "ping_peer", system=_known(context).system)
        return Answer(context.name, told, views.pinged, code=0 if told["answers"] else NOT_NOW)
    found = service.peers.everyone(context.room._office, context.room.principal)
    every = [_ask(context, "ping_peer", system=peer.system) for peer in found]
    is_well = all(told["answers"] for told in every)
    return Answer(context.name, {"peers": every}, views.all_pinged, code=0 if is_well else NOT_NOW)


def _ask(context: Context, action: str, **said: Any) -> Any:
    """Of the daemon, which alone has links."""
    path = served_at(context.room.settings.store)
    if path is None:
        raise Busy("nobody serves this room, so it has no links to others", field="room", hint="postroom serve")
    return SocketDesk(path, token=variable(AUTH_TOKEN), patience=0.5).ask(action, said)


def run_peers_show(context: Context) -> Answer:
    peer = _known(context)
    waiting, _ = service.elsewhere.waiting_by_way(context.room._office)
    told = _plain(peer) | _now(peer, _links(context), waiting)
    return Answer(context.name, {"peer": told}, views.whole)


def run_peers_trust(context: Context) -> Answer:
    ways = [name for name in ("pin", "certificate", "withdraw") if name in context.values]
    if len(ways) > 1 or ("withdraw" in ways and context.get("rotate")):
        raise Usage("says two things at once", field=f"--{ways[-1]}", hint="one of them")
    before = _known(context)
    office, caller = context.room._office, context.room.principal
    said = {"trusted": False} if "withdraw" in ways else _trusted(context, before)
    after = service.peers.change(office, caller, before.system, lambda held: replace(held or before, **said))
    token = None
    if context.get("rotate"):
        token, after = service.peers.rotate(office, caller, before.system)
        if not context.screen.tables:
            note(context.call, views.how_to_bring(context.room.system, after.system))
    former = before.pin if before.pin and before.pin != after.pin else None
    return Answer(context.name, {"peer": _plain(after), "token": token, "former_pin": former}, views.trusted)


def _trusted(context: Context, before: Peer) -> dict[str, Any]:
    """What is trusted from now on: the certificate that is named, else the one that is shown where we call."""
    if "pin" in context.values:
        pin = service.peer_rules.check_pin(context.get("pin"), "--pin")
        kept = before.certificate if pin == before.pin else ""
        return {"trusted": True, "pin": pin, "certificate": kept, "alert": ""}
    if "certificate" in context.values:
        return _pinned(read_source(context, context.get("certificate"), "--certificate"), "--certificate")
    if context.get("rotate"):
        return {"trusted": True}
    if before.url.startswith("wss:"):
        return _pinned(certificate_at(before.url), "url")
    if before.alert:
        hint = f"--certificate FILE, or --pin {before.alert} if that is its operator's"
        raise Invalid("it calls us, so its certificate cannot be looked at", field="--pin", hint=hint)
    return {"trusted": True}


def _pinned(pem: str, field: str) -> dict[str, Any]:
    pin = fingerprint_of_pem(pem, field)
    return {"trusted": True, "pin": pin, "certificate": first_certificate(pem), "alert": ""}


def run_peers_remove(context: Context) -> Answer:
    office = context.room._office
    gone = service.peers.remove(office, context.room.principal, context.get("system"))
    _, stranded = service.elsewhere.waiting_by_way(office)
    lost = {system: many for system, many in stranded.items() if speaks_for(gone, system)}
    return Answer(context.name, {"removed": gone.system, "waiting": lost}, views.removed)


def _known(context: Context) -> Peer:
    service.authorize.authorize(context.room.principal, "peers")
    return service.peers.known_peer(context.room._office, context.get("system"))


def _plain(peer: Peer) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(shown(peer))
    return plain
