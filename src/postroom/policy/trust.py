"""Trust: the mail that may pass to and from other systems.

The same rules hold in both directions: the system must be a trusted peer, or one for which a trusted peer
speaks, and the scopes of both sides must be permitted to exchange mail. A peer without scope permissions is not
limited by scope. A letter without a scope is in the scope `default`; so is an agent without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import HopsSpent, LoopDetected, Missing, NotAllowed
from ..model.message import DEFAULT_SCOPE, same_name
from ..model.names import fold
from ..model.peer import EVERYWHERE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ..errors import PostroomError
    from ..model.agent import Card
    from ..model.message import Message
    from ..model.names import Address
    from ..model.peer import Peer
    from .limits import Limits


def upstream(limits: Limits) -> list[str]:
    """Return the hubs to ask for a system that is unknown here, in order."""
    return [name.strip() for name in limits.federation_upstream.split(",") if name.strip()]


# Routes


def routes_to(peers: Mapping[str, Peer], system: str, limits: Limits) -> Iterator[Peer]:
    """Yield the peers through which a system is reached: itself, those that relay for it, the upstream hubs.

    A distrusted system is not reached through any peer.
    """
    itself = _named(peers, system)
    # Else distrust could be passed by, through a hub.
    if itself is not None and not itself.trusted:
        return
    if itself is not None:
        yield itself  # a generator, because most callers need only the first
    leading = [peer for peer in peers.values() if speaks_for(peer, system)]
    above = [peer for name in upstream(limits) if (peer := _named(peers, name))]
    unique = {peer.system: peer for peer in (*leading, *above) if peer.trusted and peer is not itself}
    yield from unique.values()


def route_to(peers: Mapping[str, Peer], system: str, limits: Limits) -> Peer | None:
    """Return the best peer through which a system is reached."""
    return next(routes_to(peers, system, limits), None)


def no_route(peers: Mapping[str, Peer], system: str, field: str = "to") -> PostroomError:
    """Return the error for a letter to a system that cannot be reached."""
    if _named(peers, system) is not None:
        return NotAllowed(
            f"the system {system!r} is not trusted", field=field, hint=f"postroom peers trust {system}"
        )
    hint = f"postroom peers add {system}, or --relays-for {system} at a peer that leads there"
    return Missing(f"there is no route to the system {system!r}", field=field, hint=hint)


def speaks_for(peer: Peer, system: str) -> bool:
    """Return whether a peer may send for a system: its own, one it relays for, or any if it mounted this room."""
    return EVERYWHERE in peer.relays_for or any(same_name(system, one) for one in (peer.system, *peer.relays_for))


def check_way(ours: str, path: Iterable[str], hops: int, most: int | None, limits: Limits) -> None:
    """Refuse a letter that already passed this system, or more systems than it or we allow."""
    if fold(ours) in _folded(path):
        raise LoopDetected(f"the letter went through {ours!r} already", field="path")
    allowed = limits.federation_hops if most is None else min(most, limits.federation_hops)
    if hops >= allowed:
        raise HopsSpent(f"the letter passed {hops} systems, {allowed} is the most", field="hopCount")


# Letters


def check_outgoing(peer: Peer, message: Message, target: Address) -> None:
    """Refuse a letter that may not go to an address through this peer."""
    system = target.system or peer.system
    _check_trusted(peer, "to")
    if not permits(peer, message.scope, system, target.scope or message.scope):
        place = _place(system, target.scope or message.scope)
        raise NotAllowed(
            f"scope {message.scope!r} is not allowed to exchange mail with {place}",
            field="scope",
            hint=f"postroom peers add {peer.system} --scope {message.scope}={system}",
        )


def check_incoming(peer: Peer, source: str, scope: str, target: Address) -> None:
    """Refuse a letter of a system and scope that this peer may not bring to an address of ours."""
    _check_trusted(peer, "from")
    if not speaks_for(peer, source):
        raise NotAllowed(
            f"{peer.system!r} does not speak for {source!r}",
            field="from",
            hint=f"postroom peers add {peer.system} --relays-for {source}, if it may",
        )
    ours = target.scope or scope or DEFAULT_SCOPE
    if not permits(peer, ours, source, scope or DEFAULT_SCOPE):
        raise NotAllowed(
            f"scope {ours!r} is not allowed to exchange mail with {_place(source, scope)}",
            field="scope",
            hint=f"postroom peers add {peer.system} --scope {ours}={source}",
        )


def check_relaying(coming_from: Peer, going_to: Peer | None) -> None:
    """Refuse to relay from one peer to another. `going_to` is None while the target is still looked up."""
    _check_trusted(coming_from, "from")
    if not coming_from.relays_to:
        raise NotAllowed(
            f"{coming_from.system!r} does not reach other systems through this one",
            field="to",
            hint=f"its operator: postroom peers add {coming_from.system} --relays-to yes",
        )
    if going_to is None:
        return
    _check_trusted(going_to, "to")
    if same_name(coming_from.system, going_to.system):
        raise LoopDetected(
            f"the letter came from {going_to.system!r} and would be sent back there",
            field="to",
            hint="the sending system should send there directly",
        )


def permits(peer: Peer, ours: str, system: str, theirs: str) -> bool:
    """Return whether mail may pass between a scope of ours and one of another system."""
    # No list of scopes: everything may pass.
    if not peer.scopes:
        return True
    allowed = (*_of_scope(peer, ours), *peer.scopes.get(EVERYWHERE, ()))
    wanted = {EVERYWHERE, fold(system), fold(_place(system, theirs))}
    return any(fold(one) in wanted for one in allowed)


# Agents


def is_shown(peer: Peer, card: Card) -> bool:
    """Return whether a peer may see this agent in our directory."""
    return peer.exposure in {"tagged", "all"} and is_reachable(peer, card)


def is_reachable(peer: Peer, card: Card, source: str = "", scope: str = "") -> bool:
    """Return whether mail from a peer to this agent is taken.

    `source` and `scope` are the system and the scope of a letter: the agent must be in a scope that exchanges mail
    with them, whatever scope the address names.
    """
    if not peer.trusted or peer.exposure == "none" or not _is_in_permitted_scope(peer, card, source, scope):
        return False
    return peer.exposure != "tagged" or bool(_folded(peer.tags) & _folded(_marks(card)))


def _is_in_permitted_scope(peer: Peer, card: Card, source: str, scope: str) -> bool:
    own = card.scopes or (DEFAULT_SCOPE,)
    if source:
        return any(permits(peer, ours, source, scope or DEFAULT_SCOPE) for ours in own)
    return not peer.scopes or EVERYWHERE in peer.scopes or bool(_folded(peer.scopes) & _folded(own))


def _marks(card: Card) -> list[str]:
    """Return the tags of an agent: its scopes, and the tags in its metadata."""
    tags = card.metadata.get("tags")
    return [*card.scopes, *(tag for tag in (tags if isinstance(tags, list) else ()) if isinstance(tag, str))]


def _check_trusted(peer: Peer, field: str) -> None:
    if not peer.trusted:
        raise NotAllowed(
            f"the system {peer.system!r} is not trusted", field=field, hint=f"postroom peers trust {peer.system}"
        )


def _named(peers: Mapping[str, Peer], system: str) -> Peer | None:
    return next((peer for peer in peers.values() if same_name(peer.system, system)), None)


def _of_scope(peer: Peer, scope: str) -> tuple[str, ...]:
    return next((allowed for name, allowed in peer.scopes.items() if same_name(name, scope)), ())


def _place(system: str, scope: str | None) -> str:
    return f"{system}/{scope or DEFAULT_SCOPE}"


def _folded(names: Iterable[str]) -> set[str]:
    return {fold(name) for name in names}
