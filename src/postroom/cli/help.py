"""Help, shell completion and the version: commands about the program itself, made from the command table."""

from __future__ import annotations

import re
import sys
from textwrap import fill, wrap
from typing import TYPE_CHECKING

from .. import __version__
from ..environment import Uninterrupted, environment, own_room, project_room, variable
from ..errors import PostroomError
from .answer import Answer, screen_of
from .errors import MEANINGS, Usage
from .parse import Call
from .table import FILE_OF, GROUPS, HIDDEN, below, everywhere, row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from ..mailbox import Mailbox
    from ..model.agent import Agent
    from ..room import Room
    from .answer import Screen
    from .table.shape import Command, Option


WIDEST = 92
_LINK = re.compile(r"\[([^\]]+)\]\((?:#|[\w-]+\.md)[^)]*\)")  # a link in the Markdown page of commands
_SHORT = 24  # columns for the names of options
_NARROW = 64  # columns; on a narrower screen an explanation stands below its name
_ENVIRONMENT = (
    ("POSTROOM_AGENT", "your agent name, unless --as names it"),
    ("POSTROOM_STORE", "the room, unless --room names it"),
    ("POSTROOM_TOKEN", "the proof of a claim, unless --token passes it; work sets it for its program"),
    ("POSTROOM_SETTING", "any setting, such as POSTROOM_LEASE=120; postroom room --settings shows all"),
    ("NO_COLOR", "no colours"),
)


EVERYDAY = (
    "init", "send", "check", "read", "reply", "wait", "claim", "ack", "work", "search", "tasks", "agents",
    "inbox", "serve", "token create", "mcp",
)  # fmt: skip


def overview(width: int) -> str:
    """Return the first page: the everyday commands, and where the rest is."""
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
    """Return the page of all commands by group, their common options, variables and exit codes."""
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
    """Return the page of one command."""
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
    """Return the page of the commands that begin with this word."""
    names = [f"{name} {word}" for word in below(name)]
    lines = [
        "COMMANDS",
        *_commands(names, width),
        "",
        *_folded(f"postroom help {names[0]} explains one.", width, ""),
    ]
    return "\n".join(lines) + "\n"


def usage(command: Command) -> str:
    """Return one line with the arguments and required options of a command, in order."""
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
    """Return an option as it is written on a command line."""
    if option.is_place:
        return option.metavar
    names = ", ".join(option.names)
    return names if option.kind == "flag" else f"{names} {option.metavar}"


def option_help(option: Option) -> str:
    """Return the help of an option."""
    return f"{option.help} (may be repeated)" if option.many and not option.is_place else option.help


def _commands(names: Sequence[str], width: int, room: int = 0) -> list[str]:
    room = room or max(map(len, FILE_OF if any(" " in name for name in names) else names))
    return [_entry(name, row(name).summary, width, room) for name in names]


def _options(options: Sequence[Option], width: int) -> list[str]:
    return [_entry(named(option), option_help(option), width) for option in options]


def _exits(exits: Sequence[tuple[int, str]], width: int) -> list[str]:
    return [_hanging(f"  {code:<4} ", meaning, width) for code, meaning in exits]


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


# -- completion: a short script runs `postroom __complete`, which answers from the table and the room

FILES = "\t"  # alone on a line: the shell completes files itself
MOST = 200  # candidates of one kind

