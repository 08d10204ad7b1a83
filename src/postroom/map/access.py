"""Who somebody is, by its token; and as whom each of its agents acts.

| who | registers | acts as |
|---|---|---|
| an agent's token | that agent; children below its name (`ann.helper`) | the agent, with the token |
| an operator's token | any agent | that agent |
| nobody, in a post room that is open | any agent that is not sealed | that agent |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core import tokens
from ..core.authorize import SOCKET, Principal
from ..errors import NameTaken, NotAllowed
from ..formats.map import cleaned
from ..model.names import check_agent, fold
from ..model.record import CARD

if TYPE_CHECKING:
    from ..core.core import Core


METHODS = ("api-key", "bearer")
NONE = "none"


def known(core: Core, params: dict[str, Any], *, is_open: bool) -> Principal:
    """Who says this; NotAllowed with the field `token` or `method`."""
    method, credential = params.get("method"), params.get("credential", params.get("token"))
    if method == NONE and is_open:
        return SOCKET
    if method not in METHODS:
        raise NotAllowed(f"{str(method)[:40]!a} is not spoken here", field="method", hint=", ".join(METHODS))
    return tokens.holder(core, credential)


def agent_id(core: Core, principal: Principal, params: dict[str, Any]) -> str:
    """Under which id an agent registers."""
    request = params.get("agent_id")
    if principal.agent is None:
        return check_agent(request or _id_of(core, params), "agent_id" if request else "name")
    if request is not None and request != principal.agent:
        text = f"this token is {principal.agent}'s"
        raise NotAllowed(text, field="agent_id", hint="leave agentId out, or connect with an operator's token")
    return principal.agent


def child_id(core: Core, principal: Principal, parent: str, params: dict[str, Any]) -> str:
    """Under which id a child does. With an agent's token it is below the agent's own name."""
    below = "" if principal.agent is None else f"{principal.agent}."
    request = params.get("agent_id") or _id_of(core, params, below)
    request = request or f"{below or f'{parent}.'}{core.ids.token()[:8]}"
    name = check_agent(_below(below, request), "name")
    if not below:
        return name
    if fold(name) in map(fold, tokens.sealed(core)):
        raise NotAllowed(f"{name!r} has a token of its own", field="agent_id")
    if core.store.spelling(name) is not None and not core.store.records(CARD, name):
        raise NameTaken(f"{name!r} is a mailbox already", field="agent_id")
    return name


def _below(prefix: str, id: str) -> str:
    return id if not id or id.startswith(prefix) else prefix + id


def _id_of(core: Core, params: dict[str, Any], below: str = "") -> str:
    """The id of an agent that says only its name. A name with blanks, colons or the like cannot be a mailbox's:
    the agent gets the nearest id that can, and keeps its name as its display name, by which mail finds it
    (`wire.map_routing`). Two names never share an id.
    """
    name = params.get("name", "")
    id = _below(below, cleaned(name))
    held = core.store.records(CARD, id)
    shown = (held[0].value.get("display_name") if held else name) or ""
    is_changed = cleaned(name) != name or (cleaned(shown) != shown and _below(below, cleaned(shown)) == id)
    if shown != name and is_changed:
        hint = "choose another name, or say an agentId"
        raise NameTaken(f"{name[:128]!a} would be {id!r} here, which is another agent's", field="name", hint=hint)
    return id


def acting_as(principal: Principal, agent: str) -> Principal:
    """The principal of an agent that this one has registered."""
    if principal.agent == agent:
        return principal
    name = principal.name if principal.agent is None else f"agent:{agent}"
    return Principal(
        name, agent=agent, scopes=principal.scopes, token=principal.token, heeds_seals=principal.heeds_seals
    )


def shown(principal: Principal, method: str) -> dict[str, Any]:
    """As MAP writes it down."""
    scopes = sorted(principal.scopes) if principal.scopes is not None else None
    claims = {"method": method, "operator": principal.operator} | (
        {"scopes": scopes} if scopes is not None else {}
    )
    return {"id": principal.agent or principal.name, "issuer": "postroom", "claims": claims}
