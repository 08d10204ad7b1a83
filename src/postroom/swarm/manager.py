"""MailboxManager with the design's names, defaults and results, and the design's functions over one manager.

A manager holds nothing in memory but the leases of the letters it works on, so any number of managers, in any
number of processes, see the same mail.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from ..core.proof import people_names
from ..room import open as open_room
from . import mail
from .mail import LEASE, Lifecycle, SendArguments
from .message import HandoffContext, MessagePriority, MessageType, handoff_body, message_of

if TYPE_CHECKING:
    import os
    from datetime import datetime

    from ..room import Room
    from .message import Message


DEFAULT_FOLDER = "./workspace/mailboxes"


class MailboxManager:
    """The mailboxes of all agents below one folder. Any number of threads may use one."""

    def __init__(
        self,
        mailboxes_dir: str | os.PathLike[str] | None = None,
        *,
        room: Room | None = None,
        lease: float = LEASE,
    ) -> None:
        """Open the mailboxes of a folder, or those of `room`, which may store mail elsewhere, such as in SQLite.

        `lease` is the time in seconds for which `mark_processing` holds a letter.
        """
        self.mailboxes_dir = Path(mailboxes_dir or DEFAULT_FOLDER)
        self.room = room if room is not None else open_room(f"files:{self.mailboxes_dir.absolute()}?layout=swarm")
        self._core, self._principal = self.room.core, self.room.principal
        self._steps = Lifecycle(self._core, self._principal, lease)

    # -- sending

    def send(
        self,
        from_agent: str,
        to_agent: str,
        subject: str,
        body: str,
        message_type: MessageType = MessageType.REQUEST,
        priority: MessagePriority = MessagePriority.NORMAL,
        payload: dict[str, Any] | None = None,
        context: dict[str, Any] | None = None,
        swarm_name: str | None = None,
        reply_to: str | None = None,
        thread_id: str | None = None,
        expires_at: datetime | None = None,
        attachments: list[str] | None = None,
        tags: list[str] | None = None,
    ) -> Message:
        """Send one letter, or with `broadcast:<swarm>` one to each member. When this returns, it is on disk."""
        args = SendArguments(
            from_agent,
            to_agent,
            subject,
            body,
            message_type,
            priority,
            payload,
            context,
            swarm_name,
            reply_to,
            thread_id,
            expires_at,
            attachments,
            tags,
        )
        return mail.send(self._core, self._principal, args)

    def handoff(
        self,
        from_agent: str,
        to_agent: str,
        subject: str,
        handoff_context: HandoffContext,
        priority: MessagePriority = MessagePriority.NORMAL,
        swarm_name: str | None = None,
        additional_notes: str = "",
    ) -> Message:
        """Send a handoff, with its context as data and as text, and its files as attachments."""
        return self.send(
            from_agent=from_agent,
            to_agent=to_agent,
            subject=subject,
            body=handoff_body(from_agent, to_agent, handoff_context, additional_notes),
            message_type=MessageType.HANDOFF,
            priority=priority,
            context=handoff_context.to_dict(),
            swarm_name=swarm_name,
            attachments=handoff_context.files,
            tags=["handoff"],
        )

    def broadcast(
        self,
        from_agent: str,
        swarm_name: str,
        subject: str,
        body: str,
        message_type: MessageType = MessageType.NOTIFICATION,
        priority: MessagePriority = MessagePriority.NORMAL,
        exclude: list[str] | None = None,
        **kwargs: Any,
    ) -> list[Message]:
        """Send a letter to each member but the sender, all in one commit.

        `kwargs` takes other arguments of `send`.
        """
        args = SendArguments(
            from_agent, "", subject, body, message_type, priority, swarm_name=swarm_name, **kwargs
        )
        return mail.broadcast(self._core, self._principal, args, exclude or ())

    def reply(
        self, original_message_id: str, from_agent: str, body: str, payload: dict[str, Any] | None = None
    ) -> Message | None:
        """Send an answer in the letter's thread, with its priority. Return None if there is no such letter."""
        return mail.reply(self._core, self._principal, original_message_id, from_agent, body, payload)

    # -- reading

    def check_mailbox(
        self,
        agent_name: str,
        unread_only: bool = True,
        message_types: list[MessageType] | None = None,
        min_priority: MessagePriority | None = None,
    ) -> list[Message]:
        """Return an agent's mail, the most urgent first, then the oldest. This marks nothing."""
        found = mail.waiting(
            self._core,
            self._principal,
            agent_name,
            unread_only=unread_only,
            message_types=message_types,
            min_priority=min_priority,
        )
        people = people_names(self._core)
        return [message_of(one, people) for one in found]

    def get_pending_count(self, agent_name: str) -> dict[str, int]:
        """Return the number of unread letters by priority (urgent, high, normal, low), and the total."""
        pending = [message.priority for message in self.check_mailbox(agent_name)]
        counts = {each.name.lower(): pending.count(each) for each in reversed(MessagePriority)}
        return counts | {"total": len(pending)}

    def get_thread(self, thread_id: str) -> list[Message]:
        """Return all letters of a thread, including its first one, the oldest first."""
        people = people_names(self._core)
        return [message_of(one, people) for one in mail.thread(self._core, self._principal, thread_id)]

    # -- working; each returns the letter as it is now, or None

    def read_message(self, message_id: str) -> Message | None:
        """Mark a letter as read. Return None if there is no such letter."""
        return self._steps.take(message_id, self._steps.read)

    def mark_processing(self, message_id: str) -> Message | None:
        """Claim a letter until the lease ends. Return None if another worker has it, or if it is done."""
        return self._steps.take(message_id, self._steps.start)

    def mark_completed(self, message_id: str, archive: bool = True) -> Message | None:
        """Complete a letter.

        Return None if there is no such letter, or if our claim was lost to another worker.
        """
        return self._steps.take(message_id, partial(self._steps.complete, archive=archive))

    def mark_failed(self, message_id: str, retry: bool = True, reason: str = "failed") -> Message | None:
        """Record a failed attempt.

        The letter is unread again, or failed after its last attempt or without retry.
        """
        return self._steps.take(message_id, partial(self._steps.fail, reason=reason, retry=retry))


# The design's functions, over one manager for the whole program

_lock = Lock()
_the_manager: list[MailboxManager] = []


def get_mailbox_manager(mailboxes_dir: str | os.PathLike[str] | None = None) -> MailboxManager:
    """Return the manager of the program. The first call creates it, with its folder."""
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
    """Send a letter. `kwargs` takes other arguments of `MailboxManager.send`."""
    return get_mailbox_manager().send(from_agent, to_agent, subject, body, priority=priority, **kwargs)


def check_my_mailbox(agent_name: str, unread_only: bool = True) -> list[Message]:
    """Return an agent's mail, the most urgent first. This marks nothing."""
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
    """Send a handoff."""
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
    """Send a letter to each member of a swarm but the sender."""
    return get_mailbox_manager().broadcast(from_agent, swarm_name, subject, body, priority=priority)
