"""What people read of questions that wait for somebody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .escape import ago, begun, body_lines, one_line, wrapped
from .tables import facts, hint, painted, table
from .views import sent
from .waiting import about, presses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .answers import Screen
    from .views import Data

MOST_SAID = 3  # lines of how a letter begins, on a terminal
_STATES = {"open": "yellow", "answered": "green", "urgent": "red", "high": "yellow"}


def escalated(passed_over: Sequence[str], screen: Screen, data: Data) -> str:
    """To whom it went, why not to somebody nearer, and who is next."""
    if data["repeated"]:
        return sent(screen, data)
    told = [f"Escalation: {data['escalation_id']}"]
    if passed_over:
        told.append(f"Passed over: {', '.join(passed_over)} (never heard from here, or takes no mail from you).")
    if data["next"] is not None:
        told.append(
            f"Unanswered, it goes to {data['next']['name']} {ago(data['next']['at'], screen.now)}, by janitor."
        )
    return sent(screen, data) + "".join(f"{line}\n" for line in told)


def escalations(screen: Screen, data: Data) -> str:
    if not data["escalations"]:
        return "No escalations.\n"
    rows = [
        (
            one["id"],
            ago(one["opened_at"], screen.now),
            one["status"],
            one["asker"],
            one["waits_for"] or one["closed_by"] or "",
            one["priority"],
            one["subject"],
        )
        for one in data["escalations"]
    ]
    return table(screen, ("ID", "ASKED", "STATUS", "FROM", "AT", "PRIORITY", "ABOUT"), rows, _STATES)


def escalation(screen: Screen, data: Data) -> str:
    one = data["escalation"]
    pairs = [
        ("Escalation", one["id"]),
        ("Status", one["status"]),
        ("By", one["closed_by"] or ""),
        ("From", one["asker"]),
        ("About", one["subject"]),
    ]
    return facts(screen, pairs)


def waiting(screen: Screen, data: Data) -> str:
    """One entry after the other: since when, what, from whom, and what to type."""
    if not data["waiting"]:
        return f"Nothing waits for {data['mailbox']}.\n"
    lines = []
    for entry in data["waiting"]:
        subject = f": {one_line(about(entry))}" if about(entry) else ""
        marks = "".join(f" [{word}]" for word in presses(entry, screen.now))
        head = f"{ago(entry['since'], screen.now)}, {entry['what']} from {entry['from']}{marks}{subject}"
        folded = wrapped(head, screen.width) if screen.tables else [f"- {head}"]
        lines += [painted(screen, line, "bold") if screen.tables else line for line in folded]
        lines += [f"    {line}" for line in _said(screen, entry["text"])]
        typed = entry["answer"]
        lines.append(f"    {painted(screen, typed, 'cyan')}" if screen.tables else f"    `{typed}`")
    more = f"And {data['more']} more.\n" if data["more"] else ""
    return "".join(f"{line}\n" for line in lines) + more + hint(screen, "read ID", "shows a letter whole")


def _said(screen: Screen, text: str) -> list[str]:
    """A text behind its bar; on a terminal it is folded, the bar goes on, and some of it is enough."""
    lines = body_lines(text) if text else []
    return begun(lines, screen.width - 4, MOST_SAID) if screen.tables else lines
