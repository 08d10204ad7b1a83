"""Peers: the other systems that may exchange mail with this room, their proofs, invitations, and our own name.

The peers are the allow list: a system that is not among them is refused. A peer proves itself by a token that was
made here, shown once and kept as a hash, or by a certificate, which is pinned. The token that this room shows to a
peer is kept in plain text, in the room alone. After a rotation the old token is good until the new one was used
for the first time, or for a day. A mounted mail folder is a peer, too.

The name of this room among others is the configured one, else the name of the MAP server it is linked to, else a
name that was made once. It is kept for ever; only a name that was made while waiting for a server's name, and was
not yet announced to any other system, is replaced by that.
"""

from __future__ import annotations

import base64
import os
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..errors import BadStore, Conflict, Invalid, Missing, NameTaken, NotAllowed
from ..model.codec import encode, is_same_secret, token_hash
from ..model.message import same_name
from ..model.names import check_agent, check_name, check_scope, fold
from ..model.peer import AUTHS, EVERYWHERE, EXPOSURES, Exposure, Peer
from ..model.record import EVERYONE, PEER, SYSTEM
from ..model.values import check_label, check_line
from ..store.address import check_usable, is_there, place_of
from .core import change_record, commit, find_record, find_value, put_record, values_of
from .verb import Verb, verb

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from urllib.parse import SplitResult

    from ..store.protocol import Write
    from .authorize import Principal
    from .core import Core


PREFIX = "prp"
GRACE = timedelta(days=1)  # how long a former token is good beside the new one, at most
_LONGEST = 500  # characters of a credential; a longer one is refused unread
_NO_PROOF = "0" * 64


def all_peers(core: Core) -> dict[str, Peer]:
    """Return all peers by name, in the order of their names."""
    found = sorted(values_of(core, PEER, Peer).values(), key=lambda one: fold(one.system))
    return {one.system: one for one in found}


@verb("peers", list[Peer], under="peers", action="peers", writes=False)
class ListPeers(Verb, kw_only=True):
    """Return all peers without their secrets, in the order of their names."""

    def run(self, core: Core, _principal: Principal) -> list[Peer]:
        return list(all_peers(core).values())


@verb("peer", Peer, under="peer", action="peers", writes=False, local=True)
class GetPeer(Verb, kw_only=True):
    """Return one peer with the token that it gets from us."""

    system: Annotated[str, "the name of the other system"]

    def run(self, core: Core, _principal: Principal) -> Peer:
        return known_peer(core, self.system)


def peer(core: Core, system: str) -> Peer | None:
    """Return the peer of this name, in upper or lower case; None if there is none."""
    return find_value(core, PEER, fold(system), Peer)


def known_peer(core: Core, system: str) -> Peer:
    """Return the peer of this name, or raise Missing."""
    found = peer(core, check_name(system, "system"))
    if found is None:
        raise Missing(f"there is no peer {system!r}", field="system", hint="postroom peers shows all")
    return found


def change(core: Core, system: str, step: Callable[[Peer | None], Peer], *, ours: str = "") -> Peer:
    """Change a peer in one commit: `step` gets the peer as it is (None: it is new).

    `ours` is the name of this room, which cannot be its own peer.
    """

    def checked(before: Peer | None) -> Peer:
        after = step(before)
        # Without its former tokens, if it proves itself in another way now.
        is_old = before is not None and (before.token, before.proof) == (after.token, after.proof)
        return check_peer(without_tokens(after) if is_old and after.auth not in TOKENS else after, ours)

    return change_record(core, PEER, fold(check_name(system, "system")), Peer, checked)


class NewPeer(Struct):
    """A peer after a change, and a new token that it is to show here, which cannot be shown again."""

    token: str  # empty if it has one already or needs none
    peer: Peer


@verb("add_peer", NewPeer, action="peers", local=True)
class AddPeer(Verb, kw_only=True):
    """Add a peer, or change these fields of one."""

    system: Annotated[str, "the name of the other system"]
    fields: Annotated[dict[str, Any], "the fields of the peer to set"]
    ours: Annotated[str, "the name of this room, which cannot be its own peer; as it is called by default"] = ""

    def run(self, core: Core, _principal: Principal) -> NewPeer:
        fresh, fields = fresh_token(), self.fields
        if fields.get("exposure", "tagged") != "tagged":
            fields = {"tags": (), **fields}  # tags mean nothing with another exposure

        def step(before: Peer | None) -> Peer:
            after = replace(before, **fields) if before else Peer(system=self.system, **fields)
            # One that dials us needs a token to show; one that we dial has a certificate.
            needs_proof = not (after.proof or after.is_dialled or after.is_mount) and after.auth in TOKENS
            return replace(after, proof=token_hash(fresh)) if needs_proof else after

        kept = change(core, self.system, step, ours=self.ours or system_id(core))
        return NewPeer(fresh if kept.proof == token_hash(fresh) else "", kept)


