"""The command `agent-inbox`, for hosts that start a program of that name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from postroom.cli.own_files import MARK
from tests.cli.shell import Shell
from tests.daemons import PATIENCE, Line, until

INSTALL, UNINSTALL = ("install", "agent-inbox-shim"), ("uninstall", "agent-inbox-shim")
# A Postroom that says how it was called.
_ECHO = '#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word"; done\n'


@pytest.fixture
def shim(shell: Shell) -> Path:
    return shell.home / ".local" / "bin" / "agent-inbox"


def call(shell: Shell, shim: Path, *words: str, **variables: str) -> list[str]:
    """What it would start."""
    echo = shell.home / "echo"
    echo.write_text(_ECHO, encoding="utf-8")
    echo.chmod(0o755)
    text = shim.read_text(encoding="utf-8")
    program = text.partition("exec ")[2].partition(" mcp")[0]
    copy = shell.home / "copy"
    copy.write_text(text.replace(program, str(echo)), encoding="utf-8")
    environment = {"HOME": str(shell.home), "PATH": os.environ["PATH"], **variables}
    done = subprocess.run(["sh", str(copy), *words], env=environment, capture_output=True, text=True, check=True)
    return (done.stdout + done.stderr).splitlines()


def test_it_is_put_there_again_and_away(shell: Shell, shim: Path) -> None:
    path = str(shim)
    tried = shell.json(*INSTALL, "--dry-run")
    assert {"path": path, "outcome": "written", "dry_run": True, "on_path": False}.items() <= tried.items()
    assert not shim.exists()
    assert "written" == shell.json(*INSTALL)["outcome"]
    assert 0o755 == shim.stat().st_mode & 0o777
    assert "unchanged" == shell.json(*INSTALL)["outcome"]
    shim.write_text(f"{MARK} an older one\n", encoding="utf-8")
    assert "replaced" == shell.json(*INSTALL)["outcome"]
    assert "removed" == shell.json(*UNINSTALL, "--dry-run")["outcome"] and shim.exists()
    assert "removed" == shell.json(*UNINSTALL)["outcome"] and not shim.exists()
    assert "absent" == shell.json(*UNINSTALL)["outcome"]
    assert [] == list(shim.parent.iterdir())


def test_people_are_shown_where_it_is_and_who_finds_it(shell: Shell, shim: Path) -> None:
    result = shell.run(*INSTALL).out
    assert f"Written: {shim}\n" in result and "is not on your PATH" in result
    first = shell.home / "first" / "agent-inbox"
    first.parent.mkdir()
    first.write_text("#!/bin/sh\n", encoding="utf-8")
    first.chmod(0o755)
    path = f"{first.parent}:{shim.parent}:{os.environ['PATH']}"
    result = shell.run(*INSTALL, "--dry-run", PATH=path).out
    assert f"There already: {shim}\n" in result and f"{first} comes first" in result and "not on" not in result


@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_what_is_not_ours_is_left_alone(shell: Shell, shim: Path, kind: str) -> None:
    shim.parent.mkdir(parents=True)
    if kind == "folder":
        shim.mkdir()
    else:
        real = shell.home / "real" if kind == "link" else shim
        real.write_bytes(b"\xff theirs")
        if kind == "link":
            shim.symlink_to(real)
    for words in (INSTALL, UNINSTALL, (*INSTALL, "--dry-run")):
        done = shell.run(*words)
        assert 73 == done.code and "not written by Postroom" in done.err
    assert kind == "folder" or shim.read_bytes() == b"\xff theirs"


def test_a_folder_that_cannot_be_is_reported(shell: Shell) -> None:
    (shell.home / "file").write_bytes(b"")
    assert 73 == shell.run(*INSTALL, "--folder", "file/below").code
    assert 64 == shell.run(*INSTALL, "--room", "x.db").code


def test_its_modes_are_agent_inboxs(shell: Shell, shim: Path) -> None:
    shell.json(*INSTALL)
    home = f"{shell.home}/.claude/agent-inbox"
    assert ["mcp"] == call(shell, shim) == call(shell, shim, "mcp")
    assert ["mcp", "--socket", "/a b/s"] == call(shell, shim, INBOX_SOCKET_PATH="/a b/s")
    assert ["mcp", "--socket", "/p"] == call(shell, shim, "mcp", INBOX_SOCKET_PATH="/s", POSTROOM_SOCKET="/p")
    assert ["mcp", "--socket", f"{home}/inbox.sock"] == call(shell, shim, "mcp-proxy")
    serve = ["serve", "--socket", f"{home}/inbox.sock", "--inboxes", f"{home}/inboxes"]
    assert [*serve, "--http", "off"] == call(shell, shim, "ipc") == call(shell, shim, "ipc", INBOX_HTTP_PORT="0")
    assert serve == call(shell, shim, "ipc", INBOX_HTTP_PORT="4651")
    bad = subprocess.run([str(shim), "nonsense"], capture_output=True, text=True, check=False)
    assert (1, "") == (bad.returncode, bad.stdout) and "mcp-proxy" in bad.stderr


@pytest.mark.daemon
def test_mcp_is_an_mcp_server(shell: Shell, shim: Path) -> None:
    shell.json(*INSTALL)
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    params = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}
    with subprocess.Popen(
        [str(shim)], env=shell.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as server:
        out, _ = server.communicate(json.dumps(params).encode() + b"\n", timeout=PATIENCE)
    assert "serverInfo" in json.loads(out)["result"]


@pytest.mark.daemon
def test_ipc_is_a_post_room(shell: Shell, shim: Path) -> None:
    shell.json(*INSTALL)
    socket, inboxes = shell.home / "s", shell.home / "inboxes"
    variables = {"INBOX_SOCKET_PATH": str(socket), "INBOX_SQLITE_PATH": str(shell.home / "mail.db")}
    environment = {name: text for name, text in shell.environment.items() if name != "POSTROOM_STORE"} | variables
    with subprocess.Popen(
        [str(shim), "ipc"],
        env=environment | {"INBOX_DIR": str(inboxes)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as daemon:
        until(lambda: socket.exists() or daemon.poll() is not None)
        with Line(socket) as line:
            assert line.ask({"action": "send", "from": "ann", "to": "bob", "payload": "x"})["ok"]
        until((inboxes / "bob.inbox.jsonl").exists)
        daemon.send_signal(signal.SIGTERM)
        out, message = daemon.communicate(timeout=PATIENCE)
        assert (0, b"") == (daemon.returncode, out), message.decode()
    assert (shell.home / "mail.db").exists()
