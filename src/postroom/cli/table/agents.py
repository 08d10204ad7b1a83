"""Rows of the command table for agents and their cards; the functions are in `postroom.cli.agents`."""

from __future__ import annotations

from .shape import Command, Option

AGENT_JSON = (("agent", "card, presence and tasks, as in agents"),)

COMMANDS = {
    "agents": Command(
        "agents",
        "list agents, their capabilities and their status",
        Option("--scope", help="only this scope", metavar="NAME", complete="scopes"),
        Option("--capability", help="only those who can do this", metavar="LABEL"),
        Option("--gone", help="those that are gone, too", kind="flag"),
        about="Agents by name, with the tasks they have taken on. An operator also sees the mailboxes that are used though"
        " nobody registered. Mail for those who are offline or gone"
        " waits. Needs no --as.",
        examples=(("postroom agents", "everyone"), ("postroom agents --scope sorting --json", "a team, for a program")),
        json=(
            (
                "agents",
                "each with card (id, registered_at, display_name, description, capabilities, program, model, scopes,"
                " allow_from, max_concurrent_tasks, metadata, principal) and presence (status, warmth, current_tasks,"
                " last_heartbeat, last_active_at), registered (false: a mailbox that is used, with no card of its own),"
                " and tasks, those it has taken on (id, subject, state, giver)",
            ),
            ("gone", "how many more were not heard from for long; --gone shows them"),
        ),
        looks=True,
    ),
    "agents show": Command(
        "agents show",
        "show one agent's card",
        Option("NAME", help="the agent's name", required=True, complete="agents"),
        examples=(("postroom agents show coder", "one of them"),),
        json=AGENT_JSON,
        looks=True,
    ),
    "register": Command(
        "register",
        "register yourself, or replace your card",
        Option("--name", help="a name for people", metavar="TEXT"),
        Option("--description", help="what you are for", metavar="TEXT"),
        Option("--capability", help="what you can do", many=True, metavar="LABEL"),
        Option("--scope", help="a team you are in", many=True, metavar="NAME", complete="scopes"),
        Option("--program", help="what runs you", metavar="TEXT"),
        Option("--model", help="the model behind you", metavar="TEXT"),
        Option("--allow-from", help="who may write to you; everyone (*) by default", many=True, metavar="NAME",
               complete="agents"),
        Option("--max-tasks", help="how many tasks at once; 3 by default", kind="count", metavar="N"),
        Option("--metadata", help="an object of your own", kind="json"),
        about="Replaces your whole card: fields that you leave out are dropped, and a note lists them.",
        examples=(("postroom register --as coder --scope sorting --capability python", "join a team"),),
        json=(*AGENT_JSON, ("dropped", "what your card said before and says no more; empty in most cases")),
        exits=((69, "another live agent holds this name"),),
    ),
    "heartbeat": Command(
        "heartbeat",
        "report that you are alive",
        Option("--task", help="what you work on, for people: any text", many=True, metavar="TEXT"),
        Option("--no-tasks", help="you work on nothing", kind="flag"),
        Option("--poll-interval", help="how often you look, such as 5s", kind="seconds", metavar="SPAN"),
        Option("--active", help="you did something just now", kind="flag"),
        about="An agent without a heartbeat counts as offline after a minute. Fields that you leave out stay as they"
        " were.",
        examples=(("postroom heartbeat --as coder --task 'sort the rows' --active", "busy"),),
        json=AGENT_JSON,
        exits=((67, "you have not registered"),),
        looks=True,
    ),
    "leave": Command(
        "leave",
        "leave the room; mail for you waits",
        Option("--dormant", help="sleep: you do not expire, and your next heartbeat wakes you", kind="flag"),
        examples=(("postroom leave --as coder", "until later"),),
        json=AGENT_JSON,
        exits=((67, "you have not registered"),),
        looks=True,
    ),
}  # fmt: skip
