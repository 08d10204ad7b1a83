"""Work on mail: claim a letter under a lease, then ack, fail, release or renew it; look after dead letters.

A letter has one holder at a time, and an ack is final. The lease token is the only proof of holding: a holder that
comes back after its lease has ended is refused. A repeated ack or failure, whose first answer was lost, succeeds.
"""

from __future__ import annotations

from collections.abc import Callable
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
from ..store.protocol import Forget, Move, Put
from . import alerts, deliveries, messages, names, task_index
from .authorize import authorize
from .inbox import Filtered, check_spelling, received
from .validation import check_count, check_limit, check_seconds
from .verb import LONGEST_WAIT, verb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model.message import Message
    from ..model.query import Moment
    from ..store.protocol import Plan, Post, Write
    from .authorize import Principal
    from .compose import Draft
    from .core import Core
    from .messages import Receipt


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


def claim_one(
    core: Core,
    caller: Principal,
    mailbox: str,
    id: str,
    *,
    lease: float | None = None,
    holder: str | None = None,
) -> Found:
    """Claim one letter by its id, even before its next attempt is due; LeaseLost if it cannot be claimed."""
    authorize(caller, "claim", mailbox)
    moment = core.now()
    taken = _lease(core, moment, mailbox, lease, holder)
    query = Query(mailbox=mailbox, message_ids=(id,), states=(State.UNREAD,), offered_at=moment.wall)
    found = deliveries.move_found(core, query, "claim", lambda delivery: model_delivery.claim(delivery, taken))
    if not found:
        raise LeaseLost(f"{id} cannot be claimed", hint="another process holds it, or it is settled")
    return found[0]


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


def find_claimed(core: Core, caller: Principal, mailbox: str, id: str, token: str) -> Found:
    """Return a letter that was claimed earlier, maybe by another process, under this token.

    A letter that was acknowledged with this token is returned too, so that an ack can be repeated.
    """
    authorize(caller, "settle", mailbox)
    found = received(core, mailbox, id)
    lease = found.delivery.lease
    if lease is None or lease.token != check_label(token, "token"):
        holder = (
            f"held by {lease.holder}" if lease and found.delivery.state is State.CLAIMED else found.delivery.state
        )
        raise LeaseLost(f"{found.message.id} is {holder}, and not under this token", hint="claim it again")
    return found


def renew(
    core: Core, caller: Principal, mailbox: str, held: Sequence[Found], lease: float | None = None
) -> list[Found]:
    """Extend the leases; the new span is counted from now."""
    moment = core.now()
    until = moment.steady + _check_lease(core, lease)

    def longer(delivery: Delivery) -> tuple[Delivery, str]:
        if delivery.lease is None:
            raise LeaseLost(f"{delivery.message_id} is not claimed")
        lease = Lease(token=delivery.lease.token, holder=delivery.lease.holder, until=until, boot=moment.boot)
        return model_delivery.renew(delivery, lease), "renew"

    return _settle(core, caller, mailbox, held, moment, longer)[0]


def ack(
    core: Core, caller: Principal, mailbox: str, held: Sequence[Found], *, archive: bool = True
) -> list[Found]:
    """Mark letters as done, in one commit; they are never offered again.

    Acknowledging twice is the same as once.
    """
    moment = core.now()
    done = _acknowledge(moment, archive=archive)
    return _settle(core, caller, mailbox, held, moment, done, repeats=_is_repeated_ack)[0]


def ack_and_send(
    core: Core,
    caller: Principal,
    mailbox: str,
    held: Sequence[Found],
    drafts: Sequence[Draft],
    *,
    archive: bool = True,
) -> tuple[list[Found], list[Receipt]]:
    """Mark letters as done and send others in the same commit. A repeated call sends nothing twice."""
    moment = core.now()
    done = _acknowledge(moment, archive=archive)
    # With a key of its own each answer is sent once, however often the ack is repeated (G3, G5).
    keyed = [_with_key(draft, held, number) for number, draft in enumerate(drafts)]
    return _settle(core, caller, mailbox, held, moment, done, keyed, repeats=_is_repeated_ack)


def fail(
    core: Core, caller: Principal, mailbox: str, held: Sequence[Found], reason: str, *, retry: bool = True
) -> list[Found]:
    """Record that an attempt failed. With `retry` the letter is offered again later, until its attempts are spent.

    Without `retry`, or after the last attempt, the letter is dead. The call may be repeated if its answer was
    lost.
    """
    moment = core.now()
    why = " ".join(str(reason).split())[:LONGEST_REASON] or "no reason given"
    # The reason may be the text of any exception: lone surrogates and NUL cannot be stored.
    why = why.encode("utf-8", "replace").decode().replace("\0", "")

    def failed(delivery: Delivery) -> tuple[Delivery, str]:
        holder = delivery.lease.holder if delivery.lease else mailbox
        attempt = Attempt(at=moment.wall, holder=holder, reason=why)
        if retry:
            return policy_retry.after_failure(delivery, attempt, core.limits)
        return model_delivery.bury(delivery, attempt), "bury"

    def repeats(now: Delivery, was: Delivery) -> bool:
        return _is_repeated_failure(now, was, why)

    return _settle(core, caller, mailbox, held, moment, failed, repeats=repeats)[0]