@verb("trust_peer", Peer, under="peer", action="peers", local=True)
class TrustPeer(Verb, kw_only=True):
    """Trust a peer, with the pinned certificate if one is given; or withdraw the trust."""

    system: Annotated[str, "the name of the other system"]
    trusted: Annotated[bool, "false: nothing goes there or is taken from there"] = True
    pin: Annotated[str | None, "the fingerprint of the certificate to insist on"] = None
    certificate: Annotated[str, "that certificate as PEM, if it is known"] = ""

    def run(self, core: Core, _principal: Principal) -> Peer:
        fields: dict[str, Any] = {"trusted": self.trusted}
        if self.pin is not None:
            fields |= {"pin": self.pin, "certificate": self.certificate, "alert": ""}

        return change(core, self.system, lambda peer: replace(peer or known_peer(core, self.system), **fields))


def without_tokens(peer: Peer) -> Peer:
    return replace(peer, token="", proof="", former_proof="", former_until=None)


@verb("rotate_peer", NewPeer, action="peers", local=True)
class RotatePeer(Verb, kw_only=True):
    """Make another token for a peer. The old one is good until the new one is used, or a day."""

    system: Annotated[str, "the name of the other system"]

    def run(self, core: Core, _principal: Principal) -> NewPeer:
        fresh = fresh_token()

        kept = change(
            core,
            self.system,
            lambda peer: rotated(peer or known_peer(core, self.system), fresh, core.now().wall),
        )
        return NewPeer(fresh, kept)


def rotated(peer: Peer, fresh: str, now: datetime) -> Peer:
    """Return the peer with a new token to show here. The old one is good until the new one is used, or a day."""
    until = now + GRACE if peer.proof else None
    return replace(peer, proof=token_hash(fresh), former_proof=peer.proof, former_until=until)


@verb("remove_peer", Peer, under="peer", action="peers", local=True)
class RemovePeer(Verb, kw_only=True):
    """Remove a peer. Mail that waits for it stays until it is too old."""

    system: Annotated[str, "the name of the other system"]

    def run(self, core: Core, _principal: Principal) -> Peer:
        key = fold(self.system)

        def plan() -> tuple[Sequence[Write], Peer]:
            return [put_record(PEER, key, None, find_record(core, PEER, key))], known_peer(core, self.system)

        return commit(core, plan)


# -- proof of a calling peer


def proven_peer(core: Core, system: Any, credential: Any, *, certificate: str = "") -> Peer:
    """Return the peer of this name if the caller proves to be it; raise NotAllowed otherwise.

    The proof is a token, or the certificate of the connection, whose fingerprint comes from the TLS layer, never
    from the caller. The error is the same for every fault, so that it reveals nothing; only a changed certificate
    is named, and recorded.
    """
    found = peer(core, system) if isinstance(system, str) and len(system) <= _LONGEST else None
    is_right = _is_proven(core, found, credential, certificate)
    if found is None or not is_right or not found.trusted:
        # One error for unknown, untrusted and unproven: a caller learns nothing about the peers of this room.
        raise NotAllowed(
            "this system is not a peer here, or did not prove its identity",
            field="auth",
            hint="its operator: postroom peers add, peers trust",
        )
    if certificate:
        check_certificate(core, found, certificate)
    # The peer has the new token, so the old one ends now.
    if found.former_proof and _shows(credential, found.proof):
        ended = _keep(core, found.system, lambda now: replace(now, former_proof="", former_until=None))
        return ended or found
    return found


def check_certificate(core: Core, found: Peer, fingerprint: str) -> None:
    """Refuse a certificate other than the pinned one, and record an alert until the operator trusts it."""
    if not found.pin or is_same_secret(found.pin, fingerprint):
        return
    _keep(core, found.system, lambda now: replace(now, alert=fingerprint))
    raise NotAllowed(
        f"the certificate of {found.system!r} has changed: it is {fingerprint}, pinned is {found.pin}",
        field="certificate",
        hint=f"if its operator changed it: postroom peers trust {found.system}; else this is another machine",
    )


