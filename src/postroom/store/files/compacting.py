"""A long journal is written anew: of all that happened, only what came of it.

The index has that, and is synced first: so nobody ever finds one that is older than the journal's beginning.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import apsw
import msgspec

from ...errors import StoreFailing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..sqlite.rows import Row
    from .connection import FileConnection

_ALIASES = "SELECT a.name, m.name FROM aliases a JOIN mailboxes m ON m.id = a.mailbox"
_NAMES = "SELECT name, known FROM mailboxes ORDER BY id"
_RECORDS = "SELECT kind, key, revision, value FROM records"


def compact_if_long(here: FileConnection) -> None:
    """Under the lock, between two commits. Where it cannot be done, the journal stays as it is."""
    if here.journal.is_long():
        with suppress(OSError, apsw.Error, StoreFailing):
            compact(here)


def compact(here: FileConnection) -> None:
    here.log.tend(here.lock)
    here.log.sync(here.lock)
    here.journal.write_anew([{"n": here.ledger.lines(), "writes": list(_all(here))}])


def _all(here: FileConnection) -> Iterator[dict[str, Any]]:
    """Old names first: where the index is made anew they find nobody in their way."""
    for old, name in here.database.execute(_ALIASES).fetchall():
        yield {"rename": [old, name]}
    for name, known in here.database.execute(_NAMES).fetchall():
        yield {"introduce": [name, bool(known)]}
    records: list[Row] = here.database.execute(_RECORDS).fetchall()
    for kind, key, revision, value in records:
        record = {"kind": kind, "key": key, "revision": revision, "value": msgspec.json.decode(value)}
        yield {"put": record}
