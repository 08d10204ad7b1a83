"""Names, ids and addresses, and the one validator of each. Every name from outside passes it.

A name can never be a path, never hide a character, and never read like another agent's name: its characters are
ASCII, so Unicode look-alikes are refused, and `fold` makes `Coder` and `coder` the same name.

An address is `agent` for an agent of this room, or `agent@system/scope` for one at another system. The first `@`
splits, then the first `/` splits off a scope. `@system` addresses every agent which that system exposes; at the
system `*` an agent is looked up wherever it can be found.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from msgspec import Struct

from ..errors import Invalid, LookAlike

AGENT_RULE = "1 to 128 of A-Z a-z 0-9 . _ - starting with a letter or digit, optionally swarm/agent"
NAME_RULE = "1 to 128 of A-Z a-z 0-9 . _ - starting with a letter or digit"
SCOPE_RULE = "1 to 128 of A-Z a-z 0-9 . _ - : / where each part between : and / starts with a letter or digit"
ID_RULE = "1 to 200 of A-Z a-z 0-9 . _ : -"
KIND_RULE = "1 to 64 of A-Z a-z 0-9 . _ : - starting with a letter"
PARTY_RULE = "an agent's name, or agent@system for one at another system"
BROADCAST = "broadcast:"
AT = "@"  # separates an agent from its system; local names never contain it
POSTMASTER = "postmaster"  # the sender of Postroom's own notices; no agent may use the name
ANY = "any:"  # followed by capabilities, with commas: some agent that has all of them

fold = str.lower  # the form in which two spellings of a name are equal

# Patterns are texts, which `re` compiles at their first use and keeps: most commands need one of them.
NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
_AGENT = rf"{NAME_PATTERN}(?:/{NAME_PATTERN})?"
# At most 32 parts, so that the id of a scope's catch-all conversation stays an id (model/thread.py). No part is
# `..` or empty: a scope may name a folder.
_SCOPE = r"(?!.{129})[A-Za-z0-9][A-Za-z0-9._-]*(?:[:/][A-Za-z0-9][A-Za-z0-9._-]*){0,31}"
_PARTY = rf"(?:{_AGENT})?@(?:\*|{NAME_PATTERN})(?:/{_SCOPE})?"
_ID = r"[A-Za-z0-9._:-]{1,200}"
_KIND = r"[A-Za-z][A-Za-z0-9._:-]{0,63}"


# The human has one mailbox, whatever a source design calls it.
HUMAN = "human"
ONE_MAILBOX = {"user": HUMAN, "ceo": HUMAN}
PEOPLE = frozenset({HUMAN, *ONE_MAILBOX})  # the folded names of people, where the room does not say others
_checked_agents: dict[str, str] = {}  # a cache: every letter names two agents
_MOST_CHECKED = 1024


def look_alike(name: str, held: str, field: str) -> LookAlike:
    """Return the error for a name that differs only in case from that of the agent `held`."""
    return LookAlike(f"{name!r} differs only in case from the agent {held!r}", field=field, hint=f"write {held!r}")


def check_agent(name: Any, field: str) -> str:
    """Return the name of an agent, such as `coder` or `swarm/agent`. Other names of the human become `human`."""
    found = _checked_agents.get(name) if type(name) is str else None
    if found is not None:
        return found
    checked = _check(name, field, _AGENT, AGENT_RULE)
    # `user` and `ceo` have at most four letters: longer names are not looked up.
    agent = checked if len(checked) > 4 else ONE_MAILBOX.get(fold(checked), checked)
    # Names come from callers, so the cache must be bounded.
    if len(_checked_agents) >= _MOST_CHECKED:
        _checked_agents.clear()
    _checked_agents[checked] = agent
    return agent


def meant(name: str, human: str) -> str:
    """Return the mailbox that a name stands for, where `human` is the setting for the human's mailbox."""
    return check_agent(human, HUMAN) if fold(name) == HUMAN else name


def check_remote_agent(name: Any, field: str) -> str:
    """Return the name of an agent at another system. It is spelt like ours, but `user` there is not our human."""
    return _check(name, field, _AGENT, AGENT_RULE)


def check_party(name: Any, field: str) -> str:
    """Return the name of a sender or recipient: a local agent, or `agent@system`."""
    if type(name) is str and AT in name:
        return _check(name, field, _PARTY, PARTY_RULE)
    return check_agent(name, field)


def check_id(value: Any, field: str) -> str:
    """Return the id of a message, conversation, thread or task."""
    return _check(value, field, _ID, ID_RULE)


