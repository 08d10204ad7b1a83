"""Conversations as a caller may see them: what was said of them, and what their letters tell.

An agent sees a conversation it sits in, opened, or has a letter of, and in it only letters that it sent or
received. Any other is as if it were not there. The operator sees all. What is kept is in `model.talk`; the rest is
a fold.

Anybody can write a conversation's id on a letter, so that alone lets nobody in. In its circle are those who sit
in it, who opened it, and whoever one of these wrote to in it. Who is outside the circle of a conversation that was
opened sees its own letters there, and nothing else: no subject, no seats, no turns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ..errors import Invalid, Missing
from ..model.codec import convert
from ..model.message import Message, is_any, is_broadcast
from ..model.names import POSTMASTER, check_agent, check_id
from ..model.query import LetterQuery, Query
from ..model.record import CONVERSATION, Record
from ..model.talk import THREAD, Seat, Strand, Talk, thread_of
from ..model.thread import fold_conversation
from .authorize import authorize
from .naming import resident, residents, seen_by
from .records import find_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from .authorize import Principal
    from .office import Office

MOST = 2**31  # conversations: all of them
PAGE = 500  # letters that are looked through in a moment
_NOBODY = "-"  # no name at all: whoever is nobody's agent sees nobody's letters, not even the postmaster's


class View(Struct, frozen=True, kw_only=True):
    """A conversation, as one caller may see it."""

    talk: Talk
    held: Record | None  # None: only its letters tell of it
    letters: tuple[Message, ...]  # the oldest first
    seats: tuple[Seat, ...]  # who is in it now: those who joined, and those of its letters
    strands: tuple[Strand, ...]  # threads that were opened, and those that replies made
    is_inside: bool = True  # is the caller of its circle? Else these are its own letters and what they tell

    @property
    def updated_at(self) -> datetime:
        last = self.letters[-1].created_at if self.letters else self.talk.updated_at
        return max(self.talk.updated_at, last)

    def seat(self, agent: str) -> Seat | None:
        return next((seat for seat in self.seats if seat.agent == agent), None)


def party(principal: Principal) -> str | None:
    """Whose letters a caller sees; None: everybody's."""
    if principal.operator:
        return None
    return principal.agent or _NOBODY


def look(office: Office, caller: Principal, id: str) -> View:
    """The conversation, or Missing, whether it is absent or not this caller's."""
    authorize(caller, "talks", caller.agent)
    return view_of(office, party(caller), id)


def letters_of(office: Office, reader: str | None, id: str) -> list[Message]:
    """All letters of a conversation that are somebody's, as they were written; the oldest first."""
    query = LetterQuery(conversation=check_id(id, "conversation"), party=reader)
    return [letter.message for letter in office.store.letters(query)]


def view_of(office: Office, reader: str | None, id: str, known: Sequence[Message] | None = None) -> View:
    """The same, for who changes it, and asked before. `known`: its letters, for who has just read them."""
    checked = check_id(id, "conversation")
    held = find_record(office, CONVERSATION, checked)
    talk = None if held is None else convert(held.value, Talk)
    found = letters_of(office, reader, checked) if known is None else known
    letters = tuple(seen_by(office, letter, reader) for letter in found)
    inner = None if talk is None else _circle(office, talk, reader, found)
    is_inside = inner is None or reader is None or reader in inner
    if not letters and (talk is None or not is_inside):
        raise unknown(checked)
    if talk is None or not is_inside:
        talk, inner = told_by(letters), None
    return View(
        talk=talk,
        held=held,
        letters=letters,
        seats=_seats(office, talk, letters, inner),
        strands=_strands(talk, letters, everything=reader is None),
        is_inside=is_inside,
    )


