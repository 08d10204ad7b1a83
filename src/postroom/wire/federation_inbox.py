"""agent-inbox's way between systems, which is not MAP's: its gateway is an agent, sends with `map/send` and is
handed `map/message`. One message is for one agent, and a flat `meta` says what an envelope would.

| in `meta` | |
|---|---|
| messageId | the letter's id, as its sender knows it |
| senderId, sourceSystem | who wrote it, and where |
| targetAgent | whom it is for |
| importance, subject, threadTag, inReplyTo | of the letter |
| scope, conversationId | the same; said to agent-inbox, and never by it |

It refuses to know connections, peers, and whether a letter may pass. Above it stand `federation` and `map_server`.
"""

from __future__ import annotations

from typing import Any

from ..errors import Invalid
from ..model.message import DEFAULT_SCOPE, same_name
from .federation import POSTROOM, TARGETS
from .inbox_records import present

_OF_WAY = ("messageId", "senderId", "sourceSystem", "targetAgent")
_OF_LETTER = ("importance", "subject", "threadTag", "inReplyTo", "scope", "conversationId")
_WORDS = frozenset({*_OF_WAY, *_OF_LETTER})  # in a letter's own metadata they mean something else, or nothing


def envelope_said(said: dict[str, Any], peer: str, here: str) -> dict[str, Any]:
    """The envelope of what a gateway of agent-inbox says with `map/send`."""
    meta = said.get("meta")
    if not isinstance(meta, dict) or "messageId" not in meta:
        raise Invalid("says neither who wrote it nor its id", field="meta.messageId", hint="as agent-inbox does")
    source = meta.get("sourceSystem", peer)
    is_own = isinstance(source, str) and same_name(source, peer)
    name, scope = _target(said.get("to"), meta)
    message = {
        "id": meta["messageId"],
        "from": meta.get("senderId"),
        "to": {"agent": name},
        "payload": said.get("payload"),
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
    told, to = envelope["payload"], envelope["payload"]["to"]
    names = to.get("agents") or [to.get("agent")]
    if not all(names):
        raise Invalid("agent-inbox takes no letter for everybody", field="to", hint="name its agents: bob@system")
    return [
        {
            "id": told["id"],
            "from": _sender(envelope),
            "to": {"agent": name},
            "timestamp": told["timestamp"],
            "payload": told["payload"],
            "meta": _meta(envelope, name),
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


def _meta(envelope: dict[str, Any], name: str) -> dict[str, Any]:
    told = envelope["payload"]
    meta = told["meta"]
    known = meta["_meta"]
    rest = known[POSTROOM]
    scopes = {one.get("agent"): one.get("scope") for one in rest.get(TARGETS, ())}
    scope = scopes.get(name) or rest.get("scope", DEFAULT_SCOPE)
    words = present(
        messageId=told["id"],
        senderId=told["from"],
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
