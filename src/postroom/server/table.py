"""The table of methods: name, parameters, result and function of each. Checks and the reference pages come from
it.

A module of methods (`verbs`, `inbox_actions`, `mail`, and those of MAP, federation and MCP) is a list of `Method`
rows. `check_params` turns the parameters of a request into those of the table, every value of the right kind.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cached_property
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from msgspec import Struct

from ..core.verb import (
    LONGEST_WAIT,
    MANY,
    Verb,
    authorised,
    from_params,
    given_names,
    parameters,
    parse_time,
    snake,
)
from ..errors import Invalid
from ..formats.plain import plain, result_names
from ..model.names import BROADCAST

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..mailbox import Mailbox
    from ..room import Room


# The kind of a value. `when` is a time in ISO 8601, or seconds from now; `texts` is one text or a list of them.
# `time` is a time in ISO 8601, or milliseconds since 1970. `json` may be null; elsewhere null means "not given".
# An `address` is a text or an object (agent, system, scope); `addresses` is one address or a list of them.
Kind = Literal[
    "text", "texts", "address", "addresses", "count", "seconds", "flag", "object", "list", "when", "time", "any",
    "json",
]  # fmt: skip
Run = Callable[[Any, dict[str, Any]], Any]  # (room or session, params) → result
_TYPES: dict[Kind, tuple[type, ...]] = {
    "text": (str,),
    "texts": (str, list),
    "address": (str, dict),
    "addresses": (str, dict, list),
    "count": (int,),
    "seconds": (int, float),
    "flag": (bool,),
    "object": (dict,),
    "list": (list,),
    "when": (str, int, float),
    "time": (str, int, float),
}
_EACH: dict[Kind, tuple[type, ...]] = {
    "texts": (str,),
    "addresses": (str, dict),
}  # what each item of a list must be
_ANYTHING = frozenset({"any", "json"})
_KIND_NAMES: dict[Kind, str] = {
    "text": "text",
    "texts": "text or a list of texts",
    "address": "a name, or an object of agent, system and scope",
    "addresses": "a name, an object of agent, system and scope, or a list of these",
    "count": "a whole number",
    "seconds": "a number of seconds",
    "flag": "true or false",
    "object": "an object",
    "list": "a list",
    "when": "a time such as 2026-01-31T12:00:00Z, or seconds from now",
    "time": "a time such as 2026-01-31T12:00:00Z, or milliseconds since 1970",
}


_GROUPS = (BROADCAST, "scope:")  # beginnings of an address that stands for any number of agents
_ONE = frozenset({"agent", "agentId", "agent_id", "participant"})  # fields of an address that names one agent


class Param(Struct, frozen=True):
    """A parameter of a method. Names are snake_case; camelCase is accepted too."""

    name: str
    kind: Kind
    about: str
    required: bool = False


class Method(Struct, frozen=True, kw_only=True, dict=True):
    """One method: a row of the table."""

    name: str
    about: str
    action: str  # the action that `authorize` checks
    run: Run
    params: tuple[Param, ...] = ()
    result: str  # the fields of the answer, in words
    whose: str | None = None  # the parameter that names the mailbox; None: it is about the room
    speaker: Callable[[Any], str | None] | None = None  # finds the acting agent where `whose` is not enough
    strict: bool = True  # is an unknown parameter refused? Other programs' protocols ignore it
    slow: bool = False  # may take long: never on the thread that serves everyone
    many: bool = False  # may return any number of things: slow unless a small limit is given
    wide: bool = False  # writes to a group of any size: on the thread of large calls
    empty: Callable[[Any], bool] | None = None  # of a method that waits: is this result empty?
    waits: float = 0.0  # and how many seconds it waits if the caller does not say
    of_session: bool = False  # is it about the caller's connection? Then `run` takes that in place of a room
    writes: bool = True  # does it change anything?
    verb: type[Verb] | None = None  # the verb of core that it is

    @cached_property
    def known(self) -> dict[str, Param]:
        return {param.name: param for param in self.params}

    @cached_property
    def required(self) -> tuple[Param, ...]:
        return tuple(param for param in self.params if param.required)

    def patience(self, params: Mapping[str, Any]) -> float:
        """Return how many seconds this call waits when there is nothing."""
        if self.empty is None:
            return 0.0
        seconds: float = params.get("timeout", self.waits)
        return max(0.0, min(seconds, LONGEST_WAIT))

    def is_slow(self, params: Mapping[str, Any]) -> bool:
        """Return whether this call may keep the others waiting."""
        return self.slow or (self.many and params.get("limit", MANY + 1) > MANY)

    def is_long(self, params: Mapping[str, Any]) -> bool:
        """Return whether this call may take long, or change who is calling."""
        is_wait = self.empty is not None and self.patience(params) > 0
        return self.of_session or is_wait or self.is_slow(params) or self.is_heavy(params)

    def is_heavy(self, params: Mapping[str, Any]) -> bool:
        """Return whether this call may take long because it names many letters, or a group of any size."""
        return self.wide or params.get("to_all") is True or _names_many(params) or _has_group(params.get("to"))


def _has_group(to: Any) -> bool:
    """Return whether a group is among these recipients, in our spelling or in MAP's."""
    if type(to) is str:
        return to.startswith(_GROUPS)
    if type(to) is list:
        return any(map(_has_group, to))
    return type(to) is dict and _ONE.isdisjoint(to)


