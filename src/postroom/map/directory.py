"""Who is on the MAP server, and what we call each of them: `system/name`, within the rules for our names.

The first to hold a name keeps it as long as it is there; a second one of the same name is called by its id until
then. Who restarts before the server knows that its old connection is dead is such a second one for a while.
Whoever is there only by a link of another room is passed over: rooms that are linked to each other would else show
each other their own agents, again and again.

It refuses to know connections and stores.
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from ..core import agents, presentation
from ..core.authorize import Principal
from ..errors import PostroomError
from ..federation.connection import MapRefusal
from ..formats.map import GUEST, LINK_NAME, NO_AGENT, REGISTER, REPLAY, SEND, UNREGISTER, role_of
from ..model.agent import MAP_STATES, Card, Status, Warmth
from ..model.codec import convert
from ..model.names import POSTMASTER, fold
from ..model.record import BEAT, CARD
from ..policy.routing import is_routable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ..federation.connection import Line
    from ..formats.map import Role
    from ..room import Room
    from ..server.executor import Executor
    from .link import Memory
    from .visit import Wants


LINKED = "map_link"  # in the metadata of a card: it is of an agent that is elsewhere, and we know it by a link
LONGEST = 128
MOST = 10_000  # agents of one server
_NOT_OURS = re.compile(r"[^A-Za-z0-9._-]+")


class Neighbour(Struct, frozen=True, kw_only=True):
    """An agent on the server."""

    id: str  # the server's; another one after each restart of the SDK's server
    mailbox: str  # ours
    title: str  # what it calls itself
    role: str = ""
    state: str = "idle"

    @property
    def is_here(self) -> bool:
        """Can it be sent to?"""
        return _is_here(self.state)

    @property
    def is_away(self) -> bool:
        """Is it known there, and not connected just now? What is sent to it waits."""
        return MAP_STATES.get(self.state) is Warmth.AWAY


def is_here(row: Mapping[str, Any]) -> bool:
    """The same of a row that the server told."""
    return _is_here(str(row.get("state")))


def _is_here(state: str) -> bool:
    """Whoever has stopped comes back under another id."""
    return MAP_STATES.get(state) is not Status.OFFLINE


def clean(text: str, otherwise: str = "") -> str:
    """A name by our rules, as near as can be: a slash becomes a dot, what else is not allowed a dash."""
    name = _NOT_OURS.sub("-", text.replace("/", ".")).lstrip("._-")[:LONGEST].rstrip("-")
    return name or otherwise


def neighbours(
    rows: Iterable[Any], system: str, own: Iterable[str], before: Mapping[str, Neighbour], guests_of: str = ""
) -> dict[str, Neighbour]:
    """By mailbox. `rows`: what `map/agents/list` told; `own`: the ids under which our own agents are there;
    `before`: by mailbox, who was there the last time; `guests_of`: the name by which we brought ours there, also
    those that the server remembers from an earlier visit.
    """
    ours = frozenset(own)
    held = {one.id: one.mailbox for one in before.values()}
    by_id: dict[str, Any] = {}
    for row in rows:
        if _is_sound(row) and row["id"] not in ours and not (guests_of and brought_by(row) == guests_of):
            by_id.setdefault(row["id"], row)
    sound = list(by_id.values())[:MOST]
    sound.sort(key=lambda row: _turn(row, system, held.get(row["id"])))
    found: dict[str, Neighbour] = {}
    taken: set[str] = set()
    for row in sound:
        mailbox = _free_name(row, system, taken, held.get(row["id"]))
        if mailbox is not None:
            taken.add(fold(mailbox))
            found[mailbox] = _neighbour(row, mailbox)
    return found


def _is_sound(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("id"), str) and bool(row["id"]) and not _is_elsewhere(row)


def _is_elsewhere(row: Mapping[str, Any]) -> bool:
    metadata = row.get("metadata")
    return isinstance(metadata, dict) and LINKED in metadata


def brought_by(row: Mapping[str, Any]) -> Any:
    """The link that it came by, if by one."""
    metadata = row.get("metadata")
    guest = metadata.get(GUEST) if isinstance(metadata, dict) else None
    return guest.get("of") if isinstance(guest, dict) else None


def _turn(row: Mapping[str, Any], system: str, held: str | None) -> int:
    """Who has the name that it wants chooses first, then who has another, then who is new."""
    if held is None:
        return 2
    return 0 if fold(held) == fold(_wanted(row, system)) else 1


def _free_name(row: Mapping[str, Any], system: str, taken: set[str], held: str | None) -> str | None:
    wanted = _wanted(row, system)
    if held is not None and fold(held) == fold(wanted):
        wanted = held  # as it is spelt here
    choices = (wanted, held, _by_id(row["id"], system))
    return next((mailbox for mailbox in choices if mailbox and fold(mailbox) not in taken), None)


def _wanted(row: Mapping[str, Any], system: str) -> str:
    name = row.get("name")
    cleaned = clean(name) if isinstance(name, str) else ""
    return f"{system}/{cleaned}" if cleaned else ""


def _by_id(id: str, system: str) -> str:
    cleaned = clean(id)
    return f"{system}/{cleaned}" if cleaned else ""


def by_any_name(there: Mapping[str, Neighbour], system: str) -> dict[str, Neighbour]:
    """Also by their ids: that is what some were called for a while, and mail may wait there."""
    by_id = {_by_id(one.id, system): one for one in there.values()}
    return {name: replace(one, mailbox=name) for name, one in by_id.items() if name} | dict(there)


def _neighbour(row: Mapping[str, Any], mailbox: str) -> Neighbour:
    def text(field: str, otherwise: str = "") -> str:
        value = row.get(field)
        return value[:200] if isinstance(value, str) else otherwise

    return Neighbour(
        id=row["id"],
        mailbox=mailbox,
        title=text("name", row["id"][:200]),
        role=text("role"),
        state=text("state", "idle"),
    )


def of_session(
    rows: Sequence[Any], everyone: Collection[str], there: Mapping[str, Neighbour], params: Any
) -> str | None:
    """The mailbox of who spoke, where the server names only its session and `rows` are the agents in that. A name
    that it gave itself counts if it is one of them; else the first is meant. Where these are `everyone`, by their
    ids and with our own, the server knows no sessions.
    """
    ids = [row["id"] for row in rows if _is_sound(row)]
    if set(everyone) <= set(ids):
        return None
    by_id = {one.id: one for one in there.values()}
    speakers = [by_id[id] for id in ids if id in by_id]
    named = [one.mailbox for one in speakers if isinstance(params, str) and params == one.title]
    return next(iter([*named, *(one.mailbox for one in speakers)]), None)


# What is asked of the server in several calls: everybody who is there, everything that came while we were away,
# whether a message reached somebody.
#
# A server need not know more than who is there; what else it refuses is as if there was nothing.

LIST = "map/agents/list"
GET = "map/agents/get"
RECENT = "mail/recent"
MANY = 200  # messages asked for in one go, as agent-inbox does
MOST_PAGES = 50
_SENT = ["message.sent", "message_sent"]  # both spellings of the event


async def everybody(line: Line) -> list[Any]:
    """The rows of all agents."""
    rows: list[Any] = []
    cursor: dict[str, Any] = {}
    for _ in range(MOST_PAGES):
        result = await line.ask(LIST, **cursor)
        rows += _list(result.get("agents"))
        if not isinstance(result.get("nextCursor"), str):
            break
        cursor = {"cursor": result["nextCursor"]}
    return rows


async def of_one_session(line: Line, session: str) -> list[Any]:
    """Those on one connection, by a filter that the SDK's own server knows."""
    with suppress(MapRefusal):
        return _list((await line.ask(LIST, sessionId=session)).get("agents"))
    return []


