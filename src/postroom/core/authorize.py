"""Who may do what, in one table. Every verb asks here first; a verb without a row is refused.

In the library, whoever can open the room's file is its owner and may do everything. Surfaces that know their
callers pass an agent instead, and that agent reaches its own mailbox and nothing else.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ..errors import Invalid, NotAllowed
from ..model.names import POSTMASTER, check_agent, fold

Rule = Literal["own", "operator", "anyone"]
SCOPES = ("read", "send", "work", "manage")  # what a token may be good for; all of it, unless it says otherwise

# action -> who: the mailbox's own agent, only the operator, or anyone who got in.
RULES: dict[str, Rule] = {
    "send": "own",
    "check": "own",
    "read": "own",
    "count": "own",
    "wait": "own",
    "ring": "own",  # to tell its agent of mail
    "show": "own",  # to say that a letter was put before its agent
    "claim": "own",
    "settle": "own",
    "dead": "own",
    "revive": "own",
    "purge": "own",
    "unsend": "own",
    "threads": "own",
    "escalations": "own",
    "block": "own",
    "task": "own",
    "search": "own",
    "trace": "own",
    "register": "own",
    "heartbeat": "own",
    "join": "own",
    "agents": "anyone",
    "talks": "own",  # to look at conversations; which ones is told by one's seats and letters
    "converse": "own",  # to change them
    "template": "anyone",
    "templates": "operator",
    "room": "operator",
    "rename": "operator",
    "tokens": "operator",
    "peers": "operator",
    "webhooks": "operator",
    "janitor": "operator",
    "doctor": "operator",
    "backup": "operator",
    "export": "operator",
    "import": "operator",
}

# What a token must be good for, any of these. Who works on letters or answers them may read them.
_LOOK, _WORD = frozenset({"read", "work"}), frozenset({"send"})
NEEDS: dict[str, frozenset[str]] = {
    "send": _WORD,
    "unsend": _WORD,
    "task": frozenset({"send", "work"}),
    "check": _LOOK,
    "read": _LOOK | _WORD,
    "count": _LOOK,
    "wait": _LOOK,
    "ring": _LOOK,
    "show": _LOOK,
    "threads": _LOOK,
    "escalations": _LOOK,
    "search": _LOOK,
    "trace": _LOOK,
    "claim": frozenset({"work"}),
    "settle": frozenset({"work"}),
    "dead": frozenset({"work"}),
    "revive": frozenset({"work"}),
    "purge": frozenset({"work"}),
    "block": frozenset({"manage"}),
    "register": frozenset({"manage"}),
    "heartbeat": frozenset({"manage"}),
    "join": _WORD,
    "talks": _LOOK,
    "converse": _WORD,
}

# Verbs that would let a caller speak as the house, and the field that names the speaker.
_NAMED_BY = {"send": "sender", "register": "id", "join": "agent_id"}


# What an action is to do, where its own name does not say it.
_WORDS = {
    "count": "count letters",
    "wait": "wait for mail",
    "ring": "ring for mail",
    "show": "say what was shown",
    "claim": "claim letters",
    "settle": "settle letters",
    "dead": "look at dead letters",
    "threads": "look at threads",
    "escalations": "handle escalations",
    "block": "block senders",
    "task": "handle tasks",
    "heartbeat": "give signs of life",
    "join": "join scopes",
    "agents": "look at agents",
    "talks": "look at conversations",
    "converse": "change conversations",
    "template": "use templates",
    "templates": "change templates",
    "room": "do operators' work",
    "rename": "rename agents",
    "tokens": "manage tokens",
    "peers": "say who is a peer",
    "webhooks": "say who is called when mail waits",
    "janitor": "tidy up",
    "doctor": "look for damage",
    "backup": "make backups",
}


class Principal(Struct, frozen=True):
    """Who is calling."""

    name: str
    agent: str | None = None  # an agent's principal reaches that agent's mailbox
    operator: bool = False
    scopes: frozenset[str] | None = None  # what its token is good for; None: there is none, and no limit
    token: str | None = None  # the id of the token it showed
    heeds_seals: bool = False  # is it the operator only as long as nobody here is sealed (`tokens`)?


OWNER = Principal("owner", operator=True)
SOCKET = Principal(OWNER.name, operator=True, heeds_seals=True)  # who opens the socket and shows no token


def agent_principal(agent: str) -> Principal:
    return Principal(f"agent:{agent}", agent=check_agent(agent, "agent"))


def authorize(principal: Principal, action: str, mailbox: str | None = None) -> None:
    """Pass, or NotAllowed. The answer never depends on whether the mailbox exists."""
    rule = RULES[action]
    field = _NAMED_BY.get(action)
    if field is not None and mailbox is not None and fold(mailbox) == POSTMASTER:
        raise Invalid(f"{POSTMASTER!r} is the house's own name", field=field, hint="choose another name")
    if principal.operator or rule == "anyone":
        return
    if rule == "own" and mailbox is not None and mailbox == principal.agent:
        if principal.scopes is None or principal.scopes & NEEDS[action]:
            return
        raise NotAllowed(f"the token of {principal.name} does not let it {_said(action)}")
    target = "the room" if mailbox is None else f"the mailbox {mailbox!r}"
    is_nobody = principal.agent is None and principal.scopes is None  # nor another system
    hint = "some agent here has a token: show one, or name the agent you speak for" if is_nobody else None
    raise NotAllowed(f"{principal.name} may not {_said(action)} in {target}", hint=hint)


def _said(action: str) -> str:
    """As a sentence says it."""
    return _WORDS.get(action, action)
