"""Backups: a whole copy of a room in use. To put one back nobody may be inside, so that is no verb of a room."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import Invalid
from ..model.health import BackupReport
from .authorize import authorize
from .given import told

if TYPE_CHECKING:
    from ..model.health import Progress
    from .authorize import Principal
    from .office import Office


def backup(
    office: Office, caller: Principal, path: Any, *, overwrite: bool = False, progress: Progress | None = None
) -> BackupReport:
    """Copy the room, as it is at this moment, into a file of its own."""
    authorize(caller, "backup")
    place = check_path(path, "path")
    began = time.monotonic()
    letters = office.store.backup(place, overwrite=overwrite, progress=told(progress))
    return BackupReport(
        path=str(place), letters=letters, bytes=place.stat().st_size, seconds=time.monotonic() - began
    )


def check_path(value: Any, field: str) -> Path:
    """A file's name, as a caller says it."""
    try:
        text = os.fspath(value)
    except TypeError:
        raise Invalid(f"must be a path, not {type(value).__name__}", field=field) from None
    if not isinstance(text, str) or not text or "\0" in text:
        raise Invalid(f"{text!a} is not a path", field=field)
    try:
        os.fsencode(text)
        return Path(text).expanduser().absolute()
    except (RuntimeError, UnicodeEncodeError):  # a user nobody knows; half a character
        raise Invalid(f"{text!a} is not a path", field=field) from None
