"""What stands in the index for a letter, and how the index is asked: nothing but words, on both sides.

What is written on a letter (who sent it, its tags, whose mail it is) stands there as words too, which no text can
hold: they begin with a character of private use, and such characters part words in texts.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from ...model.hashing import blake2b
from ...model.message import Message
from ...model.search import Marks, SearchQuery, Term
from ...model.words import BREAK, texts, words
from ..searching import marks_of

_EVERY = "\ue001"
_PARTY = "\ue002"
EVERY_LETTER = f'"{_EVERY}"'  # finds all that is in the index
_SIGN = dict(zip(Marks.__struct_fields__, "\ue003\ue004\ue005\ue006\ue007", strict=True))


def said_by(message: Message, party: Iterable[int]) -> str:
    """All words of a letter, and its marks as words."""
    said = [text if text.isascii() else " ".join(words(text)) for text in texts(message)]
    marks = [_mark(name, value) for name, value in _pairs(marks_of(message))]
    mailboxes = [f"{_PARTY}{mailbox}" for mailbox in party]
    return f" {BREAK} ".join([*said, " ".join([_EVERY, *mailboxes, *marks])])


def expression(query: SearchQuery, party: int | None) -> str:
    """The query for FTS5. Everything stands in quotes, and holds nothing but words: no input is syntax.

    Recipients are not left out here: one that the reader may not see must not make a difference.
    """
    wanted = [EVERY_LETTER if party is None else _quoted(f"{_PARTY}{party}")]
    wanted += [_phrase(term) for term in query.terms]
    for name in ("senders", "kinds", "threads"):
        any_of = [_quoted(_mark(name, value)) for value in getattr(query.wanted, name)]
        if any_of:
            wanted.append(f"({' OR '.join(any_of)})")
    wanted += [
        _quoted(_mark(name, value)) for name in ("recipients", "tags") for value in getattr(query.wanted, name)
    ]
    without = [_phrase(term) for term in query.without]
    without += [_quoted(_mark(name, value)) for name, value in _pairs(query.unwanted) if name != "recipients"]
    return f"({' AND '.join(wanted)})" + "".join(f" NOT {phrase}" for phrase in without)


def _phrase(term: Term) -> str:
    return _quoted(" ".join(term.words)) + ("*" if term.begins else "")


def _quoted(words: str) -> str:
    return f'"{words}"'


def _pairs(marks: Marks) -> list[tuple[str, str]]:
    return [(name, value) for name in Marks.__struct_fields__ for value in getattr(marks, name)]


@lru_cache(maxsize=4096)
def _mark(name: str, value: str) -> str:
    return _SIGN[name] + blake2b(value.encode(), digest_size=8).hexdigest()
