"""Tasks: give one, find and list them, move them step by step, and report deadlines that passed.

A task is opened by a letter to one agent. It moves by the table of `model/task.py`, one step at a time, and each
step is a letter to the other party. Whether a step is legal, and whether a task may be accepted, is decided in the
commit that writes the letter: if two processes move a task at once, one of them gets an error. A step passes the
allow list of the other party: the task itself was let in, and the table allows no more letters than steps.

The session in which the giver was asked for a task is recorded in this room, never in the letter; what a peer says
of sessions is ignored. Where each task stands is read from `task_index`.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from itertools import dropwhile
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct
from msgspec.structs import replace

from ..errors import (
    DeadlinePassed,
    IllegalMove,
    Invalid,
    NotAllowed,
    QuotaFull,
    TooLarge,
    UnknownMessage,
)
from ..model import delivery as model_delivery
from ..model.agent import Card
from ..model.codec import blake2b, convert, encode
from ..model.delivery import Delivery, Lease, State
from ..model.message import OVERDUE, Message, TaskNote
from ..model.names import POSTMASTER, check_id
from ..model.record import CARD, DUE, SESSION, pair_key
from ..model.task import (
    TASK,
    TASK_UPDATE,
    Due,
    TaskState,
    TaskStatus,
    check_answer,
    check_move,
    check_mover,
    check_state,
    open_task,
)
from ..model.values import as_list, check_count, check_label, check_object, check_text, quoted
from ..policy.admission import Judge, check_admission, lacking, refusal
from ..store.protocol import Move, Post
from . import addressing, compose, deliveries, inbox, messages, names, threads, work
from .compose import LetterFields
from .core import commit, find_letter, find_record, find_value, put_record, values_of
from .deliveries import notice, thread_fields
from .messages import Receipt, Reply, prepare_authorised
from .names import current_name, names_of, seen_by
from .task_index import active_tasks, known_tasks, session_of, task_of, tasks_of, was_sent
from .verb import LOCAL, MailboxVerb, perform, verb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model.query import Moment
    from ..store.protocol import Plan, Write
    from .authorize import Principal
    from .core import Core


LARGEST_SESSION = 65_536  # bytes, as JSON
ROLES = {"any": {"giver", "receiver"}, "given": {"giver"}, "received": {"receiver"}}


@verb("give_task", Receipt, action="send")
class GiveTask(LetterFields, kw_only=True):
    """Give one agent a task. The session in which one was asked for it stays in this room."""

    to: Annotated[str | dict[str, Any], "who does it"]
    body: Annotated[Any, "text, or a list of parts; a file part needs its `bytes`, as base64"] = None
    deadline: Annotated[datetime | float | None, "when it must be over"] = None
    session: Annotated[dict[str, Any] | None, "where you were asked for it; stays here"] = None
    task: Annotated[Any, LOCAL] = None  # refused

    def run(self, core: Core, principal: Principal) -> Receipt:
        _check_not_chosen(self, ("kind", "task"))
        now = core.now().wall
        due = compose.check_when(self.deadline, "deadline", now)
        session = None if self.session is None else check_object(self.session, "session", core.limits.max_depth)
        if len(encode(session)) > LARGEST_SESSION:
            raise TooLarge(f"is over {LARGEST_SESSION} bytes", field="session")
        post = prepare_authorised(core, principal, self._opening(core, due), now)
        if open_task(post.message) is None:
            raise Invalid(
                "a task is for one agent",
                field="to",
                hint="create one task per agent; others may have a copy (cc)",
            )

        def plan() -> Sequence[Write]:
            # A repeat: its deadline was checked when it was first sent (G3).
            if was_sent(core, post.message):
                return [post]
            if due is not None and due <= now:
                raise DeadlinePassed(f"{due.isoformat()} is over already", field="deadline")
            # The session in the same commit: the answer may come before a second commit could be made (D7).
            if session is None:
                return [post]
            return [put_record(SESSION, pair_key(self.agent_id, post.message.id), session, None), post]

        return messages.commit_posts(core, [post], plan)[0]

    def _opening(self, core: Core, deadline: datetime | None) -> compose.Draft:
        """Return the opening letter.

        The task's name is the letter's id or, so that a repeat has the same, its key.
        """
        id = core.new_id(self.agent_id) if self.letter_id is None else check_id(self.letter_id, "id")
        name = id if self.key is None else _as_id(check_label(self.key, "key", 200))
        note = TaskNote(id=name, state=TaskState.PENDING, deadline=deadline)
        return self.drafted(to=self.to, body=self.body, kind=TASK, task=note, letter_id=id)


def _as_id(key: str) -> str:
    try:
        return check_id(key, "key")
    except Invalid:  # a key may hold blanks, an id may not
        return f"task-{blake2b(key.encode(), digest_size=16).hexdigest()}"


def _check_not_chosen(fields: LetterFields, own: Sequence[str]) -> None:
    """Raise Invalid if the caller chose a field that Postroom sets in letters about tasks."""
    for name in own:
        if getattr(fields, name) is not None:
            raise Invalid("cannot be chosen for this letter about a task", field=name)


# -- finding tasks


class FoundTask(Struct):
    """A task, and the session in which its giver was asked for it, which the giver alone sees."""

    standing: TaskStatus
    session: dict[str, Any] | None


class TaskWithLetters(Struct):
    """A task and the letters of its thread that the mailbox sent or received."""

    task: FoundTask
    letters: list[Message]


@verb("find_task", FoundTask, action="task", writes=False, local=True)
class FindTask(MailboxVerb, kw_only=True):
    """Return a task that was given or received: by any letter of it, or by its name in the letters."""

    id: Annotated[str, "the id of a letter"]

    def run(self, core: Core, _principal: Principal) -> FoundTask:
        return _with_session(core, self.agent_id, _find(core, self.agent_id, self.id))


@verb("task", TaskWithLetters, action="task", many=True, writes=False, old_names={"message_id": "id"})
class GetTask(MailboxVerb, kw_only=True):
    """Return the state of a task and its letters."""

    id: Annotated[str, "the id of a letter"]

    def run(self, core: Core, principal: Principal) -> TaskWithLetters:
        found = FindTask(agent_id=self.agent_id, id=self.id).run(core, principal)
        # The rights to a task do not include those to read letters.
        thread = threads.GetThread(agent_id=self.agent_id, thread=found.standing.thread)
        return TaskWithLetters(found, perform(core, principal, thread).letters)


def _with_session(core: Core, mailbox: str, task: TaskStatus) -> FoundTask:
    # The receiver must not learn in whose chat it was asked for (D7).
    is_givers = task.giver == (mailbox or task.giver)
    return FoundTask(task, session_of(core, task.giver, task.letter) if is_givers else None)


def _find(core: Core, mailbox: str, id: Any) -> TaskStatus:
    check_id(id, "id")
    # First what is due: a task whose letter is delayed does not exist for its receiver yet.
    deliveries.apply_timers(core, core.now(), (mailbox,))
    task = task_of(core, mailbox, id) or _task_of_update(core, mailbox, id) or _task_named(core, mailbox, id)
    if task is None:
        inbox.check_spelling(core, mailbox)
        raise UnknownMessage(f"no task {id!r} in {mailbox!r}", field="id")
    if mailbox != task.giver:
        inbox.received(core, mailbox, task.letter)  # raises while the letter has not arrived
    return task


def _task_of_update(core: Core, mailbox: str, id: str) -> TaskStatus | None:
    """Return the task that a later letter is about.

    The task index decides, by the letter it answers: what the letter says of a task is its sender's claim.
    """
    try:
        letter = messages.known_letter(core, mailbox, id)
    except UnknownMessage:
        return None
    for above in (letter.in_reply_to, letter.thread_id):
        task = None if above is None else task_of(core, mailbox, above)
        parties = set() if task is None else {task.giver, task.receiver, POSTMASTER}
        if names.current_name(core, letter.sender) in parties:
            return task
    return None


def _task_named(core: Core, mailbox: str, id: str) -> TaskStatus | None:
    named = [task for task in tasks_of(core, mailbox) if task.id == id]
    if len(named) > 1:
        raise Invalid(f"{len(named)} tasks have this id", field="id", hint="give the id of the opening letter")
    return named[0] if named else None


@verb("tasks", list[FoundTask], under="tasks", action="task", many=True, writes=False, everyone=True)
class ListTasks(MailboxVerb, kw_only=True):
    """Return tasks given or received here, the most recently moved first."""

    after: Annotated[str | None, "the id of a task: those that follow it in this order"] = None
    role: Annotated[str, "given, received or any"] = "any"
    states: Annotated[str | list[str] | None, "only in these states"] = None
    limit: Annotated[int | None, "how many at most"] = 50

    def run(self, core: Core, _principal: Principal) -> list[FoundTask]:
        if not isinstance(self.role, str) or self.role not in ROLES:
            raise Invalid(f"{quoted(self.role)} is not a role", field="role", hint=", ".join(ROLES))
        wanted = set(TaskState)
        if self.states is not None:
            words = [check_text(word, "states", 64) for word in as_list(self.states, "states")]
            wanted = {check_state(word, "states") for word in words}
        most = check_count(self.limit, "limit")
        tasks = self._of_mailbox(core) if self.agent_id else known_tasks(core, "")
        found = [task for task in tasks if task.state in wanted]
        newest = sorted(found, key=lambda task: task.moved_at, reverse=True)
        if self.after is not None:  # one that moved since is at the top again, and nothing follows that was shown
            following = dropwhile(lambda task: task.letter != self.after, newest)
            newest = list(following)[1:]
        return [_with_session(core, self.agent_id, task) for task in newest[:most]]

    def _of_mailbox(self, core: Core) -> list[TaskStatus]:
        """Return the tasks in which the mailbox has the role that is asked for."""
        mailbox = self.agent_id
        deliveries.apply_timers(core, core.now(), (mailbox,))
        found = [task for task in known_tasks(core, mailbox) if ROLES[self.role] & set(task.roles_of(mailbox))]
        inbox.check_spelling(core, mailbox, found)
        return found


# -- moving tasks

LONGEST_REASON = 2000
OWN_FIELDS = ("kind", "task", "in_reply_to", "cc", "bcc", "at")  # a step goes to the other party alone, at once


# step -> the state to which it leads, the parameter that it takes, and whether that must be given.
STEPS: dict[str, tuple[TaskState, str, bool]] = {
    "accept": (TaskState.ACCEPTED, "body", False),
    "start": (TaskState.WORKING, "body", False),
    "complete": (TaskState.COMPLETED, "body", False),
    "ask": (TaskState.INPUT_REQUIRED, "body", True),
    "answer": (TaskState.WORKING, "body", True),
    "reject": (TaskState.REJECTED, "reason", True),
    "fail": (TaskState.FAILED, "reason", True),
    "cancel": (TaskState.CANCELED, "reason", False),
}


class Moved(Struct, frozen=True):
    """A task after a move, the receipt of its letter, and the opening letter's delivery if that was settled."""

    task: FoundTask
    receipt: Receipt
    delivery: Delivery | None


