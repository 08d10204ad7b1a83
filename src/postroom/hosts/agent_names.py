"""Agent names of sessions: that of the folder, or a numbered one if a live session has it."""

from __future__ import annotations

import os
import unicodedata
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from itertools import chain, count
from typing import TYPE_CHECKING

from ..environment import state_folder
from ..model.names import HUMAN, ONE_MAILBOX, POSTMASTER, fold
from .sessions import OVER, all_sessions, find, keep

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from .sessions import Session

LONGEST = 60  # characters of a folder's name that are taken
_RESERVED = frozenset({*ONE_MAILBOX, *ONE_MAILBOX.values(), POSTMASTER})


def settle(
    session: Session,
    project: str,
    *,
    alone: bool,
    cleared: bool,
    human: str = HUMAN,
    others: Collection[str] = (),
) -> None:
    """Name the agent of a session, unless it has a name, and record the session.

    alone    a process of this host runs one session at a time, so earlier sessions of the process are over
    cleared  it continues the last session of the process
    human    the name of the person's mailbox, which no session gets
    others   folded names that belong to other agents
    """
    with _one_at_a_time():
        beside = [one for one in all_sessions() if not one.is_same(session)]
        before = [one for one in beside if (one.pid, one.began) == (session.pid, session.began)]
        if not session.agent:
            taken = {fold(one.agent) for one in beside if one.is_live and not (alone and one in before)}
            taken.update(others)
            name = plain(project, human)
            numbered = (f"{name}-{number}" for number in count(2))
            names = chain(_earlier(session, before if cleared else ()), [name], numbered)
            session.agent = next(one for one in names if fold(one) not in taken)
        keep(session)
        for one in before:
            if alone and one.turn != OVER:
                one.mark(OVER)


def plain(folder: str, human: str = HUMAN) -> str:
    """Return an agent name made of the name of a folder; `agent` if nothing of it can be used.

    A reserved name, or the person's own (their home folder often has it), gets `-agent` appended.
    """
    letters = (
        unicodedata.normalize("NFKD", os.path.basename(folder.rstrip("/"))).encode("ascii", "ignore").decode()
    )
    words = "".join(letter if letter.isalnum() else " " for letter in letters.lower()).split()
    name = "-".join(words)[:LONGEST].rstrip("-")
    return name if name and name not in {*_RESERVED, fold(human)} else f"{name}-agent".lstrip("-")


def _earlier(session: Session, before: Sequence[Session]) -> list[str]:
    """Return the name that the session had before, and that of the session it continues."""
    own = find(session.host, session.id)
    last = max(before, key=lambda one: one.heard_at, default=None)
    return [one.agent for one in (own, last) if one is not None and one.agent]


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Lock the folder: of two sessions that start at once, the second sees the first."""
    os.makedirs(state_folder("sessions"), mode=0o700, exist_ok=True)
    file = os.open(os.path.join(state_folder("sessions"), ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        flock(file, LOCK_EX)
        yield
    finally:
        os.close(file)
