"""The commands about agents: the directory, and the caller's own card and presence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from ..core.agents import CARD_FIELDS
from ..errors import PostroomError
from ..formats.plain import plain
from ..model.task import ACTIVE
from . import views
from .command import LIMIT, Option, command
from .context import note

if TYPE_CHECKING:
    from ..model.agent import Agent
    from .answer import Answer
    from .context import Context


@command(
    "agents",
    LIMIT,
    verb="agents.ListAgents",
    without=("elsewhere",),
    about="Agents by name, with the tasks they have taken on. An operator also sees the mailboxes that are used though"
    " nobody registered. Mail for agents that are offline or gone waits. Needs no --as.",
    examples=(
        ("postroom agents", "everyone"),
        ("postroom agents --scope sorting --json", "a team, for a program"),
    ),
    json="agents gone",
    looks=True,
)
def run_agents(context: Context) -> Answer:
    everyone = context.perform(gone=True).agents
    found = everyone if context.get("gone") else context.perform().agents
    data = {"agents": [_plain(context, agent) for agent in found], "gone": len(everyone) - len(found)}
    return context.shown(data, views.agents)


def _shape(context: Context, found: Agent) -> dict[str, Any]:
    return {"agent": _plain(context, found)}


def _plain(context: Context, agent: Agent) -> dict[str, Any]:
    """Return every field of an agent, and the tasks that it has accepted."""
    tasks = []
    if agent.presence.current_tasks:
        box = context.room.mailbox(agent.card.id)
        tasks = [
            {"id": task.id, "subject": task.subject, "state": task.state, "giver": task.giver}
            for task in box.tasks("received", states=sorted(ACTIVE))
        ]
    shown: dict[str, Any] = plain(agent, times=True)
    return shown | {"tasks": tasks}


command(
    "agents show",
    Option("NAME", name="name", help="the agent's name", required=True, complete="agents"),
    verb="agents.GetAgent",
    shape=_shape,
    view=views.agent,
    examples=(("postroom agents show coder", "one of them"),),
    looks=True,
)


@command(
    "register",
    Option(
        "--allow-from",
        help="who may write to you; everyone (*) by default",
        many=True,
        metavar="NAME",
        complete="agents",
    ),
    verb="agents.Register",
    shape=_shape,
    view=views.agent,
    about="Replaces your whole card: fields that you leave out are dropped, and a note lists them.",
    examples=(("postroom register --as coder --scope sorting --capability python", "join a team"),),
    json="agent dropped",
)
def run_register(context: Context) -> Answer:
    before = _card_of(context)
    made = context.perform()
    card = made.card
    dropped = {
        name: old for name, old in before.items() if name not in context.values and old != getattr(card, name)
    }
    if dropped:
        fields = _as_options(context, dropped)
        note(context.call, f"no longer on the card of {card.id}: {fields}; register replaces the whole card")
    return context.answer_with(made, dropped=dropped)


def _card_of(context: Context) -> dict[str, Any]:
    """Return the fields of the caller's present card, if it has one."""
    if context.is_new_room:
        return {}
    try:
        card = asdict(context.room.agent(context.me).card)
    except PostroomError:  # there is none; `register` reports other errors
        return {}
    return {name: card[name] for name in CARD_FIELDS}


def _as_options(context: Context, fields: dict[str, Any]) -> str:
    """Return fields of a card as the options that set them."""
    options = context.call.command.options if context.call.command else ()
    words = {option.name: option.names[-1] for option in options}
    several = {name: value if isinstance(value, tuple) else (value,) for name, value in fields.items()}
    return ", ".join(f"{words.get(name, name)} {one}" for name, values in several.items() for one in values)


@command(
    "heartbeat",
    Option("--no-tasks", help="you work on nothing", kind="flag", against=("current_tasks",)),
    verb="agents.RecordHeartbeat",
    shape=_shape,
    view=views.agent,
    about="An agent without a heartbeat counts as offline after a minute. Fields that you leave out stay as they"
    " were.",
    examples=(("postroom heartbeat --as coder --task 'sort the rows' --active", "busy"),),
    looks=True,
)
def run_heartbeat(context: Context) -> Answer:
    params: dict[str, Any] = {"current_tasks": []} if context.get("no_tasks") else {}
    return context.answer(**params)


command(
    "leave",
    verb="agents.Goodbye",
    shape=_shape,
    view=views.agent,
    examples=(("postroom leave --as coder", "until later"),),
    looks=True,
)
