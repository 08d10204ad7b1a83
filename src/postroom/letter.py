"""Letters as a program holds them: read, answered, claimed and settled.

`Letter` is a letter that was read; `Work` is one that was claimed, and is acknowledged when its block is left;
`Batch` is a list of claimed letters. Each holds a message, its delivery and its mailbox, and calls the verbs of
the mailbox. `LetterView` is the read-only part, which `aio.AsyncLetter` shares.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from .errors import LeaseLost
from .model.delivery import State
from .model.query import Found

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from types import TracebackType
    from typing import Unpack

    from .core.compose import Draft
    from .core.messages import Receipt
    from .keywords import Fields
    from .mailbox import Mailbox
    from .model.delivery import Delivery
    from .model.message import Message, Part, Priority, Recipient
    from .model.record import Cursor


class LetterView:
    """The fields of a letter in a mailbox, as the mailbox's owner may see them."""

    def __init__(self, found: Found) -> None:
        mailbox = found.delivery.mailbox
        self.message: Message = found.message.seen_by(mailbox)
        self.delivery: Delivery = found.delivery

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
        about = f" {self.subject!r}" if self.subject else ""
        return f"<{type(self).__name__} {self.id} from {self.sender}{about} ({self.state})>"


class Letter(LetterView):
    """A letter that was read. It stays in the inbox until it is acknowledged."""

    def __init__(self, mailbox: Mailbox, found: Found) -> None:
        super().__init__(found)
        self._mailbox = mailbox

    def reply(self, body: Any = None, *, to_all: bool = False, **fields: Unpack[Fields]) -> Receipt:
        """Answer the letter; thread, subject, scope, priority and conversation are kept."""
        return self._mailbox.reply(self.id, body, to_all=to_all, **fields)

    def forward(self, to: Any, body: Any = None, **fields: Unpack[Fields]) -> Receipt:
        """Pass the letter on. It is relayed a limited number of times, and never back to an agent it came from."""
        return self._mailbox.forward(self.id, to, body, **fields)

    def ack(self, *, archive: bool = True) -> None:
        """Acknowledge the letter: it leaves the inbox for good."""
        self._mailbox.ack([self], archive=archive)

    def ack_and_reply(
        self, body: Any = None, *, to_all: bool = False, archive: bool = True, **fields: Unpack[Fields]
    ) -> Receipt:
        """Acknowledge and answer the letter in one commit."""
        draft = self._mailbox._reply_draft(self.id, body, to_all=to_all, **fields)
        return self._mailbox.ack_and_send([self], [draft], archive=archive)[0]

    def ack_and_send(self, drafts: Sequence[Draft], *, archive: bool = True) -> list[Receipt]:
        """Acknowledge the letter and send others in one commit."""
        return self._mailbox.ack_and_send([self], drafts, archive=archive)

    def reject(self, reason: str) -> None:
        """Refuse the letter: it becomes a dead letter, and its sender gets the reason."""
        self._mailbox.reject([self], reason)

    @property
    def cursor(self) -> Cursor:
        """The position of this letter: `wait(since=letter.cursor)` goes on after it."""
        return replace(
            self._mailbox.room.core.store.cursor(),
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
        """Record a failed try: the letter is offered again later, or, without `retry`, is dead at once."""
        self._mailbox.fail([self], reason, retry=retry)

    def release(self) -> None:
        """Give the letter back, as if it had never been claimed."""
        self._mailbox.release([self])

    def renew(self, lease: float | None = None) -> None:
        """Extend the lease, counted from now."""
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
        """Acknowledge all unsettled letters in one commit."""
        self._mailbox.ack(self.unsettled, archive=archive)

    def fail(self, reason: str, *, retry: bool = True) -> None:
        """Record a failed try of all unsettled letters in one commit."""
        self._mailbox.fail(self.unsettled, reason, retry=retry)

    def release(self) -> None:
        """Give all unsettled letters back in one commit."""
        self._mailbox.release(self.unsettled)

    def renew(self, lease: float | None = None) -> None:
        """Extend the leases of all unsettled letters, counted from now."""
        self._mailbox.renew(self.unsettled, lease)

    def _hold_on(self, place: int, lease: float | None) -> None:
        """In a slow loop at `place`, acknowledge the letters before it and renew the leases of the rest."""
        self._mailbox.ack([work for work in self[:place] if not work.is_settled], archive=True)
        self._mailbox.renew([work for work in self[place:] if not work.is_settled], lease)

    def _leave_at(self, place: int) -> None:
        """After a loop was left at `place`, acknowledge the letters before it, fail that one, release the rest."""
        with suppress(LeaseLost):  # then they are back in the inbox already
            self._mailbox.ack([work for work in self[:place] if not work.is_settled], archive=True)
            in_hand = [work for work in self[place : place + 1] if not work.is_settled]
            self._mailbox.fail(in_hand, "the worker left its loop", retry=True)
            self._mailbox.release([work for work in self[place + 1 :] if not work.is_settled])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _leave(self._mailbox, self.unsettled, error)


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
