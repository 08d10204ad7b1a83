"""The broker: who subscribes to which changes of the room, and sending them the events.

Pull is the truth: each subscription has a cursor, and a notification of the store only says when to look. A
subscriber that does not read falls behind, and goes on from its cursor when it reads again; nothing is lost.

The store is read on threads, and what was found is sent on the thread of the event loop. One look is for all
subscribers that stand at the same cursor, whether they missed much or are up to date. `Subscription` sends events
to one subscriber. `Broker` knows all subscriptions, watches the store, and ends the connections of callers whose
token was revoked. How an event travels is not known here.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from contextlib import ExitStack
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from ..core.agents import is_member
from ..core.inbox import check_cursor, current_cursor
from ..core.tokens import effective_or_nobody, live_token
from ..errors import Invalid, Missing, PostroomError, Resync
from ..formats import events as event_codec
from ..formats.inbox import milliseconds
from ..model.record import TOKEN
from ..watcher import room_watch
from . import protocol
from .events import LoadedChanges, check_filter, wanted
from .flow import FlowDigest, History

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from ..core.authorize import Principal
    from ..core.core import Core
    from ..formats.events import Event
    from ..model.record import Cursor
    from .events import EventFilter
    from .executor import Executor


log = logging.getLogger("postroom")


INITIAL_SLICE = 4  # changes in the first look of a burst
MAX_SLICE = 50  # changes in one look: others get their turn meanwhile
MAX_LOOK_SECONDS = 0.03  # after a longer look the next takes fewer changes
RESYNC = "resync"  # the type of the event that says: some changes cannot be replayed any more


class Position:
    """Up to where the changes of the room were looked at."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.slice = INITIAL_SLICE  # changes in the next look
        self.is_paused = False
        self.is_looking = False  # are changes being read?
        self.checked = 0  # there was nothing more after this notification


class Subscription(Position):
    """One subscription: its filter, how far it was sent, and sending it more. `cursor`: all before it was sent."""

    def __init__(
        self,
        id: str,
        core: Core,
        principal: Principal,
        push: Callable[[dict[str, Any]], bool],
        filter: EventFilter,
        since: Cursor,
        sent: set[str],
        mailbox: str | None = None,
    ) -> None:
        super().__init__(since)
        self.id = id
        self._core = core
        self.principal = principal
        self.push = push
        self.filter = filter
        self.sequence = 0  # events that were taken
        self.is_over = False
        self.is_paused = True  # until its caller knows that it has subscribed, and while it does not read
        self.is_behind = True  # until it was sent what it missed
        # Events without a change that came while it catches up; None: they are dropped, for it does not read.
        self.held: deque[Event] | None = deque(maxlen=MAX_HELD)
        self._mailbox = mailbox  # whose letters are reported as delivered, because no session delivers them
        self._partly_sent = sent  # ids of events that were sent of a change of which others were not

    def send_changes(self, found: Sequence[Event], after: Cursor) -> bool:
        """Send the events that pass the filter. Return False if the subscriber does not read; its cursor then
        stands behind the last event that was taken.
        """
        if after.number <= self.cursor.number:  # sent while it caught up
            return True
        known: Iterable[Event] = self._with_deliveries(found) if self._mailbox is not None else found
        to_send = [event for event in known if event.number > self.cursor.number and wanted(event, self.filter)]
        for event, following in itertools.zip_longest(to_send, to_send[1:]):
            # A cursor passes a change only when all its events were taken: a client that reconnects misses none.
            is_last = following is None or following.number != event.number
            if event.id not in self._partly_sent:
                seen = replace(self.cursor, number=event.number if is_last else event.number - 1)
                if not self._push_event(event_codec.map_event(event, self.filter.spelt), seen):
                    return False
                self.cursor = seen
            self._partly_sent = set() if is_last else self._partly_sent | {event.id}
        self.cursor = after
        return True

    def _with_deliveries(self, found: Sequence[Event]) -> Iterator[Event]:
        """Add a delivery event for each letter to the mailbox. Without a filter of types it is spelt as the SDK's
        clients expect it.
        """
        type = event_codec.DELIVERED if self.filter.event_types is not None else event_codec.DELIVERED_SDK
        for event in found:
            yield event
            if self._mailbox is not None and event_codec.is_for(event, self._mailbox):
                yield event_codec.delivered_event(event, self._mailbox, type)

    def send_event(self, event: Event) -> None:
        """Send an event that belongs to no change; it is dropped if the subscriber is behind."""
        if self.held is not None:
            self.held.append(event)
        elif not self.is_behind and wanted(event, self.filter):
            self._push_event(event_codec.map_event(event, self.filter.spelt), self.cursor)

    def send_held(self) -> None:
        """Send the events that were held back while the subscriber caught up."""
        held, self.held = self.held, None
        for event in held or ():
            self.send_event(event)

    def send_resync(self, cursor: Cursor, known: Cursor) -> bool:
        """Send that some changes cannot be replayed, and go on from `cursor`; the subscriber sees it as `known`.
        Return whether it was taken.
        """
        now = milliseconds(self._core.now().wall)
        event = {"id": f"{RESYNC}-{known.number}", "type": RESYNC, "timestamp": now, "data": {}}
        if not self._push_event(event, known):
            return False
        self.cursor = cursor
        return True

    def _push_event(self, event: dict[str, Any], cursor: Cursor) -> bool:
        """Push one event, and return whether it was taken. Only events that were taken get a sequence number, so
        that a client which counts them finds no gap.
        """
        params = {
            "subscriptionId": self.id,
            "sequenceNumber": self.sequence + 1,
            "eventId": event["id"],
            "timestamp": event["timestamp"],
            "cursor": str(cursor),
            "event": event,
        }
        is_taken = self.push(protocol.notification("map/event", params))
        self.sequence += is_taken
        return is_taken


