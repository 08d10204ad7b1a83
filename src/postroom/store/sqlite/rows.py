"""Rows of the room's tables ⇄ values of the model.

Times are stored as microseconds since 1970, states and priorities as small numbers. Each letter carries the CRC of
its JSON: a letter that does not match it is Unreadable, and never returned.
"""

from __future__ import annotations

from binascii import crc32
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from ...errors import Damaged, Unreadable
from ...model import record
from ...model.codec import decode_message, encode
from ...model.delivery import Attempt, Delivery, Lease, State
from ...model.message import DEFAULT_SCOPE, Priority
from ...model.query import Found
from ...model.thread import conversation_of
from ..protocol import Letter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...model.message import Message, RecipientKind
    from ...model.record import Change


Row = tuple[Any, ...]

STATES = tuple(State)  # a state's number is its place in this order
STATE_NUMBER = {state: number for number, state in enumerate(STATES)}
KINDS: tuple[RecipientKind, ...] = ("to", "cc", "bcc")
_COLUMNS = """
    number mailbox kind state seen rank revision attempts delivered_at read_at acked_at dead_at due_at archived_at
    expires_at lease_token lease_holder lease_until lease_boot reason history arrived"""
COLUMNS = tuple(_COLUMNS.split())  # of `deliveries`, in order
DELIVERY = (
    # A name that does not go with its folded form is damaged: better no name than another's.
    "d.number, CASE WHEN lower(m.name) = m.folded THEN m.name END, d.kind, d.state, d.rank, d.revision,"
    " d.attempts, d.delivered_at, d.read_at, d.acked_at,"
    " d.dead_at, d.due_at, d.archived_at, d.expires_at, d.lease_token, d.lease_holder, d.lease_until,"
    " d.lease_boot, d.reason, d.history, d.arrived"
)
_MORE_AT = 8  # in a row of `DELIVERY`: from here on a new delivery has NULLs
_SUM_AT = 21  # here the delivery ends, and the letter's checksum follows
NOTHING_MORE: Row = (None,) * (_SUM_AT - _MORE_AT)
SALVAGE = "stop all agents; then postroom doctor --repair saves what can be read, or restore a backup"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
UNLIKELY = (
    ValueError,
    TypeError,
    IndexError,
    OverflowError,
)  # raised for values that Postroom never wrote
_decode_history = msgspec.json.Decoder(tuple[Attempt, ...]).decode


