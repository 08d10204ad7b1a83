"""Help in the words of the command table: the overview, and a page for each command."""

from __future__ import annotations

import re
from textwrap import fill, wrap

from .exits import MEANINGS
from .table import FILE_OF, GROUPS, below, everywhere, row

TYPE_CHECKING = False  # what `typing` says too, without its weight
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .table.shape import Command, Option

WIDEST = 92
_LINK = re.compile(r"\[([^\]]+)\]\((?:#|[\w-]+\.md)[^)]*\)")  # of the page of commands
_SHORT = 24  # columns for the names of options
_NARROW = 64  # where so few columns are left, what is said stands below its name
_ENVIRONMENT = (
    ("POSTROOM_AGENT", "who you are, where --as does not say it"),
    ("POSTROOM_STORE", "which room, where --room does not say it"),
    ("POSTROOM_TOKEN", "the proof of a claim, where --token does not say it; work sets it for its program"),
    ("POSTROOM_SETTING", "any setting, such as POSTROOM_LEASE=120; postroom room --settings shows all"),
    ("NO_COLOR", "no colours"),
)


EVERYDAY = (
    "init", "send", "check", "read", "reply", "wait", "claim", "ack", "work", "search", "tasks", "agents",
    "inbox", "serve", "token create", "mcp",
)  # fmt: skip


def overview(width: int) -> str:
    """A first page: what is used every day, and where the rest is."""
    lines = [
        *_folded("postroom - durable mail for agents; no server needed", width, ""),
        "",
        "USAGE",
        "  postroom COMMAND [ARGUMENTS] [OPTIONS]",
        "",
        "EVERY DAY",
        *_commands(EVERYDAY, width, max(map(len, EVERYDAY))),
        "",
        "MORE",
        _entry("postroom help COMMAND", "explains one, with examples", width),
        _entry("postroom help all", "every command, the options of all, exit codes", width),
        "",
        *_folded(
            "Begin with: postroom send NAME --as ME --body TEXT; or postroom install claude|codex|gemini",
            width,
            "",
        ),
    ]
    return "\n".join(lines) + "\n"


def contents(width: int) -> str:
    """Every command, by group, and what holds for all."""
    lines = [
        *_folded("postroom - durable mail for agents; no server needed", width, ""),
        "",
        "USAGE",
        "  postroom COMMAND [ARGUMENTS] [OPTIONS]",
        "",
    ]
    for title, (_, names) in GROUPS.items():
        lines += [title.upper(), *_commands(names, width), ""]
    lines += ["OPTIONS OF EVERY COMMAND", *_options(everywhere(), width), ""]
    lines += ["ENVIRONMENT", *(_entry(name, what, width) for name, what in _ENVIRONMENT), ""]
    lines += ["EXIT CODES", *_exits(MEANINGS, width), ""]
    lines += _folded(
        "postroom help COMMAND explains one. Begin with: postroom send NAME --as ME --body TEXT", width, ""
    )
    return "\n".join(lines) + "\n"


def manual(command: Command, width: int) -> str:
    """The page of one command."""
    places = [option for option in command.options if option.is_place]
    options = [option for option in command.options if not option.is_place]
    lines = ["NAME", *_folded(f"postroom {command.name} - {command.summary}", width), ""]
    lines += ["USAGE", *_folded(usage(command), width), ""]
    if command.about:
        lines += ["DESCRIPTION"]
        for paragraph in command.about.split("\n\n"):
            lines += [*_folded(paragraph, width), ""]
    if following := [f"{command.name} {word}" for word in below(command.name)]:
        lines += ["COMMANDS", *_commands(following, width), ""]
    if places:
        lines += ["ARGUMENTS", *_options(places, width), ""]
    if options:
        lines += ["OPTIONS", *_options(options, width), ""]
    own = {name for option in options for name in option.names}
    rest = [option for option in everywhere() if own.isdisjoint(option.names)]
    lines += ["OPTIONS OF EVERY COMMAND", *_options(rest, width), ""]
    if command.json:
        lines += ["JSON", *(_entry(field, what, width) for field, what in command.json), ""]
    if command.exits:
        lines += ["EXIT CODES", *_exits(command.exits, width), "  and those of postroom help all", ""]
    if command.examples:
        lines += ["EXAMPLES", *(f"  {line}\n      {what}" for line, what in command.examples), ""]
    return "\n".join(lines)


def group(name: str, width: int) -> str:
    """The commands that begin with this word."""
    names = [f"{name} {word}" for word in below(name)]
    lines = [
        "COMMANDS",
        *_commands(names, width),
        "",
        *_folded(f"postroom help {names[0]} explains one.", width, ""),
    ]
    return "\n".join(lines) + "\n"


def usage(command: Command) -> str:
    """One line: what must be said, in order."""
    words = [f"postroom {command.name}"]
    for option in command.options:
        if option.is_place:
            word = f"{option.metavar}{'...' if option.many else ''}"
            dashes = "-- " if command.name == "work" else ""
            words.append(dashes + word if option.required else f"[{word}]")
        elif option.required:
            words.append(f"{option.names[-1]} {option.metavar}")
    if any(not option.is_place and not option.required for option in command.options):
        words.insert(1 if command.name == "work" else len(words), "[OPTIONS]")
    return " ".join(words)


def named(option: Option) -> str:
    """How an option is written."""
    if option.is_place:
        return option.metavar
    names = ", ".join(option.names)
    return names if option.kind == "flag" else f"{names} {option.metavar}"


def told(option: Option) -> str:
    """What is said about an option."""
    return f"{option.help} (may be repeated)" if option.many and not option.is_place else option.help


def _commands(names: Sequence[str], width: int, room: int = 0) -> list[str]:
    room = room or max(map(len, FILE_OF if any(" " in name for name in names) else names))
    return [_entry(name, row(name).summary, width, room) for name in names]


def _options(options: Sequence[Option], width: int) -> list[str]:
    return [_entry(named(option), told(option), width) for option in options]


def _exits(exits: Sequence[tuple[int, str]], width: int) -> list[str]:
    return [_hanging(f"  {code:<4} ", meaning, width) for code, meaning in exits]


def _entry(name: str, what: str, width: int, room: int = _SHORT) -> str:
    """A name and what is said of it, beside it or below."""
    if len(name) > room or width < _NARROW:
        indent = " " * (room + 4 if width >= _NARROW else 6)
        return f"  {name}\n{_hanging(indent, what, width)}"
    return _hanging(f"  {name:<{room}}  ", what, width)


def _hanging(first: str, what: str, width: int) -> str:
    return fill(
        _plain(what), width, initial_indent=first, subsequent_indent=" " * len(first), break_on_hyphens=False
    )


def _folded(text: str, width: int, indent: str = "  ") -> list[str]:
    return wrap(_plain(text), width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def _plain(text: str) -> str:
    """Where a page links, a terminal has but the words; another page is named."""
    return _LINK.sub(_without_link, text)


def _without_link(found: re.Match[str]) -> str:
    page = found[0].rpartition("(")[2].rstrip(")")
    return found[1] if page.startswith("#") else f"{found[1]} (docs/{page.partition('#')[0]})"
