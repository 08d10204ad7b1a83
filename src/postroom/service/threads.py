"""Threads, conversations and turns, as their letters tell them. A mailbox sees what it sent or received."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import UnknownMessage
from ..model.names import check_id, check_scope
from ..model.query import LetterQuery
from ..model.thread import fold_conversation, fold_thread, turn_of
from ..model.values import check_label
from .authorize import authorize
from .given import check_count
from .naming import seen_by
from .reading import check_spelling

if TYPE_CHECKING:
    from ..model.message import Message
    from ..model.thread import Conversation, Thread, Turn
    from .authorize import Principal
    from .office import Office


def thread(office: Office, caller: Principal, mailbox: str | None, id: str) -> list[Message]:
    """All letters of a thread that `mailbox` may see (None: the operator's view), the oldest first."""
    _authorize(caller, mailbox)
    return _visible(office, mailbox, LetterQuery(thread=check_id(id, "thread"), party=mailbox))


def tagged(office: Office, caller: Principal, mailbox: str | None, tag: str, scope: str | None) -> list[Message]:
    """All letters with a thread tag, the oldest first."""
    _authorize(caller, mailbox)
    label = check_label(tag, "thread_tag", 200)
    return _visible(office, mailbox, LetterQuery(thread_tag=label, scope=_scope(scope), party=mailbox))


def reply_chain(office: Office, caller: Principal, mailbox: str | None, id: str) -> list[Message]:
    """From a letter back to its root, the root first; stops where a letter is not to be seen."""
    _authorize(caller, mailbox)
    letters = office.store.get((check_id(id, "id"),))
    if id not in letters:
        raise UnknownMessage(f"no letter {id!r}", field="id")
    seen = {m.id: m for m in thread(office, caller, mailbox, letters[id].message.thread)}
    if id not in seen:
        raise UnknownMessage(f"no letter {id!r}", field="id")
    chain = []
    above: str | None = id
    while above in seen:
        chain.append(seen.pop(above))  # each letter once, whatever an imported one claims
        above = chain[-1].in_reply_to
    return chain[::-1]


def threads(office: Office, caller: Principal, mailbox: str | None, limit: int) -> list[Thread]:
    """Threads with replies, the most recently active first."""
    _authorize(caller, mailbox)
    ids = office.store.threads(mailbox, check_count(limit, "limit"))
    if not ids and mailbox is not None:
        check_spelling(office, mailbox)
    seen = (_visible(office, mailbox, LetterQuery(thread=id, party=mailbox)) for id in ids)
    return [fold_thread(letters) for letters in seen if letters]


def conversations(
    office: Office, caller: Principal, mailbox: str | None, scope: str | None, limit: int
) -> list[Conversation]:
    """Conversations, the most recently active first, with their counts."""
    _authorize(caller, mailbox)
    ids = office.store.conversations(mailbox, _scope(scope), check_count(limit, "limit"))
    if not ids and mailbox is not None:
        check_spelling(office, mailbox)
    seen = (_visible(office, mailbox, LetterQuery(conversation=id, party=mailbox)) for id in ids)
    return [fold_conversation(letters) for letters in seen if letters]


def conversation(office: Office, caller: Principal, mailbox: str | None, id: str) -> Conversation:
    return fold_conversation(_replay(office, caller, mailbox, id))


def turns(office: Office, caller: Principal, mailbox: str | None, id: str) -> list[Turn]:
    """A conversation replayed, turn by turn."""
    return [turn_of(message) for message in _replay(office, caller, mailbox, id)]


def _replay(office: Office, caller: Principal, mailbox: str | None, id: str) -> list[Message]:
    _authorize(caller, mailbox)
    query = LetterQuery(conversation=check_id(id, "conversation"), party=mailbox)
    letters = _visible(office, mailbox, query)
    if not letters:
        raise UnknownMessage(f"no conversation {id!r}", field="conversation")
    return letters


def _scope(scope: str | None) -> str | None:
    return None if scope is None else check_scope(scope, "scope")


def _authorize(caller: Principal, mailbox: str | None) -> None:
    authorize(caller, "room" if mailbox is None else "threads", mailbox)


def _visible(office: Office, mailbox: str | None, query: LetterQuery) -> list[Message]:
    letters = office.store.letters(query)
    if not letters and mailbox is not None:
        check_spelling(office, mailbox)
    return [seen_by(office, letter.message, mailbox) for letter in letters]