async def hand_over(line: Line, message: dict[str, Any], id: str) -> dict[str, Any]:
    """Send it to one agent. A server may take messages for anybody, and lose those for nobody: so whether its
    agent is still there is asked right behind it. MapRefusal: it was not taken, or had nobody to go to.
    """
    result, found = await line.ask_in_turn((SEND, message), (GET, {"agentId": id}))
    if isinstance(result, MapRefusal):
        raise result
    row = None if isinstance(found, MapRefusal) else found.get("agent")
    if not (is_here(row) if isinstance(row, dict) else await _is_listed(line, id)):
        raise MapRefusal({"code": NO_AGENT, "message": "its agent had left"})
    return result


async def _is_listed(line: Line, id: str) -> bool:
    """A server that cannot tell of one agent tells of all."""
    rows = await everybody(line)
    return any(isinstance(row, dict) and row.get("id") == id and is_here(row) for row in rows)


async def one(line: Line, id: str) -> dict[str, Any]:
    """An agent's row; empty where there is none."""
    with suppress(MapRefusal):
        row = (await line.ask(GET, agentId=id)).get("agent")
        return row if isinstance(row, dict) else {}
    return {}


async def missed(line: Line, since: int) -> list[dict[str, Any]]:
    """Messages that may have come while we were away. `since`: milliseconds by the server's clock; 0 at first."""
    found: list[Any] = []
    with suppress(MapRefusal):
        found += _list((await line.ask(RECENT, limit=MANY)).get("messages"))
    if since:
        with suppress(MapRefusal):
            found += await _replayed(line, since)
    return [message for message in found if isinstance(message, dict)]


