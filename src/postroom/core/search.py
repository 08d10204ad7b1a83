"""Search letters by their words, by sender, by the beginning of an id; and list them in short.

A mailbox finds letters that it sent or received; the operator finds all. Results come newest first, or ranked by
BM25 within the newest `search_window` matches.
"""

from __future__ import annotations

from datetime import datetime
from time import monotonic
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Invalid, UnknownMessage
from ..model.delivery import State, forwarded_to
from ..model.message import Message, Priority
from ..model.names import HUMAN, check_id, check_scope, fold
from ..model.query import LetterQuery, Query
from ..model.search import Marks, SearchQuery, read_query, search_text, words
from ..model.values import Brief, check_count
from ..store.protocol import spelling_of
from .core import find_letter
from .deliveries import apply_timers
from .inbox import Messages, check_spelling
from .messages import known_letter
from .names import names_of, seen_by
from .verb import MailboxVerb, checked_mailbox, verb
from .waiting_list import first_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model.search import Term
    from ..store.protocol import Letter
    from .authorize import Principal
    from .core import Core


MOST = 10_000  # letters in one result
SATURATION = 1.2  # BM25's k1: the tenth mention of a word weighs less than the second
LENGTH = 0.75  # BM25's b: how much the length of a letter reduces the weight of a mention
SUBJECT = 4  # extra mentions that one in the subject counts as


@verb("search", Messages, action="search", everyone=True, slow=True, writes=False)
class Search(MailboxVerb, kw_only=True):
    """Search the letters sent or received here: the newest first or, ranked, the best of the newest matches."""

    query: Annotated[str, "words, phrases, from: to: tag: kind: thread: before: after:"]
    limit: Annotated[int, "how many at most"] = 20
    ranked: Annotated[bool, "the best first, not the newest"] = False
    before: Annotated[str | None, "the id of a letter: only older ones"] = None

    def run(self, core: Core, _principal: Principal) -> Messages:
        moment, mailbox = core.now(), self.mailbox
        wanted = _with_human_name(read_query(self.query, moment.wall), fold(core.limits.human))
        most = check_count(self.limit, "limit", most=MOST)
        if mailbox is not None:
            apply_timers(core, moment, (mailbox,))
        if self.before is not None:
            wanted = replace(wanted, below=_number_of(core, mailbox, self.before))
        looked_at = max(most, core.limits.search_window) if self.ranked else most
        # The store filters by mailbox in the same query, so a match in other mail never shows, not even in a
        # count (G8).
        letters = core.store.search(_with_former_names(core, wanted, mailbox), mailbox, looked_at)
        check_spelling(core, mailbox, letters)
        found = [seen_by(core, letter.message, mailbox) for letter in letters]
        return Messages(by_relevance(found, wanted)[:most] if self.ranked else found)


def _number_of(core: Core, mailbox: str | None, id: str) -> int:
    """Return the number of a letter that was sent or received here."""
    message = known_letter(core, mailbox, id, "before") if mailbox else find_letter(core, check_id(id, "before"))
    if message is None:
        raise UnknownMessage(f"no letter {id!r}", field="before")
    return core.store.get((message.id,))[message.id].number


class Forwarded(Struct):
    """A delivery of a letter that went on to another system or room."""

    id: str
    mailbox: str
    where: str
    since: datetime | None


class SentLetters(Struct):
    """Letters that an agent sent, and which of their deliveries went on to other systems."""

    letters: list[Message]
    forwarded: list[Forwarded]


