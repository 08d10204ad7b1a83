"""One delivery in two rooms: what the one that is copied to makes of what the other says.

The later state wins. Done is never taken back. Dead yields only to a proof that somebody revived the letter in the
other room after that very death. Of two open ones, the one further in its life wins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..model.delivery import OPEN, SETTLED, UNSENT, State
from ..model.names import AT

if TYPE_CHECKING:
    from ..model.delivery import Delivery

_LIFE = ("state", "attempts", "delivered_at", "acked_at", "dead_at", "due_at", "archived_at", "expires_at",
         "lease", "reason")  # fmt: skip
_TRIES = ("attempts", "reason", "due_at")


def agreed(ours: Delivery, theirs: Delivery, *, stays: bool) -> Delivery | None:
    """Ours as it shall be; None where it is right as it is. `stays`: it is moved to us, not only copied."""
    after = _after(ours, theirs, stays=stays)
    if after is None or after == ours:
        return None
    return replace(after, revision=max(ours.revision + 1, theirs.revision))


def _after(ours: Delivery, theirs: Delivery, *, stays: bool) -> Delivery | None:
    is_here = AT not in ours.mailbox  # what left for another system is simply done, in both rooms
    if theirs.has_left and is_here:  # what became of it is told by the room where it is
        return None
    if ours.has_left and is_here:  # it comes back, or what became of it is reported
        unseen = replace(ours, read_at=None)  # it was put away, not read
        return _as(unseen, theirs) if stays or theirs.state in SETTLED else None
    if ours.state is State.DONE:
        archived = theirs.archived_at if theirs.state is State.DONE else None
        return replace(ours, archived_at=ours.archived_at or archived)
    if theirs.state is State.DONE:
        return _as(ours, theirs)
    return _not_done(ours, theirs)


def _not_done(ours: Delivery, theirs: Delivery) -> Delivery:
    if ours.state is State.DEAD:
        return _as(ours, theirs) if theirs.state in OPEN and _is_revived(theirs, ours) else ours
    if theirs.state is State.DEAD:
        return ours if _is_revived(ours, theirs) else _as(ours, theirs)
    return _further(ours, theirs)


def _is_revived(alive: Delivery, dead: Delivery) -> bool:
    """Is this the other's life after that death? Its last failure, or its expiry, is part of this one's past."""
    if dead.reason == UNSENT:
        return False
    if dead.expires_at is not None and alive.expires_at is None:  # only a revival takes an expiry away
        return True
    return bool(dead.history) and alive.history[: len(dead.history)] == dead.history


def _further(ours: Delivery, theirs: Delivery) -> Delivery:
    """Of two that are open."""
    here, there = OPEN.index(ours.state), OPEN.index(theirs.state)
    if there > here:
        return _as(ours, theirs)
    if there < here:
        return ours
    after = replace(ours, read_at=ours.read_at or theirs.read_at)
    if ours.state is State.CLAIMED:
        return _renewed(after, theirs)
    if theirs.attempts > ours.attempts:
        return replace(after, history=theirs.history, **_taken(theirs, _TRIES))
    return after


def _renewed(ours: Delivery, theirs: Delivery) -> Delivery:
    """The same holder, who may have asked for more time."""
    if ours.lease is None or theirs.lease is None or ours.lease.token != theirs.lease.token:
        return ours
    return replace(ours, lease=max(ours.lease, theirs.lease, key=lambda lease: lease.until))


def _as(ours: Delivery, theirs: Delivery) -> Delivery:
    longer = max(ours.history, theirs.history, key=len)
    read_at = theirs.read_at or ours.read_at
    return replace(ours, read_at=read_at, history=longer, **_taken(theirs, _LIFE))


def _taken(delivery: Delivery, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(delivery, name) for name in names}
