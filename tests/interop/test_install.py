"""Postroom put into the real Claude Code, Codex and Gemini CLI, from npm: they see the plugin, the hooks and the
MCP server, and call the hooks. Nobody is logged in and no model is asked: a session ends where it would be.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from postroom.hosts.recipes import RECIPES, hooks
from tests.cli.shell import PROGRAM, Shell
from tests.daemons import until

from .packages import require, require_node_22

pytestmark = pytest.mark.skipif(not os.environ.get("POSTROOM_INTEROP"), reason="make interop runs it")

PATIENCE = 60.0  # seconds; a bound, not a pace
CLAUDE, CODEX, GEMINI = "@anthropic-ai/claude-code@2.1.325", "@openai/codex@0.166.0", "@google/gemini-cli@0.61.0"
PLUGIN = Path(__file__).parents[2] / "src" / "postroom" / "hosts" / "plugins" / "claude"
# Nothing is to be sent anywhere: whatever is tried ends at a port where nobody listens.
NOWHERE = "http://127.0.0.1:9"


class Host:
    """A host's program, and a user who has never used it."""

    def __init__(self, shell: Shell, program: Path, **variables: str) -> None:
        self._program = str(program)
        self._said = shell.home / "said"
        self.shell = shell
        self.work = shell.home / "work"
        self.work.mkdir()
        kept = {name: shell.environment[name] for name in ("HOME", "POSTROOM_STORE", "PYTHONPATH", "PATH", "TERM")}
        offline = {
            "HTTPS_PROXY": NOWHERE,
            "HTTP_PROXY": NOWHERE,
            "DISABLE_TELEMETRY": "1",
            "DISABLE_AUTOUPDATER": "1",
        }
        self.environment = kept | offline | variables

    def run(self, *words: str) -> str:
        """All that it says, until its end."""
        with self.started(*words) as process:
            process.wait(PATIENCE)
        return self.output()

    def run_until(self, is_so: Callable[[], bool], *words: str) -> str:
        """What it says until that is so; then it is ended."""
        with self.started(*words):
            until(is_so, PATIENCE, self.output)
        return self.output()

    def output(self) -> str:
        """It went into a file: who waits at a pipe waits for everybody it started, too."""
        return re.sub(r"\x1b\[[0-9;]*m", "", self._said.read_text(encoding="utf-8"))

    @contextmanager
    def started(self, *words: str, is_requested: bool = False) -> Iterator[subprocess.Popen[str]]:
        """It runs until this ends, with all that it started."""
        with self._said.open("w", encoding="utf-8") as message, subprocess.Popen(
            [self._program, *words], env=self.environment, cwd=self.work, text=True, start_new_session=True,
            stdin=subprocess.PIPE if is_requested else subprocess.DEVNULL,
            stdout=subprocess.PIPE if is_requested else message, stderr=message,
        ) as process:  # fmt: skip
            try:
                yield process
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    def has_shown(self, id: str) -> bool:
        """Was the letter put before the session?"""
        (stop,) = self.shell.json("trace", id)["stops"]
        return stop["read_at"] is not None


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, durable=False)


@pytest.fixture
def letter(shell: Shell) -> str:
    return shell.post("ann", "coder", "Hello.", subject="A word")


def install(shell: Shell, host: str) -> None:
    assert "written" == shell.json("install", host, "--agent", "coder", "--rules", "--yes")["outcome"]


# -- Claude Code


@pytest.fixture
def claude(shell: Shell) -> Host:
    return Host(shell, require(CLAUDE, scripts=True) / "node_modules" / ".bin" / "claude")


def test_claude_code_loads_the_plugin_with_hooks_and_server(claude: Host) -> None:
    install(claude.shell, "claude")
    (plugin,) = json.loads(claude.run("plugin", "list", "--json"))
    folder = claude.shell.home / ".claude" / "skills" / "postroom"
    assert {"id": "postroom@skills-dir", "enabled": True, "installPath": str(folder)}.items() <= plugin.items()
    result = claude.run("plugin", "details", "postroom@skills-dir")
    assert all(event in result for event in RECIPES["claude"].events) and "MCP servers (1)  postroom" in result
    assert re.search(r"plugin:postroom:postroom: .* mcp --as coder - ✔ Connected", claude.run("mcp", "list"))
    claude.shell.json("uninstall", "claude", "--yes")
    assert [] == json.loads(claude.run("plugin", "list", "--json"))


def test_claude_code_finds_nothing_wrong_with_the_plugin(claude: Host) -> None:
    install(claude.shell, "claude")
    for folder in (PLUGIN, claude.shell.home / ".claude" / "skills" / "postroom"):
        assert "✔ Validation passed\n" in claude.run("plugin", "validate", "--strict", str(folder))


def test_claude_code_calls_the_hooks(claude: Host, letter: str) -> None:
    install(claude.shell, "claude")
    assert "Not logged in" in claude.run("-p", "hi")
    assert claude.has_shown(letter)


# -- Codex


