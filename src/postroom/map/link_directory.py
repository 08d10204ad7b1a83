"""The two directories of a link kept in step: the server's agents have cards here, and ours are registered there.

**Names here.** An agent of the server is called `system/name`, within the rules for our names. The first to hold a
name keeps it as long as it is there; a second one of the same name is called by its id until then. An agent that
restarts before the server knows that its old connection is dead is such a second one for a while. A name that an
agent of ours has is not taken from it. Agents that are on the server by the link of another room are left out:
rooms that are linked to each other would else show each other their own agents again and again.

**Presence.** An agent of the server gets a heartbeat whenever the server lists it. One that is away there, or is
not listed any more, and all of them when the link is cut, are marked as left: away, then expired, then gone.
"""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from ..core import agents, presentation
from ..core.authorize import Principal
from ..core.verb import perform
from ..errors import PostroomError
from ..federation.connection import MapRefusal
from ..formats.map import GUEST, LINK_NAME, NO_AGENT, REGISTER, REPLAY, SEND, UNREGISTER, role_of
from ..model.agent import MAP_STATES, Card, Status, Warmth
from ..model.codec import convert
from ..model.names import POSTMASTER, fold
from ..model.record import BEAT, CARD
from ..policy.routing import is_routable
from ..store.protocol import spelling_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ..core.core import Core
    from ..federation.connection import RpcConnection
    from ..formats.map import Role
    from ..server.executor import Executor
    from .link import LinkMemory
    from .link_session import LinkOptions


log = logging.getLogger("postroom")
LINKED = "map_link"  # in the metadata of a card: its agent is on a MAP server
LONGEST = 128
MOST = 10_000  # agents of one server
_NOT_OURS = re.compile(r"[^A-Za-z0-9._-]+")


class RemoteAgent(Struct, frozen=True, kw_only=True):
    """An agent of the server."""

    id: str  # the server's; another one after each restart of the SDK's server
    mailbox: str  # here
    title: str  # its own name
    role: str = ""
    state: str = "idle"

    @property
    def is_here(self) -> bool:
        """Whether it can be sent to."""
        return _is_here(self.state)

    @property
    def is_away(self) -> bool:
        """Whether it is known there, but not connected just now. Messages to it wait."""
        return MAP_STATES.get(self.state) is Warmth.AWAY


def is_here(row: Mapping[str, Any]) -> bool:
    """Return whether the agent of this row can be sent to."""
    return _is_here(str(row.get("state")))


def _is_here(state: str) -> bool:
    """Return whether an agent in this state can be sent to. One that stopped comes back under another id."""
    return MAP_STATES.get(state) is not Status.OFFLINE


def clean(text: str, otherwise: str = "") -> str:
    """Return the nearest name by our rules: a slash becomes a dot, other forbidden characters a dash."""
    name = _NOT_OURS.sub("-", text.replace("/", ".")).lstrip("._-")[:LONGEST].rstrip("-")
    return name or otherwise


def remote_agents(
    rows: Iterable[Any], system: str, own: Iterable[str], before: Mapping[str, RemoteAgent], guests_of: str = ""
) -> dict[str, RemoteAgent]:
    """Return the server's agents by mailbox.

    `rows`: the result of `map/agents/list`; `own`: the ids of our own agents there; `before`: the last result;
    `guests_of`: our link's name, which marks agents of ours that the server remembers from an earlier session.
    """
    ours = frozenset(own)
    held = {one.id: one.mailbox for one in before.values()}
    by_id: dict[str, Any] = {}
    for row in rows:
        # Neither our own agents nor those that came there through us: mail would go in a circle (G11).
        if _is_sound(row) and row["id"] not in ours and not (guests_of and link_that_brought(row) == guests_of):
            by_id.setdefault(row["id"], row)
    sound = list(by_id.values())[:MOST]
    sound.sort(key=lambda row: _rank(row, system, held.get(row["id"])))
    found: dict[str, RemoteAgent] = {}
    taken: set[str] = set()
    for row in sound:
        mailbox = _free_name(row, system, taken, held.get(row["id"]))
        if mailbox is not None:
            taken.add(fold(mailbox))
            found[mailbox] = _remote_agent(row, mailbox)
    return found


