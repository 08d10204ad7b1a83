"""Sending the letters that wait for one peer: many at once, each sender's letters to one recipient in order.

    RULES              what happens to a letter after each answer of the peer
    QueuedLetter       one letter to all its recipients at one system, encoded
    SendRound          the letters of one round on one connection: which are unanswered, and behind which others
    Courier            the task of one link that runs such rounds and records their results

**Commit order (G9).** A letter stays queued here until the peer has confirmed it; what one answer confirms is
recorded in one commit. A confirmation that is lost, or cannot be recorded, makes the letter go once more, and the
peer knows its id.

**After a cut** nobody knows which letter caused it, if any. So the next connection begins with one letter at a
time, and a letter during which the connection is cut PATIENT times waits as if it had been refused.
"""

from __future__ import annotations

import asyncio
import logging
import random
from enum import StrEnum
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct
from msgspec.structs import replace

from ..core import outbox
from ..errors import PostroomError, StoreBusy, TooLarge
from ..formats.federation import each_of, encode_envelope, envelope_for, read_refusal, refusals
from ..formats.map import ROUTE
from ..model.codec import encode
from ..model.delivery import GIVEN
from ..model.message import same_name
from ..model.names import ANYWHERE, Address, agent_of, at_system, parse_address, system_of
from ..model.peer import Envelope
from ..model.query import Found
from ..policy.retry import is_spent, next_try
from ..policy.trust import check_outgoing
from .connection import ConnectionLost, MapRefusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
    from datetime import datetime

    from ..formats.federation import PeerRefusal
    from ..model.delivery import Delivery
    from .link import Link, PeerConnection


log = logging.getLogger("postroom")
WARN_AFTER = 30.0  # seconds of a busy store before it is worth a warning


class RetryLog:
    """The log of one task that tries again: a failure is warned of once, until a try succeeds.

    A busy store passes by itself, so it is warned of only after WARN_AFTER seconds.
    """

    def __init__(self, what: str) -> None:
        self._whose = what
        self._since: float | None = None
        self._is_warned = False

    def failed(self, wrong: PostroomError) -> None:
        now = monotonic()
        self._since = now if self._since is None else self._since
        is_news = not isinstance(wrong, StoreBusy) or now - self._since >= WARN_AFTER
        if is_news and not self._is_warned:
            self._is_warned = True
            log.warning("%s waits a moment: %s", self._whose, wrong)
        else:
            log.debug("%s waits a moment: %s", self._whose, wrong)

    def recovered(self) -> None:
        self._since, self._is_warned = None, False


# -- the rules: what happens to a letter after each answer


class PeerAnswer(StrEnum):
    """What is known of a letter after it was to go to the peer, for one recipient."""

    KEPT = "the peer keeps it"
    BEHIND = "the peer did not look at it: an earlier letter of the same pair waits"
    LATER = "the peer does not take it now"
    UNKNOWN = "the peer gave no receipt, or the connection is cut whenever the letter is sent"
    RETURNS = "it was not sent, because it came from there"
    BARRED = "it was not sent, because of a rule of ours"
    REFUSED = "the peer does not take it"


class Reservation(StrEnum):
    """Whether only this peer may get a letter whose recipient (`name@*`) several systems may have."""

    NONE = "the letter goes by one link anyway"
    NEW = "it was reserved in this round: the peer cannot have had it before"
    HELD = "it was reserved earlier: the peer may have it from before a cut"


class Step(StrEnum):
    """What happens to the delivery."""

    SETTLE = "it is done here"
    STAY = "it stays queued as it is"
    RETRY = "it stays queued; that was a failed try, and a reservation ends"
    KEEP = "it stays queued and reserved for this peer; that was a failed try"
    OTHER = "the next system that has an agent of the name gets it"
    SEARCH = "peers are asked again for the name, if its system was found by asking; else it bounces"
    BOUNCE = "it is dead, and its sender gets a bounce"


