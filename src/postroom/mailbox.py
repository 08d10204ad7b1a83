"""What a mailbox does besides its daily mail: send from a template, take a letter back, escalate, tell
somebody of mail, refuse it. Decides nothing: calls the service.

`Mailbox` has all of these verbs; they stand here so that both files can be read in one sitting.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, cast, overload

from .core import agents, alerts, compose, escalation, inbox, search, stats, tasks, threads, validation
from .core import messages as core_messages
from .core import work as core_work
from .errors import Invalid
from .letter import Batch, Letter, Work
from .model.names import HUMAN, check_agent, meant

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from typing import Unpack

    from .core.authorize import Principal
    from .core.compose import Draft
    from .core.core import Core
    from .core.messages import Receipt
    from .model.agent import Agent
    from .model.alert import Later, LostRing, Rung
    from .model.message import Handoff, Message
    from .model.query import Found
    from .model.record import Cursor
    from .model.report import Tally, Trace
    from .model.task import Escalation
    from .model.thread import Conversation, Thread, Turn
    from .room import Room
    from .settings import Fields, Filters, Wanted, When
    from .task import Task


class Errands:
    """The verbs of a mailbox for special occasions."""

    name: str
    _core: Core
    _caller: Principal

    def unsend(self, id: str) -> Message:
        """Take back a letter that was sent here, from all its recipients or none, while nobody has claimed or
        settled it. Gives the letter, to be mended and sent anew.
        """
        return core_messages.unsend(self._core, self._caller, self.name, id)

    def sent(self, limit: int = 20) -> list[Message]:
        """What was sent here, the newest first."""
        return search.sent(self._core, self._caller, self.name, limit=limit)

    def send_template(
        self, to: Any, name: str, values: Mapping[str, Any] | None = None, **fields: Unpack[Fields]
    ) -> Receipt:
        """Send a letter made from a template of the room, with a value for each of its places."""
        compose.check_fields(fields)
        draft = compose.template_draft(self._core, self._caller, self.name, to, name, values, **fields)
        return core_messages.send(self._core, self._caller, [draft])[0]

    # -- escalation

    def escalate(
        self, body: Any = None, *, reason: str, ladder: Sequence[str] | None = None, **fields: Unpack[Fields]
    ) -> Receipt:
        """Ask the one who stands above on the ladder. The answer comes into the same thread. A question that
        nobody answers climbs, by `room.sweep()`.
        """
        compose.check_fields(fields)
        return escalation.escalate(
            self._core, self._caller, self.name, body, reason=reason, ladder=ladder, **fields
        )

    def escalations(self, *, open_only: bool = True) -> list[Escalation]:
        """What was escalated by this mailbox or to it, the oldest first."""
        return escalation.escalations(self._core, self._caller, self.name, open_only=open_only)

    def resolve(self, id: str) -> Escalation:
        """Close an escalation without an answer; it climbs no further."""
        return escalation.resolve(self._core, self._caller, self.name, id)

    # -- telling somebody of mail

    def begin_rings(self, way: str, *, backlog: bool = False) -> int:
        """Begin to ring in a way of your own (`exec`, `webhook:1`): what is unread already counts as told, unless
        `backlog`. Gives how many letters that is; after the first time, 0.
        """
        return alerts.begin(self._core, self._caller, self.name, way, backlog=backlog)

    def try_ring(
        self, way: str, *, may_ring: Callable[[], bool] | None = None, within: float | None = None
    ) -> Rung | Later:
        """Is it time to tell somebody of mail? Whoever gets a `Rung` does it, once; `Later` says when to look
        again. A ring is a hint: it moves no letter. Who says `within` how many seconds will say `ring_done` then,
        or it counts as failed: so no ring is lost with who should have rung.
        """
        return alerts.try_ring(self._core, self._caller, self.name, way, may_ring, within=within)

    def wait_to_ring(
        self,
        way: str,
        timeout: float = 30.0,
        *,
        may_ring: Callable[[], bool] | None = None,
        within: float | None = None,
    ) -> Rung | None:
        """The next ring, as soon as it is time for one; None when the time is up. `may_ring` is asked before;
        `within` as in `try_ring`.
        """
        return alerts.wait_to_ring(self._core, self._caller, self.name, way, timeout, may_ring, within=within)

    def ring_done(self, way: str, ids: str | Sequence[str]) -> None:
        """The ring for these letters was carried out, as was promised by `within`."""
        alerts.ring_done(self._core, self._caller, self.name, way, ids)

    def ring_failed(self, way: str, ids: str | Sequence[str], why: str) -> int:
        """The ring for these letters did not get through: it is tried again later. Gives for how many it is given
        up.
        """
        return alerts.ring_failed(self._core, self._caller, self.name, way, ids, why)

    def dead_rings(self) -> list[LostRing]:
        """Rings that were given up, for letters that are still unread."""
        return alerts.dead_rings(self._core, self._caller, self.name)

    def retry_rings(self, *, way: str | None = None, ids: str | Sequence[str] | None = None) -> int:
        """Try dead rings again; gives how many."""
        return alerts.retry_rings(self._core, self._caller, self.name, way=way, ids=ids)

    def mark_shown(self, ids: str | Sequence[str], host: str, where: str = "", *, read: bool = True) -> int:
        """These letters were put before a model or a person: they are stamped as read, unless only their headings
        were shown. Gives how many of them are here.
        """
        return alerts.mark_shown(self._core, self._caller, self.name, ids, host, where, read=read)

    # -- whose mail is refused

    def block(self, name: str) -> list[str]:
        """Refuse mail from this name: its sender gets NotAllowed. Gives all names that are refused."""
        return agents.block(self._core, self._caller, self.name, name)

    def unblock(self, name: str) -> list[str]:
        """Take mail from this name again. Gives all names that are still refused."""
        return agents.unblock(self._core, self._caller, self.name, name)

    def blocked(self) -> list[str]:
        """The names whose mail is refused here."""
        return agents.blocked(self._core, self._caller, self.name)


# Working on mail: claim it, settle it, look after what died. Decides nothing: calls the service.
#
# `Mailbox` has all of these verbs; they stand here so that both files can be read in one sitting.

if TYPE_CHECKING:
    Verb = Callable[..., list[Found]]


class Working:
    """The verbs of a mailbox for mail that is worked on."""

    name: str
    _core: Core
    _caller: Principal
    _own: Callable[[Sequence[Draft]], list[Draft]]

    @property
    def _box(self) -> Mailbox:
        """The mailbox that has these verbs."""
        return cast("Mailbox", self)

    # -- claiming

    @overload
    def claim(
        self,
        count: None = None,
        *,
        lease: float | None = None,
        timeout: float = 0,
        holder: str | None = None,
        **filters: Unpack[Filters],
    ) -> Work | None: ...
    @overload
    def claim(
        self,
        count: int,
        *,
        lease: float | None = None,
        timeout: float = 0,
        holder: str | None = None,
        **filters: Unpack[Filters],
    ) -> Batch: ...
    def claim(
        self,
        count: int | None = None,
        *,
        lease: float | None = None,
        timeout: float = 0,
        holder: str | None = None,
        **filters: Unpack[Filters],
    ) -> Work | Batch | None:
        """Take the most urgent letter under a lease: nobody else gets it meanwhile. None if there is none.

        With a count: up to so many at once, as a Batch, which may be empty. With a timeout: wait for mail.
        """
        wanted = 1 if count is None else count

        request = inbox.as_filter(filters)
        by = f"{self.name} (process {os.getpid()})" if holder is None else holder

        def take() -> list[Found]:
            return core_work.claim(
                self._core, self._caller, self.name, count=wanted, lease=lease, holder=by, filter=request
            )

        found = inbox.wait_until(self._core, [self.name], timeout, take) or []
        box = self._box
        if count is None:
            return Work(box, found[0]) if found else None
        return Batch(box, [Work(box, f) for f in found])

    def work(
        self,
        *,
        batch: int = 1,
        lease: float | None = None,
        timeout: float | None = None,
        **filters: Unpack[Filters],
    ) -> Generator[Work, None, None]:
        """A worker loop: claims letters and hands them out, for ever, or until none came for `timeout` seconds.

        Going on to the next letter acknowledges the last one. With a batch: all of it, in one commit, when it is
        through, or when half the lease is over; then the rest is held for longer. Leaving the loop early, or by
        an error, counts a failed try for the letter in hand, if it is not settled; those before it are done, and
        those behind it go back.
        """
        wait = 3600.0 if timeout is None else timeout
        while True:
            claimed = self.claim(batch, lease=lease, timeout=wait, **filters)
            if not claimed and timeout is not None:
                return
            held_since = time.monotonic()
            for place, work in enumerate(claimed):
                if time.monotonic() - held_since > (lease or self._core.limits.lease) / 2:
                    claimed._hold_on(place, lease)
                    held_since = time.monotonic()
                try:
                    yield work
                except GeneratorExit:
                    claimed._leave_at(place)
                    raise
            claimed.ack()

    def held(self, id: str, token: str) -> Work:
        """A letter that was claimed earlier, here or in another process, by its `work.delivery.lease.token`."""
        return Work(self._box, core_work.held(self._core, self._caller, self.name, id, token))

    # -- settling, any number of letters in one commit: all or none

    def ack(self, letters: Sequence[Letter], *, archive: bool = True) -> None:
        """Done with all of these: they leave the inbox for good."""
        self._settle(letters, core_work.ack, archive=archive)

    def ack_and_send(
        self, letters: Sequence[Letter], drafts: Sequence[Draft], *, archive: bool = True
    ) -> list[Receipt]:
        """Done with all of these, and further letters sent."""
        held = self._held(letters)
        after, receipts = core_work.ack_and_send(
            self._core, self._caller, self.name, held, self._own(drafts), archive=archive
        )
        _update(letters, after)
        return receipts

    def fail(self, letters: Sequence[Letter], reason: str, *, retry: bool = True) -> None:
        """This try failed. They are offered again later, or, without retry, they are dead at once."""
        self._settle(letters, core_work.fail, reason, retry=retry)

    def reject(self, letters: Sequence[Letter], reason: str) -> None:
        """Refuse them: they go to the dead letters, and their senders are told why."""
        self.fail(letters, reason, retry=False)

    def release(self, letters: Sequence[Letter]) -> None:
        """Give them back, as if they had never been claimed."""
        self._settle(letters, core_work.release)

    def renew(self, letters: Sequence[Letter], lease: float | None = None) -> None:
        """Hold on to them for longer, counted from now."""
        self._settle(letters, core_work.renew, lease)

    def _settle(
        self, letters: Sequence[Letter], verb: Callable[..., list[Found]], *value: Any, **more: Any
    ) -> None:
        held = self._held(letters)
        _update(letters, verb(self._core, self._caller, self.name, held, *value, **more))

    def _held(self, letters: Sequence[Letter]) -> list[Found]:
        """What the service is told of these letters, each once."""
        if not isinstance(letters, (list, tuple)):
            raise Invalid(f"must be a list of letters, not {type(letters).__name__}", field="letters")
        for one in letters:
            if not isinstance(one, Letter):
                raise Invalid(f"must be a list of letters, not of {type(one).__name__}", field="letters")
            if one._mailbox.name != self.name:
                raise Invalid(f"{one.id} lies in the mailbox of {one._mailbox.name!r}", field="letters")
        return list({letter.id: letter._found for letter in letters}.values())

    # -- dead letters

    def dead(self, limit: int | None = None) -> list[Letter]:
        """Dead letters, the oldest first; `delivery.reason` and `delivery.history` say why."""
        found = core_work.list_dead(self._core, self._caller, self.name, limit)
        return [Letter(self._box, f) for f in found]

    def revive(self, *ids: str) -> list[Letter]:
        """Dead letters back into the inbox."""
        return [Letter(self._box, f) for f in core_work.revive(self._core, self._caller, self.name, ids)]

    def purge(self, *ids: str) -> int:
        """Delete dead letters for good; says how many went."""
        return core_work.purge_dead(self._core, self._caller, self.name, ids)


def _update(letters: Sequence[Letter], after: Sequence[Found]) -> None:
    """Each letter says what became of it."""
    deliveries = {found.message.id: found.delivery for found in after}
    for letter in letters:
        letter.delivery = deliveries[letter.id]


# An agent's mailbox: the verbs, as a program calls them. Parses nothing, decides nothing: calls the service.


def draft(to: Any = None, body: Any = None, **fields: Unpack[Fields]) -> Draft:
    """A letter for `send_many` or `ack_and_send`; its values are checked when it is sent. Without `to`, one with
    `in_reply_to` is a reply.
    """
    compose.check_fields(fields)
    return compose.Draft(to=to, body=body, **fields)


class Mailbox(Working, Errands):
    """One agent's mailbox in a room. Cheap to make; making one writes nothing."""

    def __init__(self, room: Room, name: str) -> None:
        self.room = room
        self.name = check_agent(name, "mailbox")
        self._core = room._core
        if self._core.limits.human != HUMAN:
            self.name = meant(self.name, self._core.limits.human)
        self._caller = room._principal

    def __repr__(self) -> str:
        return f"<Mailbox {self.name}>"

    # -- sending

    def send(self, to: Any = None, body: Any = None, **fields: Unpack[Fields]) -> Receipt:
        """Send a letter to one or many. When this returns, it is on stable storage. Without `to`, one with
        `in_reply_to` is a reply: it goes to the sender of the letter answered.
        """
        if fields:
            compose.check_fields(fields)
        draft = compose.Draft(sender=self.name, to=to, body=body)
        draft.fields = fields  # handed over: most letters have none, and to unpack them takes long
        return self._send([draft])[0]

    def send_many(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Send several letters in one commit: all or none."""
        return self._send(self._own(drafts))

    def reply(self, id: str, /, body: Any = None, *, to_all: bool = False, **fields: Unpack[Fields]) -> Receipt:
        """Answer a letter that was sent or received here."""
        return self._send([self._reply_draft(id, body, to_all=to_all, **fields)])[0]

    def forward(self, id: str, /, to: Any, body: Any = None, **fields: Unpack[Fields]) -> Receipt:
        """Pass a letter on, after a word of one's own."""
        compose.check_fields(fields)
        return self._send(
            [core_messages.forward_draft(self._core, self._caller, self.name, id, to, body, **fields)]
        )[0]

    def broadcast(
        self, scope: str, /, body: Any = None, *, exclude: Sequence[str] = (), **fields: Unpack[Fields]
    ) -> Receipt:
        """One letter to everyone registered in a scope, except oneself and those left out."""
        compose.check_fields(fields)
        return self._send([core_messages.broadcast_draft(self.name, scope, body, exclude=exclude, **fields)])[0]

    def handoff(self, to: Any, handoff: Handoff, **fields: Unpack[Fields]) -> Receipt:
        """Hand work over, with all its context."""
        compose.check_fields(fields)
        return self._send([core_messages.handoff_draft(self.name, to, handoff, **fields)])[0]

    # -- reading

    def check(
        self,
        limit: int | None = 20,
        *,
        unread_only: bool = True,
        peek: bool = False,
        **filters: Unpack[Filters],
    ) -> list[Letter]:
        """The inbox: unread first, by priority, then age. Stamps what it returns as read, unless it peeks."""
        found = inbox.check(
            self._core,
            self._caller,
            self.name,
            filter=inbox.as_filter(filters),
            limit=limit,
            unread_only=unread_only,
            peek=peek,
        )
        return [Letter(self, f) for f in found]

    def read(self, id: str) -> Letter:
        """One letter by its id, stamped as read."""
        return Letter(self, inbox.read(self._core, self._caller, self.name, id))

    def counts(self) -> dict[str, int]:
        """Unread letters by priority, and in total."""
        counted = inbox.counts(self._core, self._caller, self.name)
        by_name = {priority.name.lower(): counted[priority] for priority in sorted(counted, reverse=True)}
        return by_name | {"total": sum(counted.values())}

    def stats(self) -> Tally:
        """The open and dead mail here, in numbers."""
        return stats.mailbox_stats(self._core, self._caller, self.name)

    def trace(self, id: str) -> Trace:
        """The life of a letter that was sent or received here: where it is, what happened, what came of it."""
        return stats.trace(self._core, self._caller, self.name, id)

    def wait(
        self,
        timeout: float = 30.0,
        *,
        since: Cursor | str | None = None,
        peek: bool = False,
        **wanted: Unpack[Wanted],
    ) -> Letter | None:
        """The next unread letter, as soon as there is one; None when the time is up.

        With a cursor: the next letter that came after it, read or not, so that nothing is missed. To wait for
        the answer to a letter: `wait(thread=receipt.thread)`.
        """
        return self.room.wait([self.name], timeout, since=since, peek=peek, **wanted)

    def search(self, query: str, *, limit: int = 20, ranked: bool = False) -> list[Message]:
        """Letters that were sent or received here, by what they say: words, "a phrase", from: to: tag: kind:
        thread: before: after:, and - before what must not be. The newest first, or ranked, the best.
        """
        return search.search(self._core, self._caller, self.name, query, limit=limit, ranked=ranked)

    def digest(self, *, budget: int = 4000, most: int = 5, longest: int = 500) -> str:
        """The unread mail as text for a prompt, within a budget of characters. Marks nothing as read."""
        found = inbox.check(
            self._core, self._caller, self.name, limit=validation.check_count(most, "most"), peek=True
        )
        total = sum(inbox.counts(self._core, self._caller, self.name).values())
        messages = [f.message.seen_by(self.name) for f in found]
        return self.room.digest(messages, budget=budget, most=most, longest=longest, total=total)

    # -- tasks

    def give_task(
        self,
        to: Any,
        body: Any = None,
        *,
        deadline: When | None = None,
        session: dict[str, Any] | None = None,
        **fields: Unpack[Fields],
    ) -> Receipt:
        """Give one agent a task. `session` says where you were asked for it: it stays here, as `task.session`."""
        return tasks.give(
            self._core, self._caller, self.name, to, body, deadline=deadline, session=session, fields=fields
        )

    def task(self, id: str | Letter) -> Task:
        """A task that was given or received here: by the letter that opened it, a later one, or their ids.

        With the `Work` that opened it, its lease comes along.
        """
        letter = id if isinstance(id, Letter) else None
        name = id.id if isinstance(id, Letter) else id
        from .task import Task  # noqa: PLC0415 - a send starts quicker without it

        return Task(self, tasks.find(self._core, self._caller, self.name, name), letter)

    def tasks(
        self, role: str = "any", *, states: str | Sequence[str] | None = None, limit: int = 50
    ) -> list[Task]:
        """Tasks `given` or `received` here, or any; those that moved last first."""
        found = tasks.list_tasks(self._core, self._caller, self.name, role=role, states=states, limit=limit)
        from .task import Task  # noqa: PLC0415 - see above

        return [Task(self, standing) for standing in found]

    # -- threads

    def thread(self, id: str) -> list[Message]:
        """The letters of a thread that were sent or received here, the oldest first."""
        return threads.thread(self._core, self._caller, self.name, id)

    def tagged(self, tag: str, scope: str | None = None) -> list[Message]:
        """The letters with a thread tag that were sent or received here."""
        return threads.tagged(self._core, self._caller, self.name, tag, scope)

    def reply_chain(self, id: str) -> list[Message]:
        """From the root of a thread down to this letter."""
        return threads.reply_chain(self._core, self._caller, self.name, id)

    def threads(self, limit: int = 50) -> list[Thread]:
        """Threads with replies, the most recently active first."""
        return threads.threads(self._core, self._caller, self.name, limit)

    def conversations(self, *, scope: str | None = None, limit: int = 50) -> list[Conversation]:
        return threads.conversations(self._core, self._caller, self.name, scope, limit)

    def conversation(self, id: str) -> Conversation:
        """A conversation's participants and counts."""
        return threads.conversation(self._core, self._caller, self.name, id)

    def turns(self, conversation: str) -> list[Turn]:
        """A conversation replayed."""
        return threads.turns(self._core, self._caller, self.name, conversation)

    # -- directory

    def register(self, **card: Any) -> Agent:
        """Say who you are: display_name, description, capabilities, program, model, scopes, allow_from,
        max_concurrent_tasks, metadata.
        """
        return agents.register(self._core, self._caller, self.name, **card)

    def heartbeat(
        self,
        *,
        current_tasks: Sequence[str] | None = None,
        poll_interval: float | None = None,
        active: bool = False,
    ) -> Agent:
        """A sign of life; agents without one count as offline after a minute."""
        return agents.heartbeat(
            self._core,
            self._caller,
            self.name,
            current_tasks=current_tasks,
            poll_interval=poll_interval,
            active=active,
        )

    def leave(self, *, dormant: bool = False) -> Agent:
        """Say goodbye. Mail that comes meanwhile waits. Who leaves `dormant` does not expire, and is woken by its
        next heartbeat.
        """
        return agents.heartbeat(self._core, self._caller, self.name, leaving=True, dormant=dormant)

    # -- drafts

    def _own(self, drafts: Sequence[Draft]) -> list[Draft]:
        """Copies, signed by this mailbox: a draft may be sent again, and from elsewhere."""
        if not isinstance(drafts, (list, tuple)):
            raise Invalid(f"must be a list of drafts, not {type(drafts).__name__}", field="drafts")
        for one in drafts:
            if not isinstance(one, compose.Draft):
                raise Invalid(f"must be a list of drafts, not of {type(one).__name__}", field="drafts")
        return [one.but(sender=self.name) for one in drafts]

    def _send(self, drafts: Sequence[Draft]) -> list[Receipt]:
        return core_messages.send(self._core, self._caller, drafts)

    def _reply_draft(self, id: str, /, body: Any, *, to_all: bool = False, **fields: Unpack[Fields]) -> Draft:
        compose.check_fields(fields)
        return core_messages.reply_draft(self._core, self._caller, self.name, id, body, to_all=to_all, **fields)
