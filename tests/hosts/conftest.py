"""Every test of hosts has a user with a home, a project and a room of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.shell import Shell
from tests.hosts.hosting import Place
from tests.hosts.places import HOSTS, THEIRS, Home


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# Calls whose lines are counted, which takes four times as long: one for each moment.
COUNTED = (
    "claude-session-start-resume",
    "claude-post-tool-batch",
    "claude-stop",
    "codex-session-start-startup",
    "codex-stop",
    "gemini-before-agent",
    "gemini-after-agent",
)


@pytest.fixture
def shell(tmp_path: Path, request: pytest.FixtureRequest) -> Shell:
    """For single calls: quicker than a host. Of many alike, the lines of a few are counted."""
    _, is_one_of_many, which = request.node.name.removesuffix("]").partition("[")
    shell = Shell(tmp_path, measured=not is_one_of_many or which in COUNTED, durable=False)
    mine = ("INBOX_", "CLAUDE", "CODEX_", "GEMINI_")
    shell.environment = {name: text for name, text in shell.environment.items() if not name.startswith(mine)}
    shell.environment["POSTROOM_HOOK_SECONDS"] = "30"  # a busy machine is not the point
    return shell


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME"):
        monkeypatch.delenv(name, raising=False)
    return Home(tmp_path)


@pytest.fixture(params=HOSTS)
def host(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def theirs(home: Home, host: str) -> Home:
    """A home in which the host is used already."""
    for path, text in THEIRS[host].items():
        home.put(path, text, 0o640)
    return home
