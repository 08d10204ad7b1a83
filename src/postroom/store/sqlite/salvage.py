"""What can still be read of a damaged room, in a fresh one.

The room's file and its log are read page by page, without SQLite, so that damage in one place hides nothing
elsewhere. A letter counts if its sum says that it is what was accepted. A delivery that cannot be read is made
anew, as unread: mail may come twice, but it comes. The damaged room is left as it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import apsw
import msgspec
from msgspec import Struct

from ...errors import PostroomError
from ...model.codec import decode_message
from ...model.delivery import open_delivery
from ...model.message import Message, is_any, is_broadcast
from ...model.names import check_party, fold
from ...model.record import FORGOTTEN, Record
from ..protocol import Introduce, Post, Put, Rename
from . import rows
from .backup import check_nobody_inside, made_whole
from .connection import translated
from .examine import PageRow, damaged_pages, newest_pages, old_pages, rows_of
from .lock import WriterLock
from .store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...model.delivery import Delivery
    from ..protocol import Write


SLICE = 500
END = ".salvaged"  # after the room's own name
_DELIVERY_AT = [rows.COLUMNS.index(column) for column in rows.COLUMNS if column != "seen"]


class Salvaged(Struct, frozen=True, kw_only=True):
    """What came out of a damaged room."""

    path: Path  # like a backup: `restore` makes it the room
    letters: int
    lost: int  # letters that are known to have been there, as far as anything tells


class Remains(Struct, kw_only=True):
    """Rows that could be read, whatever page they were on."""

    letters: dict[int, tuple[Message, bytes]] = {}
    deliveries: dict[tuple[int, int], PageRow] = {}  # by letter and mailbox, the one of the last revision
    mailboxes: dict[int, tuple[str, bool]] = {}
    aliases: dict[str, int] = {}
    records: dict[tuple[str, str], tuple[int, Any]] = {}

    def take(self, row: PageRow, *, newest: bool, whole: bool) -> None:
        """A row of a table that can be told by its shape. From a damaged page, only what has a sum of its own."""
        match row:
            case (int(number), str(), int(), int(), *_, int(sum), bytes(body)) if len(row) == 13:
                if crc32(body) == sum:
                    self.letters.setdefault(number, (decode_message(body), body))
            case (int(number), int(mailbox), *_) if whole and len(row) == len(rows.COLUMNS):
                held = self.deliveries.get((number, mailbox))
                if held is None or _revision(held) < _revision(row):
                    self.deliveries[number, mailbox] = row
            case (int(number), str(folded), str(name), 0 | 1 as known) if newest and fold(name) == folded:
                self.mailboxes[number] = (check_party(name, "mailbox"), known == 1)
            case (str(folded), str(name), int(mailbox)) if newest and fold(name) == folded:
                self.aliases[check_party(name, "alias")] = mailbox
            case (str(kind), str(key), int(revision), bytes(value)) if newest:
                held_at, _ = self.records.get((kind, key), (0, None))
                if held_at < revision:
                    self.records[kind, key] = (revision, msgspec.json.decode(value))
            case _:
                pass


def _revision(row: PageRow) -> int:
    found = row[rows.COLUMNS.index("revision")]
    return found if isinstance(found, int) else 0


def salvage(path: Path, busy_timeout: float) -> Salvaged | None:
    """Write what can be read of the room at `path` into a file beside it; None if there is no letter to be read.

    Nobody may have the room open meanwhile.
    """
    with translated(path):
        lock = WriterLock(Path(f"{path}.lock"), busy_timeout)
    try:
        with translated(path), lock:
            check_nobody_inside(path)
            remains = _read(path)
    finally:
        lock.close()
    letters = _letters(remains)
    if not letters:
        return None
    target = path.with_name(f"{path.name}{END}")
    with made_whole(target, overwrite=True) as growing:
        _fill(growing, remains, letters)
    known = {number for number, _ in remains.deliveries} - (remains.letters.keys() - letters.keys())
    return Salvaged(path=target, letters=len(letters), lost=len(known - letters.keys()))


def _read(path: Path) -> Remains:
    remains = Remains()
    room = path.read_bytes()
    log = Path(f"{path}-wal")
    written = log.read_bytes() if log.exists() else b""
    pages = newest_pages(room, written, damaged=True)
    for newest, whole, images in (
        (True, True, newest_pages(room, written, damaged=False).values()),
        (False, True, old_pages(room, written)),
        (False, False, damaged_pages(room, written)),
    ):
        for image in images:
            for row in rows_of(image, pages):
                try:
                    remains.take(row, newest=newest, whole=whole)
                except (PostroomError, msgspec.DecodeError, ValueError):  # a row that is not what it seems
                    continue
    return remains


def _letters(remains: Remains) -> dict[int, tuple[Message, bytes]]:
    """In the order of acceptance, without those that were deleted on purpose."""
    gone = {key for kind, key in remains.records if kind == FORGOTTEN}
    return {number: held for number, held in sorted(remains.letters.items()) if held[0].id not in gone}


def _fill(growing: Path, remains: Remains, letters: dict[int, tuple[Message, bytes]]) -> None:
    store = SqliteStore(growing, boot="salvage", durable=False)
    try:
        writes = _writes(remains, letters)
        for start in range(0, len(writes), SLICE):
            _commit(store, writes[start : start + SLICE])
    finally:
        store.close()
        database = apsw.Connection(str(growing))
        database.pragma("journal_mode", "delete")  # one file, with no log beside it
        database.close()
        for left in growing.parent.glob(f"{growing.name}?*"):
            left.unlink()


def _writes(remains: Remains, letters: dict[int, tuple[Message, bytes]]) -> list[Write]:
    names = {number: name for number, (name, _) in remains.mailboxes.items()}
    return [
        *(Introduce(name, known) for name, known in remains.mailboxes.values()),
        *(Rename(old, names[at]) for old, at in remains.aliases.items() if at in names),
        *(
            Post(message=message, encoded=body, deliveries=_deliveries(remains, names, number, message))
            for number, (message, body) in letters.items()
        ),
        *(
            Put(record=Record(kind=kind, key=key, value=held))
            for (kind, key), (_, held) in remains.records.items()
        ),
    ]


def _commit(store: SqliteStore, writes: Sequence[Write]) -> None:
    """Together, or each by itself: one that cannot be written must not cost the others."""
    try:
        store.commit(writes)
    except PostroomError:
        for write in writes if len(writes) > 1 else ():
            _commit(store, [write])


def _deliveries(remains: Remains, names: dict[int, str], number: int, message: Message) -> tuple[Delivery, ...]:
    """Those that can be read, and new ones for recipients that have none."""
    held: dict[str, Delivery] = {}
    for (letter, mailbox), row in remains.deliveries.items():
        if letter == number and mailbox in names and _may_have(message, names[mailbox], remains, mailbox):
            found = _delivery(message, names[mailbox], row)
            if found is not None:
                held[found.mailbox] = found
    missing = [r for r in message.recipients if r.address not in held]
    for recipient in missing[: max(0, len(message.recipients) - len(held))]:
        new = open_delivery(message, recipient.address, recipient.kind, message.created_at)
        held[new.mailbox] = new
    return tuple(held.values())


def _may_have(message: Message, name: str, remains: Remains, mailbox: int) -> bool:
    """Is this one of those it was sent to? Else the name, or its number, is not what it was."""
    addresses = {fold(recipient.address) for recipient in message.recipients}
    if any(is_broadcast(address) or is_any(address) for address in addresses):
        return True
    former = {fold(old) for old, at in remains.aliases.items() if at == mailbox}
    return fold(name) in addresses or bool(former & addresses)


def _delivery(message: Message, mailbox: str, row: PageRow) -> Delivery | None:
    number, _, *values = (row[place] for place in _DELIVERY_AT)
    try:
        return rows.delivery(message, (number, mailbox, *values))
    except rows.UNLIKELY:
        return None
