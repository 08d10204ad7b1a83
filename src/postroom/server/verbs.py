"""The verbs that Postroom's own protocol offers as methods, in the order of its page."""

from __future__ import annotations

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

# -- mail

MAIL_ROWS = (
    messages.Send,
    messages.SendMany,
    messages.Reply,
    messages.Forward,
    messages.Broadcast,
    messages.HandOver,
    templates.SendTemplate,
    asking.Ask,
    messages.Unsend,
    search.Sent,
    inbox.Check,
    inbox.Read,
    alerts.Shown,
    inbox.Counts,
    inbox.Wait,
    search.Search,
    inbox.Digest,
    threads.GetThread,
    threads.GetTagged,
    threads.ListThreads,
    stats.MailboxStats,
    stats.GetTrace,
)  # fmt: skip


# -- work: leases, dead letters, tasks, escalations

WORK_ROWS = (
    work.Claim,
    work.Ack,
    work.Fail,
    work.Reject,
    work.Release,
    work.Renew,
    work.Dead,
    work.Revive,
    work.PurgeDead,
    tasks.GiveTask,
    tasks.GetTask,
    tasks.ListTasks,
    tasks.TaskStep,
    escalation.Escalate,
    escalation.ListEscalations,
    escalation.Resolve,
    waiting.Waiting,
    board.Board,
)  # fmt: skip


ROOM_ROWS = (
    agents.Register,
    agents.RecordHeartbeat,
    agents.Goodbye,
    agents.Block,
    agents.Unblock,
    agents.ListBlocked,
    agents.ListAgents,
    agents.GetAgent,
    agents.CreateScope,
    agents.DeleteScope,
    agents.GetScope,
    agents.ListScopes,
    agents.JoinScope,
    agents.LeaveScope,
    templates.ListTemplates,
    templates.GetTemplate,
    templates.SaveTemplate,
    templates.DeleteTemplate,
    stats.RoomStats,
    doctor.Doctor,
    retention.SweepRoom,
    inbox.GetCursor,
    inbox.GetChanges,
    agents.ListMailboxes,
    doctor.ListQuarantined,
    retention.Archive,
    retention.Purge,
    tokens.ListTokens,
    tokens.RevokeToken,
    webhooks.ListWebhooks,
    peers.ListPeers,
)  # fmt: skip


# -- alerts
#
# The room decides when an agent is alerted; the caller delivers the alert. A caller that may not alert at all times
# looks first (`peek`), which waits for mail and writes nothing, then calls again without it. An alert that is
# returned is recorded, and must be delivered once.

ALERT_ROWS = (
    alerts.NextAlert,
    alerts.AlertFailed,
    alerts.DeadAlerts,
    alerts.RetryAlerts,
)
