"""MAP's verbs for scopes. Who is in one stands on the agents' cards, so a broadcast of the house goes there too.

Policies (joinPolicy, sendPolicy and the like) are kept and shown as they were said; the house has one of its own:
whoever is let in may join a scope and write to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import Invalid
from ..model.names import check_scope
from ..model.record import MEMBER
from ..service import scopes
from ..service.given import check_count
from .map_names import cleaned
from .map_records import agent_record, scope_record
from .saying import box_of

if TYPE_CHECKING:
    from ..model.scope import ScopeCard
    from ..room import Room

SAYS = ("name", "description", "parent", "join_policy", "auto_join_roles", "visibility", "message_visibility",
        "send_policy", "persistent", "auto_delete", "metadata")  # fmt: skip
MOST = 1000  # rows in one answer


def create(room: Room, said: dict[str, Any]) -> dict[str, Any]:
    """Its id is the one it says, else it is made of its name."""
    id = said.get("scope_id") or _id_of(said.get("name", ""))
    says = {_camel(word): said[word] for word in SAYS if word in said}
    scope = scopes.create(
        room._office, room.principal, _whose(room, said), id or f"scope-{room._office.ids.token()[:12]}", says
    )
    return {"scope": _record(room, scope)}


def delete(room: Room, said: dict[str, Any]) -> dict[str, Any]:
    id = check_scope(said["scope_id"], "scope_id")
    scope = scopes.delete(room._office, room.principal, _whose(room, said), id)
    return {"scope": scope_record(scope, []), "success": True}


def get(room: Room, said: dict[str, Any]) -> dict[str, Any]:
    return {"scope": _record(room, scopes.find(room._office, room.principal, said["scope_id"]))}


def list_all(room: Room, said: dict[str, Any]) -> dict[str, Any]:
    limit, cursor = min(check_count(said.get("limit", MOST), "limit"), MOST), said.get("cursor", "")
    parent = (said.get("filter") or {}).get("parent", said.get("parent"))
    found = [
        scope
        for scope in scopes.everyone(room._office, room.principal)
        if scope.id > cursor and parent in {None, scope.says.get("parent")}
    ]
    rows = [_record(room, scope) for scope in found[:limit]]
    return {"scopes": rows} | ({"nextCursor": rows[-1]["id"]} if len(found) > limit else {})


def join(room: Room, said: dict[str, Any]) -> dict[str, Any]:
    scopes.join(room._office, room.principal, box_of(room, said).name, said["scope_id"])
    return _both(room, said)


def leave(room: Room, said: dict[str, Any]) -> dict[str, Any]:
    id = check_scope(said["scope_id"], "scope_id")
    scope = scopes.find(room._office, room.principal, id)
    scopes.leave(room._office, room.principal, box_of(room, said).name, id)
    return _both(room, said, scope)


def members(room: Room, said: dict[str, Any]) -> dict[str, Any]:
    found = scopes.members(room._office, room.principal, said["scope_id"])
    limit, cursor = min(check_count(said.get("limit", MOST), "limit"), MOST), said.get("cursor", "")
    rows = [name for name in found if name > cursor]
    return {"members": rows[:limit]} | ({"nextCursor": rows[limit - 1]} if len(rows) > limit else {})


def _id_of(name: str) -> str:
    """Return a scope's name as its id, or the nearest id where the name cannot be one: `Team A` → `Team-A`."""
    try:
        return check_scope(name, "name")
    except Invalid:
        return cleaned(name.replace("/", " "))


def _both(room: Room, said: dict[str, Any], scope: ScopeCard | None = None) -> dict[str, Any]:
    scope = scope or scopes.find(room._office, room.principal, said["scope_id"])
    agent = room.agent(box_of(room, said).name)
    return {"scope": _record(room, scope), "agent": agent_record(agent), "success": True}


def _record(room: Room, scope: ScopeCard) -> dict[str, Any]:
    return scope_record(scope, room._office.store.keys(MEMBER + scope.id))


def _whose(room: Room, said: dict[str, Any]) -> str | None:
    name: str | None = said.get("agent_id") or room.principal.agent
    return name


def _camel(word: str) -> str:
    first, *rest = word.split("_")
    return first + "".join(part.capitalize() for part in rest)
