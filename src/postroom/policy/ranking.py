"""Which of the letters that answer a search answers it best."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model.words import wording, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model.message import Message
    from ..model.search import SearchQuery, Term

SATURATION = 1.2  # the tenth mention of a word tells less than the second
LENGTH = 0.75  # how much a long letter must say more often
SUBJECT = 4  # a mention in the subject counts as so many more


def by_relevance(letters: Sequence[Message], query: SearchQuery) -> list[Message]:
    """The best first, by the formula BM25; those that are alike keep their order.

    How rare a word is plays no part: all these letters hold all the words that were asked for.
    """
    said = [wording(letter) for letter in letters]
    average = sum(map(len, said)) / max(len(said), 1)
    scores = {
        letter.id: sum(_weight(_mentions(letter, text, term), len(text) / average) for term in query.terms)
        for letter, text in zip(letters, said, strict=True)
    }
    return sorted(letters, key=lambda letter: -scores[letter.id])


def _weight(mentions: int, length: float) -> float:
    return mentions * (SATURATION + 1) / (mentions + SATURATION * (1 - LENGTH + LENGTH * length))


def _mentions(letter: Message, said: str, term: Term) -> int:
    subject = f" {' '.join(words(letter.subject))} "
    return _count(said, term) + SUBJECT * _count(subject, term)


def _count(said: str, term: Term) -> int:
    """Blanks are doubled, so that two words in a row do not share one."""
    wanted = f" {'  '.join(term.words)}{'' if term.begins else ' '}"
    return said.replace(" ", "  ").count(wanted)
