"""What is due by the clock: done by whoever uses a room, so that it needs no server and no janitor.

After a verb that writes, its process does a share of what is due in the whole room: leases end, delayed mail is
delivered, mail expires or is given up, givers of tasks are told of deadlines, and escalations climb. A process
looks at most once a second, and less often where a look takes long, so looking takes at most a thousandth of its
time; between two looks it compares two numbers and asks the store nothing. Of what is due it does a few at a time.
A server and `postroom rooms janitor` do the rest (`retention`).
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from ..errors import PostroomError
from ..model.codec import convert
from ..model.record import DUE, OPEN_ESCALATION
from ..model.task import Due, Escalation
from ..store.protocol import outgoing, record_keys

if TYPE_CHECKING:
    from datetime import datetime

    from ..model.query import Moment
    from .core import Core


LOOK_EVERY = 1.0  # seconds between two looks of one process, at least
SHARE = 1000  # a look that takes so long is followed by a pause of so many times as long
FEW = 20  # tasks and escalations at a time
MOST_READ = 100  # deadlines that one look reads


def do_some(core: Core) -> None:
    """Do a share of what is due, if it is time to look. What fails here is tried again by the next look."""
    moment = core.now()
    if moment.steady < core.next_look.at:
        return
    core.next_look.at = moment.steady + LOOK_EVERY  # first, so that other threads go on
    began = perf_counter()
    try:
        soonest, did_something = _look(core, moment)
    except PostroomError:  # the caller's own work is committed and must not fail
        return
    if did_something:
        return
    pause = max(LOOK_EVERY, SHARE * (perf_counter() - began))
    until = pause if soonest is None else (soonest - moment.wall).total_seconds()
    core.next_look.at = moment.steady + min(pause, until)


def _look(core: Core, moment: Moment) -> tuple[datetime | None, bool]:
    """Do a share of what is due; return when the next task or escalation is due, and whether anything was done."""
    now, done = moment.wall, 0
    if core.store.overdue(moment, None, 1).found:
        from .deliveries import apply_timers  # noqa: PLC0415 - nothing is due at most looks

        done += sum(apply_timers(core, moment, None, slices=1).values())
    if outgoing(core.store):
        from .outbox import give_up_old  # noqa: PLC0415 - as above

        done += give_up_old(core, now)
    deadlines = _deadlines(core, moment)
    over = [letter for letter, at in deadlines.items() if at <= now][:FEW]
    if over:
        from .tasks import report_overdue  # noqa: PLC0415 - as above

        done += report_overdue(core, now, over)
    due_times = [convert(record.value, Escalation).due_at for record in core.store.records(OPEN_ESCALATION)]
    climbs = [at for at in due_times if at is not None]
    if climbs and min(climbs) <= now:
        from .escalation import climb_overdue  # noqa: PLC0415 - as above

        done += climb_overdue(core, now, most=FEW)
    later = [at for at in (*deadlines.values(), *climbs) if at > now]
    return min(later, default=None), done > 0


def _deadlines(core: Core, moment: Moment) -> dict[str, datetime]:
    """Return the deadlines of tasks that this process knows, by letter; none changes, so each is read once.

    A look reads MOST_READ more at most. Looks of other seconds begin elsewhere: a command looks only once.
    """
    known, letters = core.next_look.deadlines, record_keys(core.store, DUE)
    new = [letter for letter in letters if letter not in known]
    if len(new) > MOST_READ:
        start = int(moment.steady) * MOST_READ % len(new)
        new = [*new[start:], *new[:start]][:MOST_READ]
    read = {letter: convert(one.value, Due).at for letter in new for one in core.store.records(DUE, letter)}
    core.next_look.deadlines = {letter: known[letter] for letter in letters if letter in known} | read
    return core.next_look.deadlines
