"""The commands about questions that wait for an answer: escalate, escalations, resolve, waiting and inbox.

What waits is the verb `waiting`. The views here, and the order of the terminal inbox, are for people.
"""

from __future__ import annotations

import re
import sys
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from ..core import escalation as core_escalation
from ..core.escalation import MARK
from ..environment import variable
from ..model.message import Priority, same_name
from ..model.names import HUMAN
from ..model.task import ESCALATION
from ..policy.routing import rungs_above
from .command import CONTENT, LIMIT, Option, command
from .output import (
    again,
    ago,
    begun,
    body_lines,
    due,
    hint,
    listing,
    one_line,
    page,
    painted,
    record,
    says,
    wrapped,
)
from .views import sent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from ..model.message import Message
    from .answer import Answer, Screen
    from .context import Context
    from .views import Data


MOST_SENDERS = 5  # that are named
MOST_LINES = 3  # lines of the beginning of a letter, on a terminal
_STATES = {"open": "yellow", "answered": "green", "urgent": "red", "high": "yellow"}


escalations = listing(
    "escalations",
    {
        "ID": "id",
        "ASKED": "opened_at",
        "STATUS": "status",
        "FROM": "asker",
        "AT": lambda _, one: one["waits_for"] or one["closed_by"] or "",
        "PRIORITY": "priority",
        "ABOUT": "subject",
    },
    "No escalations.",
    paint=_STATES,
)
escalation = record(
    {"Escalation": "id", "Status": "status", "By": "closed_by", "From": "asker", "About": "subject"}, "escalation"
)


def waiting(screen: Screen, data: Data) -> str:
    """Show each entry with its age, its kind, its sender, and the command to type."""
    if not data["waiting"]:
        return f"Nothing waits for {data['mailbox'] or 'anybody'}.\n"
    lines = []
    for entry in data["waiting"]:
        subject = f": {one_line(about(entry))}" if about(entry) else ""
        marks = "".join(f" [{word}]" for word in presses(entry, screen.now))
        parties = f"from {entry['from']}" + ("" if data["mailbox"] else f" to {entry['mailbox']}")
        head = f"{ago(entry['since'], screen.now)}, {entry['what']} {parties}{marks}{subject}"
        folded = wrapped(head, screen.width) if screen.tables else [f"- {head}"]
        lines += [painted(screen, line, "bold") if screen.tables else line for line in folded]
        lines += [f"    {line}" for line in _quoted(screen, entry["text"])]
        # A reply needs a text, which scripts that read the JSON add themselves.
        typed = re.sub(r"^(postroom (?:reply|tasks answer) \S+)", r'\1 "TEXT"', entry["answer"])
        lines.append(f"    {painted(screen, typed, 'cyan')}" if screen.tables else f"    `{typed}`")
    if data["more"]:
        lines += wrapped(f"And {data['more']} more{_from(data.get('senders', []))}.", screen.width)
    return "".join(f"{line}\n" for line in lines) + hint(screen, "read ID", "shows a letter whole")


def _from(senders: list[Data]) -> str:
    """Return in words whose letters are not listed: who sent the fewest comes first."""
    named = [f"{one['letters']} from {one['sender']}" for one in senders[:MOST_SENDERS]]
    others = [f"{len(senders) - len(named)} other senders"] if len(senders) > len(named) else []
    return f": {', '.join(named + others)} (--from NAME lists them)" if named else ""


def _quoted(screen: Screen, text: str) -> list[str]:
    """Return a text behind its bar; on a terminal only the beginning, folded."""
    lines = body_lines(text) if text else []
    return begun(lines, screen.width - 4, MOST_LINES) if screen.tables else lines


# -- what waits for an agent

Entry = dict[str, Any]
URGENT = Priority.URGENT.name.lower()


def about(entry: Entry) -> str:
    """Return the subject of an entry, without the mark of an escalation, which is shown beside it."""
    subject: str = entry["subject"]
    return subject.removeprefix(MARK).lstrip() if entry["what"] == "escalation" else subject


def presses(entry: Entry, now: datetime) -> list[str]:
    """Return why an entry should not wait much longer, and what became of a task, in a word or two each."""
    deadline = due(entry["due_at"], now)
    words = [f"due {deadline}" if deadline.startswith("in ") else deadline] if deadline else []
    words += ["waits"] if entry.get("asks") else []
    words += [f"task {entry['state'].replace('_', ' ')}"] if entry["what"] == "news" and entry["state"] else []
    return [URGENT, *words] if entry["priority"] == URGENT else words


# -- commands


