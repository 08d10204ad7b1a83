"""What is said of a host into which Postroom is put: which files, the diff, what was done, what to do next.

Files in a folder of our own are named in one line: nobody reads two hundred lines before a yes. Of what others
have a part in, every line is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..hosts.install.planning import diff as diff_of
from ..mcp.sdk import APART, INSTALL, is_beside_nanobot
from .answers import sayable
from .escape import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..hosts.install.layouts import Order
    from ..hosts.install.planning import Change
    from .answers import Screen

_COLOURS = {"+": "\033[32m", "-": "\033[31m", "@": "\033[36m"}
_WOULD = {"made": "Would make", "changed": "Would change", "removed": "Would remove"}
_DONE = {action: action.capitalize() for action in _WOULD}
_TOLD = {
    "unchanged": "All of it is there already.",
    "absent": "Nothing of Postroom is in {place}.",
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
        need = APART if is_beside_nanobot() else f'it needs {INSTALL} (in a clone: ".[mcp]")'
        steps += [f"The MCP server is left out: {need}. Then install again."]
    return steps


def diff(own: str, screen: Screen, data: Mapping[str, Any]) -> str:
    """All of it, line by line. `own`: a folder that is ours alone; empty where there is none."""
    return _text([*_files(data["changes"], own, _WOULD), *_diffs(screen, data["changes"]), *data["next"]])


def brief(own: str, runs: str, screen: Screen, data: Mapping[str, Any]) -> str:
    """The same for who is asked next, without new files of our own. `runs`: what those would start."""
    shown = [change for change in data["changes"] if change["action"] == "changed" or not _is_in(own, change)]
    is_new = any(change["action"] == "made" for change in data["changes"] if _is_in(own, change))
    hint = [f"The new files start {one_line(runs)}; --dry-run shows every line of them."] if is_new else []
    files = _files(data["changes"], own, _WOULD)
    return _text([*files, *hint, *_diffs(screen, shown), *data["next"]])


def told(own: str, _screen: Screen, data: Mapping[str, Any]) -> str:
    lines = [*_files(data["changes"], own, _DONE)]
    if data["outcome"] in _TOLD:
        lines.append(_TOLD[data["outcome"]].format(place=one_line(data["place"])))
    lines += [f"{one_line(one['path'])} {_whereabouts(one)}." for one in data.get("programs", ())]
    return _text([*lines, *data["next"]])


def _files(changes: Sequence[Mapping[str, Any]], own: str, words: Mapping[str, str]) -> Iterator[str]:
    for action, word in words.items():
        these = [change for change in changes if change["action"] == action]
        inside = [one_line(change["path"].removeprefix(f"{own}/")) for change in these if _is_in(own, change)]
        if inside:
            yield f"{word}, in {one_line(own)}: {', '.join(inside)}"
        yield from (f"{word}: {one_line(change['path'])}" for change in these if not _is_in(own, change))


def _is_in(own: str, change: Mapping[str, Any]) -> bool:
    return bool(own) and change["path"].startswith(f"{own}/")


def _diffs(screen: Screen, changes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for line in (one_line(line) for change in changes for line in change["diff"].splitlines()):
        yield _coloured(line) if screen.colour else line


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _whereabouts(program: Mapping[str, Any]) -> str:
    if program["there"]:
        return "is there"
    return "is not there any more" if "/" in program["path"] else "is not on the PATH"


def _coloured(line: str) -> str:
    colour = "" if line.startswith(("+++", "---")) else _COLOURS.get(line[:1], "")
    return f"{colour}{line}\033[0m" if colour else line
