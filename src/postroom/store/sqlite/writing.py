"""What each write does to the tables, inside the transaction of a commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import apsw
import msgspec
from msgspec.structs import replace

from ...errors import (
    IdTaken,
    IllegalMove,
    LookAlike,
    QuotaFull,
    StaleRevision,
    UnknownAgent,
    UnknownMessage,
)
from ...model.codec import decode_message, digest, encode
from ...model.message import Message
from ...model.names import fold
from ...model.record import CARD, FORGOTTEN, SPENT, spent_key
from ..base import Forget, Introduce, Move, Post, Posted, Put, Write
from .rows import STATE_NUMBER, delivery_row, letter_row

NEXT_NUMBER = """
SELECT max(coalesce((SELECT max(number) FROM letters), 0), coalesce((SELECT max(number) FROM changes), 0)) + 1"""
# All a letter needs to know before it is accepted, in one question.
BEFORE_POST = f"""
SELECT (SELECT value FROM records WHERE kind = '{FORGOTTEN}' AND key = ?1),
       (SELECT value FROM records WHERE kind = '{SPENT}' AND key = ?2),
       (SELECT body FROM letters WHERE id = ?1),
       CASE WHEN ?3 THEN ({NEXT_NUMBER}) END"""
# A letter by its key, or, if it was sent without one, by its id.
BY_KEY = """
SELECT l.number, l.sum, l.body FROM mailboxes m JOIN letters l ON l.sender = m.id
WHERE m.folded = ?1 AND m.name = ?2 AND l.key = ?3
UNION ALL
SELECT l.number, l.sum, l.body FROM letters l JOIN mailboxes m ON m.id = l.sender
WHERE l.id = ?3 AND l.key IS NULL AND m.name = ?2"""
INSERT_LETTER = "INSERT INTO letters VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
INSERT_DELIVERY = "INSERT INTO deliveries VALUES (" + ", ".join("?" * 22) + ")"
COPY_DELIVERY = """
INSERT INTO deliveries
SELECT d.number, j.value, d.kind, d.state, d.seen, d.rank, d.revision, d.attempts, d.delivered_at, d.read_at,
    d.acked_at, d.dead_at, d.due_at, d.archived_at, d.expires_at, d.lease_token, d.lease_holder, d.lease_until,
    d.lease_boot, d.reason, d.history, d.arrived
FROM json_each(?) j CROSS JOIN deliveries d WHERE d.number = ? AND d.mailbox = ?"""
UPDATE_DELIVERY = """
UPDATE deliveries SET kind = ?, state = ?, seen = ?, rank = ?, revision = ?, attempts = ?, delivered_at = ?,
    read_at = ?, acked_at = ?, dead_at = ?, due_at = ?, archived_at = ?, expires_at = ?, lease_token = ?,
    lease_holder = ?, lease_until = ?, lease_boot = ?, reason = ?, history = ?, arrived = ?
