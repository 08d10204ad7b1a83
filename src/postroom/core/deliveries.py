"""Move deliveries: find, step, commit; apply timers; write notices and bounces.

Deliveries move by compare-and-set. If another writer was faster, the search is repeated inside the commit, so a
caller never sees a lost race that does not concern it.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import StaleRevision, UnknownMessage
from ..model.codec import blake2b
from ..model.delivery import UNSENT, Delivery, State, open_delivery
from ..model.message import BOUNCE, Message, Recipient, data, origin_route, same_name, text
from ..model.names import AT, POSTMASTER, system_of
from ..model.query import Found, Query
from ..model.values import text_in
from ..policy import retry
from ..store.protocol import Move, Post, first_sent, spelt
from .compose import LONGEST_SUBJECT
from .core import commit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ..model.query import Moment
    from ..store.protocol import Store, Write
    from .core import Core


Step = Callable[[Delivery], Delivery]
SLICE = 200  # deliveries that are moved in one commit at most
_PROCESS_SUFFIX = r"\(process (\d+)\)$"  # how a mailbox names the holder of its claims


def deliveries_of(store: Store, ids: Sequence[str]) -> dict[str, list[Delivery]]:
    """Return the deliveries of these letters by the letter's id, the oldest first."""
    held: dict[str, list[Delivery]] = {id: [] for id in ids}
    for found in store.find(Query(message_ids=tuple(ids), order="age")) if ids else ():
        held[found.message.id].append(found.delivery)
    return held


def find_letters(core: Core, query: Query) -> list[Found]:
    """Return the letters of a mailbox as they are now: what is due there is applied before the look."""
    if query.mailbox is not None:
        apply_timers(core, core.now(), (query.mailbox,))
    return core.store.find(query)


def move_found(core: Core, query: Query, action: str, step: Step) -> list[Found]:
    """Find deliveries and move each by `step`, in one commit; return them as they are afterwards."""
    after: list[Found] = []

    def plan() -> Sequence[Write]:
        after.clear()
        writes: list[Write] = []
        for found in core.store.find(query):
            moved = step(found.delivery)
            after.append(Found(found.message, moved))
            writes.append(Move(found.delivery, moved, action))
        return writes

    # Outside of the lock first. In the usual case no other worker wants the same letters, and the lock is short.
    moves = plan()
    if not moves:
        return []
    try:
        core.store.commit(moves)
    except (StaleRevision, UnknownMessage):  # another writer was faster: search again inside the commit
        core.store.commit(plan)
    return after


def apply_timers(
    core: Core, moment: Moment, mailboxes: Sequence[str] | None, *, slices: int | None = None
) -> dict[str, int]:
    """Apply what is due: end leases, deliver delayed mail, expire mail. Return how often, by action.

    `slices` is how many commits it may take; None means as many as it needs.
    A letter that dies after too many attempts bounces in the same commit.
    """
    done: list[str] = []

    def plan() -> tuple[Sequence[Write], list[str]]:
        writes: list[Write] = []
        actions: list[str] = []
        for found in core.store.overdue(moment, mailboxes, SLICE).found:
            after = retry.catch_up(found.delivery, moment, core.limits)
            if after is not None:
                delivery, action = after
                actions.append(action)
                writes.append(Move(found.delivery, delivery, action))
                # In the same commit as the death (G6).
                if action == "bury":
                    writes += bounce(core, found.message, delivery, moment.wall)
        return writes, actions

    # In slices, so that no commit is long. Stop when a slice moved nothing: another process did the work.
    while slices != 0 and core.store.overdue(moment, mailboxes, 1).found:
        slices = None if slices is None else slices - 1
        moved = commit(core, plan)
        if not moved:
            break
        done += moved
    return Counter(done) if done else {}


def count_dead(core: Core, mailbox: str, agent: str = "") -> int:
    """Count dead letters as their owner sees them: without those that were unsent before they were seen."""
    sender = agent if AT in mailbox and agent else None  # at another system, an agent sees its own letters alone
    query = Query(mailbox=mailbox, sender=sender, states=(State.DEAD,), shown_only=True)
    return sum(core.store.count(query).values())


def taken_back(core: Core, ids: Sequence[str]) -> set[str]:
    """Return those of these letters that their senders took back: all their deliveries were unsent."""
    found = core.store.find(Query(message_ids=tuple(ids))) if ids else []
    counts = {one.message.id for one in found if one.delivery.reason != UNSENT}
    return {one.message.id for one in found} - counts


def is_process_gone(holder: str) -> bool:
    """Return whether the process that holds a claim has ended.

    Only a hint: a process of another container has ids of its own.
    """
    named = re.search(_PROCESS_SUFFIX, holder)
    if named is None:
        return False
    try:
        os.kill(int(named[1]), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:  # it exists and belongs to another user
        return False
    return False


# Notices: letters of the postmaster about another letter, in its thread. No agent can answer them, and no notice
# is written about another notice.


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
    """Return the post of a notice to one agent, as text and as data.

    `fields` are further fields of the message, such as those of `thread_fields`.
    """
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
    home = spelt(core.store, to)  # the agent may have been renamed
    # No quota: a notice reaches its agent however full the inbox is (G6).
    return Post(message=message, deliveries=(open_delivery(message, home, "to", now),))


def thread_fields(letter: Message) -> dict[str, Any]:
    """Return the fields that put a notice into the thread of this letter."""
    return {
        "scope": letter.scope,
        "thread_id": letter.thread,
        "thread_tag": letter.thread_tag,
        "conversation_id": letter.conversation_id,
        "in_reply_to": letter.id,
    }


def bounce(core: Core, message: Message, delivery: Delivery, now: datetime) -> list[Write]:
    """Return the notice to the sender that its letter is dead.

    There is none for Postroom's own notices, and none to a sender at a system from which the letter did not come:
    such a letter carries a forged name.
    """
    if message.is_automatic or _is_forged(message):
        return []
    reason = delivery.reason or "no reason given"
    tries = "1 try" if delivery.attempts == 1 else f"{delivery.attempts} tries"
    words = f"Your letter to {delivery.mailbox} is dead after {tries}: {reason}"
    return [_bounce_notice(core, message, delivery.mailbox, reason, words, now)]


def _bounce_notice(
    core: Core, message: Message, mailbox: str, reason: str, words: str, now: datetime, **fields: Any
) -> Post:
    facts = {"message_id": message.id, "mailbox": mailbox, "reason": reason}
    subject = f"Undeliverable: {message.subject or message.id}"
    return notice(core, BOUNCE, message.sender, subject, words, facts, now, **fields, **thread_fields(message))


def bounce_remote(core: Core, message: Message, to: str, reason: str) -> None:
    """Send a notice to a sender at another system that its letter was refused here, once for each letter.

    Letters to the postmaster are not answered, or two rooms could bounce to each other without end.
    """
    if message.is_automatic or same_name(to, POSTMASTER):
        return
    key = f"refused:{blake2b(f'{message.sender} {message.id}'.encode(), digest_size=16).hexdigest()}"

    def plan() -> Sequence[Write]:
        # The peer sends the letter again until it is confirmed; its sender gets one bounce.
        if first_sent(core.store, POSTMASTER, key):
            return []
        words = f"Your letter to {to} was not taken: {reason}"
        return [_bounce_notice(core, message, to, reason, words, core.now().wall, key=key)]

    core.store.commit(plan)


def _is_forged(message: Message) -> bool:
    source = text_in(origin_route(message), "source")
    return AT in message.sender and (source is None or not same_name(source, system_of(message.sender)))
