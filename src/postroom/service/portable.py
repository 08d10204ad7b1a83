"""A whole room as JSON lines, out of any store and into any store, without loss.

The first line says what it is; then records, then letters with their deliveries, in order of acceptance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..errors import Conflict, Invalid
from ..model.card import Card
from ..model.codec import convert, encode
from ..model.delivery import Delivery
from ..model.message import Message
from ..model.names import BROADCAST, check_agent, check_id
from ..model.query import LetterQuery, Query
from ..model.record import BEAT, CARD, FORGOTTEN, GUARD, MEMBER, SPENT, Record
from ..model.values import read_json
from ..store.base import Post, Put, Write
from .authorize import Principal, authorize
from .compose import check_size
from .office import Office

FORMAT = 1
SLICE = 500
IMPORT = "import"  # marks a room whose import is not finished


class Imported(Struct, frozen=True, kw_only=True):
    letters: int
    records: int


def export_room(office: Office, caller: Principal) -> Iterator[bytes]:
    """The room, line by line. Letters accepted meanwhile may or may not be in it; none is ever half in it."""
    authorize(caller, "export")
    yield encode({"postroom": FORMAT, "room": office.store.cursor().store})
    members = {MEMBER + scope for card in office.store.records(CARD) for scope in card.value.get("scopes", ())}
    for kind in (CARD, BEAT, GUARD, *sorted(members), FORGOTTEN, SPENT):
        for record in office.store.records(kind):
            yield encode({"record": record})
    after = 0
    while letters := office.store.letters(LetterQuery(after=after, limit=SLICE)):
        ids = tuple(letter.message.id for letter in letters)
        held: dict[str, list[Delivery]] = {id: [] for id in ids}
        for found in office.store.find(Query(message_ids=ids, order="age")):
            held[found.message.id].append(replace(found.delivery, number=0))  # another room numbers anew
        for letter in letters:
            yield encode({"letter": letter.message, "deliveries": held[letter.message.id]})
        after = letters[-1].number


def import_room(office: Office, caller: Principal, lines: Iterable[bytes | str]) -> Imported:
    """Fill an empty room. If it is cut off, the same import again goes on where it stopped."""
    authorize(caller, "import")
    source = iter(lines)
    _begin(office, _header(office, next(source, b"")))
    letters = records = 0
    slice: list[Write] = []
    for number, line in enumerate(source, start=2):
        write = _write(office, line, f"line {number}")
        if isinstance(write, Post):
            letters += 1
        elif office.store.records(write.record.kind, write.record.key):
            continue
        else:
            records += 1
        slice.append(write)
        if len(slice) >= SLICE:
            office.store.commit(slice)
            slice = []
    office.store.commit(slice)
    _finish(office)
    return Imported(letters=letters, records=records)


def _header(office: Office, line: bytes | str) -> str:
    header = _read(office, line, "line 1")
    if header.get("postroom") != FORMAT or not isinstance(header.get("room"), str):
        raise Invalid("is not the head of an export", field="line 1", hint=f"format {FORMAT} is known here")
    room: str = header["room"]
    return room


def _begin(office: Office, room: str) -> None:
    begun = office.store.records(IMPORT)
    if begun and begun[0].key == room:
        return
    if begun or office.store.mailboxes():
        raise Conflict("the room is not empty", hint="import into a new one")
    office.store.commit([Put(record=Record(kind=IMPORT, key=room, value=True))])


def _finish(office: Office) -> None:
    done = [Put(record=replace(record, value=None)) for record in office.store.records(IMPORT)]
    office.store.commit(done)
    office.store.renew_epoch()


def _write(office: Office, line: bytes | str, field: str) -> Post | Put:
    value = _read(office, line, field)
    try:
        if "record" in value:
            record = convert(value["record"], Record)
            _check_record(record, field)
            return Put(record=replace(record, revision=0))
        message = convert(value.get("letter"), Message)
        deliveries = convert(value.get("deliveries"), tuple[Delivery, ...])
    except msgspec.ValidationError as broken:
        raise Invalid(str(broken), field=field) from None
    _check_names(message, deliveries, field)
    check_size(message, office.limits)
    boot = office.now().boot
    return Post(message=message, deliveries=tuple(_without_old_lease(d, boot) for d in deliveries))


def _check_names(message: Message, deliveries: tuple[Delivery, ...], field: str) -> None:
    """Nothing gets in around the validator, not even from our own exports."""
    for name in (message.sender, *message.trace, *(d.mailbox for d in deliveries)):
        check_agent(name, field)
    for recipient in message.recipients:
        check_agent(recipient.address.removeprefix(BROADCAST), field)
    for id in (message.id, message.thread_id, message.conversation_id, message.in_reply_to):
        if id is not None:
            check_id(id, field)
    if any(delivery.message_id != message.id for delivery in deliveries):
        raise Invalid("holds a delivery of another letter", field=field)


def _check_record(record: Record, field: str) -> None:
    if record.kind not in {CARD, BEAT, GUARD, FORGOTTEN, SPENT} and not record.kind.startswith(MEMBER):
        raise Invalid(f"holds a record of the unknown kind {record.kind!a}", field=field)
    if record.kind == CARD:
        check_agent(record.key, field)
        convert(record.value, Card)


def _without_old_lease(delivery: Delivery, boot: str) -> Delivery:
    """A lease of another boot is over."""
    lease = delivery.lease
    if lease is None or lease.boot == boot:
        return delivery
    return replace(delivery, lease=replace(lease, until=0.0))


def _read(office: Office, line: bytes | str, field: str) -> dict[str, Any]:
    largest = office.limits.max_message_bytes + 64 * 1024 * 1024  # a letter and its deliveries
    value = read_json(line, field, depth=office.limits.max_depth + 4, largest=largest)
    if not isinstance(value, dict):
        raise Invalid("is not an object", field=field)
    return value
