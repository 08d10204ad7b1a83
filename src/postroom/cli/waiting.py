"""What waits for somebody: escalations, questions, tasks and mail, each once, with what to type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..model.codec import to_plain
from ..model.message import Priority, same_name
from ..model.names import POSTMASTER
from ..model.task import TASK_UPDATE, TaskState
from ..service.escalating import MARK
from .escape import due

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from ..letter import Letter
    from ..mailbox import Mailbox

MOST = 1000  # of each kind
Entry = dict[str, Any]
URGENT = Priority.URGENT.name.lower()
_STEPS = {TaskState.PENDING: "accept", TaskState.ACCEPTED: "complete", TaskState.WORKING: "complete"}
_HOLDS_UP = {"escalation": 0, "question": 0, "task": 1, "letter": 2}  # whoever asks stands still meanwhile


class Said(NamedTuple):
    """What is told of a letter that nobody opened."""

    text: str = ""  # its first line
    priority: Priority = Priority.NORMAL


Texts = dict[str, Said]  # by the id of a letter


def waiting_for(box: Mailbox, *, opened: bool = False, texts: Texts | None = None) -> list[Entry]:
    """The oldest first. A letter that is part of something larger is not told twice. `opened`: also letters that
    were read, and not done with. Whoever asks often brings `texts`, which are kept there: letters never change.
    """
    known = {} if texts is None else texts
    steps = list(steps_for(box, known))
    found: dict[str, Entry] = {}
    for entry in (*steps, *_letters(box, opened, MOST + len(steps))):  # the letters of steps are among them
        found.setdefault(entry["letter"], entry)
    return sorted(found.values(), key=lambda entry: (entry["since"], entry["id"]))


def questions_first(entries: list[Entry]) -> list[Entry]:
    """The oldest question first, then the oldest task, letter and news."""
    return sorted(entries, key=lambda entry: _HOLDS_UP.get(entry["what"], 3))


def about(entry: Entry) -> str:
    """Its subject, less the word that says what it is: that is told beside it."""
    subject: str = entry["subject"]
    return subject.removeprefix(MARK).lstrip() if entry["what"] == "escalation" else subject


def presses(entry: Entry, now: datetime) -> list[str]:
    """Why it should not wait much longer, in a word or two each."""
    deadline = due(entry["due_at"], now)
    said = [f"due {deadline}" if deadline.startswith("in ") else deadline] if deadline else []
    return [URGENT, *said] if entry["priority"] == URGENT else said


def steps_for(box: Mailbox, texts: Texts | None = None) -> Iterator[Entry]:
    """What goes on only by a step of this mailbox's agent."""
    known = {} if texts is None else texts
    yield from _escalations(box, known)
    yield from _questions(box, known)
    yield from _tasks(box, known)


def _escalations(box: Mailbox, texts: Texts) -> Iterator[Entry]:
    for one in box.escalations():
        if one.waits_for is not None and same_name(one.waits_for, box.name):
            letter = one.letters[-1]
            said, how = _said(box, one.thread, letter, texts), f"postroom reply {letter} --done --as {box.name}"
            yield _entry("escalation", one.id, letter, one.thread, one.since, one.asker, one.subject, said, how)


def _questions(box: Mailbox, texts: Texts) -> Iterator[Entry]:
    """Tasks that were given here, and whose receiver asks."""
    for task in box.tasks("given", states=TaskState.INPUT_REQUIRED, limit=MOST):
        last, since = task.standing.last, task.standing.moved_at
        said, how = _said(box, task.thread, last, texts), f"postroom tasks answer {task.id} --as {box.name}"
        told = (since, task.receiver, task.subject, said, how)
        yield _entry("question", task.id, last, task.thread, *told, state=task.state)


def _tasks(box: Mailbox, texts: Texts) -> Iterator[Entry]:
    """Tasks that were given to this mailbox, and whose next step is here."""
    for task in box.tasks("received", states=[str(state) for state in _STEPS], limit=MOST):
        said = _said(box, task.thread, task.id, texts)
        how = f"postroom tasks {_STEPS[task.state]} {task.id} --as {box.name}"
        told = (task.standing.opened_at, task.giver, task.subject, said, how)
        yield _entry(
            "task", task.id, task.id, task.thread, *told, state=task.state, deadline=task.standing.deadline
        )


def _letters(box: Mailbox, opened: bool, most: int) -> Iterator[Entry]:
    """Mail that is not done with. News of a task that later news has overtaken waits for nobody."""
    newest = {task.standing.last for task in box.tasks(limit=MOST)}
    for letter in box.check(most, peek=True, unread_only=not opened):
        if letter.kind != TASK_UPDATE or letter.id in newest:
            yield _letter(box, letter)


def _letter(box: Mailbox, letter: Letter) -> Entry:
    """What the house or a task tells is only to be known; whoever wrote a letter may wait for an answer."""
    is_news = letter.sender == POSTMASTER or letter.kind == TASK_UPDATE
    what, verb = ("news", f"ack {letter.id}") if is_news else ("letter", f"reply {letter.id} --done")
    since, how = letter.delivery.delivered_at or letter.created_at, f"postroom {verb} --as {box.name}"
    told = (since, letter.sender, letter.subject, Said(_first_line(letter.text), letter.priority), how)
    return _entry(what, letter.id, letter.id, letter.thread, *told, read=letter.delivery.read_at is not None)


def _said(box: Mailbox, thread: str, id: str, texts: Texts) -> Said:
    """How a letter begins, without stamping it as read."""
    if id not in texts:
        texts |= {one.id: Said(_first_line(one.text), one.priority) for one in box.thread(thread)}
    return texts.setdefault(id, Said())


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _entry(
    what: str,
    id: str,
    letter: str,
    thread: str,
    since: datetime,
    sender: str,
    subject: str,
    said: Said,
    answer: str,
    *,
    state: TaskState | None = None,
    deadline: datetime | None = None,
    read: bool | None = None,
) -> Entry:
    about = {"from": sender, "subject": subject, "text": said.text, "priority": said.priority.name.lower()}
    how = {
        "thread": thread,
        "state": None if state is None else str(state),
        "due_at": to_plain(deadline),
        "read": read,
    }
    return {"what": what, "id": id, "letter": letter, "since": to_plain(since), **about, "answer": answer, **how}
