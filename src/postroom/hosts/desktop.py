"""Desktop notifications, shown by the program of the system (notify-send or osascript).

Text is passed as arguments: no shell reads it, and none of it is taken for an option, a script or markup.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from html import escape
from typing import TYPE_CHECKING

from ..core.presentation import one_line
from ..errors import Invalid
from ..model.message import Priority

if TYPE_CHECKING:
    from ..model.alert import Rung


PATIENCE = 10.0  # seconds for the program
MOST = 5  # letters that are listed
LONGEST = 200  # characters of a line
MACOS, OTHERS = "osascript", "notify-send"
_SCRIPT = ("on run argv", "display notification (item 2 of argv) with title (item 1 of argv)", "end run")


def program() -> str:
    """Return the path of the program that shows notifications; raise an error that says what to install."""
    name = MACOS if sys.platform == "darwin" else OTHERS
    found = shutil.which(name)
    if found is None:
        raise Invalid(
            f"needs {name}, which is not installed",
            field="--desktop",
            hint="apt install libnotify-bin, or what your system calls it; or watch --exec COMMAND",
        )
    return found


def show(path: str, rung: Rung) -> str | None:
    """Show an alert by this program; return why that failed, or None."""
    title, lines = words(rung)
    arguments = _osascript(title, lines) if path.endswith(MACOS) else _notify_send(title, lines, rung)
    try:
        done = subprocess.run(  # noqa: S603 - the system's own program; no shell reads the words
            [path, *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return f"it took longer than {PATIENCE:g} s"
    except OSError as error:
        return f"it cannot be started: {error.strerror}"
    return None if done.returncode == 0 else _why(done.returncode, done.stderr)


def _why(code: int, stderr: bytes) -> str:
    """Return the exit code and the last line of the error output, such as that no desktop runs (over ssh)."""
    last = stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return f"exit {code}: {one_line(last)[:LONGEST]}" if last else f"exit {code}"


def words(rung: Rung) -> tuple[str, list[str]]:
    """Return title and lines: the mailbox, senders and subjects. Nothing of the content of a letter."""
    lines = [one_line(f"{one.sender}: {one.subject or '(no subject)'}")[:LONGEST] for one in rung.letters[:MOST]]
    more = len(rung.letters) - MOST
    return f"Postroom: {rung.unread} unread for {rung.mailbox}", [
        *lines,
        *([f"and {more} more"] if more > 0 else []),
    ]


def _notify_send(title: str, lines: list[str], rung: Rung) -> list[str]:
    """Return the arguments of notify-send. Many desktops read the body as markup, so it is escaped."""
    is_urgent = any(letter.priority is Priority.URGENT for letter in rung.letters)
    body = "\n".join(escape(line, quote=False) for line in lines)
    return ["--app-name=Postroom", f"--urgency={'critical' if is_urgent else 'normal'}", "--", title, body]


def _osascript(title: str, lines: list[str]) -> list[str]:
    """Return the arguments of osascript. The title is ours and begins with a letter, so it is no option."""
    return [*(word for line in _SCRIPT for word in ("-e", line)), title, "\n".join(lines)]
