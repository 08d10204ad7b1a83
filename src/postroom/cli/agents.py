"""The commands about who is there: the directory, and one's own place in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from ..model.codec import to_plain
from ..model.task import ACTIVE
from . import views
from .answers import Answer
from .exits import Usage

if TYPE_CHECKING:
    from ..model.card import Agent
    from .context import Context

_CARD = {
    "display_name": "name", "capabilities": "capability", "scopes": "scope", "allow_from": "allow_from",
    "max_concurrent_tasks": "max_tasks",
}  # fmt: skip


def run_agents(context: Context) -> Answer:
    found = context.room.agents(
        scope=context.get("scope"), capability=context.get("capability"), gone=bool(context.get("gone"))
    )
    return Answer(context.name, {"agents": [_plain(context, agent) for agent in found]}, views.agents)


def run_agents_show(context: Context) -> Answer:
    return _answer(context, context.room.agent(context.get("name")))


def run_register(context: Context) -> Answer:
    card = context.given("description", "program", "model", "metadata", **_CARD)
    return _answer(context, context.act(lambda box: box.register(**card)))


def run_heartbeat(context: Context) -> Answer:
    tasks: list[str] | None = context.get("task")
    if context.get("no_tasks"):
        if tasks:
            raise Usage("says the opposite of --task", field="--no-tasks")
        tasks = []
    said = context.given("poll_interval")
    return _answer(
        context, context.mailbox.heartbeat(current_tasks=tasks, active=bool(context.get("active")), **said)
    )


def run_leave(context: Context) -> Answer:
    return _answer(context, context.mailbox.leave())


def _plain(context: Context, agent: Agent) -> dict[str, Any]:
    """Every field, also those that were not said, and the tasks it has taken on."""
    tasks = []
    if agent.presence.current_tasks:
        box = context.room.mailbox(agent.card.id)
        tasks = [
            {"id": task.id, "subject": task.subject, "state": task.state, "giver": task.giver}
            for task in box.tasks("received", states=sorted(ACTIVE))
        ]
    presence = to_plain(asdict(agent.presence))
    return {"card": to_plain(asdict(agent.card)), "presence": presence, "tasks": to_plain(tasks)}


def _answer(context: Context, agent: Agent) -> Answer:
    return Answer(context.name, {"agent": _plain(context, agent)}, views.agent)
