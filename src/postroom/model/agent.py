"""Who an agent is (its card, kept) and how it is doing (its presence, computed from its last sign of life)."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct, field

from .codec import convert, to_plain

EVERYONE = "*"


MAP = "map"  # in `extra`: what MAP says of an agent and a card has no word for


class Card(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an agent says of itself."""

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
    principal: str = "owner"  # who registered it; another one cannot take a live name
    extra: dict[str, Any] = field(default_factory=dict)  # unknown fields of a source format


def map_says(card: Card) -> dict[str, Any]:
    """What MAP's words say of it. Anybody may write anything into `extra`."""
    value = card.extra.get(MAP)
    return value if isinstance(value, dict) else {}


def parent_of(card: Card) -> str | None:
    parent = map_says(card).get("parent")
    return parent if isinstance(parent, str) else None


class Beat(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent's last sign of life. Ages by uptime, so a jumping clock kills nobody."""

    at: datetime
    steady: float
    boot: str
    active_at: datetime
    poll_interval: float = 5.0
    current_tasks: tuple[str, ...] = ()
    left: bool = False  # it said goodbye
    dormant: bool = False  # and sleeps until somebody wakes it: no time makes it expire
    says: str = ""  # its status in its own word, where that is not what follows from its tasks


class Status(StrEnum):
    """In nanobot's words."""

    IDLE = "idle"
    BUSY = "busy"
    OFFLINE = "offline"


class Warmth(StrEnum):
    """In the inbox design's words."""

    ACTIVE = "active"
    AWAY = "away"  # still routable
    EXPIRED = "expired"  # kept for the audit
    GONE = "gone"
    DORMANT = "dormant"  # asleep by its own wish, until it is woken


class Words(NamedTuple):
    """What each design calls the same thing."""

    inbox: str  # agent-inbox: active, idle, offline
    nanobot: str  # idle, busy, offline
    map: str  # a state of MAP's agents


# One table for the words of the designs, by ours. Nobody else translates.
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
# The states that MAP's agents name themselves, in our words.
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


class Presence(Struct, frozen=True, kw_only=True):
    """How an agent is doing at one moment."""

    status: Status
    warmth: Warmth
    current_tasks: tuple[str, ...]
    last_heartbeat: datetime | None
    last_active_at: datetime | None
    left: bool = False  # it said goodbye, and is not merely silent

    @property
    def words(self) -> Words:
        """How each design says it: by what it does while it is here, else by how long it is away."""
        return WORDS[self.status if self.warmth is Warmth.ACTIVE else self.warmth]

    @property
    def inbox_word(self) -> str:
        """How agent-inbox says it, on every surface that speaks its words: who said goodbye is offline at once."""
        return WORDS[Status.OFFLINE].inbox if self.left else self.words.inbox


class Agent(Struct, frozen=True, kw_only=True):
    """A card and its presence: one row of the directory."""

    card: Card
    presence: Presence


# What stands at a mailbox's door: whom it takes mail from, whom it does not, or where its owner is now.
#
# A guard is kept only where there is something to say. A plain list is one that only allows: rooms hold those
# since
# their first version.


class Guard(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is refused at the door, whoever asks."""

    allow: tuple[str, ...] = (EVERYONE,)
    block: tuple[str, ...] = ()  # beats `allow`
    moved_to: str | None = None  # nobody lives here any more: the name its owner has now


OPEN_DOOR = Guard()


def guard_from(value: Any) -> Guard:
    """A guard as it is kept, in either form."""
    return Guard(allow=tuple(value)) if isinstance(value, list) else convert(value, Guard)


def guard_value(guard: Guard) -> Any:
    """The form in which it is kept; None where there is nothing to say."""
    if guard == OPEN_DOOR:
        return None
    return list(guard.allow) if guard == Guard(allow=guard.allow) else to_plain(guard)


# What is said of a scope itself. Who is in it stands on the agents' cards.


class ScopeCard(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A scope that somebody made. One that only stands on cards has none."""

    id: str
    created_at: datetime
    created_by: str = ""  # the agent; nobody, where an operator made it
    says: dict[str, Any] = field(default_factory=dict)  # name, description and the like, as they were said
