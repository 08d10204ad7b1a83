"""The official TypeScript clients, outside programs, start `postroom mcp` and use all of it."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import postroom

HERE = Path(__file__).parent
TOOL = runpy.run_path(str(HERE.parent.parent / "tools" / "npm.py"))
PATIENCE = 120  # seconds

pytestmark = pytest.mark.skipif(not os.environ.get("POSTROOM_INTEROP"), reason="make interop runs it")


def folder_of(package: str) -> Path:
    try:
        folder: Path = TOOL["packages"](package)
    except TOOL["NoNpm"] as missing:
        pytest.skip(str(missing))
    return folder


@pytest.mark.parametrize(
    ("package", "program"),
    [
        ("@modelcontextprotocol/sdk@1.32.2", "mcp_client.mjs"),  # the revision 2025-11-25
        ("@modelcontextprotocol/client@2.4.0", "mcp_client_2026.mjs"),
    ],
)
def test_the_typescript_client_over_stdio(package: str, program: str, tmp_path: Path) -> None:
    script = folder_of(package) / program  # where it finds its packages
    shutil.copyfile(HERE / program, script)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("POSTROOM_", "INBOX_"))}
    source = str(Path(postroom.__file__).parent.parent)
    env = kept | {"POSTROOM_STORE": f"sqlite:{tmp_path}/room.db", "PYTHONPATH": source}
    done = subprocess.run(
        ["node", str(script), sys.executable, "-m", "postroom", "mcp"],
        env=env, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (0, "all told\n") == (done.returncode, done.stdout), done.stderr
