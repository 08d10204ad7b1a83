"""Names of sessions: what a session's agent is called, and sessions that cannot be noted down."""

from __future__ import annotations

import os
import unicodedata
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from itertools import chain, count
from typing import TYPE_CHECKING

from ..environment import sessions_folder
from ..model.names import HUMAN, ONE_MAILBOX, POSTMASTER, fold
from .sessions import OVER, InTurn, Session, all_sessions, find, keep
from .text import MOST_HELD_STOPS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

LONGEST = 60  # characters of a folder's name that are taken
_NOT_OURS = frozenset({*ONE_MAILBOX, *ONE_MAILBOX.values(), POSTMASTER})


def settle(
    session: Session,
    project: str,
    *,
    alone: bool,
    cleared: bool,
    human: str = HUMAN,
    others: Collection[str] = (),
) -> None:
    """Name a session's agent, unless somebody did, and note the session down. `alone`: a process of its host runs
    one session at a time, so those before it there are over. `cleared`: it goes on where the last one before it
    was. `human`: what the person's mailbox is called, which is nobody else's. `others`: names, folded, that are
    somebody else's, too.
    """
    with _one_at_a_time():
        beside = [one for one in all_sessions() if not one.is_same(session)]
        before = [one for one in beside if (one.pid, one.began) == (session.pid, session.began)]
        if not session.agent:
            taken = {fold(one.agent) for one in beside if one.is_live and not (alone and one in before)}
            taken.update(others)
            session.agent = _free(_earlier(session, before if cleared else ()), plain(project, human), taken)
        keep(session)
        for one in before:
            if alone and one.turn != OVER:
                one.mark(OVER)


def plain(folder: str, human: str = HUMAN) -> str:
    """A folder's name as an agent may be called; `agent` where nothing of it can be said. Many a person's home is
    called as they are.
    """
    letters = (
        unicodedata.normalize("NFKD", os.path.basename(folder.rstrip("/"))).encode("ascii", "ignore").decode()
    )
    words = "".join(letter if letter.isalnum() else " " for letter in letters.lower()).split()
    name = "-".join(words)[:LONGEST].rstrip("-")
    return name if name and name not in {*_NOT_OURS, fold(human)} else f"{name}-agent".lstrip("-")


def _earlier(session: Session, before: Sequence[Session]) -> list[str]:
    """What it was called when it ran before, and what the one was called that it goes on for."""
    own = find(session.host, session.id)
    last = max(before, key=lambda one: one.heard_at, default=None)
    return [one.agent for one in (own, last) if one is not None and one.agent]


def _free(earlier: Sequence[str], name: str, taken: set[str]) -> str:
    """The first name that no live session has."""
    numbered = (f"{name}-{number}" for number in count(2))
    return next(one for one in chain(earlier, [name], numbered) if fold(one) not in taken)


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Of two sessions that start at once, the second sees the first."""
    os.makedirs(sessions_folder(), mode=0o700, exist_ok=True)
    file = os.open(os.path.join(sessions_folder(), ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        flock(file, LOCK_EX)
        yield
    finally:
        os.close(file)


# A session that cannot be noted down: there is no folder for it, or the disk is full or read-only.
#
# Its mail is shown all the same, where it is known whose it is; two hooks at once may both show it. What only the
# note could tell is done without: no turn is held up, since nobody would count how often, and nobody wakes it.


class Unkept(Session):
    """Known for one hook."""

    __slots__ = ()

    def mark(self, turn: str, holds: int | None = None) -> None:
        """There is nowhere to mark it."""

    def in_turn(self) -> InTurn:
        return _Beside(self.path)


class _Beside(InTurn):
    """Nobody is waited for."""

    def __enter__(self) -> None: ...

    def __exit__(self, *how: object) -> None: ...


def unkept(session: Session, agent: str) -> Unkept:
    """The same, of this agent, as if its turns had been held up often enough."""
    known = {name: getattr(session, name) for name in Session.__slots__}
    return Unkept(**known | {"agent": agent, "holds": MOST_HELD_STOPS})
