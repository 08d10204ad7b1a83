"""One letter's trouble is not that of the others: what goes wrong is handed back, to be told and counted.

A letter may hold anything, and a channel that ends is not started again; so whatever goes wrong is meant here.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from ...aio import AsyncWork
from ...core import deliveries, tasks
from ...core import work as core_work
from ...errors import Busy, LeaseLost, PostroomError, UnknownAgent
from ...letter import Work
from ...model.delivery import State
from ...model.message import same_name
from ...model.names import fold
from ...model.query import Query
from ...model.task import TaskState
from ...policy.retry import latest_retry
from . import auto_reply, bus, gateways, intent, settlement
from . import post as channel_post
from .gateways import Gateways
from .intent import sort
from .turns import Turn

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Iterator
    from pathlib import Path

    from ...aio import AsyncMailbox
    from ...mailbox import Mailbox
    from .bus import Bus, Log
    from .intent import Intent
    from .post import Post


T = TypeVar("T")


async def attempt(doing: Coroutine[Any, Any, T]) -> T | Exception:
    """What came of it, or what went wrong. Being cancelled is neither."""
    ended = (await asyncio.gather(doing, return_exceptions=True))[0]
    if isinstance(ended, BaseException) and not isinstance(ended, Exception):
        raise ended
    return ended


def error_text(broken: Exception) -> str:
    """Our own errors speak for themselves; of others the name says more than the words."""
    return str(broken) if isinstance(broken, (PostroomError, OSError)) else repr(broken)


# Results that could not be told, for the model of whoever asked was away: they stay in hand, and are told later.
#
# That is no failed try of their letter: whoever did the work is not to get it back as dead.

FIRST_PAUSE = 2.0  # seconds; twice as long each time
LONGEST_PAUSE = 900.0  # the person may see an error of nanobot's each time
MOST = 300  # times: three days


class Untold:
    """How often each was tried."""

    def __init__(self) -> None:
        self._tried: Counter[str] = Counter()

    def put_off(self, turn: Turn) -> bool:
        """Let it wait for a while. Not if it was tried for days."""
        self._tried[turn.id] += 1
        tried = self._tried[turn.id]
        if tried > MOST:
            return False
        turn.is_waiting = True
        turn.put_off_until = time.monotonic() + min(FIRST_PAUSE * 2 ** (tried - 1), LONGEST_PAUSE)
        return True

    def forget(self, turn: Turn) -> None:
        self._tried.pop(turn.id, None)


# Taking mail while some of it stays where it is, untouched: that of a peer that has as much in hand as it may,
# and what is for another gateway.

SLICE = 200  # letters looked at in one go


async def claim_but(
    box: AsyncMailbox,
    count: int,
    *,
    busy: Collection[str],
    left: Collection[str],
    lease: float,
    holder: str,
    timeout: float,
) -> list[AsyncWork]:
    """Up to `count` letters, but none of these senders, and not these. What is claimed for a cancelled task is
    given back.
    """
    taken: list[Work] = []

    def take() -> list[Work]:
        taken[:] = claim_of_others(box.mailbox, busy, left, count, lease=lease, holder=holder)
        return taken

    try:
        await box.room._wait_until([box.name], timeout, take)
    except asyncio.CancelledError:
        for work in taken:
            await box.room.run(work.release)
        raise
    return [AsyncWork(box.room, work) for work in taken]


def claim_of_others(
    mailbox: Mailbox, busy: Collection[str], left: Collection[str], count: int, *, lease: float, holder: str
) -> list[Work]:
    """Up to `count` letters, in the order they came, but none of these senders, and not these."""
    taken: list[Work] = []
    for letter in _letters_of_others(mailbox, busy, left):
        if len(taken) >= count:
            break
        try:
            found = core_work.claim_one(
                mailbox._core, mailbox._caller, mailbox.name, letter, lease=lease, holder=holder
            )
        except LeaseLost:  # another gateway was quicker
            continue
        taken.append(Work(mailbox, found))
    return taken


def _letters_of_others(mailbox: Mailbox, busy: Collection[str], left: Collection[str]) -> Iterator[str]:
    core, moment = mailbox._core, mailbox._core.now()
    deliveries.let_time_pass(core, moment, (mailbox.name,))
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
        found = core.store.find(query)
        others = (one.message for one in found if fold(one.message.sender) not in busy)
        yield from (message.id for message in others if message.id not in left)
        if len(found) < SLICE:
            return
        number = found[-1].delivery.number


# The reception of a gateway: claims what comes, has it sorted, hands it over, holds on to it, and settles it.
#
# A letter is claimed when it is handed to nanobot and done when the turn is over; its answer goes out in the
# commit
# that settles it. Whoever dies in between leaves a lease that runs out, or that its successor gives back. nanobot
# is
# known here by what `Bus` says, and the log.

LEASE = 60.0  # seconds; renewed while the turn runs
MOST_IN_HAND = 64  # turns at once, besides letters that wait for the turn of their session
MOST_OF_ONE = 16  # letters of one peer in hand, those that wait too: the others are not to wait for it
LONGEST_TURN = 6 * 3600.0  # seconds; then it is given up
LONGEST_TELLING = 600.0  # seconds until a result counts as told, where nanobot does not say so
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)  # seconds between tries to mail an answer
BETWEEN_LOOKS = 30.0  # seconds between looks at questions that nobody answered
BEFORE_WORKING = 5.0  # seconds in which the model may still decline what was accepted
BETWEEN_STARTS = 0.5  # seconds between looks at whose time for that is over


class Reception:
    """The loop of one gateway."""

    def __init__(self, post: Post, nanobot: Bus, log: Log, media: Path) -> None:
        self.post = post
        self._bus = nanobot
        self._log = log
        self._media = media
        self._holder = gateways.signature(post.name)
        self._lodging = Gateways(post, nanobot, self._holder)
        self._pace = auto_reply.Pace(post.config.mails_per_minute)
        self._put_back: set[str] = set()  # folded senders of letters in this batch that were put back
        self._held: dict[str, str] = {}  # letters that wait for the pace of replies, and their senders
        self._untold = Untold()
        self._looked_at = -BETWEEN_LOOKS  # seconds of a steady clock

    # -- the loop

    async def run(self) -> None:
        """Until it is cancelled."""
        await self._arrive()
        self._log.info("mailbox: {} takes mail at {}", self.post.name, self.post.config.address)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._claiming())
            group.create_task(self._keeping())
            group.create_task(self._starting())

    async def leave(self) -> None:
        """Give back what is in hand, and say goodbye."""
        for turn in self.post.turns.all():
            self.post.turns.end(turn)
            await self._try("give back", turn.work.release())
        await self._try("say goodbye", self._say_goodbye())

    async def _say_goodbye(self) -> None:
        """The last one of an agent's gateways says it for the agent."""
        if await self._lodging.depart():
            await self.post.box.leave()

    async def _arrive(self) -> None:
        await self._register()
        await self._lodging.arrive()
        freed = await self.post.room.run(gateways.free_dead_claims, self.post.mailbox)
        if freed:
            self._log.info("mailbox: {} letter(s) of a gateway that died are handed out again", freed)
        await self.post.room.run(intent.forget_old, self.post.core, self.post.name)

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

    async def _claiming(self) -> None:
        poll = self.post.config.poll_interval
        while True:
            room = MOST_IN_HAND - self.post.turns.running
            if room <= 0:
                await asyncio.sleep(min(poll, 1.0))
                continue
            batch = await attempt(self._claim(min(room, 8)))
            if isinstance(batch, Exception):
                self._log.warning("mailbox: no mail could be claimed: {}", error_text(batch))
                await asyncio.sleep(poll)
                continue
            self._put_back.clear()
            for work in batch:
                await self._take_in(work)

    async def _claim(self, count: int) -> list[AsyncWork]:
        poll = self.post.config.poll_interval
        now, replies = time.monotonic(), self.post.automatic.replies
        self._held = {letter: sender for letter, sender in self._held.items() if replies.wait(sender, now)}
        busy = self.post.turns.peers_with(MOST_OF_ONE) | self._pace.waiting(now)
        left = self._lodging.left | self._held.keys()
        if not busy and not left:
            return await self.post.box.claim(count, lease=LEASE, timeout=poll, holder=self._holder)
        wait = 0.0 if busy else poll  # the bell rings for whoever is busy, too
        found = await claim_but(
            self.post.box, count, busy=busy, left=left, lease=LEASE, holder=self._holder, timeout=wait
        )
        if busy and not found:
            await asyncio.sleep(min(poll, 1.0))
        return found

    async def _keeping(self) -> None:
        """Signs of life, leases, deadlines."""
        poll = min(self.post.config.poll_interval, LEASE / 3)
        while True:
            await self._try("beat", self._beat())
            await self._try("look at deadlines", self._look_at_deadlines())
            for turn in self.post.turns.all():
                await self._try("hold on", self._hold(turn))
            await asyncio.sleep(poll)

    async def _beat(self) -> None:
        try:
            await self.post.box.heartbeat()
        except UnknownAgent:  # somebody emptied the folder
            await self._register()
        await self._lodging.stay()

    async def _look_at_deadlines(self) -> None:
        core = self.post.core
        await self.post.room.run(tasks.report_overdue, core, core.now().wall)
        if time.monotonic() - self._looked_at >= BETWEEN_LOOKS:
            self._looked_at = time.monotonic()
            await self._try("look at what was left to others", self._lodging.look_again())
            for task in await settlement.unanswered(self.post):
                await self._try("fail a task whose question was not answered", settlement.fail_unanswered(task))

    async def _hold(self, turn: Turn) -> None:
        age = turn.age(time.monotonic())
        if turn.put_off_until is not None and time.monotonic() >= turn.put_off_until:
            await self._end(turn)  # first: it is claimed again as soon as it is given back
            await turn.work.release()
        elif turn.intent.what == "tell" and age > LONGEST_TELLING and not self._bus.says_what_is_over:
            await self._done(turn)
        elif age > LONGEST_TURN and not turn.is_answering:
            await self._break_off(turn)
        else:
            await self._renew(turn)

    async def _starting(self) -> None:
        """Whoever gave a task sees that it is worked on, while it is."""
        while True:
            for turn in self.post.turns.all():
                if turn.age(time.monotonic()) >= BEFORE_WORKING:
                    await self._try("say what is worked on", settlement.say_working(turn))
            await asyncio.sleep(BETWEEN_STARTS)

    async def _renew(self, turn: Turn) -> None:
        work = turn.work
        try:
            await work.renew(LEASE)
        except LeaseLost:
            is_held = self.post.turns.get(turn.id) is turn and turn.work is work and not turn.is_answering
            if is_held:  # else it was settled meanwhile, or goes on under a new one
                self._log.warning("mailbox: the lease of {} is lost; its answer will not be mailed", turn.id)
                await self._end(turn)

    async def _break_off(self, turn: Turn) -> None:
        """Nobody is to wait for it any longer: neither its sender, nor the letters behind it."""
        if turn.intent.what == "tell":
            await self._tell_later(turn)
            return
        why = f"its turn took longer than {LONGEST_TURN / 3600:g} hours"
        self._log.warning("mailbox: {} is given up: {}", turn.id, why)
        await self._try("settle", settlement.give_up(turn, why))
        await self._bus.hand_over(bus.stop(turn))  # before the next letter is handed to its session
        await self._end(turn)

    # -- letters that come

    async def _take_in(self, work: AsyncWork) -> None:
        """Whatever is wrong with a letter costs that letter a try, until it is dead; the others go on."""
        if same_name(work.sender, self.post.core.limits.human):
            self.post.automatic.person_wrote()
        broken = await attempt(self._receive(work))
        if broken is not None:
            await self._fail(work, broken)

    async def _fail(self, work: AsyncWork, broken: Exception) -> None:
        why = f"it could not be taken in: {error_text(broken)}"
        self._log.warning("mailbox: {}: {}", work.id, why)
        if not work.is_settled:
            await self._try("give back", work.fail(why))

    async def _receive(self, work: AsyncWork) -> None:
        post = self.post
        running = post.turns.get(work.id)
        if running is not None:  # the machine slept, and its lease ended: the turn goes on under the new one
            running.work = work
            return
        errand = await post.room.run(sort, post.mailbox, work._work, post.config)
        if await self._lodging.is_left(work, errand):
            self._log.info("mailbox: {} is left to the gateway that has its session", work.id)
            return
        if errand.origin is not None and errand.task is None:
            await post.room.run(intent.use_up, post.core, post.name, work.message)
        if errand.what == "done":
            await work.ack()
        elif errand.what == "refuse":
            await work.reject(errand.reason)
        elif errand.what == "stop":
            await self._stop(work, errand)
        elif await self._is_one_question_too_many(work, errand):
            await work.reject(f"more than {auto_reply.MOST_ROUNDS} questions about one task without an answer")
        elif not await self._reaches(errand):
            self._log.info("mailbox: {} is for nobody who is reached; mail_tasks shows it", work.id)
            await work.ack()
        elif await self._has_to_wait(work, errand):
            await work.release()
        else:
            await self._take_in_hand(work, errand)

    async def _is_one_question_too_many(self, work: AsyncWork, errand: Intent) -> bool:
        """A table lets whoever works on a task ask again and again, and each time a person would be told."""
        post, task = self.post, errand.task
        if errand.origin is None or task is None or task.state is not TaskState.INPUT_REQUIRED:
            return False
        return not await post.room.run(intent.is_let_in, post.core, post.name, task.letter, work.id)

    async def _reaches(self, errand: Intent) -> bool:
        """A turn that tells somebody who is not there would be lost, and the answer with it."""
        return errand.what != "tell" or errand.origin is None or await self._bus.reaches(errand.origin.channel)

    async def _has_to_wait(self, work: AsyncWork, errand: Intent) -> bool:
        """Is this letter over a pace? Then it goes back without a try, and so does what its sender wrote after it:
        it is claimed again when there is room for it, in the order of acceptance (G7).
        """
        sender, now, replies = work.sender, time.monotonic(), self.post.automatic.replies
        if errand.follows and replies.wait(sender, now):
            self._held[work.id] = sender
            if self.post.automatic.is_first(sender):
                why = f"{replies.most} replies of {sender} were answered within an hour"
                await self.post.tell_of_stop(sender, why)
            return True
        if fold(sender) in self._put_back or not self._pace.allows(sender, now):
            self._put_back.add(fold(sender))
            return True
        if errand.follows:
            replies.allows(sender, now)
        return False

    async def _take_in_hand(self, work: AsyncWork, errand: Intent) -> None:
        turn = Turn(work, errand)
        if errand.task is not None and errand.what == "work" and not await self._admit(turn):
            return
        if errand.what == "go_on":
            turn.task = await settlement.open_task(self.post, errand.answers)
        if self.post.turns.begin(turn) and not await self._is_handed_over(turn):
            await self._end(turn)

    async def _admit(self, turn: Turn) -> bool:
        """Take a task on, or say no. One that was taken on before a crash goes on."""
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

    async def _is_handed_over(self, turn: Turn) -> bool:
        """If not, its letter has failed, and its turn is to be ended."""
        broken = await attempt(self._hand_over(turn))
        if broken is None:
            return True
        await self._fail(turn.work, broken)
        if turn.work.delivery.state is State.DEAD:
            await self._try("settle", settlement.give_up(turn, f"it could not be worked on: {error_text(broken)}"))
        return False

    async def _hand_over(self, turn: Turn) -> None:
        turn.began = time.monotonic()
        unpacked = await self.post.room.run(channel_post.unpack, turn.work.message, self._media)
        await self._bus.hand_over(bus.inbound(turn, unpacked))

    async def _stop(self, work: AsyncWork, errand: Intent) -> None:
        """Its giver took a task back: the turn is stopped, and its last word not sent."""
        turn = self.post.turns.of_task(errand.task.letter) if errand.task is not None else None
        await work.ack()
        if turn is None:
            return
        if not turn.is_waiting:  # else the session is that of another turn, which goes on
            await self._bus.hand_over(bus.stop(turn))
        await self._done(turn)

    # -- turns that end

    async def say(self, letter: str, text: str, media: tuple[str, ...]) -> None:
        """The model's last word in the turn that this letter began. Settles the letter, and mails the word."""
        turn = self.post.turns.get(letter)
        if turn is None:
            return  # settled before, or no longer ours
        turn.is_answering = True
        words = [*(value for value, _ in turn.parts), text]
        files = [*(path for _, paths in turn.parts for path in paths), *media]
        broken = await attempt(self._settle(turn, "\n\n".join(filter(None, words)), tuple(files)))
        if broken is not None:
            await self._not_mailed(turn, broken)
        await self._end(turn)

    async def _not_mailed(self, turn: Turn, broken: Exception) -> None:
        """Whoever waits for the answer hears that there is none, unless somebody else may still give one."""
        why = f"its answer cannot be mailed: {error_text(broken)}"
        if isinstance(broken, LeaseLost):
            self._log.warning("mailbox: {} went to another gateway meanwhile; nothing is mailed", turn.id)
        elif isinstance(broken, (Busy, OSError)):
            await self._try("give back", turn.work.fail(why))
        else:
            self._log.warning("mailbox: the answer to {} is refused: {}", turn.id, error_text(broken))
            await self._try("settle", settlement.give_up(turn, why))

    async def _settle(self, turn: Turn, text: str, files: tuple[str, ...]) -> None:
        """Not only at the first try: a model's work is dear, and a full disk may be emptied."""
        for pause in PAUSES:
            try:
                await settlement.settle(self.post, turn, text, files)
            except (Busy, OSError) as busy:
                self._log.warning("mailbox: the answer to {} cannot be mailed now: {}", turn.id, busy)
                await asyncio.sleep(max(pause, getattr(busy, "retry_after", None) or 0.0))
            else:
                return
        await settlement.settle(self.post, turn, text, files)

    async def over(self, letter: str) -> None:
        """The turn is over, and nothing more will be said in it."""
        turn = self.post.turns.get(letter)
        if turn is None or turn.is_answering or turn.is_waiting:
            return
        if turn.intent.what == "tell" and turn.failed:
            await self._tell_later(turn)
        elif turn.parts:
            await self._try("answer", self.say(letter, "", ()))
        else:
            await self._done(turn)

    async def broken_off(self, letter: str) -> None:
        """The turn was stopped before its end: somebody else may try."""
        turn = self.post.turns.get(letter)
        if turn is None or turn.is_answering or turn.is_waiting:
            return
        if turn.intent.what == "tell":
            await self._tell_later(turn)
        else:
            await self._try("give back", turn.work.fail("the turn was stopped"))
            await self._end(turn)

    async def _tell_later(self, turn: Turn) -> None:
        if not self._untold.put_off(turn):
            self._log.warning("mailbox: {} could not be told for days; mail_tasks shows it", turn.id)
            await self._done(turn)

    async def _done(self, turn: Turn) -> None:
        self._untold.forget(turn)
        turn.is_answering = True  # its lease is not lost if it cannot be renewed from here on
        if not turn.work.is_settled:
            await self._try("settle", turn.work.ack())
        await self._end(turn)

    async def _end(self, turn: Turn) -> None:
        after = self.post.turns.end(turn)
        while after is not None and not await self._is_handed_over(after):
            after = self.post.turns.end(after)

    async def _try(self, what: str, doing: Any) -> None:
        """One letter's trouble is not that of the others."""
        if isinstance(broken := await attempt(doing), Exception):
            self._log.warning("mailbox: could not {}: {}", what, error_text(broken))
