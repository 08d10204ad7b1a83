"""What a caller says about its own connection: who it is, and what it wants to hear of."""

from __future__ import annotations

from typing import Any, Protocol

from .table import Method, Param


class Session(Protocol):
    """What these verbs are said to."""

    def authenticate(self, token: str) -> dict[str, Any]: ...
    def subscribe(self, said: dict[str, Any]) -> dict[str, Any]: ...
    def unsubscribe(self, id: str) -> dict[str, Any]: ...


def _authenticate(session: Session, said: dict[str, Any]) -> Any:
    return session.authenticate(said["token"])


def _subscribe(session: Session, said: dict[str, Any]) -> Any:
    return session.subscribe(said)


def _unsubscribe(session: Session, said: dict[str, Any]) -> Any:
    return session.unsubscribe(said["subscription_id"])


def _row(name: str, about: str, run: Any, *params: Param, result: str) -> Method:
    return Method(
        name=name,
        about=about,
        action="agents",
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
)
