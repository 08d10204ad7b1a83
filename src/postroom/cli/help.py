"""Help: the first page, the page of each command, and what all commands have in common."""

from __future__ import annotations

import re
from textwrap import fill, wrap
from typing import TYPE_CHECKING

from .answer import Answer, screen_of
from .command import EVERYWHERE, Command, Option, command, command_of, command_of_verb, verbs_alone, words_of_verbs
from .errors import MEANINGS, Usage
from .parse import meant, split
from .quick import version, version_text
from .table import COMMANDS, EVERYDAY, GROUPS, below

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from .answer import Screen
    from .parse import Call


WIDEST = 92
_LINK = re.compile(r"\[([^\]]+)\]\((?:#|[\w-]+\.md)[^)]*\)")  # a link in the Markdown page of commands
_SHORT = 24  # columns for the names of options
_NARROW = 64  # columns; on a narrower screen an explanation stands below its name
_TITLE = "postroom - durable mail for agents; no server needed"
_USAGE = "  postroom COMMAND [ARGUMENTS] [OPTIONS]"
_ENVIRONMENT = (
    ("POSTROOM_AGENT", "your agent name, unless --as names it"),
    ("POSTROOM_STORE", "the room, unless --room names it"),
    ("POSTROOM_TOKEN", "the proof of a claim, unless --token passes it; work sets it for its program"),
    ("POSTROOM_SETTING", "any setting, such as POSTROOM_LEASE=120; postroom rooms --settings shows all"),
    ("NO_COLOR", "no colours"),
)


def overview(width: int) -> str:
    """Return the first page: the everyday commands, and where the rest is."""
    more = [
        _entry("postroom help COMMAND", "explains one, with examples", width),
        _entry("postroom help options", "the options of all commands, variables, exit codes", width),
        _entry("postroom help all", f"all {len(COMMANDS) - 1} commands", width),
    ]
    begin = "Begin with: postroom send NAME TEXT --as ME; or postroom install claude|codex|gemini"
    return _page_of(
        width, {_TITLE: [], "USAGE": [_USAGE], "EVERY DAY": _commands(EVERYDAY, width), "MORE": more}, begin
    )


def contents(width: int) -> str:
    """Return the page of all commands by group."""
    room = max(map(len, COMMANDS))
    groups = {title.upper(): _commands(names, width, room) for title, names in GROUPS.items()}
    more = (
        "postroom help COMMAND explains one; postroom help options what all have in common; postroom help verbs"
        " lists the verbs of the wire that have no place here, and are commands, too."
    )
    return _page_of(width, {_TITLE: [], "USAGE": [_USAGE], **groups}, more)


def others(width: int) -> str:
    """Return the page of the verbs that are commands without a place on the page of all commands."""
    alone = verbs_alone()
    room = max(len(one.name) for one in alone)
    return _page_of(width, {"OTHER VERBS": [_entry(one.name, one.summary, width, room) for one in alone]})


def common(width: int) -> str:
    """Return the page of what all commands have in common: options, variables and exit codes."""
    codes = [_hanging(f"  {code:<4} ", meaning, width) for code, meaning in MEANINGS]
    variables = [_entry(name, what, width) for name, what in _ENVIRONMENT]
    return _page_of(
        width,
        {"OPTIONS OF EVERY COMMAND": _options(EVERYWHERE, width), "ENVIRONMENT": variables, "EXIT CODES": codes},
    )


def manual(command: Command, width: int) -> str:
    """Return the page of one command, examples first."""
    about = [line for text in command.about.split("\n\n") for line in ["", *_folded(text, width)]][1:]
    sections = {
        f"postroom {command.name} - {command.summary}": [],
        "EXAMPLES": [f"  {line}\n      {what}" for line, what in command.examples],
        "USAGE": [*_folded(usage(command), width), *([""] if command.about else []), *about],
        "COMMANDS": _commands([f"{command.name} {word}" for word in below(command.name)], width),
        "ARGUMENTS": _options([option for option in command.options if option.is_place], width),
        "OPTIONS": _options([option for option in command.options if not option.is_place], width),
    }
    fields = [f"Fields with --json: {', '.join(command.json)}."] if command.json else []
    last = "postroom help options: --as, --room, --set, --json, --color, and exit codes."
    shown = {title: lines for title, lines in sections.items() if lines or title.startswith("postroom ")}
    return _page_of(width, shown, *fields, last)


def group(name: str, width: int) -> str:
    """Return the page of the commands that begin with this word."""
    names = [f"{name} {word}" for word in below(name)]
    return _page_of(width, {"COMMANDS": _commands(names, width)}, f"postroom help {names[0]} explains one.")


