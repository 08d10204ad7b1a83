"""Deadlines that pass: the giver of a task that is not over by then is told, once. Written by the house."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from ..model.codec import convert
from ..model.delivery import open_delivery
from ..model.message import OVERDUE, Message, Recipient
from ..model.parts import data, text
from ..model.record import DUE
from ..model.task import Standing, TaskState
from ..store.base import Post, Put, Write
from .office import POSTMASTER, Office
from .taskbook import Due, task_of

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
    notice = Message(
        id=office.ids.message(),
        sender=POSTMASTER,
        recipients=(Recipient(task.giver),),
        created_at=now,
        kind=OVERDUE,
        subject=f"Overdue: {task.subject or task.letter}"[:1000],
        parts=(
            text(f"The deadline of your task, {at}, is over, and {task.receiver} {says}. It is {task.state}."),
            data(facts, schema=OVERDUE),
        ),
        priority=letter.priority,
        scope=letter.scope,
        thread_id=letter.thread,
        thread_tag=letter.thread_tag,
        conversation_id=letter.conversation_id,
        in_reply_to=letter.id,
        trace=(POSTMASTER,),
    )
    return Post(message=notice, deliveries=(open_delivery(notice, task.giver, "to", now),))
