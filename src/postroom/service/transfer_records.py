"""The records of a room on their way into another that may have its own: which of two is the later one.

A card, a template, an allow list: the one that was changed more often. A task: the one that moved last. A question
that is answered beats the same one open. What a deleted letter left behind is no reason to forget a letter that is
still there. Signs of life stay where they were given. Nothing is deleted because it is missing elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from ..errors import Conflict, Invalid, Missing
from ..model.codec import convert
from ..model.guard import OPEN_DOOR, guard_from
from ..model.names import fold
from ..model.record import (
    BEAT,
    CARD,
    CLOSED_ESCALATION,
    DUE,
    FORGOTTEN,
    GUARD,
    MEMBER,
    MOVED_HERE,
    OPEN_ESCALATION,
    SPENT,
    TASKS,
)
from ..model.task import Standing
from ..store.base import Put, Rename
from . import renaming
from .authorize import OWNER
from .portable_records import record_kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..errors import PostroomError
    from ..model.record import Record
    from ..store.base import Store, Write
    from .office import Office

STAYS = frozenset({BEAT, MOVED_HERE})  # says something of its own room alone
DUTIES = (DUE, OPEN_ESCALATION)  # what the janitor of a room will do one day
_SLICE = 500

Refuse: TypeAlias = "Callable[[str, PostroomError], None]"


class Papers:
    """The records of two rooms."""

    def __init__(self, source: Office, target: Office) -> None:
        self._office, self._other = source, target
        self._source, self._target = source.store, target.store

    def carry(self, kinds: set[str] | None, refuse: Refuse) -> int:
        """Those of these kinds (None: of all) that are new or later; how many they were."""
        if kinds is None or GUARD in kinds:
            self._rename(refuse)
        count = 0
        for kind in record_kinds(self._office):
            if kind in STAYS or (kinds is not None and kind not in kinds):
                continue
            held = {record.key: record for record in self._target.records(kind)}
            for record in self._source.records(kind):
                writes = self._writes(record, held.get(record.key))
                count += bool(writes) and self._commit(record, writes, refuse)
        return count

    def _rename(self, refuse: Refuse) -> None:
        """Whoever got another name at the source gets it over there, before anything comes under the new one."""
        for record in self._source.records(GUARD):
            new = guard_from(record.value).moved_to
            if new is not None and self._target.spelling(record.key) == record.key != new:
                try:
                    renaming.rename(self._other, OWNER, record.key, new)
                except (Conflict, Invalid, Missing) as refused:
                    refuse(record.key, refused)

    def _commit(self, record: Record, writes: list[Write], refuse: Refuse) -> bool:
        try:
            self._target.commit(writes)
        except (Conflict, Invalid) as refused:
            refuse(f"{record.kind} {record.key}", refused)
            return False
        return True

    def _writes(self, record: Record, held: Record | None) -> list[Write]:
        if held is not None and (held.value == record.value or not _is_later(record, held)):
            return []
        if not self._may_come(record):
            return []
        put = replace(record, revision=0 if held is None else held.revision)
        first = max(record.revision, 1)
        return [*self._renamed(record), Put(record=put, first=first), *self._with(record)]

    def _may_come(self, record: Record) -> bool:
        if record.kind == OPEN_ESCALATION:
            return not self._target.records(CLOSED_ESCALATION, record.key)
        if record.kind in {FORGOTTEN, SPENT}:
            return not self._target.get([record.value["id"]])
        if record.kind == DUE:
            return not self._is_over(record)
        return True

    def _is_over(self, due: Record) -> bool:
        found = self._target.records(f"{TASKS}{due.value['giver']}", due.key)
        return bool(found) and convert(found[0].value, Standing).is_final

    def _renamed(self, record: Record) -> Iterator[Write]:
        """A note where somebody moved makes the old name another name of the new one, also over there."""
        guard = guard_from(record.value) if record.kind == GUARD else OPEN_DOOR
        if guard.moved_to is not None and fold(self._target.spelling(record.key) or "") != fold(guard.moved_to):
            yield Rename(record.key, guard.moved_to)

    def _with(self, record: Record) -> Iterator[Write]:
        """What else changes over there."""
        if record.kind == CLOSED_ESCALATION:
            yield from _removals(self._target.records(OPEN_ESCALATION, record.key))
        elif record.kind.startswith(TASKS) and convert(record.value, Standing).is_final:
            yield from _removals(self._target.records(DUE, record.key))
        elif record.kind == CARD:
            for former in self._target.records(CARD, record.key):
                for scope in set(former.value.get("scopes", ())) - set(record.value.get("scopes", ())):
                    yield from _removals(self._target.records(MEMBER + scope, record.key))

    def forget(self, kind: str, keys: Iterable[str]) -> None:
        """At the source."""
        _remove(self._source, kind, keys)

    def take_back(self, kind: str, keys: Iterable[str]) -> None:
        """At the target."""
        _remove(self._target, kind, keys)

    def end_duties(self) -> None:
        """The source does nothing more about what moved: the janitor of the other room has it now."""
        for kind in DUTIES:
            self.forget(kind, set(self._source.keys(kind)) & set(self._target.keys(kind)))


def _remove(store: Store, kind: str, keys: Iterable[str]) -> None:
    gone = [record for key in keys for record in store.records(kind, key)]
    for start in range(0, len(gone), _SLICE):
        store.commit(list(_removals(gone[start : start + _SLICE])))


def _removals(records: Iterable[Record]) -> Iterator[Put]:
    for record in records:
        yield Put(record=replace(record, value=None))


def _is_later(theirs: Record, ours: Record) -> bool:
    if theirs.kind.startswith(TASKS):
        return convert(theirs.value, Standing).moved_at > convert(ours.value, Standing).moved_at
    return theirs.revision > ours.revision
