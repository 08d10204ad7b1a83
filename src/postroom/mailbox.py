"""One agent's mailbox: every verb that a program calls on its own mail.

A mailbox belongs to a `Room` and acts under the name it was opened with. Each method checks the shape of its
arguments and calls one function of `core`, which authorizes the caller, decides and commits. What a method returns
is committed: a sent letter is on stable storage, and a list of letters is settled all or none.

Sending and reading are imported with this module. The other verbs import their module of `core` when they are
called: a command uses one verb, and start-up is most of what it costs.
"""

from __future__ import annotations

import os
from functools import wraps
from typing import TYPE_CHECKING, Any, overload

from msgspec.structs import asdict

from .core import compose, inbox, messages
from .core.verb import perform, request
from .errors import Invalid, NoAnswer
from .letter import Batch, Letter, Shift, Work
from .model.names import HUMAN, check_agent, meant
from .reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from typing import TypeVar, Unpack

    from .core.compose import Draft
    from .core.messages import Receipt
    from .core.verb import Runs
    from .core.work import Claimed, Settled
    from .keywords import Body, Fields, Filters, RequestFields, To, Wanted, When
    from .model.agent import Agent
    from .model.alert import Later, Rung
    from .model.message import Handoff, Message
    from .model.query import Found, Tally
    from .model.record import Cursor
    from .model.task import Escalation
    from .model.thread import Conversation
    from .room import Room
    from .task import Task

    T = TypeVar("T")


def draft(to: To | None = None, body: Body = None, **fields: Unpack[Fields]) -> Draft:
    """Return a letter for `send_many` or `ack_and_send`; its values are checked when it is sent.

    Without `to`, a draft with `in_reply_to` is a reply.
    """
    return compose.Draft(to=to, body=body, **compose.letter_fields(fields))


def _with_may_ring(method: Callable[..., T]) -> Callable[..., T]:
    """Return the method with its callback under its deprecated name."""

    @wraps(method)
    def call(*args: Any, may_ring: Callable[[], bool] | None = None, **more: Any) -> T:
        return method(*args, **{"may_alert": may_ring, **more})

    return call


