"""What happens to agents and scopes, for those who subscribe. It is told once, to who listens now: how things
stand, the directory says. Letters and conversations are told from the numbered past (`hub`).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import PostroomError
from ..formats.inbox import present
from ..formats.map import (
    AGENT_CHANGED,
    AGENT_REGISTERED,
    AGENT_UNREGISTERED,
    AGENT_UPDATED,
    MESSAGE_DELIVERED,
    SCOPE_CREATED,
    SCOPE_DELETED,
    SCOPE_JOINED,
    SCOPE_LEFT,
    agent_record,
    map_letter,
)
from ..model.message import DEFAULT_SCOPE
from ..server.events import Event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model.message import Message
    from ..room import Room
    from ..server.broker import Broker
    from ..server.executor import Executor


# What a method that was carried out is told as.
_OF_AGENTS = {
    "map/agents/register": AGENT_REGISTERED,
    "map/agents/spawn": AGENT_REGISTERED,
    "map/agents/unregister": AGENT_UNREGISTERED,
    "map/agents/stop": AGENT_CHANGED,
    "map/agents/suspend": AGENT_CHANGED,
    "map/agents/resume": AGENT_CHANGED,
}
_OF_SCOPES = {
    "map/scopes/create": SCOPE_CREATED,
    "map/scopes/delete": SCOPE_DELETED,
    "map/scopes/join": SCOPE_JOINED,
    "map/scopes/leave": SCOPE_LEFT,
}
UPDATE = "map/agents/update"


class Telling:
    def __init__(self, executor: Executor, broker: Broker) -> None:
        self._core = executor.room._core
        self._broker = broker
        self._numbers = itertools.count(1)
        self._states: dict[str, str] = {}  # of agents, as they were told or seen last
        self._fresh: set[str] = set()  # agents that were told of since the last look began

    def of_call(self, method: str, params: dict[str, Any], result: dict[str, Any]) -> None:
        """What a call that was carried out means for others."""
        if not self._broker.is_heard:
            return
        if method == UPDATE:
            self._of_agent(AGENT_CHANGED if "state" in params else AGENT_UPDATED, result)
        elif method in _OF_AGENTS:
            self._of_agent(_OF_AGENTS[method], result)
        elif method in _OF_SCOPES:
            scope = result["scope"]
            agent = result.get("agent", {}).get("id")
            data = present(scopeId=scope["id"], name=scope["name"], scope=scope, agentId=agent)
            self._tell(_OF_SCOPES[method], data, agent or params.get("agent_id", ""), scope=scope["id"])

    def gone(self, result: dict[str, Any]) -> None:
        """The connection of an agent has ended."""
        if self._broker.is_heard and result["previousState"] != result["agent"]["state"]:
            self._of_agent(AGENT_CHANGED, result)

    def look_begins(self, *, is_heard: bool) -> None:
        """Who is told of from now on is not told of by what the look finds: that may be older."""
        self._fresh.clear()
        if not is_heard:
            self._states.clear()

    def found(self, agents: Sequence[dict[str, Any]]) -> None:
        """How everybody is. Who is otherwise than before is told of."""
        before, fresh = self._states, frozenset(self._fresh)
        self._states = {agent["id"]: agent["state"] for agent in agents}
        self._states |= {id: before[id] for id in fresh & before.keys()}
        for agent in agents:
            was = before.get(agent["id"], agent["state"])
            if was != agent["state"] and agent["id"] not in fresh:
                self._of_agent(AGENT_CHANGED, {"agent": agent, "previousState": was})

    def delivered(self, message: Message, agent: str) -> None:
        """Heard by its sender, by who got it, and by operators."""
        if not self._broker.is_heard:
            return
        letter = map_letter(message.seen_by(agent))
        meta = letter.get("meta") or {}
        data: dict[str, Any] = {"messageId": message.id, "agentId": agent, "deliveredTo": [agent]}
        data |= {"from": message.sender, "timestamp": letter["timestamp"], "message": letter}
        data |= {word: meta[word] for word in ("correlationId",) if word in meta}
        self._tell(MESSAGE_DELIVERED, data, message.sender, scope=message.scope, parties=(message.sender, agent))

    def _of_agent(self, kind: str, result: dict[str, Any]) -> None:
        agent = result["agent"]
        self._states[agent["id"]] = agent["state"]
        self._fresh.add(agent["id"])
        data = {"agentId": agent["id"], "agent": agent, "state": agent["state"], "newState": agent["state"]}
        data |= present(name=agent["name"], role=agent.get("role"), previousState=result.get("previousState"))
        data["ownerId"] = agent["ownerId"]
        scopes = agent.get("scopes") or [DEFAULT_SCOPE]
        self._tell(kind, data, agent["id"], scope=scopes[0], role=agent.get("role"))

    def _tell(self, kind: str, data: dict[str, Any], source: str, **more: Any) -> None:
        number = self._broker.number
        event = Event(
            id=f"{number}-{kind}-{next(self._numbers)}",
            type=kind,
            number=number,
            timestamp=self._core.now().wall,
            data=data,
            conversation="",
            sender=source,
            **{"scope": DEFAULT_SCOPE, **more},
        )
        self._broker.announce(event)


# How agents are, looked at now and then for those who subscribe: who falls silent says nothing of it.

log = logging.getLogger("postroom")
LOOK = 15.0  # seconds between two looks


class Watching:
    """Made inside an event loop. As long as nobody listens it does not look."""

    def __init__(self, executor: Executor, broker: Broker, telling: Telling) -> None:
        self._executor = executor
        self._broker = broker
        self._telling = telling
        self._loop = asyncio.get_running_loop()
        self._looking: asyncio.Future[list[dict[str, Any]]] | None = None
        self._timer = self._loop.call_later(LOOK, self._look)

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK, self._look)
        self._telling.look_begins(is_heard=self._broker.is_heard)
        if self._broker.is_heard and self._looking is None:
            self._looking = asyncio.ensure_future(
                self._executor.run_slow(partial(_everybody, self._executor.room))
            )
            self._looking.add_done_callback(self._looked)

    def _looked(self, done: asyncio.Future[list[dict[str, Any]]]) -> None:
        self._looking = None
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            self._telling.found(done.result())
        elif isinstance(error, PostroomError):  # the next look may succeed
            log.debug("how agents are could not be found out: %s", error)
        else:
            log.error("how agents are could not be found out", exc_info=error)

    def close(self) -> None:
        self._timer.cancel()
        if self._looking is not None:
            self._looking.cancel()


def _everybody(room: Room) -> list[dict[str, Any]]:
    return [agent_record(agent) for agent in room.agents(gone=True)]
