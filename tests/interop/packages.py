"""The real agent-inbox from npm, as outside processes. `make test` and `make interop` install it, outside the
tree; where it is not installed these tests are skipped and say so. Its install scripts are left out: they build a
database that is not used here.
"""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any, Self

import pytest

from tests import daemons

PATIENCE = daemons.PATIENCE

NAME = "agent-inbox@0.2.3"
SDK = "@multi-agent-protocol/sdk@0.1.15"
NPM = runpy.run_path(str(Path(__file__).parent.parent.parent / "tools" / "npm.py"))
PACKAGE = NPM["place_of"](NAME, SDK) / "node_modules" / "agent-inbox"
long = pytest.mark.skipif(not os.environ.get("POSTROOM_INTEROP"), reason="make interop runs it")
PROTOCOL = "2025-06-18"  # of MCP, as agent-inbox's SDK speaks it


def require(*names: str, scripts: bool = False) -> Path:
    """The folder in which these are installed; or the test is skipped."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    folder: Path = NPM["place_of"](*names)
    if os.environ.get("POSTROOM_INTEROP"):
        try:
            NPM["packages"](*names, scripts=scripts)
        except NPM["NoNpm"] as missing:
            pytest.skip(str(missing))
    elif not (folder / ".ready").exists():
        pytest.skip(f"{names[0]} is not installed: make interop does it")
    return folder


def require_package() -> Path:
    """agent-inbox, with the SDK that it federates by."""
    return require(NAME, SDK)


def require_node_22() -> Path:
    """Node with a WebSocket of its own: agent-inbox federates with nothing else."""
    return require("node@22", scripts=True) / "node_modules" / ".bin" / "node"


def surroundings(home: Path, **variables: str) -> dict[str, str]:
    """Nothing of ours and nothing of theirs but what is said."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("POSTROOM_", "INBOX_"))}
    return kept | {"HOME": str(home)} | variables


def run_hook(name: str, home: Path, **variables: str) -> str:
    """What one of agent-inbox's hook scripts prints."""
    done = subprocess.run(
        ["node", str(PACKAGE / "hooks" / name)],
        env=surroundings(home, **variables),
        input="{}",
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


class McpProxy:
    """`agent-inbox mcp-proxy`, and a plain client at its standard input and output."""

    def __init__(self, home: Path, socket: Path, **variables: str) -> None:
        self._process = subprocess.Popen(
            ["node", str(PACKAGE / "dist" / "cli.js"), "mcp-proxy"],
            env=surroundings(home, INBOX_SOCKET_PATH=str(socket), **variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._number = 0
        client = {"name": "postroom-tests", "version": "1"}
        self.server = self.ask("initialize", protocolVersion=PROTOCOL, capabilities={}, clientInfo=client)
        self._say({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def ask(self, method: str, **params: Any) -> Any:
        self._number += 1
        self._say({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        assert self._process.stdout is not None
        reply = json.loads(self._process.stdout.readline())
        assert reply["id"] == self._number and "error" not in reply, reply
        return reply["result"]

    def call(self, tool: str, **arguments: Any) -> Any:
        """What a tool answers, read from its text."""
        result = self.ask("tools/call", name=tool, arguments=arguments)
        (content,) = result["content"]
        return json.loads(content["text"])

    def _say(self, params: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(params).encode() + b"\n")
        self._process.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
