"""Peers: other systems with which this room exchanges mail, and the terms of it; routes, and envelopes.

The list of peers is an allow-list: a system that is not on it can neither send nor receive.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Literal, TypeAlias, get_args

from msgspec import Struct, field

from .message import Message
from .names import Address
from .values import Brief

Auth: TypeAlias = Literal["bearer", "api-key", "mtls", "none"]
Exposure: TypeAlias = Literal["none", "gateway", "tagged", "all"]
AUTHS: tuple[str, ...] = get_args(Auth)
EXPOSURES: tuple[str, ...] = get_args(Exposure)
EVERYWHERE = "*"  # in scope permissions: every scope of ours, or every system


# Fields that must never be shown, exported or logged.
class Peer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Another system on the allow-list."""

    SECRETS: ClassVar = frozenset({"token", "proof", "former_proof"})  # shown nowhere

    system: str
    url: str = ""  # ws:// or wss://; empty: it dials us
    auth: Auth = "bearer"  # none: only for a peer on this machine that cannot show a token
    token: str = ""  # the token that we show there
    proof: str = ""  # SHA-256 of the token that it must show here, in hex
    former_proof: str = ""  # of the token before, valid until the new one was shown, or until:
    former_until: datetime | None = None
    pin: str = ""  # sha256:… of the certificate that it must have; empty: any that this machine's CAs signed
    certificate: str = ""  # that certificate itself, as PEM, if known
    alert: str = ""  # the fingerprint of an unexpected certificate: refused until an operator trusts it
    trusted: bool = True  # no mail goes there or comes from there unless it is
    exposure: Exposure = "gateway"  # the agents of ours that it sees and reaches
    tags: tuple[str, ...] = ()  # for the exposure `tagged`: the agents with one of these scopes or tags
    scopes: dict[str, tuple[str, ...]] = field(default_factory=dict)  # ours -> `system`, `system/scope` or `*`
    relays_for: tuple[str, ...] = ()  # further systems for which it speaks and to which it leads
    relays_to: bool = False  # it may reach further systems through us
    is_mount: bool = False  # it is a mounted folder of another program
    place: str = ""  # the path of that folder
    of_file: bool = False  # it comes from the file of peers, and goes when it is removed there

    @property
    def is_dialled(self) -> bool:
        """Whether we open the connection, rather than wait for it."""
        return bool(self.url)

    def __repr__(self) -> str:
        return f"Peer(system={self.system!r})"  # a log must never hold a token


class Route(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The system of a remote agent, as a peer announced it, and until when that is believed."""

    system: str
    until: datetime
    status: str = ""
    name: str = ""  # as it is spelt there; empty in rooms of earlier versions
    by: str = ""  # the peer that announced it, if that is a hub in between
    is_found: bool = False  # its system was asked for it, and did not announce it

    @property
    def teller(self) -> str:
        """The peer that announced the agent."""
        return self.by or self.system


class Carried(Brief, frozen=True, kw_only=True):
    """Whether mail for a system is carried there now and, if not, why it waits."""

    system: str
    state: Literal["up", "down", "unserved", "unknown"]
    since: datetime | None = None  # None: not known
    reason: str | None = None  # None: it is carried


MOST_HOPS = 10  # systems that a letter may pass, unless its envelope says another number


class Envelope(Struct, frozen=True, kw_only=True):
    """One letter on its way between two systems, with all its addressees at one of them."""

    message: Message  # its sender is `agent@source`
    source: str  # the system where it was written
    targets: tuple[Address, ...]  # at least one, all at one system, to which it goes, maybe through others
    hops: int = 0  # systems that relayed it
    most_hops: int = MOST_HOPS
    path: tuple[str, ...] = ()  # the systems that had it, in order

    @property
    def target(self) -> str:
        """The system to which it goes."""
        return self.targets[0].system
