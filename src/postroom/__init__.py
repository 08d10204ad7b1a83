"""Postroom: the post room for AI agents. Durable, prompt, structured mail between processes, no server needed.

    import postroom
    room = postroom.open()
    room.mailbox("coder").send("researcher", "Which sort is stable?")
    letter = room.mailbox("researcher").wait(timeout=30)

This is the only door: what is not named here may change. Everything is loaded when first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what `typing` says too, without its weight
if TYPE_CHECKING:
    from typing import Any

    from . import aio
    from .care import copy_room, doctor, follow_room, restore
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
    from .model.card import Agent, Card, Presence
    from .model.change import Change, Cursor
    from .model.delivery import Delivery, State
    from .model.escalation import Escalation
    from .model.handoff import Handoff
    from .model.health import BackupReport, Diagnosis, Finding, Level
    from .model.message import Message, Priority, Recipient
    from .model.parts import Part, data, event, file, reference, text
    from .model.stats import AgentFlow, Flow, Stats, Tally
    from .model.task import Standing, TaskState
    from .model.template import Template
    from .model.thread import Conversation, Thread, Turn
    from .model.trace import Stop, Trace
    from .room import Room, open
    from .service.compose import Draft
    from .service.janitor import Sweep
    from .service.portable import Imported
    from .service.sending import Receipt
    from .service.transfer import Copied, Refusal
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
    "care": "copy_room doctor follow_room restore",
    "errors": (
        "BadStore Busy Conflict Damaged DeadlinePassed HopsSpent IdTaken IllegalMove Invalid LeaseLost LookAlike"
        " LoopDetected Missing NameTaken NotAllowed PostroomError QuotaFull Refused Resync SchemaTooNew"
        " StaleRevision StoreBusy StoreFailing TooFast TooLarge UnknownAgent UnknownMessage Unreadable"
    ),
    "letter": "Batch Letter Work",
    "mailbox": "Mailbox draft",
    "model.card": "Agent Card Presence",
    "model.change": "Change Cursor",
    "model.delivery": "Delivery State",
    "model.escalation": "Escalation",
    "model.handoff": "Handoff",
    "model.message": "Message Priority Recipient",
    "model.parts": "Part data event file reference text",
    "model.health": "BackupReport Diagnosis Finding Level",
    "model.stats": "AgentFlow Flow Stats Tally",
    "model.task": "Standing TaskState",
    "model.template": "Template",
    "model.thread": "Conversation Thread Turn",
    "model.trace": "Stop Trace",
    "room": "Room open",
    "service.compose": "Draft",
    "service.janitor": "Sweep",
    "service.portable": "Imported",
    "service.sending": "Receipt",
    "service.transfer": "Copied Refusal",
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
