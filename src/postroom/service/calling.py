"""Calls of webhooks: which are to be made, under which id, and what became of them.

When to ring and for which letters is decided in `ringing`. Here each ring becomes a call with an id, written down
in the commit that decides to ring and kept until somebody answered. So a daemon that dies in the middle of a call
makes it again, and whoever is called knows by the id that it is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from .. import service
from ..model.codec import convert, to_plain
from ..model.record import BELL, CALLS, WEBHOOK, bell_key
from ..model.ring import Rung, RungLetter
from ..model.webhook import OpenCall
from .authorize import authorize
from .records import find_record, put_record
from .ringbook import find_book

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ..model.record import Record
    from ..model.webhook import Webhook
    from ..store.base import Put, Write
    from .authorize import Principal
    from .office import Office

CUT_OFF = "the post room ended before anybody answered"


class DueCall(Struct, frozen=True, kw_only=True):
    """A call that is to be made now."""

    id: str
    letters: tuple[RungLetter, ...]
    unread: int  # all that is unread at the mailbox


class Due(Struct, frozen=True, kw_only=True):
    """What is to be done now, and after how many seconds another look is worth it."""

    calls: tuple[DueCall, ...] = ()
    nap: float = 0.0


def due(office: Office, caller: Principal, webhook: Webhook) -> Due:
    """Is it time to call? Whoever is told so calls, and says what came of it: `answered` or `failed`."""
    if find_record(office, WEBHOOK, webhook.id) is None:
        return Due(nap=service.ringing.LOOK_EVERY)  # it was removed; who calls will hear of it
    opened: list[OpenCall] = []

    def also(ids: Collection[str]) -> Sequence[Write]:
        held = find_record(office, CALLS, webhook.id)
        before = _kept(office, webhook, _calls(held))
        opened[:] = _of_these(before, ids, office.ids.token())
        known = {call.id for call in before}
        return [_put(webhook, [*before, *(call for call in opened if call.id not in known)], held)]

    rung = service.ringing.try_ring(
        office, caller, webhook.mailbox, webhook.way, least=webhook.min_priority, also=also
    )
    if not isinstance(rung, Rung):
        return Due(nap=_nap(office, webhook, rung.seconds))
    told = {letter.id: letter for letter in rung.letters}
    calls = [DueCall(id=c.id, letters=tuple(told[id] for id in c.letters), unread=rung.unread) for c in opened]
    return Due(calls=tuple(calls))


def answered(office: Office, caller: Principal, webhook: Webhook, call: str) -> None:
    """It got through: the call is over."""
    authorize(caller, "ring", webhook.mailbox)

    def plan() -> Sequence[Write]:
        held = find_record(office, CALLS, webhook.id)
        before = _calls(held)
        left = [one for one in before if one.id != call]
        return [] if left == before else [_put(webhook, left, held)]

    office.store.commit(plan)


def failed(
    office: Office,
    caller: Principal,
    webhook: Webhook,
    call: DueCall,
    why: str,
    *,
    asked: float,
    chance: float,
    was_tried: bool = True,
) -> int:
    """It did not get through: it is made again later, under the same id. Gives for how many letters it is given
    up. One that was not even tried, because of what was answered to another, loses no try by that.
    """
    ids = [letter.id for letter in call.letters]
    return service.lost_rings.ring_failed(
        office, caller, webhook.mailbox, webhook.way, ids, why, asked=asked, chance=chance, was_tried=was_tried
    )


def resume(office: Office, caller: Principal, webhook: Webhook) -> int:
    """What was under way when the last who called ended is made again; gives how many calls are open."""
    calls = _calls(find_record(office, CALLS, webhook.id))
    ids = [id for call in calls for id in call.letters]
    if ids:
        service.lost_rings.ring_failed(office, caller, webhook.mailbox, webhook.way, ids, CUT_OFF)
    return len(calls)


def forget(office: Office, webhook: Webhook) -> list[Put]:
    """All that is remembered of a webhook's calls, taken away. Part of a plan."""
    kept = [(CALLS, webhook.id), (BELL, bell_key(webhook.mailbox, webhook.way))]
    found = [(kind, key, find_record(office, kind, key)) for kind, key in kept]
    return [put_record(kind, key, None, held) for kind, key, held in found if held is not None]


def _of_these(open_calls: Sequence[OpenCall], ids: Collection[str], fresh: str) -> list[OpenCall]:
    """The calls for these letters: those that are made again, each by itself, and one for all that is new."""
    again = [OpenCall(c.id, tuple(id for id in c.letters if id in ids)) for c in open_calls]
    known = {id for call in again for id in call.letters}
    new = OpenCall(fresh, tuple(id for id in ids if id not in known))
    return [call for call in (*again, new) if call.letters]


def _kept(office: Office, webhook: Webhook, calls: Sequence[OpenCall]) -> list[OpenCall]:
    """Those that may be made again: what the book does not hold any more was settled meanwhile."""
    found = find_book(office, webhook.mailbox, webhook.way)
    held = set() if found is None else found[0].notes.keys() | found[0].dead.keys()
    return [call for call in calls if held.intersection(call.letters)]


def _nap(office: Office, webhook: Webhook, seconds: float | None) -> float:
    timer = service.waiting.seconds_to_sleep(office, (webhook.mailbox,))
    longest = service.ringing.LOOK_EVERY
    return min(timer, longest if seconds is None else seconds + 0.001, longest)


def _calls(held: Record | None) -> list[OpenCall]:
    return [] if held is None else convert(held.value, list[OpenCall])


def _put(webhook: Webhook, calls: Sequence[OpenCall], held: Record | None) -> Put:
    return put_record(CALLS, webhook.id, to_plain(calls) or None, held, durable=False)
