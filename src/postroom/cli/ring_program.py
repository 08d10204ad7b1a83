"""The program that a watch runs for a ring. What others wrote comes on its standard input, never in its arguments.

Nothing of a session that we may run in goes along: a child that found its socket would speak for it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..model.codec import encode
from ..service.present import harmless_json
from ..whereabouts import environment, without_host

if TYPE_CHECKING:
    from ..model.ring import Rung, RungLetter
    from .context import Context

SHELL = "/bin/sh"
GRACE = 2.0  # seconds between asking it to end and ending it


def plain_letter(letter: RungLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "from": letter.sender,
        "subject": letter.subject,
        "priority": letter.priority.name.lower(),
    }


def plain_ring(rung: Rung) -> dict[str, Any]:
    return {
        "mailbox": rung.mailbox,
        "unread": rung.unread,
        "letters": [plain_letter(letter) for letter in rung.letters],
    }


def run_program(context: Context, command: str, rung: Rung, seconds: float) -> str | None:
    """Run it to its end, or to the end of its time. Why it failed; None if it did not."""
    process = subprocess.Popen(  # noqa: S603 - the user's own program
        [SHELL, "-c", command],
        stdin=subprocess.PIPE,
        stdout=sys.stderr if context.screen.json else None,
        env=_environment(context),
        start_new_session=True,  # it ends with all that it started, and Ctrl-C is ours
    )
    try:
        process.communicate(harmless_json(encode(plain_ring(rung))) + b"\n", timeout=seconds)
    except subprocess.TimeoutExpired:
        _end(process)
        return f"it took longer than {seconds:g} s"
    except BaseException:
        _end(process)
        raise
    code = process.returncode
    return None if code == 0 else f"signal {-code}" if code < 0 else f"exit {code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """It and all that it started."""
    for final in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, final)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)


def _environment(context: Context) -> dict[str, str]:
    ours = {"POSTROOM_AGENT": context.mailbox.name, "POSTROOM_STORE": context.room.settings.store}
    return without_host(environment()) | ours
