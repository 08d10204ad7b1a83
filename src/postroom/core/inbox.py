"""Read mail: check, read, count, and wait for letters.

Reading never consumes a letter; it only sets `read_at`. Waiting sleeps until the store notifies or a timer is due
(a delayed letter, the end of a lease). A notification is only a hint: the watch is set before the second look, so
no letter that arrives in between is missed, and a sleeping reader looks again every LONGEST_SLEEP seconds.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Invalid, LookAlike, UnknownMessage
from ..model import delivery as model_delivery
from ..model.delivery import State
from ..model.message import Priority
from ..model.names import check_id, check_kind, check_party, check_scope, fold, meant
from ..model.query import Query
from ..model.record import Cursor
from ..model.values import check_label, check_time
from . import compose, names
from .authorize import authorize
from .deliveries import SLICE, apply_timers, move_found
from .validation import as_list, check_count, check_limit, check_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..model.query import Found, Moment, Order
    from .authorize import Principal
    from .core import Core


T = TypeVar("T")
_DELIVERED = (State.UNREAD, State.CLAIMED, State.DONE, State.DEAD)
READABLE = (State.UNREAD, State.CLAIMED)
LONGEST_SLEEP = 60.0  # seconds: look again even without a notification


class Filter(Struct, frozen=True, kw_only=True):
    """The letters that a reader asks for. Nothing in it is checked yet."""

    kinds: Any = ()
    min_priority: Any = Priority.LOW
    sender: Any = None
    thread: Any = None
    thread_tag: Any = None
    tag: Any = None
    scope: Any = None
    since: Any = None  # written at or after this time


NO_FILTER = Filter()


def as_filter(fields: Mapping[str, Any]) -> Filter:
    """Return a filter of these fields, whose values are not checked yet; an unknown field is refused."""
    if not fields:
        return NO_FILTER
    known = Filter.__struct_fields__
    unknown = fields.keys() - set(known)
    if unknown:
        raise Invalid("there is no such filter", field=min(unknown), hint=", ".join(known))
    return Filter(**fields)


def apply_filter(core: Core, query: Query, filter: Filter) -> Query:
    """Return the query narrowed by the filter, whose values are checked here."""
    if filter is NO_FILTER:
        return query
    sender = None if filter.sender is None else meant(check_party(filter.sender, "sender"), core.limits.human)
    return replace(
        query,
        kinds=tuple(check_kind(kind, "kinds") for kind in as_list(filter.kinds, "kinds")),
        min_priority=compose.check_priority(filter.min_priority, "min_priority"),
        sender=None if sender is None else names.current_name(core, sender),
        thread=None if filter.thread is None else check_id(filter.thread, "thread"),
        thread_tag=None if filter.thread_tag is None else check_label(filter.thread_tag, "thread_tag", 200),
        tag=None if filter.tag is None else check_label(filter.tag, "tag"),
        scope=None if filter.scope is None else check_scope(filter.scope, "scope"),
        since=None if filter.since is None else check_time(filter.since, "since"),
    )


def check(
    core: Core,
    caller: Principal,
    mailbox: str,
    *,
    filter: Filter = NO_FILTER,
    limit: int | None = 20,
    unread_only: bool = True,
    peek: bool = False,
    order: Order = "inbox",
) -> list[Found]:
    """Return the letters of an inbox: unread ones first, by priority, then age.

    The returned letters are marked as read, unless `peek` is set.
    """
    authorize(caller, "check", mailbox)
    moment = core.now()
    # Every look at a mailbox applies what is due, so no mail waits for the janitor.
    apply_timers(core, moment, (mailbox,))
    query = apply_filter(
        core, _inbox_query(mailbox, moment, unread_only=unread_only, limit=check_limit(limit)), filter
    )
    if order != "inbox":
        query = replace(query, order=order)
    if unread_only and not peek:
        found = move_found(core, query, "read", lambda delivery: model_delivery.read(delivery, moment.wall))
    else:
        found = core.store.find(query)
    if not found:
        check_spelling(core, mailbox)
    return found if peek or unread_only else _stamp_read(core, found, moment)


def check_spelling(core: Core, mailbox: str) -> None:
    """Raise an error if the room knows this mailbox under another spelling or a newer name.

    Called where nothing was found, so that a misspelt name is not taken for an empty mailbox.
    """
    held = core.store.spelling(mailbox)
    if held is not None and held != mailbox:
        if fold(held) != fold(mailbox) or held == names.current_name(core, mailbox):
            raise names.renamed_error(mailbox, held, "mailbox")
        raise LookAlike(f"{mailbox!r} reads like {held!r}", field="mailbox", hint=f"write {held!r}")


def read(core: Core, caller: Principal, mailbox: str, id: str) -> Found:
    """Return one letter of a mailbox; mark it as read unless it is settled."""
    authorize(caller, "read", mailbox)
    moment = core.now()
    apply_timers(core, moment, (mailbox,))
    return _stamp_read(core, [received(core, mailbox, id)], moment)[0]


def received(core: Core, mailbox: str, id: Any, field: str = "id") -> Found:
    """Return a letter with its delivery to this mailbox.

    A letter that does not exist and one that belongs to another mailbox give the same error (G8).
    """
    found = core.store.find(Query(mailbox=mailbox, message_ids=(check_id(id, field),), shown_only=True))
    # Mail that is scheduled for later is in nobody's inbox yet.
    if not found or found[0].delivery.state is State.QUEUED:
        check_spelling(core, mailbox)
        raise UnknownMessage(f"no letter {id!r} in {mailbox!r}", field=field)
    return found[0]


def counts(core: Core, caller: Principal, mailbox: str) -> dict[Priority, int]:
    """Return the number of unread letters by priority."""
    authorize(caller, "count", mailbox)
    moment = core.now()
    apply_timers(core, moment, (mailbox,))
    counted = core.store.count(_inbox_query(mailbox, moment, unread_only=True))
    if not any(counted.values()):
        check_spelling(core, mailbox)
    return counted


def find_next(
    core: Core,
    caller: Principal,
    mailboxes: Sequence[str],
    *,
    since: Cursor | None,
    peek: bool,
    filter: Filter = NO_FILTER,
) -> Found | None:
    """Return the next letter for a waiting reader, if there is one now. Never blocks."""
    moment = core.now()
    for mailbox in mailboxes:
        authorize(caller, "wait", mailbox)
    apply_timers(core, moment, mailboxes)
    until = core.store.cursor().number if since else None  # a letter that comes meanwhile must not overtake
    found = [first for name in mailboxes for first in _first_in(core, name, moment, since, until, filter)]
    if not found:
        for mailbox in mailboxes:
            check_spelling(core, mailbox)
        return None
    best = min(found, key=_by_arrival if since else _by_priority)
    return best if peek else _stamp_read(core, [best], moment)[0]


def wait(
    core: Core,
    caller: Principal,
    mailboxes: Sequence[str],
    timeout: float,
    *,
    since: Cursor | None = None,
    peek: bool = False,
    filter: Filter = NO_FILTER,
) -> Found | None:
    """Block until there is mail, at most `timeout` seconds.

    Without a cursor, return the first unread letter. With one, return the first letter accepted after it, read or
    not, so that a reader that was away misses nothing. A cursor of another epoch starts from the beginning.
    """
    since = None if since is None else valid_cursor(core, since)

    def find() -> Found | None:
        return find_next(core, caller, mailboxes, since=since, peek=peek, filter=filter)

    return wait_until(core, mailboxes, timeout, find)


def wait_until(
    core: Core,
    mailboxes: Sequence[str],
    timeout: float,
    look: Callable[[], T | None],
    nap: Callable[[], float] = lambda: LONGEST_SLEEP,
) -> T | None:
    """Call `look` until it finds something, and return that; None when the time is up.

    `nap` returns after how many seconds another look is useful, whatever the timers of the mailboxes say.
    """
    seconds = check_timeout(timeout)
    found = look()
    if found or seconds == 0:
        return found
    end = time.monotonic() + seconds
    watch = None
    try:
        watch = core.store.watch(mailboxes)
        while True:
            found = look()  # after the watch is set: a letter that came before it would notify nobody
            left = end - time.monotonic()
            if found or left <= 0:
                return found
            watch.wait(min(left, nap(), seconds_to_sleep(core, mailboxes)))
    finally:
        if watch is not None:
            watch.close()


def seconds_to_sleep(core: Core, mailboxes: Sequence[str]) -> float:
    """Return how long to sleep before a timer of these mailboxes is due."""
    timer = core.store.next_timer(core.now(), mailboxes)
    # A millisecond more, so that the timer is surely over when we look.
    return LONGEST_SLEEP if timer is None else min(timer + 0.001, LONGEST_SLEEP)


def check_timeout(timeout: float) -> float:
    return check_seconds(timeout, "timeout")


def check_cursor(value: Any) -> Cursor:
    """Return a cursor that is given as a `Cursor` or as text."""
    cursor = Cursor.parse(str(value) if isinstance(value, Cursor) else value)
    check_count(cursor.number, "cursor", least=0)
    return cursor


def current_cursor(core: Core, caller: Principal) -> Cursor:
    """Return the cursor of now.

    An agent gets the number of the newest letter that came to it: the number of the room would tell it how much
    mail other agents exchange (G8).
    """
    now = core.store.cursor()
    if caller.operator:
        return now
    if caller.agent is None:
        return replace(now, number=0)
    came = Query(mailbox=caller.agent, states=_DELIVERED, shown_only=True, until=now.number)
    newest = core.store.find(replace(came, order="newest", limit=1))
    if not newest:
        return replace(now, number=0)
    # A letter with a smaller number may have arrived later, because its delivery was delayed.
    later = core.store.find(replace(came, after=newest[0].delivery.number, order="age"))
    return replace(now, number=_by_arrival((later or newest)[-1])[0])


def valid_cursor(core: Core, since: Cursor) -> Cursor:
    """Return the cursor, or the beginning of the room if the cursor is of another store or epoch.

    Letters are found by their own numbers, so it does not matter whether the list of changes still reaches back.
    """
    now = core.store.cursor()
    is_valid = (since.store, since.epoch) == (now.store, now.epoch) and since.number <= now.number
    return since if is_valid else replace(now, number=0)


def _inbox_query(mailbox: str, moment: Moment, *, unread_only: bool, limit: int | None = None) -> Query:
    return Query(
        mailbox=mailbox,
        states=(State.UNREAD,),
        unread_only=unread_only,
        offered_at=moment.wall,
        limit=limit,
    )


def _first_in(
    core: Core, mailbox: str, moment: Moment, since: Cursor | None, until: int | None, filter: Filter
) -> list[Found]:
    if since is None:
        return core.store.find(
            apply_filter(core, _inbox_query(mailbox, moment, unread_only=True, limit=1), filter)
        )
    after = since.number_for(mailbox)
    query = Query(
        mailbox=mailbox, states=_DELIVERED, shown_only=True, after=after, until=until, order="age", limit=1
    )
    return core.store.find(apply_filter(core, query, filter))


def _stamp_read(core: Core, found: Sequence[Found], moment: Moment) -> list[Found]:
    """Set `read_at` on open letters that have none; return all letters as they are afterwards."""
    new = [f.message.id for f in found if f.delivery.read_at is None and f.delivery.state in READABLE]
    fresh: dict[str, Found] = {}
    # In slices, so that a long list does not hold the lock for long.
    for start in range(0, len(new), SLICE):
        ids = tuple(new[start : start + SLICE])
        query = Query(mailbox=found[0].delivery.mailbox, message_ids=ids, states=READABLE, unread_only=True)
        stamped = move_found(core, query, "read", lambda delivery: model_delivery.read(delivery, moment.wall))
        fresh |= {f.message.id: f for f in stamped}
    return [fresh.get(f.message.id, f) for f in found]


def _by_priority(found: Found) -> tuple[int, int]:
    return -found.delivery.priority, found.delivery.number


def _by_arrival(found: Found) -> tuple[int, str]:
    return found.delivery.arrived or found.delivery.number, found.delivery.mailbox
