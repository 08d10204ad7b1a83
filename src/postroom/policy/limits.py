"""Every setting on which the rules depend, with its default; and the cut-off times of retention."""

# No postponed annotations: msgspec would compile each of them at every start.
from datetime import datetime, timedelta
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from ..model.names import NAME_PATTERN

HOUR = 3600.0
DAY = 24 * HOUR
LEAST_MEMORY = 30 * DAY  # an idempotency key is remembered at least this long after its letter settled

Count: TypeAlias = Annotated[int, Meta(ge=1, lt=2**53)]
CountOrNone: TypeAlias = Annotated[int, Meta(ge=0, lt=2**53)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=1e9)]  # thirty years
SomeSeconds: TypeAlias = Annotated[float, Meta(gt=0, le=1e9)]  # where 0 could never succeed
Depth: TypeAlias = Annotated[int, Meta(ge=1, le=200)]  # far below Python's recursion limit
LONGEST_LEASE = 7 * DAY
LeaseTime: TypeAlias = Annotated[float, Meta(gt=0, le=LONGEST_LEASE)]
Names: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._/-]+( *, *[A-Za-z0-9._/-]+)*$")]
NamesOrNone: TypeAlias = Annotated[str, Meta(pattern=r"^([A-Za-z0-9._-]+( *, *[A-Za-z0-9._-]+)*)?$")]
Name: TypeAlias = Annotated[str, Meta(pattern=rf"^{NAME_PATTERN}(/{NAME_PATTERN})?$")]
Memory: TypeAlias = Annotated[float, Meta(ge=LEAST_MEMORY, le=1e9)]


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of a room. All of them can be configured."""

    max_message_bytes: Count = 1024 * 1024  # most bytes of one letter, as JSON
    max_parts: Count = 256  # most parts in one letter
    max_recipients: Count = 10_000  # most recipients of one letter
    max_depth: Depth = 64  # deepest nesting of JSON
    max_card_bytes: Count = 64 * 1024  # most bytes of an agent's card, or of the description of a scope
    inbox_quota: Count = 1_000_000  # most unread letters in one inbox; one sender gets half of what is free
    hops: Count = 3  # one more than the relays of a letter; 3 allows A→B→C→D
    thread_rate: CountOrNone = 240  # answers by one sender in one thread in one minute; 0 = no limit
    thread_hourly: CountOrNone = 240  # answers to several, by all senders, in one thread in one hour; 0 = no limit
    sender_rate: CountOrNone = 0  # letters by one sender in one second, in this process; 0 = no limit
    sender_burst: Count = 2000  # letters that one sender may send at once before sender_rate slows it down
    unknown: Literal["accept", "refuse"] = "accept"  # what becomes of a letter to a name that is unknown here
    lease: LeaseTime = 60.0  # seconds a claim lasts unless it says otherwise
    max_attempts: Count = 5  # failed tries before a letter is dead
    backoff_first: Seconds = 10.0  # seconds before the second try
    backoff_most: Seconds = 1800.0  # most seconds between two tries
    archive_after: Seconds = DAY  # seconds after which acknowledged mail is archived
    retain_for: Seconds = 90 * DAY  # seconds settled mail is kept; 0 = for ever
    retain_count: CountOrNone = 0  # settled letters kept at most; 0 = no limit
    remember_for: Memory = 365 * DAY  # seconds the ids and keys of deleted letters are remembered
    retain_changes: Count = 100_000  # how many numbered changes are kept for cursors
    ladder: Names = "coo,human"  # the agents to ask when one escalates, the lowest first, with commas
    human: Name = "human"  # the mailbox of the person; agents may also write to human, user or ceo
    people: NamesOrNone = ""  # further people's mailboxes, with commas; like human, they answer with a key
    escalation_after: Seconds = 4 * HOUR  # seconds without an answer before a question climbs; 0 = never
    search_window: Count = 1000  # of the newest letters found, how many a ranked search compares
    offline_after: Seconds = 60.0  # seconds without a heartbeat, at least
    away_grace: Seconds = 60.0  # seconds an agent counts as away before it is expired
    expired_kept: Seconds = HOUR  # seconds an expired agent is listed before it is gone
    requeue_on_return: bool = True  # put an agent's claimed letters back into its inbox when it registers again
    federation_strategy: Literal["table", "broadcast", "hierarchical"] = "table"  # how unknown names are found
    federation_table_ttl: Seconds = 300.0  # seconds for which a peer's announcement of its agents is valid
    federation_refresh_on_miss: bool = True  # table: ask peers for a name that is unknown here
    federation_broadcast_timeout: SomeSeconds = 5.0  # seconds in which a peer must answer a look-up
    federation_upstream: NamesOrNone = ""  # hierarchical: the hubs to ask, in order, with commas
    federation_hops: Count = 10  # most systems that a letter passes
    outbox_max_age: SomeSeconds = DAY  # seconds after which a letter that another system did not take is dead
    outbox_max_letters: Count = 10_000  # most letters that wait for one system; more are refused
    outbox_retry: Literal["exponential", "fixed"] = "exponential"  # pauses between attempts: doubling, or constant
    outbox_retry_base: Seconds = 1.0  # seconds before the second attempt
    outbox_retry_cap: Seconds = 300.0  # most seconds between attempts
    outbox_max_attempts: CountOrNone = 0  # attempts before a letter is dead; 0 = as many as its age allows
    ring_gather: Seconds = 0.3  # seconds to wait for more letters after a new one, before an alert
    ring_cooldown: Seconds = 20.0  # seconds between two alerts of one recipient; urgent mail does not wait
    ring_hourly: CountOrNone = 30  # most alerts of one recipient in an hour, urgent mail included; 0 = no limit
    ring_again: Seconds = 300.0  # seconds after which unacknowledged urgent mail alerts again; 0 = never
    ring_most: Count = 3  # most alerts about one urgent letter
    ring_tries: Count = 5  # failed alerts about one letter before it is given up


def people_of(limits: Limits) -> list[str]:
    """Return the mailboxes of people that the settings name, the human first."""
    return [limits.human, *(name.strip() for name in limits.people.split(",") if name.strip())]


# Retention applies only to settled mail.


def archive_cutoff(now: datetime, limits: Limits) -> datetime:
    return now - timedelta(seconds=limits.archive_after)


def purge_cutoff(now: datetime, limits: Limits) -> datetime | None:
    """Return the time before which settled letters may be deleted; None keeps all."""
    return None if limits.retain_for == 0 else now - timedelta(seconds=limits.retain_for)


def memory_cutoff(now: datetime, limits: Limits) -> datetime:
    """Return the time before which the ids and keys of deleted letters may be forgotten."""
    return now - timedelta(seconds=limits.remember_for)
