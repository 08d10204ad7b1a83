"""Access to the room over MAP: who a connection is, by its token, and the principal of each of its agents.

| token | may register | acts as |
|---|---|---|
| an agent's | that agent; children below its name (`ann.helper`) | the agent, with the token |
| an operator's | any agent | that agent |
| none, where the server is open | any agent that has no token of its own | that agent |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core import tokens
from ..core.authorize import SOCKET, Principal
from ..errors import NameTaken, NotAllowed
from ..formats.map import cleaned
from ..model.names import check_agent, fold
from ..model.record import CARD
from ..store.protocol import spelling_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.core import Core
    from .agents import Register, Spawn
    from .server import MapServer
    from .session import Session


METHODS = ("api-key", "bearer")
NONE = "none"
MOST_TRIES = 5  # wrong credentials, after which a connection is ended


class Identity:
    """The principal of one MAP connection, proven by a token or not.

    `on_too_many_tries` is called when the connection has shown MOST_TRIES wrong credentials.
    """

    def __init__(
        self,
        server: MapServer,
        session: Session,
        principal: Principal | None,
        on_too_many_tries: Callable[[], None],
    ) -> None:
        self._server = server
        self.core: Core = server.executor.core
        self._session = session
        self._principal = principal
        self._on_too_many_tries = on_too_many_tries
        self._tries = 0
        self.is_anonymous = False  # was it admitted without any proof?
        self.participant = session.id  # the name under which the connection itself is known

    @property
    def is_known(self) -> bool:
        return self._principal is not None

    @property
    def principal(self) -> Principal:
        if self._principal is None:
            raise NotAllowed("Authentication required", field="auth")
        return self._principal

    @property
    def token_owner(self) -> str | None:
        """The agent whose token the connection has shown, for the log."""
        return self._principal.agent if self._principal is not None and self._principal.token is not None else None

    def become(self, principal: Principal) -> None:
        self._principal = principal

    def take_name(self, name: Any) -> None:
        """Set the participant's name: the agent of the token, else the name that `map/connect` gave."""
        self.participant = self.principal.agent or cleaned(name or "") or self._session.id

    def prove(self, params: dict[str, Any]) -> Principal:
        """Accept the credentials in `params`, or count a wrong try and raise NotAllowed."""
        try:
            self._principal = principal_of(self.core, params, is_open=self._server.is_open)
        except NotAllowed as refused:
            # Many clients ignore this reply and read the refusal of their next call, so that repeats the reason.
            self._session.refused = refused.message
            self.count_failure()
            raise
        self.is_anonymous = self._principal.heeds_seals
        return self._principal

    def renew(self, params: dict[str, Any]) -> Principal:
        """Replace the token by another one of the same agent, or an operator's by an operator's."""
        try:
            self._principal = self._same_principal(params)
        except NotAllowed:
            self.count_failure()
            raise
        return self._principal

    def check_agrees(self, auth: dict[str, Any]) -> None:
        """Refuse credentials in `map/connect` that contradict the token of the HTTP header."""
        if auth.get("method", NONE) == NONE:
            return
        try:
            self._same_principal(auth)
        except NotAllowed:
            self.count_failure()
            raise

    def _same_principal(self, params: dict[str, Any]) -> Principal:
        principal = principal_of(self.core, params, is_open=self._server.is_open)
        # A connection stays who it is: its agents and subscriptions were granted to that principal (G8).
        if (principal.agent, principal.operator) != (self.principal.agent, self.principal.operator):
            raise NotAllowed("this token is somebody else's", field="token")
        return principal

    def count_failure(self) -> None:
        self._tries += 1
        if self._tries >= MOST_TRIES:
            self._server.misuse.ended(f"it showed {MOST_TRIES} credentials that are none")
            self._on_too_many_tries()


def principal_of(core: Core, params: dict[str, Any], *, is_open: bool) -> Principal:
    """Return the principal that these credentials prove; NotAllowed names the field `token` or `method`."""
    method, credential = params.get("method"), params.get("credential", params.get("token"))
    if method == NONE and is_open:
        return SOCKET
    if method not in METHODS:
        raise NotAllowed(f"{str(method)[:40]!a} is not spoken here", field="method", hint=", ".join(METHODS))
    return tokens.authenticate(core, credential)


def agent_id(core: Core, principal: Principal, request: Register) -> str:
    """Return the id under which an agent registers."""
    wanted = request.agent_id
    if principal.agent is None:
        return check_agent(wanted or _id_of(core, request.name or ""), "agent_id" if wanted else "name")
    if wanted is not None and wanted != principal.agent:
        text = f"this token is {principal.agent}'s"
        raise NotAllowed(text, field="agent_id", hint="leave agentId out, or connect with an operator's token")
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
    if spelling_of(core.store, name) is not None and not core.store.records(CARD, name):
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
    held = core.store.records(CARD, id)
    shown = (held[0].value.get("display_name") if held else name) or ""
    is_changed = cleaned(name) != name or (cleaned(shown) != shown and _below(below, cleaned(shown)) == id)
    if shown != name and is_changed:
        hint = "choose another name, or say an agentId"
        raise NameTaken(f"{name[:128]!a} would be {id!r} here, which is another agent's", field="name", hint=hint)
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
