"""The commands that ask how a room is: its doctor, its numbers, its flow, the life of one letter."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ..care import doctor
from ..errors import BadStore, Invalid
from ..model.delivery import State
from ..model.health import Level
from ..model.names import AT
from ..room import chosen_settings
from ..whereabouts import variable
from ..wire.plain import plain_stats, plain_tally, plain_trace
from . import care_views as views
from .answers import Answer, sayable
from .exits import Misconfigured
from .progress import Progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..model.health import Diagnosis, Finding
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
        "findings": [plain_finding(finding) for finding in found.findings],
    }
    return Answer(context.name, data, views.diagnosis, code=end_of(found))


def end_of(found: Diagnosis) -> int:
    return _ENDS.get(found.worst, 0)


def _durability(said: dict[str, Any]) -> str | None:
    """Also of a room that does not open."""
    store = said.pop("store")
    try:
        return chosen_settings(store, said).durability
    except Invalid:
        return None


def plain_finding(finding: Finding) -> dict[str, Any]:
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
    if is_operator(context):
        data = {"room": plain_stats(context.room.stats()), "mailbox": None}
    else:
        data = {"room": None, "mailbox": plain_tally(context.mailbox.stats())}
    return Answer(context.name, data, views.stats)


def run_top(context: Context) -> Iterator[Answer]:
    from .top import watch  # noqa: PLC0415 - loaded when it is called

    return watch(context)


def is_operator(context: Context) -> bool:
    """An agent sees its own; who gave no name looks after the room."""
    return bool(context.get("everyone")) or not (context.get("as") or variable("POSTROOM_AGENT"))


# -- one letter


def run_trace(context: Context) -> Answer:
    whose = context.room if is_operator(context) else context.mailbox
    life = plain_trace(whose.trace(context.get("id")))
    for stop in life["stops"]:
        if stop["state"] == State.QUEUED and AT in stop["mailbox"] and not (stop["reason"] or stop["due_at"]):
            from .peers import why_it_waits  # noqa: PLC0415 - few letters go to other systems

            stop["reason"] = why_it_waits(context, stop["mailbox"])
    return Answer(context.name, life, views.trace)
