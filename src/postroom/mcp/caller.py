"""Who asks, and the one function by which mail is reached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from ..errors import Invalid, Refused

Call = Callable[[str, dict[str, Any]], Coroutine[Any, Any, Any]]
WHO = "say it in the call, start the server with --as NAME, or set POSTROOM_AGENT or INBOX_AGENT_ID"


class Caller(NamedTuple):
    """One who asks."""

    call: Call  # a verb of `wire` and what is said; raises PostroomError
    agent: str | None = None  # whom the token names: nobody else can be spoken for
    usual: str | None = None  # who is meant when nobody is named
    scope: str | None = None  # the team of whoever says nothing of a team
    gone: asyncio.Event | None = None  # set when nobody waits for an answer any more

    @property
    def me(self) -> str | None:
        return self.agent or self.usual

    def who(self, named: str | None, field: str = "agentId") -> str:
        """The agent that is meant. Whether the caller may act for it is decided below."""
        name = named or self.me
        if not name:
            raise Invalid("who are you?", field=field, hint=WHO)
        return name

    def sender(self, named: str | None) -> str:
        """Who writes: the token's agent, whatever the letter says."""
        return self.agent or self.who(named, "from")

    async def unless_gone(self, verb: str, said: dict[str, Any]) -> Any:
        """A call that may wait for mail: it ends with its caller, for a letter is not handed to nobody."""
        if self.gone is None:
            return await self.call(verb, said)
        asking = asyncio.ensure_future(self.call(verb, said))
        leaving = asyncio.ensure_future(self.gone.wait())
        try:
            await asyncio.wait([asking, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            asking.cancel()  # nothing, when it is done
        if not asking.done():
            raise Refused("the caller has hung up")
        return asking.result()
