"""The parser of the command line: from words to a command and its values.

Parsing opens no file and no room. The first half converts the words of options into numbers, spans, times and
JSON; each error names the option. It is not argparse, which was tried and measured (docs/decisions/cli.md).
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..environment import Uninterrupted
from ..errors import Invalid
from .command import EVERYWHERE, command_of, command_of_verb, with_common, words_of_verbs
from .errors import Usage
from .table import COMMANDS, HIDDEN, MEANT, RETIRED, below, resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .command import Command, Option


SPAN_RULE = "a number with s, m, h, d or w, such as 90s, 10m or 1h30m"
TIME_RULE = f"{SPAN_RULE}; or a time such as 2030-01-31T09:00, local unless it says otherwise"
DEEPEST = 200  # levels of nested JSON; the room's own limit is lower
LONGEST_COUNT = 15  # digits
LARGEST = 64 * 1024 * 1024  # bytes of JSON in one argument; the room's own limit is lower
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_UNIT_WORDS = {"second", "minute", "hour", "day", "week", "sec", "min"}
_SPAN = r"\+?(?:[0-9]+(?:\.[0-9]+)?[smhdw])+"
_PIECE = r"([0-9]+(?:\.[0-9]+)?)([smhdw])"
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"


def seconds(word: str, option: Option) -> float:
    span = _span(word)
    if span is None:
        raise Invalid(f"{_short(word)} is not a span of time", field=_field(option), hint=SPAN_RULE)
    return span


def later(word: str, option: Option) -> datetime | float:
    """Return a time, or a span from now in seconds."""
    span = _span(word)
    return _time(word, option) if span is None else span


def past(word: str, option: Option) -> datetime:
    """Return a time; a span is counted back from now."""
    span = _span(word)
    if span is None:
        return _time(word, option)
    with Uninterrupted():
        from ..clock import SystemClock  # noqa: PLC0415 - help needs no msgspec

    try:
        return SystemClock().now().wall - timedelta(seconds=span)
    except OverflowError:
        raise Invalid(f"{_short(word)} is out of range", field=_field(option)) from None


def count(word: str, option: Option) -> int:
    if not word.isascii() or not word.isdecimal():
        raise Invalid(f"{_short(word)} is not a number", field=_field(option), hint="write it in digits")
    if len(word) > LONGEST_COUNT:
        raise Invalid(f"{_short(word)} is too large", field=_field(option), hint=f"up to {LONGEST_COUNT} digits")
    return int(word)


def json(word: str, option: Option) -> Any:
    with Uninterrupted():
        from ..model.values import read_json  # noqa: PLC0415 - help needs no msgspec

    return read_json(word, _field(option), depth=DEEPEST, largest=LARGEST)


def address(word: str, option: Option) -> Any:
    if word.startswith("{"):  # no name begins so
        return json(word, option)
    if " " in word.strip():
        raise Usage(
            f"{_short(word)} is no name", field=_field(option), hint="a text has an option, such as --body"
        )
    return word


def choice(word: str, option: Option) -> str:
    if word.lower() not in option.choices:
        raise Usage(f"{_short(word)} is not one of them", field=_field(option), hint=", ".join(option.choices))
    return word.lower()


def setting(word: str, option: Option) -> tuple[str, str]:
    name, value = pair(word, option)
    if name == "store":
        raise Usage("the room is named by --room", field=_field(option))
    return name, value


def pair(word: str, option: Option) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals or not name:
        raise Usage(f"{_short(word)} is not NAME=VALUE", field=_field(option))
    return name, value


_CONVERTERS: dict[str, Any] = {  # by the kind of an option
    "seconds": seconds,
    "when": later,
    "past": past,
    "count": count,
    "json": json,
    "address": address,
    "word": choice,
    "setting": setting,
    "pair": pair,
    "rule": lambda word, option: pair(word, option) if word else None,  # an empty word: there are no rules
}


def _span(word: str) -> float | None:
    if len(word) > 100:
        return None
    if re.fullmatch(_NUMBER, word):
        return float(word)
    if not re.fullmatch(_SPAN, word):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(_PIECE, word))


def _time(word: str, option: Option) -> datetime:
    try:
        time = datetime.fromisoformat(word)
        return time if time.tzinfo else time.astimezone()
    except (ValueError, OverflowError, OSError):
        raise Invalid(f"{_short(word)} is not a time", field=_field(option), hint=TIME_RULE) from None


def _field(option: Option) -> str:
    return option.metavar if option.is_place else option.names[-1]


def _short(word: str) -> str:
    return ascii(word if len(word) <= 80 else f"{word[:80]}…")


# -- from words to a call


class Call:
    """A command and the values of its options. Options that were not passed are not in `values`."""

    def __init__(self, command: Command | None, name: str = "") -> None:
        self.command = command
        self.name = name  # as an answer in JSON has it; of several commands, for help, their first word
        self.values: dict[str, Any] = {}
        self.host_input: dict[str, object] = {}  # what a host passed to a hook on standard input


def parse(words: Sequence[str]) -> Call:
    """Return the call that these words mean; raise Usage with a hint where they mean none."""
    name, typed, rest = split(words)
    command: Command | None = None
    if name in COMMANDS:
        command = command_of(name)
    elif name:
        return _group(name, rest)
    elif typed:
        command = command_of_verb(typed)
        if command is None:
            hint = (
                RETIRED.get(typed) or MEANT.get(typed) or meant(typed, COMMANDS) or meant(typed, words_of_verbs())
            )
            raise Usage(f"there is no command {typed!a}", field="command", hint=hint or "postroom help all")
    call = Call(command, typed)
    options = with_common(command.options if command else ())
    args = read_options(rest, options, call)
    if "help" not in call.values:
        _fill([option for option in options if option.is_place], args, call)
    return call


def split(words: Sequence[str]) -> tuple[str, str, list[str]]:
    """Return the command, the name that its answer has, and all other words in their order.

    The command is empty where the first word that is no option names none.
    """
    takes = {name for option in EVERYWHERE if option.kind != "flag" for name in option.names}
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        if words[at] in {"--version", "-V"}:
            return "version", "version", [*words[:at], *words[at + 1 :]]
        at += 2 if words[at] in takes else 1
    if at >= len(words):
        return "", "", list(words)
    if not words[at]:
        raise Usage("there is no command ''", field="command", hint="postroom help")
    name, typed, count = resolve(words[at], words[at + 1] if at + 1 < len(words) else "")
    return name, typed or words[at], [*words[:at], *words[at + count :]]


def _group(name: str, rest: list[str]) -> Call:
    """Return a call for help about several commands; raise Usage otherwise: a first word alone is no command."""
    following = below(name)
    if {"-h", "--help"} & set(rest):
        call = Call(None, name)
        read_options([word for word in rest if word in {"-h", "--help", "--json"}], EVERYWHERE, call)
        return call
    if rest and not rest[0].startswith("-"):
        raise _no_subcommand(name, rest[0], following)
    raise Usage(f"which one? {', '.join(following)}", field=name, hint=f"postroom help {name}")


def read_options(words: list[str], options: Sequence[Option], call: Call) -> list[str]:
    """Put options into the call and return the other words, which are arguments."""
    known = {name: option for option in options if not option.is_place for name in option.names}
    args: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            return [*args, *rest]
        if not word.startswith("-") or word == "-":
            args.append(word)
            continue
        name, equals, value = word.partition("=")
        if name not in known and word[:2] in known:  # -n5
            name, equals, value = word[:2], "=", word[2:]
        option = known.get(name)
        if option is None:
            raise _no_option(word, call.name, args, known)
        if option.kind == "flag":
            if equals:
                raise Usage("takes no value", field=name)
        elif not equals:
            value = next(rest, name)
            if value in known:
                raise Usage("needs a value", field=name, hint=f"{name}={option.metavar}")
        _keep(option, value, call)
    return args


def _no_option(word: str, command: str, before: list[str], known: Mapping[str, Option]) -> Usage:
    name = word.partition("=")[0]
    by_command = MEANT.get(f"{command} {name}")
    hint = _hint_for_dash(word, command, before) or RETIRED.get(name) or by_command or MEANT.get(name)
    if name in {"--name", "--user"} and "--agent" in known:
        hint = "--agent NAME names the agent"
    if name == "--all" and "--everyone" in known:
        hint = "did you mean '--everyone'?"
    return Usage("there is no such option", field=name, hint=hint or meant(name, known) or "--help shows all")


def _hint_for_dash(word: str, command: str, before: list[str]) -> str:
    """Return a hint where a word that begins with - may not be meant as an option."""
    if command == "work" and before:
        return "put -- before the program"
    if command == "search" and not word.startswith("--"):
        from shlex import quote  # noqa: PLC0415 - only for mistakes

        return f"-- stands before a query that begins with -: postroom search -- {quote(word)}"
    return ""


def _fill(places: list[Option], args: list[str], call: Call) -> None:
    """Give each place its word; a place that takes many words gets all that the others leave."""
    spare = len(args) - sum(1 for place in places if not place.many)
    for place in places:
        taken = args[: max(spare, 0)] if place.many else args[:1]
        args = args[len(taken) :]
        for word in taken:
            _keep(place, word, call)
        if place.required and not taken:
            raise Usage("is missing", field=place.metavar, hint=place.help)
    if args and (following := below(call.name)):
        raise _no_subcommand(call.name, args[0], following)
    if args:
        raise Usage(
            f"{args[0]!a} is one word too many", field="arguments", hint=_hint_for_more(args[0], places, call)
        )
    options = with_common(call.command.options) if call.command else ()
    for option in options:
        if option.required and option.name not in call.values:
            raise Usage("is missing", field=option.names[0], hint=option.help)
        if option.name in call.values:
            _check_company(option, options, call)
    if call.command and call.command.no_room and "room" in call.values:
        raise Usage(f"cannot be used here: {call.command.no_room}", field="--room")


def _check_company(option: Option, options: Iterable[Option], call: Call) -> None:
    """Refuse an option beside one that it contradicts, or without the one that it belongs to."""
    for other in options:
        if other.name in option.against and other.name in call.values:
            raise Usage(f"cannot be combined with {_field(other)}", field=_field(option), hint="give one of them")
        if other.name == option.needs and other.name not in call.values:
            raise Usage(f"goes with {_field(other)}", field=_field(option), hint=f"{_field(other)}: {other.help}")


def _hint_for_more(word: str, places: list[Option], call: Call) -> str:
    """Return what a word may have been meant for that has no place."""
    options = call.command.options if call.command else ()
    if hint := MEANT.get(f"{call.name} {word}"):
        return hint
    if places:
        is_text = any(option.name == "body" for option in options)
        alone = f"it takes {', '.join(place.metavar for place in places)} alone"
        return "quote a text that has blanks; or name it with --body" if is_text else alone
    if word in COMMANDS:
        return f"postroom {word} is a command by itself"
    kinds = {"count", "seconds"} if word.isdecimal() else {"seconds"} if _span(word) else set()
    for option in options:
        if option.kind in kinds:
            return f"{option.names[-1]} {word}"
    if word.rstrip("s") in _UNIT_WORDS:
        return f"a span of time is one word: {SPAN_RULE}"
    whose = "--agent" if any("--agent" in option.names for option in options) else "--as"
    named = word if word.replace("-", "").replace(".", "").isalnum() else "NAME"
    return f"it takes options alone: {whose} {named} names the agent, --help shows the others"


def _no_subcommand(name: str, word: str, following: list[str]) -> Usage:
    if word in following:
        return Usage(f"{word!a} stands directly behind {name}", field="command", hint=f"postroom {name} {word} …")
    full = f"{name} {word}"
    known = f"{name} {', '.join(following)}"
    known = f"postroom {name} show {word} shows one; else {known}" if "show" in following else known
    hint = MEANT.get(full) or meant(word, following, f"{name} ") or MEANT.get(f"{name} *") or known
    return Usage(f"there is no {full!a}", field="command", hint=hint)


def _keep(option: Option, value: str, call: Call) -> None:
    """Put a value into the call, as what its option means by it."""
    if option.kind == "flag":
        call.values[option.name] = option.value
        return
    name = option.metavar if option.is_place else option.names[-1]
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Usage("is not UTF-8 text", field=name, hint="send other bytes as a file") from None
    if option.name in call.values and not option.many:
        raise Usage("is given twice", field=name)
    convert = _CONVERTERS.get(option.kind)
    meant_by_it = convert(value, option) if convert else value
    if option.many:
        call.values.setdefault(option.name, []).append(meant_by_it)
    else:
        call.values[option.name] = meant_by_it


def meant(word: str, known: Iterable[object], before: str = "") -> str | None:
    """Return a hint with the known word most like this one, if any is like it."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for mistakes

    close = get_close_matches(word, [str(name) for name in known if name not in HIDDEN], 3, cutoff=0.7)
    close.sort(key=lambda name: sorted(name) != sorted(word))  # letters that changed places come first
    return f"did you mean {before + close[0]!r}?" if close else None
