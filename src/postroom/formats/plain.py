"""The codec of our own JSON, in which every field is always present.

`FORMS` is the table of the types whose JSON differs from their fields; `plain` makes JSON of any value by it,
`read_result` reads the answer of a server, and `json_type` makes the types of schemas. The table names types as
text, so that a command which sends loads few of their modules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from functools import cache
from operator import attrgetter
from types import SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict

from ..model.agent import Agent
from ..model.codec import convert, to_plain
from ..model.delivery import forwarded_to
from ..model.message import Priority
from ..model.query import Found
from ..model.record import Change, Cursor

if TYPE_CHECKING:
    from ..core.agents import Agents
    from ..core.verb import Declaration
    from ..letter import Letter
    from ..model.delivery import Delivery
    from ..model.message import Message
    from ..model.report import Stop
    from ..task import Task


PriorityName = Literal["low", "normal", "high", "urgent"]
Unread = dict[PriorityName, int]


_PLAIN = {str, int, bool, type(None), dict}  # types of values that are JSON already


class Form(Struct, frozen=True):
    """How the JSON of a type differs from its fields. Types are named as `_types` knows them."""

    # Of fields that the type has not, or that are of another type there, or whose type has a form.
    types: Mapping[str, str] = {}
    made: Mapping[str, Callable[[Any], Any]] = {}  # how their values are made, if not read from the attribute
    without: Collection[str] = ()  # fields of the type that the JSON has not, besides its SECRETS
    alone: bool = False  # it has no others than those of `types`
    of: str = ""  # the type whose fields it has, if not the type itself
    source: Callable[[Any], Any] | None = None  # the value of that type
    name: str = ""  # in schemas, if not that of the type
    read: Callable[[dict[str, Any]], dict[str, Any]] | None = None  # its fields in the JSON, if they differ


class Forwarding(Struct):
    """Where a letter went on to, and since when."""

    where: str
    since: datetime


class ClaimedLetter(Struct):
    """A letter with the token that proves who holds it (G5)."""

    found: Found
    lease_seconds: float


class ShownCard(Struct):
    """A card as the directory shows it: a mailbox for which nobody registered has no time of registration."""

    agent: Agent


class AfterMove(Struct):
    """The state of a letter after it was settled."""

    id: str
    state: str
    attempts: int
    reason: str | None
    due_at: datetime | None


def plain(value: Any, *, times: bool = False) -> Any:
    """Return any value that a verb returns as JSON; with `times`, its times are still times."""
    form = form_of(type(value))
    if form is not None:
        return _formed(value, form, times)
    if isinstance(value, (list, tuple)):
        return [plain(one, times=times) for one in value]
    if isinstance(value, Cursor):
        return str(value)
    if isinstance(value, Struct) and not isinstance(value, Change):
        return {name: plain(getattr(value, name), times=times) for name in value.__struct_fields__}
    return value if value is UNSET else to_plain(value, times=times)


def form_of(kind: type) -> Form | None:
    """Return the form of a type."""
    return FORMS.get(f"{kind.__module__.rpartition('.')[2]}.{kind.__qualname__}")


def hidden(kind: type, form: Form) -> set[str]:
    """Return the fields of a type that its JSON has not."""
    return {*form.without, *getattr(kind, "SECRETS", ())}


@cache
def _makers(kind: type) -> list[tuple[str, Callable[[Any], Any]]]:
    form = form_of(kind)
    return [(name, form.made.get(name) or attrgetter(name)) for name in form.types] if form else []


def _formed(value: Any, form: Form, times: bool) -> dict[str, Any]:
    made = {}
    for name, make in _makers(type(value)):  # type: ignore[arg-type] # a type is hashable
        one = make(value)
        if one is not UNSET:
            made[name] = one if type(one) in _PLAIN else plain(one, times=times)
    if form.alone:
        return made
    own: dict[str, Any] = asdict(value) if form.source is None else plain(form.source(value), times=times)
    for name in hidden(type(value), form):
        del own[name]
    if form.source is None:
        own = to_plain(own | dict.fromkeys(made), times=times)
    return own | made


def plain_result(declaration: Declaration, result: Any, *, times: bool = False) -> Any:
    """Return the result of a verb as JSON; with `times`, its times are still times."""
    shown = plain(result, times=times)
    return shown if declaration.under is None else {declaration.under: shown}


def read_result(declaration: Declaration, shown: dict[str, Any]) -> Any:
    """Return the result of a verb from its JSON; raise msgspec.ValidationError if it is none."""
    result: Any = declaration.result  # of other programs' verbs, words
    value = shown if declaration.under is None else shown[declaration.under]
    return value if isinstance(result, str) else read_value(value, result)


def read_value(shown: Any, kind: Any) -> Any:
    """Return a value of our types from its JSON; raise msgspec.ValidationError if it is none."""
    return convert(_fields_in(shown, kind), kind)


def _fields_in(shown: Any, wanted: Any) -> Any:
    """Return the fields of a value in its JSON; those that the JSON has not keep their defaults."""
    if shown is None:
        return None
    origin, parts = get_origin(wanted), get_args(wanted)
    if origin in {list, tuple}:
        return [_fields_in(one, parts[0]) for one in shown]
    if origin is dict:
        return {_fields_in(key, parts[0]): _fields_in(value, parts[1]) for key, value in shown.items()}
    if parts:  # of one of our types, or None
        return _fields_in(shown, parts[0])
    if not (isinstance(wanted, type) and issubclass(wanted, Struct)):
        return Priority[shown.upper()] if wanted is Priority else shown
    form = form_of(wanted)
    source = shown if form is None or form.read is None else form.read(shown)
    hints = _field_types(wanted).items()
    return {name: _fields_in(source[name], hint) for name, hint in hints if name in source}


@cache
def _field_types(kind: type[Struct]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {name: hints[name] for name in kind.__struct_fields__}


def _read_found(shown: dict[str, Any]) -> dict[str, Any]:
    at = shown["delivery"] | {"message_id": shown["id"], "priority": shown["priority"]}
    return {"message": shown, "delivery": at}


def plain_letter(letter: Letter) -> dict[str, Any]:
    """Return a letter with its delivery."""
    shown: dict[str, Any] = plain(Found(letter.message, letter.delivery))
    return shown


def plain_task(task: Task) -> dict[str, Any]:
    """Return a task as its mailbox sees it."""
    from ..core.tasks import FoundTask  # noqa: PLC0415 - few commands are about tasks

    shown: dict[str, Any] = plain(FoundTask(task.standing, task.session))
    return shown


def after_move(moved: Letter | Found) -> AfterMove:
    """Return the state of a letter after it was settled."""
    one = moved.delivery
    return AfterMove(one.message_id, str(one.state), one.attempts, one.reason, one.due_at)


def shown_letter(found: Found) -> Message:
    """Return the message as the owner of the mailbox may see it."""
    return found.message.seen_by(found.delivery.mailbox)


def _priority(value: Any) -> str:
    return str(value.priority.name.lower())


def _unread(value: Any) -> dict[str, int]:
    return {priority.name.lower(): count for priority, count in value.unread.items()}


def _forwarded(at: Delivery | Stop) -> Forwarding | None:
    """Return where a letter went on to, and since when; None if it ends here."""
    where = forwarded_to(at)
    return None if where is None or at.acked_at is None else Forwarding(where, at.acked_at)


def _elsewhere(found: Agents) -> list[dict[str, Any]] | UnsetType:
    """Return the agents of other systems, only if they were asked for."""
    from .inbox import far_agent_record  # noqa: PLC0415 - for a server

    return UNSET if found.elsewhere is None else [far_agent_record(*one) for one in found.elsewhere]


# A field with the name of a priority, and how it is made.
_PRIORITY: tuple[dict[str, str], dict[str, Any]] = {"priority": "PriorityName"}, {"priority": _priority}
_MOVES: tuple[dict[str, str], dict[str, Any]] = (
    {"letters": "list[AfterMove]"},
    {"letters": lambda settled: list(map(after_move, settled.letters))},
)
FORMS: dict[str, Form] = {  # by module and name of the type
    "plain.ClaimedLetter": Form(
        {"delivery": "Delivery", "token": "str | None", "lease_seconds": "float"},
        {"delivery": lambda one: one.found.delivery, "token": lambda one: one.found.delivery.lease.token},
        of="Message",
        source=lambda one: shown_letter(one.found),
    ),
    "plain.ShownCard": Form(
        {"registered_at": "datetime | None"},
        {"registered_at": lambda one: one.agent.card.registered_at if one.agent.registered else None},
        of="Card",
        source=lambda one: one.agent.card,
    ),
    "agent.Agent": Form({"card": "ShownCard"}, {"card": ShownCard}),
    "agents.Agents": Form(
        {"agents": "list[Agent]", "elsewhere": "list[dict[str, Any]] | UnsetType"},
        {"elsewhere": _elsewhere},
        without={"elsewhere"},
    ),
    "alert.AlertLetter": Form(*_PRIORITY),
    "alert.Rung": Form({"letters": "list[AlertLetter]"}),
    "delivery.Delivery": Form(
        {"holder": "str | None", "forwarded": "Forwarding | None"},
        {"holder": lambda one: one.lease.holder if one.lease else None, "forwarded": _forwarded},
        # The token proves who holds the letter (G5): a reader of the listing could settle it.
        without={"lease", "priority", "message_id"},
    ),
    "message.Message": Form(
        {"task": "TaskNote | None", "text": "str", "thread": "str", **_PRIORITY[0]}, _PRIORITY[1]
    ),
    "message.Template": Form({"places": "list[str]", **_PRIORITY[0]}, _PRIORITY[1]),
    "messages.Receipt": Form(
        {
            "id": "str",
            "thread": "str",
            "repeated": "bool",
            "unknown": "tuple[str, ...]",
            "routed": "tuple[str, ...]",
            "carried": "list[Carried]",
            "letter": "Message",
        },
        {"letter": lambda receipt: receipt.message},
        alone=True,
    ),
    "peer.Peer": Form(
        {"shows_token": "bool", "knows_token": "bool"},
        {"shows_token": lambda peer: bool(peer.token), "knows_token": lambda peer: bool(peer.proof)},
    ),
    "query.Found": Form(
        {"delivery": "Delivery"}, of="Message", source=shown_letter, name="Letter", read=_read_found
    ),
    "query.Tally": Form({"unread": "Unread", "total_unread": "int", "backlog": "int"}, {"unread": _unread}),
    "report.Diagnosis": Form(
        {"healthy": "bool", "worst": "str", "findings": "list[Finding]"},
        {"healthy": lambda found: found.is_healthy, "worst": lambda found: str(found.worst)},
        without={"findings"},
    ),
    "report.Finding": Form({"level": "str"}, {"level": lambda found: str(found.level)}),
    "report.Stats": Form(
        {"states": "dict[str, int]", "unread": "Unread", "mailboxes": "list[Tally]", "rates": "list[Rate]"},
        {
            "states": lambda stats: {str(state): many for state, many in stats.states.items()},
            "unread": _unread,
        },
    ),
    "report.Stop": Form(
        {
            "history": "list[Attempt]",
            "rings": "list[Alert]",
            "sights": "list[Sight]",
            "forwarded": "Forwarding | None",
        },
        {"forwarded": _forwarded},
    ),
    "report.Trace": Form(
        {
            "letter": "Message",
            "number": "int",
            "stops": "list[Stop]",
            "replies": "list[Message]",
            "relays": "list[Message]",
            "bounces": "list[Message]",
        },
        {"letter": lambda trace: trace.message},
        alone=True,
    ),
    "search.Summary": Form(
        {"from": "str", **_PRIORITY[0]},
        {"from": lambda one: one.sender, **_PRIORITY[1]},
        without={"sender"},
        read=lambda shown: shown | {"sender": shown["from"]},
    ),
    "task.Escalation": Form({"waits_for": "str | None", **_PRIORITY[0]}, _PRIORITY[1]),
    "tasks.FoundTask": Form(
        # Outside, a task is named by the letter that opened it; the name in its letters is `called`.
        {"id": "str", "called": "str", "is_final": "bool", "session": "dict[str, Any] | None"},
        {
            "id": lambda task: task.standing.letter,
            "called": lambda task: task.standing.id,
            "is_final": lambda task: task.standing.is_final,
        },
        without={"letter"},
        of="TaskStatus",
        source=lambda task: task.standing,
        name="Task",
    ),
    "tasks.Moved": Form({"task": "FoundTask", "receipt": "Receipt"}, without={"delivery"}),
    "tokens.Token": Form(without={"hash"}),
    "waiting_list.Entry": Form(
        {"from": "str", **_PRIORITY[0]},
        {"from": lambda one: one.sender, **_PRIORITY[1]},
        without={"sender"},
        read=lambda shown: shown | {"sender": shown["from"]},
    ),
    "webhook.Webhook": Form(
        {"min_priority": "PriorityName"},
        {"min_priority": lambda one: one.min_priority.name.lower()},
    ),
    "work.Claimed": Form(
        {"letters": "list[ClaimedLetter]"},
        {"letters": lambda claimed: [ClaimedLetter(found, claimed.lease) for found in claimed.letters]},
        without={"lease"},
    ),
    "dead.Revived": Form(*_MOVES),
    "work.Settled": Form({**_MOVES[0], "receipts": "list[Receipt]"}, _MOVES[1]),
}


# Schemas: the types of this JSON

_MADE: set[type] = set()  # types of JSON, which hold no values of ours


@cache
def _types() -> dict[str, Any]:
    """Return the types that the forms name."""
    from ..core import messages, tasks  # noqa: PLC0415 - a command that sends needs no schema
    from ..model import agent, alert, delivery, message, peer, query, report, task  # noqa: PLC0415 - as above

    modules = (agent, alert, delivery, message, messages, peer, query, report, task, tasks)
    found = {name: kind for module in modules for name, kind in vars(module).items()}
    return found | globals() | {"datetime": datetime, "UnsetType": UnsetType}


def result_names(declaration: Declaration) -> tuple[str, ...]:
    """Return the fields of the JSON of a verb's result."""
    return _names(declaration.result) if declaration.under is None else (declaration.under,)


