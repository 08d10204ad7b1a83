"""What people read of questions that wait for somebody."""

from __future__ import annotations

from .answers import Screen
from .escape import ago, body_lines, one_line
from .tables import facts, hint, painted, table
from .views import Data, sent

_STATES = {"open": "yellow", "answered": "green", "urgent": "red", "high": "yellow"}


def escalated(screen: Screen, data: Data) -> str:
    if data["repeated"]:
        return sent(screen, data)
    return f"{sent(screen, data)}Escalation: {data['escalation_id']}\n"


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
        about = f": {one_line(entry['subject'])}" if entry["subject"] else ""
        head = f"{ago(entry['since'], screen.now)}, {entry['what']} from {entry['from']}{about}"
        lines.append(painted(screen, head, "bold") if screen.tables else f"- {head}")
        lines += [f"    {line}" for line in body_lines(entry["text"]) if entry["text"]]
        typed = entry["answer"]
        lines.append(f"    {painted(screen, typed, 'cyan')}" if screen.tables else f"    `{typed}`")
    more = f"And {data['more']} more.\n" if data["more"] else ""
    return "".join(f"{line}\n" for line in lines) + more + hint(screen, "read ID", "shows a letter whole")