WHERE number = ? AND mailbox = ? AND revision = ?"""
INSERT_CHANGE = "INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?, ?)"
WAITING = """
SELECT count(*) FROM (SELECT 1 FROM deliveries WHERE mailbox = ?1 AND state = 1 AND seen = 0 LIMIT ?2)
UNION ALL SELECT count(*) FROM deliveries WHERE mailbox = ?1 AND state = 0
UNION ALL SELECT count(*) FROM deliveries WHERE mailbox = ?1 AND state = 2 AND seen = 0"""


class Names:
    """Mailbox names ⇄ numbers, remembered once committed; for as long as one connection lasts."""

    def __init__(self) -> None:
        self.committed: dict[str, tuple[int, bool]] = {}


class Writing:
    """One transaction. Numbers are given in the order of writing; that is the order of acceptance."""

    def __init__(self, database: apsw.Connection, names: Names) -> None:
        self._execute = database.execute
        self._database = database
        self._names = names
        self._fresh: dict[str, tuple[int, bool]] = {}
        self._number = 0  # the next one; asked for when first needed

    def apply(self, writes: Iterable[Write]) -> tuple[Posted, ...]:
        outcomes = [self._apply(write) for write in writes]
        return tuple(posted for posted in outcomes if posted is not None)

    def remember(self) -> None:
        """Call once the transaction is committed."""
        self._names.committed.update(self._fresh)

    def _apply(self, write: Write) -> Posted | None:
        if isinstance(write, Post):
            return self._post(write)
        if isinstance(write, Move):
            self._move(write)
        elif isinstance(write, Put):
            self._put(write)
        elif isinstance(write, Introduce):
            self._mailbox(write.mailbox, "mailbox", known=write.known)
        else:
            self._forget(write)
        return None

    # -- letters

    def _post(self, post: Post) -> Posted:
        message = post.message
        earlier = self._earlier(message)
        if earlier is not None:
            return earlier
        sender, _ = self._mailbox(message.sender, "sender", known=True)
        names = [delivery.mailbox for delivery in post.deliveries]
        names += post.copies
        places, unknown = self._places(names)
        if unknown and post.known_only:
            raise UnknownAgent(f"nobody here is called {unknown[0]!r}", field="to", hint="register it first")
        # No inbox can hold more letters than the room ever took: young rooms need no counting.
        if post.quota is not None and self._number > post.quota:
            self._check_quota(names, places, post.quota)
        number = self._take_number()
        self._execute(INSERT_LETTER, letter_row(message, number, sender, post.encoded or encode(message)))
        for delivery, place in zip(post.deliveries, places, strict=False):
            self._execute(INSERT_DELIVERY, delivery_row(delivery, number, place))
        if post.copies:
            further = places[len(post.deliveries) :]
            self._execute(COPY_DELIVERY, (encode(further), number, places[0]))
        return Posted(message_id=message.id, number=number, unknown=unknown)

    def _places(self, names: Sequence[str]) -> tuple[list[int], tuple[str, ...]]:
        """The numbers of these mailboxes, and which of them nobody has heard from."""
        places, unknown = [], []
        remembered = self._names.committed
        for name in names:
            held = remembered.get(name)  # a broadcast asks for thousands: those we know cost nothing
            place, known = held if held is not None and held[1] else self._mailbox(name, "to")
            places.append(place)
            if not known:
                unknown.append(name)
        return places, tuple(unknown)

    def _earlier(self, message: Message) -> Posted | None:
        """The letter this one repeats, if any; IdTaken when it says something else."""
        spent = spent_key(message.sender, message.key or message.id)
        bound = (message.id, spent, None if self._number else 1)
        known: tuple[Any, ...] = self._execute(BEFORE_POST, bound).fetchall()[0]
        forgotten, spent_before, body, number = known
        self._number = self._number or number
        for memory, field in ((forgotten, "id"), (spent_before, "key")):
            if memory is not None:
                return _repeat_of_memory(message, memory, field)
        if body is not None:
            return _repeat_of_letter(message, body, "id")
        if message.key is not None:
            first = self._by_key(message.sender, message.key)
            if first:
                return _repeat_of_letter(message, first[0][2], "key")
        return None

    def _by_key(self, sender: str, key: str) -> Sequence[tuple[Any, ...]]:
        return self._execute(BY_KEY, (fold(sender), sender, key)).fetchall()

    def _check_quota(self, names: Sequence[str], mailboxes: Sequence[int], quota: int) -> None:
        for name, mailbox in zip(names, mailboxes, strict=True):
            if sum(count for (count,) in self._execute(WAITING, (mailbox, quota))) >= quota:
                raise QuotaFull(f"the inbox of {name!r} is full ({quota} letters)", field="to")

    def _forget(self, write: Forget) -> None:
        found = self._execute("SELECT number FROM letters WHERE id = ?", (write.message_id,)).get
        if found is None:
            raise UnknownMessage
        if self._execute("SELECT 1 FROM deliveries WHERE number = ? AND state < 3 LIMIT 1", (found,)).get:
            raise IllegalMove("a letter that is not settled everywhere cannot be deleted")
        self._execute("DELETE FROM deliveries WHERE number = ?", (found,))
        self._execute("DELETE FROM letters WHERE number = ?", (found,))
        self._note("forgot", key=write.message_id)

    # -- deliveries

    def _move(self, move: Move) -> None:
        mailbox, _ = self._mailbox(move.after.mailbox, "mailbox")
        change = self._take_number()
        after = replace(move.after, arrived=change) if move.action == "deliver" else move.after
        row = delivery_row(after, after.number, mailbox)
        self._execute(UPDATE_DELIVERY, (*row[2:], move.before.number, mailbox, move.before.revision))
        if self._database.changes() == 0:
            where = (move.before.number, mailbox)
            held = self._execute("SELECT 1 FROM deliveries WHERE number = ? AND mailbox = ?", where).get
            raise StaleRevision if held else UnknownMessage
        state = STATE_NUMBER[after.state]
        self._execute(INSERT_CHANGE, (change, "moved", after.number, mailbox, state, None, None))

    # -- records and names

    def _put(self, put: Put) -> None:
        record = put.record
        held = self._execute(
            "SELECT revision FROM records WHERE kind = ? AND key = ?", (record.kind, record.key)
        ).get
        if (held or 0) != record.revision:
            raise StaleRevision
        if record.kind == CARD:
            self._mailbox(record.key, "id", known=True)
        if record.value is None:
            self._execute("DELETE FROM records WHERE kind = ? AND key = ?", (record.kind, record.key))
        else:
            row = (record.kind, record.key, record.revision + 1, encode(record.value))
            self._execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)", row)
        if put.durable:
            self._note("put", kind=record.kind, key=record.key)

    def _mailbox(self, name: str, field: str, *, known: bool = False) -> tuple[int, bool]:
        """The mailbox's number, made if need be, and whether its owner is known."""
        held = self._fresh.get(name) or self._names.committed.get(name)
        if held is not None and (held[1] or not known):
            # Another process may have got to know it since; ask only about those we do not know.
            return held if held[1] else self._look_up(name, field, known=known)
        return self._look_up(name, field, known=known)

    def _look_up(self, name: str, field: str, *, known: bool) -> tuple[int, bool]:
        found = self._execute("SELECT id, name, known FROM mailboxes WHERE folded = ?", (fold(name),)).fetchall()
        if not found:
            insert = "INSERT INTO mailboxes (folded, name, known) VALUES (?, ?, ?) RETURNING id"
            number = self._execute(insert, (fold(name), name, known)).get
            self._fresh[name] = (number, known)
            return number, known
        row: tuple[Any, ...] = found[0]
        number, held, was_known = row
        if held != name:
            raise LookAlike(f"{name!r} reads like {held!r}", field=field, hint=f"write {held!r}")
        if known and not was_known:
            self._execute("UPDATE mailboxes SET known = 1 WHERE id = ?", (number,))
        self._fresh[name] = (number, known or bool(was_known))
        return self._fresh[name]

    # -- numbers and changes

    def _take_number(self) -> int:
        if not self._number:
            self._number = self._execute(NEXT_NUMBER).get
        self._number += 1
        return self._number - 1

    def _note(self, what: str, *, kind: str | None = None, key: str | None = None) -> None:
        self._execute(INSERT_CHANGE, (self._take_number(), what, None, None, None, kind, key))


