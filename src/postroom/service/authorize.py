"""Who may do what, in one table. Every verb asks here first; a verb without a row is refused.

In the library, whoever can open the room's file is its owner and may do everything. Surfaces that know their
callers pass an agent instead, and that agent reaches its own mailbox and nothing else.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ..errors import Invalid, NotAllowed
from ..model.names import check_agent, fold
from .office import POSTMASTER

Rule = Literal["own", "operator", "anyone"]

# action -> who: the mailbox's own agent, only the operator, or anyone who got in.
RULES: dict[str, Rule] = {
    "send": "own",
    "check": "own",
    "read": "own",
    "count": "own",
    "wait": "own",
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
    "converse": "anyone",  # which conversations one sees is told by one's letters and seats
    "template": "anyone",
    "templates": "operator",
    "room": "operator",
    "rename": "operator",
    "janitor": "operator",
    "doctor": "operator",
    "backup": "operator",
    "export": "operator",
    "import": "operator",
}

# Verbs that would let a caller speak as the house, and the field that names the speaker.
_NAMED_BY = {"send": "sender", "register": "id", "join": "agent_id"}


class Principal(Struct, frozen=True):
    """Who is calling."""

    name: str
    agent: str | None = None  # an agent's principal reaches that agent's mailbox
    operator: bool = False


OWNER = Principal("owner", operator=True)


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
        return
    target = "the room" if mailbox is None else f"the mailbox {mailbox!r}"
    raise NotAllowed(f"{principal.name} may not {action} in {target}")
