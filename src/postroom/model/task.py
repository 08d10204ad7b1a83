"""Tasks: the transition table and the roles that may use it, the status computed from letters; escalations.

A task is defined by its letters: the `task` that opened it and the `task_update`s after it. A letter from anyone
but giver and receiver, and a transition that the table does not hold, change nothing. The status is also stored
in records, so that no thread has to be read to know it; `RecordBuffer` collects those writes.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ..errors import IllegalMove, Invalid, NotAllowed
from .codec import convert, to_plain
from .message import Priority, is_broadcast
from .record import ACTIVE_TASKS, DUE, TASKS, Record
from .values import Brief

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .message import Message

    Step: TypeAlias = Callable[["TaskStatus", Message], "TaskStatus"]  # `advance`, or `answer`

TASK = "task"  # the kind of a letter that opens a task
TASK_UPDATE = "task_update"  # the kind of a letter that changes its state
TASK_KINDS = frozenset({TASK, TASK_UPDATE})

Role: TypeAlias = Literal["giver", "receiver"]


class TaskState(StrEnum):
    """The state of a task."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    REJECTED = "rejected"
    CANCELED = "canceled"


# The transition table: state -> possible next states. A state without any is final.
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


OVER = frozenset(state for state, further in MOVES.items() if not further)  # the final states
# The states in which the receiver counts as busy with a task.
ACTIVE = frozenset({TaskState.ACCEPTED, TaskState.WORKING, TaskState.INPUT_REQUIRED})


class TaskStatus(Brief, frozen=True, kw_only=True, omit_defaults=True):
    """The status of a task after all its letters."""

    letter: str  # the id of the letter that opened it, by which Postroom knows the task
    id: str  # the id in its letters; usually the same
    thread: str
    giver: str
    receiver: str
    opened_at: datetime
    moved_at: datetime
    state: TaskState = TaskState.PENDING
    subject: str = ""
    deadline: datetime | None = None
    reason: str | None = None  # of its last transition
    last: str = ""  # the id of the letter that made the last transition

    @property
    def is_final(self) -> bool:
        return not MOVES[self.state]

    @property
    def is_active(self) -> bool:
        return self.state in ACTIVE

    def roles_of(self, agent: str) -> tuple[Role, ...]:
        """Return the roles of an agent in this task; both, if it gave the task to itself."""
        named: tuple[tuple[Role, str], ...] = (("giver", self.giver), ("receiver", self.receiver))
        return tuple(role for role, name in named if name == agent)


Standing = TaskStatus  # deprecated name


def check_state(word: str, field: str) -> TaskState:
    try:
        return TaskState(word)
    except ValueError:
        raise Invalid(f"{word!a} is not a task state", field=field, hint=", ".join(TaskState)) from None


def check_move(before: TaskState, after: TaskState) -> None:
    """Refuse a transition that the table does not hold."""
    if after not in MOVES[before]:
        legal = ", ".join(MOVES[before]) or "none, it is final"
        raise IllegalMove(f"a task that is {before} cannot become {after}", hint=f"legal from here: {legal}")


def movers(before: TaskState, after: TaskState) -> tuple[Role, ...]:
    """Return the roles that may make a transition.

    The giver cancels, the receiver does everything else. After a question either may continue: the giver by its
    answer, the receiver without one.
    """
    if after is TaskState.CANCELED:
        return ("giver",)
    return ("giver", "receiver") if before is TaskState.INPUT_REQUIRED else ("receiver",)


def check_mover(task: TaskStatus, agent: str, after: TaskState) -> None:
    """Refuse a legal transition by an agent that has not the role for it."""
    allowed = movers(task.state, after)
    if not set(allowed) & set(task.roles_of(agent)):
        raise NotAllowed(f"only the {allowed[0]} of a task can make it {after}", field="id")


def check_answer(task: TaskStatus, agent: str) -> None:
    """Refuse an answer if there is no question, and the receiver's answer to its own question."""
    if task.state is not TaskState.INPUT_REQUIRED:
        raise IllegalMove(f"the task has no open question; it is {task.state}", field="id")
    if "giver" not in task.roles_of(agent):
        raise NotAllowed(
            "only the giver of a task can answer", field="id", hint="start() goes on without an answer"
        )


