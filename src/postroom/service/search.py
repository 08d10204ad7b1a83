"""Finding letters by what they say. A mailbox finds what it sent or received, the operator finds everything."""

from __future__ import annotations

from ..model.message import Message
from ..model.search import read_query
from ..policy.ranking import by_relevance
from .authorize import Principal, authorize
from .given import check_count
from .moving import let_time_pass
from .office import Office
from .reading import check_spelling

MOST = 10_000  # letters in one answer


def search(
    office: Office, caller: Principal, mailbox: str | None, query: str, *, limit: int = 20, ranked: bool = False
) -> list[Message]:
    """The newest letters that say this; ranked: the best of the newest `search_window` of them, the best first."""
    authorize(caller, "room" if mailbox is None else "search", mailbox)
    moment = office.now()
    wanted, most = read_query(query, moment.wall), check_count(limit, "limit", most=MOST)
    if mailbox is not None:
        let_time_pass(office, moment, (mailbox,))
    looked_at = max(most, office.limits.search_window) if ranked else most
    letters = office.store.search(wanted, mailbox, looked_at)
    if not letters and mailbox is not None:
        check_spelling(office, mailbox)
    found = [letter.message.seen_by(mailbox) for letter in letters]
    return by_relevance(found, wanted)[:most] if ranked else found
