"""The file `shared/agent_mailbox.py` that programs of the design import: a door to this package, nothing more."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from ..errors import NameTaken

if TYPE_CHECKING:
    from pathlib import Path

FILE = "agent_mailbox.py"
MARK = "# Written by `postroom swarm install`."
CONTENT = f'''{MARK} It may be written anew: change nothing here.
"""The mailbox of agent-swarm, as Postroom keeps it. See docs/swarm.md of Postroom."""

from postroom.swarm import *  # noqa: F403
from postroom.swarm import __all__  # noqa: F401
'''

Outcome = Literal["written", "replaced", "unchanged"]


def install(folder: Path, *, force: bool = False) -> tuple[Path, Outcome]:
    """Put the file into the folder. One that is not ours stays as it is, unless it is forced."""
    path = folder / FILE
    folder.mkdir(parents=True, exist_ok=True)
    held = _content(path)
    if held is not None and not held.startswith(MARK) and not force:
        raise NameTaken(f"{path} is there already and not ours", field="FOLDER", hint="--force replaces it")
    if held == CONTENT:
        return path, "unchanged"
    _write(path)
    return path, "written" if held is None else "replaced"


def _content(path: Path) -> str | None:
    if not os.path.lexists(path):
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):  # a folder, a broken link, no text: not ours
        return ""


def _write(path: Path) -> None:
    """Whole or not at all: somebody may be importing it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(CONTENT, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
