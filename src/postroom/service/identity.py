"""What this post room is called among others: as it was set, else as the MAP server calls itself that it is linked
to, else a name that was made once. What it is called is kept: only a name that was made while a server's was
waited for, and told to nobody, gives way to that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model.message import same_name
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

# In the record, a bare name is one that we made and that stays.
_OF_SERVER = "map"  # the name of a server
_GIVES_WAY = "made"  # one that we made, until a server's is known or it was told to somebody
_DIGITS = 8  # of chance: two rooms of one net must not meet by it


def system_id(office: Office, caller: Principal, configured: str = "", *, gives_way: bool = False) -> str:
    """The same from every process, and after every restart. `gives_way`: one that has to be made is to give way to
    the name of a server that we are about to be linked to.
    """
    authorize(caller, "room")
    if configured:
        return check_agent(configured, "system")
    found = find_record(office, SYSTEM, EVERYONE)
    if found is None:
        office.store.commit(lambda: _first(office, gives_way=gives_way))
        (found,) = office.store.records(SYSTEM, EVERYONE)
    return _name(found)


def is_ours(office: Office, system: str) -> bool:
    """Is this room called so? One that has no name yet is called nothing."""
    found = None if office.system else find_record(office, SYSTEM, EVERYONE)
    return same_name(system, office.system or (_name(found) if found else ""))


def announced(office: Office, caller: Principal, configured: str = "") -> str:
    """The same, for somebody who will go by it: from now on it stays."""
    name = system_id(office, caller, configured)
    found = None if configured else find_record(office, SYSTEM, EVERYONE)
    if found is None or not _may_give_way(found):
        return name

    def plan() -> Sequence[Write]:
        held = find_record(office, SYSTEM, EVERYONE)
        return [put_record(SYSTEM, EVERYONE, _name(held), held)] if held and _may_give_way(held) else []

    office.store.commit(plan)
    return system_id(office, caller)


def adopt(office: Office, caller: Principal, name: str) -> str:
    """Be called as a MAP server is, where no name is kept but one that gives way. Says what holds."""
    authorize(caller, "room")
    value = {_OF_SERVER: check_agent(name, "system")}

    def plan() -> Sequence[Write]:
        held = find_record(office, SYSTEM, EVERYONE)
        return [put_record(SYSTEM, EVERYONE, value, held)] if held is None or _may_give_way(held) else []

    office.store.commit(plan)
    (found,) = office.store.records(SYSTEM, EVERYONE)
    return _name(found)


def _name(found: Record) -> str:
    return str(next(iter(found.value.values())) if isinstance(found.value, dict) else found.value)


def _may_give_way(found: Record) -> bool:
    return isinstance(found.value, dict) and _GIVES_WAY in found.value


def _first(office: Office, *, gives_way: bool) -> Sequence[Write]:
    """Whoever comes first names it."""
    if find_record(office, SYSTEM, EVERYONE):
        return []
    name = f"postroom-{office.ids.token()[:_DIGITS]}"
    return [put_record(SYSTEM, EVERYONE, {_GIVES_WAY: name} if gives_way else name, None)]
