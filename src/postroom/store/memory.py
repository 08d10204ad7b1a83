"""The store in memory: dictionaries under one lock. For tests, for trying things out, for one process.

It keeps what outlives nothing, and promises everything else the protocol promises.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import nullcontext
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..errors import BadStore, Resync
from ..model.change import Cursor
from ..model.delivery import SETTLED, State
from ..model.health import note
from ..model.message import Priority
from ..model.names import AT, fold
from ..model.query import Found, LetterQuery, Query
from ..model.stats import Traffic
from ..model.thread import conversation_of
from .base import rung_by
from .bells import ROOM
from .counting import settled_since, tallies
from .house_bells import HouseBells
from .matching import SORT, by_arrival, fits, seconds_left, tells
from .memory_tables import Journal, Tables, shown
from .searching import answers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path

    from ..model.change import Change
    from ..model.health import Finding, Progress
    from ..model.message import Message
    from ..model.query import Moment
    from ..model.record import Record
    from ..model.search import SearchQuery
    from ..model.stats import Tally
    from .base import Letter, Plan, Posted, Write
    from .house_bells import HouseWatch


class MemoryStore(Tables):
    """A room that lives as long as its process."""

    vouches = True
    archives_by_sending = False

    def __init__(self, name: str) -> None:
        super().__init__()
        self._room = name
        self._epoch = 0
        self._lock = threading.RLock()
        self._bells = HouseBells()
        self._trimmed = 0  # cursors below this need a resync

    # -- writing

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        journal = Journal()
        with self._lock:
            writes = writes() if callable(writes) else writes
            last, changes = self._last, len(self._changes)
            try:
                outcomes = [self.apply(write, journal) for write in writes]
            except BaseException:
                journal.undo()
                self._last = last
                del self._changes[changes:]
                raise
        posted = tuple(outcome for outcome in outcomes if outcome is not None)
        self._bells.ring(rung_by(writes, posted) | {ROOM})
        return posted

    def gathered(self, *, joined: bool = False) -> AbstractContextManager[None]:  # noqa: ARG002 - nothing is kept
        return nullcontext()

    def hurried(self) -> AbstractContextManager[Callable[[], bool]]:
        return nullcontext(lambda: True)  # nobody stays for long

    def sync(self) -> None:
        """Nothing here outlives the process."""

    # -- asking

    def get(self, ids: Sequence[str]) -> dict[str, Letter]:
        with self._lock:
            return {id: self.letter(self._numbers[id]) for id in ids if id in self._numbers}

    def sent(self, sender: str, key: str) -> Letter | None:
        with self._lock:
            number = self._keys.get((sender, key)) or self.unkeyed(sender, key)
            return None if number is None else self.letter(number)

    def find(self, query: Query) -> list[Found]:
        with self._lock:
            found = list(self._matching(query))
        found.sort(key=by_arrival if query.after is not None else SORT[query.order])
        return found[: query.limit]

    def count(self, query: Query) -> dict[Priority, int]:
        counts = dict.fromkeys(Priority, 0)
        with self._lock:
            for found in self._matching(query):
                counts[found.delivery.priority] += 1
        return counts

    def letters(self, query: LetterQuery) -> list[Letter]:
        with self._lock:
            letters = [self.letter(number) for number in sorted(self._letters) if number > query.after]
            if query.newest is not None:
                letters = [x for x in letters if _is_at(x.message, query)][-query.newest :]
            matching = [letter for letter in letters if self._suits(letter, query)]
        if query.order == "newest":
            matching.reverse()
        end = None if query.limit is None else query.skip + query.limit
        return matching[query.skip : end]

    def count_letters(self, query: LetterQuery) -> int:
        return len(self.letters(replace(query, skip=0, limit=None)))

    def ids(self, beginning: str, party: str | None, limit: int) -> list[str]:
        found = (letter.message.id for letter in self.letters(LetterQuery(party=party)))
        return sorted(id for id in found if id.startswith(beginning))[:limit]

    def search(self, query: SearchQuery, reader: str | None, limit: int) -> list[Letter]:
        letters = self.letters(LetterQuery(party=reader, order="newest"))
        return [letter for letter in letters if answers(letter.message, query, reader)][:limit]

    def keep_index(self) -> int:
        return 0

    def threads(self, party: str | None, limit: int) -> list[str]:
        replies = self.letters(LetterQuery(party=party, order="newest"))
        threads = dict.fromkeys(x.message.thread_id for x in replies if x.message.thread_id)
        return [thread for thread in threads if thread][:limit]

    def conversations(self, party: str | None, scope: str | None, limit: int) -> list[str]:
        letters = self.letters(LetterQuery(party=party, scope=scope, order="newest"))
        return list(dict.fromkeys(conversation_of(letter.message) for letter in letters))[:limit]

    def overdue(self, moment: Moment, mailboxes: Sequence[str] | None, limit: int) -> list[Found]:
        with self._lock:
            return [
                Found(self.letter(d.number).message, d)
                for d in self._deliveries.values()
                if (mailboxes is None or d.mailbox in mailboxes) and seconds_left(d, moment) <= 0
            ][:limit]

    def offered(self, query: Query, moment: Moment) -> list[Found] | None:
        at = None if query.mailbox is None else (query.mailbox,)
        return None if self.overdue(moment, at, 1) else self.find(query)

    def next_timer(self, moment: Moment, mailboxes: Sequence[str]) -> float | None:
        with self._lock:
            waits = [seconds_left(d, moment) for d in self._deliveries.values() if d.mailbox in mailboxes]
            waits += [
                (d.due_at - moment.wall).total_seconds()
                for d in self._deliveries.values()
                if d.mailbox in mailboxes and d.state is State.UNREAD and d.due_at is not None
            ]
        waits = [seconds for seconds in waits if 0 < seconds < float("inf")]
        return min(waits, default=None)

    def records(self, kind: str, key: str | None = None) -> list[Record]:
        with self._lock:
            if key is not None:
                record = self._records.get((kind, key))
                return [] if record is None else [shown(record)]
            return [shown(self._records[at]) for at in sorted(self._records) if at[0] == kind]

    def keys(self, kind: str) -> list[str]:
        with self._lock:
            return sorted(key for of, key in self._records if of == kind)

    def quarantined(self) -> list[str]:
        return []

    def spelling(self, name: str) -> str | None:
        with self._lock:
            former = self._aliases.get(fold(name))
            return former[1] if former else self._names.get(fold(name), (None, False))[0]

    def mailboxes(self) -> list[str]:
        with self._lock:
            return sorted(name for name, _ in self._names.values())

    def known(self) -> list[str]:
        with self._lock:
            return sorted(name for name, known in self._names.values() if known)

    def is_known(self, name: str) -> bool:
        with self._lock:
            spelt = self.spelling(name)
            return spelt is not None and self._names[fold(spelt)][1]

    def strangers(self) -> dict[str, int]:
        found = self.find(Query(states=(State.UNREAD,), unread_only=True, order="age"))
        newest = {one.delivery.mailbox: one.delivery.number for one in found if AT not in one.delivery.mailbox}
        return {name: number for name, number in newest.items() if not self.is_known(name)}

    def outgoing(self, due: datetime | None, most: datetime | None = None) -> dict[str, int]:
        found = self.find(Query(states=(State.QUEUED,), due_at=due, due_most=most))
        waiting = sorted((f.delivery.number, f.delivery.mailbox) for f in found if AT in f.delivery.mailbox)
        return dict(Counter(mailbox for _, mailbox in waiting))

    def tally(self, mailbox: str | None) -> list[Tally]:
        with self._lock:
            return tallies(d for d in self._deliveries.values() if mailbox in {None, d.mailbox})

    def count_deliveries(self) -> int:
        return len(self._deliveries)

    def traffic(self, since: Cursor, after: datetime) -> Traffic:
        with self._lock:
            changes, until = self.changes(since, self._last)
            moved = [c for c in changes if c.what == "moved"]
            done = {(self._numbers[c.message_id or ""], c.mailbox or "") for c in moved if c.state is State.DONE}
            return Traffic(
                cursor=until,
                sent=sum(c.what == "posted" for c in changes),
                settled=tuple(settled_since(map(self._deliveries.__getitem__, sorted(done)), after)),
                died=sum(c.state is State.DEAD for c in moved),
            )

    def changes(self, since: Cursor, limit: int) -> tuple[list[Change], Cursor]:
        with self._lock:
            foreign = (since.store, since.epoch) != (self._room, str(self._epoch))
            if foreign or not self._trimmed <= since.number <= self._last:
                raise Resync
            told = [change for change in self._changes if self._still_told(change, since.number)][:limit]
            found = [c if c.mailbox is None else replace(c, mailbox=self.now(c.mailbox)) for c in told]
            return found, replace(since, number=found[-1].number if found else self._last)

    def _still_told(self, change: Change, since: int) -> bool:
        """What became of a letter that is deleted by now is of no use to anyone."""
        about_mail = change.what in {"posted", "moved"}
        return change.number > since and not (about_mail and change.message_id not in self._numbers)

    def cursor(self) -> Cursor:
        with self._lock:
            return Cursor(self._room, str(self._epoch), self._last)

    def renew_epoch(self) -> None:
        with self._lock:
            self._epoch += 1

    def trim_changes(self, keep: int) -> int:
        with self._lock:
            dropped = self._changes[: -max(keep, 1)]
            if dropped:
                self._trimmed = dropped[-1].number
                del self._changes[: len(dropped)]
            return len(dropped)

    def fresh_id(self, sender: str) -> str | None:  # noqa: ARG002 - the same for everyone
        return None

    def watch(self, mailboxes: Sequence[str]) -> HouseWatch:
        return self._bells.watch(mailboxes)

    def close(self) -> None:
        """Nothing is held open."""

    def examine(self, *, repair: bool, full: bool, progress: Progress) -> Iterator[Finding]:  # noqa: ARG002
        """There is nothing here that could break by itself."""
        yield note("durability", "this room is in memory: its mail ends with its process", "open a file instead")

    def backup(self, path: Path, *, overwrite: bool, progress: Progress) -> int:  # noqa: ARG002
        raise BadStore("a room in memory has no file to copy", field="store", hint="use export()")

    def _matching(self, query: Query) -> Iterator[Found]:
        """Deliveries are looked at first: reading a letter costs far more."""
        for delivery in self._deliveries.values():
            if fits(delivery, query):
                message = self.letter(delivery.number).message
                if tells(message, query, self.now(message.sender)):
                    yield Found(message, delivery)

    def _suits(self, letter: Letter, query: LetterQuery) -> bool:
        message = letter.message
        sender = self.now(message.sender)
        if not _is_at(message, query) or query.sender not in {None, sender}:
            return False
        deliveries = [d for (number, _), d in self._deliveries.items() if number == letter.number]
        came = {d.mailbox for d in deliveries if d.state is not State.QUEUED and not d.is_hidden}
        settled = [d.acked_at or d.dead_at for d in deliveries if d.state in SETTLED]
        return (
            (query.thread is None or message.thread == query.thread)
            and (query.thread_tag is None or message.thread_tag == query.thread_tag)
            and (query.scope is None or message.scope == query.scope)
            and (query.party is None or query.party in {sender, *came})
            and (query.received_by is None or query.received_by in came)
            and (not query.to_several or len(deliveries) > 1)
            and message.id not in query.spared
            and (
                query.settled_before is None
                or (len(settled) == len(deliveries) and all(t and t < query.settled_before for t in settled))
            )
        )


def _is_at(message: Message, query: LetterQuery) -> bool:
    return (query.conversation is None or conversation_of(message) == query.conversation) and (
        query.replies_in is None or query.replies_in == message.thread_id
    )
