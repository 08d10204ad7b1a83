"""agent-inbox's own black-box suites, against `agent-inbox ipc` as our script starts it.

The suites are those of the npm package that speak to a server: three for the socket, one for the MCP proxy, one
for `mail/*`. They are copied out of the installed package; `inbox_process.mjs` stands in for the classes that they
construct, and starts a process for each test.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import postroom
from postroom.cli.own_files import script
from postroom.core import tokens
from postroom.core.authorize import OWNER
from postroom.core.verb import perform
from tests.interop.packages import NAME, require, surroundings

pytestmark = pytest.mark.interop

VITEST = "vitest@3.2.4"
SUITES = ("ipc-server", "ipc-jsonrpc", "ipc-new-commands", "mcp-proxy", "mail-server")
STOOD_IN = ("storage/memory", "router/message-router", "ipc/ipc-server", "jsonrpc/mail-server")
LONG_ENOUGH = 900.0  # seconds for all of them; a bound, not a pace
CANNOT_PASS = {
    "IpcServer should respond to ping",  # a process of its own has a pid of its own, whoever serves
    # It asks for -32001; mail 1.1 says 10000, and so does every wire here.
    "MailJsonRpcServer mail/get should error for missing conversation",
}
OF_ALL = 46


def test_its_own_suites_pass_against_our_process(tmp_path: Path) -> None:
    modules = require(NAME, VITEST) / "node_modules"
    shim = tmp_path / "agent-inbox"
    shim.write_text(script(), encoding="utf-8")
    shim.chmod(0o755)
    with postroom.open(tmp_path / "room.db") as room:
        token = perform(room.core, OWNER, tokens.CreateToken()).text
    ours = {
        "INBOX_PROGRAM": json.dumps([str(shim)]),
        "INBOX_ROOM": str(tmp_path / "room.db"),
        "INBOX_TOKEN": token,
    }
    results = run_suites(tmp_path, modules, **ours)
    failed = {name: why for name, why in results.items() if why}
    assert len(results) == OF_ALL
    assert failed.keys() == CANNOT_PASS, failed


def run_suites(folder: Path, modules: Path, **variables: str) -> dict[str, str]:
    """Each test by its name, and why it failed; empty: it passed."""
    package = modules / "agent-inbox"
    shutil.copytree(package / "src", folder / "src")
    (folder / "test").mkdir()
    for name in SUITES:
        shutil.copy(package / "test" / f"{name}.test.ts", folder / "test")
    for name in STOOD_IN:
        (folder / "src" / f"{name}.ts").write_text('export * from "../../inbox_process.mjs";\n', encoding="utf-8")
    shutil.copy(Path(__file__).with_name("inbox_process.mjs"), folder)
    (folder / "node_modules").symlink_to(modules)
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    report = folder / "report.json"
    words = [
        "run",
        "--root",
        str(folder),
        "--testTimeout",
        "120000",
        "--hookTimeout",
        "120000",
        "--maxWorkers",
        "2",
    ]
    done = subprocess.run(
        [str(modules / ".bin" / "vitest"), *words, "--reporter", "json", "--outputFile", str(report)],
        cwd=folder,
        env=surroundings(folder, **variables),
        capture_output=True,
        text=True,
        timeout=LONG_ENOUGH,
        check=False,
    )
    assert report.exists(), done.stdout + done.stderr
    files = json.loads(report.read_text(encoding="utf-8"))["testResults"]
    tests = [test for file in files for test in file["assertionResults"]]
    return {test["fullName"]: "\n".join(test["failureMessages"]) for test in tests}
