"""Rows of the command table for escalations and what waits for somebody; the functions are in `postroom.cli.escalation`."""

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
        "ask the next agent or person above you on the ladder",
        Option("--reason", help="an open word, such as blocked, approval or security; it may set the priority",
               metavar="WORD", required=True),
        *BODY,
        Option("--ladder", help="who is asked, the lowest first; the setting ladder by default", many=True,
               metavar="NAME", complete="agents"),
        *(option for option in FIELDS if option.name not in {"kind", "task"}),
        about="The question goes to the next name above you on the ladder. Names on the ladder of the settings that"
        " never wrote, registered, read or claimed mail here are skipped, except for the last; names from"
        " --ladder are never skipped. The answer shows who is asked next, and when. A plain reply answers the"
        " question: it goes into the same thread, to you and to everyone who was asked. The janitor passes an"
        " unanswered question on in time. The text comes from --body, else from standard input when that is not"
        " a terminal, else from $VISUAL or $EDITOR.",
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
        about="For the agent who asked, or one who was asked. The question is passed on no further.",
        examples=(('postroom resolve "$ESCALATION" --as coder', "it solved itself"),),
        json=(("escalation", "as in escalations"),),
        exits=((67, "no such open escalation of yours"),),
        looks=True,
    ),
    "waiting": Command(
        "waiting",
        "list what waits for you, the oldest first, with the command to type",
        LIMIT,
        about="For people: open escalations that were put to you, questions about tasks you gave, tasks you were"
        " given, and unread mail, each once. Marks nothing as read. Without --as and POSTROOM_AGENT you are"
        " human, who is also called user and ceo (the setting human gives another name). Shows 20 unless --limit"
        " says otherwise.",
        examples=(("postroom waiting", "for the human"), ("postroom waiting --as planner --json", "for another, as JSON")),
        json=WAITING,
        looks=True,
    ),
    "inbox": Command(
        "inbox",
        "show what waits for you, live: read, answer, approve and decline by keys",
        LIMIT,
        about="For people, at a terminal: escalations and questions first, then tasks, letters and news, the oldest of"
        " each first, including letters that you have read but not settled. New mail appears by itself. Enter"
        " opens one, r answers it, a and d approve and decline, c completes a task, x is done with a letter, e"
        " writes in $VISUAL or $EDITOR, ? shows all keys, q leaves. A text that is refused, or left with Esc, is"
        " kept and shown again. You act as --as, else POSTROOM_AGENT, else the human (the setting human), who is"
        " registered at the first visit. Without a terminal, with --json or with TERM=dumb it prints a list like"
        " waiting, and marks nothing as read.",
        examples=(("postroom inbox", "for the human"), ("postroom inbox --json", "the list, for a program")),
        json=WAITING,
        looks=True,
    ),
}  # fmt: skip
