"""The files behind letters, for those who want them as they are: by delivery, and back by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ...errors import UnknownMessage, Unreadable
from ...model.codec import encode
from . import paper
from .reconciling import LARGEST

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...model.query import Found
    from .connection import FileConnection
    from .layouts.base import Plain

_FILES = """
SELECT f.folder, f.name FROM json_each(?) j CROSS JOIN files f ON f.number = j.value AND f.mailbox = ?
ORDER BY j.key"""
_ID = """
SELECT l.id FROM files f JOIN letters l ON l.number = f.number
WHERE f.mailbox = ? AND f.folder = ? AND f.name = ?"""


def sheets(here: FileConnection, found: Sequence[Found]) -> Iterator[tuple[str, Plain]]:
    """Name and content of each file, in this order. What a stranger took away or broke just now is left out."""
    if not found:
        return
    mailbox, _ = here.mailbox(found[0].delivery.mailbox)
    numbers = [one.delivery.number for one in found]
    rows: list[tuple[Any, ...]] = here.database.execute(_FILES, (encode(numbers).decode(), mailbox)).fetchall()
    for folder, name in rows:
        try:
            raw, _ = paper.read(f"{here.places.path(folder)}/{name}", LARGEST)
            fields = json.loads(raw)
        except (FileNotFoundError, Unreadable, ValueError, RecursionError):
            continue
        if isinstance(fields, dict):
            yield name, fields


def id_at(here: FileConnection, mailbox: str, place: str, name: str) -> str | None:
    """The letter whose file lies there."""
    try:
        number, owner = here.mailbox(mailbox)
    except UnknownMessage:
        return None
    folder = here.places.folder(here.ledger.home(number, owner), place)
    id: str | None = here.database.execute(_ID, (number, folder, name)).get
    return id
