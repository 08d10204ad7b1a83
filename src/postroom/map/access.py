"""Access to the room over MAP: who a connection is, by its token, and the principal of each of its agents.

| token | may register | acts as |
|---|---|---|
| an agent's | that agent; children below its name (`ann.helper`) | the agent, with the token |
| an operator's | any agent | that agent |
| none, where the server is open | any agent that has no token of its own | that agent |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core import agents, tokens
from ..core.authorize import SOCKET, Principal
from ..core.names import mailbox_named
from ..errors import NameTaken, NotAllowed
from ..formats.map import cleaned
from ..model.names import check_agent, fold

if TYPE_CHECKING:
    from ..core.core import Core
    from .agents import Register, Spawn


METHODS = ("api-key", "bearer")
NONE = "none"


def principal_of(core: Core, params: dict[str, Any], *, is_open: bool) -> Principal:
    """Return the principal that these credentials prove; NotAllowed names the field `token` or `method`."""
    method, credential = params.get("method"), params.get("credential", params.get("token"))
    if method == NONE and is_open:
        return SOCKET
    if method not in METHODS:
        raise NotAllowed(
            f"{str(method)[:40]!a} is not a supported auth method", field="method", hint=", ".join(METHODS)
        )
    return tokens.authenticate(core, credential)


def agent_id(core: Core, principal: Principal, request: Register) -> str:
    """Return the id under which an agent registers."""
    wanted = request.agent_id
    if principal.agent is None:
        return check_agent(wanted or _id_of(core, request.name or ""), "agent_id" if wanted else "name")
    if wanted is not None and wanted != principal.agent:
        raise NotAllowed(
            f"this token is {principal.agent}'s",
            field="agent_id",
            hint="leave agentId out, or connect with an operator's token",
        )
    return principal.agent


def child_id(core: Core, principal: Principal, parent: str, request: Spawn) -> str:
    """Return the id under which a child registers; with an agent's token it is below the agent's own name."""
    below = "" if principal.agent is None else f"{principal.agent}."
    wanted = request.agent_id or _id_of(core, request.name or "", below)
    wanted = wanted or f"{below or f'{parent}.'}{core.ids.token()[:8]}"
    name = check_agent(_below(below, wanted), "name")
    if not below:
        return name
    # A parent's token must not open the mailbox of an agent that has its own (G8).
    if fold(name) in map(fold, tokens.sealed(core)):
        raise NotAllowed(f"{name!r} has a token of its own", field="agent_id")
    # A mailbox with mail and without a card: nobody proves to be its owner by being a child.
    if mailbox_named(core, name) is not None and agents.card_of(core, name) is None:
        raise NameTaken(f"{name!r} is a mailbox already", field="agent_id")
    return name


def _below(prefix: str, id: str) -> str:
    return id if not id or id.startswith(prefix) else prefix + id


def _id_of(core: Core, name: str, below: str = "") -> str:
    """Return the id of an agent that gives only its name.

    A name with blanks, colons or the like cannot be a mailbox's: the agent gets the nearest id that can, and keeps
    its name as its display name, by which mail finds it (`map.routing`). Two names never share an id.
    """
    id = _below(below, cleaned(name))
    held = agents.card_of(core, id)
    shown = name if held is None else held.display_name
    is_changed = cleaned(name) != name or (cleaned(shown) != shown and _below(below, cleaned(shown)) == id)
    if shown != name and is_changed:
        raise NameTaken(
            f"{name[:128]!a} would be {id!r} here, which is another agent's",
            field="name",
            hint="choose another name, or set agentId",
        )
    return id


def acting_as(principal: Principal, agent: str) -> Principal:
    """Return the principal of an agent that `principal` has registered."""
    if principal.agent == agent:
        return principal
    name = principal.name if principal.agent is None else f"agent:{agent}"
    return Principal(
        name, agent=agent, scopes=principal.scopes, token=principal.token, heeds_seals=principal.heeds_seals
    )


def principal_record(principal: Principal, method: str) -> dict[str, Any]:
    """Return a principal as MAP writes it."""
    scopes = sorted(principal.scopes) if principal.scopes is not None else None
    claims = {"method": method, "operator": principal.operator} | (
        {"scopes": scopes} if scopes is not None else {}
    )
    return {"id": principal.agent or principal.name, "issuer": "postroom", "claims": claims}
