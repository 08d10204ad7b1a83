"""The actions of agent-inbox, with its requests and replies, including fields that its callers send and it drops.

Unlike agent-inbox, an invalid request is refused and nothing of it is written, and only letters that were returned
are marked as read.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import UNSET

from ..core import agents, inbox, messages, threads
from ..core.deliveries import deliveries_of
from ..core.peers import system_id
from ..core.verb import checked_mailbox, perform, set_parameters, verb
from ..errors import Invalid, PostroomError, UnknownAgent
from ..formats.inbox import FIELD_IN_ERRORS, agent_record, far_agent_record, message_record, read_send
from ..model.names import check_agent, is_scope_only
from .requests import ForeignVerb, Milliseconds, OwnWork, time_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.authorize import Principal
    from ..core.core import Core
    from ..core.verb import Verb
    from ..formats.inbox import MessageRecord
    from ..model.query import Found


DEFAULT = "default"  # agent and scope of a caller that names none

ACTIONS: dict[str, type[Verb]] = {}
_AGENT = f"which agent; by default the token's, else the scope, else {DEFAULT!r}"
_SCOPE = f"by default that of the server: INBOX_SCOPE, else {DEFAULT!r}"
_OBJECT = dict[str, Any]


# -- mail


@verb("ping", "pid", registry=ACTIONS, action="agents", writes=False, strict=False)
class Ping(ForeignVerb, kw_only=True):
    """Check that the server is there."""

    def run(self, _core: Core, _principal: Principal) -> Any:
        return {"pid": os.getpid()}


@verb("send", "messageId", registry=ACTIONS, action="send", strict=False)
class Send(ForeignVerb, kw_only=True, rename={"from_": "from"}):
    """Send a letter."""

    whose: ClassVar[str | None] = "from"

    from_: Annotated[str | None, "by default the token's agent, else the server by the name of its system"] = None
    to: Annotated[
        Any,
        "a name, {agent, system, scope}, or a list of these or of {agent_id, kind}; without it, the sender of the"
        " letter in inReplyTo",
    ] = None
    payload: Annotated[Any, "text, an object with a `type`, or any JSON"] = UNSET
    scope: Annotated[str | None, _SCOPE] = None
    thread_tag: Annotated[str | None, "a label for the thread"] = None
    in_reply_to: Annotated[str | None, "the letter it answers: by default its scope, subject and importance"] = (
        None
    )
    importance: Annotated[str | None, "low, normal, high or urgent"] = None
    meta: Annotated[_OBJECT | None, "anything else"] = None
    subject: Annotated[str | None, "one line"] = None
    conversation_id: Annotated[str | None, "the conversation it belongs to"] = None
    kind: Annotated[str | None, "an open word"] = None
    key: Annotated[str | None, "the same key again sends nothing twice"] = None
    expires: Annotated[datetime | float | None, "not offered after this"] = None
    at: Annotated[datetime | float | None, "not delivered before this"] = None
    tags: Annotated[list[Any] | None, "labels"] = None
    agent_id: Annotated[str | None, "our own name for from"] = None
    body: Annotated[Any, "our own name for payload: text, or a list of parts"] = None
    priority: Annotated[Any, "our own name for importance"] = None
    cc: Annotated[Any, "further recipients"] = None
    bcc: Annotated[Any, "recipients that the others do not see"] = None
    data: Annotated[Any, "any JSON; becomes a data part"] = None

    def named(self) -> str | None:
        return self.agent_id or self.from_ or None

    def run(self, core: Core, principal: Principal) -> Any:
        """Send the letter. The parameters of our own `send` are accepted, too."""
        fields = read_send(set_parameters(self))
        if self.in_reply_to is None:
            fields.setdefault("scope", core.default_scope)
        # Without a name it is the server itself, by the name of its system.
        writer = self.named() or principal.agent or system_id(core)
        try:
            return {"messageId": perform(core, principal, messages.Send(agent_id=writer, **fields)).id}
        except PostroomError as refused:
            refused.field = FIELD_IN_ERRORS.get(refused.field or "", refused.field)
            raise


@verb("check_inbox", "messages", registry=ACTIONS, action="check", many=True, strict=False)
class CheckInbox(ForeignVerb, kw_only=True):
    """An agent's mail, in the order it came."""

    whose: ClassVar[str | None] = "agent_id"

    agent_id: Annotated[str | None, _AGENT] = None
    scope: Annotated[str | None, _SCOPE] = None
    unread_only: Annotated[bool, "false by default"] = False
    clear: Annotated[bool, "mark what is returned as read"] = False
    limit: Annotated[int | None, "how many at most"] = None
    since: Annotated[datetime | Milliseconds | None, "only letters written at this time or later"] = None

    def acting(self) -> str:
        return self.agent_id or self.scope or DEFAULT

    def run(self, core: Core, principal: Principal) -> Any:
        name = self.agent_id or principal.agent or self.acting()
        if not self.agent_id and is_scope_only(name):
            return {"messages": []}  # no agent can have this name
        check = inbox.Check(
            agent_id=name,
            since=time_of(self.since, "since"),
            limit=self.limit,
            unread_only=self.unread_only,
            peek=not self.clear,
            order="age",
        )
        return {"messages": _records(core, principal, perform(core, principal, check).letters, name)}


