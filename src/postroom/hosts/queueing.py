"""Codex takes messages for a session from outside: `codex queue` puts one into the queue of a thread, and it is
taken up after the turn that is under way, or at once.

It says that all is well even where no Codex is there to take it. So whether the host lives is looked at first.
"""

from __future__ import annotations

import os
import signal
import subprocess
from shutil import which
from typing import TYPE_CHECKING

from ..whereabouts import environment, without_host
from .processes import is_alive

if TYPE_CHECKING:
    from .sessions import Session

SECONDS = 30.0
_LONGEST_COMPLAINT = 300


def queue(session: Session, text: str) -> str:
    """Put a text into the session's queue: one that every user of the machine may see, for it takes it as an
    argument. Gives why it did not get there; empty when it did.
    """
    if not is_alive(session.pid, session.began):
        return "the host of the session has ended"
    program = _program(session.pid)
    if program is None:
        return "codex is not on the PATH"
    words = [program, "queue", "--thread", session.id, "--message", text]
    try:
        running = subprocess.Popen(  # noqa: S603 - Codex itself
            words,
            env=without_host(environment()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # it ends with all that it started: one from npm starts another
        )
    except OSError as broken:
        return f"codex cannot be started: {broken.strerror}"
    with running:
        try:
            told = running.communicate(timeout=SECONDS)[1].decode("utf-8", "replace")
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            return f"codex queue did not end in {SECONDS:g} s"
    why = " ".join(told.split())[-_LONGEST_COMPLAINT:]
    return f"codex queue ended with {running.returncode}: {why}" if running.returncode else ""


def _program(host: int) -> str | None:
    """The program of the host itself, where the system tells: another one on the PATH may be older."""
    try:
        running = os.readlink(f"/proc/{host}/exe")
    except OSError:
        running = ""
    is_codex = os.path.basename(running).partition("-")[0] == "codex" and os.access(running, os.X_OK)
    return running if is_codex else which("codex")
