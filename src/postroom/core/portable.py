"""Export, import and backup: a whole room as values, out of any store and into any store, without loss.

An export is JSON lines. It begins with a head; then come names, records, and letters with their deliveries in
order of acceptance. The last line says that it is the last, and how many lines stand between: an export that was
cut off is refused. Numbers and cursors belong to a room and are not exported; quarantined letters are left out.

An import validates every line as if it were new, even from our own exports. A backup is a copy of a room in use;
restoring one (`room.restore`) needs the room closed, so it is no verb of an open room.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from ..errors import Conflict, Invalid
from ..model.agent import EVERYONE, NO_GUARD, Card, Guard, Heartbeat, ScopeCard, guard_from
from ..model.codec import convert, encode
from ..model.delivery import Delivery, State
from ..model.message import Message, Template
from ..model.names import ONE_MAILBOX, check_id, check_party, check_scope, fold
from ..model.query import LetterQuery, Name
from ..model.record import (
    ACTIVE_TASKS,
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
    Record,
)
from ..model.report import BackupReport, Progress
from ..model.task import Due, Escalation, TaskStatus
from ..model.thread import STATUSES, TYPES, ConversationRecord
from ..model.values import (
    Brief,
    check_count,
    check_line,
    check_object,
    check_progress,
    check_text,
    check_time,
    quoted,
    read_json,
)
from ..store.protocol import Introduce, Post, Put, Rename, RenewEpoch, all_names, record_keys, vouched
from .agents import CARD_FIELDS, check_card
from .compose import LONGEST_SUBJECT, compose, draft_of, encode_within_limit
from .core import Core
from .deliveries import deliveries_of
from .presentation import escape_json
from .templates import check_template
from .verb import LOCAL, Verb, verb

if TYPE_CHECKING:
    from ..policy.limits import Limits
    from ..store.protocol import Store, Write
    from .authorize import Principal


SLICE = 500
FORMAT = 2
OLDER = (1,)  # formats that are still understood: 1 had no names and no end
LINE_RULE = "a line holds a letter and its deliveries, a record, or a name"
IMPORT = "import"  # kind of the record that marks an unfinished import


class Imported(Brief, frozen=True, kw_only=True):
    """The counts of an import."""

    letters: int
    records: int
    names: int


class ExportedLetter(Struct, frozen=True):
    """A letter with its deliveries: one line of an export."""

    letter: Message
    deliveries: tuple[Delivery, ...]


@verb("export", Iterator, action="export", writes=False, local=True)
class Export(Verb, kw_only=True):
    """Yield the lines of an export. Letters accepted meanwhile may be missing; none is half in it."""

    progress: Annotated[Progress | None, LOCAL] = None

    def run(self, core: Core, _principal: Principal) -> Iterator[bytes]:
        return _exported(core, check_progress(self.progress))


def _exported(core: Core, tell: Progress) -> Iterator[bytes]:
    total = len(core.store.names()) + core.store.count(LetterQuery(), by="all")
    total += sum(len(record_keys(core.store, kind)) for kind in record_kinds(core))
    yield encode({"postroom": FORMAT, "room": core.store.cursor().store, "lines": total})
    done = 0
    for done, value in enumerate(_exported_values(core), start=1):  # the room may have changed since the head
        if done % SLICE == 0:
            tell(min(done, total), total)
        yield escape_json(encode(value))
    tell(total, total)
    # The importer needs this line: a file that was cut off would look complete without it.
    yield encode({"end": True, "lines": done})


def _exported_values(core: Core) -> Iterator[object]:
    yield from ({"name": name} for name in core.store.names())
    for kind in record_kinds(core):
        yield from ({"record": record} for record in core.store.records(kind))
    for letters in letters_of(core.store, SLICE):
        yield from (ExportedLetter(message, tuple(deliveries)) for message, deliveries in letters)


def letters_of(store: Store, size: int) -> Iterator[list[tuple[Message, list[Delivery]]]]:
    """Yield the letters of a room in order of acceptance, `size` at a time, with unnumbered deliveries."""
    after = 0
    while letters := store.letters(LetterQuery(after=after, limit=size)):
        held = deliveries_of(store, [letter.message.id for letter in letters])
        found = [(letter.message, held[letter.message.id]) for letter in letters]
        # Without deliveries it was deleted meanwhile. The other room numbers what it gets.
        yield [(message, [replace(one, number=0, arrived=0) for one in own]) for message, own in found if own]
        after = letters[-1].number


@verb("import", Imported, action="import", slow=True, local=True)
class Import(Verb, kw_only=True):
    """Fill an empty room from an export. If it is interrupted, the same import again goes on where it stopped."""

    lines: Annotated[Iterable[bytes | str], "the lines of the export"]
    progress: Annotated[Progress | None, LOCAL] = None

    def run(self, core: Core, _principal: Principal) -> Imported:
        if not isinstance(self.lines, Iterable):
            raise Invalid(f"must be lines, not {type(self.lines).__name__}", field="lines")
        source = iter(self.lines)
        head, report = read_head(next(source, b""), core.limits), check_progress(self.progress)
        room, total = head["room"], head.get("lines", 0)
        begun = core.store.records(IMPORT)
        if not (begun and begun[0].key == room):
            if begun or core.store.names():
                raise Conflict("the room is not empty", hint="import into a new one")
            # Marked before the first line: an interrupted import is known, and only its own export may go on.
            core.store.commit([Put(record=Record(kind=IMPORT, key=room, value=True))])
        taken = {Post: 0, Put: 0, Introduce: 0}
        slice: list[Write] = []
        for number, value in _values(source, core.limits, has_end=head["postroom"] not in OLDER):
            write = _write(core, value, f"line {number}")
            # Taken in by an earlier try. Letters need no such look: the same id with the same content is a no-op
            # (G3).
            if isinstance(write, Put) and core.store.records(write.record.kind, write.record.key):
                continue
            taken[type(write)] += 1
            if isinstance(write, Put):
                slice += alias_of(write.record)
            slice.append(write)
            if len(slice) >= SLICE:
                core.store.commit(slice)
                slice = []
                report(number - 1, total and max(number - 1, total))
        core.store.commit(slice)
        done = [Put(record=replace(record, value=None)) for record in core.store.records(IMPORT)]
        # Cursors of before the import would skip what came in.
        core.store.commit([*done, RenewEpoch()])
        report(total, total)
        return Imported(letters=taken[Post], records=taken[Put], names=taken[Introduce])


def read_head(line: bytes | str, limits: Limits) -> dict[str, Any]:
    """Return the first line of an export: its format, its room, and how many values follow (0: not known)."""
    head = _read(line, 1, limits)
    if head.get("postroom") not in (FORMAT, *OLDER) or not isinstance(head.get("room"), str):
        raise Invalid("is not the head of an export", field="line 1", hint=f"this version reads format {FORMAT}")
    check_count(head.get("lines", 0), "line 1", least=0)
    return head


def _values(
    source: Iterator[bytes | str], limits: Limits, *, has_end: bool
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the lines between head and end, with their numbers. Refuse an export that is not complete."""
    number = 1
    for number, line in enumerate(source, start=2):
        value = _read(line, number, limits)
        if has_end and "end" in value:
            between = number - 2
            if value != {"end": True, "lines": between} or value["end"] is not True:
                raise Invalid(f"is the end of another export than these {between} lines", field=f"line {number}")
            if next(source, None) is not None:
                raise Invalid("stands after the end of the export", field=f"line {number + 1}")
            return
        yield number, value
    if has_end:
        raise Invalid(
            "the export is cut off after this line: its end is missing",
            field=f"line {number}",
            hint="get the whole file; the same import then goes on where it stopped",
        )


