"""The rows of the commands about questions that wait for somebody. Their functions stand in the file of the same name
above.
"""

from __future__ import annotations

from .shape import BODY, FIELDS, LIMIT, RECEIPT_JSON, Command, Option

ESCALATION = (
    "id, asker, reason, subject, priority, rungs (above the asker), rung (the place it has reached), letters (ids, one"
    " for each rung), thread, opened_at, since, due_at (when it climbs), status (open, answered, resolved), closed_at,"
    " closed_by, and waits_for, whose answer it waits for"
)

WAITING = (
    ("mailbox", "whose"),
    ("waiting", "each with what (escalation, question, task, letter, news), id, letter (its id), thread, since, from,"
     " subject, text (its first line), priority, answer, the command to type, state (of a task or question), due_at (of a"
     " task with a deadline) and read (of a letter or news)"),
    ("more", "how many are not shown"),
)  # fmt: skip

COMMANDS = {
    "escalate": Command(
        "escalate",
        "ask the one who stands above you",
        Option("--reason", help="an open word, such as blocked, approval or security; it may set the priority",
               metavar="WORD", required=True),
        *BODY,
        Option("--ladder", help="who is asked, the lowest first; the setting ladder by default", many=True,
               metavar="NAME", complete="agents"),
        *(option for option in FIELDS if option.name not in {"kind", "task"}),
        about="Goes to the rung above you on the ladder. Of the ladder in the settings, names that never wrote,"
        " registered, read or claimed mail here are passed over, but for the last one; whom --ladder names is asked in any case. It is told who is"
        " next, and when. The answer, a plain reply, comes back into the same thread"
        " and to everyone it passed. A question that nobody answers climbs in time, by janitor. The text comes from --body, else"
        " from standard input when that is not a terminal, else from $VISUAL or $EDITOR.",
        examples=(
            ('postroom escalate --as coder --reason blocked -s "No access" --body "I cannot read the data."', "ask above"),
            ("postroom escalate --as coder --reason approval --ladder planner --ladder human --body 'Ship it?'",
             "by a ladder of your own"),
        ),
        json=(*RECEIPT_JSON, ("escalation_id", "what resolve takes"),
              ("next", "who is asked when nobody answers: name, and at; null when nobody is left")),
        exits=((65, "nobody stands above you"),),
    ),
    "escalations": Command(
        "escalations",
        "list questions that were escalated by you or to you, the oldest first",
        Option("--all", help="also those that were answered or resolved", kind="flag"),
        Option("--everyone", help="the whole room's", kind="flag"),
        examples=(("postroom escalations --as coder", "what is still open"),
                  ("postroom escalations --everyone --all --json", "the operator's view, for a program")),
        json=(("escalations", f"each with {ESCALATION}"),),
        looks=True,
    ),
    "resolve": Command(
        "resolve",
        "close an escalation without an answer",
        Option("ID", help="the escalation's id: ESC-…", required=True, complete="escalations"),
        about="By its asker, or by one it was put to. It climbs no further.",
        examples=(('postroom resolve "$ESCALATION" --as coder', "it solved itself"),),
        json=(("escalation", "as in escalations"),),
        exits=((67, "no such open escalation of yours"),),
        looks=True,
    ),
    "waiting": Command(
        "waiting",
        "what waits for you, the oldest first, and what to type",
        LIMIT,
        about="For people: open escalations that were put to you, questions about tasks you gave, tasks you were given,"
        " and unread mail, each once. Stamps nothing. Without --as and POSTROOM_AGENT you are human, who is also called"
        " user and ceo (the setting human gives another name). Shows 20 unless --limit says otherwise.",
        examples=(("postroom waiting", "for the human"), ("postroom waiting --as planner --json", "for another, as JSON")),
        json=WAITING,
        looks=True,
    ),
    "inbox": Command(
        "inbox",
        "what waits for you, live: read, answer, approve and decline by keys",
        LIMIT,
        about="For people, at a terminal: escalations and questions first, then tasks, letters and news, the oldest of"
        " each first, also letters that you read and are not done with. New mail appears by itself. Enter opens one, r"
        " answers it, a and d approve and decline, c completes a task, x is done with a letter, e writes in $VISUAL or"
        " $EDITOR, ? shows all keys, q leaves. What is refused, or left with Esc, is kept and shown again. Whom you act"
        " for: --as, else POSTROOM_AGENT, else the human (the setting human), who is registered at the first visit."
        " Elsewhere than at a terminal, with --json or TERM=dumb it is a list, as of waiting, and stamps nothing.",
        examples=(("postroom inbox", "for the human"), ("postroom inbox --json", "the list, for a program")),
        json=WAITING,
        looks=True,
    ),
}  # fmt: skip
