"""Help in the words of the command table: the overview, and a page for each command."""

from __future__ import annotations

from textwrap import fill

from .exits import MEANINGS
from .table import GROUPS, everywhere, row
from .table.shape import Command, Option

WIDTH = 92
_SHORT = 24  # columns for the names of options


def overview() -> str:
    lines = [
        "postroom - durable mail for agents, with no server",
        "",
        "USAGE",
        "  postroom COMMAND [ARGUMENTS] [OPTIONS]",
        "",
    ]
    for title, (_, names) in GROUPS.items():
        lines += [title.upper(), *(f"  {name:<14} {row(name).summary}" for name in names), ""]
    lines += ["OPTIONS OF EVERY COMMAND", *_options(everywhere()), ""]
    lines += ["EXIT CODES", *(f"  {code:<4} {meaning}" for code, meaning in MEANINGS), ""]
    lines += ["postroom help COMMAND explains one. Begin with: postroom send NAME --as ME --body TEXT"]
    return "\n".join(lines) + "\n"


def manual(command: Command) -> str:
    """The page of one command."""
    places = [option for option in command.options if option.is_place]
    options = [option for option in command.options if not option.is_place]
    lines = ["NAME", f"  postroom {command.name} - {command.summary}", "", "USAGE", f"  {usage(command)}", ""]
    if command.about:
        lines += ["DESCRIPTION", fill(command.about, WIDTH, initial_indent="  ", subsequent_indent="  "), ""]
    if places:
        lines += ["ARGUMENTS", *_options(places), ""]
    if options:
        lines += ["OPTIONS", *_options(options), ""]
    lines += ["OPTIONS OF EVERY COMMAND", *_options(everywhere()), ""]
    if command.json:
        lines += ["JSON", *(_entry(field, what) for field, what in command.json), ""]
    if command.exits:
        lines += [
            "EXIT CODES",
            *(f"  {code:<4} {meaning}" for code, meaning in command.exits),
            "  and those of postroom help",
            "",
        ]
    if command.examples:
        lines += ["EXAMPLES", *(f"  {line}\n      {what}" for line, what in command.examples), ""]
    return "\n".join(lines)


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


def _options(options: tuple[Option, ...] | list[Option]) -> list[str]:
    return [_entry(named(option), told(option)) for option in options]


def _entry(name: str, what: str) -> str:
    what = what.replace("[letters](#letters)", "letters").replace("[letter](#letters)", "letter")
    indent = " " * (_SHORT + 4)
    text = fill(what, WIDTH, initial_indent=indent, subsequent_indent=indent)
    return f"  {name:<{_SHORT}}  {text.lstrip()}" if len(name) <= _SHORT else f"  {name}\n{text}"
