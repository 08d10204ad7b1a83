"""What a command takes, declared beside its function or in place of one.

    command("sent", verb="search.Sent", view=views.outbox, examples=…)        # a row: shows what the verb returns

    @command("check", Option("--all", name="unread_only", value=False, help="…"), verb="inbox.Check", examples=…)
    def run_check(context: Context) -> Answer: ...                            # where more is to be done

A command that calls a verb of the room says only what the verb cannot know: which parameters are arguments
(`places`), options of the command line alone, the view, examples. Every other parameter of the verb is an option,
with the type, default and help that the verb declares; `SPELT` says how it is written where that is not `--NAME`.
"""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from ..environment import Uninterrupted
from .table import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ..core.verb import Parameter, Verb


class Option:
    """An option (`--subject`) or an argument (`ID`).

    `name` is the name of its value: that of the parameter which it sets, where the command calls a verb. `kind` is
    the type of the value: text, flag, count, seconds, when (a later time), past (an earlier time), json, address (a
    word, or a JSON object), word (one of `choices`), setting (NAME=VALUE of a setting), pair (any NAME=VALUE), rule
    (a pair, or an empty text). `value` is what a flag means. `complete` is what shells offer: agents, letters,
    scopes, peers, webhooks, dead, sent, tasks, templates, escalations, files, commands. It may not be given together
    with the options `against`, and only with the one that it `needs`, each by the name of its value.
    """

    def __init__(
        self,
        *names: str,
        help: str,
        name: str = "",
        kind: str = "text",
        metavar: str = "",
        many: bool = False,
        required: bool = False,
        choices: tuple[str, ...] = (),
        complete: str = "",
        value: Any = True,
        against: tuple[str, ...] = (),
        needs: str = "",
    ) -> None:
        self.names = names
        long = next((name for name in names if name.startswith("--")), names[0])
        spelt = long.lstrip("-").replace("-", "_")
        self.name = name or spelt.lower()
        self.is_place = not names[0].startswith("-")
        self.help = help
        self.kind = kind
        usual = names[0] if self.is_place else "|".join(choices) or _METAVARS.get(kind) or spelt.upper()
        self.metavar = metavar or usual
        self.many = many
        self.required = required
        self.choices = choices
        self.complete = complete
        self.value = value
        self.against, self.needs = against, needs


_METAVARS = {"json": "JSON", "count": "N", "seconds": "SPAN", "when": "WHEN", "past": "WHEN"}


