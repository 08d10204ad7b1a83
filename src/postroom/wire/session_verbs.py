"""What a caller says about its own connection: who it is, and what it wants to hear of."""

from __future__ import annotations

from typing import Any, Protocol

from .table import Method, Param


class Session(Protocol):
    """What these verbs are said to."""

    def authenticate(self, token: str) -> dict[str, Any]: ...
    def subscribe(self, said: dict[str, Any]) -> dict[str, Any]: ...
    def unsubscribe(self, id: str) -> dict[str, Any]: ...
    def links(self) -> dict[str, Any]: ...
    def ping_peer(self, system: str) -> Any: ...


def _authenticate(session: Session, said: dict[str, Any]) -> Any:
    return session.authenticate(said["token"])


def _subscribe(session: Session, said: dict[str, Any]) -> Any:
    return session.subscribe(said)


def _unsubscribe(session: Session, said: dict[str, Any]) -> Any:
    return session.unsubscribe(said["subscription_id"])


def _links(session: Session, _said: dict[str, Any]) -> Any:
    return session.links()


def _ping_peer(session: Session, said: dict[str, Any]) -> Any:
    return session.ping_peer(said["system"])


def _row(name: str, about: str, run: Any, *params: Param, result: str, action: str = "agents") -> Method:
    return Method(
        name=name,
        about=about,
        action=action,
        run=run,
        params=params,
        result=result,
        of_session=True,
        strict=False,
    )


ROWS = (
    _row(
        "authenticate",
        "show a token: from now on this connection speaks for its agent",
        _authenticate,
        Param("token", "text", "as `postroom token create` showed it", required=True),
        result="agent_id, scopes",
    ),
    _row(
        "map/subscribe",
        "hear of what happens, as map/event notifications on this connection",
        _subscribe,
        Param("filter", "object", "event_types, scopes, from_agents, priorities, mail; only what fits all of it"),
        Param("since", "text", "a cursor: first what came after it"),
        Param("replay_from", "text", "the same, in MAP's words"),
        Param("options", "object", "taken and not needed"),
        result="subscriptionId, cursor",
    ),
    _row(
        "map/unsubscribe",
        "hear no more of it",
        _unsubscribe,
        Param("subscription_id", "text", "from map/subscribe", required=True),
        result="subscription (id, closedAt)",
    ),
    _row(
        "links",
        "how the links to other systems are",
        _links,
        result="links (system, state: connected, authenticating or disconnected, problem, sent, taken)",
        action="peers",
    ),
    _row(
        "ping_peer",
        "is another system there? One that is not connected is dialled at once",
        _ping_peer,
        Param("system", "text", "what it is called", required=True),
        result="system, state, url, answers, seconds (there and back), problem, hint",
        action="peers",
    ),
)
