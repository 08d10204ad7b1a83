"""The post room as a systemd unit of the user: its text, and the file that holds it. A stranger's file stays.

Nothing here needs systemd; the lines that it takes are told, not run.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..environment import units_folder
from ..errors import Invalid, NameTaken
from ..store.address import folder_of, place_of

if TYPE_CHECKING:
    from collections.abc import Sequence


NAME = "postroom.core"
FOLDER = "postroom-service"  # the unit's working folder: empty; systemd makes and removes it
MARK = "# Written by `postroom service install`."
AFTER_REPLACING = (
    "systemctl --user daemon-reload",
    f"systemctl --user enable {NAME}",
    f"systemctl --user restart {NAME}",
)
AFTER_INSTALL = ("systemctl --user daemon-reload", f"systemctl --user enable --now {NAME}")
STAY = "loginctl enable-linger"  # else it ends when its user logs out
BEFORE_UNINSTALL = f"systemctl --user disable --now {NAME}"  # without its file systemd cannot
AFTER_UNINSTALL = ("systemctl --user daemon-reload",)

Outcome = Literal["written", "replaced", "unchanged"]

# What a user's own manager can enforce. More (ProtectSystem and the like) needs the system's.
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
    """The unit that runs `postroom serve` with these words."""
    program = _program()
    if "$" in program[0]:  # systemd would not undo our escape there
        raise Invalid(f"{program[0]!a} cannot stand in a unit", field="program")
    return _TEXT.format(command=" ".join(quoted(word) for word in (*program, "serve", *words)))


def quoted(word: str) -> str:
    """One word of ExecStart, which knows escapes, specifiers (%) and variables ($)."""
    if not word.isprintable():
        raise Invalid(f"{word!a} cannot stand in a unit", field="words")
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"'


def absolute(address: str) -> str:
    """A room's address that means the same from anywhere."""
    place = place_of(address)
    if place is None:
        raise Invalid("a room in memory is gone when it ends", field="room", hint="name a file")
    if folder_of(address) is not None:
        return f"files:{os.path.abspath(place)}?{address.partition('?')[2]}"
    return f"sqlite:{os.path.abspath(place)}"


def held() -> str | None:
    """What the file says; empty when it is not ours. None: it is not there."""
    where = path()
    if not os.path.lexists(where):
        return None
    try:
        descriptor = os.open(where, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, encoding="utf-8") as file:
            params = file.read()
    except (OSError, UnicodeDecodeError):  # a link, a folder, no text: not ours
        return ""
    return params if params.startswith(MARK) else ""


def room_of(name: str) -> str | None:
    """The room that a unit of ours serves."""
    line = next((line for line in name.splitlines() if line.startswith("ExecStart=")), "")
    try:
        words = shlex.split(line.removeprefix("ExecStart="))
        room = words[words.index("--room") + 1]
    except (ValueError, IndexError):  # somebody changed it
        return None
    return room.replace("%%", "%").replace("$$", "$")


def outcome(before: str | None, words: str) -> Outcome:
    """What installing this would be, where the file says that."""
    if before is None:
        return "written"
    return "unchanged" if before == words else "replaced"


def install(words: str) -> Outcome:
    """Put it where systemd looks for it."""
    before = held()
    _check_ours(before)
    if before == words:
        return "unchanged"
    where = path()
    draft = f"{where}.{os.getpid()}"
    for folder in reversed(Path(where).parents):  # whoever may write in one of them could put another unit there
        folder.mkdir(mode=0o700, exist_ok=True)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(draft, flags, 0o600), "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o600)  # the umask may have taken more away
            file.write(words)
        os.replace(draft, where)
    finally:
        if os.path.lexists(draft):
            os.unlink(draft)
    return outcome(before, words)


def running() -> str | None:
    """How systemd still uses it: active, enabled. None: it does not, or there is none to ask."""
    answers = (systemctl_says("is-active"), systemctl_says("is-enabled"))
    return next((params for params in answers if params in {"active", "activating", "enabled"}), None)


def uninstall() -> bool:
    """Was there one?"""
    before = held()
    if before is None:
        return False
    _check_ours(before)
    os.unlink(path())
    return True


def systemctl_says(question: str) -> str | None:
    """What systemd says: `is-active`, `is-enabled`. None where there is none to ask."""
    program = shutil.which("systemctl")
    if program is None:
        return None
    words = [program, "--user", question, NAME]
    try:
        answer = subprocess.run(words, capture_output=True, text=True, timeout=5, check=False)  # noqa: S603 - fixed
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None


def _check_ours(words: str | None) -> None:
    if words == "":
        raise NameTaken(f"{path()} is there already and not ours", field="unit", hint="move it away first")


def _program() -> tuple[str, ...]:
    """How this program is started, whatever the working folder and PATH."""
    script = os.path.join(os.path.dirname(os.path.abspath(sys.executable)), "postroom")
    return (script,) if os.access(script, os.X_OK) else (os.path.abspath(sys.executable), "-P", "-m", "postroom")
