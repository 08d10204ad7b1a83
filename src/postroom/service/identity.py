"""What this post room is called among others: as it was set, else a name that was made once and is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model.names import check_agent
from ..model.record import EVERYONE, SYSTEM
from .authorize import authorize
from .records import find_record, put_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..store.base import Write
    from .authorize import Principal
    from .office import Office

_DIGITS = 8  # of chance: two rooms of one net must not meet by it


def system_id(office: Office, caller: Principal, configured: str = "") -> str:
    """The same from every process, and after every restart."""
    authorize(caller, "room")
    if configured:
        return check_agent(configured, "system")
    found = find_record(office, SYSTEM, EVERYONE)
    if found is None:
        office.store.commit(lambda: _first(office))
        (found,) = office.store.records(SYSTEM, EVERYONE)
    return str(found.value)


def _first(office: Office) -> Sequence[Write]:
    """Whoever comes first names it."""
    if find_record(office, SYSTEM, EVERYONE):
        return []
    return [put_record(SYSTEM, EVERYONE, f"postroom-{office.ids.token()[:_DIGITS]}", None)]
