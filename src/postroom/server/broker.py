"""A stretch of the past, for those who catch up: found once for all who stand at the same place, and what is heard
of it once for all who may hear the same.

It refuses to know subscribers. Above it stands `hub`, below it `wire`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from ..core.agents import is_member
from ..core.inbox import check_cursor
from ..core.tokens import live, standing_or_nobody
from ..errors import Invalid, Missing, PostroomError, Resync
from ..formats.inbox import milliseconds
from ..model.record import TOKEN
from ..store.notification import ROOM
from . import events, protocol
from .events import check_filter, wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from ..core.authorize import Principal
    from ..core.core import Core
    from ..model.record import Change, Cursor
    from ..room import Room
    from ..store.protocol import Watch
    from .events import Event, EventFilter
    from .executor import Executor


log = logging.getLogger("postroom")


class ChangeBatch:
    """Some changes; `after` stands behind the last of them."""

    def __init__(self, room: Room, changes: Sequence[Change], after: Cursor) -> None:
        self._room = room
        self.changes = changes
        self.after = after
        self._heard: dict[Principal, list[Event] | None] = {}

    @cached_property
    def past(self) -> events.Past:
        return events.Past(self._room, self.changes)

    def heard_by(self, room: Room) -> list[Event] | None:
        """What this caller may hear of it; None: a fault of ours, and it hears of it later."""
        who = room.principal
        if who not in self._heard:
            self._heard[who] = find_events(room, self.past)
        return self._heard[who]


def find_events(room: Room, past: events.Past) -> list[Event] | None:
    """The same, found anew."""
    try:
        return events.events(room, past)
    except BaseException as fault:
        if not isinstance(fault, Exception):
            raise
        log.exception("%s could not be told of %d changes", room.principal.name, len(past.changes))
        return None


# One wish to hear of what happens: what it wants, how far it has heard, and telling it.
#
# It refuses to know where the news come from. Above it stands `hub`, below it `wire`.

SLICE = 200  # changes looked at in one go
RESYNC = "resync"  # the type of the event that says: some of the past cannot be told any more


class Subscription:
    """One wish to hear."""

    def __init__(
        self,
        id: str,
        room: Room,
        push: Callable[[dict[str, Any]], bool],
        filter: EventFilter,
        since: Cursor,
        received: set[str],
        mailbox: str | None = None,
    ) -> None:
        self.id = id
        self.room = room
        self.push = push
        self.filter = filter
        self.cursor = since  # it has heard of everything up to here
        self.sequence = 0  # notices it has taken
        self.is_behind = True  # until its caller knows that it has subscribed, and has heard what it missed
        self.is_over = False
        self.catching_up: asyncio.TimerHandle | asyncio.Future[Any] | None = None
        self.slice = SLICE  # changes it is told of in one go; fewer for who reads slowly, or large letters
        self.kept: deque[Event] | None = None  # what was emitted while it is found out what else it hears
        self._mailbox = mailbox  # whose letters it is told of as delivered: nobody hands them over
        self._half = received  # what it was told of a change of which it has not heard all

    def tell(self, found: Sequence[Event], after: Cursor) -> bool:
        """Tell what it wants to hear of. False: it does not read; its cursor stands behind what it was told."""
        if after.number <= self.cursor.number:  # heard while it caught up
            return True
        known: Iterable[Event] = self._with_arrivals(found) if self._mailbox is not None else found
        received = [event for event in known if event.number > self.cursor.number and wanted(event, self.filter)]
        for event, following in itertools.zip_longest(received, received[1:]):
            is_last = following is None or following.number != event.number  # of those it wants to hear
            if event.id not in self._half:
                seen = replace(self.cursor, number=event.number if is_last else event.number - 1)
                if not self._say(events.map_event(event, self.filter.spelt), seen):
                    return False
                self.cursor = seen
            self._half = set() if is_last else self._half | {event.id}
        self.cursor = after
        return True

    def _with_arrivals(self, found: Sequence[Event]) -> Iterator[Event]:
        """Where no types were asked for, by the word for which the SDK's clients wait."""
        type = events.DELIVERED if self.filter.event_types is not None else events.DELIVERED_IN_THE_SDK
        for event in found:
            yield event
            if self._mailbox is not None and events.is_for(event, self._mailbox):
                yield events.arrived(event, self._mailbox, type)

    def tell_once(self, event: Event) -> None:
        """Of something that leaves no trace."""
        if self.kept is not None:
            self.kept.append(event)
        elif not self.is_behind and wanted(event, self.filter):
            self._say(events.map_event(event, self.filter.spelt), self.cursor)

    def tell_kept(self) -> None:
        """It has heard all that happened before."""
        kept, self.kept = self.kept, None
        for event in kept or ():
            self.tell_once(event)

    def tell_resync(self, cursor: Cursor) -> bool:
        """Was it taken? Else it is to be told again: what it missed is missed."""
        now, known = milliseconds(self.room._core.now().wall), self.room.cursor()
        result = {"id": f"{RESYNC}-{known.number}", "type": RESYNC, "timestamp": now, "data": {}}
        if not self._say(result, known):
            return False
        self.cursor = cursor
        return True

    def _say(self, result: dict[str, Any], cursor: Cursor) -> bool:
        """Was it taken? What was not has no number: whoever counts would miss it."""
        params = {
            "subscriptionId": self.id,
            "sequenceNumber": self.sequence + 1,
            "eventId": result["id"],
            "timestamp": result["timestamp"],
            "cursor": str(cursor),
            "event": result,
        }
        is_taken = self.push(protocol.notification("map/event", params))
        self.sequence += is_taken
        return is_taken


