"""The two designs that are compared under contention: Postroom, and what one would write first.

The naive one has the same tables and writes the same rows, but leaves waiting and syncing to SQLite: WAL,
synchronous=FULL, BEGIN IMMEDIATE, a busy timeout of 60 s. It checks nothing, so its own work is less.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import apsw

import postroom
from postroom.clock import RandomIds
from postroom.model.codec import encode
from postroom.model.delivery import open_delivery
from postroom.model.message import Message, Recipient, text
from postroom.store.sqlite.connection import NEXT_NUMBER
from postroom.store.sqlite.rows import delivery_row, letter_row
from postroom.store.sqlite.schema import STEPS
from postroom.store.sqlite.writes import INSERT_DELIVERY, INSERT_LETTER, INSERT_MOVED

from .measure import LETTER

READER = "reader"
AT_ONCE = 10  # letters that a receiver takes


class Design(Protocol):
    def send(self) -> str:
        """Send one letter to the reader; its id."""
        ...

    def take(self) -> list[str]:
        """Claim what is there, up to ten letters, and acknowledge them; their ids. A commit each."""
        ...


class Ours:
    def __init__(self, path: Path, name: str) -> None:
        self._mailbox = postroom.open(str(path)).mailbox(name)

    def send(self) -> str:
        return self._mailbox.send(READER, LETTER).id

    def take(self) -> list[str]:
        batch = self._mailbox.claim(AT_ONCE, timeout=0.1)
        if batch:
            batch.ack()
        return [work.id for work in batch]


class Naive:
    def __init__(self, path: Path, name: str) -> None:
        path.parent.mkdir(exist_ok=True)
        self._name = name
        self._database = apsw.Connection(str(path))
        self._database.set_busy_timeout(60_000)
        self._database.pragma("journal_mode", "wal")
        self._database.pragma("synchronous", "full")
        with self:
            if not self._database.pragma("user_version"):
                for step in STEPS:
                    self._database.execute(Path(step).read_text(encoding="utf-8"))
                self._database.pragma("user_version", 1)
            self._mailbox = self._number_of(name)
            self._reader = self._number_of(READER)

    def send(self) -> str:
        now = datetime.now(UTC)
        message = Message(
            id=RandomIds().message(),
            sender=self._name,
            recipients=(Recipient(READER),),
            created_at=now,
            parts=(text(LETTER),),
            trace=(self._name,),
        )
        delivery = open_delivery(message, READER, "to", now)
        with self:
            number = self._database.execute(NEXT_NUMBER).get
            self._database.execute(INSERT_LETTER, letter_row(message, number, self._mailbox, encode(message)))
            self._database.execute(INSERT_DELIVERY, delivery_row(delivery, number, self._reader))
        return message.id

    def take(self) -> list[str]:
        with self:
            found: list[Any] = self._database.execute(
                "SELECT d.number, l.id FROM deliveries d JOIN letters l USING (number)"
                " WHERE d.mailbox = ? AND d.state = 1 ORDER BY d.seen, d.rank, d.number LIMIT ?",
                (self._mailbox, AT_ONCE),
            ).fetchall()
            for number, _ in found:
                self._move(number, 2)
        if not found:
            time.sleep(0.001)  # nothing tells it of mail
            return []
        with self:
            for number, _ in found:
                self._move(number, 3)
        return [id for _, id in found]

    def _move(self, number: int, state: int) -> None:
        where = (state, number, self._mailbox)
        self._database.execute(
            "UPDATE deliveries SET state = ?, revision = revision + 1 WHERE number = ? AND mailbox = ?", where
        )
        following = self._database.execute(NEXT_NUMBER).get
        self._database.execute(INSERT_MOVED, (following, number, self._mailbox, state))

    def _number_of(self, name: str) -> int:
        self._database.execute("INSERT OR IGNORE INTO mailboxes (folded, name, known) VALUES (?1, ?1, 1)", (name,))
        number: int = self._database.execute("SELECT id FROM mailboxes WHERE name = ?", (name,)).get
        return number

    def __enter__(self) -> None:
        self._database.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._database.execute("COMMIT" if error is None else "ROLLBACK")


DESIGNS: dict[str, type[Ours | Naive]] = {"ours": Ours, "naive": Naive}