@verb("task_step", Moved, action="task", also="send", old_names={"message_id": "id"})
class TaskStep(LetterFields, kw_only=True):
    """Move a task by one step.

    The letter that opened it is acknowledged in the same commit: when the task is accepted (unless `ack` is False)
    or over.
    """

    id: Annotated[str, "the id of a letter"]
    step: Annotated[str, ", ".join(STEPS)]
    token: Annotated[str | None, "the lease's token, from claim"] = None
    body: Annotated[Any, "text, or a list of parts; a file part needs its `bytes`, as base64"] = None
    reason: Annotated[str | None, "of reject, fail and cancel"] = None
    task: Annotated[Any, LOCAL] = None  # refused
    lease: Annotated[Lease | None, LOCAL] = None  # of the letter that opened it
    ack: Annotated[bool, LOCAL] = True

    def run(self, core: Core, principal: Principal) -> Moved:
        after = self._check()
        mailbox, held = self.agent_id, None
        if self.token:
            held = work.Held(agent_id=mailbox, id=self.id, token=self.token).run(core, principal).letter
        task = _find(core, mailbox, self.id)
        lease = self.lease
        if held is not None and held.message.id == task.letter:
            lease = held.delivery.lease
        moment = core.now()
        why = None if self.reason is None else check_text(self.reason, "reason", LONGEST_REASON)
        fields = compose.given_fields(self)
        post = _step(core, principal, mailbox, task, moment, after, why, self.body, **fields)

        def plan() -> Sequence[Write]:
            if was_sent(core, post.message):
                return [post]
            # Again inside the commit: both sides may move the task at once, and one of the two moves is
            # refused.
            current = _check_step(core, mailbox, task.letter, after, answers=self.step == "answer")
            if after is TaskState.ACCEPTED:
                _check_admission(core, current, moment)
            return [*_settle(core, current, mailbox, after, lease, moment, ack=self.ack), post]

        return _commit(core, mailbox, task.letter, [post], plan)

    def _check(self) -> TaskState:
        """Check the step and its parameter; return the state to which it leads."""
        if not isinstance(self.step, str) or self.step not in STEPS:
            raise Invalid(f"{quoted(self.step)} is not a step of a task", field="step", hint=", ".join(STEPS))
        after, takes, must_be_given = STEPS[self.step]
        other = "reason" if takes == "body" else "body"
        if getattr(self, other) is not None:
            raise Invalid(f"{self.step} takes a {takes}", field=other)
        if must_be_given and getattr(self, takes) is None:
            raise Invalid("is missing", field=takes)
        _check_not_chosen(self, OWN_FIELDS)
        return after