def _is_sound(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("id"), str) and bool(row["id"]) and not _is_linked(row)


def _is_linked(row: Mapping[str, Any]) -> bool:
    metadata = row.get("metadata")
    return isinstance(metadata, dict) and LINKED in metadata


def link_that_brought(row: Mapping[str, Any]) -> Any:
    """Return the name of the link that registered an agent, or None."""
    metadata = row.get("metadata")
    guest = metadata.get(GUEST) if isinstance(metadata, dict) else None
    return guest.get("of") if isinstance(guest, dict) else None


def _rank(row: Mapping[str, Any], system: str, held: str | None) -> int:
    """Rank agents for the choice of names: first holders of the name they want, then others, then new ones."""
    if held is None:
        return 2
    return 0 if fold(held) == fold(_wanted(row, system)) else 1


def _free_name(row: Mapping[str, Any], system: str, taken: set[str], held: str | None) -> str | None:
    wanted = _wanted(row, system)
    if held is not None and fold(held) == fold(wanted):
        wanted = held  # as it is spelt here
    # The id is the last resort: it is unique there, but changes with each restart of the SDK's server.
    choices = (wanted, held, _by_id(row["id"], system))
    return next((mailbox for mailbox in choices if mailbox and fold(mailbox) not in taken), None)


def _wanted(row: Mapping[str, Any], system: str) -> str:
    name = row.get("name")
    cleaned = clean(name) if isinstance(name, str) else ""
    return f"{system}/{cleaned}" if cleaned else ""


def _by_id(id: str, system: str) -> str:
    cleaned = clean(id)
    return f"{system}/{cleaned}" if cleaned else ""


def by_any_name(remote: Mapping[str, RemoteAgent], system: str) -> dict[str, RemoteAgent]:
    """Return agents by name and also by id: mail may wait under an id that was a name for a while."""
    by_id = {_by_id(one.id, system): one for one in remote.values()}
    return {name: replace(one, mailbox=name) for name, one in by_id.items() if name} | dict(remote)


def _remote_agent(row: Mapping[str, Any], mailbox: str) -> RemoteAgent:
    def text(field: str, otherwise: str = "") -> str:
        value = row.get(field)
        return value[:200] if isinstance(value, str) else otherwise

    return RemoteAgent(
        id=row["id"],
        mailbox=mailbox,
        title=text("name", row["id"][:200]),
        role=text("role"),
        state=text("state", "idle"),
    )


def of_session(
    rows: Sequence[Any], everyone: Collection[str], remote: Mapping[str, RemoteAgent], params: Any
) -> str | None:
    """Return the mailbox of a sender, where the server gives only its session.

    `rows`: the agents in that session. The name in the message counts if it is one of them; else the first is
    meant. Where they are `everyone`, by ids and with our own, the server does not know the filter.
    """
    ids = [row["id"] for row in rows if _is_sound(row)]
    if set(everyone) <= set(ids):
        return None
    by_id = {one.id: one for one in remote.values()}
    speakers = [by_id[id] for id in ids if id in by_id]
    named = [one.mailbox for one in speakers if isinstance(params, str) and params == one.title]
    return next(iter([*named, *(one.mailbox for one in speakers)]), None)


# -- calls to the server
#
# A server need not know more than `map/agents/list`; what else it refuses is treated as an empty answer.

LIST = "map/agents/list"
GET = "map/agents/get"
RECENT = "mail/recent"
MANY = 200  # messages per call, as agent-inbox does
MOST_PAGES = 50
_SENT = ["message.sent", "message_sent"]  # both spellings of the event


