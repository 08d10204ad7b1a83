"""What people read of rings: one line for each, a table of those that were given up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..service.present import harmless
from .escape import ago, cut, one_line
from .tables import hint, table

if TYPE_CHECKING:
    from .answers import Screen

Data = Mapping[str, Any]
LONGEST = 60  # characters of a subject


def ring(_screen: Screen, data: Data) -> str:
    """One line, whatever a subject holds."""
    if not data["letters"]:
        return "Nothing came.\n"
    first, *others = data["letters"]
    mark = "[URGENT] " if first["priority"] == "urgent" else ""
    subject = cut(one_line(first["subject"]), LONGEST) or "(no subject)"
    more = f", and {len(others)} more" if others else ""
    failed = f"; failed: {one_line(data['failed'])}" if data["failed"] else ""
    said = f"{mark}{one_line(first['from'])}: {subject} ({first['id']}){more}"
    return harmless(f"{data['mailbox']}, {data['unread']} unread: {said}{failed}") + "\n"


def rings(screen: Screen, data: Data) -> str:
    if not data["rings"]:
        return "No rings were given up.\n"
    rows = [
        (
            screen.short(one["letter"]["id"]),
            one["mailbox"],
            one["way"],
            one["letter"]["from"],
            one["letter"]["subject"],
            str(one["tries"]),
            ago(one["at"], screen.now),
            one["why"],
        )
        for one in data["rings"]
    ]
    titles = ("ID", "MAILBOX", "WAY", "FROM", "ABOUT", "TRIES", "WHEN", "WHY")
    shown = table(screen, titles, rows, drop=("TRIES", "FROM", "WHEN", "ABOUT"))
    return shown + hint(screen, "rings retry")
