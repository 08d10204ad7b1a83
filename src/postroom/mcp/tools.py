"""The tools for sending and reading: what was said becomes a verb, its answer the design's words."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..errors import Invalid, NotAllowed, UnknownAgent
from ..model.content import payload_to_parts
from ..model.message import DEFAULT_SCOPE
from .letters import agent, message, messages

if TYPE_CHECKING:
    from .caller import Caller

LONGEST_WAIT = 50.0  # seconds; the hosts give up on a tool after a minute
USUAL_WAIT = 30.0


async def send_message(caller: Caller, said: dict[str, Any]) -> dict[str, Any]:
    """A message with `inReplyTo` is a reply: it stays in the scope of what it answers, unless it names another,
    and without `to` goes to whoever wrote that (by the rule of `send`).
    """
    fields = some(said, "subject", "thread_tag", "in_reply_to", "key", importance="priority")
    answers = said.get("in_reply_to")
    scope = said.get("to_scope") or (caller.scope if answers is None else None)
    told = {"agent_id": caller.sender(said.get("from")), "body": _body(said), **fields}
    told |= {"scope": scope} if scope else {}
    if "to" not in said and "to_scope" in said:
        return sent(await caller.call("broadcast", told))
    if "to" not in said and answers is None:
        hint = "an agent's id, to_scope for everyone in a team, or inReplyTo for whoever wrote that message"
        raise Invalid("is missing", field="to", hint=hint)
    return sent(await caller.call("send", some(said, "to") | told))


async def check_inbox(caller: Caller, said: dict[str, Any]) -> dict[str, Any]:
    name = caller.who(said.get("agent_id"))
    await _announce(caller, name)
    found = await caller.call("check", {"agent_id": name, **some(said, "unread_only", "limit")})
    return messages(found["letters"])


async def read_thread(caller: Caller, said: dict[str, Any]) -> dict[str, Any]:
    """By its tag; what is no tag may be the id of a thread. An agent that is in it sees all of it, as does an
    operator that is nobody; the holder of an agent's token sees what that agent sent or got, and no more (I8).
    """
    tag, me = said["thread_tag"], said.get("agent_id") or caller.me
    scope = said.get("scope") or caller.scope or (None if me else DEFAULT_SCOPE)
    found: list[dict[str, Any]] = []
    for verb, key in (("tagged", "tag"), ("thread", "thread")):
        which = {key: tag} | ({"scope": scope} if scope and verb == "tagged" else {})
        found = (await caller.call(verb, which | ({"agent_id": me} if me else {})))["letters"]
        if found and me and caller.agent is None:
            scopes = {one["scope"] for one in found}  # the same tag in another scope is another conversation
            with suppress(NotAllowed, Invalid):  # in a room with tokens, a caller without one is no operator
                whole = (await caller.call(verb, which))["letters"]
                found = [one for one in whole if verb == "thread" or one["scope"] in scopes]
        if found:
            break
    return messages(found, threadTag=tag)


async def list_agents(caller: Caller, said: dict[str, Any]) -> dict[str, Any]:
    wants_all = said.get("include_federated", False) and "scope" not in said  # of others nobody knows the team
    found = await caller.call("agents", some(said, "scope") | ({"elsewhere": True} if wants_all else {}))
    told = [agent(row) for row in found["agents"]] + found.get("elsewhere", [])
    return {"count": len(told), "agents": told}


async def wait_for_mail(caller: Caller, said: dict[str, Any]) -> dict[str, Any]:
    me = caller.who(said.get("agent_id"))
    told = {"agent_id": me, "timeout": patience(said, USUAL_WAIT), **some(said, "since", "thread")}
    found = await caller.unless_gone("wait", told)
    letter = found["letter"]
    return {"message": None if letter is None else message(letter), "cursor": found["cursor"]}


async def search_mail(caller: Caller, said: dict[str, Any]) -> dict[str, Any]:
    me = caller.who(said.get("agent_id"))
    return messages(
        (await caller.call("search", {"agent_id": me, **some(said, "query", "limit", "ranked")}))["letters"]
    )


def some(said: dict[str, Any], *names: str, **renamed: str) -> dict[str, Any]:
    """Those of these that were said, under the verb's names."""
    wanted = {name: name for name in names} | renamed
    return {theirs: said[ours] for ours, theirs in wanted.items() if ours in said}


def sent(receipt: dict[str, Any]) -> dict[str, Any]:
    """`unknown` are recipients nobody has heard from: new ones, or a typing error."""
    told = {"ok": True, "messageId": receipt["id"], "thread": receipt["thread"]}
    return told | ({"unknown": receipt["unknown"]} if receipt["unknown"] else {})


def patience(said: dict[str, Any], usual: float) -> float:
    """How long to wait: never longer than a host waits for a tool."""
    seconds: float = said.get("timeout", usual)
    return max(0.0, min(seconds, LONGEST_WAIT))


async def _announce(caller: Caller, name: str) -> None:
    """Whoever looks at an inbox is there; an agent nobody knows is registered."""
    with suppress(NotAllowed):  # a token that is good for reading only
        try:
            await caller.call("heartbeat", {"agent_id": name, "active": True})
        except UnknownAgent:
            team = {"scopes": [caller.scope]} if caller.scope else {}
            await caller.call("register", {"agent_id": name, **team})


def _body(said: dict[str, Any]) -> Any:
    if "content" not in said:
        return said.get("body", "")
    content = said["content"]
    if not isinstance(content.get("type"), str):
        raise Invalid("must be an object with a string `type`", field="content")
    return payload_to_parts(content)
