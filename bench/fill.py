"""Rooms with a past, made once and kept in the user's cache folder.

The rows are built with the store's own row functions and inserted by plain SQL, without syncs: a million takes
about a minute. All letters hold 1 KiB of text. Two hundred, spread over the whole past, are unread in one
mailbox; all others were claimed and acknowledged in a hundred mailboxes, and the newest changes are there too.
Twenty, spread as widely, are one thread between two agents; three of those hold a word that no other letter has.
The index of words is made too.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw

import postroom
from postroom.model import delivery as model_delivery
from postroom.model.codec import encode
from postroom.model.delivery import Lease
from postroom.model.message import Message, Priority, Recipient, text
from postroom.store.sqlite import search
from postroom.store.sqlite.rows import Row, delivery_row, letter_row
from postroom.store.sqlite.schema import STEPS
from postroom.store.sqlite.writes import INSERT_DELIVERY, INSERT_LETTER, INSERT_MOVED

from .measure import LETTER

UNREAD = 200
THREAD = 20
MAILBOXES = 100
READER = "agent-0"
TALKER = "agent-50"  # has the thread, and the rare word
ROOT = f"{1:026X}"  # the thread's first letter
RARE = "zyzzyva"
KEPT_CHANGES = 100_000
BATCH = 10_000
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
HELD = Lease(token="0" * 32, holder="holder", until=1.0, boot="an earlier one")


def filled_room(letters: int) -> Path:
    """The room with so many letters, made if it is not in the cache."""
    cache = _cache()
    home = cache / _key() / str(letters)
    if not home.exists():
        for old in cache.glob("*"):
            if old.name not in {_key(), "npm"}:  # what npm fetched for the measures is no room
                shutil.rmtree(old)
        print(f"making a room of {letters:,} letters, once, in {home}", flush=True)
        making = home.with_suffix(".part")
        shutil.rmtree(making, ignore_errors=True)
        fill(making / "room.db", letters)
        making.rename(home)
    return home / "room.db"


def fill(path: Path, letters: int) -> None:
    postroom.open(str(path)).close()
    database = apsw.Connection(str(path))
    database.pragma("synchronous", "off")
    names = [(i + 1, f"agent-{i}", f"agent-{i}", 1) for i in range(MAILBOXES)]
    with database:
        database.executemany("INSERT INTO mailboxes VALUES (?, ?, ?, ?)", names)
    for first in range(0, letters, BATCH):
        batch = range(first, min(first + BATCH, letters))
        with database:
            rows = [_rows(place, letters) for place in batch]
            database.executemany(INSERT_LETTER, (letter for letter, _ in rows))
            database.executemany(INSERT_DELIVERY, (delivery for _, delivery in rows))
    with database:
        database.executemany(INSERT_MOVED, _changes(letters))
    database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    database.close()
    with postroom.open(str(path), durability="process") as room:
        room.core.store.trim()


def _rows(place: int, letters: int) -> tuple[Row, Row]:
    """A letter and its delivery. Two changes follow each letter, so numbers go up by three."""
    mailbox = _mailbox(place, letters)
    sender = (place * 7 + 1) % MAILBOXES
    at = BEGAN + timedelta(seconds=place)
    message = Message(
        id=f"{place:026X}",
        sender=f"agent-{sender}",
        recipients=(Recipient(f"agent-{mailbox}"),),
        created_at=at,
        parts=(text(_text(place, letters)),),
        priority=Priority(place % 4 + 1),
        trace=(f"agent-{sender}",),
        thread_id=ROOT if _in_thread(place, letters) and place > 1 else None,
    )
    delivery = model_delivery.open_delivery(message, f"agent-{mailbox}", "to", at)
    if not _is_unread(place, letters):
        delivery = model_delivery.ack(model_delivery.claim(delivery, HELD), at, archive=True)
    number = 3 * place + 1
    return letter_row(message, number, sender + 1, encode(message)), delivery_row(delivery, number, mailbox + 1)


def _changes(letters: int) -> Iterator[Row]:
    for place in range(max(0, letters - KEPT_CHANGES // 2), letters):
        if _is_unread(place, letters):
            continue
        for later, state in ((1, 2), (2, 3)):
            number = 3 * place + 1
            yield number + later, number, _mailbox(place, letters) + 1, state


def _is_unread(place: int, letters: int) -> bool:
    return place % (letters // UNREAD) == 0


def _in_thread(place: int, letters: int) -> bool:
    return place % (letters // THREAD) == 1


def _mailbox(place: int, letters: int) -> int:
    """Whose letter it is."""
    if _is_unread(place, letters):
        return 0
    return MAILBOXES // 2 if _in_thread(place, letters) else place % MAILBOXES


def _text(place: int, letters: int) -> str:
    """The rare word stands in an early, a middle and a late letter of the thread."""
    rare = _in_thread(place, letters) and place // (letters // THREAD) in {2, THREAD // 2, THREAD - 2}
    return f"It takes a {RARE} to know one. {LETTER}"[: len(LETTER)] if rare else LETTER


def _cache() -> Path:
    named = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(named) if named.startswith("/") else Path.home() / ".cache"
    return home / "postroom-bench"


def _key() -> str:
    """Another schema, another index of words or another past makes other rooms."""
    source = b"".join(Path(path).read_bytes() for path in (*STEPS, search.__file__, __file__))
    return hashlib.sha256(source).hexdigest()[:12]
