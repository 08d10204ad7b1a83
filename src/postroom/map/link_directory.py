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
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct
from msgspec.structs import replace

from ..core import agents, presentation
from ..core.authorize import Principal
from ..core.core import find_record, values_of
from ..core.names import mailbox_named
from ..core.verb import perform
from ..errors import PostroomError
from ..federation.connection import MapRefusal
from ..formats.map import GUEST, LINK_NAME, NO_AGENT, REGISTER, REPLAY, SEND, UNREGISTER, role_of
from ..model.agent import MAP_STATES, Card, Status, Warmth
from ..model.names import POSTMASTER, fold
from ..model.record import BEAT, CARD
from ..policy.routing import is_routable

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Mapping, Sequence

    from ..core.core import Core
    from ..federation.connection import RpcConnection
    from ..formats.map import Role
    from .link import MapLink


log = logging.getLogger("postroom")
LINKED = "map_link"  # in the metadata of a card: its agent is on a MAP server
LONGEST = 128
MOST = 10_000  # agents of one server
_NOT_OURS = re.compile(r"[^A-Za-z0-9._-]+")


class RemoteAgent(Struct, frozen=True, kw_only=True):
    """An agent at the server, as the server lists it."""

    id: str  # the server's; another one after each restart of the SDK's server
    mailbox: str = ""  # here; given to it by `remote_agents`
    name: str = ""  # its own, if it has one
    role: str = ""
    state: str = "idle"
    guest_of: Any = None  # the name of the link that registered it
    is_linked: bool = False  # is it on the server by a link of the server itself?

    @property
    def title(self) -> str:
        return self.name or self.id[:200]

    @property
    def is_here(self) -> bool:
        """Whether it can be sent to. One that stopped comes back under another id."""
        return MAP_STATES.get(self.state) is not Status.OFFLINE

    @property
    def is_away(self) -> bool:
        """Whether it is known there, but not connected just now. Messages to it wait."""
        return MAP_STATES.get(self.state) is Warmth.AWAY


def read_agents(rows: Any) -> list[RemoteAgent]:
    """Return the agents that a server lists. What is no agent is left out."""
    return [found for row in _list(rows) if (found := _read_agent(row)) is not None]


def _read_agent(row: Any) -> RemoteAgent | None:
    if not isinstance(row, dict) or not isinstance(row.get("id"), str) or not row["id"]:
        return None
    metadata = row["metadata"] if isinstance(row.get("metadata"), dict) else {}
    guest = metadata.get(GUEST)
    texts = {name: row[name][:200] for name in ("name", "role", "state") if isinstance(row.get(name), str)}
    return RemoteAgent(
        id=row["id"],
        guest_of=guest.get("of") if isinstance(guest, dict) else None,
        is_linked=LINKED in metadata,
        **texts,
    )


def clean(text: str, otherwise: str = "") -> str:
    """Return the nearest name by our rules: a slash becomes a dot, other forbidden characters a dash."""
    name = _NOT_OURS.sub("-", text.replace("/", ".")).lstrip("._-")[:LONGEST].rstrip("-")
    return name or otherwise


def remote_agents(
    agents: Iterable[RemoteAgent],
    system: str,
    own: Container[str],
    before: Mapping[str, RemoteAgent],
    guests_of: str = "",
) -> dict[str, RemoteAgent]:
    """Return the server's agents by mailbox.

    `own`: the ids of our own agents there; `before`: the last result; `guests_of`: our link's name, which marks
    agents of ours that the server remembers from an earlier session.
    """
    held = {one.id: one.mailbox for one in before.values()}

    def rank(one: RemoteAgent) -> int:
        """Rank for the choice of names: first holders of the name they want, then others, then new ones."""
        if one.id not in held:
            return 2
        return 0 if fold(held[one.id]) == fold(_mailbox(system, one.name)) else 1

    by_id: dict[str, RemoteAgent] = {}
    for one in agents:
        # Neither our own agents nor those that came there through us: mail would go in a circle (G11).
        if not one.is_linked and one.id not in own and not (guests_of and one.guest_of == guests_of):
            by_id.setdefault(one.id, one)
    found: dict[str, RemoteAgent] = {}
    taken: set[str] = set()
    for one in sorted(list(by_id.values())[:MOST], key=rank):
        wanted, mine = _mailbox(system, one.name), held.get(one.id, "")
        if fold(mine) == fold(wanted):
            wanted = mine  # as it is spelt here
        # The id is the last resort: it is unique there, but changes with each restart of the SDK's server.
        choices = (wanted, mine, _mailbox(system, one.id))
        mailbox = next((name for name in choices if name and fold(name) not in taken), None)
        if mailbox is not None:
            taken.add(fold(mailbox))
            found[mailbox] = replace(one, mailbox=mailbox)
    return found


