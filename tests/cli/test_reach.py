"""Everything the Python API can do, the command line can do: each public method, and the command that reaches it."""

from __future__ import annotations

import inspect

import pytest

import postroom
from postroom.cli.table import COMMANDS
from postroom.letter import Batch

# The commands that reach a method, or, in brackets, why none does.
REACH: dict[str, str] = {
    # -- the room
    "Room.acting_as": "[whoever types a command owns the room]",
    "Room.agent": "agents show",
    "Room.agents": "agents",
    "Room.archive": "rooms archive",
    "Room.backup": "rooms backup",
    "Room.changes": "rooms changes",
    "Room.close": "[a command opens the room and lets go of it]",
    "Room.conversations": "conversations",
    "Room.cursor": "rooms changes",
    "Room.dead": "dead",
    "Room.tasks": "[tasks, for each mailbox]",
    "Room.dead_rings": "rings",
    "Room.dead_alerts": "rings",
    "Room.delete_template": "templates delete",
    "Room.digest": "digest",
    "Room.doctor": "doctor",
    "Room.escalations": "escalations",
    "Room.export": "rooms export",
    "Room.flow": "top",
    "Room.load": "rooms import",
    "Room.mailbox": "[--as names the mailbox]",
    "Room.mailboxes": "rooms",
    "Room.markdown": "read",
    "Room.purge": "rooms purge",
    "Room.quarantined": "rooms",
    "Room.retry_rings": "rings retry",
    "Room.retry_alerts": "rings retry",
    "Room.save_template": "templates save",
    "Room.search": "search",
    "Room.stats": "stats",
    "Room.sweep": "rooms janitor",
    "Room.tagged": "tagged",
    "Room.template": "templates show",
    "Room.templates": "templates",
    "Room.thread": "thread",
    "Room.threads": "threads",
    "Room.trace": "trace",
    "Room.turns": "turns",
    "Room.wait": "wait",
    "Room.waiting": "waiting",
    "Room.board": "board",
    # -- a mailbox
    "Mailbox.ack": "ack",
    "Mailbox.ack_and_send": "ack",
    "Mailbox.ask": "[send, then wait for its thread]",
    "Mailbox.begin_rings": "watch",
    "Mailbox.begin_alerts": "watch",
    "Mailbox.block": "block",
    "Mailbox.blocked": "block",
    "Mailbox.broadcast": "broadcast",
    "Mailbox.check": "check",
    "Mailbox.claim": "claim",
    "Mailbox.conversation": "conversation",
    "Mailbox.conversations": "conversations",
    "Mailbox.counts": "counts",
    "Mailbox.dead": "dead",
    "Mailbox.dead_rings": "rings",
    "Mailbox.dead_alerts": "rings",
    "Mailbox.digest": "digest",
    "Mailbox.escalate": "escalate",
    "Mailbox.escalations": "escalations",
    "Mailbox.fail": "fail",
    "Mailbox.forward": "forward",
    "Mailbox.give_task": "tasks give",
    "Mailbox.handoff": "handoff",
    "Mailbox.heartbeat": "heartbeat",
    "Mailbox.held": "ack",
    "Mailbox.leave": "leave",
    "Mailbox.mark_shown": "hook prompt",
    "Mailbox.purge": "dead purge",
    "Mailbox.read": "read",
    "Mailbox.register": "register",
    "Mailbox.reject": "reject",
    "Mailbox.release": "release",
    "Mailbox.renew": "renew",
    "Mailbox.reply": "reply",
    "Mailbox.reply_chain": "thread",
    "Mailbox.resolve": "resolve",
    "Mailbox.retry_rings": "rings retry",
    "Mailbox.retry_alerts": "rings retry",
    "Mailbox.revive": "dead revive",
    "Mailbox.ring_done": "watch",
    "Mailbox.alert_done": "watch",
    "Mailbox.ring_failed": "watch",
    "Mailbox.alert_failed": "watch",
    "Mailbox.search": "search",
    "Mailbox.send": "send",
    "Mailbox.send_many": "send",
    "Mailbox.send_template": "send",
    "Mailbox.sent": "sent",
    "Mailbox.serve": "work",
    "Mailbox.stats": "stats",
    "Mailbox.stop": "[a signal ends a command]",
    "Mailbox.tagged": "tagged",
    "Mailbox.task": "tasks show",
    "Mailbox.tasks": "tasks",
    "Mailbox.thread": "thread",
    "Mailbox.threads": "threads",
    "Mailbox.trace": "trace",
    "Mailbox.try_ring": "watch",
    "Mailbox.next_alert": "watch",
    "Mailbox.turns": "turns",
    "Mailbox.unblock": "unblock",
    "Mailbox.unsend": "unsend",
    "Mailbox.wait": "wait",
    "Mailbox.wait_to_ring": "watch",
    "Mailbox.wait_for_alert": "watch",
    "Mailbox.waiting": "waiting",
    "Mailbox.board": "board",
    "Mailbox.work": "work",
    # -- a letter
    "Letter.ack": "ack",
    "Letter.ack_and_reply": "reply",
    "Letter.ack_and_send": "ack",
    "Letter.forward": "forward",
    "Letter.reject": "reject",
    "Letter.reply": "reply",
    "Letter.to_markdown": "read",
    "Work.fail": "fail",
    "Work.release": "release",
    "Work.renew": "renew",
    "Batch.ack": "ack",
    "Batch.fail": "fail",
    "Batch.release": "release",
    "Batch.renew": "renew",
    # -- a task
    "Task.accept": "tasks accept",
    "Task.admit": "tasks admit",
    "Task.answer": "tasks answer",
    "Task.ask": "tasks ask",
    "Task.cancel": "tasks cancel",
    "Task.complete": "tasks complete",
    "Task.fail": "tasks fail",
    "Task.letters": "tasks show",
    "Task.refresh": "[each command looks anew]",
    "Task.reject": "tasks reject",
    "Task.start": "tasks start",
    # -- without a room
    "postroom.copy_room": "rooms copy",
    "postroom.doctor": "doctor",
    "postroom.draft": "send",
    "postroom.open": "[--room names the room]",
    "postroom.restore": "rooms restore",
}
CLASSES = (postroom.Room, postroom.Mailbox, postroom.Letter, postroom.Work, Batch, postroom.Task)
PARTS = {
    "data",
    "event",
    "file",
    "reference",
    "text",
}  # what a letter is made of: --data, --part, --file, --reference


def methods() -> set[str]:
    found = set()
    for owner in CLASSES:
        for name, what in inspect.getmembers(owner, inspect.isfunction):
            home = what.__qualname__.partition(".")[0]
            if not name.startswith("_") and home not in {c.__name__ for c in CLASSES if c is not owner}:
                found.add(f"{owner.__name__}.{name}")
    for name in postroom.__all__:
        if inspect.isfunction(getattr(postroom, name)) and name not in PARTS:
            found.add(f"postroom.{name}")
    return found


def test_every_public_method_has_its_command_or_a_reason() -> None:
    assert sorted(methods()) == sorted(REACH)


@pytest.mark.parametrize("method", [name for name, command in REACH.items() if command[0] != "["])
def test_the_command_is_there(method: str) -> None:
    assert REACH[method] in COMMANDS


def test_a_method_without_a_command_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postroom.Mailbox, "snooze", lambda _: None, raising=False)
    assert "Mailbox.snooze" in methods() - set(REACH)
