"""One webhook, for ever: look, call, say what came of it, sleep until mail comes or it is time to try again.

Nothing waits on the event loop. What the room is asked is asked on the desk's slow threads; calls are made by the
loop itself, one after the other for one webhook.
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import service
from ..errors import Missing, PostroomError
from ..model.target import read_target
from ..service.authorize import OWNER
from . import notice

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..desk import Desk
    from ..model.webhook import Webhook
    from ..service.calling import DueCall
    from .answers import Outcome
    from .calling import Telephone

log = logging.getLogger("postroom")
AGAIN = 5.0  # seconds after the room could not be asked
RUNG, FAILED, DEAD = "rung", "failed", "dead"


class Ringer:
    """Made inside an event loop. `webhook` may be replaced by a newer state of the same."""

    def __init__(self, desk: Desk, webhook: Webhook, telephone: Telephone) -> None:
        self.webhook = webhook
        self._desk = desk
        self._office = desk.room._office
        self._telephone = telephone
        self._loop = asyncio.get_running_loop()
        self._is_begun = False
        self._quiet_until = 0.0  # who was called asked us to wait

    async def run(self) -> None:
        """Until it is switched off. What goes wrong is logged, and tried again."""
        with self._desk.listen([self.webhook.mailbox]) as bell:
            while self.webhook.is_on:
                await asyncio.sleep(self._quiet_until - self._loop.time())
                bell.clear()
                try:
                    nap = await self._look()
                except PostroomError as wrong:
                    log.warning("webhook %s could not look for mail: %s", self.webhook.id, wrong)
                    nap = self._begin_anew()
                except BaseException as fault:
                    if not isinstance(fault, Exception):
                        raise
                    log.exception("webhook %s stopped by a fault of ours", self.webhook.id)
                    nap = self._begin_anew()
                await _sleep(bell, nap)

    def _begin_anew(self) -> float:
        """Of calls that were to be made nobody knows now whether they were."""
        self._is_begun = False
        return AGAIN

    async def _look(self) -> float:
        """Make the calls that are due; how long to sleep then. What was under way before goes first."""
        if not self._is_begun:
            await self._ask(service.calling.resume)
            self._is_begun = True
        due: service.calling.Due = await self._ask(service.calling.due)
        outcome: Outcome | None = None
        for call in due.calls:
            if outcome is not None and outcome.is_final:
                await self._put_off(call, outcome)
            else:
                outcome = await self._make(call)
        return due.nap

    async def _make(self, call: DueCall) -> Outcome:
        body = notice.waiting(self.webhook.mailbox, self._office.now().wall, call.unread, call.letters)
        outcome = await self._telephone.call(self.webhook, call.id, body, lambda: self._office.now().wall)
        if outcome.is_rung:
            await self._ask(service.calling.answered, call.id)
            self._desk.counters.rang(self.webhook.id, RUNG)
            return outcome
        await self._fail(call, outcome)
        if outcome.is_gone:
            await self._switch_off(outcome)
        return outcome

    async def _put_off(self, call: DueCall, outcome: Outcome) -> None:
        """Not made now: what was answered to another call holds for this one, too."""
        why = f"not called, for {outcome.problem} to another call"
        asked = outcome.pause or 0.0
        await self._ask(service.calling.failed, call, why, asked=asked, chance=random.random(), was_tried=False)

    async def _fail(self, call: DueCall, outcome: Outcome) -> None:
        asked = outcome.pause or 0.0
        self._quiet_until = self._loop.time() + asked
        dead = await self._ask(service.calling.failed, call, outcome.problem, asked=asked, chance=random.random())
        self._desk.counters.rang(self.webhook.id, DEAD if dead else FAILED)
        told = "given up; postroom rings shows it" if dead else "tried again later"
        host = read_target(self.webhook.url).host  # of its path it may be that it is a secret
        log.warning("webhook %s at %s was not rung: %s; %s", self.webhook.id, host, outcome.problem, told)

    async def _switch_off(self, outcome: Outcome) -> None:
        id = self.webhook.id
        with suppress(Missing):  # it was removed meanwhile
            off = partial(service.webhooks.switch_off, self._office, OWNER, id, outcome.problem)
            self.webhook = await self._desk.run_slow(off)
            log.warning(
                "webhook %s is off: %s; if that is over: postroom webhook test %s", id, outcome.problem, id
            )

    async def _ask(self, question: Callable[..., Any], *said: Any, **more: Any) -> Any:
        return await self._desk.run_slow(partial(question, self._office, OWNER, self.webhook, *said, **more))


async def _sleep(bell: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await bell.wait()
