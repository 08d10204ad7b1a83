"""Rows of the command table for tasks; the functions are in `postroom.cli.tasks`."""

from __future__ import annotations

from .shape import BODY, FIELDS, LIMIT, RECEIPT_JSON, TOKEN, Command, Option

STATES = (
    "pending", "accepted", "working", "input_required", "completed", "failed", "rejected", "canceled",
)  # fmt: skip
ID = Option("ID", help="the letter that opened it, or a later one of it", required=True, complete="tasks")
NOT_HERE = {"kind", "task", "cc", "bcc", "at"}  # a step is told to the other party alone, at once
SAID = (*BODY, *(option for option in FIELDS if option.name not in NOT_HERE))
WHY = tuple(option for option in SAID if option.name not in {"body", "edit", "file", "reference", "part"})
REASON = Option("--reason", help="why", metavar="TEXT", required=True)
NO_ACK = Option(
    "--no-ack",
    help="keep the letter claimed: it is offered again if its holder dies, and done when the task is",
    kind="flag",
)
TASK = (
    "id (of the letter that opened it), called (what its letters call it), thread, giver, receiver, state, subject,"
    " opened_at, moved_at, deadline, reason, last (the letter that moved it), is_final, and session, where you were"
    " asked for it, if you gave it"
)
STEP_JSON = (("task", "as in tasks"), ("receipt", "of the letter that tells the other party; see send"))
STEP_EXITS = (
    (67, "no such task at your mailbox"),
    (69, "the letter that opened it is claimed, and not by you: say --token"),
    (77, "not a step from here, or not yours to make"),
)
_TEXT = "A text comes from --body, - for standard input, or --edit."

