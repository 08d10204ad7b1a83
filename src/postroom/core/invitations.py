"""Invitations: one string that links two systems.

The system that is called makes the string: it adds the other one as a peer with a new token, and writes its own
name, the name of the other system, its address, that token and the fingerprint of its certificate. The other
system adds the first by it, pins the certificate, and calls. Whoever has the string can act as the invited system,
so it is a secret, like the token in it. It ends with a checksum, which finds a string that was changed or cut off;
it proves nothing.
"""

from __future__ import annotations

import base64
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..errors import Conflict, Invalid
from ..model.codec import encode, token_hash
from ..model.message import same_name
from ..model.peer import Peer
from . import peers
from .verb import Verb, verb

if TYPE_CHECKING:
    from .authorize import Principal
    from .core import Core


PREFIX = "postroom-invitation"
_LONGEST = 10_000  # characters of an invitation; a longer one is refused unread
_CHECK_DIGITS = 8


class Content(Struct, frozen=True, kw_only=True):
    """What an invitation says."""

    system: str  # the one that invites, and is called
    guest: str  # the invited one
    url: str
    token: str  # what the guest shows
    pin: str = ""  # the fingerprint of the certificate at the address; empty: authorities decide


def write_invitation(content: Content) -> str:
    body = base64.urlsafe_b64encode(encode(content)).decode().rstrip("=")
    return f"{PREFIX}.{body}.{checksum_of(body)}"


def read_invitation(text: str) -> Content:
    """Return what an invitation says, or raise Invalid."""
    prefix, _, rest = text.strip().partition(".") if len(text) <= _LONGEST and text.isascii() else ("", "", "")
    body, _, checksum = rest.partition(".")
    hint = "the whole line that postroom peers invite printed; it may have been changed on its way"
    if prefix != PREFIX or checksum != checksum_of(body):
        raise Invalid("is not an invitation, or was changed or cut off", field="invitation", hint=hint)
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=Content)
    except (ValueError, msgspec.DecodeError):  # no base64, no UTF-8, or not these fields
        raise Invalid("is not an invitation that this version knows", field="invitation", hint=hint) from None


def checksum_of(body: str) -> str:
    return sha256(body.encode()).hexdigest()[:_CHECK_DIGITS]


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
        url, pin = peers.check_url(self.url), peers.check_pin(self.pin, "pin") if self.pin else ""
        ours, fresh = peers.announced(core), peers.fresh_token()

        def step(before: Peer | None) -> Peer:
            if before is None:
                return Peer(system=self.system, proof=token_hash(fresh))
            if before.is_dialled or before.is_mount or before.auth not in peers.TOKENS:
                raise Conflict(
                    f"{before.system!r} is a peer already, and shows no token here",
                    field="system",
                    hint=f"postroom peers remove {before.system} first, or join by its invitation",
                )
            return peers.rotated(before, fresh, core.now().wall)

        peer = peers.change(core, self.system, step, ours=ours)
        content = Content(system=ours, guest=peer.system, url=url, token=fresh, pin=pin)
        return Invited(write_invitation(content), peer)


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
        peers.check_peer(Peer(system=content.system, **terms), content.guest)  # before the room takes a name
        ours = peers.take_name(core, content.guest)
        if not same_name(ours, content.guest):
            raise Conflict(
                f"it is for {content.guest!r}, and this room is called {ours!r}",
                field="invitation",
                hint=f"over there: postroom peers invite {ours}",
            )
        before = peers.peer(core, content.system)

        def step(held: Peer | None) -> Peer:
            held = peers.without_tokens(held or Peer(system=content.system))
            certificate = held.certificate if held.pin == content.pin else ""
            return replace(held, certificate=certificate, alert="", trusted=True, **terms)

        peer = peers.change(core, content.system, step, ours=ours)
        return Joined(peer, ours, is_new=peer != before)
