"""A room in numbers, and how its mail flows. Counted by the store; no letter is read, but a sample for `rates`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from .. import service
from ..errors import Invalid, Resync
from ..model.delivery import State
from ..model.message import Priority
from ..model.query import LetterQuery, Query
from ..model.record import CARD
from ..model.stats import AgentFlow, Flow, Stats, Tally, Traffic
from .authorize import authorize

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ..model.query import Moment
    from ..model.stats import Settled
    from .authorize import Principal
    from .office import Office


def room_stats(office: Office, caller: Principal) -> Stats:
    """How much mail there is, and where it waits."""
    authorize(caller, "room")
    tallies = office.store.tally(None)
    deliveries = office.store.count_deliveries()
    states = {
        State.QUEUED: sum(tally.queued for tally in tallies),
        State.UNREAD: sum(tally.total_unread + tally.seen for tally in tallies),
        State.CLAIMED: sum(tally.claimed for tally in tallies),
        State.DONE: 0,
        State.DEAD: sum(tally.dead for tally in tallies),
    }
    states[State.DONE] = max(0, deliveries - sum(states.values()))
    return Stats(
        letters=office.store.count_letters(LetterQuery()),
        deliveries=deliveries,
        states=states,
        unread={priority: sum(tally.unread[priority] for tally in tallies) for priority in Priority},
        oldest_unread_at=min((t.oldest_unread_at for t in tallies if t.oldest_unread_at), default=None),
        agents=len(office.store.keys(CARD)),
        quarantined=len(office.store.quarantined()),
        mailboxes=tuple(tallies),
        rates=service.rates.rates(office),
    )


def mailbox_stats(office: Office, caller: Principal, mailbox: str) -> Tally:
    """The open and dead mail of one mailbox."""
    authorize(caller, "count", mailbox)
    service.moving.let_time_pass(office, office.now(), (mailbox,))
    counted = office.store.tally(mailbox)
    if counted:
        shown = office.store.count(Query(mailbox=mailbox, states=(State.DEAD,), shown_only=True))
        return replace(counted[0], dead=sum(shown.values()))
    service.reading.check_spelling(office, mailbox)
    return Tally(mailbox=mailbox, unread=dict.fromkeys(Priority, 0))


def flow(office: Office, caller: Principal, last: Flow | None) -> Flow:
    """What waits now, and what happened since the last look."""
    authorize(caller, "room")
    if last is not None and not isinstance(last, Flow):
        raise Invalid(f"must be a Flow, not {type(last).__name__}", field="last", hint="the one flow() gave you")
    moment = office.now()
    traffic, seconds = _since(office, moment, last)
    settled: dict[str, list[Settled]] = {}
    for one in traffic.settled:
        settled.setdefault(one.mailbox, []).append(one)
    tallies = {tally.mailbox: tally for tally in office.store.tally(None)}
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
        median_to_done=_median(traffic.settled),
        agents=tuple(sorted(agents, key=lambda agent: (-agent.backlog, agent.mailbox))),
    )


def _since(office: Office, moment: Moment, last: Flow | None) -> tuple[Traffic, float]:
    """What happened since, and in how many seconds; nothing at all in a first look, or after another life."""
    if last is not None and last.boot == moment.boot and last.uptime < moment.steady:
        try:
            return office.store.traffic(last.cursor, last.at), moment.steady - last.uptime
        except Resync:
            pass
    return Traffic(cursor=office.store.cursor(), sent=0, settled=(), died=0), 0.0


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
        median_to_done=_median(settled),
    )


def _age(since: datetime | None, now: datetime) -> float | None:
    return None if since is None else max(0.0, (now - since).total_seconds())


def _median(settled: Sequence[Settled]) -> float | None:
    """Of an even number, the greater of the two in the middle."""
    return sorted(one.seconds for one in settled)[len(settled) // 2] if settled else None
