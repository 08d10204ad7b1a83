"""What every verb needs: where mail is kept, what the rules say, what time it is."""

from __future__ import annotations

from _thread import allocate_lock
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from ..clock import Clock, Ids
from ..errors import StoreFailing
from ..model.names import fold
from ..model.record import Record
from ..policy.admission import check_rate
from ..policy.limits import Limits
from ..store.protocol import Put, Store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ..model.query import Moment


MANY_SENDERS = 1000  # after so many, senders whose bucket is full are dropped


class SenderRates:
    """How fast each sender sends, counted in this process and for all callers of one room.

    A sender whose bucket is full is not remembered, so that what is kept is bounded by the letters of the last
    `sender_burst / sender_rate` seconds.
    """

    def __init__(self) -> None:
        self._full_at: dict[str, float] = {}  # by folded name: when its bucket is full again
        self._many = MANY_SENDERS
        self._lock = allocate_lock()

    def take(self, limits: Limits, letters: Mapping[str, int], now: float) -> None:
        """Count letters by the folded names of their senders: all of them, or none and an error (`check_rate`)."""
        with self._lock:
            taken = {
                sender: check_rate(
                    limits.sender_rate, limits.sender_burst, count, self._full_at.get(sender, now), now
                )
                for sender, count in letters.items()
            }
            self._full_at.update(taken)
            if len(self._full_at) > self._many:
                self._full_at = {name: at for name, at in self._full_at.items() if at > now}
                self._many = max(MANY_SENDERS, 2 * len(self._full_at))

    def give_back(self, limits: Limits, letters: Mapping[str, int]) -> None:
        """These letters were not accepted."""
        with self._lock:
            for sender, count in letters.items():
                if sender in self._full_at:
                    self._full_at[sender] -= count / limits.sender_rate


class Core(Struct, frozen=True):
    store: Store
    limits: Limits
    clock: Clock
    ids: Ids
    file_root: str = "."  # files that postroom.file and --file enclose must lie below this folder
    system: str = ""  # what the room is called among others, where a setting says it
    rates: SenderRates = field(default_factory=SenderRates)

    @contextmanager
    def within_rate(self, senders: Iterable[str]) -> Iterator[None]:
        """Count letters towards the rate of their senders, or raise TooFast (threat 7). Commit them inside the
        block: if that fails, they do not count. `senders`: one for each letter.
        """
        if not self.limits.sender_rate:
            yield
            return
        letters = Counter(map(fold, senders))
        self.rates.take(self.limits, letters, self.now().steady)
        try:
            yield
        except BaseException:
            self.rates.give_back(self.limits, letters)
            raise

    def now(self) -> Moment:
        return self.clock.now()

    def new_id(self, sender: str) -> str:
        """For a letter: as the store names them, or ours."""
        return self.store.fresh_id(sender) or self.ids.message()


# Small named things with a revision: find one, write it as it was found. For plans, so nobody is in between.


def find_record(core: Core, kind: str, key: str) -> Record | None:
    found = core.store.records(kind, key)
    return found[0] if found else None


def put_record(kind: str, key: str, value: Any, held: Record | None, *, durable: bool = True) -> Put:
    """Write a value in the place of `held`; None removes it."""
    revision = held.revision if held else 0
    return Put(record=Record(kind=kind, key=key, value=value, revision=revision), durable=durable)


# Does the room still take and give back what is written? Asked by whoever watches a running post room.

PULSE = "pulse"  # a record that is written, read and removed; none is left behind


def beat(core: Core) -> None:
    """A real write and a real read, by the way that letters go. A record, not a letter: it rings nobody's bell and
    stays in nobody's history.
    """
    value = core.ids.token()
    core.store.commit([put_record(PULSE, PULSE, value, find_record(core, PULSE, PULSE))])
    found = find_record(core, PULSE, PULSE)
    if found is None or found.value != value:
        raise StoreFailing("what was written is not what is read", hint="do not trust this disk")
    core.store.commit([put_record(PULSE, PULSE, None, found)])
