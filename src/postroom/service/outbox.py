"""Mail for other systems: what waits, what goes next, what became of it. It waits until the other one has it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from .. import service
from ..errors import StaleRevision, UnknownMessage
from ..model import delivery as moves
from ..model.address import ANYWHERE, is_remote, system_of
from ..model.delivery import GIVEN, Attempt, State
from ..model.message import CAME, same_name
from ..model.query import Query
from ..policy.outgoing import is_too_old, latest_try
from ..store.base import Move
from .moving import SLICE, let_time_pass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..model.delivery import Delivery
    from ..model.message import Message
    from ..model.query import Found
    from ..store.base import Write
    from .office import Office


def waiting(office: Office, limit: int | None = None) -> list[str]:
    """Mailboxes elsewhere with mail that could go now, the longest waiting first."""
    now = office.now().wall
    return [*office.store.outgoing(now, latest_try(now, office.limits))][:limit]


def next_letters(
    office: Office, mailboxes: Sequence[str], limit: int, takes: Callable[[Found], bool] = lambda _: True
) -> list[Found]:
    """What goes next to these, in order of acceptance, by one who `takes` it. Of one sender to one recipient
    nothing overtakes a letter that waits to be tried again, or for another way.
    """
    moment = office.now()
    let_time_pass(office, moment, mailboxes)
    found = [one for mailbox in mailboxes for one in _next_at(office, mailbox, moment.wall, limit, takes)]
    found.sort(key=lambda one: (one.delivery.number, one.delivery.mailbox))
    return found[:limit]


def give(office: Office, letters: Sequence[Found], system: str) -> None:
    """They could go to any of several systems, and are about to go to this one: from now on it may have them."""
    attempt = Attempt(at=office.now().wall, holder=system, reason=f"{GIVEN}{system}")

    def plan() -> Sequence[Write]:
        free = [one for found in letters for one in _still_queued(office, found) if not one.given_to]
        return [Move(one, moves.give(one, attempt), "give") for one in free]

    office.store.commit(plan)


def departed(office: Office, deliveries: Sequence[Delivery], system: str) -> None:
    """A system has them, safe: the one they are for, or one that passes them on."""
    now = office.now().wall
    steps = [Move(one, moves.depart(one, now, _whereto(one, system)), "depart") for one in deliveries]
    try:
        office.store.commit(steps)
    except (StaleRevision, UnknownMessage):  # something was unsent, or expired, while it was on its way
        for step in steps:
            _depart_now(office, step.before, now, system)


def delayed(office: Office, found: Found, reason: str, due_at: datetime) -> None:
    """The other system did not take it now; it is tried again."""
    attempt = Attempt(at=office.now().wall, holder=system_of(found.delivery.mailbox), reason=reason)

    def plan() -> Sequence[Write]:
        return [Move(d, moves.retry(d, attempt, due_at), "retry") for d in _still_queued(office, found)]

    office.store.commit(plan)


def refused(office: Office, found: Found, reason: str) -> None:
    """The other system will not take it: it is dead, and its sender is told."""
    now = office.now().wall

    def plan() -> Sequence[Write]:
        return [w for d in _still_queued(office, found) for w in _buried(office, found, d, reason, now)]

    office.store.commit(plan)


def give_up_old(office: Office, now: datetime) -> int:
    """What waited for as long as anything does is dead, and its senders are told. How many there were."""
    given_up = 0

    def plan() -> Sequence[Write]:
        nonlocal given_up
        writes: list[Write] = []
        for found in _too_old(office, now):
            reason = f"{_waited_for(found.delivery)} did not take it in time"
            writes += _buried(office, found, found.delivery, reason, now)
            given_up += 1
        return writes

    while next(_too_old(office, now), None) is not None:
        before = given_up
        office.store.commit(plan)
        if given_up == before:
            break
    return given_up


def waits_since(found: Found) -> datetime:
    """When it set out: when it was written, or when its time came or somebody revived it. One that is passed on
    sets out when it came: when it was written is told by another system's clock.
    """
    return found.delivery.delivered_at or _came_at(found.message) or found.message.created_at


def _waited_for(delivery: Delivery) -> str:
    system = delivery.given_to or system_of(delivery.mailbox)
    return "any system that has it" if system == ANYWHERE else system


def _came_at(letter: Message) -> datetime | None:
    """None: it was written here, or what stands in its file was written by others."""
    came: Any = letter.extra.get(CAME) if is_remote(letter.sender) else None
    try:
        at = None if came is None else datetime.fromisoformat(came["at"])
    except (LookupError, TypeError, ValueError):
        return None
    return at if at is not None and at.tzinfo is not None else None


def _next_at(
    office: Office, mailbox: str, now: datetime, limit: int, takes: Callable[[Found], bool]
) -> list[Found]:
    held: set[str] = set()  # senders, one of whose letters waits to be tried again, or for another way
    ready: list[Found] = []
    for found in _queued(office, mailbox, max(limit, SLICE)):
        delivery, sender = found.delivery, found.message.sender
        is_due = _is_due(office, delivery, now)
        if (not is_due and delivery.attempts) or (is_due and not takes(found)):
            held.add(sender)
        elif is_due and sender not in held:
            ready.append(found)
        if len(ready) == limit:
            break
    return ready


def _is_due(office: Office, delivery: Delivery, now: datetime) -> bool:
    if delivery.due_at is None or delivery.due_at <= now:
        return True
    return delivery.attempts > 0 and delivery.due_at > latest_try(now, office.limits)


def _queued(office: Office, mailbox: str, page: int) -> Iterator[Found]:
    """All that waits there, in order of acceptance, page by page."""
    after = 0
    while found := office.store.find(
        Query(mailbox=mailbox, states=(State.QUEUED,), after=after, order="age", limit=page)
    ):
        yield from found
        after = found[-1].delivery.number
        if len(found) < page:
            return


def _too_old(office: Office, now: datetime) -> Iterator[Found]:
    """A slice of them. Later letters were sent later: the first that is young ends the search in a mailbox."""
    told = 0
    for mailbox in office.store.outgoing(now, latest_try(now, office.limits)):
        for found in _queued(office, mailbox, SLICE):
            since = waits_since(found)
            if not is_too_old(min(found.message.created_at, since), now, office.limits):
                break
            is_due = _is_due(office, found.delivery, now)
            if (is_due or found.delivery.attempts) and is_too_old(since, now, office.limits):
                yield found
                told += 1
            if told == SLICE:
                return


def _still_queued(office: Office, found: Found) -> list[Delivery]:
    """As it is now, unless it was unsent or expired meanwhile."""
    at = Query(mailbox=found.delivery.mailbox, message_ids=(found.message.id,), states=(State.QUEUED,))
    return [one.delivery for one in office.store.find(at)]


def _buried(office: Office, found: Found, delivery: Delivery, reason: str, now: datetime) -> list[Write]:
    attempt = Attempt(at=now, holder=system_of(delivery.mailbox), reason=reason)
    dead = moves.bury(delivery, attempt)
    bounce = service.bouncing.bounce(office, found.message, dead, now)
    return [Move(delivery, dead, "bury"), *bounce]


def _whereto(delivery: Delivery, system: str) -> str:
    target = system_of(delivery.mailbox)
    is_there = target == ANYWHERE or same_name(target, system)
    return system if is_there else f"{system}, on its way to {target}"


def _depart_now(office: Office, delivery: Delivery, now: datetime, system: str) -> None:
    def plan() -> Sequence[Write]:
        at = Query(mailbox=delivery.mailbox, message_ids=(delivery.message_id,), states=(State.QUEUED,))
        found = [one.delivery for one in office.store.find(at)]
        return [Move(one, moves.depart(one, now, _whereto(one, system)), "depart") for one in found]

    office.store.commit(plan)
