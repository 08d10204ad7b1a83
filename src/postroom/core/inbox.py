"""Read mail: check, read, count, and wait for letters.

Reading never consumes a letter; it only sets `read_at`. Waiting sleeps until the store notifies or a timer is due
(a delayed letter, the end of a lease). A notification is only a hint: the watch is set before the second look, so
no letter that arrives in between is missed, and a sleeping reader looks again every LONGEST_SLEEP seconds.
"""

from __future__ import annotations

import os
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ..errors import UnknownMessage
from ..model import delivery as model_delivery
from ..model.delivery import State
from ..model.message import Message
from ..model.names import check_id, check_kind, check_party, check_scope, fold, look_alike, meant
from ..model.query import Found, Order, Query
from ..model.record import Change, Cursor
from ..model.values import as_list, check_count, check_label, check_limit, check_time
from ..store.protocol import spelling_of
from . import compose, names, presentation
from .deliveries import SLICE, apply_timers, move_found
from .proof import is_own_reader, people_names
from .verb import LONGEST_WAIT, MailboxVerb, PriorityWord, Verb, checked_mailbox, verb

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..model.query import Moment
    from .authorize import Principal
    from .core import Core


T = TypeVar("T")
_DELIVERED = (State.UNREAD, State.CLAIMED, State.DONE, State.DEAD)
READABLE = (State.UNREAD, State.CLAIMED)


class Filtered(MailboxVerb, kw_only=True):
    """A request for the letters of a mailbox that have these properties."""

    kinds: Annotated[str | list[str] | None, "only these kinds"] = None
    min_priority: Annotated[PriorityWord | None, "only from this priority on"] = None
    sender: Annotated[str | None, "only from this agent"] = None
    thread: Annotated[str | None, "only of this thread"] = None
    thread_tag: Annotated[str | None, "only with this label of a thread"] = None
    tag: Annotated[str | None, "only with this tag"] = None
    scope: Annotated[str | None, "only of this scope"] = None

    def narrowed(self, core: Core, query: Query, since: Any = None) -> Query:
        """Return the query narrowed to the letters asked for, whose values are checked here."""
        fields: dict[str, Any] = {}
        for name, check in _PROPERTIES.items():  # every claim passes here: a generator would take ten calls more
            value = getattr(self, name)
            if value is not None:
                fields[name] = check(core, value)
        if since is not None:
            fields["since"] = check_time(since, "since")
        return replace(query, **fields) if fields else query


# How the value of each property is checked.
_PROPERTIES: dict[str, Callable[[Core, Any], Any]] = {
    "kinds": lambda _, kinds: tuple(check_kind(kind, "kinds") for kind in as_list(kinds, "kinds")),
    "min_priority": lambda _, word: compose.check_priority(word, "min_priority"),
    "sender": lambda core, name: names.current_name(core, meant(check_party(name, "sender"), core.limits.human)),
    "thread": lambda _, letter: check_id(letter, "thread"),
    "thread_tag": lambda _, label: check_label(label, "thread_tag", 200),
    "tag": lambda _, label: check_label(label, "tag"),
    "scope": lambda _, name: check_scope(name, "scope"),
}


class Letters(Struct):
    """Letters of one mailbox."""

    mailbox: str
    letters: list[Found]


class OneLetter(Struct):
    """One letter of a mailbox."""

    letter: Found


class Messages(Struct):
    """Letters without their deliveries."""

    letters: list[Message]


@verb("check", Letters, action="check", many=True)
class Check(Filtered, kw_only=True):
    """Return the inbox: unread first, by priority, then age. It stamps what it returns as read, unless `peek`."""

    limit: Annotated[int | None, "how many at most"] = 20
    unread_only: Annotated[bool, "false: also letters that were read before"] = True
    peek: Annotated[bool, "stamp nothing"] = False
    since: Annotated[datetime | None, "only letters written at or after this time"] = None
    order: Annotated[Order, "inbox: by priority, then age; or age alone"] = "inbox"

    def run(self, core: Core, principal: Principal) -> Letters:
        moment = core.now()
        # Every look at a mailbox applies what is due, so no mail waits for the janitor.
        apply_timers(core, moment, (self.agent_id,))
        stamps = not self.peek and is_own_reader(core, principal, self.agent_id)
        limit = check_limit(self.limit)
        query = _inbox_query(self.agent_id, moment, unread_only=self.unread_only, limit=limit, order=self.order)
        query = self.narrowed(core, query, self.since)
        if self.unread_only and stamps:
            found = move_found(core, query, "read", lambda delivery: model_delivery.read(delivery, moment.wall))
        else:
            found = core.store.find(query)
        if not found:
            check_spelling(core, self.agent_id)
        if stamps and not self.unread_only:
            found = _stamp_read(core, found, moment)
        return Letters(self.agent_id, found)


