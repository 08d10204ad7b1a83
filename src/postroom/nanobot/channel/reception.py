"""The main loop of a gateway: claim letters, hand them to nanobot as turns, and settle them when the turns end.

A letter is claimed when it is handed to nanobot and acknowledged when its turn is over; the answer is sent in the
commit that settles the letter. If a gateway dies in between, its lease expires, or its successor releases the
claim. This module knows nanobot only through the `Bus` protocol and the log.

A letter may hold anything, and nanobot does not restart a channel that has ended. So an error counts against the
one letter that caused it and never ends the loop: `attempt` is the boundary where errors are caught.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ...aio import AsyncWork
from ...core import deliveries, tasks
from ...core import work as core_work
from ...core.proof import people_names
from ...core.verb import perform
from ...errors import Busy, LeaseLost, PostroomError, UnknownAgent
from ...letter import Work
from ...model.delivery import State
from ...model.message import same_name
from ...model.names import fold
from ...model.query import Found, Query
from ...model.task import TaskState
from ...policy.retry import latest_retry
from . import auto_reply, bus, gateways, settlement
from . import intent as intents
from . import text as channel_text
from .gateways import GatewayLock
from .intent import classify
from .turns import ModelTurn

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Iterator
    from pathlib import Path

    from ...mailbox import Mailbox
    from .bus import Bus, Logger
    from .intent import Intent
    from .post import AgentPost


T = TypeVar("T")


async def attempt(operation: Coroutine[Any, Any, T]) -> T | Exception:
    """Return the result of an operation, or the error that it raised. Cancellation passes through."""
    try:
        return await operation
    except Exception as error:
        return error


def error_text(error: Exception) -> str:
    """Return the message of one of our own errors or of the system; of any other error, its type too."""
    return str(error) if isinstance(error, (PostroomError, OSError)) else repr(error)


# -- claiming some letters and leaving others untouched
#
# Left untouched: letters of a peer that has as many in hand as it may, and letters that wait for a rate limit.

SLICE = 200  # letters per query


def _claim_except(
    mailbox: Mailbox, busy: Collection[str], left: Collection[str], count: int, *, lease: float, holder: str
) -> list[Work]:
    """Claim up to `count` letters in the order of arrival: none of the `busy` senders, none of those in `left`."""
    taken: list[Work] = []
    for letter in _claimable_letters(mailbox, busy, left):
        if len(taken) >= count:
            break
        try:
            request = core_work.ClaimOne(agent_id=mailbox.name, id=letter, lease=lease, holder=holder)
            found = perform(mailbox.core, mailbox.principal, request).letter
        except LeaseLost:  # another gateway was quicker
            continue
        taken.append(Work(mailbox, found))
    return taken


def _claimable_letters(mailbox: Mailbox, busy: Collection[str], left: Collection[str]) -> Iterator[str]:
    core, moment = mailbox.core, mailbox.core.now()
    number = 0
    while True:
        query = Query(
            mailbox=mailbox.name,
            states=(State.UNREAD,),
            offered_at=moment.wall,
            due_at=moment.wall,
            due_most=latest_retry(moment.wall, core.limits),
            after=number,
            limit=SLICE,
        )
        found = deliveries.find_letters(core, query)
        others = (one.message for one in found if fold(one.message.sender) not in busy)
        yield from (message.id for message in others if message.id not in left)
        if len(found) < SLICE:
            return
        number = found[-1].delivery.number


# -- the loop

LEASE = 60.0  # seconds; renewed while the turn runs
MOST_IN_HAND = 64  # running turns; letters that wait for their session come on top
MOST_OF_ONE = 16  # letters of one peer in hand, waiting ones included: one peer must not block the others
LONGEST_TURN = 6 * 3600.0  # seconds; a longer turn is given up
LONGEST_REPORT = 600.0  # seconds until a result counts as reported, where nanobot announces no end of turns
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)  # seconds between attempts to send an answer
BETWEEN_LOOKS = 30.0  # seconds between checks for unanswered questions
FIRST_PAUSE = 2.0  # seconds before a report is tried again; doubled each time
LONGEST_PAUSE = 900.0  # the person may see an error of nanobot each time
MOST_REPORTS = 300  # attempts: three days
BEFORE_WORKING = 5.0  # seconds in which the model may still decline a task that was accepted
BETWEEN_STARTS = 0.5  # seconds between checks for tasks whose BEFORE_WORKING is over


class Reception:
    """The main loop of one gateway, and the end of each of its turns."""

    def __init__(self, post: AgentPost, nanobot: Bus, log: Logger, media: Path) -> None:
        self.post = post
        self._bus = nanobot
        self._log = log
        self._media = media
        self._holder = gateways.holder(post.name)
        self._lock = GatewayLock(post.config.address, post.name)
        self._pace = auto_reply.Pace(post.config.mails_per_minute)
        self._put_back: set[str] = set()  # folded senders whose letters in this batch were released again
        self._held: dict[str, str] = {}  # letter id → sender: letters that wait for the rate limit of replies
        self._reports: Counter[str] = Counter()  # attempts to report each letter
        self._looked_at = -BETWEEN_LOOKS  # by the monotonic clock

    async def run(self) -> None:
        """Run until cancelled."""
        await self._prepare()
        self._log.info("mailbox: {} takes mail at {}", self.post.name, self.post.config.address)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._claim_loop())
            group.create_task(self._renew_loop())
            group.create_task(self._start_loop())

    async def leave(self) -> None:
        """Release all letters in hand, and mark the agent as gone."""
        for turn in self.post.turns.all():
            self.post.turns.end(turn)
        if self._lock.is_ours:
            await self._attempt("release letters", self.post.room.run(gateways.free_claims, self.post.mailbox))
            await self._attempt("leave", self.post.box.leave())
            self._lock.release()

    async def _prepare(self) -> None:
        # The lock comes first: only its holder may release what a dead gateway had claimed.
        freed = await self.post.room.run(gateways.arrive, self._lock, self.post.mailbox)
        await self._register()
        if freed:
            self._log.info("mailbox: {} letter(s) held by a gateway that died were released", freed)
        await self.post.room.run(intents.forget_old, self.post.core, self.post.name)

    async def _register(self) -> None:
        config = self.post.config
        await self.post.box.register(
            description=config.description,
            capabilities=config.capabilities,
            allow_from=config.allow_from,
            max_concurrent_tasks=config.max_concurrent_tasks,
            program="nanobot",
        )
        await self.post.box.heartbeat(poll_interval=config.poll_interval)

    async def _claim_loop(self) -> None:
        poll = self.post.config.poll_interval
        while True:
            room = MOST_IN_HAND - self.post.turns.running
            # Full: look again soon, as nothing wakes this loop when a turn ends.
            if room <= 0:
                await asyncio.sleep(min(poll, 1.0))
                continue
            batch = await attempt(self._claim(min(room, 8)))
            if isinstance(batch, Exception):
                self._log.warning("mailbox: no mail could be claimed: {}", error_text(batch))
                await asyncio.sleep(poll)
                continue
            # Within a batch, a sender whose first letter went back gets no later one in before it (G7).
            self._put_back.clear()
            for work in batch:
                await self._process(work)

    async def _claim(self, count: int) -> list[AsyncWork]:
        poll = self.post.config.poll_interval
        now, replies = time.monotonic(), self.post.automatic.replies
        # Letters over a rate limit are released and left alone until it is their time: claimed again at once,
        # they would spin.
        self._held = {letter: sender for letter, sender in self._held.items() if replies.wait(sender, now)}
        busy = self.post.turns.peers_with(MOST_OF_ONE) | self._pace.waiting(now)
        if not busy and not self._held:
            return await self.post.box.claim(count, lease=LEASE, timeout=poll, holder=self._holder)
        claim = partial(
            _claim_except, self.post.mailbox, busy, self._held, count, lease=LEASE, holder=self._holder
        )
        found = await self.post.room.run(claim)
        if not found:  # no wait for mail: that of a busy peer would end it at once, again and again
            await asyncio.sleep(min(poll, 1.0))
        return [AsyncWork(self.post.room, work) for work in found]

    async def _renew_loop(self) -> None:
        """Send heartbeats, renew leases and check deadlines, again and again."""
        poll = min(self.post.config.poll_interval, LEASE / 3)
        while True:
            await self._attempt("send a heartbeat", self._beat())
            await self._attempt("check deadlines", self._check_deadlines())
            for turn in self.post.turns.all():
                await self._attempt("renew a lease", self._check_turn(turn))
            await asyncio.sleep(poll)

    async def _beat(self) -> None:
        try:
            await self.post.box.heartbeat()
        except UnknownAgent:  # the mail folder was emptied by another program
            await self._register()

    async def _check_deadlines(self) -> None:
        core = self.post.core
        await self.post.room.run(tasks.report_overdue, core, core.now().wall)
        if time.monotonic() - self._looked_at >= BETWEEN_LOOKS:
            self._looked_at = time.monotonic()
            for task in await settlement.unanswered(self.post):
                await self._attempt(
                    "fail a task whose question was not answered", settlement.fail_unanswered(self.post, task)
                )

    async def _check_turn(self, turn: ModelTurn) -> None:
        """Renew the lease of a turn, or end the turn if its time is over."""
        age = turn.age(time.monotonic())
        if turn.postponed_until is not None and time.monotonic() >= turn.postponed_until:
            await self._end(turn)  # before the release: a released letter may be claimed again at once
            await turn.work.release()
        elif turn.intent.action == "report" and age > LONGEST_REPORT and not self._bus.reports_turn_ends:
            await self._done(turn)
        elif age > LONGEST_TURN and not turn.is_answering:
            await self._break_off(turn)
        else:
            await self._renew(turn)

    async def _start_loop(self) -> None:
        """Report tasks as working once the model had its time to decline them."""
        while True:
            for turn in self.post.turns.all():
                if turn.age(time.monotonic()) >= BEFORE_WORKING:
                    await self._attempt("report a task as working", settlement.report_working(turn))
            await asyncio.sleep(BETWEEN_STARTS)

    async def _renew(self, turn: ModelTurn) -> None:
        work = turn.work
        try:
            await work.renew(LEASE)
        except LeaseLost:
            is_held = self.post.turns.get(turn.id) is turn and turn.work is work and not turn.is_answering
            if is_held:  # otherwise it was settled meanwhile, or the turn continues under a new lease
                self._log.warning("mailbox: the lease of {} is lost; its answer will not be sent", turn.id)
                await self._end(turn)

    async def _break_off(self, turn: ModelTurn) -> None:
        """Give up a turn that takes too long: its sender and the letters queued behind it wait no longer."""
        if turn.intent.action == "report":
            await self._report_later(turn)
            return
        why = f"its turn took longer than {LONGEST_TURN / 3600:g} hours"
        self._log.warning("mailbox: {} is given up: {}", turn.id, why)
        await self._attempt("settle", settlement.give_up(turn, why))
        await self._bus.hand_over(bus.stop(turn))  # before the next letter is handed to its session
        await self._end(turn)

    # -- letters that come

    async def _process(self, work: AsyncWork) -> None:
        """Handle one claimed letter; an error counts as a failed attempt of this letter alone."""
        if same_name(work.sender, self.post.core.limits.human):
            self.post.automatic.person_wrote()
        error = await attempt(self._route(work))
        if error is not None:
            await self._fail(work, error)

    async def _fail(self, work: AsyncWork, error: Exception) -> None:
        why = f"it could not be handed over: {error_text(error)}"
        self._log.warning("mailbox: {}: {}", work.id, why)
        if not work.is_settled:
            await self._attempt("give back a letter", work.fail(why))

    async def _route(self, work: AsyncWork) -> None:
        post = self.post
        running = post.turns.get(work.id)
        if (
            running is not None
        ):  # the lease expired while the machine slept: the turn continues under the new lease
            running.work = work
            return
        found = Found(work.message, work.delivery)
        intent = await post.room.run(classify, post.mailbox, found, post.config)
        if intent.origin is not None and intent.task is None:
            await post.room.run(intents.mark_answered, post.core, post.name, work.message)
        if intent.action == "done":
            await work.ack()
        elif intent.action == "refuse":
            await work.reject(intent.reason)
        elif intent.action == "stop":
            await self._stop(work, intent)
        elif await self._exceeds_question_limit(work, intent):
            await work.reject(f"more than {auto_reply.MOST_ROUNDS} questions about one task without an answer")
        elif not await self._reaches(intent):
            self._log.info("mailbox: the conversation of {} cannot be reached; mail_tasks shows it", work.id)
            await work.ack()
        elif await self._must_wait(work, intent):
            await work.release()
        else:
            await self._begin_turn(work, intent)

    async def _exceeds_question_limit(self, work: AsyncWork, intent: Intent) -> bool:
        """Return whether a peer asked too often about a task: each question would be shown to a person."""
        post, task = self.post, intent.task
        if intent.origin is None or task is None or task.state is not TaskState.INPUT_REQUIRED:
            return False
        return not await post.room.run(intents.admit_question, post.core, post.name, task.letter, work.id)

    async def _reaches(self, intent: Intent) -> bool:
        """Return whether a report can reach its conversation; otherwise the turn and its answer would be lost."""
        return intent.action != "report" or intent.origin is None or await self._bus.reaches(intent.origin.channel)

    async def _must_wait(self, work: AsyncWork, intent: Intent) -> bool:
        """Return whether this letter exceeds a rate limit.

        It is then released without counting an attempt, and so are later letters of its sender: they are claimed
        again when the limit allows it, in the order of acceptance (G7).
        """
        sender, now, replies = work.sender, time.monotonic(), self.post.automatic.replies
        if intent.follows and replies.wait(sender, now):
            self._held[work.id] = sender
            if self.post.automatic.is_first(sender):
                why = f"{replies.most} replies of {sender} were answered within an hour"
                await self.post.notify_stop(sender, why)
            return True
        if fold(sender) in self._put_back or not self._pace.allows(sender, now):
            self._put_back.add(fold(sender))
            return True
        if intent.follows:
            replies.allows(sender, now)
        return False

    async def _begin_turn(self, work: AsyncWork, intent: Intent) -> None:
        turn = ModelTurn(work, intent)
        if intent.task is not None and intent.action == "work" and not await self._admit(turn):
            return
        if intent.action == "continue":
            turn.task = await settlement.open_task(self.post, intent.answers)
        # One turn for each session: nanobot would answer two letters with one text.
        if self.post.turns.begin(turn) and not await self._try_hand_over(turn):
            await self._end(turn)

    async def _admit(self, turn: ModelTurn) -> bool:
        """Accept or reject a task. A task that was accepted before a crash continues."""
        is_opening = turn.intent.answers == turn.id
        task = await self.post.box.task(turn.work if is_opening else turn.intent.answers or turn.id)
        if task.is_final:
            await turn.work.ack()
            return False
        if task.state is TaskState.PENDING and not await task.admit(ack=False):
            self._log.info("mailbox: the task {} of {} is rejected: {}", task.id, task.giver, task.reason)
            return False
        turn.task = task
        return True

    async def _try_hand_over(self, turn: ModelTurn) -> bool:
        """Hand a turn to nanobot. If that fails, fail its letter and return False: the caller ends the turn."""
        error = await attempt(self._hand_over(turn))
        if error is None:
            return True
        await self._fail(turn.work, error)
        if turn.work.delivery.state is State.DEAD:
            await self._attempt(
                "settle", settlement.give_up(turn, f"it could not be worked on: {error_text(error)}")
            )
        return False

    async def _hand_over(self, turn: ModelTurn) -> None:
        turn.began = time.monotonic()
        unpacked = await self.post.room.run(channel_text.unpack, turn.work.message, self._media)
        people = await self.post.room.run(people_names, self.post.core)
        await self._bus.hand_over(bus.inbound(turn, unpacked, people))

    async def _stop(self, work: AsyncWork, intent: Intent) -> None:
        """Stop the turn of a task that its giver cancelled; its final answer is not sent."""
        turn = self.post.turns.of_task(intent.task.letter) if intent.task is not None else None
        await work.ack()
        if turn is None:
            return
        if not turn.is_waiting:  # otherwise the session is running another turn, which continues
            await self._bus.hand_over(bus.stop(turn))
        await self._done(turn)

    # -- turns that end

    async def answer_turn(self, letter: str, text: str, media: tuple[str, ...]) -> None:
        """Settle a letter with the final answer of the model in the turn that the letter began."""
        turn = self.post.turns.get(letter)
        if turn is None:
            return  # settled before, or claimed by another gateway
        # From here on no event about the turn may settle it a second time.
        turn.is_answering = True
        words = [*(value for value, _ in turn.parts), text]
        files = [*(path for _, paths in turn.parts for path in paths), *media]
        error = await attempt(self._settle(turn, "\n\n".join(filter(None, words)), tuple(files)))
        if error is not None:
            await self._not_mailed(turn, error)
        await self._end(turn)

    async def _not_mailed(self, turn: ModelTurn, error: Exception) -> None:
        """Notify the sender that there is no answer, unless another attempt may still give one."""
        why = f"its answer cannot be sent: {error_text(error)}"
        if isinstance(error, LeaseLost):
            self._log.warning("mailbox: {} was claimed by another gateway meanwhile; nothing is sent", turn.id)
        elif isinstance(error, (Busy, OSError)):
            await self._attempt("give back a letter", turn.work.fail(why))
        else:
            self._log.warning("mailbox: the answer to {} is refused: {}", turn.id, error_text(error))
            await self._attempt("settle", settlement.give_up(turn, why))

    async def _settle(self, turn: ModelTurn, text: str, files: tuple[str, ...]) -> None:
        """Settle a turn, with several attempts: the work of a model is expensive, and a full disk may be freed."""
        for pause in PAUSES:
            try:
                await settlement.settle(self.post, turn, text, files)
            except (Busy, OSError) as busy:
                self._log.warning("mailbox: the answer to {} cannot be sent now: {}", turn.id, busy)
                await asyncio.sleep(max(pause, getattr(busy, "retry_after", None) or 0.0))
            else:
                return
        await settlement.settle(self.post, turn, text, files)

    async def end_turn(self, letter: str) -> None:
        """Settle the letter of a turn that ended without a final answer."""
        turn = self.post.turns.get(letter)
        if turn is None or turn.is_answering or turn.is_waiting:
            return
        if turn.intent.action == "report" and turn.failed:
            await self._report_later(turn)
        elif turn.parts:
            await self._attempt("answer", self.answer_turn(letter, "", ()))
        else:
            await self._done(turn)

    async def stop_turn(self, letter: str) -> None:
        """Give back the letter of a turn that was stopped before its end, for another attempt."""
        turn = self.post.turns.get(letter)
        if turn is None or turn.is_answering or turn.is_waiting:
            return
        if turn.intent.action == "report":
            await self._report_later(turn)
        else:
            await self._attempt("give back a letter", turn.work.fail("the turn was stopped"))
            await self._end(turn)

    async def _report_later(self, turn: ModelTurn) -> None:
        """Try again later to report a result to a person: the model was unavailable.

        The letter stays claimed. That is no failed attempt: its sender did the work, and must not get it back as
        dead.
        """
        self._reports[turn.id] += 1
        attempts = self._reports[turn.id]
        if attempts > MOST_REPORTS:
            self._log.warning("mailbox: {} could not be reported for days; mail_tasks shows it", turn.id)
            await self._done(turn)
            return
        turn.is_waiting = True
        turn.postponed_until = time.monotonic() + min(FIRST_PAUSE * 2 ** (attempts - 1), LONGEST_PAUSE)

    async def _done(self, turn: ModelTurn) -> None:
        self._reports.pop(turn.id, None)
        turn.is_answering = True  # so that a failing renewal of its lease is ignored from here on
        if not turn.work.is_settled:
            await self._attempt("settle", turn.work.ack())
        await self._end(turn)

    async def _end(self, turn: ModelTurn) -> None:
        after = self.post.turns.end(turn)
        while after is not None and not await self._try_hand_over(after):
            after = self.post.turns.end(after)

    async def _attempt(self, what: str, operation: Any) -> None:
        """Run an operation for one letter; an error is logged and ends nothing else."""
        if isinstance(error := await attempt(operation), Exception):
            self._log.warning("mailbox: could not {}: {}", what, error_text(error))
