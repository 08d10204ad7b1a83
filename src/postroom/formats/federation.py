"""The federation envelope, which carries a letter to another system, and the refusals that come back.

    {"payload": <MAP message>,
     "federation": {sourceSystem, targetSystem, hopCount, maxHops, path, originTimestamp}}

The MAP message holds the fields that MAP knows (`id`, `from`, `to`, `timestamp`, `payload`, `meta`), and some of
them again below `meta._meta`, where agentic-mesh looks. `meta._meta.postroom` holds the rest of the letter, so
that nothing is lost between two post rooms. In an envelope every agent is named with its system: a local `bob`
goes out as `bob@here`, and comes back as `bob`.

Reading takes envelopes of Postroom, of MAP's SDK, and of agentic-mesh. The result has sound names and the right
types; everything else raises Invalid with the name of the field. This module knows neither connections nor
peers, and does not decide whether a letter may pass: that is `federation`.

    envelope_for      the envelope of a letter of this room
    encode_envelope   as JSON; `decode_envelope` and `read_route` read it
    encode_messages   as agent-inbox has it; `decode_send` reads that
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..errors import (
    Busy,
    Conflict,
    HopsSpent,
    Invalid,
    LoopDetected,
    Missing,
    NotAllowed,
    QuotaFull,
    Refused,
    StaleRevision,
    TooFast,
    UnknownAgent,
)
from ..model.codec import convert, to_plain
from ..model.message import (
    DEFAULT_SCOPE,
    FEDERATION_NOTE,
    Message,
    Priority,
    content_of,
    is_any,
    is_broadcast,
    origin_route,
    payload_to_parts,
    same_name,
)
from ..model.names import (
    ANYWHERE,
    AT,
    agent_of,
    at_system,
    check_id,
    check_remote_agent,
    check_system,
    fold,
    parse_address,
    system_of,
)
from ..model.peer import MOST_HOPS, Envelope
from ..model.values import object_in
from .errors import INTERNAL_ERROR, details, number_in
from .inbox import milliseconds, present
from .map import (
    AUTH_REQUIRED,
    BAD_CREDENTIALS,
    EXHAUSTED,
    LONGEST_TTL,
    NO_SYSTEM,
    OVER_QUOTA,
    PRIORITIES,
    TOO_FAST,
    answered,
    category_of,
    letter_fields,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..errors import PostroomError
    from ..model.message import Proof, Recipient
    from ..model.names import (
        Address,
    )
    from .errors import Numbers


POSTROOM = "postroom"  # key in `_meta`: the fields that only a post room reads
TARGETS = "targets"  # key among those fields: the scopes of the addressees
IN_MAP = frozenset({"id", "sender", "parts", "proven"})  # fields of a letter read from MAP's own, or never sent


def envelope_for(
    letter: Message, targets: Sequence[Address], *, here: str, most_hops: int = MOST_HOPS
) -> Envelope:
    """Return the envelope in which a letter of this room goes to addressees at one system."""
    origin = origin_route(letter)
    extra = {name: value for name, value in letter.extra.items() if name != FEDERATION_NOTE}
    resolved = _resolve_recipients(letter.recipients, targets)
    # A bcc is sent only to its own system: other systems must not learn of it.
    shown = [one for one in resolved if one.kind != "bcc" or any(one.address == str(to) for to in targets)]
    return Envelope(
        message=replace(
            letter,
            id=origin.get("id") or letter.id,
            sender=letter.sender if AT in letter.sender else f"{letter.sender}@{here}",
            recipients=tuple(replace(one, address=_global_name(one.address, here)) for one in shown),
            trace=tuple(_global_name(name, here) for name in letter.trace),
            extra=extra,
            proven=False,
            proof=_leaving(letter),
        ),
        source=system_of(letter.sender) or here,
        targets=tuple(targets),
        hops=origin.get("hops", 0) + 1 if origin else 0,
        most_hops=most_hops,
        # Each system once: the receiver refuses a letter that lists it (G11).
        path=tuple(dict.fromkeys([*origin.get("path", ()), here])),
    )


def _leaving(letter: Message) -> Proof | None:
    """Return the proof of a letter with its recipients as they were written in its room, as they were signed."""
    proof = letter.proof
    if proof is None or proof.over != "letter" or proof.recipients:
        return proof if proof is not None and proof.over == "letter" else None
    return replace(proof, recipients=tuple(one for one in letter.recipients if one.kind != "bcc"))


def _resolve_recipients(recipients: Sequence[Recipient], targets: Iterable[Address]) -> list[Recipient]:
    """Return the recipients, with bare names and names to be looked up replaced by the addresses found for them.

    Otherwise the other system could not recognize its own bcc recipients, or the recipients of an answer to all.
    """
    found = list(recipients)
    places = {fold(one.address): place for place, one in reversed(list(enumerate(found)))}
    for target in targets:
        spellings = (str(target), at_system(target.agent, ANYWHERE), target.agent)
        place = next((places[fold(name)] for name in spellings if fold(name) in places), None)
        if place is not None:
            found[place] = replace(found[place], address=str(target))
    return found


def _global_name(name: str, here: str) -> str:
    """Return a name with its system. Groups stay as they were written."""
    is_group = is_broadcast(name) or is_any(name) or not name
    return name if is_group or AT in name else f"{name}@{here}"


def encode_envelope(envelope: Envelope, now: datetime, *, is_ours: bool = False) -> dict[str, Any]:
    """Return an envelope as JSON.

    `is_ours` means that the other system is a post room: then content in our own form is not sent in MAP's as
    well, because both together may be over the line's limit.
    """
    letter, content = envelope.message, content_of(envelope.message.parts)
    rest = _postroom_json(envelope, content)
    message: dict[str, Any] = {
        "id": letter.id,
        "from": agent_of(letter.sender),
        "to": _to(envelope.targets),
        "timestamp": milliseconds(letter.created_at),
        "payload": content,
        "meta": _meta(letter, rest, now),
    }
    if is_ours and "parts" in rest:
        del message["payload"]
    federation: dict[str, Any] = {
        "sourceSystem": envelope.source,
        "targetSystem": envelope.target,
        "hopCount": envelope.hops,
        "maxHops": envelope.most_hops,
        "path": envelope.path,
        "originTimestamp": milliseconds(letter.created_at),
    }
    if letter.thread_tag is not None:
        federation["correlationId"] = letter.thread_tag
    return {"payload": message, "federation": federation}


def _to(targets: Sequence[Address]) -> dict[str, Any]:
    """Return MAP's `to`. It has no field for the scope of one agent; that is in the fields of Postroom."""
    names = [target.agent for target in targets]
    if not all(names):
        return {"system": True}
    return {"agent": names[0]} if len(names) == 1 else {"agents": names}


