"""What waits for an agent, or for anybody: escalations, questions about tasks, tasks and mail, each once.

The sender of a question cannot go on before the answer, so each entry says since when it waits, how urgent it is,
and with which command it is answered. Nothing is marked as read.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Invalid
from ..model.delivery import State
from ..model.message import Priority, same_name
from ..model.names import POSTMASTER, check_party, meant
from ..model.query import Query
from ..model.task import ESCALATION, TASK_UPDATE, TaskState
from ..model.values import Brief, check_limit
from .deliveries import apply_timers
from .escalation import ListEscalations
from .inbox import READABLE, check_spelling
from .task_index import known_tasks
from .verb import MailboxVerb, verb

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..model.query import Found
    from ..model.task import Escalation, TaskStatus
    from .authorize import Principal
    from .core import Core


MOST = 1000  # letters that are looked at
LONGEST = 1000  # characters of a first line
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


class Unlisted(Brief, frozen=True, kw_only=True):
    """An agent from which more unread letters wait than are listed."""

    sender: str
    letters: int  # that are not listed


class WaitingList(Struct):
    """What waits for one mailbox or, for an operator, in the room."""

    mailbox: str  # empty: the whole room
    waiting: list[Entry]
    more: int  # entries that are not shown, as far as they are counted
    senders: list[Unlisted] = []  # of one mailbox: whose letters are not listed, the fewest first
    next: int | None = None  # of letters of one sender: `after` of the next page


@verb("waiting", WaitingList, action="waiting", many=True, writes=False, everyone=True)
class Waiting(MailboxVerb, kw_only=True):
    """Return what waits: urgent entries first, then questions, tasks, letters and news, each the oldest first.

    A letter that belongs to an escalation, question or task is listed with that only. Nothing is marked as read.
    At most 1,000 letters are looked at; `senders` names everybody else, so that nobody hides behind many letters.
    """

    limit: Annotated[int | None, "how many at most"] = 20
    opened: Annotated[bool, "also letters that were read and are not settled"] = False
    mail: Annotated[bool, "false: only what goes on by a step of the agent"] = True
    sender: Annotated[str | None, "only from this agent, letters in the order in which they came"] = None
    after: Annotated[int | None, "with sender: only letters behind this number, the `next` of the page before"] = (
        None
    )

    def run(self, core: Core, principal: Principal) -> WaitingList:
        most = check_limit(self.limit)
        if self.after is not None and self.sender is None:
            raise Invalid("pages are of the letters of one sender", field="after", hint="sender")
        sender = None if self.sender is None else meant(check_party(self.sender, "sender"), core.limits.human)
        if self.agent_id:
            apply_timers(core, core.now(), (self.agent_id,))
        tasks = known_tasks(core, self.agent_id)
        steps = self._steps(core, principal, tasks, sender)
        look = MOST + len(steps) if sender is None else min(most or MOST, MOST)
        letters = self._letters(core, sender, look) if self.mail else []
        ordered = self._ordered(core, principal, tasks, steps, letters)
        if sender is not None:
            behind = _number(letters[-1]) if len(letters) == look else None
            return WaitingList(self.agent_id, ordered, 0 if behind is None else 1, next=behind)
        shown = ordered[:most]
        more = len(ordered) - len(shown)
        senders = []
        if self.mail and self.agent_id and (more or len(letters) >= MOST):
            senders = self._unlisted(core, letters, ordered[most:])
            more = max(more, sum(one.letters for one in senders))
        return WaitingList(self.agent_id, shown, more, senders)

    def find(self, core: Core, principal: Principal, letter: str) -> Entry | None:
        """Return the entry of one letter, if it waits, however many others do."""
        tasks = known_tasks(core, self.agent_id)
        steps = [one for one in self._steps(core, principal, tasks, None) if one.letter == letter]
        found = core.store.find(replace(self._unsettled(core), message_ids=(letter,)))
        return next(iter(self._ordered(core, principal, tasks, steps, found)), None)

    def _steps(
        self, core: Core, principal: Principal, tasks: Sequence[TaskStatus], sender: str | None
    ) -> list[Entry]:
        """Return what goes on by a step of the agent. Letters alone stand on later pages."""
        if self.after is not None:
            return []
        steps = [*self._escalations(core, principal), *self._of_tasks(tasks)]
        if sender is not None:
            steps = [one for one in steps if same_name(one.sender, sender)]
        return _begun(core, self.agent_id, steps)

    def _unsettled(self, core: Core) -> Query:
        unread_only, now = not self.opened, core.now().wall
        query = Query(states=(State.UNREAD,), unread_only=unread_only, offered_at=now)
        return replace(query, mailbox=self.agent_id) if self.agent_id else query

    def _letters(self, core: Core, sender: str | None, most: int) -> list[Found]:
        """Return mail that is not done: `most` leaves room for the letters of steps, which are among it."""
        query = self._unsettled(core)
        if sender is not None:
            return core.store.find(replace(query, sender=sender, after=self.after or 0, order="age", limit=most))
        found = core.store.find(replace(query, limit=most))
        if not found and self.agent_id:
            check_spelling(core, self.agent_id)
        return found

    def _ordered(
        self,
        core: Core,
        principal: Principal,
        tasks: Sequence[TaskStatus],
        steps: Sequence[Entry],
        letters: Sequence[Found],
    ) -> list[Entry]:
        """Return the entries of these, each letter once. News of a task that later news replaced is left out."""
        newest = {task.last for task in tasks}
        is_asked = any(found.message.kind == ESCALATION for found in letters)
        listed = ListEscalations(agent_id=self.agent_id, open_only=False).run(core, principal) if is_asked else []
        closed = {id: one for one in listed if one.status != "open" for id in one.letters}
        mail = [
            _of_letter(found, closed.get(found.message.id))
            for found in letters
            if found.message.kind != TASK_UPDATE or found.message.id in newest
        ]
        entries: dict[tuple[str, str], Entry] = {}
        for entry in (*steps, *mail):
            entries.setdefault((entry.letter, entry.mailbox), entry)
        return sorted(entries.values(), key=_place)

    def _unlisted(self, core: Core, letters: Sequence[Found], cut: Sequence[Entry]) -> list[Unlisted]:
        """Return whose unread letters are not listed. The store keeps the counts: no letter is read for them."""
        waits = Counter(core.store.count(Query(mailbox=self.agent_id), by="sender"))
        # They are counted, too, and have not arrived.
        queued = core.store.find(Query(mailbox=self.agent_id, states=(State.QUEUED,), limit=MOST))
        seen = [found.message for found in (*queued, *letters) if found.delivery.read_at is None]
        waits.subtract(message.sender for message in seen)
        unread = {message.id for message in seen}
        waits.update(entry.sender for entry in cut if entry.letter in unread)
        fewest = sorted((many, sender) for sender, many in waits.items() if many > 0)
        return [Unlisted(sender=sender, letters=many) for many, sender in fewest[:MOST]]

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


def _place(entry: Entry) -> tuple[bool, int, datetime, str]:
    place = 0 if entry.asks else _PLACE[entry.what]
    return entry.priority is not Priority.URGENT, place, entry.since, entry.id


def _number(found: Found) -> int:
    return found.delivery.arrived or found.delivery.number


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
    """Return the first line of a letter's text, to list it by: a line may be as long as a letter."""
    return text.lstrip()[: LONGEST + 1].rstrip().partition("\n")[0][:LONGEST]