RETRY_SECONDS = 5.0  # after a bug, or while the store cannot be read
MAX_SUBSCRIPTIONS = 1000  # of one caller
MAX_HELD = 100  # events held back for one subscriber while it catches up
MAILBOX = "mailbox"  # set by a MAP session, never by a caller: whose letters are reported as delivered


class Found(NamedTuple):
    """Some changes, and what callers may see of them; LATER for a caller of which that takes long to find out."""

    loaded: LoadedChanges | None
    number: int  # of changes; 0: there are no more
    after: Cursor
    revoked: set[str]  # tokens that these changes revoked
    events: Mapping[Principal, list[Event] | Cursor | str | None]  # a cursor: what it missed cannot be replayed


def next_slice(slice: int, seen: int, seconds: float) -> int:
    """Return how many changes the next look takes: letters may be large, or for thousands of recipients, and
    other callers wait meanwhile.
    """
    if seconds > MAX_LOOK_SECONDS:
        return max(1, slice // 4)
    return INITIAL_SLICE if seen < slice else min(MAX_SLICE, slice * 2)


LATER = "later"


class Broker:
    """All subscriptions of a post room. Made inside an event loop, and used on its thread alone,
    except `publish`.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._core = executor.core
        self._store = self._core.store
        self._loop = asyncio.get_running_loop()
        self._by_caller: dict[object, dict[str, Subscription]] = {}
        self._token_holders: dict[str, dict[object, Callable[[], None]]] = {}  # by id of the token, by caller
        executor.counters.subscribers = lambda: sum(map(len, self._by_caller.values()))
        self.flow = FlowDigest(executor)
        self.history = History(executor)
        self.listeners: list[Callable[[Event], None]] = []  # other parts of the server that get emitted events
        self._numbers = itertools.count(1)
        self._watch: ExitStack | None = None  # of the room
        self._starting: asyncio.Future[Cursor] | None = None  # the cursor when the watch began
        self._own: Position | None = None  # up to where tokens that were revoked were found; None: nobody watches
        self._notices = 1  # notifications so far
        self._tasks: set[asyncio.Future[Any]] = set()  # under way; without a reference they could vanish

    # -- subscribers

    async def subscribe(
        self, caller: Any, push: Callable[[dict[str, Any]], bool], params: dict[str, Any]
    ) -> dict[str, Any]:
        if len(self._by_caller.get(caller, {})) >= MAX_SUBSCRIPTIONS:
            text = f"one caller may hold at most {MAX_SUBSCRIPTIONS} subscriptions"
            raise Invalid(text, field="filter", hint="end some with map/unsubscribe")
        filter = check_filter(params.get("filter"))
        value = params["since"] if params.get("since") is not None else params.get("replay_from")
        await self._start_watching()
        since, sent, known = await self._executor.read(self._start_position, caller.principal, value)
        while self._own is None:  # the last other subscriber left meanwhile
            await self._start_watching()
        id = f"sub-{next(self._numbers)}"
        self._by_caller.setdefault(caller, {})[id] = Subscription(
            id, self._core, caller.principal, push, filter, since or self._own.cursor, sent, params.get(MAILBOX)
        )
        return {"subscriptionId": id, "cursor": str(known)}

    def _start_position(self, principal: Principal, value: Any) -> tuple[Cursor | None, set[str], Cursor]:
        """Return the cursor to start from, the ids of events behind it that were sent before, and the cursor that
        the subscriber sees. The value is a cursor, the id of an event, or None for now. On a thread.
        """
        if value is None:
            return None, set(), current_cursor(self._core, principal)
        number = event_codec.number_of(value)
        if number is None:
            since = check_cursor(value)
            return since, set(), since
        since = replace(self._store.cursor(), number=max(0, number - 1))
        return since, {value}, since

    def count(self, caller: Any) -> int:
        return len(self._by_caller.get(caller, {}))

    def has(self, caller: Any, id: str) -> bool:
        return id in self._by_caller.get(caller, {})

    def unsubscribe(self, caller: Any, id: str) -> dict[str, Any]:
        subscription = self._by_caller.get(caller, {}).pop(id, None)
        if subscription is None:
            raise Missing(f"there is no subscription {id!a}", field="subscription_id")
        subscription.is_over = True
        self._stop_if_unused()
        return {"subscription": {"id": id, "closedAt": milliseconds(self._core.now().wall)}}

    def resume(self, caller: Any) -> None:
        """Go on sending to a caller that reads again."""
        for subscription in self._by_caller.get(caller, {}).values():
            subscription.is_paused, subscription.checked = False, 0
        self._begin_looks()

    def watch_token(self, caller: object, principal: Principal, expel: Callable[[], None]) -> None:
        """Call `expel` as soon as the token of a connected caller is revoked, by any process."""
        for some in self._token_holders.values():
            some.pop(caller, None)  # it may have shown another token before
        if principal.token is not None:
            self._token_holders.setdefault(principal.token, {})[caller] = expel
            self._do(self._watch_tokens({principal.token}))

    async def _watch_tokens(self, ids: set[str]) -> None:
        """Watch the store, and look once: these tokens may have been revoked since they were shown."""
        try:
            # Watched first, then checked: a revocation in between is seen by one of the two (G8).
            await self._start_watching()
            self._expel(await self._executor.read(self._revoked, ids))
        except PostroomError as unreadable:
            log.warning("tokens are checked later: %s", unreadable)
            self._loop.call_later(RETRY_SECONDS, lambda: self._do(self._watch_tokens(ids)))

    def update_rights(self, caller: Any) -> None:
        """Apply the new principal of a caller to its subscriptions."""
        for subscription in self._by_caller.get(caller, {}).values():
            subscription.principal = caller.principal

    def forget(self, caller: Any) -> None:
        self._drop(caller)
        for token in [token for token, some in self._token_holders.items() if some.pop(caller, None) and not some]:
            del self._token_holders[token]
        self._stop_if_unused()

    def _drop(self, caller: Any) -> None:
        for subscription in self._by_caller.pop(caller, {}).values():
            subscription.is_over = True

    def close(self) -> None:
        for caller in list(self._by_caller):
            self._drop(caller)
        self._token_holders.clear()
        self.flow.close()
        self._stop_if_unused()

    def publish(self, params: dict[str, Any], source: str) -> None:
        """Send an emitted event to all present subscribers; it is stored nowhere. Safe from any thread."""
        self._loop.call_soon_threadsafe(self._publish, params, source)

    @property
    def has_subscribers(self) -> bool:
        return bool(self._by_caller)

    @property
    def number(self) -> int:
        """Return the number of the last change that was looked at; 0 while nobody watches."""
        return 0 if self._own is None else self._own.cursor.number

    def announce(self, event: Event) -> None:
        """Send an event that belongs to no change to its parties that subscribe now; without parties, to all."""

        def is_party(one: Principal) -> bool:
            is_named = not event.parties or one.operator or one.agent in event.parties
            return is_named and _has_same_rights(self._core, one)

        self._send_to(is_party, event)

    def _publish(self, params: dict[str, Any], source: str) -> None:
        """Send an emitted event to operators and to the agents in its scope."""
        core = self._core
        event = event_codec.emitted_event(params, core.ids.token(), self.number, core.now().wall, source)
        is_inside = cache(lambda agent: is_member(core, agent, event.scope))

        def is_concerned(one: Principal) -> bool:
            now = effective_or_nobody(core, one)
            return now.operator or (now.agent is not None and is_inside(now.agent))

        self._send_to(is_concerned, event)
        for listener in self.listeners:
            listener(event)

    def _send_to(self, hears: Callable[[Principal], bool], event: Event) -> None:
        """Send an event to the present subscribers for which `hears` is true; events in their order."""
        principals = {subscription.principal for subscription in self._subscriptions()}
        if principals:
            asked = self._executor.read(lambda: {one for one in principals if hears(one)}, caller=self)
            asked.add_done_callback(partial(self._send_event, event))

    def _send_event(self, event: Event, asked: asyncio.Future[set[Principal]]) -> None:
        if asked.cancelled() or asked.exception() is not None:  # it is kept nowhere
            log.warning("an event was dropped: the room could not be read")
            return
        for subscription in self._subscriptions():
            if subscription.principal in asked.result():
                subscription.send_event(event)

    # -- changes of the room

    def _do(self, step: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(step)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def look(self) -> None:
        """Send what changed since the last look."""
        self._notices += 1
        self._begin_looks()

    def _begin_looks(self) -> None:
        """Look for all subscribers that read and may have missed something, and for revoked tokens. Those at the
        same cursor share one look.
        """
        groups: dict[tuple[Cursor, int], list[Position]] = {}
        for one in (*filter(None, [self._own]), *self._subscriptions()):
            if not (one.is_paused or one.is_looking or one.checked == self._notices):
                groups.setdefault((one.cursor, one.slice), []).append(one)
                one.is_looking = True
        for (since, most), some in groups.items():
            self._do(self._look(since, most, some))

    async def _look(self, since: Cursor, most: int, some: list[Position]) -> None:
        """Read some changes behind a cursor, and send them to the subscribers that stand there."""
        notices, began = self._notices, self._loop.time()
        principals = {one: one.principal for one in some if isinstance(one, Subscription)}
        try:
            behind = {one.principal for one in principals if one.is_behind}
            found = await self._executor.read(self._find, since, most, {*principals.values()}, behind)
        except PostroomError as unreadable:  # the notification was consumed; none comes again for the same change
            log.warning("subscribers wait: %s", unreadable)
            for one in some:
                one.is_looking = False
            self._loop.call_later(RETRY_SECONDS, self._begin_looks)
            return
        # Before any event goes out: a revoked token must not see this change (G8).
        self._expel(found.revoked)
        for one in some:
            one.is_looking = False
            if isinstance(one, Subscription) and (one.is_over or one.principal is not principals[one]):
                continue
            one.slice = next_slice(most, found.number, self._loop.time() - began)
            one.checked = 0 if found.number else notices
            if isinstance(one, Subscription):
                self._send_found(one, found, found.events.get(one.principal))
            else:
                one.cursor = found.after
        self._begin_looks()

    def _find(
        self, since: Cursor, most: int, principals: AbstractSet[Principal], behind: AbstractSet[Principal]
    ) -> Found:
        """Return some changes behind a cursor, and what these callers may see of them; on a thread. If there are
        none, the events tell which of the callers that were behind still have their rights.
        """
        try:
            changes, after = self._store.changes(since, most)
        except Resync:
            known = {one: current_cursor(self._core, one) for one in principals}
            return Found(None, 1, self._store.cursor(), self._revoked({*self._token_holders}), known)
        if not changes:
            return Found(None, 0, since, set(), {one: [] for one in behind if _has_same_rights(self._core, one)})
        revoked = self._revoked({c.key for c in changes if c.kind == TOKEN and c.key is not None})
        # Without subscribers the store is watched for tokens alone.
        loaded = LoadedChanges(self._core, changes if principals else ())
        events = {one: LATER if loaded.takes_long(one) else loaded.find_events(one) for one in principals}
        return Found(loaded, len(changes), after, revoked, events)

    def _revoked(self, ids: set[str]) -> set[str]:
        """Return which of these tokens are held here and not valid any more; on a thread."""
        return {id for id in ids & self._token_holders.keys() if live_token(self._core, id) is None}

    def _expel(self, ids: set[str]) -> None:
        """End the subscriptions and connections of callers whose token was revoked."""
        for id in ids:
            for caller, expel in self._token_holders.pop(id, {}).items():
                self._drop(caller)
                self._loop.call_soon(expel)

    def _send_found(self, one: Subscription, found: Found, events: list[Event] | Cursor | str | None) -> None:
        """Send to a subscriber what one look has found for it."""
        if not found.number:
            if one.is_behind:
                one.is_behind = False
                if events is not None:
                    one.send_held()
                one.held = None
        elif isinstance(events, str):  # LATER
            one.is_looking = one.is_behind = True
            one.held = deque(maxlen=MAX_HELD) if one.held is None else one.held
            self._do(self._send_later(one, found))
        elif events is None:  # a bug was met
            one.is_paused = one.is_behind = True
            self._loop.call_later(RETRY_SECONDS, self._retry, one)
        elif not (
            one.send_changes(events, found.after)
            if isinstance(events, list)
            else one.send_resync(found.after, events)
        ):
            one.is_paused = one.is_behind = True  # it does not read
            one.slice, one.held = max(1, one.slice // 4), None

    async def _send_later(self, one: Subscription, found: Found) -> None:
        """Find out on a thread of its own what a subscriber may see, which takes long, and send it."""
        principal, events = one.principal, None
        try:
            assert found.loaded is not None  # noqa: S101 - there are changes
            events = await self._executor.run_slow(partial(found.loaded.find_events, principal))
        except PostroomError as unreadable:
            log.warning("a subscriber waits: %s", unreadable)
        one.is_looking = False
        if one.principal is principal and not one.is_over:
            self._send_found(one, found, events)
        self._begin_looks()

    def _retry(self, one: Subscription) -> None:
        one.is_paused = False
        self._begin_looks()

    def _subscriptions(self) -> list[Subscription]:
        return [subscription for own in self._by_caller.values() for subscription in own.values()]

    # -- watching the store

    async def _start_watching(self) -> None:
        if self._watch is None:
            self._watch = ExitStack()
            self._watch.enter_context(room_watch(self._core, self.look))
            self._starting = self._executor.read(self._store.cursor)
        watch, starting = self._watch, self._starting
        assert starting is not None  # noqa: S101 - set with the watch
        try:
            cursor = await asyncio.shield(starting)
        except PostroomError:
            if self._watch is watch:
                self._stop_watching()
            raise
        if self._watch is watch and self._own is None:
            self._own = Position(cursor)
            self.look()

    def _stop_if_unused(self) -> None:
        """Stop watching the store when no subscription and no token needs it."""
        if not self._token_holders and not any(self._by_caller.values()):
            self._stop_watching()

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = self._own = None


def _has_same_rights(core: Core, principal: Principal) -> bool:
    """Return whether a caller still may see what it might when it subscribed; a token may have been made since for
    the agent as which it acts without one.
    """
    return effective_or_nobody(core, principal) is principal