def release(core: Core, caller: Principal, mailbox: str, held: Sequence[Found]) -> list[Found]:
    """Return letters to the inbox as if they had never been claimed; no attempt is counted."""
    return _settle(
        core, caller, mailbox, held, core.now(), lambda delivery: (model_delivery.release(delivery), "release")
    )[0]


def _acknowledge(moment: Moment, *, archive: bool) -> Settle:
    return lambda delivery: (model_delivery.ack(delivery, moment.wall, archive=archive), "ack")


def _with_key(draft: Draft, held: Sequence[Found], number: int) -> Draft:
    """Return the draft with a key made from lease, letter and position, so that a repeated ack sends it once.

    The letter's number is part of the key because all letters of a batch share one token.
    """
    first = held[0].delivery if held else None
    if draft.fields.get("key") is not None or first is None or first.lease is None:
        return draft
    return draft.but(key=f"ack-{first.lease.token}-{first.number}-{number}")


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
) -> tuple[list[Found], list[Receipt]]:
    """Move all held letters by `settle`, and post the drafts, in one commit.

    A letter for which `repeats` is true was settled by an earlier call, whose answer was lost; it is not moved
    again.
    """
    authorize(caller, "settle", mailbox)
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
        core.store.sync()  # settled by an earlier call: make sure that it is on disk before success is reported
    return after, receipts


def _commit(core: Core, posts: Sequence[Post], writes: Sequence[Write] | Plan) -> list[Receipt]:
    if posts:
        return messages.commit_posts(core, posts, writes)
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


def list_dead(core: Core, caller: Principal, mailbox: str, limit: int | None = None) -> list[Found]:
    """Return the dead letters of a mailbox, the oldest first; `delivery.reason` and `.history` say why they died.

    Letters that it sent to other systems and that died before they left this room are included.
    """
    authorize(caller, "dead", mailbox)
    most = check_limit(limit)
    query = Query(mailbox=mailbox, states=(State.DEAD,), shown_only=True, order="age", limit=most)
    deliveries.apply_timers(core, core.now(), (mailbox,))
    names.check_not_moved(core, mailbox, "mailbox")
    found = [*core.store.find(query), *_dead_outgoing(core, mailbox)]
    return sorted(found, key=lambda f: (f.delivery.number, f.delivery.mailbox))[:most]


def revive(core: Core, caller: Principal, mailbox: str, ids: Sequence[str]) -> list[Found]:
    """Return dead letters to the inbox with no attempts counted; all of them or none."""
    authorize(caller, "revive", mailbox)
    revived: list[Found] = []
    now = core.now().wall

    def plan() -> Sequence[Write]:
        revived.clear()
        moves = []
        for found in _find_dead(core, mailbox, ids):
            before = found.delivery
            if AT in before.mailbox:
                after, action = model_delivery.requeue(before, now), "requeue"
            else:
                after, action = model_delivery.revive(before), "revive"
            revived.append(Found(found.message, after))
            moves.append(Move(before, after, action))
        return moves

    core.store.commit(plan)
    return revived


def purge_dead(core: Core, caller: Principal, mailbox: str, ids: Sequence[str]) -> int:
    """Delete dead letters for good and return how many; one that is not settled in another mailbox is kept."""
    authorize(caller, "purge", mailbox)
    purged = 0

    def plan() -> Sequence[Write]:
        nonlocal purged
        letters = [f.message for f in _find_dead(core, mailbox, ids) if _is_settled(core, f.message.id)]
        purged = len(letters)
        return forget(core, letters, core.now().wall)

    core.store.commit(plan)
    return purged


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


def _find_dead(core: Core, mailbox: str, ids: Sequence[str]) -> list[Found]:
    ids = [check_id(id, "id") for id in ids]
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
    places = [name for name in core.store.mailboxes() if AT in name]
    wanted = Query(states=(State.DEAD,), sender=mailbox, message_ids=ids, order="age")
    found = (one for place in places for one in core.store.find(replace(wanted, mailbox=place)))
    return [one for one in found if one.delivery.reason != UNSENT]


def _is_settled(core: Core, id: str) -> bool:
    everywhere = core.store.find(Query(message_ids=(id,)))
    return all(found.delivery.state in SETTLED for found in everywhere)
