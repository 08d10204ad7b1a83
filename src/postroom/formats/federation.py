"""A letter on its way to another system: the envelope that a MAP gateway carries, and the letter it was.

    {"payload": <MAP message>,
     "federation": {sourceSystem, targetSystem, hopCount, maxHops, path, originTimestamp}}

The message says what MAP has words for in those words (`id`, `from`, `to`, `timestamp`, `payload`, `meta`), and
once more, as agentic-mesh does, below `meta._meta`. The rest of the letter stands in `meta._meta.postroom`, so
nothing of it is lost between two post rooms; `federation_reading` makes the letter of it again. Names are those of
the system where their agents are: who is here is `bob@here` in what is sent, and `bob` again in what comes home.

It refuses to know connections, peers, and whether a letter may pass. Above it stands `federation`.
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
    CAME,
    DEFAULT_SCOPE,
    Message,
    Priority,
    content_of,
    is_any,
    is_broadcast,
    payload_to_parts,
    same_name,
)
from ..model.names import (
    ANYWHERE,
    Address,
    agent_of,
    at_system,
    check_id,
    check_remote_agent,
    check_system,
    fold,
    is_remote,
    parse_address,
    system_of,
)
from .errors import INTERNAL_ERROR, details
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
    from ..model.message import Recipient


POSTROOM = "postroom"  # in `_meta`: what only we know to read
TARGETS = "targets"  # in what only we read: scopes of those it is for
MOST_HOPS = 10  # systems that a letter may pass, where nobody says it
IN_MAP = frozenset({"id", "sender", "parts", "proven"})  # of a letter: read from MAP's words, or not told at all


class Envelope(Struct, frozen=True, kw_only=True):
    """One letter, to all that it is for at one system."""

    message: Message  # its sender is `agent@source`
    source: str  # the system it was written at
    target: str  # the system it goes to, maybe through others
    targets: tuple[Address, ...]
    hops: int = 0  # systems that passed it on
    most_hops: int = MOST_HOPS
    path: tuple[str, ...] = ()  # those that had it, the first first


def envelope_of(
    letter: Message,
    target: str,
    targets: Sequence[Address],
    *,
    here: str,
    most_hops: int,
    now: datetime,
    is_ours: bool = False,
) -> dict[str, Any]:
    """The envelope of a letter that lies here, as it is put on a line. `is_ours`: to a post room. What that reads
    in our own words is not said in MAP's as well: the line may be too short for both.
    """
    way = way_of(letter)
    source = system_of(letter.sender) or here
    path = [*way.get("path", ()), here]
    result = _message(letter, targets, here=here, id=way.get("id") or letter.id, now=now)
    if is_ours and "parts" in result["meta"]["_meta"][POSTROOM]:
        del result["payload"]
    federation: dict[str, Any] = {
        "sourceSystem": source,
        "targetSystem": target,
        "hopCount": way.get("hops", 0) + 1 if way else 0,
        "maxHops": most_hops,
        "path": list(dict.fromkeys(path)),
        "originTimestamp": milliseconds(letter.created_at),
    }
    if letter.thread_tag is not None:
        federation["correlationId"] = letter.thread_tag
    return {"payload": result, "federation": federation}


def way_of(letter: Message) -> dict[str, Any]:
    """How a letter came here: source, id, path and hops; nothing, if it was written here."""
    params = letter.extra.get(CAME) if is_remote(letter.sender) else None
    return params if isinstance(params, dict) else {}


def _message(letter: Message, targets: Sequence[Address], *, here: str, id: str, now: datetime) -> dict[str, Any]:
    content = content_of(letter.parts)
    return {
        "id": id,
        "from": agent_of(letter.sender) if is_remote(letter.sender) else letter.sender,
        "to": _to(targets),
        "timestamp": milliseconds(letter.created_at),
        "payload": content,
        "meta": _meta(letter, content, targets, here=here, id=id, now=now),
    }


def _to(targets: Sequence[Address]) -> dict[str, Any]:
    """MAP has no word for a scope of one agent: that stands in ours."""
    names = [target.agent for target in targets]
    if not all(names):
        return {"system": True}
    return {"agent": names[0]} if len(names) == 1 else {"agents": names}


def _meta(
    letter: Message, content: Any, targets: Sequence[Address], *, here: str, id: str, now: datetime
) -> dict[str, Any]:
    left = None
    if letter.expires_at is not None:
        left = max(1, int((letter.expires_at - now).total_seconds() * 1000))
    mail = present(conversationId=letter.conversation_id, inReplyTo=letter.in_reply_to)
    known = present(
        inboxMessageId=id,
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
        _meta={**known, POSTROOM: _extra_fields(letter, content, targets, here)},
    )


def _extra_fields(letter: Message, content: Any, targets: Sequence[Address], here: str) -> dict[str, Any]:
    """What MAP has no word for."""
    extra = {name: value for name, value in letter.extra.items() if name != CAME}
    meant = _meant(letter.recipients, targets)
    shown = [one for one in meant if one.kind != "bcc" or _names(one.address, targets)]
    recipients = tuple(replace(one, address=_abroad(one.address, here)) for one in shown)
    trace = tuple(_abroad(name, here) for name in letter.trace)
    plain = to_plain(replace(letter, extra=extra, recipients=recipients, trace=trace, parts=()))
    parts = [part.to_json() for part in letter.parts]
    is_said = parts == payload_to_parts(content)
    rest = {name: value for name, value in plain.items() if name not in IN_MAP}
    targeted = [present(agent=one.agent or None, scope=one.scope) for one in targets if one.scope]
    return rest | ({} if is_said else {"parts": parts}) | ({TARGETS: targeted} if targeted else {})


def _meant(recipients: Sequence[Recipient], targets: Iterable[Address]) -> list[Recipient]:
    """With who was said by name alone, or was to be found, as who it was found to be. Else nobody there would know
    that one who is hidden is, or whom it is that an answer to all goes to.
    """
    found = list(recipients)
    places = {fold(one.address): place for place, one in reversed(list(enumerate(found)))}
    for target in targets:
        params = (str(target), at_system(target.agent, ANYWHERE), target.agent)
        place = next((places[fold(name)] for name in params if fold(name) in places), None)
        if place is not None:
            found[place] = replace(found[place], address=str(target))
    return found


def _names(address: str, targets: Iterable[Address]) -> bool:
    """Is it one of those the envelope is for? Other hidden ones are nobody's affair there."""
    return any(address == str(target) for target in targets)


