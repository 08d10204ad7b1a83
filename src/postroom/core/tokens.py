"""Tokens: proof of who is calling, for callers we cannot see. Shown once; only a hash is kept.

A token belongs to one agent, or to an operator. An agent that was given one is sealed: nobody speaks for it
without a token, not even whoever may open the socket. A token that is revoked is worth nothing at once; the seal
stays, until the operator lifts it. In a room where anybody is sealed, a caller without a token is no operator
(`standing`).
"""

from __future__ import annotations

import hmac
import os
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Invalid, Missing, NotAllowed
from ..model.agent import Card, parent_of
from ..model.codec import convert, to_plain
from ..model.names import POSTMASTER, check_agent, fold, meant
from ..model.record import CARD, EVERYONE, SEALED, TOKEN
from ..model.values import check_line
from ..store.protocol import Introduce
from . import names as core_names
from .authorize import SCOPES, Principal, authorize
from .core import find_record, put_record
from .validation import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model.record import Record
    from ..store.protocol import Write
    from .core import Core


PREFIX = "pr"
OPERATOR = "operator"  # a scope that is everything
_LONGEST = 200
_NOBODY = Principal("a caller without a token")


class Token(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a token. The secret is not."""

    id: str
    hash: str  # SHA-256 of the whole token, in hex
    agent: str | None = None  # None: an operator's
    scopes: tuple[str, ...] = ()
    note: str = ""
    created_at: datetime
    revoked_at: datetime | None = None

    @property
    def is_live(self) -> bool:
        return self.revoked_at is None


def create(
    core: Core, caller: Principal, agent: str | None, scopes: Sequence[str] | None = None, note: str = ""
) -> tuple[str, Token]:
    """A new token, and what is kept of it. The first is told once and never again."""
    authorize(caller, "tokens")
    chosen = _check_scopes(agent, scopes)
    name = None if agent is None else _resident(core, agent)
    id = os.urandom(6).hex()
    text = f"{PREFIX}_{id}_{os.urandom(32).hex()}"
    token = Token(
        id=id,
        hash=_hash(text),
        agent=name,
        scopes=chosen,
        note=check_line(note, "note", 200),
        created_at=core.now().wall,
    )

    def plan() -> Sequence[Write]:
        writes: list[Write] = [put_record(TOKEN, id, to_plain(token), None)]
        if name is not None:  # from now on nobody else's name can read like it
            writes += [Introduce(name, known=True), *_sealing(core, {*sealed(core), name})]
        return writes

    core.store.commit(plan)
    return text, token


def everyone(core: Core, caller: Principal) -> list[Token]:
    """All tokens, also those that were revoked; the oldest first."""
    authorize(caller, "tokens")
    found = [convert(record.value, Token) for record in core.store.records(TOKEN)]
    return sorted(found, key=lambda token: token.created_at)


def revoke(core: Core, caller: Principal, id: str) -> Token:
    """It is worth nothing from now on. Its agent stays sealed."""
    authorize(caller, "tokens")
    revoked: list[Token] = []

    def plan() -> Sequence[Write]:
        held = _find(core, id)
        if held is None:
            raise Missing(f"there is no token {id!a}", field="id", hint="postroom token list shows all")
        token = convert(held.value, Token)
        gone = token if token.revoked_at else replace(token, revoked_at=core.now().wall)
        revoked[:] = [gone]
        return [put_record(TOKEN, id, to_plain(gone), held)]

    core.store.commit(plan)
    return revoked[0]


def unseal(core: Core, caller: Principal, agent: str) -> str:
    """Let callers without a token speak for this agent again, beside those with one; what it is called today."""
    authorize(caller, "tokens")
    name = _resident(core, agent)
    core.store.commit(lambda: _sealing(core, {one for one in sealed(core) if fold(one) != fold(name)}))
    return name


def holder(core: Core, text: Any) -> Principal:
    """Who shows this token. Whatever is wrong with it, the answer is the same."""
    token = _known(core, text)
    if token is None:
        raise NotAllowed("this token is not valid", field="token", hint="ask the operator for another one")
    if OPERATOR in token.scopes:
        return Principal(f"token:{token.id}", operator=True, token=token.id)
    return Principal(f"agent:{token.agent}", agent=token.agent, scopes=frozenset(token.scopes), token=token.id)


def is_live(core: Core, id: str) -> bool:
    """Is the token with this id still worth something?"""
    return live(core, id) is not None


def live(core: Core, id: str) -> Token | None:
    """The token with this id, if it is still worth something."""
    held = _find(core, id)
    token = None if held is None else convert(held.value, Token)
    return token if token is not None and token.is_live else None


def sealed(core: Core) -> list[str]:
    """The agents for which nobody speaks without a token."""
    held = find_record(core, SEALED, EVERYONE)
    return [] if held is None else list(held.value)


def standing(core: Core, principal: Principal, named: str | None = None) -> Principal:
    """What a caller is today. Where anybody is sealed, one without a token is the agent it names, or nobody:
    it reaches what that agent reaches and nothing else, whatever the verb.
    """
    if not principal.heeds_seals or not (closed := sealed(core)):
        return principal
    named = principal.agent or named  # who speaks for one agent all the time speaks for no other
    name = None if named is None else check_agent(named, "agent_id")
    if name is None or fold(name) == POSTMASTER:  # whose letters are everybody's
        return _NOBODY
    if _is_closed(core, name, set(map(fold, closed))):
        ways = "the action `authenticate`, `auth` in map/connect, a header"
        hint = f"show it: {ways}, or POSTROOM_AUTH_TOKEN for postroom mcp and hooks"
        problem = f"{name!r} or an agent above it has a token, and without it nobody acts as {name!r}"
        raise NotAllowed(problem, field="agent_id", hint=hint)
    return principal if principal.agent is not None else Principal(principal.name, agent=name)


def _is_closed(core: Core, name: str, closed: set[str]) -> bool:
    """Does the agent or one above it have a token? A child is spawned with its parent's token and has none of its
    own, so the parent's token guards its mail too.
    """
    seen: set[str] = set()
    step: str | None = name
    while step is not None and fold(step) not in seen:
        seen.add(fold(step))
        now = core_names.resident(core, core.store.spelling(step) or step)
        if fold(now) in closed:
            return True
        card = find_record(core, CARD, now)
        step = None if card is None else parent_of(convert(card.value, Card))
    return False


def standing_or_nobody(core: Core, principal: Principal) -> Principal:
    """The same, where nobody is there to be told why not."""
    try:
        return standing(core, principal)
    except NotAllowed:
        return _NOBODY


def _resident(core: Core, agent: Any) -> str:
    """What an agent is called today. Nobody speaks for the house."""
    name = core_names.resident(core, meant(check_agent(agent, "agent"), core.limits.human))
    if fold(name) == POSTMASTER:
        raise Invalid(f"{POSTMASTER!r} is the house's own name", field="agent", hint="choose another name")
    return name


def _known(core: Core, text: Any) -> Token | None:
    if not isinstance(text, str) or len(text) > _LONGEST or not text.isascii():
        return None
    prefix, _, rest = text.partition("_")
    held = _find(core, rest.partition("_")[0]) if prefix == PREFIX else None
    token = None if held is None else convert(held.value, Token)
    expected = token.hash if token is not None else "0" * 64  # as long as for a token that is there
    is_right = hmac.compare_digest(_hash(text), expected)
    return token if token is not None and is_right and token.is_live else None


def _find(core: Core, id: Any) -> Record | None:
    known = isinstance(id, str) and 0 < len(id) <= 32 and id.isalnum()
    return find_record(core, TOKEN, id) if known else None


def _sealing(core: Core, names: set[str]) -> list[Write]:
    held = find_record(core, SEALED, EVERYONE)
    return [put_record(SEALED, EVERYONE, sorted(names) or None, held)] if names or held else []


def _check_scopes(agent: str | None, scopes: Sequence[str] | None) -> tuple[str, ...]:
    if agent is None:
        if scopes not in (None, [OPERATOR], (OPERATOR,)):
            raise Invalid(
                "a token without an agent is an operator's", field="scope", hint=f"{OPERATOR}, or --agent"
            )
        return (OPERATOR,)
    chosen = tuple(dict.fromkeys(listed(scopes, "scope"))) if scopes else SCOPES
    if OPERATOR in chosen:
        text = f"{OPERATOR} is for tokens without an agent"
        raise Invalid(text, field="scope", hint=f"leave --agent out, or choose of {', '.join(SCOPES)}")
    wrong = [scope for scope in chosen if scope not in SCOPES]
    if wrong:
        hint = f"{', '.join(SCOPES)}; or {OPERATOR}, without an agent"
        raise Invalid(f"there is no scope {wrong[0]!a}", field="scope", hint=hint)
    return chosen


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()
