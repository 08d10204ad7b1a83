"""Versions of the room's shape. A newer one is refused, an older one is migrated after a backup."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import BadStore, SchemaTooNew
from .ground import create, sync_path

if TYPE_CHECKING:
    import apsw

APPLICATION = 0x506F7374  # "Post": marks a SQLite file as a room
STEPS = tuple(sorted((Path(__file__).parent / "schema").glob("*.sql")))  # 0001.sql makes the first version


def bring_up(database: apsw.Connection, path: Path, steps: tuple[Path, ...] = STEPS) -> None:
    """Make or migrate the room's tables. Call under the lock."""
    version = version_of(database, path)
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
            database.execute(step.read_text(encoding="utf-8"))
        database.pragma("application_id", APPLICATION)
        database.pragma("user_version", len(steps))


def back_up(database: apsw.Connection, path: Path, version: int) -> Path:
    """A whole copy beside the room, before it changes shape."""
    copy = path.with_name(f"{path.name}.before-schema-{version + 1}")
    copy.unlink(missing_ok=True)
    create(copy)  # empty and for its owner alone; VACUUM INTO fills it
    database.execute("VACUUM INTO ?", (str(copy),))
    sync_path(copy)
    return copy


def version_of(database: apsw.Connection, path: Path) -> int:
    """The schema a room has, 0 in an empty file; BadStore when the file is another program's."""
    owner = database.pragma("application_id")
    tables = database.execute("SELECT count(*) FROM sqlite_schema").get
    if owner != APPLICATION and (owner or tables):
        raise BadStore(f"{path} is a database of another program", field="store", hint="choose another file")
    version: int = database.pragma("user_version")
    if owner != APPLICATION and version:
        raise BadStore(f"{path} is a database of another program", field="store", hint="choose another file")
    return version