_BASH = """\
# postroom completion for bash
_postroom() {
    local IFS=$'\\n' rest=$COMP_LINE found word typed=() i last=-1 whole kept=""
    for ((i = 0; i <= COMP_CWORD; i++)); do  # bash parts words at : and =; they are put together again
        word=${COMP_WORDS[i]}
        if ((i > 1)) && [[ $rest != [[:blank:]]* && "${COMP_WORDS[i-1]:(-1)}${word:0:1}" == *[:=]* ]]; then
            typed[last]+=$word
        else
            typed[++last]=$word
        fi
        rest=${rest#*"$word"}
    done
    whole=${typed[last]}
    [[ $whole == "$word" ]] || kept=${whole%"${whole##*[:=]}"}  # what stands there already
    found=$(postroom __complete -- "${typed[@]:1}" 2>/dev/null) || return
    if [[ $found == $'\\t' ]]; then
        COMPREPLY=($(compgen -f -- "${whole#"$kept"}"))
        compopt -o filenames 2>/dev/null
    else
        COMPREPLY=($found)
        COMPREPLY=("${COMPREPLY[@]#"$kept"}")
    fi
}
complete -F _postroom postroom
"""
_ZSH = """\
#compdef postroom
# postroom completion for zsh
_postroom() {
    local found
    found=$(postroom __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null) || return
    if [[ $found == $'\\t' ]]; then
        _files
    else
        compadd -- ${(f)found}
    fi
}
compdef _postroom postroom
"""
_FISH = """\
# postroom completion for fish
function __postroom_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l found (postroom __complete -- $words[2..-1] 2>/dev/null)
    if test "$found" = \\t
        __fish_complete_path (commandline -ct)
    else
        printf '%s\\n' $found
    end
end
complete -c postroom -f -a '(__postroom_complete)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def candidates(words: Sequence[str]) -> list[str]:
    """Return the words that the last one could become. Never raise: completion must not print errors."""
    *before, last = words or [""]
    name, rest = _command(before)
    if not name:
        return _starting(last, _first_words(rest))
    subcommands = below(name)
    command = row(name)
    options = {name: option for option in (*command.options, *everywhere()) for name in option.names}
    awaited = options.get(before[-1]) if before else None
    if awaited is not None and awaited.kind != "flag":
        return _values(awaited, last, words)
    name, equals, value = last.partition("=")
    if equals and name in options:
        found = _values(options[name], value, words)
        return found if found == [FILES] else [f"{name}={one}" for one in found]
    if last.startswith("-"):
        return _starting(last, sorted(n for n in options if n.startswith("--")))
    places = [option for option in command.options if option.is_place]
    filled = _count_places(rest, options)
    place = places[min(filled, len(places) - 1)] if places else None
    found = _values(place, last, words) if place and (filled < len(places) or place.many) else []
    return found if found == [FILES] else [*(_starting(last, subcommands) if not filled else ()), *found]


def _command(before: Sequence[str]) -> tuple[str, list[str]]:
    """Return the command among the words so far, and the words behind it."""
    takes = {name for option in everywhere() if option.kind != "flag" for name in option.names}
    at = 0
    while at < len(before) and before[at].startswith("-"):
        at += 2 if before[at] in takes else 1
    if at >= len(before):
        return "", []
    two = " ".join(before[at : at + 2])
    if two in FILE_OF and two not in HIDDEN and " " in two:
        return two, list(before[at + 2 :])
    one = before[at]
    return (one, list(before[at + 1 :])) if one in FILE_OF and one not in HIDDEN else ("", [one])


def _first_words(unknown: Sequence[str]) -> list[str]:
    return [] if unknown else [name for name in FILE_OF if " " not in name and name not in HIDDEN]


def _count_places(words: Sequence[str], options: dict[str, Option]) -> int:
    count, at = 0, 0
    while at < len(words):
        option = options.get(words[at])
        if option is not None:
            at += 1 if option.kind == "flag" else 2
            continue
        count += not words[at].startswith("-")
        at += 1
    return count


def _values(option: Option, last: str, words: Sequence[str]) -> list[str]:
    if option.choices:
        return _starting(last, option.choices)
    if option.complete == "files":
        return [FILES]
    if option.complete == "commands":
        return _starting(last, [*_first_words(()), "all"])
    return _starting(last, _from_room(option.complete, words)) if option.complete else []


def _from_room(what: str, words: Sequence[str]) -> list[str]:
    """Return names and ids from the room; a room that does not exist is not made."""
    with Uninterrupted():
        from ..room import open as open_room  # noqa: PLC0415 - only here
        from ..store.address import is_there  # noqa: PLC0415

    address = _after("--room", words) or _after("--store", words) or variable("POSTROOM_STORE")
    address = address or f"sqlite:{project_room() or own_room(environment())}"
    me = _after("--as", words) or variable("POSTROOM_AGENT")
    try:
        if is_there(address) is not True:
            return []
        with open_room(address) as room:
            if what == "agents":
                return [*room.mailboxes(), *(_addresses(room.agents()) if ":" in words[-1] else ())]
            if (names := _named_in(room, what)) is not None:
                return names
            return _from_mailbox(what, room.mailbox(me)) if me else []
    except PostroomError:
        return []


def _named_in(room: Room, what: str) -> list[str] | None:
    """Return what a room lists by name; None where a mailbox lists it."""
    from ..core import peers, webhooks  # noqa: PLC0415 - only here

    if what == "scopes":
        return sorted({scope for agent in room.agents() for scope in agent.card.scopes})
    if what == "templates":
        return [template.name for template in room.templates()]
    if what == "peers":
        return list(peers.all_peers(room.core))
    return [one.id for one in webhooks.all_webhooks(room.core)] if what == "webhooks" else None


def _addresses(agents: Sequence[Agent]) -> list[str]:
    """Return the addresses that reach agents by skill or scope."""
    skills = {f"any:{skill}" for agent in agents for skill in agent.card.capabilities}
    return sorted(skills | {f"broadcast:{scope}" for agent in agents for scope in agent.card.scopes})


def _from_mailbox(what: str, box: Mailbox) -> list[str]:
    if what == "tasks":
        return [task.id for task in box.tasks(limit=MOST)]
    if what == "escalations":
        return [escalation.id for escalation in box.escalations()]
    if what == "sent":
        return [message.id for message in box.search(f"from:{box.name}", limit=MOST)]
    found = box.dead(MOST) if what == "dead" else box.check(MOST, unread_only=False, peek=True)
    return [letter.id for letter in found]


def _after(option: str, words: Sequence[str]) -> str:
    for at, word in enumerate(words[:-1]):
        if word == option:
            return words[at + 1]
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return ""


def _starting(last: str, known: Iterable[str]) -> list[str]:
    return [word for word in known if word.startswith(last)]


# -- commands


def explain(call: Call, screen: Screen) -> Answer:
    """Return the answer to --help: the page of a command or group, or the overview."""
    width = min(screen.width, WIDEST)
    if call.group:
        text, rows = group(call.group, width), [row(f"{call.group} {word}") for word in below(call.group)]
    elif call.command:
        text, rows = manual(call.command, width), [call.command]
    else:
        text, rows = overview(width), _all()
    return Answer(
        "help",
        {"commands": [_plain_command(command) for command in rows], "text": text},
        lambda _screen, _data: text,
    )


def _contents(screen: Screen) -> Answer:
    text = contents(min(screen.width, WIDEST))
    return Answer(
        "help",
        {"commands": [_plain_command(command) for command in _all()], "text": text},
        lambda _screen, _data: text,
    )


def run_help(call: Call) -> Answer:
    screen = screen_of(call)
    name = " ".join(call.values.get("command", ()))
    if not name:
        return explain(Call(None), screen)
    if name == "all":
        return _contents(screen)
    if name not in FILE_OF and below(name):
        return explain(Call(None, name), screen)
    if name not in FILE_OF:
        raise Usage(f"there is no command {name!a}", field="COMMAND", hint="postroom help all lists them")
    return explain(Call(row(name)), screen)


def run_version(call: Call) -> Answer:
    import apsw  # noqa: PLC0415 - rare

    known = {"version": __version__, "python": sys.version.split()[0], "sqlite": apsw.sqlite_lib_version()}
    text = f"postroom {known['version']} (Python {known['python']}, SQLite {known['sqlite']})\n"
    return Answer(call.name, known, lambda _screen, _data: text)


def run_completion(call: Call) -> Answer:
    shell: str = call.values["shell"]
    text = _SCRIPTS[shell]
    return Answer(call.name, {"shell": shell, "script": text}, lambda _screen, _data: text)


def run_complete(call: Call) -> Answer:
    found = candidates(call.values.get("word", ()))
    return Answer(call.name, {"candidates": found}, lambda _screen, _data: "".join(f"{one}\n" for one in found))


def _all() -> list[Command]:
    return [row(name) for _, names in GROUPS.values() for name in names if name not in HIDDEN]


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
