"""Shell completion: a short script runs `postroom __complete`, which answers from the declarations and the room."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..environment import Uninterrupted
from ..errors import PostroomError
from .answer import Answer
from .command import Option, command, command_of, command_of_verb, with_common, words_of_verbs
from .parse import Call, read_options, split
from .table import COMMANDS, HIDDEN, below

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..mailbox import Mailbox
    from ..room import Room


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
    name, typed, rest = split(before)
    if name in HIDDEN:
        return []
    if not typed:
        return _starting(last, _first_words()) or _starting(last, words_of_verbs())
    known = command_of(name) if name in COMMANDS else None if name else command_of_verb(typed)
    declared = with_common(known.options if known else ())
    options = {spelt: option for option in declared for spelt in option.names}
    awaited = options.get(before[-1]) if before else None
    awaits = awaited is not None and awaited.kind != "flag"
    call, args = Call(known, typed), list[str]()
    with suppress(PostroomError):  # a wrong value, which the command reports
        args = read_options(rest[:-1] if awaits else rest, declared, call)
    if awaited is not None and awaits:
        return _values(awaited, last, call)
    spelt, equals, value = last.partition("=")
    if equals and spelt in options:
        found = _values(options[spelt], value, call)
        return found if found == [FILES] else [f"{spelt}={one}" for one in found]
    if last.startswith("-"):
        return _starting(last, sorted(spelt for spelt in options if spelt.startswith("--")))
    places = [option for option in declared if option.is_place]
    place = places[min(len(args), len(places) - 1)] if places else None
    found = _values(place, last, call) if place and (len(args) < len(places) or place.many) else []
    return found if found == [FILES] else [*(_starting(last, below(name)) if name and not args else ()), *found]


def _first_words() -> list[str]:
    return list(dict.fromkeys(name.partition(" ")[0] for name in COMMANDS if name not in HIDDEN))


def _values(option: Option, last: str, call: Call) -> list[str]:
    if option.choices:
        return _starting(last, option.choices)
    if option.complete == "files":
        return [FILES]
    if option.complete == "commands":
        return _starting(last, [*_first_words(), "all", "options", "verbs"])
    return _starting(last, _from_room(option.complete, last, call)) if option.complete else []


def _from_room(what: str, last: str, call: Call) -> list[str]:
    """Return names and ids from the room; a room that does not exist is not made."""
    with Uninterrupted():
        from .context import Context, caller_of  # noqa: PLC0415 - only here

    context = Context(call)
    try:
        if context.is_new_room:
            return []
        if what in _OF_A_ROOM:
            return list(_OF_A_ROOM[what](context.room, last))
        return [one.id for one in _OF_A_MAILBOX[what](context.mailbox)] if caller_of(context) else []
    except PostroomError:
        return []


def _agents(room: Room, last: str) -> Iterable[str]:
    """Return names; behind any: or broadcast:, the addresses that reach agents by skill or scope."""
    agents = room.agents() if ":" in last else ()
    skills = {f"any:{skill}" for agent in agents for skill in agent.card.capabilities}
    scopes = {f"broadcast:{scope}" for agent in agents for scope in agent.card.scopes}
    return [*room.mailboxes(), *sorted(skills | scopes)]


def _peers(room: Room, _last: str) -> Iterable[str]:
    from ..core.peers import all_peers  # noqa: PLC0415 - only here

    return all_peers(room.core)


def _webhooks(room: Room, _last: str) -> Iterable[str]:
    from ..core.webhooks import all_webhooks  # noqa: PLC0415 - only here

    return [one.id for one in all_webhooks(room.core)]


# What an option completes to -> what the room, or the caller's mailbox, lists for it.
_OF_A_ROOM: dict[str, Callable[[Room, str], Iterable[str]]] = {
    "agents": _agents,
    "peers": _peers,
    "scopes": lambda room, _: sorted({scope for agent in room.agents() for scope in agent.card.scopes}),
    "templates": lambda room, _: [template.name for template in room.templates()],
    "webhooks": _webhooks,
}
_OF_A_MAILBOX: dict[str, Callable[[Mailbox], Iterable[Any]]] = {
    "dead": lambda box: box.dead(MOST),
    "escalations": lambda box: box.escalations(),
    "letters": lambda box: box.check(MOST, unread_only=False, peek=True),
    "sent": lambda box: box.search(f"from:{box.name}", limit=MOST),
    "tasks": lambda box: box.tasks(limit=MOST),
}


def _starting(last: str, known: Iterable[str]) -> list[str]:
    return [word for word in known if word.startswith(last)]


@command(
    "completion",
    Option("SHELL", help="which shell", kind="word", choices=("bash", "zsh", "fish"), required=True),
    about='bash: eval "$(postroom completion bash)" in ~/.bashrc. zsh: the same in ~/.zshrc, after compinit. fish:'
    " postroom completion fish > ~/.config/fish/completions/postroom.fish",
    examples=(("postroom completion bash", "print it"),),
    json="shell script",
)
def run_completion(call: Call) -> Answer:
    shell: str = call.values["shell"]
    text = _SCRIPTS[shell]
    return Answer(call.name, {"shell": shell, "script": text}, lambda _screen, _data: text)


@command(
    "__complete",
    Option("WORD", help="the words so far, the last one unfinished", many=True),
)
def run_complete(call: Call) -> Answer:
    found = candidates(call.values.get("word", ()))
    return Answer(call.name, {"candidates": found}, lambda _screen, _data: "".join(f"{one}\n" for one in found))