@verb("fail_unanswered_task", Moved, action="task", also="send", local=True)
class FailUnanswered(MailboxVerb, kw_only=True):
    """Fail a task whose question was not answered.

    The table leads there in two steps; they are one commit, so that no crash leaves the task `working` without a
    worker.
    """

    id: Annotated[str, "the id of a letter"]
    reason: Annotated[str, "why"]

    def run(self, core: Core, principal: Principal) -> Moved:
        mailbox, task = self.agent_id, _find(core, self.agent_id, self.id)
        moment = core.now()
        why = check_text(self.reason, "reason", LONGEST_REASON)
        step = partial(_step, core, principal, mailbox, task, moment)
        posts = [step(TaskState.WORKING, None), step(TaskState.FAILED, why)]

        def plan() -> Sequence[Write]:
            current = _check_step(core, mailbox, task.letter, TaskState.WORKING)
            # The answer may have come since the caller looked.
            if current.state is not TaskState.INPUT_REQUIRED:
                raise IllegalMove(f"a task that is {current.state} waits for no answer")
            return [*_settle(core, current, mailbox, TaskState.FAILED, None, moment, ack=True), *posts]

        return _commit(core, mailbox, task.letter, posts, plan)


@verb("admit_task", Moved, action="task", also="send", local=True)
class Admit(MailboxVerb, kw_only=True):
    """Accept a task, or reject it with the reason; either way its giver gets the answer, in one commit.

    The judge is called first, outside of the commit: it may take as long as it likes.
    """

    id: Annotated[str, "the id of a letter"]
    judge: Annotated[Judge | None, LOCAL] = None
    lease: Annotated[Lease | None, LOCAL] = None  # of the letter that opened it
    ack: Annotated[bool, LOCAL] = True

    def run(self, core: Core, principal: Principal) -> Moved:
        mailbox, judge = self.agent_id, self.judge
        if judge is not None and not callable(judge):
            raise Invalid(f"must be a function, not {type(judge).__name__}", field="judge")
        task = _find(core, mailbox, self.id)
        _check_step(core, mailbox, task.letter, TaskState.ACCEPTED)
        # The rules before the judge: a task that they refuse costs no call of a model.
        unfit = _why_not(core, task, core.now()) or _judged(core, task, judge or lacking)
        moment = core.now()
        deliveries.apply_timers(core, moment, (mailbox,))

        def answer(why: str | None) -> Post:
            after = TaskState.ACCEPTED if why is None else TaskState.REJECTED
            return _step(core, principal, mailbox, task, moment, after, why)

        posts = [answer(unfit)]

        def plan() -> Sequence[Write]:
            current = _check_step(core, mailbox, task.letter, TaskState.ACCEPTED)
            # The rules once more: while the judge thought, another task may have taken the last place.
            why = _why_not(core, current, moment) or unfit
            if why != unfit:
                posts[:] = [answer(why)]
            after = TaskState.ACCEPTED if why is None else TaskState.REJECTED
            return [*_settle(core, current, mailbox, after, self.lease, moment, ack=self.ack), *posts]

        return _commit(core, mailbox, task.letter, posts, plan)


