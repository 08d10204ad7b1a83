"""Who wants to hear of what happens, and telling them. Pull is the truth: each subscriber has a cursor, and a bell
only says when to look. Who does not read falls behind, and goes on from its cursor when it reads again.

It refuses to know how a notice travels. Above it stand the rims, below it `desk` and `wire`.
"""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from .errors import Invalid, Missing, Resync
from .model.record import TOKEN
from .service.tokens import is_live
from .store.bells import ROOM
from .wire import events, rpc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .desk import Desk
    from .model.change import Cursor
    from .room import Room
    from .store.base import Watch
    from .wire.events import Event

SLICE = 200  # changes looked at in one go
MOST = 1000  # subscriptions of one caller
POLL = 1.0  # seconds between two looks where no bell can be heard
RESYNC = "resync"  # the type of the event that says: some of the past cannot be told any more


class Subscription:
    """One wish to hear."""

    def __init__(
        self, id: str, room: Room, push: Callable[[dict[str, Any]], bool], filter: dict[str, Any], since: Cursor
    ) -> None:
        self.id = id
        self.room = room
        self.push = push
        self.filter = filter
        self.cursor = since  # it has heard of everything up to here
        self.sequence = itertools.count(1)
        self.is_behind = False

    def tell(self, event: Event, cursor: Cursor) -> bool:
        """Tell it, if it wants to hear of it and may. False: it does not read."""
        if not events.is_visible(event, self.room.principal) or not events.wanted(event, self.filter):
            return True
        return self.push(self._notice(event.type, event.id, event.timestamp, event.data, str(cursor)))

    def tell_resync(self, cursor: Cursor) -> None:
        now = int(datetime.now(UTC).timestamp() * 1000)
        self.push(self._notice(RESYNC, f"resync-{cursor}", now, {}, str(cursor)))

    def _notice(self, type: str, id: str, timestamp: int, data: Any, cursor: str) -> dict[str, Any]:
        told = {"id": id, "type": type, "timestamp": timestamp, "data": data}
        params = {
            "subscriptionId": self.id,
            "sequenceNumber": next(self.sequence),
            "eventId": id,
            "timestamp": timestamp,
            "cursor": cursor,
            "event": told,
        }
        return rpc.notification("map/event", params)


