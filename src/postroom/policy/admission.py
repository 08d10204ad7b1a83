"""May this letter come in, and may this task be taken on? Allow lists, expiry, pace; deadlines, share, fitness.

Size and form of a letter are checked when it is composed.
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
    from ..model.task import Standing


Judge: TypeAlias = "Callable[[Card, Message], str | None]"  # why an agent is not fit for a task; None: it is
REQUIRED = "required_capabilities"  # where a task's metadata names what it takes

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
_TICK = 1e-6  # seconds: more than rounding errors add up to


def check_guard(names: Sequence[str], recipient: str, guard: Guard) -> None:
    """Refuse a sender that the recipient has blocked, or that is not on its allow list. `names`: what the sender
    is called, and what it was called before.
    """
    known = {fold(name) for name in names}
    if any(fold(name) in known for name in guard.block):
        refused = f"{recipient!r} takes no mail from {names[0]!r}"
        raise NotAllowed(refused, field="to", hint="it has blocked you")
    if not any(fold(name) in known for name in guard.allow):
        check_allowed(names[0], recipient, guard.allow)


def check_allowed(sender: str, recipient: str, allow_from: Sequence[str]) -> None:
    """Refuse a sender that is not on the recipient's allow list."""
    if model_agent.EVERYONE in allow_from or same_name(sender, recipient):
        return
    if not any(same_name(sender, allowed) for allowed in allow_from):
        raise NotAllowed(f"{recipient!r} takes no mail from {sender!r}", field="to", hint="ask its owner")


def check_expiry(expires_at: datetime | None, now: datetime) -> None:
    if expires_at is not None and expires_at <= now:
        raise DeadlinePassed(f"{expires_at.isoformat()} is over already", field="expires")


def is_within(window: timedelta, earlier: datetime, now: datetime) -> bool:
    """Was `earlier` within the last `window`? Not if it lies ahead: then the clock was set back."""
    return timedelta(0) <= now - earlier < window


def too_fast(place: str, rate: int, earlier: datetime, now: datetime) -> TooFast:
    """Return the error for one sender's answers in a thread or conversation. `earlier`: when it wrote the answer
    `rate` answers back.
    """
    wait = (MINUTE - (now - earlier)).total_seconds()
    what = f"you wrote {rate} answers in {place} within a minute"
    return _slow_down(what, "thread", math.ceil(wait), "or raise thread_rate")


def too_crowded(place: str, rate: int, earlier: datetime, now: datetime) -> TooFast:
    """Return the error for all senders' answers to several recipients in a thread or conversation."""
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
    full_again = max(full_at, now) + letters / rate
    wait = full_again - now - burst / rate
    if wait > _TICK:
        seconds = math.ceil(wait * 1000) / 1000
        what = f"no more than {burst} letters at once and {rate} a second by one sender"
        raise _slow_down(what, "sender", seconds, "or raise sender_rate")
    return full_again


def check_admission(
    task: Standing,
    *,
    giver: Sequence[str],
    guard: Guard,
    busy_with: Sequence[str],
    most: int,
    now: datetime,
) -> None:
    """Refuse a task whose giver is not allowed, whose deadline is over, or that is one too many. `giver`: its
    names, as `check_guard` asks for them.
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


# What the giver of a refused task is told.
REASONS: dict[type[PostroomError], str] = {
    NotAllowed: "unauthorized",
    DeadlinePassed: "deadline",
    QuotaFull: "quota",
}


def refusal(refused: PostroomError) -> str:
    """One word for why a task was refused."""
    return REASONS[type(refused)]


def lacking(card: Card, letter: Message) -> str | None:
    """The judge of the house: every capability that the task names in its metadata must be on the card."""
    named = letter.metadata.get(REQUIRED, ())
    required = (named,) if isinstance(named, str) else named
    if not isinstance(required, (list, tuple)) or not all(isinstance(word, str) for word in required):
        return f"{REQUIRED} is not a list of words"
    missing = [word for word in required if word not in card.capabilities]
    return f"lacks {', '.join(missing)}" if missing else None


# The loop guard: how often a letter may be relayed, and never to an agent it already went through.


def relay(letter: Message, relayer: str, targets: Iterable[str], most: int) -> tuple[int, tuple[str, ...]]:
    """Hops and trace of `letter` when `relayer` passes it on to `targets`, or a refusal. A stranger may have
    written it: whatever it says, there are at most as many hops as here, and its writer is in its trace.
    """
    hops = min(letter.hops, most)
    if hops <= 1:
        chain = " → ".join(letter.trace)
        raise HopsSpent(f"the letter was relayed as often as it may be ({chain})", field="hops")
    trace = letter.trace
    for agent in (letter.sender, relayer):
        trace = trace if agent in trace else (*trace, agent)
    for target in targets:
        if any(same_name(target, agent) for agent in trace):
            chain = " → ".join(trace)
            raise LoopDetected(f"the letter already went through {target!r} ({chain})", field="to")
    return hops - 1, trace


def without_letter(letter: Message, targets: Iterable[str]) -> list[str]:
    """Those of `targets` who do not have the letter yet. To answer the others is no relay."""
    holders = {fold(letter.sender), *(fold(recipient.address) for recipient in letter.recipients)}
    return [target for target in targets if fold(target) not in holders]
