"""Schema versions and migrations: a newer room is refused, an older one is migrated after a backup.

`schema/0001.sql` makes the first version; each further file brings a room from the version before. Migrations
only go forward.
"""

from __future__ import annotations

import os
from binascii import crc32
from contextlib import suppress
from typing import TYPE_CHECKING

from ...constants import ROOM_APPLICATION
from ...errors import BadStore, Damaged, SchemaTooNew
from .ground import create, sync_path
from .rows import SALVAGE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import apsw

    from .ground import Place


APPLICATION = ROOM_APPLICATION
_FOLDER = f"{os.path.dirname(__file__)}/schema"
SHAPE = 0x3F67B418  # CRC-32 of the definitions in a room of the last version, as SQLite keeps them
_DEFINITIONS = "FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'"  # SQLite has some of its own
_SAME_PAGES = "SELECT count(*) - count(DISTINCT rootpage) FROM sqlite_schema WHERE rootpage > 0"
_BY_TABLE = "SELECT folded, id FROM mailboxes NOT INDEXED ORDER BY +folded, +id"
_BY_INDEX = "SELECT folded, id FROM mailboxes INDEXED BY sqlite_autoindex_mailboxes_1 ORDER BY folded, id"
_SHAPE = f"SELECT group_concat(type || name || tbl_name || sql, ' ' ORDER BY name) {_DEFINITIONS}"
STEPS = tuple(f"{_FOLDER}/{name}" for name in sorted(os.listdir(_FOLDER)))  # 0001.sql makes the first version


def bring_up(
    database: apsw.Connection, path: Place, steps: Sequence[Place] = STEPS, *, application: int = APPLICATION
) -> bool:
    """Make or migrate the room's tables; False if they are current. Call it under the lock."""
    version = version_of(database, path, application)
    if version > len(steps):
        raise SchemaTooNew(
            f"{path} has schema {version}, this Postroom knows {len(steps)}",
            field="store",
            hint="upgrade: pip install -U postroom",
        )
    if version == len(steps):
        return False
    if version > 0:
        # Migrations only go forward: this copy is the way back to the earlier version.
        back_up(database, path, version)
    # One transaction for all steps and the version: a crash leaves the old schema or the new one.
    with database:
        for step in steps[version:]:
            with open(step, encoding="utf-8") as file:
                database.execute(file.read())
        database.pragma("application_id", application)
        database.pragma("user_version", len(steps))
    return True


def check_shape(database: apsw.Connection, path: Place, shape: int = SHAPE, more_tables: str = "") -> None:
    """Refuse damaged table definitions: SQLite would read wrong columns, or no rows, from intact pages."""
    if shape_of(database) != shape and _definitions(database) != _definitions(_new(type(database), more_tables)):
        raise Damaged(f"{path} is damaged: its tables are no longer defined as they were", hint=SALVAGE)
    # A flipped bit in a root page number would show the rows of one table as those of another.
    if database.execute(_SAME_PAGES).get:
        raise Damaged(f"{path} is damaged: two tables stand in one place", hint=SALVAGE)
    check_names(database, path)


def check_names(database: apsw.Connection, path: Place) -> None:
    """Refuse mailbox ids that differ from the index of names: mail would appear in another mailbox."""
    if list(database.execute(_BY_TABLE)) != list(database.execute(_BY_INDEX)):
        raise Damaged(f"{path} is damaged: the names of its mailboxes are no longer as they were", hint=SALVAGE)


def shape_of(database: apsw.Connection) -> int:
    return crc32(str(database.execute(_SHAPE).get).encode())


def _new(connect: type[apsw.Connection], more_tables: str) -> apsw.Connection:
    database = connect(":memory:")
    bring_up(database, ":memory:")
    database.execute(more_tables)
    return database


def _definitions(database: apsw.Connection) -> list[tuple[str, ...]]:
    """Return the table definitions without comments and spaces, which may differ."""
    import re  # noqa: PLC0415 - rare

    found = database.execute(f"SELECT type, name, tbl_name, coalesce(sql, '') {_DEFINITIONS} ORDER BY name")
    return [(*names, " ".join(re.sub(r"--.*", "", sql).split())) for *names, sql in found]


def back_up(database: apsw.Connection, path: Place, version: int) -> str:
    """Copy the room to a file beside it before a migration, and return its path."""
    copy = f"{path}.before-schema-{version + 1}"
    with suppress(FileNotFoundError):
        os.unlink(copy)
    create(copy)  # empty and for its owner alone; VACUUM INTO fills it
    database.execute("VACUUM INTO ?", (copy,))
    sync_path(copy)
    return copy


def version_of(database: apsw.Connection, path: Place, application: int = APPLICATION) -> int:
    """Return the schema version of a room, 0 for an empty file; BadStore if the file is another program's."""
    owner = database.pragma("application_id")
    tables = database.execute("SELECT count(*) FROM sqlite_schema").get
    if owner != application and (owner or tables):
        raise BadStore(f"{path} is a database of another program", field="store", hint="choose another file")
    version: int = database.pragma("user_version")
    if owner != application and version:
        raise BadStore(f"{path} is a database of another program", field="store", hint="choose another file")
    return version
