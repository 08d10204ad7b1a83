"""How often a recipient is told of mail, whatever bells it has: with a pause, and so many times in an hour.

A telling is counted once, however many bells ring for it: the first one begins it, and each of the others may join
it once, for what had come by then. One of which no bell got through never was. The rules of a single bell are in
`ringing`, which asks here; they count its own rings in the same way, those that failed too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..model.telling import Telling, Told

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..model.query import Moment
    from ..model.ring import Book
    from .limits import Limits

HOUR = 3600.0
FEW = 10  # tellings that are remembered where there is no limit: for the pause after them


# -- seconds until there may be another, after those at these times: 0.0 is now


def pause(times: Sequence[float], now: Moment, limits: Limits) -> float:
    return max(0.0, times[-1] + limits.ring_cooldown - now.steady) if times else 0.0


def cap(times: Sequence[float], now: Moment, limits: Limits) -> float:
    lately = last_hour(times, now)
    if not limits.ring_hourly or len(lately) < limits.ring_hourly:
        return 0.0
    return lately[-limits.ring_hourly] + HOUR - now.steady


def last_hour(times: Sequence[float], now: Moment) -> tuple[float, ...]:
    return tuple(at for at in times if at + HOUR > now.steady)


# -- what becomes of them


def rang(told: Told, letters: int, up_to: int, now: Moment, limits: Limits, *, joins: bool) -> Told:
    """A bell rings for so many letters: for the last telling (`joins`), or for another one, of what came up to
    this number.
    """
    if joins:
        *before, last = told.tellings
        return replace(told, tellings=(*before, replace(last, rung=last.rung + letters)))
    told = of_this_boot(told, now)
    fresh = Telling(number=told.number + 1, at=now.steady, up_to=up_to, rung=letters)
    lately = (*(one for one in told.tellings if one.at + HOUR > now.steady), fresh)
    return replace(told, number=fresh.number, tellings=lately[-(limits.ring_hourly or FEW) :])


def failed(told: Told, numbers: Sequence[int]) -> Told:
    """The ring for a letter did not get through, once for each of these tellings."""
    left = [replace(one, rung=one.rung - numbers.count(one.number)) for one in told.tellings]
    return replace(told, tellings=tuple(one for one in left if one.rung > 0))


def of_this_boot(told: Told, now: Moment) -> Told:
    """Uptimes of an earlier boot are as if the machine had just been switched on."""
    return told if told.boot == now.boot else Told(boot=now.boot, number=told.number)


def of_books(books: Iterable[Book], now: Moment) -> Told:
    """Where nobody counted tellings yet: as many as the bell had that rang most often. Nothing joins them."""
    times = max((book.recent for book in books if book.boot == now.boot), key=len, default=())
    tellings = tuple(Telling(number=n, at=at, up_to=0, rung=1) for n, at in enumerate(times, 1))
    return Told(boot=now.boot, number=len(tellings), tellings=tellings)
