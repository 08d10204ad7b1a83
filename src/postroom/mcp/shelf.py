"""What a server offers, in one piece: tools, resources, prompts, completions, something to watch.

Mail is one shelf. A server may have several: the fixtures of the conformance suite stand on another, beside the
mail, on the same server. Each answers for what is its own, and says None to the rest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import mcp_types as types
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel.server import Server

Changed = Callable[[], Awaitable[None]]  # tells whoever watches
Watch = Callable[[Changed], Awaitable[None]]  # runs until it is cancelled


class Shelf:
    """Offers nothing; a shelf says what it has."""

    def tools(self) -> Sequence[types.Tool]:
        return ()

    async def call_tool(
        self, _ctx: ServerRequestContext[Any, Any], _params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult | None:
        return None

    async def resources(self, _ctx: ServerRequestContext[Any, Any]) -> Sequence[types.Resource]:
        return ()

    def templates(self) -> Sequence[types.ResourceTemplate]:
        return ()

    async def read(self, _ctx: ServerRequestContext[Any, Any], _uri: str) -> types.ReadResourceResult | None:
        return None

    async def watch(self, _ctx: ServerRequestContext[Any, Any], _uri: str) -> Watch | None:
        """What tells of changes from this moment on."""
        return None

    def prompts(self) -> Sequence[types.Prompt]:
        return ()

    async def prompt(
        self, _ctx: ServerRequestContext[Any, Any], _params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult | None:
        return None

    async def complete(
        self, _ctx: ServerRequestContext[Any, Any], _params: types.CompleteRequestParams
    ) -> Sequence[str] | None:
        return None

    def join(self, _server: Server[Any]) -> None:
        """The last word, when the server is made."""