def _is_proven(core: Core, found: Peer | None, credential: Any, certificate: str) -> bool:
    if found is None:
        _shows(credential, _NO_PROOF)  # takes as long as for a known peer, so timing reveals nothing
        return False
    if found.auth == "none":
        return True
    if found.auth == "mtls":
        return bool(found.pin) and bool(certificate)  # `check_certificate` compares it, with an error of its own
    is_former = found.former_until is not None and core.now().wall < found.former_until
    right = _shows(credential, found.proof or _NO_PROOF)
    return right or (is_former and _shows(credential, found.former_proof))


def _shows(credential: Any, proof: str) -> bool:
    if not isinstance(credential, str) or len(credential) > _LONGEST or not credential.isascii():
        return False
    return is_same_secret(token_hash(credential), proof)


def _keep(core: Core, system: str, step: Callable[[Peer], Peer]) -> Peer | None:
    """Change a peer without a caller's authority; return None if the peer is gone meanwhile."""
    return change_record(core, PEER, fold(system), Peer, lambda before: None if before is None else step(before))


def fresh_token() -> str:
    return f"{PREFIX}_{os.urandom(32).hex()}"


# -- validation of a peer: names, addresses, permissions, and nothing that is not enforced

PIN_RULE = "sha256: and 64 hex digits, as postroom peers trust shows it"
TOKENS = frozenset({"bearer", "api-key"})  # proofs that are a token


def check_peer(peer: Peer, ours: str = "") -> Peer:
    """Return the peer as it may be stored, or raise an error that names the wrong field."""
    system = check_name(peer.system, "system")
    if ours and same_name(system, ours):
        raise Invalid(
            f"{system!r} is the name of this system itself", field="system", hint="name the other system"
        )
    _check_words(peer)
    url = check_url(peer.url) if peer.url else ""
    _check_auth(peer, url)
    _check_exposure(peer)
    for name in peer.relays_for:
        if ours and same_name(name, ours):
            raise Invalid(f"{name!r} is the name of this system itself", field="relays-for", hint="leave it out")
        if not (peer.is_mount and name == EVERYWHERE):  # only a mount leads everywhere
            check_name(name, "relays-for")
    for scope, allowed in peer.scopes.items():
        _check_permission(scope, allowed)
    if peer.auth == "mtls" and peer.pin and not (peer.is_dialled or peer.certificate):
        raise Invalid(
            "a peer that connects to us needs its certificate here, not only a pin",
            field="pin",
            hint="postroom peers trust SYSTEM --certificate FILE",
        )
    return replace(peer, url=url, pin=check_pin(peer.pin, "pin") if peer.pin else "")


def check_pin(value: Any, field: str) -> str:
    """Return a fingerprint in our form, also from the form of openssl."""
    text = check_line(value, field, 200)
    pin = text.lower().replace("sha256 fingerprint=", "").replace(":", "").removeprefix("sha256")
    if not re.fullmatch(r"[0-9a-f]{64}", pin):
        raise Invalid(f"{text!a} is not a fingerprint", field=field, hint=PIN_RULE)
    return f"sha256:{pin}"


def check_url(url: Any) -> str:
    """Return the WebSocket address of a peer; without a path, with the one that Postroom serves."""
    text = check_line(url, "url", 2000)
    hint = "such as wss://mail.example.com:4650/map"
    try:
        split = _split(text)
        host, _ = split.hostname or "", split.port
    except ValueError:
        raise Invalid(f"{text!a} is not an address", field="url", hint=hint) from None
    if split.scheme not in {"ws", "wss"} or not host or " " in text:
        raise Invalid(f"{text!a} is not a WebSocket address", field="url", hint=hint)
    # Addresses are listed and logged; a secret in one would be, too.
    if split.username is not None or split.query or split.fragment:
        raise Invalid(
            "must hold only host, port and path",
            field="url",
            hint="a token is given by --token-file, never in an address",
        )
    # Tokens and mail would cross the network in the clear.
    if split.scheme == "ws" and not is_loopback(host):
        raise Invalid(
            f"{host} is another machine; that needs TLS",
            field="url",
            hint="wss://, or ws:// to a tunnel that ends at 127.0.0.1",
        )
    return text if split.path else f"{text}/map"