class Command:
    """One command: its options, what it runs, and its examples."""

    def __init__(
        self,
        name: str,
        own: tuple[Option, ...],
        *,
        function: Callable[..., Any] | None = None,
        verb: str | type[Verb] = "",
        places: tuple[str, ...] = (),
        without: tuple[str, ...] = (),
        needs_text: bool = True,
        view: Callable[..., str] | None = None,
        shape: Callable[[Any, Any], Mapping[str, Any]] | None = None,
        of_room: bool = False,
        about: str = "",
        examples: tuple[tuple[str, str], ...] = (),
        json: str = "",
        looks: bool = False,
        waits_for: str = "",
        by: str = "",
        no_room: str = "",
    ) -> None:
        self.name = name
        self.function = function
        self.needs_text = needs_text  # where it takes a text: must there be one?
        self.view = view  # shows what the verb returns
        self.shape = shape  # returns its JSON, where that is not the JSON of the verb
        self.of_room = of_room  # where no caller is named, it is about the whole room
        self.about = about
        self.examples = examples  # (command line, what it does); every one of them is run by a test
        self.waits_for = waits_for  # the field of its JSON that is empty where nothing came; the exit code says so
        self.by = by  # who acts, where no caller is named
        self.no_room = no_room  # why it does not take --room
        self.looks = looks  # only reads, or needs what exists already: it makes no room
        self.named = tuple(json.split())  # the fields of its JSON, where those are not all of the verb's
        self._own, self._verb, self._places, self._without = own, verb, places, without

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Run this function, as its decorator."""
        self.function = function
        return function

    def run(self, context: Any) -> Any:
        """Run the command, and return its answer or answers."""
        return context.answer() if self.function is None else self.function(context)

    @cached_property
    def summary(self) -> str:
        if self.name in COMMANDS:
            return COMMANDS[self.name][1]
        about = self.verb.declaration().about if self.verb else ""
        return about[:1].lower() + about[1:].rstrip(".")

    @cached_property
    def verb(self) -> type[Verb] | None:
        """The verb that the command calls; it is loaded with the command."""
        if not isinstance(self._verb, str) or not self._verb:
            return self._verb or None
        module, _, name = self._verb.partition(".")
        with Uninterrupted():
            found: type[Verb] = getattr(import_module(f"..core.{module}", __package__), name)
        return found

    @cached_property
    def options(self) -> tuple[Option, ...]:
        """Its arguments and options: its own, then those of its verb for which it has none of its own."""
        if self.verb is None:
            return self._own
        from ..core.verb import parameters  # noqa: PLC0415 - not for commands without a verb

        known = parameters(self.verb)
        hidden = {"agent_id", *self._without, *(option.name for option in self._own)}
        made = {name: _option(one, name in self._places) for name, one in known.items() if name not in hidden}
        if self.verb.declaration().everyone and "everyone" not in hidden:
            made["everyone"] = EVERYONE
        named = made | {option.name: option for option in self._own if option.is_place}
        places = dict.fromkeys([*(named[name] for name in self._places), *self._own, *made.values()])
        return tuple(sorted(places, key=lambda option: not option.is_place))

    @cached_property
    def json(self) -> tuple[str, ...]:
        """The fields of its answer in JSON, besides schema and command."""
        if self.named or self.verb is None:
            return self.named
        from ..formats.plain import result_names  # noqa: PLC0415 - only for help

        return result_names(self.verb.declaration())


# -- the commands that were declared

_known: dict[str, Command] = {}


def command(name: str, *options: Option, **declared: Any) -> Command:
    """Declare a command: a row that shows what its verb returns, or the decorator of the function that it runs."""
    _known[name] = Command(name, options, **declared)
    return _known[name]


def command_of(name: str) -> Command:
    """Return a command of the table. Its module is loaded; no other is."""
    if name not in _known:
        with Uninterrupted():
            import_module(f".{COMMANDS[name][0]}", __package__)
    return _known[name]


def command_of_verb(word: str) -> Command | None:
    """Return the command for a verb that is in no table, with its required parameters as arguments."""
    from ..core.verb import VERBS, load_verbs, parameters  # noqa: PLC0415 - rare

    load_verbs()
    found = VERBS.get(word.replace("-", "_"))
    if found is None or found.declaration().local:
        return None
    places = tuple(name for name, one in parameters(found).items() if one.required)
    return Command(word, (), verb=found, places=places, looks=not found.declaration().writes)


def words_of_verbs() -> list[str]:
    """Return the commands that are in no table: a verb is one by itself."""
    from ..core.verb import VERBS, load_verbs  # noqa: PLC0415 - rare

    load_verbs()
    return [name.replace("_", "-") for name, found in VERBS.items() if not found.declaration().local]


def verbs_alone() -> list[Command]:
    """Return the commands of the verbs that no row of the table calls."""
    called = {command_of(name).verb for name in COMMANDS}
    found = [command_of_verb(word) for word in words_of_verbs()]
    return [one for one in found if one is not None and one.verb not in called and one.name not in COMMANDS]


# -- options from the parameters of a verb

# Parameter -> how it is written, its metavar, and what shells offer for it.
SPELT: dict[str, tuple[tuple[str, ...], str, str]] = {
    "agent": (("--agent",), "NAME", "agents"),
    "also": (("--at-mailbox",), "NAME", "agents"),
    "attachments": (("--attachment",), "NAME", ""),
    "bcc": (("--bcc",), "NAME", "agents"),
    "capabilities": (("--capability",), "LABEL", ""),
    "capability": (("--capability",), "LABEL", ""),
    "cc": (("--cc",), "NAME", "agents"),
    "conversation": (("--conversation",), "ID", ""),
    "conversation_id": (("--conversation",), "ID", ""),
    "count": (("-n", "--count"), "N", ""),
    "current_tasks": (("--task",), "TEXT", ""),
    "description": (("--description",), "TEXT", ""),
    "display_name": (("--name",), "TEXT", ""),
    "exclude": (("--exclude",), "NAME", "agents"),
    "id": (("--id",), "ID", "letters"),
    "ids": (("--id",), "ID", "letters"),
    "in_reply_to": (("--in-reply-to",), "ID", "letters"),
    "key": (("--key",), "TEXT", ""),
    "kind": (("-k", "--kind"), "WORD", ""),
    "kinds": (("--kind",), "WORD", ""),
    "ladder": (("--ladder",), "NAME", "agents"),
    "letter_id": (("--letter-id",), "ID", ""),
    "limit": (("-n", "--limit"), "N", ""),
    "max_concurrent_tasks": (("--max-tasks",), "N", ""),
    "min_priority": (("--min-priority",), "", ""),
    "model": (("--model",), "TEXT", ""),
    "name": (("--name",), "NAME", ""),
    "priority": (("-p", "--priority"), "", ""),
    "program": (("--program",), "TEXT", ""),
    "scope": (("--scope",), "NAME", "scopes"),
    "scopes": (("--scope",), "NAME", "scopes"),
    "sender": (("--from",), "NAME", "agents"),
    "reason": (("--reason",), "TEXT", ""),
    "states": (("--state",), "STATE", ""),
    "subject": (("-s", "--subject"), "TEXT", ""),
    "tag": (("--tag",), "LABEL", ""),
    "tags": (("--tag",), "LABEL", ""),
    "thread": (("--thread",), "ID", "letters"),
    "thread_tag": (("--thread-tag",), "LABEL", ""),
    "to": (("--to",), "NAME", "agents"),
    "token": (("--token",), "TOKEN", ""),
    "timeout": (("-t", "--timeout"), "SPAN", ""),
}
# Parameters that take any value in a call, and at a shell: their kind, and whether they may be repeated.
_AT_A_SHELL = {"body": ("text", False), "cc": ("address", True), "bcc": ("address", True), "to": ("address", True)}
_FORMS = {
    "seconds": "such as 90s or 5m",
    "past": "or a span back such as 2h",
    "when": "or a span from now such as 2h",
}


def _option(parameter: Parameter, is_place: bool) -> Option:
    """Return the option for a parameter of a verb."""
    name = parameter.name
    kind, choices, many = _kind(parameter.type)
    kind, many = _AT_A_SHELL.get(name, (kind, many))
    names, metavar, complete = SPELT.get(name, ((f"--{name.replace('_', '-')}",), "", ""))
    is_off = kind == "flag" and parameter.default is True
    if is_place:
        names, metavar = (metavar or name.upper(),), ""
    elif is_off:
        names = (f"--no-{names[-1].lstrip('-')}",)
    about = f"{parameter.help}, {_FORMS[kind]}" if kind in _FORMS else parameter.help
    about += {
        "id": ", as check shows it, or how it begins",
        "ids": ", as check shows them, or how they begin",
    }.get(name, "")
    is_short = kind in {"count", "seconds", "word", "text"}
    if is_short and not parameter.required and parameter.default not in (None, "", 0):
        usual = f"{parameter.default:g}" if kind == "seconds" else parameter.default
        about += f"; {usual} by default"
    return Option(
        *names,
        name=name,
        help=about,
        kind=kind,
        metavar=metavar,
        many=many,
        required=parameter.required,
        choices=choices,
        complete=complete,
        value=not is_off,
    )


_PRIORITIES = ("low", "normal", "high", "urgent")
_KINDS: dict[Any, str] = {str: "text", bool: "flag", int: "count", float: "seconds"}


def _kind(wanted: Any) -> tuple[str, tuple[str, ...], bool]:
    """Return the kind of an option for a type, its choices, and whether it takes many values."""
    from types import UnionType  # noqa: PLC0415 - only for verbs
    from typing import Union  # noqa: PLC0415 - only for verbs

    is_union = get_origin(wanted) in {UnionType, Union}
    kinds = [one for one in get_args(wanted) if one is not type(None)] if is_union else [wanted]
    inner = [get_args(one)[0] for one in kinds if get_origin(one) is list]
    if inner:
        return ("text", (), True) if inner[0] is Any else (*_kind(inner[0])[:2], True)
    if len(kinds) == 1 and get_origin(kinds[0]) is Literal:
        return "word", get_args(kinds[0]), False
    if hasattr(kinds[0], "__metadata__"):  # PriorityWord
        return "word", _PRIORITIES, False
    if datetime in kinds:
        return ("when" if float in kinds else "past"), (), False
    return next((_KINDS[one] for one in kinds if one in _KINDS), "json"), (), False


# -- options that several commands share, and those of every command

ID = Option(
    "ID", name="id", help="the letter's id, as check shows it, or how it begins", required=True, complete="letters"
)
TEXT = Option("TEXT", help="the text, in place of --body", name="body")
BODY = (
    TEXT,
    Option(
        "--body", help="the text; - reads it from standard input", metavar="TEXT", against=("edit", "template")
    ),
    Option("--edit", help="write the text in $VISUAL or $EDITOR", kind="flag", against=("template",)),
)
PARTS = (
    Option("--file", help="enclose this file, read now; it must lie below the setting file_root", many=True,
           metavar="PATH", complete="files", against=("template",)),
    Option("--reference", help="point to something elsewhere", many=True, metavar="URI", against=("template",)),
    Option("--part", help="a part as JSON, such as an event or a type of your own", kind="json", many=True,
           against=("template",)),
)  # fmt: skip
EXTRA = Option("--extra", help="an object of unknown fields of a source format", kind="json")
CONTENT = (*BODY, *PARTS, EXTRA)
EVERYONE = Option("--everyone", help="of the whole room, not of one agent", kind="flag")
WHOLE = Option("--everyone", "--all", name="everyone", help="of the whole room, not of one agent", kind="flag")
LIMIT = Option("-n", "--limit", help="at most so many", kind="count", metavar="N")

EVERYWHERE = (
    Option(
        "--as",
        help="your agent name; by default POSTROOM_AGENT, or the agent of the host session that runs the command",
        metavar="NAME",
        complete="agents",
    ),
    Option(
        "--room",
        "--store",
        help="which room: a path with a / or that ends in .db, or an address; by default POSTROOM_STORE, else"
        " .postroom in the working folder or above it, else your own room",
        metavar="ADDRESS",
        complete="files",
    ),
    Option(
        "--set",
        help="a setting for this call, as in the reference",
        kind="setting",
        metavar="NAME=VALUE",
        many=True,
    ),
    Option(
        "--json",
        help="answer with JSON: one document, or one per line where a command answers repeatedly",
        kind="flag",
    ),
    Option("--color", help="colours and tables", kind="word", choices=("auto", "always", "never")),
    Option("-h", "--help", help="this text", kind="flag"),
)


def with_common(options: Iterable[Option]) -> tuple[Option, ...]:
    """Return the options of a command and those of every command; its own come first where both have a name."""
    own = tuple(options)
    spelt = {name for option in own for name in option.names}
    return (*own, *(option for option in EVERYWHERE if spelt.isdisjoint(option.names)))
