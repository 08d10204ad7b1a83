"""Threads, conversations and turns, as their letters tell them. A mailbox sees what it sent or received."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from ..errors import UnknownMessage
from ..model.agent import Agent
from ..model.message import Message, content_type
from ..model.names import POSTMASTER, check_id, check_scope
from ..model.query import LetterQuery
from ..model.record import CARD
from ..model.thread import Seat, Strand, fold_conversation, fold_thread, note_of, thread_of, turn_of
from ..model.values import check_label
from .agents import agent_of
from .authorize import authorize
from .conversations import turn_in
from .core import find_record
from .inbox import check_spelling
from .names import names_of, residents, seen_by
from .validation import check_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model.thread import Conversation, Thread, Turn
    from .authorize import Principal
    from .conversations import View
    from .core import Core


def thread(core: Core, caller: Principal, mailbox: str | None, id: str) -> list[Message]:
    """All letters of a thread that `mailbox` may see (None: the operator's view), the oldest first."""
    _authorize(caller, mailbox)
    return _visible(core, mailbox, LetterQuery(thread=check_id(id, "thread"), party=mailbox))


def tagged(core: Core, caller: Principal, mailbox: str | None, tag: str, scope: str | None) -> list[Message]:
    """All letters with a thread tag, the oldest first."""
    _authorize(caller, mailbox)
    label = check_label(tag, "thread_tag", 200)
    return _visible(core, mailbox, LetterQuery(thread_tag=label, scope=_scope(scope), party=mailbox))


def reply_chain(core: Core, caller: Principal, mailbox: str | None, id: str) -> list[Message]:
    """From a letter back to its root, the root first; stops where a letter is not to be seen."""
    _authorize(caller, mailbox)
    letters = core.store.get((check_id(id, "id"),))
    if id not in letters:
        raise UnknownMessage(f"no letter {id!r}", field="id")
    seen = {m.id: m for m in thread(core, caller, mailbox, letters[id].message.thread)}
    if id not in seen:
        raise UnknownMessage(f"no letter {id!r}", field="id")
    chain = []
    above: str | None = id
    while above in seen:
        chain.append(seen.pop(above))  # each letter once, whatever an imported one claims
        above = chain[-1].in_reply_to
    return chain[::-1]


def threads(core: Core, caller: Principal, mailbox: str | None, limit: int) -> list[Thread]:
    """Threads with replies, the most recently active first."""
    _authorize(caller, mailbox)
    ids = core.store.threads(mailbox, check_count(limit, "limit"))
    if not ids and mailbox is not None:
        check_spelling(core, mailbox)
    seen = (_visible(core, mailbox, LetterQuery(thread=id, party=mailbox)) for id in ids)
    return [fold_thread(letters) for letters in seen if letters]


def conversations(
    core: Core, caller: Principal, mailbox: str | None, scope: str | None, limit: int
) -> list[Conversation]:
    """Conversations, the most recently active first, with their counts."""
    _authorize(caller, mailbox)
    ids = core.store.conversations(mailbox, _scope(scope), check_count(limit, "limit"))
    if not ids and mailbox is not None:
        check_spelling(core, mailbox)
    seen = (_visible(core, mailbox, LetterQuery(conversation=id, party=mailbox)) for id in ids)
    return [fold_conversation(letters) for letters in seen if letters]


def conversation(core: Core, caller: Principal, mailbox: str | None, id: str) -> Conversation:
    return fold_conversation(_replay(core, caller, mailbox, id))


def turns(core: Core, caller: Principal, mailbox: str | None, id: str) -> list[Turn]:
    """A conversation replayed, turn by turn."""
    return [turn_of(message) for message in _replay(core, caller, mailbox, id)]


def _replay(core: Core, caller: Principal, mailbox: str | None, id: str) -> list[Message]:
    _authorize(caller, mailbox)
    query = LetterQuery(conversation=check_id(id, "conversation"), party=mailbox)
    letters = _visible(core, mailbox, query)
    if not letters:
        raise UnknownMessage(f"no conversation {id!r}", field="conversation")
    return letters


def _scope(scope: str | None) -> str | None:
    return None if scope is None else check_scope(scope, "scope")


def _authorize(caller: Principal, mailbox: str | None) -> None:
    authorize(caller, "room" if mailbox is None else "threads", mailbox)


def _visible(core: Core, mailbox: str | None, query: LetterQuery) -> list[Message]:
    letters = core.store.letters(query)
    if not letters and mailbox is not None:
        check_spelling(core, mailbox)
    return [seen_by(core, letter.message, mailbox) for letter in letters]


# A conversation retold: some of its turns, a page of them, what it comes to in numbers, who is there.

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


def wanted_turns(core: Core, view: View, wanted: Wanted) -> list[Message]:
    """The turns that are wanted, the oldest first. A turn that is named must be there."""
    start = 0 if wanted.after is None else _place(view, wanted.after) + 1
    end = len(view.letters) if wanted.before is None else _place(view, wanted.before)
    speakers = None if wanted.participant is None else names_of(core, wanted.participant)
    return [letter for letter in view.letters[start:end] if _suits(letter, wanted, speakers)]


def page(rows: Sequence[T], limit: int | None) -> tuple[list[T], bool]:
    """The first of them, and whether there are more."""
    return list(rows[:limit]), limit is not None and len(rows) > limit


def summary(core: Core, view: View, wanted: Wanted) -> Summary:
    letters = wanted_turns(core, view, wanted)
    speakers = Counter(map(residents(core), (letter.sender for letter in letters)))
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


def presence(core: Core, view: View) -> list[Present]:
    """How everybody in a conversation is, from the directory."""
    moment = core.now()
    found = []
    for seat in view.seats:
        card = find_record(core, CARD, seat.agent)
        agent = None if card is None else agent_of(core, card, moment)
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
    text = ", ".join(f"{name} {count}" for name, count in speakers.most_common() if name != POSTMASTER)
    span = " to ".join(
        dict.fromkeys(x.created_at.strftime("%Y-%m-%d %H:%M UTC") for x in (letters[0], letters[-1]))
    )
    return f"{start}; {view.talk.status}. {span}. Turns: {text}."


def _many(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"
