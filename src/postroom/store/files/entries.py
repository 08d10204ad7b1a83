"""Conversion between an agent's entry in the nanobot registry and its card and last heartbeat. No I/O, no clock.

An entry has the nine fields of the design. What the design has no field for goes under one key of ours, only when
needed. Fields that other programs added are kept in the card (`extra`) and written back unchanged.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ...errors import PostroomError
from ...model.agent import EVERYONE, Card, Heartbeat, Status
from ...model.codec import convert, to_plain
from ...model.names import check_party
from ...model.values import check_label, check_text, passes
from .layouts.base import OWN, text_of, texts_in, time_or_none

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...model.query import Moment
    from .layouts.base import Plain


FIELDS = (
    "agent_id",
    "description",
    "capabilities",
    "status",
    "allow_from",
    "max_concurrent_tasks",
    "current_tasks",
    "registered_at",
    "last_heartbeat",
)
RUNTIME = ("status", "current_tasks", "last_heartbeat")
OFFLINE_AFTER = 60.0  # seconds without a heartbeat (or three polls) after which an agent is shown as offline
OURS = ("display_name", "program", "model", "scopes", "metadata", "principal")  # card fields the design lacks
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_WORD = 128
_MOST_TASKS = 1_000_000


# -- writing entries


def entry_of(card: Card, status: str, tasks: Sequence[str], heartbeat: datetime | None) -> Plain:
    """Return the entry of an agent."""
    plain = to_plain(card)
    entry: Plain = {
        "agent_id": card.id,
        "description": card.description,
        "capabilities": list(card.capabilities),
        "status": status,
        "allow_from": list(card.allow_from),
        "max_concurrent_tasks": card.max_concurrent_tasks,
        "current_tasks": list(tasks),
        "registered_at": text_of(card.registered_at),
        "last_heartbeat": text_of(heartbeat or card.registered_at),
    }
    own = {name: plain[name] for name in OURS if name in plain}
    return entry | card.extra | ({OWN: own} if own else {})


def current_entry(card: Card, beat: Heartbeat | None, active: Sequence[str], moment: Moment) -> Plain:
    """Return the entry of an agent at this moment."""
    if beat is None:
        return entry_of(card, Status.OFFLINE, active, None)
    tasks = tasks_of(beat, active)
    is_online = beat.boot == moment.boot and moment.steady <= silent_from(beat)
    return entry_of(card, status_word(beat, tasks, is_online=is_online), tasks, beat.at)


def tasks_of(beat: Heartbeat, active: Sequence[str]) -> list[str]:
    """Return the tasks that an agent accepted, and those that its heartbeat names."""
    return list(dict.fromkeys((*active, *beat.current_tasks)))


def status_word(beat: Heartbeat, tasks: Sequence[str], *, is_online: bool) -> str:
    """Return the status of an agent, in its own word if it gave one."""
    if beat.left or not is_online:
        return Status.OFFLINE
    return beat.says or (Status.BUSY if tasks else Status.IDLE)


def own_status(status: str, tasks: Sequence[str]) -> str:
    """Return the status if it must be stored; empty if it follows from the tasks or means offline."""
    follows = Status.BUSY if tasks else Status.IDLE
    return "" if status in {follows, Status.IDLE, Status.OFFLINE} else status


def silent_from(beat: Heartbeat) -> float:
    """Return the uptime from which the agent counts as offline."""
    return beat.steady + max(OFFLINE_AFTER, 3 * beat.poll_interval)


# -- reading entries of other programs


def merged(current: Plain, base: Plain, found: Plain) -> Plain:
    """Return `current` with the changes that another program made from `base` to `found`."""
    changed = {name: value for name, value in found.items() if name not in base or base[name] != value}
    gone = [name for name in base if name not in found and name not in FIELDS]
    return {name: value for name, value in (current | changed).items() if name not in gone}


def normal(name: str, entry: Plain) -> Plain:
    """Return an entry in the form that we write, so that entries can be compared."""
    status, tasks = entry.get("status"), texts_in(entry.get("current_tasks"))
    status = status if isinstance(status, str) else Status.IDLE
    card = card_in(name, entry, _BEGINNING)
    return entry_of(card, status, tasks, time_or_none(entry.get("last_heartbeat")))


def card_in(name: str, entry: Plain, written: datetime) -> Card:
    """Return the card in an entry. An invalid field gets its default, and its value is kept in `extra`."""
    extra = {field: value for field, value in entry.items() if field not in FIELDS and field != OWN}
    valid: dict[str, Any] = {}
    for field, read in _READ.items():
        if field in entry:
            valid[field], is_sound = read(entry[field])
            if not is_sound:
                extra[field] = entry[field]
    registered = time_or_none(entry.get("registered_at")) or written
    return Card(id=name, registered_at=registered, extra=extra, **(valid | _own(name, entry.get(OWN))))


def beat_in(entry: Plain, base: Plain, held: Heartbeat | None, active: Sequence[str], moment: Moment) -> Heartbeat:
    """Return the heartbeat in an entry. Fields that are unchanged from `base` say nothing new."""
    beat = held or _beat_at(time_or_none(entry.get("registered_at")) or moment.wall, moment)
    if entry.get("last_heartbeat") != base.get("last_heartbeat"):
        at = time_or_none(entry.get("last_heartbeat"))
        if at is not None:
            fresh = _beat_at(min(at, moment.wall), moment)
            beat = replace(beat, at=fresh.at, steady=fresh.steady, boot=fresh.boot)
    if entry.get("current_tasks") != base.get("current_tasks"):
        tasks = [task for task in texts_in(entry.get("current_tasks")) if task not in active]
        beat = replace(beat, current_tasks=tuple(dict.fromkeys(tasks)))
    status = entry.get("status")
    if status != base.get("status") and isinstance(status, str) and status:
        says = own_status(status[:_LONGEST_WORD], tasks_of(beat, active))
        beat = replace(beat, left=status == Status.OFFLINE, says=says)
    return beat


def _beat_at(at: datetime, moment: Moment) -> Heartbeat:
    silent = max((moment.wall - at) / timedelta(seconds=1), 0.0)
    return Heartbeat(at=at, steady=moment.steady - silent, boot=moment.boot, active_at=at)


def _own(name: str, value: Any) -> Plain:
    """Return the card fields under our key, if they are valid."""
    if not isinstance(value, dict):
        return {}
    ours = {field: value[field] for field in OURS if field in value}
    try:
        card = convert({"id": name, "registered_at": text_of(_BEGINNING)} | ours, Card)
    except (msgspec.ValidationError, TypeError, ValueError):
        return {}
    return {field: getattr(card, field) for field in ours}


def _description(value: Any) -> tuple[str, bool]:
    is_sound = passes(PostroomError, check_text, value, "description", 10_000)
    return (value, True) if is_sound else ("", False)


def _allow_from(value: Any) -> tuple[tuple[str, ...], bool]:
    """Return the valid names; an invalid name admits nobody."""
    if isinstance(value, str):
        value = [value]
    return _all(value, lambda one: one if one == EVERYONE else check_party(one, "allow_from"))


def _all(value: Any, check: Callable[[Any], str]) -> tuple[tuple[str, ...], bool]:
    sound = []
    for one in value if isinstance(value, list) else ():
        try:
            sound.append(check(one))
        except PostroomError:
            continue
    kept = tuple(dict.fromkeys(sound))
    return kept, list(kept) == value


def _max_tasks(value: Any) -> tuple[int, bool]:
    is_sound = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TASKS
    return (value, True) if is_sound else (3, False)


_READ: dict[str, Callable[[Any], tuple[Any, bool]]] = {
    "description": _description,
    "capabilities": lambda value: _all(value, lambda one: check_label(one, "capabilities")),
    "allow_from": _allow_from,
    "max_concurrent_tasks": _max_tasks,
}
