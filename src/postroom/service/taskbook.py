"""The book of tasks: where each stands, kept beside the letters so that nobody reads a thread to know.

It is the fold of `model/task.py`, made letter by letter: whatever posts a letter with a note about a task writes
this in the same commit. Both parties have their own page, so that whoever is no party finds nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from .. import service
from ..model.codec import convert, to_plain
from ..model.delivery import UNSENT
from ..model.record import ACTIVE, DUE, FORGOTTEN, SESSION, SPENT, TASKS, Record, session_key, spent_key
from ..model.task import TASK_UPDATE, Standing, TaskState, advance, open_task
from ..store.base import Post, Put

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..model.message import Message
    from ..store.base import Write
    from .office import Office


class Due(Struct, frozen=True):
    """A deadline that somebody waits for."""

    giver: str
    at: datetime


class Pages:
    """Records as they will be after this commit: several letters of one commit may change the same one."""

    def __init__(self, office: Office) -> None:
        self._store = office.store
        self._held: dict[tuple[str, str], Record] = {}
        self._values: dict[tuple[str, str], Any] = {}

    def read(self, kind: str, key: str) -> Any:
        """The value; None if there is none."""
        if (kind, key) not in self._values:
            found = self._store.records(kind, key)
            self._held[kind, key] = found[0] if found else Record(kind=kind, key=key, value=None)
            self._values[kind, key] = self._held[kind, key].value
        return self._values[kind, key]

    def write(self, kind: str, key: str, value: Any) -> None:
        self.read(kind, key)
        self._values[kind, key] = value

    def puts(self) -> list[Write]:
        """What changed."""
        return [
            Put(record=Record(kind=held.kind, key=held.key, value=self._values[at], revision=held.revision))
            for at, held in self._held.items()
            if self._values[at] != held.value
        ]


def entered(office: Office, writes: Iterable[Write]) -> list[Write]:
    """These writes, and before them what their letters change in the book. Part of a plan: it looks first."""
    pages, planned = Pages(office), list(writes)
    for place, write in enumerate(planned):
        if not isinstance(write, Post) or write.message.task is None or was_sent(office, write.message):
            continue
        message, opened = write.message, open_task(write.message)
        before = _task_above(pages, message)
        if opened is not None:
            ready = write if write.admit is None else write.admit(write)
            planned[place] = replace(write, admit=lambda _post, ready=ready: ready)
            _write(pages, _received(opened, ready))
        elif before is not None and (after := advance(before, message)) != before:
            _write(pages, after)
    return [*pages.puts(), *planned]


def _received(task: Standing, post: Post) -> Standing:
    """The task with the agent that gets it: its letter may say a former name, or only a skill."""
    return replace(task, receiver=next(d.mailbox for d in post.deliveries if d.kind == "to"))


def strike(office: Office, messages: Sequence[Message]) -> list[Write]:
    """What the book loses when these letters are deleted: every task that one of them opened."""
    pages = Pages(office)
    for message in messages:
        task = opened_by(office, message)
        if task is not None:
            for party in (task.giver, task.receiver):
                pages.write(TASKS + party, task.letter, None)
            pages.write(SESSION, session_key(task.giver, task.letter), None)
            _note(pages, task, active=False, due=False)
    return pages.puts()


def take_back(office: Office, message: Message, now: datetime, *, seen: bool) -> list[Write]:
    """What the book says when a letter is unsent: the task it opened is canceled. A receiver that never saw the
    letter finds no task either.
    """
    task = opened_by(office, message)
    if task is None or task.is_final:
        return []
    pages = Pages(office)
    _write(pages, replace(task, state=TaskState.CANCELED, reason=UNSENT, moved_at=now))
    if not seen and task.receiver != task.giver:
        pages.write(TASKS + task.receiver, task.letter, None)
    return pages.puts()


def opened_by(office: Office, message: Message) -> Standing | None:
    """Where the task that this letter opened stands, whatever its parties are called by now."""
    opened = open_task(message)
    return None if opened is None else task_of(office, service.naming.resident(office, opened.giver), message.id)


def has_moved(office: Office, message: Message) -> bool:
    """Is this letter a step of a task? Then the other party goes by it."""
    if message.task is None or message.kind != TASK_UPDATE:
        return False
    task = _task_above(Pages(office), replace(message, sender=service.naming.resident(office, message.sender)))
    return task is not None and task.id == message.task.id


def task_of(office: Office, mailbox: str, letter: str) -> Standing | None:
    """Where the task that this letter opened stands, if `mailbox` gave it or was given it."""
    found = office.store.records(TASKS + mailbox, letter)
    return convert(found[0].value, Standing) if found else None


def tasks_of(office: Office, mailbox: str) -> list[Standing]:
    return [convert(record.value, Standing) for record in office.store.records(TASKS + mailbox)]


def active_tasks(office: Office, agent: str) -> tuple[str, ...]:
    """The letters that opened what an agent is busy with."""
    found = office.store.records(ACTIVE, agent)
    return tuple(found[0].value) if found else ()


def all_active(office: Office) -> dict[str, tuple[str, ...]]:
    """The same, for everyone who is busy."""
    return {record.key: tuple(record.value) for record in office.store.records(ACTIVE)}


def session_of(office: Office, giver: str, letter: str) -> dict[str, Any] | None:
    found = office.store.records(SESSION, session_key(giver, letter))
    return found[0].value if found else None


def _task_above(pages: Pages, message: Message) -> Standing | None:
    """The task that a letter is about: its sender's own, by the letter it answers or the root of its thread."""
    for above in (message.in_reply_to, message.thread_id):
        value = None if above is None else pages.read(TASKS + message.sender, above)
        if value is not None:
            return convert(value, Standing)
    return None


def _write(pages: Pages, task: Standing) -> None:
    for party in (task.giver, task.receiver):
        pages.write(TASKS + party, task.letter, to_plain(task))
    _note(pages, task, active=task.is_active, due=not task.is_final)


def _note(pages: Pages, task: Standing, *, active: bool, due: bool) -> None:
    """What is asked for by agent or by time, kept apart."""
    busy_with = list(pages.read(ACTIVE, task.receiver) or ())
    if active != (task.letter in busy_with):
        busy_with = [*busy_with, task.letter] if active else [x for x in busy_with if x != task.letter]
        pages.write(ACTIVE, task.receiver, busy_with or None)
    if not due:
        pages.write(DUE, task.letter, None)
    elif task.deadline is not None and task.last == task.letter:
        pages.write(DUE, task.letter, to_plain(Due(giver=task.giver, at=task.deadline)))


def was_sent(office: Office, message: Message) -> bool:
    """Will the store find that it has this letter already?"""
    store, key = office.store, message.key or message.id
    return (
        store.sent(service.naming.resident(office, message.sender), key) is not None
        or bool(store.records(FORGOTTEN, message.id))
        or bool(store.records(SPENT, spent_key(message.sender, key)))
    )
