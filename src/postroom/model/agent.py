"""Agents: the card, which is stored; the presence, computed from the last heartbeat; guards and scopes.

A guard says which mail a mailbox takes. A scope is a named group; its members are written on the agents' cards.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from .codec import convert, to_plain
from .values import Brief, object_in, text_in

EVERYONE = "*"
MAP = "map"  # key in `extra`: the MAP fields for which a card has none of its own


class Card(Brief, frozen=True, kw_only=True, omit_defaults=True):
    """An agent's description of itself."""

    id: str
    registered_at: datetime
    display_name: str = ""
    description: str = ""
    capabilities: tuple[str, ...] = ()
    program: str = ""
    model: str = ""
    scopes: tuple[str, ...] = ()
    allow_from: tuple[str, ...] = (EVERYONE,)
    max_concurrent_tasks: int = 3
    metadata: dict[str, Any] = field(default_factory=dict)
    principal: str = "owner"  # the caller that registered it; no other caller can take a live name
    extra: dict[str, Any] = field(default_factory=dict)  # unknown fields of a source format


def map_fields(card: Card) -> dict[str, Any]:
    """Return the MAP fields of a card. Callers can write anything into `extra`, so it is checked here."""
    return object_in(card.extra, MAP)


def parent_of(card: Card) -> str | None:
    return text_in(map_fields(card), "parent")


class Heartbeat(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent's last sign of life.

    Its age is measured in uptime, so that a clock change makes no agent offline.
    """

    at: datetime
    steady: float
    boot: str
    active_at: datetime
    poll_interval: float = 5.0
    current_tasks: tuple[str, ...] = ()
    left: bool = False  # it signed off
    dormant: bool = False  # it signed off until it is woken: it never expires
    says: str = ""  # its status in its own words, where that does not follow from its tasks


class Status(StrEnum):
    """The activity of an agent, in nanobot's terms."""

    IDLE = "idle"
    BUSY = "busy"
    OFFLINE = "offline"


class Warmth(StrEnum):
    """The time since an agent was active, in agent-inbox's terms."""

    ACTIVE = "active"
    AWAY = "away"  # still routable
    EXPIRED = "expired"  # kept for the audit
    GONE = "gone"
    DORMANT = "dormant"  # asleep on its own request, until it is woken


class Words(Struct, frozen=True):
    """The term of each source design for one status."""

    inbox: str  # agent-inbox: active, idle, offline
    nanobot: str  # idle, busy, offline
    map: str  # a state of MAP's agents


# Our terms translated to those of each design. This is the only place that translates them.
WORDS: dict[Status | Warmth, Words] = {
    Status.IDLE: Words("active", "idle", "idle"),
    Status.BUSY: Words("active", "busy", "busy"),
    Status.OFFLINE: Words("offline", "offline", "stopped"),
    Warmth.ACTIVE: Words("active", "idle", "active"),
    Warmth.AWAY: Words("idle", "offline", "orphaned"),
    Warmth.EXPIRED: Words("offline", "offline", "stopped"),
    Warmth.GONE: Words("offline", "offline", "stopped"),
    Warmth.DORMANT: Words("offline", "offline", "suspended"),
}
# MAP's agent states, translated to our terms.
MAP_STATES: dict[str, Status | Warmth] = {
    "registered": Status.IDLE,
    "active": Status.IDLE,
    "idle": Status.IDLE,
    "busy": Status.BUSY,
    "waiting": Status.BUSY,
    "suspended": Warmth.DORMANT,
    "orphaned": Warmth.AWAY,
    "stopping": Status.OFFLINE,
    "stopped": Status.OFFLINE,
    "failed": Status.OFFLINE,
    "error": Status.OFFLINE,
}


class Presence(Brief, frozen=True, kw_only=True):
    """The status of an agent at one moment."""

    status: Status
    warmth: Warmth
    current_tasks: tuple[str, ...]
    last_heartbeat: datetime | None
    last_active_at: datetime | None
    left: bool = False  # it signed off, and is not merely silent

    @property
    def words(self) -> Words:
        """The terms of each design: by status while the agent is active, else by the time since it was."""
        return WORDS[self.status if self.warmth is Warmth.ACTIVE else self.warmth]

    @property
    def inbox_word(self) -> str:
        """The term of agent-inbox, on every interface that speaks it.

        An agent that signed off is offline at once.
        """
        return WORDS[Status.OFFLINE].inbox if self.left else self.words.inbox


class Agent(Brief, frozen=True, kw_only=True):
    """A card and its presence: one row of the directory."""

    card: Card
    presence: Presence
    registered: bool = True  # False: a mailbox with mail; its card holds the name and nothing else


# Guards


class Guard(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rule of a mailbox about the senders from which it takes mail."""

    allow: tuple[str, ...] = (EVERYONE,)
    block: tuple[str, ...] = ()  # beats `allow`
    moved_to: str | None = None  # the agent was renamed: its present name


NO_GUARD = Guard()


def guard_from(value: Any) -> Guard:
    """Return the guard in a stored value."""
    # A room stores a guard that only allows as a plain list: so did its first version.
    return Guard(allow=tuple(value)) if isinstance(value, list) else convert(value, Guard)


def guard_value(guard: Guard) -> Any:
    """Return the value to store for a guard; None if it refuses nothing."""
    if guard == NO_GUARD:
        return None
    return list(guard.allow) if guard == Guard(allow=guard.allow) else to_plain(guard)


class ScopeCard(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The description of a scope that was created explicitly. A scope named only on agents' cards has none."""

    id: str
    created_at: datetime
    created_by: str = ""  # the agent; empty if an operator created it
    says: dict[str, Any] = field(default_factory=dict)  # name, description and the like, as they were sent
