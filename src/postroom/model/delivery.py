"""The delivery, which is one letter at one mailbox, and the table of its transitions.

A letter has one delivery per recipient, and only deliveries change state. The functions below return the delivery
after a step and refuse a step that the table does not hold; a store then replaces the old one by compare-and-set
on `revision`. Times and tokens are parameters.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec.structs import replace

from ..errors import IllegalMove
from .message import Priority, RecipientKind
from .names import AT
from .values import Brief

if TYPE_CHECKING:
    from .message import Message
    from .report import Stop


class State(StrEnum):
    """The state of a delivery."""

    QUEUED = "queued"  # accepted, not in the inbox yet: due later, or to be sent to another system
    UNREAD = "unread"  # in the inbox; it may have been read (read_at), but is not settled
    CLAIMED = "claimed"  # one holder works on it, under a lease
    DONE = "done"  # acknowledged; never handed out again
    DEAD = "dead"  # given up, with a reason; can be revived


OPEN = (State.QUEUED, State.UNREAD, State.CLAIMED)
SETTLED = (State.DONE, State.DEAD)

# The transition table: (state, action) -> next state. Any other step is refused.
MOVES: dict[tuple[State, str], State] = {
    (State.QUEUED, "deliver"): State.UNREAD,
    (State.QUEUED, "expire"): State.DEAD,
    (State.QUEUED, "unsend"): State.DEAD,
    (State.QUEUED, "due"): State.QUEUED,  # this and the next four are for mail to another system
    (State.QUEUED, "give"): State.QUEUED,
    (State.QUEUED, "retry"): State.QUEUED,
    (State.QUEUED, "depart"): State.DONE,
    (State.QUEUED, "bury"): State.DEAD,
    (State.UNREAD, "read"): State.UNREAD,
    (State.UNREAD, "claim"): State.CLAIMED,
    (State.UNREAD, "ack"): State.DONE,
    (State.UNREAD, "bury"): State.DEAD,
    (State.UNREAD, "expire"): State.DEAD,
    (State.UNREAD, "unsend"): State.DEAD,
    (State.CLAIMED, "read"): State.CLAIMED,
    (State.CLAIMED, "renew"): State.CLAIMED,
    (State.CLAIMED, "ack"): State.DONE,
    (State.CLAIMED, "retry"): State.UNREAD,
    (State.CLAIMED, "release"): State.UNREAD,
    (State.CLAIMED, "lapse"): State.UNREAD,
    (State.CLAIMED, "bury"): State.DEAD,
    (State.DONE, "archive"): State.DONE,
    (State.DEAD, "revive"): State.UNREAD,
    (State.DEAD, "requeue"): State.QUEUED,  # mail to another system
}

# Actions that must be on stable storage before the caller gets an answer. Losing any other in a power cut is
# harmless: afterwards no local holder is alive, and the next synced commit carries them along. A lost `depart`
# is repeated, and the other system recognizes the letter.
DURABLE = frozenset({"ack", "bury", "expire", "give", "requeue", "revive", "unsend"})
SIGNS_OF_LIFE = frozenset({"read", "claim"})  # actions that only the owner of a mailbox takes
UNSENT = "unsent"  # the reason of a delivery that the sender took back
REDIRECTED = "redirect"  # an action outside the table: mail for an unknown name goes to a system that knows it
COPIED = "copy"  # an action outside the table: take over the state from another room; durable too
MOVED_AWAY = "moved to "  # prefix of the reason of a delivery that continues in another room
GIVEN = "given to "  # prefix of the reason of a queued delivery that one of several systems may already have


class Lease(Brief, frozen=True, gc=False, kw_only=True):
    """The right to work on a delivery. The random token is the only proof of it."""

    token: str
    holder: str
    until: float  # in seconds of uptime, so that a change of the wall clock cannot end or extend a lease
    boot: str  # the id of the machine's boot; no lease outlives it


class Attempt(Brief, frozen=True, gc=False, kw_only=True):
    """A failed attempt at a delivery."""

    at: datetime
    holder: str
    reason: str


class Delivery(Brief, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One letter at one mailbox, which moves through the states of the table."""

    message_id: str
    mailbox: str
    number: int = 0  # the letter's acceptance number, assigned by the store; decides the order
    kind: RecipientKind = "to"
    state: State = State.UNREAD
    priority: Priority = Priority.NORMAL
    revision: int = 1
    attempts: int = 0
    delivered_at: datetime | None = None  # for another system: the start of its waiting, if later than the letter
    read_at: datetime | None = None
    acked_at: datetime | None = None
    dead_at: datetime | None = None
    due_at: datetime | None = None  # queued: time of delivery; unread: not offered before this time
    archived_at: datetime | None = None
    expires_at: datetime | None = None  # of the letter
    lease: Lease | None = None  # of the present holder, or of the holder that acknowledged
    reason: str | None = None  # why it is dead, or why the last attempt failed
    history: tuple[Attempt, ...] = ()
    arrived: int = 0  # the number of its arrival, if it arrived after its acceptance; assigned by the store

    @property
    def is_unread(self) -> bool:
        return self.state is State.UNREAD and self.read_at is None

    @property
    def waits(self) -> bool:
        """Whether it counts towards the quota of its inbox, or of the outbox for its system."""
        return self.read_at is None and self.state in OPEN

    @property
    def is_back(self) -> bool:
        """Whether it returned to the inbox after a failed attempt and has not been read since."""
        if self.state is not State.UNREAD or not self.history:
            return False
        return self.read_at is None or self.history[-1].at >= self.read_at

    @property
    def is_hidden(self) -> bool:
        """Whether the sender took it back before it was read. Then its recipient never sees it."""
        return self.state is State.DEAD and self.reason == UNSENT and self.read_at is None

    @property
    def has_left(self) -> bool:
        """Whether it continues in another room. Then it was not acknowledged in this one."""
        return forwarded_to(self) is not None

    @property
    def given_to(self) -> str:
        """The system that may already have it but has not confirmed; no other system gets it. Empty if none."""
        reason = self.reason or ""
        is_given = self.state is State.QUEUED and reason.startswith(GIVEN)
        return reason.removeprefix(GIVEN).partition(":")[0] if is_given else ""


