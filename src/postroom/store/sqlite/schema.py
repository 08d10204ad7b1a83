"""Versions of the room's shape. A newer one is refused, an older one is migrated after a backup."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from ...errors import BadStore, SchemaTooNew
from .ground import create, sync_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    import apsw

    from .ground import Place

APPLICATION = 0x506F7374  # "Post": marks a SQLite file as a room
_FOLDER = f"{os.path.dirname(__file__)}/schema"
STEPS = tuple(f"{_FOLDER}/{name}" for name in sorted(os.listdir(_FOLDER)))  # 0001.sql makes the first version


def bring_up(
    database: apsw.Connection, path: Place, steps: Sequence[Place] = STEPS, *, application: int = APPLICATION
) -> None:
    """Make or migrate the room's tables. Call under the lock."""
    version = version_of(database, path, application)
    if version > len(steps):
        raise SchemaTooNew(
            f"{path} has schema {version}, this Postroom knows {len(steps)}",
            field="store",
            hint="upgrade: pip install -U postroom",
        )
    if version == len(steps):
        return
    if version > 0:
        back_up(database, path, version)
    with database:
        for step in steps[version:]:
            with open(step, encoding="utf-8") as file:
                database.execute(file.read())
        database.pragma("application_id", application)
        database.pragma("user_version", len(steps))


def back_up(database: apsw.Connection, path: Place, version: int) -> str:
    """A whole copy beside the room, before it changes shape."""
    copy = f"{path}.before-schema-{version + 1}"
    with suppress(FileNotFoundError):
        os.unlink(copy)
    create(copy)  # empty and for its owner alone; VACUUM INTO fills it
    database.execute("VACUUM INTO ?", (copy,))
    sync_path(copy)
    return copy


def version_of(database: apsw.Connection, path: Place, application: int = APPLICATION) -> int:
    """The schema a room has, 0 in an empty file; BadStore when the file is another program's."""
    owner = database.pragma("application_id")
    tables = database.execute("SELECT count(*) FROM sqlite_schema").get
    if owner != application and (owner or tables):
        raise BadStore(f"{path} is a database of another program", field="store", hint="choose another file")
    version: int = database.pragma("user_version")
    if owner != application and version:
        raise BadStore(f"{path} is a database of another program", field="store", hint="choose another file")
    return version
