"""One manager for the whole program, and the design's functions over it."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

from .handoff import HandoffContext
from .manager import MailboxManager
from .message import MessagePriority

if TYPE_CHECKING:
    import os

    from .message import Message

_lock = Lock()
_the_manager: list[MailboxManager] = []


def get_mailbox_manager(mailboxes_dir: str | os.PathLike[str] | None = None) -> MailboxManager:
    """The program's manager. The folder counts at the first call, which makes it."""
    with _lock:
        if not _the_manager:
            _the_manager.append(MailboxManager(mailboxes_dir))
        return _the_manager[0]


def send_message(
    from_agent: str,
    to_agent: str,
    subject: str,
    body: str,
    priority: MessagePriority = MessagePriority.NORMAL,
    **kwargs: Any,
) -> Message:
    """A letter. `kwargs`: what else `MailboxManager.send` takes."""
    return get_mailbox_manager().send(from_agent, to_agent, subject, body, priority=priority, **kwargs)


def check_my_mailbox(agent_name: str, unread_only: bool = True) -> list[Message]:
    """An agent's mail, the most urgent first. Marks nothing."""
    return get_mailbox_manager().check_mailbox(agent_name, unread_only=unread_only)


def send_handoff(
    from_agent: str,
    to_agent: str,
    subject: str,
    work_completed: str,
    current_state: str,
    next_steps: list[str],
    files_modified: list[str] | None = None,
    blockers: list[str] | None = None,
    swarm_name: str | None = None,
    priority: MessagePriority = MessagePriority.NORMAL,
) -> Message:
    """Work changes hands."""
    context = HandoffContext(
        work_completed=work_completed,
        current_state=current_state,
        next_steps=next_steps,
        files_modified=files_modified or [],
        blockers=blockers or [],
    )
    return get_mailbox_manager().handoff(from_agent, to_agent, subject, context, priority, swarm_name)


def broadcast_to_swarm(
    from_agent: str,
    swarm_name: str,
    subject: str,
    body: str,
    priority: MessagePriority = MessagePriority.NORMAL,
) -> list[Message]:
    """A letter to each member of a swarm but the sender."""
    return get_mailbox_manager().broadcast(from_agent, swarm_name, subject, body, priority=priority)