def hears(office: Office, principal: Principal, talk: Talk) -> bool:
    """Is this caller told what happens to a conversation now? Who left is not."""
    reader = party(principal)
    seat = None if reader is None else talk.seat(reader)
    if reader is None or seat is not None:
        return seat is None or seat.left_at is None
    if reader == talk.created_by:
        return True
    has_letters = bool(office.store.letters(LetterQuery(conversation=talk.id, party=reader, limit=1)))
    return has_letters and reader in circle(office, talk, until=reader)


def is_long(office: Office, id: str) -> bool:
    """Has it so many letters that to look through them takes more than a moment?"""
    return bool(office.store.letters(LetterQuery(conversation=id, skip=PAGE, limit=1)))


def founder(office: Office, id: str) -> str:
    """Who wrote the first letter of a conversation that nobody opened; nobody: there is none."""
    first = office.store.letters(LetterQuery(conversation=id, limit=1))
    return resident(office, first[0].message.sender) if first else ""


def circle(office: Office, talk: Talk, *, until: str | None = None) -> set[str]:
    """Who belongs to a conversation: its seats, who opened it, and whoever one of these wrote to in it. With
    `until` it ends as soon as this one is found.
    """
    return _drawn(office, talk, _pages(office, talk.id), until)


def _circle(office: Office, talk: Talk, reader: str | None, letters: Sequence[Message]) -> set[str]:
    """The same, as far as these letters of `reader` name anybody: mostly they name nobody who has no seat."""
    if reader is None:  # these are all of them
        return _drawn(office, talk, [letters])
    today, reached = residents(office), _reached(office, letters)
    named = {today(letter.sender) for letter in letters}
    named = named.union(*(_written_to(letter, reached, today) for letter in letters))
    roots = _roots(talk)
    return roots if named <= roots else circle(office, talk)


def _drawn(office: Office, talk: Talk, pages: Iterable[Sequence[Message]], until: str | None = None) -> set[str]:
    inner, today = _roots(talk), residents(office)
    left = {seat.agent: seat.left_at for seat in talk.seats}
    for letters in pages:
        reached = _reached(office, letters)
        for letter in letters:
            sender = today(letter.sender)
            gone = left.get(sender)
            if sender in inner and (gone is None or letter.created_at <= gone):
                inner |= _written_to(letter, reached, today)
        if until in inner:
            break
    return inner


def _pages(office: Office, id: str) -> Iterator[list[Message]]:
    """All letters of a conversation, and never many of them in memory."""
    last = 0
    while found := office.store.letters(LetterQuery(conversation=id, after=last, limit=PAGE)):
        yield [letter.message for letter in found]
        last = found[-1].number


def _roots(talk: Talk) -> set[str]:
    return {talk.created_by, *(seat.agent for seat in talk.seats)}


def _written_to(letter: Message, reached: dict[str, list[str]], today: Callable[[str], str]) -> set[str]:
    named = [r.address for r in letter.recipients if not _is_open(r.address)]
    return {today(name) for name in (*named, *reached.get(letter.id, ()))}


def seat_in(office: Office, view: View, agent: str) -> Seat | None:
    """Where somebody sits, whatever they were called when it was given to them."""
    return view.seat(resident(office, check_agent(agent, "agent_id")))


def unknown(id: str) -> Missing:
    return Missing(f"no conversation {id!r}", field="conversation")


def told_by(letters: Sequence[Message]) -> Talk:
    """What letters alone tell of their conversation."""
    fold = fold_conversation(letters[:1])  # all that is asked of it is said by the first
    return Talk(
        id=fold.id,
        scope=fold.scope,
        subject=fold.subject,
        created_at=fold.started_at,
        updated_at=fold.started_at,
        created_by=letters[0].sender,
    )


def conversations(office: Office, caller: Principal, scope: str | None, after: str | None) -> Iterator[View]:
    """Those a caller may see, the most recently active first; those behind `after`, the id of one of them."""
    authorize(caller, "talks", caller.agent)
    order = _by_activity(office, party(caller), scope)
    if after is not None:
        if after not in order:
            raise Invalid(f"there is no conversation {after!a} to go on from", field="cursor")
        del order[: order.index(after) + 1]
    for id in order:
        try:
            yield look(office, caller, id)
        except Missing:  # its last letter was deleted meanwhile
            continue