COMMANDS = {
    "tasks": Command(
        "tasks",
        "list the tasks you gave and were given",
        Option("--role", help="which side you are on", kind="word", choices=("any", "given", "received")),
        Option("--state", help=f"only in this state: {', '.join(STATES)}", kind="word", metavar="STATE",
               choices=STATES, many=True),
        Option("--open", help="only those that are not over", kind="flag"),
        LIMIT,
        about="Those that moved last come first; 50 unless --limit says otherwise. A task is opened by a letter, and each"
        " step is a letter to the other party: pending, accepted or rejected, working, input_required, completed, failed,"
        " canceled.",
        examples=(("postroom tasks --as planner --open", "what is not over yet"),
                  ("postroom tasks --as coder --role received --state pending --json", "what waits for you, for a program")),
        json=(("tasks", f"each with {TASK}"),),
        looks=True,
    ),
    "tasks show": Command(
        "tasks show",
        "show one task and its letters",
        ID,
        examples=(("postroom tasks show t-1 --as planner", "how it stands, and what was said"),),
        json=(("task", "as in tasks"), ("letters", "a list of [letters](#letters), without delivery, the oldest first")),
        looks=True,
    ),
    "tasks give": Command(
        "tasks give",
        "give one agent a task",
        Option("TO", help="an agent's name, or any:CAPABILITY", kind="address", required=True, complete="agents"),
        *BODY,
        Option("--deadline", help="until when: a span such as 2h, or a time", kind="when", metavar="WHEN"),
        Option("--session", help="where you were asked for it, an object; it stays on your side", kind="json"),
        *(option for option in FIELDS if option.name not in {"kind", "task"}),
        about="The task is known by the id of its letter. The text comes from --body, else from standard input when that"
        " is not a terminal, else from $VISUAL or $EDITOR. When its deadline passes and it is not over, you get a notice,"
        " by janitor.",
        examples=(
            ('postroom tasks give reviewer --as planner -s "Review sort.py" --body "By noon." --deadline 2h', "with a deadline"),
            ("postroom tasks give reviewer --as planner --body 'Review it.' --session '{\"chat\": 7}' --json",
             "remembering who asked"),
        ),
        json=RECEIPT_JSON,
        exits=((77, "the deadline is over already"),),
    ),
    "tasks accept": Command(
        "tasks accept",
        "take a task on",
        ID,
        *SAID,
        NO_ACK,
        TOKEN,
        about="The letter that opened it is acknowledged in the same commit. Your share (register --max-tasks), its"
        f" deadline and your allow list are checked. {_TEXT}",
        examples=(("postroom tasks accept t-1 --as reviewer", "I do it"),),
        json=STEP_JSON,
        exits=(*STEP_EXITS, (75, "you have as many tasks as you take")),
        looks=True,
    ),
    "tasks admit": Command(
        "tasks admit",
        "accept or reject a task by rules",
        ID,
        Option("--judge", help="a program that decides, too; else your capabilities do", metavar="PROGRAM"),
        NO_ACK,
        TOKEN,
        about="The allow list, the deadline and your share come first. Then the judge: it gets your card and the letter as"
        ' JSON on its standard input, {"card": …, "letter": …}; when it ends with 0 the task is accepted, else what'
        " it prints is the reason. Without one, the capabilities that the task's metadata asks for"
        " (required_capabilities) must be on your card. The giver is answered either way.",
        examples=(("postroom tasks admit t-1 --as reviewer", "by the rules"),
                  ("postroom tasks admit t-1 --as reviewer --judge 'grep -q Review'", "by a program")),
        json=(("task", "as in tasks"), ("accepted", "true or false")),
        exits=STEP_EXITS,
        looks=True,
    ),
    "tasks reject": Command(
        "tasks reject",
        "say no to a task",
        ID,
        REASON,
        *WHY,
        TOKEN,
        examples=(("postroom tasks reject t-1 --as reviewer --reason 'no time'", "not me"),),
        json=STEP_JSON,
        exits=STEP_EXITS,
        looks=True,
    ),
    "tasks start": Command(
        "tasks start",
        "report that you work on a task now",
        ID,
        *SAID,
        TOKEN,
        about=f"Or that you go on without an answer to your question. {_TEXT}",
        examples=(("postroom tasks start t-2 --as reviewer", "begun"),),
        json=STEP_JSON,
        exits=STEP_EXITS,
        looks=True,
    ),
    "tasks ask": Command(
        "tasks ask",
        "ask the giver of a task a question",
        ID,
        *SAID,
        TOKEN,
        about="The task waits for the answer. The text comes from --body, else from standard input or $EDITOR, as in send.",
        examples=(('postroom tasks ask t-3 --as reviewer --body "Which branch?"', "a question"),),
        json=STEP_JSON,
        exits=STEP_EXITS,
        looks=True,
    ),
    "tasks answer": Command(
        "tasks answer",
        "answer the receiver's question",
        ID,
        *SAID,
        about="The work goes on. The text comes from --body, else from standard input or $EDITOR, as in send.",
        examples=(('postroom tasks answer t-4 --as planner --body "main"', "an answer"),),
        json=STEP_JSON,
        exits=STEP_EXITS,
        looks=True,
    ),
    "tasks complete": Command(
        "tasks complete",
        "complete a task; the text is its result",
        ID,
        *SAID,
        TOKEN,
        about=_TEXT,
        examples=(('postroom tasks complete t-3 --as reviewer --body "Looks good."', "with a result"),),
        json=STEP_JSON,
        exits=STEP_EXITS,
        looks=True,
    ),
    "tasks fail": Command(
        "tasks fail",
        "report that a task cannot be done",
        ID,
        REASON,
        *WHY,
        TOKEN,
        examples=(("postroom tasks fail t-3 --as reviewer --reason 'the file is gone'", "sorry"),),
        json=STEP_JSON,
        exits=STEP_EXITS,
        looks=True,
    ),
    "tasks cancel": Command(
        "tasks cancel",
        "take back a task you gave",
        ID,
        Option("--reason", help="why", metavar="TEXT"),
        *WHY,
        examples=(("postroom tasks cancel t-3 --as planner --reason 'no longer needed'", "never mind"),),
        json=STEP_JSON,
        exits=STEP_EXITS,
        looks=True,
    ),
}  # fmt: skip
