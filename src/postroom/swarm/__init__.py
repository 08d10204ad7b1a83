"""The mailbox of agent-swarm (ADR-003) by its own names, over a post room.

    from postroom.swarm import check_my_mailbox, send_message
    send_message("critic", "implementer", "Review", "Line 45 leaks.")

Programs written for that design run unchanged: `postroom swarm install` writes the `shared/agent_mailbox.py` that
they import. What they say here is said in Postroom's words below; the files are the design's own, and any other
program of that design may read and write them at the same time.

    message      Message and its words, as plain values
    handoff      HandoffContext, and a handoff as text
    members      who is in a swarm, and which mailbox a name means
    translating  a letter of ours as a Message of theirs; their times
    looking      finding letters: by id, by mailbox, by thread
    posting      sending: one letter, or one to each member
    progress     from unread to archived
    manager      MailboxManager: all of it together
    shortcuts    one manager for the whole program, and functions over it
    escalations  notices about escalations
    prompts      waiting mail before a prompt; a paragraph for system prompts
    installing   the file that `postroom swarm install` writes

Refuses to know how mail is kept: any room will do. Below it stands the room; above it, only the command line.
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
