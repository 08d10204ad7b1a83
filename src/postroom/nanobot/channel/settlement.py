"""How a turn is settled: its letter is done, and the model's last word goes where it belongs, in one commit.

An answer has a key made of its letter's id. However often a turn is tried, it is mailed once.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ...core import tasks
from ...errors import DeadlinePassed, IdTaken, IllegalMove, Invalid, NotAllowed, UnknownMessage
from ...model.codec import encode
from ...model.task import TaskState
from . import intent
from .auto_reply import AUTOMATIC
from .post import body
from .text import minute

if TYPE_CHECKING:
    from datetime import datetime

    from ...aio import AsyncTask
    from ...letter import Work
    from ...mailbox import Mailbox
    from ...model.task import Standing
    from .post import Post
    from .turns import Turn


LONGEST_REASON = 2000
LONGEST_ANSWER = 500_000  # bytes of text as JSON; a letter holds a MiB by default, its files too
MOST_UNANSWERED = 1000  # looked at in one go
ANSWERED_WITHIN = timedelta(days=1)
LEAST_TO_ANSWER = timedelta(minutes=2)  # a question that leaves less is not asked
LONGEST_ID = 180  # characters, within a key of 200
NO_WORDS = "(no words)"


async def open_task(post: Post, letter: str | None) -> AsyncTask | None:
    """The task that a letter opened here, if it is one and goes on."""
    if letter is None:
        return None
    try:
        task = await post.box.task(letter)
    except UnknownMessage:
        return None
    return None if task.is_final or task.receiver != post.name else task


async def say_working(turn: Turn) -> None:
    """Tell whoever gave the task, if it stands as accepted."""
    if turn.task is None or turn.task.state is not TaskState.ACCEPTED:
        return
    async with turn.moving:
        if await turn.task.refresh() is TaskState.ACCEPTED:
            await turn.task.start()


async def settle(post: Post, turn: Turn, text: str, media: tuple[str, ...]) -> None:
    """The turn is over, with these last words."""
    if turn.intent.what == "tell" or turn.is_answered or turn.intent.answers is None:
        await turn.work.ack()
    elif turn.task is not None:
        async with turn.moving:
            await _settle_task(post, turn, turn.task, mailable(text), media)
    elif turn.failed:
        await turn.work.fail(_reason(text))
    else:
        await _answer(post, turn, mailable(text), media)


async def give_up(turn: Turn, why: str) -> None:
    """Nothing can be mailed as its answer: a task fails with the reason, any other letter is dead with it."""
    if turn.task is not None and not turn.task.is_final and turn.intent.what != "tell":
        async with turn.moving:
            await turn.task.refresh()
            if not turn.task.is_final:
                await turn.task.fail(_reason(why), key=_key("given-up", turn.id))
            await _ack_if_held(turn)
    elif not turn.work.is_settled:
        await turn.work.fail(why, retry=False)


async def unanswered(post: Post) -> list[AsyncTask]:
    """Tasks of ours whose giver was asked something and has said nothing in time."""
    now = post.core.now().wall
    request = await post.box.tasks("received", states=[TaskState.INPUT_REQUIRED], limit=MOST_UNANSWERED)
    return [task for task in request if answer_due(task.standing) <= now]


def answer_due(task: Standing) -> datetime:
    """When a question about a task has to be answered: within a day, and by the task's deadline."""
    latest = task.moved_at + ANSWERED_WITHIN
    return latest if task.deadline is None else min(task.deadline, latest)


def check_time_to_answer(task: Standing, now: datetime) -> None:
    """Refuse a question that nobody could answer in time: the task would fail for it at once."""
    if task.deadline is not None and task.deadline - now < LEAST_TO_ANSWER:
        due = "was" if task.deadline <= now else "is"
        raise DeadlinePassed(
            f"the task {due} due at {minute(task.deadline)}: there is no time for an answer",
            field="question",
            hint="do it with what you know, or call mail_decline",
        )


