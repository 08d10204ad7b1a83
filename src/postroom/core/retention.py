"""The janitor: one round handles leases, expiry, archive, retention, escalations, deadlines and the search index.

Nothing runs by itself: `sweep` is called by the server or by a program; of leases, expiry, deadlines and
escalations everybody who writes does a share (`due`). Any number of processes may call it at the same time. A
purge deletes only letters that are done or dead for every recipient, and never those of an active task or an open
escalation.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

from msgspec.structs import replace

from ..errors import StaleRevision
from ..model import delivery as model_delivery
from ..model.delivery import State
from ..model.query import LetterQuery, Query
from ..model.record import FORGOTTEN, SPENT
from ..model.report import Progress
from ..model.values import Brief, check_count, check_progress, check_seconds
from ..policy.limits import archive_cutoff, memory_cutoff, purge_cutoff
from .core import commit, find_record, put_record
from .dead import forget
from .deliveries import SLICE, apply_timers, move_found
from .escalation import climb_overdue, forget_closed, letters_of_open
from .outbox import give_up_old
from .task_index import all_active
from .tasks import report_overdue
from .verb import LOCAL, Verb, verb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..store.protocol import Write
    from .authorize import Principal
    from .core import Core


CHORE = "chore"  # kind of records that hold when a task was last done
DAY = 24 * 3600
EVER = datetime(9999, 1, 1, tzinfo=UTC)


class Sweep(Brief, frozen=True, kw_only=True):
    """The counts of one round."""

    lapsed: int = 0
    delivered: int = 0
    expired: int = 0
    buried: int = 0
    archived: int = 0
    purged: int = 0
    forgotten: int = 0  # remembered ids and keys of purged letters that were old enough
    trimmed: int = 0  # changes
    climbed: int = 0  # escalations that nobody answered in time
    overdue: int = 0  # notices of tasks past their deadline
    indexed: int = 0  # letters added to the search index


@verb("sweep", Sweep, action="janitor", slow=True)
class SweepRoom(Verb, kw_only=True):
    """Do one round of the janitor. Safe at any time, from any number of processes."""

    progress: Annotated[Progress | None, LOCAL] = None

    def run(self, core: Core, _principal: Principal) -> Sweep:
        moment = core.now()
        tell = check_progress(self.progress)
        time_did = apply_timers(core, moment, None)
        given_up = give_up_old(core, moment.wall)
        climbed = climb_overdue(core, moment.wall)  # before its letters could be purged
        forget_closed(core, moment.wall)
        archived = _archive(core, moment.wall, archive_cutoff(moment.wall, core.limits), tell)
        purged = _purge(core, moment.wall, *_retention(core, moment.wall), tell)
        forgotten, overdue = _forget_memories(core, moment.wall), report_overdue(core, moment.wall)
        done = core.store.trim(core.limits.retain_changes)
        return Sweep(
            lapsed=time_did.get("lapse", 0),
            delivered=time_did.get("deliver", 0),
            expired=time_did.get("expire", 0),
            buried=time_did.get("bury", 0) + given_up,
            archived=archived,
            purged=purged,
            forgotten=forgotten,
            trimmed=done.changes,
            climbed=climbed,
            overdue=overdue,
            indexed=done.indexed,
        )


@verb("archive", int, under="archived", action="janitor", slow=True)
class Archive(Verb, kw_only=True):
    """Archive mail that was acknowledged so many seconds ago, or as long ago as the settings say."""

    older_than: Annotated[float | None, "for how long it has been done, in seconds"] = None
    progress: Annotated[Progress | None, LOCAL] = None

    def run(self, core: Core, _principal: Principal) -> int:
        now, old = core.now().wall, self.older_than
        cutoff = archive_cutoff(now, core.limits) if old is None else _before(now, old)
        return _archive(core, now, cutoff, check_progress(self.progress))


@verb("purge", int, under="purged", action="janitor", slow=True)
class Purge(Verb, kw_only=True):
    """Delete letters settled everywhere so many seconds ago, and all settled ones but the newest `keep`.

    Without either, as the settings say.
    """

    older_than: Annotated[float | None, "for how long they have been settled, in seconds"] = None
    keep: Annotated[int | None, "how many settled letters stay"] = None
    progress: Annotated[Progress | None, LOCAL] = None

    def run(self, core: Core, _principal: Principal) -> int:
        now, tell = core.now().wall, check_progress(self.progress)
        if self.older_than is None and self.keep is None:
            return _purge(core, now, *_retention(core, now), tell)
        cutoff = None if self.older_than is None else _before(now, self.older_than)
        most = None if self.keep is None else check_count(self.keep, "keep", least=0)
        return _purge(core, now, cutoff, most, tell)


def _retention(core: Core, now: datetime) -> tuple[datetime | None, int | None]:
    """Return what the settings say: delete letters settled before this time, and all but so many."""
    return purge_cutoff(now, core.limits), core.limits.retain_count or None


def _before(now: datetime, older_than: Any) -> datetime:
    span = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
    try:
        return now - timedelta(seconds=check_seconds(span, "older_than"))
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)  # before any letter


def _archive(core: Core, now: datetime, cutoff: datetime, report: Progress) -> int:
    query = Query(states=(State.DONE,), unarchived_before=cutoff, order="age", limit=SLICE)
    if core.store.archives_by_sending:
        query = replace(query, unarchived_before=EVER, sent_before=cutoff)
    total = sum(core.store.count(query).values())
    archived = 0
    while moved := move_found(core, query, "archive", lambda delivery: model_delivery.archive(delivery, now)):
        archived += len(moved)
        report(archived, max(archived, total))
    return archived


def _purge(core: Core, now: datetime, cutoff: datetime | None, keep: int | None, report: Progress) -> int:
    """Purge by age, then by count."""
    purged = 0
    if cutoff is not None:
        purged += _purge_slices(core, LetterQuery(settled_before=cutoff, limit=SLICE), now, report)
    if keep is not None:
        query = LetterQuery(settled_before=now, order="newest", skip=keep, limit=SLICE)
        purged += _purge_slices(core, query, now, report)
    return purged


def _purge_slices(core: Core, query: LetterQuery, now: datetime, report: Progress) -> int:
    purged, total = 0, max(0, core.store.count(query, by="all") - query.skip)

    def plan() -> tuple[Sequence[Write], int]:
        letters = core.store.letters(_sparing(core, query))
        return forget(core, [letter.message for letter in letters], now), len(letters)

    # In slices, so that no commit keeps other writers waiting.
    while core.store.letters(_sparing(core, query)):
        purged += commit(core, plan)
        report(purged, max(purged, total))
    return purged


def _sparing(core: Core, query: LetterQuery) -> LetterQuery:
    """Return the query without letters of active tasks and open escalations.

    An escalation that climbs copies its first letter. Made for each commit: a task may be accepted meanwhile.
    """
    tasks = [id for ids in all_active(core).values() for id in ids]
    return replace(query, spared=(*tasks, *letters_of_open(core)))


def _forget_memories(core: Core, now: datetime) -> int:
    """Once a day, delete the remembered ids and keys of letters that were purged long ago."""
    last = find_record(core, CHORE, "memories")
    if last and (now - datetime.fromisoformat(last.value)).total_seconds() < DAY:
        return 0
    cutoff = memory_cutoff(now, core.limits).isoformat()
    # `memory_cutoff` is at least 30 days back: until then a late retry finds its first letter (G3).
    old = [r for kind in (FORGOTTEN, SPENT) for r in core.store.records(kind) if r.value["at"] < cutoff]
    done = put_record(CHORE, "memories", now.isoformat(), last, durable=False)
    try:
        core.store.commit([*(put_record(r.kind, r.key, None, r) for r in old), done])
    except StaleRevision:  # another janitor was quicker
        return 0
    return len(old)
