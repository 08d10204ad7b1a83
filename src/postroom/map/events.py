"""Events about agents and scopes, for subscribers.

They are published once, to those who subscribe now, and are kept nowhere: the directory says how things are.
Events of letters and conversations come from the numbered changes of the store (`server.broker`).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core.agents import registered_agents
from ..errors import PostroomError
from ..formats.events import Event, delivered_data
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
)
from ..model.message import DEFAULT_SCOPE
from .agents import Update

if TYPE_CHECKING:
    from ..core.verb import Verb
    from ..model.message import Message
    from ..server.broker import Broker
    from ..server.executor import Executor


log = logging.getLogger("postroom")
SCAN_EVERY = 15.0  # seconds between two looks for agents that fell silent
# The event that each method causes.
_AGENT_EVENTS = {
    "map/agents/register": AGENT_REGISTERED,
    "map/agents/spawn": AGENT_REGISTERED,
    "map/agents/unregister": AGENT_UNREGISTERED,
    "map/agents/stop": AGENT_CHANGED,
    "map/agents/suspend": AGENT_CHANGED,
    "map/agents/resume": AGENT_CHANGED,
}
_SCOPE_EVENTS = {
    "map/scopes/create": SCOPE_CREATED,
    "map/scopes/delete": SCOPE_DELETED,
    "map/scopes/join": SCOPE_JOINED,
    "map/scopes/leave": SCOPE_LEFT,
}


class AgentEvents:
    """The publisher of events about agents and scopes, made inside an event loop."""

    def __init__(self, executor: Executor, broker: Broker) -> None:
        self.core = executor.core
        self._executor = executor
        self._broker = broker
        self._numbers = itertools.count(1)
        self._states: dict[str, str] = {}  # of agents, as they were last published or scanned
        self._fresh: set[str] = set()  # agents with an event since the last scan began
        self._scanning = asyncio.ensure_future(self._scan_for_ever())

    def close(self) -> None:
        self._scanning.cancel()

    def after_call(self, request: Verb, result: dict[str, Any]) -> None:
        """Publish the event that a call causes."""
        if not self._broker.has_subscribers:
            return
        method = request.declaration().name
        if isinstance(request, Update):
            self._publish_agent(AGENT_UPDATED if request.state is None else AGENT_CHANGED, result)
        elif method in _AGENT_EVENTS:
            self._publish_agent(_AGENT_EVENTS[method], result)
        elif method in _SCOPE_EVENTS:
            scope = result["scope"]
            agent = result.get("agent", {}).get("id")
            data = present(scopeId=scope["id"], name=scope["name"], scope=scope, agentId=agent)
            self._publish(_SCOPE_EVENTS[method], data, agent or request.named() or "", scope=scope["id"])

    def after_away(self, done: asyncio.Future[dict[str, Any]]) -> None:
        """Publish that the connection of an agent has ended, once that is recorded."""
        if not self._broker.has_subscribers or done.cancelled() or done.exception() is not None:
            return
        result = done.result()
        if result["previousState"] != result["agent"]["state"]:
            self._publish_agent(AGENT_CHANGED, result)

    async def _scan_for_ever(self) -> None:
        """Find the agents that fell silent, which no call reports, while there are subscribers."""
        while True:
            await asyncio.sleep(SCAN_EVERY)
            self._fresh.clear()
            # Nobody listens: the list of all agents is not read for nothing.
            if not self._broker.has_subscribers:
                self._states.clear()
                continue
            try:
                agents = await self._executor.run_slow(partial(registered_agents, self.core, gone=True))
                self._compare([agent_record(agent) for agent in agents])
            except PostroomError as busy:  # the next scan may succeed
                log.debug("the states of agents could not be read: %s", busy)
            except Exception:  # the task must go on: else no subscriber would be told of silent agents
                log.exception("the states of agents could not be read")

    def _compare(self, agents: list[dict[str, Any]]) -> None:
        """Publish each state that has changed since the last scan."""
        before = self._states
        self._states = {agent["id"]: agent["state"] for agent in agents}
        # An agent with an event since the scan began may have been read before that.
        self._states |= {id: before[id] for id in self._fresh & before.keys()}
        for agent in [agent for agent in agents if agent["id"] not in self._fresh]:
            was = before.get(agent["id"], agent["state"])
            if was != agent["state"]:
                self._publish_agent(AGENT_CHANGED, {"agent": agent, "previousState": was})

    def delivered(self, message: Message, agent: str) -> None:
        """Publish that an agent has received a letter, to both of them and to operators."""
        if not self._broker.has_subscribers:
            return
        data = delivered_data(message.seen_by(agent), agent, self.core.people.names)
        self._publish(
            MESSAGE_DELIVERED, data, message.sender, scope=message.scope, parties=(message.sender, agent)
        )

    def _publish_agent(self, kind: str, result: dict[str, Any]) -> None:
        agent = result["agent"]
        self._states[agent["id"]] = agent["state"]
        self._fresh.add(agent["id"])
        data = {"agentId": agent["id"], "agent": agent, "state": agent["state"], "newState": agent["state"]}
        data |= present(name=agent["name"], role=agent.get("role"), previousState=result.get("previousState"))
        data["ownerId"] = agent["ownerId"]
        scopes = agent.get("scopes") or [DEFAULT_SCOPE]
        self._publish(kind, data, agent["id"], scope=scopes[0], role=agent.get("role"))

    def _publish(self, kind: str, data: dict[str, Any], source: str, **more: Any) -> None:
        number = self._broker.number
        event = Event(
            id=f"{number}-{kind}-{next(self._numbers)}",
            type=kind,
            number=number,
            timestamp=self.core.now().wall,
            data=data,
            conversation="",
            sender=source,
            **{"scope": DEFAULT_SCOPE, **more},
        )
        self._broker.announce(event)
