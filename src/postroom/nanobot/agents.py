"""Cards and signs of life in the design's words: what `register` is given, what `get_agent` gives back.

The directory decides who is online; this only translates, and overwrites where the directory would ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from .. import service
from ..errors import Invalid, UnknownAgent
from ..model.card import Beat, Status
from ..model.codec import convert, to_plain
from ..model.names import check_agent
from ..model.record import BEAT, CARD
from ..model.values import check_label, check_object
from ..service.authorize import OWNER
from ..service.records import find_record, put_record
from ..store.files import entries
from ..store.files.layouts.base import OWN, time_or_none

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model.card import Agent, Card
    from ..model.query import Moment
    from ..service.office import Office
    from ..store.base import Write

_SAID = ("description", "capabilities", "allow_from", "max_concurrent_tasks")


def register(office: Office, name: str, card: Any) -> None:
    """Write a card over whatever is there, and a first sign of life."""
    said = check_object(card, "card", office.limits.max_depth)
    if said.get("agent_id") not in {None, ""} and check_agent(said["agent_id"], "card.agent_id") != name:
        raise Invalid(f"is {said['agent_id']!a}, not {name!a}", field="card.agent_id")
    moment = office.now()
    written, beat = _card(office, name, said, moment), _beat(said, moment)

    def plan() -> Sequence[Write]:
        service.naming.check_not_moved(office, name, "agent_id")
        held = find_record(office, CARD, name)
        return [
            put_record(CARD, name, to_plain(written), held),
            *service.directory.memberships(office, name, written, held),
            *service.guarding.allow_only(office, name, written),
            put_record(BEAT, name, to_plain(beat), find_record(office, BEAT, name), durable=False),
        ]

    office.store.commit(plan)


def is_registered(office: Office, name: str) -> bool:
    return find_record(office, CARD, name) is not None


def heartbeat(office: Office, name: str) -> None:
    service.directory.heartbeat(office, OWNER, name)


def update_status(office: Office, name: str, status: Any, current_tasks: Any) -> None:
    """What it says of itself; tasks that are not said stay as they were. A sign of life, unless it leaves."""
    word = check_label(status, "status")
    tasks = None if current_tasks is None else service.directory.check_tasks(current_tasks)
    moment = office.now()

    def plan() -> Sequence[Write]:
        held = find_record(office, BEAT, name)
        beat = service.directory.first_beat(moment) if held is None else convert(held.value, Beat)
        if word != Status.OFFLINE:
            beat = replace(beat, at=moment.wall, steady=moment.steady, boot=moment.boot)
        return [put_record(BEAT, name, to_plain(_saying(beat, word, tasks)), held, durable=False)]

    office.store.commit(plan)


def entry(office: Office, name: str) -> dict[str, Any] | None:
    """An agent as the registry shows it, as of now."""
    try:
        agent = service.directory.agent(office, OWNER, name)
    except UnknownAgent:
        return None
    held = find_record(office, BEAT, name)
    return _entry(agent, None if held is None else convert(held.value, Beat))


def online(office: Office) -> list[dict[str, Any]]:
    """Everybody who is not offline, by word or by silence."""
    beats = {record.key: convert(record.value, Beat) for record in office.store.records(BEAT)}
    everyone = service.directory.agents(office, OWNER)
    shown = [_entry(agent, beats.get(agent.card.id)) for agent in everyone]
    return [one for one in shown if one["status"] != Status.OFFLINE]


def _entry(agent: Agent, beat: Beat | None) -> dict[str, Any]:
    now = agent.presence
    is_online = now.status is not Status.OFFLINE
    status = Status.OFFLINE if beat is None else entries.word(beat, now.current_tasks, is_online=is_online)
    return entries.entry_of(agent.card, str(status), now.current_tasks, now.last_heartbeat)


def _card(office: Office, name: str, said: dict[str, Any], moment: Moment) -> Card:
    fields = {field: said[field] for field in _SAID if said.get(field) is not None}
    own = said.get(OWN)
    if isinstance(own, dict):
        fields |= {field: own[field] for field in entries.OURS if field in own and field != "principal"}
    unknown = {field: value for field, value in said.items() if field not in entries.FIELDS and field != OWN}
    card = service.directory.check_card(office, name, moment, fields | {"extra": unknown})
    if said.get("registered_at") is None:
        return card
    registered = time_or_none(said["registered_at"])
    if registered is None:
        raise Invalid(f"{said['registered_at']!a} is no time", field="card.registered_at", hint="in ISO form")
    return replace(card, registered_at=registered)


def _beat(said: dict[str, Any], moment: Moment) -> Beat:
    tasks = service.directory.check_tasks(said.get("current_tasks") or ())
    status = said.get("status")
    word = Status.IDLE if status in {None, ""} else check_label(status, "card.status")
    return _saying(service.directory.first_beat(moment), word, tasks)


def _saying(beat: Beat, status: str, tasks: tuple[str, ...] | None) -> Beat:
    busy_with = beat.current_tasks if tasks is None else tasks
    left = status == Status.OFFLINE
    return replace(beat, current_tasks=busy_with, left=left, says=entries.own_word(status, busy_with))