def _meta(letter: Message, rest: dict[str, Any], now: datetime) -> dict[str, Any]:
    left = None
    if letter.expires_at is not None:
        # At least 1 ms: MAP takes no ttl of 0.
        left = max(1, int((letter.expires_at - now).total_seconds() * 1000))
    mail = present(conversationId=letter.conversation_id, inReplyTo=letter.in_reply_to)
    known = present(
        inboxMessageId=letter.id,
        subject=letter.subject or None,
        threadTag=letter.thread_tag,
        inReplyTo=letter.in_reply_to,
        conversationId=letter.conversation_id,
    )
    return present(
        priority=PRIORITIES[letter.priority - 1],
        correlationId=letter.thread_tag,
        ttlMs=left,
        mail=mail or None,
        _meta={**known, POSTROOM: rest},
    )


def _postroom_json(envelope: Envelope, content: Any) -> dict[str, Any]:
    """Return the fields of a letter for which MAP has none."""
    plain = to_plain(replace(envelope.message, parts=()))
    rest = {name: value for name, value in plain.items() if name not in IN_MAP}
    parts = [part.to_json() for part in envelope.message.parts]
    is_in_payload = parts == payload_to_parts(content)
    targeted = [present(agent=one.agent or None, scope=one.scope) for one in envelope.targets if one.scope]
    return rest | ({} if is_in_payload else {"parts": parts}) | ({TARGETS: targeted} if targeted else {})


