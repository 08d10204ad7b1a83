"""Work on mail: claim a letter under a lease, then ack, fail, release or renew it; look after dead letters.

A letter has one holder at a time, and an ack is final. The lease token is the only proof of holding: a holder that
comes back after its lease has ended is refused. A repeated ack or failure, whose first answer was lost, succeeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Invalid, LeaseLost, StaleRevision, TooLarge, UnknownMessage
from ..model import delivery as model_delivery
from ..model.codec import digest
from ..model.delivery import SETTLED, UNSENT, Attempt, Delivery, Lease, State
from ..model.message import FEDERATION_NOTE
from ..model.names import AT, check_id
from ..model.query import Found, Query
from ..model.record import FORGOTTEN, SPENT, Record, spent_key
from ..model.values import check_label, check_line
from ..policy import retry as policy_retry
from ..policy.limits import LONGEST_LEASE
from ..policy.retry import has_lapsed, latest_retry
from ..store.protocol import Forget, Move, Put, all_names
from . import alerts, deliveries, messages, names, task_index
from .compose import Draft
from .inbox import Filtered, OneLetter, Read, check_spelling, received
from .messages import Receipt
from .validation import as_list, check_count, check_limit, check_seconds
from .verb import LOCAL, LONGEST_WAIT, MailboxVerb, verb

if TYPE_CHECKING:
    from ..model.message import Message
    from ..model.query import Moment
    from ..store.protocol import Plan, Post, Write
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
        moment, mailbox = core.now(), self.agent_id
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
        taken = _lease(core, moment, mailbox, self.lease, self.holder)
        # Found outside of the commit, then moved: if another worker was faster, `move_found` plans inside it.
        first = deliveries.find_offered(core, query, moment, mailbox)
        found = deliveries.move_found(
            core, query, "claim", lambda delivery: model_delivery.claim(delivery, taken), first
        )
        if not found:
            check_spelling(core, mailbox)
        return Claimed(found, _check_lease(core, self.lease))

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
        taken = _lease(core, moment, mailbox, self.lease, self.holder)
        query = Query(mailbox=mailbox, message_ids=(self.id,), states=(State.UNREAD,), offered_at=moment.wall)
        found = deliveries.move_found(core, query, "claim", lambda delivery: model_delivery.claim(delivery, taken))
        if not found:
            raise LeaseLost(f"{self.id} cannot be claimed", hint="another process holds it, or it is settled")
        return OneLetter(found[0])


def _lease(core: Core, moment: Moment, mailbox: str, seconds: float | None, holder: str | None) -> Lease:
    return Lease(
        token=core.ids.token(),
        holder=mailbox if holder is None else check_line(holder, "holder", 200),
        # Uptime, not the wall clock: setting the clock neither ends nor stretches a lease (G7).
        until=moment.steady + _check_lease(core, seconds),
        boot=moment.boot,
    )


def _check_lease(core: Core, seconds: Any) -> float:
    return check_seconds(core.limits.lease if seconds is None else seconds, "lease", above=0, most=LONGEST_LEASE)


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
    keep: Annotated[bool, "do not archive"] = False
    drafts: Annotated[Sequence[Draft], LOCAL] = ()  # letters to be sent in the same commit

    def run(self, core: Core, principal: Principal) -> Settled:
        drafts = list(self.drafts)
        if self.reply is not None and len(as_list(self.ids, "ids")) != 1:
            raise Invalid("is sent with the ack of one letter", field="reply")
        held, mailbox = self.letters(core, principal), self.agent_id
        if self.reply is not None:
            answer = messages.Reply(agent_id=mailbox, id=held[0].message.id, body=self.reply, to_all=self.to_all)
            drafts.append(answer.draft(core))
        moment = core.now()

        def done(delivery: Delivery) -> tuple[Delivery, str]:
            return model_delivery.ack(delivery, moment.wall, archive=not self.keep), "ack"

        # With a key of its own each answer is sent once, however often the ack is repeated (G3, G5).
        keyed = [_with_key(draft, held, number) for number, draft in enumerate(drafts)]
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

        def repeats(now: Delivery, was: Delivery) -> bool:
            return _is_repeated_failure(now, was, why)

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
        def back(delivery: Delivery) -> tuple[Delivery, str]:
            return model_delivery.release(delivery), "release"

        return _settle(core, principal, self.agent_id, self.letters(core, principal), core.now(), back)


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
    after: list[Found] = []
    writes: list[Write] = []

    def plan(current: Sequence[Found]) -> Sequence[Write]:
        nonlocal after, writes
        after, writes = _moves(core, current, held, moment, settle, repeats)
        return [*writes, *posts]

    try:
        # The usual case needs no query: the store compares the revision that the holder knows.
        receipts = _commit(core, posts, plan(held))
    except (StaleRevision, LeaseLost, UnknownMessage):
        # The holder's copy may be stale: read the deliveries again inside the commit and compare the token.
        receipts = _commit(core, posts, lambda: plan(_find_current(core, mailbox, held)))
    if held and not writes and not posts:
        core.store.commit(())  # settled by an earlier call: it must be on disk before success is reported
    return Settled(after, receipts)


def _commit(core: Core, posts: Sequence[Post], writes: Sequence[Write] | Plan) -> list[Receipt]:
    if posts:
        return messages.commit_posts(core, posts, writes)
    if writes:
        core.store.commit(writes)
    return []


def _moves(
    core: Core,
    current: Sequence[Found],
    held: Sequence[Found],
    moment: Moment,
    settle: Settle,
    repeats: Repeats,
) -> tuple[list[Found], list[Write]]:
    after: list[Found] = []
    writes: list[Write] = []
    for now, was in zip(current, held, strict=True):
        if repeats(now.delivery, was.delivery):
            after.append(now)
            continue
        check_holder(now.delivery, was.delivery.lease, moment)
        delivery, action = settle(now.delivery)
        after.append(Found(now.message, delivery))
        writes.append(Move(now.delivery, delivery, action))
        # In the same commit as the death, so that no dead letter goes without its bounce (G6).
        if action == "bury":
            writes += deliveries.bounce(core, now.message, delivery, moment.wall)
    return after, writes


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


# Dead letters: list, revive and delete them.

MOST_NAMED = 10_000  # ids in one call


class DeadLetters(Struct):
    """Dead letters; `delivery.reason` and `.history` say why each died."""

    letters: list[Found]


@verb("dead", DeadLetters, action="dead", many=True, writes=False, everyone=True)
class Dead(MailboxVerb, kw_only=True):
    """Return dead letters with the reason, the oldest first.

    Letters that were sent to other systems and died before they left this room are their sender's.
    """

    limit: Annotated[int | None, "how many at most"] = None

    def run(self, core: Core, _principal: Principal) -> DeadLetters:
        most = check_limit(self.limit)
        query = Query(states=(State.DEAD,), shown_only=True, order="age", limit=most)
        if not self.agent_id:
            deliveries.apply_timers(core, core.now(), None)
            return DeadLetters(core.store.find(query))
        deliveries.apply_timers(core, core.now(), (self.agent_id,))
        names.check_not_moved(core, self.agent_id, "mailbox")
        own = core.store.find(replace(query, mailbox=self.agent_id))
        found = [*own, *_dead_outgoing(core, self.agent_id)]
        return DeadLetters(sorted(found, key=lambda f: (f.delivery.number, f.delivery.mailbox))[:most])


class Revived(Struct):
    """Letters that are in the inbox again."""

    letters: list[Found]


@verb("revive", Revived, action="revive", old_names={"message_ids": "ids"})
class Revive(MailboxVerb, kw_only=True):
    """Return dead letters to the inbox with no attempts counted; all of them or none."""

    ids: Annotated[str | list[str], "ids of letters"]

    def run(self, core: Core, _principal: Principal) -> Revived:
        revived: list[Found] = []
        now = core.now().wall

        def plan() -> Sequence[Write]:
            revived.clear()
            moves = []
            for found in _find_dead(core, self.agent_id, self.ids):
                before = found.delivery
                if AT in before.mailbox:
                    after, action = model_delivery.requeue(before, now), "requeue"
                else:
                    after, action = model_delivery.revive(before), "revive"
                revived.append(Found(found.message, after))
                moves.append(Move(before, after, action))
            return moves

        core.store.commit(plan)
        return Revived(revived)


class PurgedDead(Struct):
    """How many letters were deleted."""

    purged: int


@verb("purge_dead", PurgedDead, action="purge", old_names={"message_ids": "ids"})
class PurgeDead(MailboxVerb, kw_only=True):
    """Delete dead letters for good; one that is not settled in another mailbox is kept."""

    ids: Annotated[str | list[str], "ids of letters"]

    def run(self, core: Core, _principal: Principal) -> PurgedDead:
        purged = 0

        def plan() -> Sequence[Write]:
            nonlocal purged
            dead = _find_dead(core, self.agent_id, self.ids)
            letters = [f.message for f in dead if _is_settled(core, f.message.id)]
            purged = len(letters)
            return forget(core, letters, core.now().wall)

        core.store.commit(plan)
        return PurgedDead(purged)


def forget(core: Core, letters: Sequence[Message], now: datetime) -> list[Write]:
    """Return the writes that delete letters and the tasks they opened, and keep their ids and keys spent.

    Part of a plan, because it reads first.
    """
    memories: dict[tuple[str, str], dict[str, Any]] = {}
    for letter in letters:
        derived = messages.derived_fields(letter)
        memory = {"id": letter.id, "digest": digest(letter), "at": now.isoformat(), "way": derived}
        if FEDERATION_NOTE in letter.extra:
            memory[FEDERATION_NOTE] = letter.extra[FEDERATION_NOTE]
        # Ids and keys stay spent after the letter is gone: a late retry must not send it again (G3).
        memories[FORGOTTEN, letter.id] = memory
        # The id of one letter may be the key of another: an existing entry stays.
        memories.setdefault((SPENT, spent_key(letter.sender, letter.key or letter.id)), memory)
    new = [Record(kind=at[0], key=at[1], value=v) for at, v in memories.items() if not core.store.records(*at)]
    return [
        *(Forget(letter.id) for letter in letters),
        *(Put(record=record) for record in new),
        *alerts.forget_letters(core, letters),
        *task_index.remove_tasks(core, letters),
    ]


def _find_dead(core: Core, mailbox: str, named: str | Sequence[str]) -> list[Found]:
    ids = [check_id(id, "id") for id in as_list(named, "id")]
    if len(ids) > MOST_NAMED:
        raise TooLarge(f"{len(ids)} letters, the limit is {MOST_NAMED}", field="id")
    query = Query(mailbox=mailbox, states=(State.DEAD,), shown_only=True, message_ids=tuple(ids), order="age")
    found = core.store.find(query)
    if len(found) < len(set(ids)):
        found += _dead_outgoing(core, mailbox, tuple(ids))
    missing = set(ids) - {f.message.id for f in found}
    if not ids:
        raise Invalid("no letter is named", field="id", hint="give the ids of dead letters")
    if missing:
        names.check_not_moved(core, mailbox, "mailbox")
        raise UnknownMessage(f"no dead letter {min(missing)!r} in {mailbox!r}", field="id")
    return found


def _dead_outgoing(core: Core, mailbox: str, ids: tuple[str, ...] = ()) -> list[Found]:
    """Return letters to other systems that died in this room; they belong to their sender."""
    places = [name for name in all_names(core.store) if AT in name]
    wanted = Query(states=(State.DEAD,), sender=mailbox, message_ids=ids, order="age")
    found = (one for place in places for one in core.store.find(replace(wanted, mailbox=place)))
    return [one for one in found if one.delivery.reason != UNSENT]


def _is_settled(core: Core, id: str) -> bool:
    everywhere = core.store.find(Query(message_ids=(id,)))
    return all(found.delivery.state in SETTLED for found in everywhere)
