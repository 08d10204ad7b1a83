"""The real hosts from npm, each with a scripted model on this machine: what its model is told of its mail, and
that an idle session is woken. Nothing is asked of anybody else; each has a home of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom.hosts.recipes import hooks
from tests import daemons
from tests.interop.packages import require
from tests.interop.scripted_model import Model, Step

pytestmark = pytest.mark.interop
ROOT = Path(__file__).parent.parent.parent
PLUGIN = ROOT / "src" / "postroom" / "hosts" / "plugins" / "claude"
CLAUDE, CODEX, GEMINI = "@anthropic-ai/claude-code@2.1.325", "@openai/codex@0.166.0", "@google/gemini-cli@0.61.0"
PATIENCE = 90.0  # seconds; a bound, not a pace
KEY = "sk-scripted"


class User:
    """A user's home with a project, and `postroom` on the PATH: this source, whatever is installed."""

    def __init__(self, folder: Path, package: str, program: str) -> None:
        self.home, self.project = folder, folder / "shop"
        (folder / "bin").mkdir()
        self.project.mkdir()
        self.program = str(require(package, scripts=True) / "node_modules" / ".bin" / program)
        postroom_there = folder / "bin" / "postroom"
        source = Path(postroom.__file__).parent.parent
        postroom_there.write_text(
            f'#!/bin/sh\nPYTHONPATH={source} exec {sys.executable} -m postroom "$@"\n', encoding="utf-8"
        )
        postroom_there.chmod(0o755)
        mine = (
            "POSTROOM_",
            "INBOX_",
            "XDG_",
            "CLAUDE",
            "CODEX",
            "GEMINI",
            "GOOGLE",
            "ANTHROPIC",
            "OPENAI",
            "COVERAGE",
        )
        kept = {name: text for name, text in os.environ.items() if not name.startswith(mine)}
        self.environment = kept | {
            "HOME": str(folder),
            "PATH": f"{folder / 'bin'}{os.pathsep}{kept['PATH']}",
            "POSTROOM_STORE": str(folder / "room.db"),
            "POSTROOM_HOOK_SECONDS": "9",
            "TERM": "xterm-256color",
        }

    def post(self, body: str, **fields: Any) -> str:
        with postroom.open(self.home / "room.db") as room:
            return room.mailbox("ann").send("shop", body, **fields).id

    def write(self, name: str, message: Any) -> None:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(message if isinstance(message, str) else json.dumps(message), encoding="utf-8")

    def run(self, *words: str, **variables: str) -> str:
        done = subprocess.run(
            [self.program, *words],
            env=self.environment | variables,
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert 0 == done.returncode, done
        return done.stdout

    @contextmanager
    def terminal(self, *words: str, **variables: str) -> Iterator[Callable[..., str]]:
        """The host in a terminal. What it gives types keys, and says what is on the screen."""
        if shutil.which("tmux") is None:
            pytest.skip("tmux is not installed")
        tmux = ["tmux", "-S", str(self.home / "t"), "-f", "/dev/null"]
        environment = self.environment | variables

        def look(*keys: str) -> str:
            for key in keys:
                subprocess.run([*tmux, "send-keys", key], check=True, env=environment)
                time.sleep(0.5)  # a person's pace: hosts take quick keys for something pasted
            shown = subprocess.run([*tmux, "capture-pane", "-p"], capture_output=True, text=True, check=True)
            return shown.stdout

        start = [*tmux, "new-session", "-d", "-x", "140", "-y", "50", self.program, *words]
        subprocess.run(start, env=environment, cwd=self.project, check=True)
        try:
            yield look
        finally:
            subprocess.run([*tmux, "kill-server"], check=False, capture_output=True)


def until(condition: Callable[[], object], look: Callable[..., str] = str) -> None:
    daemons.until(condition, PATIENCE, look, 0.1)


def run_of(user: User, shell: str, command: str) -> list[Step]:
    """A turn: a tool, while mail comes; then four ends of the turn, before each of which urgent mail comes."""
    tool = Step(
        tool=shell,
        arguments={command: "postroom send ann --body from-the-shell"},
        before=lambda: user.post("Mid."),
    )
    return [tool, *(Step(f"End {n}.", before=lambda: user.post("Now!", priority="urgent")) for n in range(4))]


def check_run(user: User, request: list[str]) -> None:
    """What the model was told, request by request."""
    assert "1 new letter for shop" in request[0] and "Before the start." in request[0]
    assert "Mid." not in request[0] and "Mid." in request[1]
    assert [1, 2, 3] == [one.count("Now!") for one in request[2:]]  # three times held up, then let go
    with postroom.open(user.home / "room.db") as room:
        assert ["shop"] == [letter.sender for letter in room.mailbox("ann").check()]
        assert room.agent("shop").presence.left
        assert 1 == room.mailbox("shop").counts()["total"]


# -- Claude Code


@pytest.fixture
def claude(tmp_path: Path) -> User:
    user = User(tmp_path, CLAUDE, "claude")
    trusted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    about = {"hasCompletedOnboarding": True, "theme": "dark", "projects": {str(user.project): trusted}}
    user.write(".claude.json", about | {"customApiKeyResponses": {"approved": [KEY], "rejected": []}})
    user.environment |= {"ANTHROPIC_API_KEY": KEY, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    user.environment["DISABLE_AUTOUPDATER"] = "1"
    return user


CLAUDE_WORDS = ("--plugin-dir", str(PLUGIN), "--permission-mode", "default", "--allowedTools", "Bash")


@pytest.mark.parametrize("path", [PLUGIN, ROOT], ids=["plugin", "marketplace"])
def test_the_plugin_and_the_marketplace_are_valid(claude: User, path: Path) -> None:
    assert "Validation passed" in claude.run("plugin", "validate", "--strict", str(path))


def test_the_plugin_is_installed_from_the_marketplace(claude: User) -> None:
    clone = claude.project  # so that it is typed as the page has it
    shutil.copytree(ROOT / ".claude-plugin", clone / ".claude-plugin")
    shutil.copytree(PLUGIN, clone / PLUGIN.relative_to(ROOT))
    claude.environment["ANTHROPIC_BASE_URL"] = "http://127.0.0.1:9"  # nobody is there
    claude.run("plugin", "marketplace", "add", "./")
    claude.run("plugin", "install", "postroom@postroom")
    result = claude.run("plugin", "details", "postroom")
    assert "SessionStart, UserPromptSubmit, PostToolBatch, Stop, SessionEnd" in result
    assert "handoff, mail, reply" in result and "MCP servers (1)  postroom" in result


def test_claude_code_tells_its_model_and_goes_on_for_mail_that_asks(claude: User) -> None:
    claude.post("Before the start.")
    with Model("Bash", run_of(claude, "Bash", "command")) as model:
        began = time.monotonic()
        claude.run("-p", "Sort the list.", *CLAUDE_WORDS, ANTHROPIC_BASE_URL=model.url)
    check_run(claude, model.requests)
    assert time.monotonic() - began < 20 + PATIENCE / 3  # no waiter holds it up at its end


def test_claude_code_at_a_terminal_is_woken(claude: User) -> None:
    with (
        Model("Bash", [Step("First turn."), Step("Woken.")]) as model,
        claude.terminal(*CLAUDE_WORDS, ANTHROPIC_BASE_URL=model.url) as look,
    ):
        until(lambda: "manual mode" in look(), look)
        look("Sort the list.", "Enter")
        until(lambda: "First turn." in look(), look)
        claude.post("Are you there?", subject="Wake", id="m-1")
        until(lambda: len(model.requests) > 1, look)
        assert "new mail for shop; 1 letter unread" in model.requests[1] and "Are you there?" in model.requests[1]
        until(lambda: "Woken." in look(), look)
        assert 2 == len(model.requests)


def test_claude_code_whose_woken_turn_was_interrupted_is_woken_again(claude: User) -> None:
    """There is no end of a turn then, and so no hook."""
    impatient = (
        "import sys, postroom.hosts.waiter as w; w.SILENCE = 4.0; from postroom.cli.main import entry; entry()"
    )
    source = Path(postroom.__file__).parent.parent
    claude.write("bin/postroom", f"#!/bin/sh\nPYTHONPATH={source} exec {sys.executable} -c '{impatient}' \"$@\"\n")
    is_over = threading.Event()
    thinking = Step("Too late.", before=lambda: is_over.wait(PATIENCE))
    with (
        Model("Bash", [Step("First turn."), thinking, Step("Woken.")]) as model,
        claude.terminal(*CLAUDE_WORDS, ANTHROPIC_BASE_URL=model.url) as look,
    ):
        until(lambda: "manual mode" in look(), look)
        look("Sort the list.", "Enter")
        until(lambda: "First turn." in look(), look)
        claude.post("Are you there?", subject="Wake")
        until(lambda: len(model.requests) > 1, look)
        until(lambda: "Interrupted" in look("Escape"), look)
        is_over.set()
        claude.post("And now?", subject="Wake")
        until(lambda: "Woken." in look(), look)
        assert "And now?" in model.requests[2]


# -- Codex


@pytest.fixture
def codex(tmp_path: Path) -> User:
    user = User(tmp_path, CODEX, "codex")
    user.environment["SCRIPTED_KEY"] = KEY
    user.write(".codex/hooks.json", {"hooks": hooks("codex", [str(user.home / "bin" / "postroom")])})
    return user


def configure(codex: User, url: str) -> None:
    provider = f'name = "scripted"\nbase_url = "{url}/v1"\nwire_api = "responses"\nenv_key = "SCRIPTED_KEY"\n'
    about = 'model = "gpt-5"\nmodel_provider = "scripted"\n'
    about += 'approval_policy = "never"\nsandbox_mode = "danger-full-access"\n'
    trust = f'[projects."{codex.project}"]\ntrust_level = "trusted"\n'
    login = "[shell_environment_policy]\nexperimental_use_profile = false\n"
    codex.write(".codex/config.toml", f"{about}[model_providers.scripted]\n{provider}{trust}{login}")


def test_codex_tells_its_model_and_goes_on_for_mail_that_asks(codex: User) -> None:
    codex.post("Before the start.")
    command = f"PATH={codex.home}/bin:$PATH postroom send ann --body from-the-shell"
    steps = run_of(codex, "exec_command", "cmd")
    steps[0] = steps[0]._replace(arguments={"cmd": command})
    with Model("exec_command", steps) as model:
        configure(codex, model.url)
        codex.run("exec", "--skip-git-repo-check", "--dangerously-bypass-hook-trust", "Sort the list.")
    check_run(codex, model.requests)


def test_codex_at_a_terminal_is_woken(codex: User) -> None:
    def of_the_session() -> list[str]:
        return [one for one in model.requests if "Generate a concise" not in one]

    with Model("exec_command", [Step("Turn.")] * 4) as model:
        configure(codex, model.url)
        with codex.terminal("--dangerously-bypass-hook-trust") as look:
            until(lambda: "Ask Codex" in look(), look)
            look("Sort the list.", "Enter")
            until(lambda: "Turn." in look(), look)
            codex.post("Are you there?", subject="Wake", id="m-1")
            until(lambda: len(of_the_session()) > 1, look)
            assert "new mail for shop; 1 letter unread" in of_the_session()[1]
            assert "Are you there?" in of_the_session()[1]


# -- Gemini CLI


def test_gemini_tells_its_model_and_goes_on_for_mail_that_asks(tmp_path: Path) -> None:
    gemini = User(tmp_path, GEMINI, "gemini")
    gemini.write(
        ".gemini/settings.json",
        {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "privacy": {"usageStatisticsEnabled": False},
            "hooks": hooks("gemini", [str(gemini.home / "bin" / "postroom")]),
        },
    )
    gemini.post("Before the start.")
    with Model("run_shell_command", run_of(gemini, "run_shell_command", "command")) as model:
        words = ("-p", "Sort the list.", "--skip-trust", "--yolo", "-m", "gemini-2.5-flash")
        gemini.run(*words, GEMINI_API_KEY=KEY, GOOGLE_GEMINI_BASE_URL=model.url)
    check_run(gemini, model.requests)