@verb("sent", SentLetters, action="search", slow=True, writes=False)
class Sent(MailboxVerb, kw_only=True):
    """Return letters sent from here, under any of its names, the newest first."""

    limit: Annotated[int, "how many at most"] = 20

    def run(self, core: Core, _principal: Principal) -> SentLetters:
        most = check_count(self.limit, "limit", most=MOST)
        query = SearchQuery(wanted=Marks(senders=(fold(self.agent_id),)))
        letters = core.store.search(_with_former_names(core, query, self.agent_id), self.agent_id, most)
        if not letters:
            check_spelling(core, self.agent_id)
            return SentLetters([], [])
        ids = tuple(letter.message.id for letter in letters)
        done = core.store.find(Query(message_ids=ids, states=(State.DONE,), order="age", limit=MOST))
        forwarded = [
            Forwarded(one.message.id, one.delivery.mailbox, where, one.delivery.acked_at)
            for one in done
            if (where := forwarded_to(one.delivery)) is not None
        ]
        return SentLetters([letter.message for letter in letters], forwarded)


@verb("find_ids", list[str], under="ids", action="search", writes=False, everyone=True, local=True)
class FindIds(MailboxVerb, kw_only=True):
    """Return the ids with this prefix, of letters that were sent or received here."""

    prefix: Annotated[str, "how they begin"]
    limit: Annotated[int, "how many at most"]

    def run(self, core: Core, _principal: Principal) -> list[str]:
        beginning = check_id(self.prefix, "id")
        query = LetterQuery(beginning=beginning, party=self.mailbox, order="id", limit=self.limit)
        return [letter.message.id for letter in core.store.letters(query)]


