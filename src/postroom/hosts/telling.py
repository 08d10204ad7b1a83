"""What a session is told at each of its moments.

Brings no mail and prints nothing: a source brings it, and whoever prints says afterwards what was shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from .moments import BETWEEN, START, STOP
from .wording import again, mail

if TYPE_CHECKING:
    from datetime import datetime

    from .sessions import Session

    Entry = dict[str, Any]  # a letter in the words of the inbox design

MOST_HOLDS = 3  # ends of turns in a row that are held up; Claude Code lets go after eight of its own accord
AGAIN = frozenset({"resume", "compact", "fork"})  # starts after which a model may have forgotten what it saw


class Source(Protocol):
    """Where a session's mail comes from."""

    def waiting(self) -> tuple[list[Entry], int]:
        """Some unread letters, the most urgent first, and how many there are."""
        ...

    def seen(self) -> tuple[list[Entry], int]:
        """Some letters that were read and are not done, and how many there are."""
        ...

    def orders(self, since: float, nonce: str, *, only_new: bool) -> str:
        """What lies on the agent's hook and in its nudge slot, in words; empty where there is nothing, or no such
        thing. `only_new`: of this, what came after `since`.
        """
        ...

    def asks(self) -> bool:
        """Does one of those waiting ask for something now? It is urgent or of high priority; it is a task, a
        question about one, or an escalation, and the next step is this agent's.
        """
        ...


class Dialect(Protocol):
    """How one host is spoken to."""

    BUDGET: int

    def add(self, event: str, text: str) -> dict[str, Any]: ...
    def hold(self, event: str, text: str) -> dict[str, Any]: ...


class Told(NamedTuple):
    """What is said to the host, and what that shows of its mail."""

    text: str = ""
    shown: int = 0  # how many of those that wait
    total: int = 0
    holds: bool = False  # the turn goes on


def tell(
    moment: str, source: Source, session: Session, budget: int, *, began_by: str, now: datetime, nonce: str
) -> Told:
    """What this session is told now; an empty text where that is nothing."""
    is_new = moment == START and began_by not in AGAIN  # nothing was shown to this session before
    orders = source.orders(0.0 if is_new else session.heard_at, nonce, only_new=moment == BETWEEN)
    seen = source.seen() if moment == START and began_by in AGAIN else ([], 0)
    before = "\n".join(filter(None, (orders, again(*seen, session.agent, (budget - len(orders.encode())) // 2))))
    entries, total = source.waiting()
    if moment == STOP and session.holds >= MOST_HOLDS:
        return Told(total=total)
    if not entries or (moment == STOP and not source.asks()):
        return Told(before, total=total, holds=moment == STOP and bool(before))
    text, count = mail(entries, total, session.agent, now, nonce, budget - len(before.encode()) - 1)
    return Told(f"{before}\n{text}" if before else text, count, total, holds=moment == STOP)


def said(dialect: Dialect, event: str, told: Told) -> dict[str, Any] | None:
    """The same in the words of the host; None: nothing is printed."""
    if not told.text:
        return None
    return dialect.hold(event, told.text) if told.holds else dialect.add(event, told.text)
