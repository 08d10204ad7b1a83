"""What people read of tasks: a list, one of them whole, and what a step made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .escape import ago, due
from .tables import facts, hint, table
from .views import receipt, thread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .answers import Screen
    from .views import Data

_STATES = {
    "pending": "yellow", "input_required": "yellow", "accepted": "cyan", "working": "cyan", "completed": "green",
    "failed": "red", "rejected": "red", "canceled": "dim",
}  # fmt: skip


def tasks(texts: Mapping[str, str], screen: Screen, data: Data) -> str:
    """The texts stand for subjects where there are none."""
    if not data["tasks"]:
        return "No tasks.\n"
    rows = [
        (
            screen.short(task["id"]),
            task["state"],
            task["giver"],
            task["receiver"],
            ago(task["moved_at"], screen.now),
            _due(screen, task),
            task["subject"] or texts[task["id"]] or task["reason"] or "",
        )
        for task in data["tasks"]
    ]
    shown = table(screen, ("ID", "STATE", "FROM", "FOR", "MOVED", "DUE", "ABOUT"), rows, _STATES)
    return shown + hint(screen, "tasks show ID", "tells all about one")


def task(screen: Screen, data: Data) -> str:
    return _facts(screen, data["task"]) + "\n" + thread(screen, data)


def given(screen: Screen, data: Data) -> str:
    if data["repeated"]:
        return receipt(screen, data)
    return receipt(screen, data) + hint(screen, f"tasks show {data['id']}", "tells how it stands")


def moved(screen: Screen, data: Data) -> str:
    """What became of it, and that the other party was told."""
    told = data.get("receipt")
    return _facts(screen, data["task"]) + (f"Sent {told['id']}.\n" if told and not told["repeated"] else "")


def _due(screen: Screen, task: Data) -> str:
    """What is over cannot be overdue."""
    return (ago if task["is_final"] else due)(task["deadline"], screen.now)


def _facts(screen: Screen, task: Data) -> str:
    return facts(
        screen,
        [
            ("Task", task["id"]),
            ("State", task["state"]),
            ("Reason", task["reason"] or ""),
            ("From", task["giver"]),
            ("For", task["receiver"]),
            ("About", task["subject"]),
            ("Given", ago(task["opened_at"], screen.now)),
            ("Due", _due(screen, task)),
        ],
    )