def _mailbox(system: str, text: str) -> str:
    """Return the name of a mailbox here for a name or an id there; empty if nothing is left of it."""
    name = clean(text)
    return f"{system}/{name}" if name else ""


def by_any_name(remote: Mapping[str, RemoteAgent], system: str) -> dict[str, RemoteAgent]:
    """Return agents by name and also by id: mail may wait under an id that was a name for a while."""
    by_id = {_mailbox(system, one.id): one for one in remote.values()}
    return {name: replace(one, mailbox=name) for name, one in by_id.items() if name} | dict(remote)


def of_session(
    agents: Sequence[RemoteAgent], everyone: Collection[str], remote: Mapping[str, RemoteAgent], named: Any
) -> str | None:
    """Return the mailbox of a sender, where the server gives only its session.

    `agents`: those in that session. The name in the message counts if it is one of them; else the first is meant.
    Where they are `everyone`, by ids and with our own, the server does not know the filter.
    """
    ids = [one.id for one in agents if not one.is_linked]
    if set(everyone) <= set(ids):
        return None
    by_id = {one.id: one for one in remote.values()}
    speakers = [by_id[id] for id in ids if id in by_id]
    return next((one.mailbox for one in speakers if one.title == named), speakers[0].mailbox if speakers else None)


# -- calls to the server

LIST = "map/agents/list"
GET = "map/agents/get"
RECENT = "mail/recent"
MANY = 200  # messages per call, as agent-inbox does
MOST_PAGES = 50
_SENT = ["message.sent", "message_sent"]  # both spellings of the event


async def _call(rpc: RpcConnection, method: str, **params: Any) -> dict[str, Any]:
    """Call a method that a server need not know: what it refuses has an empty answer."""
    with suppress(MapRefusal):
        return await rpc.call(method, **params)
    return {}


async def all_agents(rpc: RpcConnection) -> list[RemoteAgent]:
    """Return all agents of the server, our own included."""
    agents: list[RemoteAgent] = []
    cursor: dict[str, Any] = {}
    for _ in range(MOST_PAGES):
        result = await rpc.call(LIST, **cursor)
        agents += read_agents(result.get("agents"))
        if not isinstance(result.get("nextCursor"), str):
            break
        cursor = {"cursor": result["nextCursor"]}
    return agents


async def agents_of_session(rpc: RpcConnection, session: str) -> list[RemoteAgent]:
    """Return the agents on one connection, by a filter that the SDK's own server knows."""
    return read_agents((await _call(rpc, LIST, sessionId=session)).get("agents"))


async def send_confirmed(rpc: RpcConnection, message: dict[str, Any], id: str) -> dict[str, Any]:
    """Send a message to one agent. MapRefusal: it was refused, or the agent had left.

    A server may accept messages for ids that no agent has, and lose them: so right behind the message we ask
    whether the agent is still there.
    """
    calls = (rpc.call(SEND, **message), _call(rpc, GET, agentId=id))
    results: tuple[dict[str, Any] | BaseException, ...] = await asyncio.gather(*calls, return_exceptions=True)
    for one in results:
        if isinstance(one, BaseException):
            raise one
    sent, got = cast("tuple[dict[str, Any], dict[str, Any]]", results)
    # Some servers cannot get a single one.
    found = [_read_agent(got["agent"])] if isinstance(got.get("agent"), dict) else await all_agents(rpc)
    if not any(one is not None and one.id == id and one.is_here for one in found):
        raise MapRefusal({"code": NO_AGENT, "message": "its agent had left"})
    return sent


