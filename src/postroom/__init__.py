"""Postroom: the post room for AI agents. Durable, prompt, structured mail between processes, no server needed.

    import postroom
    room = postroom.open()
    room.mailbox("coder").send("researcher", "Which sort is stable?")
    letter = room.mailbox("researcher").wait(timeout=30)

This is the only door: what is not named here may change. Everything is loaded when first used.
"""

from __future__ import annotations

__version__ = "0.1.0"

_HOMES = {
    "core.board": "BoardView DeadCount Deadline Stuck Wait",
    "core.compose": "Draft",
    "core.messages": "Receipt",
    "core.portable": "Imported",
    "core.retention": "Sweep",
    "core.transfer": "Copied Refusal",
    "core.waiting_list": "Entry",
    "errors": (
        "BadStore Busy Conflict Damaged DeadlinePassed HopsSpent IdTaken IllegalMove Invalid LeaseLost"
        " LookAlike LoopDetected Missing NameTaken NoAnswer NotAllowed PostroomError QuotaFull Refused Resync"
        " SchemaTooNew StaleRevision StoreBusy StoreFailing TooFast TooLarge Undeliverable"
        " UnknownAgent UnknownMessage Unreadable"
    ),
    "letter": "Batch Letter Work",
    "mailbox": "Mailbox draft",
    "model.agent": "Agent Card Presence",
    "model.alert": "Alert AlertLetter DeadAlertRow Later Rung Sight",
    "model.delivery": "Attempt Delivery Lease State",
    "model.message": "Handoff Message Part Priority Recipient Template data event file reference text",
    "model.peer": "Carried",
    "model.record": "Change Cursor",
    "model.query": "Tally",
    "model.report": "AgentFlow BackupReport Diagnosis Finding Flow Level Rate Stats Stop Trace",
    "model.task": "Escalation Standing TaskState TaskStatus",
    "model.thread": "Conversation Thread Turn",
    "maintenance": "copy_room doctor restore",
    "room": "Room open",
    "task": "Task",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
__all__ = sorted(["__version__", "aio", *_HOME_OF])  # noqa: PLE0605 - __init__.pyi spells it out


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: `import postroom` itself costs nothing."""
    if name == "aio":
        return __import__("postroom.aio", fromlist=[name])
    if name not in _HOME_OF:
        raise AttributeError(f"module 'postroom' has no attribute {name!r}")
    value = getattr(__import__(f"postroom.{_HOME_OF[name]}", fromlist=[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