def _split(url: str) -> SplitResult:
    from urllib.parse import urlsplit  # noqa: PLC0415 - slow to import; every send imports this module

    return urlsplit(url)


def is_loopback(host: str) -> bool:
    from ipaddress import ip_address  # noqa: PLC0415 - slow to import; every send imports this module

    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _check_words(peer: Peer) -> None:
    if peer.auth not in AUTHS:
        raise Invalid(
            f"{peer.auth!a} is not a supported auth method",
            field="auth",
            hint=f"{', '.join(AUTHS)}; others, such as did:wba, would not be enforced",
        )
    if peer.exposure not in EXPOSURES:
        raise Invalid(f"there is no exposure {peer.exposure!a}", field="exposure", hint=", ".join(EXPOSURES))
    if peer.token:
        token = check_label(peer.token, "token", 500)
        if not token.isascii():
            raise Invalid(
                "is not a token",
                field="token",
                hint="one line of ASCII, as the peer's postroom peers add printed it",
            )


def _check_auth(peer: Peer, url: str) -> None:
    if peer.is_mount:
        return
    if peer.auth not in TOKENS and (peer.token or peer.proof):
        raise Invalid(
            f"a token has no effect while auth is {peer.auth}",
            field="token",
            hint="no token; or auth bearer or api-key",
        )
    if peer.auth == "none" and url and not is_loopback(_split(url).hostname or ""):
        raise Invalid(
            "none is for a peer on this machine that cannot show a token",
            field="auth",
            hint="bearer, api-key or mtls",
        )
    if peer.auth == "mtls" and url and not url.startswith("wss:"):
        raise Invalid("mtls needs TLS", field="url", hint="wss://")
    if peer.auth in TOKENS and url and not peer.token:
        raise Invalid(
            "no token is set to show to this peer",
            field="token",
            hint="--token-file FILE, or - for standard input: the token that postroom peers add printed there",
        )


def _check_exposure(peer: Peer) -> None:
    for tag in peer.tags:
        check_label(tag, "tag")
    if peer.exposure == "tagged" and not peer.tags:
        raise Invalid("tagged needs a tag", field="tag", hint="--tag NAME; a scope counts as one")
    if peer.tags and peer.exposure != "tagged":
        raise Invalid(
            f"tags have no effect while exposure is {peer.exposure}",
            field="tag",
            hint="--exposure tagged, or no tags",
        )


def _check_permission(scope: str, allowed: tuple[str, ...]) -> None:
    hint = "OURS=SYSTEM, OURS=SYSTEM/SCOPE or OURS=*"
    if scope != EVERYWHERE:
        check_scope(scope, "scope")
    if not allowed:
        raise Invalid(
            f"scope {scope!r} has an empty list of allowed scopes",
            field="scope",
            hint=f"leave it out, or write {hint}",
        )
    for one in allowed:
        system, slash, theirs = one.partition("/")
        if one != EVERYWHERE:
            check_name(system, "scope")
        if slash:
            check_scope(theirs, "scope")


# -- mounts: mail folders of other programs as systems. A running server links them.


@verb("mount", Peer, under="peer", action="peers", local=True)
class Mount(Verb, kw_only=True):
    """Make the room of another program a system."""

    system: Annotated[str, "what it is called here"]
    place: Annotated[str, "the address of that room"]
    exposure: Annotated[Exposure, "which of our agents it sees and reaches"] = "all"
    ours: Annotated[str, "the name of this room; as it is called by default"] = ""
    room: Annotated[str, "the address of this room"]

    def run(self, core: Core, _principal: Principal) -> Peer:
        system, place = self.system, self.place
        _check_place(place, self.room)
        for other in all_peers(core).values():
            if other.place and _same(other.place, place) and other.system.lower() != system.lower():
                raise NameTaken(
                    f"{place} is mounted as {other.system!r}",
                    field="place",
                    hint=f"postroom unmount {other.system}",
                )

        def step(before: Peer | None) -> Peer:
            if before is not None and not before.place:
                raise Conflict(
                    f"{system!r} is a peer, not a mounted folder",
                    field="as",
                    hint=f"another name, or postroom peers remove {system}",
                )
            kept = before or Peer(system=system, auth="none", is_mount=True, relays_to=True)
            return replace(kept, place=place, exposure=self.exposure, tags=())

        return change(core, system, step, ours=self.ours or system_id(core))


