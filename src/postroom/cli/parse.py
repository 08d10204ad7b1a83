"""The parser of the command line: from words to a command and its values, by the command table.

Parsing opens no file and no room. The first half converts the words of options into numbers, spans, times and
JSON; each error names the option.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..environment import Uninterrupted
from ..errors import Invalid
from .errors import Usage
from .table import FILE_OF, below, everywhere, row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .table.shape import Command, Option


SPAN_RULE = "a number with s, m, h, d or w, such as 90s, 10m or 1h30m"
TIME_RULE = f"{SPAN_RULE}; or a time such as 2030-01-31T09:00, local unless it says otherwise"
DEEPEST = 200  # levels of nested JSON; the room's own limit is lower
LONGEST_COUNT = 15  # digits
LARGEST = 64 * 1024 * 1024  # bytes of JSON in one argument; the room's own limit is lower
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SPAN = r"\+?(?:[0-9]+(?:\.[0-9]+)?[smhdw])+"
_PIECE = r"([0-9]+(?:\.[0-9]+)?)([smhdw])"
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_COPY_RETIRED = "retired: mounts keep rooms in step; see postroom help mount"
_RETIRED = {  # words of earlier versions, and what to do instead
    "rename": "retired: agents keep their names; postroom register --name changes what others are shown",
    "--move": _COPY_RETIRED,
    "--watch": _COPY_RETIRED,
}


def convert_all(values: dict[str, Any], options: dict[str, Option]) -> None:
    """Replace the words of options by the values they mean."""
    for name, value in values.items():
        option = options[name]
        convert = _CONVERTERS.get(option.kind)
        if convert is None:
            continue
        values[name] = [convert(word, option) for word in value] if option.many else convert(value, option)


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
        raise Invalid(f"{_short(word)} is not a number", field=_field(option), hint="digits")
    if len(word) > LONGEST_COUNT:
        raise Invalid(f"{_short(word)} is too large", field=_field(option), hint=f"up to {LONGEST_COUNT} digits")
    return int(word)


def json(word: str, option: Option) -> Any:
    with Uninterrupted():
        from ..model.values import read_json  # noqa: PLC0415 - help needs no msgspec

    return read_json(word, _field(option), depth=DEEPEST, largest=LARGEST)


def address(word: str, option: Option) -> Any:
    """Return an address as text, or as an object: no name begins with a brace."""
    return json(word, option) if word.startswith("{") else word


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


def rule(word: str, option: Option) -> tuple[str, str] | None:
    """Return one rule of several; None for an empty word, which means that there are no rules."""
    return pair(word, option) if word else None


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
    "rule": rule,
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

_PLAIN = frozenset({"text", "flag"})  # kinds of options that need no converting


class Call:
    """A command and the values of its options. Options that were not passed are not in `values`."""

    def __init__(self, command: Command | None, group: str = "") -> None:
        self.command = command
        self.group = group  # the first word of several commands, for help about them
        self.values: dict[str, Any] = {}
        self.host_input: dict[str, object] = {}  # what a host passed to a hook on standard input

    @property
    def name(self) -> str:
        return self.command.name if self.command else ""


def parse(words: Sequence[str]) -> Call:
    """Return the call that these words mean; raise Usage with a hint where they mean none."""
    options = {name: option for option in everywhere() for name in option.names}
    name, rest = _split_command(list(words), options)
    if name and name not in FILE_OF:
        return _group(name, rest, options)
    command = row(name) if name else None
    places = [option for option in command.options if option.is_place] if command else []
    if command:
        options = options | {name: option for option in command.options for name in option.names}
    call = Call(command)
    args = _sort(rest, options, call)
    if "help" in call.values:
        return call
    _fill(places, args, call)
    if any(option.kind not in _PLAIN for option in options.values() if option.name in call.values):
        convert_all(call.values, {option.name: option for option in options.values()})
    return call


def _split_command(words: list[str], options: dict[str, Option]) -> tuple[str, list[str]]:
    """Return the command's name, of one word or two, and all other words in their order."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        option = options.get(words[at])
        if words[at] == "--version":
            return "version", words[:at] + words[at + 1 :]
        at += 1 if option is None or option.kind == "flag" else 2
    if at >= len(words):
        return "", words
    name, following = words[at], words[at + 1 : at + 2]
    if following and f"{name} {following[0]}" in FILE_OF:
        return f"{name} {following[0]}", words[:at] + words[at + 2 :]
    if name not in FILE_OF and not below(name):
        hint = _RETIRED.get(name) or meant(name, FILE_OF) or "postroom help all"
        raise Usage(f"there is no command {name!a}", field="command", hint=hint)
    return name, words[:at] + words[at + 1 :]


