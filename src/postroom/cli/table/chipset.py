"""The rows of the commands for the chipset's state folder. Their functions stand in the file of the same name above."""

from __future__ import annotations

from .shape import Command, Option

ANSWER_OF = Option("--answer-of", help="the same for one agent, such as polecat-alpha=3m", kind="pair", many=True,
                   metavar="NAME=SPAN")  # fmt: skip

COMMANDS = {
    "witness": Command(
        "witness",
        "watch the hooks of a chipset: nudge who stalls, and tell the mayor of who does not answer",
        Option("--state", help="the state folder; else that of the room, if it is a chipset's, else .chipset/state",
               metavar="FOLDER", complete="files"),
        Option("--mayor", help="who is told of a silent agent; mayor by default", metavar="NAME", complete="agents"),
        Option("--human", help="who is told when an item was started too often; human by default", metavar="NAME",
               complete="agents"),
        Option("--stall-after", help="without activity for so long, an agent has stalled: 1m to 30m, 5m by default",
               kind="seconds", metavar="SPAN"),
        Option("--nudge-every", help="between two nudges: 30s to 10m, 2m by default", kind="seconds", metavar="SPAN"),
        Option("--answer-within", help="for an answer to a nudge: 1s to 10m, 60s by default", kind="seconds",
               metavar="SPAN"),
        ANSWER_OF,
        Option("--every", help="look so often; 5s by default", kind="seconds", metavar="SPAN"),
        Option("--once", help="one look, then end", kind="flag"),
        about="Looks at every hook until it is stopped, and says when something happened. An agent whose work shows no"
        " activity is nudged; if it stays silent, the mayor gets a health_escalation, and after the third restart of an"
        " item a human does. It never touches a hook. It may be stopped and started at any time, and several may run.\n\n"
        "Its letters go into the state folder's own mail, or into the room that --room names. Without --as or"
        " POSTROOM_AGENT, it is called witness.",
        examples=(
            ("postroom witness --once", "one look, from cron"),
            ("postroom witness --once --json --stall-after 10m --answer-of polecat-alpha=3m", "more patient"),
        ),
        json=(
            ("at", "when"),
            ("watched", "agents with work in hand"),
            ("stalled", "those of them without activity for too long"),
            ("nudged", "who was nudged in this look"),
            ("escalated", "of whom the mayor was told in this look"),
            ("human", "items of which a human was told in this look"),
            ("damaged", "hooks that cannot be read, and why"),
            ("failed", "agents that could not be looked after this time, and why"),
        ),
        exits=((66, "there is no folder of that name"),),
        looks=True,
    ),
}  # fmt: skip
