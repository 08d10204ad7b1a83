"""The delivery of one agent's mail to its connection.

A letter stays unread until its receipt has come; then it is acknowledged, once and durably. No lease is needed: an
agent is on one connection, and a letter that was pushed and not received is simply unread, so a cut connection or
a killed server leaves it so. At most WINDOW letters wait for a receipt at once.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core import inbox, work
from ..core.proof import people_names
from ..core.verb import perform, seconds_to_sleep
from ..errors import NotAllowed, PostroomError
from ..formats.map import MESSAGE, map_letter
from ..server.protocol import notification
from ..server.requests import Schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..core.authorize import Principal
    from ..model.query import Found
    from ..server.executor import Executor


log = logging.getLogger("postroom")
WINDOW = 64  # letters that wait for a receipt
READY = 0.25  # seconds after registration: programs of the SDK set their handlers only after that answer
AGAIN = 5.0  # seconds before another try


class AgentDelivery:
    """A task that pushes the unread mail of one agent.

    `push` sends a notification and returns its number, or 0: not now. `on_received` is called for each letter that
    has its receipt.
    """

    def __init__(
        self,
        executor: Executor,
        principal: Callable[[], Principal],
        agent: str,
        push: Callable[[dict[str, Any]], int],
        on_received: Callable[[Found], None],
    ) -> None:
        self._executor = executor
        self._core = executor.core
        self._principal = principal  # called each time: its connection may show another token
        self._agent = agent
        self._push = push
        self._on_received = on_received
        # Letters without a receipt, each with the number under which it was pushed.
        self._pending: dict[str, tuple[int, Found]] = {}
        self._settling: set[str] = set()
        self._settled_since: set[str] = set()  # since the last read began, which may show them still
        self._wake = asyncio.Event()
        self.is_paused = False
        self._task = asyncio.ensure_future(self._run())

    def wake(self) -> None:
        """Look for mail again."""
        self._wake.set()

    def pause(self, *, is_paused: bool) -> None:
        self.is_paused = is_paused
        self.wake()

    def close(self) -> None:
        """Stop. Letters without a receipt stay unread."""
        self._task.cancel()
        self._pending.clear()

    # -- receipts

    def received_up_to(self, number: int) -> None:
        """Settle all letters up to this number."""
        self._settle([id for id, (own, _) in self._pending.items() if own <= number])

    def received(self, ids: Iterable[str]) -> list[str]:
        """Settle these letters; return those that waited for a receipt."""
        mine = [id for id in ids if id in self._pending]
        self._settle(mine)
        return mine

    def _settle(self, ids: list[str]) -> None:
        letters = [self._pending[id][1] for id in ids if id not in self._settling]
        if not letters:
            return
        # A second receipt of the same letters, while the first is written, must not acknowledge them twice.
        self._settling.update(found.message.id for found in letters)
        done = self._executor.submit(partial(self._acknowledge, self._principal(), letters))
        done.add_done_callback(lambda done: self._settled(letters, done.exception()))

    def _acknowledge(self, principal: Principal, letters: list[Found]) -> None:
        """Acknowledge letters in one commit or, where another worker claimed one meanwhile, one by one."""
        ids = [found.message.id for found in letters]
        if principal.scopes is not None and "work" not in principal.scopes:  # its token allows reading only
            for id in ids:
                perform(self._core, principal, inbox.Read(agent_id=self._agent, id=id))
            return
        try:
            perform(self._core, principal, work.Ack(agent_id=self._agent, ids=ids, held=letters))
        except PostroomError as refused:
            if refused.temporary or len(letters) == 1:
                raise
            for found in letters:
                try:
                    self._acknowledge(principal, [found])
                except PostroomError as one:
                    if one.temporary:  # then all of them are tried again
                        raise

    def _settled(self, letters: list[Found], error: BaseException | None) -> None:
        for found in letters:
            self._settling.discard(found.message.id)
            self._settled_since.add(found.message.id)
            # If the commit failed, the letter is still unread, and is pushed again.
            self._pending.pop(found.message.id, None)
            if error is None:
                self._on_received(found)
        if error is not None:
            log.info("mail that %s received could not be acknowledged: %s", self._agent, error)
        self.wake()

    # -- pushing

    async def _run(self) -> None:
        await asyncio.sleep(READY)
        with self._executor.listen([self._agent]) as self._wake:
            while True:
                # Before the look: mail that comes during it wakes us again.
                self._wake.clear()
                began = self._core.now()
                try:
                    is_full = await self._push_waiting()
                    seconds = 3600.0
                    if not is_full and not self.is_paused:
                        next_timer = partial(seconds_to_sleep, self._core, [self._agent], began)
                        seconds = await self._executor.submit(next_timer, kind=Schedule.READ)
                except NotAllowed as refused:
                    log.warning("no mail is pushed to %s: %s", self._agent, refused)
                    return
                except PostroomError as later:
                    log.info("the mail of %s waits: %s", self._agent, later)
                    seconds = AGAIN
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._wake.wait()

    async def _push_waiting(self) -> bool:
        """Push unread letters while there is room.

        True: stop until `wake` is called, by the transport or a receipt.
        """
        if self.is_paused:
            return True
        while (free := WINDOW - len(self._pending)) > 0:
            self._settled_since.clear()
            found, people = await self._executor.submit(partial(self._unread, self._principal()))
            # The read began before some receipts were written, so it may show letters that are done by now.
            known = self._pending.keys() | self._settled_since
            fresh = [one for one in found if one.message.id not in known][:free]
            for one in fresh:
                # As the agent may see it: a bcc recipient learns of no other (G8).
                number = self._push(
                    notification(MESSAGE, {"message": map_letter(one.message.seen_by(self._agent), people)})
                )
                if not number:
                    return True
                self._pending[one.message.id] = (number, one)
            if len(found) < WINDOW or not fresh:
                return False
        return True

    def _unread(self, principal: Principal) -> tuple[list[Found], frozenset[str]]:
        check = inbox.Check(agent_id=self._agent, limit=WINDOW, peek=True)
        return perform(self._core, principal, check).letters, people_names(self._core)