async def missed_messages(rpc: RpcConnection, since: int) -> list[dict[str, Any]]:
    """Return messages that may have come while we were away. `since`: milliseconds by the server's clock, or 0."""
    found = _list((await _call(rpc, RECENT, limit=MANY)).get("messages"))
    place: dict[str, Any] = {"fromTimestamp": since}
    for _ in range(MOST_PAGES if since else 0):
        result = await _call(rpc, REPLAY, **place, filter={"eventTypes": _SENT}, limit=MANY)
        rows = [row for row in _list(result.get("events")) if isinstance(row, dict)]
        events = [row["event"] for row in rows if isinstance(row.get("event"), dict)]
        data = [event["data"] for event in events if isinstance(event.get("data"), dict)]
        found += [one.get("message", one) for one in data]
        if not result.get("hasMore") or not rows:
            break
        place = {"afterEventId": rows[-1].get("eventId")}
    return [message for message in found if isinstance(message, dict)]


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
    held = values_of(core, CARD, Card)
    named = {mailbox_named(core, mailbox) or mailbox: one for mailbox, one in remote.items() if one.is_here}
    shown = {
        mailbox: one for mailbox, one in named.items() if _register_agent(core, mailbox, one, held.get(mailbox))
    }
    # One commit for all heartbeats: a server may list thousands of agents, again and again.
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


def sender_of(core: Core, name: str) -> str:
    """Return the name under which a remote agent writes here: never one of ours."""
    name = mailbox_named(core, name) or name
    card = agents.card_of(core, name)
    return f"{name}{NOT_OURS}" if card is not None and card.principal != LINK.name else name


def leave(core: Core, names: Sequence[str]) -> None:
    """Mark remote agents as left; those that have left before stay as they are."""
    perform(core, LINK, agents.RecordHeartbeats(names=list(names), leaving=True))


