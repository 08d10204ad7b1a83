"""A terminal with a person at it: a pseudo-terminal in which the program runs, and what it showed."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.cli.shell import PATIENCE, PROGRAM, Shell, wait_until_asleep
from tests.coverage import uncounted

# The first program of a session makes the terminal its own, so that Ctrl-C on the keyboard reaches it.
ENTER = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"


class Terminal:
    """Runs one command in a terminal of its own. Where it is to be interrupted anywhere, its lines are not counted:
    the counting itself would be.
    """

    def __init__(
        self,
        shell: Shell,
        *words: str,
        columns: int = 80,
        lines: int = 40,
        counted: bool = True,
        program: Sequence[str] = PROGRAM,
        **variables: str,
    ) -> None:
        self.shown = b""
        self._screen, theirs = os.openpty()
        self.resize(columns, lines)
        self.before = self.after = termios.tcgetattr(theirs)  # how the keyboard is, before and after the program
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", ENTER, *program, *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env=(shell.environment if counted else uncounted(shell.environment)) | variables,
            cwd=shell.home,
        )
        os.close(theirs)

    def read_until(self, text: str) -> None:
        """Look on until this is shown."""
        end = time.monotonic() + PATIENCE
        while text.encode() not in self.shown:
            self._check(end)
            assert self._look(), self.shown

    def type(self, text: str) -> None:
        os.write(self._screen, text.encode())

    def interrupt(self) -> None:
        """Ctrl-C, and again where it came before there was a program to hear it."""
        end = time.monotonic() + PATIENCE
        while self._process.poll() is None:
            self._check(end)
            self.type("\x03")
            again = time.monotonic() + 1.0
            while self._process.poll() is None and time.monotonic() < again:
                if select.select([self._screen], [], [], 0.05)[0] and not self._look():
                    self._process.wait(PATIENCE)

    def resize(self, columns: int, lines: int = 40) -> None:
        """The window gets another size; a program in it is told."""
        fcntl.ioctl(self._screen, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def wait_until_asleep(self) -> None:
        wait_until_asleep(self._process.pid)

    def let_run(self, seconds: float) -> None:
        """For so long at most."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def _check(self, end: float) -> None:
        if time.monotonic() > end:
            raise TimeoutError(self.shown[-2000:])

    def finish(self) -> tuple[int, str]:
        """How it ended, and all it showed."""
        end = time.monotonic() + PATIENCE
        while self._look():
            self._check(end)
        code = self._process.wait(PATIENCE)
        self.after = termios.tcgetattr(self._screen)
        os.close(self._screen)
        return code, self.shown.decode().replace("\r\n", "\n")

    def _look(self) -> bool:
        ready, _, _ = select.select([self._screen], [], [], PATIENCE)
        if not ready:
            self._process.kill()
            return False
        try:
            seen = os.read(self._screen, 65536)
        except OSError:  # the other side is gone
            return False
        self.shown += seen
        return bool(seen)


def show(shell: Shell, *words: str, columns: int = 80, **variables: str) -> tuple[int, str]:
    return Terminal(shell, *words, columns=columns, lines=40, counted=True, **variables).finish()


def editor(folder: Path, text: str, code: int = 0) -> str:
    """An editor that writes this and ends so."""
    program = folder / "editor.sh"
    program.write_text(f"#!/bin/sh\nprintf '%s' '{text}' > \"$1\"\nexit {code}\n", encoding="utf-8")
    program.chmod(0o755)
    return str(program)
