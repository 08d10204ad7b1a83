"""Scopes: teams that agents are in. Membership is on the agent's card, so that a broadcast, a rename and an export
know it; a scope's own description is a small record. A scope is there as soon as somebody made it or is in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from .. import service
from ..errors import IdTaken, Missing, NotAllowed
from ..model.card import Card
from ..model.codec import convert, to_plain
from ..model.names import check_scope
from ..model.record import CARD, MEMBER, SCOPE
from ..model.scope import ScopeCard
from ..model.values import check_object
from .authorize import authorize
from .directory import check_size, memberships, rewrite
from .records import find_record, put_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..store.base import Write
    from .authorize import Principal
    from .office import Office


def create(office: Office, caller: Principal, creator: str | None, id: str, says: dict[str, Any]) -> ScopeCard:
    """Make a scope; one that somebody made before is not made again."""
    _check_hand(caller, creator)
    scope = ScopeCard(
        id=check_scope(id, "scope_id"),
        created_at=office.now().wall,
        created_by=creator or "",
        says=check_object(says, "scope", office.limits.max_depth),
    )
    check_size(office, scope, "scope")

    def plan() -> Sequence[Write]:
        held = find_record(office, SCOPE, scope.id)
        if held is not None:
            raise IdTaken(f"there is a scope {scope.id!r} already", field="scope_id", hint="join it")
        return [put_record(SCOPE, scope.id, to_plain(scope), None)]

    office.store.commit(plan)
    return scope


def delete(office: Office, caller: Principal, agent: str | None, id: str) -> ScopeCard:
    """Remove a scope that one made oneself: everybody leaves it."""
    _check_hand(caller, agent)
    scope = find(office, caller, id)
    if not caller.operator and (not scope.created_by or _today(office, scope.created_by) != agent):
        raise NotAllowed(f"only who made the scope {id!r} may delete it", field="scope_id")

    def plan() -> Sequence[Write]:
        held = find_record(office, SCOPE, id)
        writes: list[Write] = [] if held is None else [put_record(SCOPE, id, None, held)]
        for name in office.store.keys(MEMBER + id):
            writes += _without(office, name, id)
        return writes

    office.store.commit(plan)
    return scope


def find(office: Office, caller: Principal, id: str) -> ScopeCard:
    authorize(caller, "agents")
    held = find_record(office, SCOPE, check_scope(id, "scope_id"))
    if held is not None:
        return convert(held.value, ScopeCard)
    if not office.store.keys(MEMBER + id):
        raise Missing(f"there is no scope {id!r}", field="scope")
    return ScopeCard(id=id, created_at=office.now().wall)


def everyone(office: Office, caller: Principal) -> list[ScopeCard]:
    """All scopes, by name: those that were made, and those that stand on cards."""
    authorize(caller, "agents")
    made = {record.key: convert(record.value, ScopeCard) for record in office.store.records(SCOPE)}
    now = office.now().wall
    for record in office.store.records(CARD):
        for id in convert(record.value, Card).scopes:
            made.setdefault(id, ScopeCard(id=id, created_at=now))
    return [made[id] for id in sorted(made)]


def members(office: Office, caller: Principal, id: str) -> list[str]:
    """Who is in it; Missing where there is no such scope."""
    return sorted(office.store.keys(MEMBER + find(office, caller, id).id))


def join(office: Office, caller: Principal, agent: str, id: str) -> Card:
    """Be in a scope from now on: what is sent to it comes. Again is no error."""
    return rewrite(office, caller, agent, lambda card: _in(card, (*card.scopes, find(office, caller, id).id)))


def leave(office: Office, caller: Principal, agent: str, id: str) -> Card:
    """Be in it no more. Again is no error."""
    left = check_scope(id, "scope_id")
    return rewrite(office, caller, agent, lambda card: _in(card, [one for one in card.scopes if one != left]))


def _in(card: Card, scopes: Sequence[str]) -> Card:
    return replace(card, scopes=tuple(dict.fromkeys(scopes)))


def _without(office: Office, name: str, id: str) -> list[Write]:
    held = find_record(office, CARD, name)
    if held is None:
        return []
    card = convert(held.value, Card)
    left = replace(card, scopes=tuple(scope for scope in card.scopes if scope != id))
    return [put_record(CARD, name, to_plain(left), held), *memberships(office, name, left, held)]


def _check_hand(caller: Principal, agent: str | None) -> None:
    """Nobody makes or removes a scope in another's name."""
    authorize(caller, "register", agent)


def _today(office: Office, name: str) -> str:
    return service.naming.resident(office, name)
