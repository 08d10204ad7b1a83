"""The files of the plugin for Claude Code that are made from hosts/recipes.py: its hooks and its MCP server."""

from __future__ import annotations

import json
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
