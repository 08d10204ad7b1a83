"""Planted bugs: each breaks one promise of a room on a server, and a test must find it.

Most are made in the functions of one room. They change text that must be there, so none is planted in vain.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from postroom.store.postgres import connection as connection_module
from postroom.store.postgres.schema import _FUNCTIONS
from postroom.store.postgres.store import PostgresStore

# bug -> pairs of what stands in the functions, and what stands there with the bug
IN_FUNCTIONS: dict[str, tuple[tuple[str, str], ...]] = {
    "a plain sequence": (
        (",\n            pg_advisory_xact_lock('ROOM'::regnamespace::oid::int4, 1);", ";"),
        (
            "    SELECT 1 + greatest((SELECT max(l.number) FROM ROOM.letters l),"
            " (SELECT max(c.number) FROM ROOM.changes c), 0)\n    INTO number;",
            "    number := nextval('ROOM.plain');",
        ),
    ),
    "a move without the token": (("\n        AND o.lease_token IS NOT DISTINCT FROM w->>'token';", ";"),),
    "SET instead of SET LOCAL": (("'synchronous_commit', 'off', true)", "'synchronous_commit', 'off', false)"),),
    "the epoch of the server's start": (
        (
            "left(md5(gen_random_uuid()::text), 8))\n    ON CONFLICT",
            "left(md5(pg_postmaster_start_time()::text), 8))\n    ON CONFLICT",
        ),
    ),
    "never flushed": (
        ("set_config('synchronous_commit', level, true)", "set_config('synchronous_commit', 'off', true)"),
    ),
}


def plant(store: PostgresStore, bug: str) -> None:
    """Plant a bug in the functions of this room."""
    text = Path(_FUNCTIONS).read_text(encoding="utf-8")
    for sound, broken in IN_FUNCTIONS[bug]:
        assert sound in text, (bug, sound)
        text = text.replace(sound, broken)
    with store.database.connection() as connection:
        if "ROOM.plain" in text:
            connection.execute(store.database.sql("CREATE SEQUENCE ROOM.plain START 1000"), prepare=False)
        connection.execute(store.database.sql(text), prepare=False)


@contextmanager
def deaf_to_notices() -> Iterator[None]:
    """Whoever reads the server's notices does not."""
    sound = connection_module._notice
    connection_module._notice = lambda connection, diagnostic: None  # noqa: ARG005
    try:
        yield
    finally:
        connection_module._notice = sound
