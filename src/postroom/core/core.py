"""The `Core` that every verb takes: the store, the limits, the clock and the ids of one room.

Beside it stand the functions by which verbs read and write small records, and a probe of the store.
"""

from __future__ import annotations

from _thread import allocate_lock
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, field

from ..clock import Clock, Ids, RandomIds
from ..errors import StoreFailing
from ..model.codec import convert, to_plain
from ..model.message import DEFAULT_SCOPE
from ..model.names import PEOPLE, fold
from ..model.record import Record
from ..policy.admission import check_rate
from ..policy.limits import Limits, people_of
from ..store.address import open_store
from ..store.protocol import Put, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from ..model.message import Message
    from ..model.query import Moment
    from ..settings import Settings
    from ..store.protocol import Write


T = TypeVar("T")
S = TypeVar("S")
MANY_SENDERS = 1000  # after so many, senders whose bucket is full are dropped


class SenderRates:
    """A token bucket per sender, kept in this process for all callers of one room.

    A sender whose bucket is full is not stored, so memory is bounded by the letters of the last
    `sender_burst / sender_rate` seconds.
    """

    def __init__(self) -> None:
        self._full_at: dict[str, float] = {}  # folded name -> when its bucket is full again
        self._max_senders = MANY_SENDERS
        self._lock = allocate_lock()

    def take(self, limits: Limits, letters: Mapping[str, int], now: float) -> None:
        """Count the letters of each sender (by folded name), or raise TooFast and count none of them."""
        with self._lock:
            taken = {
                sender: check_rate(
                    limits.sender_rate, limits.sender_burst, count, self._full_at.get(sender, now), now
                )
                for sender, count in letters.items()
            }
            self._full_at.update(taken)
            if len(self._full_at) > self._max_senders:
                self._full_at = {name: at for name, at in self._full_at.items() if at > now}
                self._max_senders = max(MANY_SENDERS, 2 * len(self._full_at))

    def give_back(self, limits: Limits, letters: Mapping[str, int]) -> None:
        """Undo `take` for letters that were not accepted."""
        with self._lock:
            for sender, count in letters.items():
                if sender in self._full_at:
                    self._full_at[sender] -= count / limits.sender_rate


class NextLook:
    """When this process looks again for what is due, and what it remembers of its last look (`due`)."""

    def __init__(self) -> None:
        self.at = 0.0  # by the uptime
        self.deadlines: dict[str, datetime] = {}  # of tasks, by the ids of the letters that opened them


class KnownPeople:
    """The folded names of people: by the settings, and of those whose keys the room holds (`proof`)."""

    def __init__(self, names: frozenset[str] = PEOPLE) -> None:
        self.look_at = 0.0  # by the monotonic clock; then the keys are read again
        self.names = names


class LetterCount:
    """How many letters the room had when this process last counted them (`search`)."""

    def __init__(self) -> None:
        self.recount_at = 0.0  # by the monotonic clock
        self.number = 0  # of the last letter that is counted
        self.total = 0


class Core(Struct, frozen=True):
    """One open room as the verbs see it: the store and the policy under which it is used."""

    store: Store
    limits: Limits
    clock: Clock
    ids: Ids
    file_root: str = "."  # files that postroom.file and --file enclose must lie below this folder
    system: str = ""  # this room's name among other systems; empty if no setting gives one
    default_scope: str = DEFAULT_SCOPE  # of letters by programs of agent-inbox that name none
    rates: SenderRates = field(default_factory=SenderRates)
    next_look: NextLook = field(default_factory=NextLook)
    people: KnownPeople = field(default_factory=KnownPeople)
    letter_count: LetterCount = field(default_factory=LetterCount)

    def now(self) -> Moment:
        return self.clock.now()

    def new_id(self, sender: str) -> str:
        """Return an id for a new letter: the store's own if its layout prescribes one, else a generated one."""
        return self.ids.message() if self.store.fresh_id is None else self.store.fresh_id(sender)