def _step(
    core: Core,
    principal: Principal,
    mailbox: str,
    task: TaskStatus,
    moment: Moment,
    after: TaskState,
    reason: str | None,
    body: Any = None,
    **fields: Any,
) -> Post:
    """Return the letter of a step, which passes the other party's allow list.

    A foreign client's callback is echoed in it, as in every reply.
    """
    content = (reason or str(after)) if body is None else body
    fields |= {"kind": TASK_UPDATE, "task": TaskNote(id=task.id, state=after, reason=reason)}
    draft = Reply(agent_id=mailbox, id=task.letter, body=content, **fields).draft(core)
    post = prepare_authorised(core, principal, draft, moment.wall)
    # The giver of a task must get the update. The table of states bounds the number of steps, so this lets in no
    # flood.
    return replace(post, admit=partial(addressing.resolve_post, core, ask=False))


def _check_step(core: Core, mailbox: str, letter: str, after: TaskState, *, answers: bool = False) -> TaskStatus:
    """Return the task as it is now; raise unless this move is legal and this mailbox may make it."""
    task = task_of(core, mailbox, letter)
    if task is None:  # deleted or unsent since it was found
        inbox.check_spelling(core, mailbox)
        raise UnknownMessage(f"no task {letter!r} in {mailbox!r}", field="id")
    if answers:
        check_answer(task, mailbox)
    check_move(task.state, after)
    check_mover(task, mailbox, after)
    return task