def _abroad(name: str, here: str) -> str:
    """As it is called there. Groups stay as they were written."""
    is_group = is_broadcast(name) or is_any(name) or not name
    return name if is_group or is_remote(name) else f"{name}@{here}"


# What comes from another system, as the letter it is: envelopes of ours, of MAP's SDK and of agentic-mesh.
#
# Whatever a peer says, what goes out of here has sound names and the right types, or is Invalid with the field's
# name. Whether it may pass is another question.
#
# It refuses to know connections and peers. Above it stands `federation`.

MOST_PATH = 100  # systems in a path that is believed
CLOCKS_DIFFER = timedelta(minutes=1)  # by less: clocks that are right, and a slow line


def read_route(params: dict[str, Any], here: str, peer: str, now: datetime) -> Envelope:
    """What `map/federation/route` says: an envelope, or a message or a payload without one, straight from a peer.
    Invalid names what is wrong; whether it may pass is another question.
    """
    envelope = params.get("envelope")
    if envelope is not None:
        return _read_envelope(_object(envelope, "envelope"), here, now)
    message = params.get("message")
    if message is None:
        payload = params.get("payload")
        is_message = isinstance(payload, dict) and "to" in payload and "from" in payload
        message = payload if is_message else None
    if message is None:
        raise Invalid("says nothing", field="envelope", hint="an envelope, or a message")
    bare = {"sourceSystem": peer, "targetSystem": params.get("system_id", here), "path": [peer]}
    return _read_envelope({"payload": message, "federation": bare}, here, now)


