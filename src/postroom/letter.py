"""Letters as a program holds them: read, answered, claimed and settled.

`Letter` is a letter that was read; `Work` is one that was claimed, and is acknowledged when its block is left;
`Batch` is a list of claimed letters. Each holds a message, its delivery and its mailbox, and calls the verbs of
the mailbox.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from .core.compose import letter_fields
from .core.messages import Reply
from .errors import LeaseLost
from .model.delivery import State
from .model.query import Found
from .model.values import in_quotes, passes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from types import TracebackType
    from typing import Unpack

    from .core.compose import Draft
    from .core.messages import Receipt
    from .keywords import Body, Fields, To
    from .mailbox import Mailbox
    from .model.delivery import Delivery
    from .model.message import Message, Part, Priority, Recipient
    from .model.record import Cursor


class Letter:
    """A letter that was read. It stays in the inbox until it is acknowledged."""

    message: Message  # as the owner of the mailbox may see it
    delivery: Delivery

    def __init__(self, mailbox: Mailbox, found: Found) -> None:
        self._mailbox = mailbox
        self.message = found.message.seen_by(found.delivery.mailbox)  # as the mailbox's owner may see it
        self.delivery = found.delivery  # the state of the letter at this mailbox

    @property
    def id(self) -> str:
        return self.message.id

    @property
    def sender(self) -> str:
        return self.message.sender

    @property
    def recipients(self) -> tuple[Recipient, ...]:
        return self.message.recipients

    @property
    def subject(self) -> str:
        return self.message.subject

    @property
    def text(self) -> str:
        """All text parts, joined."""
        return self.message.text

    @property
    def data(self) -> Any:
        """The content of the first data part, or None."""
        return next((part["data"] for part in self.message.parts if part.type == "data"), None)

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.message.parts

    @property
    def kind(self) -> str:
        return self.message.kind

    @property
    def priority(self) -> Priority:
        return self.message.priority

    @property
    def thread(self) -> str:
        """The id of the thread's root letter."""
        return self.message.thread

    @property
    def tags(self) -> tuple[str, ...]:
        return self.message.tags

    @property
    def created_at(self) -> datetime:
        return self.message.created_at

    @property
    def state(self) -> State:
        return self.delivery.state

    def __repr__(self) -> str:
        about = f" {in_quotes(self.subject)}" if self.subject else ""
        return f"<{type(self).__name__} {self.id} from {self.sender}{about} ({self.state})>"

    def reply(self, body: Body = None, *, to_all: bool = False, **fields: Unpack[Fields]) -> Receipt:
        """Answer the letter; thread, subject, scope, priority and conversation are kept.

        Args:
            body: text, a part, or a list of parts
            to_all: to everyone who got it
            **fields: further fields of the letter, such as subject, priority, kind, cc, at, expires, key and data;
                see `keywords.Fields`
        """
        return self._mailbox.reply(self.id, body, to_all=to_all, **fields)

    def forward(self, to: To, body: Body = None, **fields: Unpack[Fields]) -> Receipt:
        """Pass the letter on. It is relayed a limited number of times, and never back to an agent it came from.

        Args:
            to: a name, or a list of names
            body: text, a part, or a list of parts
            **fields: further fields of the letter, such as subject, priority, kind, cc, at, expires, key and data;
                see `keywords.Fields`
        """
        return self._mailbox.forward(self.id, to, body, **fields)

    def ack(self, *, archive: bool = True) -> None:
        """Acknowledge the letter: it leaves the inbox for good.

        Args:
            archive: False: it is kept out of the archive
        """
        self._mailbox.ack([self], archive=archive)

    def ack_and_reply(
        self, body: Body = None, *, to_all: bool = False, archive: bool = True, **fields: Unpack[Fields]
    ) -> Receipt:
        """Acknowledge and answer the letter in one commit.

        Args:
            body: text, a part, or a list of parts
            to_all: to everyone who got it
            archive: False: it is kept out of the archive
            **fields: further fields of the letter, such as subject, priority, kind, cc, at, expires, key and data;
                see `keywords.Fields`
        """
        box, more = self._mailbox, letter_fields(fields)
        reply = Reply(agent_id=box.name, id=self.id, body=body, to_all=to_all, **more)
        return box.ack_and_send([self], [reply.draft(box.core)], archive=archive)[0]

    def ack_and_send(self, drafts: Sequence[Draft], *, archive: bool = True) -> list[Receipt]:
        """Acknowledge the letter and send others in one commit.

        Args:
            drafts: letters made by `draft`
            archive: False: it is kept out of the archive
        """
        return self._mailbox.ack_and_send([self], drafts, archive=archive)

    def reject(self, reason: str) -> None:
        """Refuse the letter: it becomes a dead letter, and its sender gets the reason.

        Args:
            reason: why
        """
        self._mailbox.reject([self], reason)

    @property
    def cursor(self) -> Cursor:
        """The position of this letter: `wait(since=letter.cursor)` goes on after it."""
        return replace(
            # Only store and epoch are of now: the number is the letter's, so that nothing between the two is
            # skipped.
            self._mailbox.core.store.cursor(),
            number=self.delivery.arrived or self.delivery.number,
            mailbox=self.delivery.mailbox,
        )

    def to_markdown(self) -> str:
        """Return the letter as text for a prompt; the content stands in a fence that it cannot break."""
        return self._mailbox.room.markdown(self.message)

    @property
    def _found(self) -> Found:
        """The letter as `core` takes it, without a lease: a reader holds none, even while a worker does."""
        return Found(self.message, replace(self.delivery, lease=None))