# Reading an envelope

MOST_PATH = 100  # most systems in a path
CLOCKS_DIFFER = timedelta(minutes=1)  # a smaller difference is normal: clocks that are right, and a slow line


def read_route(params: dict[str, Any], here: str, peer: str, now: datetime) -> Envelope:
    """Return the envelope in the parameters of `map/federation/route`, or raise Invalid.

    They hold an envelope, or a message without one that comes straight from the peer.
    """
    envelope = params.get("envelope")
    if envelope is not None:
        return decode_envelope(_object(envelope, "envelope"), here, now)
    message = params.get("message")
    if message is None:
        payload = params.get("payload")
        is_message = isinstance(payload, dict) and "to" in payload and "from" in payload
        message = payload if is_message else None
    if message is None:
        raise Invalid("holds no message", field="envelope", hint="send an envelope, or a message")
    bare = {"sourceSystem": peer, "targetSystem": params.get("system_id", here), "path": [peer]}
    return decode_envelope({"payload": message, "federation": bare}, here, now)


def decode_envelope(envelope: dict[str, Any], here: str, now: datetime) -> Envelope:
    """Return the envelope in a JSON object, with the bare names of agents of this system; or raise Invalid."""
    message = _object(envelope.get("payload"), "envelope.payload")
    routing = _object(envelope.get("federation"), "envelope.federation")
    source = check_system(routing.get("sourceSystem"), "sourceSystem")
    target = check_system(routing.get("targetSystem"), "targetSystem")
    most = routing.get("maxHops")
    return Envelope(
        message=_read_letter(message, source, here, now),
        source=source,
        targets=_read_targets(message, target),
        hops=_count(routing.get("hopCount", 0), "hopCount"),
        most_hops=MOST_HOPS if most is None else _count(most, "maxHops"),
        path=_read_path(routing.get("path"), source),
    )


def _read_path(path: Any, source: str) -> tuple[str, ...]:
    if path is None:
        return (source,)
    if not isinstance(path, list) or len(path) > MOST_PATH:
        raise Invalid(f"must be a list of at most {MOST_PATH} systems", field="path")
    return tuple(check_system(system, "path") for system in path)


def _read_targets(message: dict[str, Any], target: str) -> tuple[Address, ...]:
    scoped = _postroom_part(message).get(TARGETS)
    scopes = {}
    if isinstance(scoped, list):
        rows = [one for one in scoped if isinstance(one, dict) and isinstance(one.get("agent", ""), str)]
        scopes = {one.get("agent", ""): one.get("scope") or "" for one in rows}
    return tuple(
        parse_address({"agent": name, "system": target, "scope": scopes.get(name, "")}, "to")
        for name in dict.fromkeys(_read_names(message.get("to")))
    )


def _read_names(to: Any) -> list[str]:
    """Return the names in MAP's `to`; an empty name stands for every exposed agent."""
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


def _read_letter(message: dict[str, Any], source: str, here: str, now: datetime) -> Message:
    sender, ours = check_remote_agent(message.get("from"), "from"), _postroom_part(message)
    fields = {
        "recipients": [],
        "created_at": _time(message.get("timestamp"), now).isoformat(),
        **(_postroom_fields(ours) if ours else _map_fields(message, now)),
        # Behind the fields of the peer, which cannot overwrite id, sender and content (G8).
        "id": check_id(message.get("id"), "id"),
        "sender": f"{sender}@{source}",
        "parts": _parts(message, ours),
    }
    try:
        letter = convert(fields, Message)
    except msgspec.ValidationError as broken:
        raise Invalid(str(broken), field="envelope.payload") from None
    times = (letter.created_at, letter.expires_at, letter.task.deadline if letter.task else None)
    # Naive times cannot be compared with ours, and would fail far from here.
    if any(time is not None and time.tzinfo is None for time in times):
        raise Invalid("holds a time without a time zone", field="envelope.payload")
    letter = replace(letter, expires_at=_expiry(letter, message, now))
    recipients = tuple(replace(one, address=_local_name(one.address, here)) for one in letter.recipients)
    trace = tuple(_local_name(name, here) for name in letter.trace) or (letter.sender,)
    return replace(letter, recipients=recipients, trace=trace)


