"""The errors of PostgreSQL and of our functions in the house's words. None of them shows a password."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
import psycopg
from psycopg_pool import PoolTimeout, TooManyRequests

from ...errors import (
    BadStore,
    Damaged,
    IllegalMove,
    NameTaken,
    PostroomError,
    StaleRevision,
    StoreBusy,
    StoreFailing,
    UnknownAgent,
    UnknownMessage,
)
from ...model.names import look_alike
from ..protocol import check_space

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOK_FIRST = "PR001"  # of our function `post`: a letter that must be looked at under the lock
RESTORE = "stop all agents, and restore a backup"
_AGAIN = "try again; a letter that is sent again with its key is never doubled"
_CUT = frozenset(
    {"57P01", "57P02", "57P03", "57P05", "25P03", "53300"}
)  # the server ends sessions, or takes no more


# psycopg gives an error of connecting no SQLSTATE, only the words of the server and of libpq. Words in another
# language are taken for a server that is away.
_NEVER = re.compile(
    r"authentication failed|no password supplied|(?:database|role) .* does not exist|permission denied"
    r"|no pg_hba.conf entry|invalid (?:URI|connection option|port|integer|\w+ value)|definition of service",
    re.IGNORECASE,
)
_READ_ONLY = re.compile(r"session is read-only|server is in hot standby", re.IGNORECASE)
# A statement that was prepared in another session: PgBouncer gave this transaction one of its own.
_POOLED = frozenset({"26000", "42P05", "08P01"})


class LookFirst(Exception):
    """A letter may repeat another one, or a guard must see it."""


@contextmanager
def translated() -> Iterator[None]:
    """Raise the errors of PostgreSQL as errors of the house."""
    try:
        yield
    except (psycopg.Error, PoolTimeout, TooManyRequests) as error:
        raise translate(error) from error


def translate(error: Exception) -> Exception:
    if isinstance(error, (PoolTimeout, TooManyRequests)):
        return StoreBusy("no connection to the PostgreSQL server came free", hint="is it up? Try again")
    if not isinstance(error, psycopg.Error):
        return Damaged(str(error), hint=RESTORE)
    state, said = error.sqlstate or "", " ".join(str(error.diag.message_primary or error).split())
    if state.startswith("PR"):
        return _ours(state, said, error.diag.message_detail or "")
    if state == "55P03":
        return StoreBusy("another program holds the room", hint="try again")
    if state.startswith(("53", "58")) and state not in _CUT:
        return StoreFailing(f"PostgreSQL: {said}", hint="free some space and try again")
    if state == "25006" or (not state and _READ_ONLY.search(said)):
        hint = "name all servers in the address: host=a,b; it goes on with the one that is the primary"
        return StoreFailing("this PostgreSQL server is a standby", hint=hint)
    if state in _POOLED:
        hint = "add pooler=transaction to the address"
        return BadStore(f"a pooler stands before PostgreSQL: {said}", field="store", hint=hint)
    if state in {"28P01", "28000", "3D000", "42501"} or (not state and _NEVER.search(said)):
        return BadStore(f"PostgreSQL: {said}", field="store", hint="ask who runs the server, or set PGPASSWORD")
    if state in {"3F000", "42P01", "42883"}:
        return BadStore(f"the room is gone: {said}", field="store", hint="open it again to make a new one")
    if state.startswith("XX"):
        return Damaged(f"PostgreSQL: {said}", hint=RESTORE)
    if not state or state.startswith("08") or state in _CUT or state == "57014":
        return StoreFailing(f"the connection to PostgreSQL failed: {said}", hint=_AGAIN)
    if state.startswith("40"):
        return StoreBusy(f"PostgreSQL: {said}", hint="try again")
    return BadStore(f"PostgreSQL {state}: {said}", field="store", hint="postroom doctor looks at the room")


def _ours(state: str, said: str, detail: str) -> Exception:
    if state == LOOK_FIRST:
        return LookFirst()
    if state == "PR002":
        return StaleRevision()
    if state == "PR003":
        return UnknownMessage()
    if state == "PR004":
        return IllegalMove("a letter that is not settled everywhere cannot be deleted")
    if state == "PR005":
        return UnknownAgent(f"nobody here is called {detail!r}", field="to", hint="register it first")
    if state == "PR008":
        return NameTaken(said, field=detail)
    if state == "PR007":
        return look_alike(**msgspec.json.decode(detail))
    full = msgspec.json.decode(detail)
    try:
        check_space(full["sender"], full["mailbox"], (full["total"], full["own"]), full["limit"], full["more"])
    except PostroomError as refused:
        return refused
    return Damaged("the room counts a quota in two ways", hint="upgrade all programs that use the room")
