"""Settlement of a turn: its letter is acknowledged and the model's final answer is sent, in one commit.

The key of an answer is made of the id of its letter. However often a turn is repeated, its answer is sent once.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from ...core import tasks
from ...core.messages import Reply
from ...core.verb import perform
from ...errors import DeadlinePassed, IdTaken, IllegalMove, Invalid, NotAllowed, UnknownMessage
from ...model.codec import encode
from ...model.task import TaskState
from . import intent
from .auto_reply import AUTOMATIC
from .post import body
from .text import minute

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from ...aio import AsyncTask
    from ...model.task import TaskStatus
    from .post import AgentPost
    from .turns import ModelTurn


LONGEST_REASON = 2000
LONGEST_ANSWER = 500_000  # bytes of text as JSON; a letter holds a MiB by default, its files too
MOST_UNANSWERED = 1000  # tasks checked at once
ANSWERED_WITHIN = timedelta(days=1)
LEAST_TO_ANSWER = timedelta(minutes=2)  # a question that leaves less is not asked
LONGEST_ID = 180  # characters, within a key of 200
NO_WORDS = "(no words)"


async def open_task(post: AgentPost, letter: str | None) -> AsyncTask | None:
    """Return the task that a letter opened for this agent, or None if there is none or it is final."""
    if letter is None:
        return None
    try:
        task = await post.box.task(letter)
    except UnknownMessage:
        return None
    return None if task.is_final or task.receiver != post.name else task


async def report_working(turn: ModelTurn) -> None:
    """Move the task of a turn from accepted to working, which its giver sees."""
    if turn.task is None or turn.task.state is not TaskState.ACCEPTED:
        return
    async with turn.task_lock:
        if await turn.task.refresh() is TaskState.ACCEPTED:
            await turn.task.start()


async def settle(post: AgentPost, turn: ModelTurn, text: str, media: tuple[str, ...]) -> None:
    """Settle the letter of a turn that ended with this answer."""
    if turn.intent.action == "report" or turn.is_answered or turn.intent.answers is None:
        await turn.work.ack()
    elif turn.task is not None:
        async with turn.task_lock:
            await _settle_task(post, turn, turn.task, mailable(text), media)
    elif turn.failed:
        await turn.work.fail(_reason(text))
    else:
        await _answer(post, turn, mailable(text), media)


async def give_up(turn: ModelTurn, why: str) -> None:
    """Settle a turn without an answer: a task fails with the reason, any other letter becomes a dead letter."""
    if turn.task is not None and not turn.task.is_final and turn.intent.action != "report":
        async with turn.task_lock:
            await turn.task.refresh()
            if not turn.task.is_final:
                await turn.task.fail(_reason(why), key=_key("given-up", turn.id))
            await _ack_if_held(turn)
    elif not turn.work.is_settled:
        await turn.work.fail(why, retry=False)


async def unanswered(post: AgentPost) -> list[AsyncTask]:
    """Return the received tasks whose giver was asked a question and has not answered in time."""
    now = post.core.now().wall
    # Read from the room, not from memory: the question may be older than this gateway.
    waiting = await post.box.tasks("received", states=[TaskState.INPUT_REQUIRED], limit=MOST_UNANSWERED)
    return [task for task in waiting if answer_due(task.standing) <= now]


def answer_due(task: TaskStatus) -> datetime:
    """Return when a question about a task must be answered: within a day, and by the deadline of the task."""
    latest = task.moved_at + ANSWERED_WITHIN
    return latest if task.deadline is None else min(task.deadline, latest)


def check_time_to_answer(task: TaskStatus, now: datetime) -> None:
    """Refuse a question that leaves too little time for an answer: the task would fail at once."""
    if task.deadline is not None and task.deadline - now < LEAST_TO_ANSWER:
        due = "was" if task.deadline <= now else "is"
        raise DeadlinePassed(
            f"the task {due} due at {minute(task.deadline)}: there is no time for an answer",
            field="question",
            hint="do it with what you know, or call mail_decline",
        )


async def fail_unanswered(post: AgentPost, task: AsyncTask) -> None:
    """Fail a task whose question was not answered; otherwise it would count as work in hand for ever."""
    over = "its deadline is over" if answer_due(task.standing) == task.deadline else "a day is over"
    why = f"{over}, and the question about it was not answered"
    request = tasks.FailUnanswered(agent_id=post.name, id=task.id, reason=why)
    await post.room.run(perform, post.core, post.mailbox.principal, request)


def mailable(text: str) -> str:
    """Return the text as a letter can hold it: without characters that no store keeps, cut to size."""
    # A model may write anything; a letter that no store takes would lose the whole answer.
    sound = text.replace("\0", "").encode("utf-8", "replace").decode()
    notes = "" if sound == text else "\n\n(Characters that cannot be mailed were left out.)"
    most = LONGEST_ANSWER
    while len(encode(sound[:most])) > LONGEST_ANSWER:  # as JSON, a character may be six bytes
        most = most * 2 // 3
    if most < len(sound):
        notes += f"\n\n(Cut: only the first {most} of {len(sound)} characters could be mailed.)"
    return sound[:most] + notes


async def _answer(post: AgentPost, turn: ModelTurn, text: str, media: tuple[str, ...]) -> None:
    async def ack_and_reply(parts: list[Any]) -> None:
        answered = turn.intent.answers or turn.id
        # One commit for ack and answer (G5). The key makes a second attempt after a crash send nothing new (G3).
        reply = Reply(agent_id=post.name, id=answered, body=parts, key=key_of(turn), metadata=dict(AUTOMATIC))
        draft = await post.room.run(reply.draft, post.core)
        await post.box.ack_and_send([turn.work], [draft])

    try:
        await _with_files_if_possible(ack_and_reply, text, media)
    except IdTaken:  # an earlier attempt sent an answer in other words
        await turn.work.ack()


async def _with_files_if_possible(
    send: Callable[[list[Any]], Awaitable[Any]], text: str, media: tuple[str, ...]
) -> None:
    """Send an answer; where its files are refused, send its text with the reason."""
    try:
        await send(_body(text, media))
    except (Invalid, NotAllowed) as wrong:
        if not media:
            raise
        await send(_body(f"{text}\n\n(Its files could not be sent: {wrong})", ()))


async def _settle_task(
    post: AgentPost, turn: ModelTurn, task: AsyncTask, text: str, media: tuple[str, ...]
) -> None:
    """Complete the task with the answer, unless parts of it are open at others or it waits for its giver."""
    # A tool of the model may have moved the task during the turn, and its giver may have cancelled it.
    state = await task.refresh()
    if task.is_final or state is TaskState.INPUT_REQUIRED:
        await _ack_if_held(turn)
        return
    if turn.failed:
        await task.fail(_reason(text), key=key_of(turn))
    elif await post.room.run(intent.has_open_requests, post.core, post.name, task.id, turn.id):
        if state is TaskState.ACCEPTED:
            await task.start(_body(text, ()), key=_key("started", task.id))
    else:
        if state is TaskState.ACCEPTED:
            await task.start()
        complete = partial(task.complete, key=key_of(turn), metadata=dict(AUTOMATIC))
        try:
            await _with_files_if_possible(complete, text, media)
        except IllegalMove:  # it was cancelled, or completed by an earlier attempt
            await task.refresh()
    await _ack_if_held(turn)


async def _ack_if_held(turn: ModelTurn) -> None:
    if not turn.work.is_settled:
        await turn.work.ack()


def key_of(turn: ModelTurn) -> str:
    return _key("answer", turn.id)


def _key(of: str, letter: str) -> str:
    """Return an idempotency key for a letter; a long id is hashed, as an id may be as long as a key."""
    short = letter if len(letter) <= LONGEST_ID else hashlib.sha256(letter.encode()).hexdigest()
    return f"{of}-{short}"


def _body(text: str, media: tuple[str, ...]) -> list[Any]:
    return body(text, media) or [NO_WORDS]


def _reason(text: str) -> str:
    return " ".join(text.split())[:LONGEST_REASON] or "the turn failed"
