"""Every store behaves like a few dictionaries, whatever is done to it in whatever order, through restarts.

The model below knows nothing of any store: letters, deliveries and records are dictionaries, what happened is a
list, and each rule says beforehand what the store must answer.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from postroom.errors import IdTaken, IllegalMove, PostroomError, StaleRevision
from postroom.model import delivery as model_delivery
from postroom.model.delivery import MOVES, OPEN, UNSENT, Delivery, State, open_delivery
from postroom.model.message import Message, Priority
from postroom.model.names import AT
from postroom.model.query import Order, Query
from postroom.model.record import Change, Cursor
from postroom.store.protocol import Forget, Move, Posted, Put, Store, Write, outgoing, waiting_letters
from tests.contract.stores import STORES, Kind
from tests.letters import BOOT, NOW, after, attempt, forget, lease, letter, note, post

NAMES = ("ann", "bob", "cleo")
names = some.sampled_from(NAMES)
PLACES = (*NAMES, "dora@far")  # where a letter may go
places = some.sampled_from(PLACES)
numbers = some.integers(0, 1000)
ids = some.sampled_from([f"m{number}" for number in range(12)])
orders = some.sampled_from(["inbox", "priority", "age", "newest"])

# What each action of the table makes of a delivery.
ACTIONS: dict[str, Callable[[Delivery], Delivery]] = {
    "deliver": lambda d: model_delivery.deliver(d, NOW),
    "expire": lambda d: model_delivery.expire(d, NOW),
    "read": lambda d: model_delivery.read(d, NOW),
    "claim": lambda d: model_delivery.claim(d, lease()),
    "renew": lambda d: model_delivery.renew(d, lease(120)),
    "ack": lambda d: model_delivery.ack(d, NOW, archive=False),
    "bury": lambda d: model_delivery.bury(d, attempt()),
    "retry": lambda d: model_delivery.retry(d, attempt(), after(30)),
    "release": model_delivery.release,
    "lapse": lambda d: model_delivery.lapse(d, attempt()),
    "archive": lambda d: model_delivery.archive(d, NOW),
    "revive": model_delivery.revive,
    "unsend": lambda d: model_delivery.unsend(d, NOW),
    "due": lambda d: model_delivery.come_due(d, NOW),
    "give": lambda d: model_delivery.give(d, attempt()),
    "depart": lambda d: model_delivery.depart(d, NOW, "far"),
    "requeue": lambda d: model_delivery.requeue(d, NOW),
}
# Steps that only mail for another system takes, and those that it never takes.
OUTGOING = ("due", "give", "retry", "depart", "bury")
AWAY = {(State.QUEUED, action) for action in OUTGOING} | {(State.DEAD, "requeue")}
HERE = {(State.QUEUED, "deliver"), (State.DEAD, "revive")}


def test_every_action_of_the_table_is_tried() -> None:
    assert {action for _, action in MOVES} == set(ACTIONS)


class Model:
    """A room as dictionaries."""

    def __init__(self) -> None:
        self.letters: dict[str, Message] = {}  # in the order of acceptance
        self.deliveries: dict[tuple[str, str], Delivery] = {}  # without numbers
        self.records: dict[str, tuple[int, Any]] = {}
        self.gone: list[Message] = []
        self.changes: list[Change] = []  # without numbers

    def first_like(self, message: Message) -> Message | None:
        """The letter whose id or key this one has."""
        key = (message.sender, message.key or message.id)
        for first in self.gone:
            if message.id == first.id or key == (first.sender, first.key or first.id):
                return first
        if message.id in self.letters or message.key is None:
            return self.letters.get(message.id)
        same = [m for m in self.letters.values() if key == (m.sender, m.key or m.id)]
        return same[0] if same else None

    def accept(self, message: Message, due: bool) -> None:
        self.letters[message.id] = message
        for recipient in message.recipients:
            opened = open_delivery(message, recipient.address, "to", NOW, after(9) if due else None)
            self.deliveries[message.id, recipient.address] = opened
        self.tell(what="posted", message_id=message.id)

    def forget(self, id: str) -> None:
        self.gone.append(self.letters.pop(id))
        self.deliveries = {at: d for at, d in self.deliveries.items() if at[0] != id}
        self.changes = [change for change in self.changes if change.message_id != id]
        self.tell(what="forgot", message_id=id)

    def tell(self, **facts: Any) -> None:
        self.changes.append(Change(number=0, **facts))

    def find(self, mailbox: str | None, states: tuple[State, ...], order: Order) -> list[Delivery]:
        """Deliveries in order; letters stand in the dictionary in the order of acceptance."""
        age = {id: number for number, id in enumerate(self.letters)}
        found = [
            d
            for d in self.deliveries.values()
            if mailbox in {None, d.mailbox} and (not states or d.state in states)
        ]
        keys: dict[Order, Callable[[Delivery], Any]] = {
            "inbox": lambda d: (d.read_at is not None, -d.priority, age[d.message_id], d.mailbox),
            "priority": lambda d: (-d.priority, age[d.message_id], d.mailbox),
            "age": lambda d: (age[d.message_id], d.mailbox),
            "newest": lambda d: (-age[d.message_id], d.mailbox),
        }
        return sorted(found, key=keys[order])


class Room(RuleBasedStateMachine):
    """The store and its model, side by side."""

    kind: ClassVar[Kind]
    store: Store

    @initialize()
    def enter(self) -> None:
        self.folder = TemporaryDirectory()
        self.store = self.kind.open(Path(self.folder.name), BOOT)
        self.model = Model()
        self.cursors: list[tuple[Cursor, list[Change]]] = [(self.store.cursor(), [])]

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.store.close()
            self.folder.cleanup()

    def commit(self, writes: list[Write], error: type[PostroomError] | None = None) -> tuple[Posted, ...]:
        """Commit, and fail exactly as expected."""
        if error is None:
            return self.store.commit(writes)
        with pytest.raises(error):
            self.store.commit(writes)
        return ()

    def held(self, delivery: Delivery) -> Delivery:
        """The delivery with the number the store gave its letter."""
        return replace(delivery, number=self.store.get([delivery.message_id])[delivery.message_id].number)

    # -- writing

    @rule(
        id=ids,
        sender=names,
        to=some.sets(places, min_size=1).map(sorted),
        key=some.sampled_from([None, None, "k1", "k2", "m1", "m2"]),
        subject=some.sampled_from(["tea", "tea", "coffee"]),
        priority=some.sampled_from([Priority.NORMAL, Priority.HIGH]),
        due=some.booleans(),
    )
    def post(self, *, due: bool, **fields: Any) -> None:
        message = letter(**fields)
        first = self.model.first_like(message)
        same = first is not None and replace(first, id=message.id, key=message.key) == message
        posted = self.commit(
            [post(message, due_at=after(9) if due else None)], IdTaken if first and not same else None
        )
        if first is None:
            self.model.accept(message, due)
            assert (posted[0].message_id, posted[0].repeated) == (message.id, False)
        elif same:
            assert posted == (Posted(message_id=first.id, number=0, repeated=True),)

    @precondition(lambda self: self.model.letters)
    @rule(pick=numbers)
    def repeat(self, pick: int) -> None:
        first = list(self.model.letters.values())[pick % len(self.model.letters)]
        later = replace(first, created_at=after(pick))
        assert self.commit([post(later)]) == (Posted(message_id=first.id, number=0, repeated=True),)

    @precondition(lambda self: self.model.deliveries)
    @rule(pick=numbers, way=numbers, stale=some.sampled_from([0, 0, 0, 1, -1]), spoiled=some.booleans())
    def move(self, pick: int, way: int, stale: int, spoiled: bool) -> None:
        """Along the table; from a stale revision, or together with a write that fails, nothing happens."""
        at = list(self.model.deliveries)[pick % len(self.model.deliveries)]
        before = self.model.deliveries[at]
        others = HERE if AT in before.mailbox else AWAY
        legal = [action for state, action in MOVES if state is before.state and (state, action) not in others]
        if before.reason == UNSENT:  # what its sender took back stays so
            with pytest.raises(IllegalMove):
                model_delivery.revive(before)
            return
        action = legal[way % len(legal)]
        moved = ACTIONS[action](before)
        held = self.held(before)
        writes: list[Write] = [
            Move(replace(held, revision=held.revision + stale), replace(moved, number=held.number), action)
        ]
        if spoiled:
            writes.append(note("never", revision=99))
        self.commit(writes, StaleRevision if stale or spoiled else None)
        if not stale and not spoiled:
            self.model.deliveries[at] = moved
            self.model.tell(what="moved", message_id=at[0], mailbox=at[1], state=moved.state)

    @rule(
        key=some.sampled_from(["a", "b"]),
        value=some.sampled_from([None, 1, {"x": []}]),
        stale=some.sampled_from([0, 0, 0, 1, -1]),
        durable=some.booleans(),
    )
    def put(self, key: str, value: Any, stale: int, durable: bool) -> None:
        revision, _ = self.model.records.get(key, (0, None))
        write = note(value, key=key, revision=revision + stale)
        self.commit([Put(record=write.record, durable=durable)], StaleRevision if stale else None)
        if stale:
            return
        if value is None:
            self.model.records.pop(key, None)
        else:
            self.model.records[key] = (revision + 1, value)
        if durable:
            self.model.tell(what="put", kind="note", key=key)

    @precondition(lambda self: self.model.letters)
    @rule(pick=numbers)
    def forget(self, pick: int) -> None:
        message = list(self.model.letters.values())[pick % len(self.model.letters)]
        if any(d.state in OPEN for at, d in self.model.deliveries.items() if at[0] == message.id):
            self.commit([Forget(message.id)], IllegalMove)
            return
        writes = [*forget(message)]
        self.commit(writes)
        self.model.forget(message.id)
        for write in writes[1:]:
            assert isinstance(write, Put)
            self.model.tell(what="put", kind=write.record.kind, key=write.record.key)

    # -- restarts

    @precondition(lambda self: self.kind.lasts)
    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = self.kind.open(Path(self.folder.name), BOOT)

    # -- asking

    @rule(
        mailbox=some.none() | places,
        states=some.lists(some.sampled_from(State), unique=True, max_size=2).map(tuple),
        order=orders,
        limit=some.none() | some.integers(0, 4),
    )
    def find(self, mailbox: str | None, states: tuple[State, ...], order: Order, limit: int | None) -> None:
        query = Query(mailbox=mailbox, states=states, order=order, limit=limit)
        wanted = self.model.find(mailbox, states, order)
        if mailbox is None and limit is not None:
            return  # who comes first of one letter's recipients is not promised
        found = [replace(f.delivery, number=0, arrived=0) for f in self.store.find(query)]
        assert _grouped(found) == _grouped(wanted[:limit])

    @rule(mailbox=some.none() | places, states=some.lists(some.sampled_from(State), unique=True).map(tuple))
    def count(self, mailbox: str | None, states: tuple[State, ...]) -> None:
        found = [d.priority for d in self.model.find(mailbox, states, "age")]
        counts = self.store.count(Query(mailbox=mailbox, states=states))
        assert counts == {priority: found.count(priority) for priority in Priority}

    @rule()
    def outgoing(self) -> None:
        """What waits for another system: all of it, and that which could go now."""
        waits = self.model.find("dora@far", (State.QUEUED,), "age")
        due = [d for d in waits if d.due_at is None or d.due_at <= NOW]
        assert outgoing(self.store) == ({"dora@far": len(waits)} if waits else {})
        assert outgoing(self.store, NOW) == ({"dora@far": len(due)} if due else {})

    @rule()
    def remember_now(self) -> None:
        self.cursors.append((self.store.cursor(), list(self.model.changes)))

    @rule(pick=numbers, limit=some.integers(1, 7))
    def changes(self, pick: int, limit: int) -> None:
        """What was told since a cursor, page by page, is what the model was told since."""
        cursor, known = self.cursors[pick % len(self.cursors)]
        found: list[Change] = []
        while page := self.store.changes(cursor, limit):
            found += [replace(change, number=0) for change in page[0]]
            cursor = page[1]
            if not page[0]:
                break
        assert cursor == self.store.cursor()
        seen = {id(change) for change in known}
        assert found == [change for change in self.model.changes if id(change) not in seen]

    @invariant()
    def store_and_model_agree(self) -> None:
        if not hasattr(self, "model"):
            return
        found = self.store.find(Query(order="age"))
        assert {(f.message.id, f.delivery.mailbox): replace(f.delivery, number=0, arrived=0) for f in found} == (
            self.model.deliveries
        )
        assert {f.message.id: f.message for f in found} == self.model.letters
        records = {r.key: (r.revision, r.value) for r in self.store.records("note")}
        assert records == self.model.records
        for place in PLACES:
            waits = [at for at, d in self.model.deliveries.items() if at[1] == place and d.waits]
            for name in NAMES:
                own = sum(self.model.letters[id].sender == name for id, _ in waits)
                assert waiting_letters(self.store, place, name) == (len(waits), own)


def _grouped(found: list[Delivery]) -> list[Delivery]:
    """With the recipients of one letter in the order of their names, where they stand side by side."""
    return sorted(found, key=lambda d: (_place(found, d), d.mailbox))


def _place(found: list[Delivery], delivery: Delivery) -> int:
    return next(place for place, other in enumerate(found) if other.message_id == delivery.message_id)


for store_kind in STORES:
    machine: type[Room] = type(f"{store_kind.name.title()}Room", (Room,), {"kind": store_kind})
    machine.TestCase.settings = settings(max_examples=settings().max_examples // store_kind.patience)
    globals()[f"Test{machine.__name__}"] = machine.TestCase
