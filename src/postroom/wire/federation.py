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

from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from ..model.address import ANYWHERE, Address, agent_of, at_system, is_remote, system_of
from ..model.codec import to_plain
from ..model.content import content_of, payload_to_parts
from ..model.message import CAME, Message, is_any, is_broadcast
from ..model.names import fold
from .inbox_records import milliseconds, present
from .map_messages import PRIORITIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

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
    told = _message(letter, targets, here=here, id=way.get("id") or letter.id, now=now)
    if is_ours and "parts" in told["meta"]["_meta"][POSTROOM]:
        del told["payload"]
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
    return {"payload": told, "federation": federation}


def way_of(letter: Message) -> dict[str, Any]:
    """How a letter came here: source, id, path and hops; nothing, if it was written here."""
    said = letter.extra.get(CAME) if is_remote(letter.sender) else None
    return said if isinstance(said, dict) else {}


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
        _meta={**known, POSTROOM: _rest(letter, content, targets, here)},
    )


def _rest(letter: Message, content: Any, targets: Sequence[Address], here: str) -> dict[str, Any]:
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
        said = (str(target), at_system(target.agent, ANYWHERE), target.agent)
        place = next((places[fold(name)] for name in said if fold(name) in places), None)
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
