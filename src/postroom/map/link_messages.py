"""Letters to a MAP server and messages from it: sending and storing.

Also messages that the server left undelivered.

**Sending** (`LinkSender`). A letter is claimed, sent, and acknowledged once the server has it. It stays in its
mailbox until then, so nothing is lost while the link is down or its recipient is away; after a cut it is sent
again, under the same id. A letter that the server refuses is tried again later like any failed work; after the
last try it bounces.

**Storing** (`store_incoming`). The same message has the same key, so it is stored once, however often it comes. It
is subject to allow lists, quotas, hops and sizes like all mail. Only agents that are registered there can be
reached from there; a message for none of them goes to the link's own mailbox. The protocol cannot say that a
message was refused here, so that is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from ..core import messages, work
from ..core.agents import ListMailboxes, card_of
from ..core.authorize import OWNER
from ..core.core import find_letter
from ..core.deliveries import find_letters
from ..core.inbox import current_cursor
from ..core.verb import perform
from ..errors import IdTaken, Invalid, LeaseLost, PostroomError, UnknownMessage
from ..federation.connection import ConnectionLost, MapRefusal
from ..federation.exposure import CardWatch
from ..formats.map import (
    NO_ADDRESS,
    NO_AGENT,
    ORIGIN,
    REPLAY,
    TERMINATED,
    MapAddress,
    once_key,
    read_address,
)
from ..model.delivery import State
from ..model.message import MAP_NOTE, Message
from ..model.query import Found, Query
from .link_directory import LINK, MANY, MOST_PAGES, RemoteAgent

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from ..core.core import Core
    from ..core.work import Settling
    from ..federation.connection import RpcConnection
    from ..formats.map import Incoming, Role
    from ..server.executor import Executor

    Members = Callable[[str | Role], list[str]]


log = logging.getLogger("postroom")


# -- sending

Send = Callable[[Message, RemoteAgent], Awaitable[None]]
AT_ONCE = 32  # letters claimed together
NOT_THERE = (NO_ADDRESS, NO_AGENT, TERMINATED)
LEASE = 120.0  # seconds: longer than the timeouts of all answers that may not come


class _AgentLeft(Exception):
    """The agent has left the server: its letters go on waiting."""


class LinkSender:
    """The sender of letters to the server's agents; it knows which mailboxes may hold some."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._core = executor.core
        self._cards = CardWatch(self._core)
        self._number = 0  # of the last change that was looked at
        self._waiting: set[str] = set()

    async def scan_all(self, system: str) -> None:
        """Look at every mailbox of the server's agents.

        At the beginning, and now and then for retries that are due.
        """

        def look() -> set[str]:
            self._number = current_cursor(self._core, OWNER).number  # first: what comes meanwhile is new
            names = [
                name for name in ListMailboxes().run(self._core, OWNER) if self._is_linked_mailbox(name, system)
            ]
            # One letter is enough to know that there is work; the sender claims them in order.
            waits = partial(Query, states=(State.UNREAD,), limit=1)
            return {name for name in names if find_letters(self._core, waits(mailbox=name))}

        self._waiting = await self._executor.run_slow(look)

    async def scan_new(self, system: str) -> bool:
        """Look at the mailboxes that got a letter since the last look; return whether cards were written, too."""

        def look() -> tuple[set[str], bool]:
            # Read first: a letter that comes during the query is found by the next one.
            now = current_cursor(self._core, OWNER).number
            query = Query(states=(State.UNREAD,), unread_only=True, after=self._number, until=now, order="age")
            found = find_letters(self._core, query) if now > self._number else []
            self._number = now
            names = {one.delivery.mailbox for one in found}
            return {name for name in names if self._is_linked_mailbox(name, system)}, self._cards.have_changed()

        names, has_cards = await self._executor.run_slow(look)
        self._waiting |= names
        return bool(has_cards)

    def _is_linked_mailbox(self, name: str, system: str) -> bool:
        """Return whether it belongs to an agent of the server, or to none yet. Ours may have such a name, too."""
        if not name.startswith(f"{system}/"):
            return False
        card = card_of(self._core, name)
        return card is None or card.principal == LINK.name

    @property
    def has_unknown_recipients(self) -> bool:
        """Whether there is mail for an agent that the server has not listed."""
        return bool(self._waiting)

    async def send_waiting(self, remote: Mapping[str, RemoteAgent], send: Send) -> set[str]:
        """Send the letters of agents that are at the server; return the mailboxes of those that have left.

        Letters of all others go on waiting.
        """
        left: set[str] = set()
        for mailbox in sorted(self._waiting & remote.keys()):
            try:
                while await self._send_batch(remote[mailbox], send):
                    pass
            except _AgentLeft:
                left.add(mailbox)
            else:
                self._waiting.discard(mailbox)
        return left

    async def _send_batch(self, one: RemoteAgent, send: Send) -> bool:
        """Send some letters of one mailbox; False: that was all.

        A cut meanwhile counts as a failed try: the letter may be its cause, which must not repeat for ever.
        """
        claim = work.Claim(agent_id=one.mailbox, count=AT_ONCE, lease=LEASE, holder="map link")
        claimed = await self._executor.run_slow(lambda: perform(self._core, LINK, claim).letters)
        sent, waiting = list[Found](), list[Found](claimed)
        try:
            for found in claimed:
                try:
                    await send(found.message.seen_by(found.delivery.mailbox), one)
                except ConnectionLost as cut:
                    waiting.remove(found)
                    await self._settle(work.Fail, [found], reason=f"the line was cut: {cut}")
                    raise
                except MapRefusal as refused:
                    # No failed try: the letter is in order, its agent is away.
                    if refused.code in NOT_THERE:
                        raise _AgentLeft from None
                    log.warning("the MAP server did not take a letter for %s: %s", one.mailbox, refused)
                    waiting.remove(found)
                    await self._settle(work.Fail, [found], reason=f"the MAP server: {refused}")
                else:
                    waiting.remove(found)
                    sent.append(found)
        finally:
            # Also after a cut: what the server has is done, and the rest does not wait for its lease to end.
            await self._settle(work.Ack, sent)
            await self._settle(work.Release, waiting)
        return len(claimed) == AT_ONCE

    async def _settle(self, verb: type[Settling], letters: list[Found], **fields: Any) -> None:
        """Settle letters of one mailbox. A letter whose lease ran out is sent again."""
        if not letters:
            return
        ids, mailbox = [found.message.id for found in letters], letters[0].delivery.mailbox
        request = verb(agent_id=mailbox, ids=ids, held=letters, **fields)
        with suppress(LeaseLost):
            await self._executor.run_slow(lambda: perform(self._core, LINK, request))


