"""The board: one look at who waits for whom in a room, and at what is stuck. It writes nothing.

Each list is bounded, the oldest entries first, and `more` says how many of each are not shown. The cost grows with
the open and dead mail, the open tasks and the open escalations, not with the mail that is done.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from msgspec.structs import replace

from ..model.alert import DeadAlertRow
from ..model.delivery import OPEN, State
from ..model.names import AT, system_of
from ..model.peer import Carried
from ..model.query import LetterQuery, Query
from ..model.task import TaskState
from ..model.values import Brief, check_count
from ..policy.retry import has_lapsed
from ..store.protocol import outgoing
from .alerts import DeadAlerts
from .deliveries import count_dead, is_process_gone
from .escalation import ListEscalations
from .outbox import carried
from .peers import all_peers
from .task_index import known_tasks
from .verb import MailboxVerb, verb
from .waiting_list import first_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model.delivery import Delivery, Lease
    from ..model.query import Found, Moment
    from ..model.task import TaskStatus
    from .authorize import Principal
    from .core import Core

    T = TypeVar("T")


MOST = 1000  # letters of each kind that are looked at
MOST_REPLIES = 100  # newest letters of one agent in the thread of a request that are looked at
REQUEST = "request"


class Wait(Brief, frozen=True, kw_only=True):
    """An agent that waits for another one's answer."""

    what: Literal["escalation", "question", "request"]
    id: str  # of the escalation, the task or the letter
    asker: str
    waits_for: str
    since: datetime
    subject: str
    thread: str
    text: str = ""  # the first line of a request


class Deadline(Brief, frozen=True, kw_only=True):
    """A task that is not over, and that has a deadline."""

    id: str
    subject: str
    giver: str
    receiver: str  # who holds it
    state: TaskState
    due_at: datetime
    is_over: bool  # the deadline has passed


class Stuck(Brief, frozen=True, kw_only=True):
    """A claimed letter whose work may never end."""

    id: str
    mailbox: str
    holder: str
    attempts: int  # that failed before
    subject: str
    why: list[str]


class DeadCount(Brief, frozen=True):
    """How many dead letters lie at a mailbox."""

    mailbox: str
    dead: int


class BoardView(Brief, frozen=True, kw_only=True):
    """Who waits for whom, and what is stuck: of one mailbox or, for an operator, of the room."""

    at: datetime
    mailbox: str  # empty: the whole room
    waits: list[Wait]
    deadlines: list[Deadline]
    stuck: list[Stuck]
    dead: list[DeadCount]
    alerts: list[DeadAlertRow]
    links: list[Carried]
    more: dict[str, int]  # by list, how many entries are not shown, at most