async def all_agents(rpc: RpcConnection) -> list[Any]:
    """Return the rows of all agents."""
    rows: list[Any] = []
    cursor: dict[str, Any] = {}
    for _ in range(MOST_PAGES):
        result = await rpc.call(LIST, **cursor)
        rows += _list(result.get("agents"))
        if not isinstance(result.get("nextCursor"), str):
            break
        cursor = {"cursor": result["nextCursor"]}
    return rows


async def agents_of_session(rpc: RpcConnection, session: str) -> list[Any]:
    """Return the rows of the agents on one connection, by a filter that the SDK's own server knows."""
    with suppress(MapRefusal):
        return _list((await rpc.call(LIST, sessionId=session)).get("agents"))
    return []


async def send_confirmed(rpc: RpcConnection, message: dict[str, Any], id: str) -> dict[str, Any]:
    """Send a message to one agent. MapRefusal: it was refused, or the agent had left.

    A server may accept messages for ids that no agent has, and lose them: so right behind the message we ask
    whether the agent is still there.
    """
    calls = (rpc.call(SEND, **message), rpc.call(GET, agentId=id))
    results: tuple[dict[str, Any] | BaseException, ...] = await asyncio.gather(*calls, return_exceptions=True)
    result, found = results
    if isinstance(result, BaseException):
        raise result
    if isinstance(found, BaseException) and not isinstance(found, MapRefusal):
        raise found
    row = None if isinstance(found, BaseException) else found.get("agent")
    if not (is_here(row) if isinstance(row, dict) else await _is_listed(rpc, id)):
        raise MapRefusal({"code": NO_AGENT, "message": "its agent had left"})
    return result


async def _is_listed(rpc: RpcConnection, id: str) -> bool:
    """Return whether an agent is listed, for servers that cannot get a single one."""
    rows = await all_agents(rpc)
    return any(isinstance(row, dict) and row.get("id") == id and is_here(row) for row in rows)


async def get_agent(rpc: RpcConnection, id: str) -> dict[str, Any]:
    """Return an agent's row; empty where there is none."""
    with suppress(MapRefusal):
        row = (await rpc.call(GET, agentId=id)).get("agent")
        return row if isinstance(row, dict) else {}
    return {}


async def missed_messages(rpc: RpcConnection, since: int) -> list[dict[str, Any]]:
    """Return messages that may have come while we were away. `since`: milliseconds by the server's clock, or 0."""
    found: list[Any] = []
    with suppress(MapRefusal):
        found += _list((await rpc.call(RECENT, limit=MANY)).get("messages"))
    if since:
        with suppress(MapRefusal):
            found += await _replayed(rpc, since)
    return [message for message in found if isinstance(message, dict)]


async def _replayed(rpc: RpcConnection, since: int) -> list[Any]:
    found: list[Any] = []
    place: dict[str, Any] = {"fromTimestamp": since}
    for _ in range(MOST_PAGES):
        result = await rpc.call(REPLAY, **place, filter={"eventTypes": _SENT}, limit=MANY)
        events = [event for event in _list(result.get("events")) if isinstance(event, dict)]
        found += [_message(event.get("event")) for event in events]
        if not result.get("hasMore") or not events:
            break
        place = {"afterEventId": events[-1].get("eventId")}
    return found


def _message(event: Any) -> Any:
    """Return the message of an event."""
    data = event.get("data") if isinstance(event, dict) else None
    return data.get("message", data) if isinstance(data, dict) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


# -- cards (on the executor's threads)

LINK = Principal(LINK_NAME, operator=True)
ROLE = "agent"  # of an agent without one
ALL, NONE = "all", "none"
NOT_OURS = ".there"  # suffix of a remote sender whose name an agent of ours has