def _by_activity(office: Office, reader: str | None, scope: str | None) -> list[str]:
    active: dict[str, datetime] = {}
    for record in office.store.records(CONVERSATION):
        talk = convert(record.value, Talk)
        seen = reader is None or reader == talk.created_by or talk.seat(reader) is not None
        if seen and scope in {None, talk.scope}:
            active[talk.id] = talk.updated_at
    for id in [*active, *office.store.conversations(reader, scope, MOST)]:
        last = office.store.letters(LetterQuery(conversation=id, party=reader, order="newest", limit=1))
        for letter in last:
            spoken = letter.message.created_at
            active[id] = max(active.get(id, spoken), spoken)
    return sorted(active, key=lambda name: (active[name], name), reverse=True)


def recent(office: Office, caller: Principal, scope: str | None, limit: int) -> list[Message]:
    """The last letters of all conversations, the newest first."""
    authorize(caller, "talks", caller.agent)
    reader = party(caller)
    found = office.store.letters(LetterQuery(party=reader, scope=scope, order="newest", limit=limit))
    return [seen_by(office, letter.message, reader) for letter in found]


def turn_in(view: View, letter: str) -> Message:
    """One letter of a conversation, or Missing."""
    for message in view.letters:
        if message.id == letter:
            return message
    raise Missing(f"no turn {letter!r} in this conversation", field="turn")


def _seats(office: Office, talk: Talk, letters: Sequence[Message], inner: set[str] | None) -> tuple[Seat, ...]:
    """Who joined and has not left, then senders and visible recipients in order of appearance, of `inner`."""
    seats = {seat.agent: seat for seat in talk.seats}
    today, reached = residents(office), _reached(office, letters)
    for letter in letters:
        for name in (letter.sender, *_named(letter), *reached.get(letter.id, ())):
            now = today(name)
            if now not in seats and now != POSTMASTER and (inner is None or now in inner):
                seats[now] = Seat(agent=now, joined_at=letter.created_at)
    return tuple(seat for seat in seats.values() if seat.left_at is None)


def _named(letter: Message) -> list[str]:
    """Never those in bcc: nobody else may know of them."""
    return [r.address for r in letter.recipients if r.kind != "bcc" and not _is_open(r.address)]


def _is_open(address: str) -> bool:
    return is_broadcast(address) or is_any(address)


def _reached(office: Office, letters: Sequence[Message]) -> dict[str, list[str]]:
    """Who got the letters that do not say so: those to a scope, or to whoever can."""
    ids = tuple(x.id for x in letters if any(_is_open(r.address) for r in x.recipients))
    reached: dict[str, list[str]] = {}
    for found in office.store.find(Query(message_ids=ids, order="age")) if ids else ():
        if found.delivery.kind != "bcc":
            reached.setdefault(found.delivery.message_id, []).append(found.delivery.mailbox)
    return reached


def _strands(talk: Talk, letters: Sequence[Message], *, everything: bool) -> tuple[Strand, ...]:
    """Threads with a letter to be seen."""
    opened = {strand.id: strand for strand in talk.strands}
    by_id = {letter.id: letter for letter in letters}
    replied: dict[str, Strand] = {}
    used = set()
    for letter in letters:
        thread = thread_of(letter)
        if thread is None or not thread.startswith(THREAD):
            continue
        used.add(thread)
        if thread not in opened and thread not in replied:
            root = thread.removeprefix(THREAD)
            replied[thread] = Strand(
                id=thread,
                root=root,
                created_at=letter.created_at,
                created_by=letter.sender,
                subject=by_id[root].subject if root in by_id else "",
            )
    shown = [s for s in opened.values() if everything or s.root in by_id or s.id in used]
    return tuple(sorted([*replied.values(), *shown], key=lambda strand: strand.created_at))
