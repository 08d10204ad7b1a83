"""The codec of our own JSON, in which every field is always present.

`forms` is the table of the types whose JSON differs from their fields; `plain` makes JSON of any value by it, and
`shapes` makes the schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict

from ..model.agent import Agent, Card
from ..model.codec import to_plain
from ..model.delivery import forwarded_to
from ..model.message import Message
from ..model.query import Found
from ..model.record import Change, Cursor

if TYPE_CHECKING:
    from ..core.agents import Agents
    from ..core.work import Claimed
    from ..letter import Letter
    from ..model.delivery import Delivery
    from ..model.report import Stop
    from ..task import Task


PriorityName = Literal["low", "normal", "high", "urgent"]
Unread = dict[PriorityName, int]


_PLAIN = {str, int, bool, type(None), dict}  # types of values that are JSON already


class Form(Struct, frozen=True):
    """How the JSON of a type differs from its fields."""

    types: Mapping[
        str, Any
    ] = {}  # of fields that the type has not, or that are of another type there, or whose type has a form
    made: Mapping[str, Callable[[Any], Any]] = {}  # how their values are made, if not read from the attribute
    without: Collection[str] = ()  # fields of the type that the JSON has not
    alone: bool = False  # it has no others than those of `types`
    of: type[Struct] | None = None  # the type whose fields it has, if not the type itself
    source: Callable[[Any], Any] | None = None  # the value of that type
    name: str = ""  # in schemas, if not that of the type


class Forwarding(Struct):
    """Where a letter went on to, and since when."""

    where: str
    since: str


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
    due_at: str | None


def plain(value: Any) -> Any:
    """Return any value that a verb returns as JSON."""
    form = _form_of(type(value))
    if form is not None:
        return _formed(value, form)
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, Cursor):
        return str(value)
    if isinstance(value, Struct) and not isinstance(value, Change):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    return value if value is UNSET else to_plain(value)


@cache
def _makers(kind: type) -> list[tuple[str, Callable[[Any], Any]]]:
    form = _form_of(kind)
    return [(name, form.made.get(name) or attrgetter(name)) for name in form.types] if form else []


def _formed(value: Any, form: Form) -> dict[str, Any]:
    made = {}
    for name, make in _makers(type(value)):  # type: ignore[arg-type] # a type is hashable
        one = make(value)
        if one is not UNSET:
            made[name] = one if type(one) in _PLAIN else plain(one)
    if form.alone:
        return made
    own: dict[str, Any] = asdict(value) if form.source is None else plain(form.source(value))
    for name in form.without:
        del own[name]
    if form.source is None:
        own = to_plain(own | dict.fromkeys(made))
    return own | made


def result_names(result: Any) -> tuple[str, ...]:
    """Return the fields of the JSON of a verb's result."""
    form = _form_of(result)
    if form is None:
        return tuple(result.__struct_fields__)
    if form.alone:
        return tuple(form.types)
    own = result_names(form.of) if form.of else result.__struct_fields__
    return tuple(dict.fromkeys((*(name for name in own if name not in form.without), *form.types)))


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
    return AfterMove(one.message_id, str(one.state), one.attempts, one.reason, to_plain(one.due_at))


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
    return None if where is None else Forwarding(where, to_plain(at.acked_at))


def _elsewhere(found: Agents) -> list[dict[str, Any]] | UnsetType:
    """Return the agents of other systems, only if they were asked for."""
    from .inbox import far_agent_record  # noqa: PLC0415 - for a server

    return UNSET if found.elsewhere is None else [far_agent_record(*one) for one in found.elsewhere]


def _claimed(claimed: Claimed) -> list[ClaimedLetter]:
    return [ClaimedLetter(found, claimed.lease) for found in claimed.letters]


# A field with the name of a priority, and how it is made.
_PRIORITY: tuple[dict[str, Any], dict[str, Any]] = {"priority": PriorityName}, {"priority": _priority}


