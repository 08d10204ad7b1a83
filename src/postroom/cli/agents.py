"""The commands about agents: the directory, and the caller's own card and presence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from ..errors import PostroomError
from ..formats.plain import plain
from ..model.codec import to_plain
from ..model.task import ACTIVE
from . import views
from .answer import Answer
from .command import Option, command, declare
from .context import note
from .errors import Usage
from .options import LIMIT

if TYPE_CHECKING:
    from ..model.agent import Agent
    from .context import Context


_CARD = {
    "display_name": "name", "capabilities": "capability", "scopes": "scope", "allow_from": "allow_from",
    "max_concurrent_tasks": "max_tasks",
}  # fmt: skip


@command(
    "agents",
    Option("--scope", help="only this scope", metavar="NAME", complete="scopes"),
    Option("--capability", help="only those who can do this", metavar="LABEL"),
    Option("--gone", help="those that are gone, too", kind="flag"),
    LIMIT,
    about="Agents by name, with the tasks they have taken on. An operator also sees the mailboxes that are used though"
    " nobody registered. Mail for those who are offline or gone"
    " waits. Needs no --as.",
    examples=(
        ("postroom agents", "everyone"),
        ("postroom agents --scope sorting --json", "a team, for a program"),
    ),
    json="agents gone",
    looks=True,
)
def run_agents(context: Context) -> Answer:
    wanted = {"scope": context.get("scope"), "capability": context.get("capability")}
    everyone = context.room.agents(**wanted, gone=True)
    found = everyone if context.get("gone") else context.room.agents(**wanted)
    data = {"agents": [_plain(context, agent) for agent in found], "gone": len(everyone) - len(found)}
    return Answer(context.name, data, views.agents)


def _shape(context: Context, found: Agent) -> dict[str, Any]:
    return {"agent": _plain(context, found)}


declare(
    "agents show",
    Option("NAME", help="the agent's name", required=True, complete="agents", field="name"),
    verb="agents.GetAgent",
    places=("name",),
    shape=_shape,
    view=views.agent,
    examples=(("postroom agents show coder", "one of them"),),
    looks=True,
)


@command(
    "register",
    Option("--name", help="a name for people", metavar="TEXT"),
    Option("--description", help="what you are for", metavar="TEXT"),
    Option("--capability", help="what you can do", many=True, metavar="LABEL"),
    Option("--scope", help="a team you are in", many=True, metavar="NAME", complete="scopes"),
    Option("--program", help="what runs you", metavar="TEXT"),
    Option("--model", help="the model behind you", metavar="TEXT"),
    Option(
        "--allow-from",
        help="who may write to you; everyone (*) by default",
        many=True,
        metavar="NAME",
        complete="agents",
    ),
    Option("--max-tasks", help="how many tasks at once; 3 by default", kind="count", metavar="N"),
    Option("--metadata", help="an object of your own", kind="json"),
    about="Replaces your whole card: fields that you leave out are dropped, and a note lists them.",
    examples=(("postroom register --as coder --scope sorting --capability python", "join a team"),),
    json="agent dropped",
)
def run_register(context: Context) -> Answer:
    card = context.passed_options("description", "program", "model", "metadata", **_CARD)
    before = _card_of(context)
    agent = context.act(lambda box: box.register(**card))
    dropped = {name: old for name, old in before.items() if name not in card and old != getattr(agent.card, name)}
    if dropped:
        note(
            context.call,
            f"no longer said of {agent.card.id}: {_as_options(dropped)}; register replaces the whole card",
        )
    return Answer(context.name, {"agent": _plain(context, agent), "dropped": to_plain(dropped)}, views.agent)


def _card_of(context: Context) -> dict[str, Any]:
    """Return the fields of the caller's present card, if it has one."""
    if context.is_new_room:
        return {}
    try:
        card = asdict(context.room.agent(context.me).card)
    except PostroomError:  # there is none; `register` reports other errors
        return {}
    return {name: value for name, value in card.items() if name not in {"id", "registered_at", "principal"}}


def _as_options(fields: dict[str, Any]) -> str:
    """Return fields of a card as the options that set them."""
    words = {name: f"--{_CARD.get(name, name).replace('_', '-')}" for name in fields}
    several = {name: value if isinstance(value, tuple) else (value,) for name, value in fields.items()}
    return ", ".join(f"{words[name]} {one}" for name, values in several.items() for one in values)


@command(
    "heartbeat",
    Option("--task", help="what you work on, for people: any text", many=True, metavar="TEXT"),
    Option("--no-tasks", help="you work on nothing", kind="flag"),
    Option("--poll-interval", help="how often you look, such as 5s", kind="seconds", metavar="SPAN"),
    Option("--active", help="you did something just now", kind="flag"),
    about="An agent without a heartbeat counts as offline after a minute. Fields that you leave out stay as they"
    " were.",
    examples=(("postroom heartbeat --as coder --task 'sort the rows' --active", "busy"),),
    json="agent",
    looks=True,
)
def run_heartbeat(context: Context) -> Answer:
    tasks: list[str] | None = context.get("task")
    if context.get("no_tasks"):
        if tasks:
            raise Usage("says the opposite of --task", field="--no-tasks")
        tasks = []
    options = context.passed_options("poll_interval")
    agent = context.mailbox.heartbeat(current_tasks=tasks, active=bool(context.get("active")), **options)
    return Answer(context.name, {"agent": _plain(context, agent)}, views.agent)


declare(
    "leave",
    verb="agents.Goodbye",
    shape=_shape,
    view=views.agent,
    examples=(("postroom leave --as coder", "until later"),),
    looks=True,
)


def _plain(context: Context, agent: Agent) -> dict[str, Any]:
    """Return every field of an agent, and the tasks that it has accepted."""
    tasks = []
    if agent.presence.current_tasks:
        box = context.room.mailbox(agent.card.id)
        tasks = [
            {"id": task.id, "subject": task.subject, "state": task.state, "giver": task.giver}
            for task in box.tasks("received", states=sorted(ACTIVE))
        ]
    shown: dict[str, Any] = plain(agent)
    return shown | {"tasks": to_plain(tasks)}
