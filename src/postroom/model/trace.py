"""The life of one letter, as somebody may see it: where it is, what happened to it, what came of it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from .delivery import Attempt, State
from .message import Message, RecipientKind
from .ring import Ring, Sight
from .task import TaskState

if TYPE_CHECKING:
    from .delivery import Delivery
    from .ring import Audit


class Stop(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The letter at one mailbox. A lease's token is never shown: it is the proof of holding."""

    mailbox: str
    kind: RecipientKind
    state: State
    attempts: int = 0
    delivered_at: datetime | None = None
    read_at: datetime | None = None
    acked_at: datetime | None = None
    dead_at: datetime | None = None
    due_at: datetime | None = None
    archived_at: datetime | None = None
    expires_at: datetime | None = None
    holder: str | None = None  # who holds it, or who acknowledged it
    reason: str | None = None
    history: tuple[Attempt, ...] = ()
    rings: tuple[Ring, ...] = ()  # its recipient was told of it: hints, whatever came of them
    sights: tuple[Sight, ...] = ()  # it was put before somebody
    task: TaskState | None = None  # of the task that it opened here
    done_at: datetime | None = None  # that task was over


class Trace(Struct, frozen=True, kw_only=True):
    """One letter's life."""

    message: Message
    number: int  # of its acceptance
    stops: tuple[Stop, ...]
    replies: tuple[Message, ...]
    relays: tuple[Message, ...]  # the letter passed on
    bounces: tuple[Message, ...]  # the house's notices about it


def stop_of(delivery: Delivery, *, with_holder: bool) -> Stop:
    """Who holds it, and what holders said, is for the recipient and the operator."""
    same = {name: getattr(delivery, name) for name in _SAME}
    if not with_holder:
        return Stop(**same)
    holder = None if delivery.lease is None else delivery.lease.holder
    return Stop(**same, holder=holder, history=delivery.history)


def with_audit(stop: Stop, audit: Audit, *, whole: bool) -> Stop:
    """That it was rung and shown is for its sender too; on what occasion, and why a bell failed, is not."""
    if whole:
        rings = tuple(replace(ring, telling=0) for ring in audit.rings)
        return replace(stop, rings=rings, sights=audit.sights)
    rings = tuple(replace(ring, why="", telling=0) for ring in audit.rings)
    return replace(stop, rings=rings, sights=tuple(replace(sight, where="") for sight in audit.sights))


_ADDED = {"holder", "history", "rings", "sights", "task", "done_at"}
_SAME = tuple(name for name in Stop.__struct_fields__ if name not in _ADDED)
