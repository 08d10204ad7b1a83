"""The client that calls: how verbs are carried out for it, and whom it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from ..errors import Refused

Call = Callable[[str, dict[str, Any]], Coroutine[Any, Any, Any]]


class Caller(NamedTuple):
    """The client that calls."""

    call: Call  # carries out a verb with its parameters; raises PostroomError
    agent: str | None = None  # the agent of the token: the client cannot act as another
    usual: str | None = None  # the default agent, where a call names none
    scope: str | None = None  # the default scope
    gone: asyncio.Event | None = None  # set when nobody waits for the answer any more

    @property
    def me(self) -> str | None:
        return self.agent or self.usual

    async def ask(self, name: str, params: dict[str, Any]) -> Any:
        """Carry out one of our verbs for MCP. It may wait for mail: cancel it if the client is gone, so that no
        letter is lost.
        """
        asking = asyncio.ensure_future(self.call(name, {**params, "me": self.me, "team": self.scope}))
        if self.gone is None:
            return await asking
        leaving = asyncio.ensure_future(self.gone.wait())
        try:
            await asyncio.wait([asking, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            asking.cancel()  # no effect if it is done
        if not asking.done():
            raise Refused("the client is gone")
        return asking.result()
