"""What waits for an agent, or for anybody: escalations, questions about tasks, tasks and mail, each once.

The sender of a question cannot go on before the answer, so each entry says since when it waits, how urgent it is,
and with which command it is answered. Nothing is marked as read.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ..model.delivery import State
from ..model.message import Priority, same_name
from ..model.names import POSTMASTER
from ..model.query import Query
from ..model.task import ESCALATION, TASK_UPDATE, TaskState
from ..model.values import Brief, check_limit
from .deliveries import apply_timers
from .escalation import ListEscalations
from .inbox import READABLE, Check
from .task_index import known_tasks
from .verb import MailboxVerb, verb

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..model.query import Found
    from ..model.task import Escalation, TaskStatus
    from .authorize import Principal
    from .core import Core


MOST = 1000  # letters that are looked at
REQUEST = "request"  # the kind of a letter that its sender waits for an answer to
What: TypeAlias = Literal["escalation", "question", "task", "letter", "news"]
_PLACE = {"escalation": 0, "question": 0, "task": 1, "letter": 2, "news": 3}  # whoever asked cannot go on
_STEPS = {TaskState.PENDING: "accept", TaskState.ACCEPTED: "complete", TaskState.WORKING: "complete"}
_ARRIVED = (*READABLE, State.DONE, State.DEAD)


class Entry(Brief, frozen=True, kw_only=True):
    """One thing that waits for an agent."""

    what: What
    id: str  # of the escalation, the task or the letter
    letter: str  # the id of its letter
    since: datetime
    sender: str
    subject: str
    text: str = ""  # the first line of the letter
    priority: Priority = Priority.NORMAL
    answer: str  # the command to type
    thread: str
    state: TaskState | None = None  # of a task, or of the task that a question or news is about
    due_at: datetime | None = None  # of a task
    read: bool | None = None  # of a letter: was it read?
    asks: bool = False  # of a letter: its sender waits for an answer
    mailbox: str  # for whom it waits


class WaitingList(Struct):
    """What waits for one mailbox or, for an operator, in the room."""

    mailbox: str  # empty: the whole room
    waiting: list[Entry]
    more: int  # entries that are not shown


@verb("waiting", WaitingList, action="waiting", many=True, writes=False, everyone=True)
class Waiting(MailboxVerb, kw_only=True):
    """Return what waits: urgent entries first, then questions, tasks, letters and news, each the oldest first.

    A letter that belongs to an escalation, question or task is listed with that only. Nothing is marked as read.
    """

    limit: Annotated[int | None, "how many at most"] = 20
    opened: Annotated[bool, "also letters that were read and are not settled"] = False
    mail: Annotated[bool, "false: only what goes on by a step of the agent"] = True

    def run(self, core: Core, principal: Principal) -> WaitingList:
        most = check_limit(self.limit)
        mailbox = self.agent_id
        if mailbox:
            apply_timers(core, core.now(), (mailbox,))
        tasks = known_tasks(core, mailbox)
        steps = [*self._escalations(core, principal), *self._of_tasks(tasks)]
        steps = _begun(core, mailbox, steps)
        mail = self._mail(core, principal, tasks, MOST + len(steps)) if self.mail else []
        found: dict[tuple[str, str], Entry] = {}
        for entry in (*steps, *mail):
            found.setdefault((entry.letter, entry.mailbox), entry)
        ordered = sorted(found.values(), key=_place)
        shown = ordered[:most]
        return WaitingList(mailbox, shown, len(ordered) - len(shown))

    def _escalations(self, core: Core, principal: Principal) -> list[Entry]:
        listed = ListEscalations(agent_id=self.agent_id).run(core, principal)
        return [
            Entry(
                what="escalation",
                id=one.id,
                letter=one.letters[-1],
                since=one.since,
                sender=one.asker,
                subject=one.subject,
                priority=one.priority,
                answer=f"postroom reply {one.letters[-1]} --done --as {one.waits_for}",
                thread=one.thread,
                mailbox=one.waits_for,
            )
            for one in listed
            if one.waits_for is not None and (not self.agent_id or same_name(one.waits_for, self.agent_id))
        ]

    def _of_tasks(self, tasks: Sequence[TaskStatus]) -> Iterator[Entry]:
        """Yield the tasks whose giver must answer a question, and those whose receiver takes the next step."""
        for task in tasks:
            if task.state is TaskState.INPUT_REQUIRED and self.agent_id in {"", task.giver}:
                yield _of_task(task, "question", task.last, task.moved_at, task.receiver, "answer", task.giver)
            if task.state in _STEPS and self.agent_id in {"", task.receiver}:
                step = _STEPS[task.state]
                yield _of_task(task, "task", task.letter, task.opened_at, task.giver, step, task.receiver)

    def _mail(self, core: Core, principal: Principal, tasks: Sequence[TaskStatus], most: int) -> list[Entry]:
        """Return mail that is not done. News of a task that later news replaced is left out.

        `most` leaves room for the letters of steps, which are among the unread.
        """
        if self.agent_id:
            check = Check(agent_id=self.agent_id, limit=most, peek=True, unread_only=not self.opened)
            letters = check.run(core, principal).letters
        else:
            now = core.now().wall
            query = Query(states=(State.UNREAD,), unread_only=not self.opened, offered_at=now, limit=most)
            letters = core.store.find(query)
        newest = {task.last for task in tasks}
        is_asked = any(found.message.kind == ESCALATION for found in letters)
        listed = ListEscalations(agent_id=self.agent_id, open_only=False).run(core, principal) if is_asked else []
        closed = {id: one for one in listed if one.status != "open" for id in one.letters}
        return [
            _of_letter(found, closed.get(found.message.id))
            for found in letters
            if found.message.kind != TASK_UPDATE or found.message.id in newest
        ]


def _place(entry: Entry) -> tuple[bool, int, datetime, str]:
    place = 0 if entry.asks else _PLACE[entry.what]
    return entry.priority is not Priority.URGENT, place, entry.since, entry.id


def _of_task(
    task: TaskStatus, what: What, letter: str, since: datetime, sender: str, step: str, mailbox: str
) -> Entry:
    return Entry(
        what=what,
        id=task.letter,
        letter=letter,
        since=since,
        sender=sender,
        subject=task.subject,
        answer=f"postroom tasks {step} {task.letter} --as {mailbox}",
        thread=task.thread,
        state=task.state,
        due_at=task.deadline if what == "task" else None,
        mailbox=mailbox,
    )


def _of_letter(found: Found, closed: Escalation | None) -> Entry:
    """Return the entry of a letter, which may be a question that is closed.

    News from the postmaster or a task and closed questions need no answer; other letters may.
    """
    letter, delivery = found.message, found.delivery
    is_news = letter.sender == POSTMASTER or letter.kind == TASK_UPDATE or closed is not None
    state = letter.task.state if letter.task and letter.kind == TASK_UPDATE else None
    step = f"ack {letter.id}" if is_news else f"reply {letter.id} --done"
    return Entry(
        what="news" if is_news else "letter",
        id=letter.id,
        letter=letter.id,
        since=delivery.delivered_at or letter.created_at,
        sender=letter.sender,
        subject=letter.subject,
        text=f"{closed.status} by {closed.closed_by}; nothing more is asked"
        if closed
        else first_line(letter.text),
        priority=letter.priority,
        answer=f"postroom {step} --as {delivery.mailbox}",
        thread=letter.thread,
        state=TaskState(state) if state in set(TaskState) else None,
        read=delivery.read_at is not None,
        asks=letter.kind == REQUEST,
        mailbox=delivery.mailbox,
    )


def _begun(core: Core, mailbox: str, entries: list[Entry]) -> list[Entry]:
    """Return the entries with the beginnings of their letters and their priority, as the mailbox may see them."""
    ids = tuple({entry.letter for entry in entries})
    wanted = Query(mailbox=mailbox or None, message_ids=ids, states=_ARRIVED, shown_only=True, order="age")
    letters = {found.message.id: found.message for found in core.store.find(wanted)} if ids else {}
    return [
        replace(entry, text=first_line(letters[entry.letter].text), priority=letters[entry.letter].priority)
        if entry.letter in letters
        else entry
        for entry in entries
    ]


def first_line(text: str) -> str:
    """Return the first line of a letter's text, to list it by."""
    return text.strip().partition("\n")[0]
