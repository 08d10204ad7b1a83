"""A conversation retold: some of its turns, a page of them, what it comes to in numbers, who is there."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from ..model.card import Agent
from ..model.content import content_type
from ..model.message import Message
from ..model.names import POSTMASTER
from ..model.record import CARD
from ..model.talk import Seat, Strand, note_of, thread_of
from .directory import agent_of
from .naming import names_of, residents
from .records import find_record
from .talks import turn_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .office import Office
    from .talks import View

T = TypeVar("T")
UNKNOWN = "unknown"  # the presence of somebody who never registered


class Wanted(Struct, frozen=True, kw_only=True):
    """Which turns. Every field narrows; turns are named by their letters."""

    thread: str | None = None
    content_types: tuple[str, ...] = ()
    participant: str | None = None
    after: str | None = None
    before: str | None = None
    since: datetime | None = None  # later than; times count by the millisecond, as they are shown
    until: datetime | None = None  # earlier than


class Summary(Struct, frozen=True, kw_only=True):
    """A conversation in numbers and lists."""

    turns: int
    speakers: dict[str, int]  # turns by who took them
    content_types: dict[str, int]
    kinds: dict[str, int]  # of letters
    seats: tuple[Seat, ...]
    strands: tuple[Strand, ...]
    first: Message | None
    last: Message | None
    text: str  # the same, in a sentence or two


class Present(Struct, frozen=True, kw_only=True):
    """A participant, and how it is."""

    seat: Seat
    agent: Agent | None  # None: it never registered
    presence: str  # in the inbox design's words


def turns(office: Office, view: View, wanted: Wanted) -> list[Message]:
    """The turns that are wanted, the oldest first. A turn that is named must be there."""
    start = 0 if wanted.after is None else _place(view, wanted.after) + 1
    end = len(view.letters) if wanted.before is None else _place(view, wanted.before)
    speakers = None if wanted.participant is None else names_of(office, wanted.participant)
    return [letter for letter in view.letters[start:end] if _suits(letter, wanted, speakers)]


def page(rows: Sequence[T], limit: int | None) -> tuple[list[T], bool]:
    """The first of them, and whether there are more."""
    return list(rows[:limit]), limit is not None and len(rows) > limit


def summary(office: Office, view: View, wanted: Wanted) -> Summary:
    letters = turns(office, view, wanted)
    speakers = Counter(map(residents(office), (letter.sender for letter in letters)))
    strands = tuple(s for s in view.strands if wanted.thread in {None, s.id})
    return Summary(
        turns=len(letters),
        speakers=dict(speakers),
        content_types=dict(Counter(map(type_of, letters))),
        kinds=dict(Counter(letter.kind for letter in letters)),
        seats=view.seats,
        strands=strands,
        first=letters[0] if letters else None,
        last=letters[-1] if letters else None,
        text=_told(view, letters, speakers, len(strands)),
    )


def type_of(letter: Message) -> str:
    """The content type of a turn: as its speaker called it, or as its content is."""
    note = note_of(letter)
    return content_type(letter) if note is None else note.content_type


def presence(office: Office, view: View) -> list[Present]:
    """How everybody in a conversation is, from the directory."""
    moment = office.now()
    found = []
    for seat in view.seats:
        card = find_record(office, CARD, seat.agent)
        agent = None if card is None else agent_of(office, card, moment)
        word = UNKNOWN if agent is None else agent.presence.inbox_word
        found.append(Present(seat=seat, agent=agent, presence=word))
    return found


def _place(view: View, id: str) -> int:
    return view.letters.index(turn_in(view, id))


def _suits(letter: Message, wanted: Wanted, speakers: Sequence[str] | None) -> bool:
    return (
        (wanted.thread is None or wanted.thread == thread_of(letter))
        and (not wanted.content_types or type_of(letter) in wanted.content_types)
        and (speakers is None or letter.sender in speakers)
        and (wanted.since is None or _cut(letter.created_at) > _cut(wanted.since))
        and (wanted.until is None or _cut(letter.created_at) < _cut(wanted.until))
    )


def _cut(time: datetime) -> datetime:
    return time.replace(microsecond=time.microsecond // 1000 * 1000)


def _told(view: View, letters: Sequence[Message], speakers: Counter[str], threads: int) -> str:
    """Facts only; nothing is quoted, so nothing in it can speak to whoever reads it."""
    inside = len(view.seats)
    start = f"{_many(len(letters), 'turn')}, {_many(inside, 'participant')}, {_many(threads, 'thread')}"
    if not letters:
        return f"{start}; {view.talk.status}."
    said = ", ".join(f"{name} {count}" for name, count in speakers.most_common() if name != POSTMASTER)
    span = " to ".join(
        dict.fromkeys(x.created_at.strftime("%Y-%m-%d %H:%M UTC") for x in (letters[0], letters[-1]))
    )
    return f"{start}; {view.talk.status}. {span}. Turns: {said}."


def _many(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"
