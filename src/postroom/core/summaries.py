"""Letters in short, by their numbers: what a list of a million letters shows of each.

A page is found by the number at which it begins and never by how many letters come before it, so each costs the
same. Numbers have gaps: other changes of a room are counted by them, too.
"""

from __future__ import annotations

from datetime import datetime
from time import monotonic
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct

from ..errors import Invalid
from ..model.brief import Brief
from ..model.delivery import State
from ..model.message import Priority
from ..model.names import check_id, check_scope
from ..model.query import LetterQuery, Query
from .names import seen_by
from .validation import check_count
from .verb import MailboxVerb, checked_mailbox, verb
from .waiting_list import first_line

if TYPE_CHECKING:
    from ..store.protocol import Letter
    from .authorize import Principal
    from .core import Core


MOST = 1000  # letters in one page
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
        most = check_count(self.limit, "limit", most=MOST)
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
            line=first_line(text[: 10 * LONGEST])[:LONGEST],
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
