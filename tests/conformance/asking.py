"""Fixtures that ask the client for something: on its own channel in 2025, by rounds of one request in 2026."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

Ctx = ServerRequestContext[Any, Any]
Answer = types.CallToolResult | types.InputRequiredResult
Params = types.CallToolRequestParams
Run = Callable[[Ctx, Params], Awaitable[Answer]]

PROMPT = "test_input_required_result_prompt"


def _said(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


def _form(*, required: bool = True, **properties: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return schema | ({"required": list(properties)} if required else {})


# -- on the client's own channel


async def _ask(ctx: Ctx, request: Any, result: Any) -> Any:
    from mcp.shared.message import ServerMessageMetadata

    related = ServerMessageMetadata(related_request_id=ctx.request_id)
    return await ctx.session.send_request(request, result, metadata=related)


async def sampling(ctx: Ctx, params: Params) -> Answer:
    answer = await _ask(ctx, _sample((params.arguments or {})["prompt"], 100), types.CreateMessageResult)
    return _said(f"LLM response: {answer.content.text}")


async def _elicit(ctx: Ctx, text: str, schema: dict[str, Any], message: str) -> Answer:
    answer = await _ask(ctx, _question(text, schema), types.ElicitResult)
    return _said(f"{message}: action={answer.action}, content={answer.content}")


async def elicitation(ctx: Ctx, params: Params) -> Answer:
    schema = _form(
        username={"type": "string", "description": "User's response"},
        email={"type": "string", "description": "User's email address"},
    )
    return await _elicit(ctx, (params.arguments or {})["message"], schema, "User response")


async def defaults(ctx: Ctx, _params: Params) -> Answer:
    schema = _form(
        required=False,
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        verified={"type": "boolean", "default": True},
    )
    return await _elicit(ctx, "Please confirm", schema, "Elicitation completed")


async def enums(ctx: Ctx, _params: Params) -> Answer:
    plain = [f"option{n}" for n in (1, 2, 3)]
    titled = [{"const": f"value{n}", "title": f"Choice {n}"} for n in (1, 2, 3)]
    old = {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    }
    schema = _form(
        required=False,
        untitledSingle={"type": "string", "enum": plain},
        titledSingle={"type": "string", "oneOf": titled},
        legacyEnum=old,
        untitledMulti={"type": "array", "items": {"type": "string", "enum": plain}},
        titledMulti={"type": "array", "items": {"anyOf": titled}},
    )
    return await _elicit(ctx, "Please choose", schema, "Elicitation completed")


# -- by rounds


def _question(text: str, schema: dict[str, Any]) -> types.ElicitRequest:
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=text, requested_schema=schema))


def _sample(text: str, most: int) -> types.CreateMessageRequest:
    request = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=text))
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[request], max_tokens=most))


def _needs(state: str | None = None, **request: Any) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=request, request_state=state)


NAME = _question("What is your name?", _form(name={"type": "string"}))
CONFIRM = _question("Please confirm", _form(ok={"type": "boolean"}))
ROOTS = types.ListRootsRequest(params=types.RequestParams())


def _given(params: Any) -> dict[str, Any]:
    return dict(params.input_responses or {})


async def ask_name(_ctx: Ctx, params: Params) -> Answer:
    value = _given(params)
    if not isinstance(value.get("user_name"), types.ElicitResult):
        return _needs(user_name=NAME)
    return _said(f"Hello, {value['user_name'].content['name']}!")


async def ask_model(_ctx: Ctx, params: Params) -> Answer:
    value = _given(params)
    if "capital_question" not in value:
        return _needs(capital_question=_sample("What is the capital of France?", 100))
    return _said(f"The model says: {value['capital_question'].content}")


async def ask_roots(_ctx: Ctx, params: Params) -> Answer:
    value = _given(params)
    if "client_roots" not in value:
        return _needs(client_roots=ROOTS)
    return _said(f"Roots: {[str(root.uri) for root in value['client_roots'].roots]}")


async def keep_state(_ctx: Ctx, params: Params) -> Answer:
    if params.request_state != "kept" or "confirm" not in _given(params):
        return _needs("kept", confirm=CONFIRM)
    return _said("state-ok")


async def ask_all(_ctx: Ctx, params: Params) -> Answer:
    wanted = {"user_name": NAME, "greeting": _sample("Generate a greeting", 50), "client_roots": ROOTS}
    if params.request_state != "all" or wanted.keys() - _given(params).keys():
        return _needs("all", **wanted)
    return _said("all given")


async def step_by_step(_ctx: Ctx, params: Params) -> Answer:
    value = _given(params)
    if params.request_state == "2" and "step2" in value:
        return _said("two steps done")
    if params.request_state == "1" and "step1" in value:
        return _needs(
            "2", step2=_question("Step 2: What is your favorite color?", _form(color={"type": "string"}))
        )
    return _needs("1", step1=_question("Step 1: What is your name?", _form(name={"type": "string"})))


async def by_capability(ctx: Ctx, params: Params) -> Answer:
    has = ctx.session.client_capabilities or types.ClientCapabilities()
    wanted: dict[str, Any] = {}
    if has.sampling is not None:
        wanted["greeting"] = _sample("Generate a greeting", 50)
    if has.elicitation is not None:
        wanted["user_name"] = NAME
    if not wanted or _given(params):
        return _said("nothing to ask")
    return _needs(**wanted)


async def missing_capability(ctx: Ctx, _params: Params) -> Answer:
    has = ctx.session.client_capabilities
    if has is None or has.sampling is None:
        needed: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "this needs sampling", needed)
    return _said("the client can sample")


def prompt(params: types.GetPromptRequestParams) -> types.GetPromptResult | types.InputRequiredResult:
    value = _given(params)
    if not value:
        return _needs(user_context=_question("What context should be used?", _form(context={"type": "string"})))
    answer = types.TextContent(type="text", text=f"With this in mind: {list(value)}")
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=answer)])


TOOLS: dict[str, Run] = {
    "test_sampling": sampling,
    "test_elicitation": elicitation,
    "test_elicitation_sep1034_defaults": defaults,
    "test_elicitation_sep1330_enums": enums,
    "test_input_required_result_elicitation": ask_name,
    "test_streaming_elicitation": ask_name,
    "test_input_required_result_sampling": ask_model,
    "test_input_required_result_list_roots": ask_roots,
    "test_input_required_result_request_state": keep_state,
    "test_input_required_result_tampered_state": keep_state,
    "test_input_required_result_multiple_inputs": ask_all,
    "test_input_required_result_multi_round": step_by_step,
    "test_input_required_result_capabilities": by_capability,
    "test_missing_capability": missing_capability,
}
