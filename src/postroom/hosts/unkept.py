"""A session that cannot be noted down: there is no folder for it, or the disk is full or read-only.

Its mail is shown all the same, where it is known whose it is; two hooks at once may both show it. What only the
note could tell is done without: no turn is held up, since nobody would count how often, and nobody wakes it.
"""

from __future__ import annotations

from .sessions import InTurn, Session
from .telling import MOST_HOLDS


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
    return Unkept(**known | {"agent": agent, "holds": MOST_HOLDS})
