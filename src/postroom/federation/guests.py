"""Agents of the room that mounted a folder, shown where the programs of its design look for agents: as `ann@home`.

They stand in the directory of the mounted room, and so in its registry, where its design has one. Whoever writes
to one of them puts the letter into its folder, as for any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import service
from ..model.address import at_system
from ..model.card import Beat, Card, Status
from ..model.codec import convert, to_plain
from ..model.record import BEAT, CARD
from ..service.records import put_record
from ..store.files.store import FileStore
from ..wire.map_names import GUEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model.card import Agent
    from ..model.query import Moment
    from ..model.record import Record
    from ..room import Room
    from ..store.base import Write

EVERY = 20.0  # seconds between two signs of life of one that is there; a registry believes in one for a minute


def show(room: Room, host: str, agents: Sequence[Agent]) -> None:
    """These, and of those that the host showed before, no others; nobody, if it mounts this room no more."""
    store, moment = room._office.store, room._office.now()
    wanted = {at_system(agent.card.id, host): agent for agent in agents}
    if isinstance(store, FileStore):
        for name in wanted:
            store.make_folder(name)

    def plan() -> Sequence[Write]:
        cards = {record.key: record for record in store.records(CARD)}
        beats = {record.key: record for record in store.records(BEAT)}
        shown = {} if service.peers.peer(room._office, host) is None else wanted
        writes: list[Write] = []
        for name, agent in shown.items():
            writes += _put(CARD, name, _card(name, host, agent, cards.get(name)), cards.get(name))
            beat = _beat(agent, beats.get(name), moment)
            writes += _put(BEAT, name, beat, beats.get(name))
        for name in [name for name, held in cards.items() if _is_of(host, held) and name not in shown]:
            writes += _put(CARD, name, None, cards[name]) + _put(BEAT, name, None, beats.get(name))
        return writes

    store.commit(plan)


def _card(name: str, host: str, agent: Agent, held: Record | None) -> Card:
    """What it says of itself, as far as that is true there."""
    since = agent.card.registered_at if held is None else convert(held.value, Card).registered_at
    return Card(
        id=name,
        registered_at=since,
        display_name=agent.card.display_name,
        description=agent.card.description,
        capabilities=agent.card.capabilities,
        metadata={GUEST: {"of": host}},
        principal=GUEST,
    )


def _beat(agent: Agent, held: Record | None, moment: Moment) -> Beat:
    """A sign of life, not too often; none of those who are not there."""
    left = agent.presence.words.nanobot == Status.OFFLINE
    before = None if held is None else convert(held.value, Beat)
    is_young = before is not None and before.boot == moment.boot and moment.steady < before.steady + EVERY
    if before is not None and before.left == left and (left or is_young):
        return before
    wall, steady = moment.wall, moment.steady
    return Beat(at=wall, steady=steady, boot=moment.boot, active_at=wall, poll_interval=EVERY, left=left)


def _is_of(host: str, held: Record) -> bool:
    guest = convert(held.value, Card).metadata.get(GUEST)
    return isinstance(guest, dict) and guest.get("of") == host


def _put(kind: str, key: str, value: Card | Beat | None, held: Record | None) -> list[Write]:
    if held is None and value is None:
        return []
    if held is not None and value is not None and convert(held.value, type(value)) == value:
        return []
    plain: Any = None if value is None else to_plain(value)
    return [put_record(kind, key, plain, held, durable=kind == CARD)]
