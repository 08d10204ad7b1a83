"""The programs in `examples/` run as they stand, each in a home of its own, and print what they show."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import postroom
from tests.docs.pages import HOME
from tests.interop.packages import require_node_22

PATIENCE = 60.0  # seconds; a bound, not a pace
EXAMPLES = HOME / "examples"
SHOWN = {
    "worker_pool.py": ("12 of 12: ",),
    "ask_answer.py": (
        "asked: Merge sort is stable.",
        "awaited: Merge sort",
        "refused: ",
        "no answer: no answer to ",
    ),
    "team_deadline.py": ("ann: completed", "bob: completed", "carol: pending, past its deadline"),
    "graph_loop.py": ("critic -> planner: Stable sorts, draft 1", "result: {'topic': 'Stable sorts', 'drafts': 3"),
    "two_machines.sh": ("From: ann@paris", "From: bob@berlin"),
}
SERVED = {"two_machines.sh"}


def around(home: Path) -> dict[str, str]:
    """The environment of a user with an empty home, who has `postroom` on PATH."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("POSTROOM_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept["PATH"]])
    return kept | {"HOME": str(home), "XDG_DATA_HOME": str(home), "XDG_CONFIG_HOME": str(home), "PATH": path}


def run(command: list[str], home: Path, **more: str) -> str:
    done = subprocess.run(
        command, cwd=home, env=around(home) | more, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", sorted(SHOWN.keys() - SERVED))
def test_an_example_runs_as_it_stands(name: str, tmp_path: Path) -> None:
    printed = run([sys.executable, "-W", "error", str(EXAMPLES / name)], tmp_path)
    assert [line for line in SHOWN[name] if line not in printed] == []


@pytest.mark.daemon
@pytest.mark.parametrize("name", sorted(SERVED))
def test_an_example_with_servers_runs_as_it_stands(name: str, tmp_path: Path) -> None:
    printed = run(["sh", str(EXAMPLES / name)], tmp_path)
    assert [line for line in SHOWN[name] if line not in printed] == []


@pytest.mark.daemon
def test_the_client_in_typescript_asks_over_a_websocket(tmp_path: Path) -> None:
    node = require_node_22()
    address = f"sqlite:{tmp_path}/room.db"
    postroom_command = str(Path(sys.executable).parent / "postroom")
    serve = [postroom_command, "serve", "--room", address, "--http", "127.0.0.1:0", "--json"]
    serve += ["--socket", str(tmp_path / "s")]
    with subprocess.Popen(serve, env=around(tmp_path), stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = json.loads(server.stdout.readline())["http"].replace("http", "ws", 1) + "/ws"
            with postroom.open(address) as room:
                token = run([postroom_command, "tokens", "create", "--agent", "web", "--room", address], tmp_path)
                researcher = room.mailbox("researcher")
                answers = threading.Thread(target=researcher.serve, args=(lambda _: "Merge sort.",))
                answers.start()
                try:
                    command = [str(node), "--no-warnings", "--experimental-strip-types"]
                    printed = run([*command, str(EXAMPLES / "client.ts"), url], tmp_path, TOKEN=token.split()[0])
                finally:
                    researcher.stop()
                    answers.join()
        finally:
            server.terminate()
    assert "researcher: Merge sort." in printed


def test_every_example_is_run_and_listed() -> None:
    programs = {path.name for path in EXAMPLES.iterdir() if path.suffix in {".py", ".sh", ".ts"}}
    assert programs - {"demo.py", "client.ts"} == SHOWN.keys()
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert [name for name in sorted(programs) if f"`{name}`" not in listed] == []
