"""Who holds a claim: whether the process that signed it is still there."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import StaleRevision, UnknownMessage
from ..model.codec import blake2b
from ..model.delivery import Delivery, open_delivery
from ..model.message import BOUNCE, CAME, Message, Recipient, data, same_name, text
from ..model.names import AT, POSTMASTER, system_of
from ..model.query import Found
from ..policy import retry
from ..store.protocol import Move, Post
from .compose import LONGEST_SUBJECT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ..model.query import Moment, Query
    from ..store.protocol import Write
    from .core import Core


_PROCESS = re.compile(r"\(process (\d+)\)$")  # as a mailbox signs its claims


def is_gone(holder: str) -> bool:
    """Is it known that this process is no more? It may be one of another container all the same."""
    named = _PROCESS.search(holder)
    if named is None:
        return False
    try:
        os.kill(int(named[1]), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:  # it is there, and another user's
        return False
    return False


# Moving deliveries: find, step, commit. Nobody is ever told that they lost a race they need not know of.

Step = Callable[[Delivery], Delivery]
SLICE = 200  # deliveries moved in one commit when time has caught up with many


def offered(core: Core, query: Query, moment: Moment, mailbox: str) -> list[Found]:
    """What can be had at this mailbox now, after what time did to it."""
    found = core.store.offered(query, moment)
    if found is None:
        let_time_pass(core, moment, (mailbox,))
        found = core.store.find(query)
    return found


def move_found(
    core: Core, query: Query, action: str, step: Step, first: Sequence[Found] | None = None
) -> list[Found]:
    """Find deliveries and move each by `step`, in one commit. Returns them as they are afterwards. `first`: what
    was found just now.
    """
    after: list[Found] = []

    def steps(all_found: Sequence[Found]) -> Sequence[Write]:
        after.clear()
        writes: list[Write] = []
        for found in all_found:
            moved = step(found.delivery)
            after.append(Found(found.message, moved))
            writes.append(Move(found.delivery, moved, action))
        return writes

    def plan() -> Sequence[Write]:
        return steps(core.store.find(query))

    moves = plan() if first is None else steps(first)
    if not moves:
        return []
    try:
        core.store.commit(moves)
    except (StaleRevision, UnknownMessage):  # somebody was quicker: look again, with the door closed
        core.store.commit(plan)
    return after


def let_time_pass(core: Core, moment: Moment, mailboxes: Sequence[str] | None) -> dict[str, int]:
    """Do to these mailboxes what time did: leases run out, queued mail comes due, mail expires.

    Counts what was done, by action. What dies of too many tries bounces in the same commit.
    """
    done: dict[str, int] = {}

    def plan() -> Sequence[Write]:
        writes: list[Write] = []
        for found in core.store.overdue(moment, mailboxes, SLICE):
            after = retry.catch_up(found.delivery, moment, core.limits)
            if after is not None:
                delivery, action = after
                done[action] = done.get(action, 0) + 1
                writes.append(Move(found.delivery, delivery, action))
                if action == "bury":
                    writes += bounce(core, found.message, delivery, moment.wall)
        return writes

    while core.store.overdue(moment, mailboxes, 1):
        moved = sum(done.values())
        core.store.commit(plan)
        if moved == sum(done.values()):
            break
    return done


# Notices of the house: letters of the postmaster, about another letter and in its thread. Nobody answers them.


def notice(
    core: Core,
    kind: str,
    to: str,
    subject: str,
    words: str,
    facts: dict[str, Any],
    now: datetime,
    *,
    schema: str | None = None,
    **fields: Any,
) -> Post:
    """A notice to one agent, in words and as data; `fields` are the letter's own, as `about` gives them."""
    message = Message(
        id=core.new_id(POSTMASTER),
        sender=POSTMASTER,
        recipients=(Recipient(to),),
        created_at=now,
        kind=kind,
        subject=subject[:LONGEST_SUBJECT],
        parts=(text(words), data(facts, schema=schema or kind)),
        trace=(POSTMASTER,),
        **fields,
    )
    home = core.store.spelling(to) or to  # it may have another name by now
    return Post(message=message, deliveries=(open_delivery(message, home, "to", now),))


def about(letter: Message) -> dict[str, Any]:
    """Where a notice about this letter belongs."""
    return {
        "scope": letter.scope,
        "thread_id": letter.thread,
        "thread_tag": letter.thread_tag,
        "conversation_id": letter.conversation_id,
        "in_reply_to": letter.id,
    }


# Notices to a sender whose letter died. Written by the house, and never about another notice.


def bounce(core: Core, message: Message, delivery: Delivery, now: datetime) -> list[Write]:
    """The notice to the sender that its letter died here; none for what the house wrote itself, and none to
    somebody elsewhere from where the letter did not come: who put it here wrote in a name that is not theirs.
    """
    if message.is_automatic or _is_forged(message):
        return []
    reason = delivery.reason or "no reason given"
    words = f"Your letter to {delivery.mailbox} is dead after {_tries(delivery.attempts)}: {reason}"
    facts = {"message_id": message.id, "mailbox": delivery.mailbox, "reason": reason}
    subject = f"Undeliverable: {message.subject or message.id}"
    return [notice(core, BOUNCE, message.sender, subject, words, facts, now, **about(message))]


def turn_away(core: Core, message: Message, to: str, reason: str) -> None:
    """The notice to a sender elsewhere that its letter was not taken here, once for each letter. What is said to
    the house itself is not answered, else two that answer everything would never end.
    """
    if message.is_automatic or same_name(to, POSTMASTER):
        return
    key = f"refused:{blake2b(f'{message.sender} {message.id}'.encode(), digest_size=16).hexdigest()}"

    def plan() -> Sequence[Write]:
        if core.store.sent(POSTMASTER, key):
            return []
        words = f"Your letter to {to} was not taken: {reason}"
        facts = {"message_id": message.id, "mailbox": to, "reason": reason}
        subject = f"Undeliverable: {message.subject or message.id}"
        now = core.now().wall
        return [notice(core, BOUNCE, message.sender, subject, words, facts, now, key=key, **about(message))]

    core.store.commit(plan)


def _is_forged(message: Message) -> bool:
    if AT not in message.sender:
        return False
    came = message.extra.get(CAME)
    source = came.get("source") if isinstance(came, dict) else None
    return not isinstance(source, str) or not same_name(source, system_of(message.sender))


def _tries(count: int) -> str:
    return "1 try" if count == 1 else f"{count} tries"
