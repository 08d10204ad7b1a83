"""Which of the letters that answer a search answers it best."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..model.names import HUMAN, check_id, fold
from ..model.query import Marks, SearchQuery, read_query, wording, words
from .authorize import authorize
from .deliveries import let_time_pass
from .inbox import check_spelling
from .names import names_of, seen_by
from .validation import check_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model.message import Message
    from ..model.query import Term
    from .authorize import Principal
    from .core import Core


SATURATION = 1.2  # the tenth mention of a word tells less than the second
LENGTH = 0.75  # how much a long letter must say more often
SUBJECT = 4  # a mention in the subject counts as so many more


def by_relevance(letters: Sequence[Message], query: SearchQuery) -> list[Message]:
    """The best first, by the formula BM25; those that are alike keep their order.

    How rare a word is plays no part: all these letters hold all the words that were asked for.
    """
    value = [wording(letter) for letter in letters]
    average = sum(map(len, value)) / max(len(value), 1)
    scores = {
        letter.id: sum(_weight(_mentions(letter, text, term), len(text) / average) for term in query.terms)
        for letter, text in zip(letters, value, strict=True)
    }
    return sorted(letters, key=lambda letter: -scores[letter.id])


def _weight(mentions: int, length: float) -> float:
    return mentions * (SATURATION + 1) / (mentions + SATURATION * (1 - LENGTH + LENGTH * length))


def _mentions(letter: Message, text: str, term: Term) -> int:
    subject = f" {' '.join(words(letter.subject))} "
    return _count(text, term) + SUBJECT * _count(subject, term)


def _count(text: str, term: Term) -> int:
    """Blanks are doubled, so that two words in a row do not share one."""
    wanted = f" {'  '.join(term.words)}{'' if term.begins else ' '}"
    return text.replace(" ", "  ").count(wanted)


# Finding letters: by what they say, by who sent them, by how their id begins. A mailbox finds what it sent or
# received, the operator finds everything.

MOST = 10_000  # letters in one answer


def search(
    core: Core, caller: Principal, mailbox: str | None, query: str, *, limit: int = 20, ranked: bool = False
) -> list[Message]:
    """The newest letters that say this; ranked: the best of the newest `search_window` of them, the best first."""
    authorize(caller, "room" if mailbox is None else "search", mailbox)
    moment = core.now()
    wanted = _for_the_human(read_query(query, moment.wall), fold(core.limits.human))
    most = check_count(limit, "limit", most=MOST)
    if mailbox is not None:
        let_time_pass(core, moment, (mailbox,))
    looked_at = max(most, core.limits.search_window) if ranked else most
    letters = core.store.search(_with_former_names(core, wanted, mailbox), mailbox, looked_at)
    if not letters and mailbox is not None:
        check_spelling(core, mailbox)
    found = [seen_by(core, letter.message, mailbox) for letter in letters]
    return by_relevance(found, wanted)[:most] if ranked else found


def sent(core: Core, caller: Principal, mailbox: str, *, limit: int = 20) -> list[Message]:
    """What this mailbox sent, the newest first, under whatever name."""
    authorize(caller, "search", mailbox)
    most = check_count(limit, "limit", most=MOST)
    own = _with_former_names(core, SearchQuery(wanted=Marks(senders=(fold(mailbox),))), mailbox)
    letters = core.store.search(own, mailbox, most)
    if not letters:
        check_spelling(core, mailbox)
    return [letter.message for letter in letters]


def ids_beginning(core: Core, caller: Principal, mailbox: str | None, beginning: str, limit: int) -> list[str]:
    """The ids that begin so, of letters that `mailbox` may see: what is another's is as good as not there."""
    authorize(caller, "room" if mailbox is None else "search", mailbox)
    return core.store.ids(check_id(beginning, "id"), mailbox, limit)


def _for_the_human(query: SearchQuery, human: str) -> SearchQuery:
    """Whoever writes `human` means the person by the name that the settings give them."""

    def known(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(human if name == HUMAN else name for name in names)

    wanted, unwanted = (
        replace(marks, senders=known(marks.senders), recipients=known(marks.recipients))
        for marks in (query.wanted, query.unwanted)
    )
    return replace(query, wanted=wanted, unwanted=unwanted)


def _with_former_names(core: Core, query: SearchQuery, mailbox: str | None) -> SearchQuery:
    """Letters never change: who was renamed is found under each of its names, by each of them."""
    marks = (query.wanted, query.unwanted)
    request = {name for mark in marks for name in (*mark.senders, *mark.recipients)}
    held = {core.store.spelling(name) for name in request} | {mailbox}
    names = (tuple(map(fold, names_of(core, name))) for name in held if name is not None)
    return replace(query, one_agent=tuple(sorted(several for several in names if len(several) > 1)))
