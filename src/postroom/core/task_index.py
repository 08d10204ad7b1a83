"""The task index: the current state of every task, kept beside the letters so that no thread is read to know it.

It is the fold of `model/task.py`, made letter by letter: every commit that posts a letter with a note about a task
also writes the index. Which record holds what is defined in `model/task.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..model.codec import convert
from ..model.delivery import UNSENT, State
from ..model.message import same_name
from ..model.query import Query
from ..model.record import ACTIVE_TASKS, FORGOTTEN, SESSION, SPENT, TASKS, pair_key
from ..model.task import (
    TASK,
    TASK_UPDATE,
    RecordBuffer,
    TaskState,
    TaskStatus,
    advance,
    note_task,
    open_task,
    task_above,
    write_task,
)
from ..store.protocol import Post, Put, first_sent
from . import names
from .core import find_value, values_of
from .proof import is_unproven

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from ..model.message import Message
    from ..model.task import Step
    from ..store.protocol import Write
    from .core import Core


def with_index(core: Core, writes: Iterable[Write], step: Step | None = None) -> list[Write]:
    """Return these writes, preceded by the changes of the index that their letters make. Belongs inside a plan."""
    pages, planned = RecordBuffer(core.store.records), list(writes)
    for place, write in enumerate(planned):
        if not isinstance(write, Post) or write.message.task is None or was_sent(core, write.message):
            continue
        message, opened = write.message, open_task(write.message)
        before = task_above(pages, message)
        if opened is not None:
            # The receiver of a task must be known here: let the store's question be answered now, and give the
            # store this answer, so that an `any:` address is not decided twice.
            ready = write if write.admit is None else write.admit(write)
            planned[place] = replace(write, admit=lambda _post, ready=ready: ready)
            # The letter may name a former name, or only a skill.
            receiver = next(one.mailbox for one in ready.deliveries if one.kind == "to")
            write_task(pages, replace(opened, receiver=receiver))
        elif before is not None and is_unproven(core, message):
            continue  # a letter in a person's name moves no task (G12)
        elif before is not None and (after := (step or advance)(before, message)) != before:
            write_task(pages, after)
    return [*_puts(pages), *planned]


def remove_tasks(core: Core, messages: Sequence[Message]) -> list[Write]:
    """Return the writes for deleted letters: every task that one of them opened leaves the index."""
    pages = RecordBuffer(core.store.records)
    for message in messages:
        task = opened_by(core, message)
        if task is not None:
            for party in (task.giver, task.receiver):
                pages.write(TASKS + party, task.letter, None)
            pages.write(SESSION, pair_key(task.giver, task.letter), None)
            note_task(pages, task, active=False, due=False)
    return _puts(pages)


def cancel_unsent(core: Core, message: Message, now: datetime, *, seen: bool) -> list[Write]:
    """Return the writes for a letter that is unsent: the task it opened is canceled.

    A receiver that never saw the letter finds no task either.
    """
    task = opened_by(core, message)
    if task is None or task.is_final:
        return []
    pages = RecordBuffer(core.store.records)
    write_task(pages, replace(task, state=TaskState.CANCELED, reason=UNSENT, moved_at=now))
    # Like the letter: a receiver that has not read it never learns of it.
    if not seen and task.receiver != task.giver:
        pages.write(TASKS + task.receiver, task.letter, None)
    return _puts(pages)


def redirect(core: Core, messages: Sequence[Message], name: str, mailbox: str) -> list[Write]:
    """Return the writes for letters that go on to a mailbox at another system: so do the tasks they open."""
    pages = RecordBuffer(core.store.records)
    for message in messages:
        task = opened_by(core, message)
        if task is not None and same_name(task.receiver, name):
            pages.write(TASKS + task.receiver, task.letter, None)
            write_task(pages, replace(task, receiver=mailbox))
    return _puts(pages)


def opened_by(core: Core, message: Message) -> TaskStatus | None:
    """Return the task that this letter opened, also if its parties were renamed since."""
    opened = open_task(message)
    return None if opened is None else task_of(core, names.current_name(core, opened.giver), message.id)


def has_moved(core: Core, message: Message) -> bool:
    """Return whether this letter is a step of a task, which the other party relies on."""
    if message.task is None or message.kind != TASK_UPDATE:
        return False
    task = task_above(
        RecordBuffer(core.store.records), replace(message, sender=names.current_name(core, message.sender))
    )
    return task is not None and task.id == message.task.id


def task_of(core: Core, mailbox: str, letter: str) -> TaskStatus | None:
    """Return the task that this letter opened, if `mailbox` gave or received it."""
    return find_value(core, TASKS + mailbox, letter, TaskStatus)


def tasks_of(core: Core, mailbox: str) -> list[TaskStatus]:
    return list(values_of(core, TASKS + mailbox, TaskStatus).values())


def known_tasks(core: Core, mailbox: str) -> list[TaskStatus]:
    """Return the tasks that a mailbox gave or received, without those whose letter has not arrived there yet.

    Without a mailbox, return every task of the room once: giver and receiver each have a record of it.
    """
    if not mailbox:
        found = (convert(record.value, TaskStatus) for record in core.store.records(TASKS, prefix=True))
        return list({task.letter: task for task in found}.values())
    scheduled = Query(mailbox=mailbox, states=(State.QUEUED,), kinds=(TASK,), order="age")
    hidden = {
        one.message.id for one in core.store.find(scheduled) if not names.is_sent_by(core, one.message, mailbox)
    }
    return [task for task in tasks_of(core, mailbox) if task.letter not in hidden]


def active_tasks(core: Core, agent: str) -> tuple[str, ...]:
    """Return the ids of the letters that opened an agent's active tasks."""
    return find_value(core, ACTIVE_TASKS, agent, tuple[str, ...]) or ()


def all_active(core: Core) -> dict[str, tuple[str, ...]]:
    """Return the active tasks of every agent that has any."""
    return values_of(core, ACTIVE_TASKS, tuple[str, ...])


def session_of(core: Core, giver: str, letter: str) -> dict[str, Any] | None:
    return find_value(core, SESSION, pair_key(giver, letter), dict[str, Any])


def _puts(pages: RecordBuffer) -> list[Write]:
    return [Put(record=record) for record in pages.changed()]


def was_sent(core: Core, message: Message) -> bool:
    """Return whether the store has this letter already, or remembers its id or key."""
    store, key = core.store, message.key or message.id
    return (
        first_sent(store, names.current_name(core, message.sender), key) is not None
        or bool(store.records(FORGOTTEN, message.id))
        or bool(store.records(SPENT, pair_key(message.sender, key)))
    )
