"""The hooks of each host, as its configuration wants them. The plugin and `install` are written from here.

Knows no file and writes none.
"""

from __future__ import annotations

import shlex
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


SECONDS = 10  # for a hook that a host waits for; ours end themselves after two
LAST_SECONDS = 3  # at the end of a session; Codex grants no more
# A week. The waiter is armed when a session starts and when a turn ends: who stays idle for longer is not woken.
WAIT = 604_800
MARGIN = 30  # seconds by which the waiter ends before the host would end it


class Recipe(NamedTuple):
    """The events of one host in which we want to be called."""

    events: tuple[str, ...]  # where a hook is called and waited for
    waits: tuple[str, ...]  # where a waiter is started beside it, and not waited for
    unwaited: Mapping[str, Any]  # how this host says so
    unit: int = 1  # of a timeout, in one second
    exec_form: bool = False  # does it take a program and its arguments, or a line for a shell?


RECIPES = {
    "claude": Recipe(
        events=("SessionStart", "UserPromptSubmit", "PostToolBatch", "Stop", "SessionEnd"),
        # Also with a prompt, as which a ring comes, too: a turn that is interrupted or fails has no Stop.
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
    """What stands under `hooks` in this host's file. `program` is how Postroom is started, `options` are added to
    every call: `--as coder`, say.
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
    """What stands under a server's name, where a host lists its MCP servers."""
    return {"command": program[0], "args": [*program[1:], "mcp", *options]}


def is_ours(host: str, entry: Mapping[str, Any]) -> bool:
    """Did we write this hook? Known by what it calls, wherever the program lay when it was written."""
    command, args = entry.get("command"), entry.get("args")
    try:
        words = [str(command), *map(str, args)] if isinstance(args, list) else shlex.split(str(command))
    except ValueError:  # a line that no shell understands
        return False
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