class Work(Letter):
    """A claimed letter: no other worker gets it while the lease lasts.

    As a context manager it is acknowledged on exit. On an error it goes back to the inbox, where it is offered
    again after a pause, until its tries are spent.
    """

    @property
    def _found(self) -> Found:
        """The letter as `core` takes it, with the lease that proves who holds it (G5)."""
        return Found(self.message, self.delivery)

    @property
    def is_settled(self) -> bool:
        """Whether it was acknowledged, failed or released."""
        return self.delivery.state is not State.CLAIMED

    def fail(self, reason: str, *, retry: bool = True) -> None:
        """Record a failed try: the letter is offered again later, or, without `retry`, is dead at once.

        Args:
            reason: why
            retry: False: dead at once
        """
        self._mailbox.fail([self], reason, retry=retry)

    def release(self) -> None:
        """Give the letter back, as if it had never been claimed."""
        self._mailbox.release([self])

    def renew(self, lease: float | None = None) -> None:
        """Extend the lease, counted from now.

        Args:
            lease: for how many seconds from now; by default, as the settings say
        """
        self._mailbox.renew([self], lease)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.is_settled:
            _leave(self._mailbox, [self], error)


class Batch(list[Work]):
    """Several letters claimed at once; each method settles all unsettled ones in one commit. May be empty."""

    def __init__(self, mailbox: Mailbox, works: Iterable[Work]) -> None:
        super().__init__(works)
        self._mailbox = mailbox

    @property
    def unsettled(self) -> list[Work]:
        return [work for work in self if not work.is_settled]

    def ack(self, *, archive: bool = True) -> None:
        """Acknowledge all unsettled letters in one commit.

        Args:
            archive: False: they are kept out of the archive
        """
        self._mailbox.ack(self.unsettled, archive=archive)

    def fail(self, reason: str, *, retry: bool = True) -> None:
        """Record a failed try of all unsettled letters in one commit.

        Args:
            reason: why
            retry: False: dead at once
        """
        self._mailbox.fail(self.unsettled, reason, retry=retry)

    def release(self) -> None:
        """Give all unsettled letters back in one commit."""
        self._mailbox.release(self.unsettled)

    def renew(self, lease: float | None = None) -> None:
        """Extend the leases of all unsettled letters, counted from now.

        Args:
            lease: for how many seconds from now; by default, as the settings say
        """
        self._mailbox.renew(self.unsettled, lease)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _leave(self._mailbox, self.unsettled, error)


