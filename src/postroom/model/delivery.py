"""One letter at one mailbox: the only thing that moves, and the table of how it may move.

A letter has one delivery per recipient. Stores change a delivery by compare-and-set on `revision`; the
functions below make the `after` of each step and refuse what the table does not hold. Time and tokens are
handed in.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from ..errors import IllegalMove
from .message import Priority, RecipientKind
from .names import AT

if TYPE_CHECKING:
    from .message import Message


class State(StrEnum):
    QUEUED = "queued"  # accepted, not yet at the recipient's door: due later, or at another system
    UNREAD = "unread"  # in the inbox; it may have been looked at (read_at)
    CLAIMED = "claimed"  # one holder works on it, under a lease
    DONE = "done"  # acknowledged; never handed out again
    DEAD = "dead"  # given up, with a reason; can be revived


OPEN = (State.QUEUED, State.UNREAD, State.CLAIMED)
SETTLED = (State.DONE, State.DEAD)

# The table. (state, action) -> next state. What is not here is refused.
MOVES: dict[tuple[State, str], State] = {
    (State.QUEUED, "deliver"): State.UNREAD,
    (State.QUEUED, "expire"): State.DEAD,
    (State.QUEUED, "unsend"): State.DEAD,
    (State.QUEUED, "due"): State.QUEUED,  # from here on, those of mail for another system
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
    (State.DEAD, "requeue"): State.QUEUED,  # for another system
}

# Moves whose loss in a power cut would break a promise. The others are harmless to lose: after a power cut
# no local holder lives, and the next synced commit carries them along.
# A departure that is lost is made again, and the other system knows the letter.
DURABLE = frozenset({"ack", "bury", "expire", "give", "requeue", "revive", "unsend"})
SIGNS_OF_LIFE = frozenset({"read", "claim"})  # moves that only the owner of a mailbox makes: somebody is there
UNSENT = "unsent"  # the reason of a letter that its sender took back
REDIRECTED = "redirect"  # no step of the table: mail for a name that nobody has here goes to a system that has it
COPIED = "copy"  # no step of the table: a delivery becomes what it is in another room. As durable as those above
MOVED_AWAY = "moved to "  # so begins the reason of one that goes on in another room; here it is done
GIVEN = "given to "  # and of one that goes to the first of several systems: that one may have it by now


class Lease(Struct, frozen=True, gc=False, kw_only=True):
    """Who holds a delivery. The token is random and is the only proof; the clock is the machine's uptime."""

    token: str
    holder: str
    until: float  # seconds of uptime, so no wall clock can end or stretch a lease
    boot: str  # of which boot; a lease never outlives it


class Attempt(Struct, frozen=True, gc=False, kw_only=True):
    """A try at this delivery that failed."""

    at: datetime
    holder: str
    reason: str