def forwarded_to(at: Delivery | Stop) -> str | None:
    """Return the system or room in which a letter continues; None if it ends here."""
    reason = at.reason or ""
    return reason.removeprefix(MOVED_AWAY) if at.state is State.DONE and reason.startswith(MOVED_AWAY) else None


def open_delivery(
    message: Message, mailbox: str, kind: RecipientKind, now: datetime, due_at: datetime | None = None
) -> Delivery:
    """Return the delivery with which a letter starts at a mailbox."""
    # One to another system stays queued until that system has the letter.
    is_queued = due_at is not None or AT in mailbox
    return Delivery(
        message_id=message.id,
        mailbox=mailbox,
        kind=kind,
        priority=message.priority,
        state=State.QUEUED if is_queued else State.UNREAD,
        delivered_at=None if is_queued else now,
        due_at=due_at,
        expires_at=message.expires_at,
    )


def advance(delivery: Delivery, action: str, **stamps: Any) -> Delivery:
    """Return the delivery after `action`, or raise IllegalMove."""
    after = MOVES.get((delivery.state, action)) or _refuse(delivery, action)
    return replace(delivery, state=after, revision=delivery.revision + 1, **stamps)


def _refuse(delivery: Delivery, action: str) -> NoReturn:
    legal = ", ".join(sorted(a for s, a in MOVES if s is delivery.state)) or "none"
    raise IllegalMove(f"a letter that is {delivery.state} cannot {action}", hint=f"legal from here: {legal}")


def deliver(delivery: Delivery, now: datetime) -> Delivery:
    return advance(delivery, "deliver", delivered_at=now, due_at=None)


def come_due(delivery: Delivery, now: datetime) -> Delivery:
    """Return a delivery to another system that may be sent now: its time, or that of its next attempt, has come.

    Its age counts from the first time it was due.
    """
    since = delivery.delivered_at if delivery.attempts else now
    return advance(delivery, "due", due_at=None, delivered_at=since)


def give(delivery: Delivery, attempt: Attempt) -> Delivery:
    """Return a delivery that is about to go to one of several possible systems. This is not a failed attempt."""
    # The last 20 attempts are kept: a delivery is read and written whole.
    return advance(delivery, "give", reason=attempt.reason, history=(*delivery.history, attempt)[-20:])


