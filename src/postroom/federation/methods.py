"""The methods of MAP that systems call on each other.

They are carried out by `incoming`, on connections of peers that have proven who they are, and nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import NotAllowed
from ..formats.map import ANNOUNCE, FIND, MEET, PART, ROUTE, spellings
from ..server.table import Method, Param, verb_of

if TYPE_CHECKING:
    from ..core.verb import Verb


_SYSTEM = Param("system_id", "text", "the calling system", required=True)
_EXPOSURE = Param(
    "exposure",
    "object",
    "agents (agentId, status, scopes) that can be reached there by name alone; further (agentId,"
    " status, systemId) that can be reached through it",
)


def _of_peers(_room: object, _params: dict[str, Any]) -> Any:
    text = "only a system that is a peer may say this"
    raise NotAllowed(text, field="auth", hint="map/federation/connect comes first, as a gateway")


def _of_session(verb: str) -> Any:
    def run(session: Any, params: dict[str, Any]) -> Any:
        return getattr(session, verb)(params)

    return run


def _row(name: str, about: str, *params: Param, result: str, run: Any = _of_peers, **more: Any) -> Method:
    return Method(
        name=name, about=about, run=run, params=params, result=result, action="agents", strict=False, **more
    )


ROWS: tuple[Method, ...] = (
    _row(
        MEET,
        "connect as a peer system, with a proof; both sides announce their agents",
        _SYSTEM,
        Param("endpoint", "text", "accepted and ignored"),
        Param("auth", "object", "method and credentials, where map/connect did not give them"),
        Param("auth_context", "object", "accepted and ignored"),
        _EXPOSURE,
        Param("postroom", "object", "version: it is a Postroom, and knows `after`; largest: bytes of a frame that"
              " it reads; together: letters that it takes in one call"),
        result="connected, systemId, systemInfo, sessionId, exposure, postroom",
        run=_of_session("federation_connect"),
        of_session=True,
    ),
    _row(
        ROUTE,
        "deliver a letter to agents of this system, or of one behind it; answered once it is stored safely",
        Param("system_id", "text", "the system it is for"),
        Param("envelope", "object", "payload (a message) and federation (sourceSystem, targetSystem, hopCount,"
              " maxHops, path, originTimestamp)"),
        Param("envelopes", "list", "several letters, in their order; to a post room that says how many it takes"
              " `together`"),
        Param("afters", "list", "with `envelopes`: what `after` is for each"),
        Param("message", "object", "the message alone, directly from the peer"),
        Param("payload", "object", "like message"),
        Param("max_hops", "count", "accepted and ignored: the envelope has it"),
        Param("after", "object", "by recipient, the id of an earlier letter on this connection that is not"
              " answered: where that is refused for now, this one is, too"),
        result="routed, messageId; refused (agent, code, message, temporary): recipients that did not get it. Of"
               " several: letters, each with these or its error",
    ),
    _row(
        ANNOUNCE,
        "announce all agents that can be reached by name alone; also as a notification",
        Param("system_id", "text", "the calling system"),
        Param("exposure", "object", _EXPOSURE.about, required=True),
        result="announced",
    ),
    _row(
        FIND,
        "ask for an agent of this name that the caller may write to",
        Param("agent", "text", "its name", required=True),
        result="has, status, agentId: the name as it is spelt there",
    ),
    _row(
        PART,
        "end federation on this connection; also as a notification",
        Param("system_id", "text", "the calling system"),
        Param("reason", "text", "why; ignored"),
        result="disconnected",
        run=_of_session("federation_disconnect"),
        of_session=True,
    ),
)  # fmt: skip
FEDERATION: dict[str, type[Verb]] = {row.name: verb_of(row) for row in ROWS}
SPELT: dict[str, type[Verb]] = {spelling: cls for name, cls in FEDERATION.items() for spelling in spellings(name)}


def for_peer(name: str) -> type[Verb]:
    """Return the verb that a peer calls by this name, in either spelling."""
    found = SPELT.get(name)
    if found is None:
        raise NotAllowed(f"{name[:200]} is nothing that a peer may ask", field="method")
    return found
