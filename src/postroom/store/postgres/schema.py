"""Schema versions and migrations of a room in PostgreSQL: a newer room is refused, an older one is brought
forward.

`schema/0001.sql` makes the first version; each further number brings a room from the version before. The functions
are made anew with each migration. Everything happens in one transaction, under a lock.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...errors import BadStore, SchemaTooNew

if TYPE_CHECKING:
    from .connection import Database, RoomConnection

_FOLDER = f"{os.path.dirname(__file__)}/schema"
_FUNCTIONS = f"{_FOLDER}/functions.sql"
STEPS = tuple(f"{_FOLDER}/{name}" for name in sorted(os.listdir(_FOLDER)) if name[0].isdigit())
OLDEST_SERVER = 150000
_LOCK = 1886352244  # of those who make or change rooms; the second key is the name of the room
# From the tables of the catalog: `to_regclass` would answer from a memory that is older than the lock.
_TABLES = "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s"
_IS_ROOM = f"{_TABLES} AND c.relname = 'room'"
# Functions without tables are half of a backup, and no new room.
_FUNCTIONS_OF = "SELECT 1 FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = %s"
_HOLDS = f"{_TABLES} UNION ALL {_FUNCTIONS_OF}"
_SETTINGS = """
SELECT current_setting('server_version_num')::int, current_setting('default_transaction_isolation'),
       current_setting('server_encoding'),
       (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit')"""


def check_server(connection: RoomConnection, *, durable: bool) -> str:
    """Refuse a server that cannot keep the promises; return how far its commits are flushed."""
    row = connection.execute(_SETTINGS).fetchone()
    assert row is not None  # noqa: S101 - a SELECT without a table
    version, isolation, encoding, level = row
    problem = hint = ""
    if version < OLDEST_SERVER:
        problem, hint = f"PostgreSQL {version // 10000} is older than 15", "upgrade the server"
    elif encoding != "UTF8":
        problem, hint = (
            f"the database is encoded in {encoding}",
            "create it with ENCODING 'UTF8' TEMPLATE template0",
        )
    elif isolation != "read committed":
        problem = f"default_transaction_isolation is {isolation!r}"
        hint = "ALTER ROLE … SET default_transaction_isolation = 'read committed'"
    elif durable and level == "off":
        problem, hint = "synchronous_commit is off: accepted mail could be lost", "set it to on for this role"
    if problem:
        raise BadStore(problem, field="store", hint=hint)
    return str(level)


def bring_up(database: Database, connection: RoomConnection) -> None:
    """Make or migrate the room's tables."""
    schema = database.address.schema
    if version_of(connection, schema) == len(STEPS):
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s::int, hashtext(%s))", [_LOCK, schema], prepare=False)
        version = version_of(connection, schema)
        if version == len(STEPS):  # another process was faster
            return
        if connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [schema]).fetchone() is None:
            connection.execute(f"CREATE SCHEMA {schema}")
        elif not version and connection.execute(_HOLDS, [schema, schema]).fetchone():
            what = f"the schema {schema} holds things of another program, or half of a backup"
            raise BadStore(what, field="store", hint="choose another schema")
        for step in (*STEPS[version:], _FUNCTIONS):
            with open(step, encoding="utf-8") as file:
                connection.execute(file.read().replace("ROOM", schema), prepare=False)
        connection.execute(database.sql("UPDATE ROOM.room SET version = ?"), [len(STEPS)])


def version_of(connection: RoomConnection, schema: str) -> int:
    """Return the schema version of a room, 0 where there is none."""
    if connection.execute(_IS_ROOM, [schema]).fetchone() is None:
        return 0
    found = connection.execute(f"SELECT version FROM {schema}.room").fetchone()
    version = int(found[0]) if found else 0
    if version > len(STEPS):
        what = f"the room {schema} has schema {version}, this Postroom knows {len(STEPS)}"
        raise SchemaTooNew(what, field="store", hint="upgrade: pip install -U postroom")
    return version
