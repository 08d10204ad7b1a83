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
from pathlib import Path

from tests.cli.shell import PATIENCE, PROGRAM, Desk

# The first program of a session makes the terminal its own, so that Ctrl-C on the keyboard reaches it.
ENTER = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"


class Terminal:
    """Runs one command in a terminal of its own."""

    def __init__(self, desk: Desk, *words: str, columns: int = 80, **variables: str) -> None:
        self.shown = b""
        self._screen, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-c", ENTER, *PROGRAM, *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env=desk.environment | variables,
            cwd=desk.home,
        )
        os.close(theirs)

    def read_until(self, text: str) -> None:
        """Look on until this is shown."""
        end = time.monotonic() + PATIENCE
        while text.encode() not in self.shown:
            assert time.monotonic() < end, self.shown
            assert self._look(), self.shown

    def type(self, text: str) -> None:
        os.write(self._screen, text.encode())

    def finish(self) -> tuple[int, str]:
        """How it ended, and all it showed."""
        end = time.monotonic() + PATIENCE
        while self._look():
            assert time.monotonic() < end, self.shown
        code = self._process.wait(PATIENCE)
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


def show(desk: Desk, *words: str, columns: int = 80, **variables: str) -> tuple[int, str]:
    return Terminal(desk, *words, columns=columns, **variables).finish()


def editor(folder: Path, text: str, code: int = 0) -> str:
    """An editor that writes this and ends so."""
    program = folder / "editor.sh"
    program.write_text(f"#!/bin/sh\nprintf '%s' '{text}' > \"$1\"\nexit {code}\n", encoding="utf-8")
    program.chmod(0o755)
    return str(program)
