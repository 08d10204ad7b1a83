"""What the public conformance suite asks every server for, by a provider of its own beside the mail."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity

from postroom.mcp.handlers import Handlers, completion
from postroom.mcp.resources import Changed, Watch
from tests.conformance import asking

Ctx = ServerRequestContext[Any, Any]
Answer = types.CallToolResult | types.InputRequiredResult
Run = Callable[[Ctx, types.CallToolRequestParams], Awaitable[Answer]]

WATCHED = "test://watched-resource"
DATA = "test://template/{id}/data"


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


# One red pixel; no sound at all.
PIXEL = b"\x89PNG\r\n\x1a\n" + b"".join((
    _chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)),
    _chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")),
    _chunk(b"IEND", b""),
))  # fmt: skip
SILENCE = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36, b"WAVE", b"fmt ", 16, 1, 1, 8000, 8000, 1, 8, b"data", 0)


def words(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text)


def tool_result(*content: Any, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=list(content), is_error=is_error)


def image() -> types.ImageContent:
    return types.ImageContent(type="image", data=base64.b64encode(PIXEL).decode(), mime_type="image/png")


def embedded(uri: str, text: str, mime: str = "text/plain") -> types.EmbeddedResource:
    resource = types.TextResourceContents(uri=uri, mime_type=mime, text=text)
    return types.EmbeddedResource(type="resource", resource=resource)


def always(*content: Any, is_error: bool = False) -> Run:
    async def run(_ctx: Ctx, _params: types.CallToolRequestParams) -> Answer:
        return tool_result(*content, is_error=is_error)

    return run


async def progress(ctx: Ctx, _params: types.CallToolRequestParams) -> Answer:
    for share in (0, 50, 100):
        await ctx.session.report_progress(share, 100)
        await anyio.sleep(0.05)
    return tool_result(words("done"))


async def logging(ctx: Ctx, _params: types.CallToolRequestParams) -> Answer:
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        notice = types.LoggingMessageNotificationParams(level="info", data=text)
        if ctx.protocol_version < "2026":  # later ones want to be asked for it
            sent = types.LoggingMessageNotification(params=notice)
            await ctx.session.send_notification(sent, related_request_id=ctx.request_id)
        await anyio.sleep(0.05)
    return tool_result(words("logged"))


def audio() -> types.AudioContent:
    return types.AudioContent(type="audio", data=base64.b64encode(SILENCE).decode(), mime_type="audio/wav")


TOOLS: dict[str, Run] = {
    "test_simple_text": always(words("This is a simple text response for testing.")),
    "test_image_content": always(image()),
    "test_audio_content": always(audio()),
    "test_embedded_resource": always(
        embedded("test://embedded-resource", "This is an embedded resource content.")
    ),
    "test_multiple_content_types": always(
        words("Multiple content types test:"),
        image(),
        embedded("test://mixed-content-resource", '{"test":"data","value":123}', "application/json"),
    ),
    "test_error_handling": always(words("This tool intentionally returns an error for testing"), is_error=True),
    "test_tool_with_progress": progress,
    "test_tool_with_logging": logging,
    "test_logging_tool": logging,
    **asking.TOOLS,
}
TEXT = {"type": "string"}
RICH = "json_schema_2020_12_tool"  # words of a schema that must come through unchanged
RICH_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {"$anchor": "addressDef", "type": "object", "properties": {"street": TEXT, "city": TEXT}}
    },
    "properties": {
        "name": TEXT,
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": TEXT,
        "email": TEXT,
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
TAKES = {"test_sampling": {"prompt": TEXT}, "test_elicitation": {"message": TEXT}}


def message(content: Any) -> types.PromptMessage:
    return types.PromptMessage(role="user", content=content)


def prompt_messages(name: str, values: dict[str, str]) -> list[types.PromptMessage] | None:
    if name == "test_simple_prompt":
        return [message(words("This is a simple prompt for testing."))]
    if name == "test_prompt_with_arguments":
        return [message(words(f"Prompt with arguments: arg1='{values['arg1']}', arg2='{values['arg2']}'"))]
    if name == "test_prompt_with_embedded_resource":
        resource = embedded(values["resourceUri"], "Embedded resource content for testing.")
        return [message(resource), message(words("Please process the embedded resource above."))]
    if name == "test_prompt_with_image":
        return [message(image()), message(words("Please analyze the image above."))]
    return None


PROMPTS = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    asking.PROMPT: (),
}


class Fixtures(Handlers):
    """The handlers of mail, and before them those of the fixtures."""

    async def list_tools(self, ctx: Ctx, params: Any) -> types.ListToolsResult:
        mail = await super().list_tools(ctx, params)
        rich = types.Tool(name=RICH, description="Fixture: a rich schema", input_schema=RICH_SCHEMA)
        own = [
            types.Tool(
                name=name,
                description=f"Fixture: {name}",
                input_schema={
                    "type": "object",
                    "properties": TAKES.get(name, {}),
                    "required": list(TAKES.get(name, {})),
                },
            )
            for name in TOOLS
        ]
        return types.ListToolsResult(tools=[*mail.tools, rich, *own])

    async def call_tool(self, ctx: Ctx, params: types.CallToolRequestParams) -> Answer:
        run = TOOLS.get(params.name)
        return await (super().call_tool(ctx, params) if run is None else run(ctx, params))

    async def list_resources(self, ctx: Ctx, params: Any) -> types.ListResourcesResult:
        mail = await super().list_resources(ctx, params)
        rows = (
            ("test://static-text", "text/plain"),
            ("test://static-binary", "image/png"),
            (WATCHED, "text/plain"),
        )
        own = [
            types.Resource(uri=uri, name=uri, description=f"Fixture: {uri}", mime_type=mime) for uri, mime in rows
        ]
        return types.ListResourcesResult(resources=[*mail.resources, *own])

    async def list_templates(self, ctx: Ctx, params: Any) -> types.ListResourceTemplatesResult:
        mail = await super().list_templates(ctx, params)
        own = types.ResourceTemplate(
            uri_template=DATA, name="template", description="Fixture", mime_type="application/json"
        )
        return types.ListResourceTemplatesResult(resource_templates=[*mail.resource_templates, own])

    async def read(self, ctx: Ctx, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(params.uri)
        before, after = DATA.split("{id}")
        if uri == "test://static-binary":
            blob = base64.b64encode(PIXEL).decode()
            binary = types.BlobResourceContents(uri=uri, mime_type="image/png", blob=blob)
            return types.ReadResourceResult(contents=[binary])
        if uri.startswith(before) and uri.endswith(after):
            id = uri.removeprefix(before).removesuffix(after)
            data = json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})
            return types.ReadResourceResult(
                contents=[types.TextResourceContents(uri=uri, mime_type="application/json", text=data)]
            )
        texts = {"test://static-text": "This is the content of the static text resource.", WATCHED: "Watched."}
        if uri not in texts:
            return await super().read(ctx, params)
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=uri, mime_type="text/plain", text=texts[uri])]
        )

    async def watch(self, ctx: Ctx, uri: str) -> Watch | None:
        async def nothing_changes(_changed: Changed) -> None:
            await anyio.sleep_forever()

        return nothing_changes if uri == WATCHED else await super().watch(ctx, uri)

    async def list_prompts(self, ctx: Ctx, params: Any) -> types.ListPromptsResult:
        mail = await super().list_prompts(ctx, params)
        own = [
            types.Prompt(
                name=name,
                description=f"Fixture: {name}",
                arguments=[types.PromptArgument(name=arg, required=True) for arg in args],
            )
            for name, args in PROMPTS.items()
        ]
        return types.ListPromptsResult(prompts=[*mail.prompts, *own])

    async def prompt(
        self, ctx: Ctx, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        if params.name == asking.PROMPT:
            return asking.prompt(params)
        messages = prompt_messages(params.name, params.arguments or {})
        return await super().prompt(ctx, params) if messages is None else types.GetPromptResult(messages=messages)

    async def complete(self, ctx: Ctx, params: types.CompleteRequestParams) -> types.CompleteResult:
        if not (isinstance(params.ref, types.PromptReference) and params.ref.name in PROMPTS):
            return await super().complete(ctx, params)
        return completion([w for w in ("paris", "park", "party") if w.startswith(params.argument.value)])

    def server(self, version: str) -> Server[Any]:
        server: Server[Any] = super().server(version)
        server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, _set_level)
        server.middleware.append(
            RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience="fixtures")
        )
        return server


async def _set_level(_ctx: Ctx, _params: types.SetLevelRequestParams) -> types.EmptyResult:
    return types.EmptyResult()
