"""Working on mail: claim it, settle it, look after what died. Decides nothing: calls the service.

`Mailbox` has all of these verbs; they stand here so that both files can be read in one sitting.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, cast, overload

from . import service
from .errors import Invalid
from .letter import Batch, Letter, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from typing import Unpack

    from .fields import Filters
    from .mailbox import Mailbox
    from .model.query import Found
    from .service.authorize import Principal
    from .service.compose import Draft
    from .service.office import Office
    from .service.sending import Receipt

    Verb = Callable[..., list[Found]]


class Working:
    """The verbs of a mailbox for mail that is worked on."""

    name: str
    _office: Office
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

        asked = service.reading.as_filter(filters)
        by = f"{self.name} (process {os.getpid()})" if holder is None else holder

        def take() -> list[Found]:
            return service.holding.claim(
                self._office, self._caller, self.name, count=wanted, lease=lease, holder=by, filter=asked
            )

        found = service.waiting.wait_until(self._office, [self.name], timeout, take) or []
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
                if time.monotonic() - held_since > (lease or self._office.limits.lease) / 2:
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
        return Work(self._box, service.holding.held(self._office, self._caller, self.name, id, token))

    # -- settling, any number of letters in one commit: all or none

    def ack(self, letters: Sequence[Letter], *, archive: bool = True) -> None:
        """Done with all of these: they leave the inbox for good."""
        self._settle(letters, service.holding.ack, archive=archive)

    def ack_and_send(
        self, letters: Sequence[Letter], drafts: Sequence[Draft], *, archive: bool = True
    ) -> list[Receipt]:
        """Done with all of these, and further letters sent."""
        held = self._held(letters)
        after, receipts = service.holding.ack_and_send(
            self._office, self._caller, self.name, held, self._own(drafts), archive=archive
        )
        _update(letters, after)
        return receipts

    def fail(self, letters: Sequence[Letter], reason: str, *, retry: bool = True) -> None:
        """This try failed. They are offered again later, or, without retry, they are dead at once."""
        self._settle(letters, service.holding.fail, reason, retry=retry)

    def reject(self, letters: Sequence[Letter], reason: str) -> None:
        """Refuse them: they go to the dead letters, and their senders are told why."""
        self.fail(letters, reason, retry=False)

    def release(self, letters: Sequence[Letter]) -> None:
        """Give them back, as if they had never been claimed."""
        self._settle(letters, service.holding.release)

    def renew(self, letters: Sequence[Letter], lease: float | None = None) -> None:
        """Hold on to them for longer, counted from now."""
        self._settle(letters, service.holding.renew, lease)

    def _settle(
        self, letters: Sequence[Letter], verb: Callable[..., list[Found]], *said: Any, **more: Any
    ) -> None:
        held = self._held(letters)
        _update(letters, verb(self._office, self._caller, self.name, held, *said, **more))

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
        found = service.dead.list_dead(self._office, self._caller, self.name, limit)
        return [Letter(self._box, f) for f in found]

    def revive(self, *ids: str) -> list[Letter]:
        """Dead letters back into the inbox."""
        return [Letter(self._box, f) for f in service.dead.revive(self._office, self._caller, self.name, ids)]

    def purge(self, *ids: str) -> int:
        """Delete dead letters for good; says how many went."""
        return service.dead.purge_dead(self._office, self._caller, self.name, ids)


def _update(letters: Sequence[Letter], after: Sequence[Found]) -> None:
    """Each letter says what became of it."""
    deliveries = {found.message.id: found.delivery for found in after}
    for letter in letters:
        letter.delivery = deliveries[letter.id]
