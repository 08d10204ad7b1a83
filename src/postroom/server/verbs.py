"""The verbs: the methods of Postroom's own protocol, one for each verb of the Python library.

Each reads its parameters, calls the verb of the same name on `Mailbox` or `Room`, and returns plain values. The
tables `MAIL_ROWS`, `WORK_ROWS`, `ROOM_ROWS` and `ALERT_ROWS` at the end of each section list them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core import (
    agents,
    alerts,
    asking,
    board,
    doctor,
    escalation,
    inbox,
    messages,
    peers,
    retention,
    search,
    stats,
    tasks,
    templates,
    threads,
    tokens,
    waiting,
    webhooks,
    work,
)
from ..errors import Invalid
from ..formats.plain import (
    plain_receipt,
    plain_task,
)
from .table import (
    AGENT,
    BODY,
    FIELDS,
    ID,
    RECEIPT,
    TOKEN,
    Method,
    Param,
    box_of,
    fields_of,
    of_verb,
    some,
)

if TYPE_CHECKING:
    from ..room import Room


# -- mail

MAIL_ROWS = (
    of_verb(messages.Send),
    of_verb(messages.SendMany),
    of_verb(messages.Reply),
    of_verb(messages.Forward),
    of_verb(messages.Broadcast),
    of_verb(messages.HandOver),
    of_verb(templates.SendTemplate),
    of_verb(asking.Ask),
    of_verb(messages.Unsend),
    of_verb(search.Sent),
    of_verb(inbox.Check),
    of_verb(inbox.Read),
    of_verb(alerts.Shown),
    of_verb(inbox.Counts),
    of_verb(inbox.Wait),
    of_verb(search.Search),
    of_verb(inbox.Digest),
    of_verb(threads.GetThread),
    of_verb(threads.GetTagged),
    of_verb(threads.ListThreads),
    of_verb(stats.MailboxStats),
    of_verb(stats.GetTrace),
)  # fmt: skip


# -- work: leases, dead letters, tasks, escalations

# The steps of a task, and the parameter that each takes.
STEPS = {
    "accept": "body", "start": "body", "complete": "body", "ask": "body", "answer": "body",
    "reject": "reason", "fail": "reason", "cancel": "reason",
}  # fmt: skip

# -- tasks


def _give_task(room: Room, params: dict[str, Any]) -> Any:
    box = box_of(room, params)
    receipt = box.give_task(
        params["to"], params.get("body"), **some(params, "deadline", "session"), **fields_of(params)
    )
    return plain_receipt(receipt)


def _task_step(room: Room, params: dict[str, Any]) -> Any:
    step, box = params["step"], box_of(room, params)
    if step not in STEPS:
        raise Invalid(f"{step!a} is no step of a task", field="step", hint=", ".join(STEPS))
    other = "reason" if STEPS[step] == "body" else "body"
    if other in params:
        raise Invalid(f"{step} takes a {STEPS[step]}", field=other)
    token = params.get("token")
    task = box.task(box.held(params["message_id"], token) if token else params["message_id"])
    args = [params[STEPS[step]]] if STEPS[step] in params else []
    if not args and step in {"ask", "answer", "reject", "fail"}:
        raise Invalid("is missing", field=STEPS[step])
    receipt = getattr(task, step)(*args, **fields_of(params))
    return {"task": plain_task(task), "receipt": plain_receipt(receipt)}


# -- escalations


def _escalate(room: Room, params: dict[str, Any]) -> Any:
    box = box_of(room, params)
    receipt = box.escalate(
        params.get("body"), reason=params["reason"], **some(params, "ladder"), **fields_of(params)
    )
    return plain_receipt(receipt)


def _work_row(name: str, about: str, run: Any, *params: Param, result: str, **more: Any) -> Method:
    args = {"action": "settle", "whose": "agent_id"} | more
    return Method(name=name, about=about, run=run, params=(AGENT, *params), result=result, **args)


_TASK: dict[str, Any] = {"action": "task"}
WORK_ROWS = (
    of_verb(work.Claim),
    of_verb(work.Ack),
    of_verb(work.Fail),
    of_verb(work.Reject),
    of_verb(work.Release),
    of_verb(work.Renew),
    of_verb(work.Dead),
    of_verb(work.Revive),
    of_verb(work.PurgeDead),
    _work_row("give_task", "give one agent a task", _give_task, Param("to", "address", "who does it", required=True), BODY,
         Param("deadline", "when", "when it must be over"), Param("session", "object", "where you were asked for it; "
         "stays here"), *(p for p in FIELDS if p.name != "task"), result=RECEIPT, action="send"),
    of_verb(tasks.GetTask),
    of_verb(tasks.ListTasks),
    _work_row("task_step", "move a task by one step", _task_step, ID, Param("step", "text", ", ".join(STEPS),
         required=True), TOKEN, BODY, Param("reason", "text", "of reject, fail and cancel"),
         *(p for p in FIELDS if p.name != "task"), result="task, receipt", **_TASK),
    _work_row("escalate", "ask the next agent of your ladder", _escalate, BODY, Param("reason", "text",
         "an open word, such as blocked", required=True), Param("ladder", "list", "agents to ask, the lowest first"),
         *FIELDS, result=RECEIPT, action="send"),
    of_verb(escalation.ListEscalations),
    of_verb(escalation.Resolve),
    of_verb(waiting.Waiting),
    of_verb(board.Board),
)  # fmt: skip


ROOM_ROWS = (
    of_verb(agents.Register),
    of_verb(agents.RecordHeartbeat),
    of_verb(agents.Goodbye),
    of_verb(agents.Block),
    of_verb(agents.Unblock),
    of_verb(agents.ListBlocked),
    of_verb(agents.ListAgents),
    of_verb(agents.GetAgent),
    of_verb(agents.CreateScope),
    of_verb(agents.DeleteScope),
    of_verb(agents.GetScope),
    of_verb(agents.ListScopes),
    of_verb(agents.JoinScope),
    of_verb(agents.LeaveScope),
    of_verb(templates.ListTemplates),
    of_verb(templates.GetTemplate),
    of_verb(templates.SaveTemplate),
    of_verb(templates.DeleteTemplate),
    of_verb(stats.RoomStats),
    of_verb(doctor.Doctor),
    of_verb(retention.SweepRoom),
    of_verb(inbox.GetCursor),
    of_verb(inbox.GetChanges),
    of_verb(agents.ListMailboxes),
    of_verb(doctor.ListQuarantined),
    of_verb(retention.Archive),
    of_verb(retention.Purge),
    of_verb(tokens.ListTokens),
    of_verb(tokens.RevokeToken),
    of_verb(webhooks.ListWebhooks),
    of_verb(peers.ListPeers),
)  # fmt: skip


# -- alerts
#
# The room decides when an agent is alerted; the caller delivers the alert. A caller that may not alert at all times
# looks first (`peek`), which waits for mail and writes nothing, then calls again without it. An alert that is
# returned is recorded, and must be delivered once.

ALERT_ROWS = (
    of_verb(alerts.NextAlert),
    of_verb(alerts.AlertFailed),
    of_verb(alerts.DeadAlerts),
    of_verb(alerts.RetryAlerts),
)
