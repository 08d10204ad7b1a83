"""What the server asks of a request before it is carried out: how long it waits, how much work it may be, and how
its result is written; and the verbs about a connection itself: authentication, subscriptions, links.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Raw
from msgspec.structs import astuple

from ..core.outbox import count_waiting
from ..core.verb import LONGEST_WAIT, MANY, Verb, checked_mailbox, set_parameters, verb
from ..environment import how_to_install
from ..errors import Invalid
from ..formats.plain import plain_result
from ..model.names import BROADCAST, HUMAN

if TYPE_CHECKING:
    from ..core.authorize import Principal
    from ..core.core import Core
    from .callers import Caller


Milliseconds = Annotated[float, Meta(description="milliseconds since 1970")]
_GROUPS = (BROADCAST, "scope:")  # beginnings of an address that stands for any number of agents
_ONE = frozenset({"agent", "agentId", "agent_id", "participant"})  # fields of an address that names one agent


class SessionVerb(Verb, kw_only=True):
    """A request about the caller's connection, which carries it out at once."""

    def serve(self, session: Any) -> Any:
        """Carry out the request for this connection and return the result, or a coroutine of it."""
        raise NotImplementedError


class ForeignVerb(Verb, kw_only=True):
    """A request in the protocol of another program: about the agent that it names, else the caller's own.

    It performs verbs of the core, and each of those asks for the right that it needs, once; its own row says which
    that is. One that does its work itself asks by its own row (`OwnWork`).
    """

    def owners(self, _core: Core, principal: Principal) -> list[str | None]:  # noqa: ARG002 - see OwnWork
        return []

    def actor(self, core: Core, principal: Principal) -> str:
        """Return the mailbox of the agent that the request names, else the caller's own."""
        name = self.named() or principal.agent
        if not name:
            raise Invalid("no agent is named", field=self.whose, hint="name an agent, or use an agent's token")
        return checked_mailbox(core, name)


class OwnWork(ForeignVerb, kw_only=True):
    """A request in the protocol of another program that no verb of the core carries out."""

    def owners(self, _core: Core, principal: Principal) -> list[str | None]:
        return [self.named() or principal.agent]


def time_of(value: Any, field: str) -> datetime | None:
    """Return the time of a value: milliseconds since 1970, or ISO 8601, in UTC where it says no time zone."""
    if value is None or isinstance(value, datetime):
        return value
    try:
        if isinstance(value, str):
            time = datetime.fromisoformat(value)
            return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    hint = "milliseconds since 1970, or a time such as 2026-01-31T12:00:00Z"
    raise Invalid(f"{str(value)[:100]!a} is not a time", field=field, hint=hint)


def in_json(request: Verb, result: Any) -> Any:
    """Return the result of a request as JSON. Results in another program's protocol are JSON already."""
    return result if type(result) in {dict, Raw} else plain_result(request.declaration(), result)


def patience(request: Any) -> float:
    """Return how many seconds a request of a verb that waits is to wait when there is nothing."""
    return float(max(0.0, min(request.timeout, LONGEST_WAIT)))


class Schedule(Enum):
    """On which thread a request is carried out, and what it keeps waiting."""

    WRITE = "with the other writes, which share one sync"
    READ = "beside the writes"
    MANY = "it may return any number of things"
    SLOW = "it may take long"
    LARGE = "it names many letters, or a group of any size"
    WAIT = "it waits for mail"
    SESSION = "it is about the caller's connection"


def schedule_of(request: Verb) -> Schedule:
    """Return how a request is carried out."""
    declaration = request.declaration()
    if isinstance(request, SessionVerb):
        return Schedule.SESSION
    if declaration.waits and patience(request) > 0:
        return Schedule.WAIT
    if declaration.slow:
        return Schedule.SLOW
    if declaration.many and ((limit := getattr(request, "limit", None)) is None or limit > MANY):
        return Schedule.MANY
    if declaration.wide or is_heavy(request):
        return Schedule.LARGE
    return Schedule.WRITE if declaration.writes else Schedule.READ


