# What `import postroom` offers, for type checkers. `__init__.py` imports each name when it is first used.

from . import aio
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
from .maintenance import copy_room, doctor, restore
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
from .model.query import Tally
from .model.record import Change, Cursor
from .model.report import AgentFlow, BackupReport, Diagnosis, Finding, Flow, Level, Stats, Stop, Trace
from .model.task import Escalation, Standing, TaskState
from .model.thread import Conversation, Thread, Turn
from .room import Room, open
from .task import Task

__version__: str

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
    "open",
    "reference",
    "restore",
    "text",
]