@verb("unmount", Peer, under="peer", action="peers", local=True)
class Unmount(Verb, kw_only=True):
    """Remove a mounted folder from the systems. The folder stays as it is."""

    system: Annotated[str, "what it is called here"]

    def run(self, core: Core, principal: Principal) -> Peer:
        if not known_peer(core, self.system).place:
            raise Missing(
                f"{self.system!r} is not a mounted folder",
                field="system",
                hint=f"postroom peers remove {self.system}",
            )
        return RemovePeer(system=self.system).run(core, principal)


def _check_place(place: str, room: str) -> None:
    if place_of(place) is None:
        raise BadStore("a room in memory cannot be mounted", field="place", hint="files:… or sqlite:…")
    if not is_there(place):
        raise Missing(
            f"{place_of(place)} is not there",
            field="place",
            hint="create the room first; mount does not create folders",
        )
    if _same(place, room):
        raise Conflict("it is the room itself", field="place", hint="name the folder of another system")
    check_usable(place)


def _same(first: str, second: str) -> bool:
    places = [os.path.realpath(place) for one in (first, second) if (place := place_of(one))]
    return len(places) == 2 and places[0] == places[1]


# -- the name of this room. In the record, a bare string is a name that was made here and stays.

_OF_SERVER = "map"  # the name of a MAP server
_GIVES_WAY = "made"  # a name made here, until a server's name is known or it was announced
_DIGITS = 8  # random digits: two rooms of one network must not get the same name


@verb("system", str, under="system", action="room", local=True)
class GetSystem(Verb, kw_only=True):
    """Return the name of this room, the same from every process and after every restart."""

    def run(self, core: Core, _principal: Principal) -> str:
        return system_id(core)


def system_id(core: Core, *, gives_way: bool = False) -> str:
    """Return the name of this room; it gets one if it has none.

    `gives_way`: a name that has to be made now may be replaced by that of the MAP server we are about to link to.
    """
    if core.system:
        return check_agent(core.system, "system")
    found = find_value(core, SYSTEM, EVERYONE, Any)
    if found is None:
        name = f"postroom-{core.ids.token()[:_DIGITS]}"
        made: Any = {_GIVES_WAY: name} if gives_way else name
        found = change_record(core, SYSTEM, EVERYONE, Any, lambda held: held or made)
    return _name(found)


def is_ours(core: Core, system: str) -> bool:
    """Return whether this is the name of this room; False while it has none."""
    return same_name(system, core.system or _name(find_value(core, SYSTEM, EVERYONE, Any) or ""))


def announced(core: Core) -> str:
    """Return the name of this room to announce it to others: from now on it stays."""
    name = system_id(core)
    found = None if core.system else find_value(core, SYSTEM, EVERYONE, Any)
    return _settled_name(core, name) if _may_give_way(found) else name


def take_name(core: Core, name: str) -> str:
    """Take the name in an invitation, unless a name is kept already; return the name in force."""
    checked = check_agent(core.system or name, "system")
    return checked if core.system else _settled_name(core, checked)


def adopt(core: Core, name: str) -> str:
    """Take the name of a MAP server, unless a name is kept already; return the name in force."""
    return _settled_name(core, {_OF_SERVER: check_agent(name, "system")})


def _settled_name(core: Core, name: Any) -> str:
    """Record a name in place of one that may give way, or of none; return the name that is recorded then."""

    def step(held: Any) -> Any:
        return name if held is None or _may_give_way(held) else held

    return _name(change_record(core, SYSTEM, EVERYONE, Any, step))


def _may_give_way(value: Any) -> bool:
    return isinstance(value, dict) and _GIVES_WAY in value


def _name(value: Any) -> str:
    return str(next(iter(value.values())) if isinstance(value, dict) else value)


# -- invitations: one string that links two systems
#
# The system that is called makes the string: it adds the other one as a peer with a new token, and writes its own
# name, the name of the other system, its address, that token and the fingerprint of its certificate. The other
# system adds the first by it, pins the certificate, and calls. Whoever has the string can act as the invited
# system, so it is a secret, like the token in it. It ends with a checksum, which finds a string that was changed
# or cut off; it proves nothing.


INVITATION = "postroom-invitation"
_LONGEST_INVITATION = 10_000  # characters of an invitation; a longer one is refused unread
_CHECK_DIGITS = 8