def register_here(core: Core, remote: Mapping[str, RemoteAgent], every: float) -> dict[str, RemoteAgent]:
    """Write cards and heartbeats of the server's agents; return those that could have their name, by mailbox.

    `every`: seconds between two calls.
    """
    held = {record.key: convert(record.value, Card) for record in core.store.records(CARD)}
    named = {spelt(core, mailbox): one for mailbox, one in remote.items() if one.is_here}
    shown = {
        mailbox: one for mailbox, one in named.items() if _register_agent(core, mailbox, one, held.get(mailbox))
    }
    alive = {mailbox for mailbox, one in shown.items() if not one.is_away}
    perform(core, LINK, agents.RecordHeartbeats(names=sorted(alive), poll_interval=every))
    known = {name for name, card in held.items() if card.principal == LINK.name}
    # Their mail waits here until the server lists them again.
    leave(core, sorted((known | shown.keys()) - alive))
    return {mailbox: replace(one, mailbox=mailbox) for mailbox, one in shown.items()}


def _register_agent(core: Core, mailbox: str, one: RemoteAgent, held: Card | None) -> bool:
    """Write the card of a remote agent.

    False: an agent of ours has the name, and keeps it however long it is away.
    """
    title = presentation.one_line(one.title)[:200]
    metadata: dict[str, Any] = {LINKED: {"id": one.id}} | ({"role": one.role} if one.role else {})
    if held is not None and (held.principal, held.display_name, held.metadata) == (LINK.name, title, metadata):
        return True
    if held is not None and held.principal != LINK.name:
        return False
    try:
        perform(core, LINK, agents.Register(agent_id=mailbox, display_name=title, metadata=metadata))
    except PostroomError as refused:
        if refused.temporary:
            raise
        return False
    return True


def spelt(core: Core, name: str) -> str:
    """Return a name as it is spelt here, whatever its case."""
    return spelling_of(core.store, name) or name


def sender_of(core: Core, name: str) -> str:
    """Return the name under which a remote agent writes here: never one of ours."""
    name = spelt(core, name)
    card = core.store.records(CARD, name)
    return f"{name}{NOT_OURS}" if card and card[0].value.get("principal") != LINK.name else name


def members(result: Mapping[str, Mapping[str, Any]], meant: str | Role) -> list[str]:
    """Return our agents in a scope, or with a role, as they were registered at the server."""
    if isinstance(meant, str):
        return [name for name, params in result.items() if meant in params.get("scopes", ())]
    return [
        name
        for name, params in result.items()
        if params["role"] == meant.name and meant.within in {None, *params.get("scopes", ())}
    ]


def leave(core: Core, names: Sequence[str]) -> None:
    """Mark remote agents as left; those that have left before stay as they are."""
    perform(core, LINK, agents.RecordHeartbeats(names=list(names), leaving=True))