def _repeat_of_letter(message: Message, body: bytes, field: str) -> Posted:
    first = decode_message(body)
    if digest(first) != digest(message):
        raise IdTaken(f"letter {first.id} has it, and says something else", field=field)
    return Posted(message_id=first.id, number=0, repeated=True)


def _repeat_of_memory(message: Message, memory: bytes, field: str) -> Posted:
    """The first letter is deleted; only its digest is left."""
    first = msgspec.json.decode(memory)
    if first["digest"] != digest(message):
        raise IdTaken(field=field)
    return Posted(message_id=first["id"], number=0, repeated=True)


def quarantine(database: apsw.Connection, number: int) -> None:
    """Keep what is left of a damaged letter where nobody stumbles over it, and never give its number again."""
    id = database.execute("SELECT id FROM letters WHERE number = ?", (number,)).get
    if id is None:
        return  # another process was quicker
    change = database.execute(NEXT_NUMBER).get
    database.execute("INSERT INTO quarantine SELECT number, id, body FROM letters WHERE number = ?", (number,))
    database.execute("DELETE FROM letters WHERE number = ?", (number,))
    database.execute("DELETE FROM deliveries WHERE number = ?", (number,))
    database.execute(INSERT_CHANGE, (change, "forgot", None, None, None, None, id))
