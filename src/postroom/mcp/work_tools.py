"""The tools for mail that is worked on: leases, tasks, handoffs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import Invalid
from .letters import messages
from .letters import task as task_row
from .tools import patience, sent, some

if TYPE_CHECKING:
    from .caller import Caller

# How a message ended -> the verb that says so.
OUTCOMES = {"done": "ack", "failed": "fail", "rejected": "reject", "released": "release"}
_HANDOFF = ("work_completed", "current_state", "next_steps", "blockers", "files_modified", "notes")


async def claim(caller: Caller, said: dict[str, Any]) -> dict[str, Any]:
    me = caller.who(said.get("agent_id"))
    told = {"agent_id": me, "timeout": patience(said, 0), **some(said, "count", "lease")}
    return messages((await caller.unless_gone("claim", told))["letters"])


async def ack(caller: Caller, said: dict[str, Any]) -> dict[str, Any]:
    outcome = said.get("outcome", "done")
    takes = {"done": ("reply",), "failed": ("reason",), "rejected": ("reason",)}.get(outcome, ())
    for name in ("reply", "reason"):
        if name in said and name not in takes:
            raise Invalid(f"does not go with {outcome}", field=name)
    told = {"agent_id": caller.who(said.get("agent_id")), **some(said, "message_ids", "token", "reply", "reason")}
    found = await caller.call(OUTCOMES[outcome], told)
    replies = [receipt["id"] for receipt in found["receipts"]]
    settled = [{"id": one["id"], "state": one["state"]} for one in found["letters"]]
    return {"messages": settled} | ({"replyId": replies[0]} if replies else {})


async def task(caller: Caller, said: dict[str, Any]) -> dict[str, Any]:
    me, action = {"agent_id": caller.who(said.get("agent_id"))}, said["action"]
    if action == "give":
        return await _give(caller, me, said)
    if action == "list":
        return {"tasks": [task_row(row) for row in (await caller.call("tasks", me))["tasks"]]}
    if "message_id" not in said:
        raise Invalid("is missing", field="messageId", hint="the message that opened the task")
    told = {**me, "message_id": said["message_id"]}
    if action == "status":
        return {"task": task_row((await caller.call("task", told))["task"])}
    told |= {"step": action, **some(said, "token", "body", "reason")}
    moved = await caller.call("task_step", told)
    return {"task": task_row(moved["task"]), "messageId": moved["receipt"]["id"]}


async def _give(caller: Caller, me: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    if "to" not in said:
        raise Invalid("is missing", field="to", hint="who does it")
    told = {**me, **some(said, "to", "body", "subject")}
    if "deadline" in said:  # checked already; the verb reads it again from text
        when = said["deadline"]
        told["deadline"] = when if isinstance(when, (int, float)) else when.isoformat()
    receipt = await caller.call("give_task", told)
    return {"messageId": receipt["id"]}


async def handoff(caller: Caller, said: dict[str, Any]) -> dict[str, Any]:
    told = {"agent_id": caller.sender(said.get("from")), "to": said["to"], **some(said, "subject")}
    return sent(await caller.call("handoff", {**told, "handoff": some(said, *_HANDOFF)}))