def _settle(
    core: Core,
    task: TaskStatus,
    mailbox: str,
    after: TaskState,
    lease: Lease | None,
    moment: Moment,
    *,
    ack: bool,
) -> list[Move]:
    """Return the ack of the opening letter, where it is due; raise unless the caller may move the task.

    While the opening letter is claimed, only the holder of its lease moves the task (G5).
    """
    if mailbox != task.receiver:
        return []
    delivery = inbox.received(core, mailbox, task.letter).delivery
    if delivery.state is State.DEAD and after is TaskState.ACCEPTED:
        raise IllegalMove(f"its letter is dead: {delivery.reason}", field="id", hint="revive it first")
    # Settled by an earlier step; nobody holds it, so no lease is asked for.
    if delivery.state in {State.DONE, State.DEAD}:
        return []
    work.check_holder(delivery, lease, moment)
    over = after in {TaskState.COMPLETED, TaskState.FAILED, TaskState.REJECTED}
    if over or (after is TaskState.ACCEPTED and ack):
        return [Move(delivery, model_delivery.ack(delivery, moment.wall, archive=True), "ack")]
    return []


def _commit(core: Core, mailbox: str, letter: str, posts: Sequence[Post], plan: Plan) -> Moved:
    """Commit a move; return the task after it, with the receipt of its last letter."""
    settled: list[Delivery] = []

    def writes() -> Sequence[Write]:
        planned = plan()
        settled[:] = [write.after for write in planned if isinstance(write, Move)]
        return planned

    receipt = messages.commit_posts(core, posts, writes)[-1]
    task = task_of(core, current_name(core, mailbox), letter)  # the mailbox may be renamed since
    if task is None:
        raise UnknownMessage(f"no task {letter!r} in {mailbox!r}", field="id")
    return Moved(_with_session(core, mailbox, task), receipt, settled[0] if settled else None)


