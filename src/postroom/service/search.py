"""Finding letters: by what they say, by who sent them, by how their id begins. A mailbox finds what it sent or
received, the operator finds everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..model.names import HUMAN, check_id, fold
from ..model.search import Marks, SearchQuery, read_query
from ..policy.ranking import by_relevance
from .authorize import authorize
from .given import check_count
from .moving import let_time_pass
from .naming import names_of, seen_by
from .reading import check_spelling

if TYPE_CHECKING:
    from ..model.message import Message
    from .authorize import Principal
    from .office import Office

MOST = 10_000  # letters in one answer


def search(
    office: Office, caller: Principal, mailbox: str | None, query: str, *, limit: int = 20, ranked: bool = False
) -> list[Message]:
    """The newest letters that say this; ranked: the best of the newest `search_window` of them, the best first."""
    authorize(caller, "room" if mailbox is None else "search", mailbox)
    moment = office.now()
    wanted = _for_the_human(read_query(query, moment.wall), fold(office.limits.human))
    most = check_count(limit, "limit", most=MOST)
    if mailbox is not None:
        let_time_pass(office, moment, (mailbox,))
    looked_at = max(most, office.limits.search_window) if ranked else most
    letters = office.store.search(_with_former_names(office, wanted, mailbox), mailbox, looked_at)
    if not letters and mailbox is not None:
        check_spelling(office, mailbox)
    found = [seen_by(office, letter.message, mailbox) for letter in letters]
    return by_relevance(found, wanted)[:most] if ranked else found


def sent(office: Office, caller: Principal, mailbox: str, *, limit: int = 20) -> list[Message]:
    """What this mailbox sent, the newest first, under whatever name."""
    authorize(caller, "search", mailbox)
    most = check_count(limit, "limit", most=MOST)
    own = _with_former_names(office, SearchQuery(wanted=Marks(senders=(fold(mailbox),))), mailbox)
    letters = office.store.search(own, mailbox, most)
    if not letters:
        check_spelling(office, mailbox)
    return [letter.message for letter in letters]


def ids_beginning(office: Office, caller: Principal, mailbox: str | None, beginning: str, limit: int) -> list[str]:
    """The ids that begin so, of letters that `mailbox` may see: what is another's is as good as not there."""
    authorize(caller, "room" if mailbox is None else "search", mailbox)
    return office.store.ids(check_id(beginning, "id"), mailbox, limit)


def _for_the_human(query: SearchQuery, human: str) -> SearchQuery:
    """Whoever writes `human` means the person by the name that the settings give them."""

    def known(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(human if name == HUMAN else name for name in names)

    wanted, unwanted = (
        replace(marks, senders=known(marks.senders), recipients=known(marks.recipients))
        for marks in (query.wanted, query.unwanted)
    )
    return replace(query, wanted=wanted, unwanted=unwanted)


def _with_former_names(office: Office, query: SearchQuery, mailbox: str | None) -> SearchQuery:
    """Letters never change: who was renamed is found under each of its names, by each of them."""
    marks = (query.wanted, query.unwanted)
    asked = {name for mark in marks for name in (*mark.senders, *mark.recipients)}
    held = {office.store.spelling(name) for name in asked} | {mailbox}
    names = (tuple(map(fold, names_of(office, name))) for name in held if name is not None)
    return replace(query, one_agent=tuple(sorted(several for several in names if len(several) > 1)))
