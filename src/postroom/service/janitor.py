"""What must happen when nobody looks: leases, expiry, archive, retention. A callable; nothing runs by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from ..errors import StaleRevision
from ..model import delivery as moves
from ..model.delivery import State
from ..model.query import LetterQuery, Query
from ..model.record import FORGOTTEN, SPENT, Record
from ..policy.retention import archive_cutoff, memory_cutoff, purge_cutoff
from ..store.base import Put, Write
from .authorize import Principal, authorize
from .dead import forget
from .given import check_count, check_seconds
from .moving import SLICE, let_time_pass, move_found
from .office import Office

CHORE = "chore"  # records of when something was last done
DAY = 24 * 3600
LONGEST_AGO = 1e9  # seconds; thirty years


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


def sweep(office: Office, caller: Principal) -> Sweep:
    """One round. Safe at any time, from any number of processes."""
    authorize(caller, "janitor")
    moment = office.now()
    time_did = let_time_pass(office, moment, None)
    return Sweep(
        lapsed=time_did.get("lapse", 0),
        delivered=time_did.get("deliver", 0),
        expired=time_did.get("expire", 0),
        buried=time_did.get("bury", 0),
        archived=_archive(office, moment.wall, archive_cutoff(moment.wall, office.limits)),
        purged=_purge(
            office, moment.wall, purge_cutoff(moment.wall, office.limits), office.limits.retain_count, _tell_nobody
        ),
        forgotten=_forget_memories(office, moment.wall),
        trimmed=office.store.trim_changes(office.limits.retain_changes),
    )


def archive(office: Office, caller: Principal, older_than: float | None = None) -> int:
    """Only the archive, and of what was acknowledged so many seconds ago; by default as the limits say."""
    authorize(caller, "janitor")
    now = office.now().wall
    return _archive(
        office, now, archive_cutoff(now, office.limits) if older_than is None else _ago(now, older_than)
    )


def purge(
    office: Office,
    caller: Principal,
    *,
    older_than: float | None = None,
    keep: int | None = None,
    tell: Callable[[int], None] | None = None,
) -> int:
    """Only the purge. What is said replaces both limits; `tell` hears how many went so far."""
    authorize(caller, "janitor")
    now = office.now().wall
    if older_than is None and keep is None:
        cutoff, count = purge_cutoff(now, office.limits), office.limits.retain_count
    else:
        cutoff = None if older_than is None else _ago(now, older_than)
        count = 0 if keep is None else check_count(keep, "keep")
    return _purge(office, now, cutoff, count, tell or _tell_nobody)


def _ago(now: datetime, seconds: Any) -> datetime:
    return now - timedelta(seconds=check_seconds(seconds, "older_than", most=LONGEST_AGO))


def _tell_nobody(_done: int) -> None: ...


def _archive(office: Office, now: datetime, before: datetime) -> int:
    query = Query(states=(State.DONE,), unarchived_before=before, order="age", limit=SLICE)
    archived = 0
    while moved := move_found(office, query, "archive", lambda delivery: moves.archive(delivery, now)):
        archived += len(moved)
    return archived


def _purge(office: Office, now: datetime, cutoff: datetime | None, keep: int, tell: Callable[[int], None]) -> int:
    """By age, then by count; only what is done or dead everywhere."""
    purged = 0
    if cutoff is not None:
        purged = _purge_slices(office, LetterQuery(settled_before=cutoff, limit=SLICE), now, purged, tell)
    if keep:
        query = LetterQuery(settled_before=now, order="newest", skip=keep, limit=SLICE)
        purged = _purge_slices(office, query, now, purged, tell)
    return purged


def _purge_slices(
    office: Office, query: LetterQuery, now: datetime, purged: int, tell: Callable[[int], None]
) -> int:

    def plan() -> Sequence[Write]:
        nonlocal purged
        letters = office.store.letters(query)
        purged += len(letters)
        return forget(office, [letter.message for letter in letters], now)

    while office.store.letters(query):
        office.store.commit(plan)
        tell(purged)
    return purged


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
