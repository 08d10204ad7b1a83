"""The life of a task: a table of legal moves, who may make them, and the fold of letters into where a task stands.

A task is what its letters say: the `task` that opened it and the `task_update`s after it. A letter by anybody but
the two whom it concerns, and one that the tables refuse, says nothing.
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .message import Message


if TYPE_CHECKING:
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


# The book of tasks, page by page: what is written where each time a task moves. Does no I/O of its own.
#
# Both parties have their own page, so that whoever is no party finds nothing. What is asked for by agent or by
# time
# is kept apart.


class Due(Struct, frozen=True):
    """A deadline that somebody waits for."""

    giver: str
    at: datetime


class Pages:
    """Records as they will be after this commit: several letters of one commit may change the same one."""

    def __init__(self, records: Callable[[str, str], Sequence[Record]]) -> None:
        self._records = records
        self._held: dict[tuple[str, str], Record] = {}
        self._values: dict[tuple[str, str], Any] = {}

    def read(self, kind: str, key: str) -> Any:
        """The value; None if there is none."""
        if (kind, key) not in self._values:
            found = self._records(kind, key)
            self._held[kind, key] = found[0] if found else Record(kind=kind, key=key, value=None)
            self._values[kind, key] = self._held[kind, key].value
        return self._values[kind, key]

    def write(self, kind: str, key: str, value: Any) -> None:
        self.read(kind, key)
        self._values[kind, key] = value

    def changed(self) -> list[Record]:
        """What is to be written, each over the revision that was read."""
        return [
            Record(kind=held.kind, key=held.key, value=self._values[at], revision=held.revision)
            for at, held in self._held.items()
            if self._values[at] != held.value
        ]


def task_on(pages: Pages, party: str, letter: str) -> Standing | None:
    """The task that this letter opened, on the page of one of its parties."""
    value = pages.read(TASKS + party, letter)
    return None if value is None else convert(value, Standing)


def task_above(pages: Pages, message: Message) -> Standing | None:
    """The task that a letter is about: its sender's own, by the letter it answers or the root of its thread."""
    for above in (message.in_reply_to, message.thread_id):
        task = None if above is None else task_on(pages, message.sender, above)
        if task is not None:
            return task
    return None


def write_task(pages: Pages, task: Standing) -> None:
    for party in (task.giver, task.receiver):
        pages.write(TASKS + party, task.letter, to_plain(task))
    note_task(pages, task, active=task.is_active, due=not task.is_final)


def note_task(pages: Pages, task: Standing, *, active: bool, due: bool) -> None:
    """What its receiver is busy with, and what its giver waits for."""
    busy_with = list(pages.read(ACTIVE_TASKS, task.receiver) or ())
    if active != (task.letter in busy_with):
        busy_with = [*busy_with, task.letter] if active else [x for x in busy_with if x != task.letter]
        pages.write(ACTIVE_TASKS, task.receiver, busy_with or None)
    if not due:
        pages.write(DUE, task.letter, None)
    elif task.deadline is not None and task.last == task.letter:
        pages.write(DUE, task.letter, to_plain(Due(giver=task.giver, at=task.deadline)))


# A question that climbs: who asked, why, which rung it has reached, and whether it is answered.

ESCALATION = "escalation"  # the kind of its letters, and the name of the data part they carry


class Escalation(Struct, frozen=True, kw_only=True):
    """One escalation. Its letters tell it to people; this is what the house needs to let it climb."""

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
    due_at: datetime | None = None  # when it climbs, or its asker is told that nobody is left
    status: Literal["open", "answered", "resolved"] = "open"
    closed_at: datetime | None = None
    closed_by: str | None = None

    @property
    def reached(self) -> tuple[str, ...]:
        """Everyone it was put to, the lowest first."""
        return self.rungs[: self.rung + 1]

    @property
    def waits_for(self) -> str | None:
        """Whose answer it waits for now."""
        return self.rungs[self.rung] if self.status == "open" else None
