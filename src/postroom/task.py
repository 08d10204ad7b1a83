"""A task as a program holds it: looked at, accepted, moved step by step.

Each verb is one call of `core.tasks`, which checks the step and sends the other party a letter about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .core import compose, tasks, threads
from .core.verb import perform
from .letter import Work
from .model.task import TaskState
from .model.values import in_quotes

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from typing import TypeVar, Unpack

    from .core.messages import Receipt
    from .core.tasks import Moved
    from .core.verb import Runs
    from .keywords import Body, Fields
    from .letter import Letter
    from .mailbox import Mailbox
    from .model.message import Message
    from .model.task import TaskStatus
    from .policy.admission import Judge

    T = TypeVar("T")


class Task:
    """A task that was given or received at a mailbox, as of the last look or move by this object.

    Each verb sends the other party a `task_update` letter.
    """

    standing: TaskStatus
    session: dict[str, Any] | None

    def __init__(
        self,
        mailbox: Mailbox,
        standing: TaskStatus,
        letter: Letter | None = None,
        *,
        session: dict[str, Any] | None = None,
    ) -> None:
        self._mailbox = mailbox
        self._letter = letter  # the opening letter, if claimed: its lease proves who may move the task
        self.standing = standing  # its status, as a TaskStatus
        self.session = session  # what its giver gave as `session`; None for the receiver

    @property
    def id(self) -> str:
        """The id of the letter that opened it."""
        return self.standing.letter

    @property
    def giver(self) -> str:
        return self.standing.giver

    @property
    def receiver(self) -> str:
        return self.standing.receiver

    @property
    def state(self) -> TaskState:
        return self.standing.state

    @property
    def subject(self) -> str:
        return self.standing.subject

    @property
    def thread(self) -> str:
        """The thread of its letters: `wait(thread=task.thread)`."""
        return self.standing.thread

    @property
    def deadline(self) -> datetime | None:
        return self.standing.deadline

    @property
    def reason(self) -> str | None:
        """Why it was rejected, failed or canceled, if a reason was given."""
        return self.standing.reason

    @property
    def is_final(self) -> bool:
        """Whether it is over: then it cannot be moved any more."""
        return self.standing.is_final

    def __repr__(self) -> str:
        about = f" {in_quotes(self.subject)}" if self.subject else ""
        return f"<{type(self).__name__} {self.id} from {self.giver} to {self.receiver}{about} ({self.state})>"

    def accept(self, body: Body = None, *, ack: bool = True, **fields: Unpack[Fields]) -> Receipt:
        """Accept the task, and acknowledge the letter that opened it, in one commit.

        Without `ack` the letter stays claimed: it is offered again if its holder dies, and is acknowledged when
        the task is over.

        Args:
            body: text, a part, or a list of parts
            ack: False: the letter that opened the task stays claimed
            **fields: further fields of the letter, such as subject, priority, kind, cc, at, expires, key and data;
                see `keywords.Fields`
        """
        return self._move("accept", body=body, ack=ack, **fields)

    def admit(self, judge: Judge | None = None, *, ack: bool = True) -> bool:
        """Accept or reject the task, as the rules and a judge decide; return whether it is accepted.

        Args:
            judge: a function that decides after the rules
            ack: False: the letter that opened the task stays claimed
        """
        self._update(self._perform(tasks.Admit, id=self.id, judge=judge, lease=self._lease, ack=ack))
        return self.state is TaskState.ACCEPTED

    def reject(self, reason: str, **fields: Unpack[Fields]) -> Receipt:
        """Reject the task.

        Args:
            reason: why
            **fields: further fields of the letter, such as subject, priority, kind, cc, at, expires, key and data;
                see `keywords.Fields`
        """
        return self._move("reject", reason=reason, **fields)

    def start(self, body: Body = None, **fields: Unpack[Fields]) -> Receipt:
        """Begin to work on the task, or go on without an answer to a question.

        Args:
            body: text, a part, or a list of parts
            **fields: further fields of the letter, such as subject, priority, kind, cc, at, expires, key and data;
                see `keywords.Fields`
        """
        return self._move("start", body=body, **fields)

    def complete(self, result: Body = None, **fields: Unpack[Fields]) -> Receipt:
        """Complete the task; the result is the body of the letter.

        Args:
            result: the body of the letter that tells the result
            **fields: further fields of the letter, such as subject, priority, kind, cc, at, expires, key and data;
                see `keywords.Fields`
        """
        return self._move("complete", body=result, **fields)

    def fail(self, reason: str, **fields: Unpack[Fields]) -> Receipt:
        """Record that the task cannot be done.

        Args:
            reason: why
            **fields: further fields of the letter, such as subject, priority, kind, cc, at, expires, key and data;
                see `keywords.Fields`
        """
        return self._move("fail", reason=reason, **fields)

    def ask(self, question: Body, **fields: Unpack[Fields]) -> Receipt:
        """Ask the giver a question; the task waits for the answer.

        Args:
            question: the body of the letter that asks
            **fields: further fields of the letter, such as subject, priority, kind, cc, at, expires, key and data;
                see `keywords.Fields`
        """
        return self._move("ask", body=question, **fields)

    def answer(self, body: Body, **fields: Unpack[Fields]) -> Receipt:
        """Answer the receiver's question; the work goes on. Only the giver can.

        Args:
            body: text, a part, or a list of parts
            **fields: further fields of the letter, such as subject, priority, kind, cc, at, expires, key and data;
                see `keywords.Fields`
        """
        return self._move("answer", body=body, **fields)

    def cancel(self, reason: str | None = None, **fields: Unpack[Fields]) -> Receipt:
        """Cancel the task. Only the giver can.

        Args:
            reason: why
            **fields: further fields of the letter, such as subject, priority, kind, cc, at, expires, key and data;
                see `keywords.Fields`
        """
        return self._move("cancel", reason=reason, **fields)

    def refresh(self) -> TaskState:
        """Read the task again, and return its state."""
        self.standing = self._perform(tasks.FindTask, id=self.id).standing
        return self.state

    def letters(self) -> list[Message]:
        """Return the letters of its thread that were sent or received here, the oldest first."""
        return self._perform(threads.GetThread, thread=self.thread).letters

    @property
    def _lease(self) -> Any:
        """The lease of the opening letter, if this object was made from the claimed letter."""
        if isinstance(self._letter, Work) and self._letter.id == self.id:
            return self._letter.delivery.lease
        return None

    def _move(
        self,
        step: str,
        *,
        body: Body = None,
        reason: Any = None,
        ack: bool = True,
        **fields: Unpack[Fields],
    ) -> Receipt:
        values = {"step": step, "body": body, "reason": reason, "lease": self._lease, "ack": ack}
        moved = self._perform(tasks.TaskStep, id=self.id, **values, **compose.letter_fields(fields))
        self._update(moved)
        return moved.receipt

    def _perform(self, verb: Callable[..., Runs[T]], **params: Any) -> T:
        box = self._mailbox
        return perform(box.core, box.principal, verb(agent_id=box.name, **params))

    def _update(self, moved: Moved) -> None:
        self.standing = moved.task.standing
        if self._letter is not None and self._letter.id == self.id and moved.delivery is not None:
            self._letter.delivery = moved.delivery
