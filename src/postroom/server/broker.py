"""The broker: who subscribes to which changes of the room, and sending them the events.

Pull is the truth: each subscription has a cursor, and a notification of the store only says when to look. A
subscriber that does not read falls behind, and goes on from its cursor when it reads again; nothing is lost.

`LoadedChanges` (in `events`) holds some changes and the events each caller may see of them, found once for all
subscribers that stand at the same cursor. `Subscription` sends events to one subscriber. `Broker` knows all
subscriptions, watches the store, and ends the connections of callers whose token was revoked. How an event travels
is not known here.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..core.agents import is_member
from ..core.inbox import check_cursor, current_cursor
from ..core.tokens import effective_or_nobody, live_token
from ..errors import Invalid, Missing, PostroomError, Resync
from ..formats import events as event_codec
from ..formats.inbox import milliseconds
from ..model.record import TOKEN
from ..store.notification import ROOM
from . import protocol
from .events import LoadedChanges, check_filter, wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from ..core.authorize import Principal
    from ..core.core import Core
    from ..formats.events import Event
    from ..model.record import Change, Cursor
    from ..store.protocol import Watch
    from .events import EventFilter
    from .executor import Executor


log = logging.getLogger("postroom")


MAX_SLICE = 200  # changes looked at in one go
RESYNC = "resync"  # the type of the event that says: some changes cannot be replayed any more


class Subscription:
    """One subscription: its filter, how far it was sent, and sending it more."""

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
        self.id = id
        self._core = core
        self.principal = principal
        self.push = push
        self.filter = filter
        self.cursor = since  # everything up to here was sent
        self.sequence = 0  # events that were taken
        self.is_behind = True  # until its caller knows that it has subscribed, and was sent what it missed
        self.is_over = False
        self.catching_up: asyncio.TimerHandle | asyncio.Future[Any] | None = None
        self.slice = MAX_SLICE  # changes sent in one go; fewer to a slow reader, or of large letters
        self.held: deque[Event] | None = None  # events without a change that came while it catches up on a thread
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

    def send_resync(self, cursor: Cursor) -> bool:
        """Send that some changes cannot be replayed, and go on from `cursor`. Return whether it was taken."""
        now, known = milliseconds(self._core.now().wall), current_cursor(self._core, self.principal)
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


INITIAL_SLICE = 4  # changes in the first look of a burst
MAX_LOOK_SECONDS = 0.03  # after a longer look the next takes fewer changes
MAX_CATCH_UP = 50  # changes in one step of a subscriber that is behind: the others wait meanwhile
RETRY_SECONDS = 5.0  # after a bug, or while the store cannot be read
MAX_SUBSCRIPTIONS = 1000  # of one caller
MAX_HELD = 100  # events held back for one subscriber while it catches up
MAILBOX = "mailbox"  # set by a MAP session, never by a caller: whose letters are reported as delivered
POLL_SECONDS = 1.0  # between two looks where the store cannot notify


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
        self.listeners: list[Callable[[Event], None]] = []  # other parts of the server that get emitted events
        self._numbers = itertools.count(1)
        self._watch: Watch | None = None
        self._poll: asyncio.TimerHandle | None = None
        self._cursor = self._store.cursor()
        self._slice = INITIAL_SLICE
        self._batches: dict[tuple[Cursor, int], LoadedChanges] = {}  # loaded in this round of the event loop

    # -- subscribers

    def subscribe(
        self, caller: Any, push: Callable[[dict[str, Any]], bool], params: dict[str, Any]
    ) -> dict[str, Any]:
        own = self._by_caller.setdefault(caller, {})
        if len(own) >= MAX_SUBSCRIPTIONS:
            text = f"one caller may hold at most {MAX_SUBSCRIPTIONS} subscriptions"
            raise Invalid(text, field="filter", hint="end some with map/unsubscribe")
        filter = check_filter(params.get("filter"))
        self._start_watching()
        value = params["since"] if params.get("since") is not None else params.get("replay_from")
        since, sent = self._start_position(value)
        id = f"sub-{next(self._numbers)}"
        subscription = Subscription(
            id, self._core, caller.principal, push, filter, since, sent, params.get(MAILBOX)
        )
        own[subscription.id] = subscription
        known = since if value is not None else current_cursor(self._core, caller.principal)
        return {"subscriptionId": subscription.id, "cursor": str(known)}

    def _start_position(self, value: Any) -> tuple[Cursor, set[str]]:
        """Return the cursor to start from, and the ids of events behind it that were sent before. The value is a
        cursor, the id of an event, or None for now.
        """
        if value is None:
            return self._cursor, set()
        number = event_codec.number_of(value)
        if number is None:
            return check_cursor(value), set()
        return replace(self._store.cursor(), number=max(0, number - 1)), {value}

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
        return {"subscription": {"id": id, "closedAt": milliseconds(self._now())}}

    def resume(self, caller: Any) -> None:
        """Go on sending to a caller that reads again."""
        for subscription in self._by_caller.get(caller, {}).values():
            if subscription.is_behind:
                self._resume_later(subscription)

    def watch_token(self, caller: object, principal: Principal, expel: Callable[[], None]) -> None:
        """Call `expel` as soon as the token of a connected caller is revoked, by any process."""
        for some in self._token_holders.values():
            some.pop(caller, None)  # it may have shown another token before
        if principal.token is not None:
            self._start_watching()
            self._token_holders.setdefault(principal.token, {})[caller] = expel
            # Watched first, then checked: a revocation in between is seen by one of the two (G8).
            self._check_tokens({principal.token})  # it may have been revoked since it was shown

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
        self._stop_if_unused()

    def publish(self, params: dict[str, Any], source: str) -> None:
        """Send an emitted event to all present subscribers; it is stored nowhere. Safe from any thread."""
        self._loop.call_soon_threadsafe(self._publish, params, source)

    @property
    def has_subscribers(self) -> bool:
        return bool(self._by_caller)

    @property
    def number(self) -> int:
        """Return the number of the last change that was looked at."""
        return self._cursor.number

    def announce(self, event: Event) -> None:
        """Send an event that belongs to no change to its parties that subscribe now; without parties, to all."""
        has_same_rights = cache(partial(_has_same_rights, self._core))
        for subscription in self._subscriptions():
            principal = subscription.principal
            if (not event.parties or principal.operator or principal.agent in event.parties) and has_same_rights(
                principal
            ):
                subscription.send_event(event)

    def _publish(self, params: dict[str, Any], source: str) -> None:
        """Send an emitted event to operators and to the agents in its scope."""
        core = self._core
        event = event_codec.emitted_event(params, core.ids.token(), self._cursor.number, core.now().wall, source)
        is_inside = cache(lambda agent: is_member(core, agent, event.scope))
        for subscription in self._subscriptions():
            principal = effective_or_nobody(core, subscription.principal)
            if principal.operator or (principal.agent is not None and is_inside(principal.agent)):
                subscription.send_event(event)
        for listener in self.listeners:
            listener(event)

    def _now(self) -> datetime:
        return self._core.now().wall

    # -- changes of the room

    def look(self) -> None:
        """Send what changed since the last look: one slice of it; the rest in the next round of the event loop."""
        # A round of the loop shares what it has loaded; the next one must see later changes.
        self._batches.clear()
        if not self._by_caller and not self._token_holders:
            return
        began = self._loop.time()
        try:
            changes, after = self._store.changes(self._cursor, self._slice)
            if changes:
                # Before any event goes out: a revoked token must not see this change (G8).
                self._check_tokens({c.key for c in changes if c.kind == TOKEN and c.key is not None})
                self._dispatch(changes, after)
        except Resync:
            self._resync()
            return
        except PostroomError as unreadable:  # the notification was consumed; none comes again for the same change
            log.warning("subscribers wait: %s", unreadable)
            self._loop.call_later(RETRY_SECONDS, self.look)
            return
        if changes:
            self._cursor = after
            self._adapt_slice(len(changes), self._loop.time() - began)
            # Not in a loop here: between two slices other callers are served.
            self._loop.call_soon(self.look)

    def _adapt_slice(self, seen: int, seconds: float) -> None:
        """Choose how many changes the next look takes: letters may be large, or for thousands of recipients, and
        other callers wait meanwhile.
        """
        if seconds > MAX_LOOK_SECONDS:
            self._slice = max(1, self._slice // 4)
        else:
            self._slice = INITIAL_SLICE if seen < self._slice else min(MAX_SLICE, self._slice * 2)

    def _check_tokens(self, ids: set[str]) -> None:
        """End the subscriptions and connections of callers whose token was revoked."""
        core = self._core
        for id in ids & self._token_holders.keys():
            if live_token(core, id) is not None:
                continue
            for caller, expel in self._token_holders.pop(id).items():
                self._drop(caller)
                self._loop.call_soon(expel)

    def _dispatch(self, changes: Sequence[Change], after: Cursor) -> None:
        """Send some changes to all subscribers that are not behind. Most are not concerned by most changes."""
        listening = [subscription for subscription in self._subscriptions() if not subscription.is_behind]
        if not listening:  # the store is watched for tokens alone
            return
        batch = LoadedChanges(self._core, changes, after)
        for subscription in listening:
            if batch.takes_long(subscription.principal):
                subscription.held = deque(maxlen=MAX_HELD)
                self._resume_later(subscription)
                continue
            found = batch.events_for(subscription.principal)
            if found is None:
                self._resume_later(subscription, RETRY_SECONDS)
            else:
                subscription.is_behind = not subscription.send_changes(found, after)

    def _resume_later(self, subscription: Subscription, seconds: float = 0) -> None:
        """Go on with a subscriber from its own cursor, in a later round of the event loop."""
        subscription.is_behind = True
        if subscription.catching_up is None:
            subscription.catching_up = self._loop.call_later(seconds, self._catch_up, subscription)

    def _catch_up(self, subscription: Subscription) -> None:
        """Send one slice of what a subscriber missed; the next follows after others had their turn."""
        subscription.catching_up = None
        if subscription.is_over:
            return
        try:
            batch = self._batch_at(subscription.cursor, min(subscription.slice, MAX_CATCH_UP))
        except Resync:
            if subscription.send_resync(self._store.cursor()):
                self._resume_later(subscription)
            return
        if not batch.changes:
            subscription.is_behind = False
            if _has_same_rights(self._core, subscription.principal):
                subscription.send_held()
            subscription.held = None
            return
        if batch.takes_long(subscription.principal):  # on a thread: the loop serves the others
            subscription.catching_up = asyncio.ensure_future(
                self._executor.run_slow(partial(batch.find_events, subscription.principal))
            )
            subscription.catching_up.add_done_callback(partial(self._caught_up, subscription, batch.after))
        else:
            self._send_found(subscription, batch.events_for(subscription.principal), batch.after)

    def _batch_at(self, cursor: Cursor, most: int) -> LoadedChanges:
        """Return the changes behind a cursor. Many subscribers may stand at the same cursor, so they are loaded
        once per round of the event loop; `look` clears them, so that no subscriber gets fewer changes than were
        sent to others.
        """
        if not self._batches:
            self._loop.call_soon(self._batches.clear)
        if (cursor, most) not in self._batches:
            changes, after = self._store.changes(cursor, most)
            self._batches[cursor, most] = LoadedChanges(self._core, changes, after)
        return self._batches[cursor, most]

    def _caught_up(
        self, subscription: Subscription, after: Cursor, done: asyncio.Future[list[Event] | None]
    ) -> None:
        subscription.catching_up = None
        if (
            subscription.is_over or done.cancelled() or done.exception() is not None
        ):  # it ended, or the server closes
            return
        self._send_found(subscription, done.result(), after)

    def _send_found(self, subscription: Subscription, found: list[Event] | None, after: Cursor) -> None:
        """Send events to a subscriber that is behind, and go on with it as long as it reads."""
        if found is None:
            self._resume_later(subscription, RETRY_SECONDS)
        elif subscription.send_changes(found, after):
            subscription.slice = min(MAX_SLICE, subscription.slice * 2)
            self._resume_later(subscription)
        else:  # it does not read
            subscription.slice, subscription.held = max(1, subscription.slice // 4), None

    def _resync(self) -> None:
        self._cursor = self._store.cursor()
        self._check_tokens({*self._token_holders})
        for subscription in self._subscriptions():
            if not subscription.is_behind:  # one that is behind finds out when it catches up
                subscription.is_behind = not subscription.send_resync(self._cursor)

    def _subscriptions(self) -> list[Subscription]:
        return [subscription for own in self._by_caller.values() for subscription in own.values()]

    # -- watching the store

    def _start_watching(self) -> None:
        if self._watch is not None:
            return
        self._cursor = self._store.cursor()
        self._watch = self._store.watch((ROOM,))
        if self._watch.fileno() >= 0:
            self._loop.add_reader(self._watch.fileno(), self._on_notified)
        else:
            self._poll_again()

    def _stop_if_unused(self) -> None:
        """Stop watching the store when no subscription and no token needs it."""
        if self._watch is None or self._token_holders or any(self._by_caller.values()):
            return
        if self._poll is not None:
            self._poll.cancel()
        if self._watch.fileno() >= 0:
            self._loop.remove_reader(self._watch.fileno())
        self._watch.close()
        self._watch = None

    def _on_notified(self) -> None:
        if self._watch is not None:
            self._watch.notified()
            self.look()

    def _poll_again(self) -> None:
        self._on_notified()
        self._poll = self._loop.call_later(POLL_SECONDS, self._poll_again)


def _has_same_rights(core: Core, principal: Principal) -> bool:
    """Return whether a caller still may see what it might when it subscribed; a token may have been made since for
    the agent as which it acts without one.
    """
    return effective_or_nobody(core, principal) is principal