# -- storing (on the executor's threads)


LATELY = 20  # letters that count as recent
_NEEDED = frozenset({"body", "metadata", "extra", "key"})  # of a letter; everything else is a label


def recipients(core: Core, message: Incoming, shown: Mapping[str, str], members: Members, own: str) -> list[str]:
    """Return our agents that a message is for, or the link's own mailbox.

    `shown`: names of our agents by their ids there; `members` returns those in a scope or with a role; `own`: the
    link's own mailbox.
    """
    names = frozenset(shown.values()) - {own}
    address = _address(message)
    found = sorted(names) if address.everyone else [shown.get(one, one) for one in _named(address, members)]
    found = [name for name in found if name in names]
    if not found and message.target in names:
        found = [str(message.target)]
    if not found and message.answers is not None:
        request = find_letter(core, message.answers)
        found = [request.sender] if request is not None and request.sender in names else []
    return list(dict.fromkeys(found)) or [own]


def is_for(message: Incoming, shown: Mapping[str, str]) -> bool:
    """Return whether it is for one of our agents. Messages of others are replayed, too."""
    names = frozenset(shown.values())
    params = _named(_address(message), lambda _: [])
    return any(one in shown or one in names for one in params) or message.target in names


def _address(message: Incoming) -> MapAddress:
    try:
        return read_address(message.to)
    except Invalid:
        return MapAddress()


def _named(address: MapAddress, members: Members) -> list[str]:
    named = [*address.agents, *(one.agent for one in address.remote if one.agent)]
    groups: list[str | Role] = [*address.scopes, *address.roles, *named]
    meant = [name for group in groups for name in members(group)]
    return [*named, *meant]  # the SDK's server gives the name of a scope as if it were an agent's


def only_recent_sender(core: Core, mailbox: str) -> tuple[str | None, str | None]:
    """Return the agent of ours that wrote to this mailbox, if it is the only recent one.

    Also its last letter, if all are of one thread.
    """
    lately = Query(mailbox=mailbox, states=(State.DONE, State.CLAIMED), order="newest", limit=LATELY)
    letters = [found.message for found in find_letters(core, lately)]
    # Of two askers nobody knows which one is meant: the answer stays in the mailbox of the link.
    if len({letter.sender for letter in letters}) != 1:
        return None, None
    return letters[0].sender, letters[0].id if len({letter.thread for letter in letters}) == 1 else None


