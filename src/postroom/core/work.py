"""Work on mail: claim a letter under a lease, then ack, fail, release or renew it; look after dead letters.

A letter has one holder at a time, and an ack is final. The lease token is the only proof of holding: a holder that
comes back after its lease has ended is refused. A repeated ack or failure, whose first answer was lost, succeeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Invalid, LeaseLost, StaleRevision, Undeliverable, UnknownMessage
from ..model import delivery as model_delivery
from ..model.delivery import SETTLED, Attempt, Delivery, Lease, State
from ..model.message import BOUNCE, Message
from ..model.query import Found, Query
from ..model.values import as_list, check_count, check_label, check_line, check_seconds
from ..policy import retry as policy_retry
from ..policy.limits import LONGEST_LEASE
from ..policy.retry import has_lapsed, latest_retry
from ..store.protocol import Move
from . import deliveries, messages
from .compose import Draft, RequestFields
from .inbox import Filtered, OneLetter, Read, check_spelling, received
from .messages import Receipt
from .proof import is_unproven
from .verb import LOCAL, LONGEST_WAIT, MailboxVerb, verb

if TYPE_CHECKING:
    from ..model.query import Moment
    from ..store.protocol import Write
    from .authorize import Principal
    from .core import Core


Settle = Callable[[Delivery], tuple[Delivery, str]]
Repeats = Callable[[Delivery, Delivery], bool]  # (delivery now, delivery as its holder knew it)
LONGEST_REASON = 2000
MOST_CLAIMED = 10_000  # letters claimed at once


class Claimed(Struct):
    """Letters that were claimed, and for how many seconds."""

    letters: list[Found]
    lease: float


@verb("claim", Claimed, action="claim", waits=True)
class Claim(Filtered, kw_only=True):
    """Take letters under a lease, by priority, then age: nobody else gets them meanwhile."""

    count: Annotated[int, "how many at most"] = 1
    lease: Annotated[float | None, "for how many seconds"] = None
    holder: Annotated[str | None, "name of the holder, for people"] = None
    timeout: Annotated[float, f"how long to wait, in seconds; over a wire {LONGEST_WAIT:g} at most"] = 0.0
    since: Annotated[datetime | None, "only letters written at or after this time"] = None

    def run(self, core: Core, _principal: Principal) -> Claimed:
        moment, mailbox = core.clock.now(), self.agent_id
        query = Query(
            mailbox=mailbox,
            states=(State.UNREAD,),
            offered_at=moment.wall,
            due_at=moment.wall,
            # A retry that a wrong clock set far ahead is offered now: clocks must not withhold mail (G7).
            due_most=latest_retry(moment.wall, core.limits),
            order="priority",
            limit=check_count(self.count, "count", most=MOST_CLAIMED),
        )
        query = self.narrowed(core, query, self.since)
        seconds = _check_lease(core, self.lease)
        lease = _lease(core, moment, mailbox, seconds, self.holder)
        found = core.store.take(query, moment, lease) if core.store.take is not None else None
        if found is None:
            deliveries.apply_timers(core, moment, (mailbox,))
            found = deliveries.move_found(core, query, "claim", partial(model_delivery.claim, lease=lease))
        if not found:
            check_spelling(core, mailbox)
        return Claimed(found, seconds)

    def is_empty(self, result: Claimed) -> bool:
        return not result.letters


@verb("claim_one", OneLetter, action="claim", local=True)
class ClaimOne(MailboxVerb, kw_only=True):
    """Claim one letter by its id, even before its next attempt is due; LeaseLost if it cannot be claimed."""

    id: Annotated[str, "the letter's id"]
    lease: Annotated[float | None, "for how many seconds"] = None
    holder: Annotated[str | None, "name of the holder, for people"] = None

    def run(self, core: Core, _principal: Principal) -> OneLetter:
        moment, mailbox = core.now(), self.agent_id
        lease = _lease(core, moment, mailbox, _check_lease(core, self.lease), self.holder)
        query = Query(mailbox=mailbox, message_ids=(self.id,), states=(State.UNREAD,), offered_at=moment.wall)
        found = deliveries.move_found(core, query, "claim", partial(model_delivery.claim, lease=lease))
        if not found:
            raise LeaseLost(f"{self.id} cannot be claimed", hint="another process holds it, or it is settled")
        return OneLetter(found[0])


def _lease(core: Core, moment: Moment, mailbox: str, seconds: float, holder: str | None) -> Lease:
    return Lease(
        token=core.ids.token(),
        holder=mailbox if holder is None else check_line(holder, "holder", 200),
        # Uptime, not the wall clock: setting the clock neither ends nor stretches a lease (G7).
        until=moment.steady + seconds,
        boot=moment.boot,
    )


def _check_lease(core: Core, seconds: Any) -> float:
    if seconds is None:
        return core.limits.lease
    return check_seconds(seconds, "lease", above=0, most=LONGEST_LEASE)


@verb("held", OneLetter, action="settle", local=True)
class Held(MailboxVerb, kw_only=True):
    """Return a letter that was claimed earlier, maybe by another process, under this token.

    A letter that was acknowledged with this token is returned too, so that an ack can be repeated.
    """

    id: Annotated[str, "the letter's id"]
    token: Annotated[str, "the lease's token, from claim"]

    def run(self, core: Core, _principal: Principal) -> OneLetter:
        found = received(core, self.agent_id, self.id)
        lease = found.delivery.lease
        if lease is None or lease.token != check_label(self.token, "token"):
            is_held = lease is not None and found.delivery.state is State.CLAIMED
            state = f"held by {lease.holder}" if lease and is_held else found.delivery.state
            raise LeaseLost(f"{found.message.id} is {state}, and not under this token", hint="claim it again")
        return OneLetter(found)


# Settling: any number of letters of one mailbox in one commit, all or none.


class Settled(Struct):
    """Letters as they are after they were settled, and the receipts of what was sent in the same commit."""

    letters: list[Found]
    receipts: list[Receipt]


class Settling(MailboxVerb, kw_only=True):
    """A request that moves letters of a mailbox in one commit: all or none.

    A caller that holds the letters gives them as it knows them, with their leases; any other names them and shows
    the token of the lease. Without a lease, only letters that nobody holds can be settled.
    """

    ids: Annotated[str | list[str], "ids of letters"]
    token: Annotated[str | None, "the lease's token, from claim"] = None
    held: Annotated[list[Found] | None, LOCAL] = None

    def letters(self, core: Core, principal: Principal) -> list[Found]:
        """Return each letter once, with the lease under which the caller holds it."""
        if self.held is None:
            self.held = [self._find(core, principal, id) for id in dict.fromkeys(as_list(self.ids, "ids"))]
        return self.held

    def _find(self, core: Core, principal: Principal, id: str) -> Found:
        if self.token:
            return Held(agent_id=self.agent_id, id=id, token=self.token).run(core, principal).letter
        found = Read(agent_id=self.agent_id, id=id).run(core, principal).letter
        # A reader holds no lease, even while a worker does.
        return Found(found.message, replace(found.delivery, lease=None))


@verb("renew", Settled, action="settle", old_names={"message_ids": "ids"})
class Renew(Settling, kw_only=True):
    """Extend the leases of letters."""

    lease: Annotated[float | None, "for how many seconds, counted from now"] = None

    def run(self, core: Core, principal: Principal) -> Settled:
        held, moment = self.letters(core, principal), core.now()
        until = moment.steady + _check_lease(core, self.lease)

        def longer(delivery: Delivery) -> tuple[Delivery, str]:
            if delivery.lease is None:
                raise LeaseLost(f"{delivery.message_id} is not claimed")
            lease = Lease(token=delivery.lease.token, holder=delivery.lease.holder, until=until, boot=moment.boot)
            return model_delivery.renew(delivery, lease), "renew"

        return _settle(core, principal, self.agent_id, held, moment, longer)


@verb("ack", Settled, action="settle", old_names={"message_ids": "ids"})
class Ack(Settling, kw_only=True):
    """Settle letters as done, so that they are never offered again; with a reply, both in one commit.

    Acknowledging twice is the same as once, and sends nothing twice.
    """

    reply: Annotated[Any, "an answer to the sender of the one letter"] = None
    to_all: Annotated[bool, "the answer goes to everyone"] = False
    key: Annotated[str | None, "of the answer: said again with the same key, it is sent once"] = None
    keep: Annotated[bool, "do not archive"] = False
    drafts: Annotated[Sequence[Draft], LOCAL] = ()  # letters to be sent in the same commit

    def run(self, core: Core, principal: Principal) -> Settled:
        drafts = list(self.drafts)
        if self.reply is not None and len(as_list(self.ids, "ids")) != 1:
            raise Invalid("is sent with the ack of one letter", field="reply")
        held, mailbox = self.letters(core, principal), self.agent_id
        if self.reply is not None:
            answer = messages.Reply(
                agent_id=mailbox, id=held[0].message.id, body=self.reply, to_all=self.to_all, key=self.key
            )
            drafts.append(answer.draft(core))
        moment = core.clock.now()

        def done(delivery: Delivery) -> tuple[Delivery, str]:
            return model_delivery.ack(delivery, moment.wall, archive=not self.keep), "ack"

        # With a key of its own each answer is sent once, however often the ack is repeated (G3, G5).
        keyed = [_with_key(draft, held, number) for number, draft in enumerate(drafts)] if drafts else drafts
        return _settle(core, principal, mailbox, held, moment, done, keyed, repeats=_is_repeated_ack)


@verb("fail", Settled, action="settle", old_names={"message_ids": "ids"})
class Fail(Settling, kw_only=True):
    """Record that an attempt failed: letters are offered again later, until their attempts are spent.

    Without `retry`, or after the last attempt, a letter is dead. The call may be repeated if its answer was lost.
    """

    reason: Annotated[str, "why"]
    retry: Annotated[bool, "false: dead at once"] = True

    def run(self, core: Core, principal: Principal) -> Settled:
        held, moment = self.letters(core, principal), core.now()
        why = " ".join(str(self.reason).split())[:LONGEST_REASON] or "no reason given"
        # The reason may be the text of any exception: lone surrogates and NUL cannot be stored.
        why = why.encode("utf-8", "replace").decode().replace("\0", "")

        def failed(delivery: Delivery) -> tuple[Delivery, str]:
            holder = delivery.lease.holder if delivery.lease else self.agent_id
            attempt = Attempt(at=moment.wall, holder=holder, reason=why)
            if self.retry:
                return policy_retry.after_failure(delivery, attempt, core.limits)
            return model_delivery.bury(delivery, attempt), "bury"

        repeats = partial(_is_repeated_failure, reason=why)
        return _settle(core, principal, self.agent_id, held, moment, failed, repeats=repeats)


@verb("reject", Settled, action="settle", old_names={"message_ids": "ids"})
class Reject(Settling, kw_only=True):
    """Refuse letters: they are dead, and their senders get a bounce with the reason."""

    reason: Annotated[str, "why"]

    def run(self, core: Core, principal: Principal) -> Settled:
        held = self.letters(core, principal)
        return Fail(agent_id=self.agent_id, ids=self.ids, held=held, reason=self.reason, retry=False).run(
            core, principal
        )


@verb("release", Settled, action="settle", old_names={"message_ids": "ids"})
class Release(Settling, kw_only=True):
    """Give letters back to the inbox, as if they had never been claimed; no attempt is counted."""

    def run(self, core: Core, principal: Principal) -> Settled:
        held, moment = self.letters(core, principal), core.now()
        return _settle(
            core, principal, self.agent_id, held, moment, lambda one: (model_delivery.release(one), "release")
        )


def _with_key(draft: Draft, held: Sequence[Found], number: int) -> Draft:
    """Return the draft with a key made from lease, letter and position, so that a repeated ack sends it once.

    The letter's number is part of the key because all letters of a batch share one token.
    """
    first = held[0].delivery if held else None
    if draft.key is not None or first is None or first.lease is None:
        return draft
    return replace(draft, key=f"ack-{first.lease.token}-{first.number}-{number}")


def _settle(
    core: Core,
    caller: Principal,
    mailbox: str,
    held: Sequence[Found],
    moment: Moment,
    settle: Settle,
    drafts: Sequence[Draft] = (),
    *,
    repeats: Repeats = lambda _now, _was: False,
) -> Settled:
    """Move all held letters by `settle`, and post the drafts, in one commit.

    A letter for which `repeats` is true was settled by an earlier call, whose answer was lost; it is not moved
    again.
    """
    posts = messages.prepare_all(core, caller, drafts, moment.wall) if drafts else []
    if not held and not posts:
        return Settled([], [])
    after: list[Found] = []
    writes: list[Write] = []

    def plan(current: Sequence[Found]) -> Sequence[Write]:
        after.clear()
        writes.clear()
        for now, was in zip(current, held, strict=True):
            if now.delivery.state in SETTLED and repeats(now.delivery, was.delivery):
                after.append(now)
                continue
            check_holder(now.delivery, was.delivery.lease, moment)
            delivery, action = settle(now.delivery)
            after.append(Found(now.message, delivery))
            writes.append(Move(now.delivery, delivery, action))
            # In the same commit as the death, so that no dead letter goes without its bounce (G6).
            if action == "bury":
                writes.extend(deliveries.bounce(core, now.message, delivery, moment.wall))
        return [*writes, *posts]

    try:
        # The usual case needs no query: the store compares the revision that the holder knows.
        receipts = messages.commit_posts(core, posts, plan(held))
    except (StaleRevision, LeaseLost, UnknownMessage):
        # The holder's copy may be stale: read the deliveries again inside the commit and compare the token.
        receipts = messages.commit_posts(core, posts, lambda: plan(_find_current(core, mailbox, held)))
        if not writes and not posts:
            core.store.commit(())  # settled by an earlier call: it must be on disk before success is reported
    return Settled(after, receipts)


def check_holder(current: Delivery, lease: Lease | None, moment: Moment) -> None:
    """Raise LeaseLost unless the lease is current; a letter that is not claimed may be settled without a lease."""
    if current.state is State.CLAIMED:
        held = current.lease
        # The token decides, not the holder's name: two workers may share a name (G5).
        if held is None or lease is None or held.token != lease.token:
            raise LeaseLost(f"{current.message_id} is held by {held.holder if held else 'nobody'}")
        if has_lapsed(held, moment):
            raise LeaseLost(f"the lease on {current.message_id} ran out", hint="claim it again")
    elif lease is not None:
        raise LeaseLost(f"{current.message_id} is {current.state} and no longer yours")


def _is_repeated_ack(current: Delivery, was: Delivery) -> bool:
    same_token = current.lease and was.lease and current.lease.token == was.lease.token
    return current.state is State.DONE and (bool(same_token) or was.state is State.DONE)


def _is_repeated_failure(current: Delivery, was: Delivery, reason: str) -> bool:
    """Return whether the delivery's next step was the failure that this holder reported, with the same reason."""
    if current.state is not State.DEAD or was.lease is None or current.revision != was.revision + 1:
        return False
    last = current.history[-1:]
    return [(was.lease.holder, reason)] == [(attempt.holder, attempt.reason) for attempt in last]


