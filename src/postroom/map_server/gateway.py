"""The connection of another system: it proves that it is a peer, and then letters go both ways on it.

A peer may say what systems say to each other, and nothing else: it reads no directory and registers no agents.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from .. import service
from ..errors import NotAllowed, PostroomError
from ..lines.line import LineLost
from ..model.message import same_name
from ..outcome import Outcome
from ..service.authorize import Principal
from ..wire.map_names import AUTHENTICATE, DISCONNECT, FEDERATION, MEET, REFRESH, dotted
from .crew import Crew

if TYPE_CHECKING:
    from ..federation.exchange import Exchange, Visit
    from ..model.peer import Peer
    from ..wire.map_session import Answer, Session, Step
    from .proving import Rim
    from .reception import Reception

log = logging.getLogger("postroom")
_MAY_SAY = FEDERATION | {AUTHENTICATE, REFRESH, DISCONNECT}
MOST_OF_A_NAME = 100  # characters of it in the log
LONGEST = 500  # characters of a system's name that is looked for


class Gateway(Crew):
    """The part of a connection that may be a peer's. `certificate`: the fingerprint of what its TLS showed;
    `is_near`: is it on this machine?
    """

    def __init__(
        self,
        reception: Reception,
        rim: Rim,
        session: Session,
        principal: Principal | None,
        certificate: str = "",
        *,
        is_near: bool = False,
    ) -> None:
        super().__init__(reception, rim, session, principal)
        self._certificate = certificate
        self._is_near = is_near
        self._peer: Peer | None = None
        self._visit: Visit | None = None
        self._called = ""  # what it says that its system is called
        self._has_parted = False  # has its visit ended?
        self._is_dotted = False  # does it spell names as agentic-mesh does? Then so do we
        self._has_room = asyncio.Event()  # may be there for what it is told
        self._turn = asyncio.Lock()  # what is told keeps its order

    # -- who it is

    def _is_peer(self, name: Any, auth: dict[str, Any]) -> bool:
        """By what it says with `map/connect`: its system's name, or a token that only one peer has."""
        if self._reception.exchange is None or not self._is_gateway:
            return False
        self._called = name if isinstance(name, str) else ""
        peers = service.peers.all_peers(self._office).values()
        named = [one for one in peers if isinstance(name, str) and same_name(one.system, name)]
        for one in named or [one for one in peers if one.auth in {"bearer", "api-key"}]:
            try:
                self._become(self._proven(one.system, auth, self._certificate if named else ""))
            except NotAllowed as refused:
                if refused.field == "certificate":
                    log.warning("a connection of %s is refused: %s", one.system, refused)
                continue
            return True
        return False

    def _prove(self, said: dict[str, Any]) -> Principal:
        try:
            return super()._prove(said)
        except NotAllowed:
            if self._is_gateway:
                self._complain_of(self._called)
            raise

    def _complain_of(self, name: str, why: str = "") -> None:
        """The caller is told little; who looks after this room is told what to mend."""
        found = service.peers.peer(self._office, name[:LONGEST])
        if found is None:
            why = why or "no peer here is called so (postroom peers add)"
        elif not found.trusted:
            why = why or f"it is not trusted (postroom peers trust {found.system})"
        told = why or "it did not prove that it is that peer: another token or certificate than was agreed"
        known = None if found is None else found.system
        self._reception.complaints.of_system(name[:MOST_OF_A_NAME], told, known)

    def _become(self, peer: Peer) -> None:
        self._peer = peer
        if not self.session.is_in:
            self._principal = Principal(f"peer:{peer.system}", scopes=frozenset())

    def _proven(self, system: str, auth: dict[str, Any], certificate: str) -> Peer:
        credential = next((auth[word] for word in ("credential", "credentials", "token") if auth.get(word)), None)
        peer = service.peers.proven_peer(self._office, system, credential, certificate=certificate)
        if peer.auth == "none" and not self._is_near:
            told = f"{peer.system!r} shows no token, and is not on this machine"
            raise NotAllowed(told, field="auth", hint=f"postroom peers add {peer.system} --auth bearer")
        return peer

    # -- verbs

    async def federation_connect(self, said: dict[str, Any]) -> dict[str, Any]:
        exchange = self._exchange()
        try:
            peer = self._meant(said)
        except NotAllowed as refused:
            self._fail_once()
            self._complain_of(said["system_id"], refused.message if self._peer is not None else "")
            raise
        self._become(peer)
        if not self.session.is_in:
            self._admit(peer.system)
        self._part()
        self._has_parted = False
        told, visit = await exchange.welcome(peer, said, self._tell, self._end_link)
        if self._has_parted:  # it was cut meanwhile
            visit.close()
        else:
            self._visit = visit
        return told | {"sessionId": self.session.id}

    def federation_disconnect(self, _said: dict[str, Any]) -> dict[str, Any]:
        self._part()
        return {"disconnected": True}

    def _exchange(self) -> Exchange:
        if self._reception.exchange is None:
            raise NotAllowed("this post room speaks with no other", field="auth")
        if self.session.is_in and not self._is_gateway:
            raise NotAllowed("only a gateway speaks for a system", field="auth", hint="participantType: gateway")
        return self._reception.exchange

    def _meant(self, said: dict[str, Any]) -> Peer:
        system, auth = said["system_id"][:LONGEST], said.get("auth") or {}
        if self._peer is None:
            return self._proven(system, auth, self._certificate)
        names = (self._peer.system, self._reception.system)  # gateways of the SDK name whom they call
        if not any(same_name(system, name) for name in names):
            told = f"this connection is {self._peer.system!r}'s and not {system!a}'s"
            raise NotAllowed(told, field="systemId", hint="each system shows a token of its own")
        return self._still_trusted(self._peer)

    def _still_trusted(self, proven: Peer) -> Peer:
        """As it is now: it may have been removed, or be asked for another proof, since it has shown one."""
        peer = service.peers.peer(self._office, proven.system)
        if peer is None or not peer.trusted or _proof_of(peer) != _proof_of(proven):
            raise NotAllowed(f"the system {proven.system!r} has to prove anew that it is a peer", field="auth")
        return peer

    def _end_link(self) -> None:
        self.expel("the link has ended")

    # -- what it says

    def _check_peer(self, step: Step) -> None:
        if step.method.name == MEET:
            self._is_dotted = step.call.method != MEET
        if self._peer is not None and step.method.name not in _MAY_SAY:
            raise NotAllowed(f"a system may not say {step.method.name}", field="method")

    def _is_between_systems(self, step: Step) -> bool:
        return step.method.name in FEDERATION

    def _federated(self, step: Step) -> Outcome:
        return Outcome.of(asyncio.ensure_future(self._answered_there(step)))

    async def _answered_there(self, step: Step) -> dict[str, Any] | None:
        try:
            if self._visit is None:
                hint = "map/federation/connect comes first, as a gateway"
                raise NotAllowed("only a system that is a peer may say this", field="auth", hint=hint)
            return step.answer(await self._told_there(self._visit, step)) or None
        except PostroomError as refused:
            return step.refuse(refused) or None

    async def _told_there(self, visit: Visit, step: Step) -> dict[str, Any]:
        return await visit.serving.call(step.method.name, step.said)

    def _hear_peer(self, answer: Answer) -> None:
        if self._visit is not None:
            said = {"result": answer.result, "error": answer.error}
            self._visit.end.line.answered(answer.id, said)

    # -- what it is told

    async def _tell(self, said: dict[str, Any]) -> None:
        if self._is_dotted and "method" in said:
            said = {**said, "method": dotted(said["method"])}
        async with self._turn:
            while not self._rim.push(said):
                if self._has_parted:
                    raise LineLost("the connection was cut")
                self._has_room.clear()
                await self._has_room.wait()

    def _part(self) -> None:
        self._has_parted = True
        visit, self._visit = self._visit, None
        if visit is not None:
            visit.close()
        self._has_room.set()


def _proof_of(peer: Peer) -> tuple[str, ...]:
    return peer.auth, peer.proof, peer.former_proof, peer.pin