# -- admission


def _check_admission(core: Core, task: TaskStatus, moment: Moment) -> None:
    card = _card(core, task.receiver, moment)
    check_admission(
        task,
        giver=names_of(core, task.giver),
        guard=addressing.guard_at(core, task.receiver),
        busy_with=active_tasks(core, task.receiver),
        most=card.max_concurrent_tasks,
        now=moment.wall,
    )


def _why_not(core: Core, task: TaskStatus, moment: Moment) -> str | None:
    """Return the reason for which the rules refuse the task, or None."""
    try:
        _check_admission(core, task, moment)
    except (NotAllowed, DeadlinePassed, QuotaFull) as refused:
        return refusal(refused)
    return None


def _judged(core: Core, task: TaskStatus, judge: Judge) -> str | None:
    letter = inbox.received(core, task.receiver, task.letter).message
    verdict: Any = judge(_card(core, task.receiver, core.now()), seen_by(core, letter, task.receiver))
    return None if verdict is None else check_text(verdict, "judge", LONGEST_REASON) or "not fit"


def _card(core: Core, agent: str, moment: Moment) -> Card:
    """Return the agent's card; an empty one if it never registered."""
    return find_value(core, CARD, agent, Card) or Card(id=agent, registered_at=moment.wall)


# -- deadlines: the giver of a task that is not over by then gets one notice from the postmaster

SLICE = 200  # notices in one commit
_PROGRESS = {
    TaskState.PENDING: "has not answered",
    TaskState.INPUT_REQUIRED: "waits for your answer",
}


def report_overdue(core: Core, now: datetime, letters: Sequence[str] | None = None) -> int:
    """Send a notice to the givers of tasks whose deadline is over; return the number of notices.

    `letters` are the letters that opened these tasks; without it, all are looked for.
    """
    if letters is None:
        letters = [letter for letter, due in values_of(core, DUE, Due).items() if due.at <= now]
    notices = 0

    def plan() -> tuple[list[Write], int]:
        writes = [write for key in some for write in _report(core, key, now)]
        return writes, sum(isinstance(write, Post) for write in writes)

    # In slices: other writers wait for a commit, and a thousand deadlines may fall on one day.
    for start in range(0, len(letters), SLICE):
        some = letters[start : start + SLICE]
        notices += commit(core, plan)
    return notices


def _report(core: Core, key: str, now: datetime) -> list[Write]:
    """Return the notice, and the removal of this deadline, so that there is never a second notice."""
    held = find_record(core, DUE, key)
    if held is None:  # another janitor was quicker, or the task is over
        return []
    done = put_record(DUE, key, None, held)
    task = task_of(core, convert(held.value, Due).giver, key)
    letter = find_letter(core, key)
    return [done] if task is None or letter is None else [done, _notice(core, task, letter, now)]


def _notice(core: Core, task: TaskStatus, letter: Message, now: datetime) -> Post:
    at = "" if task.deadline is None else task.deadline.isoformat()
    progress = _PROGRESS.get(task.state, "has not finished")
    facts = {
        "task": task.id,
        "letter": task.letter,
        "receiver": task.receiver,
        "state": task.state,
        "deadline": at,
    }
    words = f"The deadline of your task, {at}, is over, and {task.receiver} {progress}. It is {task.state}."
    subject = f"Overdue: {task.subject or task.letter}"
    where = thread_fields(letter) | {"priority": letter.priority}
    return notice(core, OVERDUE, task.giver, subject, words, facts, now, **where)