def _names_many(params: Mapping[str, Any]) -> bool:
    for value in params.values():
        if type(value) is list:
            break
    else:  # most calls have none
        return False
    lists = _lists_in(params)
    inner = [inner for one in lists for each in one if type(each) is dict for inner in _lists_in(each)]
    return sum(map(len, lists + inner)) > MANY


def _lists_in(params: Mapping[str, Any]) -> list[list[Any]]:
    return [value for value in params.values() if type(value) is list]


def check_params(method: Method, params: Mapping[str, Any], names: Iterable[str] = ()) -> dict[str, Any]:
    """Return the parameters under the names of the table, every value of the right kind. Null means "not given".
    `names` are the names shown in the error where callers know the parameters by others.
    """
    if method.verb is not None:
        request = from_params(method.verb, params)
        checked = Checked({name: getattr(request, name) for name in given_names(method.verb, params)})
        checked.request = request
        return checked
    known = method.known
    values: dict[str, Any] = {}
    for name, value in params.items():
        param = known.get(name) or known.get(snake(name))
        if param is None:
            if method.strict:
                hint = ", ".join(names or known) or "it takes none"
                raise Invalid("there is no such parameter", field=name, hint=hint)
            continue
        if value is None and param.kind != "json":
            continue
        is_right = param.kind in _ANYTHING or (param.kind == "text" and type(value) is str)  # most are
        values[param.name] = value if is_right else _checked(param, value, name)
    for param in method.required:
        if param.name not in values:
            raise Invalid("is missing", field=param.name, hint=param.about)
    return values


def _checked(param: Param, value: Any, field: str) -> Any:
    kinds: Any = _TYPES[param.kind]
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise Invalid(f"must be {_KIND_NAMES[param.kind]}, not {type(value).__name__}", field=field)
    if param.kind in _EACH:
        values: list[Any] = value if isinstance(value, list) else [value]
        if not all(isinstance(one, _EACH[param.kind]) for one in values):
            raise Invalid(f"must be {_KIND_NAMES[param.kind]}", field=field)
        return values
    if param.kind in {"when", "time"} and isinstance(value, str):
        return parse_time(value, field)
    if param.kind == "time":
        return _since_1970(value, field)
    return value


def _since_1970(milliseconds: float, field: str) -> datetime:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        raise Invalid(f"{milliseconds!r} is not a time", field=field, hint=_KIND_NAMES["time"]) from None


class Checked(dict[str, Any]):
    """The parameters of a verb by name, with the request that they make."""

    request: Verb


class Nothing(dict[str, Any]):
    """The answer of a verb that waits and has found nothing yet."""


