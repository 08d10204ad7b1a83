"""Threads, conversations and turns, computed from letters; a mailbox sees those that it sent or received.

The first half answers the library (`Room.thread` and its kin). The second half takes the `View` of a conversation
that one caller may see and filters, counts and summarises its turns.
"""

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
from ..model.thread import Participant, ThreadRecord, fold_conversation, fold_thread, note_of, thread_of, turn_of
from ..model.values import check_label
from .agents import agent_of
from .authorize import authorize
from .conversations import turn_in
from .core import find_record
from .inbox import check_spelling
from .names import name_resolver, names_of, seen_by
from .validation import check_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model.thread import Conversation, Thread, Turn
    from .authorize import Principal
    from .conversations import View
    from .core import Core


def thread(core: Core, caller: Principal, mailbox: str | None, id: str) -> list[Message]:
    """Return all letters of a thread that `mailbox` may see, the oldest first; None is the operator's view."""
    _authorize(caller, mailbox)
    return _visible(core, mailbox, LetterQuery(thread=check_id(id, "thread"), party=mailbox))


def tagged(core: Core, caller: Principal, mailbox: str | None, tag: str, scope: str | None) -> list[Message]:
    """Return all letters with a thread tag, the oldest first."""
    _authorize(caller, mailbox)
    label = check_label(tag, "thread_tag", 200)
    return _visible(core, mailbox, LetterQuery(thread_tag=label, scope=_scope(scope), party=mailbox))


def reply_chain(core: Core, caller: Principal, mailbox: str | None, id: str) -> list[Message]:
    """Return a letter and its ancestors, the root first, as far as `mailbox` may see them."""
    _authorize(caller, mailbox)
    letters = core.store.get((check_id(id, "id"),))
    if id not in letters:
        raise UnknownMessage(f"no letter {id!r}", field="id")
    seen = {m.id: m for m in thread(core, caller, mailbox, letters[id].message.thread)}
    # The same error as for a letter that does not exist (G8).
    if id not in seen:
        raise UnknownMessage(f"no letter {id!r}", field="id")
    chain = []
    above: str | None = id
    while above in seen:
        chain.append(seen.pop(above))  # pop: an imported letter may claim a cycle
        above = chain[-1].in_reply_to
    return chain[::-1]


def threads(core: Core, caller: Principal, mailbox: str | None, limit: int) -> list[Thread]:
    """Return threads with replies, the most recently active first."""
    _authorize(caller, mailbox)
    ids = core.store.threads(mailbox, check_count(limit, "limit"))
    if not ids and mailbox is not None:
        check_spelling(core, mailbox)
    # Folded from the letters this mailbox may see: counts must not reveal others (G8).
    seen = (_visible(core, mailbox, LetterQuery(thread=id, party=mailbox)) for id in ids)
    return [fold_thread(letters) for letters in seen if letters]


def conversations(
    core: Core, caller: Principal, mailbox: str | None, scope: str | None, limit: int
) -> list[Conversation]:
    """Return conversations with their counts, the most recently active first."""
    _authorize(caller, mailbox)
    ids = core.store.conversations(mailbox, _scope(scope), check_count(limit, "limit"))
    if not ids and mailbox is not None:
        check_spelling(core, mailbox)
    seen = (_visible(core, mailbox, LetterQuery(conversation=id, party=mailbox)) for id in ids)
    return [fold_conversation(letters) for letters in seen if letters]


def conversation(core: Core, caller: Principal, mailbox: str | None, id: str) -> Conversation:
    """Return one conversation with its counts."""
    return fold_conversation(_conversation_letters(core, caller, mailbox, id))


def turns(core: Core, caller: Principal, mailbox: str | None, id: str) -> list[Turn]:
    """Return the turns of a conversation, the oldest first."""
    return [turn_of(message) for message in _conversation_letters(core, caller, mailbox, id)]


def _conversation_letters(core: Core, caller: Principal, mailbox: str | None, id: str) -> list[Message]:
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


# Turns of a view: filter, page, summarise; presence of the participants.

T = TypeVar("T")
UNKNOWN = "unknown"  # the presence of an agent that never registered