async def fail_unanswered(task: AsyncTask) -> None:
    """It would count as work in hand for ever, and keep others out."""
    over = "its deadline is over" if answer_due(task.standing) == task.deadline else "a day is over"
    why = f"{over}, and the question about it was not answered"
    box = task._task._mailbox
    await task._room.run(tasks.fail_unanswered, box._core, box._caller, box.name, task.id, why)


def mailable(text: str) -> str:
    """What a letter can hold of it: without what no store can keep, and cut where it is too long; it says so."""
    sound = text.replace("\0", "").encode("utf-8", "replace").decode()
    value = "" if sound == text else "\n\n(Characters that cannot be mailed were left out.)"
    most = LONGEST_ANSWER
    while len(encode(sound[:most])) > LONGEST_ANSWER:  # as JSON, a character may be six bytes
        most = most * 2 // 3
    if most < len(sound):
        value += f"\n\n(Cut: only the first {most} of {len(sound)} characters could be mailed.)"
    return sound[:most] + value


async def _answer(post: Post, turn: Turn, text: str, media: tuple[str, ...]) -> None:
    try:
        await post.room.run(_ack_and_reply, post.mailbox, turn, _body(text, media))
    except IdTaken:  # an earlier try was answered in other words
        await turn.work.ack()
    except (Invalid, NotAllowed) as wrong:
        if not media:
            raise
        words = f"{text}\n\n(Its files could not be sent: {wrong})"
        await post.room.run(_ack_and_reply, post.mailbox, turn, _body(words, ()))


def _ack_and_reply(mailbox: Mailbox, turn: Turn, parts: list[Any]) -> None:
    work: Work = turn.work._work
    answered = turn.intent.answers or work.id
    draft = mailbox._reply_draft(answered, parts, key=key_of(turn), metadata=dict(AUTOMATIC))
    mailbox.ack_and_send([work], [draft])
    turn.work.delivery = work.delivery


async def _settle_task(post: Post, turn: Turn, task: AsyncTask, text: str, media: tuple[str, ...]) -> None:
    """The last word is the result, unless the task was passed on, or waits for an answer."""
    state = await task.refresh()
    if task.is_final or state is TaskState.INPUT_REQUIRED:
        await _ack_if_held(turn)
        return
    if turn.failed:
        await task.fail(_reason(text), key=key_of(turn))
    elif await post.room.run(intent.is_waiting, post.core, post.name, task.id, turn.id):
        if state is TaskState.ACCEPTED:
            await task.start(_body(text, ()), key=_key("started", task.id))
    else:
        if state is TaskState.ACCEPTED:
            await task.start()
        await _complete(turn, task, text, media)
    await _ack_if_held(turn)


async def _complete(turn: Turn, task: AsyncTask, text: str, media: tuple[str, ...]) -> None:
    try:
        await task.complete(_body(text, media), key=key_of(turn), metadata=dict(AUTOMATIC))
    except IllegalMove:  # it was taken back, or finished by an earlier try
        await task.refresh()
    except (Invalid, NotAllowed) as wrong:
        if not media:
            raise
        words = f"{text}\n\n(Its files could not be sent: {wrong})"
        await task.complete(_body(words, ()), key=key_of(turn), metadata=dict(AUTOMATIC))


async def _ack_if_held(turn: Turn) -> None:
    if not turn.work.is_settled:
        await turn.work.ack()


def key_of(turn: Turn) -> str:
    return _key("answer", turn.id)


def _key(of: str, letter: str) -> str:
    """A letter's id may be as long as a key."""
    short = letter if len(letter) <= LONGEST_ID else hashlib.sha256(letter.encode()).hexdigest()
    return f"{of}-{short}"


def _body(text: str, media: tuple[str, ...]) -> list[Any]:
    return body(text, media) or [NO_WORDS]


def _reason(text: str) -> str:
    return " ".join(text.split())[:LONGEST_REASON] or "the turn failed"