class Mailbox(Reader):
    """One agent's mailbox in a room. Cheap to make; making one writes nothing."""

    def __init__(self, room: Room, name: str) -> None:
        self.room = room  # the room that it belongs to
        self.name = check_agent(name, "mailbox")  # the name of its agent
        self.core = room.core
        if self.core.limits.human != HUMAN:
            self.name = meant(self.name, self.core.limits.human)
        self.principal = room.principal

    def __repr__(self) -> str:
        return f"<Mailbox {self.name}>"

    # -- sending

    def send(self, to: To | None = None, body: Body = None, **fields: Unpack[Fields]) -> Receipt:
        """Send a letter to one or several recipients; on return it is on stable storage.

        Without `to`, a letter with `in_reply_to` is a reply: it goes to the sender of the letter answered.

        Args:
            to: a name, or a list of names; without it, the sender of the letter in in_reply_to
            body: text, a part, or a list of parts
            **fields: further fields of the letter, such as subject, priority, kind, cc, at, expires, key and data;
                see `keywords.Fields`
        """
        more = compose.letter_fields(fields) if fields else fields
        return perform(self.core, self.principal, messages.Send(agent_id=self.name, to=to, body=body, **more))

    def send_many(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Send several letters in one commit: all or none.

        Args:
            drafts: letters made by `draft`
        """
        return self._perform(messages.SendMany, drafts=drafts).receipts

    def send_template(
        self, to: To, name: str, values: Mapping[str, Any] | None = None, **fields: Unpack[Fields]
    ) -> Receipt:
        """Send a letter made from a template of the room, with a value for each of its placeholders.

        Args:
            to: a name, or a list of names
            name: the template
            values: a value for each of its places
            **fields: further fields of the letter, such as subject, priority, kind, cc, at, expires, key and data;
                see `keywords.Fields`
        """
        from .core.templates import SendTemplate

        return self._perform(SendTemplate, to=to, name=name, values=values, **compose.letter_fields(fields))

    def reply(self, id: str, /, body: Body = None, *, to_all: bool = False, **fields: Unpack[Fields]) -> Receipt:
        """Answer a letter that was sent or received here.

        Args:
            id: the letter's id
            body: text, a part, or a list of parts
            to_all: to everyone who got it
            **fields: further fields of the letter, such as subject, priority, kind, cc, at, expires, key and data;
                see `keywords.Fields`
        """
        return self._perform(messages.Reply, id=id, body=body, to_all=to_all, **compose.letter_fields(fields))

    def forward(self, id: str, /, to: To, body: Body = None, **fields: Unpack[Fields]) -> Receipt:
        """Pass a letter on, with a body of one's own before it.

        Args:
            id: the letter's id
            to: a name, or a list of names
            body: text, a part, or a list of parts
            **fields: further fields of the letter, such as subject, priority, kind, cc, at, expires, key and data;
                see `keywords.Fields`
        """
        return self._perform(messages.Forward, id=id, to=to, body=body, **compose.letter_fields(fields))

    def broadcast(
        self, scope: str, /, body: Body = None, *, exclude: Sequence[str] = (), **fields: Unpack[Fields]
    ) -> Receipt:
        """Send one letter to every agent registered in a scope, except this one and those in `exclude`.

        Args:
            scope: whose members get it
            body: text, a part, or a list of parts
            exclude: recipients to leave out
            **fields: further fields of the letter, such as subject, priority, kind, cc, at, expires, key and data;
                see `keywords.Fields`
        """
        more = compose.letter_fields(fields)
        return self._perform(messages.Broadcast, scope=scope, body=body, exclude=exclude, **more)

    def handoff(self, to: To, handoff: Handoff, **fields: Unpack[Fields]) -> Receipt:
        """Hand work over, with all its context.

        Args:
            to: a name, or a list of names
            handoff: work_completed, current_state, next_steps and so on
            **fields: further fields of the letter, such as subject, priority, kind, cc, at, expires, key and data;
                see `keywords.Fields`
        """
        return self._perform(messages.HandOver, to=to, handoff=handoff, **compose.letter_fields(fields))

    def ask(self, to: To, body: Body = None, *, timeout: float = 30.0, **fields: Unpack[RequestFields]) -> Letter:
        """Send a request, wait for its answer, acknowledge that and return it.

        Raises Undeliverable if the request comes back, and NoAnswer after `timeout` seconds; `error.key` is the
        key of the request. With the same `key` again nothing is sent: the wait goes on, and an answer that came
        meanwhile is returned, however often.

        Args:
            to: a name, or a list of names
            body: text, a part, or a list of parts
            timeout: how long to wait, in seconds
            **fields: further fields of the request, such as subject, priority, expires, key and data; see
                `keywords.RequestFields`
        """
        from .core import work as core_work

        def answered(answer: core_work.Answer) -> Letter:
            if answer.letter is not None:
                return Letter(self, answer.letter)
            late = NoAnswer(
                f"no answer to {answer.id} after {timeout:g} seconds",
                hint="call ask again with the same key to go on waiting",
            )
            late.keys = (answer.key,)
            raise late

        params = {"agent_id": self.name, "to": to, "body": body, "timeout": timeout, **fields}
        return self.room._wait(request(core_work.Ask, params), answered)

    def unsend(self, id: str) -> Message:
        """Take back a letter that was sent here, from all its recipients or none.

        Possible only while no recipient has claimed or settled it. Returns the letter, to edit and send again.

        Args:
            id: the letter's id
        """
        return self._perform(messages.Unsend, id=id).letter

    def sent(self, limit: int = 20) -> list[Message]:
        """Return the letters that were sent here, the newest first.

        Args:
            limit: how many at most
        """
        from .core import search

        return self._perform(search.Sent, limit=limit).letters

    # -- reading

    def check(
        self,
        limit: int | None = 20,
        *,
        unread_only: bool = True,
        peek: bool = False,
        **filters: Unpack[Filters],
    ) -> list[Letter]:
        """Return the inbox: unread first, by priority, then age. Stamps the letters as read, unless `peek`.

        Args:
            limit: how many at most
            unread_only: false: also letters that were read before
            peek: stamp nothing
            **filters: only letters with these properties: kinds, min_priority, sender, thread, thread_tag, tag,
                scope, since
        """
        found = self._perform(inbox.Check, limit=limit, unread_only=unread_only, peek=peek, **filters)
        return [Letter(self, f) for f in found.letters]

    def read(self, id: str) -> Letter:
        """Return one letter by its id, and stamp it as read.

        Args:
            id: the letter's id
        """
        return Letter(self, self._perform(inbox.Read, id=id).letter)

    def counts(self) -> dict[str, int]:
        """Count unread letters by priority, and in total."""
        counted = asdict(self._perform(inbox.Counts))
        del counted["mailbox"]
        return counted

    def stats(self) -> Tally:
        """Return the numbers of open and dead mail here."""
        from .core import stats

        return self._perform(stats.MailboxStats)

    def wait(
        self,
        timeout: float = 30.0,
        *,
        since: Cursor | str | None = None,
        peek: bool = False,
        **wanted: Unpack[Wanted],
    ) -> Letter | None:
        """Return the next unread letter as soon as there is one; None after `timeout` seconds.

        With a cursor: the next letter that came after it, read or not, so that nothing is missed. To wait for
        the answer to a letter: `wait(thread=receipt.thread)`.

        Args:
            timeout: how long to wait, in seconds
            since: a cursor: what came after it, read or not, so that nothing is missed
            peek: stamp nothing as read
            **wanted: only letters with these properties: kinds, min_priority, sender, thread, thread_tag, tag,
                scope
        """
        return self.room.wait([self.name], timeout, since=since, peek=peek, **wanted)

    def digest(self, *, budget: int = 4000, most: int = 5, longest: int = 500) -> str:
        """Return the unread mail as text for a prompt, within a budget of characters. Marks nothing as read.

        Args:
            budget: characters at most
            most: letters at most
            longest: characters of one letter at most
        """
        return self._perform(inbox.Digest, budget=budget, most=most, longest=longest)

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
        """Take the most urgent letter under a lease: no other worker gets it meanwhile. None if there is none.

        With a count: up to so many at once, as a Batch, which may be empty. With a timeout: wait for mail.

        Args:
            count: how many at most; without it, one letter is returned and no Batch
            lease: for how many seconds; by default, as the settings say
            timeout: how long to wait for mail, in seconds
            holder: name of the holder, for people; by default the agent and its process
            **filters: only letters with these properties: kinds, min_priority, sender, thread, thread_tag, tag,
                scope, since
        """
        from .core.work import Claim

        def taken(claimed: Claimed) -> Work | Batch | None:
            if count is None:
                return Work(self, claimed.letters[0]) if claimed.letters else None
            return Batch(self, [Work(self, found) for found in claimed.letters])

        params = {
            "agent_id": self.name,
            "count": 1 if count is None else count,
            "lease": lease,
            "holder": f"{self.name} (process {os.getpid()})" if holder is None else holder,
            "timeout": timeout,
            **filters,
        }
        return self.room._wait(request(Claim, params), taken)

    def work(
        self,
        *,
        batch: int = 1,
        lease: float | None = None,
        timeout: float | None = None,
        **filters: Unpack[Filters],
    ) -> Generator[Work, None, None]:
        """Yield claimed letters, for ever, or until none came for `timeout` seconds: a worker loop.

        Settle each letter: `with work:` does so when its block is left. Nothing is acknowledged by going on: a
        letter that is not settled stays claimed for half its lease, or until the loop ends, and then goes back
        without a failed try. In a slow loop over a batch, the leases of the letters ahead are renewed. Leaving
        the loop early, or by an error, counts a failed try for the letter in hand, if it is not settled.

        Args:
            batch: how many letters are claimed at once
            lease: for how many seconds; by default, as the settings say
            timeout: the loop ends when nothing came for so many seconds; by default never
            **filters: only letters with these properties: kinds, min_priority, sender, thread, thread_tag, tag,
                scope, since
        """
        shift = Shift(self, lease)
        try:
            while True:
                patience = shift.patience(timeout)
                claimed = self.claim(batch, lease=lease, timeout=patience, **filters)
                if not claimed:
                    shift.give_back()
                    if patience == timeout:
                        return
                shift.begin(claimed)
                while (work := shift.next()) is not None:
                    yield work
        finally:
            shift.leave()

    def serve(
        self,
        handler: Callable[[Work], Any],
        *,
        concurrency: int = 1,
        lease: float | None = None,
        grace: float = 30.0,
        timeout: float | None = None,
        **filters: Unpack[Filters],
    ) -> None:
        """Call the handler for each letter, for up to `concurrency` letters at once, each in a thread of its own.

        The lease of a letter is renewed while its handler runs. When the handler returns, the letter is
        acknowledged; a value that is not None is sent as the answer in the same commit: text, parts, or any
        `dict` as data. When it raises, that is a failed try. While the store fails, serving pauses and goes on.

        Ends on SIGTERM, SIGINT or `stop()`, or when nothing came for `timeout` seconds. Handlers that run then
        have `grace` seconds to finish; what is unfinished then, or at a second signal, is released.

        Args:
            handler: a function that takes a `Work`; what it returns is the answer
            concurrency: how many letters are handled at once
            lease: for how many seconds; by default, as the settings say
            grace: seconds that handlers have to finish in the end
            timeout: ends when nothing came for so many seconds; by default never
            **filters: only letters with these properties: kinds, min_priority, sender, thread, thread_tag, tag,
                scope, since
        """
        from . import service

        service.serve(
            self,
            handler,
            concurrency=concurrency,
            lease=lease,
            grace=grace,
            timeout=timeout,
            filters=dict(filters),
        )

    def stop(self) -> None:
        """End `serve` of this mailbox, from a handler or from another thread; said twice, without grace."""
        from . import service

        service.stop(self)

    def held(self, id: str, token: str) -> Work:
        """Return a letter that was claimed earlier, here or in another process, by its lease token.

        The token is `work.delivery.lease.token`.

        Args:
            id: the letter's id
            token: the lease's token, from claim
        """
        from .core import work as core_work

        return Work(self, self._perform(core_work.Held, id=id, token=token).letter)

    # -- settling, any number of letters in one commit: all or none

    def ack(self, letters: Sequence[Letter], *, archive: bool = True) -> None:
        """Acknowledge these letters: they leave the inbox for good.

        Args:
            letters: letters of this mailbox
            archive: False: they are kept out of the archive
        """
        from .core.work import Ack

        self._settle(Ack, letters, keep=not archive)

    def ack_and_send(
        self, letters: Sequence[Letter], drafts: Sequence[Draft], *, archive: bool = True
    ) -> list[Receipt]:
        """Acknowledge these letters and send others, in one commit.

        Args:
            letters: letters of this mailbox
            drafts: letters made by `draft`
            archive: False: they are kept out of the archive
        """
        from .core import work as core_work

        return self._settle(
            core_work.Ack, letters, drafts=messages.own_drafts(self.name, drafts), keep=not archive
        )

    def fail(self, letters: Sequence[Letter], reason: str, *, retry: bool = True) -> None:
        """Record a failed try: the letters are offered again later, or, without `retry`, are dead at once.

        Args:
            letters: letters of this mailbox
            reason: why
            retry: false: dead at once
        """
        from .core import work as core_work

        self._settle(core_work.Fail, letters, reason=reason, retry=retry)

    def reject(self, letters: Sequence[Letter], reason: str) -> None:
        """Refuse these letters: they become dead letters, and their senders get the reason.

        Args:
            letters: letters of this mailbox
            reason: why
        """
        self.fail(letters, reason, retry=False)

    def release(self, letters: Sequence[Letter]) -> None:
        """Give these letters back, as if they had never been claimed.

        Args:
            letters: letters of this mailbox
        """
        from .core import work as core_work

        self._settle(core_work.Release, letters)

    def renew(self, letters: Sequence[Letter], lease: float | None = None) -> None:
        """Extend the leases of these letters, counted from now.

        Args:
            letters: letters of this mailbox
            lease: for how many seconds, counted from now
        """
        from .core import work as core_work

        self._settle(core_work.Renew, letters, lease=lease)

    # -- dead letters

    def dead(self, limit: int | None = None) -> list[Letter]:
        """Return dead letters, the oldest first; `delivery.reason` and `delivery.history` say why.

        Args:
            limit: how many at most
        """
        from .core import dead

        return [Letter(self, f) for f in self._perform(dead.Dead, limit=limit).letters]

    def revive(self, *ids: str) -> list[Letter]:
        """Put dead letters back into the inbox.

        Args:
            *ids: ids of dead letters
        """
        from .core import dead

        return [Letter(self, f) for f in self._perform(dead.Revive, ids=list(ids)).letters]

    def purge(self, *ids: str) -> int:
        """Delete dead letters for good, and return how many.

        Args:
            *ids: ids of dead letters
        """
        from .core import dead

        return self._perform(dead.PurgeDead, ids=list(ids))

    # -- tasks

    def give_task(
        self,
        to: To,
        body: Body = None,
        *,
        deadline: When | None = None,
        session: dict[str, Any] | None = None,
        **fields: Unpack[Fields],
    ) -> Receipt:
        """Give one agent a task. `session` says where the request came from; it stays here, as `task.session`.

        Args:
            to: who does it
            body: text, a part, or a list of parts
            deadline: when it must be over
            session: where you were asked for it; stays here
            **fields: further fields of the letter, such as subject, priority, kind, cc, at, expires, key and data;
                see `keywords.Fields`
        """
        from .core import tasks

        more = compose.letter_fields(fields)
        return self._perform(tasks.GiveTask, to=to, body=body, deadline=deadline, session=session, **more)

    def task(self, id: str | Letter) -> Task:
        """Return a task that was given or received here: by the letter that opened it, a later one, or their ids.

        With the `Work` that opened it, its lease comes along.

        Args:
            id: the id of a letter
        """
        from .core import tasks
        from .task import Task

        letter = id if isinstance(id, Letter) else None
        found = self._perform(tasks.FindTask, id=id.id if isinstance(id, Letter) else id)
        return Task(self, found.standing, letter, session=found.session)

    def tasks(
        self, role: str = "any", *, states: str | Sequence[str] | None = None, limit: int = 50
    ) -> list[Task]:
        """Return tasks `given` or `received` here, or any; the most recently changed first.

        Args:
            role: given, received or any
            states: only in these states
            limit: how many at most
        """
        from .core import tasks
        from .task import Task

        found = self._perform(tasks.ListTasks, role=role, states=states, limit=limit)
        return [Task(self, one.standing, session=one.session) for one in found]

    # -- escalation

    def escalate(
        self, body: Body = None, *, reason: str, ladder: Sequence[str] | None = None, **fields: Unpack[Fields]
    ) -> Receipt:
        """Ask the next agent up the ladder; the answer comes into the same thread.

        A question that stays unanswered climbs further when its time is up.

        Args:
            body: text, a part, or a list of parts
            reason: an open word, such as blocked
            ladder: agents to ask, the lowest first
            **fields: further fields of the letter, such as subject, priority, kind, cc, at, expires, key and data;
                see `keywords.Fields`
        """
        from .core import escalation

        more = compose.letter_fields(fields)
        return self._perform(escalation.Escalate, body=body, reason=reason, ladder=ladder, **more)

    def resolve(self, id: str) -> Escalation:
        """Close an escalation without an answer; it climbs no further.

        Args:
            id: the escalation's id
        """
        from .core import escalation

        return self._perform(escalation.Resolve, id=id)

    # -- threads

    def reply_chain(self, id: str) -> list[Message]:
        """Return the letters from the root of a thread down to this one.

        Args:
            id: the letter's id
        """
        from .core import threads

        return self._perform(threads.GetReplyChain, id=id).letters

    def conversation(self, id: str) -> Conversation:
        """Return a conversation's participants and counts.

        Args:
            id: its id
        """
        from .core import threads

        return self._perform(threads.GetConversation, conversation=id)

    # -- directory

    def register(
        self,
        *,
        display_name: str | None = None,
        description: str | None = None,
        capabilities: Sequence[str] | None = None,
        program: str | None = None,
        model: str | None = None,
        scopes: Sequence[str] | None = None,
        allow_from: Sequence[str] | None = None,
        max_concurrent_tasks: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Agent:
        """Publish this agent's card in place of its former one. `extra` holds fields of other protocols.

        Args:
            display_name: a name for people
            description: what it is for
            capabilities: what it can do
            program: what runs it
            model: the model behind it
            scopes: the teams it is in
            allow_from: who may write to it
            max_concurrent_tasks: how many tasks at once
            metadata: anything else
            extra: fields of other protocols
        """
        from .core import agents

        return self._perform(
            agents.Register,
            display_name=display_name,
            description=description,
            capabilities=capabilities,
            program=program,
            model=model,
            scopes=scopes,
            allow_from=allow_from,
            max_concurrent_tasks=max_concurrent_tasks,
            metadata=metadata,
            extra=extra,
        )

    def heartbeat(
        self,
        *,
        current_tasks: Sequence[str] | None = None,
        poll_interval: float | None = None,
        active: bool = False,
    ) -> Agent:
        """Record that this agent is alive; without a heartbeat it counts as offline after a minute.

        Args:
            current_tasks: what you work on
            poll_interval: how often you look
            active: you did something
        """
        from .core import agents

        return self._perform(
            agents.RecordHeartbeat, current_tasks=current_tasks, poll_interval=poll_interval, active=active
        )

    def leave(self, *, dormant: bool = False) -> Agent:
        """Record that this agent leaves; its mail waits. A `dormant` one does not expire: a heartbeat wakes it.

        Args:
            dormant: sleep: you do not expire, and your next heartbeat wakes you
        """
        from .core import agents

        return self._perform(agents.Goodbye, dormant=dormant)

    # -- refusing senders

    def block(self, name: str) -> list[str]:
        """Refuse mail from this name: its sender gets NotAllowed. Returns all names that are refused.

        Args:
            name: its name
        """
        from .core import agents

        return self._perform(agents.Block, name=name)

    def unblock(self, name: str) -> list[str]:
        """Accept mail from this name again. Returns all names that are still refused.

        Args:
            name: its name
        """
        from .core import agents

        return self._perform(agents.Unblock, name=name)

    def blocked(self) -> list[str]:
        """Return the names whose mail is refused here."""
        from .core import agents

        return self._perform(agents.ListBlocked)

    # -- alerts: telling a person or a program that mail waits. An alert is a hint; it moves no letter.

    def begin_alerts(self, way: str, *, backlog: bool = False) -> int:
        """Begin to alert by a channel of your own (`exec`, `webhook:1`).

        Letters that are unread already count as alerted, unless `backlog`. Returns their number; 0 after the
        first time.

        Args:
            way: the channel of the alert, such as claude; each has a log of its own
            backlog: alert of letters that are unread already, too
        """
        from .core import alerts

        return self._perform(alerts.BeginAlerts, way=way, backlog=backlog)

    def next_alert(
        self, way: str, *, may_alert: Callable[[], bool] | None = None, within: float | None = None
    ) -> Rung | Later:
        """Decide whether it is time to alert: a `Rung` must be carried out, once; `Later` says when to ask again.

        `may_alert` is called when there is something to alert about. With `within`, the caller promises
        `alert_done` within so many seconds; without it the alert counts as failed then. So no alert is lost with
        the process that should have carried it out.

        Args:
            way: the channel of the alert, such as claude; each has a log of its own
            may_alert: called before an alert is recorded; false: not now
            within: seconds in which the caller promises `alert_done`
        """
        from .core import alerts
        from .model.alert import Later

        due = self._perform(alerts.NextAlert, way=way, may_alert=may_alert, within=within)
        return due.rung or Later(due.look_again)

    def wait_for_alert(
        self,
        way: str,
        timeout: float = 30.0,
        *,
        may_alert: Callable[[], bool] | None = None,
        within: float | None = None,
    ) -> Rung | None:
        """Return the next alert as soon as it is time for one; None after `timeout` seconds.

        `may_alert` is called before it is recorded; `within` as in `next_alert`.

        Args:
            way: the channel
            timeout: how long to wait, in seconds
            may_alert: called before an alert is recorded; false: not now
            within: seconds in which the caller promises `alert_done`
        """
        from .core import alerts

        params = {"agent_id": self.name, "way": way, "timeout": timeout, "may_alert": may_alert, "within": within}
        return self.room._wait(request(alerts.WaitForAlert, params), lambda due: due.rung)

    def alert_done(self, way: str, ids: str | Sequence[str]) -> None:
        """Record that the alert for these letters was carried out, as was promised by `within`.

        Args:
            way: the channel of the alert, such as claude; each has a log of its own
            ids: ids of letters
        """
        from .core import alerts

        self._perform(alerts.AlertDone, way=way, ids=ids)

    def alert_failed(self, way: str, ids: str | Sequence[str], why: str) -> int:
        """Record that the alert for these letters did not get through: it is tried again later.

        Returns for how many letters it is given up.

        Args:
            way: the channel of the alert, such as claude; each has a log of its own
            ids: ids of letters
            why: what went wrong
        """
        from .core import alerts

        return self._perform(alerts.AlertFailed, way=way, ids=ids, why=why)

    def mark_shown(self, ids: str | Sequence[str], host: str, where: str = "", *, read: bool = True) -> int:
        """Record that these letters were shown to a model or a person, and return how many of them are here.

        They are stamped as read, unless only their headings were shown (`read=False`).

        Args:
            ids: ids of letters
            host: in what, such as claude
            where: at what occasion
            read: False: only the headings were shown
        """
        from .core import alerts

        return self._perform(alerts.Shown, ids=ids, host=host, where=where, read=read)

    # -- deprecated names

    begin_rings, ring_done, ring_failed = begin_alerts, alert_done, alert_failed
    try_ring, wait_to_ring = _with_may_ring(next_alert), _with_may_ring(wait_for_alert)

    # -- shared steps

    def _ask(self, verb: Callable[..., Runs[T]], **params: Any) -> T:
        return self._perform(verb, **params)

    def _perform(self, verb: Callable[..., Runs[T]], **params: Any) -> T:
        return perform(self.core, self.principal, request(verb, {"agent_id": self.name, **params}))

    def _settle(
        self, verb: Callable[..., Runs[Settled]], letters: Sequence[Letter], **params: Any
    ) -> list[Receipt]:
        """Settle letters that lie in this mailbox, each under its lease."""
        if not isinstance(letters, (list, tuple)):
            raise Invalid(f"must be a list of letters, not {type(letters).__name__}", field="letters")
        held: dict[str, Found] = {}
        for one in letters:
            if not isinstance(one, Letter):
                raise Invalid(f"must be a list of letters, not of {type(one).__name__}", field="letters")
            if one._mailbox.name != self.name:
                raise Invalid(f"{one.id} lies in the mailbox of {one._mailbox.name!r}", field="letters")
            held[one.message.id] = one._found
        params |= {"agent_id": self.name, "ids": list(held), "held": list(held.values())}
        settled = perform(self.core, self.principal, request(verb, params))
        after = dict(zip(held, settled.letters, strict=True))
        for one in letters:
            one.delivery = after[one.message.id].delivery
        return settled.receipts
