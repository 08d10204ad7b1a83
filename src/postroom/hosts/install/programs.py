"""Which programs a host would start, read from its configuration; and whether an MCP server there is Postroom."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = "postroom"


def programs_in(value: Any) -> Iterator[str]:
    """The program of every hook and server in it."""
    if isinstance(value, list):
        for one in value:
            yield from programs_in(one)
    elif isinstance(value, dict):
        if words := words_of(value):
            yield words[0]
        for one in value.values():
            yield from programs_in(one)


def calls_in(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where each hook and server stands in it, with the names of all that it says; not what it says."""
    if isinstance(value, list):
        for one in value:
            yield from calls_in(one, path)
    elif isinstance(value, dict):
        if isinstance(value.get("command"), str):
            yield (*path, *sorted(value))
        for key, one in value.items():
            yield from calls_in(one, (*path, key))


def words_of(value: dict[str, Any]) -> list[str]:
    """What it starts, word by word: a program with arguments, or a line for a shell."""
    command, args = value.get("command"), value.get("args")
    if not isinstance(command, str):
        return []
    if isinstance(args, list):
        return [command, *map(str, args)]
    try:
        return shlex.split(command)
    except ValueError:  # a line that no shell understands
        return [command]


def is_our_server(value: Any) -> bool:
    """Does this entry start `postroom mcp`, whoever wrote it?"""
    words = words_of(value) if isinstance(value, dict) else []
    names = [word.rpartition("/")[2] for word in words]
    return any(pair == (PROGRAM, "mcp") for pair in zip(names, words[1:], strict=False))
