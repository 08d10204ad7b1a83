"""What waits for somebody: escalations, questions, tasks and unread mail, each once, with what to type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..model.codec import to_plain
from ..model.message import same_name
from ..model.names import POSTMASTER
from ..model.task import TASK_UPDATE, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from ..letter import Letter
    from ..mailbox import Mailbox

MOST = 1000  # of each kind
Entry = dict[str, Any]
_STEPS = {TaskState.PENDING: "accept", TaskState.ACCEPTED: "complete", TaskState.WORKING: "complete"}


def waiting_for(box: Mailbox) -> list[Entry]:
    """The oldest first. A letter that is part of something larger is not told twice."""
    found: dict[str, Entry] = {}
    for entry in (*_escalations(box), *_questions(box), *_tasks(box), *_letters(box)):
        found.setdefault(entry["letter"], entry)
    return sorted(found.values(), key=lambda entry: (entry["since"], entry["id"]))


def _escalations(box: Mailbox) -> Iterator[Entry]:
    for one in box.escalations():
        if one.waits_for is not None and same_name(one.waits_for, box.name):
            letter = one.letters[-1]
            text, how = _said(box, one.thread, letter), f"postroom reply {letter} --done --as {box.name}"
            yield _entry("escalation", one.id, letter, one.since, one.asker, one.subject, text, how)


def _questions(box: Mailbox) -> Iterator[Entry]:
    """Tasks that were given here, and whose receiver asks."""
    for task in box.tasks("given", states=TaskState.INPUT_REQUIRED, limit=MOST):
        last, since = task.standing.last, task.standing.moved_at
        text, how = _said(box, task.thread, last), f"postroom tasks answer {task.id} --as {box.name}"
        yield _entry("question", task.id, last, since, task.receiver, task.subject, text, how)


def _tasks(box: Mailbox) -> Iterator[Entry]:
    """Tasks that were given to this mailbox, and whose next step is here."""
    for task in box.tasks("received", states=[str(state) for state in _STEPS], limit=MOST):
        text, how = (
            _said(box, task.thread, task.id),
            f"postroom tasks {_STEPS[task.state]} {task.id} --as {box.name}",
        )
        yield _entry("task", task.id, task.id, task.standing.opened_at, task.giver, task.subject, text, how)


def _letters(box: Mailbox) -> Iterator[Entry]:
    """Unread mail. News of a task that later news has overtaken waits for nobody."""
    newest = {task.standing.last for task in box.tasks(limit=MOST)}
    for letter in box.check(MOST, peek=True):
        if letter.kind != TASK_UPDATE or letter.id in newest:
            yield _letter(box, letter)


def _letter(box: Mailbox, letter: Letter) -> Entry:
    """What the house or a task tells is only to be known; whoever wrote a letter may wait for an answer."""
    is_news = letter.sender == POSTMASTER or letter.kind == TASK_UPDATE
    what, verb = ("news", f"ack {letter.id}") if is_news else ("letter", f"reply {letter.id} --done")
    since, how = letter.delivery.delivered_at or letter.created_at, f"postroom {verb} --as {box.name}"
    return _entry(what, letter.id, letter.id, since, letter.sender, letter.subject, _first_line(letter.text), how)


def _said(box: Mailbox, thread: str, id: str) -> str:
    """The first line of a letter, without stamping it as read."""
    return next((_first_line(message.text) for message in box.thread(thread) if message.id == id), "")


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _entry(
    what: str, id: str, letter: str, since: datetime, sender: str, subject: str, text: str, answer: str
) -> Entry:
    about = {"from": sender, "subject": subject, "text": text, "answer": answer}
    return {"what": what, "id": id, "letter": letter, "since": to_plain(since), **about}
