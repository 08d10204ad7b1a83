"""Working on mail: claim it under a lease, then ack, fail, release or renew. One holder, and a final ack.

The lease token is the only proof of holding. Whoever comes late, after the lease ran out, is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import policy, service
from ..errors import LeaseLost, StaleRevision, UnknownMessage
from ..model import delivery as moves
from ..model.delivery import Attempt, Delivery, Lease, State
from ..model.query import Found, Query
from ..model.values import check_label, check_line
from ..policy.limits import LONGEST_LEASE
from ..policy.retry import latest_retry
from ..policy.timers import has_lapsed
from ..store.base import Move
from .authorize import authorize
from .given import check_count, check_seconds
from .reading import NO_FILTER, check_spelling, narrow, received

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model.query import Moment
    from ..store.base import Plan, Post, Write
    from .authorize import Principal
    from .compose import Draft
    from .office import Office
    from .reading import Filter
    from .sending import Receipt

Settle = Callable[[Delivery], tuple[Delivery, str]]
Repeats = Callable[[Delivery, Delivery], bool]  # as it is now, as its holder knew it
LONGEST_REASON = 2000
MOST = 10_000  # letters claimed at once


def claim(
    office: Office,
    caller: Principal,
    mailbox: str,
    *,
    count: int = 1,
    lease: float | None = None,
    holder: str | None = None,
    filter: Filter = NO_FILTER,
) -> list[Found]:
    """Take up to `count` letters, by priority, then age, in one commit. Nobody else gets them meanwhile."""
    authorize(caller, "claim", mailbox)
    moment = office.now()
    query = Query(
        mailbox=mailbox,
        states=(State.UNREAD,),
        offered_at=moment.wall,
        due_at=moment.wall,
        due_most=latest_retry(moment.wall, office.limits),
        order="priority",
        limit=check_count(count, "count", most=MOST),
    )
    query = narrow(office, query, filter)
    taken = _lease(office, moment, mailbox, lease, holder)
    first = service.moving.offered(office, query, moment, mailbox)
    found = service.moving.move_found(office, query, "claim", lambda delivery: moves.claim(delivery, taken), first)
    if not found:
        check_spelling(office, mailbox)
    return found


def claim_one(
    office: Office,
    caller: Principal,
    mailbox: str,
    id: str,
    *,
    lease: float | None = None,
    holder: str | None = None,
) -> Found:
    """Take this very letter, even before its next try is due; LeaseLost if it is not to be had."""
    authorize(caller, "claim", mailbox)
    moment = office.now()
    taken = _lease(office, moment, mailbox, lease, holder)
    query = Query(mailbox=mailbox, message_ids=(id,), states=(State.UNREAD,), offered_at=moment.wall)
    found = service.moving.move_found(office, query, "claim", lambda delivery: moves.claim(delivery, taken))
    if not found:
        raise LeaseLost(f"{id} cannot be claimed", hint="somebody holds it, or it is settled")
    return found[0]


def _lease(office: Office, moment: Moment, mailbox: str, seconds: float | None, holder: str | None) -> Lease:
    return Lease(
        token=office.ids.token(),
        holder=mailbox if holder is None else check_line(holder, "holder", 200),
        until=moment.steady + _check_lease(office, seconds),
        boot=moment.boot,
    )


def _check_lease(office: Office, seconds: Any) -> float:
    return check_seconds(office.limits.lease if seconds is None else seconds, "lease", above=0, most=LONGEST_LEASE)


def held(office: Office, caller: Principal, mailbox: str, id: str, token: str) -> Found:
    """A letter that was claimed earlier, maybe by another process: the token proves it. What was acknowledged with
    this token is still its holder's, so that an ack may be said twice.
    """
    authorize(caller, "settle", mailbox)
    found = received(office, mailbox, id)
    lease = found.delivery.lease
    if lease is None or lease.token != check_label(token, "token"):
        holder = (
            f"held by {lease.holder}" if lease and found.delivery.state is State.CLAIMED else found.delivery.state
        )
        raise LeaseLost(f"{found.message.id} is {holder}, and not under this token", hint="claim it again")
    return found


def renew(
    office: Office, caller: Principal, mailbox: str, held: Sequence[Found], lease: float | None = None
) -> list[Found]:
    """Hold on for longer, counted from now."""
    moment = office.now()
    until = moment.steady + _check_lease(office, lease)

    def longer(delivery: Delivery) -> tuple[Delivery, str]:
        if delivery.lease is None:
            raise LeaseLost(f"{delivery.message_id} is not claimed")
        lease = Lease(token=delivery.lease.token, holder=delivery.lease.holder, until=until, boot=moment.boot)
        return moves.renew(delivery, lease), "renew"

    return _settle(office, caller, mailbox, held, moment, longer)[0]


def ack(
    office: Office, caller: Principal, mailbox: str, held: Sequence[Found], *, archive: bool = True
) -> list[Found]:
    """Done, in one commit: never handed out again. Acknowledging twice is the same as once."""
    moment = office.now()
    done = _acknowledge(moment, archive=archive)
    return _settle(office, caller, mailbox, held, moment, done, repeats=_is_repeated_ack)[0]


def ack_and_send(
    office: Office,
    caller: Principal,
    mailbox: str,
    held: Sequence[Found],
    drafts: Sequence[Draft],
    *,
    archive: bool = True,
) -> tuple[list[Found], list[Receipt]]:
    """Done, and letters sent, together or not at all. Trying again sends nothing twice."""
    moment = office.now()
    done = _acknowledge(moment, archive=archive)
    keyed = [_with_key(draft, held, number) for number, draft in enumerate(drafts)]
    return _settle(office, caller, mailbox, held, moment, done, keyed, repeats=_is_repeated_ack)


def fail(
    office: Office, caller: Principal, mailbox: str, held: Sequence[Found], reason: str, *, retry: bool = True
) -> list[Found]:
    """Give up on this try. With retry it is offered again later, until its tries are spent; then it is dead.

    It may be said twice, where it is not certain that the first word will last.
    """
    moment = office.now()
    why = " ".join(str(reason).split())[:LONGEST_REASON] or "no reason given"
    why = why.encode("utf-8", "replace").decode().replace("\0", "")

    def failed(delivery: Delivery) -> tuple[Delivery, str]:
        holder = delivery.lease.holder if delivery.lease else mailbox
        attempt = Attempt(at=moment.wall, holder=holder, reason=why)
        if retry:
            return policy.retry.after_failure(delivery, attempt, office.limits)
        return moves.bury(delivery, attempt), "bury"

    def repeats(now: Delivery, was: Delivery) -> bool:
        return _is_repeated_end(now, was, why)

    return _settle(office, caller, mailbox, held, moment, failed, repeats=repeats)[0]


def release(office: Office, caller: Principal, mailbox: str, held: Sequence[Found]) -> list[Found]:
    """Back into the inbox, as if it had never been claimed; counts no try."""
    return _settle(
        office, caller, mailbox, held, office.now(), lambda delivery: (moves.release(delivery), "release")
    )[0]


def _acknowledge(moment: Moment, *, archive: bool) -> Settle:
    return lambda delivery: (moves.ack(delivery, moment.wall, archive=archive), "ack")


def _with_key(draft: Draft, held: Sequence[Found], number: int) -> Draft:
    """The draft under a key of this lease on this letter. A batch shares one token; a draft may be used twice."""
    first = held[0].delivery if held else None
    if draft.fields.get("key") is not None or first is None or first.lease is None:
        return draft
    return draft.but(key=f"ack-{first.lease.token}-{first.number}-{number}")


def _settle(
    office: Office,
    caller: Principal,
    mailbox: str,
    held: Sequence[Found],
    moment: Moment,
    settle: Settle,
    drafts: Sequence[Draft] = (),
    *,
    repeats: Repeats = lambda _now, _was: False,
) -> tuple[list[Found], list[Receipt]]:
    """Move all that is held by `settle`, and post the drafts, in one commit. What `repeats` an earlier try, whose
    answer was lost, was done before.
    """
    authorize(caller, "settle", mailbox)
    posts = service.sending.prepare_all(office, caller, drafts, moment.wall) if drafts else []
    after: list[Found] = []
    writes: list[Write] = []

    def plan(current: Sequence[Found]) -> Sequence[Write]:
        nonlocal after, writes
        after, writes = _moves(office, current, held, moment, settle, repeats)
        return [*writes, *posts]

    try:
        receipts = _commit(office, posts, plan(held))
    except (StaleRevision, LeaseLost, UnknownMessage):
        # What the holder knows may be old; the room's word and the token decide.
        receipts = _commit(office, posts, lambda: plan(_current(office, mailbox, held)))
    if held and not writes and not posts:
        office.store.sync()  # it was settled before; now that is certain
    return after, receipts


def _commit(office: Office, posts: Sequence[Post], writes: Sequence[Write] | Plan) -> list[Receipt]:
    if posts:
        return service.sending.commit_posts(office, posts, writes)
    office.store.commit(writes)
    return []


def _moves(
    office: Office,
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
        if action == "bury":
            writes += service.bouncing.bounce(office, now.message, delivery, moment.wall)
    return after, writes


def check_holder(current: Delivery, lease: Lease | None, moment: Moment) -> None:
    """Only the present holder may go on; what nobody holds is the owner's."""
    if current.state is State.CLAIMED:
        held = current.lease
        if held is None or lease is None or held.token != lease.token:
            raise LeaseLost(f"{current.message_id} is held by {held.holder if held else 'nobody'}")
        if has_lapsed(held, moment):
            raise LeaseLost(f"the lease on {current.message_id} ran out", hint="claim it again")
    elif lease is not None:
        raise LeaseLost(f"{current.message_id} is {current.state} and no longer yours")


def _is_repeated_ack(current: Delivery, was: Delivery) -> bool:
    same_token = current.lease and was.lease and current.lease.token == was.lease.token
    return current.state is State.DONE and (bool(same_token) or was.state is State.DONE)


def _is_repeated_end(current: Delivery, was: Delivery, reason: str) -> bool:
    """The next thing that happened to it was its holder's last word, for the same reason."""
    if current.state is not State.DEAD or was.lease is None or current.revision != was.revision + 1:
        return False
    last = current.history[-1:]
    return [(was.lease.holder, reason)] == [(attempt.holder, attempt.reason) for attempt in last]


def _current(office: Office, mailbox: str, held: Sequence[Found]) -> list[Found]:
    ids = tuple(found.message.id for found in held)
    found = {f.message.id: f for f in office.store.find(Query(mailbox=mailbox, message_ids=ids))}
    missing = [id for id in ids if id not in found]
    if missing:
        raise UnknownMessage(f"no letter {missing[0]!r} in {mailbox!r}", field="id")
    return [found[id] for id in ids]
