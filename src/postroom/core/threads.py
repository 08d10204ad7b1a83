"""Threads, conversations and turns, computed from letters; a mailbox sees those that it sent or received.

The first half answers the library (`Room.thread` and its kin). The second half takes the `View` of a conversation
that one caller may see and filters, counts and summarises its turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct
from msgspec.structs import replace

from ..errors import UnknownMessage
from ..model.message import Message, content_type
from ..model.names import POSTMASTER, check_id, check_scope
from ..model.query import LetterQuery
from ..model.record import CARD
from ..model.thread import (
    Conversation,
    Thread,
    Turn,
    conversation_of,
    fold_conversation,
    fold_thread,
    note_of,
    thread_of,
    turn_of,
)
from ..model.values import check_count, check_label
from .agents import agent_of
from .conversations import PAGE, ConversationVerb, missing_turn, reader_of, view_of
from .core import find_letter, find_record
from .inbox import Messages, check_spelling
from .names import name_resolver, names_of, seen_by
from .verb import MailboxVerb, verb

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from ..model.agent import Agent
    from ..model.thread import (
        Participant,
    )
    from .authorize import Principal
    from .conversations import View
    from .core import Core

    T = TypeVar("T")


MOST_FOLDED = 50  # newest letters of one thread or conversation that a list is made of


@verb("thread", Messages, action="threads", everyone=True, many=True, writes=False)
class GetThread(MailboxVerb, kw_only=True):
    """Return the letters of a thread that were sent or received here, the oldest first."""

    thread: Annotated[str, "its id, that of its first letter"]

    def run(self, core: Core, _principal: Principal) -> Messages:
        query = LetterQuery(thread=check_id(self.thread, "thread"), party=self.mailbox)
        return Messages(_visible(core, self.mailbox, query))


@verb("tagged", Messages, action="threads", everyone=True, many=True, writes=False)
class GetTagged(MailboxVerb, kw_only=True):
    """Return the letters with a thread tag that were sent or received here, the oldest first."""

    tag: Annotated[str, "the tag"]
    scope: Annotated[str | None, "only of this scope"] = None

    def run(self, core: Core, _principal: Principal) -> Messages:
        label = check_label(self.tag, "thread_tag", 200)
        query = LetterQuery(thread_tag=label, scope=_scope(self.scope), party=self.mailbox)
        return Messages(_visible(core, self.mailbox, query))


@verb("reply_chain", Messages, action="threads", everyone=True, many=True, writes=False)
class GetReplyChain(MailboxVerb, kw_only=True):
    """Return a letter and its ancestors, the root first, as far as they were sent or received here."""

    id: Annotated[str, "the letter's id"]

    def run(self, core: Core, _principal: Principal) -> Messages:
        letter = find_letter(core, check_id(self.id, "id"))
        query = LetterQuery(thread=letter.thread if letter else self.id, party=self.mailbox)
        seen = {m.id: m for m in _visible(core, self.mailbox, query)} if letter else {}
        # The same error for a letter that does not exist and for one of others (G8).
        if self.id not in seen:
            raise UnknownMessage(f"no letter {self.id!r}", field="id")
        chain = []
        # Only letters that the reader has: a chain may pass through mail of others.
        above: str | None = self.id
        while above in seen:
            chain.append(seen.pop(above))  # pop: an imported letter may claim a cycle
            above = chain[-1].in_reply_to
        return Messages(chain[::-1])


@verb("threads", list[Thread], under="threads", action="threads", everyone=True, slow=True, writes=False)
class ListThreads(MailboxVerb, kw_only=True):
    """Return threads with replies, the most recently active first.

    Of a long thread, the first letter and the newest say who takes part.
    """

    limit: Annotated[int, "how many at most"] = 50

    def run(self, core: Core, _principal: Principal) -> list[Thread]:
        newest = LetterQuery(newest_of="thread", party=self.mailbox, limit=check_count(self.limit, "limit"))
        folded = _folded(core, newest, lambda one: LetterQuery(thread=one.thread), fold_thread)
        return [replace(thread, count=many) for thread, many in folded]


@verb(
    "conversations",
    list[Conversation],
    under="conversations",
    action="threads",
    everyone=True,
    slow=True,
    writes=False,
)
class ListConversations(MailboxVerb, kw_only=True):
    """Return conversations with their counts, the most recently active first.

    Of a long conversation, the first letter and the newest say who takes part and in how many threads.
    """

    scope: Annotated[str | None, "only of this scope"] = None
    limit: Annotated[int, "how many at most"] = 50

    def run(self, core: Core, _principal: Principal) -> list[Conversation]:
        scope, limit = _scope(self.scope), check_count(self.limit, "limit")
        newest = LetterQuery(newest_of="conversation", party=self.mailbox, scope=scope, limit=limit)
        folded = _folded(
            core, newest, lambda one: LetterQuery(conversation=conversation_of(one)), fold_conversation
        )
        return [replace(talk, turns=many) for talk, many in folded]


class AboutConversation(MailboxVerb, kw_only=True):
    """A request about one conversation."""

    conversation: Annotated[str, "its id"]

    def letters(self, core: Core) -> list[Message]:
        query = LetterQuery(conversation=check_id(self.conversation, "conversation"), party=self.mailbox)
        letters = _visible(core, self.mailbox, query)
        if not letters:
            raise UnknownMessage(f"no conversation {self.conversation!r}", field="conversation")
        return letters


@verb("conversation", Conversation, under="conversation", action="threads", everyone=True, many=True, writes=False)
class GetConversation(AboutConversation, kw_only=True):
    """Return a conversation's participants and counts."""

    def run(self, core: Core, _principal: Principal) -> Conversation:
        return fold_conversation(self.letters(core))