class Shift:
    """The letters that a worker loop holds: the one in hand, those ahead, and those it left behind unsettled.

    Nothing here acknowledges a letter. One that was left behind stays claimed for a while, so that the same loop
    does not get it again at once, and then goes back without a failed try.
    """

    def __init__(self, mailbox: Mailbox, lease: float | None) -> None:
        self._mailbox = mailbox
        self._lease = lease
        self._since = self._most = 0.0  # since when the leases run, and for how many seconds they are left alone
        self._in_hand: list[Work] = []
        self._ahead: list[Work] = []
        self._behind: list[Work] = []

    def patience(self, timeout: float | None) -> float:
        """Return how long to wait for mail: not longer than what was left behind may stay claimed."""
        wait = 3600.0 if timeout is None else timeout
        return min(wait, max(self._since + self._most - time.monotonic(), 0.0)) if self._behind else wait

    def begin(self, claimed: Batch) -> None:
        if not self._behind:
            # Counted from the oldest that is left behind: a busy loop would otherwise hold it for ever.
            self._since = time.monotonic()
        self._most = (self._mailbox.core.limits.lease if self._lease is None else self._lease) / 2
        self._ahead = list(claimed)

    def next(self) -> Work | None:
        """Return the next letter; None at the end of what was claimed."""
        self._pass_by()
        # A slow handler must not lose the letters ahead of it: their leases have run since the claim.
        if self.is_late():
            self.hold_on()
        self._in_hand, self._ahead = self._ahead[:1], self._ahead[1:]
        return self._in_hand[0] if self._in_hand else None

    def is_late(self) -> bool:
        """Return whether half the lease is over."""
        return bool(self._behind or self._ahead) and time.monotonic() - self._since > self._most

    def hold_on(self) -> None:
        """Give back what was left behind, and renew the leases of what is still ahead."""
        self.give_back()
        self._since = time.monotonic()
        try:
            self._mailbox.renew(self._ahead, self._lease)
        except LeaseLost:  # some are back in the inbox already
            self._ahead = [work for work in self._ahead if passes(LeaseLost, work.renew, self._lease)]

    def give_back(self) -> None:
        """Release what was left behind."""
        behind, self._behind = self._behind, []
        _release(self._mailbox, behind)

    def leave(self) -> None:
        """After the loop was left, fail the letter in hand if it is not settled, and release the others."""
        # A letter that always breaks its worker must count tries, or it would never be dead (G6).
        in_hand = [work for work in self._in_hand if not work.is_settled]
        with suppress(LeaseLost):  # then it is back in the inbox already
            self._mailbox.fail(in_hand, "the worker left its loop", retry=True)
        self._in_hand, self._behind, self._ahead = [], [*self._behind, *self._ahead], []
        self.give_back()

    def _pass_by(self) -> None:
        self._behind = [work for work in (*self._behind, *self._in_hand) if not work.is_settled]
        self._in_hand = []


def _release(mailbox: Mailbox, works: Sequence[Work]) -> None:
    """Release letters that are not settled; those whose lease was lost are back in the inbox already."""
    works = [work for work in works if not work.is_settled]
    try:
        mailbox.release(works)
    except LeaseLost:
        # One lost lease refuses the whole commit: the others are released one by one.
        for work in works:
            with suppress(LeaseLost):
                mailbox.release([work])


def _leave(mailbox: Mailbox, works: Sequence[Work], error: BaseException | None) -> None:
    """Settle letters at the end of a block: acknowledge them, or, after an error, fail them."""
    if error is None:
        mailbox.ack(works, archive=True)
        return
    with suppress(LeaseLost):  # it is back in the inbox already; the error of the block matters more
        if isinstance(error, Exception):
            mailbox.fail(works, f"{type(error).__name__}: {error}", retry=True)
        else:  # Ctrl-C and SystemExit are no failed try
            mailbox.release(works)
