"""Tokens: proof of identity for callers of a server. A token is shown once; only its hash is kept.

A token belongs to one agent, or to an operator. An agent that has ever had a token is sealed: no caller of the
server acts as this agent without a token, not even one that may open the socket. A revoked token is invalid at
once; the agent stays sealed until the operator unseals it. Once any agent of the room is sealed, a caller without
a token is no operator (`effective_principal`).
"""

from __future__ import annotations

import os
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Invalid, Missing, NotAllowed
from ..model.agent import Card, parent_of
from ..model.codec import is_same_secret, token_hash
from ..model.names import POSTMASTER, check_agent, fold, meant
from ..model.record import CARD, EVERYONE, SEALED, TOKEN
from ..model.values import as_list, check_line, is_made_id
from ..store.protocol import Introduce, spelt
from . import names as core_names
from .authorize import SCOPES, Principal
from .core import change_record, find_record, find_value, put_record, values_of
from .verb import Verb, verb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..store.protocol import Write
    from .core import Core


PREFIX = "pr"
OPERATOR = "operator"  # the scope that includes everything
_LONGEST = 200  # characters of a token
_ANONYMOUS = Principal("a caller without a token")


class Token(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A token as it is stored, without its secret."""

    id: str
    hash: str  # SHA-256 of the whole token, in hex
    agent: str | None = None  # None: a token of the operator
    scopes: tuple[str, ...] = ()
    note: str = ""
    created_at: datetime
    revoked_at: datetime | None = None

    @property
    def is_live(self) -> bool:
        return self.revoked_at is None


class NewToken(Struct):
    """A token that was just created, with its text, which cannot be shown again."""

    text: str
    token: Token


@verb("create_token", NewToken, action="tokens", local=True)
class CreateToken(Verb, kw_only=True):
    """Create a token for an agent, or for an operator."""

    agent: Annotated[str | None, "the agent that uses it; without it, it is an operator's token"] = None
    scopes: Annotated[list[str] | None, "what it is good for: read, send, work, manage; all by default"] = None
    note: Annotated[str, "a note for people"] = ""

    def run(self, core: Core, _principal: Principal) -> NewToken:
        chosen = _check_scopes(self.agent, self.scopes)
        name = None if self.agent is None else _current_agent(core, self.agent)
        # The id is no secret: it finds the record. The 256 random bits behind it are the secret, and only their
        # hash is kept.
        id = os.urandom(6).hex()
        text = f"{PREFIX}_{id}_{os.urandom(32).hex()}"
        token = Token(
            id=id,
            hash=token_hash(text),
            agent=name,
            scopes=chosen,
            note=check_line(self.note, "note", 200),
            created_at=core.now().wall,
        )

        def plan() -> Sequence[Write]:
            # Token and seal in one commit: there is no moment in which the agent has a token and is not protected.
            writes: list[Write] = [put_record(TOKEN, id, token, None)]
            if name is not None:  # Introduce: from now on no other agent can have a name that looks like it
                writes += [Introduce(name, known=True), *_seal_writes(core, {*sealed(core), name})]
            return writes

        core.store.commit(plan)
        return NewToken(text, token)


@verb("tokens", list[Token], under="tokens", action="tokens", writes=False)
class ListTokens(Verb, kw_only=True):
    """Return all tokens without their secrets, including revoked ones, the oldest first."""

    def run(self, core: Core, _principal: Principal) -> list[Token]:
        return sorted(values_of(core, TOKEN, Token).values(), key=lambda token: token.created_at)


@verb("revoke_token", Token, under="token", action="tokens")
class RevokeToken(Verb, kw_only=True):
    """Make a token invalid at once. Its agent stays sealed."""

    id: Annotated[str, "the token's id"]

    def run(self, core: Core, _principal: Principal) -> Token:
        missing = Missing(f"there is no token {self.id!a}", field="id", hint="postroom tokens shows all")
        # Another text can be no id of ours, and must not become the key of a record.
        if not is_made_id(self.id):
            raise missing

        def revoked(token: Token | None) -> Token:
            if token is None:
                raise missing
            # The first time stays: a second call must not make a token look as if it had lived longer.
            return replace(token, revoked_at=token.revoked_at or core.now().wall)

        return change_record(core, TOKEN, self.id, Token, revoked)


class Unsealed(Struct):
    """The current name of an agent that is not sealed, and the agents that still are."""

    agent: str
    sealed: list[str]


@verb("unseal", Unsealed, action="tokens", local=True)
class Unseal(Verb, kw_only=True):
    """Let callers without a token act as an agent again. Its tokens stay valid."""

    agent: Annotated[str, "the agent that was given a token"]

    def run(self, core: Core, _principal: Principal) -> Unsealed:
        name = _current_agent(core, self.agent)
        core.store.commit(lambda: _seal_writes(core, {one for one in sealed(core) if fold(one) != fold(name)}))
        return Unsealed(name, sealed(core))


def authenticate(core: Core, text: Any) -> Principal:
    """Return the principal of a token. Every invalid token gets the same error."""
    # One error for all: which part was wrong would help whoever guesses.
    token = _verify(core, text)
    if token is None:
        raise NotAllowed("this token is not valid", field="token", hint="ask the operator for another one")
    if OPERATOR in token.scopes:
        return Principal(f"token:{token.id}", operator=True, token=token.id)
    return Principal(f"agent:{token.agent}", agent=token.agent, scopes=frozenset(token.scopes), token=token.id)


def live_token(core: Core, id: str) -> Token | None:
    """Return the token with this id, if it is valid."""
    token = _find(core, id)
    return token if token is not None and token.is_live else None


def sealed(core: Core) -> list[str]:
    """Return the agents as which no caller can act without a token."""
    return find_value(core, SEALED, EVERYONE, list[str]) or []


def effective_principal(core: Core, principal: Principal, named: str | None = None) -> Principal:
    """Return what a caller may do now, given the agent that its call names.

    Once any agent is sealed, a caller without a token is the agent that it names, with the rights of that agent
    alone, or anonymous. It cannot name an agent that is sealed.
    """
    if not principal.heeds_seals or not (sealed_names := sealed(core)):
        return principal
    # An agent's token acts for that agent, whatever the call says (G8).
    named = principal.agent or named  # a caller that is bound to one agent cannot name another
    name = None if named is None or principal.visit else check_agent(named, "agent_id")
    if name is None or fold(name) == POSTMASTER:  # the postmaster's letters tell about all agents
        return _ANONYMOUS
    if _is_sealed(core, name, set(map(fold, sealed_names))):
        channels = "the action `authenticate`, `auth` in map/connect, a header"
        raise NotAllowed(
            f"{name!r} or an agent above it has a token, and without it nobody acts as {name!r}",
            field="agent_id",
            hint=f"present it: {channels}, or POSTROOM_AUTH_TOKEN for postroom mcp and hooks",
        )
    return principal if principal.agent is not None else Principal(principal.name, agent=name)


def _is_sealed(core: Core, name: str, sealed_names: set[str]) -> bool:
    """Return whether the agent or one above it is sealed.

    A child is started with its parent's token and has none of its own, so the parent's token protects its mail
    too.
    """
    seen: set[str] = set()
    step: str | None = name
    # Cards are written by agents, so parents may form a cycle.
    while step is not None and fold(step) not in seen:
        seen.add(fold(step))
        now = core_names.current_name(core, spelt(core.store, step))
        if fold(now) in sealed_names:
            return True
        card = find_value(core, CARD, now, Card)
        step = None if card is None else parent_of(card)
    return False


def effective_or_nobody(core: Core, principal: Principal) -> Principal:
    """Like `effective_principal`, but return the anonymous principal instead of an error."""
    try:
        return effective_principal(core, principal)
    except NotAllowed:
        return _ANONYMOUS


def _current_agent(core: Core, agent: Any) -> str:
    """Return the current name of an agent, which must not be the postmaster."""
    name = core_names.current_name(core, meant(check_agent(agent, "agent"), core.limits.human))
    if fold(name) == POSTMASTER:
        raise Invalid(
            f"{POSTMASTER!r} is reserved for Postroom's own notices", field="agent", hint="choose another name"
        )
    return name


def _verify(core: Core, text: Any) -> Token | None:
    """Return the token of this text, if it is valid."""
    if not isinstance(text, str) or len(text) > _LONGEST or not text.isascii():
        return None
    prefix, _, rest = text.partition("_")
    token = _find(core, rest.partition("_")[0]) if prefix == PREFIX else None
    # Compare anyway: an unknown id takes as long as a wrong secret
    is_right = is_same_secret(token_hash(text), token.hash if token is not None else "0" * 64)
    return token if token is not None and is_right and token.is_live else None


def _find(core: Core, id: Any) -> Token | None:
    return find_value(core, TOKEN, id, Token) if is_made_id(id) else None


def _seal_writes(core: Core, names: set[str]) -> list[Write]:
    held = find_record(core, SEALED, EVERYONE)
    return [put_record(SEALED, EVERYONE, sorted(names) or None, held)] if names or held else []


def _check_scopes(agent: str | None, scopes: Sequence[str] | None) -> tuple[str, ...]:
    if agent is None:
        if scopes not in (None, [OPERATOR], (OPERATOR,)):
            raise Invalid(
                "a token without an agent is an operator's", field="scope", hint=f"{OPERATOR}, or --agent"
            )
        return (OPERATOR,)
    chosen = tuple(dict.fromkeys(as_list(scopes, "scope"))) if scopes else SCOPES
    if OPERATOR in chosen:
        raise Invalid(
            f"{OPERATOR} is for tokens without an agent",
            field="scope",
            hint=f"leave --agent out, or choose of {', '.join(SCOPES)}",
        )
    wrong = [scope for scope in chosen if scope not in SCOPES]
    if wrong:
        raise Invalid(
            f"there is no scope {wrong[0]!a}",
            field="scope",
            hint=f"{', '.join(SCOPES)}; or {OPERATOR}, without an agent",
        )
    return chosen