def _group(name: str, rest: list[str], options: dict[str, Option]) -> Call:
    """Return a call for help about several commands; raise Usage otherwise: a first word alone is no command."""
    call = Call(None, name)
    following = below(name)
    try:
        args = _sort(rest, options, call)
    except Usage:  # the options depend on the second word, which is missing
        args = []
    if "help" in call.values:
        return call
    if args:
        raise _no_subcommand(name, args[0], following)
    raise Usage(f"which one? {', '.join(following)}", field=name, hint=f"postroom help {name}")


def _sort(words: list[str], options: dict[str, Option], call: Call) -> list[str]:
    """Put options into the call and return the other words, which are places."""
    left: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            left += words[at:]
            break
        if not word.startswith("-") or word == "-":
            left.append(word)
            continue
        option, value = _option(word, options, call.name, left)
        if option.kind == "flag":
            if value is not None:
                raise Usage("takes no value", field=word.partition("=")[0])
            call.values[option.name] = True
            continue
        if value is None:
            if at >= len(words) or words[at] in options:
                raise Usage("needs a value", field=word, hint=f"{word}={option.metavar}")
            value = words[at]
            at += 1
        _keep(option, value, call)
    return left


def _hint_for_dash(word: str, command: str, before: list[str]) -> str:
    """Return a hint where a word that begins with - may not be meant as an option."""
    if command == "work" and before:
        return "put -- before the program"
    if command == "copy" and word in _RETIRED:
        return _RETIRED[word]
    if word.partition("=")[0] in {"--port", "--host"} and command in {"serve", "service install"}:
        return "the address and the port are one: --http 127.0.0.1:4651"
    if command == "search" and not word.startswith("--"):
        from shlex import quote  # noqa: PLC0415 - only for mistakes

        return f"-- stands before a query that begins with -: postroom search -- {quote(word)}"
    return ""


def _option(word: str, options: dict[str, Option], command: str, before: list[str]) -> tuple[Option, str | None]:
    name, equals, value = word.partition("=")
    if name in options:
        return options[name], value if equals else None
    short = word[:2]
    if not word.startswith("--") and short in options and options[short].kind != "flag":
        return options[short], word[2:]
    hint = _hint_for_dash(word, command, before) or meant(name, options) or "--help shows all"
    raise Usage("there is no such option", field=name, hint=hint)


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
        raise Usage(f"{args[0]!a} is one word too many", field="arguments", hint="quote a text that has blanks")
    for option in call.command.options if call.command else ():
        if option.required and option.name not in call.values:
            raise Usage("is missing", field=option.names[0], hint=option.help)


def _no_subcommand(name: str, word: str, following: list[str]) -> Usage:
    if word in following:
        return Usage(f"{word!a} stands directly behind {name}", field="command", hint=f"postroom {name} {word} …")
    full = f"{name} {word}"
    hint = meant(word, following, f"{name} ") or f"{name} {', '.join(following)}"
    return Usage(f"there is no {full!a}", field="command", hint=hint)


def _keep(option: Option, value: str, call: Call) -> None:
    name = option.metavar if option.is_place else option.names[-1]
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Usage("is not UTF-8 text", field=name, hint="send other bytes as a file") from None
    if option.many:
        call.values.setdefault(option.name, []).append(value)
    elif option.name in call.values:
        raise Usage("is given twice", field=name)
    else:
        call.values[option.name] = value


def meant(word: str, known: Iterable[object], before: str = "") -> str | None:
    """Return a hint with the known word most like this one, if any is like it."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for mistakes

    close = get_close_matches(word, [str(name) for name in known], 1)
    return f"did you mean {before + close[0]!r}?" if close else None
