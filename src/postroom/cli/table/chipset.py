"""Rows of the command table for a chipset's state folder; the functions are in `postroom.cli.chipset`."""

from __future__ import annotations

from .shape import NOTHING, Command, Option

ANSWER_OF = Option("--answer-of", help="the same for one agent, such as polecat-alpha=3m", kind="pair", many=True,
                   metavar="NAME=SPAN")  # fmt: skip

STATE = Option("--state", help="the state folder; else that of the room, if it is a chipset's, else .chipset/state",
               metavar="FOLDER", complete="files")  # fmt: skip
AGENT = Option("AGENT", help="whose hook", required=True, complete="agents")
TEXT = Option("--body", help="the text; - reads it from standard input", metavar="TEXT")
NUDGES = ("health_check", "stall_warning", "priority_change", "abort", "sync_request")
HOOK_JSON = (("hook", "agent_id, status, work_item (bead_id, title, assigned_at) or null, last_activity"),)
_NUDGE = "from, type, message, timestamp, requires_response"
_NOTE = "bead, session_outgoing, summary, remaining, branch, last_commit, filename"
_DAMAGED = ("damaged", "files that cannot be read, and why")
_NO_FOLDER = (66, "there is no state folder")
_REFUSED = (77, "no legal move from here, or not yours to make; the error names what is on the hook")
_MAYOR = " Without --as and POSTROOM_AGENT you act as mayor."

