"""The life of a hook: every legal move, and who may make it. Code, messages and docs are read off this one table.

    empty → pending      only the mayor (or a dispatcher)
    pending → active     only the owner
    active → completed   only the owner
    completed → empty    the mayor, after checking the work
    active → empty       the mayor, to reassign
    pending → empty      the mayor, to reassign

No move is skipped, and there are never two items on one hook. Does no I/O and knows no hook.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from ..errors import IllegalMove, NotAllowed
from ..model.names import fold

if TYPE_CHECKING:
    from collections.abc import Mapping


class Status(StrEnum):
    EMPTY = "empty"
    PENDING = "pending"  # a work item was put on it; nobody has begun
    ACTIVE = "active"  # its owner is at work
    COMPLETED = "completed"  # done, says its owner; the mayor checks


AT_WORK = frozenset({Status.PENDING, Status.ACTIVE})  # there is something to do


class Move(NamedTuple):
    before: Status
    after: Status
    roles: frozenset[str]
    words: str


OWNER, MAYOR, DISPATCHER = "owner", "mayor", "dispatcher"
_MAYORS, _OWNER = frozenset({MAYOR}), frozenset({OWNER})
MOVES = (
    Move(Status.EMPTY, Status.PENDING, frozenset({MAYOR, DISPATCHER}), "only the mayor (or a dispatcher)"),
    Move(Status.PENDING, Status.ACTIVE, _OWNER, "only the owner"),
    Move(Status.ACTIVE, Status.COMPLETED, _OWNER, "only the owner"),
    Move(Status.COMPLETED, Status.EMPTY, _MAYORS, "the mayor, after checking the work"),
    Move(Status.ACTIVE, Status.EMPTY, _MAYORS, "the mayor, to reassign"),
    Move(Status.PENDING, Status.EMPTY, _MAYORS, "the mayor, to reassign"),
)
TABLE = {(move.before, move.after): move for move in MOVES}


class Roles:
    """Who is what. `mayor-a1b2c` is a mayor by its name; a name that tells nothing may be given a role."""

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self._given = {fold(name): role for name, role in (given or {}).items()}

    def of(self, name: str, owner: str) -> set[str]:
        """All that somebody is with regard to one agent's hook."""
        role = self._given.get(fold(name)) or fold(name).partition("-")[0]
        return {role, OWNER} if fold(name) == fold(owner) else {role}


def check_move(before: Status, after: Status, *, by: str, owner: str, roles: Roles) -> None:
    """IllegalMove or NotAllowed, in the words of the table, unless this may be done."""
    move = TABLE.get((before, after))
    if move is None:
        legal = ", ".join(f"{one.before} → {one.after} ({one.words})" for one in MOVES if one.before is before)
        raise IllegalMove(f"the hook of {owner!r} is {before}: {before} → {after} is no move", hint=legal)
    if not move.roles & roles.of(by, owner):
        raise NotAllowed(f"{before} → {after} on the hook of {owner!r}: {move.words}, not {by!r}", field="by")