@cache
def _of_model() -> dict[type, Form]:
    from datetime import datetime  # noqa: PLC0415

    from ..model.delivery import Delivery  # noqa: PLC0415
    from ..model.message import TaskNote, Template  # noqa: PLC0415
    from ..model.peer import SECRETS, Peer  # noqa: PLC0415
    from ..model.query import Tally  # noqa: PLC0415
    from ..model.task import Escalation  # noqa: PLC0415

    return {
        Agent: Form({"card": ShownCard}, {"card": ShownCard}),
        ClaimedLetter: Form(
            {"delivery": Delivery, "token": str | None, "lease_seconds": float},
            {"delivery": lambda one: one.found.delivery, "token": lambda one: one.found.delivery.lease.token},
            of=Message,
            source=lambda one: shown_letter(one.found),
        ),
        Delivery: Form(
            {"holder": str | None, "forwarded": Forwarding | None},
            {"holder": lambda one: one.lease.holder if one.lease else None, "forwarded": _forwarded},
            # The token proves who holds the letter (G5): a reader of the listing could settle it.
            without={"lease", "priority", "message_id"},
        ),
        Escalation: Form({"waits_for": str | None, **_PRIORITY[0]}, _PRIORITY[1]),
        Found: Form({"delivery": Delivery}, of=Message, source=shown_letter, name="Letter"),
        Message: Form({"task": TaskNote | None, "text": str, "thread": str, **_PRIORITY[0]}, _PRIORITY[1]),
        Peer: Form(
            {"shows_token": bool, "knows_token": bool},
            {"shows_token": lambda peer: bool(peer.token), "knows_token": lambda peer: bool(peer.proof)},
            without=SECRETS,
        ),
        ShownCard: Form(
            {"registered_at": datetime | None},
            {"registered_at": lambda one: one.agent.card.registered_at if one.agent.registered else None},
            of=Card,
            source=lambda one: one.agent.card,
        ),
        Tally: Form({"unread": Unread, "total_unread": int, "backlog": int}, {"unread": _unread}),
        Template: Form({"places": list[str], **_PRIORITY[0]}, _PRIORITY[1]),
    }


@cache
def _of_reports() -> dict[type, Form]:
    from ..model.alert import Alert, AlertLetter, Rung, Sight  # noqa: PLC0415
    from ..model.delivery import Attempt  # noqa: PLC0415
    from ..model.query import Tally  # noqa: PLC0415
    from ..model.report import Diagnosis, Finding, Rate, Stats, Stop, Trace  # noqa: PLC0415

    return {
        AlertLetter: Form(*_PRIORITY),
        Diagnosis: Form(
            {"healthy": bool, "worst": str, "findings": list[Finding]},
            {"healthy": lambda found: found.is_healthy, "worst": lambda found: str(found.worst)},
            without={"findings"},
        ),
        Finding: Form({"level": str}, {"level": lambda found: str(found.level)}),
        Rung: Form({"letters": list[AlertLetter]}),
        Stats: Form(
            {"states": dict[str, int], "unread": Unread, "mailboxes": list[Tally], "rates": list[Rate]},
            {
                "states": lambda stats: {str(state): many for state, many in stats.states.items()},
                "unread": _unread,
            },
        ),
        Stop: Form(
            {
                "history": list[Attempt],
                "rings": list[Alert],
                "sights": list[Sight],
                "forwarded": Forwarding | None,
            },
            {"forwarded": _forwarded},
        ),
        Trace: Form(
            {
                "letter": Message,
                "number": int,
                "stops": list[Stop],
                "replies": list[Message],
                "relays": list[Message],
                "bounces": list[Message],
            },
            {"letter": lambda trace: trace.message},
            alone=True,
        ),
    }


