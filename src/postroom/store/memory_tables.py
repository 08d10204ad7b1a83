"""The tables of a room in memory, and what each write does to them. A commit that fails is undone.

Nothing is locked here: `memory` calls it under its lock, and asks the questions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from ..errors import (
    IdTaken,
    IllegalMove,
    LookAlike,
    NameTaken,
    StaleRevision,
    UnknownAgent,
    UnknownMessage,
)
from ..model.address import system_of
from ..model.change import Change
from ..model.codec import decode_message, digest, encode
from ..model.delivery import OPEN, REDIRECTED, SIGNS_OF_LIFE, State
from ..model.names import AT, fold
from ..model.record import CARD, FORGOTTEN, SPENT, spent_key
from .base import Forget, Introduce, Letter, Move, Post, Posted, Put, check_space

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..model.delivery import Delivery
    from ..model.message import Message
    from ..model.record import Record
    from .base import Rename, Write

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
        given, post = post, post if post.admit is None else post.admit(post)
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
        written = None if post is given else post
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