def of_verb(cls: type[Verb]) -> Method:
    """Return the row of a verb."""
    declaration, known = cls.declaration(), parameters(cls)

    def run(room: Room, params: Any) -> Any:
        result = authorised(room.core, room.principal, params.request)()
        answer = plain(result)
        return Nothing(answer) if declaration.waits and params.request.is_empty(result) else answer

    def is_empty(answer: Any) -> bool:
        return type(answer) is Nothing

    return Method(
        name=declaration.name,
        about=declaration.about,
        action=declaration.action,
        run=run,
        params=tuple(Param(one.name, _kind_of(one.type), one.help, one.required) for one in known.values()),
        result=", ".join(result_names(declaration.result)),
        whose="agent_id" if "agent_id" in known else None,
        slow=declaration.slow,
        many=declaration.many,
        wide=declaration.wide,
        empty=is_empty if declaration.waits else None,
        waits=known["timeout"].default if declaration.waits else 0.0,
        writes=declaration.writes,
        verb=cls,
    )


def _kind_of(wanted: Any) -> Kind:
    """Return the word for a type of a parameter."""
    types = set(get_args(wanted)) if get_origin(wanted) in {Union, UnionType} else {wanted}
    plain_types = {_plain_type(one) for one in types} - {type(None)}
    for kind, of in _KINDS:
        if plain_types <= of:
            return kind
    return "any"


def _plain_type(wanted: Any) -> Any:
    origin = get_origin(wanted)
    if origin is Annotated:
        return _plain_type(get_args(wanted)[0])
    return str if origin is Literal else origin or wanted


_KINDS: tuple[tuple[Kind, set[type]], ...] = (
    ("text", {str}), ("list", {list}), ("texts", {str, list}), ("count", {int}), ("seconds", {float, int}),
    ("flag", {bool}), ("when", {datetime, float}), ("object", {dict}),
)  # fmt: skip


# -- parameters that several methods share, and how they are read

AGENT = Param("agent_id", "text", "whose mailbox; with a token, the token's agent")
ID = Param("message_id", "text", "the id of a letter", required=True)
TOKEN = Param("token", "text", "the lease's token, from claim")
LIMIT = Param("limit", "count", "how many at most")
BODY = Param("body", "any", "text, or a list of parts; a file part needs its `bytes`, as base64")
FIELDS = (
    Param("cc", "any", "further recipients"),
    Param("bcc", "any", "recipients that the others do not see"),
    Param("data", "any", "any JSON; becomes a data part"),
    Param("subject", "text", "one line"),
    Param("kind", "text", "an open word, such as question"),
    Param("priority", "any", "low, normal, high or urgent"),
    Param("scope", "text", "the team or project it belongs to"),
    Param("expires", "when", "not offered after this"),
    Param("at", "when", "not delivered before this"),
    Param("thread_tag", "text", "a label for the thread"),
    Param("conversation_id", "text", "the conversation it belongs to"),
    Param("in_reply_to", "text", "the letter it answers"),
    Param("task", "object", "what it says of a task"),
    Param("callback", "object", "echoed, never acted on"),
    Param("context", "object", "of a handoff"),
    Param("attachments", "list", "names of what belongs to it"),
    Param("tags", "list", "labels"),
    Param("metadata", "object", "anything else"),
    Param("key", "text", "the same key again sends nothing twice"),
    Param("letter_id", "text", "only for a letter that has an id already"),
)
_FIELD_NAMES = tuple(param.name for param in FIELDS)

RECEIPT = "id, thread, repeated, unknown, routed, letter"


def box_of(room: Room, params: dict[str, Any], param: str = "agent_id") -> Mailbox:
    """Return the mailbox that a call names, else the caller's own."""
    name = params.get(param) or room.principal.agent
    if name is None:
        raise Invalid("who are you?", field=param, hint="the name of an agent")
    return room.mailbox(name)


def fields_of(params: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a letter under the names of `Mailbox.send`."""
    fields = {name: params[name] for name in _FIELD_NAMES if name in params}
    if "letter_id" in fields:
        fields["id"] = fields.pop("letter_id")
    return fields


def some(params: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return those of the named parameters that were given."""
    return {name: params[name] for name in names if name in params}
