"""The changes that each write makes to the tables, inside the transaction of a commit.

`WriteTransaction` applies each kind of write. It raises where a precondition does not
hold, and the caller rolls back. Numbers are taken in the order of acceptance, and a write that changes the
waiting mail changes the kept counts (table `waiting`) in the same transaction.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import msgspec
from msgspec.structs import replace

from ...errors import (
    IdTaken,
    IllegalMove,
    NameTaken,
    StaleRevision,
    UnknownAgent,
    UnknownMessage,
)
from ...model.codec import decode_message, digest, encode
from ...model.delivery import REDIRECTED, SIGNS_OF_LIFE
from ...model.names import AT, fold, look_alike, system_of
from ...model.record import CARD, FORGOTTEN, GUARD, ROUTE, SPENT, pair_key
from ..protocol import Forget, Introduce, Move, Post, Posted, Put, RenewEpoch, check_space
from ..queries import by_key
from .connection import NEXT_NUMBER
from .rows import CHANGED, COLUMNS, STATE_NUMBER, delivery_row, letter_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import apsw

    from ...model.delivery import Delivery
    from ...model.message import Message
    from ..protocol import Rename, Write
    from .connection import NameCache
    from .rows import Row


# -- letters that were accepted before


def repeat_of_letter(message: Message, body: bytes, field: str) -> Posted:
    """Return the result of a repeated letter; IdTaken if the first one has other content."""
    first = decode_message(body)
    if digest(first) != digest(message):
        raise IdTaken.of_letter(field, first.id)
    return Posted(message_id=first.id, number=0, repeated=True)


def repeat_of_memory(message: Message, memory: bytes, field: str) -> Posted:
    """Return the result of a repeated letter whose first copy was deleted: only its digest is left."""
    first = msgspec.json.decode(memory)
    if first["digest"] != digest(message):
        raise IdTaken.of_letter(field, None)
    return Posted(message_id=first["id"], number=0, repeated=True)


# -- renaming


def rename(database: apsw.Connection, write: Rename) -> None:
    """Give a mailbox another name. Its id stays, so its mail and remembered ids stay valid."""
    old, new = fold(write.old), fold(write.new)
    home = _mailbox(database, old)
    if home is None:
        home = _mailbox(database, new) or _make(database, write.new)
    elif old != new and _mailbox(database, new) is not None:
        raise NameTaken(f"another agent is called {write.new!r}", field="new")
    for name in (old, new):
        meant = database.execute("SELECT mailbox FROM aliases WHERE folded = ?", (name,)).get
        if meant not in {None, home}:
            raise NameTaken(f"{name!r} was another's name", field="old" if name == old else "new")
    database.execute("DELETE FROM aliases WHERE folded = ?", (new,))
    database.execute("UPDATE mailboxes SET folded = ?, name = ? WHERE id = ?", (new, write.new, home))
    if old != new:
        database.execute("INSERT OR REPLACE INTO aliases VALUES (?, ?, ?)", (old, write.old, home))


def _mailbox(database: apsw.Connection, folded: str) -> int | None:
    found: int | None = database.execute("SELECT id FROM mailboxes WHERE folded = ?", (folded,)).get
    return found


def _make(database: apsw.Connection, name: str) -> int:
    insert = "INSERT INTO mailboxes (folded, name, known) VALUES (?, ?, 0) RETURNING id"
    made: int = database.execute(insert, (fold(name), name)).get
    return made


# -- how many letters count towards a quota
#
# The counts are kept in the table `waiting`, so that a send need not count letters. Code that writes, changes or
# deletes deliveries changes the counts in the same transaction: `COUNT_ONE` for a letter to one mailbox and for
# each move, `count_deliveries` for everything else. `postroom doctor` compares them with a real count.

Place: TypeAlias = int | str  # a mailbox's id; of mail for another system, the folded name of that system
Execute: TypeAlias = "Callable[..., Any]"

_REST = f"substr(m.name, instr(m.name, '{AT}') + 1)"  # behind the first @, up to the first /, stands the system
_SYSTEM = f"lower(substr({_REST}, 1, instr({_REST} || '/', '/') - 1))"
_PLACE = f"iif(instr(m.name, '{AT}'), {_SYSTEM}, m.id)"
_WAITS = "d.state < 3 AND d.seen = 0"
_REALLY = f"""
WITH counted AS (
    SELECT {_PLACE} AS place, l.sender AS sender, count(*) AS letters
    FROM deliveries d JOIN letters l ON l.number = d.number JOIN mailboxes m ON m.id = d.mailbox
    WHERE {_WAITS} AND {{those}} GROUP BY 1, 2
), really AS (SELECT * FROM counted UNION ALL SELECT place, 0, sum(letters) FROM counted GROUP BY place)"""
_ADDED = "ON CONFLICT DO UPDATE SET letters = letters + excluded.letters"
# Parameters: a place and a sender.
COUNT_NEW = f"INSERT INTO waiting VALUES (?1, 0, 1), (?1, ?2, 1) {_ADDED}"
# Parameters: a place, the number of a letter, and 1 (it waits there now) or -1 (it no longer does).
COUNT_ONE = f"""
INSERT INTO waiting SELECT ?1, 0, ?3 FROM letters WHERE number = ?2
UNION ALL SELECT ?1, sender, ?3 FROM letters WHERE number = ?2 {_ADDED}"""
_COUNT_DELIVERIES = f"""
{_REALLY.format(those="d.number = ?1 AND ?2 IN (0, d.mailbox)")}
INSERT INTO waiting SELECT place, sender, ?3 * letters FROM really WHERE true {_ADDED}"""
_KEPT = "coalesce((SELECT letters FROM waiting WHERE place = ?1 AND sender = {sender}), 0)"
WAITING = f"SELECT {_KEPT.format(sender=0)}, {_KEPT.format(sender='?2')}"
WAITING_BY_SENDER = """
SELECT m.name, w.letters FROM waiting w JOIN mailboxes m ON m.id = w.sender WHERE w.place = ? AND w.letters > 0"""
_ALL_KEPT = "SELECT place, sender, letters FROM waiting WHERE letters <> 0"
_ALL_REALLY = _REALLY.format(those="true")
WRONG = f"""
{_ALL_REALLY}
SELECT count(*) FROM (SELECT place, sender FROM (SELECT * FROM really EXCEPT {_ALL_KEPT})
      UNION SELECT place, sender FROM ({_ALL_KEPT} EXCEPT SELECT * FROM really))"""


def place_of(name: str, mailbox: int) -> Place:
    """Return the place where mail to this mailbox is counted: all mail for one other system counts together."""
    return fold(system_of(name)) if AT in name else mailbox


def waiting_at(execute: Execute, place: Place, sender: int) -> tuple[int, int]:
    """Return how many letters count there: of all senders, and of this one."""
    total, own = execute(WAITING, (place, sender)).fetchall()[0]
    return total, own


def count_deliveries(execute: Execute, number: int, mailbox: int, by: int) -> None:
    """Add (`by` 1) or subtract (-1) the waiting deliveries of a letter, of all mailboxes (0) or of one.

    Call it while the letter and its deliveries are in their tables.
    """
    execute(_COUNT_DELIVERIES, (number, mailbox, by))


def recount(execute: Execute) -> None:
    """Count all letters again."""
    execute("DELETE FROM waiting")
    execute(f"{_ALL_REALLY} INSERT INTO waiting SELECT * FROM really")


# -- damaged letters


def quarantine(database: apsw.Connection, number: int) -> None:
    """Move what is left of a damaged letter out of the way; its number is never used again."""
    id = database.execute("SELECT id FROM letters WHERE number = ?", (number,)).get
    if id is None:
        return  # another process has done it
    change = database.execute(NEXT_NUMBER).get
    database.execute("INSERT INTO quarantine SELECT number, id, body FROM letters WHERE number = ?", (number,))
    count_deliveries(database.execute, number, 0, -1)
    database.execute("DELETE FROM letters WHERE number = ?", (number,))
    database.execute("DELETE FROM deliveries WHERE number = ?", (number,))
    database.execute(INSERT_CHANGE, (change, "forgot", None, id))


# -- the transaction

# All that must be known before a letter is accepted, in one query. The last two: has any mailbox here a guard, and
# is any agent known to be at another system?
BEFORE_POST = f"""
SELECT (SELECT value FROM records WHERE kind = '{FORGOTTEN}' AND key = ?1),
       (SELECT value FROM records WHERE kind = '{SPENT}' AND key = ?2),
       (SELECT body FROM letters WHERE id = ?1),
       CASE WHEN ?3 THEN ({NEXT_NUMBER}) END,
       EXISTS (SELECT 1 FROM records WHERE kind = '{GUARD}'),
       EXISTS (SELECT 1 FROM records WHERE kind = '{ROUTE}')"""
_NO_EARLIER = [None, None, None]  # the first three: no earlier letter has this id, or had it or the key
INSERT_LETTER = f"INSERT INTO letters VALUES ({', '.join('?' * 13)})"
INSERT_DELIVERY = f"INSERT INTO deliveries VALUES ({', '.join('?' * len(COLUMNS))})"
# Deliveries like the first one. Its values are bound, not read: SQLite copies a table that one statement both
# reads and writes.
COPY_DELIVERY = f"""
INSERT INTO deliveries SELECT ?1, j.value{"".join(f", ?{place}" for place in range(3, len(COLUMNS) + 1))}
FROM json_each(?2) j"""
INSERT_CHANGE = "INSERT INTO changes (number, what, kind, key) VALUES (?, ?, ?, ?)"
INSERT_MOVED = "INSERT INTO changes (number, what, letter, mailbox, state) VALUES (?, 'moved', ?, ?, ?)"
IS_KNOWN_NOW = "SELECT known FROM mailboxes WHERE id = ?"
BY_ALIAS = "SELECT m.id, a.name, m.known FROM aliases a JOIN mailboxes m ON m.id = a.mailbox WHERE a.folded = ?"


# A claim that was lost with the machine that kept it may have been made again, at the same revision.
_AS_BEFORE = "number = ? AND mailbox = ? AND revision = ? AND lease_token IS ?"


def _update(columns: Sequence[str]) -> str:
    values = ", ".join(f"{column} = ?" for column in columns)
    return f"UPDATE deliveries SET {values} WHERE {_AS_BEFORE}"


UPDATE = {action: (_update(columns), values) for action, (columns, values) in CHANGED.items()}
UPDATE_ALL = (_update(COLUMNS[2:]), lambda delivery: delivery_row(delivery, 0, 0)[2:])


class WriteTransaction:
    """The writes of one transaction. Their numbers are in the order of writing: the order of acceptance."""

    def __init__(self, database: apsw.Connection, names: NameCache) -> None:
        self._execute = names.cursor.execute
        self._execute_many = names.cursor.executemany
        self._database = database
        self._name_cache = names
        self._fresh: dict[str, tuple[int, bool]] = {}
        self._number = 0  # the next number; read when first needed

    def apply(self, writes: Iterable[Write]) -> tuple[Posted, ...]:
        posted: list[Posted] = []
        moves: list[Move] = []
        for write in writes:
            if isinstance(write, Move) and (not moves or moves[0].action == write.action):
                moves.append(write)
                continue
            if moves:
                self._move(moves)
                moves = []
            if isinstance(write, Post):
                posted.append(self._post(write))
            elif isinstance(write, Move):
                moves.append(write)
            elif isinstance(write, Put):
                self._put(write)
            elif isinstance(write, Forget):
                self._forget(write)
            else:
                self._change_room(write)
        if moves:
            self._move(moves)
        return tuple(posted)

    def _change_room(self, write: Rename | Introduce | RenewEpoch) -> None:
        if isinstance(write, Introduce):
            self.mailbox(write.mailbox, "mailbox", known=write.known)
        elif isinstance(write, RenewEpoch):
            self._execute("UPDATE room SET epoch = ?", (os.urandom(4).hex(),))
        else:
            rename(self._database, write)
            self._name_cache.committed.pop(write.old, None)

    def remember(self) -> None:
        """Keep what was learned for the next commit. Call it once this one is committed."""
        names = self._name_cache
        if self._fresh:
            names.committed.update(self._fresh)
        if self._number:
            names.as_of = self._number

    # -- letters

    def _post(self, post: Post) -> Posted:  # noqa: C901 - one way of a letter, in order
        message = post.message
        spent = pair_key(message.sender, message.key or message.id)
        bound = (message.id, spent, None if self._number else 1)
        known: tuple[Any, ...] = self._execute(BEFORE_POST, bound).fetchall()[0]
        *earlier, number, is_guarded, is_led = known
        if earlier != _NO_EARLIER or message.key is not None:
            repeated = self._repeated(message, *earlier)
            if repeated is not None:  # no refusal counts for it (G3)
                return repeated
        self._number = self._number or number
        leads = is_led and not all(self._name_cache.is_placed(one.mailbox) for one in post.deliveries)
        written = None
        # Guards and routes may have changed since the letter was checked: ask again inside the transaction, but
        # only where the room has any.
        if post.admit is not None and (post.routes or is_guarded or leads):
            admitted = post.admit(post)
            if admitted is not post:
                post = written = admitted
                message = post.message
        deliveries = post.deliveries
        names = [deliveries[0].mailbox] if len(deliveries) == 1 else [delivery.mailbox for delivery in deliveries]
        names += post.copies
        sender, is_known = self._name_cache.committed.get(message.sender) or (0, False)
        if not is_known:
            sender, _ = self.mailbox(message.sender, "sender", known=True)
        places, unknown = self._places(names)
        if unknown and post.known_only:
            raise UnknownAgent(f"nobody here is called {unknown[0]!r}", field="to", hint="register it first")
        if post.quota is not None or post.outbox is not None:
            self._check_space(post, sender, names, places)
        # The number is the order of acceptance (G7): taken under the lock, so no clock decides it.
        number = self._number
        self._execute(INSERT_LETTER, letter_row(message, number, sender, post.encoded or encode(message)))
        self._number = number + 1
        for delivery, place in zip(deliveries, places):  # noqa: B905 - `strict` costs more than it tells
            self._execute(INSERT_DELIVERY, delivery_row(delivery, number, place))
        if post.copies:
            _, _, *like_first = delivery_row(deliveries[0], number, 0)
            further = sorted(places[len(deliveries) :])  # in the order of the tables: fewer pages are split
            self._execute(COPY_DELIVERY, (number, encode(further), *like_first))
        if len(places) > 1:
            count_deliveries(self._execute, number, 0, 1)
        elif deliveries and deliveries[0].waits:
            self._execute(COUNT_NEW, (place_of(names[0], places[0]), sender))
        return Posted(message_id=message.id, number=number, unknown=unknown, written=written)

    def _repeated(
        self, message: Message, forgotten: bytes | None, spent: bytes | None, body: bytes | None
    ) -> Posted | None:
        """Return the result of the letter that this one repeats, if any; IdTaken if it has other content."""
        if forgotten is not None:
            return repeat_of_memory(message, forgotten, "id")
        if spent is not None:
            return repeat_of_memory(message, spent, "key")
        if body is not None:
            return repeat_of_letter(message, body, "id")
        if message.key is not None:
            first: list[tuple[Any, ...]] = self._execute(*by_key(message.sender, message.key)).fetchall()
            if first:
                return repeat_of_letter(message, first[0][2], "key")
        return None

    def _places(self, names: Sequence[str]) -> tuple[list[int], tuple[str, ...]]:
        """Return the ids of these mailboxes, and the names of those whose agent is unknown."""
        committed, places, unknown = self._name_cache.committed, [], []
        for name in names:
            place, known = committed.get(name) or self.mailbox(name, "to")
            places.append(place)
            if known or AT in name:  # `known` is kept for local agents only
                continue
            if self._execute(IS_KNOWN_NOW, (place,)).get:  # another process may have made it known since
                self._fresh[name] = (place, True)
            else:
                unknown.append(name)
        return places, tuple(unknown)

    def _check_space(self, post: Post, sender: int, names: Sequence[str], mailboxes: Sequence[int]) -> None:
        """Refuse a letter for which an inbox, or the outbox for another system, has no room."""
        more: dict[Place, int] = {}  # several deliveries of one letter may go to one system
        for name, mailbox in zip(names, mailboxes, strict=True):
            limit = post.outbox if AT in name else post.quota
            # An inbox holds no more letters than the room ever accepted: in a young room no count is needed.
            # Twice, because one sender gets at most half of the space (`check_space`).
            if limit is None or (AT not in name and 2 * self._number <= limit):
                continue
            place = place_of(name, mailbox)
            more[place] = more.get(place, 0) + 1
            check_space(post.message.sender, name, waiting_at(self._execute, place, sender), limit, more[place])

    def _forget(self, write: Forget) -> None:
        found = self._execute("SELECT number FROM letters WHERE id = ?", (write.message_id,)).get
        if found is None:
            raise UnknownMessage
        # States below 3 are open: nothing removes a letter that a recipient may still get (G4).
        if self._execute("SELECT 1 FROM deliveries WHERE number = ? AND state < 3 LIMIT 1", (found,)).get:
            raise IllegalMove("a letter that is not settled everywhere cannot be deleted")
        self._execute("DELETE FROM deliveries WHERE number = ?", (found,))
        self._execute("DELETE FROM letters WHERE number = ?", (found,))
        self._note("forgot", key=write.message_id)

    # -- deliveries

    def _move(self, moves: Sequence[Move]) -> None:
        """Apply moves of one action, all at once."""
        action = moves[0].action
        update, values = UPDATE.get(action) or UPDATE_ALL
        if action == REDIRECTED:
            for move in moves:
                self._redirect(move)
            return
        names, lives = self._name_cache.committed, action in SIGNS_OF_LIFE
        steps, changes, counts = [], [], []
        for change, move in enumerate(moves, self._take_numbers(len(moves))):
            before, after = move.before, move.after
            mailbox, known = names.get(before.mailbox) or self.mailbox(before.mailbox, "mailbox", known=lives)
            if lives and not known:
                self.mailbox(before.mailbox, "mailbox", known=True)
            # The number of its arrival: a cursor that has passed the letter's own number must still meet it.
            if action == "deliver":
                after = replace(after, arrived=change)
            token = None if before.lease is None else before.lease.token
            steps.append((*values(after), before.number, mailbox, before.revision, token))
            changes.append((change, before.number, mailbox, STATE_NUMBER[after.state]))
            waits = after.waits
            if before.waits is not waits:
                counts.append((place_of(before.mailbox, mailbox), before.number, 1 if waits else -1))
        changed = self._database.total_changes()
        self._execute_many(update, steps)
        # Compare and set: the UPDATE skips a row that is no longer as it was, and one skipped row undoes the
        # whole commit (G5).
        if self._database.total_changes() != changed + len(steps):
            self._raise_conflict(steps)
        self._execute_many(INSERT_MOVED, changes)
        self._execute_many(COUNT_ONE, counts)

    def _redirect(self, move: Move) -> None:
        """Move a delivery to another mailbox."""
        before, change = move.before, self.take_number()
        former, _ = self.mailbox(before.mailbox, "mailbox")
        mailbox, _ = self.mailbox(move.after.mailbox, "to")
        # Before the delivery is deleted: the count is read from the table.
        count_deliveries(self._execute, before.number, former, -1)
        token = None if before.lease is None else before.lease.token
        step = (before.number, former, before.revision, token)
        deleted = f"DELETE FROM deliveries WHERE {_AS_BEFORE} RETURNING 1"
        if self._execute(deleted, step).get is None:
            self._raise_conflict([step])
        self.insert_delivery(move.after, before.number, mailbox)
        self._execute(INSERT_MOVED, (change, before.number, mailbox, STATE_NUMBER[move.after.state]))

    def _raise_conflict(self, steps: Sequence[Row]) -> NoReturn:
        """Raise the error for deliveries of which one has changed or is gone."""
        for *_, number, mailbox, _revision, _token in steps:
            where = (number, mailbox)
            if not self._execute("SELECT 1 FROM deliveries WHERE number = ? AND mailbox = ?", where).get:
                raise UnknownMessage
        raise StaleRevision

    # -- mail that was found in files, in rooms whose files are the truth

    def insert_letter(self, message: Message) -> int:
        """Insert the letter as it is, and return its number."""
        number = self.take_number()
        sender, _ = self.mailbox(message.sender, "sender", known=True)
        self._execute(INSERT_LETTER, letter_row(message, number, sender, encode(message)))
        return number

    def replace_letter(self, number: int, message: Message) -> None:
        sender, _ = self.mailbox(message.sender, "sender", known=True)
        self._execute("DELETE FROM letters WHERE number = ?", (number,))
        self._execute(INSERT_LETTER, letter_row(message, number, sender, encode(message)))

    def insert_delivery(self, delivery: Delivery, number: int, mailbox: int) -> None:
        self._execute(INSERT_DELIVERY, delivery_row(delivery, number, mailbox))
        count_deliveries(self._execute, number, mailbox, 1)

    def set_delivery(self, delivery: Delivery, number: int, mailbox: int) -> None:
        """Write a delivery over the one that is there, whatever its revision."""
        change = self.take_number()
        count_deliveries(self._execute, number, mailbox, -1)
        self._execute("DELETE FROM deliveries WHERE number = ? AND mailbox = ?", (number, mailbox))
        self.insert_delivery(delivery, number, mailbox)
        self._execute(INSERT_MOVED, (change, number, mailbox, STATE_NUMBER[delivery.state]))

    def delete_delivery(self, number: int, mailbox: int) -> None:
        """Delete a delivery, and its letter if that was the last one."""
        count_deliveries(self._execute, number, mailbox, -1)
        self._execute("DELETE FROM deliveries WHERE number = ? AND mailbox = ?", (number, mailbox))
        if not self._execute("SELECT 1 FROM deliveries WHERE number = ? LIMIT 1", (number,)).get:
            self.delete_letter(number)

    def delete_letter(self, number: int) -> None:
        id = self._execute("SELECT id FROM letters WHERE number = ?", (number,)).get
        count_deliveries(self._execute, number, 0, -1)
        self._execute("DELETE FROM deliveries WHERE number = ?", (number,))
        self._execute("DELETE FROM letters WHERE number = ?", (number,))
        self._note("forgot", key=id)

    # -- records and names

    def _put(self, put: Put) -> None:
        record = put.record
        held = self._execute(
            "SELECT revision FROM records WHERE kind = ? AND key = ?", (record.kind, record.key)
        ).get
        # Revision 0 stands for "not there yet": of two writers who both make the record, the second fails.
        if (held or 0) != record.revision:
            raise StaleRevision
        if record.kind == CARD:
            self.mailbox(record.key, "id", known=True)
        if record.value is None:
            self._execute("DELETE FROM records WHERE kind = ? AND key = ?", (record.kind, record.key))
        else:
            revision = record.revision + 1 if record.revision else put.first
            row = (record.kind, record.key, revision, encode(record.value))
            self._execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)", row)
        if put.durable:
            self._note("put", kind=record.kind, key=record.key)

    def mailbox(self, name: str, field: str, *, known: bool = False) -> tuple[int, bool]:
        """Return the mailbox's id, made if need be, and whether its agent is known."""
        held = self._fresh.get(name) or self._name_cache.committed.get(name)
        if held is not None and held[1]:
            return held
        return self._look_up(name, field, known=known)  # another process may have made it known since

    def _look_up(self, name: str, field: str, *, known: bool) -> tuple[int, bool]:
        found = self._execute("SELECT id, name, known FROM mailboxes WHERE folded = ?", (fold(name),)).fetchall()
        # A renamed agent keeps its former name, so that no other agent can take it.
        found = found or self._execute(BY_ALIAS, (fold(name),)).fetchall()
        if not found:
            insert = "INSERT INTO mailboxes (folded, name, known) VALUES (?, ?, ?) RETURNING id"
            number = self._execute(insert, (fold(name), name, known)).get
            self._fresh[name] = (number, known)
            return number, known
        row: tuple[Any, ...] = found[0]
        number, held, was_known = row
        # Names that differ only in case are refused: they could be taken for one agent.
        if held != name:
            raise look_alike(name, held, field)
        if known and not was_known:
            self._execute("UPDATE mailboxes SET known = 1 WHERE id = ?", (number,))
        self._fresh[name] = (number, known or bool(was_known))
        return self._fresh[name]

    # -- numbers and changes

    def take_number(self) -> int:
        return self._take_numbers(1)

    def _take_numbers(self, count: int) -> int:
        """Take `count` numbers and return the first."""
        first: int = self._number or self._execute(NEXT_NUMBER).get
        self._number = first + count
        return first

    def _note(self, what: str, *, kind: str | None = None, key: str | None = None) -> None:
        self._execute(INSERT_CHANGE, (self.take_number(), what, kind, key))
