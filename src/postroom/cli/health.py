"""The commands that ask how a room is: its doctor, its numbers, its flow, the life of one letter."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from ..care import doctor
from ..errors import BadStore, Invalid
from ..model.codec import to_plain
from ..model.health import Level
from ..room import chosen_settings
from ..whereabouts import variable
from ..wire.plain import plain_message
from . import care_views as views
from .answers import Answer, sayable
from .exits import Misconfigured
from .progress import Progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..model.health import Diagnosis, Finding
    from ..model.stats import Stats, Tally
    from ..model.trace import Stop
    from .context import Context

_ENDS = {Level.WARNING: 1, Level.ERROR: 70}

# What the library says of itself -> what one types for it here.
_IN_A_SHELL = {
    "repair=True or room.sweep()": "postroom doctor --repair or postroom janitor",
    "repair=True": "postroom doctor --repair",
    "full=True": "--full",
    "with dead(), revive or purge": "with postroom dead, then dead revive or dead purge",
    'durability="power"': "the setting durability=power",
}


@contextmanager
def named_as_typed(context: Context) -> Iterator[None]:
    """A room that cannot be, by the name under which it was given."""
    try:
        yield
    except BadStore as refused:
        refused.field = "--room" if context.get("room") else refused.field
        raise


def run_doctor(context: Context) -> Answer:
    with suppress(Misconfigured, BadStore):  # the doctor has more to say of those
        context.check_named_room()
    said = {"store": context.get("room"), **dict(context.get("set", ()))}
    with Progress("examining", quiet=context.screen.json) as progress, named_as_typed(context):
        found = doctor(
            **said,
            repair=bool(context.get("repair")),
            full=bool(context.get("full")),
            progress=progress.tell,
        )
    data = {
        "healthy": found.is_healthy,
        "worst": str(found.worst),
        "durability": _durability(said),
        "findings": [_plain_finding(finding) for finding in found.findings],
    }
    return Answer(context.name, data, views.diagnosis, code=_end(found))


def _end(found: Diagnosis) -> int:
    return _ENDS.get(found.worst, 0)


def _durability(said: dict[str, Any]) -> str | None:
    """Also of a room that does not open."""
    store = said.pop("store")
    try:
        return chosen_settings(store, said).durability
    except Invalid:
        return None


def _plain_finding(finding: Finding) -> dict[str, Any]:
    what, hint = sayable(finding.what), sayable(finding.hint)
    for theirs, ours in _IN_A_SHELL.items():
        what, hint = what.replace(theirs, ours), hint.replace(theirs, ours)
    return {
        "check": finding.check,
        "level": str(finding.level),
        "what": what,
        "hint": hint,
        "repaired": finding.repaired,
    }


# -- numbers


def run_stats(context: Context) -> Answer:
    if _is_operator(context):
        data = {"room": _plain_stats(context.room.stats()), "mailbox": None}
    else:
        data = {"room": None, "mailbox": _plain_tally(context.mailbox.stats())}
    return Answer(context.name, data, views.stats)


def run_top(context: Context) -> Iterator[Answer]:
    from .top import watch  # noqa: PLC0415 - loaded when it is called

    return watch(context)


def _is_operator(context: Context) -> bool:
    """An agent sees its own; who gave no name looks after the room."""
    return bool(context.get("everyone")) or not (context.get("as") or variable("POSTROOM_AGENT"))


def _plain_stats(stats: Stats) -> dict[str, Any]:
    return {
        "letters": stats.letters,
        "deliveries": stats.deliveries,
        "states": {str(state): count for state, count in stats.states.items()},
        "unread": {priority.name.lower(): count for priority, count in stats.unread.items()},
        "oldest_unread_at": to_plain(stats.oldest_unread_at),
        "agents": stats.agents,
        "quarantined": stats.quarantined,
        "mailboxes": [_plain_tally(tally) for tally in stats.mailboxes],
    }


def _plain_tally(tally: Tally) -> dict[str, Any]:
    plain = {name: to_plain(getattr(tally, name)) for name in tally.__struct_fields__ if name != "unread"}
    unread = {priority.name.lower(): count for priority, count in tally.unread.items()}
    return plain | {"unread": unread, "total_unread": tally.total_unread, "backlog": tally.backlog}


# -- one letter


def run_trace(context: Context) -> Answer:
    whose = context.room if _is_operator(context) else context.mailbox
    life = whose.trace(context.get("id"))
    data = {
        "letter": plain_message(life.message),
        "number": life.number,
        "stops": [_plain_stop(stop) for stop in life.stops],
        "replies": [plain_message(message) for message in life.replies],
        "relays": [plain_message(message) for message in life.relays],
        "bounces": [plain_message(message) for message in life.bounces],
    }
    return Answer(context.name, data, views.trace)


def _plain_stop(stop: Stop) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(asdict(stop))
    return plain | {"history": [to_plain(asdict(attempt)) for attempt in stop.history]}
