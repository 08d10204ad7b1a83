"""The methods of MAP that systems call on each other.

They are carried out by `incoming`, on connections of peers that have proven who they are, and nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from ..core.verb import set_parameters, verb
from ..errors import NotAllowed
from ..formats.map import ANNOUNCE, FIND, MEET, PART, ROUTE, spellings
from ..server.requests import ForeignVerb, SessionVerb

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.authorize import Principal
    from ..core.core import Core
    from ..core.verb import V, Verb


FEDERATION: dict[str, type[Verb]] = {}
_SYSTEM = "the calling system"
_EXPOSURE = (
    "agents (agentId, status, scopes) that can be reached there by name alone; further (agentId, status, systemId)"
    " that can be reached through it"
)
_OBJECT = dict[str, Any]


def _federation(name: str, result: str) -> Callable[[V], V]:
    return verb(name, result, registry=FEDERATION, action="agents", strict=False)


class PeerVerb(ForeignVerb, kw_only=True):
    """A request of a system that is a peer; everybody else is refused."""

    def run(self, _core: Core, _principal: Principal) -> Any:
        text = "only a system that is a peer may say this"
        raise NotAllowed(text, field="auth", hint="map/federation/connect comes first, as a gateway")


@_federation(MEET, "connected, systemId, systemInfo, sessionId, exposure, postroom")
class Meet(SessionVerb, kw_only=True):
    """Connect as a peer system, with a proof; both sides announce their agents."""

    system_id: Annotated[str, _SYSTEM]
    endpoint: Annotated[str | None, "accepted and ignored"] = None
    auth: Annotated[_OBJECT | None, "method and credentials, where map/connect did not give them"] = None
    auth_context: Annotated[_OBJECT | None, "accepted and ignored"] = None
    exposure: Annotated[_OBJECT | None, _EXPOSURE] = None
    postroom: Annotated[
        _OBJECT | None,
        "version: it is a Postroom, and knows `after`; largest: bytes of a frame that it reads; together: letters"
        " that it takes in one call",
    ] = None

    def serve(self, session: Any) -> Any:
        return session.peer.connect(set_parameters(self))


@_federation(
    ROUTE,
    "routed, messageId; refused (agent, code, message, temporary): recipients that did not get it. Of several:"
    " letters, each with these or its error",
)
class DeliverEnvelope(PeerVerb, kw_only=True):
    """Deliver a letter to agents of this system, or of one behind it; answered once it is stored safely."""

    system_id: Annotated[str | None, "the system it is for"] = None
    envelope: Annotated[
        _OBJECT | None,
        "payload (a message) and federation (sourceSystem, targetSystem, hopCount, maxHops, path,"
        " originTimestamp)",
    ] = None
    envelopes: Annotated[
        list[Any] | None,
        "several letters, in their order; to a post room that says how many it takes `together`",
    ] = None
    afters: Annotated[list[Any] | None, "with `envelopes`: what `after` is for each"] = None
    message: Annotated[_OBJECT | None, "the message alone, directly from the peer"] = None
    payload: Annotated[_OBJECT | None, "like message"] = None
    max_hops: Annotated[int | None, "accepted and ignored: the envelope has it"] = None
    after: Annotated[
        _OBJECT | None,
        "by recipient, the id of an earlier letter on this connection that is not answered: where that is refused"
        " for now, this one is, too",
    ] = None


@_federation(ANNOUNCE, "announced")
class Announce(PeerVerb, kw_only=True):
    """Announce all agents that can be reached by name alone; also as a notification."""

    system_id: Annotated[str | None, _SYSTEM] = None
    exposure: Annotated[_OBJECT, _EXPOSURE]


@_federation(FIND, "has, status, agentId: the name as it is spelt there")
class Find(PeerVerb, kw_only=True):
    """Ask for an agent of this name that the caller may write to."""

    agent: Annotated[str, "its name"]


@_federation(PART, "disconnected")
class Depart(SessionVerb, kw_only=True):
    """End federation on this connection; also as a notification."""

    system_id: Annotated[str | None, _SYSTEM] = None
    reason: Annotated[str | None, "why; ignored"] = None

    def serve(self, session: Any) -> dict[str, Any]:
        session.peer.close()
        return {"disconnected": True}


SPELT: dict[str, type[Verb]] = {spelling: cls for name, cls in FEDERATION.items() for spelling in spellings(name)}


def for_peer(name: str) -> type[Verb]:
    """Return the verb that a peer calls by this name, in either spelling."""
    found = SPELT.get(name)
    if found is None:
        raise NotAllowed(f"{name[:200]} is nothing that a peer may ask", field="method")
    return found
