"""Does telling somebody of mail help? Rates by way and host, of the letters of which somebody was told last.

A sample, the newest letters of each mailbox: a room with a million letters answers as quickly as a small one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model.codec import convert
from ..model.query import Query
from ..model.record import AUDIT, AUDITED
from ..model.ring import Audit
from ..model.stats import Rate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from ..model.delivery import Delivery
    from .office import Office

SAMPLE = 2000  # letters that are looked at, at most

Told = tuple["Audit", "Delivery"]


def rates(office: Office) -> tuple[Rate, ...]:
    """One for each way and host, by name."""
    told: dict[str, list[Told]] = {}
    for audit, delivery in _sample(office):
        names = {ring.way for ring in audit.rings} | {sight.host for sight in audit.sights}
        for name in names:
            told.setdefault(name, []).append((audit, delivery))
    return tuple(_rate(name, told[name]) for name in sorted(told))


def _sample(office: Office) -> Iterator[Told]:
    recent = office.store.records(AUDITED)[:SAMPLE]
    share = SAMPLE // max(len(recent), 1)
    for held in recent:
        query = Query(mailbox=held.key, message_ids=tuple(held.value[-share:]))
        for found in office.store.find(query):
            for record in office.store.records(AUDIT + held.key, found.message.id):
                yield convert(record.value, Audit), found.delivery


def _rate(name: str, told: Sequence[Told]) -> Rate:
    rung = [(audit, at) for audit, _ in told if (at := _rung_at(audit, name)) is not None]
    shown = [(delivery, audit.sights[0].at) for audit, delivery in told if audit.sights]
    return Rate(
        name=name,
        letters=len(told),
        rung=len(rung),
        shown=len(shown),
        acknowledged=sum(_acked_at(delivery) is not None for _, delivery in told),
        median_to_shown=_median(_until(at, (sight.at for sight in audit.sights)) for audit, at in rung),
        median_to_acknowledged=_median(_until(at, (_acked_at(delivery),)) for delivery, at in shown),
    )


def _rung_at(audit: Audit, way: str) -> datetime | None:
    """When the first of its rings got through, as far as anybody knows."""
    return next((ring.at for ring in audit.rings if ring.way == way and ring.outcome == "rung"), None)


def _acked_at(delivery: Delivery) -> datetime | None:
    return None if delivery.has_left else delivery.acked_at


def _until(start: datetime, times: Iterable[datetime | None]) -> float | None:
    """Seconds until the first of these times that came after; None if there is none."""
    return next(((at - start).total_seconds() for at in times if at is not None and at >= start), None)


def _median(spans: Iterable[float | None]) -> float | None:
    """Of an even number, the greater of the two in the middle."""
    found = sorted(span for span in spans if span is not None)
    return found[len(found) // 2] if found else None
