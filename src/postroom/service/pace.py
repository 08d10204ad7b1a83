"""The pace of answers in one thread or conversation, whatever surface or link they come by (G11).

An answer is a reply, or a letter in a conversation (by its id, or by thread tag and scope) in which somebody has
written to its sender since. So a producer that fills a work queue under one tag has no pace, and neither has the
catch-all of a scope. One sender may write `thread_rate` answers in a minute. All senders together may write
`thread_hourly` answers to several recipients in an hour, counted anew when a person writes: such answers multiply,
so agents that answer everything to everyone come to rest only if they share one limit whose window is long enough
to work through what they received.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..model.message import is_broadcast
from ..model.names import AT
from ..model.query import LetterQuery
from ..model.thread import conversation_of, general_scope
from ..policy.admission import HOUR, MINUTE, is_within, too_crowded, too_fast

if TYPE_CHECKING:
    from datetime import datetime

    from ..model.message import Message
    from .office import Office

LOOK_BACK = 4096  # letters: a send must not cost more the longer a conversation is


class Batch:
    """Letters that are checked one by one and written together: each counts those before it."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, message: Message) -> None:
        own, shared = _places(message)
        if own is not None and shared is not None:
            self._counts[message.sender, _name(own)] += 1
            if _is_to_several(message):
                self._counts["", _name(shared)] += 1

    def count(self, sender: str, place: LetterQuery) -> int:
        return self._counts[sender, _name(place)]


def check_pace(office: Office, message: Message, batch: Batch | None = None) -> None:
    """Raise TooFast if this letter is one answer too many. `batch`: the letters that are written with it. A letter
    that is no reply and is in no named conversation costs nothing.
    """
    batch = batch or Batch()
    own, shared = _places(message)
    if own is None or shared is None:
        return
    _check_sender(office, message, own, batch)
    if _is_to_several(message) and message.sender != office.limits.human:
        _check_crowd(office, message, shared, batch)


def _check_sender(office: Office, message: Message, place: LetterQuery, batch: Batch) -> None:
    rate, now = office.limits.thread_rate, message.created_at
    back = rate - 1 - batch.count(message.sender, place)
    earlier = _earlier(office, message, replace(place, sender=message.sender), back) if rate else None
    if earlier is None or not is_within(MINUTE, earlier[1], now):
        return
    if _is_answer(office, message, place, earlier[0]):
        raise too_fast(_name(place), rate, earlier[1], now)


def _check_crowd(office: Office, message: Message, place: LetterQuery, batch: Batch) -> None:
    rate, now = office.limits.thread_hourly, message.created_at
    several, back = replace(place, to_several=True), rate - 1 - batch.count("", place)
    earlier = _earlier(office, message, several, back) if rate else None
    if earlier is None or not is_within(HOUR, earlier[1], now):
        return
    since = 0 if earlier[0] is None else earlier[0] - 1  # that letter may be the person's own
    person = office.store.letters(replace(place, sender=office.limits.human, after=since))
    if person:
        earlier = _earlier(office, message, replace(several, after=person[0].number), back)
    if earlier is not None and _is_answer(office, message, place, earlier[0]):
        raise too_crowded(_name(place), rate, earlier[1], now)


def _is_answer(office: Office, message: Message, place: LetterQuery, since: int | None) -> bool:
    """Is it a reply, or did somebody write to its sender here since that letter?"""
    if message.thread_id is not None or since is None:
        return message.thread_id is not None
    return bool(office.store.letters(replace(place, received_by=message.sender, after=since)))


def _earlier(
    office: Office, message: Message, query: LetterQuery, back: int
) -> tuple[int | None, datetime] | None:
    """Return number and time of the letter `back` letters ago. One of the same batch has no number yet."""
    if back < 0:
        return None, message.created_at
    found = office.store.letters(replace(query, skip=back))
    return (found[0].number, found[0].message.created_at) if found else None


def _places(message: Message) -> tuple[LetterQuery | None, LetterQuery | None]:
    """Return where the answers of its sender are counted (the thread, if any) and where those of all senders are
    (the conversation, if any).
    """
    thread = conversation = None
    if message.thread_id is not None:
        thread = LetterQuery(replies_in=message.thread_id, newest=LOOK_BACK, order="newest", limit=1)
    name = conversation_of(message)
    if general_scope(name) is None:
        conversation = LetterQuery(conversation=name, newest=LOOK_BACK, order="newest", limit=1)
    return thread or conversation, conversation or thread


def _name(place: LetterQuery) -> str:
    return f"thread {place.replies_in}" if place.conversation is None else f"conversation {place.conversation}"


def _is_to_several(message: Message) -> bool:
    if len(message.recipients) != 1:
        return True
    address = message.recipients[0].address
    return is_broadcast(address) or address.startswith(AT)