def _page_of(width: int, sections: Mapping[str, Sequence[str]], *last: str) -> str:
    """Return a page: each section below its title, and the last sentences."""
    parts = ["\n".join([*_folded(title, width, ""), *lines]) for title, lines in sections.items()]
    end = "\n".join(line for text in last for line in _folded(text, width, ""))
    return "\n\n".join([*parts, *([end] if end else [])]) + "\n"


def usage(command: Command) -> str:
    """Return one line with the arguments and required options of a command, in order."""
    words = [f"postroom {command.name}"]
    places = {option.name for option in command.options if option.is_place}
    for option in command.options:
        if option.is_place:
            word = f"{option.metavar}{'...' if option.many else ''}"
            dashes = "-- " if command.name == "work" else ""
            words.append(dashes + word if option.required else f"[{word}]")
        elif option.required and option.name not in places:
            words.append(f"{option.names[-1]} {option.metavar}")
    if any(not option.is_place and not option.required for option in command.options):
        words.insert(1 if command.name == "work" else len(words), "[OPTIONS]")
    return " ".join(words)


def named(option: Option) -> str:
    """Return an option as it is written on a command line."""
    if option.is_place:
        return option.metavar
    names = ", ".join(option.names)
    return names if option.kind == "flag" else f"{names} {option.metavar}"


def option_help(option: Option) -> str:
    """Return the help of an option."""
    return f"{option.help} (may be repeated)" if option.many and not option.is_place else option.help


def _commands(names: Iterable[str], width: int, room: int = 0) -> list[str]:
    names = list(names)
    room = room or max(map(len, names), default=0)
    return [_entry(name, COMMANDS[name][1], width, room) for name in names]


def _options(options: Sequence[Option], width: int) -> list[str]:
    return [_entry(named(option), option_help(option), width) for option in options]


def _entry(name: str, what: str, width: int, room: int = _SHORT) -> str:
    """Return a name with its explanation beside it, or below where the screen is narrow."""
    if len(name) > room or width < _NARROW:
        indent = " " * (room + 4 if width >= _NARROW else 6)
        return f"  {name}\n{_hanging(indent, what, width)}"
    return _hanging(f"  {name:<{room}}  ", what, width)


def _hanging(first: str, what: str, width: int) -> str:
    return fill(
        _without_links(what),
        width,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_on_hyphens=False,
    )


def _folded(text: str, width: int, indent: str = "  ") -> list[str]:
    return wrap(
        _without_links(text), width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )


def _without_links(text: str) -> str:
    """Replace Markdown links by their words; a link to another page names that page."""
    return _LINK.sub(_without_link, text)


def _without_link(found: re.Match[str]) -> str:
    page = found[0].rpartition("(")[2].rstrip(")")
    return found[1] if page.startswith("#") else f"{found[1]} (docs/{page.partition('#')[0]})"


# -- commands


def explain(call: Call, screen: Screen) -> Answer:
    """Return the answer to --help: the page of a command or group, or the overview."""
    return _explained(call.command, call.name, screen)


def _explained(command: Command | None, name: str, screen: Screen) -> Answer:
    width = min(screen.width, WIDEST)
    if command is not None:
        return _page(manual(command, width), [command])
    if name in _PAGES:
        every = [command_of(name) for names in GROUPS.values() for name in names] if screen.json else []
        return _page(_PAGES[name](width), every if name in {"", "all"} else ())
    return _page(group(name, width), [command_of(f"{name} {word}") for word in below(name)])


def _page(text: str, commands: Sequence[Command]) -> Answer:
    plain = [_plain_command(command) for command in commands]
    return Answer("help", {"commands": plain, "text": text}, lambda _screen, _data: text)


_PAGES = {"": overview, "all": contents, "options": common, "verbs": others}


@command(
    "help",
    Option(
        "COMMAND",
        help="its name; all lists every command, options what all have in common",
        many=True,
        complete="commands",
    ),
    examples=(
        ("postroom help send", "one of them"),
        ("postroom help all", "all of them"),
        ("postroom help", "those of every day"),
    ),
    json="commands text",
)
def run_help(call: Call) -> Answer:
    typed = " ".join(call.values.get("command", ()))
    if typed in _PAGES:
        return _explained(None, typed, screen_of(call))
    name, first, rest = split(typed.split(" "))
    known = not rest and (name or command_of_verb(first))
    if not known:
        hint = meant(typed, [*COMMANDS, *words_of_verbs()]) or "postroom help all lists them"
        raise Usage(f"there is no command {typed!a}", field="COMMAND", hint=hint)
    found = known if isinstance(known, Command) else command_of(name) if name in COMMANDS else None
    return _explained(found, name, screen_of(call))


@command(
    "version",
    examples=(("postroom version", "print it"),),
    json="version python sqlite",
)
def run_version(call: Call) -> Answer:
    known = version()
    return Answer(call.name, known, lambda _screen, _data: version_text(known))


def _plain_command(command: Command) -> dict[str, Any]:
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