@verb("read", OneLetter, action="read", old_names={"message_id": "id"})
class Read(MailboxVerb, kw_only=True):
    """Return one letter, stamped as read unless it is settled."""

    id: Annotated[str, "the letter's id"]

    def run(self, core: Core, principal: Principal) -> OneLetter:
        moment = core.now()
        apply_timers(core, moment, (self.agent_id,))
        found = [received(core, self.agent_id, self.id)]
        if is_own_reader(core, principal, self.agent_id):
            found = _stamp_read(core, found, moment)
        return OneLetter(found[0])


class Counted(Struct):
    """The number of unread letters of a mailbox, by priority and in total."""

    mailbox: str
    urgent: int
    high: int
    normal: int
    low: int
    total: int


@verb("counts", Counted, action="count", writes=False)
class Counts(MailboxVerb, kw_only=True):
    """Count the unread letters by priority and in total."""

    def run(self, core: Core, _principal: Principal) -> Counted:
        moment = core.now()
        apply_timers(core, moment, (self.agent_id,))
        counted = core.store.count(_inbox_query(self.agent_id, moment, unread_only=True))
        by_name = {priority.name.lower(): number for priority, number in counted.items()}
        total = sum(counted.values())
        check_spelling(core, self.agent_id, total)
        return Counted(self.agent_id, **by_name, total=total)


@verb("digest", str, under="text", action="check", writes=False)
class Digest(MailboxVerb, kw_only=True):
    """Return the unread mail as text for a prompt, in a fence; marks nothing."""

    budget: Annotated[int, "characters at most"] = 4000
    most: Annotated[int, "letters at most"] = 5
    longest: Annotated[int, "characters of one letter at most"] = 500

    def run(self, core: Core, principal: Principal) -> str:
        most = check_count(self.most, "most")
        found = Check(agent_id=self.agent_id, limit=most, peek=True).run(core, principal).letters
        total = Counts(agent_id=self.agent_id).run(core, principal).total
        messages = [f.message.seen_by(self.agent_id) for f in found]
        budget, longest = (
            check_count(self.budget, "budget", least=0),
            check_count(self.longest, "longest", least=0),
        )
        total = max(total, len(messages))
        nonce = os.urandom(8).hex()
        return presentation.digest(
            messages, nonce, budget=budget, longest=longest, total=total, people=people_names(core)
        )


def check_spelling(core: Core, mailbox: str | None, found: object = None) -> None:
    """Raise an error if nothing was found, and the room knows this mailbox by another spelling or a newer name.

    So a misspelt name is not taken for an empty mailbox.
    """
    held = None if found or mailbox is None else spelling_of(core.store, mailbox)
    if held is not None and mailbox is not None and held != mailbox:
        if fold(held) != fold(mailbox) or held == names.current_name(core, mailbox):
            raise names.renamed_error(mailbox, held, "mailbox")
        raise look_alike(mailbox, held, "mailbox")


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


class NextLetter(Struct):
    """The next letter for a reader that waits, and the cursor for its next call."""

    letter: Found | None
    cursor: str