def core_of(store: Store, settings: Settings, clock: Clock | None = None, ids: Ids | None = None) -> Core:
    """Return the core of a room over this store, with these settings."""
    return Core(
        store,
        settings,
        clock or store.clock,
        ids or RandomIds(),
        file_root=settings.file_root,
        system=settings.system,
        people=KnownPeople(frozenset(map(fold, (*PEOPLE, *people_of(settings))))),
    )


def open_core(chosen: Settings, clock: Clock, *, makes: bool = True) -> Core:
    """Open the room at the address of the settings. Without `makes`, its folder must exist."""
    store = open_store(
        chosen.store,
        clock=clock,
        durable=chosen.durability == "power",
        busy_timeout=chosen.busy_timeout,
        makes=makes,
        people=frozenset(map(fold, people_of(chosen))),
    )
    return core_of(store, chosen)


def find_letter(core: Core, id: str) -> Message | None:
    """Return the letter with this id, whoever sent or received it: the caller checks who may see it."""
    found = core.store.get((id,)).get(id)
    return None if found is None else found.message


# Records: small named values with a revision. Read and write one inside a plan, so that no writer comes between.


def find_record(core: Core, kind: str, key: str) -> Record | None:
    """Return the record of this kind and key, if there is one."""
    found = core.store.records(kind, key)
    return found[0] if found else None


def put_record(kind: str, key: str, value: Any, held: Record | None, *, durable: bool = True) -> Put:
    """Return the write that replaces `held` by a value of the model; the value None removes the record."""
    revision = held.revision if held else 0
    return Put(record=Record(kind=kind, key=key, value=to_plain(value), revision=revision), durable=durable)


def find_value(core: Core, kind: str, key: str, wanted: type[T]) -> T | None:
    """Return the value of the record of this kind and key, if there is one."""
    held = find_record(core, kind, key)
    return None if held is None else convert(held.value, wanted)


def records_of(core: Core, kind: str) -> dict[str, Record]:
    """Return all records of a kind, by key."""
    return {record.key: record for record in core.store.records(kind)}


def values_of(core: Core, kind: str, wanted: type[T]) -> dict[str, T]:
    """Return the values of all records of a kind, by key."""
    return {key: convert(record.value, wanted) for key, record in records_of(core, kind).items()}


def commit(core: Core, plan: Callable[[], tuple[Sequence[Write], T]]) -> T:
    """Commit the writes that a plan returns, and return what it returns beside them. It may be called twice."""
    found: list[T] = []

    def writes() -> Sequence[Write]:
        planned, result = plan()
        found[:] = [result]
        return planned

    core.store.commit(writes)
    return found[0]


def change_record(
    core: Core, kind: str, key: str, wanted: type[T], step: Callable[[T | None], S], *, durable: bool = True
) -> S:
    """Change a record in one commit, and return its new value.

    `step` gets the value as it is, None if there is no record; what it returns is stored, and None removes the
    record. It may be called twice.
    """

    def plan() -> tuple[list[Put], S]:
        held = find_record(core, kind, key)
        before = None if held is None else convert(held.value, wanted)
        after = step(before)
        return [] if after == before else [put_record(kind, key, after, held, durable=durable)], after

    return commit(core, plan)


PULSE = "pulse"  # kind and key of the record that `probe_store` writes, reads and removes


def probe_store(core: Core) -> float:
    """Write and read back a record, to prove that the store works, and return the seconds of the write.

    Raises StoreFailing if it does not work.

    The probe takes the path of every commit. It is a record and not a letter, so it notifies no agent and stays in
    no history.
    """
    value, began = core.ids.token(), monotonic()
    core.store.commit([put_record(PULSE, PULSE, value, find_record(core, PULSE, PULSE))])
    spent = monotonic() - began
    found = find_record(core, PULSE, PULSE)
    if found is None or found.value != value:
        raise StoreFailing("the disk returned other data than was written", hint="check or replace the disk")
    core.store.commit([put_record(PULSE, PULSE, None, found)])
    return spent
