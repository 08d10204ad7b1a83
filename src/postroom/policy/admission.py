"""Admission: the checks that a letter passes before it is accepted, and a task before it is taken on.

They cover allow lists, expiry and rates of letters, relay chains, and the deadline, capacity and capabilities for
tasks. The size and form of a letter are checked when it is composed.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

from ..errors import DeadlinePassed, HopsSpent, LoopDetected, NotAllowed, QuotaFull, TooFast, TooLarge
from ..model import agent as model_agent
from ..model.message import same_name
from ..model.names import fold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from ..errors import PostroomError
    from ..model.agent import Card, Guard
    from ..model.message import Message
    from ..model.task import TaskStatus


Judge: TypeAlias = "Callable[[Card, Message], str | None]"  # returns why an agent is not fit for a task, or None
REQUIRED = "required_capabilities"  # the key in a task's metadata

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
_TICK = 1e-6  # seconds: more than the sum of rounding errors


def check_guard(names: Sequence[str], recipient: str, guard: Guard) -> None:
    """Refuse a sender that the recipient has blocked, or that is not on its allow list.

    `names` holds the sender's present name and its former ones.
    """
    known = {fold(name) for name in names}
    # Also under its former names: a new name is no way around a block.
    if any(fold(name) in known for name in guard.block):
        raise NotAllowed(
            f"{recipient!r} takes no mail from {names[0]!r}", field="to", hint="this agent has blocked the sender"
        )
    if not any(fold(name) in known for name in guard.allow):
        check_allowed(names[0], recipient, guard.allow)


def check_allowed(sender: str, recipient: str, allow_from: Sequence[str]) -> None:
    """Refuse a sender that is not on the recipient's allow list."""
    if model_agent.EVERYONE in allow_from or same_name(sender, recipient):
        return
    if not any(same_name(sender, allowed) for allowed in allow_from):
        raise NotAllowed(
            f"{recipient!r} takes no mail from {sender!r}",
            field="to",
            hint="ask the owner of that agent to allow the sender",
        )


def check_expiry(expires_at: datetime | None, now: datetime) -> None:
    if expires_at is not None and expires_at <= now:
        raise DeadlinePassed(f"{expires_at.isoformat()} is over already", field="expires")


def is_within(window: timedelta, earlier: datetime, now: datetime) -> bool:
    """Return whether `earlier` is within the last `window`. A future time is not: then the clock was set back."""
    return timedelta(0) <= now - earlier < window


def too_fast(place: str, rate: int, earlier: datetime, now: datetime) -> TooFast:
    """Return the error for too many answers of one sender in a thread or conversation.

    `earlier` is the time of its answer `rate` answers ago.
    """
    wait = (MINUTE - (now - earlier)).total_seconds()
    what = f"you wrote {rate} answers in {place} within a minute"
    return _slow_down(what, "thread", math.ceil(wait), "or raise thread_rate")


def too_crowded(place: str, rate: int, earlier: datetime, now: datetime) -> TooFast:
    """Return the error for too many answers to several recipients in a thread or conversation, by all senders."""
    wait = (HOUR - (now - earlier)).total_seconds()
    what = f"{rate} answers to several recipients were written in {place} within an hour"
    instead = "answer only the sender, wait until a person writes there, or raise thread_hourly"
    return _slow_down(what, "thread", math.ceil(wait), instead)


def _slow_down(what: str, field: str, seconds: float, instead: str) -> TooFast:
    refused = TooFast(what, field=field, hint=f"try again in {seconds:g} seconds, {instead}")
    refused.retry_after = seconds
    return refused


def check_rate(rate: int, burst: int, letters: int, full_at: float, now: float) -> float:
    """Decide by a token bucket whether one sender may send `letters` more letters now, or raise an error.

    The bucket holds at most `burst` tokens and gets `rate` new ones a second. One number describes it, the time at
    which it is full again: `full_at` before these letters, the result after them.

    A letter costs one token, however many recipients it has. An inbox gets at most one delivery of each letter, so
    the rate bounds what one sender can put into any one inbox; to count deliveries would refuse broadcasts to more
    agents than `burst`, which max_recipients allows.
    """
    if letters > burst:
        raise TooLarge(
            f"{letters} letters at once, sender_burst is {burst}",
            field="drafts",
            hint="send them in smaller pieces, or raise sender_burst",
        )
    # `now` is uptime: setting the clock neither fills nor empties the bucket.
    full_again = max(full_at, now) + letters / rate
    wait = full_again - now - burst / rate
    if wait > _TICK:
        seconds = math.ceil(wait * 1000) / 1000
        raise _slow_down(
            f"no more than {burst} letters at once and {rate} a second by one sender",
            "sender",
            seconds,
            "or raise sender_rate",
        )
    return full_again


def check_admission(
    task: TaskStatus,
    *,
    giver: Sequence[str],
    guard: Guard,
    busy_with: Sequence[str],
    most: int,
    now: datetime,
) -> None:
    """Refuse a task whose giver is not allowed, whose deadline has passed, or that is one too many.

    `giver` holds the giver's present name and its former ones.
    """
    check_guard(giver, task.receiver, guard)
    if task.deadline is not None and task.deadline <= now:
        raise DeadlinePassed(f"the task was due at {task.deadline.isoformat()}", field="deadline")
    if len(busy_with) >= most:
        raise QuotaFull(
            f"{task.receiver!r} is busy with {len(busy_with)} of at most {most} tasks",
            field="max_concurrent_tasks",
            hint="finish one first",
        )


# The reason that the giver of a refused task gets.
REASONS: dict[type[PostroomError], str] = {
    NotAllowed: "unauthorized",
    DeadlinePassed: "deadline",
    QuotaFull: "quota",
}


def refusal(refused: PostroomError) -> str:
    """Return one word for the reason of a refused task."""
    return REASONS[type(refused)]


def lacking(card: Card, letter: Message) -> str | None:
    """Return the capabilities that a task requires and the card lacks, as a reason; None if it lacks none.

    This is the default `Judge`.
    """
    named = letter.metadata.get(REQUIRED, ())
    required = (named,) if isinstance(named, str) else named
    if not isinstance(required, (list, tuple)) or not all(isinstance(word, str) for word in required):
        return f"{REQUIRED} is not a list of words"
    missing = [word for word in required if word not in card.capabilities]
    return f"lacks {', '.join(missing)}" if missing else None


# Relays


def relay(letter: Message, relayer: str, targets: Iterable[str], most: int) -> tuple[int, tuple[str, ...]]:
    """Return the hops and the trace of `letter` when `relayer` relays it to `targets`, or refuse.

    A letter may not go to an agent through which it already went. A foreign program may have written the letter,
    so its hops are capped by our limit, and its sender is added to its trace.
    """
    hops = min(letter.hops, most)
    if hops <= 1:
        chain = " → ".join(letter.trace)
        raise HopsSpent(f"the letter was relayed as often as it may be ({chain})", field="hops")
    trace = letter.trace
    for agent in (letter.sender, relayer):
        trace = trace if agent in trace else (*trace, agent)
    for target in targets:
        # The hops bound the length of a chain, the trace finds a ring at once (G11).
        if any(same_name(target, agent) for agent in trace):
            chain = " → ".join(trace)
            raise LoopDetected(f"the letter already went through {target!r} ({chain})", field="to")
    return hops - 1, trace


def without_letter(letter: Message, targets: Iterable[str]) -> list[str]:
    """Return the `targets` that do not have the letter yet. Answering the others is no relay."""
    holders = {fold(letter.sender), *(fold(recipient.address) for recipient in letter.recipients)}
    return [target for target in targets if fold(target) not in holders]
