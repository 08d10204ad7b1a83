"""How tasks move: one step at a time, by the table of `model/task.py`, each told to the other party by a letter.

Whether a step is legal, and whether a task may be taken on, is decided in the commit that writes the letter: of
two who move a task at once, one is told no. A step passes the allow list of the other party: the task itself was
let in, and the table leaves no room for more letters than steps.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from .. import service
from ..errors import DeadlinePassed, IllegalMove, Invalid, NotAllowed, PostroomError, QuotaFull, UnknownMessage
from ..model import delivery as moves
from ..model.card import Card
from ..model.codec import convert
from ..model.delivery import Delivery, State
from ..model.message import TaskNote
from ..model.record import CARD
from ..model.task import TASK_UPDATE, Standing, TaskState, check_answer, check_move, check_mover
from ..model.values import check_text
from ..policy.admission import check_admission, lacking, refusal
from ..store.base import Move
from .authorize import authorize
from .naming import names_of, resident, seen_by
from .sending import Receipt, prepare, reply_draft
from .taskbook import active_tasks, entered, task_of, was_sent
from .tasks import check_own_fields, find

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..model.delivery import Lease
    from ..model.query import Moment
    from ..policy.admission import Judge
    from ..store.base import Post, Posted, Write
    from .authorize import Principal
    from .compose import Draft
    from .office import Office

LONGEST_REASON = 2000
OWN_FIELDS = ("kind", "task", "in_reply_to", "cc", "bcc", "at")  # a step is told to the other party alone, at once


class Moved(Struct, frozen=True):
    """A task after a move, the letter that tells of it, and the opening letter's delivery if that was settled."""

    task: Standing
    receipt: Receipt
    delivery: Delivery | None


def move(
    office: Office,
    caller: Principal,
    mailbox: str,
    letter: str,
    after: TaskState,
    body: Any = None,
    *,
    reason: Any = None,
    lease: Lease | None = None,
    ack: bool = True,
    answers: bool = False,
    fields: Mapping[str, Any],
) -> Moved:
    """One step, told to the other party. The opening letter is acknowledged in the same commit: when the task is
    taken on (unless `ack` says no) or over. A step that `answers` is the giver's, to a question.
    """
    authorize(caller, "task", mailbox)
    check_own_fields(fields, OWN_FIELDS)
    task = find(office, caller, mailbox, letter)
    moment = office.now()
    why = None if reason is None else check_text(reason, "reason", LONGEST_REASON)
    draft = _update(office, caller, mailbox, task, after, body, why, fields)
    post = _step(office, caller, draft, moment)
    settled: list[Move] = []

    def plan() -> Sequence[Write]:
        settled.clear()
        if was_sent(office, post.message):
            return [post]
        current = _check_step(office, mailbox, letter, after, answers=answers)
        if after is TaskState.ACCEPTED:
            _check_admission(office, current, moment)
        settled.extend(_settle(office, current, mailbox, after, lease, moment, ack=ack))
        return entered(office, [*settled, post])

    try:
        with office.within_rate([mailbox] if post.deliveries else []):
            (posted,) = office.store.commit(plan)
    except PostroomError as error:
        if error.temporary:
            error.keys = (post.message.key or post.message.id,)
        raise
    return _moved(office, mailbox, letter, post, posted, settled)


def fail_unanswered(office: Office, caller: Principal, mailbox: str, letter: str, reason: str) -> Moved:
    """End a task whose question was not answered. The table leads there in two steps; they are one commit, so that
    no crash leaves a task at work that nobody works on.
    """
    authorize(caller, "task", mailbox)
    task = find(office, caller, mailbox, letter)
    moment = office.now()
    why = check_text(reason, "reason", LONGEST_REASON)
    steps: tuple[tuple[TaskState, str | None], ...] = ((TaskState.WORKING, None), (TaskState.FAILED, why))
    drafts = [_update(office, caller, mailbox, task, after, None, said, {}) for after, said in steps]
    posts = [_step(office, caller, draft, moment) for draft in drafts]
    settled: list[Move] = []

    def plan() -> Sequence[Write]:
        current = _check_step(office, mailbox, letter, TaskState.WORKING)
        if current.state is not TaskState.INPUT_REQUIRED:
            raise IllegalMove(f"a task that is {current.state} waits for no answer")
        settled[:] = _settle(office, current, mailbox, TaskState.FAILED, None, moment, ack=True)
        return entered(office, [*settled, *posts])

    with office.within_rate([mailbox] * len(posts)):
        *_, posted = office.store.commit(plan)
    return _moved(office, mailbox, letter, posts[-1], posted, settled)


