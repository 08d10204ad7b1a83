"""What will come of a call, for whoever waits for it.

Like a future of asyncio, with one difference: who waits is called in the moment it is settled, not in another
round of the event loop. A call over the socket passes several of them, and a round costs as much as a small call.

It refuses to know what was called. Everything stands on one thread, that of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

log = logging.getLogger("postroom")
_OPEN: Any = object()


class Outcome:
    """Of one call. Settled once: with a result, with an error, or by giving up on it."""

    __slots__ = ("_error", "_is_cancelled", "_result", "_tell", "_waiting")

    def __init__(self) -> None:
        self._result: Any = _OPEN
        self._error: BaseException | None = None
        self._is_cancelled = False
        self._tell: Callable[[BaseException | None, Any], Any] | None = None
        self._waiting: list[Callable[[Outcome], object]] = []

    @classmethod
    def of(cls, future: asyncio.Future[Any]) -> Outcome:
        """That of a future. Who gives up on one gives up on the other."""
        outcome = cls()
        outcome.add_done_callback(lambda outcome: future.cancel() if outcome.cancelled() else None)
        future.add_done_callback(outcome._follow)
        return outcome

    def done(self) -> bool:
        return self._result is not _OPEN

    def cancelled(self) -> bool:
        return self._is_cancelled

    def exception(self) -> BaseException | None:
        return self._error

    def told_as(self, tell: Callable[[BaseException | None, Any], Any]) -> Outcome:
        """Its result, for whoever asks from now on: what `tell` makes of the error, or else of what came of it."""
        self._tell = tell
        return self

    def result(self) -> Any:
        if self._tell is not None:
            tell, self._tell = self._tell, None
            self._result, self._error = tell(self._error, self._result), None
        if self._error is not None:
            raise self._error
        return self._result

    def set_result(self, result: Any) -> None:
        self._result = result
        self._call()

    def set_exception(self, error: BaseException) -> None:
        self._result, self._error = None, error
        self._call()

    def settle(self, answer: Any) -> None:
        """With an answer, which may be an error; unless somebody gave up on it."""
        if self._result is _OPEN:
            if isinstance(answer, Exception):
                self.set_exception(answer)
            else:
                self._result = answer
                self._call()

    def cancel(self) -> bool:
        """Give up on it. False: it was settled before."""
        if self.done():
            return False
        self._is_cancelled = True
        self.set_exception(asyncio.CancelledError())
        return True

    def add_done_callback(self, call: Callable[[Outcome], object]) -> None:
        """Call when it is settled; at once if it is."""
        if self._result is not _OPEN:
            call(self)
        else:
            self._waiting.append(call)

    async def wait(self) -> None:
        """Until it is settled, however. Who is interrupted meanwhile gives up on it."""
        if self.done():
            return
        settled = asyncio.Event()
        self.add_done_callback(lambda _: settled.set())
        try:
            await settled.wait()
        except asyncio.CancelledError:
            self.cancel()
            raise

    def __await__(self) -> Generator[Any, None, Any]:
        yield from self.wait().__await__()
        return self.result()

    def _follow(self, future: asyncio.Future[Any]) -> None:
        if self.done():
            return
        if future.cancelled():
            self.cancel()
        elif (error := future.exception()) is not None:
            self.set_exception(error)
        else:
            self.set_result(future.result())

    def _call(self) -> None:
        """A bug met by one who waits is told in the log; the others are called all the same."""
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            try:
                call(self)
            except BaseException as error:
                if not isinstance(error, Exception):
                    raise
                log.exception("somebody who waited for a call failed by a fault of ours")
