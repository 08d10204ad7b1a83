"""The part of a MAP connection that belongs to another system.

It proves that it is a peer, then letters go both ways.

There are two kinds of peers here:

- A **gateway** says so in `map/connect` (`participantType: gateway`), proves itself by a token or a certificate,
  and calls `map/federation/connect`. It may call the methods of federation and nothing else: it reads no directory
  and registers no agents.
- **agent-inbox** connects and registers as an agent does, and shows no proof. It is accepted where a peer of its
  name was added so (`postroom peers add SYSTEM --auth none`) and it is on this machine. Its `map/send` is mail of
  that system's agents, and their mail is pushed to it. Any other client registered with the role `gateway` is an
  agent like others.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core import peers as core_peers
from ..core.verb import set_parameters
from ..errors import NotAllowed, PostroomError
from ..federation.connection import AgentInboxConnection, ConnectionLost, RpcConnection
from ..formats.federation import decode_send
from ..formats.inbox import present
from ..formats.map import (
    AUTHENTICATE,
    DISCONNECT,
    FEDERATION,
    FIRST_STATE,
    GATEWAY,
    MEET,
    REFRESH,
    REGISTER,
    SEND,
    UNREGISTER,
    dotted,
)
from ..model.message import same_name
from .access import NONE

if TYPE_CHECKING:
    from ..federation.exchange import Exchange
    from ..federation.peer_calls import PeerHandler
    from ..model.peer import Peer
    from .agents import Register
    from .connection import MapConnection
    from .session import MapCall, Response


log = logging.getLogger("postroom")
_PEER_METHODS = FEDERATION | {AUTHENTICATE, REFRESH, DISCONNECT}
_INBOX_METHODS = frozenset({SEND, UNREGISTER})  # what agent-inbox may call besides
MOST_LOGGED = 100  # characters of a system's name in the log
LONGEST = 500  # characters of a system's name that is looked for


class PeerLink:
    """A connection's knowledge of the peer it may belong to.

    `certificate` is the fingerprint of its TLS certificate; `is_near`: does it come from this machine?
    """

    def __init__(self, conn: MapConnection, certificate: str, *, is_near: bool) -> None:
        self._conn = conn
        self._server = conn.server
        self.core = conn.core
        self._certificate = certificate
        self._is_near = is_near
        self._peer: Peer | None = None
        self._handler: PeerHandler | None = None  # while it is part of the federation
        self._claimed_name = ""  # the system name that it gave in `map/connect`
        self._is_closed = False  # has its part in federation ended?
        self._uses_dots = False  # does it spell methods as agentic-mesh does? Then so do we
        self._has_room = asyncio.Event()
        self._turn = asyncio.Lock()  # messages to it keep their order

    @property
    def _is_inbox(self) -> bool:
        """Whether it is agent-inbox, which registers as an agent does."""
        return self._peer is not None and not self._conn.is_gateway

    # -- who it is

    async def recognise(self, name: str, auth: dict[str, Any]) -> bool:
        """Find out whether `map/connect` comes from a peer, and remember which."""
        if self._conn.is_gateway:
            found = await self._server.executor.read(self._proven_gateway, name, auth)
        elif self._server.is_open or auth.get("method", NONE) != NONE:
            found = None  # it is admitted or refused like everybody else
        else:
            found = await self._server.executor.read(self._local_peer, name)
        if found is not None:
            self._become(found)
        return found is not None

    def _proven_gateway(self, name: str, auth: dict[str, Any]) -> Peer | None:
        """Try the peer of this name; where there is none, every peer that proves itself by a token."""
        if self._server.exchange is None:
            return None
        self._claimed_name = name
        peers = core_peers.all_peers(self.core).values()
        named = [one for one in peers if same_name(one.system, name)]
        # Gateways of the SDK send the name of the system they call, not their own: then the token identifies them.
        for one in named or [one for one in peers if one.auth in {"bearer", "api-key"}]:
            try:
                return self._proven(one.system, auth, self._certificate if named else "")
            except NotAllowed as refused:
                if refused.field == "certificate":
                    log.warning("a connection of %s is refused: %s", one.system, refused)
        return None

    def _local_peer(self, name: str | None) -> Peer | None:
        """Return the peer of this name, if it is on this machine and need not prove itself."""
        if self._server.exchange is None or self._conn.is_gateway or name is None:
            return None
        try:
            return self._proven(name[:LONGEST], {}, "")
        except NotAllowed:
            return None

    def _become(self, peer: Peer) -> None:
        self._peer = peer
        if not self._conn.session.is_in:
            self._conn.become_peer(peer.system)

    def _proven(self, system: str, auth: dict[str, Any], certificate: str) -> Peer:
        credential = next((auth[word] for word in ("credential", "credentials", "token") if auth.get(word)), None)
        peer = core_peers.proven_peer(self.core, system, credential, certificate=certificate)
        # Only on this machine may a peer go without proof; the operator chose that for it.
        if peer.auth == "none" and not self._is_near:
            raise NotAllowed(
                f"{peer.system!r} shows no token, and is not on this machine",
                field="auth",
                hint=f"postroom peers add {peer.system} --auth bearer",
            )
        return peer

    async def log_refusal(self, name: str | None = None, why: str = "") -> None:
        """Log why a system was refused: it learns little itself, but the operator has to know what to mend."""
        name = self._claimed_name if name is None else name
        found = await self._server.executor.read(core_peers.peer, self.core, name[:LONGEST])
        if found is None:
            why = why or "no peer of this name is known here (postroom peers add)"
        elif not found.trusted:
            why = why or f"it is not trusted (postroom peers trust {found.system})"
        why = why or "it did not prove that it is that peer: another token or certificate than was agreed"
        self._server.misuse.refused_system(name[:MOST_LOGGED], why, None if found is None else found.system)

    # -- joining the federation

    async def connect(self, params: dict[str, Any]) -> dict[str, Any]:
        """Carry out `map/federation/connect`."""
        if self._server.exchange is None:
            raise NotAllowed("federation is off on this server", field="auth")
        if self._conn.session.is_in and not self._conn.is_gateway:
            raise NotAllowed("only a gateway may act for a system", field="auth", hint="participantType: gateway")
        try:
            peer = await self._server.executor.read(self._connecting_peer, params)
        except NotAllowed as refused:
            self._conn.count_failure()
            await self.log_refusal(params["system_id"], refused.message if self._peer is not None else "")
            raise
        self._become(peer)
        if not self._conn.session.is_in:
            self._conn.admit(peer.system)
        result = await self._join(self._server.exchange, peer, params)
        return result | {"sessionId": self._conn.session.id}

    def _connecting_peer(self, params: dict[str, Any]) -> Peer:
        system, auth, proven = params["system_id"][:LONGEST], params.get("auth") or {}, self._peer
        if proven is None:
            return self._proven(system, auth, self._certificate)
        # Gateways of the SDK give the name of the system that they call.
        if not any(same_name(system, name) for name in (proven.system, self._server.system)):
            raise NotAllowed(
                f"this connection is {proven.system!r}'s and not {system!a}'s",
                field="systemId",
                hint="each system shows a token of its own",
            )
        peer = core_peers.peer(self.core, proven.system)
        # Between `map/connect` and this call the operator may have withdrawn the trust, or want another proof.
        if peer is None or not peer.trusted or _proof_of(peer) != _proof_of(proven):
            raise NotAllowed(f"the system {proven.system!r} has to prove again that it is a peer", field="auth")
        return peer

    async def registering_peer(self, request: Register) -> Peer | None:
        """Return the peer that agent-inbox registers as; None: an agent registers."""
        has_no_token = self._conn.principal.heeds_seals or self._is_inbox
        is_gateway = request.role == GATEWAY and has_no_token and not self._conn.session.agents
        peer = await self._server.executor.read(self._local_peer, request.name) if is_gateway else None
        if self._is_inbox and peer is None:
            raise NotAllowed(
                "a system without a token registers itself, as a gateway, and no other agent",
                field="role",
                hint="role: gateway, under the name of the system",
            )
        return peer

    async def register(self, peer: Peer, request: Register) -> dict[str, Any]:
        """Let agent-inbox join the federation. It is no agent: nothing of it is in the directory."""
        assert self._server.exchange is not None  # noqa: S101 - from `registering_peer`
        self._become(peer)
        await self._join(self._server.exchange, peer, {}, AgentInboxConnection)
        return {"agent": _agent_record(peer, request.scopes)}

    async def _join(
        self,
        exchange: Exchange,
        peer: Peer,
        params: dict[str, Any],
        rpc_type: type[RpcConnection] = RpcConnection,
    ) -> dict[str, Any]:
        """Begin federation with the peer, in place of an earlier session; return the answer to its call."""
        self.close()
        self._is_closed = False
        result, handler = await exchange.accept(peer, params, self._send, self._end, rpc_type)
        if self._is_closed:  # the connection was cut meanwhile
            handler.leave()
        else:
            self._handler = handler
        return result

    # -- its calls

    def check_allowed(self, step: MapCall) -> None:
        """Refuse a call that a peer may not make."""
        name = step.name
        if name == MEET:
            self._uses_dots = step.method != MEET
        is_inbox_call = self._is_inbox and name in {*_INBOX_METHODS, REGISTER}
        if self._peer is not None and name not in _PEER_METHODS and not is_inbox_call:
            raise NotAllowed(f"a system may not say {name}", field="method")

    def handles(self, step: MapCall) -> bool:
        """Return whether this call is one of federation."""
        return step.name in FEDERATION or (self._is_inbox and step.name in _INBOX_METHODS)

    async def answer(self, step: MapCall) -> dict[str, Any] | None:
        """Carry out a call of federation and return its reply."""
        try:
            handler = self._handler
            if handler is None:
                raise NotAllowed(
                    "only a system that is a peer may say this",
                    field="auth",
                    hint="map/federation/connect comes first, as a gateway",
                )
            if step.name == SEND:
                result = await self._accept_message(handler, set_parameters(step.request))
            elif step.name == UNREGISTER:
                self.close()
                result = {"success": True, "agent": _agent_record(handler.peer)}
            else:
                result = await handler.call(step.name, set_parameters(step.request))
            return step.answer(result) or None
        except PostroomError as refused:
            return step.refuse(refused) or None

    async def _accept_message(self, handler: PeerHandler, params: dict[str, Any]) -> dict[str, Any]:
        """Route a message of agent-inbox; where it is refused for good, its sender gets a letter that says so."""
        envelope = decode_send(params, self._server.system, handler.peer.system, self.core.now().wall)
        try:
            result = await handler.accept(envelope)
        except PostroomError as refused:
            if not refused.temporary:
                turn_away = partial(handler.turn_away, envelope, str(refused))
                await self._server.executor.submit(turn_away)
            raise
        return {"messageId": result["messageId"], "delivered": [envelope.targets[0].agent]}

    def receive_answer(self, answer: Response) -> None:
        """Pass on the peer's answer to a call of ours."""
        if self._handler is not None and self._handler.rpc is not None:
            self._handler.rpc.receive_response(answer.id, {"result": answer.result, "error": answer.error})

    # -- our calls

    async def _send(self, params: dict[str, Any]) -> None:
        if self._uses_dots and "method" in params:
            params = {**params, "method": dotted(params["method"])}
        async with self._turn:
            # The transport is full: wait for room instead of piling up letters in memory (threat 7).
            while not self._conn.push(params):
                if self._is_closed:
                    raise ConnectionLost("the connection was cut")
                self._has_room.clear()
                await self._has_room.wait()

    def resume(self) -> None:
        """Go on sending: the transport has room."""
        self._has_room.set()

    # -- the end

    def _end(self) -> None:
        self._conn.expel("the link has ended")

    def close(self) -> None:
        """End the part in federation; the connection itself stays."""
        self._is_closed = True
        handler, self._handler = self._handler, None
        if handler is not None:
            handler.leave()
        self._has_room.set()


def _proof_of(peer: Peer) -> tuple[str, ...]:
    return peer.auth, peer.proof, peer.former_proof, peer.pin


def _agent_record(peer: Peer, scopes: list[Any] | None = None) -> dict[str, Any]:
    """Return the record of an agent, as agent-inbox expects it in answer to its registration."""
    agent = {"id": peer.system, "name": peer.system, "role": GATEWAY, "state": FIRST_STATE}
    return agent | {"metadata": {}, "visibility": "public"} | present(scopes=scopes)