def is_heavy(request: Verb) -> bool:
    """Return whether a request may take long because it names many letters, or a group of any size."""
    if getattr(request, "to_all", None) is True or _has_group(getattr(request, "to", None)):
        return True
    lists = [value for value in astuple(request) if type(value) is list]
    if not lists:  # most requests have none
        return False
    inner = [value for one in lists for each in one if type(each) is dict for value in each.values()]
    return sum(map(len, lists)) + sum(len(value) for value in inner if type(value) is list) > MANY


def _has_group(to: Any) -> bool:
    """Return whether a group is among these recipients, in our spelling or in MAP's."""
    if type(to) is str:
        return to.startswith(_GROUPS)
    if type(to) is list:
        return any(map(_has_group, to))
    return type(to) is dict and _ONE.isdisjoint(to)


# -- the verbs about the caller's connection

SESSION: dict[str, type[Verb]] = {}
LOCK_SECONDS = 0.2  # from the reply until all visits end


@verb(
    "rpc.discover",
    "an OpenRPC document",
    registry=SESSION,
    action="agents",
    slow=True,
    writes=False,
    strict=False,
)
class Discover(Verb, kw_only=True):
    """Describe the methods of JSON-RPC, their parameters and results."""

    def run(self, _core: Core, _principal: Principal) -> dict[str, Any]:
        from .describe import openrpc  # noqa: PLC0415 - it imports this module

        return openrpc()


@verb("authenticate", "agent_id, scopes", registry=SESSION, action="agents", strict=False)
class Authenticate(SessionVerb, kw_only=True):
    """Show a token: from now on this connection speaks for its agent."""

    token: Annotated[str, "as `postroom tokens create` showed it"]

    def serve(self, session: Caller) -> Any:
        return session.authenticate(self.token)


@verb("flow/watch", "names, number, at", registry=SESSION, action="room", writes=False, strict=False)
class WatchFlow(SessionVerb, kw_only=True):
    """Get a digest of the flow of mail as flow/tick notifications on this connection, when something happens."""

    def serve(self, session: Caller) -> Any:
        visits, principal = session.executor.visits, session.principal
        person = visits.of(principal).person if principal.visit else ""
        return session.broker.flow.watch(session, session.pusher("use the socket or a WebSocket"), person)


@verb("flow/unwatch", "nothing", registry=SESSION, action="agents", strict=False)
class UnwatchFlow(SessionVerb, kw_only=True):
    """Get no more digests of the flow."""

    def serve(self, session: Caller) -> Any:
        session.broker.flow.forget(session)
        return {}


@verb(
    "numbers",
    "since, columns, minutes: one row each",
    registry=SESSION,
    action="room",
    writes=False,
    strict=False,
)
class Numbers(SessionVerb, kw_only=True):
    """The numbers of the last day, by the minute, since the server began."""

    def serve(self, session: Caller) -> Any:
        return session.broker.history.describe()


@verb("open_visit", "code, link, seconds: how long it is good", registry=SESSION, action="agents", strict=False)
class OpenVisit(SessionVerb, kw_only=True):
    """Get a link that opens the dashboard once; an operator may, or a person who proves it.

    With `lends`, this connection is asked to carry out what is done there (`visit/asked`), while it stays.
    """

    agent_id: Annotated[str, "as whose mailbox it acts"] = HUMAN
    lends: Annotated[bool, "this connection carries out what is done in the dashboard"] = False
    operator: Annotated[bool, "it does an operator's work, too"] = False

    def serve(self, session: Caller) -> Any:
        return session.open_visit(self)


@verb("lock_visits", "ended: how many visits", registry=SESSION, action="agents", strict=False)
class LockVisits(SessionVerb, kw_only=True):
    """End all visits of the dashboard; an operator may, or a person who proves it."""

    def serve(self, session: Caller) -> Any:
        return session.lock_visits(self)


