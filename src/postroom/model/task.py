"""The life of a task: a table of legal moves, who may make them, and the fold of letters into where a task stands.

A task is what its letters say: the `task` that opened it and the `task_update`s after it. A letter by anybody but
the two whom it concerns, and one that the tables refuse, says nothing.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ..errors import IllegalMove, Invalid, NotAllowed
from .message import is_broadcast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .message import Message

    Step: TypeAlias = Callable[["Standing", Message], "Standing"]  # `advance`, or `answer`

TASK = "task"  # the kind of a letter that opens a task
TASK_UPDATE = "task_update"  # and of one that moves it

Role: TypeAlias = Literal["giver", "receiver"]


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


# A task its receiver has taken on and not finished: it counts as busy with it.
ACTIVE = frozenset({TaskState.ACCEPTED, TaskState.WORKING, TaskState.INPUT_REQUIRED})


class Standing(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a task stands after all its letters."""

    letter: str  # the id of the letter that opened it: what the task is known by
    id: str  # what the letters call it; mostly the same
    thread: str
    giver: str
    receiver: str
    opened_at: datetime
    moved_at: datetime
    state: TaskState = TaskState.PENDING
    subject: str = ""
    deadline: datetime | None = None
    reason: str | None = None  # of its last move
    last: str = ""  # the id of the letter that moved it last

    @property
    def is_final(self) -> bool:
        return not MOVES[self.state]

    @property
    def is_active(self) -> bool:
        return self.state in ACTIVE

    def roles_of(self, agent: str) -> tuple[Role, ...]:
        """What an agent is in this task; both, if it gave the task to itself."""
        named: tuple[tuple[Role, str], ...] = (("giver", self.giver), ("receiver", self.receiver))
        return tuple(role for role, name in named if name == agent)


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
        raise IllegalMove(f"a task that is {before} cannot become {after}", hint=f"legal from here: {legal}")


def movers(before: TaskState, after: TaskState) -> tuple[Role, ...]:
    """Who may make this move: the giver takes a task back, the receiver does all else; either goes on after a
    question, the giver by answering it.
    """
    if after is TaskState.CANCELED:
        return ("giver",)
    return ("giver", "receiver") if before is TaskState.INPUT_REQUIRED else ("receiver",)


def check_mover(task: Standing, agent: str, after: TaskState) -> None:
    """Refuse a legal move by the wrong one of the two."""
    allowed = movers(task.state, after)
    if not set(allowed) & set(task.roles_of(agent)):
        raise NotAllowed(f"only the {allowed[0]} of a task can make it {after}", field="id")


def check_answer(task: Standing, agent: str) -> None:
    """Refuse an answer where nobody asked, and the receiver's to its own question."""
    if task.state is not TaskState.INPUT_REQUIRED:
        raise IllegalMove(f"nobody asked anything: the task is {task.state}", field="id")
    if "giver" not in task.roles_of(agent):
        raise NotAllowed(
            "only the giver of a task can answer", field="id", hint="start() goes on without an answer"
        )


def open_task(letter: Message) -> Standing | None:
    """The task this letter opens: one of kind `task`, with a pending note, to one agent. Others may get a copy."""
    note = letter.task
    receivers = [r.address for r in letter.recipients if r.kind == "to"]
    if letter.kind != TASK or note is None or note.state != TaskState.PENDING:
        return None
    if len(receivers) != 1 or is_broadcast(receivers[0]):
        return None
    return Standing(
        letter=letter.id,
        id=note.id,
        thread=letter.thread,
        giver=letter.sender,
        receiver=receivers[0],
        opened_at=letter.created_at,
        moved_at=letter.created_at,
        subject=letter.subject,
        deadline=note.deadline,
        reason=note.reason,
        last=letter.id,
    )


def advance(task: Standing, letter: Message) -> Standing:
    """The task after one more letter; the same, if that letter has nothing to say about it."""
    note = letter.task
    if letter.kind != TASK_UPDATE or note is None or note.id != task.id or letter.thread != task.thread:
        return task
    after = TaskState(note.state) if note.state in set(TaskState) else task.state
    if after not in MOVES[task.state] or not set(movers(task.state, after)) & set(task.roles_of(letter.sender)):
        return task
    return replace(task, state=after, reason=note.reason, moved_at=letter.created_at, last=letter.id)


def answer(task: Standing, letter: Message) -> Standing:
    """The same, for letters by others' rules: whoever tells a result and did not say that it accepts, accepted."""
    after = advance(task, letter)
    if after != task or task.state is not TaskState.PENDING:
        return after
    taken = advance(replace(task, state=TaskState.ACCEPTED), letter)
    return taken if taken.last == letter.id and "receiver" in task.roles_of(letter.sender) else task


def fold_task(letters: Iterable[Message]) -> Standing | None:
    """The first task these letters tell of, in order of acceptance."""
    task: Standing | None = None
    for letter in letters:
        task = open_task(letter) if task is None else advance(task, letter)
    return task
