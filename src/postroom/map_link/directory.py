"""Our directory and the server's, in step: its agents have cards here, and which of ours are shown there.

Whoever is there has a card here under `system/name`, and a sign of life whenever the server tells of it. Who is
not told of any more, and everybody when the link is cut, says goodbye: away, still chosen for work for a while,
then expired, then gone. A name that a live agent of ours holds is not taken from it.

On the desk's threads: nothing here waits for the network.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from .. import service
from ..errors import NameTaken, UnknownAgent
from ..model.card import Card
from ..model.codec import convert
from ..model.record import CARD
from ..policy.presence import is_routable
from ..service.authorize import Principal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..model.card import Agent
    from ..room import Room
    from .neighbours import Neighbour

log = logging.getLogger("postroom")
LINK = Principal("map link", operator=True)
ALL, NONE = "all", "none"


def show_here(room: Room, there: Mapping[str, Neighbour], every: float) -> set[str]:
    """Cards and signs of life of who is there; gives back whose names they could have. `every`: seconds between
    two looks.
    """
    held = {record.key: convert(record.value, Card) for record in room._office.store.records(CARD)}
    shown = set[str]()
    for mailbox, one in there.items():
        if one.is_here and _show(room, one, held.get(mailbox), every):
            shown.add(mailbox)
    leave(room, [name for name, card in held.items() if card.principal == LINK.name and name not in shown])
    return shown


def _show(room: Room, one: Neighbour, held: Card | None, every: float) -> bool:
    box = room.mailbox(one.mailbox)
    metadata = {"map": {"id": one.id}} | ({"role": one.role} if one.role else {})
    is_known = held is not None and held.principal == LINK.name
    if held is None or not is_known or (held.display_name, held.metadata) != (one.title, metadata):
        try:
            box.register(display_name=service.present.one_line(one.title)[:200], metadata=metadata)
        except NameTaken:
            log.warning("an agent of the MAP server is not shown: %s is an agent of ours", one.mailbox)
            return False
    box.heartbeat(poll_interval=every)
    return True


def leave(room: Room, names: Iterable[str]) -> None:
    """They are not there any more, as far as we know. Who said so before stays as it is."""
    for name in names:
        try:
            if not room.agent(name).presence.left:
                room.mailbox(name).leave()
        except UnknownAgent:
            continue


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