def store_incoming(core: Core, message: Incoming, sender: str, to: list[str]) -> bool:
    """Store a message as a letter; False: it was refused for good. A temporary error is raised."""
    agents = [{"agent": name} for name in to]
    is_one = len(agents) == 1 and not isinstance(message.to, list)
    noted = {"to": agents[0] if is_one else agents, ORIGIN: message.origin}
    # The server may send a message again after each cut: the key makes one letter of it (G3).
    key = once_key(message.key, to)  # a letter to several agents comes as several messages of one id
    fields = message.fields | {"extra": {MAP_NOTE: message.fields["extra"][MAP_NOTE] | noted}, "key": key}
    try:
        _send(core, sender, to, fields, message.answers)
    except IdTaken:  # it came before, and stays as it was then
        return True
    except PostroomError as refused:
        if refused.temporary:
            raise
        log.warning("a message from %s for %s was refused: %s", sender, ", ".join(to), refused)
        return False
    return True


def _send(core: Core, sender: str, to: list[str], fields: dict[str, Any], answers: str | None) -> None:
    """Send with as many fields as are valid here.

    First with all; then without `in_reply_to`, if its sender never had that letter; at last without labels that
    are not valid here, which stay in its metadata.
    """

    def send(**fields: Any) -> None:
        perform(core, LINK, messages.Send(agent_id=sender, to=to, **fields))

    if answers is not None:
        with suppress(UnknownMessage, Invalid):
            send(**fields, in_reply_to=answers)
            return
    try:
        send(**fields)
    except Invalid:
        send(**{name: value for name, value in fields.items() if name in _NEEDED})


# -- undelivered messages
#
# The SDK's server tells its agents the session of a sender, and the SDK's `reply` answers to that; no agent has
# such an id. Nor does any agent have the id that one of ours had before the link was cut. The server queues both
# kinds for good, but its events report them: `message.queued` has the recipient, `message.sent` the message.
#
# Events can be asked for only under a subscription. Ours name a sender that does not exist, so nothing is ever
# pushed to us by them: that server loses connections to which it sends two things at once.

SUBSCRIBE = "map/subscribe"
QUEUED, SENT = "message.queued", "message.sent"
NOBODY = "nobody"
LOOK_SOON = 1.0  # seconds between two looks while an answer is expected
AWAITED = 60.0  # seconds for which one is: after a letter, and after we were away
SELDOM = 15.0  # seconds between two looks otherwise
_TIME = 10  # the characters of an id that say when it was made


class UndeliveredMessages:
    """The undelivered messages of one server. `since`: the last event that an earlier session saw."""

    def __init__(self, rpc: RpcConnection, since: str) -> None:
        self._rpc = rpc
        self.since = since
        self._subscriptions: dict[str, str] = {}
        self._looked, self._wrote = float("-inf"), monotonic()

    async def begin(self) -> None:
        """Subscribe; a server that refuses has no such messages."""
        try:
            for kind in (QUEUED, SENT):
                result = await self._rpc.call(SUBSCRIBE, filter={"eventTypes": [kind], "fromAgents": [NOBODY]})
                self._subscriptions[kind] = str(result.get("subscriptionId"))
        except MapRefusal:
            self._subscriptions = {}

    def note_sent(self) -> None:
        """Note that a letter was sent: an answer may come soon."""
        self._wrote = monotonic()

    @property
    def wait(self) -> float:
        """Seconds until the next look."""
        if not self._subscriptions:
            return SELDOM
        every = LOOK_SOON if monotonic() - self._wrote < AWAITED else SELDOM
        return max(every - (monotonic() - self._looked), 0.0)

    async def found(self, ours: Container[str]) -> list[tuple[str, dict[str, Any]]]:
        """Return the messages for these ids since the last look, each with its id."""
        self._looked = monotonic()
        messages: list[tuple[str, dict[str, Any]]] = []
        for _ in range(MOST_PAGES if self._subscriptions else 0):
            events = await self._events(QUEUED, **({"since": self.since} if self.since else {}))
            for event in events:
                id = event["data"].get("agentId")
                if isinstance(id, str) and id in ours:
                    messages += [(id, message) for message in await self._message(event)]
                self.since = event["id"]
            if len(events) < MANY:
                break
        return messages

    async def _message(self, queued: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the message of a `message.queued` event. It was sent in the moment before."""
        id = str(queued["data"].get("messageId"))
        begin = id[:_TIME].ljust(len(id), "0")
        events = await self._events(SENT, since=begin, until=queued["id"])
        sent = [event["data"].get("message") for event in events]
        return [message for message in sent if isinstance(message, dict) and message.get("id") == id]

    async def _events(self, kind: str, **span: str) -> list[dict[str, Any]]:
        try:
            result = await self._rpc.call(REPLAY, subscriptionId=self._subscriptions.get(kind), limit=MANY, **span)
        except MapRefusal:
            self._subscriptions = {}
            return []
        rows = result.get("items")
        return [row for row in rows if isinstance(row, dict) and _is_sound(row)] if isinstance(rows, list) else []


def _is_sound(event: dict[str, Any]) -> bool:
    return isinstance(event.get("id"), str) and isinstance(event.get("data"), dict)
