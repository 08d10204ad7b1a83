"""Deadlines that pass: the giver of a task that is not over by then is told, once. Written by the house."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..model.book import Due
from ..model.codec import convert
from ..model.message import OVERDUE
from ..model.record import DUE
from ..model.task import TaskState
from ..store.base import Post, Put
from .notices import about, notice
from .taskbook import task_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ..model.message import Message
    from ..model.task import Standing
    from ..store.base import Write
    from .office import Office

SLICE = 200  # notices in one commit
_SAYS = {
    TaskState.PENDING: "has not answered",
    TaskState.INPUT_REQUIRED: "waits for your answer",
}


def report_overdue(office: Office, now: datetime) -> int:
    """Tell the givers of tasks whose deadline is over. Says how many were told."""
    due = [record.key for record in office.store.records(DUE) if convert(record.value, Due).at <= now]
    told = 0

    def plan() -> Sequence[Write]:
        nonlocal told
        writes = [write for key in some for write in _report(office, key, now)]
        told += sum(isinstance(write, Post) for write in writes)
        return writes

    for start in range(0, len(due), SLICE):
        some = due[start : start + SLICE]
        office.store.commit(plan)
    return told


def _report(office: Office, key: str, now: datetime) -> list[Write]:
    """The notice, and the end of the wait for this deadline, so that there is never a second one."""
    held = office.store.records(DUE, key)
    if not held:  # another janitor was quicker, or the task is over
        return []
    done = Put(record=replace(held[0], value=None))
    task = task_of(office, convert(held[0].value, Due).giver, key)
    letter = office.store.get((key,)).get(key)
    return [done] if task is None or letter is None else [done, _notice(office, task, letter.message, now)]


def _notice(office: Office, task: Standing, letter: Message, now: datetime) -> Post:
    at = "" if task.deadline is None else task.deadline.isoformat()
    says = _SAYS.get(task.state, "has not finished")
    facts = {
        "task": task.id,
        "letter": task.letter,
        "receiver": task.receiver,
        "state": task.state,
        "deadline": at,
    }
    words = f"The deadline of your task, {at}, is over, and {task.receiver} {says}. It is {task.state}."
    subject = f"Overdue: {task.subject or task.letter}"
    where = about(letter) | {"priority": letter.priority}
    return notice(office, OVERDUE, task.giver, subject, words, facts, now, **where)