def exposed(core: Core, text: str, link_scope: str, wrote: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return what our agents are registered with at the server, by name: role and scopes, also the link's own.

    `text` chooses all agents that are here or away, named ones, or none. Of the same choice are those that `wrote`
    to an agent there, so that it can answer; one without a card has neither role nor scopes.
    """
    shown = {
        agent.card.id: agent.card
        for agent in agents.registered_agents(core)
        if is_routable(agent.presence) and _may_be_shown(agent.card.id, agent.card, text)
    }
    others = [name for name in wrote if name not in shown and may_answer_to(core, text, name)]
    result: dict[str, dict[str, Any]] = {}
    for name in (*shown, *others):
        card = shown.get(name)
        scopes = dict.fromkeys([*([link_scope] if link_scope else []), *(card.scopes if card is not None else ())])
        role = role_of(card) if card is not None else None
        result[name] = {"role": role or ROLE} | ({"scopes": list(scopes)} if scopes else {})
    return result


def may_answer_to(core: Core, text: str, name: str) -> bool:
    """Return whether an agent that wrote to the server may be registered there for an answer: not if dormant."""
    beat = find_record(core, BEAT, name)
    if beat is not None and beat.value.get("dormant"):
        return False
    return _may_be_shown(name, agents.card_of(core, name), text)


def _may_be_shown(name: str, card: Card | None, text: str) -> bool:
    """Return whether it is an agent of this room that the options expose."""
    # A guest would be shown back to the server that it came from (G11).
    is_guest = card is not None and (card.principal == LINK.name or GUEST in card.metadata)
    is_wanted = text != NONE and (text == ALL or name in {one.strip() for one in text.split(",")})
    return is_wanted and not is_guest and fold(name) != POSTMASTER


# -- our agents at the server


LIST_SCOPES, CREATE, JOIN = "map/scopes/list", "map/scopes/create", "map/scopes/join"


class ExposedAgents:
    """Our agents at the server in one session: under which ids, and with which role and scopes.

    `own`: the name of the link itself, its agent there and its mailbox here.
    """

    def __init__(self, link: MapLink, own: str) -> None:
        self._link = link
        self.own = own
        self._scopes: dict[str, str] = {}  # the server's ids of scopes, by our names
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
        self._exposed = await self._exposed_now()
        self.names = {id: id for id in ids if id in self._exposed}

    async def register_link(self, rpc: RpcConnection) -> None:
        """Register the link's own agent, which must be the first: messages to our session go to it."""
        where = {"scopes": [self._link.options.scope]} if self._link.options.scope else {}
        await self._register(rpc, self.own, {"role": "inbox"} | where)

    async def register_changed(self, rpc: RpcConnection) -> None:
        """Register agents that are new or changed, and unregister those that have left."""
        self._exposed = await self._exposed_now()
        ids = self.ids
        for name in ids.keys() - self._exposed.keys() - {self.own}:
            with suppress(MapRefusal):
                await rpc.call(UNREGISTER, agentId=ids[name])
            del self.names[ids[name]]
        for name, params in self._exposed.items():
            if name not in ids or (self._accepts_updates and params != self._registered.get(name)):
                await self._register_agent(rpc, name, params)

    async def _exposed_now(self) -> dict[str, dict[str, Any]]:
        options = self._link.options
        return await self._link.run_slow(exposed, options.expose, options.scope, self._link.memory.writers)

    async def _register_agent(self, rpc: RpcConnection, name: str, params: dict[str, Any]) -> None:
        self._registered[name] = params
        try:
            await self._register(rpc, name, params)
        except MapRefusal as refused:
            if name not in self._rejected:
                log.warning("%s is not shown at the MAP server: %s", name, refused)
            self._rejected.add(name)  # the holder of its name may go later
        else:
            self._rejected.discard(name)

    async def _register(self, rpc: RpcConnection, name: str, params: dict[str, Any]) -> None:
        mark = {GUEST: {"of": self.own}}
        agent: Any = (await rpc.call(REGISTER, name=name, agentId=name, **params, metadata=mark)).get("agent")
        found = _read_agent(agent)
        if found is None:
            raise MapRefusal({"message": "it registers agents and gives them no id"})
        self.names[found.id] = name
        self._link.memory.note_address(found.id, name)
        await self._join(rpc, agent, params.get("scopes", ()))

    async def has_lost(self, rpc: RpcConnection, name: str) -> bool:
        """Return whether another agent there has taken the name of this one, which is then dropped."""
        id = self.ids.get(name)
        if id is None or name == self.own:
            return False
        found = _read_agent((await _call(rpc, GET, agentId=id)).get("agent"))
        if found is not None and found.guest_of == self.own:
            return False
        self._lose(id)
        return True

    def drop_lost(self, listed: Iterable[RemoteAgent]) -> None:
        """Drop our agents whose names the server lists as those of others."""
        for one in listed:
            is_ours = self.names.get(one.id, self.own) != self.own
            if self._accepts_updates and is_ours and one.guest_of != self.own:
                self._lose(one.id)

    def _lose(self, id: str) -> None:
        name = self.names.pop(id)
        self._rejected.add(name)
        text = "%s is not shown at the MAP server any more, where another agent has its name: answers go to %s"
        log.warning(text, name, self.own)

    async def expose_sender(self, rpc: RpcConnection, sender: str) -> None:
        """Register a sender at the server for answers, also one that never registered here."""
        if sender == self.own or sender in self._hidden_senders:
            return
        memory = self._link.memory
        if sender in memory.writers:
            memory.note_writer(sender)  # it is now the most recent one
        elif await self._link.run_slow(may_answer_to, self._link.options.expose, sender):
            memory.note_writer(sender)
            await self.register_changed(rpc)
        else:
            self._hidden_senders.add(sender)
            log.warning("%s writes to the MAP server and is not shown there: answers go to %s", sender, self.own)

    def members(self, meant: str | Role) -> list[str]:
        """Return our agents in a scope, or with a role."""
        known = {name: self._exposed[name] for name in self.names.values() if name in self._exposed}
        if isinstance(meant, str):
            scope = next((name for name, id in self._scopes.items() if id == meant), meant)
            return [name for name, params in known.items() if scope in params.get("scopes", ())]
        return [
            name
            for name, params in known.items()
            if params["role"] == meant.name and meant.within in {None, *params.get("scopes", ())}
        ]

    # -- their scopes

    def scope_id_of(self, name: str) -> str:
        return self._scopes.get(name, name)

    async def _join(self, rpc: RpcConnection, agent: Mapping[str, Any], scopes: Iterable[str]) -> None:
        """Join scopes. `agent`: the server's answer to the registration; it may know no scopes at all.

        A server that puts agents into the scopes they name in their registration says so in its answer. The SDK's
        own does not, and has scope ids of its own: there each scope is looked up by its name, made if there is
        none, and joined.
        """
        has = agent.get("scopes")
        for name in scopes:
            if not (isinstance(has, list) and name in has):
                with suppress(MapRefusal):
                    await rpc.call(JOIN, scopeId=await self._find_scope(rpc, name), agentId=agent["id"])

    async def _find_scope(self, rpc: RpcConnection, name: str) -> str:
        if name not in self._scopes:
            rows = _list((await rpc.call(LIST_SCOPES)).get("scopes"))
            named: list[Any] = [
                row for row in rows if isinstance(row, dict) and name in (row.get("id"), row.get("name"))
            ]
            if not named:
                named = [(await rpc.call(CREATE, name=name)).get("scope")]
            ids = (row.get("id") for row in named if isinstance(row, dict))
            self._scopes[name] = next((id for id in ids if isinstance(id, str) and id), name)
        return self._scopes[name]