def _with_human_name(query: SearchQuery, human: str) -> SearchQuery:
    """Return the query with the configured name of the person in place of `human`."""

    def known(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(human if name == HUMAN else name for name in names)

    wanted, unwanted = (
        replace(marks, senders=known(marks.senders), recipients=known(marks.recipients))
        for marks in (query.wanted, query.unwanted)
    )
    return replace(query, wanted=wanted, unwanted=unwanted)


def _with_former_names(core: Core, query: SearchQuery, mailbox: str | None) -> SearchQuery:
    """Return the query with all names of each renamed agent: letters keep the name under which they were sent."""
    marks = (query.wanted, query.unwanted)
    searched = {name for mark in marks for name in (*mark.senders, *mark.recipients)}
    current = {spelling_of(core.store, name) for name in searched} | {mailbox}
    names = (tuple(map(fold, names_of(core, name))) for name in current if name is not None)
    return replace(query, one_agent=tuple(sorted(several for several in names if len(several) > 1)))


def by_relevance(letters: Sequence[Message], query: SearchQuery) -> list[Message]:
    """Return the letters sorted by BM25, the best first; equal ones keep their order.

    The rarity of a word plays no part: all these letters contain all the words of the query.
    """
    texts = [search_text(letter) for letter in letters]
    average = sum(map(len, texts)) / max(len(texts), 1)
    scores = {
        letter.id: sum(_weight(_mentions(letter, text, term), len(text) / average) for term in query.terms)
        for letter, text in zip(letters, texts, strict=True)
    }
    return sorted(letters, key=lambda letter: -scores[letter.id])


def _weight(mentions: int, length: float) -> float:
    return mentions * (SATURATION + 1) / (mentions + SATURATION * (1 - LENGTH + LENGTH * length))


def _mentions(letter: Message, text: str, term: Term) -> int:
    subject = f" {' '.join(words(letter.subject))} "
    return _count(text, term) + SUBJECT * _count(subject, term)


def _count(text: str, term: Term) -> int:
    """Count a term in a text. Blanks are doubled, so that two adjacent words do not share one."""
    wanted = f" {'  '.join(term.words)}{'' if term.begins else ' '}"
    return text.replace(" ", "  ").count(wanted)


# -- letters in short, by their numbers: what a list of a million letters shows of each
#
# A page is found by the number at which it begins and never by how many letters come before it, so each costs the
# same. Numbers have gaps: other changes of a room are counted by them, too.


PAGE = 1000  # letters in one page
MOST_TO = 5  # recipients that are named
RECOUNT = 60.0  # seconds after which all letters are counted anew, without those that were deleted
LONGEST = 200  # characters of a subject, and of a first line


class Summary(Brief, frozen=True, kw_only=True):
    """A letter in short."""

    number: int
    id: str
    sender: str
    to: list[str]  # the first recipients
    more_to: int  # how many others there are
    subject: str
    line: str  # the first line of its text
    kind: str
    priority: Priority
    at: datetime
    thread: str
    reply_to: str | None
    scope: str
    parts: int
    characters: int  # of its text
    proven: bool  # its sender proved to be that, by a token or a person's key
    state: State | None  # of its delivery, where the list is of one recipient


class Summaries(Struct):
    """A page of letters, the newest first."""

    letters: list[Summary]
    next: int | None  # `before` of the next page; None at the end
    newest: int  # the number of the latest change in the room
    total: int | None  # letters in the room; on the first page of all of them


@verb("letters", Summaries, action="search", everyone=True, many=True, writes=False)
class ListLetters(MailboxVerb, kw_only=True):
    """Return letters in short, the newest first: all of the room, or those sent or received here."""

    sender: Annotated[str | None, "only from this agent"] = None
    recipient: Annotated[str | None, "only to this mailbox"] = None
    thread: Annotated[str | None, "only of this thread"] = None
    scope: Annotated[str | None, "only in this scope"] = None
    before: Annotated[int | None, "only numbers below this: the `next` of the page before"] = None
    after: Annotated[int, "only numbers above this"] = 0
    limit: Annotated[int, "how many at most"] = 100

    def run(self, core: Core, _principal: Principal) -> Summaries:
        most = check_count(self.limit, "limit", most=PAGE)
        if self.recipient is not None and self.mailbox not in {None, self.recipient, self.sender}:
            raise Invalid("only letters sent or received here are listed", field="recipient")
        recipient = None if self.recipient is None else checked_mailbox(core, self.recipient)
        query = LetterQuery(
            party=self.mailbox or recipient,
            received_by=recipient,
            sender=None if self.sender is None else checked_mailbox(core, self.sender),
            thread=None if self.thread is None else check_id(self.thread, "thread"),
            scope=None if self.scope is None else check_scope(self.scope, "scope"),
            before=self.before,
            after=self.after,
            order="newest",
            limit=most,
        )
        is_first = query == LetterQuery(order="newest", limit=most)
        newest = core.store.cursor().number
        letters = core.store.letters(query)
        states = _states(core, recipient, letters)
        return Summaries(
            letters=[self._short(core, one, states.get(one.message.id)) for one in letters],
            next=letters[-1].number if len(letters) == most else None,
            newest=newest,
            total=_total(core, newest) if is_first else None,
        )

    def _short(self, core: Core, letter: Letter, state: State | None) -> Summary:
        message = seen_by(core, letter.message, self.mailbox)
        text = message.text
        to = [one.address for one in message.recipients]
        return Summary(
            number=letter.number,
            id=message.id,
            sender=message.sender,
            to=to[:MOST_TO],
            more_to=len(to[MOST_TO:]),
            subject=message.subject[:LONGEST],
            line=first_line(text)[:LONGEST],
            kind=message.kind,
            priority=message.priority,
            at=message.created_at,
            thread=message.thread,
            reply_to=message.in_reply_to,
            scope=message.scope,
            parts=len(message.parts),
            characters=len(text),
            proven=message.proven or message.proof is not None,
            state=state,
        )


def _total(core: Core, newest: int) -> int:
    """Return how many letters the room has: all are counted now and then, else only those that came since."""
    known, now = core.letter_count, monotonic()
    if now >= known.recount_at:
        known.total, known.recount_at = core.store.count(LetterQuery(), by="all"), now + RECOUNT
    else:
        since = LetterQuery(after=known.number, before=newest + 1)
        known.total += core.store.count(since, by="all")
    known.number = newest
    return known.total


def _states(core: Core, recipient: str | None, letters: list[Letter]) -> dict[str, State]:
    """Return the state of each letter at its recipient, where the list is of one."""
    if recipient is None or not letters:
        return {}
    ids = tuple(one.message.id for one in letters)
    found = core.store.find(Query(mailbox=recipient, message_ids=ids, order="age"))
    return {one.message.id: one.delivery.state for one in found}