class Hub:
    """Made inside an event loop; used on its thread alone, except `publish`."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._store = desk.room._office.store
        self._loop = asyncio.get_running_loop()
        self._of: dict[object, dict[str, Subscription]] = {}
        self._guests: dict[str, dict[object, Callable[[], None]]] = {}  # who stays with a token, by its id
        desk.counters.subscribers = lambda: sum(map(len, self._of.values()))
        self._numbers = itertools.count(1)
        self._watch: Watch | None = None
        self._poll: asyncio.TimerHandle | None = None
        self._cursor = self._store.cursor()

    # -- subscribers

    def subscribe(
        self, caller: Any, push: Callable[[dict[str, Any]], bool], said: dict[str, Any]
    ) -> dict[str, Any]:
        own = self._of.setdefault(caller, {})
        if len(own) >= MOST:
            raise Invalid(f"{MOST} subscriptions are enough", field="filter", hint="map/unsubscribe from some")
        filter = events.check_filter(said.get("filter") or {})
        self._listen()
        given = said.get("since") or said.get("replay_from")
        since = self._cursor if given is None else self._valid(given)
        one = Subscription(f"sub-{next(self._numbers)}", caller.room, push, filter, since)
        own[one.id] = one
        if given is not None:
            one.is_behind = True
            self._loop.call_soon(self._catch_up, one)
        return {"subscriptionId": one.id, "cursor": str(since)}

    def unsubscribe(self, caller: Any, id: str) -> dict[str, Any]:
        if self._of.get(caller, {}).pop(id, None) is None:
            raise Missing(f"there is no subscription {id!a}", field="subscription_id")
        self._rest()
        return {"subscription": {"id": id, "closedAt": int(datetime.now(UTC).timestamp() * 1000)}}

    def resume(self, caller: Any) -> None:
        """It reads again."""
        for one in list(self._of.get(caller, {}).values()):
            if one.is_behind:
                self._catch_up(one)

    def admit(self, caller: object, token: str, expel: Callable[[], None]) -> None:
        """Somebody stays, with this token. As soon as it is revoked, wherever that is done, `expel` is called."""
        self._listen()
        self._guests.setdefault(token, {})[caller] = expel
        self._look_at_tokens({token})  # it may have happened since it was shown

    def forget(self, caller: Any) -> None:
        self._of.pop(caller, None)
        for token in [token for token, some in self._guests.items() if some.pop(caller, None) and not some]:
            del self._guests[token]
        self._rest()

    def close(self) -> None:
        self._of.clear()
        self._guests.clear()
        self._rest()

    def publish(self, said: dict[str, Any]) -> None:
        """Something that is told to those who listen now, and kept nowhere. From any thread."""
        self._loop.call_soon_threadsafe(self._publish, said)

    def _publish(self, said: dict[str, Any]) -> None:
        event = events.emitted(said)
        for one in self._everyone():
            if not one.is_behind:
                one.tell(event, one.cursor)

    # -- what happens

    def look(self) -> None:
        """Tell what happened since the last look."""
        while self._of or self._guests:
            try:
                changes, after = self._store.changes(self._cursor, SLICE)
            except Resync:
                self._resync()
                return
            if not changes:
                return
            self._cursor = after
            self._look_at_tokens({c.key for c in changes if c.kind == TOKEN and c.key is not None})
            if self._of:
                self._tell(events.events(self._desk.room, changes), after)

    def _look_at_tokens(self, ids: set[str]) -> None:
        """Whoever holds one that is worth nothing any more hears nothing more, and goes."""
        office = self._desk.room._office
        for id in ids & self._guests.keys():
            if not is_live(office, id):
                for caller, expel in self._guests.pop(id).items():
                    self._of.pop(caller, None)
                    self._loop.call_soon(expel)

    def _tell(self, found: Sequence[Event], after: Cursor) -> None:
        for one in self._everyone():
            if one.is_behind:
                continue
            if all(one.tell(event, after) for event in found):
                one.cursor = after
            else:
                one.is_behind = True  # some of this slice may be told again: better twice than never

    def _catch_up(self, one: Subscription) -> None:
        """From its own cursor on, slice by slice, as long as it reads."""
        while True:
            try:
                changes, after = self._store.changes(one.cursor, SLICE)
            except Resync:
                one.cursor = self._store.cursor()
                one.tell_resync(one.cursor)
                continue
            if not changes:
                one.is_behind = False
                return
            if not all(one.tell(event, after) for event in events.events(self._desk.room, changes)):
                one.is_behind = True
                return
            one.cursor = after

    def _resync(self) -> None:
        self._cursor = self._store.cursor()
        self._look_at_tokens({*self._guests})
        for one in self._everyone():
            one.cursor = self._cursor
            one.tell_resync(one.cursor)

    def _everyone(self) -> list[Subscription]:
        return [one for own in self._of.values() for one in own.values()]

    def _valid(self, given: str) -> Cursor:
        from .service.reading import check_cursor  # noqa: PLC0415 - few resume

        return check_cursor(given)

    # -- listening

    def _listen(self) -> None:
        if self._watch is not None:
            return
        self._cursor = self._store.cursor()
        self._watch = self._store.watch((ROOM,))
        if self._watch.fileno() >= 0:
            self._loop.add_reader(self._watch.fileno(), self._hear)
        else:
            self._look_again()

    def _rest(self) -> None:
        """Nobody listens: neither do we."""
        if self._watch is None or self._guests or any(self._of.values()):
            return
        if self._poll is not None:
            self._poll.cancel()
        if self._watch.fileno() >= 0:
            self._loop.remove_reader(self._watch.fileno())
        self._watch.close()
        self._watch = None

    def _hear(self) -> None:
        if self._watch is not None:
            self._watch.rung()
            self.look()

    def _look_again(self) -> None:
        self._hear()
        self._poll = self._loop.call_later(POLL, self._look_again)
