"""Our directory and the server's, in step: its agents have cards here, and which of ours are shown there.

Whoever is there has a card here under `system/name`, and a sign of life whenever the server tells of it. Who is
not told of any more, and everybody when the link is cut, says goodbye: away, still chosen for work for a while,
then expired, then gone. A name that a live agent of ours holds is not taken from it.

On the desk's threads: nothing here waits for the network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import service
from ..errors import NameTaken
from ..model.card import Card
from ..model.codec import convert
from ..model.record import CARD
from ..policy.presence import is_routable
from ..service.authorize import Principal
from .neighbours import LINKED

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ..model.card import Agent
    from ..room import Room
    from .neighbours import Neighbour

LINK = Principal("map link", operator=True)
ALL, NONE = "all", "none"


def show_here(room: Room, there: Mapping[str, Neighbour], every: float) -> set[str]:
    """Cards and signs of life of who is there; gives back whose names they could have. `every`: seconds between
    two looks.
    """
    held = {record.key: convert(record.value, Card) for record in room._office.store.records(CARD)}
    shown = {mailbox for mailbox, one in there.items() if one.is_here and _show(room, one, held.get(mailbox))}
    service.directory.heartbeats(room._office, LINK, sorted(shown), poll_interval=every)
    leave(room, [name for name, card in held.items() if card.principal == LINK.name and name not in shown])
    return shown


def _show(room: Room, one: Neighbour, held: Card | None) -> bool:
    metadata = {LINKED: {"id": one.id}} | ({"role": one.role} if one.role else {})
    is_known = held is not None and held.principal == LINK.name
    if held is None or not is_known or (held.display_name, held.metadata) != (one.title, metadata):
        try:
            room.mailbox(one.mailbox).register(
                display_name=service.present.one_line(one.title)[:200], metadata=metadata
            )
        except NameTaken:
            return False
    return True


def members(agents: Mapping[str, Agent], shown: Collection[str], link_scope: str, scope: str) -> list[str]:
    """Who of ours is meant by the name of a scope: those with it on their cards; everybody by the link's own."""
    return [
        name
        for name, agent in agents.items()
        if name in shown and (scope == link_scope or scope in agent.card.scopes)
    ]


def leave(room: Room, names: Sequence[str]) -> None:
    """They are not there any more, as far as we know. Who said so before stays as it is."""
    service.directory.heartbeats(room._office, LINK, names, leaving=True)


def exposed(room: Room, said: str) -> dict[str, Agent]:
    """Our own agents that are shown there, by name: all that are here or away, those that are named, or none."""
    if said == NONE:
        return {}
    wanted = None if said == ALL else {name.strip() for name in said.split(",")}
    return {
        agent.card.id: agent
        for agent in room.agents()
        if agent.card.principal != LINK.name
        and is_routable(agent.presence)
        and (wanted is None or agent.card.id in wanted)
    }
