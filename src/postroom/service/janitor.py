"""What must happen when nobody looks: leases, expiry, archive, retention, escalations, deadlines, index.

A callable; nothing runs by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from ..errors import StaleRevision
from ..model import delivery as moves
from ..model.delivery import State
from ..model.query import LetterQuery, Query
from ..model.record import FORGOTTEN, SPENT, Record
from ..policy.retention import archive_cutoff, memory_cutoff, purge_cutoff
from ..store.base import Put, Write
from .authorize import Principal, authorize
from .climbing import climb_overdue, forget_closed
from .dead import forget
from .moving import SLICE, let_time_pass, move_found
from .office import Office
from .overdue import report_overdue
from .taskbook import all_active

CHORE = "chore"  # records of when something was last done
DAY = 24 * 3600


class Sweep(Struct, frozen=True, kw_only=True):
    """What one round did."""

    lapsed: int = 0
    delivered: int = 0
    expired: int = 0
    buried: int = 0
    archived: int = 0
    purged: int = 0
    forgotten: int = 0  # memories of purged letters that were old enough
    trimmed: int = 0  # changes
    climbed: int = 0  # escalations that nobody answered in time
    overdue: int = 0  # tasks past their deadline, of which their givers were told
    indexed: int = 0  # letters new in the index for searches


def sweep(office: Office, caller: Principal) -> Sweep:
    """One round. Safe at any time, from any number of processes."""
    authorize(caller, "janitor")
    moment = office.now()
    time_did = let_time_pass(office, moment, None)
    climbed = climb_overdue(office, moment.wall)  # before its letters could be purged
    forget_closed(office, moment.wall)
    return Sweep(
        lapsed=time_did.get("lapse", 0),
        delivered=time_did.get("deliver", 0),
        expired=time_did.get("expire", 0),
        buried=time_did.get("bury", 0),
        archived=_archive(office, moment.wall),
        purged=_purge(office, moment.wall),
        forgotten=_forget_memories(office, moment.wall),
        trimmed=office.store.trim_changes(office.limits.retain_changes),
        climbed=climbed,
        overdue=report_overdue(office, moment.wall),
        indexed=office.store.keep_index(),
    )


def _archive(office: Office, now: datetime) -> int:
    query = Query(
        states=(State.DONE,),
        unarchived_before=archive_cutoff(now, office.limits),
        order="age",
        limit=SLICE,
    )
    archived = 0
    while moved := move_found(office, query, "archive", lambda delivery: moves.archive(delivery, now)):
        archived += len(moved)
    return archived


def _purge(office: Office, now: datetime) -> int:
    """By age, then by count; only what is done or dead everywhere, and opened no task that goes on."""
    purged = 0
    cutoff = purge_cutoff(now, office.limits)
    if cutoff is not None:
        purged += _purge_slices(office, LetterQuery(settled_before=cutoff, limit=SLICE), now)
    if office.limits.retain_count:
        keep = office.limits.retain_count
        query = LetterQuery(settled_before=now, order="newest", skip=keep, limit=SLICE)
        purged += _purge_slices(office, query, now)
    return purged


def _purge_slices(office: Office, query: LetterQuery, now: datetime) -> int:
    purged = 0

    def plan() -> Sequence[Write]:
        nonlocal purged
        letters = office.store.letters(_sparing_tasks(office, query))
        purged += len(letters)
        return forget(office, [letter.message for letter in letters], now)

    while office.store.letters(_sparing_tasks(office, query)):
        office.store.commit(plan)
    return purged


def _sparing_tasks(office: Office, query: LetterQuery) -> LetterQuery:
    """But not the letters whose tasks go on. Asked anew in each commit: a task may be taken on meanwhile."""
    return replace(query, spared=tuple(id for ids in all_active(office).values() for id in ids))


def _forget_memories(office: Office, now: datetime) -> int:
    """Once a day: ids and keys of letters purged long ago need not be remembered for ever."""
    last = office.store.records(CHORE, "memories")
    if last and (now - datetime.fromisoformat(last[0].value)).total_seconds() < DAY:
        return 0
    cutoff = memory_cutoff(now, office.limits).isoformat()
    old = [r for kind in (FORGOTTEN, SPENT) for r in office.store.records(kind) if r.value["at"] < cutoff]
    done = Record(kind=CHORE, key="memories", value=now.isoformat(), revision=last[0].revision if last else 0)
    gone = [Put(record=Record(kind=r.kind, key=r.key, value=None, revision=r.revision)) for r in old]
    try:
        office.store.commit([*gone, Put(record=done, durable=False)])
    except StaleRevision:  # another janitor was quicker
        return 0
    return len(gone)