def _read_envelope(envelope: dict[str, Any], here: str, now: datetime) -> Envelope:
    result = _object(envelope.get("payload"), "envelope.payload")
    way = _object(envelope.get("federation"), "envelope.federation")
    source = check_system(way.get("sourceSystem"), "sourceSystem")
    target = check_system(way.get("targetSystem"), "targetSystem")
    most = way.get("maxHops")
    return Envelope(
        message=_read_letter(result, source, here, now),
        source=source,
        target=target,
        targets=_read_targets(result, target),
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


def _read_targets(result: dict[str, Any], target: str) -> tuple[Address, ...]:
    scoped = _ours(result).get(TARGETS)
    scopes = {}
    if isinstance(scoped, list):
        params = [one for one in scoped if isinstance(one, dict) and isinstance(one.get("agent", ""), str)]
        scopes = {one.get("agent", ""): one.get("scope") or "" for one in params}
    return tuple(
        parse_address({"agent": name, "system": target, "scope": scopes.get(name, "")}, "to")
        for name in dict.fromkeys(_read_names(result.get("to")))
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


def _read_letter(result: dict[str, Any], source: str, here: str, now: datetime) -> Message:
    sender, ours = check_remote_agent(result.get("from"), "from"), _ours(result)
    fields = {
        "recipients": [],
        "created_at": _time(result.get("timestamp"), now).isoformat(),
        **(_postroom_fields(ours) if ours else _words(result, now)),
        "id": check_id(result.get("id"), "id"),
        "sender": f"{sender}@{source}",
        "parts": _parts(result, ours),
    }
    try:
        letter = convert(fields, Message)
    except msgspec.ValidationError as broken:
        raise Invalid(str(broken), field="envelope.payload") from None
    times = (letter.created_at, letter.expires_at, letter.task.deadline if letter.task else None)
    if any(time is not None and time.tzinfo is None for time in times):
        raise Invalid("says a time without a time zone", field="envelope.payload")
    letter = replace(letter, expires_at=_expiry(letter, result, now))
    recipients = tuple(replace(one, address=_home(one.address, here)) for one in letter.recipients)
    trace = tuple(_home(name, here) for name in letter.trace) or (letter.sender,)
    return replace(letter, recipients=recipients, trace=trace)


def _expiry(letter: Message, result: dict[str, Any], now: datetime) -> datetime | None:
    """As it is said; where the clock over there is far from ours, by how long the letter has left."""
    ttl = _dict(result.get("meta")).get("ttlMs")
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
    """All that another post room says of its letter."""
    rest = {name: value for name, value in ours.items() if name not in IN_MAP and name != TARGETS}
    if "extra" in rest:
        rest["extra"] = {name: value for name, value in _object(rest["extra"], "extra").items() if name != CAME}
    return rest


def _words(result: dict[str, Any], now: datetime) -> dict[str, Any]:
    """What MAP's words say of it, agent-inbox's flat ones and agentic-mesh's below `_meta` too. One that means
    nothing here is carried, and not followed.
    """
    meta = _dict(result.get("meta"))
    params = {"to": {"agent": "x"}, "payload": "", "meta": {**_dict(meta.get("_meta")), **meta}}
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


def _parts(result: dict[str, Any], ours: dict[str, Any]) -> list[Any]:
    """Return copies of the parts: composing takes them apart, and the envelope may be read again."""
    parts = ours.get("parts")
    found = (
        parts if isinstance(parts, list) else payload_to_parts(result["payload"]) if "payload" in result else []
    )
    return [{**part} if isinstance(part, dict) else part for part in found]


def _home(name: str, here: str) -> str:
    agent, at, system = name.partition("@")
    return agent if at and agent and system == here else name


def _ours(result: dict[str, Any]) -> dict[str, Any]:
    return _dict(_dict(_dict(result.get("meta")).get("_meta")).get(POSTROOM))


def _time(params: Any, otherwise: datetime) -> datetime:
    """From milliseconds; a clock that is far off is not believed."""
    if isinstance(params, bool) or not isinstance(params, int | float) or not 0 < params < 4e12:
        return otherwise
    return datetime.fromtimestamp(params / 1000, UTC)


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


# agent-inbox's way between systems, which is not MAP's: its gateway is an agent, sends with `map/send` and is
# handed `map/message`. One message is for one agent, and a flat `meta` says what an envelope would.
#
# | in `meta` | |
# |---|---|
# | messageId | the letter's id, as its sender knows it |
# | senderId, sourceSystem | who wrote it, and where |
# | targetAgent | whom it is for |
# | importance, subject, threadTag, inReplyTo | of the letter |
# | scope, conversationId | the same; said to agent-inbox, and never by it |
#
# It refuses to know connections, peers, and whether a letter may pass. Above it stand `federation` and
# `map_server`.

_OF_WAY = ("messageId", "senderId", "sourceSystem", "targetAgent")
_OF_LETTER = ("importance", "subject", "threadTag", "inReplyTo", "scope", "conversationId")
_WORDS = frozenset({*_OF_WAY, *_OF_LETTER})  # in a letter's own metadata they mean something else, or nothing


def envelope_said(params: dict[str, Any], peer: str, here: str) -> dict[str, Any]:
    """The envelope of what a gateway of agent-inbox says with `map/send`."""
    meta = params.get("meta")
    if not isinstance(meta, dict) or "messageId" not in meta:
        raise Invalid("says neither who wrote it nor its id", field="meta.messageId", hint="as agent-inbox does")
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
    way = {"sourceSystem": peer if is_own else source, "targetSystem": here, "path": [peer]}
    return {"payload": message, "federation": way}


def _target(to: Any, meta: dict[str, Any]) -> tuple[Any, Any]:
    """A name, and a scope where one was said."""
    if isinstance(to, dict):
        return to.get("agentId", to.get("agent", meta.get("targetAgent"))), to.get("scope")
    return to if isinstance(to, str) else meta.get("targetAgent"), None


def messages_of(envelope: dict[str, Any]) -> list[dict[str, Any]]:
    """What is handed to it: the message of a `map/message` for each that the envelope is for. Invalid: it is for
    everybody, for which there is no word.
    """
    result, to = envelope["payload"], envelope["payload"]["to"]
    names = to.get("agents") or [to.get("agent")]
    if not all(names):
        raise Invalid("agent-inbox takes no letter for everybody", field="to", hint="name its agents: bob@system")
    return [
        {
            "id": result["id"],
            "from": _sender(envelope),
            "to": {"agent": name},
            "timestamp": result["timestamp"],
            "payload": result["payload"],
            "meta": _inbox_meta(envelope, name),
        }
        for name in names
    ]


def _sender(envelope: dict[str, Any]) -> str:
    """It puts the system it called, which is this one, behind this name. One from further on keeps its own in
    between, so that nobody takes it for one of ours.
    """
    name, way = str(envelope["payload"]["from"]), envelope["federation"]
    is_ours = way["path"][-1] == way["sourceSystem"]
    return name if is_ours else f"{name}@{way['sourceSystem']}"


def _inbox_meta(envelope: dict[str, Any], name: str) -> dict[str, Any]:
    result = envelope["payload"]
    meta = result["meta"]
    known = meta["_meta"]
    rest = known[POSTROOM]
    scopes = {one.get("agent"): one.get("scope") for one in rest.get(TARGETS, ())}
    scope = scopes.get(name) or rest.get("scope", DEFAULT_SCOPE)
    words = present(
        messageId=result["id"],
        senderId=result["from"],
        sourceSystem=envelope["federation"]["sourceSystem"],
        targetAgent=name,
        importance=meta["priority"],
        subject=known.get("subject"),
        threadTag=known.get("threadTag"),
        inReplyTo=known.get("inReplyTo"),
        conversationId=known.get("conversationId"),
        scope=None if scope == DEFAULT_SCOPE else scope,
    )
    more = {name: value for name, value in rest.get("metadata", {}).items() if name not in _WORDS}
    return more | words


# What became of a letter at another system, in the numbers of MAP's SDK, and read again from them.
#
# | number | | the letter |
# |---|---|---|
# | 5000, 4000, 4001, 4002, or `retryable` | not now | waits, and is sent again |
# | 1000 to 1006, 5002 | this connection is not trusted | waits until it is |
# | 5001, 5003, 5010, 5011, and all else | no | is dead, and its sender is told |
#
# One letter may be for several: `refused` beside `routed` names those who did not get it.

PREFIX = "map/federation"  # so begin the names of its methods, in both spellings
AFTER = "after"  # the field of a refusal because of an earlier letter
UNAVAILABLE, NOT_TRUSTED, REJECTED, LOOP, TOO_FAR = 5000, 5002, 5003, 5010, 5011
_RETRY_SOON = 1000  # milliseconds
# (error, the field it names) -> number. None stands for any field; the first row that fits counts.
NUMBERS: tuple[tuple[type[PostroomError], str | None, int], ...] = (
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


class Refusal(Struct, frozen=True):
    """Why somebody at another system did not get a letter."""

    code: int | None  # None: it says none
    message: str
    is_temporary: bool = False
    is_behind: bool = False  # it waits for an earlier letter, and for nothing else
    is_ours: bool = False  # it was not even sent, by a rule of ours

    @property
    def is_of_trust(self) -> bool:
        """Is it about the connection, and not about the letter?"""
        return self.code in _AUTH

    @property
    def waits(self) -> bool:
        return self.is_temporary or self.code in _NOT_NOW or self.is_of_trust or self.code == INTERNAL_ERROR


def number_of(error: PostroomError) -> int:
    for kind, field, number in NUMBERS:
        if isinstance(error, kind) and (field is None or field == error.field):
            return number
    return UNAVAILABLE if error.temporary else INTERNAL_ERROR


def federation_error(error: PostroomError) -> dict[str, Any]:
    """The error of a reply."""
    number = number_of(error)
    data: dict[str, Any] = {"category": category_of(number), "retryable": error.temporary}
    if error.temporary:
        data["retryAfterMs"] = _RETRY_SOON
    return {"code": number, "message": str(error), "data": data | {"details": details(error)}}


def routed(id: str, problems: Sequence[tuple[str, PostroomError | None]]) -> dict[str, Any]:
    """What is told of a letter, by the names of those it was for. Raises if nobody got it: trying again helps if
    it may help with one of them.
    """
    refused = [(agent, problem) for agent, problem in problems if problem is not None]
    if refused and len(refused) == len(problems) and len({number_of(problem) for _, problem in refused}) == 1:
        raise refused[0][1]
    return {"routed": True, "messageId": id} | ({"refused": list(_rows(refused))} if refused else {})


def each_of(result: dict[str, Any], many: int) -> list[dict[str, Any]]:
    """What is told of each of several letters. Of one that nothing is told of, nothing."""
    rows = result.get("letters")
    found = rows if isinstance(rows, list) else []
    return [_dict(row) for row in found[:many]] + [{}] * (many - len(found))


def _rows(refused: Iterable[tuple[str, PostroomError]]) -> Iterable[dict[str, Any]]:
    for agent, problem in refused:
        yield {
            "agent": agent,
            "code": number_of(problem),
            "message": str(problem),
            "temporary": problem.temporary,
        } | ({"field": problem.field} if problem.field else {})


def refusals(result: dict[str, Any]) -> dict[str, Refusal]:
    """Those who did not get a letter that was routed, by name."""
    rows = result.get("refused")
    found = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return {str(row.get("agent")): read_refusal(row) for row in found}


def read_refusal(params: Any) -> Refusal:
    """From an error, or from a row of `refused`."""
    result = params if isinstance(params, dict) else {}
    data = _dict(result.get("data"))
    is_temporary = result.get("temporary") is True or data.get("retryable") is True
    is_behind = AFTER in (result.get("field"), _dict(data.get("details")).get("field"))
    code = result.get("code")
    return Refusal(
        code if isinstance(code, int) else None, str(result.get("message"))[:300], is_temporary, is_behind
    )