@verb("board", BoardView, action="waiting", many=True, writes=False, everyone=True)
class Board(MailboxVerb, kw_only=True):
    """Return who waits for whom, deadlines, stuck claims, dead letters, given-up alerts and links that are down.

    An agent sees what it waits for and what waits for it; of links, those that mail of its own waits for.
    """

    limit: Annotated[int, "how many entries of each list at most"] = 20

    def run(self, core: Core, principal: Principal) -> BoardView:
        most, moment = check_count(self.limit, "limit"), core.now()
        tasks = [task for task in known_tasks(core, self.agent_id) if not task.is_final]
        waits = [*self._escalations(core, principal), *_questions(tasks), *self._requests(core)]
        alerts = DeadAlerts(agent_id=self.agent_id).run(core, principal)
        shown = {
            "waits": _unanswered(core, sorted(waits, key=lambda one: one.since), most),
            "deadlines": _first(_deadlines(tasks, moment.wall), most),
            "stuck": _first(self._stuck(core, moment), most),
            "dead": self._dead(core, most),
            "alerts": _first(sorted(alerts, key=lambda one: one.at), most),
            "links": _first(self._links_down(core), most),
        }
        lists: dict[str, Any] = {name: found for name, (found, _) in shown.items()}
        more = {name: left for name, (_, left) in shown.items()}
        return BoardView(at=moment.wall, mailbox=self.agent_id, **lists, more=more)

    def _escalations(self, core: Core, principal: Principal) -> list[Wait]:
        listed = ListEscalations(agent_id=self.agent_id).run(core, principal)
        return [
            Wait(
                what="escalation",
                id=one.id,
                asker=one.asker,
                waits_for=one.waits_for,
                since=one.since,
                subject=one.subject,
                thread=one.thread,
            )
            for one in listed
            if one.waits_for is not None
        ]

    def _requests(self, core: Core) -> list[Wait]:
        """Return the requests that are not settled."""
        return [
            Wait(
                what="request",
                id=one.message.id,
                asker=one.message.sender,
                waits_for=one.delivery.mailbox,
                since=one.delivery.delivered_at or one.message.created_at,
                subject=one.message.subject,
                thread=one.message.thread,
                text=first_line(one.message.text),
            )
            for state in OPEN  # each by itself: its index is used, and mail that is done is not read
            for one in self._find(core, Query(states=(state,), kinds=(REQUEST,), order="age", limit=MOST))
        ]

    def _find(self, core: Core, query: Query) -> list[Found]:
        """Return what was sent to the agent or by it; without an agent, whatever there is."""
        if not self.agent_id:
            return core.store.find(query)
        # What is queued for the agent has not arrived, and it must not learn of it.
        own = core.store.find(replace(query, mailbox=self.agent_id)) if query.states != (State.QUEUED,) else []
        sent = core.store.find(replace(query, sender=self.agent_id))
        return [*own, *(one for one in sent if one.delivery.mailbox != self.agent_id)]

    def _stuck(self, core: Core, moment: Moment) -> list[Stuck]:
        query = Query(mailbox=self.mailbox, states=(State.CLAIMED,), order="age", limit=MOST)
        return [
            Stuck(
                id=one.message.id,
                mailbox=one.delivery.mailbox,
                holder=one.delivery.lease.holder,
                attempts=one.delivery.attempts,
                subject=one.message.subject,
                why=why,
            )
            for one in core.store.find(query)
            if one.delivery.lease is not None and (why := _why_stuck(one.delivery, one.delivery.lease, moment))
        ]

    def _dead(self, core: Core, most: int) -> tuple[list[DeadCount], int]:
        """Return the mailboxes with the most dead letters, and how many others have some.

        Letters that their senders took back before they were read are not counted.
        """
        if self.agent_id:
            outgoing = Query(states=(State.DEAD,), sender=self.agent_id, shown_only=True, order="age", limit=MOST)
            by_mailbox = Counter(one.delivery.mailbox for one in core.store.find(outgoing))
            names = [self.agent_id, *(name for name in by_mailbox if AT in name)]
        else:
            tallies = [tally for tally in core.store.count(Query(), by="state") if tally.dead]
            names = [tally.mailbox for tally in sorted(tallies, key=lambda tally: -tally.dead)]
        counted = [(name, count_dead(core, name, self.agent_id)) for name in names[:most]]
        return [DeadCount(name, many) for name, many in counted if many], len(names[most:])

    def _links_down(self, core: Core) -> list[Carried]:
        """Return the systems to which no link leads now, as far as mail of this agent waits for them."""
        if not self.agent_id:
            waiting = outgoing(core.store)
            trusted = [peer.system for peer in all_peers(core).values() if peer.trusted]
        else:
            query = Query(states=(State.QUEUED,), sender=self.agent_id, order="age", limit=MOST)
            waiting = dict.fromkeys((one.delivery.mailbox for one in core.store.find(query)), 1)
            trusted = []
        systems = dict.fromkeys((*trusted, *(system_of(name) for name in waiting if AT in name)))
        return [one for one in carried(core, systems) if one.state != "up"]


def _questions(tasks: Sequence[TaskStatus]) -> list[Wait]:
    """Return the tasks whose receiver waits for an answer of the giver."""
    return [
        Wait(
            what="question",
            id=task.letter,
            asker=task.receiver,
            waits_for=task.giver,
            since=task.moved_at,
            subject=task.subject,
            thread=task.thread,
        )
        for task in tasks
        if task.state is TaskState.INPUT_REQUIRED
    ]


def _unanswered(core: Core, waits: Sequence[Wait], most: int) -> tuple[list[Wait], int]:
    """Return the first of these, without requests that were answered and not settled, and how many follow."""
    shown: list[Wait] = []
    for place, one in enumerate(waits):
        if len(shown) == most:
            return shown, len(waits) - place
        if one.what != "request" or not _has_replied(core, one):
            shown.append(one)
    return shown, 0


def _has_replied(core: Core, request: Wait) -> bool:
    query = LetterQuery(replies_in=request.thread, sender=request.waits_for, order="newest", limit=MOST_REPLIES)
    return any(letter.message.in_reply_to == request.id for letter in core.store.letters(query))


def _deadlines(tasks: Sequence[TaskStatus], now: datetime) -> list[Deadline]:
    found = [
        Deadline(
            id=task.letter,
            subject=task.subject,
            giver=task.giver,
            receiver=task.receiver,
            state=task.state,
            due_at=task.deadline,
            is_over=task.deadline <= now,
        )
        for task in tasks
        if task.deadline is not None
    ]
    return sorted(found, key=lambda one: (one.due_at, one.id))


def _why_stuck(delivery: Delivery, lease: Lease, moment: Moment) -> list[str]:
    why = ["the lease is over"] if has_lapsed(lease, moment) else []
    why += [f"{delivery.attempts} attempts failed"] if delivery.attempts > 1 else []
    return why + (["the process that holds it is gone"] if is_process_gone(lease.holder) else [])


def _first(found: Sequence[T], most: int) -> tuple[list[T], int]:
    """Return the first entries, and how many are left out."""
    return list(found[:most]), len(found[most:])