@verb("turns", list[Turn], under="turns", action="threads", everyone=True, many=True, writes=False)
class ListTurns(AboutConversation, kw_only=True):
    """Return the turns of a conversation, the oldest first."""

    def run(self, core: Core, _principal: Principal) -> list[Turn]:
        return [turn_of(message) for message in self.letters(core)]


def _scope(scope: str | None) -> str | None:
    return None if scope is None else check_scope(scope, "scope")


def _visible(core: Core, mailbox: str | None, query: LetterQuery) -> list[Message]:
    letters = core.store.letters(query)
    check_spelling(core, mailbox, letters)
    return [seen_by(core, letter.message, mailbox) for letter in letters]


def _folded(
    core: Core,
    newest_of_each: LetterQuery,
    others: Callable[[Message], LetterQuery],
    fold: Callable[[list[Message]], T],
) -> list[tuple[T, int]]:
    """Fold the first letter and the newest of each thread or conversation, and count all of them.

    As far as this mailbox may see them: counts must not reveal others (G8).
    """
    mailbox, found = newest_of_each.party, []
    listed = core.store.letters(newest_of_each)
    check_spelling(core, mailbox, listed)
    for query in (replace(others(one.message), party=mailbox) for one in listed):
        newest = _visible(core, mailbox, replace(query, order="newest", limit=MOST_FOLDED))
        # Long ones are not read whole: the newest, the first and a count are enough for a list.
        if len(newest) == MOST_FOLDED:
            newest += _visible(core, mailbox, replace(query, limit=1))
            found.append((fold(newest[::-1]), core.store.count(query, by="all")))
        elif newest:
            found.append((fold(newest[::-1]), len(newest)))
    return found


# Turns: filter, page, summarise; the participants.


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
    """Turns of a conversation, and what is counted in them."""

    turns: Sequence[Message]
    speakers: Counter[str]  # number of turns by agent
    threads: int
    text: str  # a summary in a sentence or two


@verb("view_turns", Messages, action="talks", writes=False, local=True)
class ViewTurns(ConversationVerb, kw_only=True):
    """Return turns of a conversation that pass the filter, in pages: not all of its letters need be read."""

    wanted: TurnFilter
    newest_first: bool = False
    limit: int | None = None

    def run(self, core: Core, principal: Principal) -> Messages:
        reader, wanted = reader_of(principal), self.wanted
        query = LetterQuery(conversation=check_id(self.conversation, "conversation"), party=reader)
        if not core.store.letters(replace(query, limit=1)):
            view_of(core, reader, self.conversation)  # or Missing
        after = 0 if wanted.after is None else _turn(core, query, wanted.after)
        before = None if wanted.before is None else _turn(core, query, wanted.before)
        query = replace(query, after=after, before=before, order="newest" if self.newest_first else "age")
        speakers = None if wanted.participant is None else names_of(core, wanted.participant)
        turns: list[Message] = []
        while self.limit is None or len(turns) < self.limit:
            # A page at a time: the filter may drop most, and a conversation may hold a million letters.
            found = core.store.letters(replace(query, limit=PAGE))
            turns += [one.message for one in found if _matches(one.message, wanted, speakers)]
            if len(found) < PAGE:
                break
            last = found[-1].number
            query = replace(query, before=last) if self.newest_first else replace(query, after=last)
        return Messages([seen_by(core, letter, reader) for letter in turns[: self.limit]])


def _turn(core: Core, query: LetterQuery, letter: str) -> int:
    """Return the number of a letter of these, or raise Missing."""
    # Asked by the query, too: a turn of another conversation, or one that the reader may not see, is not there
    # (G8).
    found = core.store.get((letter,)).get(letter)
    if found is None or not core.store.letters(replace(query, after=found.number - 1, before=found.number + 1)):
        raise missing_turn(letter)
    return found.number


def summary(core: Core, view: View, turns: Sequence[Message], thread: str | None = None) -> Summary:
    """Summarise these turns of a conversation, or of one thread of it."""
    speakers = Counter(map(name_resolver(core), (letter.sender for letter in turns)))
    threads = sum(thread in {None, strand.id} for strand in view.strands)
    text = _summary_text(view, turns, speakers, threads)
    return Summary(turns=turns, speakers=speakers, threads=threads, text=text)


def type_of(letter: Message) -> str:
    """Return the content type of a turn: the one that its sender gave, or that of its content."""
    note = note_of(letter)
    return content_type(letter) if note is None else note.content_type


def participants(core: Core, view: View) -> list[tuple[Participant, Agent | None]]:
    """Return all participants of a conversation; as agents, too, if they are registered."""
    moment, cards = core.now(), ((seat, find_record(core, CARD, seat.agent)) for seat in view.seats)
    return [(seat, None if card is None else agent_of(core, card, moment)) for seat, card in cards]


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
