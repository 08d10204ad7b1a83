"""Who asks, and the one function by which mail is reached."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from ..errors import Invalid

Call = Callable[[str, dict[str, Any]], Awaitable[Any]]
WHO = "say it in the call, start the server with --as NAME, or set POSTROOM_AGENT or INBOX_AGENT_ID"


class Caller(NamedTuple):
    """One who asks."""

    call: Call  # a verb of `wire` and what is said; raises PostroomError
    agent: str | None = None  # whom the token names: nobody else can be spoken for
    usual: str | None = None  # who is meant when nobody is named
    scope: str | None = None  # the team of whoever says nothing of a team

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