async def _replayed(line: Line, since: int) -> list[Any]:
    found: list[Any] = []
    place: dict[str, Any] = {"fromTimestamp": since}
    for _ in range(MOST_PAGES):
        result = await line.ask(REPLAY, **place, filter={"eventTypes": _SENT}, limit=MANY)
        events = [event for event in _list(result.get("events")) if isinstance(event, dict)]
        found += [_message(event.get("event")) for event in events]
        if not result.get("hasMore") or not events:
            break
        place = {"afterEventId": events[-1].get("eventId")}
    return found


def _message(event: Any) -> Any:
    """The message that an event tells of."""
    data = event.get("data") if isinstance(event, dict) else None
    return data.get("message", data) if isinstance(data, dict) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


# Our directory and the server's, in step: its agents have cards here, and which of ours are shown there.
#
# Whoever is there has a card here under `system/name`, and a sign of life whenever the server tells of it. Who is
# away there, or not told of any more, and everybody when the link is cut, says goodbye: away, still chosen for
# work
# for a while, then expired, then gone. A name that an agent of ours has is not taken from it.
#
# On the desk's threads: nothing here waits for the network.

LINK = Principal(LINK_NAME, operator=True)
ROLE = "agent"  # of who has none
ALL, NONE = "all", "none"
NOT_OURS = ".there"  # behind the name of somebody there that an agent of ours has


def show_here(room: Room, there: Mapping[str, Neighbour], every: float) -> dict[str, Neighbour]:
    """Cards and signs of life of who is there; gives back who could have a name here, by that. `every`: seconds
    between two looks.
    """
    held = {record.key: convert(record.value, Card) for record in room._core.store.records(CARD)}
    named = {spelt(room, mailbox): one for mailbox, one in there.items() if one.is_here}
    shown = {mailbox: one for mailbox, one in named.items() if _show(room, mailbox, one, held.get(mailbox))}
    alive = {mailbox for mailbox, one in shown.items() if not one.is_away}
    agents.heartbeats(room._core, LINK, sorted(alive), poll_interval=every)
    known = {name for name, card in held.items() if card.principal == LINK.name}
    leave(room, sorted((known | shown.keys()) - alive))
    return {mailbox: replace(one, mailbox=mailbox) for mailbox, one in shown.items()}


def _show(room: Room, mailbox: str, one: Neighbour, held: Card | None) -> bool:
    """An agent of ours keeps its name, however long it is away: its mail is not for others."""
    title = presentation.one_line(one.title)[:200]
    metadata: dict[str, Any] = {LINKED: {"id": one.id}} | ({"role": one.role} if one.role else {})
    if held is not None and (held.principal, held.display_name, held.metadata) == (LINK.name, title, metadata):
        return True
    if held is not None and held.principal != LINK.name:
        return False
    try:
        room.mailbox(mailbox).register(display_name=title, metadata=metadata)
    except PostroomError as refused:
        if refused.temporary:
            raise
        return False
    return True


def spelt(room: Room, name: str) -> str:
    """As it is spelt here, whatever its case."""
    return room._core.store.spelling(name) or name


def sender_of(room: Room, name: str) -> str:
    """The name under which somebody there writes here: never one of ours."""
    name = spelt(room, name)
    card = room._core.store.records(CARD, name)
    return f"{name}{NOT_OURS}" if card and card[0].value.get("principal") != LINK.name else name


def members(result: Mapping[str, Mapping[str, Any]], meant: str | Role) -> list[str]:
    """Who of ours is meant by the name of a scope, or by a role, as the server was told of them."""
    if isinstance(meant, str):
        return [name for name, params in result.items() if meant in params.get("scopes", ())]
    return [
        name
        for name, params in result.items()
        if params["role"] == meant.name and meant.within in {None, *params.get("scopes", ())}
    ]


def leave(room: Room, names: Sequence[str]) -> None:
    """They are not there any more, as far as we know. Who said so before stays as it is."""
    agents.heartbeats(room._core, LINK, names, leaving=True)


