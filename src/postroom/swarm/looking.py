"""Finding letters, and looking at them: by id, by mailbox, by thread. Moves nothing but time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import service
from ..errors import Invalid, NotAllowed
from ..model.delivery import State
from ..model.message import Priority
from ..model.names import check_agent, check_id
from ..model.query import Query
from ..policy.retention import archive_cutoff
from ..service.authorize import authorize
from . import members
from .translating import id_in, is_unread, type_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ..model.delivery import Delivery
    from ..model.query import Found
    from ..room import Room
    from .message import MessagePriority, MessageType

EXPIRED = "expired"  # the reason of a letter that died of its age


def find(room: Room, handle: str) -> Found | None:
    """The letter of this id as it is now; None for what is unknown, or not for whoever asks."""
    found = _first(room, handle)
    if found is None or not _may(room, "read", found.delivery.mailbox):
        return None
    office = room._office
    service.moving.let_time_pass(office, office.now(), (found.delivery.mailbox,))
    return _first(room, handle)


def waiting(
    room: Room,
    agent_name: str,
    *,
    unread_only: bool,
    message_types: Sequence[MessageType] | None,
    min_priority: MessagePriority | None,
) -> list[Found]:
    """The mail of an agent by priority, then age: what is unread, or everything but old completed letters."""
    authorize(room._principal, "check", check_agent(agent_name, "agent_name"))
    office, moment = room._office, room._office.now()
    asked, *others = members.places(agent_name)
    known = [place._replace(mailbox=members.as_known(room, place.mailbox)) for place in others]
    places = [asked, *(place for place in known if _may(room, "check", place.mailbox))]
    service.moving.let_time_pass(office, moment, [place.mailbox for place in places])
    found: list[Found] = []
    for place in places:
        query = Query(
            mailbox=place.mailbox,
            scope=place.scope,
            states=(State.UNREAD,) if unread_only else _IN_THE_INBOX,
            shown_only=True,
            offered_at=moment.wall,
            min_priority=Priority.LOW if min_priority is None else Priority(min_priority.value),
        )
        found += office.store.find(query)
        if place is asked and not found:
            service.reading.check_spelling(office, place.mailbox)
    completed_before = archive_cutoff(moment.wall, office.limits)
    shown = [
        one
        for one in found
        if (is_unread(one.delivery) if unread_only else _is_listed(one.delivery, completed_before))
    ]
    if message_types:
        shown = [one for one in shown if type_of(one.message) in message_types]
    return sorted(shown, key=lambda one: (-one.message.priority, one.message.created_at, one.delivery.number))


def thread(room: Room, thread_id: str) -> list[Found]:
    """All letters of a thread, the oldest first, each as it stands with its first recipient."""
    try:
        letters = room.thread(id_in(thread_id))
    except Invalid:  # no thread was ever called that
        return []
    found = [first for letter in letters if (first := _first(room, letter.id)) is not None]
    return sorted(found, key=lambda one: (one.message.created_at, one.delivery.number))


_IN_THE_INBOX = (State.UNREAD, State.CLAIMED, State.DONE, State.DEAD)


def _may(room: Room, action: str, mailbox: str) -> bool:
    try:
        authorize(room._principal, action, mailbox)
    except NotAllowed:
        return False
    return True


def _is_listed(delivery: Delivery, completed_before: datetime) -> bool:
    """Is this letter part of a mailbox's full list? A completed letter stays in it until it is old enough for the
    archive, also when `mark_completed` moved its file there at once.
    """
    if delivery.archived_at is None:
        return delivery.reason != EXPIRED
    return not delivery.has_left and delivery.acked_at is not None and delivery.acked_at > completed_before


def _first(room: Room, handle: str) -> Found | None:
    """Of several recipients, the one that the handle names, else the first that the letter does."""
    id, at, name = handle.partition("@")
    try:
        owner = check_agent(name, "message_id") if at else None
        query = Query(mailbox=owner, message_ids=(check_id(id, "message_id"),), shown_only=True)
    except Invalid:  # nobody ever gave it out
        return None
    found = [one for one in room._office.store.find(query) if one.delivery.state is not State.QUEUED]
    return min(found, key=_place_among_recipients, default=None)


def _place_among_recipients(found: Found) -> int:
    named = [recipient.address for recipient in found.message.recipients]
    mailbox = found.delivery.mailbox
    return named.index(mailbox) if mailbox in named else len(named)
