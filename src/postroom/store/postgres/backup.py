"""A backup of a room on a server: a copy into a room in a file, of one moment.

It is read in one REPEATABLE READ transaction, so writers go on meanwhile. `pg_dump` is for whoever runs the
server; this copy can be opened as it is, looked at, and copied back.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import apsw
import psycopg

from ..sqlite.backup import check_place, made_whole
from ..sqlite.rows import COLUMNS
from ..sqlite.schema import bring_up
from ..sqlite.writes import recount
from .errors import translated

if TYPE_CHECKING:
    from pathlib import Path

    from ...model.report import Progress
    from .store import PostgresStore

PAGE = 1000  # rows
_LETTERS = "number, id, sender, created_at, kind, scope, tags, thread, thread_tag, conversation, key, sum, body"
# table -> its columns here, in the order of the columns there
_TABLES = {
    "mailboxes": "id, folded, name, known::int",
    "aliases": "folded, name, mailbox",
    "letters": _LETTERS,
    "deliveries": ", ".join(COLUMNS).replace("history", "convert_to(history, 'UTF8')"),
    "records": "kind, key, revision, convert_to(value, 'UTF8')",
    "changes": "number, what, letter, mailbox, state, kind, key",
    "quarantine": "number, id, body",
}


def copy_room(store: PostgresStore, path: Path, *, overwrite: bool, progress: Progress) -> int:
    """Copy the room into a new file, and return how many letters the copy holds."""
    check_place("", path, overwrite=overwrite)
    with made_whole(path, overwrite=overwrite) as growing, store.database.connect() as source, translated():
        source.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        target = apsw.Connection(str(growing))
        try:
            target.pragma("synchronous", "off")  # synced once, at the end
            bring_up(target, str(growing))
            with source.transaction(), target:
                found = source.execute(store.database.sql("SELECT count(*) FROM ROOM.letters")).fetchone()
                letters: int = found[0] if found else 0
                room = source.execute(store.database.sql("SELECT name, trimmed FROM ROOM.room")).fetchone() or (
                    "",
                    0,
                )
                # A new epoch, and a boot that never was: whoever opens it begins anew.
                target.execute("INSERT INTO room VALUES (1, ?, ?, '', ?)", (room[0], os.urandom(4).hex(), room[1]))
                done = 0
                for table, columns in _TABLES.items():
                    with source.cursor(name=table) as rows:
                        rows.execute(store.database.sql(f"SELECT {columns} FROM ROOM.{table}"))
                        while page := rows.fetchmany(PAGE):
                            marks = ", ".join("?" * len(page[0]))
                            target.executemany(f"INSERT INTO {table} VALUES ({marks})", page)
                            done += len(page) if table == "letters" else 0
                            progress(done, letters)
                recount(target.execute)
        finally:
            target.close()
    return letters
