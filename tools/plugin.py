"""Writes what the plugin for Claude Code takes from the code: its hooks and its MCP server, from hosts/recipes.py.

With --check it only says whether they are true.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from postroom.hosts.recipes import hooks, mcp_server

FOLDER = Path(__file__).parent.parent / "src" / "postroom" / "hosts" / "plugins" / "claude"
PROGRAM = ["postroom"]  # on the PATH: a plugin does not know where it was installed


def files() -> dict[Path, str]:
    """Each file, and what it should say."""
    about = "Shows new mail between steps, and wakes the session when it is idle"
    result: dict[str, dict[str, Any]] = {
        "hooks/hooks.json": {"description": about, "hooks": hooks("claude", PROGRAM)},
        ".mcp.json": {"mcpServers": {"postroom": mcp_server(PROGRAM)}},
    }
    return {FOLDER / name: json.dumps(value, indent=2) + "\n" for name, value in result.items()}


def main() -> None:
    wrong = [path for path, text in files().items() if not path.exists() or path.read_text("utf-8") != text]
    if "--check" in sys.argv[1:]:
        sys.exit(f"not true any more: {', '.join(map(str, wrong))}; make docs writes them" if wrong else 0)
    for path in wrong:
        path.write_text(files()[path], encoding="utf-8")


if __name__ == "__main__":
    main()
