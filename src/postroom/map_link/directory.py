"""Our directory and the server's, in step: its agents have cards here, and which of ours are shown there.

Whoever is there has a card here under `system/name`, and a sign of life whenever the server tells of it. Who is
away there, or not told of any more, and everybody when the link is cut, says goodbye: away, still chosen for work
for a while, then expired, then gone. A name that an agent of ours has is not taken from it.

On the desk's threads: nothing here waits for the network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from .. import service
from ..errors import PostroomError
from ..model.card import Card
from ..model.codec import convert
from ..model.names import POSTMASTER, fold
from ..model.record import BEAT, CARD
from ..policy.presence import is_routable
from ..service.authorize import Principal
from ..wire.map_names import GUEST, LINK_NAME
from ..wire.map_records import role_of
from .neighbours import LINKED

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ..room import Room
    from ..wire.map_addresses import Role
    from .neighbours import Neighbour

LINK = Principal(LINK_NAME, operator=True)
ROLE = "agent"  # of who has none
ALL, NONE = "all", "none"
NOT_OURS = ".there"  # behind the name of somebody there that an agent of ours has


def show_here(room: Room, there: Mapping[str, Neighbour], every: float) -> dict[str, Neighbour]:
    """Cards and signs of life of who is there; gives back who could have a name here, by that. `every`: seconds
    between two looks.
    """
    held = {record.key: convert(record.value, Card) for record in room._office.store.records(CARD)}
    named = {spelt(room, mailbox): one for mailbox, one in there.items() if one.is_here}
    shown = {mailbox: one for mailbox, one in named.items() if _show(room, mailbox, one, held.get(mailbox))}
    alive = {mailbox for mailbox, one in shown.items() if not one.is_away}
    service.directory.heartbeats(room._office, LINK, sorted(alive), poll_interval=every)
    known = {name for name, card in held.items() if card.principal == LINK.name}
    leave(room, sorted((known | shown.keys()) - alive))
    return {mailbox: replace(one, mailbox=mailbox) for mailbox, one in shown.items()}


def _show(room: Room, mailbox: str, one: Neighbour, held: Card | None) -> bool:
    """An agent of ours keeps its name, however long it is away: its mail is not for others."""
    title = service.present.one_line(one.title)[:200]
    metadata: dict[str, Any] = {LINKED: {"id": one.id}} | ({"role": one.role} if one.role else {})
    if held is not None and (held.principal, held.display_name, held.metadata) == (LINK.name, title, metadata):
        return True
    if held is not None and held.principal != LINK.name:
        return False
    try:
        room.mailbox(mailbox).register(display_name=title, metadata=metadata)
    except PostroomError as refused:
        if refused.temporary:
            raise
        return False
    return True


def spelt(room: Room, name: str) -> str:
    """As it is spelt here, whatever its case."""
    return room._office.store.spelling(name) or name


def sender_of(room: Room, name: str) -> str:
    """The name under which somebody there writes here: never one of ours."""
    name = spelt(room, name)
    card = room._office.store.records(CARD, name)
    return f"{name}{NOT_OURS}" if card and card[0].value.get("principal") != LINK.name else name


def members(told: Mapping[str, Mapping[str, Any]], meant: str | Role) -> list[str]:
    """Who of ours is meant by the name of a scope, or by a role, as the server was told of them."""
    if isinstance(meant, str):
        return [name for name, said in told.items() if meant in said.get("scopes", ())]
    return [
        name
        for name, said in told.items()
        if said["role"] == meant.name and meant.within in {None, *said.get("scopes", ())}
    ]


def leave(room: Room, names: Sequence[str]) -> None:
    """They are not there any more, as far as we know. Who said so before stays as it is."""
    service.directory.heartbeats(room._office, LINK, names, leaving=True)


def exposed(room: Room, said: str, link_scope: str, wrote: Collection[str]) -> dict[str, dict[str, Any]]:
    """What the server is told of our own agents, by name: all that are here or away, those that are named, or
    none; and in the same way those that `wrote` to somebody there, who may answer.
    """
    shown = {
        agent.card.id: agent.card
        for agent in room.agents()
        if is_routable(agent.presence) and _may_be_shown(agent.card.id, agent.card, said)
    }
    others = [name for name in wrote if name not in shown and may_answer_to(room, said, name)]
    return {name: _said_of(shown.get(name), link_scope) for name in (*shown, *others)}


def may_answer_to(room: Room, said: str, name: str) -> bool:
    """May somebody who wrote there be shown there, so that it can be answered? Who sleeps has said goodbye."""
    card, beat = (room._office.store.records(kind, name) for kind in (CARD, BEAT))
    if beat and beat[0].value.get("dormant"):
        return False
    return _may_be_shown(name, convert(card[0].value, Card) if card else None, said)


def _may_be_shown(name: str, card: Card | None, said: str) -> bool:
    """Is it our own, and to be known there?"""
    is_guest = card is not None and (card.principal == LINK.name or GUEST in card.metadata)
    is_wanted = said != NONE and (said == ALL or name in {one.strip() for one in said.split(",")})
    return is_wanted and not is_guest and fold(name) != POSTMASTER


def _said_of(card: Card | None, link_scope: str) -> dict[str, Any]:
    """Its role and its scopes, and the link's own. Who only writes has neither."""
    own = card.scopes if card is not None else ()
    scopes = list(dict.fromkeys([*([link_scope] if link_scope else []), *own]))
    role = role_of(card) if card is not None else None
    return {"role": role or ROLE} | ({"scopes": scopes} if scopes else {})