@verb("wait", NextLetter, action="wait", waits=True)
class Wait(Filtered, kw_only=True):
    """Return the next unread letter as soon as there is one; with a cursor, the next that came after it.

    With a cursor, letters count whether they were read or not, so that a reader that was away misses nothing. A
    cursor of another epoch starts from the beginning.
    """

    timeout: Annotated[float, f"how long to wait, in seconds; over a wire {LONGEST_WAIT:g} at most"] = 30.0
    since: Annotated[str | None, "a cursor: what came after it, read or not, so that nothing is missed"] = None
    peek: Annotated[bool, "stamp nothing"] = False
    also: Annotated[list[str] | None, "further mailboxes to wait for"] = None

    def owners(self, core: Core, principal: Principal) -> list[str | None]:
        owners = super().owners(core, principal)
        self.also = [checked_mailbox(core, name) for name in self.also or ()]
        return [*owners, *self.also]

    def mailboxes(self) -> list[str]:
        return [self.agent_id, *(self.also or ())]

    def run(self, core: Core, principal: Principal) -> NextLetter:
        # Before the look, so that the next call sees what comes meanwhile.
        now = None if self.since is not None else current_cursor(core, principal)
        since = None if self.since is None else valid_cursor(core, check_cursor(self.since))
        moment = core.now()
        mailboxes = self.mailboxes()
        apply_timers(core, moment, mailboxes)
        until = core.store.cursor().number if since else None  # a letter that comes meanwhile must not overtake
        found = [first for name in mailboxes for first in self._first_in(core, name, moment, since, until)]
        if not found:
            for mailbox in mailboxes:
                check_spelling(core, mailbox)
            return NextLetter(None, str(now or self.since))
        best = min(found, key=_by_arrival if since else _by_priority)
        if not self.peek:
            best = _stamp_read(core, [best], moment)[0]
        return NextLetter(best, str(cursor_of(core, best)))

    def is_empty(self, result: NextLetter) -> bool:
        return result.letter is None

    def _first_in(
        self, core: Core, mailbox: str, moment: Moment, since: Cursor | None, until: int | None
    ) -> list[Found]:
        if since is None:
            query = _inbox_query(mailbox, moment, unread_only=True, limit=1)
        else:
            after = since.number_for(mailbox)
            query = Query(
                mailbox=mailbox, states=_DELIVERED, shown_only=True, after=after, until=until, order="age", limit=1
            )
        return core.store.find(self.narrowed(core, query))


def cursor_of(core: Core, found: Found) -> Cursor:
    """Return the position of a letter, for a reader that goes on after it."""
    delivery = found.delivery
    return replace(core.store.cursor(), number=delivery.arrived or delivery.number, mailbox=delivery.mailbox)


def check_cursor(value: Any) -> Cursor:
    """Return a cursor that is given as a `Cursor` or as text."""
    cursor = Cursor.parse(str(value) if isinstance(value, Cursor) else value)
    check_count(cursor.number, "cursor", least=0)
    return cursor


@verb("cursor", str, under="cursor", action="wait", writes=False)
class GetCursor(MailboxVerb, kw_only=True):
    """Return the present cursor, to ask later what changed since; of an agent: up to its newest letter."""

    def owners(self, core: Core, principal: Principal) -> list[str | None]:
        # The number that is returned is the caller's own, whichever mailbox it names.
        named = [checked_mailbox(core, self.agent_id)] if self.agent_id else [principal.agent]
        return list(named)

    def run(self, core: Core, principal: Principal) -> str:
        return str(current_cursor(core, principal))


class Changes(Struct):
    """Changes of a room, and the cursor for the next call."""

    changes: list[Change]
    cursor: Cursor


@verb("changes", Changes, action="room", many=True, writes=False)
class GetChanges(Verb, kw_only=True):
    """Return the changes after a cursor, and the next cursor; Resync if they are not kept any more."""

    since: Annotated[str, "a cursor"]
    limit: Annotated[int | None, "how many at most"] = 1000

    def run(self, core: Core, _principal: Principal) -> Changes:
        return Changes(*core.store.changes(check_cursor(self.since), check_count(self.limit, "limit")))


def current_cursor(core: Core, principal: Principal) -> Cursor:
    """Return the cursor of now.

    An agent gets the number of the newest letter that came to it: the number of the room would tell it how much
    mail other agents exchange (G8).
    """
    now = core.store.cursor()
    if principal.operator:
        return now
    if principal.agent is None:
        return replace(now, number=0)
    came = Query(mailbox=principal.agent, states=_DELIVERED, shown_only=True, until=now.number)
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


def _inbox_query(
    mailbox: str, moment: Moment, *, unread_only: bool, limit: int | None = None, order: Order = "inbox"
) -> Query:
    return Query(
        mailbox=mailbox,
        states=(State.UNREAD,),
        unread_only=unread_only,
        offered_at=moment.wall,
        limit=limit,
        order=order,
    )


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
