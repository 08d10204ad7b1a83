"""The command table: all commands by group, and the module that holds the rows and functions of each.

Only the rows of the called command are loaded.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from .shape import Command, Option


# Title of a group -> (module, its commands in the order in which they are shown). `table.MODULE` holds the rows,
# `cli.MODULE` the functions.
GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Sending": ("send", ("send", "reply", "forward", "broadcast", "handoff")),
    "Reading": ("read", ("check", "read", "wait", "counts", "digest", "sent")),
    "Working": ("work", ("claim", "ack", "fail", "reject", "release", "renew", "work")),
    "Threads": ("read", ("thread", "threads", "tagged", "conversations", "conversation", "turns")),
    "Finding": ("read", ("search",)),
    "Tasks": (
        "tasks",
        (
            "tasks", "tasks show", "tasks give", "tasks accept", "tasks admit", "tasks reject", "tasks start",
            "tasks ask", "tasks answer", "tasks complete", "tasks fail", "tasks cancel",
        ),
    ),
    "Asking": ("escalation", ("escalate", "escalations", "resolve", "waiting", "inbox")),
    "Templates": ("send", ("templates", "templates show", "templates save", "templates delete")),
    "Errands": ("send", ("unsend", "block", "unblock")),
    "Rings": ("alerts", ("watch", "rings", "rings retry")),
    "Dead letters": ("work", ("dead", "dead show", "dead revive", "dead purge")),
    "Agents": ("agents", ("agents", "agents show", "register", "heartbeat", "leave")),
    "Health": ("health", ("doctor", "stats", "top", "trace")),
    "The room": ("room", ("init", "room", "changes", "janitor", "archive", "purge")),
    "Copies": ("copies", ("copy", "export", "import", "backup", "restore")),
    "For agents": ("serve", ("mcp",)),
    "Other designs": ("edges", ("swarm install",)),
    "nanobot": ("edges", ("nanobot doctor",)),
    "Chipset": (
        "chipset",
        (
            "chipset check", "chipset hooks", "chipset dispatch", "chipset remind", "chipset activate", "chipset touch",
            "chipset report", "chipset accept", "chipset reassign", "chipset clear", "chipset nudge", "chipset answer",
            "chipset handle", "chipset note", "chipset notes", "witness",
        ),
    ),
    "Service": ("serve", ("serve", "token create", "token list", "token revoke", "token unseal")),
    "Other systems": ("peers", ("peers add", "peers list", "peers show", "peers ping", "peers trust", "peers remove")),
    "Webhooks": ("webhooks", ("webhook add", "webhook list", "webhook test", "webhook rotate", "webhook remove")),
    "Agent hosts": ("hooks", ("hook claude", "hook codex", "hook gemini")),
    "Hooks": ("hooks", ("hook session-start", "hook prompt")),
    "In your hosts": (
        "install",
        (
            "install claude", "install codex", "install gemini",
            "uninstall claude", "uninstall codex", "uninstall gemini",
        ),
    ),
    "Other hosts": ("install", ("install agent-inbox-shim", "uninstall agent-inbox-shim")),
    "Systemd": ("unit", ("service install", "service uninstall", "service status")),
    "Folders as systems": ("peers", ("mount", "unmount")),
    "This program": ("help", ("help", "completion", "version")),
}  # fmt: skip
HIDDEN = {"__complete": "help"}  # for shells, not for people
FILE_OF = {name: file for file, names in GROUPS.values() for name in names} | HIDDEN


def row(name: str) -> Command:
    """Return the row of a command."""
    rows: dict[str, Command] = _load(FILE_OF[name]).COMMANDS
    return rows[name]


def below(name: str) -> list[str]:
    """Return the second words of the commands that begin with this word."""
    return [full.removeprefix(f"{name} ") for full in FILE_OF if full.startswith(f"{name} ")]


def everywhere() -> tuple[Option, ...]:
    """Return the options that every command takes."""
    options: tuple[Option, ...] = _load("shape").EVERYWHERE
    return options


def _load(file: str) -> ModuleType:
    return import_module(f".{file}", __name__)
