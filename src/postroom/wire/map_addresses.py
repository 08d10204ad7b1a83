"""Whom a MAP message is for: every form of `to` that the SDK, its server and agent-inbox write, as one value.

It refuses to know who is there: `map_routing` asks the directory.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ..errors import Invalid

KIN = ("parent", "children", "ancestors", "descendants", "siblings")
_GROUPS = ("all", "agents")
MOST = 10_000  # addresses in one list
_HINT = (
    "a name, {agent}, {agents}, {agentId}, {participant}, {scope}, {role, within}, {parent|children|ancestors|"
    "descendants|siblings: true}, {broadcast: true}, {participants: all|agents}, {system, agent, scope}, or a "
    "list of these"
)


class Role(Struct, frozen=True, order=True):
    """Everybody with a role, in one scope or anywhere."""

    name: str
    within: str | None = None


class Kin(Struct, frozen=True, order=True):
    """Those above, below or beside the sender."""

    relation: str
    depth: int | None = None  # how far; None: all the way


class Remote(Struct, frozen=True, order=True):
    """Somebody in a named system, which may be this one; without an agent, everybody whom it shows."""

    system: str
    agent: str = ""
    scope: str = ""


class Address(Struct, frozen=True, kw_only=True):
    """All that a `to` names."""

    agents: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    roles: tuple[Role, ...] = ()
    kin: tuple[Kin, ...] = ()
    remote: tuple[Remote, ...] = ()
    everyone: bool = False

    @property
    def is_plain(self) -> bool:
        """Does it name agents and nothing that has to be looked up?"""
        return not (self.scopes or self.roles or self.kin or self.remote or self.everyone)


def read_address(to: Any) -> Address:
    """What was said, whatever its form."""
    if isinstance(to, dict) and len(to) == 1 and isinstance(name := to.get("agent"), str):  # most
        return _of_name(name)
    if not isinstance(to, list):
        return _one(to)
    if not to or len(to) > MOST:
        raise Invalid(f"a list of {len(to)}; 1 to {MOST}", field="to", hint=_HINT)
    return _joined([_one(each) for each in to])


def _one(to: Any) -> Address:
    if isinstance(to, str):
        return _of_name(to)
    if not isinstance(to, dict):
        raise Invalid("names nobody", field="to", hint=_HINT)
    if isinstance(system := to.get("system"), str):
        return _at(system, to)
    for word in ("agent", "agentId", "agent_id", "participant"):
        if to.get(word) is not None:
            return _of_name(_text(to, word))
    if isinstance(names := to.get("agents"), list):
        return _joined([_of_name(name) if isinstance(name, str) else _one(None) for name in names])
    return _of_group(to)


def _at(system: str, to: dict[str, Any]) -> Address:
    """`{system, agent}`, `{system, agents}` or `{system}`, each with a scope over there, if one is said."""
    names = to.get("agents", [_text(to, "agent") if to.get("agent") is not None else ""])
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise Invalid("must be names", field="to.agents", hint=_HINT)
    scope = "" if to.get("scope") is None else _text(to, "scope")
    return Address(remote=tuple(Remote(system, name, scope) for name in names))


def _of_group(to: dict[str, Any]) -> Address:
    if to.get("scope") is not None:
        return Address(scopes=(_text(to, "scope"),))
    if to.get("role") is not None:
        within = to.get("within")
        return Address(roles=(Role(_text(to, "role"), None if within is None else _text(to, "within")),))
    if to.get("broadcast") is True or to.get("participants") in _GROUPS:
        return Address(everyone=True)
    for relation in KIN:
        if to.get(relation) is True:
            return Address(kin=(Kin(relation, _depth(to)),))
    raise Invalid("names nobody", field="to", hint=_HINT)


def _of_name(text: str) -> Address:
    """`bob`, `agent:bob`, `scope:team`, `bob@system`, `bob@system/scope`, `@system`."""
    kind, colon, rest = text.partition(":")
    if colon and kind == "scope" and rest:
        return Address(scopes=(rest,))
    name = rest if colon and kind == "agent" else text
    agent, at, place = name.partition("@")
    if at and place:
        system, _, scope = place.partition("/")
        return Address(remote=(Remote(system, agent, scope),))
    if not name:
        raise Invalid("names nobody", field="to", hint=_HINT)
    return Address(agents=(name,))


def _joined(some: list[Address]) -> Address:
    def each(field: str) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(one for address in some for one in getattr(address, field)))

    names = ("agents", "scopes", "roles", "kin", "remote")
    found = Address(everyone=any(address.everyone for address in some), **{name: each(name) for name in names})
    if found == Address():
        raise Invalid("names nobody", field="to", hint=_HINT)
    return found


def _text(to: dict[str, Any], word: str) -> str:
    value = to.get(word)
    if not isinstance(value, str) or not value:
        raise Invalid("must be text", field=f"to.{word}", hint=_HINT)
    return value


def _depth(to: dict[str, Any]) -> int | None:
    depth = to.get("depth")
    if depth is None:
        return None
    if not isinstance(depth, int) or isinstance(depth, bool) or depth < 1:
        raise Invalid("must be a whole number from 1 on", field="to.depth")
    return depth
