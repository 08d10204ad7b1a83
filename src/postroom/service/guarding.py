"""Guards at the doors of mailboxes: allow lists, and names whose mail is refused.

They are asked inside the commit of each letter (`sending`). A guard is there only where somebody set one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from .. import service
from ..errors import Invalid, TooLarge
from ..model.card import EVERYONE
from ..model.guard import OPEN_DOOR, guard_from, guard_value
from ..model.message import same_name
from ..model.names import POSTMASTER, check_party, fold, meant
from ..model.record import GUARD
from .authorize import authorize
from .records import find_record, put_record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..model.card import Card
    from ..model.guard import Guard
    from ..model.record import Record
    from ..store.base import Write
    from .authorize import Principal
    from .office import Office

MOST = 10_000  # names blocked by one mailbox


def block(office: Office, caller: Principal, mailbox: str, name: str) -> list[str]:
    """Refuse mail from this name from now on. Gives all names that are refused."""
    authorize(caller, "block", mailbox)
    blocked = meant(check_party(name, "name"), office.limits.human)
    if fold(blocked) == POSTMASTER:
        raise Invalid("the notices of the house cannot be refused", field="name")
    if same_name(blocked, mailbox):
        raise Invalid("nobody can refuse their own mail", field="name")

    def add(names: tuple[str, ...]) -> tuple[str, ...]:
        if len(names) >= MOST:
            raise TooLarge(f"{len(names)} names are blocked, the limit is {MOST}", field="name")
        return names if any(same_name(blocked, held) for held in names) else (*names, blocked)

    return _change(office, mailbox, add)


def unblock(office: Office, caller: Principal, mailbox: str, name: str) -> list[str]:
    """Take mail from this agent again, whatever it was called when it was blocked, if the allow list does. Gives
    all names that are still refused.
    """
    authorize(caller, "block", mailbox)
    freed = meant(check_party(name, "name"), office.limits.human)

    def remove(names: tuple[str, ...]) -> tuple[str, ...]:
        known = {
            fold(one) for one in (freed, *service.naming.names_of(office, service.naming.resident(office, freed)))
        }
        return tuple(held for held in names if fold(held) not in known)

    return _change(office, mailbox, remove)


def blocked(office: Office, caller: Principal, mailbox: str) -> list[str]:
    """The names whose mail is refused here, in order."""
    authorize(caller, "block", mailbox)
    service.naming.check_not_moved(office, mailbox, "mailbox")
    return sorted(_guard(find_record(office, GUARD, mailbox)).block)


def allow_only(office: Office, name: str, card: Card) -> list[Write]:
    """The guard a card asks for; who is blocked stays so. Part of a plan."""
    held = find_record(office, GUARD, name)
    allowed = (EVERYONE,) if EVERYONE in card.allow_from else card.allow_from
    return _written(name, held, replace(_guard(held), allow=allowed))


def _change(office: Office, mailbox: str, change: Callable[[tuple[str, ...]], tuple[str, ...]]) -> list[str]:
    after: tuple[str, ...] = ()

    def plan() -> Sequence[Write]:
        nonlocal after
        service.naming.check_not_moved(office, mailbox, "mailbox")
        held = find_record(office, GUARD, mailbox)
        guard = _guard(held)
        after = change(guard.block)
        return _written(mailbox, held, replace(guard, block=after))

    office.store.commit(plan)
    return sorted(after)


def _guard(held: Record | None) -> Guard:
    return OPEN_DOOR if held is None else guard_from(held.value)


def _written(name: str, held: Record | None, guard: Guard) -> list[Write]:
    return [] if guard == _guard(held) else [put_record(GUARD, name, guard_value(guard), held)]
