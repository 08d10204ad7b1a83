"""Completion for shells: a short script asks `postroom __complete`, which answers from the table and the room."""

from __future__ import annotations

from .. import service
from ..errors import PostroomError
from ..whereabouts import environment, own_room, project_room, variable
from .table import FILE_OF, HIDDEN, below, everywhere, row

TYPE_CHECKING = False  # what `typing` says too, without its weight
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..mailbox import Mailbox
    from ..model.card import Agent
    from ..room import Room
    from .table.shape import Option

FILES = "\t"  # alone on a line: the shell completes files itself
MOST = 200

_BASH = """\
# postroom completion for bash
_postroom() {
    local IFS=$'\\n' rest=$COMP_LINE found word said=() i last=-1 whole kept=""
    for ((i = 0; i <= COMP_CWORD; i++)); do  # bash parts words at : and =; they are put together again
        word=${COMP_WORDS[i]}
        if ((i > 1)) && [[ $rest != [[:blank:]]* && "${COMP_WORDS[i-1]:(-1)}${word:0:1}" == *[:=]* ]]; then
            said[last]+=$word
        else
            said[++last]=$word
        fi
        rest=${rest#*"$word"}
    done
    whole=${said[last]}
    [[ $whole == "$word" ]] || kept=${whole%"${whole##*[:=]}"}  # what stands there already
    found=$(postroom __complete -- "${said[@]:1}" 2>/dev/null) || return
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


def script(shell: str) -> str:
    return _SCRIPTS[shell]


def candidates(words: Sequence[str]) -> list[str]:
    """What the last word could become. Never an error: completion that complains is worse than none."""
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
    """The command among the words so far, and the words behind it."""
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
    """Names and ids out of a room that is there; none is made for this."""
    from ..room import open as open_room  # noqa: PLC0415 - only here
    from ..store.opening import is_there  # noqa: PLC0415

    address = _after("--room", words) or _after("--store", words) or variable("POSTROOM_STORE")
    address = address or f"sqlite:{project_room() or own_room(environment())}"
    me = _after("--as", words) or variable("POSTROOM_AGENT")
    try:
        if is_there(address) is not True:
            return []
        with open_room(address) as room:
            if what == "agents":
                return [*room.mailboxes(), *(_addresses(room.agents()) if ":" in words[-1] else ())]
            if what in _NAMES:
                return _NAMES[what](room)
            return _from_mailbox(what, room.mailbox(me)) if me else []
    except PostroomError:
        return []


# What is the room's, by its name.
_NAMES: dict[str, Callable[[Room], list[str]]] = {
    "scopes": lambda room: sorted({scope for agent in room.agents() for scope in agent.card.scopes}),
    "templates": lambda room: [template.name for template in room.templates()],
    "peers": lambda room: list(service.peers.all_peers(room._office)),  # noqa: SLF001 - no verb of the library
    "webhooks": lambda room: [one.id for one in service.webhooks.all_webhooks(room._office)],  # noqa: SLF001
}


def _addresses(agents: Sequence[Agent]) -> list[str]:
    """Whom a letter may go to without a name."""
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
