"""Authorisation: one table says which principal may do what.

`perform` calls `authorize` before it runs a verb, with an action that has a row in `RULES`. A program that opens
the room's file through the library is the room's owner and may do everything. A server knows its callers and
passes the principal of an agent instead; that agent reaches its own mailbox and nothing else.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from ..errors import Invalid, NotAllowed
from ..model.message import Proof
from ..model.names import POSTMASTER, check_agent, fold

Rule = Literal["own", "operator", "anyone"]
SCOPES = ("read", "send", "work", "manage")  # the rights that a token can carry; by default all of them

# action -> the agent whose mailbox it is ("own"), only the operator, or anyone who has access to the room.
RULES: dict[str, Rule] = {
    "send": "own",
    "check": "own",
    "read": "own",
    "count": "own",
    "wait": "own",
    "ring": "own",  # alert its agent of mail
    "show": "own",  # record that a letter was shown to its agent
    "claim": "own",
    "settle": "own",
    "dead": "own",
    "revive": "own",
    "purge": "own",
    "unsend": "own",
    "threads": "own",
    "escalations": "own",
    "waiting": "own",  # see what waits for whom
    "block": "own",
    "task": "own",
    "search": "own",
    "trace": "own",
    "register": "own",
    "heartbeat": "own",
    "join": "own",
    "agents": "anyone",
    "talks": "own",  # read conversations; seats and letters decide which ones
    "converse": "own",  # change conversations
    "template": "anyone",
    "templates": "operator",
    "room": "operator",
    "tokens": "operator",
    "peers": "operator",
    "people": "anyone",
    "webhooks": "operator",
    "janitor": "operator",
    "doctor": "operator",
    "backup": "operator",
    "export": "operator",
    "import": "operator",
}

# action -> scopes of which a token must have at least one. Working on letters or answering them includes reading.
_READ, _SEND = frozenset({"read", "work"}), frozenset({"send"})
NEEDS: dict[str, frozenset[str]] = {
    "send": _SEND,
    "unsend": _SEND,
    "task": frozenset({"send", "work"}),
    "check": _READ,
    "read": _READ | _SEND,
    "count": _READ,
    "wait": _READ,
    "ring": _READ,
    "show": _READ,
    "threads": _READ,
    "escalations": _READ,
    "waiting": _READ,
    "search": _READ,
    "trace": _READ,
    "claim": frozenset({"work"}),
    "settle": frozenset({"work"}),
    "dead": frozenset({"work"}),
    "revive": frozenset({"work"}),
    "purge": frozenset({"work"}),
    "block": frozenset({"manage"}),
    "register": frozenset({"manage"}),
    "heartbeat": frozenset({"manage"}),
    "join": _SEND,
    "talks": _READ,
    "converse": _SEND,
}

# What settles or hides mail that waits for a person, takes an alert of it, or keeps mail from reaching them, as a
# card that allows nobody: in a person's mailbox it needs that person's proof (`proof`). Reading needs none, and a
# letter is signed when it is composed.
_WORK_OF_PERSON = frozenset({"claim", "settle", "revive", "purge", "unsend", "task", "escalations"})
PROVEN = _WORK_OF_PERSON | {"block", "register", "converse", "show", "ring"}

# Actions in which a caller could pose as the postmaster, and the field that names the agent in each.
_NAME_FIELD = {"send": "sender", "register": "id", "join": "agent_id"}


# How an error names the action, where the action's own name is not a verb.
_PHRASES = {
    "count": "count letters",
    "wait": "wait for mail",
    "ring": "alert an agent of mail",
    "show": "record what was shown",
    "claim": "claim letters",
    "settle": "settle letters",
    "dead": "look at dead letters",
    "threads": "look at threads",
    "escalations": "handle escalations",
    "waiting": "see what waits",
    "block": "block senders",
    "task": "handle tasks",
    "heartbeat": "send heartbeats",
    "join": "join scopes",
    "agents": "look at agents",
    "talks": "look at conversations",
    "converse": "change conversations",
    "template": "use templates",
    "templates": "change templates",
    "room": "act as the operator",
    "tokens": "manage tokens",
    "peers": "manage peers",
    "people": "look at people",
    "webhooks": "manage webhooks",
    "janitor": "tidy up",
    "doctor": "look for damage",
    "backup": "make backups",
}


class Principal(Struct, frozen=True):
    """The caller of a verb, and what it may do."""

    name: str
    agent: str | None = None  # an agent's principal reaches that agent's mailbox
    operator: bool = False
    scopes: frozenset[str] | None = None  # the rights of its token; None: it has no token, and no limit
    token: str | None = None  # the id of the token that it presented
    heeds_seals: bool = False  # operator only while no agent of the room is sealed (see `tokens`)
    visit: str = ""  # the id of a visit of the dashboard: it looks at everything, and writes nothing
    signer: Any = None  # the person's own key, where a person calls in this process (`proof.Signer`)
    proven: tuple[str, Proof] | None = None  # the person who signed this request over a wire


OWNER = Principal("owner", operator=True)
NOTIFIER = Principal("notifier", operator=True)  # a watch or a webhook: it alerts people without their key
SOCKET = Principal(OWNER.name, operator=True, heeds_seals=True)  # a caller of the socket without a token


def agent_principal(agent: str) -> Principal:
    """Return the principal of an agent without a token."""
    return Principal(f"agent:{agent}", agent=check_agent(agent, "agent"))


def phrase_of(action: str) -> str:
    """Return how an error names the action."""
    return _PHRASES.get(action, action)


def authorize(principal: Principal, action: str, mailbox: str | None = None, *, reads: bool = False) -> None:
    """Raise NotAllowed unless the principal may do this. `reads`: does it only look?

    The result never depends on whether the mailbox exists.
    """
    rule = RULES[action]
    field = _NAME_FIELD.get(action)
    if field is not None and mailbox is not None and fold(mailbox) == POSTMASTER:
        raise Invalid(
            f"{POSTMASTER!r} is reserved for Postroom's own notices", field=field, hint="choose another name"
        )
    # After the postmaster: not even the operator writes in its name (G8).
    if principal.operator or rule == "anyone" or (reads and principal.visit):
        return
    phrase = phrase_of(action)
    if rule == "own" and mailbox is not None and mailbox == principal.agent:
        if principal.scopes is None or principal.scopes & NEEDS[action]:
            return
        raise NotAllowed(f"the token of {principal.name} does not let it {phrase}")
    # The same words for a mailbox that exists and for one that does not (G8).
    target = "the room" if mailbox is None else f"the mailbox {mailbox!r}"
    is_anonymous = principal.agent is None and principal.scopes is None  # neither an agent nor a peer system
    hint = (
        "an agent in this room has a token: present one, or name the agent you act for" if is_anonymous else None
    )
    raise NotAllowed(f"{principal.name} may not {phrase} in {target}", hint=hint)