COMMANDS = {
    "chipset check": Command(
        "chipset check",
        "show the work on your hook, the nudge in your slot, and your last handoff note",
        STATE,
        about="For an agent that starts or polls: work on your hook comes before anything else. Changes nothing.",
        examples=(("postroom chipset check --as polecat-alpha", "what is wanted of me?"),
                  ("postroom chipset check --as polecat-alpha --json", "for a program")),
        json=(*HOOK_JSON, ("nudge", f"{_NUDGE}; null when there is none that you have not handled"),
              ("note", f"{_NOTE}; null when there is none")),
        exits=((66, "there is no folder of that name"), (70, "the hook's file cannot be read")),
        looks=True,
    ),
    "chipset hooks": Command(
        "chipset hooks",
        "list the hooks of all agents",
        STATE,
        examples=(("postroom chipset hooks", "who has what"),),
        json=(("hooks", "as in chipset check"), _DAMAGED),
        exits=((66, "there is no folder of that name"),),
        looks=True,
    ),
    "chipset dispatch": Command(
        "chipset dispatch",
        "put a work item on an agent's empty hook, and send the assignment",
        AGENT,
        Option("BEAD", help="the id of the work item", required=True),
        Option("--title", help="one line", metavar="TEXT"),
        TEXT,
        STATE,
        about=f"Only a mayor or a dispatcher may, by name.{_MAYOR} When it was cut off before the letter was sent, chipset"
        " remind sends it.",
        examples=(("postroom chipset dispatch polecat-delta gt-abc12 --title 'Auth middleware' --body 'As in the plan.'",
                   "hand out work"),),
        json=HOOK_JSON,
        exits=(_REFUSED,),
    ),
    "chipset remind": Command(
        "chipset remind",
        "send the assignment of a pending item again, if it is missing",
        AGENT, TEXT, STATE,
        about=f"It never comes twice: say the same --body as before.{_MAYOR}",
        examples=(("postroom chipset remind polecat-alpha --body 'As in the plan.'", "after a crash"),),
        json=HOOK_JSON,
        exits=(_NO_FOLDER, _REFUSED),
        looks=True,
    ),
    "chipset activate": Command(
        "chipset activate",
        "take up the work on your hook",
        STATE,
        examples=(("postroom chipset activate --as polecat-alpha", "pending becomes active"),),
        json=HOOK_JSON,
        exits=(_NO_FOLDER, _REFUSED),
        looks=True,
    ),
    "chipset touch": Command(
        "chipset touch",
        "report that you still work on the item on your hook",
        STATE,
        about="Run it now and then while you work: the witness nudges an agent that shows no activity.",
        examples=(("postroom chipset touch --as polecat-beta", "still here"),),
        json=HOOK_JSON,
        exits=(_NO_FOLDER, _REFUSED),
        looks=True,
    ),
    "chipset report": Command(
        "chipset report",
        "complete the work on your hook, and send the completion report",
        TEXT,
        Option("--to", help="who gets the report; mayor by default", metavar="NAME", complete="agents"),
        STATE,
        about="Run again after a crash, it completes what was left undone, and the report is sent once.",
        examples=(("postroom chipset report --as polecat-beta --body 'On branch auth.'", "done"),),
        json=HOOK_JSON,
        exits=(_NO_FOLDER, _REFUSED),
        looks=True,
    ),
    "chipset accept": Command(
        "chipset accept",
        "accept completed work: its hook is empty again",
        AGENT, STATE,
        about=f"After you checked the work.{_MAYOR}",
        examples=(("postroom chipset accept polecat-gamma", "checked"),),
        json=HOOK_JSON,
        exits=(_NO_FOLDER, _REFUSED),
        looks=True,
    ),
    "chipset reassign": Command(
        "chipset reassign",
        "give the item of a stalled agent to another, or to the same once more",
        AGENT,
        Option("TO", help="who gets it", required=True, complete="agents"),
        TEXT, STATE,
        about=f"That is a restart: at most three for an item, 60 seconds apart; then a human is told.{_MAYOR}",
        examples=(("postroom chipset reassign polecat-alpha polecat-delta", "polecat-alpha does not answer"),),
        json=HOOK_JSON,
        exits=(_NO_FOLDER, (75, "it was started less than 60 seconds ago"), _REFUSED),
        looks=True,
    ),
    "chipset clear": Command(
        "chipset clear",
        "take whatever is on an agent's hook off it",
        AGENT, STATE,
        about=f"The file stays, with an empty hook. A file that cannot be read is set aside first, and kept.{_MAYOR}",
        examples=(("postroom chipset clear polecat-alpha", "never mind"),),
        json=HOOK_JSON,
        exits=(_NO_FOLDER, _REFUSED),
        looks=True,
    ),
    "chipset nudge": Command(
        "chipset nudge",
        "nudge an agent: one slot, the latest wins",
        Option("AGENT", help="the agent", required=True, complete="agents"),
        Option("--type", help="what it is about; health_check by default", kind="word", choices=NUDGES,
               metavar="TYPE"),
        TEXT,
        Option("--requires-response", help="an answer is wanted", kind="flag"),
        STATE,
        examples=(("postroom chipset nudge polecat-beta --as mayor --type sync_request --body 'Where are you?'", "a question"),),
        json=(("nudge", _NUDGE), ("to", "who was nudged")),
    ),
    "chipset answer": Command(
        "chipset answer",
        "answer the nudge in your slot",
        TEXT, STATE,
        about="The answer is written to the slot of the agent that nudged you. The nudge counts as handled, and work in hand is touched."
        " What lies in your slot may itself be an answer to a nudge of yours: that is handled, not answered.",
        examples=(("postroom chipset answer --as polecat-beta --body 'At the tests.'", "I am here"),),
        json=(("nudge", f"the answer: {_NUDGE}; null when there is no nudge to answer"),
              ("to", "who nudged you and got the answer; null when there is no nudge to answer")),
        exits=((NOTHING[0], "there is no nudge that you have not handled"), _NO_FOLDER,
               (77, "what lies in your slot is itself an answer")),
        looks=True,
    ),
    "chipset handle": Command(
        "chipset handle",
        "mark the nudge in your slot as handled, without an answer",
        STATE,
        examples=(("postroom chipset handle --as polecat-beta", "understood"),),
        json=(("nudge", f"what was handled: {_NUDGE}; null when there was nothing"),),
        exits=((NOTHING[0], "there is no nudge that you have not handled"), _NO_FOLDER),
        looks=True,
    ),
    "chipset note": Command(
        "chipset note",
        "leave a handoff note for your next session",
        Option("--bead", help="the work item", required=True, metavar="BEAD"),
        Option("--summary", help="where it stands", required=True, metavar="TEXT"),
        Option("--remaining", help="what is left to do", many=True, metavar="TEXT"),
        Option("--branch", help="where the work is", metavar="NAME"),
        Option("--last-commit", help="the last commit there", metavar="COMMIT"),
        Option("--session", help="the session that ends", metavar="ID"),
        STATE,
        examples=(("postroom chipset note --as polecat-beta --bead gt-1 --summary 'Half done.' --remaining tests --branch auth",
                   "before a session ends"),),
        json=(("note", _NOTE),),
    ),
    "chipset notes": Command(
        "chipset notes",
        "list handoff notes, the oldest first",
        Option("AGENT", help="whose; yours by default", complete="agents"),
        STATE,
        examples=(("postroom chipset notes polecat-beta --as mayor", "what it left behind"),),
        json=(("notes", f"each with {_NOTE}"), _DAMAGED),
        exits=((66, "there is no folder of that name"),),
        looks=True,
    ),
    "witness": Command(
        "witness",
        "watch the hooks of a chipset: nudge stalled agents, and report silent ones to the mayor",
        STATE,
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
            ("escalated", "the agents that were reported to the mayor in this check"),
            ("human", "items of which a human was told in this look"),
            ("damaged", "hooks that cannot be read, and why"),
            ("failed", "agents that could not be looked after this time, and why"),
        ),
        exits=((66, "there is no folder of that name"),),
        looks=True,
    ),
}  # fmt: skip
