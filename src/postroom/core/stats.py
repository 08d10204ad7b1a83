"""Statistics: the room in numbers, the flow of its mail, and the history of one letter.

The store counts; no letter is read, except a sample for the alert rates. In a trace, a sender sees where its
letter is, a recipient its own delivery, and the operator everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Invalid, Resync, UnknownMessage
from ..model.delivery import State
from ..model.message import BOUNCE, Priority
from ..model.names import check_id
from ..model.query import LetterQuery, Query, Tally
from ..model.record import CARD, FORGOTTEN, Cursor
from ..model.report import AgentFlow, Flow, Stats, Trace, stop_of, with_audit
from ..store.protocol import record_keys
from . import alerts, outbox, task_index
from . import deliveries as core_deliveries
from .addressing import routed_to, without_copy
from .alerts import audit_of
from .inbox import check_spelling
from .names import is_sent_by, seen_by
from .verb import MailboxVerb, Verb, verb

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ..model.delivery import Delivery
    from ..model.message import Message
    from ..model.query import Moment
    from ..model.report import Stop
    from ..model.task import TaskStatus
    from ..store.protocol import Store
    from .authorize import Principal
    from .core import Core


SLICE = 1000  # changes that are read at once


class Settled(Struct, frozen=True):
    """A settled delivery: its mailbox, and the seconds from its arrival until it was settled."""

    mailbox: str
    seconds: float


class Traffic(Struct, frozen=True, kw_only=True):
    """The traffic of a room since a cursor."""

    cursor: Cursor  # the end of the period
    sent: int
    settled: tuple[Settled, ...]
    died: int


@verb("room_stats", Stats, action="room", slow=True, writes=False, shared=True)
class RoomStats(Verb, kw_only=True):
    """Return the room in numbers: all its mail, by state and by mailbox."""

    def run(self, core: Core, _principal: Principal) -> Stats:
        tallies = core.store.count(Query(), by="state")
        deliveries = core.store.count(Query(), by="all")
        states = {
            State.QUEUED: sum(tally.queued for tally in tallies),
            State.UNREAD: sum(tally.total_unread + tally.seen for tally in tallies),
            State.CLAIMED: sum(tally.claimed for tally in tallies),
            State.DONE: 0,
            State.DEAD: sum(tally.dead for tally in tallies),
        }
        # Done mail is most of a room and has no index: it is what the other states leave. The counts are of two
        # moments, so the difference may be below zero.
        states[State.DONE] = max(0, deliveries - sum(states.values()))
        return Stats(
            letters=core.store.count(LetterQuery(), by="all"),
            deliveries=deliveries,
            states=states,
            unread={priority: sum(tally.unread[priority] for tally in tallies) for priority in Priority},
            oldest_unread_at=min((t.oldest_unread_at for t in tallies if t.oldest_unread_at), default=None),
            agents=len(record_keys(core.store, CARD)),
            quarantined=len(core.store.quarantined()),
            mailboxes=tuple(tallies),
            rates=alerts.rates(core),
        )


@verb("stats", Tally, action="count", writes=False)
class MailboxStats(MailboxVerb, kw_only=True):
    """Return a mailbox in numbers: its open and dead mail."""

    def run(self, core: Core, _principal: Principal) -> Tally:
        core_deliveries.apply_timers(core, core.now(), (self.agent_id,))
        counted = core.store.count(Query(mailbox=self.agent_id), by="state")
        if counted:
            return replace(counted[0], dead=core_deliveries.count_dead(core, self.agent_id))
        check_spelling(core, self.agent_id)
        return Tally(mailbox=self.agent_id, unread=dict.fromkeys(Priority, 0))


@verb("flow", Flow, action="room", writes=False, local=True)
class GetFlow(Verb, kw_only=True):
    """Return what waits now, and what was sent and settled since the last call."""

    last: Annotated[Flow | None, "what the last call returned"] = None

    def run(self, core: Core, _principal: Principal) -> Flow:
        if self.last is not None and not isinstance(self.last, Flow):
            raise Invalid(
                f"must be a Flow, not {type(self.last).__name__}", field="last", hint="pass a result of flow()"
            )
        moment = core.now()
        traffic, seconds = _since(core, moment, self.last)
        settled: dict[str, list[Settled]] = {}
        for one in traffic.settled:
            settled.setdefault(one.mailbox, []).append(one)
        tallies = {tally.mailbox: tally for tally in core.store.count(Query(), by="state")}
        for mailbox in settled:
            tallies.setdefault(mailbox, Tally(mailbox=mailbox, unread={}))
        agents = [_agent(tally, settled.get(name, ()), moment.wall) for name, tally in tallies.items()]
        return Flow(
            cursor=traffic.cursor,
            at=moment.wall,
            uptime=moment.steady,
            boot=moment.boot,
            seconds=seconds,
            sent=traffic.sent,
            settled=len(traffic.settled),
            died=traffic.died,
            backlog=sum(agent.backlog for agent in agents),
            median_to_done=alerts.median(one.seconds for one in traffic.settled),
            agents=tuple(sorted(agents, key=lambda agent: (-agent.backlog, agent.mailbox))),
        )


def _since(core: Core, moment: Moment, last: Flow | None) -> tuple[Traffic, float]:
    """Return the traffic since the last call, and its seconds; nothing on a first call or after a reboot."""
    if last is not None and last.boot == moment.boot and last.uptime < moment.steady:
        try:
            return traffic_since(core.store, last.cursor, last.at), moment.steady - last.uptime
        except Resync:
            pass
    return Traffic(cursor=core.store.cursor(), sent=0, settled=(), died=0), 0.0


def traffic_since(store: Store, cursor: Cursor, after: datetime) -> Traffic:
    """Summarise what happened after a cursor that was taken at the time `after`; Resync as in `Store.changes`."""
    sent = died = 0
    done: dict[str, set[str]] = {}  # mailboxes, by letter
    while True:
        changes, cursor = store.changes(cursor, SLICE)
        for change in changes:
            sent += change.what == "posted"
            died += change.what == "moved" and change.state is State.DEAD
            if change.state is State.DONE:
                done.setdefault(change.message_id or "", set()).add(change.mailbox or "")
        if len(changes) < SLICE:
            break
    settled, ids = list[Settled](), tuple(done)
    for start in range(0, len(ids), SLICE):
        some = Query(states=(State.DONE,), message_ids=ids[start : start + SLICE], order="age")
        for delivery in (found.delivery for found in store.find(some)):
            acked = delivery.acked_at
            # Archiving moves mail that is done already: only mail that was acknowledged in the period counts.
            if acked is not None and acked >= after and delivery.mailbox in done[delivery.message_id]:
                waited = (acked - (delivery.delivered_at or acked)).total_seconds()
                settled.append(Settled(delivery.mailbox, max(0.0, waited)))
    return Traffic(cursor=cursor, sent=sent, settled=tuple(settled), died=died)


def _agent(tally: Tally, settled: Sequence[Settled], now: datetime) -> AgentFlow:
    return AgentFlow(
        mailbox=tally.mailbox,
        unread=tally.total_unread,
        backlog=tally.backlog,
        claimed=tally.claimed,
        dead=tally.dead,
        settled=len(settled),
        oldest_unread=_age(tally.oldest_unread_at, now),
        oldest_seen=_age(tally.oldest_seen_at, now),
        oldest_claimed=_age(tally.oldest_claimed_at, now),
        median_to_done=alerts.median(one.seconds for one in settled),
    )


def _age(since: datetime | None, now: datetime) -> float | None:
    return None if since is None else max(0.0, (now - since).total_seconds())


# -- the history of one letter


@verb("trace", Trace, action="trace", everyone=True, many=True, writes=False, old_names={"message_id": "id"})
class GetTrace(MailboxVerb, kw_only=True):
    """Return the history of a letter, as its sender or recipient may see it."""

    id: Annotated[str, "the letter's id"]

    def run(self, core: Core, _principal: Principal) -> Trace:
        mailbox = self.mailbox
        check_spelling(core, mailbox)
        letter = core.store.get((check_id(self.id, "id"),)).get(self.id)
        if letter is None:
            raise _unknown(core, mailbox, self.id)
        message = letter.message
        found = core.store.find(Query(message_ids=(self.id,), order="age"))
        sees_all = mailbox is None or is_sent_by(core, message, mailbox)
        visible = found if sees_all else [f for f in found if _has_come(f.delivery, mailbox)]
        if not visible and not sees_all:
            raise _unknown(core, mailbox, self.id)
        answers = [(one, _answer_kind(core, message, one)) for one in _answers(core, mailbox, message)]
        task = task_index.opened_by(core, message)
        return Trace(
            message=message if mailbox is None else seen_by(core, message, mailbox),
            number=letter.number,
            stops=tuple(
                _stop(core, f.delivery, task, whole=mailbox in {None, f.delivery.mailbox})
                for f in sorted(visible, key=lambda f: f.delivery.mailbox)
            ),
            replies=tuple(answer for answer, kind in answers if kind == "reply"),
            relays=tuple(answer for answer, kind in answers if kind == "relay"),
            bounces=tuple(answer for answer, kind in answers if kind == BOUNCE),
        )


def _stop(core: Core, delivery: Delivery, task: TaskStatus | None, *, whole: bool) -> Stop:
    """Return one delivery as a stop of the trace; `whole` for its recipient or the operator."""
    stop = stop_of(delivery, with_holder=whole)
    stop = with_audit(stop, audit_of(core, delivery.mailbox, delivery.message_id), whole=whole)
    if task is not None and task.receiver == delivery.mailbox:
        stop = replace(stop, task=task.state, done_at=task.moved_at if task.is_final else None)
    waits = outbox.why_it_waits(core, delivery)
    return stop if waits is None else replace(stop, reason=waits)


def _has_come(delivery: Delivery, mailbox: str | None) -> bool:
    """Return whether the delivery arrived at this mailbox, and was not unsent before it was seen."""
    return delivery.mailbox == mailbox and delivery.state is not State.QUEUED and not delivery.is_hidden


def _answers(core: Core, mailbox: str | None, message: Message) -> list[Message]:
    """Return the letters in reply to this one that were sent or received here."""
    thread = core.store.letters(LetterQuery(thread=message.thread, party=mailbox))
    about = [letter.message for letter in thread if letter.message.in_reply_to == message.id]
    return about if mailbox is None else [seen_by(core, answer, mailbox) for answer in about]


def _answer_kind(core: Core, message: Message, answer: Message) -> str:
    """Return `bounce`, `relay` or `reply`.

    A relay goes only to recipients that do not have the letter; a reply to at least one that has it.
    """
    if answer.kind == BOUNCE:
        return BOUNCE
    targets = [recipient.address for recipient in answer.recipients]
    return "relay" if without_copy(core, routed_to(core, message), targets) == targets else "reply"


def _unknown(core: Core, mailbox: str | None, id: str) -> UnknownMessage:
    """Return the error for an unknown letter.

    Only the operator learns that it was deleted or damaged; to others, absent and forbidden look the same.
    """
    # Absent and forbidden look the same to everybody but the operator (G8).
    hint = None
    if mailbox is None and (gone := core.store.records(FORGOTTEN, id)):
        hint = f"it was deleted at {gone[0].value['at']}"
    elif mailbox is None and id in core.store.quarantined():
        hint = "it was found damaged and set aside"
    return UnknownMessage(f"no letter {id!r}", field="id", hint=hint)