def exposed(room: Room, text: str, link_scope: str, wrote: Collection[str]) -> dict[str, dict[str, Any]]:
    """What the server is told of our own agents, by name: all that are here or away, those that are named, or
    none; and in the same way those that `wrote` to somebody there, who may answer.
    """
    shown = {
        agent.card.id: agent.card
        for agent in room.agents()
        if is_routable(agent.presence) and _may_be_shown(agent.card.id, agent.card, text)
    }
    others = [name for name in wrote if name not in shown and may_answer_to(room, text, name)]
    return {name: _said_of(shown.get(name), link_scope) for name in (*shown, *others)}


def may_answer_to(room: Room, text: str, name: str) -> bool:
    """May somebody who wrote there be shown there, so that it can be answered? Who sleeps has said goodbye."""
    card, beat = (room._core.store.records(kind, name) for kind in (CARD, BEAT))
    if beat and beat[0].value.get("dormant"):
        return False
    return _may_be_shown(name, convert(card[0].value, Card) if card else None, text)


def _may_be_shown(name: str, card: Card | None, text: str) -> bool:
    """Is it our own, and to be known there?"""
    is_guest = card is not None and (card.principal == LINK.name or GUEST in card.metadata)
    is_wanted = text != NONE and (text == ALL or name in {one.strip() for one in text.split(",")})
    return is_wanted and not is_guest and fold(name) != POSTMASTER


def _said_of(card: Card | None, link_scope: str) -> dict[str, Any]:
    """Its role and its scopes, and the link's own. Who only writes has neither."""
    own = card.scopes if card is not None else ()
    scopes = list(dict.fromkeys([*([link_scope] if link_scope else []), *own]))
    role = role_of(card) if card is not None else None
    return {"role": role or ROLE} | ({"scopes": scopes} if scopes else {})


# Our own at the server: who of them is shown there, under which ids, and what was said of each.

log = logging.getLogger("postroom")


class Showing:
    """Of one visit. `own`: what the link itself is called, its agent there and its mailbox here."""

    def __init__(self, executor: Executor, wants: Wants, memory: Memory, own: str) -> None:
        self._executor = executor
        self._room = executor.room.acting_as(LINK)
        self._wants = wants
        self._memory = memory
        self.own = own
        self.scoping = Scoping()
        self.names: dict[str, str] = {}  # by the ids they have there
        self._told: dict[str, dict[str, Any]] = {}  # by name: what the server was told of each
        self._exposed: dict[str, dict[str, Any]] = {}  # by name: what it is to be told
        self._takes_again = False  # who is there already may say anew what it is
        self._unwanted: set[str] = set()  # those that the server does not take; it was said
        self._silenced: set[str] = set()  # those that write and are not to be shown; it was said

    @property
    def ids(self) -> dict[str, str]:
        """By their names."""
        return {name: id for id, name in self.names.items()}

    async def come_back(self, ids: Iterable[str], *, takes_again: bool) -> None:
        """The server gave these back to us: their mail may come at once."""
        self._takes_again = takes_again
        self._exposed = await self._executor.run_slow(self._to_be_shown)
        self.names = {id: id for id in ids if id in self._exposed}

    async def introduce(self, line: Line) -> None:
        """The link's own agent comes first: what is said to our session is said to it."""
        where = {"scopes": [self._wants.scope]} if self._wants.scope else {}
        result = await line.ask(
            REGISTER, name=self.own, agentId=self.own, role="inbox", **where, **self._brought()
        )
        self._is_called(_id_of(result), self.own)
        await self.scoping.join(line, result["agent"], where.get("scopes", ()))

    async def show(self, line: Line) -> None:
        """Whoever came or changed is told of; who went is taken away."""
        self._exposed = await self._executor.run_slow(self._to_be_shown)
        ids = self.ids
        for name in ids.keys() - self._exposed.keys() - {self.own}:
            with suppress(MapRefusal):
                await line.ask(UNREGISTER, agentId=ids[name])
            del self.names[ids[name]]
        for name, params in self._exposed.items():
            if name not in ids or (self._takes_again and params != self._told.get(name)):
                await self._show(line, name, params)

    def _to_be_shown(self) -> dict[str, dict[str, Any]]:
        return exposed(self._room, self._wants.expose, self._wants.scope, self._memory.writers)

    async def _show(self, line: Line, name: str, params: dict[str, Any]) -> None:
        self._told[name] = params
        try:
            result = await line.ask(REGISTER, name=name, agentId=name, **params, **self._brought())
        except MapRefusal as refused:
            if name not in self._unwanted:
                log.warning("%s is not shown at the MAP server: %s", name, refused)
            self._unwanted.add(name)  # who holds its name may go
        else:
            self._is_called(_id_of(result), name)
            self._unwanted.discard(name)
            await self.scoping.join(line, result["agent"], params.get("scopes", ()))

    def _brought(self) -> dict[str, Any]:
        return {"metadata": {GUEST: {"of": self.own}}}

    def _is_called(self, id: str, name: str) -> None:
        self.names[id] = name
        self._memory.is_called(id, name)

    async def has_lost(self, line: Line, name: str) -> bool:
        """The server does not let it speak. Has somebody there its name by now? Then it is not shown any more."""
        id = self.ids.get(name)
        if id is None or name == self.own or brought_by(await one(line, id)) == self.own:
            return False
        self._lose(id)
        return True

    def compare(self, rows: Iterable[Any]) -> None:
        """Whom of ours the server lists as its own, it has taken from us."""
        for row in rows:
            id = row.get("id") if isinstance(row, dict) else None
            is_ours = isinstance(id, str) and self.names.get(id, self.own) != self.own
            if self._takes_again and is_ours and brought_by(row) != self.own:
                self._lose(row["id"])

    def _lose(self, id: str) -> None:
        name = self.names.pop(id)
        self._unwanted.add(name)
        text = "%s is not shown at the MAP server any more, where somebody has its name: answers go to %s"
        log.warning(text, name, self.own)

    async def be_answerable(self, line: Line, sender: str) -> None:
        """Who writes there is shown there from then on, also if it never registered here."""
        if sender == self.own or sender in self._silenced:
            return
        if sender in self._memory.writers:
            self._memory.wrote(sender)  # once more
        elif await self._executor.run_slow(lambda: may_answer_to(self._room, self._wants.expose, sender)):
            self._memory.wrote(sender)
            await self.show(line)
        else:
            self._silenced.add(sender)
            log.warning("%s writes to the MAP server and is not shown there: answers go to %s", sender, self.own)

    def members(self, meant: str | Role) -> list[str]:
        """Who is in a scope, or has a role."""
        if isinstance(meant, str):
            meant = self.scoping.name_of(meant)
        result = {name: self._exposed[name] for name in self.names.values() if name in self._exposed}
        return members(result, meant)


