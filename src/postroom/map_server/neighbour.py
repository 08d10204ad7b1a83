"""A system that comes as an agent does, and shows nothing: agent-inbox. It is one of the peers that were added so
(`postroom peers add SYSTEM --auth none`), on this machine, and registers under its system's name as a gateway.
Then what it sends is mail of that system's agents, and mail for them is handed to it. Anybody else who registers
as a gateway is an agent like others.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import NotAllowed, PostroomError
from ..federation.inbox_line import InboxLine
from ..wire.federation_inbox import envelope_said
from ..wire.map_names import FIRST_STATE, GATEWAY, REGISTER, ROUTE, SEND, UNREGISTER
from .admission import NONE
from .gateway import LONGEST, Gateway

if TYPE_CHECKING:
    from ..federation.exchange import Visit
    from ..model.peer import Peer
    from ..wire.map_session import Step

_SAYS = frozenset({SEND, UNREGISTER})  # as a gateway, beside what every system may


class Neighbour(Gateway):
    """The part of a connection that may be agent-inbox's."""

    # -- who it is

    def _is_peer(self, name: Any, auth: dict[str, Any]) -> bool:
        if super()._is_peer(name, auth):
            return True
        if self._reception.is_open or auth.get("method", NONE) != NONE:
            return False  # it is let in, or not, as everybody else is
        peer = self._neighbour(name)
        if peer is not None:
            self._become(peer)
        return peer is not None

    def _neighbour(self, name: Any) -> Peer | None:
        """The peer of this name, if it need not prove that it is one."""
        if self._reception.exchange is None or self._is_gateway or not isinstance(name, str):
            return None
        try:
            return self._proven(name[:LONGEST], {}, "")
        except NotAllowed:  # it has to, or is not trusted, or not on this machine
            return None

    @property
    def _comes_as_agent(self) -> bool:
        return self._peer is not None and not self._is_gateway

    async def _register(self, said: dict[str, Any]) -> dict[str, Any]:
        is_free = self.principal.heeds_seals or self._comes_as_agent  # it has shown no token
        is_gateway = said.get("role") == GATEWAY and is_free and not self.session.agents
        peer = self._neighbour(said.get("name")) if is_gateway else None
        if self._comes_as_agent and peer is None:
            told = "a system without a token registers itself, as a gateway, and nobody else"
            raise NotAllowed(told, field="role", hint="role: gateway, under the name of the system")
        if peer is None or self._reception.exchange is None:
            return await super()._register(said)
        self._become(peer)
        self._part()
        _, visit = await self._reception.exchange.welcome(peer, {}, self._tell, self._end_link, InboxLine)
        self._visit = visit
        return {"agent": _shown(peer, said)}

    # -- what it says

    def _check_peer(self, step: Step) -> None:
        if not (self._comes_as_agent and step.method.name in _SAYS | {REGISTER}):
            super()._check_peer(step)

    def _is_between_systems(self, step: Step) -> bool:
        return super()._is_between_systems(step) or (self._comes_as_agent and step.method.name in _SAYS)

    async def _told_there(self, visit: Visit, step: Step) -> dict[str, Any]:
        if step.method.name == SEND:
            return await self._sent(visit, step.said)
        if step.method.name == UNREGISTER:
            self._part()
            return {"success": True, "agent": _shown(visit.peer, {})}
        return await super()._told_there(visit, step)

    async def _sent(self, visit: Visit, said: dict[str, Any]) -> dict[str, Any]:
        envelope = envelope_said(said, visit.peer.system, self._reception.system)
        try:
            told = await visit.serving.call(ROUTE, {"envelope": envelope})
        except PostroomError as refused:
            if not refused.temporary:
                turn_away = partial(visit.serving.turn_away, envelope, str(refused))
                await self._reception.desk.submit(turn_away)
            raise
        return {"messageId": told["messageId"], "delivered": [envelope["payload"]["to"]["agent"]]}


def _shown(peer: Peer, said: dict[str, Any]) -> dict[str, Any]:
    """As an agent is shown to who registers it. It is none: nothing of it is in the directory."""
    scopes = {"scopes": said["scopes"]} if "scopes" in said else {}
    agent = {"id": peer.system, "name": peer.system, "role": GATEWAY, "state": FIRST_STATE}
    return agent | {"metadata": {}, "visibility": "public"} | scopes
