"""Postroom: the post room for AI agents. Durable, prompt, structured mail between processes, no server needed.

    import postroom
    room = postroom.open()
    room.mailbox("coder").send("researcher", "Which sort is stable?")
    letter = room.mailbox("researcher").wait(timeout=30)

This is the only door: what is not named here may change. Everything is loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from .core.compose import Draft
    from .core.messages import Receipt
    from .core.portable import Imported
    from .core.retention import Sweep
    from .core.transfer import Copied, Refusal
    from .errors import (
        BadStore,
        Busy,
        Conflict,
        Damaged,
        DeadlinePassed,
        HopsSpent,
        IdTaken,
        IllegalMove,
        Invalid,
        LeaseLost,
        LookAlike,
        LoopDetected,
        Missing,
        NameTaken,
        NotAllowed,
        PostroomError,
        QuotaFull,
        Refused,
        Resync,
        SchemaTooNew,
        StaleRevision,
        StoreBusy,
        StoreFailing,
        TooFast,
        TooLarge,
        UnknownAgent,
        UnknownMessage,
        Unreadable,
    )
    from .letter import Batch, Letter, Work
    from .mailbox import Mailbox, draft
    from .model.agent import Agent, Card, Presence
    from .model.delivery import Delivery, State
    from .model.message import (
        Handoff,
        Message,
        Part,
        Priority,
        Recipient,
        Template,
        data,
        event,
        file,
        reference,
        text,
    )
    from .model.record import Change, Cursor
    from .model.report import AgentFlow, BackupReport, Diagnosis, Finding, Flow, Level, Stats, Stop, Tally, Trace
    from .model.task import Escalation, Standing, TaskState
    from .model.thread import Conversation, Thread, Turn
    from .room import Room, copy_room, doctor, follow_room, open, restore
    from .task import Task


__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AgentFlow",
    "BackupReport",
    "BadStore",
    "Batch",
    "Busy",
    "Card",
    "Change",
    "Conflict",
    "Conversation",
    "Copied",
    "Cursor",
    "Damaged",
    "DeadlinePassed",
    "Delivery",
    "Diagnosis",
    "Draft",
    "Escalation",
    "Finding",
    "Flow",
    "Handoff",
    "HopsSpent",
    "IdTaken",
    "IllegalMove",
    "Imported",
    "Invalid",
    "LeaseLost",
    "Letter",
    "Level",
    "LookAlike",
    "LoopDetected",
    "Mailbox",
    "Message",
    "Missing",
    "NameTaken",
    "NotAllowed",
    "Part",
    "PostroomError",
    "Presence",
    "Priority",
    "QuotaFull",
    "Receipt",
    "Recipient",
    "Refusal",
    "Refused",
    "Resync",
    "Room",
    "SchemaTooNew",
    "StaleRevision",
    "Standing",
    "State",
    "Stats",
    "Stop",
    "StoreBusy",
    "StoreFailing",
    "Sweep",
    "Tally",
    "Task",
    "TaskState",
    "Template",
    "Thread",
    "TooFast",
    "TooLarge",
    "Trace",
    "Turn",
    "UnknownAgent",
    "UnknownMessage",
    "Unreadable",
    "Work",
    "__version__",
    "aio",
    "copy_room",
    "data",
    "doctor",
    "draft",
    "event",
    "file",
    "follow_room",
    "open",
    "reference",
    "restore",
    "text",
]

_HOMES = {
    "core.compose": "Draft",
    "core.messages": "Receipt",
    "core.portable": "Imported",
    "core.retention": "Sweep",
    "core.transfer": "Copied Refusal",
    "errors": (
        "BadStore Busy Conflict Damaged DeadlinePassed HopsSpent IdTaken IllegalMove Invalid LeaseLost"
        " LookAlike LoopDetected Missing NameTaken NotAllowed PostroomError QuotaFull Refused Resync"
        " SchemaTooNew StaleRevision StoreBusy StoreFailing TooFast TooLarge UnknownAgent UnknownMessage"
        " Unreadable"
    ),
    "letter": "Batch Letter Work",
    "mailbox": "Mailbox draft",
    "model.agent": "Agent Card Presence",
    "model.delivery": "Delivery State",
    "model.message": "Handoff Message Part Priority Recipient Template data event file reference text",
    "model.record": "Change Cursor",
    "model.report": "AgentFlow BackupReport Diagnosis Finding Flow Level Stats Stop Tally Trace",
    "model.task": "Escalation Standing TaskState",
    "model.thread": "Conversation Thread Turn",
    "room": "Room copy_room doctor follow_room open restore",
    "task": "Task",
}


def __getattr__(name: str) -> Any:
    """Called once for each name. Without `importlib`: the door itself weighs nothing."""
    if name == "aio":
        return __import__("postroom.aio", fromlist=[name])
    home = next((home for home, names in _HOMES.items() if name in names.split()), None)
    if home is None:
        raise AttributeError(f"module 'postroom' has no attribute {name!r}")
    value = getattr(__import__(f"postroom.{home}", fromlist=[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