def _find_current(core: Core, mailbox: str, held: Sequence[Found]) -> list[Found]:
    ids = tuple(found.message.id for found in held)
    found = {f.message.id: f for f in core.store.find(Query(mailbox=mailbox, message_ids=ids))}
    missing = [id for id in ids if id not in found]
    if missing:
        raise UnknownMessage(f"no letter {missing[0]!r} in {mailbox!r}", field="id")
    return [found[id] for id in ids]


# -- ask: send a request, wait for its answer, and acknowledge that
#
# The request has a key. The same key again sends nothing: it waits on for the answer to the first request, or
# returns the answer that has come. So a call whose own result was lost may be repeated, over a wire too.


_ARRIVED = (State.UNREAD, State.CLAIMED, State.DONE)


class Answer(Struct):
    """The answer to a request, which is acknowledged; None if there is none yet."""

    letter: Found | None
    id: str  # of the request
    thread: str
    key: str  # the same key again waits on for the answer


@verb("ask", Answer, action="send", also="wait", waits=True)
class Ask(RequestFields, kw_only=True):
    """Send a request and wait for its answer; the same key again sends nothing and waits on.

    The answer is the first letter that replies to the request. It is acknowledged. If the request comes back from
    all its recipients, the error is Undeliverable, with the reason.
    """

    to: Annotated[Any, "a name, or a list of names"]
    body: Annotated[Any, "text, or a list of parts; a file part needs its `bytes`, as base64"] = None
    timeout: Annotated[float, f"how long to wait, in seconds; over a wire {LONGEST_WAIT:g} at most"] = 30.0
    sent: Annotated[Message | None, LOCAL] = None  # the request, once it was sent

    def run(self, core: Core, principal: Principal) -> Answer:
        self.key = core.ids.message() if self.key is None else self.key
        if self.sent is None:
            draft = self.drafted(to=self.to, body=self.body, kind="request")
            self.sent = messages.send_one(core, principal, draft).message
        request = self.sent
        deliveries.apply_timers(core, core.now(), (self.agent_id,))
        replies = [found for found in self._thread(core, request) if found.message.in_reply_to == request.id]
        # In a person's name, only the person answers (G12).
        answers = [one for one in replies if not one.message.is_automatic and not is_unproven(core, one.message)]
        bounces = [found for found in replies if found.message.kind == BOUNCE]
        if answers:
            return Answer(
                self._acknowledged(core, principal, answers[:1])[0], request.id, request.thread, self.key
            )
        if bounces and len(bounces) >= len(core.store.find(Query(message_ids=(request.id,)))):
            self._acknowledged(core, principal, bounces)
            raise _undeliverable(bounces[0].message)
        return Answer(None, request.id, request.thread, self.key)

    def is_empty(self, result: Answer) -> bool:
        return result.letter is None

    def _thread(self, core: Core, request: Message) -> list[Found]:
        query = Query(mailbox=self.agent_id, thread=request.thread, states=_ARRIVED, shown_only=True, order="age")
        return core.store.find(query)

    def _acknowledged(self, core: Core, principal: Principal, found: list[Found]) -> list[Found]:
        """Acknowledge letters that are open; one that another worker of this mailbox has claimed stays its own."""
        open_letters = [one.message.id for one in found if one.delivery.state is State.UNREAD]
        if open_letters and not (self.sent and is_unproven(core, self.sent)):
            with suppress(LeaseLost):
                return Ack(agent_id=self.agent_id, ids=open_letters).run(core, principal).letters
        return found


def _undeliverable(bounce: Message) -> Undeliverable:
    facts: dict[str, Any] = next((part["data"] for part in bounce.parts if part.type == "data"), {})
    return Undeliverable(
        f"{facts.get('mailbox', 'the recipient')} did not take the request: {facts.get('reason')}"
    )
