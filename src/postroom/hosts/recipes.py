"""The hook entries of each host's configuration. The plugin and `install` are written from them.

This module reads and writes no files.
"""

from __future__ import annotations

import shlex
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


SECONDS = 10  # timeout of a hook that a host waits for; ours end themselves after two
LAST_SECONDS = 3  # timeout at the end of a session; Codex allows no more
# A week. A waiter starts when a session starts and when a turn ends: a session idle for longer is not woken.
WAIT = 604_800
MARGIN = 30  # seconds by which the waiter ends before the host would end it


class Recipe(NamedTuple):
    """The events of one host at which our hook and our waiter are called."""

    events: tuple[str, ...]  # at which the host calls the hook and waits for it
    waits: tuple[str, ...]  # at which the host also starts a waiter, without waiting for it
    unwaited: Mapping[str, Any]  # the fields by which this host starts a hook without waiting
    unit: int = 1  # timeout units per second
    exec_form: bool = False  # whether it takes a program and its arguments, or a line for a shell


RECIPES = {
    "claude": Recipe(
        events=("SessionStart", "UserPromptSubmit", "PostToolBatch", "Stop", "SessionEnd"),
        # Also at each prompt (an alert arrives as one, too): an interrupted or failed turn has no Stop event.
        waits=("SessionStart", "UserPromptSubmit", "Stop"),
        unwaited={"asyncRewake": True},
        exec_form=True,
    ),
    "codex": Recipe(
        events=("SessionStart", "UserPromptSubmit", "PostToolUse", "Stop", "SessionEnd"),
        waits=("SessionStart", "Stop"),
        unwaited={"async": True},
    ),
    "gemini": Recipe(
        events=("SessionStart", "BeforeAgent", "AfterTool", "AfterAgent", "SessionEnd"),
        waits=(),
        unwaited={},
        unit=1000,
    ),
}


def hooks(host: str, program: Sequence[str], options: Sequence[str] = ()) -> dict[str, list[dict[str, Any]]]:
    """Return the value of `hooks` in this host's file.

    `program` is the command that starts Postroom; `options`, such as `--as coder`, are added to every call.
    """
    recipe = RECIPES[host]
    called = [*program, "hook", host, *options]
    waits = [*called, "--wait", "--timeout", f"{WAIT - MARGIN}s"]
    found = {}
    for event in recipe.events:
        entries = [_entry(recipe, host, called, LAST_SECONDS if event == "SessionEnd" else SECONDS)]
        if event in recipe.waits:
            entries.append({**_entry(recipe, host, waits, WAIT), **recipe.unwaited})
        found[event] = [{"hooks": entries}]
    return found


def mcp_server(program: Sequence[str], options: Sequence[str] = ()) -> dict[str, Any]:
    """Return the entry of our MCP server in a host's list of servers."""
    return {"command": program[0], "args": [*program[1:], "mcp", *options]}


def words_of(entry: Mapping[str, Any]) -> list[str]:
    """Return the command of a hook or server as words; the entry holds arguments, or a line for a shell."""
    command, args = entry.get("command"), entry.get("args")
    if not isinstance(command, str):
        return []
    try:
        return [command, *map(str, args)] if isinstance(args, list) else shlex.split(command)
    except ValueError:  # an unclosed quote
        return [command]


def is_ours(host: str, entry: Mapping[str, Any]) -> bool:
    """Return whether a hook entry is ours: it calls `postroom hook HOST`, from any folder."""
    words = words_of(entry)
    at = next((at for at, pair in enumerate(pairwise(words)) if pair == ("hook", host)), 0)
    before = [word.rpartition("/")[2] for word in words[:at]]
    return before[-1:] == ["postroom"]


def _entry(recipe: Recipe, host: str, words: Sequence[str], seconds: int) -> dict[str, Any]:
    fields: dict[str, Any]
    if recipe.exec_form:
        fields = {"type": "command", "command": words[0], "args": list(words[1:])}
    else:
        fields = {"type": "command", "command": shlex.join(words)}
    if host == "gemini":
        fields = {"name": "postroom", **fields}
    return fields | {"timeout": seconds * recipe.unit}
