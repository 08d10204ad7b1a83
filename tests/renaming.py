"""Rooms of earlier versions, which could rename agents: this writes what they wrote, in one commit."""

from __future__ import annotations

from typing import Any

from postroom import Room
from postroom.core.core import find_record, put_record
from postroom.core.portable import record_kinds
from postroom.model.agent import Guard, guard_value
from postroom.model.record import (
    ALERT_LOG,
    AUDIT,
    AUDITED,
    FORMER,
    GUARD,
    RECIPIENT_ALERTS,
    SEALED,
    TASKS,
    TEMPLATE,
    TOKEN,
    WEBHOOK,
)
from postroom.store.protocol import Rename, Write, record_keys

_NOT_EXPORTED = (TOKEN, SEALED, WEBHOOK, ALERT_LOG, RECIPIENT_ALERTS, AUDITED)


def rename(room: Room, old: str, new: str) -> None:
    """Leave the room as an earlier version left it after an operator had renamed an agent."""
    core = room.core

    def plan() -> list[Write]:
        wanted: dict[tuple[str, str], Any] = {(GUARD, new): None}
        tasks = record_keys(core.store, TASKS + old)
        for kind in (*record_kinds(core), *_NOT_EXPORTED, AUDIT + old):
            for record in core.store.records(kind):
                own, key = _kind(kind, old, new), _key(kind, record.key, old, new)
                stays = kind in {GUARD, TEMPLATE} or (kind.startswith(TASKS) and key not in tasks)
                value = record.value if stays else _renamed(record.value, old, new)
                if (own, key, value) != (kind, record.key, record.value):
                    wanted |= {(kind, record.key): None} | {(own, key): value}
        held = find_record(core, FORMER, old)
        former = [name for name in (*(held.value if held else ()), old) if name != new]
        wanted |= {(GUARD, name): guard_value(Guard(moved_to=new)) for name in former}
        wanted |= {(FORMER, old): None, (FORMER, new): former}
        found = {at: find_record(core, *at) for at in wanted}
        changed = [at for at in wanted if found[at] is not None or wanted[at] is not None]
        return [Rename(old, new), *(put_record(*at, wanted[at], found[at], durable=True) for at in changed)]

    core.store.commit(plan)


def _kind(kind: str, old: str, new: str) -> str:
    families = {family + old: family + new for family in (TASKS, AUDIT)}
    return families.get(kind, kind)


def _key(kind: str, key: str, old: str, new: str) -> str:
    """Return the key with the new name: of a member, a session and an alert log, the name is the first word."""
    first, *rest = key.split(" ")
    is_name = not kind.startswith((TASKS, AUDIT)) or kind == AUDITED
    return " ".join([new if first == old and is_name else first, *rest])


def _renamed(value: Any, old: str, new: str) -> Any:
    if isinstance(value, dict):
        return {name: each if name == "allow_from" else _renamed(each, old, new) for name, each in value.items()}
    if isinstance(value, list):
        return [_renamed(each, old, new) for each in value]
    return new if value == old else value
