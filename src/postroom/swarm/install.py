"""The files `shared/agent_mailbox.py` and `shared/__init__.py`, which programs of the design import.

The first exports the names of this package, and the second those of the first, so that both
`from shared.agent_mailbox import send_message` and `from shared import send_message` work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import own_file

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


def export(folder: Path) -> tuple[Path, str]:
    """Add one line to the `__init__.py` of the package, which exports the names, as the design requires.

    The rest of the file stays as it is. A folder that cannot be a package (`.`) is skipped.
    """
    path = folder / PACKAGE
    if not folder.name.isidentifier():
        return path, "skipped"
    held = own_file.held(str(path))
    if held is not None and EXPORT in held:
        return path, "unchanged"
    with path.open("a", encoding="utf-8") as file:  # one write, so that an import finds all of the line or none
        file.write(f"\n{EXPORT}" if held and not held.endswith("\n") else EXPORT)
    return path, "extended" if held else "written"
