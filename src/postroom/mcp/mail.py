"""Mail as the SDK wants it: tools, resources, prompts and completions.

A server asks its providers in turn. Mail is one provider; the fixtures of the conformance suite are another, on
the same server. A provider returns None for what is not its own.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from ..core.presentation import escape_json
from ..errors import Invalid, Missing, PostroomError, Refused
from ..formats.errors import details
from .prompts import PROMPTS, prompt_text
from .resources import TEMPLATES, parse_uri, read_target, watch_target
from .tools import TOOLS, about, argument_name, input_schema, output_schema, read_call

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel.server import Server

    from .tools import Caller, Tool


Changed = Callable[[], Awaitable[None]]  # notifies the client
Watch = Callable[[Changed], Awaitable[None]]  # runs until it is cancelled


class Provider:
    """A source of tools, resources and prompts. This base class offers nothing."""

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
        """Return a function that reports changes of a resource from this moment on."""
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
        """Change the server after it was built."""


if TYPE_CHECKING:
    Ctx = ServerRequestContext[Any, Any]

JSON = "application/json"
_AGENT_ARGUMENTS = {"agent", "to"}


class MailProvider(Provider):
    """Tools, resources and prompts for mail. Every call has the rights of the client that made it."""

    def __init__(self, caller_of: Callable[[Ctx], Caller]) -> None:
        self._caller_of = caller_of

    # -- tools

    def tools(self) -> Sequence[types.Tool]:
        return [wire_tool(tool) for tool in TOOLS.values()]

    async def call_tool(self, ctx: Ctx, params: types.CallToolRequestParams) -> types.CallToolResult | None:
        tool = TOOLS.get(params.name)
        if tool is None:
            return None
        try:
            answer = await read_call(tool, params.arguments or {}).call(self._caller_of(ctx))
        except PostroomError as error:
            return _tool_error(tool, error, params.arguments or {})
        return types.CallToolResult(content=[_text(answer)], structured_content=answer)

    # -- resources

    async def resources(self, ctx: Ctx) -> Sequence[types.Resource]:
        """Return the caller's own inbox, the one resource that can be listed."""
        me = self._caller_of(ctx).me
        if not me:
            return ()
        about = "Your unread mail. Reading it here marks nothing."
        return [types.Resource(uri=f"inbox://{me}", name=f"inbox of {me}", description=about, mime_type=JSON)]

    def templates(self) -> Sequence[types.ResourceTemplate]:
        return [
            types.ResourceTemplate(uri_template=row.uri, name=row.name, description=row.about, mime_type=JSON)
            for row in TEMPLATES
        ]

    async def read(self, ctx: Ctx, uri: str) -> types.ReadResourceResult | None:
        target = parse_uri(uri)
        if target is None:
            return None
        try:
            found = await read_target(self._caller_of(ctx), target)
        except PostroomError as error:
            raise _protocol_error(error, {"uri": uri}) from None
        text = types.TextResourceContents(uri=uri, mime_type=JSON, text=_text(found).text)
        return types.ReadResourceResult(contents=[text])

    async def watch(self, ctx: Ctx, uri: str) -> Watch | None:
        target = parse_uri(uri)
        if target is None:
            return None
        try:
            return await watch_target(self._caller_of(ctx), target)
        except PostroomError as error:
            raise _protocol_error(error, {"uri": uri}) from None

    # -- prompts

    def prompts(self) -> Sequence[types.Prompt]:
        return [
            types.Prompt(
                name=row.name,
                title=row.title,
                description=row.about,
                arguments=[
                    types.PromptArgument(name=arg.name, description=arg.about, required=arg.required)
                    for arg in row.args
                ],
            )
            for row in PROMPTS.values()
        ]

    async def prompt(self, ctx: Ctx, params: types.GetPromptRequestParams) -> types.GetPromptResult | None:
        row = PROMPTS.get(params.name)
        if row is None:
            return None
        try:
            text = await prompt_text(self._caller_of(ctx), row, params.arguments or {})
        except PostroomError as error:
            raise _protocol_error(error) from None
        message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
        return types.GetPromptResult(description=row.about, messages=[message])

    async def complete(self, ctx: Ctx, params: types.CompleteRequestParams) -> Sequence[str] | None:
        """Return names of agents for an argument that takes one."""
        ref = params.ref
        known = ref.name in PROMPTS if isinstance(ref, types.PromptReference) else ref.uri in _URIS
        if not known or params.argument.name not in _AGENT_ARGUMENTS:
            return None
        begun = params.argument.value.casefold()
        try:
            found = await self._caller_of(ctx).call("agents", {})
        except PostroomError:
            return None
        names: list[str] = [row["card"]["id"] for row in found["agents"]]
        return sorted(name for name in names if name.casefold().startswith(begun))


_URIS = {row.uri for row in TEMPLATES}


def wire_tool(tool: type[Tool]) -> types.Tool:
    hints = types.ToolAnnotations(
        read_only_hint=tool.reads_only,
        destructive_hint=tool.destroys,
        idempotent_hint=tool.repeatable,
    )
    return types.Tool(
        name=tool.declaration().name,
        title=tool.title,
        description=about(tool),
        input_schema=input_schema(tool),
        output_schema=output_schema(tool),
        annotations=hints,
    )


def _text(value: Any) -> types.TextContent:
    """Return JSON on one line, with escapes for characters that hide text, reorder it or look like the fence."""
    encoded = json.dumps(value, ensure_ascii=False).encode()
    return types.TextContent(type="text", text=escape_json(encoded).decode())


def _tool_error(tool: type[Tool], error: PostroomError, params: Mapping[str, Any]) -> types.CallToolResult:
    """Return an error as the result of a tool, which the model reads; it never is an error of the protocol."""
    result = {"error": error.message, **details(error)}
    if error.field:
        result["field"] = error.field if error.field in params else argument_name(tool, error.field)
    return types.CallToolResult(content=[_text(result)], is_error=True)


def _protocol_error(error: PostroomError, more: dict[str, Any] | None = None) -> MCPError:
    """Return an error of the protocol. What is absent and what is forbidden look the same."""
    if isinstance(error, (Missing, Refused)):
        error = Missing("there is no such thing here, or it is not yours", field=error.field)
    code = types.INVALID_PARAMS if isinstance(error, (Invalid, Missing)) else types.INTERNAL_ERROR
    return MCPError(code, str(error), {**details(error), **(more or {})})
