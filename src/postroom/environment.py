"""The process's surroundings: environment variables, the user's folders, the project's room, the boot id.

It does not know what a setting means (`settings.py` does). It imports next to nothing, because `cli/quick.py` pays
for it each time.
"""

from __future__ import annotations

import os
import sys
from _signal import SIG_BLOCK, SIG_UNBLOCK, SIGINT, pthread_sigmask  # type: ignore[import-not-found] # `signal` loads enum

PREFIX = "POSTROOM_"
AUTH_TOKEN = "POSTROOM_AUTH_TOKEN"  # noqa: S105 - a variable's name; a secret is never an argument
PROJECT = ".postroom"  # a folder in a project; its room is found from anywhere below it
ROOM = "room.db"
# Variables that a host of agents sets for the programs its agents start, besides those of HOSTS_OWN.
HOST_MARKS = (
    "CODEX_THREAD_ID",
    "CODEX_SANDBOX",
    "CODEX_SANDBOX_NETWORK_DISABLED",
    "GEMINI_CLI",
    "GEMINI_SESSION_ID",
)
HOSTS_OWN = ("CLAUDE_CODE_", "CLAUDECODE")  # prefixes of variables that belong to one host session

_boot = ""


class Uninterrupted:
    """A block that Ctrl-C does not interrupt: a C library whose loading is interrupted may crash the program."""

    def __enter__(self) -> None:
        pthread_sigmask(SIG_BLOCK, {SIGINT})

    def __exit__(self, *how: object) -> None:
        pthread_sigmask(SIG_UNBLOCK, {SIGINT})


def environment() -> dict[str, str]:
    """Return all variables of the environment."""
    return dict(os.environ)


def variable(name: str) -> str:
    """Return a variable's value; empty when it is not set."""
    return os.environ.get(name, "")


def first_variable(*names: str) -> str:
    """Return the value of the first of these variables that is set; empty when none is."""
    return next((value for name in names if (value := os.environ.get(name, ""))), "")


def whole_path(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def config_path(environment: dict[str, str]) -> str:
    return os.path.join(_xdg(environment, "XDG_CONFIG_HOME", ".config"), "postroom", "config.toml")


def units_folder() -> str:
    """Return the folder in which the user's own systemd looks for units."""
    return os.path.join(_xdg(environment(), "XDG_CONFIG_HOME", ".config"), "systemd", "user")


def own_room(environment: dict[str, str]) -> str:
    """Return the path of the user's own room, which is used where no other is named."""
    return os.path.join(_xdg(environment, "XDG_DATA_HOME", ".local/share"), "postroom", ROOM)


def human_key_file() -> str:
    """Return the usual file of the person's private key."""
    return os.path.join(_xdg(environment(), "XDG_CONFIG_HOME", ".config"), "postroom", "human.key")


def agent_session() -> str:
    """Return the variable by which a host of agents shows that it started this process; empty if none does."""
    return next((name for name in os.environ if name.startswith(HOSTS_OWN) or name in HOST_MARKS), "")


def state_folder(what: str) -> str:
    """Return a folder of the user's state: `drafts` that were not sent, `sessions` of agent hosts."""
    return os.path.join(_xdg(environment(), "XDG_STATE_HOME", ".local/state"), "postroom", what)


def clone_folder() -> str:
    """Return the clone from which this Postroom was installed; empty where it came from an index."""
    import json  # noqa: PLC0415 - this module is on the quick path, and only hints need these
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415
    from urllib.parse import unquote, urlsplit  # noqa: PLC0415

    try:
        origin = json.loads(distribution("postroom").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:  # it runs from its source
        return ""
    folder = unquote(urlsplit(origin.get("url", "")).path)
    return folder if "dir_info" in origin and os.path.isdir(folder) else ""


def how_to_install(extra: str) -> str:
    """Return the command that adds an extra of Postroom to this environment, from where Postroom came."""
    from shlex import quote  # noqa: PLC0415 - only hints need it

    package = clone_folder() or "postroom"
    return f"{quote(sys.executable)} -m pip install {quote(f'{package}[{extra}]')}"


def without_host(environment: dict[str, str]) -> dict[str, str]:
    """Return the environment without the variables of a host's session.

    A child process that inherits them would act for that session, to which it does not belong.
    """
    return {name: value for name, value in environment.items() if not name.startswith(HOSTS_OWN)}


def project_room(folder: str | None = None, passed_by: list[tuple[str, str]] | None = None) -> str | None:
    """Return the room of the project around a folder (default: the working one): the nearest `.postroom/room.db`.

    One that belongs to another user is skipped, because a stranger could read our mail by making a folder; so is a
    link. Skipped paths and the reasons go into `passed_by`. If the `.postroom` folder is ours and holds no room,
    its path is returned all the same: opening it then reports that the room is gone.
    """
    try:
        here = os.getcwd() if folder is None else os.path.abspath(folder)
    except OSError:  # the working folder was deleted
        return None
    while True:
        home = f"{here.rstrip('/')}/{PROJECT}"
        path, fault = home, _fault(home)
        if fault == "":
            path = f"{home}/{ROOM}"
            fault = _fault(path) or "" if os.path.isdir(home) else None
        if fault == "":
            return path
        if fault and passed_by is not None:
            passed_by.append((path, fault))
        if here in {"/", ""}:
            return None
        here = os.path.dirname(here)


def boot_id() -> str:
    """Return an id of this boot of this machine."""
    global _boot  # noqa: PLW0603 - it never changes while we live
    _boot = _boot or _read_boot_id()
    return _boot


def _read_boot_id() -> str:
    if sys.platform == "linux":
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            return file.read().strip()
    import subprocess  # noqa: PLC0415 - heavy, and not needed on Linux

    process = subprocess.run(
        ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=True
    )
    return process.stdout.strip()


def _fault(path: str) -> str | None:
    """Return why a path is not used; empty if it is ours and no link, None if it does not exist."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    if found.st_mode & 0o170000 == 0o120000:
        return "is a link"
    return "" if found.st_uid == os.geteuid() else "belongs to another user"


def _xdg(environment: dict[str, str], name: str, fallback: str) -> str:
    """Return the folder that the variable names, or the fallback; as XDG demands, a relative path is ignored."""
    named = environment.get(name, "")
    return named if named.startswith("/") else os.path.join(os.path.expanduser("~"), fallback)
