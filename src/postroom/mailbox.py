"""An agent's mailbox: the verbs, as a program calls them. Parses nothing, decides nothing: calls the service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import service
from .errands import Errands
from .errors import Invalid
from .letter import Letter
from .model.names import HUMAN, check_agent, meant
from .working import Working

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from .fields import Fields, Filters, Wanted, When
    from .model.card import Agent
    from .model.change import Cursor
    from .model.handoff import Handoff
    from .model.message import Message
    from .model.stats import Tally
    from .model.thread import Conversation, Thread, Turn
    from .model.trace import Trace
    from .room import Room
    from .service.compose import Draft
    from .service.sending import Receipt
    from .task import Task


def draft(to: Any = None, body: Any = None, **fields: Unpack[Fields]) -> Draft:
    """A letter for `send_many` or `ack_and_send`; its values are checked when it is sent. Without `to`, one with
    `in_reply_to` is a reply.
    """
    service.compose.check_fields(fields)
    return service.compose.Draft(to=to, body=body, **fields)


class Mailbox(Working, Errands):
    """One agent's mailbox in a room. Cheap to make; making one writes nothing."""

    def __init__(self, room: Room, name: str) -> None:
        self.room = room
        self.name = check_agent(name, "mailbox")
        self._office = room._office
        if self._office.limits.human != HUMAN:
            self.name = meant(self.name, self._office.limits.human)
        self._caller = room._principal

    def __repr__(self) -> str:
        return f"<Mailbox {self.name}>"

    # -- sending

    def send(self, to: Any = None, body: Any = None, **fields: Unpack[Fields]) -> Receipt:
        """Send a letter to one or many. When this returns, it is on stable storage. Without `to`, one with
        `in_reply_to` is a reply: it goes to the sender of the letter answered.
        """
        if fields:
            service.compose.check_fields(fields)
        draft = service.compose.Draft(sender=self.name, to=to, body=body)
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
        service.compose.check_fields(fields)
        return self._send(
            [service.sending.forward_draft(self._office, self._caller, self.name, id, to, body, **fields)]
        )[0]

    def broadcast(
        self, scope: str, /, body: Any = None, *, exclude: Sequence[str] = (), **fields: Unpack[Fields]
    ) -> Receipt:
        """One letter to everyone registered in a scope, except oneself and those left out."""
        service.compose.check_fields(fields)
        return self._send([service.sending.broadcast_draft(self.name, scope, body, exclude=exclude, **fields)])[0]

    def handoff(self, to: Any, handoff: Handoff, **fields: Unpack[Fields]) -> Receipt:
        """Hand work over, with all its context."""
        service.compose.check_fields(fields)
        return self._send([service.sending.handoff_draft(self.name, to, handoff, **fields)])[0]

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
        found = service.reading.check(
            self._office,
            self._caller,
            self.name,
            filter=service.reading.as_filter(filters),
            limit=limit,
            unread_only=unread_only,
            peek=peek,
        )
        return [Letter(self, f) for f in found]

    def read(self, id: str) -> Letter:
        """One letter by its id, stamped as read."""
        return Letter(self, service.reading.read(self._office, self._caller, self.name, id))

    def counts(self) -> dict[str, int]:
        """Unread letters by priority, and in total."""
        counted = service.reading.counts(self._office, self._caller, self.name)
        by_name = {priority.name.lower(): counted[priority] for priority in sorted(counted, reverse=True)}
        return by_name | {"total": sum(counted.values())}

    def stats(self) -> Tally:
        """The open and dead mail here, in numbers."""
        return service.counting.mailbox_stats(self._office, self._caller, self.name)

    def trace(self, id: str) -> Trace:
        """The life of a letter that was sent or received here: where it is, what happened, what came of it."""
        return service.tracing.trace(self._office, self._caller, self.name, id)

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
        return service.search.search(self._office, self._caller, self.name, query, limit=limit, ranked=ranked)

    def digest(self, *, budget: int = 4000, most: int = 5, longest: int = 500) -> str:
        """The unread mail as text for a prompt, within a budget of characters. Marks nothing as read."""
        found = service.reading.check(
            self._office, self._caller, self.name, limit=service.given.check_count(most, "most"), peek=True
        )
        total = sum(service.reading.counts(self._office, self._caller, self.name).values())
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
        return service.tasks.give(
            self._office, self._caller, self.name, to, body, deadline=deadline, session=session, fields=fields
        )

    def task(self, id: str | Letter) -> Task:
        """A task that was given or received here: by the letter that opened it, a later one, or their ids.

        With the `Work` that opened it, its lease comes along.
        """
        letter = id if isinstance(id, Letter) else None
        name = id.id if isinstance(id, Letter) else id
        from .task import Task  # noqa: PLC0415 - a send starts quicker without it

        return Task(self, service.tasks.find(self._office, self._caller, self.name, name), letter)

    def tasks(
        self, role: str = "any", *, states: str | Sequence[str] | None = None, limit: int = 50
    ) -> list[Task]:
        """Tasks `given` or `received` here, or any; those that moved last first."""
        found = service.tasks.list_tasks(
            self._office, self._caller, self.name, role=role, states=states, limit=limit
        )
        from .task import Task  # noqa: PLC0415 - see above

        return [Task(self, standing) for standing in found]

    # -- threads

    def thread(self, id: str) -> list[Message]:
        """The letters of a thread that were sent or received here, the oldest first."""
        return service.threads.thread(self._office, self._caller, self.name, id)

    def tagged(self, tag: str, scope: str | None = None) -> list[Message]:
        """The letters with a thread tag that were sent or received here."""
        return service.threads.tagged(self._office, self._caller, self.name, tag, scope)

    def reply_chain(self, id: str) -> list[Message]:
        """From the root of a thread down to this letter."""
        return service.threads.reply_chain(self._office, self._caller, self.name, id)

    def threads(self, limit: int = 50) -> list[Thread]:
        """Threads with replies, the most recently active first."""
        return service.threads.threads(self._office, self._caller, self.name, limit)

    def conversations(self, *, scope: str | None = None, limit: int = 50) -> list[Conversation]:
        return service.threads.conversations(self._office, self._caller, self.name, scope, limit)

    def conversation(self, id: str) -> Conversation:
        """A conversation's participants and counts."""
        return service.threads.conversation(self._office, self._caller, self.name, id)

    def turns(self, conversation: str) -> list[Turn]:
        """A conversation replayed."""
        return service.threads.turns(self._office, self._caller, self.name, conversation)

    # -- directory

    def register(self, **card: Any) -> Agent:
        """Say who you are: display_name, description, capabilities, program, model, scopes, allow_from,
        max_concurrent_tasks, metadata.
        """
        return service.directory.register(self._office, self._caller, self.name, **card)

    def heartbeat(
        self,
        *,
        current_tasks: Sequence[str] | None = None,
        poll_interval: float | None = None,
        active: bool = False,
    ) -> Agent:
        """A sign of life; agents without one count as offline after a minute."""
        return service.directory.heartbeat(
            self._office,
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
        return service.directory.heartbeat(self._office, self._caller, self.name, leaving=True, dormant=dormant)

    # -- drafts

    def _own(self, drafts: Sequence[Draft]) -> list[Draft]:
        """Copies, signed by this mailbox: a draft may be sent again, and from elsewhere."""
        if not isinstance(drafts, (list, tuple)):
            raise Invalid(f"must be a list of drafts, not {type(drafts).__name__}", field="drafts")
        for one in drafts:
            if not isinstance(one, service.compose.Draft):
                raise Invalid(f"must be a list of drafts, not of {type(one).__name__}", field="drafts")
        return [one.but(sender=self.name) for one in drafts]

    def _send(self, drafts: Sequence[Draft]) -> list[Receipt]:
        return service.sending.send(self._office, self._caller, drafts)

    def _reply_draft(self, id: str, /, body: Any, *, to_all: bool = False, **fields: Unpack[Fields]) -> Draft:
        service.compose.check_fields(fields)
        return service.sending.reply_draft(
            self._office, self._caller, self.name, id, body, to_all=to_all, **fields
        )
