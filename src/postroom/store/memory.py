"""The store in memory: the tables of a room, and what each write does to them. A failed commit is undone.

Nothing is locked here: `memory` calls it under its lock, and asks the questions.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from ..errors import (
    BadStore,
    IdTaken,
    IllegalMove,
    LookAlike,
    NameTaken,
    Resync,
    StaleRevision,
    UnknownAgent,
    UnknownMessage,
)
from ..model.codec import decode_message, digest, encode
from ..model.delivery import OPEN, REDIRECTED, SETTLED, SIGNS_OF_LIFE, State
from ..model.message import Priority
from ..model.names import AT, fold, system_of
from ..model.query import Found, LetterQuery, Name, Query, Traffic
from ..model.record import CARD, FORGOTTEN, SPENT, Change, Cursor, spent_key
from ..model.report import note
from ..model.thread import conversation_of
from .matching import (
    SORT,
    by_arrival,
    matches_delivery,
    matches_letter,
    matches_search,
    seconds_left,
    settled_since,
    tallies,
)
from .notification import ROOM, LocalNotifier
from .protocol import (
    Forget,
    Introduce,
    Letter,
    Move,
    Post,
    Posted,
    Put,
    check_space,
    is_known,
    mailboxes_to_notify,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path

    from ..model.delivery import Delivery
    from ..model.message import Message
    from ..model.query import Moment, Tally
    from ..model.record import Record
    from ..model.report import Finding, Progress
    from ..model.search import SearchQuery
    from .notification import LocalWatch
    from .protocol import Plan, Rename, Write


K = TypeVar("K")
V = TypeVar("V")


class Journal:
    """Undoes what a failed commit had done."""

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] = []

    def set(self, table: dict[K, V], key: K, value: V) -> None:
        self._remember(table, key)
        table[key] = value

    def drop(self, table: dict[K, V], key: K) -> None:
        self._remember(table, key)
        del table[key]

    def undo(self) -> None:
        for step in reversed(self._steps):
            step()

    def _remember(self, table: dict[K, V], key: K) -> None:
        if key in table:
            old = table[key]
            self._steps.append(lambda: table.__setitem__(key, old))
        else:
            self._steps.append(lambda: table.pop(key, None))


class Tables:
    """The letters, deliveries, records and names of a room, and what each write does to them."""

    def __init__(self) -> None:
        self._letters: dict[int, bytes] = {}  # encoded, so that nobody can change what was accepted
        self._senders: dict[int, str] = {}  # as they were called then
        self._numbers: dict[str, int] = {}
        self._keys: dict[tuple[str, str], int] = {}
        self._deliveries: dict[tuple[int, str], Delivery] = {}
        self._records: dict[tuple[str, str], Record] = {}  # with their values encoded, like letters
        self._names: dict[str, tuple[str, bool]] = {}  # folded -> (name, known)
        self._aliases: dict[
            str, tuple[str, str]
        ] = {}  # a former name, folded -> (as it was spelt, what it is now)
        self._waiting: dict[tuple[str, str], int] = {}  # (place, sender) -> letters; sender "": of all senders
        self._changes: list[Change] = []
        self._last = 0

    def apply(self, write: Write, journal: Journal) -> Posted | None:
        if isinstance(write, Post):
            return self._post(write, journal)
        if isinstance(write, Move):
            self._move(write, journal)
        elif isinstance(write, Put):
            self._put(write, journal)
        elif isinstance(write, Introduce):
            self._name(write.mailbox, "mailbox", journal, known=write.known)
        elif isinstance(write, Forget):
            self._forget(write, journal)
        else:
            self._rename(write, journal)
        return None

    def _post(self, post: Post, journal: Journal) -> Posted:
        message = post.message
        earlier = self._earlier(message)
        if earlier is not None:
            return earlier
        value, post = post, post if post.admit is None else post.admit(post)
        deliveries = [*post.deliveries, *(replace(post.deliveries[0], mailbox=copy) for copy in post.copies)]
        self._name(message.sender, "sender", journal, known=True)
        unknown = [d.mailbox for d in deliveries if not self._name(d.mailbox, "to", journal)]
        deliveries = [replace(delivery, mailbox=self.now(delivery.mailbox)) for delivery in deliveries]
        unknown = [name for name in unknown if AT not in name]  # who is known elsewhere is not ours to tell
        if unknown and post.known_only:
            raise UnknownAgent(f"nobody here is called {unknown[0]!r}", field="to", hint="register it first")
        self._check_space(post, [delivery.mailbox for delivery in deliveries])
        number = self._note("posted", message_id=message.id)
        journal.set(self._letters, number, encode(message))
        journal.set(self._senders, number, message.sender)
        journal.set(self._numbers, message.id, number)
        if message.key is not None:
            journal.set(self._keys, (self.now(message.sender), message.key), number)
        for delivery in deliveries:
            self._set((number, delivery.mailbox), replace(delivery, number=number), journal)
        written = None if post is value else post
        return Posted(message_id=message.id, number=number, unknown=tuple(unknown), written=written)

    def _earlier(self, message: Message) -> Posted | None:
        """The letter this one repeats, if any; IdTaken when it says something else."""
        forgotten = self._records.get((FORGOTTEN, message.id))
        spent = self._records.get((SPENT, spent_key(message.sender, message.key or message.id)))
        for record, field in ((forgotten, "id"), (spent, "key")):
            if record is not None:
                first = shown(record).value
                if first["digest"] != digest(message):
                    raise IdTaken.of_letter(field, None)
                return Posted(message_id=first["id"], number=0, repeated=True)
        number, field = self._numbers.get(message.id), "id"
        if number is None and message.key is not None:
            number, field = self._keys.get((self.now(message.sender), message.key)), "key"
            if number is None:
                number = self.unkeyed(self.now(message.sender), message.key)
        if number is None:
            return None
        first = decode_message(self._letters[number])
        if digest(first) != digest(message):
            raise IdTaken.of_letter(field, first.id)
        return Posted(message_id=first.id, number=0, repeated=True)

    def unkeyed(self, sender: str, id: str) -> int | None:
        """A letter that was sent without a key: its id is the key, for its sender."""
        number = self._numbers.get(id)
        if number is None:
            return None
        first = decode_message(self._letters[number])
        return number if self.now(first.sender) == sender and first.key is None else None

    def _check_space(self, post: Post, mailboxes: Iterable[str]) -> None:
        """Refuse a letter for which an inbox, or the outbox for another system, has no room."""
        more: dict[str, int] = {}  # of one letter, several deliveries may go to one system
        for mailbox in mailboxes:
            place, limit = _place(mailbox), post.outbox if AT in mailbox else post.quota
            more[place] = more.get(place, 0) + 1
            if limit is not None:
                waiting = self.waiting(mailbox, post.message.sender)
                check_space(post.message.sender, mailbox, waiting, limit, more[place])

    def waiting(self, mailbox: str, sender: str) -> tuple[int, int]:
        place = _place(self.now(mailbox))
        return self._waiting.get((place, ""), 0), self._waiting.get((place, self.now(sender)), 0)

    def _set(self, at: tuple[int, str], delivery: Delivery, journal: Journal) -> None:
        """Make or change a delivery, and keep the counts right."""
        before = self._deliveries.get(at)
        by = delivery.waits - (before is not None and before.waits)
        for sender in ("", self.now(self._senders[at[0]])) if by else ():
            place = (_place(at[1]), sender)
            journal.set(self._waiting, place, self._waiting.get(place, 0) + by)
        journal.set(self._deliveries, at, delivery)

    def _move(self, move: Move, journal: Journal) -> None:
        at = (move.before.number, self.now(move.before.mailbox))
        current = self._deliveries.get(at)
        if current is None:
            raise UnknownMessage
        if current.revision != move.before.revision:
            raise StaleRevision
        if move.action == REDIRECTED:
            self._set(at, replace(current, state=State.DONE), journal)  # so it is counted there no more
            journal.drop(self._deliveries, at)
            self._name(move.after.mailbox, "to", journal)
            at = (at[0], move.after.mailbox)
        if move.action in SIGNS_OF_LIFE:
            self._name(at[1], "mailbox", journal, known=True)
        after = replace(move.after, mailbox=self.now(move.after.mailbox))
        change = self._note("moved", message_id=after.message_id, mailbox=after.mailbox, state=after.state)
        after = replace(after, arrived=change) if move.action == "deliver" else after
        self._set(at, after, journal)

    def _put(self, put: Put, journal: Journal) -> None:
        record = put.record
        at = (record.kind, record.key)
        current = self._records.get(at)
        if (current.revision if current else 0) != record.revision:
            raise StaleRevision
        if record.kind == CARD:
            self._name(record.key, "id", journal, known=True)
        if record.value is not None:
            revision = record.revision + 1 if record.revision else put.first
            kept = replace(record, revision=revision, value=encode(record.value))
            journal.set(self._records, at, kept)
        elif current is not None:
            journal.drop(self._records, at)
        if put.durable:
            self._note("put", kind=record.kind, key=record.key)

    def _forget(self, write: Forget, journal: Journal) -> None:
        number = self._numbers.get(write.message_id)
        if number is None:
            raise UnknownMessage
        places = [at for at in self._deliveries if at[0] == number]
        if any(self._deliveries[at].state in OPEN for at in places):
            raise IllegalMove("a letter that is not settled everywhere cannot be deleted")
        message = decode_message(self._letters[number])
        for at in places:
            journal.drop(self._deliveries, at)
        journal.drop(self._letters, number)
        journal.drop(self._senders, number)
        journal.drop(self._numbers, message.id)
        if message.key is not None:
            journal.drop(self._keys, (self.now(message.sender), message.key))
        self._note("forgot", message_id=message.id)

    def _name(self, name: str, field: str, journal: Journal, *, known: bool = False) -> bool:
        """Make sure the mailbox is there. Is it known?"""
        former = self._aliases.get(fold(name))
        if former is not None and former[0] == name:
            name = former[1]
        held, was_known = self._names.get(fold(name), (former[0] if former else name, False))
        if held != name:
            raise LookAlike(f"{name!r} reads like {held!r}", field=field, hint=f"write {held!r}")
        journal.set(self._names, fold(name), (name, was_known or known))
        return was_known or known

    def now(self, name: str) -> str:
        """What the mailbox of this name is called now."""
        former = self._aliases.get(fold(name))
        return former[1] if former is not None and former[0] == name else name

    def _rename(self, write: Rename, journal: Journal) -> None:
        old, new = fold(write.old), fold(write.new)
        if old != new and old in self._names and new in self._names:
            raise NameTaken(f"somebody else is called {write.new!r}", field="new")
        before = self._names[old][0] if old in self._names else write.new
        for name in (old, new):
            former = self._aliases.get(name)
            if former is not None and former[1] != before:
                raise NameTaken(f"{name!r} was another's name", field="old" if name == old else "new")
        _, known = self._names.get(old) or self._names.get(new, ("", False))
        if old in self._names:
            journal.drop(self._names, old)
        journal.set(self._names, new, (write.new, known))
        for name, (spelt, now) in list(self._aliases.items()):
            if now == before:
                journal.set(self._aliases, name, (spelt, write.new))
        if new in self._aliases:
            journal.drop(self._aliases, new)
        if old != new:
            journal.set(self._aliases, old, (write.old, write.new))
        self._move_in(before, write.new, journal)

    def _move_in(self, before: str, name: str, journal: Journal) -> None:
        """All that lies under one name lies under another."""
        for at in [at for at in self._deliveries if at[1] == before and before != name]:
            journal.set(self._deliveries, (at[0], name), replace(self._deliveries[at], mailbox=name))
            journal.drop(self._deliveries, at)
        for key in [key for key in self._waiting if before in key and before != name]:
            place, sender = (name if piece == before else piece for piece in key)
            journal.set(self._waiting, (place, sender), self._waiting[key])
            journal.drop(self._waiting, key)
        for key in [key for key in self._keys if key[0] == before and before != name]:
            journal.set(self._keys, (name, key[1]), self._keys[key])
            journal.drop(self._keys, key)

    def _note(self, what: Any, **facts: Any) -> int:
        self._last += 1
        self._changes.append(Change(number=self._last, what=what, **facts))
        return self._last

    def letter(self, number: int) -> Letter:
        return Letter(number, decode_message(self._letters[number]))


def _place(mailbox: str) -> str:
    """Where mail to this mailbox is counted: all mail for one other system counts together."""
    return AT + fold(system_of(mailbox)) if AT in mailbox else mailbox


def shown(record: Record) -> Record:
    return replace(record, value=msgspec.json.decode(record.value))


# The store in memory: dictionaries under one lock. For tests, for trying things out, for one process.
#
# It keeps what outlives nothing, and promises everything else the protocol promises.


class MemoryStore(Tables):
    """A room that lives as long as its process."""

    vouches = True
    archives_by_sending = False

    def __init__(self, name: str) -> None:
        super().__init__()
        self._room = name
        self._epoch = 0
        self._lock = threading.RLock()
        self._notifier = LocalNotifier()
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
        self._notifier.notify(mailboxes_to_notify(writes, posted) | {ROOM})
        return posted

    def batch(self) -> AbstractContextManager[None]:
        return nullcontext()  # nothing here outlives the process

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
        return [letter for letter in letters if matches_search(letter.message, query, reader)][:limit]

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

    def records_under(self, prefix: str) -> list[Record]:
        with self._lock:
            return [shown(self._records[at]) for at in sorted(self._records) if at[0].startswith(prefix)]

    def keys(self, kind: str) -> list[str]:
        with self._lock:
            return sorted(key for of, key in self._records if of == kind)

    def quarantined(self) -> list[str]:
        return []

    def names(self, name: str | None = None) -> list[Name]:
        with self._lock:
            if name is None:
                return [Name(spelt, known) for spelt, known in sorted(self._names.values())]
            former = self._aliases.get(fold(name))
            held = self._names.get(fold(former[1] if former else name))
            return [] if held is None else [Name(*held)]

    def strangers(self) -> dict[str, int]:
        found = self.find(Query(states=(State.UNREAD,), unread_only=True, order="age"))
        newest = {one.delivery.mailbox: one.delivery.number for one in found if AT not in one.delivery.mailbox}
        return {name: number for name, number in newest.items() if not is_known(self, name)}

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
            result = [change for change in self._changes if self._still_told(change, since.number)][:limit]
            found = [c if c.mailbox is None else replace(c, mailbox=self.now(c.mailbox)) for c in result]
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

    def watch(self, mailboxes: Sequence[str]) -> LocalWatch:
        return self._notifier.watch(mailboxes)

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
            if matches_delivery(delivery, query):
                message = self.letter(delivery.number).message
                if matches_letter(message, query, self.now(message.sender)):
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