def _names(result: Any) -> tuple[str, ...]:
    form = form_of(result)
    if form is None:
        return tuple(result.__struct_fields__)
    if form.alone:
        return tuple(form.types)
    own = _names(_types()[form.of]) if form.of else result.__struct_fields__
    return tuple(dict.fromkeys((*(name for name in own if name not in hidden(result, form)), *form.types)))


@cache
def json_type(wanted: Any) -> Any:
    """Return the type of the JSON that `plain` makes of a value of this type."""
    if wanted is Cursor:
        return str
    parts = get_args(wanted)
    if get_origin(wanted) in {Union, UnionType}:
        return Union[tuple(map(json_type, parts))]  # noqa: UP007 - of any number of types
    if get_origin(wanted) in {list, tuple, dict}:
        return get_origin(wanted)[tuple(map(json_type, parts))]
    if wanted is Change or wanted in _MADE or not (isinstance(wanted, type) and issubclass(wanted, Struct)):
        return wanted
    form = form_of(wanted) or Form()
    of = _types()[form.of] if form.of else wanted
    own = {} if form.alone else _hints(json_type(of) if form.of else of)
    kept = {name: hint for name, hint in own.items() if name not in hidden(wanted, form)}
    hints = kept | get_type_hints(SimpleNamespace(__annotations__=dict(form.types)), _types())
    fields = [
        (field, json_type(hint), UNSET) if UnsetType in get_args(hint) else (field, json_type(hint))
        for field, hint in hints.items()
    ]
    # The module tells apart two types of one name.
    made = msgspec.defstruct(form.name or wanted.__name__, fields, module=of.__module__, kw_only=True)
    _MADE.add(made)
    return made


def _hints(of: type[Struct]) -> dict[str, Any]:
    hints = get_type_hints(of, include_extras=True)
    return {field: hints[field] for field in of.__struct_fields__}
