"""Notices about escalations, as the design sends them: to the coo, and from the coo to the human.

They are letters and nothing more. A question that climbs by itself when nobody answers is `mailbox.escalate`.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from ..errors import Invalid
from .message import MessagePriority, MessageType
from .shortcuts import get_mailbox_manager

if TYPE_CHECKING:
    from .manager import MailboxManager
    from .message import Message

COO = "coo"
HUMAN = "user"
# The words of escalations for how urgent something is.
URGENCY = {
    "low": MessagePriority.LOW,
    "medium": MessagePriority.NORMAL,
    "normal": MessagePriority.NORMAL,
    "high": MessagePriority.HIGH,
    "critical": MessagePriority.URGENT,
    "urgent": MessagePriority.URGENT,
}


def notify_coo(
    from_agent: str,
    escalation_id: str,
    title: str,
    description: str,
    reason: Any,
    priority: Any = "normal",
    *,
    manager: MailboxManager | None = None,
) -> Message:
    """Tell the coo of an escalation. Priority and reason may be words, numbers or enums."""
    return _notify(
        manager, from_agent, COO, f"Escalation: {title}", description, urgency(priority), escalation_id, reason
    )


def notify_human(
    escalation_id: str, title: str, description: str, reason: Any, *, manager: MailboxManager | None = None
) -> Message:
    """Tell the human of an escalation, in the name of the coo."""
    subject = f"CEO Escalation: {title}"
    return _notify(manager, COO, HUMAN, subject, description, MessagePriority.HIGH, escalation_id, reason)


def notify_escalation(escalation: Any, *, manager: MailboxManager | None = None) -> Message | None:
    """Tell the level that an escalation goes to, from its own fields: id, title, description, reason, priority,
    created_by, to_level. None for a level that gets no mail.
    """
    level = str(_word(escalation.to_level)).lower()
    said = (escalation.id, escalation.title, escalation.description, escalation.reason)
    if level == COO:
        return notify_coo(escalation.created_by, *said, escalation.priority, manager=manager)
    if level in {"ceo", "human", HUMAN}:
        return notify_human(*said, manager=manager)
    return None


def urgency(priority: Any) -> MessagePriority:
    """An escalation's priority as a letter's: one of our own, a word, or a number from 1 to 4."""
    word = _word(priority)
    if isinstance(word, int) and not isinstance(word, bool) and 1 <= word <= len(MessagePriority):
        return MessagePriority(word)
    found = URGENCY.get(word.lower()) if isinstance(word, str) else None
    if found is None:
        raise Invalid(f"{word!a} is not a priority", field="priority", hint=", ".join(URGENCY))
    return found


def _notify(
    manager: MailboxManager | None,
    from_agent: str,
    to_agent: str,
    subject: str,
    body: str,
    priority: MessagePriority,
    escalation_id: str,
    reason: Any,
) -> Message:
    return (manager or get_mailbox_manager()).send(
        from_agent,
        to_agent,
        subject,
        body,
        message_type=MessageType.ESCALATION,
        priority=priority,
        payload={"escalation_id": escalation_id, "reason": _word(reason)},
    )


def _word(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value