def check_scope(value: Any, field: str) -> str:
    """Return the name of a scope (a swarm, a team): `team`, or in MAP's spelling `swarm:team` or `org/team`."""
    return _check(value, field, _SCOPE, SCOPE_RULE)


def is_scope_only(value: str) -> bool:
    """Return whether this can name a scope but no agent, such as `swarm:team`."""
    return bool(re.fullmatch(_SCOPE, value)) and not re.fullmatch(_AGENT, value)


def check_name(value: Any, field: str) -> str:
    """Return a single name, such as a system's or a template's: like an agent's, without the slash."""
    return _check(value, field, NAME_PATTERN, NAME_RULE)


def check_kind(value: Any, field: str) -> str:
    """Return the kind of a letter: an open word such as `task` or `handoff`."""
    return _check(value, field, _KIND, KIND_RULE)


def _check(value: Any, field: str, pattern: str, words: str) -> str:
    if not isinstance(value, str):
        raise Invalid(f"must be text, not {type(value).__name__}", field=field, hint=words)
    if not re.fullmatch(pattern, value):
        raise Invalid(_complaint(value), field=field, hint=words)
    # A subclass of str could change its mind after the check.
    return value if type(value) is str else str.__str__(value)


def _complaint(value: str) -> str:
    if not value:
        return "is empty"
    # An error must not repeat a megabyte that the caller sent.
    if len(value) > 256:
        return f"is {len(value)} characters long"
    return f"{value!a} is not allowed"


# Addresses

ANYWHERE = "*"  # the system of an agent that has to be looked up
_SYSTEM = rf"\*|{NAME_PATTERN}"
_FIELDS = ("agent", "system", "scope")


class Address(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An address in its three pieces; a missing piece is empty."""

    agent: str = ""
    system: str = ""
    scope: str = ""

    def __str__(self) -> str:
        return format_address(self)


def parse_address(value: Any, field: str) -> Address:
    """Return the address in a text, in an object with the three pieces by name, or in an Address."""
    if isinstance(value, Address):
        value = {name: getattr(value, name) for name in _FIELDS}
    if isinstance(value, dict):
        return _check_address(_address_from_fields(value, field), field)
    if not isinstance(value, str):
        raise Invalid(f"must be text, not {type(value).__name__}", field=field, hint=PARTY_RULE)
    return _address_from_text(value, field)


@lru_cache(maxsize=1024)  # a room parses the same few addresses again and again
def _address_from_text(value: str, field: str) -> Address:
    agent, at, rest = value.partition(AT)
    if not at:
        return Address(agent=check_agent(value, field))
    system, slash, scope = rest.partition("/")
    if slash and not scope:
        raise Invalid(f"{value[:300]!a} ends with a '/'", field=field, hint="agent@system/scope")
    return _check_address(Address(agent=agent, system=check_system(system, field), scope=scope), field)


def format_address(address: Address) -> str:
    """Return the normal text form, which `parse_address` reads back."""
    if not address.system:
        return address.agent
    tail = f"/{address.scope}" if address.scope else ""
    return f"{address.agent}{AT}{address.system}{tail}"


def check_system(value: Any, field: str) -> str:
    """Return the name of another system, or `*`."""
    return _check(value, field, _SYSTEM, "a system's name, as in agent@system")


def system_of(mailbox: str) -> str:
    """Return the system in the name of a mailbox; empty for a local mailbox."""
    return mailbox.partition(AT)[2].partition("/")[0]


def agent_of(mailbox: str) -> str:
    """Return the agent in the name of a mailbox; empty if it stands for a whole system."""
    return mailbox.partition(AT)[0]


def at_system(agent: str, system: str) -> str:
    return f"{agent}{AT}{system}"


def _address_from_fields(value: dict[Any, Any], field: str) -> Address:
    unknown = [name for name in value if name not in _FIELDS]
    if unknown:
        raise Invalid(f"has no {unknown[0]!a}", field=field, hint=", ".join(_FIELDS))
    return Address(**{name: value.get(name) or "" for name in _FIELDS})


def _check_address(address: Address, field: str) -> Address:
    if not address.system:
        if address.scope:
            raise Invalid(
                "names a scope without a system",
                field=field,
                hint="broadcast:<scope> for everybody in a scope here",
            )
        return Address(agent=check_agent(address.agent, field))
    check_system(address.system, field)
    if address.scope:
        check_scope(address.scope, field)
    if address.agent:
        check_remote_agent(address.agent, field)
    elif address.system == ANYWHERE:
        raise Invalid("names nobody", field=field, hint=AGENT_RULE)
    return address
