"""Letters, deliveries and moments to test with, and short words for what tests do with a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from postroom.clock import SystemClock
from postroom.model import delivery as model_delivery
from postroom.model.codec import digest
from postroom.model.delivery import Attempt, Delivery, Lease, open_delivery
from postroom.model.message import Message, Recipient
from postroom.model.query import LetterQuery, Moment, Query
from postroom.model.record import CARD, FORGOTTEN, SPENT, Record, pair_key
from postroom.model.task import TaskStatus, advance, open_task
from postroom.store.protocol import (
    Forget,
    Letter,
    Move,
    Plan,
    Post,
    Posted,
    Put,
    Store,
    Write,
    all_names,
)


class BootClock(SystemClock):
    """The machine's clock, after a boot with this name."""

    def __init__(self, boot: str = "boot-1") -> None:
        self._boot = boot

    def now(self) -> Moment:
        return replace(super().now(), boot=self._boot)


class StillClock:
    """A clock that stands still, after a boot with this name."""

    def __init__(self, boot: str = "boot-1") -> None:
        self._moment = moment(boot=boot)

    def now(self) -> Moment:
        return self._moment


def run_plans_twice(store: Store) -> Store:
    """Let each commit run its plan twice, as the protocol allows: a plan has no side effects."""

    def twice(writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        def plan() -> Sequence[Write]:
            assert callable(writes)
            writes()
            return writes()

        return type(store).commit(store, plan if callable(writes) else writes)

    store.commit = twice  # type: ignore[method-assign]
    return store


NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
BOOT = "boot-1"


def on_barrier(store: Store, called: Callable[[Callable[[], object]], object]) -> None:
    """Let each commit of nothing, by which a caller waits for the disk, call this with the true commit."""
    commit = type(store).commit

    def watched(writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        if callable(writes) or writes:
            return commit(store, writes)
        called(lambda: commit(store, writes))
        return ()

    store.commit = watched  # type: ignore[method-assign]


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def moment(seconds: float = 0, boot: str = BOOT) -> Moment:
    """Both clocks, `seconds` after NOW; the uptime at NOW is 1000."""
    return Moment(wall=after(seconds), steady=1000 + seconds, boot=boot)


def lease(seconds: float = 60, *, token: str = "token", holder: str = "bob", boot: str = BOOT) -> Lease:  # noqa: S107
    return Lease(token=token, holder=holder, until=1000 + seconds, boot=boot)


def lease_of(store: Store, seconds: float = 60) -> Lease:
    """A lease that is over by the store's clock after so many seconds."""
    now = store.clock.now()
    return Lease(token="token", holder="bob", until=now.steady + seconds, boot=now.boot)  # noqa: S106


def attempt(reason: str = "it broke") -> Attempt:
    return Attempt(at=NOW, holder="bob", reason=reason)


def letter(id: str, to: Sequence[str] = ("bob",), *, sender: str = "ann", **fields: Any) -> Message:
    return Message(
        id=id,
        sender=sender,
        recipients=tuple(Recipient(name) for name in to),
        **{"created_at": NOW, **fields},
    )


def post(message: Message, *, due_at: datetime | None = None, **conditions: Any) -> Post:
    """The letter, with one delivery for each of its recipients."""
    deliveries = tuple(open_delivery(message, r.address, r.kind, NOW, due_at) for r in message.recipients)
    return Post(message=message, deliveries=deliveries, **conditions)


def send(store: Store, id: str, to: Sequence[str] = ("bob",), **fields: Any) -> Delivery:
    """Post a letter; its first delivery."""
    store.commit([post(letter(id, to, **fields))])
    return held(store, id, to[0])


def held(store: Store, id: str, mailbox: str = "bob") -> Delivery:
    """The delivery as the store has it now."""
    (found,) = store.find(Query(mailbox=mailbox, message_ids=(id,)))
    return found.delivery


def move(store: Store, before: Delivery, after: Delivery, action: str) -> Delivery:
    store.commit([Move(before, after, action)])
    return after


def read(store: Store, delivery: Delivery) -> Delivery:
    return move(store, delivery, model_delivery.read(delivery, NOW), "read")


def claim(store: Store, delivery: Delivery, held: Lease | None = None) -> Delivery:
    return move(store, delivery, model_delivery.claim(delivery, held or lease_of(store)), "claim")


def ack(store: Store, delivery: Delivery, at: datetime = NOW, *, archive: bool = False) -> Delivery:
    return move(store, delivery, model_delivery.ack(delivery, at, archive=archive), "ack")


def bury(store: Store, delivery: Delivery) -> Delivery:
    return move(store, delivery, model_delivery.bury(delivery, attempt()), "bury")


def ids(store: Store, query: Query) -> list[str]:
    """The letters a query finds, in its order."""
    return [found.message.id for found in store.find(query)]


def names(letters: Sequence[Letter]) -> list[str]:
    return [found.message.id for found in letters]


def everything(store: Store) -> object:
    """All that can be asked of a store, to compare before and after."""
    kinds = (CARD, FORGOTTEN, SPENT, "note")
    return (
        store.find(Query(order="age")),
        store.letters(LetterQuery()),
        [record for kind in kinds for record in store.records(kind)],
        all_names(store),
        store.cursor(),
    )


def note(value: object, revision: int = 0, key: str = "k") -> Put:
    return Put(record=Record(kind="note", key=key, value=value, revision=revision))


def forget(message: Message) -> list[Write]:
    """Delete a letter and keep its id and key spent, as a store does."""
    memory = {"id": message.id, "digest": digest(message)}
    spent = pair_key(message.sender, message.key or message.id)
    return [
        Forget(message.id),
        Put(record=Record(kind=FORGOTTEN, key=message.id, value=memory)),
        Put(record=Record(kind=SPENT, key=spent, value=memory)),
    ]


def fold_task(letters: Iterable[Message]) -> TaskStatus | None:
    """Return the first task in these letters, which are in order of acceptance."""
    task: TaskStatus | None = None
    for each in letters:
        task = open_task(each) if task is None else advance(task, each)
    return task
