"""Another system, and what was agreed with it: how it is reached, how each proves itself, what each may."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct, field

Auth: TypeAlias = Literal["bearer", "api-key", "mtls", "none"]
Exposure: TypeAlias = Literal["none", "gateway", "tagged", "all"]
AUTHS: tuple[str, ...] = get_args(Auth)
EXPOSURES: tuple[str, ...] = get_args(Exposure)
EVERYWHERE = "*"  # in scope permissions: every scope of ours, or every system

# What must never be shown, exported or logged.
SECRETS = frozenset({"token", "proof", "former_proof"})


class Peer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the allow-list. Whoever has none is nobody."""

    system: str
    url: str = ""  # ws:// or wss://; empty: it dials us
    auth: Auth = "bearer"  # none only for one on this machine that cannot show a token
    token: str = ""  # what we show there
    proof: str = ""  # SHA-256 of the token that it must show here, in hex
    former_proof: str = ""  # of the one before, good until the new one was shown, or until:
    former_until: datetime | None = None
    pin: str = (
        ""  # sha256:… of the certificate that it must have; empty: one that the machine's authorities vouch for
    )
    certificate: str = ""  # that certificate itself, as PEM, where it is known
    alert: str = ""  # the fingerprint of another one that it came with: refused until somebody trusts it anew
    trusted: bool = True  # nothing goes there or is taken from there unless it is
    exposure: Exposure = "gateway"  # who of ours it sees, and reaches
    tags: tuple[str, ...] = ()  # tagged: the agents with one of these scopes or tags
    scopes: dict[str, tuple[str, ...]] = field(default_factory=dict)  # ours -> `system`, `system/scope` or `*`
    relays_for: tuple[str, ...] = ()  # further systems that it speaks for and leads to
    relays_to: bool = False  # may it reach further systems through us?
    is_mount: bool = False  # a foreign folder
    place: str = ""  # and where that is
    of_file: bool = False  # it stands in the file of peers, and goes when it is gone there

    @property
    def is_dialled(self) -> bool:
        """Do we call it, or wait for its call?"""
        return bool(self.url)

    def __repr__(self) -> str:
        return f"Peer(system={self.system!r})"  # a log must not tell a token


def shown(peer: Peer) -> dict[str, Any]:
    """All that may be shown of a peer, by name: its secrets only as whether there are any."""
    plain: dict[str, Any] = {name: getattr(peer, name) for name in peer.__struct_fields__ if name not in SECRETS}
    return plain | {"shows_token": bool(peer.token), "knows_token": bool(peer.proof)}


class Route(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where an agent elsewhere was said to be, and until when that is believed."""

    system: str
    until: datetime
    status: str = ""
    name: str = ""  # as it is spelt there; empty in rooms of earlier versions
    by: str = ""  # the peer that told of it, where that is a hub in between
    is_found: bool = False  # its system was asked for it, and did not show it by itself

    @property
    def teller(self) -> str:
        return self.by or self.system
