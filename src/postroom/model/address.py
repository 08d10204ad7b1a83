"""Where somebody is reached: an agent here, or an agent, a scope or everybody at another system.

`agent@system`: the first `@` splits, and the first `/` after it splits off a scope. `@system` is everybody who is
exposed there; at the system `*` an agent is wherever it can be found.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from msgspec import Struct

from ..errors import Invalid
from .names import AGENT_RULE, AT, PARTY_RULE, check_agent, check_remote_agent, check_scope

ANYWHERE = "*"  # the system of an agent that is to be found
_SYSTEM = re.compile(r"\*|[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_FIELDS = ("agent", "system", "scope")


class Address(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Its three pieces; an empty one was not said."""

    agent: str = ""
    system: str = ""
    scope: str = ""

    def __str__(self) -> str:
        return format_address(self)


def parse_address(value: Any, field: str) -> Address:
    """An address from its text, its three pieces by name, or an Address."""
    if isinstance(value, Address):
        value = {name: getattr(value, name) for name in _FIELDS}
    if isinstance(value, dict):
        return _checked(_pieces(value, field), field)
    if not isinstance(value, str):
        raise Invalid(f"must be text, not {type(value).__name__}", field=field, hint=PARTY_RULE)
    return _of_text(value, field)


@lru_cache(maxsize=1024)  # the same few are read again and again
def _of_text(value: str, field: str) -> Address:
    agent, at, rest = value.partition(AT)
    if not at:
        return Address(agent=check_agent(value, field))
    system, slash, scope = rest.partition("/")
    if slash and not scope:
        raise Invalid(f"{value[:300]!a} ends with a '/'", field=field, hint="agent@system/scope")
    return _checked(Address(agent=agent, system=check_system(system, field), scope=scope), field)


def format_address(address: Address) -> str:
    """The normal text form, from which the same address is read."""
    if not address.system:
        return address.agent
    tail = f"/{address.scope}" if address.scope else ""
    return f"{address.agent}{AT}{address.system}{tail}"


def check_system(value: Any, field: str) -> str:
    """The name of another system, or `*`."""
    if not isinstance(value, str):
        raise Invalid(f"must be text, not {type(value).__name__}", field=field, hint="a system's name")
    if not _SYSTEM.fullmatch(value):
        raise Invalid(f"{value[:300]!a} is no name of a system", field=field, hint="agent@system")
    return value


def is_remote(mailbox: str) -> bool:
    """Is it the name of somebody at another system?"""
    return AT in mailbox


def system_of(mailbox: str) -> str:
    """The system in the name of a mailbox; empty if it is one of ours."""
    return mailbox.partition(AT)[2].partition("/")[0]


def agent_of(mailbox: str) -> str:
    """The agent in the name of a mailbox; empty if it is a whole system."""
    return mailbox.partition(AT)[0]


def at_system(agent: str, system: str) -> str:
    return f"{agent}{AT}{system}"


def _pieces(value: dict[Any, Any], field: str) -> Address:
    unknown = [name for name in value if name not in _FIELDS]
    if unknown:
        raise Invalid(f"has no {unknown[0]!a}", field=field, hint=", ".join(_FIELDS))
    said = {name: value.get(name) or "" for name in _FIELDS}
    for name, piece in said.items():
        if not isinstance(piece, str):
            raise Invalid("must be text", field=f"{field}.{name}")
    return Address(**said)


def _checked(address: Address, field: str) -> Address:
    if not address.system:
        if address.scope:
            hint = "broadcast:<scope> for everybody in a scope here"
            raise Invalid("names a scope without a system", field=field, hint=hint)
        return Address(agent=check_agent(address.agent, field))
    check_system(address.system, field)
    if address.scope:
        check_scope(address.scope, field)
    if address.agent:
        check_remote_agent(address.agent, field)
    elif address.system == ANYWHERE:
        raise Invalid("names nobody", field=field, hint=AGENT_RULE)
    return address