# G9: only SETTLE ends our duty to keep a letter, and only the peer's receipt leads there. A letter that one system
# may have is never given to another one (KEEP): it would be delivered twice.
RULES: dict[PeerAnswer, dict[Reservation, Step]] = {
    answer: dict(zip(Reservation, steps, strict=True))
    for answer, *steps in (
        #                NONE         NEW          HELD
        (PeerAnswer.KEPT, Step.SETTLE, Step.SETTLE, Step.SETTLE),
        (PeerAnswer.BEHIND, Step.STAY, Step.STAY, Step.STAY),
        (PeerAnswer.LATER, Step.RETRY, Step.RETRY, Step.KEEP),
        (PeerAnswer.UNKNOWN, Step.RETRY, Step.KEEP, Step.KEEP),
        (PeerAnswer.RETURNS, Step.RETRY, Step.OTHER, Step.OTHER),
        (PeerAnswer.BARRED, Step.BOUNCE, Step.OTHER, Step.BOUNCE),
        (PeerAnswer.REFUSED, Step.SEARCH, Step.OTHER, Step.OTHER),
    )
}
_TRIES_AGAIN = frozenset({Step.RETRY, Step.KEEP, Step.OTHER})


def next_step(answer: PeerAnswer, reservation: Reservation, *, is_last_try: bool) -> Step:
    """Return what happens to a delivery; after the last try that the settings allow, no other is made."""
    step = RULES[answer][reservation]
    return Step.BOUNCE if is_last_try and step in _TRIES_AGAIN else step


class Result(Struct, frozen=True):
    """The answer for one recipient, with its reason if the letter was not kept."""

    answer: PeerAnswer
    reason: str = ""


_KEPT = Result(PeerAnswer.KEPT)
_CUTS_CONNECTION = Result(PeerAnswer.UNKNOWN, "the connection is cut whenever the letter is sent")
_NO_RECEIPT = Result(PeerAnswer.UNKNOWN, "it does not say that it keeps the letter")
_CAME_FROM_THERE = Result(PeerAnswer.RETURNS, "it came from there, and waits for another way")


def _result_of(refusal: PeerRefusal) -> Result:
    if refusal.is_behind:
        return Result(PeerAnswer.BEHIND)
    return Result(PeerAnswer.LATER if refusal.waits else PeerAnswer.REFUSED, refusal.message)


# -- envelopes (on the executor's threads)

AROUND = 1024  # bytes around an envelope in a call, `after` included
LARGEST = 8 * 1024 * 1024  # bytes of letters that are looked up at once, and one letter more


