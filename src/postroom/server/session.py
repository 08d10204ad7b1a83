"""The verbs about the caller's connection: authentication, subscriptions, and links to other systems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Protocol

from ..core.verb import Verb, given, verb
from .requests import SessionVerb

if TYPE_CHECKING:
    from ..core.authorize import Principal
    from ..core.core import Core


class Session(Protocol):
    """A connection, as far as these verbs need it."""

    def authenticate(self, token: str) -> dict[str, Any]: ...
    def subscribe(self, params: dict[str, Any]) -> dict[str, Any]: ...
    def unsubscribe(self, id: str) -> dict[str, Any]: ...
    def links(self) -> dict[str, Any]: ...
    def ping_peer(self, system: str) -> Any: ...


SESSION: dict[str, type[Verb]] = {}


@verb(
    "rpc.discover",
    "an OpenRPC document",
    registry=SESSION,
    action="agents",
    slow=True,
    writes=False,
    strict=False,
)
class Discover(Verb, kw_only=True):
    """Describe the methods of JSON-RPC, their parameters and results."""

    def run(self, _core: Core, _principal: Principal) -> dict[str, Any]:
        from .describe import openrpc  # noqa: PLC0415 - only here, and it imports this module

        return openrpc()


@verb("authenticate", "agent_id, scopes", registry=SESSION, action="agents", strict=False)
class Authenticate(SessionVerb, kw_only=True):
    """Show a token: from now on this connection speaks for its agent."""

    token: Annotated[str, "as `postroom tokens create` showed it"]

    def serve(self, session: Session) -> Any:
        return session.authenticate(self.token)


@verb("map/subscribe", "subscriptionId, cursor", registry=SESSION, action="agents", strict=False)
class Subscribe(SessionVerb, kw_only=True):
    """Get events as map/event notifications on this connection."""

    filter: Annotated[
        dict[str, Any] | None,
        "event_types, scopes, from_agents, priorities, mail; only what fits all of it",
    ] = None
    since: Annotated[str | None, "a cursor: first what came after it"] = None
    replay_from: Annotated[str | None, "MAP's name for since"] = None
    options: Annotated[dict[str, Any] | None, "accepted and ignored"] = None

    def serve(self, session: Session) -> Any:
        return session.subscribe(given(self))


@verb("map/unsubscribe", "subscription (id, closedAt)", registry=SESSION, action="agents", strict=False)
class Unsubscribe(SessionVerb, kw_only=True):
    """End a subscription."""

    subscription_id: Annotated[str, "from map/subscribe"]

    def serve(self, session: Session) -> Any:
        return session.unsubscribe(self.subscription_id)


@verb(
    "links",
    "links (system, state: connected, authenticating or disconnected, problem, sent, taken); address (url, pin):"
    " where peers reach us, if that is known",
    registry=SESSION,
    action="peers",
    strict=False,
)
class Links(SessionVerb, kw_only=True):
    """The state of the links to other systems."""

    def serve(self, session: Session) -> Any:
        return session.links()


@verb(
    "ping_peer",
    "system, state, url, answers, seconds (there and back), problem, hint",
    registry=SESSION,
    action="peers",
    strict=False,
)
class PingPeer(SessionVerb, kw_only=True):
    """Check that another system answers; one that is not connected is called at once."""

    system: Annotated[str, "its name"]

    def serve(self, session: Session) -> Any:
        return session.ping_peer(self.system)
