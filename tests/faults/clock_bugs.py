"""Bugs that any store could have with its clocks: it believes the wall, or does not notice a reboot."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from postroom.model import delivery
from postroom.model.delivery import OPEN, State
from postroom.model.query import Found, Group, Moment, Query
from postroom.store.protocol import Move, Overdue
from tests.faults.planting import Opener, Wrapped


class SortedByTheClock(Wrapped):
    """The oldest first: by the time on the letter."""

    def find(self, query: Query) -> list[Found]:
        found = self.inner.find(replace(query, limit=None))
        return sorted(found, key=lambda each: each.message.created_at)[: query.limit]


class BlindToTheFuture(Wrapped):
    """A letter that comes from a later time than now is not there yet."""

    _now: datetime | None = None

    def overdue(
        self, moment: Moment, mailboxes: Sequence[str] | None, limit: int, *, ahead: float = 0.0
    ) -> Overdue:
        self._now = moment.wall
        return self.inner.overdue(moment, mailboxes, limit, ahead=ahead)

    def find(self, query: Query) -> list[Found]:
        found = self.inner.find(query)
        return [each for each in found if self._now is None or each.message.created_at <= self._now]


class OfNoBoot(Wrapped):
    """Does not notice that the machine was started anew."""

    def __init__(self, open_store: Opener, folder: Path, boot: str) -> None:  # noqa: ARG002 - that is the bug
        super().__init__(open_store, folder, "always the same")


class Forgiving(Wrapped):
    """Leases go on after a boot, as if their holders had lived on."""

    def __init__(self, open_store: Opener, folder: Path, boot: str) -> None:
        super().__init__(open_store, folder, boot)
        for found in self.inner.find(Query(states=(State.CLAIMED,))):
            old = found.delivery.lease
            if old is not None:
                new = replace(old, until=1e9, boot=boot)
                self.inner.commit([Move(found.delivery, delivery.renew(found.delivery, new), "renew")])


class Impatient(Wrapped):
    """What is unread for a day is done, by the wall clock."""

    def overdue(
        self, moment: Moment, mailboxes: Sequence[str] | None, limit: int, *, ahead: float = 0.0
    ) -> Overdue:
        for each in self.inner.find(Query(states=(State.UNREAD,))):
            came = each.delivery.delivered_at
            if came is not None and came < moment.wall - timedelta(days=1):
                _end(self, each, moment)
        return self.inner.overdue(moment, mailboxes, limit, ahead=ahead)


class Dropping(Wrapped):
    """What has expired is not buried: nobody hears of it again."""

    def overdue(
        self, moment: Moment, mailboxes: Sequence[str] | None, limit: int, *, ahead: float = 0.0
    ) -> Overdue:
        for each in self.inner.find(Query(states=OPEN)):
            ends = each.delivery.expires_at
            if ends is not None and ends <= moment.wall:
                _end(self, each, moment)
        return self.inner.overdue(moment, mailboxes, limit, ahead=ahead)


class Patient(Wrapped):
    """A letter waits for its next try however far away a wrong clock set that."""

    def find(self, query: Query) -> list[Found]:
        return self.inner.find(replace(query, due_most=None))

    def count(self, query: Any, by: Group = "priority") -> Any:
        return self.inner.count(replace(query, due_most=None) if by == "mailbox" else query, by)


def _end(store: Wrapped, found: Found, moment: Moment) -> None:
    done = delivery.ack(found.delivery, moment.wall, archive=False)
    store.inner.commit([Move(found.delivery, done, "ack")])


BUGS: dict[str, type[Wrapped]] = {
    "sorted by the clock": SortedByTheClock,
    "blind to the future": BlindToTheFuture,
    "of no boot": OfNoBoot,
    "forgiving": Forgiving,
    "impatient": Impatient,
    "dropping": Dropping,
    "patient": Patient,
}