def _read(line: bytes | str, number: int, limits: Limits) -> dict[str, Any]:
    field, largest = f"line {number}", limits.max_message_bytes + 64 * 1024 * 1024  # a letter and its deliveries
    if not isinstance(line, (bytes, str)):
        raise Invalid(f"must be text or bytes, not {type(line).__name__}", field=field)
    value = read_json(line, field, depth=limits.max_depth + 4, largest=largest)
    if not isinstance(value, dict):
        raise Invalid("is not an object", field=field)
    return value


def _write(core: Core, value: dict[str, Any], field: str) -> Post | Put | Introduce:
    """Return the write of one line, validated."""
    try:
        if "name" in value:
            name = convert(value["name"], Name)
            return Introduce(check_party(name.mailbox, "mailbox"), name.known)
        if "record" in value:
            return checked_record(core, convert(value["record"], Record))
        if value.get("letter") is not None and value.get("deliveries") is not None:
            return _post(core, convert(value, ExportedLetter))
    except msgspec.ValidationError as broken:
        raise Invalid(f"is not as an export writes it: {broken}", field=field, hint=LINE_RULE) from None
    except Invalid as broken:
        broken.field = f"{field}: {broken.field}"
        raise
    raise Invalid("is not a line of an export", field=field, hint=LINE_RULE)


