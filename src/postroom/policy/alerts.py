"""How often a recipient is told of mail, whatever bells it has: with a pause, and so many times in an hour.

A telling is counted once, however many bells ring for it: the first one begins it, and each of the others may join
it once, for what had come by then. One of which no bell got through never was. The rules of a single bell are in
`ringing`, which asks here; they count its own rings in the same way, those that failed too.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ..model.alert import DeadRing, Note, RecipientAlert, RecipientAlerts
from ..model.message import Priority
from .retry import backoff

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..model.alert import Book
    from ..model.query import Moment
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


def recipient_notified(
    result: RecipientAlerts, letters: int, up_to: int, now: Moment, limits: Limits, *, joins: bool
) -> RecipientAlerts:
    """A bell rings for so many letters: for the last telling (`joins`), or for another one, of what came up to
    this number.
    """
    if joins:
        *before, last = result.tellings
        return replace(result, tellings=(*before, replace(last, rung=last.rung + letters)))
    result = recipient_of_this_boot(result, now)
    fresh = RecipientAlert(number=result.number + 1, at=now.steady, up_to=up_to, rung=letters)
    lately = (*(one for one in result.tellings if one.at + HOUR > now.steady), fresh)
    return replace(result, number=fresh.number, tellings=lately[-(limits.ring_hourly or FEW) :])


def recipient_failed(result: RecipientAlerts, numbers: Sequence[int]) -> RecipientAlerts:
    """The ring for a letter did not get through, once for each of these tellings."""
    left = [replace(one, rung=one.rung - numbers.count(one.number)) for one in result.tellings]
    return replace(result, tellings=tuple(one for one in left if one.rung > 0))


def recipient_of_this_boot(result: RecipientAlerts, now: Moment) -> RecipientAlerts:
    """Uptimes of an earlier boot are as if the machine had just been switched on."""
    return result if result.boot == now.boot else RecipientAlerts(boot=now.boot, number=result.number)


def of_books(books: Iterable[Book], now: Moment) -> RecipientAlerts:
    """Where nobody counted tellings yet: as many as the bell had that rang most often. Nothing joins them."""
    times = max((book.recent for book in books if book.boot == now.boot), key=len, default=())
    tellings = tuple(RecipientAlert(number=n, at=at, up_to=0, rung=1) for n, at in enumerate(times, 1))
    return RecipientAlerts(boot=now.boot, number=len(tellings), tellings=tellings)


# When somebody is told of mail, and for which letters: once, of several together, not too often, and of urgent
# mail until it is acknowledged. The letters that wait, the books and the time are handed in.
#
# A bell goes by its own book, and by what all bells of its recipient remember together (`telling`). Pauses go by
# the
# machine's uptime, as leases do: no wall clock can silence a bell or make it ring for ever. Only gathering looks
# at
# when letters came.

T = TypeVar("T")
GATHER_MOST = 2.0  # seconds that the first of several letters waits for the others
MOST_NOTES = 1000  # letters that may be rung for again, and dead rings: the newest


class Waiting(Struct, frozen=True, kw_only=True):
    """A letter as a ringer sees it: offered, and not acknowledged."""

    id: str
    number: int = 0  # of its coming
    priority: Priority = Priority.NORMAL
    came: datetime | None = None
    is_unread: bool = True
    is_new: bool = False  # came after the book's number, and was never rung for this way

    @property
    def is_urgent(self) -> bool:
        return self.priority is Priority.URGENT


class Verdict(Struct, frozen=True):
    """Ring for these letters now; else look again after so many seconds, or when new mail comes (None)."""

    ring: tuple[str, ...] = ()
    joins: bool = False  # the last telling; else this is another one
    look_again: float | None = None


def decide(
    waiting: Sequence[Waiting], book: Book, result: RecipientAlerts, now: Moment, limits: Limits
) -> Verdict:
    """Whom these letters wait for: is it told now by this bell, and of which?"""
    book, result = of_this_boot(book, now), recipient_of_this_boot(result, now)
    gathering = _gathering(waiting, now.wall, limits)
    own = {w.id: _own_time(w, book, now, gathering, limits) for w in waiting}
    joining = {w.id for w in waiting if _joins(w, book, result)}
    here, there = _hold(book.recent, now, limits), _hold(result.times, now, limits)
    times = {
        w.id: max(seconds, here.seconds(w), 0.0 if w.id in joining else there.seconds(w))
        for w in waiting
        if (seconds := own[w.id]) is not None
    }
    if not times or min(times.values()) > 0:
        return Verdict(look_again=min(times.values(), default=None))
    others = [w for w in waiting if w.id not in joining]
    begins = any(times.get(w.id) == 0 for w in others) or (there.is_over and any(map(_is_fresh, others)))
    # Who is told at all is told of everything: what is new goes along before its time.
    ring = (w.id for w in waiting if own[w.id] == 0 or _is_fresh(w))
    return Verdict(ring=tuple(id for id in ring if begins or id in joining), joins=not begins)


def rang(
    book: Book,
    rung: Sequence[Waiting],
    up_to: int,
    number: int,
    now: Moment,
    limits: Limits,
    *,
    within: float | None = None,
) -> Book:
    """The book after a ring for these letters, as part of the telling of this number; nothing that came up to
    `up_to` is new any more. Whoever rings says that it is done `within` so many seconds; None: at no time.
    """
    book = done(of_this_boot(book, now), [w.id for w in rung])
    notes = book.notes | {w.id: _noted(book.notes.get(w.id), now) for w in rung if _is_noted(w, book)}
    promised = {} if within is None else {w.id: now.steady + within for w in rung}
    recent = (*last_hour(book.recent, now), now.steady)
    return replace(
        book,
        up_to=max(up_to, book.up_to),
        recent=recent[-max(limits.ring_hourly, 1) :],
        telling=number,
        notes=_newest(notes),
        open=_newest(book.open | promised),
    )


def done(book: Book, ids: Iterable[str]) -> Book:
    """The book after the rings for these letters were carried out, and nothing failed."""
    over = set(ids)
    return replace(book, open={id: until for id, until in book.open.items() if id not in over})


def unheard_of(book: Book, now: Moment) -> tuple[list[str], float | None]:
    """Letters of rings that nobody said to be done in time; and in how many seconds there may be more of them."""
    left = {id: until - now.steady for id, until in of_this_boot(book, now).open.items()}
    return [id for id, seconds in left.items() if seconds <= 0], min(left.values(), default=None)


def failed(
    book: Book,
    id: str,
    why: str,
    now: Moment,
    limits: Limits,
    *,
    delay: float = 0.0,
    chance: float = 1.0,
    was_tried: bool = True,
) -> Book:
    """The book after the last ring for a letter did not get through: tried again later, or dead. Half of the pause
    is left to chance (from 0 to 1), so that those who failed together do not come back together; it is never
    shorter than what was `asked` for, in seconds. What was not even tried counts as no try.
    """
    book = done(of_this_boot(book, now), [id])
    note = book.notes.get(id) or Note(last=now.steady, rung=1)
    tries = note.tries + was_tried
    if was_tried and tries >= limits.ring_tries:
        notes = {name: held for name, held in book.notes.items() if name != id}
        dead = book.dead | {id: DeadRing(at=now.wall, tries=tries, why=why)}
        return replace(book, notes=notes, dead=_newest(dead))
    due = now.steady + max(backoff(max(tries, 1), limits).total_seconds() * (0.5 + chance / 2), delay)
    again = replace(note, rung=note.rung - 1, tries=tries, due=due)
    return replace(book, notes=_newest(book.notes | {id: again}))


def tried_again(book: Book, ids: Iterable[str], now: Moment) -> Book:
    """The book after somebody asked for dead rings to be tried again: at once, with all tries ahead of them."""
    book = of_this_boot(book, now)
    delay = [id for id in ids if id in book.dead]
    notes = book.notes | {id: Note(last=now.steady, due=now.steady) for id in delay}
    return replace(book, notes=_newest(notes), dead={id: d for id, d in book.dead.items() if id not in delay})


def without(book: Book, ids: Iterable[str]) -> Book:
    """The book without what it holds of letters that are settled or gone."""
    gone = set(ids)
    return replace(
        done(book, gone),
        notes={id: note for id, note in book.notes.items() if id not in gone},
        dead={id: dead for id, dead in book.dead.items() if id not in gone},
    )


def of_this_boot(book: Book, now: Moment) -> Book:
    """Uptimes of an earlier boot are as if the machine had just been switched on."""
    if book.boot == now.boot:
        return book
    notes = {id: replace(n, last=0.0, due=None if n.due is None else 0.0) for id, n in book.notes.items()}
    return replace(book, boot=now.boot, recent=(), notes=notes, open=dict.fromkeys(book.open, 0.0))


# -- seconds until a letter may be rung for: 0.0 is now, None is never


def _own_time(letter: Waiting, book: Book, now: Moment, gathering: float, limits: Limits) -> float | None:
    """By what it is itself, whatever rang lately."""
    if _is_fresh(letter):
        return 0.0 if letter.is_urgent else gathering
    note = book.notes.get(letter.id)
    if note is None or not (letter.is_unread or letter.is_urgent):
        return None
    if note.due is not None:
        return max(0.0, note.due - now.steady)
    if letter.is_urgent and limits.ring_again and note.rung < limits.ring_most:
        return max(0.0, note.last + limits.ring_again - now.steady)
    return None


def _is_fresh(letter: Waiting) -> bool:
    return letter.is_new and letter.is_unread and letter.priority > Priority.LOW


def _gathering(waiting: Sequence[Waiting], now: datetime, limits: Limits) -> float:
    """For what may still come with the new letters. Where clocks were set, nobody waits."""
    came = [w.came for w in waiting if w.came is not None and _is_fresh(w) and not w.is_urgent]
    if not came:
        return 0.0
    left = min(
        limits.ring_gather - (now - max(came)).total_seconds(), GATHER_MOST - (now - min(came)).total_seconds()
    )
    return left if 0 < left <= limits.ring_gather else 0.0


class _Hold(Struct, frozen=True):
    """Until there may be another ring."""

    pause: float
    cap: float

    def seconds(self, letter: Waiting) -> float:
        return self.cap if letter.is_urgent else max(self.cap, self.pause)

    @property
    def is_over(self) -> bool:
        return self.cap == self.pause == 0


def _hold(times: Sequence[float], now: Moment, limits: Limits) -> _Hold:
    return _Hold(pause(times, now, limits), cap(times, now, limits))


def _joins(letter: Waiting, book: Book, result: RecipientAlerts) -> bool:
    """May this bell ring for it as part of the last telling? It had come by then, and the bell did not ring yet,
    or that failed.
    """
    if result.last is None or letter.number > result.last.up_to:
        return False
    note = book.notes.get(letter.id)
    return book.telling != result.last.number or (note is not None and note.due is not None)


# -- notes


def _is_noted(letter: Waiting, book: Book) -> bool:
    return letter.is_urgent or letter.id in book.notes


def _noted(held: Note | None, now: Moment) -> Note:
    """Rung once more. What failed before counts until a ring got through."""
    if held is None:
        return Note(last=now.steady, rung=1)
    tries = held.tries if held.due is not None else 0
    return replace(held, last=now.steady, rung=held.rung + 1, tries=tries, due=None)


def _newest(held: dict[str, T]) -> dict[str, T]:
    return dict(list(held.items())[-MOST_NOTES:])