def micros(time: datetime) -> int:
    """Return exact microseconds since 1970; floats would round, and dividing by a timedelta is slow."""
    since = time - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def time_of(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


RANK = {priority: Priority.URGENT - priority for priority in Priority}  # arithmetic on enums is slow


PRIORITIES = tuple(sorted(Priority, reverse=True))  # by rank; an enum's constructor is slow


def priority_of(rank: int) -> Priority:
    return PRIORITIES[rank]


def delivery_row(delivery: Delivery, number: int, mailbox: int) -> Row:
    """Return all columns of `deliveries`, in order."""
    return (
        number,
        mailbox,
        KINDS.index(delivery.kind),
        STATE_NUMBER[delivery.state],
        delivery.read_at is not None,
        RANK[delivery.priority],
        delivery.revision,
        delivery.attempts,
        delivery.delivered_at and micros(delivery.delivered_at),
        delivery.read_at and micros(delivery.read_at),
        delivery.acked_at and micros(delivery.acked_at),
        delivery.dead_at and micros(delivery.dead_at),
        delivery.due_at and micros(delivery.due_at),
        delivery.archived_at and micros(delivery.archived_at),
        delivery.expires_at and micros(delivery.expires_at),
        *(_NO_LEASE if delivery.lease is None else _lease_of(delivery)),
        delivery.reason,
        encode(delivery.history) if delivery.history else None,
        delivery.arrived or None,
    )


# The columns that the frequent moves change, and their values. SQLite updates every index that holds a changed
# column, so the other columns are left alone; a move that is not here writes all of them.
CHANGED: dict[str, tuple[tuple[str, ...], Callable[[Delivery], Row]]] = {
    "read": (("seen", "revision", "read_at"), lambda d: (True, d.revision, d.read_at and micros(d.read_at))),
    "claim": (
        ("state", "revision", "due_at", "lease_token", "lease_holder", "lease_until", "lease_boot"),
        lambda d: (STATE_NUMBER[d.state], d.revision, d.due_at and micros(d.due_at), *_lease_of(d)),
    ),
    "ack": (
        ("state", "revision", "seen", "acked_at", "read_at", "archived_at", "due_at"),
        lambda d: (STATE_NUMBER[d.state], d.revision, d.read_at is not None, *_ack_times(d)),
    ),
}


def _ack_times(d: Delivery) -> Row:
    """Return when it was acknowledged, read, archived and due: the first three are often one moment."""
    acked = d.acked_at and micros(d.acked_at)
    read = acked if d.read_at is d.acked_at else d.read_at and micros(d.read_at)
    archived = acked if d.archived_at is d.acked_at else d.archived_at and micros(d.archived_at)
    return acked, read, archived, d.due_at and micros(d.due_at)


_NO_LEASE: Row = (None,) * 4


def _lease_of(delivery: Delivery) -> Row:
    lease = delivery.lease
    return _NO_LEASE if lease is None else (lease.token, lease.holder, lease.until, lease.boot)


def found(row: Row) -> Found:
    """Decode `DELIVERY` columns and a letter's checksum and body; further columns are ignored."""
    message = sound(row[_SUM_AT], row[_SUM_AT + 1])
    try:
        return Found(message, delivery(message, row))
    except UNLIKELY as broken:
        raise Unreadable(f"a stored delivery cannot be read: {broken}") from None


def found_among(letters: Mapping[int, Message], row: Row) -> Found | None:
    """Decode `DELIVERY` columns alone, with its letter from `letters`; None if it is not among them."""
    message = letters.get(row[0])
    try:
        return None if message is None else Found(message, delivery(message, row))
    except UNLIKELY as broken:
        raise Unreadable(f"a stored delivery cannot be read: {broken}") from None


def sound(sum: int, body: bytes) -> Message:
    """Return the letter exactly as it was accepted; Unreadable if its checksum is wrong."""
    # A reader sees a letter exactly as it was accepted, or not at all (G2).
    if not isinstance(body, bytes) or crc32(body) != sum:
        raise Unreadable("a stored letter is not what was accepted")
    return decode_message(body)


def delivery(message: Message, row: Row) -> Delivery:
    """Decode `DELIVERY` columns; further columns are ignored."""
    number, mailbox, kind, state, rank, revision, attempts, delivered = row[:_MORE_AT]
    if mailbox is None:
        raise Damaged("the name of a mailbox is damaged", hint=SALVAGE)
    more = row[_MORE_AT:_SUM_AT]
    return Delivery(
        message_id=message.id,
        mailbox=mailbox,
        number=number,
        kind=KINDS[kind],
        state=STATES[state],
        priority=PRIORITIES[rank],
        revision=revision,
        attempts=attempts,
        delivered_at=delivered and time_of(delivered),
        **({} if more == NOTHING_MORE else _what_happened(*more)),
    )


def _what_happened(
    read: int | None,
    acked: int | None,
    dead: int | None,
    due: int | None,
    archived: int | None,
    expires: int | None,
    token: str | None,
    holder: str,
    until: float,
    boot: str,
    reason: str | None,
    history: bytes | None,
    arrived: int | None,
) -> dict[str, Any]:
    """Return the fields that are set only once something has happened to a delivery."""
    return {
        "read_at": read and time_of(read),
        "acked_at": acked and time_of(acked),
        "dead_at": dead and time_of(dead),
        "due_at": due and time_of(due),
        "archived_at": archived and time_of(archived),
        "expires_at": expires and time_of(expires),
        "lease": None if token is None else Lease(token=token, holder=holder, until=until, boot=boot),
        "reason": reason,
        "history": _decode_history(history) if history else (),
        "arrived": arrived or 0,
    }


def letter_row(message: Message, number: int, sender: int, body: bytes) -> Row:
    """Return all columns of `letters`, in order; `body` is the letter as JSON."""
    explicit = message.conversation_id or message.thread_tag
    return (
        number,
        message.id,
        sender,
        micros(message.created_at),
        None if message.kind == "message" else message.kind,
        None if message.scope == DEFAULT_SCOPE else message.scope,
        encode(message.tags).decode() if message.tags else None,
        message.thread_id,
        message.thread_tag,
        conversation_of(message) if explicit else None,
        message.key,
        crc32(body),
        body,
    )


def change(row: Row) -> Change:
    """Decode a row of `queries.CHANGES`."""
    number, what, message_id, mailbox, state, kind, key = row
    # The letter's row is gone, so the change carries its id as the key.
    if what == "forgot":
        message_id, key = key, None
    return record.Change(
        number=number,
        what=what,
        message_id=message_id,
        mailbox=mailbox,
        state=None if state is None else STATES[state],
        kind=kind,
        key=key,
    )


def letter(row: Row) -> Letter:
    """Decode a row of (number, checksum, body)."""
    return Letter(row[0], sound(row[1], row[2]))