# Who wants to hear of what happens, and telling them. Pull is the truth: each subscriber has a cursor, and a bell
# only says when to look. Who does not read falls behind, and goes on from its cursor when it reads again.
#
# It refuses to know how a notice travels. Above it stand the rims, below it `desk` and `wire`.

FIRST_SLICE = 4  # as long as nothing is known of them
LONG = 0.03  # seconds that such a look may take
SHORT_SLICE = 50  # for one alone: the others wait meanwhile
AGAIN = 5.0  # seconds after a fault of ours
MOST = 1000  # subscriptions of one caller
MOST_KEPT = 100  # events that were emitted meanwhile
MAILBOX = "mailbox"  # what a session says of who subscribes, and no caller can: whose letters it is told of
POLL = 1.0  # seconds between two looks where no bell can be heard


class Guest(NamedTuple):
    """Somebody who stays with a token."""

    agent: str | None  # whose it was when it was shown
    expel: Callable[[], None]


class Broker:
    """Made inside an event loop; used on its thread alone, except `publish`."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._store = executor.room._core.store
        self._loop = asyncio.get_running_loop()
        self._of: dict[object, dict[str, Subscription]] = {}
        self._guests: dict[str, dict[object, Guest]] = {}  # who stays with a token, by its id
        executor.counters.subscribers = lambda: sum(map(len, self._of.values()))
        self.listeners: list[Callable[[Event], None]] = []  # parts of the house that hear what is emitted
        self._numbers = itertools.count(1)
        self._watch: Watch | None = None
        self._poll: asyncio.TimerHandle | None = None
        self._cursor = self._store.cursor()
        self._slice = FIRST_SLICE
        self._stretches: dict[tuple[Cursor, int], ChangeBatch] = {}  # of the past, in this moment

    # -- subscribers

    def subscribe(
        self, caller: Any, push: Callable[[dict[str, Any]], bool], params: dict[str, Any]
    ) -> dict[str, Any]:
        own = self._of.setdefault(caller, {})
        if len(own) >= MOST:
            raise Invalid(f"{MOST} subscriptions are enough", field="filter", hint="map/unsubscribe from some")
        filter = check_filter(params.get("filter"))
        self._listen()
        value = params["since"] if params.get("since") is not None else params.get("replay_from")
        since, received = self._place(value)
        id = f"sub-{next(self._numbers)}"
        one = Subscription(id, caller.room, push, filter, since, received, params.get(MAILBOX))
        own[one.id] = one
        known = since if value is not None else caller.room.cursor()
        return {"subscriptionId": one.id, "cursor": str(known)}

    def _place(self, value: Any) -> tuple[Cursor, set[str]]:
        """From where on: now, behind a cursor, or behind an event; and what of the change there was heard."""
        if value is None:
            return self._cursor, set()
        number = events.number_of(value)
        if number is None:
            return check_cursor(value), set()
        return replace(self._store.cursor(), number=max(0, number - 1)), {value}

    def count(self, caller: Any) -> int:
        return len(self._of.get(caller, {}))

    def has(self, caller: Any, id: str) -> bool:
        return id in self._of.get(caller, {})

    def unsubscribe(self, caller: Any, id: str) -> dict[str, Any]:
        one = self._of.get(caller, {}).pop(id, None)
        if one is None:
            raise Missing(f"there is no subscription {id!a}", field="subscription_id")
        one.is_over = True
        self._rest()
        return {"subscription": {"id": id, "closedAt": milliseconds(self._now())}}

    def resume(self, caller: Any) -> None:
        """It reads: at last, or again."""
        for one in self._of.get(caller, {}).values():
            if one.is_behind:
                self._go_on_with(one)

    def admit(self, caller: object, who: Principal, expel: Callable[[], None]) -> None:
        """Somebody stays, with a token. As soon as that is revoked or its agent renamed, wherever that is done,
        `expel` is called: whoever comes again is known by the new name.
        """
        for some in self._guests.values():
            some.pop(caller, None)  # it may have shown another before
        if who.token is not None:
            self._listen()
            self._guests.setdefault(who.token, {})[caller] = Guest(who.agent, expel)
            self._look_at_tokens({who.token})  # it may have happened since it was shown

    def know(self, caller: Any) -> None:
        """It is known otherwise from now on: what it subscribed to is heard so."""
        for one in self._of.get(caller, {}).values():
            one.room = caller.room

    def forget(self, caller: Any) -> None:
        self._drop(caller)
        for token in [token for token, some in self._guests.items() if some.pop(caller, None) and not some]:
            del self._guests[token]
        self._rest()

    def _drop(self, caller: Any) -> None:
        for one in self._of.pop(caller, {}).values():
            one.is_over = True

    def close(self) -> None:
        for caller in list(self._of):
            self._drop(caller)
        self._guests.clear()
        self._rest()

    def publish(self, params: dict[str, Any], source: str) -> None:
        """Something that is told to those who listen now, and kept nowhere. From any thread."""
        self._loop.call_soon_threadsafe(self._publish, params, source)

    @property
    def is_heard(self) -> bool:
        """Does anybody listen?"""
        return bool(self._of)

    @property
    def number(self) -> int:
        """Of the last change that was told."""
        return self._cursor.number

    def announce(self, event: Event) -> None:
        """Something that leaves no trace in the past, for those it concerns who listen now; where it names no
        parties, for everybody.
        """
        stands = cache(partial(_stands, self._executor.room._core))
        for one in self._everyone():
            who = one.room.principal
            if (not event.parties or who.operator or who.agent in event.parties) and stands(who):
                one.tell_once(event)

    def _publish(self, params: dict[str, Any], source: str) -> None:
        """An agent hears of the scopes it is in."""
        core = self._executor.room._core
        event = events.emitted(params, core.ids.token(), self._cursor.number, core.now().wall, source)
        is_inside = cache(lambda agent: is_member(core, agent, event.scope))
        for one in self._everyone():
            who = standing_or_nobody(one.room._core, one.room.principal)
            if who.operator or (who.agent is not None and is_inside(who.agent)):
                one.tell_once(event)
        for listener in self.listeners:
            listener(event)

    def _now(self) -> datetime:
        return self._executor.room._core.now().wall

    # -- what happens

    def look(self) -> None:
        """Tell what happened since the last look; a slice of it, then others have their turn."""
        self._stretches.clear()
        if not self._of and not self._guests:
            return
        began = self._loop.time()
        try:
            changes, after = self._store.changes(self._cursor, self._slice)
            if changes:
                self._look_at_tokens({c.key for c in changes if c.kind == TOKEN and c.key is not None})
                self._tell(changes, after)
        except Resync:
            self._resync()
            return
        except PostroomError as unreadable:  # the bell has rung; nobody rings again for the same
            log.warning("subscribers wait: %s", unreadable)
            self._loop.call_later(AGAIN, self.look)
            return
        if changes:
            self._cursor = after
            self._pace(len(changes), self._loop.time() - began)
            self._loop.call_soon(self.look)

    def _pace(self, seen: int, seconds: float) -> None:
        """Letters may be large, or for thousands, and others wait meanwhile: a burst is begun with few of them."""
        if seconds > LONG:
            self._slice = max(1, self._slice // 4)
        else:
            self._slice = FIRST_SLICE if seen < self._slice else min(SLICE, self._slice * 2)

    def _look_at_tokens(self, ids: set[str]) -> None:
        """Whoever holds one that is worth nothing any more, or is another's name, hears nothing more, and goes."""
        core = self._executor.room._core
        for id in ids & self._guests.keys():
            token = live(core, id)
            guests = self._guests.pop(id)
            stay = {
                caller: one for caller, one in guests.items() if token is not None and token.agent == one.agent
            }
            if stay:
                self._guests[id] = stay
            for caller in guests.keys() - stay.keys():
                self._drop(caller)
                self._loop.call_soon(guests[caller].expel)

    def _tell(self, changes: Sequence[Change], after: Cursor) -> None:
        """What may be heard is found out once for all who may hear the same. Most are not concerned."""
        listening = [one for one in self._everyone() if not one.is_behind]
        if not listening:  # some only stay with a token
            return
        stretch = ChangeBatch(self._executor.room, changes, after)
        for one in listening:
            if stretch.past.takes_long(one.room):
                one.kept = deque(maxlen=MOST_KEPT)
                self._go_on_with(one)
                continue
            found = stretch.heard_by(one.room)
            if found is None:
                self._go_on_with(one, AGAIN)
            else:
                one.is_behind = not one.tell(found, after)

    def _go_on_with(self, one: Subscription, seconds: float = 0) -> None:
        """From its own cursor on, in a moment."""
        one.is_behind = True
        if one.catching_up is None:
            one.catching_up = self._loop.call_later(seconds, self._catch_up, one)

    def _catch_up(self, one: Subscription) -> None:
        """One slice of what it missed; the next after others had their turn, as long as it reads."""
        one.catching_up = None
        if one.is_over:
            return
        try:
            stretch = self._stretch(one.cursor, min(one.slice, SHORT_SLICE))
        except Resync:
            if one.tell_resync(self._store.cursor()):
                self._go_on_with(one)
            return
        if not stretch.changes:
            one.is_behind = False
            if _stands(one.room._core, one.room.principal):
                one.tell_kept()
            one.kept = None
            return
        if stretch.past.takes_long(one.room):  # beside the loop: it serves the others
            one.catching_up = asyncio.ensure_future(
                self._executor.run_slow(partial(find_events, one.room, stretch.past))
            )
            one.catching_up.add_done_callback(partial(self._caught_up, one, stretch.after))
        else:
            self._tell_one(one, stretch.heard_by(one.room), stretch.after)

    def _stretch(self, cursor: Cursor, most: int) -> ChangeBatch:
        """From there on. Many may stand at the same place: it is looked for once for all who ask in this moment,
        and anew once somebody was told of more, for then nothing may be missed.
        """
        if not self._stretches:
            self._loop.call_soon(self._stretches.clear)
        if (cursor, most) not in self._stretches:
            changes, after = self._store.changes(cursor, most)
            self._stretches[cursor, most] = ChangeBatch(self._executor.room, changes, after)
        return self._stretches[cursor, most]

    def _caught_up(self, one: Subscription, after: Cursor, done: asyncio.Future[list[Event] | None]) -> None:
        one.catching_up = None
        if not one.is_over and not done.cancelled() and done.exception() is None:  # else the house closes
            self._tell_one(one, done.result(), after)

    def _tell_one(self, one: Subscription, found: list[Event] | None, after: Cursor) -> None:
        """Who is behind; it goes on from there, unless it does not read."""
        if found is None:
            self._go_on_with(one, AGAIN)
        elif one.tell(found, after):
            one.slice = min(SLICE, one.slice * 2)
            self._go_on_with(one)
        else:  # it does not read
            one.slice, one.kept = max(1, one.slice // 4), None

    def _resync(self) -> None:
        self._cursor = self._store.cursor()
        self._look_at_tokens({*self._guests})
        for one in self._everyone():
            if not one.is_behind:  # who is, finds out by itself
                one.is_behind = not one.tell_resync(self._cursor)

    def _everyone(self) -> list[Subscription]:
        return [one for own in self._of.values() for one in own.values()]

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


def _stands(core: Core, who: Principal) -> bool:
    """May it still hear what it might when it subscribed? Somebody may have been sealed since."""
    return standing_or_nobody(core, who) is who