def _expiry(letter: Message, message: dict[str, Any], now: datetime) -> datetime | None:
    """Return the expiry of a letter; if the other system's clock is far from ours, by the time it has left."""
    ttl = object_in(message, "meta").get("ttlMs")
    if (
        letter.expires_at is None
        or isinstance(ttl, bool)
        or not isinstance(ttl, int)
        or not 0 < ttl <= LONGEST_TTL
    ):
        return letter.expires_at
    by_ours = now + timedelta(milliseconds=ttl)
    return letter.expires_at if abs(by_ours - letter.expires_at) <= CLOCKS_DIFFER else by_ours


def _postroom_fields(ours: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a letter from another post room."""
    rest = {name: value for name, value in ours.items() if name not in IN_MAP and name != TARGETS}
    if "extra" in rest:
        rest["extra"] = {
            name: value for name, value in _object(rest["extra"], "extra").items() if name != FEDERATION_NOTE
        }
    return rest


def _map_fields(message: dict[str, Any], now: datetime) -> dict[str, Any]:
    """Return the fields of a letter from a MAP message, agent-inbox's flat ones and agentic-mesh's too.

    A value that is invalid here is only carried along in the metadata.
    """
    meta = object_in(message, "meta")
    params = {"to": {"agent": "x"}, "payload": "", "meta": {**object_in(meta, "_meta"), **meta}}
    try:
        found = letter_fields(params)
    except Invalid:
        found = {}
    ttl = found.get("expires")
    return present(
        priority=Priority[found.get("priority", "normal").upper()].value,
        subject=found.get("subject"),
        scope=found.get("scope"),
        thread_tag=found.get("thread_tag"),
        conversation_id=found.get("conversation_id"),
        in_reply_to=answered(params),
        expires_at=None if ttl is None else (now + timedelta(seconds=ttl)).isoformat(),
        metadata=meta or None,
    )


def _parts(message: dict[str, Any], ours: dict[str, Any]) -> list[Any]:
    """Return copies of the parts: composing takes them apart, and the envelope may be read again."""
    parts = ours.get("parts")
    if not isinstance(parts, list):
        parts = payload_to_parts(message["payload"]) if "payload" in message else []
    return [{**part} if isinstance(part, dict) else part for part in parts]


def _local_name(name: str, here: str) -> str:
    """Return the bare name of an agent of this system; any other name unchanged."""
    agent, at, system = name.partition("@")
    return agent if at and agent and system == here else name


def _postroom_part(message: dict[str, Any]) -> dict[str, Any]:
    return object_in(object_in(object_in(message, "meta"), "_meta"), POSTROOM)


def _time(value: Any, default: datetime) -> datetime:
    """Return a time from milliseconds; the default if it is out of any sensible range."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 4e12:
        return default
    return datetime.fromtimestamp(value / 1000, UTC)


def _count(value: Any, field: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1000:
        raise Invalid("must be a small whole number", field=field)
    return value


def _object(value: Any, field: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Invalid("must be an object", field=field)
    return value


# agent-inbox's federation, which differs from MAP's: its gateway is an agent, sends with `map/send` and receives
# `map/message`. A message has one addressee, and a flat `meta` replaces the envelope:
#
# | in `meta` | |
# |---|---|
# | messageId | the letter's id at its sender |
# | senderId, sourceSystem | the sender and its system |
# | targetAgent | the addressee |
# | importance, subject, threadTag, inReplyTo | of the letter |
# | scope, conversationId | of the letter; sent to agent-inbox, which never sends them |

_ROUTING_FIELDS = ("messageId", "senderId", "sourceSystem", "targetAgent")
_LETTER_FIELDS = ("importance", "subject", "threadTag", "inReplyTo", "scope", "conversationId")
_INBOX_FIELDS = frozenset({*_ROUTING_FIELDS, *_LETTER_FIELDS})  # a letter's own metadata must not set these


def decode_send(params: dict[str, Any], here: str, peer: str, now: datetime) -> Envelope:
    """Return the envelope in a `map/send` of a gateway of agent-inbox, or raise Invalid."""
    meta = params.get("meta")
    if not isinstance(meta, dict) or "messageId" not in meta:
        raise Invalid(
            "meta names neither the message's id nor its sender",
            field="meta.messageId",
            hint="agent-inbox sets meta.messageId",
        )
    source = meta.get("sourceSystem", peer)
    is_own = isinstance(source, str) and same_name(source, peer)
    name, scope = _target(params.get("to"), meta)
    message = {
        "id": meta["messageId"],
        "from": meta.get("senderId"),
        "to": {"agent": name},
        "payload": params.get("payload"),
        "meta": {**meta, **({"scope": scope} if scope else {})},
    }
    routing = {"sourceSystem": peer if is_own else source, "targetSystem": here, "path": [peer]}
    return decode_envelope({"payload": message, "federation": routing}, here, now)


def _target(to: Any, meta: dict[str, Any]) -> tuple[Any, Any]:
    """Return the name of the addressee, and its scope if there is one."""
    if isinstance(to, dict):
        return to.get("agentId", to.get("agent", meta.get("targetAgent"))), to.get("scope")
    return to if isinstance(to, str) else meta.get("targetAgent"), None


def encode_messages(envelope: Envelope) -> list[dict[str, Any]]:
    """Return one `map/message` for each addressee of an envelope.

    Raise Invalid for an envelope to every agent of the system: agent-inbox has no form for it.
    """
    if not all(target.agent for target in envelope.targets):
        raise Invalid("agent-inbox takes no letter for everybody", field="to", hint="name its agents: bob@system")
    letter, name = envelope.message, agent_of(envelope.message.sender)
    # agent-inbox appends the name of the system that it called, which is this one. A sender of a third system
    # therefore keeps its own, or it would look like one of ours.
    is_ours = envelope.path[-1] == envelope.source
    return [
        {
            "id": letter.id,
            "from": name if is_ours else f"{name}@{envelope.source}",
            "to": {"agent": target.agent},
            "timestamp": milliseconds(letter.created_at),
            "payload": content_of(letter.parts),
            "meta": _inbox_meta(envelope, target),
        }
        for target in envelope.targets
    ]


def _inbox_meta(envelope: Envelope, target: Address) -> dict[str, Any]:
    letter = envelope.message
    scope = target.scope or letter.scope
    fields = present(
        messageId=letter.id,
        senderId=agent_of(letter.sender),
        sourceSystem=envelope.source,
        targetAgent=target.agent,
        importance=PRIORITIES[letter.priority - 1],
        subject=letter.subject or None,
        threadTag=letter.thread_tag,
        inReplyTo=letter.in_reply_to,
        conversationId=letter.conversation_id,
        scope=None if scope == DEFAULT_SCOPE else scope,
    )
    return {name: value for name, value in letter.metadata.items() if name not in _INBOX_FIELDS} | fields


# Refusals, in the error codes of MAP's SDK:
#
# | code | meaning | the letter |
# |---|---|---|
# | 5000, 4000, 4001, 4002, or `retryable` | not now | waits, and is sent again |
# | 1000 to 1006, 5002 | this connection is not trusted | waits until it is |
# | 5001, 5003, 5010, 5011, and all others | no | is dead, and its sender gets a bounce |
#
# A letter may have several addressees: `refused` beside `routed` names those that did not get it.

PREFIX = "map/federation"  # prefix of the names of its methods, in both spellings
AFTER = "after"  # the field of a refusal because of an earlier letter
UNAVAILABLE, NOT_TRUSTED, REJECTED, LOOP, TOO_FAR = 5000, 5002, 5003, 5010, 5011
_RETRY_SOON = 1000  # milliseconds
NUMBERS: Numbers = (
    (LoopDetected, None, LOOP),
    (HopsSpent, None, TOO_FAR),
    (NotAllowed, "auth", NOT_TRUSTED),
    (NotAllowed, "token", NOT_TRUSTED),
    (NotAllowed, "systemId", NOT_TRUSTED),
    (UnknownAgent, None, REJECTED),
    (Missing, "system", NO_SYSTEM),
    (Missing, "to", NO_SYSTEM),
    (QuotaFull, None, OVER_QUOTA),
    (TooFast, None, TOO_FAST),
    (Busy, None, UNAVAILABLE),
    (StaleRevision, None, UNAVAILABLE),
    (Refused, None, REJECTED),
    (Invalid, None, REJECTED),
    (Missing, None, REJECTED),
    (Conflict, None, REJECTED),
)
_NOT_NOW = frozenset({UNAVAILABLE, EXHAUSTED, TOO_FAST, OVER_QUOTA})
_AUTH = frozenset({*range(AUTH_REQUIRED, BAD_CREDENTIALS + 1), NOT_TRUSTED})


class PeerRefusal(Struct, frozen=True):
    """The reason why an agent at another system did not get a letter."""

    code: int | None  # None: the other system sent none
    message: str
    is_temporary: bool = False
    is_behind: bool = False  # it waits only for an earlier letter

    @property
    def is_of_trust(self) -> bool:
        """Whether the refusal concerns the connection, not the letter."""
        return self.code in _AUTH

    @property
    def waits(self) -> bool:
        """Whether the letter stays queued to be sent again."""
        return self.is_temporary or self.code in _NOT_NOW or self.is_of_trust or self.code == INTERNAL_ERROR


def number_of(error: PostroomError) -> int:
    return number_in(NUMBERS, error, error.field) or (UNAVAILABLE if error.temporary else INTERNAL_ERROR)


def federation_error(error: PostroomError) -> dict[str, Any]:
    """Return the error object of a reply."""
    number = number_of(error)
    data: dict[str, Any] = {"category": category_of(number), "retryable": error.temporary}
    if error.temporary:
        data["retryAfterMs"] = _RETRY_SOON
    return {"code": number, "message": str(error), "data": data | {"details": details(error)}}


def routed(id: str, problems: Sequence[tuple[str, PostroomError | None]]) -> dict[str, Any]:
    """Return the result for a routed letter, from the error of each addressee or None.

    Raise the error if every addressee refused it with the same code.
    """
    refused = [(agent, problem) for agent, problem in problems if problem is not None]
    if refused and len(refused) == len(problems) and len({number_of(problem) for _, problem in refused}) == 1:
        raise refused[0][1]
    return {"routed": True, "messageId": id} | ({"refused": list(_rows(refused))} if refused else {})


def each_of(result: dict[str, Any], many: int) -> list[dict[str, Any]]:
    """Return the result for each of `many` letters; empty for a letter without one."""
    rows = result.get("letters")
    found = rows if isinstance(rows, list) else []
    return [row if isinstance(row, dict) else {} for row in found[:many]] + [{}] * (many - len(found))


def _rows(refused: Iterable[tuple[str, PostroomError]]) -> Iterable[dict[str, Any]]:
    for agent, problem in refused:
        yield {
            "agent": agent,
            "code": number_of(problem),
            "message": str(problem),
            "temporary": problem.temporary,
        } | ({"field": problem.field} if problem.field else {})


def refusals(result: dict[str, Any]) -> dict[str, PeerRefusal]:
    """Return the refusals in the result for a routed letter, by the name of the addressee."""
    rows = result.get("refused")
    found = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return {str(row.get("agent")): read_refusal(row) for row in found}


def read_refusal(value: Any) -> PeerRefusal:
    """Return the refusal in an error object, or in a row of `refused`."""
    row: dict[str, Any] = value if isinstance(value, dict) else {}
    data = object_in(row, "data")
    is_temporary = row.get("temporary") is True or data.get("retryable") is True
    is_behind = AFTER in (row.get("field"), object_in(data, "details").get("field"))
    code = row.get("code")
    return PeerRefusal(
        code if isinstance(code, int) else None, str(row.get("message"))[:300], is_temporary, is_behind
    )
