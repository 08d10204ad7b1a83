"""The life of a letter in the design's words: unread → read → processing → completed → archived, or failed.

Processing is a claim under a lease: one worker gets the letter. When the lease runs out, the letter is unread
again and a try is counted; after the last try it has failed. Who may complete it:

- the manager that claimed it, with its lease;
- any other manager, in the name of the mailbox: the design's agents run every step in a process of its own, so
  the one that completes is often not the one that began;
- a manager that claimed it, came too late and lost it to another worker: refused. The other one's work counts.
- a manager that claimed it and came too late, but nobody else has begun: its work counts.
"""

from __future__ import annotations

import logging
import os
from threading import Lock, get_ident
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from .. import service
from ..errors import IllegalMove, LeaseLost, StaleRevision, UnknownMessage
from ..model import delivery as moves
from ..model.delivery import State
from ..model.query import Query
from . import looking
from .translating import is_unread

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..model.delivery import Delivery
    from ..model.query import Found
    from ..room import Room

LEASE = 3600.0  # seconds that a letter is left to whoever works on it
_PATIENCE = 5  # looks, when others move the same letter
_RACES = (LeaseLost, StaleRevision, IllegalMove, UnknownMessage)
_log = logging.getLogger("postroom")


class Claim(NamedTuple):
    """What proves that a letter is held here."""

    token: str
    thread: int  # of those that share a manager, one gets the letter


class Progress:
    """What one manager does to letters, and what it holds. Any number of threads may use it."""

    def __init__(self, room: Room, lease: float = LEASE) -> None:
        self._room = room
        self._lease = lease
        self._claims: dict[tuple[str, str], Claim] = {}  # of what was claimed here, by letter and mailbox
        self._lock = Lock()

    def read(self, handle: str) -> Found | None:
        """Looked at. What is no longer unread stays as it is."""
        return self._until_done(handle, self._read)

    def start(self, handle: str) -> Found | None:
        """Claimed, or held for longer by the same thread; None if somebody else works on it, or it is done."""
        return self._until_done(handle, self._start)

    def complete(self, handle: str, *, archive: bool) -> Found | None:
        return self._until_done(handle, lambda found: self._complete(found, archive=archive))

    def fail(self, handle: str, reason: str, *, retry: bool) -> Found | None:
        return self._until_done(handle, lambda found: self._fail(found, reason, retry=retry))

    def _until_done(self, handle: str, step: Callable[[Found], Found | None]) -> Found | None:
        """The step, done to the letter as it is now; again, if somebody else was quicker."""
        for last in range(_PATIENCE, 0, -1):
            found = looking.find(self._room, handle)
            if found is None:
                return None
            try:
                return step(found)
            except _RACES as lost:
                if last == 1:
                    _log.warning("%s: %s", handle, lost)
        return None

    # -- steps

    def _read(self, found: Found) -> Found:
        if not is_unread(found.delivery):
            return found
        now = self._room._office.now().wall
        return self._moved(found, "read", lambda delivery: replace(moves.read(delivery, now), read_at=now))

    def _start(self, found: Found) -> Found | None:
        state = found.delivery.state
        if state is State.UNREAD:
            return self._claim(found)
        if state is State.CLAIMED and self._is_ours(found) and self._is_this_threads(found):
            office, caller = self._room._office, self._room._principal
            return service.holding.renew(office, caller, found.delivery.mailbox, [found], self._lease)[0]
        if state is State.DEAD and found.delivery.reason != looking.EXPIRED:
            return self._claim(self._revived(found))
        _log.info("%s is %s and cannot be claimed", found.message.id, state)
        return None

    def _complete(self, found: Found, *, archive: bool) -> Found | None:
        if self._was_lost(found):
            return None
        if found.delivery.state is State.DONE:
            now = self._room._office.now().wall
            if not archive or found.delivery.archived_at is not None:
                return found
            return self._moved(found, "archive", lambda delivery: moves.archive(delivery, now))
        held = self._revived(found) if found.delivery.state is State.DEAD else found
        office, caller = self._room._office, self._room._principal
        done = service.holding.ack(office, caller, held.delivery.mailbox, [held], archive=archive)[0]
        self._let_go(done)
        return done

    def _fail(self, found: Found, reason: str, *, retry: bool) -> Found | None:
        if self._was_lost(found) or found.delivery.state is State.DONE:
            return None
        if found.delivery.state is State.DEAD:
            return found
        held = self._claim(found) if retry and found.delivery.state is State.UNREAD else found
        office, caller = self._room._office, self._room._principal
        failed = service.holding.fail(office, caller, held.delivery.mailbox, [held], reason, retry=retry)[0]
        self._let_go(failed)
        return failed

    # -- moves

    def _claim(self, found: Found) -> Found:
        mailbox = found.delivery.mailbox
        claimed = service.holding.claim_one(
            self._room._office,
            self._room._principal,
            mailbox,
            found.message.id,
            lease=self._lease,
            holder=f"{mailbox} (process {os.getpid()})",
        )
        lease = claimed.delivery.lease
        with self._lock:
            self._claims[claimed.message.id, mailbox] = Claim(lease.token if lease else "", get_ident())
        return claimed

    def _revived(self, found: Found) -> Found:
        letter = self._room.mailbox(found.delivery.mailbox).revive(found.message.id)[0]
        return type(found)(letter.message, letter.delivery)

    def _moved(self, found: Found, action: str, step: Callable[[Delivery], Delivery]) -> Found:
        query = Query(
            mailbox=found.delivery.mailbox, message_ids=(found.message.id,), states=(found.delivery.state,)
        )
        done = service.moving.move_found(self._room._office, query, action, step)
        if not done:
            raise StaleRevision
        return done[0]

    # -- holding

    def _is_ours(self, found: Found) -> bool:
        lease, claim = found.delivery.lease, self._claim_on(found)
        return lease is not None and claim is not None and lease.token == claim.token

    def _is_this_threads(self, found: Found) -> bool:
        claim = self._claim_on(found)
        return claim is not None and claim.thread == get_ident()

    def _was_lost(self, found: Found) -> bool:
        """We held it once, and now another does."""
        held_once = self._claim_on(found) is not None
        lost = found.delivery.state is State.CLAIMED and held_once and not self._is_ours(found)
        if lost:
            holder = found.delivery.lease.holder if found.delivery.lease else "nobody"
            _log.warning("%s was left to %s: our lease ran out", found.message.id, holder)
        return lost

    def _claim_on(self, found: Found) -> Claim | None:
        with self._lock:
            return self._claims.get((found.message.id, found.delivery.mailbox))

    def _let_go(self, found: Found) -> None:
        with self._lock:
            self._claims.pop((found.message.id, found.delivery.mailbox), None)
