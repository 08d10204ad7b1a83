"""`map/send`: a durable letter, by the rules of every other letter. And what happened, once more: `map/replay`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from .. import service
from ..errors import IdTaken, Invalid, Resync, UnknownMessage
from ..service.authorize import authorize
from ..service.given import check_count
from ..service.sending import Receipt
from .event_filter import check_filter, wanted
from .events import Past, events, map_event, number_of
from .map_addresses import read_address
from .map_messages import answered, letter_fields, once_key
from .map_routing import reached, recipients
from .saying import box_of

if TYPE_CHECKING:
    from ..model.change import Cursor
    from ..room import Room
    from ..store.base import Store

MOST_REPLAYED = 1000
SLICE = 500  # changes looked at in one go
MOST_LOOKED_AT = 20_000  # changes in one call; whoever wants more asks again


def send(room: Room, said: dict[str, Any]) -> dict[str, Any]:
    """`delivered`: in whose inboxes it lies now. Who of them has it is told by `message.delivered`. A message to a
    scope with nobody else in it is taken and delivered to nobody, as by the SDK's own server. Without `to`, an
    answer goes to the sender of the letter answered.
    """
    sender = box_of(room, said, "from").name
    to = recipients(room, sender, read_address(said["to"])) if "to" in said else None
    fields = letter_fields(said) | _reply(room, sender, said) | _once(said)
    body = fields.pop("body")
    if to is not None and not to:
        return {"messageId": room._office.ids.message(), "delivered": []}
    try:
        sent = room.mailbox(sender).send(to[0] if to and len(to) == 1 else to, body, **fields)
    except IdTaken:  # sent again, and something of its meta counts the time since
        first = room._office.store.sent(sender, fields["key"]) if "key" in fields else None
        if first is None:
            raise
        sent = Receipt(message=first.message, repeated=True)
    addressed = [one.address for one in sent.message.recipients] if to is None else to
    return {"messageId": sent.id, "delivered": list(sent.routed) or reached(room, sender, addressed)}


def _reply(room: Room, sender: str, said: dict[str, Any]) -> dict[str, Any]:
    """Which letter it answers, where its sender sent or got that one."""
    id = answered(said)
    if id is None:
        return {}
    try:
        service.sending.known_letter(room._office, sender, id)
    except UnknownMessage:
        return {}
    return {"in_reply_to": id}


def _once(said: dict[str, Any]) -> dict[str, Any]:
    """A sender with ids of its own may send again what it did not hear was taken: it is one letter."""
    id = (said.get("meta") or {}).get("messageId")
    return {"key": once_key(id, said.get("to"))} if isinstance(id, str) and id else {}


def replay(room: Room, said: dict[str, Any]) -> dict[str, Any]:
    """Events that the caller may hear of, the oldest first. Letters and conversations are kept; that somebody
    came, changed its state or joined a scope is told once, to those who listen; the directory says how things are.
    """
    authorize(room.principal, "wait", room.principal.agent)
    filter = check_filter(said.get("filter"))
    limit = min(check_count(said.get("limit", 100), "limit"), MOST_REPLAYED)
    first, last = said.get("from_timestamp"), said.get("to_timestamp")
    id = said.get("after_event_id")
    number = 0 if id is None else number_of(id)
    if number is None:
        raise Invalid("is no event's id", field="after_event_id", hint="an eventId from map/event or map/replay")
    store = room._office.store
    now = store.cursor()
    cursor = _earliest(store, now) if id is None else replace(now, number=number - 1)
    told: list[dict[str, Any]] = []
    is_past = id is None
    for _ in range(MOST_LOOKED_AT // SLICE):
        changes, after = store.changes(cursor, SLICE)
        for event in events(room, Past(room, changes)):
            if not is_past and event.number <= number:
                is_past = event.id == id
                continue
            in_time = (first is None or event.timestamp >= first) and (last is None or event.timestamp <= last)
            if in_time and wanted(event, filter):
                told.append(map_event(event, filter.spelt))
        cursor = after
        if not changes or len(told) > limit:
            break
    shown = [{"eventId": one["id"], "timestamp": one["timestamp"], "event": one} for one in told[:limit]]
    return {"events": shown, "hasMore": len(told) > limit}


def _earliest(store: Store, now: Cursor) -> Cursor:
    """From where on the past can still be told: found by halving, as stores say only yes or no."""
    low, high = 0, now.number
    while low < high:
        middle = (low + high) // 2
        try:
            store.changes(replace(now, number=middle), 1)
            high = middle
        except Resync:
            low = middle + 1
    return replace(now, number=high)