class Invitation(Struct, frozen=True, kw_only=True):
    """What an invitation says."""

    system: str  # the one that invites, and is called
    guest: str  # the invited one
    url: str
    token: str  # what the guest shows
    pin: str = ""  # the fingerprint of the certificate at the address; empty: authorities decide


def write_invitation(content: Invitation) -> str:
    body = base64.urlsafe_b64encode(encode(content)).decode().rstrip("=")
    return f"{INVITATION}.{body}.{checksum_of(body)}"


def read_invitation(text: str) -> Invitation:
    """Return what an invitation says, or raise Invalid."""
    pieces = text.strip().split(".") if len(text) <= _LONGEST_INVITATION and text.isascii() else []
    hint = "the whole line that postroom peers invite printed; it may have been changed on its way"
    if len(pieces) != 3 or pieces[0] != INVITATION or pieces[2] != checksum_of(pieces[1]):
        raise Invalid("is not an invitation, or was changed or cut off", field="invitation", hint=hint)
    try:
        return msgspec.json.decode(
            base64.urlsafe_b64decode(pieces[1] + "=" * (-len(pieces[1]) % 4)), type=Invitation
        )
    except (ValueError, msgspec.DecodeError):  # no base64, no UTF-8, or not these fields
        raise Invalid("is not an invitation that this version knows", field="invitation", hint=hint) from None


def checksum_of(body: str) -> str:
    return token_hash(body)[:_CHECK_DIGITS]


class Invited(Struct):
    """An invitation, which is a secret and cannot be shown again, and the peer that it is for."""

    invitation: str
    peer: Peer


@verb("invite_peer", Invited, action="peers", local=True)
class InvitePeer(Verb, kw_only=True):
    """Add a system that will call us, and make the one string by which it joins.

    For one that calls us already it makes another token; the old one is good until the new one is used, or a day.
    """

    system: Annotated[str, "the name of the other system"]
    url: Annotated[str, "our address, where it calls us"]
    pin: Annotated[str, "the fingerprint of our certificate there; empty: authorities decide"] = ""

    def run(self, core: Core, _principal: Principal) -> Invited:
        url, pin = check_url(self.url), check_pin(self.pin, "pin") if self.pin else ""
        ours, fresh = announced(core), fresh_token()

        def step(before: Peer | None) -> Peer:
            if before is None:
                return Peer(system=self.system, proof=token_hash(fresh))
            if before.is_dialled or before.is_mount or before.auth not in TOKENS:
                raise Conflict(
                    f"{before.system!r} is a peer already, and shows no token here",
                    field="system",
                    hint=f"postroom peers remove {before.system} first, or join by its invitation",
                )
            return rotated(before, fresh, core.now().wall)

        kept = change(core, self.system, step, ours=ours)
        content = Invitation(system=ours, guest=kept.system, url=url, token=fresh, pin=pin)
        return Invited(write_invitation(content), kept)


class Joined(Struct):
    """The system that invited us, as a peer; our name; and whether anything changed."""

    peer: Peer
    system: str
    is_new: bool


@verb("join_peer", Joined, action="peers", local=True)
class JoinPeer(Verb, kw_only=True):
    """Add the system that made an invitation, pin its certificate, and take the name by which it knows this room.

    A room that has another name already keeps it, and the invitation is refused. The same invitation again changes
    nothing.
    """

    invitation: Annotated[str, "what postroom peers invite printed there"]

    def run(self, core: Core, _principal: Principal) -> Joined:
        content = read_invitation(self.invitation)
        terms: dict[str, Any] = {"url": content.url, "auth": "bearer", "token": content.token, "pin": content.pin}
        check_peer(Peer(system=content.system, **terms), content.guest)  # before the room takes a name
        ours = take_name(core, content.guest)
        if not same_name(ours, content.guest):
            raise Conflict(
                f"it is for {content.guest!r}, and this room is called {ours!r}",
                field="invitation",
                hint=f"over there: postroom peers invite {ours}",
            )
        before = peer(core, content.system)

        def step(held: Peer | None) -> Peer:
            held = without_tokens(held or Peer(system=content.system))
            certificate = held.certificate if held.pin == content.pin else ""
            return replace(held, certificate=certificate, alert="", trusted=True, **terms)

        kept = change(core, content.system, step, ours=ours)
        return Joined(kept, ours, is_new=kept != before)
