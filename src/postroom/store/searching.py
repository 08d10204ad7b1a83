"""What a search means, in plain Python. Every store's answer is held to this, one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..model.names import fold
from ..model.search import Marks
from ..model.words import wording

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..model.message import Message
    from ..model.search import SearchQuery, Term


def answers(message: Message, query: SearchQuery, reader: str | None) -> bool:
    """Is this letter, as `reader` may see it, one the query asks for? Whether they may see it at all is not
    asked here.
    """
    return (
        (query.after is None or message.created_at >= query.after)
        and (query.before is None or message.created_at < query.before)
        and _carries(message, query, reader)
        and _says(message, query)
    )


def marks_of(message: Message) -> Marks:
    """What is written on a letter, as a query compares it."""
    return Marks(
        senders=(fold(message.sender),),
        recipients=tuple(fold(recipient.address) for recipient in message.recipients),
        tags=tuple(tag.casefold() for tag in message.tags),
        kinds=(message.kind.casefold(),),
        threads=(message.thread,),
    )


def _carries(message: Message, query: SearchQuery, reader: str | None) -> bool:
    wanted, unwanted = query.wanted, query.unwanted
    if wanted == unwanted == Marks():
        return True
    marks = marks_of(_shown(message, query, reader))  # a hidden recipient is not found by asking for it
    return (
        (not wanted.senders or _meet(any_name(query, wanted.senders), marks.senders))
        and (not wanted.kinds or _meet(wanted.kinds, marks.kinds))
        and (not wanted.threads or _meet(wanted.threads, marks.threads))
        and all(_meet(query.names_of(name), marks.recipients) for name in wanted.recipients)
        and set(marks.tags).issuperset(wanted.tags)
        and not _meet(any_name(query, unwanted.senders), marks.senders)
        and not _meet(any_name(query, unwanted.recipients), marks.recipients)
        and not any(_meet(getattr(unwanted, name), getattr(marks, name)) for name in ("tags", "kinds", "threads"))
    )


def any_name(query: SearchQuery, names: Iterable[str]) -> list[str]:
    """Every name that one of these agents has or had."""
    return [one for name in names for one in query.names_of(name)]


def _shown(message: Message, query: SearchQuery, reader: str | None) -> Message:
    """As the reader may see it, whatever they were called when it was sent."""
    shown = message.seen_by(reader)
    if shown is message or reader is None:
        return shown
    own = query.names_of(fold(reader))
    if fold(message.sender) in own:
        return message
    named = tuple(r for r in message.recipients if r.kind != "bcc" or fold(r.address) in own)
    return replace(message, recipients=named)


def _says(message: Message, query: SearchQuery) -> bool:
    if not query.terms and not query.without:
        return True
    said = wording(message)
    return all(_holds(said, term) for term in query.terms) and not any(
        _holds(said, term) for term in query.without
    )


def _holds(said: str, term: Term) -> bool:
    return f" {' '.join(term.words)}{'' if term.begins else ' '}" in said


def _meet(some: Iterable[str], others: Iterable[str]) -> bool:
    return not set(some).isdisjoint(others)
