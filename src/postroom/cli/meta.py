"""The commands about the program itself: help, completion, version. All of it comes from the command table."""

from __future__ import annotations

import sys

from .. import __version__
from .answers import Answer
from .exits import Usage
from .parse import Call
from .table import FILE_OF, GROUPS, HIDDEN, below, row

TYPE_CHECKING = False  # what `typing` says too, without its weight
if TYPE_CHECKING:
    from typing import Any

    from .answers import Screen
    from .context import Context
    from .table.shape import Command


def explain(call: Call, screen: Screen) -> Answer:
    """What --help answers: the manual of a command, or the overview."""
    from .manual import WIDEST, group, manual, overview  # noqa: PLC0415 - nobody else reads it

    width = min(screen.width, WIDEST)
    if call.group:
        text, rows = group(call.group, width), [row(f"{call.group} {word}") for word in below(call.group)]
    elif call.command:
        text, rows = manual(call.command, width), [call.command]
    else:
        text, rows = overview(width), _all()
    return Answer(
        "help", {"commands": [_plain(command) for command in rows], "text": text}, lambda _screen, _data: text
    )


def _contents(screen: Screen) -> Answer:
    """Every command."""
    from .manual import WIDEST, contents  # noqa: PLC0415 - likewise

    text = contents(min(screen.width, WIDEST))
    return Answer(
        "help", {"commands": [_plain(command) for command in _all()], "text": text}, lambda _screen, _data: text
    )


def run_help(context: Context) -> Answer:
    name = " ".join(context.get("command", ()))
    if not name:
        return explain(Call(None), context.screen)
    if name == "all":
        return _contents(context.screen)
    if name not in FILE_OF and below(name):
        return explain(Call(None, name), context.screen)
    if name not in FILE_OF:
        raise Usage(f"there is no command {name!a}", field="COMMAND", hint="postroom help all lists them")
    return explain(Call(row(name)), context.screen)


def run_version(context: Context) -> Answer:
    import apsw  # noqa: PLC0415 - rare

    known = {"version": __version__, "python": sys.version.split()[0], "sqlite": apsw.sqlite_lib_version()}
    text = f"postroom {known['version']} (Python {known['python']}, SQLite {known['sqlite']})\n"
    return Answer(context.name, known, lambda _screen, _data: text)


def run_completion(context: Context) -> Answer:
    from .completion import script  # noqa: PLC0415 - rare

    shell = context.get("shell")
    text = script(shell)
    return Answer(context.name, {"shell": shell, "script": text}, lambda _screen, _data: text)


def run_complete(context: Context) -> Answer:
    from .completion import candidates  # noqa: PLC0415 - rare

    found = candidates(context.get("word", ()))
    return Answer(context.name, {"candidates": found}, lambda _screen, _data: "".join(f"{one}\n" for one in found))


def _all() -> list[Command]:
    return [row(name) for _, names in GROUPS.values() for name in names if name not in HIDDEN]


def _plain(command: Command) -> dict[str, Any]:
    return {
        "name": command.name,
        "summary": command.summary,
        "about": command.about,
        "options": [
            {"names": list(o.names), "kind": o.kind, "metavar": o.metavar, "help": o.help, "many": o.many,
             "required": o.required, "choices": list(o.choices)}
            for o in command.options
        ],
        "examples": [list(example) for example in command.examples],
    }  # fmt: skip