def _post(core: Core, exported: ExportedLetter) -> Post:
    """Return the write of a letter, if it could have been sent here and its deliveries could belong to it."""
    now, message = check_time(exported.letter.created_at, "created_at"), _with_one_human(exported.letter)
    set_by_room = {name: getattr(message, name) for name in ("thread_id", "hops", "trace", "proven", "proof")}
    # A file can hold anything: only what could have been sent here is taken in.
    if replace(compose(core, draft_of(message), now), **set_by_room) != message:
        raise Invalid("is not a letter in the format of this room", field="letter")
    # A proof names its own room. Keys are not imported either: they grant.
    message = vouched(core.store, replace(message, proof=None))
    for agent in message.trace:
        check_party(agent, "trace")
    check_count(message.hops, "hops", least=0)
    check_id(message.thread, "thread_id")
    boot = core.now().boot
    held = tuple(_delivery(message, delivery, boot) for delivery in exported.deliveries)
    if len({delivery.mailbox for delivery in held}) != len(held):
        raise Invalid("hold a mailbox twice", field="deliveries")
    return Post(message=message, encoded=encode_within_limit(message, core.limits), deliveries=held)


def _with_one_human(message: Message) -> Message:
    """Return the letter with the human's one mailbox; old rooms had several for the human."""
    sender = check_party(message.sender, "sender")
    named = tuple(replace(r, address=ONE_MAILBOX.get(fold(r.address), r.address)) for r in message.recipients)
    return replace(message, sender=sender, recipients=named)


def _delivery(message: Message, delivery: Delivery, boot: str) -> Delivery:
    if delivery.message_id != message.id:
        raise Invalid("hold one of another letter", field="deliveries")
    if delivery.state is State.CLAIMED and delivery.lease is None:
        raise Invalid("hold a claimed one without its lease", field="deliveries")
    check_count(delivery.revision, "deliveries")
    check_count(delivery.attempts, "deliveries", least=0)
    mailbox = check_party(delivery.mailbox, "deliveries")
    for moved in (delivery, *delivery.history):
        check_times(moved)
    return without_old_lease(replace(delivery, mailbox=mailbox, number=0, arrived=0), boot)


def without_old_lease(delivery: Delivery, boot: str) -> Delivery:
    """Return the delivery with an expired lease if the lease is of another boot."""
    lease = delivery.lease
    if lease is None or lease.boot == boot:
        return delivery
    return replace(delivery, lease=replace(lease, until=0.0))


# -- records: which kinds are exported, and the validation of one that comes in