class QueuedLetter(Struct, frozen=True, kw_only=True):
    """The envelope of one letter, and its deliveries that go to one system together."""

    envelope: Envelope
    found: tuple[Found, ...]  # one for each target of the envelope, as our room has it
    encoded: Raw

    @property
    def key(self) -> tuple[str, str]:
        """The key of the envelope: of one letter's envelopes, only this one is for its first recipient."""
        return _key_of(self.found[0])

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The pairs of sender and recipient between which order is kept."""
        return [(found.message.sender, found.delivery.mailbox) for found in self.found]

    @property
    def size(self) -> int:
        return memoryview(self.encoded).nbytes

    @property
    def is_free(self) -> bool:
        """Whether the envelope could go to another system as well, and is reserved for none."""
        return any(system_of(one.delivery.mailbox) == ANYWHERE and not one.delivery.given_to for one in self.found)

    def for_all(self, result: Result) -> dict[str, Result]:
        """Return the same result for each recipient."""
        return {target.agent: result for target in self.envelope.targets}


def next_envelopes(link: Link, waiting: Mapping[str, str], most: int, is_postroom: bool) -> list[QueuedLetter]:
    """Return the next envelopes for these mailboxes, in order of acceptance.

    `waiting`: the system of each mailbox; `is_postroom`: is the peer of the link a Postroom, too?
    """
    together: dict[tuple[str, str, bool, str], list[Found]] = {}
    for found in outbox.next_letters(link.core, list(waiting), most, link.takes):
        mailbox = found.delivery.mailbox
        address = parse_address(mailbox, "to")
        # The peer answers by agent name: a broadcast to a system goes alone, and an agent that is addressed in two
        # scopes goes in two envelopes.
        key = (found.message.id, waiting[mailbox], bool(address.agent), address.scope)
        together.setdefault(key, []).append(found)
    envelopes: list[QueuedLetter] = []
    size, now, most_hops = 0, link.core.now().wall, link.core.limits.federation_hops
    for (_, system, *_), some in together.items():
        addresses = [parse_address(one.delivery.mailbox, "to") for one in some]
        # An agent that was addressed anywhere (`name@*`) was found at this system.
        targets = [Address(agent=to.agent, system=system) if to.system == ANYWHERE else to for to in addresses]
        envelope = envelope_for(some[0].message, targets, here=link.here, most_hops=most_hops)
        encoded = Raw(encode(encode_envelope(envelope, now, is_ours=is_postroom)))
        envelopes.append(QueuedLetter(envelope=envelope, found=tuple(some), encoded=encoded))
        size += envelopes[-1].size
        if size > LARGEST:
            break
    return envelopes


def in_batches(envelopes: Iterable[QueuedLetter], most: int, largest: int) -> Iterator[list[QueuedLetter]]:
    """Cut a sequence into the envelopes of one call each: at most so many, of so many bytes, but at least one."""
    batch: list[QueuedLetter] = []
    size = 0
    for queued in envelopes:
        own = queued.size + AROUND * len(queued.found)
        size += own
        if batch and (len(batch) == most or size > largest):
            yield batch
            batch, size = [], own
        batch.append(queued)
    if batch:
        yield batch


# -- one round


class SendRound:
    """The envelopes of one round on one connection.

    Each unanswered envelope is known by its pairs of sender and recipient, so that a later one of the same pair
    names it as its predecessor (`after`).
    """

    def __init__(self, connection: PeerConnection, calls: int) -> None:
        self.connection = connection
        self.turns = asyncio.Semaphore(calls)  # for calls that are not answered
        self.moved = 0  # deliveries that changed
        self.unanswered: dict[tuple[str, str], QueuedLetter] = {}  # by key
        self._held: set[tuple[str, str]] = set()  # pairs with a letter that was not accepted
        self._last: dict[tuple[str, str], QueuedLetter] = {}  # by pair: the envelope that was sent last

    @property
    def is_over(self) -> bool:
        return self.connection.rpc.lost.is_set()

    def may_go(self, queued: QueuedLetter) -> bool:
        """Return whether it may go without passing an envelope of the same pair that waits."""
        if self._held.isdisjoint(queued.pairs):
            return True
        self.hold(queued)  # it waits, for all its recipients
        return False

    def hold(self, queued: QueuedLetter) -> None:
        """Record that this envelope waits: no later one of its pairs may go in this round."""
        self._held.update(queued.pairs)

    def begin(self, queued: QueuedLetter) -> dict[str, str]:
        """Record that this envelope goes next; return its unanswered predecessors by recipient."""
        behind = {}
        for pair, target in zip(queued.pairs, queued.envelope.targets, strict=True):
            ahead = self._last.get(pair)
            if ahead is not None and ahead.key in self.unanswered:
                behind[target.agent] = ahead.envelope.message.id
            self._last[pair] = queued
        self.unanswered[queued.key] = queued
        return behind


# -- the courier

Letter = tuple[QueuedLetter, dict[str, str]]  # and its predecessors by recipient
Answered = tuple[QueuedLetter, dict[str, Result]]  # and its results by recipient
WINDOW = 64  # unanswered letters
CALLS = 2  # unanswered calls, where a peer takes several letters in one: it answers one and has the next
MOST_BYTES = 256 * 1024  # of letters in one call
IN_A_ROUND = 8  # windows that are looked up for one round
PATIENT = 3  # cuts of the connection during one letter, after which the letter waits
LATER = 1.0  # seconds before the next try, where our own room is busy


class Courier:
    """The task that sends the letters of one link."""

    def __init__(self, link: Link, later: Callable[[float], object]) -> None:
        self._link = link
        self._later = later  # asks for another look after so many seconds
        self._window = WINDOW
        self._cuts: tuple[str, int] = ("", 0)  # the letter during which the connection was cut, and how often
        self._new: set[tuple[str, str]] = set()  # reserved in this round: the peer cannot have had them before
        self._retry_log = RetryLog(f"mail for the system {link.system}")

    async def run(self) -> None:
        """Send letters for ever."""
        link = self._link
        while True:
            await link.has_mail.wait()
            # Before the look, so that a letter that comes meanwhile sets it again.
            link.has_mail.clear()
            try:
                while (connection := link.connection) is not None and link.waiting:
                    if not await self._round(connection):
                        break
                self._retry_log.recovered()
            except PostroomError as wrong:
                self._retry_log.failed(wrong)
                await asyncio.sleep(LATER)
                link.has_mail.set()
            except Exception:  # the task of a link must not end: its mail would wait for ever
                log.exception("mail for the system %s waits because of an internal error", link.system)
                await asyncio.sleep(LATER)

    async def _round(self, connection: PeerConnection) -> bool:
        """Send some of what waits; False: nothing more can go now."""
        waiting = dict(self._link.waiting)
        envelopes = await self._look_up(connection, waiting)
        self._new.clear()
        if any(queued.is_free for queued in envelopes):
            # Before anything is sent: otherwise two links could both deliver it (G9).
            envelopes = await self._reserve(connection, waiting, envelopes)
        if not envelopes:
            for mailbox in waiting:
                self._link.waiting.pop(mailbox, None)
            return False
        # To a peer that does not know `after`, letters go one after the other, so that none overtakes (G7).
        window = self._window if connection.in_order else 1
        most = min(connection.together, max(1, window // CALLS))
        send_round = SendRound(connection, window // most)
        await self._send_all(send_round, envelopes, most)
        if send_round.is_over:
            # Whether the peer has these, nobody knows. They go again on the next connection; the peer knows their
            # ids (G9).
            await self._after_cut(list(send_round.unanswered.values()))
            return False
        # After a cut letters go one by one, so that a letter which breaks the connection is found (`_after_cut`).
        self._window = min(WINDOW, self._window * 2)
        return send_round.moved > 0

    async def _reserve(
        self, connection: PeerConnection, waiting: dict[str, str], envelopes: list[QueuedLetter]
    ) -> list[QueuedLetter]:
        """Reserve for our link the letters that could go by another one as well.

        After a cut or a crash they go by ours alone.
        """
        free = [found for queued in envelopes if queued.is_free for found in queued.found]
        await self._link.executor.submit(partial(outbox.assign, self._link.core, free, self._link.system), self)
        self._new.update(_key_of(found) for found in free if not found.delivery.given_to)
        return [queued for queued in await self._look_up(connection, waiting) if not queued.is_free]

    async def _look_up(self, connection: PeerConnection, waiting: dict[str, str]) -> list[QueuedLetter]:
        """Look up what goes next; few after a cut, when the window is small."""
        most = self._window * IN_A_ROUND
        look = partial(next_envelopes, self._link, waiting, most, connection.in_order)
        envelopes: list[QueuedLetter] = await self._link.executor.run_slow(look)
        return envelopes

    async def _send_all(self, send_round: SendRound, envelopes: list[QueuedLetter], most: int) -> None:
        largest = send_round.connection.largest
        tasks: set[asyncio.Future[None]] = set()
        for batch in in_batches(envelopes, most, MOST_BYTES if largest is None else min(MOST_BYTES, largest)):
            await send_round.turns.acquire()
            if send_round.is_over:
                break
            letters = [(queued, send_round.begin(queued)) for queued in batch if send_round.may_go(queued)]
            task = asyncio.ensure_future(self._send_batch(send_round, letters))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            task.add_done_callback(self._batch_over)
        if tasks:
            await asyncio.wait(tasks)

    def _batch_over(self, task: asyncio.Future[None]) -> None:
        """Log why a batch failed. What it could not record is sent once more; the peer knows its id."""
        fault = None if task.cancelled() else task.exception()
        if isinstance(fault, PostroomError):
            log.warning("the result of a letter could not be recorded: %s", fault)
        elif fault is not None:
            log.error("a letter was not sent because of an internal error", exc_info=fault)

    def _problem_of_ours(self, connection: PeerConnection, queued: QueuedLetter) -> Result | None:
        """Return the reason why this side does not send the envelope; None if it does."""
        # A hub must not send a letter back where it came from (G11).
        if any(same_name(self._link.system, passed) for passed in queued.envelope.path):
            return _CAME_FROM_THERE
        try:
            for target in queued.envelope.targets:
                check_outgoing(self._link.peer, queued.envelope.message, target)
            if connection.largest is not None and queued.size + AROUND > connection.largest:
                raise TooLarge(
                    f"the letter is {queued.size} bytes as it is sent, and is not read there", field="body"
                )
        except PostroomError as refused:  # the peer's rules have changed, or the letter is too large for it
            return Result(PeerAnswer.BARRED, str(refused))
        return None

    async def _send_batch(self, send_round: SendRound, letters: list[Letter]) -> None:
        """Send envelopes, then carry out the rules for each."""
        try:
            answered = await self._call_peer(send_round, letters)
        finally:
            send_round.turns.release()  # the next call goes while these results are recorded
        await self._settle(send_round, answered)

    async def _call_peer(self, send_round: SendRound, letters: list[Letter]) -> list[Answered]:
        """Send envelopes in one call, if the peer takes that; return the answers that are known.

        An envelope that we do not send is answered without a call.
        """
        connection = send_round.connection
        answered: list[Answered] = []
        ready: list[Letter] = []
        for queued, after in letters:
            problem = self._problem_of_ours(connection, queued)
            if problem is None:
                ready.append((queued, after))
            else:
                answered.append((queued, queued.for_all(problem)))
        rows: list[dict[str, Any] | None] = [None] * len(ready)
        together = None
        if len(ready) > 1:
            envelopes, afters = [queued.encoded for queued, _ in ready], [after for _, after in ready]
            call = connection.rpc.call(ROUTE, envelopes=envelopes, afters=afters)
            together = await self._call_route(send_round, call)
        if len(ready) == 1 or (together is not None and "error" in together):  # the call as such is refused
            for number, (queued, after) in enumerate(ready):
                call = connection.rpc.route(queued.envelope, queued.encoded, after)
                rows[number] = await self._call_route(send_round, call)
        elif together is not None:
            rows[:] = each_of(together, len(ready))
        for (queued, _), row in zip(ready, rows, strict=True):
            result = None if row is None else self._read_answer(send_round, queued, row)
            if result is not None:
                answered.append((queued, result))
        return answered

    async def _call_route(self, send_round: SendRound, call: Awaitable[dict[str, Any]]) -> dict[str, Any] | None:
        """Return the answer to one call, a refusal as its `error`; None: nobody knows, the connection is gone."""
        try:
            return await call
        except MapRefusal as refused:
            return {"error": refused.error}
        except ConnectionLost as lost:
            log.debug("a call of %s was not answered: %s", self._link.system, lost)
            self._link.give_up(send_round.connection)
            return None

    def _read_answer(
        self, send_round: SendRound, queued: QueuedLetter, row: dict[str, Any]
    ) -> dict[str, Result] | None:
        """Return the peer's answer for each recipient; None: it refuses the connection, and not the letter."""
        if row.get("error") is None:
            if row.get("routed") is not True:
                return queued.for_all(_NO_RECEIPT)
            return {agent: _result_of(refusal) for agent, refusal in refusals(row).items()}
        refusal = read_refusal(row["error"])
        if not refusal.is_of_trust:
            return queued.for_all(_result_of(refusal))
        self._link.report_problem(refusal.message)
        self._link.give_up(send_round.connection)
        return None

    async def _settle(self, send_round: SendRound, answered: list[Answered]) -> None:
        """Carry out what the rules say for each recipient; one without a result is kept by the peer."""
        steps: list[tuple[Found, Result, Step]] = []
        for queued, results in answered:
            # Before anything is recorded: if recording fails, the letter goes again, and must not count as cut
            # off.
            del send_round.unanswered[queued.key]
            for found, target in zip(queued.found, queued.envelope.targets, strict=True):
                result = results.get(target.agent, _KEPT)
                step = self._step_for(found, result)
                steps.append((found, result, step))
                if step is not Step.SETTLE:
                    send_round.hold(queued)
                send_round.moved += step is not Step.STAY
        kept = [found.delivery for found, _, step in steps if step is Step.SETTLE]
        # All that one answer confirms in one commit: one sync for many letters.
        if kept:
            await self._record_kept(kept)
        for found, result, step in steps:
            await self._take_step(found, result, step)

    async def _record_kept(self, deliveries: list[Delivery]) -> None:
        """Record what the peer has confirmed. Until then it is ours to keep (G9)."""
        link = self._link
        link.sent += len(deliveries)
        await link.executor.submit(partial(outbox.record_departure, link.core, deliveries, link.system))

    def _step_for(self, found: Found, result: Result) -> Step:
        reservation = Reservation.NONE
        if found.delivery.given_to:
            reservation = Reservation.NEW if _key_of(found) in self._new else Reservation.HELD
        is_last = is_spent(found.delivery.attempts + 1, self._link.core.limits)
        return next_step(result.answer, reservation, is_last_try=is_last)

    async def _take_step(self, found: Found, result: Result, step: Step) -> None:
        """Record the step of a delivery that stays ours."""
        reason = f"{self._link.system}: {result.reason}"
        if step is Step.OTHER:
            self._link.exclude(found)
            await self._record_delay(found, reason, self._link.core.now().wall)
        elif step in {Step.RETRY, Step.KEEP}:
            # A random part: many letters that failed together must not come back together.
            due = next_try(found.delivery, self._link.core.now().wall, self._link.core.limits, random.random())
            await self._record_delay(found, f"{GIVEN}{reason}" if step is Step.KEEP else reason, due)
        elif step is Step.BOUNCE or (step is Step.SEARCH and not await self._search_again(found, reason)):
            await self._link.executor.submit(partial(outbox.record_refusal, self._link.core, found, reason))

    async def _record_delay(self, found: Found, reason: str, due: datetime) -> None:
        await self._link.executor.submit(partial(outbox.record_delay, self._link.core, found, reason, due))
        self._later((due - self._link.core.now().wall).total_seconds())

    async def _search_again(self, found: Found, reason: str) -> bool:
        """Look the recipient up again at the other peers, if it was found by asking peers for its name."""
        sought = replace(found.delivery, mailbox=at_system(agent_of(found.delivery.mailbox), ANYWHERE))
        self._link.exclude(replace(found, delivery=sought))
        search = partial(outbox.search_again, self._link.core, found, reason)
        is_left: bool = await self._link.executor.submit(search)
        if is_left:
            self._later(0)
        return is_left

    async def _after_cut(self, envelopes: list[QueuedLetter]) -> None:
        self._window = 1
        # Of several nobody knows which one broke the connection.
        if len(envelopes) != 1:
            return
        (queued,) = envelopes
        id, times = self._cuts
        cut = queued.envelope.message.id
        self._cuts = (cut, times + 1 if id == cut else 1)
        if self._cuts[1] >= PATIENT:
            self._cuts = ("", 0)
            for found in queued.found:
                await self._take_step(found, _CUTS_CONNECTION, self._step_for(found, _CUTS_CONNECTION))


def _key_of(found: Found) -> tuple[str, str]:
    return found.message.id, found.delivery.mailbox
