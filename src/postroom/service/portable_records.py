"""The records of a room on their way out and in: which of them travel, and whether one may come in.

Nothing gets in around the validator, not even from our own exports.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Invalid
from ..model.book import Due
from ..model.card import EVERYONE, Beat, Card
from ..model.codec import convert
from ..model.escalation import Escalation
from ..model.guard import OPEN_DOOR, Guard, guard_from
from ..model.names import check_id, check_party, check_scope
from ..model.record import (
    ACTIVE,
    BEAT,
    CARD,
    CLOSED_ESCALATION,
    CONVERSATION,
    DUE,
    FORGOTTEN,
    FORMER,
    GUARD,
    MEMBER,
    MOVED_HERE,
    OPEN_ESCALATION,
    SCOPE,
    SESSION,
    SPENT,
    TASKS,
    TEMPLATE,
)
from ..model.scope import ScopeCard
from ..model.talk import STATUSES, TYPES, Talk
from ..model.task import Standing
from ..model.template import Template
from ..model.values import check_line, check_object, check_time
from ..store.base import Put, Rename
from .compose import LONGEST_SUBJECT
from .directory import check_card
from .given import check_count, quoted
from .templates import check_template

if TYPE_CHECKING:
    from ..model.record import (
        Record,
    )
    from ..store.base import Write
    from .office import Office


class Memory(Struct):
    """What is left of a deleted letter."""

    id: str
    digest: str
    at: datetime
    way: dict[str, Any]


class Moved(Struct):
    """Whence a delivery came, to stay."""

    room: str
    at: datetime


_VALUES: dict[str, Any] = {
    CARD: Card,
    BEAT: Beat,
    GUARD: tuple[str, ...] | Guard,
    FORMER: tuple[str, ...],
    MEMBER: Literal[True],
    TEMPLATE: Template,
    OPEN_ESCALATION: Escalation,
    CLOSED_ESCALATION: Escalation,
    FORGOTTEN: Memory,
    SPENT: Memory,
    TASKS: Standing,
    ACTIVE: tuple[str, ...],
    DUE: Due,
    SESSION: dict[str, Any],
    MOVED_HERE: Moved,
    CONVERSATION: Talk,
    SCOPE: ScopeCard,
}
_FAMILIES = (MEMBER, TASKS)  # kinds that go on with a name
_CARD_SAYS = set(Card.__struct_fields__) - {"id", "registered_at", "principal"}
_TEMPLATE_SAYS = set(Template.__struct_fields__) - {"name"}


def record_kinds(office: Office) -> tuple[str, ...]:
    """Everything that is kept besides letters, in an order in which it can come in again."""
    members = {MEMBER + scope for card in office.store.records(CARD) for scope in card.value.get("scopes", ())}
    tasks = [TASKS + mailbox for mailbox in office.store.mailboxes()]
    return (*(kind for kind in _VALUES if kind not in _FAMILIES), *sorted(members), *tasks)


def alias_of(record: Record) -> list[Write]:
    """A note where somebody moved makes the old name another name of the new one."""
    guard = guard_from(record.value) if record.kind == GUARD else OPEN_DOOR
    return [] if guard.moved_to is None else [Rename(record.key, guard.moved_to)]


def checked_record(office: Office, record: Record) -> Put:
    """The record as it may be written, or an error that names what is wrong."""
    kind = next((family for family in _FAMILIES if record.kind.startswith(family)), record.kind)
    if kind not in _VALUES or (kind in _FAMILIES and kind == record.kind):
        raise Invalid(f"{quoted(kind)} is not a kind of record", field="kind")
    value = convert(record.value, _VALUES[kind])
    if isinstance(value, Struct):
        check_times(value)
    if kind == MEMBER:
        check_scope(record.kind.removeprefix(MEMBER), "kind")
    if isinstance(value, Standing):
        _check_standing(value, record)
    if isinstance(value, ScopeCard):
        _check_scope_card(office, record.key, value)
    if kind == ACTIVE:
        for letter in value:
            check_id(letter, "value")
    _check_key(kind, record.key)
    _check_value(office, record.key, value)
    return Put(record=replace(record, revision=0), first=check_count(record.revision or 1, "revision"))


def _check_key(kind: str, key: str) -> None:
    if kind in {OPEN_ESCALATION, CLOSED_ESCALATION, TASKS, DUE, CONVERSATION}:
        check_id(key, "key")
    elif kind == SESSION:
        giver, _, letter = key.partition(" ")
        check_party(giver, "key")
        check_id(letter, "key")
    elif kind == MOVED_HERE:
        letter, _, mailbox = key.partition(" ")
        check_id(letter, "key")
        check_party(mailbox, "key")
    elif kind not in {FORGOTTEN, SPENT}:
        check_party(key, "key")


def _check_standing(task: Standing, record: Record) -> None:
    """A page of the book of tasks lies with one of the two whom it concerns, under the letter it names."""
    if record.kind.removeprefix(TASKS) not in {task.giver, task.receiver} or record.key != task.letter:
        raise Invalid("is the task of others", field="value")
    for agent in (task.giver, task.receiver):
        check_party(agent, "value")
    for id in (task.id, task.thread, task.last):
        check_id(id, "value")


def check_times(value: Struct) -> None:
    for name in value.__struct_fields__:
        if isinstance(getattr(value, name), datetime):
            check_time(getattr(value, name), name)


def _check_value(office: Office, key: str, value: Any) -> None:
    if isinstance(value, Card):
        said = {name: getattr(value, name) for name in _CARD_SAYS}
        if check_card(office, key, office.now(), said).id != value.id:
            raise Invalid("is the card of another", field="value")
    elif isinstance(value, Template):
        said = {name: getattr(value, name) for name in _TEMPLATE_SAYS}
        if check_template(office, key, said).name != value.name:
            raise Invalid("is another template's", field="value")
    elif isinstance(value, Guard):
        _check_names((*value.allow, *value.block, *((value.moved_to,) if value.moved_to else ())))
    elif isinstance(value, tuple):
        _check_names(value)
    elif isinstance(value, Escalation):
        _check_escalation(key, value)
    elif isinstance(value, Talk):
        _check_talk(office, key, value)


def _check_scope_card(office: Office, key: str, value: ScopeCard) -> None:
    if check_scope(key, "key") != value.id:
        raise Invalid("is another scope's", field="value")
    check_object(value.says, "value", office.limits.max_depth)


def _check_names(names: tuple[str, ...]) -> None:
    for name in names:
        if name != EVERYONE:
            check_party(name, "value")


def _check_talk(office: Office, key: str, value: Talk) -> None:
    if value.id != key or value.status not in STATUSES or value.type not in TYPES:
        raise Invalid("is no conversation of this id", field="value")
    check_scope(value.scope, "value")
    check_line(value.subject, "value", LONGEST_SUBJECT)
    check_object(value.metadata, "value", office.limits.max_depth)
    for seat in value.seats:
        check_party(seat.agent, "value")
        check_times(seat)
        check_object(seat.permissions, "value", office.limits.max_depth)
    for strand in value.strands:
        check_times(strand)
        for id in (strand.id, strand.root):
            check_id(id, "value")


def _check_escalation(key: str, value: Escalation) -> None:
    for name in (value.asker, *value.rungs):
        check_party(name, "value")
    for id in (value.thread, *value.letters):
        check_id(id, "value")
    if value.id != key or not value.letters or not 0 <= value.rung < len(value.rungs):
        raise Invalid("is no escalation of this id", field="value")
