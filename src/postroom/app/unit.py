"""The systemd unit of the user that runs `postroom serve`: its place, its text, and what systemd says of it.

Nothing here needs systemd: the commands to run are shown.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from ..environment import units_folder
from ..errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Sequence


NAME = "postroom.service"
FOLDER = "postroom-service"  # the unit's working folder: empty; systemd makes and removes it
MARK = "# Written by `postroom service install`."
AFTER_REPLACING = (
    "systemctl --user daemon-reload",
    f"systemctl --user enable {NAME}",
    f"systemctl --user restart {NAME}",
)
AFTER_INSTALL = ("systemctl --user daemon-reload", f"systemctl --user enable --now {NAME}")
STAY = "loginctl enable-linger"  # else the server ends when its user logs out
BEFORE_UNINSTALL = f"systemctl --user disable --now {NAME}"  # systemd cannot disable a unit without its file
AFTER_UNINSTALL = ("systemctl --user daemon-reload",)

# The restrictions that a user's manager can enforce. More (ProtectSystem and the like) need the system's.
_TEXT = f"""{MARK} It may be written anew; for changes of your own: systemctl --user edit {NAME}
[Unit]
Description=Postroom, mail for AI agents

[Service]
ExecStart={{command}}
RuntimeDirectory={FOLDER}
RuntimeDirectoryMode=0700
WorkingDirectory=%t/{FOLDER}
Restart=on-failure
RestartSec=2
TimeoutStopSec=10
UMask=0077
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
SystemCallArchitectures=native

[Install]
WantedBy=default.target
"""


def path() -> str:
    return os.path.join(units_folder(), NAME)


def text(words: Sequence[str]) -> str:
    """Return the text of a unit that runs `postroom serve` with these arguments."""
    program = _program()
    if "$" in program[0]:  # systemd knows no escape for it in the first word
        raise Invalid(f"{program[0]!a} cannot be written in a unit", field="program")
    return _TEXT.format(command=" ".join(quoted(word) for word in (*program, "serve", *words)))


def quoted(word: str) -> str:
    """Return a word for ExecStart, which knows escapes, specifiers (%) and variables ($)."""
    if not word.isprintable():
        raise Invalid(f"{word!a} cannot be written in a unit", field="words")
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"'


def room_of(unit: str) -> str | None:
    """Return the room that a unit of ours serves."""
    line = next((line for line in unit.splitlines() if line.startswith("ExecStart=")), "")
    try:
        words = shlex.split(line.removeprefix("ExecStart="))
        room = words[words.index("--room") + 1]
    except (ValueError, IndexError):  # it was edited
        return None
    return room.replace("%%", "%").replace("$$", "$")


def running() -> str | None:
    """Return how systemd uses the unit (active, activating, enabled); None if it is unused, or without systemd."""
    answers = (systemctl_says("is-active"), systemctl_says("is-enabled"))
    return next((state for state in answers if state in {"active", "activating", "enabled"}), None)


def systemctl_says(question: str) -> str | None:
    """Return systemd's answer to `is-active` or `is-enabled`; None if there is no systemd."""
    program = shutil.which("systemctl")
    if program is None:
        return None
    words = [program, "--user", question, NAME]
    try:
        answer = subprocess.run(words, capture_output=True, text=True, timeout=5, check=False)  # noqa: S603 - fixed
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None


def _program() -> tuple[str, ...]:
    """Return how this program is started, independent of the working folder and PATH."""
    script = os.path.join(os.path.dirname(os.path.abspath(sys.executable)), "postroom")
    return (script,) if os.access(script, os.X_OK) else (os.path.abspath(sys.executable), "-P", "-m", "postroom")
