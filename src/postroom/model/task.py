"""The life of a task: a table of legal moves, and the fold of letters into where a task stands.

A task is not stored. It is what its letters say: the letter that opened it and the `task_update`s after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from ..errors import IllegalMove, Invalid
from .message import Message


class TaskState(StrEnum):
    PENDING = "pending"
    ACCEPTED = "accepted"
    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    REJECTED = "rejected"
    CANCELED = "canceled"


# The table. state -> the states it may go to.
MOVES: dict[TaskState, tuple[TaskState, ...]] = {
    TaskState.PENDING: (TaskState.ACCEPTED, TaskState.REJECTED),
    TaskState.ACCEPTED: (
        TaskState.WORKING,
        TaskState.COMPLETED,
        TaskState.FAILED,
        TaskState.REJECTED,
        TaskState.CANCELED,
    ),
    TaskState.WORKING: (
        TaskState.COMPLETED,
        TaskState.FAILED,
        TaskState.CANCELED,
        TaskState.INPUT_REQUIRED,
    ),
    TaskState.INPUT_REQUIRED: (TaskState.WORKING,),
    TaskState.COMPLETED: (),
    TaskState.FAILED: (),
    TaskState.REJECTED: (),
    TaskState.CANCELED: (),
}


class Task(Struct, frozen=True, kw_only=True):
    """Where a task stands after all its letters."""

    id: str
    giver: str
    state: TaskState
    deadline: datetime | None
    reason: str | None
    letters: tuple[str, ...]  # ids, in order of acceptance


def check_state(word: str, field: str) -> TaskState:
    try:
        return TaskState(word)
    except ValueError:
        hint = ", ".join(TaskState)
        raise Invalid(f"{word!a} is not a task state", field=field, hint=hint) from None


def check_move(before: TaskState, after: TaskState) -> None:
    """Refuse what the table does not hold."""
    if after not in MOVES[before]:
        legal = ", ".join(MOVES[before]) or "none, it is final"
        raise IllegalMove(f"a {before} task cannot become {after}", hint=f"legal from here: {legal}")


def fold_task(letters: Iterable[Message]) -> Task | None:
    """The task these letters tell of, in order of acceptance. An update the table refuses changes nothing."""
    task: Task | None = None
    for letter in letters:
        note = letter.task
        if note is None:
            continue
        if task is None:
            task = Task(
                id=note.id,
                giver=letter.sender,
                state=TaskState.PENDING,
                deadline=note.deadline,
                reason=note.reason,
                letters=(letter.id,),
            )
        elif note.id == task.id and note.state in MOVES[task.state]:
            task = Task(
                id=task.id,
                giver=task.giver,
                state=TaskState(note.state),
                deadline=note.deadline or task.deadline,
                reason=note.reason or task.reason,
                letters=(*task.letters, letter.id),
            )
    return task