def _id_of(result: Mapping[str, Any]) -> str:
    agent = result.get("agent")
    id = agent.get("id") if isinstance(agent, dict) else None
    if not isinstance(id, str) or not id:
        raise MapRefusal({"message": "it registers agents and gives them no id"})
    return id


# Our agents, in their scopes at the server. A server that puts who registers into the scopes it names says so in
# its answer; the SDK's own does not, and knows scopes by ids of its own: there each is looked for by its name,
# made
# where there is none, and joined.

LIST_SCOPES, CREATE, JOIN = "map/scopes/list", "map/scopes/create", "map/scopes/join"


class Scoping:
    """Of one visit."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}  # the server's, by the names we say

    def id_of(self, name: str) -> str:
        return self._ids.get(name, name)

    def name_of(self, id: str) -> str:
        return next((name for name, theirs in self._ids.items() if theirs == id), id)

    async def join(self, line: Line, agent: Mapping[str, Any], scopes: Iterable[str]) -> None:
        """`agent`: what the server answered to who registered. It may know no scopes at all."""
        has = agent.get("scopes")
        for name in scopes:
            if not (isinstance(has, list) and name in has):
                with suppress(MapRefusal):
                    await line.ask(JOIN, scopeId=await self._found(line, name), agentId=agent["id"])

    async def _found(self, line: Line, name: str) -> str:
        if name not in self._ids:
            rows = (await line.ask(LIST_SCOPES)).get("scopes")
            ids = (_scope_id(row) for row in (rows if isinstance(rows, list) else []) if _is_called(row, name))
            found = next((id for id in ids if id), None)
            self._ids[name] = found or _scope_id((await line.ask(CREATE, name=name)).get("scope")) or name
        return self._ids[name]


def _is_called(row: Any, name: str) -> bool:
    return isinstance(row, dict) and name in (row.get("id"), row.get("name"))


def _scope_id(row: Any) -> str | None:
    id = row.get("id") if isinstance(row, dict) else None
    return id if isinstance(id, str) and id else None