class AppServer:
    """`codex app-server`: what the host knows, asked over its own wire."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._number = 0
        self.ask("initialize", {"clientInfo": {"name": "postroom-tests", "version": "1"}})
        self._say({"method": "initialized"})

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        self._number += 1
        self._say({"id": self._number, "method": method, "params": params})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            reply = json.loads(line)
            if reply.get("id") == self._number:
                return reply["result"]
        raise AssertionError("it hung up")

    def _say(self, params: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(params) + "\n")
        self._process.stdin.flush()


class Codex(Host):
    @contextmanager
    def asking(self) -> Iterator[AppServer]:
        with self.started("app-server", is_requested=True) as process:
            yield AppServer(process)

    def hooks(self) -> list[dict[str, Any]]:
        """The hooks it would run; it must have nothing to say against any."""
        with self.asking() as server:
            (found,) = server.ask("hooks/list", {"cwds": [str(self.work)]})["data"]
        assert ([], []) == (found["warnings"], found["errors"])
        return list(found["hooks"])

    def trust(self) -> None:
        """As its own dialog does."""
        state = {hook["key"]: {"trusted_hash": hook["currentHash"]} for hook in self.hooks()}
        edit = {"keyPath": "hooks.state", "value": state, "mergeStrategy": "upsert"}
        with self.asking() as server:
            server.ask("config/batchWrite", {"edits": [edit], "reloadUserConfig": True})


@pytest.fixture
def codex(shell: Shell) -> Codex:
    return Codex(shell, require(CODEX) / "node_modules" / ".bin" / "codex", OPENAI_API_KEY="none")


def test_codex_lists_the_hooks_without_a_warning_and_trusts_them_only_on_request(codex: Codex) -> None:
    install(codex.shell, "codex")
    wanted = hooks("codex", PROGRAM, ("--as", "coder"))
    listed = codex.hooks()
    assert sum(len(group["hooks"]) for groups in wanted.values() for group in groups) == len(listed)
    commands = {handler["command"] for groups in wanted.values() for group in groups for handler in group["hooks"]}
    assert commands == {hook["command"] for hook in listed}
    assert {"untrusted"} == {hook["trustStatus"] for hook in listed}
    codex.trust()
    assert "unchanged" == codex.shell.json("install", "codex", "--agent", "coder", "--yes")["outcome"]
    assert {"trusted"} == {hook["trustStatus"] for hook in codex.hooks()}
    codex.shell.json("uninstall", "codex", "--yes")
    assert [] == codex.hooks()


def test_codex_lists_the_server_and_what_it_keeps_beside_it_stays(codex: Codex) -> None:
    assert "postroom" not in codex.run("mcp", "list")
    install(codex.shell, "codex")
    codex.trust()
    assert re.search(r"postroom +\S+ +mcp --as coder .*enabled", codex.run("mcp", "list"))
    config = codex.shell.home / ".codex" / "config.toml"
    codex.shell.json("uninstall", "codex", "--yes")
    assert "postroom" not in codex.run("mcp", "list") and "trusted_hash" in config.read_text(encoding="utf-8")


def test_codex_keeps_the_hooks_of_others_in_their_places(codex: Codex) -> None:
    mine = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "lint"}]}]}}
    codex.shell.home.joinpath(".codex").mkdir()
    codex.shell.home.joinpath(".codex", "hooks.json").write_text(json.dumps(mine), encoding="utf-8")
    codex.trust()
    install(codex.shell, "codex")
    (lint,) = (hook for hook in codex.hooks() if hook["command"] == "lint")
    assert "trusted" == lint["trustStatus"]


def test_codex_calls_the_hooks(codex: Codex, letter: str) -> None:
    install(codex.shell, "codex")
    words = ("exec", "--skip-git-repo-check", "--dangerously-bypass-hook-trust", "hi")
    codex.run_until(lambda: codex.has_shown(letter), *words)


# -- Gemini CLI


@pytest.fixture
def gemini(shell: Shell) -> Host:
    program = require(GEMINI) / "node_modules" / ".bin" / "gemini"
    path = f"{require_node_22().parent}:{os.environ['PATH']}"
    return Host(shell, program, PATH=path, GEMINI_API_KEY="none", GEMINI_CLI_TRUST_WORKSPACE="true")


def test_gemini_cli_starts_the_server(gemini: Host) -> None:
    install(gemini.shell, "gemini")
    assert re.search(r"✓ postroom: .* mcp --as coder \(stdio\) - Connected", gemini.run("mcp", "list"))
    gemini.shell.json("uninstall", "gemini", "--yes")
    assert "No MCP servers configured" in gemini.run("mcp", "list")


def test_gemini_cli_takes_the_settings_and_calls_the_hooks(gemini: Host, letter: str) -> None:
    settings = gemini.shell.home / ".gemini" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{\n  // mine\n  "ui": {"theme": "Default"}\n}\n', encoding="utf-8")
    install(gemini.shell, "gemini")
    message = gemini.run_until(lambda: gemini.has_shown(letter), "-p", "hi")
    assert "Invalid configuration" not in message and "// mine" in settings.read_text(encoding="utf-8")