@cache
def _of_webhooks() -> dict[type, Form]:
    from ..model import webhook  # noqa: PLC0415

    return {
        webhook.Webhook: Form(
            {"min_priority": PriorityName},
            {"min_priority": lambda one: one.min_priority.name.lower()},
            without=webhook.SECRETS,
        ),
    }


@cache
def _of_agents() -> dict[type, Form]:
    from ..core.agents import Agents  # noqa: PLC0415

    return {
        Agents: Form(
            {"agents": list[Agent], "elsewhere": list[dict[str, Any]] | UnsetType},
            {"elsewhere": _elsewhere},
            without={"elsewhere"},
        ),
    }


@cache
def _of_messages() -> dict[type, Form]:
    from ..core.messages import Receipt  # noqa: PLC0415
    from ..model.peer import Carried  # noqa: PLC0415

    return {
        Receipt: Form(
            {
                "id": str,
                "thread": str,
                "repeated": bool,
                "unknown": tuple[str, ...],
                "routed": tuple[str, ...],
                "carried": list[Carried],
                "letter": Message,
            },
            {"letter": lambda receipt: receipt.message},
            alone=True,
        ),
    }


@cache
def _of_tasks() -> dict[type, Form]:
    from ..core.messages import Receipt  # noqa: PLC0415
    from ..core.tasks import FoundTask, Moved  # noqa: PLC0415
    from ..model.task import TaskStatus  # noqa: PLC0415

    return {
        FoundTask: Form(
            # Outside, a task is named by the letter that opened it; the name in its letters is `called`.
            {"id": str, "called": str, "is_final": bool, "session": dict[str, Any] | None},
            {
                "id": lambda task: task.standing.letter,
                "called": lambda task: task.standing.id,
                "is_final": lambda task: task.standing.is_final,
            },
            without={"letter"},
            of=TaskStatus,
            source=lambda task: task.standing,
            name="Task",
        ),
        Moved: Form({"task": FoundTask, "receipt": Receipt}, without={"delivery"}),
    }


@cache
def _of_tokens() -> dict[type, Form]:
    from ..core.tokens import Token  # noqa: PLC0415

    return {
        Token: Form(without={"hash"}),
    }


@cache
def _of_waiting() -> dict[type, Form]:
    from ..core.waiting import Entry  # noqa: PLC0415

    return {
        Entry: Form(
            {"from": str, **_PRIORITY[0]}, {"from": lambda one: one.sender, **_PRIORITY[1]}, without={"sender"}
        ),
    }


@cache
def _of_work() -> dict[type, Form]:
    from ..core.dead import Revived  # noqa: PLC0415
    from ..core.messages import Receipt  # noqa: PLC0415
    from ..core.work import Claimed, Settled  # noqa: PLC0415

    moves = {"letters": list[AfterMove]}
    moved = {"letters": lambda settled: list(map(after_move, settled.letters))}
    return {
        Claimed: Form({"letters": list[ClaimedLetter]}, {"letters": _claimed}, without={"lease"}),
        Revived: Form(moves, moved),
        Settled: Form({**moves, "receipts": list[Receipt]}, moved),
    }


_BY_MODULE = {
    "postroom.core.agents": _of_agents,
    "postroom.core.dead": _of_work,
    "postroom.core.messages": _of_messages,
    "postroom.core.tasks": _of_tasks,
    "postroom.core.tokens": _of_tokens,
    "postroom.core.waiting": _of_waiting,
    "postroom.core.work": _of_work,
    "postroom.model.alert": _of_reports,
    "postroom.model.report": _of_reports,
    "postroom.model.webhook": _of_webhooks,
}


def _form_of(kind: Any) -> Form | None:
    """Return the form of a type. Few modules are loaded for it: a command that sends needs few of them."""
    return _BY_MODULE.get(kind.__module__, _of_model)().get(kind)


@cache
def forms() -> dict[type, Form]:
    """Return the forms by type."""
    found = _of_model()
    for of_module in _BY_MODULE.values():
        found = found | of_module()
    return found
