"""The queues of a room: one short row for each mailbox, with its agent's presence and what waits there.

To count open mail takes as long as there is open mail, so a server makes one look for all who ask (`shared`).
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct

from ..model.names import AT
from ..model.query import Query
from ..model.values import Brief, check_count
from .agents import registered_agents
from .verb import Verb, verb

if TYPE_CHECKING:
    from ..model.agent import Agent
    from ..model.query import Tally
    from .authorize import Principal
    from .core import Core


class Queue(Brief, frozen=True, kw_only=True):
    """What waits at one mailbox, and how its agent is."""

    agent: str
    registered: bool
    scopes: list[str]
    status: str | None  # as its card shows it; None: nobody registered
    last_active_at: datetime | None
    tasks: int  # that it works on
    unread: int
    backlog: int  # not settled
    claimed: int
    queued: int
    dead: int
    oldest_unread_at: datetime | None
    oldest_claimed_at: datetime | None


class Queues(Struct):
    """The queues of a room, by the names of their mailboxes."""

    at: datetime
    queues: list[Queue]
    next: str | None  # `after` of the next page; None at the end


@verb("queues", Queues, action="room", many=True, writes=False, shared=True)
class ListQueues(Verb, kw_only=True):
    """Return how much waits at each mailbox, since when, and whether its agent is there."""

    after: Annotated[str, "only names behind this one: the `next` of the page before"] = ""
    limit: Annotated[int, "how many at most"] = 1000

    def run(self, core: Core, _principal: Principal) -> Queues:
        most, moment = check_count(self.limit, "limit"), core.now()
        tallies = {tally.mailbox: tally for tally in core.store.count(Query(), by="state")}
        agents = {agent.card.id: agent for agent in registered_agents(core, gone=True)}
        names = sorted(name for name in tallies.keys() | agents if AT not in name and name > self.after)
        shown = [_queue(name, agents.get(name), tallies.get(name)) for name in names[:most]]
        return Queues(moment.wall, shown, names[most - 1] if len(names) > most else None)


def _queue(name: str, agent: Agent | None, tally: Tally | None) -> Queue:
    presence = None if agent is None else agent.presence
    return Queue(
        agent=name,
        registered=agent is not None,
        scopes=[] if agent is None else list(agent.card.scopes),
        status=None if presence is None else presence.status,
        last_active_at=None if presence is None else presence.last_active_at,
        tasks=0 if presence is None else len(presence.current_tasks),
        unread=0 if tally is None else tally.total_unread,
        backlog=0 if tally is None else tally.backlog,
        claimed=0 if tally is None else tally.claimed,
        queued=0 if tally is None else tally.queued,
        dead=0 if tally is None else tally.dead,
        oldest_unread_at=None if tally is None else tally.oldest_unread_at,
        oldest_claimed_at=None if tally is None else tally.oldest_claimed_at,
    )
