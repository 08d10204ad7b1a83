"""What this post room is called among others: as it was set, else as the MAP server calls itself that it is linked
to, else a name that was made once. What it is called is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model.names import check_agent
from ..model.record import EVERYONE, SYSTEM
from .authorize import authorize
from .records import find_record, put_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model.record import Record
    from ..store.base import Write
    from .authorize import Principal
    from .office import Office

_OF_SERVER = "map"  # in the record: the name of a server, and not one that we made
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
    return _name(found)


def adopt(office: Office, caller: Principal, name: str) -> str:
    """Be called as a MAP server is, from the first link to one on. What was made up before gives way; the name of
    another server does not. Says what holds.
    """
    authorize(caller, "room")
    value = {_OF_SERVER: check_agent(name, "system")}

    def plan() -> Sequence[Write]:
        held = find_record(office, SYSTEM, EVERYONE)
        return (
            []
            if held is not None and isinstance(held.value, dict)
            else [put_record(SYSTEM, EVERYONE, value, held)]
        )

    office.store.commit(plan)
    (found,) = office.store.records(SYSTEM, EVERYONE)
    return _name(found)


def _name(found: Record) -> str:
    return str(found.value[_OF_SERVER] if isinstance(found.value, dict) else found.value)


def _first(office: Office) -> Sequence[Write]:
    """Whoever comes first names it."""
    if find_record(office, SYSTEM, EVERYONE):
        return []
    return [put_record(SYSTEM, EVERYONE, f"postroom-{office.ids.token()[:_DIGITS]}", None)]