def exposed(core: Core, text: str, link_scope: str, wrote: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return what our agents are registered with at the server, by name.

    `text` chooses all agents that are here or away, named ones, or none. Of the same choice are those that `wrote`
    to an agent there, so that it can answer.
    """
    shown = {
        agent.card.id: agent.card
        for agent in agents.registered_agents(core)
        if is_routable(agent.presence) and _may_be_shown(agent.card.id, agent.card, text)
    }
    others = [name for name in wrote if name not in shown and may_answer_to(core, text, name)]
    return {name: _registration_of(shown.get(name), link_scope) for name in (*shown, *others)}


def may_answer_to(core: Core, text: str, name: str) -> bool:
    """Return whether an agent that wrote to the server may be registered there for an answer: not if dormant."""
    card, beat = (core.store.records(kind, name) for kind in (CARD, BEAT))
    if beat and beat[0].value.get("dormant"):
        return False
    return _may_be_shown(name, convert(card[0].value, Card) if card else None, text)


def _may_be_shown(name: str, card: Card | None, text: str) -> bool:
    """Return whether it is an agent of this room that the options expose."""
    is_guest = card is not None and (card.principal == LINK.name or GUEST in card.metadata)
    is_wanted = text != NONE and (text == ALL or name in {one.strip() for one in text.split(",")})
    return is_wanted and not is_guest and fold(name) != POSTMASTER


def _registration_of(card: Card | None, link_scope: str) -> dict[str, Any]:
    """Return role and scopes of an agent, and the link's own scope. A sender without a card has neither."""
    own = card.scopes if card is not None else ()
    scopes = list(dict.fromkeys([*([link_scope] if link_scope else []), *own]))
    role = role_of(card) if card is not None else None
    return {"role": role or ROLE} | ({"scopes": scopes} if scopes else {})


# -- our agents at the server


class ExposedAgents:
    """Our agents at the server in one session: under which ids, and with which role and scopes.

    `own`: the name of the link itself, its agent there and its mailbox here.
    """

    def __init__(self, executor: Executor, options: LinkOptions, memory: LinkMemory, own: str) -> None:
        self._executor = executor
        self._core = executor.core
        self._options = options
        self._memory = memory
        self.own = own
        self.scopes = ScopeMembership()
        self.names: dict[str, str] = {}  # of our agents, by their ids there
        self._registered: dict[str, dict[str, Any]] = {}  # by name: what each was registered with
        self._exposed: dict[str, dict[str, Any]] = {}  # by name: what each is to be registered with
        self._accepts_updates = False  # may an agent register again with other values?
        self._rejected: set[str] = set()  # agents that the server refused; already logged
        self._hidden_senders: set[str] = set()  # agents that write and are not exposed; already logged

    @property
    def ids(self) -> dict[str, str]:
        """The ids of our agents there, by name."""
        return {name: id for id, name in self.names.items()}

    async def reclaim(self, ids: Iterable[str], *, accepts_updates: bool) -> None:
        """Take the agents that the server gave back: their mail may come at once."""
        self._accepts_updates = accepts_updates
        self._exposed = await self._executor.run_slow(self._exposed_now)
        self.names = {id: id for id in ids if id in self._exposed}

    async def register_link(self, rpc: RpcConnection) -> None:
        """Register the link's own agent, which must be the first: messages to our session go to it."""
        where = {"scopes": [self._options.scope]} if self._options.scope else {}
        result = await rpc.call(
            REGISTER, name=self.own, agentId=self.own, role="inbox", **where, **self._guest_metadata()
        )
        self._is_called(_id_of(result), self.own)
        await self.scopes.join(rpc, result["agent"], where.get("scopes", ()))

    async def register_changed(self, rpc: RpcConnection) -> None:
        """Register agents that are new or changed, and unregister those that have left."""
        self._exposed = await self._executor.run_slow(self._exposed_now)
        ids = self.ids
        for name in ids.keys() - self._exposed.keys() - {self.own}:
            with suppress(MapRefusal):
                await rpc.call(UNREGISTER, agentId=ids[name])
            del self.names[ids[name]]
        for name, params in self._exposed.items():
            if name not in ids or (self._accepts_updates and params != self._registered.get(name)):
                await self._register_agent(rpc, name, params)

    def _exposed_now(self) -> dict[str, dict[str, Any]]:
        return exposed(self._core, self._options.expose, self._options.scope, self._memory.writers)

    async def _register_agent(self, rpc: RpcConnection, name: str, params: dict[str, Any]) -> None:
        self._registered[name] = params
        try:
            result = await rpc.call(REGISTER, name=name, agentId=name, **params, **self._guest_metadata())
        except MapRefusal as refused:
            if name not in self._rejected:
                log.warning("%s is not shown at the MAP server: %s", name, refused)
            self._rejected.add(name)  # the holder of its name may go later
        else:
            self._is_called(_id_of(result), name)
            self._rejected.discard(name)
            await self.scopes.join(rpc, result["agent"], params.get("scopes", ()))

    def _guest_metadata(self) -> dict[str, Any]:
        return {"metadata": {GUEST: {"of": self.own}}}

    def _is_called(self, id: str, name: str) -> None:
        self.names[id] = name
        self._memory.note_address(id, name)

    async def has_lost(self, rpc: RpcConnection, name: str) -> bool:
        """Return whether another agent there has taken the name of this one, which is then dropped."""
        id = self.ids.get(name)
        if id is None or name == self.own or link_that_brought(await get_agent(rpc, id)) == self.own:
            return False
        self._lose(id)
        return True

    def drop_lost(self, rows: Iterable[Any]) -> None:
        """Drop our agents whose names the server lists as those of others."""
        for row in rows:
            id = row.get("id") if isinstance(row, dict) else None
            is_ours = isinstance(id, str) and self.names.get(id, self.own) != self.own
            if self._accepts_updates and is_ours and link_that_brought(row) != self.own:
                self._lose(row["id"])

    def _lose(self, id: str) -> None:
        name = self.names.pop(id)
        self._rejected.add(name)
        text = "%s is not shown at the MAP server any more, where another agent has its name: answers go to %s"
        log.warning(text, name, self.own)

    async def expose_sender(self, rpc: RpcConnection, sender: str) -> None:
        """Register a sender at the server for answers, also one that never registered here."""
        if sender == self.own or sender in self._hidden_senders:
            return
        if sender in self._memory.writers:
            self._memory.note_writer(sender)  # it is now the most recent one
        elif await self._executor.run_slow(lambda: may_answer_to(self._core, self._options.expose, sender)):
            self._memory.note_writer(sender)
            await self.register_changed(rpc)
        else:
            self._hidden_senders.add(sender)
            log.warning("%s writes to the MAP server and is not shown there: answers go to %s", sender, self.own)

    def members(self, meant: str | Role) -> list[str]:
        """Return our agents in a scope, or with a role."""
        if isinstance(meant, str):
            meant = self.scopes.name_of(meant)
        result = {name: self._exposed[name] for name in self.names.values() if name in self._exposed}
        return members(result, meant)


def _id_of(result: Mapping[str, Any]) -> str:
    agent = result.get("agent")
    id = agent.get("id") if isinstance(agent, dict) else None
    if not isinstance(id, str) or not id:
        raise MapRefusal({"message": "it registers agents and gives them no id"})
    return id


LIST_SCOPES, CREATE, JOIN = "map/scopes/list", "map/scopes/create", "map/scopes/join"


class ScopeMembership:
    """The scopes of our agents at the server in one session.

    A server that puts agents into the scopes they name in their registration says so in its answer. The SDK's own
    does not, and has scope ids of its own: there each scope is looked up by its name, made if there is none, and
    joined.
    """

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}  # the server's, by our names

    def id_of(self, name: str) -> str:
        return self._ids.get(name, name)

    def name_of(self, id: str) -> str:
        return next((name for name, theirs in self._ids.items() if theirs == id), id)

    async def join(self, rpc: RpcConnection, agent: Mapping[str, Any], scopes: Iterable[str]) -> None:
        """Join scopes. `agent`: the server's answer to the registration; it may know no scopes at all."""
        has = agent.get("scopes")
        for name in scopes:
            if not (isinstance(has, list) and name in has):
                with suppress(MapRefusal):
                    await rpc.call(JOIN, scopeId=await self._scope_id_of(rpc, name), agentId=agent["id"])

    async def _scope_id_of(self, rpc: RpcConnection, name: str) -> str:
        if name not in self._ids:
            rows = (await rpc.call(LIST_SCOPES)).get("scopes")
            ids = (_scope_id(row) for row in (rows if isinstance(rows, list) else []) if _is_called(row, name))
            found = next((id for id in ids if id), None)
            self._ids[name] = found or _scope_id((await rpc.call(CREATE, name=name)).get("scope")) or name
        return self._ids[name]


def _is_called(row: Any, name: str) -> bool:
    return isinstance(row, dict) and name in (row.get("id"), row.get("name"))


def _scope_id(row: Any) -> str | None:
    id = row.get("id") if isinstance(row, dict) else None
    return id if isinstance(id, str) and id else None
