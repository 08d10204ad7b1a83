"""The letters of the flows: assignment, completion, and of a stalled agent, to the mayor and at last to a human.

Each has a key made from what it is about, and says nothing that changes from one look to the next: sent again
after a crash, it is the same letter and comes once.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ..errors import IdTaken
from ..model.hashing import blake2b
from ..store.files.layouts.base import line_in
from .stamps import text_of
from .watches import about

if TYPE_CHECKING:
    from ..room import Room
    from .hooks import Hook
    from .items import Item

ASSIGNMENT, COMPLETION, ESCALATION = "work_assignment", "completion_report", "health_escalation"
_REASSIGN = "It did not answer. Reassign the item."
_SPENT = "It did not answer, and the item was started as often as it may be. A human is told."
_DECIDE = "It will not be started again until somebody decides."


def assign(room: Room, sender: str, hook: Hook, body: str) -> None:
    """What lies on a hook, for whoever it was put there."""
    title = f": {hook.item.title}" if hook.item.title else ""
    room.mailbox(sender).send(
        hook.agent_id,
        body,
        subject=line_in(f"{hook.item.bead_id} is on your hook{title}"),
        kind=ASSIGNMENT,
        key=_key(ASSIGNMENT, hook.agent_id, hook.item.bead_id, str(hook.item.assigned_at)),
    )


def complete(room: Room, hook: Hook, mayor: str, body: str) -> None:
    """What its owner did is done."""
    room.mailbox(hook.agent_id).send(
        mayor,
        body,
        subject=line_in(f"{hook.item.bead_id} is done"),
        kind=COMPLETION,
        key=_key(COMPLETION, hook.agent_id, hook.item.bead_id, str(hook.item.assigned_at)),
    )


def tell_mayor(
    room: Room, sender: str, mayor: str, hook: Hook, item: Item, *, asked_at: str, is_spent: bool
) -> None:
    lines = [*_facts(hook, item), f"nudged_at: {asked_at}", "", _SPENT if is_spent else _REASSIGN]
    subject = f"{hook.agent_id} is silent on {line_in(item.bead)}"
    _send(room, sender, mayor, subject, lines, key=_key(mayor, hook.agent_id, about(hook)))


def tell_human(room: Room, sender: str, human: str, hook: Hook, item: Item) -> None:
    lines = [*_facts(hook, item), "", _DECIDE]
    subject = f"{line_in(item.bead)} was started {item.restarts + 1} times and is stuck"
    _send(room, sender, human, subject, lines, key=_key(human, item.bead, *item.starts))


def _facts(hook: Hook, item: Item) -> list[str]:
    """One to a line. What a stranger wrote onto a hook stays on its own."""
    last = "never" if hook.last_activity is None else text_of(hook.last_activity)
    return [
        f"agent: {hook.agent_id}",
        f"bead: {line_in(item.bead)}",
        f"title: {line_in(hook.item.title)}",
        f"status: {hook.status}",
        f"last_activity: {last}",
        f"restarts: {item.restarts}",
    ]


def _send(room: Room, sender: str, to: str, subject: str, lines: list[str], *, key: str) -> None:
    with suppress(IdTaken):  # it was told before, in other words
        room.mailbox(sender).send(
            to,
            "\n".join(lines),
            subject=line_in(subject),
            kind=ESCALATION,
            priority="urgent",
            key=key,
        )


def _key(*about: str) -> str:
    return f"chipset-{blake2b(' '.join(about).encode(), digest_size=16).hexdigest()}"
