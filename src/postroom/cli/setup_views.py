"""What is said of a host into which Postroom is put: the diff, what was done, what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..hosts.install.planning import diff as diff_of
from ..mcp.sdk import INSTALL
from .answers import sayable
from .escape import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..hosts.install.layouts import Order
    from ..hosts.install.planning import Change
    from .answers import Screen

_COLOURS = {"+": "\033[32m", "-": "\033[31m", "@": "\033[36m"}
_TOLD = {
    "unchanged": "All of it is there already.",
    "absent": "Nothing of ours is there.",
    "declined": "Nothing was written.",
    "in place": "All of it is in place.",
    "incomplete": "Not all of it is in place.",
    "elsewhere": "It is in place, from a marketplace.",
    "twice": "It is there twice: what is new would be shown twice.",
}
_NEXT = {
    "claude": ("Start a session of Claude Code, or type /reload-plugins in one that runs.",),
    "codex": (
        "Start Codex and trust the hooks of Postroom: it asks when it starts; later, type /hooks.",
        "Until you trust them, none of them runs.",
    ),
    "gemini": ("Start Gemini CLI, in a folder that you trust.",),
}
_IN_PROJECT = {
    "claude": "It is loaded once you trust the folder, and the MCP server once you allow it.",
    "codex": "It is read once you trust the folder.",
    "gemini": "It is read once you trust the folder.",
}


def plain_change(change: Change) -> dict[str, Any]:
    action = "made" if change.before is None else "removed" if change.after is None else "changed"
    return {"path": sayable(change.path), "action": action, "diff": diff_of([change])}


def next_steps(order: Order, outcome: str) -> list[str]:
    """What to do now, where anything is left to do."""
    steps: list[str] = []
    if outcome == "written":
        steps += [*_NEXT[order.host], *([_IN_PROJECT[order.host]] if order.project else [])]
    if outcome in {"incomplete", "absent"}:
        steps += [f"postroom install {order.host} puts it in place."]
    if not order.with_server and outcome not in {"declined", "elsewhere"}:
        steps += [f'The MCP server is left out: it needs {INSTALL} (in a clone: ".[mcp]"). Then install again.']
    return steps


def diff(screen: Screen, data: Mapping[str, Any]) -> str:
    lines = [one_line(line) for change in data["changes"] for line in change["diff"].splitlines()]
    shown = "".join(f"{_coloured(line) if screen.colour else line}\n" for line in lines)
    return shown + "".join(f"{line}\n" for line in data["next"])


def told(_screen: Screen, data: Mapping[str, Any]) -> str:
    lines = [f"{change['action'].capitalize()}: {one_line(change['path'])}" for change in data["changes"]]
    if data["outcome"] in _TOLD:
        lines.append(_TOLD[data["outcome"]])
    lines += [f"{one_line(one['path'])} {_whereabouts(one)}." for one in data.get("programs", ())]
    return "".join(f"{line}\n" for line in [*lines, *data["next"]])


def _whereabouts(program: Mapping[str, Any]) -> str:
    if program["there"]:
        return "is there"
    return "is not there any more" if "/" in program["path"] else "is not on the PATH"


def _coloured(line: str) -> str:
    colour = "" if line.startswith(("+++", "---")) else _COLOURS.get(line[:1], "")
    return f"{colour}{line}\033[0m" if colour else line
