"""The installer of `shared/agent_mailbox.py` and `shared/__init__.py`, which programs of the design import.

The first exports the names of this package, and the second those of the first, so that both
`from shared.agent_mailbox import send_message` and `from shared import send_message` work.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from ..errors import NameTaken

if TYPE_CHECKING:
    from pathlib import Path


FILE, PACKAGE = "agent_mailbox.py", "__init__.py"
MARK = "# Written by `postroom swarm install`."
CONTENT = f'''{MARK} It may be written anew: change nothing here.
"""The mailbox of agent-swarm, as Postroom keeps it. See docs/migrating.md of Postroom."""

from postroom.swarm import *  # noqa: F403
from postroom.swarm import __all__  # noqa: F401
'''
EXPORT = f"from .agent_mailbox import *  # noqa: E402, F403 {MARK}\n"

Outcome = Literal["written", "replaced", "extended", "unchanged", "skipped"]


def install(folder: Path, *, force: bool = False) -> tuple[Path, Outcome]:
    """Write `agent_mailbox.py` into the folder. Refuse to replace a file that is not ours, unless forced."""
    path = folder / FILE
    folder.mkdir(parents=True, exist_ok=True)
    held = _content(path)
    if held is not None and not held.startswith(MARK) and not force:
        raise NameTaken(f"{path} is there already and not ours", field="FOLDER", hint="--force replaces it")
    if held == CONTENT:
        return path, "unchanged"
    _write(path)
    return path, "written" if held is None else "replaced"


def export(folder: Path) -> tuple[Path, Outcome]:
    """Add one line to the `__init__.py` of the package, which exports the names, as the design requires.

    The rest of the file stays as it is. A folder that cannot be a package (`.`) is skipped.
    """
    path = folder / PACKAGE
    if not folder.name.isidentifier():
        return path, "skipped"
    held = _content(path)
    if held is not None and EXPORT in held:
        return path, "unchanged"
    with path.open("a", encoding="utf-8") as file:  # one write, so that an import finds all of the line or none
        file.write(f"\n{EXPORT}" if held and not held.endswith("\n") else EXPORT)
    return path, "extended" if held else "written"


def _content(path: Path) -> str | None:
    if not os.path.lexists(path):
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):  # a folder, a broken link, or not text: not ours
        return ""


def _write(path: Path) -> None:
    """Write the file whole or not at all: a program may be importing it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(CONTENT, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