def _records(core: Core, principal: Principal, found: Sequence[Found], reader: str) -> list[MessageRecord]:
    """Return each letter with all its recipients. Other deliveries are loaded only where there are any."""
    several = [f.message.id for f in found if _has_other_recipients(f)] if principal.operator else []
    others = deliveries_of(core.store, several)
    return [message_record(f.message, others.get(f.message.id) or [f.delivery], reader) for f in found]


def _has_other_recipients(found: Found) -> bool:
    """Return whether a letter was sent to several recipients, or to a group."""
    recipients = found.message.recipients
    return len(recipients) > 1 or recipients[0].address != found.delivery.mailbox


@verb(
    "read_thread",
    "threadTag, count, messages",
    registry=ACTIONS,
    action="threads",
    many=True,
    writes=False,
    strict=False,
)
class ReadThread(ForeignVerb, kw_only=True):
    """The letters with a thread tag."""

    whose: ClassVar[str | None] = "agent_id"

    thread_tag: Annotated[str, "the tag"]
    agent_id: Annotated[str | None, "the agent that reads; an operator without one sees all letters"] = None
    scope: Annotated[str | None, _SCOPE] = None

    def run(self, core: Core, principal: Principal) -> Any:
        tag, scope = self.thread_tag, self.scope if self.scope is not None else core.default_scope
        me = principal.agent if self.agent_id is None else checked_mailbox(core, self.agent_id)
        letters = perform(core, principal, threads.GetTagged(agent_id=me or "", tag=tag, scope=scope)).letters
        records = []
        deliveries = deliveries_of(core.store, [letter.id for letter in letters])
        for letter in letters:
            shown = [one for one in deliveries[letter.id] if me is None or one.mailbox == me]
            records.append(message_record(letter, shown, me))
        return {"threadTag": tag, "count": len(records), "messages": records}


# -- agents


@verb("list_agents", "count, agents", registry=ACTIONS, action="agents", many=True, writes=False, strict=False)
class ListAgents(ForeignVerb, kw_only=True):
    """Registered agents."""

    scope: Annotated[str | None, "only of this scope"] = None
    include_federated: Annotated[bool, "also agents of other systems, if no scope is given"] = False

    def run(self, core: Core, principal: Principal) -> Any:
        elsewhere = self.include_federated and self.scope is None  # the scopes of remote agents are unknown
        found = perform(core, principal, agents.ListAgents(scope=self.scope, elsewhere=elsewhere))
        rows = [agent_record(agent) for agent in found.agents if agent.registered]
        rows += [far_agent_record(*one) for one in found.elsewhere or ()]
        return {"count": len(rows), "agents": rows}


