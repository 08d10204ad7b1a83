"""The mailbox of agent-swarm (ADR-003) by its own names, over a post room.

    from postroom.swarm import check_my_mailbox, send_message
    send_message("critic", "implementer", "Review", "Line 45 leaks.")

Programs written for that design run unchanged: `postroom swarm install` writes the `shared/agent_mailbox.py` that
they import. The files are the design's own, and other programs of that design may read and write them at the
same time.

    message      Message and HandoffContext as plain values, and letters of the room as Messages
    mail         members of a swarm; finding, sending and working on letters
    manager      MailboxManager, and the design's functions over one manager for the whole program
    notices      notices about escalations; waiting mail for prompts
    install      the files that `postroom swarm install` writes

Mail may be in any room; nothing here knows how it is stored.
"""

from __future__ import annotations

from .manager import (
    MailboxManager,
    broadcast_to_swarm,
    check_my_mailbox,
    get_mailbox_manager,
    send_handoff,
    send_message,
)
from .message import HandoffContext, Message, MessagePriority, MessageStatus, MessageType
from .notices import (
    format_mailbox_context,
    mailbox_system_prompt,
    notify_coo,
    notify_escalation,
    notify_human,
    with_pending_mail,
)

__all__ = [
    "HandoffContext",
    "MailboxManager",
    "Message",
    "MessagePriority",
    "MessageStatus",
    "MessageType",
    "broadcast_to_swarm",
    "check_my_mailbox",
    "format_mailbox_context",
    "get_mailbox_manager",
    "mailbox_system_prompt",
    "notify_coo",
    "notify_escalation",
    "notify_human",
    "send_handoff",
    "send_message",
    "with_pending_mail",
]
