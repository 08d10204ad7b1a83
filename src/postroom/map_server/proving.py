"""Who a connection is, and how it is let in: connect, authenticate, refresh; and what it is remembered by."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

from ..callers import Caller
from ..errors import IllegalMove, Invalid, NotAllowed
from ..wire.map_names import GATEWAY, PARTICIPANTS, SOFTWARE, VERSION, cleaned
from ..wire.map_problems import number_of
from .admission import METHODS, NONE, acting_as, known, shown

if TYPE_CHECKING:
    from ..service.authorize import Principal
    from ..service.office import Office
    from ..wire.map_session import Session
    from .reception import Reception

MOST_TRIES = 5  # proofs that were none
POLICY = 1008
_AUTH_CODES = {1005: "method_not_supported", 1006: "invalid_credentials"}


class Rim(Protocol):
    """Who carries bytes for a connection."""

    def push(self, notice: dict[str, Any]) -> bool:
        """Say something unasked. False: not now; `Talk.resume` is called when there is room."""

    def end(self, code: int, reason: str = "", *, at_once: bool) -> None:
        """End the connection: after what is owed was said, or at once."""


class Proving(ABC):
    """The part of a connection that knows whose it is."""

    def __init__(self, reception: Reception, rim: Rim, session: Session, principal: Principal | None) -> None:
        self._reception = reception
        self._rim = rim
        self.session = session
        self._office: Office = reception.desk.room._office
        self._principal = principal
        self._caller: Caller | None = None  # for what no agent of it says
        self._participant = session.id
        self._acks = False  # will it say itself what it has received?
        self._resume_token = ""
        self._is_gateway = False  # does it say that it is another system?
        self._is_anonymous = False  # was it let in without any proof?
        self._tries = 0
        self._ending = 0  # with which code it is ended, once its last answer is said

    @property
    def principal(self) -> Principal:
        if self._principal is None:
            raise NotAllowed("Authentication required", field="auth")
        return self._principal

    # -- verbs

    async def connect(self, said: dict[str, Any]) -> dict[str, Any]:
        _check_first_word(said)
        delivery = said.get("capabilities", {}).get("delivery")
        self._acks = isinstance(delivery, dict) and delivery.get("acks") is True
        method = "bearer"  # in the header, where it was known before
        self._is_gateway = said["participant_type"] == GATEWAY
        if self._principal is None and self._is_peer(said.get("name"), said.get("auth") or {}):
            method = str((said.get("auth") or {}).get("method", NONE))
        elif self._principal is not None:
            self._check_agrees(said.get("auth") or {})
        else:
            auth = said.get("auth") or ({"method": NONE} if self._reception.is_open else None)
            if auth is None:
                return self._challenge()
            method = str(auth.get("method"))
            try:
                self._prove(auth)
            except NotAllowed as refused:
                return self._challenge() | {"error": _auth_error(refused)}
        self._admit(said.get("name"))
        return self._welcome(await self._come_back(said.get("resume_token")), method)

    def authenticate(self, said: dict[str, Any]) -> dict[str, Any]:
        """Once it is let in, whom it speaks for stays as it is."""
        if self.session.is_in:
            raise IllegalMove("this connection is authenticated already", field="session", hint="map/auth/refresh")
        try:
            principal = self._prove(said)
        except NotAllowed as refused:
            return {"success": False, "error": _auth_error(refused)}
        self._admit(None)
        return {
            "success": True,
            "sessionId": self.session.id,
            "participantId": self._participant,
            "principal": shown(principal, said["method"]),
        }

    def refresh(self, said: dict[str, Any]) -> dict[str, Any]:
        """A token of the same agent, or an operator's in the place of an operator's."""
        try:
            self._principal = self._same(known(self._office, said, is_open=self._reception.is_open))
        except NotAllowed as refused:
            self._fail_once()
            return {"success": False, "error": _auth_error(refused)}
        self._know_callers()
        return {"success": True, "principal": shown(self._principal, said["method"])}

    # -- being let in

    def _challenge(self) -> dict[str, Any]:
        self.session.step("challenge")
        methods = [*METHODS, *([NONE] if self._reception.is_open else [])]
        return {
            "protocolVersion": VERSION,
            "systemInfo": self._system(),
            "authRequired": {"methods": methods, "required": True, "realm": self._reception.system},
        }

    def _prove(self, said: dict[str, Any]) -> Principal:
        try:
            self._principal = known(self._office, said, is_open=self._reception.is_open)
        except NotAllowed as refused:
            self.session.refused = refused.message  # many programs pass over the answer, and read the next one
            self._fail_once()
            raise
        self._is_anonymous = self._principal.heeds_seals
        return self._principal

    def _same(self, principal: Principal) -> Principal:
        if (principal.agent, principal.operator) != (self.principal.agent, self.principal.operator):
            raise NotAllowed("this token is somebody else's", field="token")
        return principal

    def _check_agrees(self, auth: dict[str, Any]) -> None:
        """It was known before, by its header: what it says now must not be somebody else's token."""
        if auth.get("method", NONE) == NONE:
            return
        try:
            self._same(known(self._office, auth, is_open=self._reception.is_open))
        except NotAllowed:
            self._fail_once()
            raise

    def _fail_once(self) -> None:
        self._tries += 1
        if self._tries >= MOST_TRIES:
            self._reception.complaints.of_end(f"it showed {MOST_TRIES} credentials that are none")
            self._ending = POLICY

    def _admit(self, name: Any) -> None:
        self.session.step("admit")
        self._participant = self.principal.agent or cleaned(name or "") or self.session.id
        desk, hub = self._reception.desk, self._reception.hub
        self._caller = Caller(desk, hub, push=self._rim.push, expel=self.expel, principal=self.principal)

    def _know_callers(self) -> None:
        """It has shown another token."""
        if self._caller is not None:
            self._caller.become(self.principal)

    def _caller_for(self, agent: str) -> Caller:
        principal = acting_as(self.principal, agent)
        return Caller(self._reception.desk, self._reception.hub, push=self._rim.push, principal=principal)

    def expel(self, why: str = "token revoked") -> None:
        proven = self._principal if self._principal is not None and self._principal.token is not None else None
        self._reception.complaints.of_end(why, None if proven is None else proven.agent)
        self._rim.end(POLICY, why, at_once=True)

    # -- what it is told

    def _system(self) -> dict[str, str]:
        return {"name": self._reception.system, "version": self._reception.version, "software": SOFTWARE}

    def _welcome(self, back: list[dict[str, Any]], method: str) -> dict[str, Any]:
        return {
            "protocolVersion": VERSION,
            "sessionId": self.session.id,
            "participantId": self._participant,
            "capabilities": {
                "observation": {"canObserve": True, "canQuery": True},
                "messaging": {"canSend": True, "canReceive": True, "canBroadcast": True},
                "mail": {"enabled": True},
                "delivery": {"acks": self._acks},
            },
            "systemInfo": self._system(),
            "reconnected": bool(back),
            "ownedAgents": list(self.session.agents),
            "reclaimedAgents": back,
            "resumeToken": self._remembered(),
            "principal": shown(self.principal, method),
        }

    # -- coming back

    def _remembered(self) -> str:
        """What to show when it comes back; its agents are those it has by then."""
        self._resume_token = self._resume_token or self._office.ids.token() + self._office.ids.token()
        self._reception.remember(self._resume_token, self.principal, self.session.agents)
        return self._resume_token

    @abstractmethod
    def _is_peer(self, name: Any, auth: dict[str, Any]) -> bool:
        """Is it a system that we trust? Then it is known from now on."""

    @abstractmethod
    async def _come_back(self, token: Any) -> list[dict[str, Any]]:
        """The agents that an earlier connection had, as far as they can be had again."""


def _check_first_word(said: dict[str, Any]) -> None:
    version = said.get("protocol_version")
    if isinstance(version, bool) or version not in (VERSION, str(VERSION)):
        told = f"this server speaks version {VERSION} of MAP"
        raise Invalid(told, field="protocolVersion", hint=f"say protocolVersion: {VERSION}")
    if said["participant_type"] not in PARTICIPANTS:
        raise Invalid("is no type", field="participantType", hint=", ".join(PARTICIPANTS))


def _auth_error(refused: NotAllowed) -> dict[str, Any]:
    return {"code": _AUTH_CODES.get(number_of(refused), "auth_required"), "message": str(refused)}
