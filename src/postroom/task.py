"""A task as a program holds it: seen, taken on, moved. It knows its mailbox, and decides nothing itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .core import tasks, threads
from .model.task import TaskState

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Unpack

    from .core.messages import Receipt
    from .core.tasks import Moved
    from .letter import Letter
    from .mailbox import Mailbox
    from .model.message import Message
    from .model.task import Standing
    from .policy.admission import Judge
    from .settings import Fields


class TaskView:
    """What can be seen of a task: how it stood when it was last looked at or moved here."""

    standing: Standing
    session: dict[str, Any] | None

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
        """Where its letters are: `wait(thread=task.thread)`."""
        return self.standing.thread

    @property
    def deadline(self) -> datetime | None:
        return self.standing.deadline

    @property
    def reason(self) -> str | None:
        """Why it was rejected, failed or canceled, if somebody said so."""
        return self.standing.reason

    @property
    def is_final(self) -> bool:
        """Is it over? Then nobody can move it any more."""
        return self.standing.is_final

    def __repr__(self) -> str:
        about = f" {self.subject!r}" if self.subject else ""
        return f"<{type(self).__name__} {self.id} from {self.giver} to {self.receiver}{about} ({self.state})>"


class Task(TaskView):
    """A task that was given, or received, at a mailbox. Each verb tells the other party by a `task_update`."""

    def __init__(self, mailbox: Mailbox, standing: Standing, letter: Letter | None = None) -> None:
        self._mailbox = mailbox
        self._letter = letter  # the opening letter as it is held: its lease proves who may move the task
        self.standing = standing
        self.session = None
        if standing.giver == mailbox.name:
            self.session = tasks.session(mailbox._core, mailbox._caller, mailbox.name, standing.letter)

    def accept(self, body: Any = None, *, ack: bool = True, **fields: Unpack[Fields]) -> Receipt:
        """Take it on, and acknowledge the letter that opened it, in one commit.

        Without `ack` the letter stays claimed: it is offered again if its holder dies, and done when the task is.
        """
        return self._move(TaskState.ACCEPTED, body, ack=ack, **fields)

    def admit(self, judge: Judge | None = None, *, ack: bool = True) -> bool:
        """Let the rules and a judge decide: it is accepted, or rejected with the reason. Says which."""
        box = self._mailbox
        moved = tasks.admit(box._core, box._caller, box.name, self.id, judge, lease=self._lease, ack=ack)
        self._update(moved)
        return self.state is TaskState.ACCEPTED

    def reject(self, reason: str, **fields: Unpack[Fields]) -> Receipt:
        """Say no."""
        return self._move(TaskState.REJECTED, None, reason=reason, **fields)

    def start(self, body: Any = None, **fields: Unpack[Fields]) -> Receipt:
        """Work on it now, or go on without an answer to one's question."""
        return self._move(TaskState.WORKING, body, **fields)

    def complete(self, result: Any = None, **fields: Unpack[Fields]) -> Receipt:
        """Done; the result is the body of the letter."""
        return self._move(TaskState.COMPLETED, result, **fields)

    def fail(self, reason: str, **fields: Unpack[Fields]) -> Receipt:
        """It cannot be done."""
        return self._move(TaskState.FAILED, None, reason=reason, **fields)

    def ask(self, question: Any, **fields: Unpack[Fields]) -> Receipt:
        """Ask the giver for what is missing; the task waits for it."""
        return self._move(TaskState.INPUT_REQUIRED, question, **fields)

    def answer(self, body: Any, **fields: Unpack[Fields]) -> Receipt:
        """Answer the receiver's question; the work goes on. Only its giver can."""
        return self._move(TaskState.WORKING, body, answers=True, **fields)

    def cancel(self, reason: str | None = None, **fields: Unpack[Fields]) -> Receipt:
        """Take it back. Only its giver can."""
        return self._move(TaskState.CANCELED, None, reason=reason, **fields)

    def refresh(self) -> TaskState:
        """Look how it stands now."""
        box = self._mailbox
        self.standing = tasks.find(box._core, box._caller, box.name, self.id)
        return self.state

    def letters(self) -> list[Message]:
        """The letters of its thread that were sent or received here, the oldest first."""
        box = self._mailbox
        return threads.thread(box._core, box._caller, box.name, self.thread)

    @property
    def _lease(self) -> Any:
        held = self._letter is not None and self._letter.id == self.id
        return self._letter._found.delivery.lease if self._letter is not None and held else None

    def _move(
        self,
        after: TaskState,
        body: Any,
        *,
        reason: Any = None,
        ack: bool = True,
        answers: bool = False,
        **fields: Unpack[Fields],
    ) -> Receipt:
        box = self._mailbox
        moved = tasks.move(
            box._core,
            box._caller,
            box.name,
            self.id,
            after,
            body,
            reason=reason,
            lease=self._lease,
            ack=ack,
            answers=answers,
            fields=fields,
        )
        self._update(moved)
        return moved.receipt

    def _update(self, moved: Moved) -> None:
        self.standing = moved.task
        if self._letter is not None and self._letter.id == self.id and moved.delivery is not None:
            self._letter.delivery = moved.delivery
