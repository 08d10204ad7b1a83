"""What we laid into the tray, and how we wait: until it is answered for, or it is our own turn."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..base import Post
from .parcels import pack, unpack_answer
from .tray import ANSWERED, TAKEN, TURNED_BACK, WAITING, NoTray
from .turns import LONG_NAP, NAP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..base import Plan, Posted, Write
    from .lock import WriterLock
    from .tray import Tray

SLOW = 0.25  # seconds after which a carrier that took something along is taken for dead


def lay(tray: Tray | NoTray, writes: Sequence[Write] | Plan, *, durable: bool) -> Laid | None:
    """Lay it into the tray, if it is something that others can carry, and if there is place for it."""
    if isinstance(tray, NoTray) or callable(writes):
        return None
    packed = pack(writes, durable=durable)
    return Laid(tray, writes, packed[1]) if packed is not None and tray.lay(packed[0]) else None


class Laid:
    """What we laid into the tray."""

    def __init__(self, tray: Tray, writes: Sequence[Write], ticket: bytes) -> None:
        self.writes = writes
        self.posted: tuple[Posted, ...] | None = None  # until it is answered
        self._tray = tray
        self._ticket = ticket
        self._was_taken = False

    def stand_in_line(self, lock: WriterLock) -> bool:
        """Wait until it is answered for (False) or it is our own turn (True)."""
        try:
            end = time.monotonic() + lock.timeout
            patience = NAP
            while True:
                state, called = self._tray.look()
                if state == ANSWERED and self._hear():
                    return False
                was_taken, self._was_taken = self._was_taken, self._was_taken or state != WAITING
                if state in {ANSWERED, TURNED_BACK}:  # or answered, but not to this
                    return lock.stand_in_line()
                now = time.monotonic()
                if state == TAKEN and not was_taken:
                    patience = SLOW
                elif lock.take_at_once():
                    state, _ = self._tray.look()  # again: from now on nobody takes it along
                    self._was_taken = self._was_taken or state != WAITING
                    if state != ANSWERED or not self._hear():
                        return True
                    lock.leave()  # it was answered for meanwhile
                    return False
                lock.check_patience(end - now)
                self._tray.wait(called, min(end - now, patience))
                patience = min(2 * patience, LONG_NAP)
        finally:
            self._tray.take_back()

    def corrected(self, posted: tuple[Posted, ...]) -> tuple[Posted, ...]:
        """Where our carrier was killed after it had written our letter, we met our own letter, and no other."""
        if not self._was_taken:
            return posted
        own = {write.message.id for write in self.writes if isinstance(write, Post)}
        return tuple([replace(one, repeated=False) if one.message_id in own else one for one in posted])

    def _hear(self) -> bool:
        answer = self._tray.answer()
        if answer is not None:
            self.posted = unpack_answer(answer, self._ticket)
        return self.posted is not None
