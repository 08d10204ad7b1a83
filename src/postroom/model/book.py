"""The book of tasks, page by page: what is written where each time a task moves. Does no I/O of its own.

Both parties have their own page, so that whoever is no party finds nothing. What is asked for by agent or by time
is kept apart.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from .codec import convert, to_plain
from .record import ACTIVE, DUE, TASKS, Record
from .task import Standing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .message import Message


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
    busy_with = list(pages.read(ACTIVE, task.receiver) or ())
    if active != (task.letter in busy_with):
        busy_with = [*busy_with, task.letter] if active else [x for x in busy_with if x != task.letter]
        pages.write(ACTIVE, task.receiver, busy_with or None)
    if not due:
        pages.write(DUE, task.letter, None)
    elif task.deadline is not None and task.last == task.letter:
        pages.write(DUE, task.letter, to_plain(Due(giver=task.giver, at=task.deadline)))
