"""What stands in the index for a letter, and how the index is asked: nothing but words, on both sides.

What is written on a letter (who sent it, its tags, whose mail it is) stands there as words too, which no text can
hold: they begin with a character of private use, and such characters part words in texts.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...model.hashing import blake2b
from ...model.search import Marks
from ...model.words import BREAK, has_controls, texts, words
from ..searching import any_name, marks_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...model.message import Message
    from ...model.search import SearchQuery, Term

_EVERY = "\ue001"
_PARTY = "\ue002"
EVERY_LETTER = f'"{_EVERY}"'  # finds all that is in the index
_SIGN = dict(zip(Marks.__struct_fields__, "\ue003\ue004\ue005\ue006\ue007", strict=True))


def said_by(message: Message, party: Iterable[int]) -> str:
    """All words of a letter, and its marks as words."""
    said = [
        text if text.isascii() and not has_controls(text) else " ".join(words(text)) for text in texts(message)
    ]
    marks = [_mark(name, value) for name, value in _pairs(marks_of(message))]
    mailboxes = [f"{_PARTY}{mailbox}" for mailbox in party]
    return f" {BREAK} ".join([*said, " ".join([_EVERY, *mailboxes, *marks])])


def expression(query: SearchQuery, party: int | None) -> str:
    """The query for FTS5. Everything stands in quotes, and holds nothing but words: no input is syntax.

    Recipients are not left out here: one that the reader may not see must not make a difference.
    """
    wanted = [EVERY_LETTER if party is None else _quoted(f"{_PARTY}{party}")]
    wanted += [_phrase(term) for term in query.terms]
    wanted += _any_of("senders", any_name(query, query.wanted.senders))
    for recipient in query.wanted.recipients:
        wanted += _any_of("recipients", query.names_of(recipient))
    for name in ("kinds", "threads"):
        wanted += _any_of(name, getattr(query.wanted, name))
    wanted += [_quoted(_mark("tags", tag)) for tag in query.wanted.tags]
    unwanted = replace(query.unwanted, senders=tuple(any_name(query, query.unwanted.senders)), recipients=())
    without = [_phrase(term) for term in query.without]
    without += [_quoted(_mark(name, value)) for name, value in _pairs(unwanted)]
    return f"({' AND '.join(wanted)})" + "".join(f" NOT {phrase}" for phrase in without)


def _any_of(name: str, values: Iterable[str]) -> list[str]:
    marks = [_quoted(_mark(name, value)) for value in values]
    return [f"({' OR '.join(marks)})"] if marks else []


def _phrase(term: Term) -> str:
    return _quoted(" ".join(term.words)) + ("*" if term.begins else "")


def _quoted(words: str) -> str:
    return f'"{words}"'


def _pairs(marks: Marks) -> list[tuple[str, str]]:
    return [(name, value) for name in Marks.__struct_fields__ for value in getattr(marks, name)]


@lru_cache(maxsize=4096)
def _mark(name: str, value: str) -> str:
    return _SIGN[name] + blake2b(value.encode(), digest_size=8).hexdigest()
