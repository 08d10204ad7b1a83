"""A pane of tmux with a person at it: what stands on the screen now, and keys as tmux sends them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import pytest

from tests.cli.shell import PATIENCE, PROGRAM, Shell
from tests.coverage import uncounted
from tests.daemons import until

MUST_RUN = "POSTROOM_TMUX_MUST_RUN"  # set by tools/check.py: where tmux can be installed, skipping proves nothing


def excuse(must_run: bool, find: Callable[[str], str | None] = shutil.which, user: int = os.geteuid()) -> str:
    """Why a test with tmux may be skipped here; empty where there is no excuse."""
    if must_run and user == 0 and find("apt-get") is not None:
        return ""
    return "tmux is not installed"


def need_tmux() -> None:
    if shutil.which("tmux") is None:
        reason = excuse(os.environ.get(MUST_RUN) == "1")
        assert reason, "tmux is missing, and `make shells` could have installed it"
        pytest.skip(reason)


def planted(code: str) -> list[str]:
    """The program, in which something is otherwise."""
    return [sys.executable, "-c", f"{code}\nfrom postroom.cli.main import entry\nentry()"]


class Pane:
    """Runs one program in a tmux of its own."""

    def __init__(
        self,
        shell: Shell,
        *words: str,
        columns: int = 80,
        lines: int = 24,
        program: Sequence[str] = PROGRAM,
        counted: bool = False,
        **variables: str,
    ) -> None:
        need_tmux()
        self._folder = Path(tempfile.mkdtemp(prefix="pane-"))  # a socket's path is short
        self._environment = (shell.environment if counted else uncounted(shell.environment)) | variables
        self._environment.pop("TMUX", None)
        self._home = shell.home
        size = ["-x", str(columns), "-y", str(lines)]
        self.tmux("new-session", "-d", *size, *program, *words)

    def tmux(self, *words: str) -> str:
        command = ["tmux", "-S", str(self._folder / "s"), "-f", os.devnull, *words]
        done = subprocess.run(
            command,
            env=self._environment,
            cwd=self._home,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return done.stdout

    def keys(self, *names: str) -> None:
        """Keys by tmux's names, one after the other; text stands for itself."""
        for name in names:
            self.tmux("send-keys", name)

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-l", text)

    def paste(self, text: str) -> None:
        """As a terminal pastes that says so."""
        self.tmux("set-buffer", text)
        self.tmux("paste-buffer", "-p")

    def shown(self) -> str:
        return self.tmux("capture-pane", "-p")

    def see(self, *texts: str, gone: str = "", patience: float = PATIENCE) -> str:
        """Look on until all of these stand there, and that does not."""

        def seen() -> str:
            shown = self.shown()
            return shown if all(text in shown for text in texts) and not (gone and gone in shown) else ""

        return until(seen, patience, lambda: f"{texts!r}, without {gone!r}:\n{self.shown()}")

    def state(self, name: str) -> str:
        """What tmux says of its pane: alternate_on, cursor_flag, wrap_flag, pane_dead …"""
        return self.tmux("display-message", "-p", f"#{{{name}}}").strip()

    def wait_for_end(self) -> None:
        until(lambda: not self.tmux("list-panes"), show=self.shown)  # the server ends with its last program

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *how: object) -> None:
        self.tmux("kill-server")
        shutil.rmtree(self._folder, ignore_errors=True)
