"""The official TypeScript client, an outside program, starts `postroom mcp` and uses all of it."""

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
SDK = "@modelcontextprotocol/sdk@1"
PATIENCE = 120  # seconds

pytestmark = pytest.mark.skipif(not os.environ.get("POSTROOM_INTEROP"), reason="make interop runs it")


@pytest.fixture(scope="module")
def packages() -> Path:
    try:
        folder: Path = TOOL["packages"](SDK)
    except TOOL["NoNpm"] as missing:
        pytest.skip(str(missing))
    return folder


def test_the_typescript_client_over_stdio(packages: Path, tmp_path: Path) -> None:
    script = packages / "mcp_client.mjs"  # where it finds its packages
    shutil.copyfile(HERE / "mcp_client.mjs", script)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("POSTROOM_", "INBOX_"))}
    source = str(Path(postroom.__file__).parent.parent)
    env = kept | {"POSTROOM_STORE": f"sqlite:{tmp_path}/room.db", "PYTHONPATH": source}
    done = subprocess.run(
        ["node", str(script), sys.executable, "-m", "postroom", "mcp"],
        env=env, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (0, "all told\n") == (done.returncode, done.stdout), done.stderr