class TurnFilter(Struct, frozen=True, kw_only=True):
    """The turns that a caller wants. Every field narrows; a turn is named by the id of its letter."""

    thread: str | None = None
    content_types: tuple[str, ...] = ()
    participant: str | None = None
    after: str | None = None
    before: str | None = None
    since: datetime | None = None  # turns after this time; compared by the millisecond, as times are shown
    until: datetime | None = None  # turns before this time


class Summary(Struct, frozen=True, kw_only=True):
    """Counts and lists of a conversation."""

    turns: int
    speakers: dict[str, int]  # number of turns by agent
    content_types: dict[str, int]
    kinds: dict[str, int]  # number of letters by kind
    seats: tuple[Participant, ...]
    strands: tuple[ThreadRecord, ...]
    first: Message | None
    last: Message | None
    text: str  # a summary in a sentence or two


class ParticipantPresence(Struct, frozen=True, kw_only=True):
    """A participant and its presence."""

    seat: Participant
    agent: Agent | None  # None: it never registered
    presence: str  # in the words of agent-inbox


def filter_turns(core: Core, view: View, wanted: TurnFilter) -> list[Message]:
    """Return the turns that pass the filter, the oldest first; Missing if a named turn is not there."""
    start = 0 if wanted.after is None else _index_of(view, wanted.after) + 1
    end = len(view.letters) if wanted.before is None else _index_of(view, wanted.before)
    speakers = None if wanted.participant is None else names_of(core, wanted.participant)
    return [letter for letter in view.letters[start:end] if _matches(letter, wanted, speakers)]


def page(rows: Sequence[T], limit: int | None) -> tuple[list[T], bool]:
    """Return the first rows, and whether there are more."""
    return list(rows[:limit]), limit is not None and len(rows) > limit


def summary(core: Core, view: View, wanted: TurnFilter) -> Summary:
    """Summarise the turns that pass the filter."""
    letters = filter_turns(core, view, wanted)
    speakers = Counter(map(name_resolver(core), (letter.sender for letter in letters)))
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
        text=_summary_text(view, letters, speakers, len(strands)),
    )


def type_of(letter: Message) -> str:
    """Return the content type of a turn: the one that its sender gave, or that of its content."""
    note = note_of(letter)
    return content_type(letter) if note is None else note.content_type


def presence(core: Core, view: View) -> list[ParticipantPresence]:
    """Return all participants of a conversation with their presence."""
    moment = core.now()
    found = []
    for seat in view.seats:
        card = find_record(core, CARD, seat.agent)
        agent = None if card is None else agent_of(core, card, moment)
        word = UNKNOWN if agent is None else agent.presence.inbox_word
        found.append(ParticipantPresence(seat=seat, agent=agent, presence=word))
    return found


def _index_of(view: View, id: str) -> int:
    return view.letters.index(turn_in(view, id))


def _matches(letter: Message, wanted: TurnFilter, speakers: Sequence[str] | None) -> bool:
    return (
        (wanted.thread is None or wanted.thread == thread_of(letter))
        and (not wanted.content_types or type_of(letter) in wanted.content_types)
        and (speakers is None or letter.sender in speakers)
        and (wanted.since is None or _to_milliseconds(letter.created_at) > _to_milliseconds(wanted.since))
        and (wanted.until is None or _to_milliseconds(letter.created_at) < _to_milliseconds(wanted.until))
    )


def _to_milliseconds(time: datetime) -> datetime:
    return time.replace(microsecond=time.microsecond // 1000 * 1000)


def _summary_text(view: View, letters: Sequence[Message], speakers: Counter[str], threads: int) -> str:
    """Return a summary made of facts only: no words of a letter are quoted, so none can act on its reader."""
    participants = len(view.seats)
    start = (
        f"{_plural(len(letters), 'turn')}, {_plural(participants, 'participant')}, {_plural(threads, 'thread')}"
    )
    if not letters:
        return f"{start}; {view.talk.status}."
    counts = ", ".join(f"{name} {count}" for name, count in speakers.most_common() if name != POSTMASTER)
    span = " to ".join(
        dict.fromkeys(x.created_at.strftime("%Y-%m-%d %H:%M UTC") for x in (letters[0], letters[-1]))
    )
    return f"{start}; {view.talk.status}. {span}. Turns: {counts}."


def _plural(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"