def admit(
    office: Office,
    caller: Principal,
    mailbox: str,
    letter: str,
    judge: Judge | None = None,
    *,
    lease: Lease | None = None,
    ack: bool = True,
) -> Moved:
    """Take a task on, or reject it with the reason; either way its giver is answered, in one commit.

    The judge is asked first, outside of the commit: it may think for as long as it likes.
    """
    authorize(caller, "task", mailbox)
    if judge is not None and not callable(judge):
        raise Invalid(f"must be a function, not {type(judge).__name__}", field="judge")
    task = find(office, caller, mailbox, letter)
    _check_step(office, mailbox, letter, TaskState.ACCEPTED)
    unfit = _why_not(office, task, office.now()) or _judged(office, task, judge or lacking)
    moment = office.now()
    service.moving.let_time_pass(office, moment, (mailbox,))
    settled: list[Move] = []
    posts: list[Post] = []

    def plan() -> Sequence[Write]:
        current = _check_step(office, mailbox, letter, TaskState.ACCEPTED)
        why = _why_not(office, current, moment) or unfit
        after = TaskState.ACCEPTED if why is None else TaskState.REJECTED
        draft = _update(office, caller, mailbox, current, after, None, why, {})
        posts[:] = [_step(office, caller, draft, moment)]
        settled[:] = _settle(office, current, mailbox, after, lease, moment, ack=ack)
        return entered(office, [*settled, *posts])

    with office.within_rate([mailbox]):
        (posted,) = office.store.commit(plan)
    return _moved(office, mailbox, letter, posts[0], posted, settled)


def _step(office: Office, caller: Principal, draft: Draft, moment: Moment) -> Post:
    """The letter of a step, which passes the other party's guard."""
    post = prepare(office, caller, draft, moment.wall)
    return replace(post, admit=partial(service.addressing.addressed, office, ask=False))


def _update(
    office: Office,
    caller: Principal,
    mailbox: str,
    task: Standing,
    after: TaskState,
    body: Any,
    reason: str | None,
    fields: Mapping[str, Any],
) -> Draft:
    """The letter that tells of a move. A stranger's callback is echoed in it, as in every reply."""
    note = TaskNote(id=task.id, state=after, reason=reason)
    said = (reason or str(after)) if body is None else body
    return reply_draft(
        office, caller, mailbox, task.letter, said, **(dict(fields) | {"kind": TASK_UPDATE, "task": note})
    )


def _check_step(office: Office, mailbox: str, letter: str, after: TaskState, *, answers: bool = False) -> Standing:
    """The task as it is now, if this move is legal and this mailbox may make it."""
    task = task_of(office, mailbox, letter)
    if task is None:  # deleted, taken back or carried to another name since it was found
        service.reading.check_spelling(office, mailbox)
        raise UnknownMessage(f"no task {letter!r} in {mailbox!r}", field="id")
    if answers:
        check_answer(task, mailbox)
    check_move(task.state, after)
    check_mover(task, mailbox, after)
    return task


def _settle(
    office: Office,
    task: Standing,
    mailbox: str,
    after: TaskState,
    lease: Lease | None,
    moment: Moment,
    *,
    ack: bool,
) -> list[Move]:
    """The ack of the opening letter, where it is due. Whoever holds that letter moves the task, nobody else."""
    if mailbox != task.receiver:
        return []
    delivery = service.reading.received(office, mailbox, task.letter).delivery
    if delivery.state is State.DEAD and after is TaskState.ACCEPTED:
        raise IllegalMove(f"its letter is dead: {delivery.reason}", field="id", hint="revive it first")
    if delivery.state in {State.DONE, State.DEAD}:
        return []
    service.holding.check_holder(delivery, lease, moment)
    over = after in {TaskState.COMPLETED, TaskState.FAILED, TaskState.REJECTED}
    if over or (after is TaskState.ACCEPTED and ack):
        return [Move(delivery, moves.ack(delivery, moment.wall, archive=True), "ack")]
    return []


def _moved(
    office: Office, mailbox: str, letter: str, post: Post, posted: Posted, settled: Sequence[Move]
) -> Moved:
    task = task_of(office, resident(office, mailbox), letter)  # it may be renamed since
    if task is None:
        raise UnknownMessage(f"no task {letter!r} in {mailbox!r}", field="id")
    message = post.message
    if posted.repeated:
        first = office.store.get((posted.message_id,)).get(posted.message_id)
        message = message if first is None else first.message
    receipt = Receipt(message=message, repeated=posted.repeated, unknown=posted.unknown)
    return Moved(task, receipt, settled[0].after if settled else None)


# -- admission


def _check_admission(office: Office, task: Standing, moment: Moment) -> None:
    card = _card(office, task.receiver, moment)
    check_admission(
        task,
        giver=names_of(office, task.giver),
        guard=service.addressing.guard_at(office, task.receiver),
        busy_with=active_tasks(office, task.receiver),
        most=card.max_concurrent_tasks,
        now=moment.wall,
    )


def _why_not(office: Office, task: Standing, moment: Moment) -> str | None:
    """The word for a refusal by the rules."""
    try:
        _check_admission(office, task, moment)
    except (NotAllowed, DeadlinePassed, QuotaFull) as refused:
        return refusal(refused)
    return None


def _judged(office: Office, task: Standing, judge: Judge) -> str | None:
    letter = service.reading.received(office, task.receiver, task.letter).message
    verdict: Any = judge(_card(office, task.receiver, office.now()), seen_by(office, letter, task.receiver))
    return None if verdict is None else check_text(verdict, "judge", LONGEST_REASON) or "not fit"


def _card(office: Office, agent: str, moment: Moment) -> Card:
    """Its card; a bare one for whoever never registered."""
    found = office.store.records(CARD, agent)
    return convert(found[0].value, Card) if found else Card(id=agent, registered_at=moment.wall)