def depart(delivery: Delivery, now: datetime, system: str) -> Delivery:
    """Return a delivery that the other system has stored. What happens to it next is known only there."""
    return advance(
        delivery,
        "depart",
        delivered_at=now,
        acked_at=now,
        archived_at=now,
        due_at=None,
        reason=f"{MOVED_AWAY}{system}",
    )


def read(delivery: Delivery, now: datetime) -> Delivery:
    """Return the delivery with a read stamp."""
    # Not by `advance`: hundreds may be read at once, and passing stamps as keywords doubles the time.
    after = MOVES.get((delivery.state, "read")) or _refuse(delivery, "read")
    return replace(delivery, state=after, revision=delivery.revision + 1, read_at=delivery.read_at or now)


def claim(delivery: Delivery, lease: Lease) -> Delivery:
    # `due_at` of a retry has no meaning once a holder works on it.
    return advance(delivery, "claim", lease=lease, due_at=None)


def renew(delivery: Delivery, lease: Lease) -> Delivery:
    return advance(delivery, "renew", lease=lease)


def ack(delivery: Delivery, now: datetime, *, archive: bool) -> Delivery:
    """Return the settled delivery. The lease stays, so that the same holder may acknowledge twice."""
    return advance(
        delivery,
        "ack",
        acked_at=now,
        read_at=delivery.read_at or now,
        due_at=None,
        archived_at=now if archive else None,
    )


def retry(delivery: Delivery, attempt: Attempt, due_at: datetime) -> Delivery:
    return advance(delivery, "retry", due_at=due_at, **_failed(delivery, attempt))


def lapse(delivery: Delivery, attempt: Attempt) -> Delivery:
    return advance(delivery, "lapse", **_failed(delivery, attempt))


def release(delivery: Delivery) -> Delivery:
    return advance(delivery, "release", lease=None)


def bury(delivery: Delivery, attempt: Attempt) -> Delivery:
    return advance(delivery, "bury", dead_at=attempt.at, **_failed(delivery, attempt))


def expire(delivery: Delivery, now: datetime) -> Delivery:
    return advance(delivery, "expire", dead_at=now, due_at=None, reason="expired")


def unsend(delivery: Delivery, now: datetime) -> Delivery:
    """Return the delivery that its sender took back for good."""
    return advance(delivery, "unsend", dead_at=now, due_at=None, reason=UNSENT)


def archive(delivery: Delivery, now: datetime) -> Delivery:
    return advance(delivery, "archive", archived_at=now)


def revive(delivery: Delivery) -> Delivery:
    """Return a dead delivery to the inbox, with all its attempts left and without an expiry."""
    return _restart(delivery, "revive")


def requeue(delivery: Delivery, now: datetime) -> Delivery:
    """Return a dead delivery to another system to the queue, with all its attempts left and without an expiry."""
    return replace(_restart(delivery, "requeue"), delivered_at=now)


def _restart(delivery: Delivery, action: str) -> Delivery:
    if delivery.state is State.DEAD and delivery.reason == UNSENT:
        raise IllegalMove("its sender took the letter back", hint="ask the sender for a new letter")
    # Without the expiry, else a letter that died of it would die again at once.
    return advance(delivery, action, dead_at=None, due_at=None, expires_at=None, attempts=0, reason=None)


def redirect(delivery: Delivery, mailbox: str, now: datetime, attempt: Attempt | None = None) -> Delivery:
    """Return the delivery moved to the mailbox of an agent at another system, where it is queued.

    `attempt` holds the reason why the system for which it waited before refused it.
    """
    return replace(
        delivery if attempt is None else replace(delivery, **_failed(delivery, attempt)),
        mailbox=mailbox,
        state=State.QUEUED,
        revision=delivery.revision + 1,
        delivered_at=now,
        due_at=None,
    )


def _failed(delivery: Delivery, attempt: Attempt) -> dict[str, Any]:
    return {
        "lease": None,
        "attempts": delivery.attempts + 1,
        "reason": attempt.reason,
        "history": (*delivery.history, attempt)[-20:],
    }