class Delivery(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One letter at one mailbox."""

    message_id: str
    mailbox: str
    number: int = 0  # the letter's acceptance number, given by the store; decides order
    kind: RecipientKind = "to"
    state: State = State.UNREAD
    priority: Priority = Priority.NORMAL
    revision: int = 1
    attempts: int = 0
    delivered_at: datetime | None = None  # queued for another system: when it set out, if not when it was written
    read_at: datetime | None = None
    acked_at: datetime | None = None
    dead_at: datetime | None = None
    due_at: datetime | None = None  # queued: when it is delivered; unread: not handed out before
    archived_at: datetime | None = None
    expires_at: datetime | None = None  # the letter's
    lease: Lease | None = None  # of the present holder, or of the one who acknowledged
    reason: str | None = None  # why it is dead, or why the last try failed
    history: tuple[Attempt, ...] = ()
    arrived: int = 0  # the number of its coming, if it came later than it was accepted; given by the store

    @property
    def is_unread(self) -> bool:
        return self.state is State.UNREAD and self.read_at is None

    @property
    def waits(self) -> bool:
        """Does it count towards the quota of its inbox, or of the outbox for its system?"""
        return self.read_at is None and self.state in OPEN

    @property
    def is_back(self) -> bool:
        """Is it in the inbox because a try at it failed, and has nobody looked since?"""
        if self.state is not State.UNREAD or not self.history:
            return False
        return self.read_at is None or self.history[-1].at >= self.read_at

    @property
    def is_hidden(self) -> bool:
        """Was it taken back before its recipient looked? Then it is as if it had never come."""
        return self.state is State.DEAD and self.reason == UNSENT and self.read_at is None

    @property
    def has_left(self) -> bool:
        """Does it go on in another room? Then nobody acknowledged it here."""
        return self.state is State.DONE and (self.reason or "").startswith(MOVED_AWAY)

    @property
    def given_to(self) -> str:
        """The system that may have it, and has not said whether: no other one gets it. Empty: none may."""
        reason = self.reason or ""
        is_given = self.state is State.QUEUED and reason.startswith(GIVEN)
        return reason.removeprefix(GIVEN).partition(":")[0] if is_given else ""


def open_delivery(
    message: Message, mailbox: str, kind: RecipientKind, now: datetime, due_at: datetime | None = None
) -> Delivery:
    """The delivery a letter starts with."""
    if AT in mailbox:
        return departing(message, mailbox, kind, due_at)
    return Delivery(
        message_id=message.id,
        mailbox=mailbox,
        kind=kind,
        priority=message.priority,
        state=State.UNREAD if due_at is None else State.QUEUED,
        delivered_at=now if due_at is None else None,
        due_at=due_at,
        expires_at=message.expires_at,
    )


def departing(
    message: Message, mailbox: str, kind: RecipientKind = "to", due_at: datetime | None = None
) -> Delivery:
    """The delivery to another system: queued until that has the letter."""
    return Delivery(
        message_id=message.id,
        mailbox=mailbox,
        kind=kind,
        priority=message.priority,
        state=State.QUEUED,
        due_at=due_at,
        expires_at=message.expires_at,
    )


def advance(delivery: Delivery, action: str, **stamps: Any) -> Delivery:
    """The delivery after `action`, or IllegalMove in the table's words."""
    after = MOVES.get((delivery.state, action)) or _refuse(delivery, action)
    return replace(delivery, state=after, revision=delivery.revision + 1, **stamps)


def _refuse(delivery: Delivery, action: str) -> NoReturn:
    legal = ", ".join(sorted(a for s, a in MOVES if s is delivery.state)) or "none"
    raise IllegalMove(f"a letter that is {delivery.state} cannot {action}", hint=f"legal from here: {legal}")


def deliver(delivery: Delivery, now: datetime) -> Delivery:
    return advance(delivery, "deliver", delivered_at=now, due_at=None)


def come_due(delivery: Delivery, now: datetime) -> Delivery:
    """Mail for another system that waited for its time, or for another try, may go. It has waited since its first
    time.
    """
    since = delivery.delivered_at if delivery.attempts else now
    return advance(delivery, "due", due_at=None, delivered_at=since)


def give(delivery: Delivery, attempt: Attempt) -> Delivery:
    """It is about to go to one of several systems that could take it. That is no try that failed."""
    return advance(delivery, "give", reason=attempt.reason, history=(*delivery.history, attempt)[-20:])


def depart(delivery: Delivery, now: datetime, system: str) -> Delivery:
    """The other system has it, safe: what becomes of it is told there."""
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
    """Written out: hundreds may be read at once, and to hand stamps on by name takes as long as all the rest."""
    after = MOVES.get((delivery.state, "read")) or _refuse(delivery, "read")
    return replace(delivery, state=after, revision=delivery.revision + 1, read_at=delivery.read_at or now)


def claim(delivery: Delivery, lease: Lease) -> Delivery:
    return advance(delivery, "claim", lease=lease, due_at=None)


def renew(delivery: Delivery, lease: Lease) -> Delivery:
    return advance(delivery, "renew", lease=lease)


def ack(delivery: Delivery, now: datetime, *, archive: bool) -> Delivery:
    """Done. The lease stays, so that the same holder may confirm twice."""
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
    """Taken back by its sender, for good."""
    return advance(delivery, "unsend", dead_at=now, due_at=None, reason=UNSENT)


def archive(delivery: Delivery, now: datetime) -> Delivery:
    return advance(delivery, "archive", archived_at=now)


def revive(delivery: Delivery) -> Delivery:
    """Back into the inbox with all its attempts; an expiry that passed no longer counts."""
    return _again(delivery, "revive")


def requeue(delivery: Delivery, now: datetime) -> Delivery:
    """The same for mail to another system: it sets out once more."""
    return replace(_again(delivery, "requeue"), delivered_at=now)


def _again(delivery: Delivery, action: str) -> Delivery:
    if delivery.state is State.DEAD and delivery.reason == UNSENT:
        raise IllegalMove("its sender took the letter back", hint="ask the sender for another")
    return advance(delivery, action, dead_at=None, due_at=None, expires_at=None, attempts=0, reason=None)


def redirect(delivery: Delivery, mailbox: str, now: datetime, attempt: Attempt | None = None) -> Delivery:
    """The same delivery in the mailbox of an agent at another system, queued until that system has the letter.
    `attempt`: how it was refused where it waited before.
    """
    return replace(
        delivery if attempt is None else replace(delivery, **_failed(delivery, attempt)),
        mailbox=mailbox,
        state=State.QUEUED,
        revision=delivery.revision + 1,
        delivered_at=now,
        due_at=None,
    )


def move_away(delivery: Delivery, now: datetime, room: str) -> Delivery:
    """Done with and put away here, whatever its state was: from now on it is worked on in another room."""
    return replace(
        delivery,
        state=State.DONE,
        revision=delivery.revision + 1,
        read_at=delivery.read_at or now,
        acked_at=now,
        archived_at=now,
        due_at=None,
        lease=None,
        reason=f"{MOVED_AWAY}{room}",
    )


def _failed(delivery: Delivery, attempt: Attempt) -> dict[str, Any]:
    return {
        "lease": None,
        "attempts": delivery.attempts + 1,
        "reason": attempt.reason,
        "history": (*delivery.history, attempt)[-20:],
    }
