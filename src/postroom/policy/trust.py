"""What another system may, and what may go there: who is in the allow-list, for whom it speaks, which scopes may
exchange mail, who of ours it sees and reaches, by whom a system is reached. The same rules both ways.

A peer without scope permissions is not limited by scope. Where it has any, only what they name passes: a letter
without a scope is in `default`, and an agent in no scope is, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

from ..errors import HopsSpent, LoopDetected, Missing, NotAllowed
from ..model.message import DEFAULT_SCOPE, same_name
from ..model.names import fold
from ..model.peer import EVERYWHERE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ..errors import PostroomError
    from ..model.card import Card
    from ..model.message import Message
    from ..model.peer import Peer
    from .limits import Limits


class Target(Protocol):
    """Whom a letter is for: an address."""

    @property
    def system(self) -> str | None: ...
    @property
    def scope(self) -> str | None: ...


class Strategy(Struct, frozen=True):
    """How a name or system is sought that nobody here knows."""

    kind: Literal["table", "broadcast", "hierarchical"] = "table"
    upstream: tuple[str, ...] = ()  # whom the rest is left to, the first one first
    believes: float = 300.0  # seconds for which what a peer said of its agents holds
    patience: float = 5.0  # seconds in which a peer says whether it has somebody


def strategy_of(limits: Limits) -> Strategy:
    """As it was set."""
    upstream = tuple(name.strip() for name in limits.federation_upstream.split(",") if name.strip())
    return Strategy(
        limits.federation_strategy,
        upstream,
        limits.federation_table_ttl,
        limits.federation_broadcast_timeout,
    )


# -- by whom


def routes_to(peers: Mapping[str, Peer], system: str, strategy: Strategy) -> Iterator[Peer]:
    """The peers by whom a system is reached, the best one first: itself, those who lead there, those above us.

    One that was distrusted is reached by nobody.
    """
    itself = _named(peers, system)
    if itself is not None and not itself.trusted:
        return
    if itself is not None:
        yield itself  # mostly nobody asks for another
    leading = [peer for peer in peers.values() if speaks_for(peer, system)]
    above = [peer for name in strategy.upstream if (peer := _named(peers, name))]
    unique = {peer.system: peer for peer in (*leading, *above) if peer.trusted and peer is not itself}
    yield from unique.values()


def route_to(peers: Mapping[str, Peer], system: str, strategy: Strategy) -> Peer | None:
    """The first of them."""
    return next(routes_to(peers, system, strategy), None)


def no_route(peers: Mapping[str, Peer], system: str, field: str = "to") -> PostroomError:
    """Why a letter cannot go there."""
    if _named(peers, system) is not None:
        return NotAllowed(
            f"the system {system!r} is not trusted", field=field, hint=f"postroom peers trust {system}"
        )
    hint = f"postroom peers add {system}, or --relays-for {system} at a peer that leads there"
    return Missing(f"there is no way to a system {system!r}", field=field, hint=hint)


def speaks_for(peer: Peer, system: str) -> bool:
    """For agents at itself, and at the systems that it relays for: all of them, where it mounted this room."""
    return EVERYWHERE in peer.relays_for or any(same_name(system, one) for one in (peer.system, *peer.relays_for))


def check_way(ours: str, path: Iterable[str], hops: int, most: int | None, limits: Limits) -> None:
    """May a letter come in that went this way? Not in a circle, and not farther than it or we allow."""
    if fold(ours) in _folded(path):
        raise LoopDetected(f"the letter went through {ours!r} already", field="path")
    allowed = limits.federation_hops if most is None else min(most, limits.federation_hops)
    if hops >= allowed:
        raise HopsSpent(f"the letter passed {hops} systems, {allowed} is the most", field="hopCount")


# -- what


def check_outgoing(peer: Peer, message: Message, target: Target) -> None:
    """May this letter go to that address, by this peer?"""
    system = target.system or peer.system
    _check_trusted(peer, "to")
    if not permits(peer, message.scope, system, target.scope or message.scope):
        told = f"scope {message.scope!r} exchanges no mail with {_place(system, target.scope or message.scope)}"
        hint = f"postroom peers add {peer.system} --scope {message.scope}={system}"
        raise NotAllowed(told, field="scope", hint=hint)


def check_incoming(peer: Peer, source: str, scope: str, target: Target) -> None:
    """May this peer bring a letter of that system and scope to this address of ours?"""
    _check_trusted(peer, "from")
    if not speaks_for(peer, source):
        hint = f"postroom peers add {peer.system} --relays-for {source}, if it is to"
        raise NotAllowed(f"{peer.system!r} does not speak for {source!r}", field="from", hint=hint)
    ours = target.scope or scope or DEFAULT_SCOPE
    if not permits(peer, ours, source, scope or DEFAULT_SCOPE):
        told = f"scope {ours!r} exchanges no mail with {_place(source, scope)}"
        raise NotAllowed(told, field="scope", hint=f"postroom peers add {peer.system} --scope {ours}={source}")


def check_relaying(coming_from: Peer, going_to: Peer | None) -> None:
    """May the one reach the other through us? None: who that is is still to be found."""
    _check_trusted(coming_from, "from")
    if not coming_from.relays_to:
        told = f"{coming_from.system!r} does not reach other systems through this one"
        raise NotAllowed(
            told, field="to", hint=f"its operator: postroom peers add {coming_from.system} --relays-to yes"
        )
    if going_to is None:
        return
    _check_trusted(going_to, "to")
    if same_name(coming_from.system, going_to.system):
        hint = "it has a nearer way, or none"
        told = f"the letter came from {going_to.system!r}, the way that it would go"
        raise LoopDetected(told, field="to", hint=hint)


def permits(peer: Peer, ours: str, system: str, theirs: str) -> bool:
    """May mail pass between a scope of ours and one of that system's?"""
    if not peer.scopes:
        return True
    allowed = (*_of_scope(peer, ours), *peer.scopes.get(EVERYWHERE, ()))
    wanted = {EVERYWHERE, fold(system), fold(_place(system, theirs))}
    return any(fold(one) in wanted for one in allowed)


# -- who of ours


def is_shown(peer: Peer, card: Card) -> bool:
    """Is it told of this agent?"""
    return peer.exposure in {"tagged", "all"} and is_reachable(peer, card)


def is_reachable(peer: Peer, card: Card, source: str = "", scope: str = "") -> bool:
    """Is its mail to this agent taken, where it knows the name? Of a letter it is said where it was written, and
    in which scope: the agent must be in one that exchanges mail with that, whatever scope the address names.
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
    """What an agent is tagged with: its scopes, and the tags among what it says of itself."""
    tags = card.metadata.get("tags")
    return [*card.scopes, *(tag for tag in (tags if isinstance(tags, list) else ()) if isinstance(tag, str))]


def _check_trusted(peer: Peer, field: str) -> None:
    if not peer.trusted:
        hint = f"postroom peers trust {peer.system}"
        raise NotAllowed(f"the system {peer.system!r} is not trusted", field=field, hint=hint)


def _named(peers: Mapping[str, Peer], system: str) -> Peer | None:
    return next((peer for peer in peers.values() if same_name(peer.system, system)), None)


def _of_scope(peer: Peer, scope: str) -> tuple[str, ...]:
    return next((allowed for name, allowed in peer.scopes.items() if same_name(name, scope)), ())


def _place(system: str, scope: str | None) -> str:
    return f"{system}/{scope or DEFAULT_SCOPE}"


def _folded(names: Iterable[str]) -> set[str]:
    return {fold(name) for name in names}