@verb("register_agent", "nothing more", registry=ACTIONS, action="register", strict=False)
class RegisterAgent(ForeignVerb, kw_only=True):
    """Register an agent; fields that are left out stay as they were."""

    whose: ClassVar[str | None] = "agent_id"

    agent_id: Annotated[str | None, "the agent's name"] = None
    name: Annotated[str | None, "a name for people"] = None
    program: Annotated[str | None, "what runs it"] = None
    model: Annotated[str | None, "the model behind it"] = None
    scope: Annotated[str | None, "the team it is in"] = None
    scopes: Annotated[list[Any] | None, "the teams it is in"] = None
    metadata: Annotated[_OBJECT | None, "anything else"] = None

    def run(self, core: Core, principal: Principal) -> Any:
        scopes = self.scopes or ([self.scope] if self.scope is not None else None)
        fields = {"display_name": self.name, "program": self.program, "model": self.model, "scopes": scopes,
                  "metadata": self.metadata}  # fmt: skip
        perform(core, principal, agents.registration(core, self.actor(core, principal), fields))
        return {}


@verb("notify", "nothing more", registry=ACTIONS, action="register", strict=False)
class Notify(ForeignVerb, kw_only=True):
    """An agent came (agent.spawn) or went (agent.done)."""

    event: Annotated[_OBJECT, "type, and agent or agentId"]

    def acting(self) -> str | None:
        agent = self.event.get("agent")
        name: str | None = self.event.get("agentId") or (agent.get("agentId") if isinstance(agent, dict) else None)
        return name

    def run(self, core: Core, principal: Principal) -> Any:
        """Register an agent that was spawned, and note that one has left. Other events are ignored."""
        event, name = self.event, self.acting()
        agent = event["agent"] if isinstance(event.get("agent"), dict) else {}
        if event.get("type") == "agent.spawn":
            if not name:
                raise Invalid("is missing", field="event.agent.agentId")
            fields = {"display_name": agent.get("name"), "scopes": agent.get("scopes") or [core.default_scope],
                      "metadata": _metadata(agent)}  # fmt: skip
            perform(core, principal, agents.registration(core, checked_mailbox(core, name), fields))
        elif event.get("type") == "agent.done" and name:
            with suppress(UnknownAgent):  # it was never registered
                perform(core, principal, agents.Goodbye(agent_id=name))
        return {}


def _metadata(agent: dict[str, Any]) -> dict[str, Any] | None:
    metadata = agent.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise Invalid("must be an object", field="event.agent.metadata")
    return metadata | ({"role": agent["role"]} if agent.get("role") else {}) or None


# No type may look like another one, by letters of another script or invisible ones (G8).
_PLAIN_TYPE = re.compile(r"[A-Za-z0-9][!-~]{0,199}")


@verb("emit", "nothing more", registry=ACTIONS, action="send", strict=False)
class Emit(OwnWork, kw_only=True):
    """Send an event to those who subscribed to this scope."""

    whose: ClassVar[str | None] = "agent_id"

    event: Annotated[Any, "what happened"]
    meta: Annotated[_OBJECT | None, "about it"] = None
    agent_id: Annotated[str | None, "the agent that sends it"] = None
    scope: Annotated[str | None, _SCOPE] = None

    def run(self, _core: Core, _principal: Principal) -> Any:
        """Check the event. `Caller` publishes it once the call has succeeded."""
        if self.agent_id is not None:
            check_agent(self.agent_id, "agent_id")
        kind = self.event.get("type") if isinstance(self.event, dict) else None
        if isinstance(kind, str) and kind and not _PLAIN_TYPE.fullmatch(kind):
            hint = "letters, digits and signs of ASCII without spaces, such as build.done"
            raise Invalid(f"{kind[:100]!a} is not a plain word", field="event.type", hint=hint)
        return {}
