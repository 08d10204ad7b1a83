"""May this letter come in? Allow lists, expiry and pace. (Size and form are checked when it is composed.)"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from ..errors import DeadlinePassed, NotAllowed, TooFast
from ..model.card import EVERYONE
from ..model.guard import Guard
from ..model.message import same_name
from ..model.names import fold

_MINUTE = timedelta(minutes=1)


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
    if EVERYONE in allow_from or same_name(sender, recipient):
        return
    if not any(same_name(sender, allowed) for allowed in allow_from):
        raise NotAllowed(f"{recipient!r} takes no mail from {sender!r}", field="to", hint="ask its owner")


def check_expiry(expires_at: datetime | None, now: datetime) -> None:
    if expires_at is not None and expires_at <= now:
        raise DeadlinePassed(f"{expires_at.isoformat()} is over already", field="expires")


def check_pace(rate: int, earlier: datetime | None, now: datetime) -> None:
    """`earlier` is when the sender's letter `rate` letters back in this thread was written."""
    if earlier is not None and timedelta(0) <= now - earlier < _MINUTE:
        raise TooFast(
            f"more than {rate} letters in this thread within a minute",
            field="thread",
            hint="slow down, or raise thread_rate",
        )
