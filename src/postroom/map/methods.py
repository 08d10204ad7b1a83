"""The methods of MAP: how one is declared, what several share, and the methods about the connection itself.

A method is one struct with its `run` or, where it is about the connection, its `serve`. Those about agents, scopes
and messages stand in `agents`, `scopes` and `routing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from ..core.verb import set_parameters, verb
from ..errors import IllegalMove, Invalid, NotAllowed
from ..formats.inbox import milliseconds
from ..formats.map import (
    AUTHENTICATE,
    CONNECT,
    DISCONNECT,
    GATEWAY,
    MESSAGE_ACK,
    PARTICIPANTS,
    REFRESH,
    SUBSCRIBE_ACK,
    VERSION,
    number_of,
)
from ..model.values import check_count
from ..server.requests import ForeignVerb, SessionVerb
from .access import NONE, principal_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..core.verb import V, Verb
    from .connection import MapConnection


METHODS: dict[str, type[Verb]] = {}
JsonObject = dict[str, Any]
MOST = 1000  # rows in one answer

# Help that several parameters share.
KEPT_AS_GIVEN = "stored and shown"
IGNORED = "accepted and ignored"
METADATA = "anything; shown as it was given"
REASON = "why; ignored"
FILTER = "only what matches all of it"
LIMIT = f"how many at most; {MOST} at most"


def map_method(name: str, result: str, **declared: Any) -> Callable[[V], V]:
    """Declare a method of MAP."""
    return verb(name, result, registry=METHODS, strict=False, **declared)


class AgentVerb(ForeignVerb, kw_only=True):
    """A request about an agent of the connection."""

    whose: ClassVar[str | None] = "agent_id"

    agent_id: Annotated[str | None, "the agent; without it, the one that this connection registered"] = None


class PagedVerb(ForeignVerb, kw_only=True):
    """A request that is answered in pages. The rows are in the order of their ids, because the cursor is an id:
    what comes meanwhile shifts no page.
    """

    limit: Annotated[int | None, LIMIT] = None
    cursor: Annotated[str | None, "continue after this one: the last answer's nextCursor"] = None

    def page(self, ids: Iterable[str]) -> tuple[list[str], dict[str, str]]:
        """Return the ids of one page, and `nextCursor` if more follow."""
        limit = MOST if self.limit is None else min(check_count(self.limit, "limit"), MOST)
        after = self.cursor or ""
        found = sorted(id for id in ids if id > after)
        return found[:limit], {"nextCursor": found[limit - 1]} if len(found) > limit else {}


# -- about the connection itself

_AUTH_CODES = {1005: "method_not_supported", 1006: "invalid_credentials"}


@map_method(
    CONNECT,
    "protocolVersion, sessionId, participantId, capabilities, systemInfo, reconnected,"
    " ownedAgents, reclaimedAgents, resumeToken, principal; or authRequired (methods,"
    " required)",
    action="agents",
)
class Connect(SessionVerb, kw_only=True):
    """Open the session and say who you are; the first call on a connection."""

    protocol_version: Annotated[Any, "1"] = None
    participant_type: Annotated[str, "agent, client, system or gateway"]
    participant_id: Annotated[str | None, IGNORED] = None
    name: Annotated[str | None, "a name for people"] = None
    capabilities: Annotated[JsonObject | None, "`delivery: {acks: true}` says that map/message.ack will come"] = (
        None
    )
    session_id: Annotated[str | None, IGNORED] = None
    resume_token: Annotated[str | None, "from an earlier connect or disconnect: brings its agents back"] = None
    auth: Annotated[JsonObject | None, "method and credential, as in map/authenticate"] = None

    async def serve(self, conn: MapConnection) -> dict[str, Any]:
        self._check()
        await conn.server.read_name()
        delivery, auth = (self.capabilities or {}).get("delivery"), self.auth or {}
        conn.acknowledges = isinstance(delivery, dict) and delivery.get("acks") is True
        method = "bearer"  # of the HTTP header, if the connection is known already
        conn.is_gateway = self.participant_type == GATEWAY
        # A system that proves itself as a peer needs no token of an agent.
        if conn.is_known:
            if auth.get("method", NONE) != NONE:
                await conn.same_principal(auth)  # it must not contradict the header
        elif await conn.peer.recognise(self.name or "", auth):
            method = str(auth.get("method", NONE))
        else:
            if not auth and conn.server.is_open:
                auth = {"method": NONE}
            if not auth:
                return conn.challenge()
            method = str(auth.get("method"))
            try:
                await conn.prove(auth)
            except NotAllowed as refused:
                # The connection stays open: the client may try another token, MOST_TRIES times.
                return conn.challenge() | {"error": _auth_error(refused)}
        conn.admit(self.name)
        return conn.welcome(await conn.reclaim(self.resume_token), method)

    def _check(self) -> None:
        version = self.protocol_version
        if isinstance(version, bool) or version not in (VERSION, str(VERSION)):
            raise Invalid(
                f"this server speaks version {VERSION} of MAP",
                field="protocolVersion",
                hint=f"set protocolVersion to {VERSION}",
            )
        if self.participant_type not in PARTICIPANTS:
            raise Invalid("is not a participant type", field="participantType", hint=", ".join(PARTICIPANTS))


class CredentialVerb(SessionVerb, kw_only=True):
    """A request that shows a token."""

    method: Annotated[str, "api-key or bearer; none, if the server runs with `--map open`"]
    credential: Annotated[str | None, "the token that `postroom tokens create` printed"] = None


@map_method(
    AUTHENTICATE,
    "success, sessionId, participantId, principal; or success: false and error (code, message)",
    action="agents",
)
class Authenticate(CredentialVerb, kw_only=True):
    """Show a token: from now on this connection acts for its agent, or as an operator."""

    metadata: Annotated[JsonObject | None, IGNORED] = None

    async def serve(self, conn: MapConnection) -> dict[str, Any]:
        if conn.session.is_in:
            hint = "map/auth/refresh"  # once it is admitted, its principal stays
            raise IllegalMove("this connection is authenticated already", field="session", hint=hint)
        try:
            principal = await conn.prove(set_parameters(self))
        except NotAllowed as refused:
            return {"success": False, "error": _auth_error(refused)}
        conn.admit(None)
        return {
            "success": True,
            "sessionId": conn.session.id,
            "participantId": conn.participant,
            "principal": principal_record(principal, self.method),
        }


@map_method(REFRESH, "success, principal; or success: false and error", action="agents")
class Refresh(CredentialVerb, kw_only=True):
    """Replace the token by another one of the same agent, or an operator's by an operator's."""

    async def serve(self, conn: MapConnection) -> dict[str, Any]:
        try:
            principal = await conn.same_principal(set_parameters(self))
        except NotAllowed as refused:
            return {"success": False, "error": _auth_error(refused)}
        conn.become(principal)
        return {"success": True, "principal": principal_record(principal, self.method)}


def _auth_error(refused: NotAllowed) -> dict[str, Any]:
    return {"code": _AUTH_CODES.get(number_of(refused), "auth_required"), "message": str(refused)}


@map_method(DISCONNECT, "success, resumeToken, session (id, closedAt)", action="agents")
class Disconnect(SessionVerb, kw_only=True):
    """End the session; its agents are away, and their mail waits."""

    reason: Annotated[str | None, REASON] = None

    def serve(self, conn: MapConnection) -> dict[str, Any]:
        token = conn.remember() if conn.session.is_in else None
        conn.part()
        conn.end_after_replies()
        closed = {"id": conn.session.id, "closedAt": milliseconds(conn.core.now().wall)}
        return {"success": True, "session": closed} | ({"resumeToken": token} if token else {})


@map_method(SUBSCRIBE_ACK, "success", action="agents")
class SubscribeAck(SessionVerb, kw_only=True):
    """A notification: events up to here came. A client that does not read is sent no more until it does."""

    subscription_id: Annotated[str, "from map/subscribe"]
    up_to_sequence: Annotated[int, "the last sequenceNumber"]

    def serve(self, conn: MapConnection) -> dict[str, Any]:
        return {"success": any(caller.has(self.subscription_id) for caller in conn.callers())}


@map_method(MESSAGE_ACK, "success, acked (ids)", action="agents")
class MessageAck(SessionVerb, kw_only=True):
    """Messages were received: they are not sent again. An extension, for `delivery: {acks: true}` in map/connect.

    The answer to map/ping is the receipt of clients that do not say so.
    """

    message_ids: Annotated[str | list[str], "ids of messages"]

    def serve(self, conn: MapConnection) -> dict[str, Any]:
        ids = [self.message_ids] if isinstance(self.message_ids, str) else self.message_ids
        return {"success": True, "acked": conn.acknowledge(ids)}