def open_task(letter: Message) -> TaskStatus | None:
    """Return the task that a letter opens: one of kind `task`, with a pending note, `to` exactly one agent."""
    note = letter.task
    receivers = [r.address for r in letter.recipients if r.kind == "to"]
    if letter.kind != TASK or note is None or note.state != TaskState.PENDING:
        return None
    if len(receivers) != 1 or is_broadcast(receivers[0]):
        return None
    return TaskStatus(
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


def advance(task: TaskStatus, letter: Message) -> TaskStatus:
    """Return the task after one more letter; unchanged if the letter makes no legal transition of it."""
    note = letter.task
    if letter.kind != TASK_UPDATE or note is None or note.id != task.id or letter.thread != task.thread:
        return task
    after = TaskState(note.state) if note.state in set(TaskState) else task.state
    # Not an error: any agent can write a letter. One that makes no legal step is mail and nothing more.
    if after not in MOVES[task.state] or not set(movers(task.state, after)) & set(task.roles_of(letter.sender)):
        return task
    return replace(task, state=after, reason=note.reason, moved_at=letter.created_at, last=letter.id)


def answer(task: TaskStatus, letter: Message) -> TaskStatus:
    """Return the task like `advance`, but a result from a foreign client implies acceptance."""
    after = advance(task, letter)
    if after != task or task.state is not TaskState.PENDING:
        return after
    taken = advance(replace(task, state=TaskState.ACCEPTED), letter)
    return taken if taken.last == letter.id and "receiver" in task.roles_of(letter.sender) else task


# The records of tasks. Giver and receiver each have their own copy, so that a look-up by any other agent finds
# nothing. Two more records answer by agent (ACTIVE_TASKS) and by time (DUE).


class Due(Struct, frozen=True):
    """The deadline of a task, and the giver to notify when it passes."""

    giver: str
    at: datetime


class RecordBuffer:
    """The records as they will be after a commit, in which several letters may change the same record."""

    def __init__(self, records: Callable[[str, str], Sequence[Record]]) -> None:
        self._records = records
        self._held: dict[tuple[str, str], Record] = {}
        self._values: dict[tuple[str, str], Any] = {}

    def read(self, kind: str, key: str) -> Any:
        """Return the value of a record; None if there is none."""
        if (kind, key) not in self._values:
            found = self._records(kind, key)
            self._held[kind, key] = found[0] if found else Record(kind=kind, key=key, value=None)
            self._values[kind, key] = self._held[kind, key].value
        return self._values[kind, key]

    def write(self, kind: str, key: str, value: Any) -> None:
        self.read(kind, key)
        self._values[kind, key] = value

    def changed(self) -> list[Record]:
        """Return the records to write, each with the revision that was read."""
        return [
            Record(kind=held.kind, key=held.key, value=self._values[at], revision=held.revision)
            for at, held in self._held.items()
            if self._values[at] != held.value
        ]


def task_on(pages: RecordBuffer, party: str, letter: str) -> TaskStatus | None:
    """Return the task that a letter opened, from the records of one of its parties."""
    value = pages.read(TASKS + party, letter)
    return None if value is None else convert(value, TaskStatus)


def task_above(pages: RecordBuffer, message: Message) -> TaskStatus | None:
    """Return the task a letter is about: its sender's, found by the answered letter or the thread's root."""
    for above in (message.in_reply_to, message.thread_id):
        task = None if above is None else task_on(pages, message.sender, above)
        if task is not None:
            return task
    return None


def write_task(pages: RecordBuffer, task: TaskStatus) -> None:
    """Write the status of a task to the records of both parties."""
    for party in (task.giver, task.receiver):
        pages.write(TASKS + party, task.letter, to_plain(task))
    note_task(pages, task, active=task.is_active, due=not task.is_final)


def note_task(pages: RecordBuffer, task: TaskStatus, *, active: bool, due: bool) -> None:
    """Record whether the receiver is busy with a task, and whether its deadline is still to be watched."""
    busy_with = list(pages.read(ACTIVE_TASKS, task.receiver) or ())
    if active != (task.letter in busy_with):
        busy_with = [*busy_with, task.letter] if active else [x for x in busy_with if x != task.letter]
        pages.write(ACTIVE_TASKS, task.receiver, busy_with or None)
    if not due:
        pages.write(DUE, task.letter, None)
    # Only when the task is opened: a later step must not bring back a notice that was sent.
    elif task.deadline is not None and task.last == task.letter:
        pages.write(DUE, task.letter, to_plain(Due(giver=task.giver, at=task.deadline)))


# Escalations

ESCALATION = "escalation"  # the kind of its letters, and the name of their data part


class Escalation(Brief, frozen=True, kw_only=True):
    """A question that goes up a ladder of agents until one of them answers.

    Its letters carry the question itself.
    """

    id: str  # ESC-…
    asker: str
    reason: str
    subject: str
    priority: Priority
    rungs: tuple[str, ...]  # above the asker, the lowest first
    rung: int = 0  # the place in `rungs` that it has reached
    letters: tuple[str, ...]  # ids, one for each rung that got it
    thread: str
    opened_at: datetime
    since: datetime  # when it came to this rung
    due_at: datetime | None = None  # when it goes to the next rung, or its asker learns that there is none
    status: Literal["open", "answered", "resolved"] = "open"
    closed_at: datetime | None = None
    closed_by: str | None = None

    @property
    def reached(self) -> tuple[str, ...]:
        """The agents that got it, the lowest first."""
        return self.rungs[: self.rung + 1]

    @property
    def waits_for(self) -> str | None:
        """The agent whose answer it waits for now."""
        return self.rungs[self.rung] if self.status == "open" else None