@command(
    "escalate",
    Option(
        "--reason",
        help="an open word, such as blocked, approval or security; it may set the priority",
        metavar="WORD",
        required=True,
    ),
    *CONTENT,
    verb="escalation.Escalate",
    without=("kind", "task"),
    about="The question goes to the next name above you on the ladder. Names on the ladder of the settings that"
    " never wrote, registered, read or claimed mail here are skipped, except for the last; names from"
    " --ladder are never skipped. The answer shows who is asked next, and when. A plain reply answers the"
    " question: it goes into the same thread, to you and to everyone who was asked. The janitor passes an"
    " unanswered question on in time. The text comes from --body, else from standard input when that is not"
    " a terminal, else from $VISUAL or $EDITOR.",
    examples=(
        (
            'postroom escalate --as coder --reason blocked -s "No access" --body "I cannot read the data."',
            "ask above",
        ),
        (
            "postroom escalate --as coder --reason approval --ladder planner --ladder human --body 'Ship it?'",
            "by a ladder of your own",
        ),
    ),
    json="id thread repeated unknown routed carried letter escalation_id next",
)
def run_escalate(context: Context) -> Answer:
    receipt = context.perform()
    letter: Message = receipt.message
    enclosed = [part["data"] for part in letter.parts if part.type == "data" and part.get("schema") == ESCALATION]
    id = str(enclosed[-1]["escalation_id"])
    passed = _passed_over(context, letter)
    over = f"Passed over: {', '.join(passed)} (never active here, or takes no mail from you)."
    lines = (
        "Escalation: {escalation_id}",
        *([over] if passed else []),
        "If nobody answers, {next.name} is asked {next.at}.",
    )
    view = sent if receipt.repeated else page(sent, says(*lines), apart="")
    return context.answer_with(receipt, view, escalation_id=id, next=_next(context, id))


def _next(context: Context, id: str) -> dict[str, Any] | None:
    """Return which agent is asked next if no answer comes, and when."""
    known = context.perform(core_escalation.ListEscalations)
    one = next((one for one in known if one.id == id), None)
    if one is None or one.due_at is None:
        return None
    place = core_escalation.next_rung(context.core, one)
    return None if place is None else {"name": one.rungs[place], "at": one.due_at}


def _passed_over(context: Context, letter: Message) -> list[str]:
    """Return the agents on the ladder below the one that was asked."""
    rungs = rungs_above(core_escalation.check_ladder(context.core, context.get("ladder")), context.mailbox.name)
    receiver = letter.recipients[0].address
    return list(takewhile(lambda name: not same_name(name, receiver), rungs)) if receiver in rungs else []


command(
    "escalations",
    Option("--all", name="open_only", help="also those that were answered or resolved", kind="flag", value=False),
    verb="escalation.ListEscalations",
    view=escalations,
    examples=(
        ("postroom escalations --as coder", "what is still open"),
        ("postroom escalations --everyone --all --json", "the operator's view, for a program"),
    ),
    looks=True,
)
command(
    "resolve",
    Option("ID", name="id", help="the escalation's id: ESC-…", required=True, complete="escalations"),
    verb="escalation.Resolve",
    view=escalation,
    about="For the agent who asked, or one who was asked. The question is passed on no further.",
    examples=(('postroom resolve "$ESCALATION" --as coder', "it solved itself"),),
    looks=True,
)


@command(
    "waiting",
    Option("--no-mail", name="mail", help="no letters: only questions and tasks", kind="flag", value=False),
    verb="waiting_list.Waiting",
    view=waiting,
    about="For people: open escalations that were put to you, questions about tasks you gave, tasks you were"
    " given, and unread mail, each once, in this order; urgent ones first. Marks nothing as read. Without --as"
    " and POSTROOM_AGENT you are human, who is also called user and ceo (the setting human gives another name).",
    examples=(
        ("postroom waiting", "for the human"),
        ("postroom waiting --as planner --json", "for another, as JSON"),
        ("postroom waiting --everyone", "what waits for anybody"),
    ),
    by=HUMAN,
    looks=True,
)
def run_waiting(context: Context) -> Answer:
    return _with_options(context, context.answer())


@command(
    "inbox",
    LIMIT,
    about="For people, at a terminal: what is urgent first, then escalations and questions, tasks, letters and news,"
    " the oldest of each first, including letters that you have read but not settled. New mail appears by itself."
    " Enter opens one, r answers it, a and d approve and decline, c completes a task, x is done with a letter, w"
    " writes a new letter, s shows what you sent and u there takes one back, e writes in $VISUAL or $EDITOR, ?"
    " shows all keys, q leaves. What you send is signed with your key. A text that is refused, or left with Esc, is"
    " kept and shown again. You act as --as, else POSTROOM_AGENT, else the human (the setting human), who is"
    " registered at the first visit. Without a terminal, with --json or with TERM=dumb it prints a list like"
    " waiting, and marks nothing as read.",
    examples=(("postroom inbox", "for the human"), ("postroom inbox --json", "the list, for a program")),
    json="mailbox waiting more",
    by=HUMAN,
    looks=True,
)
def run_inbox(context: Context) -> Answer | Iterator[Answer]:
    if _has_a_person(context):
        from .inbox.session import run_terminal  # noqa: PLC0415 - for terminals alone

        return run_terminal(context)
    entries = context.mailbox.waiting(opened=True)
    shown = entries[: context.get("limit", 20)]
    data = {"mailbox": context.mailbox.name, "waiting": shown, "more": len(entries) - len(shown)}
    return _with_options(context, context.shown(data, waiting))


def _has_a_person(context: Context) -> bool:
    """Return whether a person sits at a terminal that can be drawn on."""
    ends = (sys.stdin, sys.stdout)
    can_draw = variable("TERM") not in {"", "dumb"} and not context.screen.json
    return can_draw and all(end is not None and end.isatty() for end in ends)


def _with_options(context: Context, answer: Answer) -> Answer:
    """Add to each command to type the options by which this one chose the room."""
    for entry in answer.data["waiting"]:
        entry["answer"] += again(context.screen, entry["answer"])
    return answer