class Memory(Struct):
    """The remembered id or key of a deleted letter."""

    id: str
    digest: str
    at: datetime
    way: dict[str, Any]


class ArrivalNote(Struct):
    """The room from which a delivery was moved here."""

    room: str
    at: datetime


def _check_each(check: Callable[[Any, str], str], values: Iterable[str]) -> None:
    for value in values:
        check(value, "value")


def _check_names(_core: Core, _record: Record, value: tuple[str, ...] | Guard) -> None:
    names = (*value.allow, *value.block, value.moved_to or EVERYONE) if isinstance(value, Guard) else value
    _check_each(check_party, (name for name in names if name != EVERYONE))


def _check_card(core: Core, record: Record, value: Card) -> None:
    check_card(core, record.key, core.now(), {name: getattr(value, name) for name in CARD_FIELDS})


def _check_task(_core: Core, record: Record, task: TaskStatus) -> None:
    """Check that an entry of the task index belongs to one of the task's parties."""
    if record.kind.removeprefix(TASKS) not in {task.giver, task.receiver}:
        raise Invalid("is the task of others", field="value")
    _check_each(check_party, (task.giver, task.receiver))
    _check_each(check_id, (task.id, task.thread, task.last))


def _check_escalation(_core: Core, _record: Record, value: Escalation) -> None:
    _check_each(check_party, (value.asker, *value.rungs))
    _check_each(check_id, (value.thread, *value.letters))
    if not value.letters or not 0 <= value.rung < len(value.rungs):
        raise Invalid("is not an escalation", field="value")


def _check_conversation(core: Core, _record: Record, value: ConversationRecord) -> None:
    if value.status not in STATUSES or value.type not in TYPES:
        raise Invalid("is not a conversation", field="value")
    check_scope(value.scope, "value")
    check_line(value.subject, "value", LONGEST_SUBJECT)
    for texts in (value.metadata, *(seat.permissions for seat in value.seats)):
        check_object(texts, "value", core.limits.max_depth)
    for part in (*value.seats, *value.strands):
        check_times(part)
    _check_each(check_party, (seat.agent for seat in value.seats))
    _check_each(check_id, (id for strand in value.strands for id in (strand.id, strand.root)))


def _check_pair(*checks: Callable[[Any, str], str]) -> Callable[[Any, str], object]:
    """Return the check of a key of two names with a blank between."""

    def check_both(key: str, field: str) -> None:
        for check, one in zip(checks, key.partition(" ")[::2], strict=True):
            check(one, field)

    return check_both


class RecordRule(Struct, frozen=True):
    """The rule for records of one kind that come in."""

    type: Any  # of the value
    key: Callable[[Any, str], object] = check_party
    value: Callable[[Core, Record, Any], object] = lambda _core, _record, _value: None
    repeats: str = ""  # the field of the value that is the key once more


_RULES: dict[str, RecordRule] = {
    CARD: RecordRule(Card, value=_check_card, repeats="id"),
    BEAT: RecordRule(Heartbeat),
    GUARD: RecordRule(tuple[str, ...] | Guard, value=_check_names),
    FORMER: RecordRule(tuple[str, ...], value=_check_names),
    MEMBER: RecordRule(
        Literal[True], value=lambda _core, record, _value: check_scope(record.kind.removeprefix(MEMBER), "kind")
    ),
    TEMPLATE: RecordRule(
        Template, value=lambda core, record, value: check_template(core, record.key, asdict(value)), repeats="name"
    ),
    OPEN_ESCALATION: RecordRule(Escalation, check_id, _check_escalation, "id"),
    CLOSED_ESCALATION: RecordRule(Escalation, check_id, _check_escalation, "id"),
    FORGOTTEN: RecordRule(Memory, check_text),
    SPENT: RecordRule(Memory, check_text),
    TASKS: RecordRule(TaskStatus, check_id, _check_task, "letter"),
    ACTIVE_TASKS: RecordRule(tuple[str, ...], value=lambda _core, _record, ids: _check_each(check_id, ids)),
    DUE: RecordRule(Due, check_id),
    SESSION: RecordRule(dict[str, Any], _check_pair(check_party, check_id)),
    MOVED_HERE: RecordRule(ArrivalNote, _check_pair(check_id, check_party)),
    CONVERSATION: RecordRule(ConversationRecord, check_id, _check_conversation, "id"),
    SCOPE: RecordRule(
        ScopeCard,
        check_scope,
        lambda core, _record, value: check_object(value.says, "value", core.limits.max_depth),
        "id",
    ),
}
_FAMILIES = (MEMBER, TASKS)  # prefixes of kinds that end with a name