@verb("visit/answer", "nothing", registry=SESSION, action="agents", strict=False)
class AnswerVisit(SessionVerb, kw_only=True):
    """Answer what a visit asked this connection to carry out (`visit/asked`)."""

    call: Annotated[int, "the number of visit/asked"]
    result: Annotated[dict[str, Any] | None, "what the verb returned"] = None
    error: Annotated[dict[str, Any] | None, "or its error, as in JSON-RPC"] = None

    def serve(self, session: Caller) -> Any:
        if session.actor is not None:
            session.actor.answer(self.call, self.result, self.error)
        return {}


@verb("visit", "visit (person, acts, operator, …)", registry=SESSION, action="agents", strict=False)
class DescribeVisit(SessionVerb, kw_only=True):
    """The caller's own visit of the dashboard: may it act now?"""

    def serve(self, session: Caller) -> Any:
        return session.executor.visits.shown(session.principal)


@verb("visit/act", "what the verb returns", registry=SESSION, action="agents", strict=False)
class ActInVisit(SessionVerb, kw_only=True):
    """Have a verb carried out by the process that opened this visit, as its person."""

    verb: Annotated[str, "its name"]
    params: Annotated[dict[str, Any] | None, "its parameters"] = None

    def serve(self, session: Caller) -> Any:
        visits = session.executor.visits
        return visits.act(visits.of(session.principal), self.verb, self.params or {})


@verb("visit/lock", "ended: how many visits", registry=SESSION, action="agents", strict=False)
class LockFromVisit(SessionVerb, kw_only=True):
    """End all visits of the dashboard, from one of them."""

    def serve(self, session: Caller) -> Any:
        visits = session.executor.visits
        visits.of(session.principal)
        asyncio.get_running_loop().call_later(LOCK_SECONDS, visits.lock)  # once the reply is on its way
        return {"ended": visits.count}


@verb("map/subscribe", "subscriptionId, cursor", registry=SESSION, action="agents", strict=False)
class Subscribe(SessionVerb, kw_only=True):
    """Get events as map/event notifications on this connection."""

    filter: Annotated[
        dict[str, Any] | None,
        "event_types, scopes, from_agents, priorities, mail; only what fits all of it",
    ] = None
    since: Annotated[str | None, "a cursor, or the id of an event: first what came after it"] = None
    replay_from: Annotated[str | None, "MAP's name for since"] = None
    options: Annotated[dict[str, Any] | None, "accepted and ignored"] = None

    def serve(self, session: Caller) -> Any:
        return session.subscribe(set_parameters(self))


@verb("map/unsubscribe", "subscription (id, closedAt)", registry=SESSION, action="agents", strict=False)
class Unsubscribe(SessionVerb, kw_only=True):
    """End a subscription."""

    subscription_id: Annotated[str, "from map/subscribe"]

    def serve(self, session: Caller) -> Any:
        return session.unsubscribe(self.subscription_id)


@verb(
    "links",
    "links (system, state: connected, authenticating or disconnected, problem, sent, taken, waiting);"
    " address (url, pin): where peers reach us, if that is known",
    registry=SESSION,
    action="peers",
    writes=False,
    strict=False,
)
class Links(SessionVerb, kw_only=True):
    """The state of the links to other systems."""

    async def serve(self, session: Caller) -> dict[str, Any]:
        links = session.executor.links
        if links is None:
            return {"links": [], "address": {}}
        waiting, _ = await session.executor.run_slow(partial(count_waiting, session.executor.core))
        shown = [{**one, "waiting": waiting.get(one["system"], 0)} for one in links.describe()]
        return {"links": shown, "address": links.address}


@verb(
    "ping_peer",
    "system, state, url, answers, seconds (there and back), problem, hint",
    registry=SESSION,
    action="peers",
    writes=False,
    strict=False,
)
class PingPeer(SessionVerb, kw_only=True):
    """Check that another system answers; one that is not connected is called at once."""

    system: Annotated[str, "its name"]

    def serve(self, session: Caller) -> Any:
        if session.executor.links is None:
            raise Invalid("there are no links to other systems here", hint=how_to_install("serve"))
        return session.executor.links.ping(self.system)
