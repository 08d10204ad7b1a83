"""What comes from another system, as the letter it is: envelopes of ours, of MAP's SDK and of agentic-mesh.

Whatever a peer says, what goes out of here has sound names and the right types, or is Invalid with the field's
name. Whether it may pass is another question.

It refuses to know connections and peers. Above it stands `federation`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ..errors import Invalid
from ..model.address import check_system, parse_address
from ..model.codec import convert
from ..model.content import payload_to_parts
from ..model.message import CAME, Message, Priority
from ..model.names import check_id, check_remote_agent
from .federation import IN_MAP, MOST_HOPS, POSTROOM, TARGETS, Envelope
from .inbox_records import present
from .map_messages import LONGEST_TTL, answered, letter_fields

if TYPE_CHECKING:
    from ..model.address import Address

MOST_PATH = 100  # systems in a path that is believed
CLOCKS_DIFFER = timedelta(minutes=1)  # by less: clocks that are right, and a slow line


def read_route(said: dict[str, Any], here: str, peer: str, now: datetime) -> Envelope:
    """What `map/federation/route` says: an envelope, or a message or a payload without one, straight from a peer.
    Invalid names what is wrong; whether it may pass is another question.
    """
    envelope = said.get("envelope")
    if envelope is not None:
        return _read_envelope(_object(envelope, "envelope"), here, now)
    message = said.get("message")
    if message is None:
        payload = said.get("payload")
        is_message = isinstance(payload, dict) and "to" in payload and "from" in payload
        message = payload if is_message else None
    if message is None:
        raise Invalid("says nothing", field="envelope", hint="an envelope, or a message")
    bare = {"sourceSystem": peer, "targetSystem": said.get("system_id", here), "path": [peer]}
    return _read_envelope({"payload": message, "federation": bare}, here, now)


def _read_envelope(envelope: dict[str, Any], here: str, now: datetime) -> Envelope:
    told = _object(envelope.get("payload"), "envelope.payload")
    way = _object(envelope.get("federation"), "envelope.federation")
    source = check_system(way.get("sourceSystem"), "sourceSystem")
    target = check_system(way.get("targetSystem"), "targetSystem")
    most = way.get("maxHops")
    return Envelope(
        message=_read_letter(told, source, here, now),
        source=source,
        target=target,
        targets=_read_targets(told, target),
        hops=_count(way.get("hopCount", 0), "hopCount"),
        most_hops=MOST_HOPS if most is None else _count(most, "maxHops"),
        path=_read_path(way.get("path"), source),
    )


def _read_path(path: Any, source: str) -> tuple[str, ...]:
    if path is None:
        return (source,)
    if not isinstance(path, list) or len(path) > MOST_PATH:
        raise Invalid(f"must be a list of at most {MOST_PATH} systems", field="path")
    return tuple(check_system(system, "path") for system in path)


def _read_targets(told: dict[str, Any], target: str) -> tuple[Address, ...]:
    scoped = _ours(told).get(TARGETS)
    scopes = {}
    if isinstance(scoped, list):
        said = [one for one in scoped if isinstance(one, dict) and isinstance(one.get("agent", ""), str)]
        scopes = {one.get("agent", ""): one.get("scope") or "" for one in said}
    return tuple(
        parse_address({"agent": name, "system": target, "scope": scopes.get(name, "")}, "to")
        for name in dict.fromkeys(_read_names(told.get("to")))
    )


def _read_names(to: Any) -> list[str]:
    """Those the message is for; an empty name is everybody who is shown."""
    if isinstance(to, str) and to:
        return [to.removeprefix("agent:")]
    if isinstance(to, dict):
        for word in ("agent", "agentId", "agents"):
            found = to.get(word)
            if found is not None:
                names = found if isinstance(found, list) else [found]
                if names and all(isinstance(name, str) and name for name in names):
                    return names
                raise Invalid("must be names", field=f"to.{word}")
        if to.get("system") is True or to.get("broadcast") is True:
            return [""]
    raise Invalid("names nobody", field="to", hint="{agent}, {agents: [...]} or {system: true}")


def _read_letter(told: dict[str, Any], source: str, here: str, now: datetime) -> Message:
    sender, ours = check_remote_agent(told.get("from"), "from"), _ours(told)
    fields = {
        "recipients": [],
        "created_at": _time(told.get("timestamp"), now).isoformat(),
        **(_rest(ours) if ours else _words(told, now)),
        "id": check_id(told.get("id"), "id"),
        "sender": f"{sender}@{source}",
        "parts": _parts(told, ours),
    }
    try:
        letter = convert(fields, Message)
    except msgspec.ValidationError as broken:
        raise Invalid(str(broken), field="envelope.payload") from None
    times = (letter.created_at, letter.expires_at, letter.task.deadline if letter.task else None)
    if any(time is not None and time.tzinfo is None for time in times):
        raise Invalid("says a time without a time zone", field="envelope.payload")
    letter = replace(letter, expires_at=_expiry(letter, told, now))
    recipients = tuple(replace(one, address=_home(one.address, here)) for one in letter.recipients)
    trace = tuple(_home(name, here) for name in letter.trace) or (letter.sender,)
    return replace(letter, recipients=recipients, trace=trace)


def _expiry(letter: Message, told: dict[str, Any], now: datetime) -> datetime | None:
    """As it is said; where the clock over there is far from ours, by how long the letter has left."""
    ttl = _dict(told.get("meta")).get("ttlMs")
    if (
        letter.expires_at is None
        or isinstance(ttl, bool)
        or not isinstance(ttl, int)
        or not 0 < ttl <= LONGEST_TTL
    ):
        return letter.expires_at
    by_ours = now + timedelta(milliseconds=ttl)
    return letter.expires_at if abs(by_ours - letter.expires_at) <= CLOCKS_DIFFER else by_ours


def _rest(ours: dict[str, Any]) -> dict[str, Any]:
    """All that another post room says of its letter."""
    rest = {name: value for name, value in ours.items() if name not in IN_MAP and name != TARGETS}
    if "extra" in rest:
        rest["extra"] = {name: value for name, value in _object(rest["extra"], "extra").items() if name != CAME}
    return rest


def _words(told: dict[str, Any], now: datetime) -> dict[str, Any]:
    """What MAP's words say of it, agent-inbox's flat ones and agentic-mesh's below `_meta` too. One that means
    nothing here is carried, and not followed.
    """
    meta = _dict(told.get("meta"))
    said = {"to": {"agent": "x"}, "payload": "", "meta": {**_dict(meta.get("_meta")), **meta}}
    try:
        found = letter_fields(said)
    except Invalid:
        found = {}
    ttl = found.get("expires")
    return present(
        priority=Priority[found.get("priority", "normal").upper()].value,
        subject=found.get("subject"),
        scope=found.get("scope"),
        thread_tag=found.get("thread_tag"),
        conversation_id=found.get("conversation_id"),
        in_reply_to=answered(said),
        expires_at=None if ttl is None else (now + timedelta(seconds=ttl)).isoformat(),
        metadata=meta or None,
    )


def _parts(told: dict[str, Any], ours: dict[str, Any]) -> list[Any]:
    """Return copies of the parts: composing takes them apart, and the envelope may be read again."""
    parts = ours.get("parts")
    found = parts if isinstance(parts, list) else payload_to_parts(told["payload"]) if "payload" in told else []
    return [{**part} if isinstance(part, dict) else part for part in found]


def _home(name: str, here: str) -> str:
    agent, at, system = name.partition("@")
    return agent if at and agent and system == here else name


def _ours(told: dict[str, Any]) -> dict[str, Any]:
    return _dict(_dict(_dict(told.get("meta")).get("_meta")).get(POSTROOM))


def _time(said: Any, otherwise: datetime) -> datetime:
    """From milliseconds; a clock that is far off is not believed."""
    if isinstance(said, bool) or not isinstance(said, int | float) or not 0 < said < 4e12:
        return otherwise
    return datetime.fromtimestamp(said / 1000, UTC)


def _count(value: Any, field: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1000:
        raise Invalid("must be a small whole number", field=field)
    return value


def _object(value: Any, field: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Invalid("must be an object", field=field)
    return value


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