def record_kinds(core: Core) -> tuple[str, ...]:
    """Return the kinds of all records that are exported, in an order in which they can be imported."""
    members = {MEMBER + scope for card in core.store.records(CARD) for scope in card.value.get("scopes", ())}
    tasks = [TASKS + name for name in all_names(core.store)]
    return (*(kind for kind in _RULES if kind not in _FAMILIES), *sorted(members), *tasks)


def alias_of(record: Record) -> list[Write]:
    """Return the write that makes the former name of a renamed agent an alias."""
    guard = guard_from(record.value) if record.kind == GUARD else NO_GUARD
    return [] if guard.moved_to is None else [Rename(record.key, guard.moved_to)]


def checked_record(core: Core, record: Record) -> Put:
    """Return the write of a record, or raise an error that names the wrong field."""
    kind = next((family for family in _FAMILIES if record.kind.startswith(family)), record.kind)
    rule = _RULES.get(kind)
    # Tokens, peers and webhooks are not in the table: an export carries no secrets and grants nothing.
    if rule is None or (kind in _FAMILIES and kind == record.kind):
        raise Invalid(f"{quoted(kind)} is not a kind of record", field="kind")
    value = convert(record.value, rule.type)
    if isinstance(value, Struct):
        check_times(value)
    rule.key(record.key, "key")
    if rule.repeats and getattr(value, rule.repeats) != record.key:
        raise Invalid("is the value of another key", field="value")
    rule.value(core, record, value)
    # The record is new here, and keeps the revision it had.
    return Put(record=replace(record, revision=0), first=check_count(record.revision or 1, "revision"))


def check_times(value: Struct) -> None:
    for name in value.__struct_fields__:
        if isinstance(getattr(value, name), datetime):
            check_time(getattr(value, name), name)


# -- backup


@verb("backup", BackupReport, action="backup", writes=False, local=True)
class Backup(Verb, kw_only=True):
    """Copy the room as it is at this moment into a file of its own."""

    path: Annotated[str | os.PathLike[str], "the file"]
    overwrite: Annotated[bool, "replace a file that is there"] = False
    progress: Annotated[Progress | None, LOCAL] = None

    def run(self, core: Core, _principal: Principal) -> BackupReport:
        place = check_path(self.path, "path")
        began = time.monotonic()
        letters = core.store.backup(place, overwrite=self.overwrite, progress=check_progress(self.progress))
        return BackupReport(
            path=str(place), letters=letters, bytes=place.stat().st_size, seconds=time.monotonic() - began
        )


def check_path(value: Any, field: str) -> Path:
    """Return the absolute path of a file that a caller names."""
    try:
        text = os.fspath(value)
    except TypeError:
        raise Invalid(f"must be a path, not {type(value).__name__}", field=field) from None
    if not isinstance(text, str) or not text or "\0" in text:
        raise Invalid(f"{text!a} is not a path", field=field)
    try:
        os.fsencode(text)
        return Path(text).expanduser().absolute()
    except (RuntimeError, UnicodeEncodeError):  # a user nobody knows; half a character
        raise Invalid(f"{text!a} is not a path", field=field) from None
