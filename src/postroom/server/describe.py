"""Descriptions of the verbs for programs, made from their declarations: OpenAPI for HTTP, OpenRPC for JSON-RPC."""

from __future__ import annotations

import inspect
from datetime import datetime
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, UNSET

from .. import __version__
from ..core.verb import parameters
from ..formats.plain import json_type
from ..model.codec import to_plain
from ..model.message import Part
from .http import VERBS_AT
from .mail import MAIL
from .protocol import PREFIX, wire_verbs
from .requests import SESSION, Milliseconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..core.verb import Declaration, Parameter, Verb


_REF = "#/components/schemas/{name}"
_ERROR: dict[str, Any] = {
    "type": "object",
    "description": "Why the call was refused.",
    "required": ["error", "name", "code", "retryable"],
    "properties": {
        "error": {"type": "string"},
        "name": {"type": "string", "description": "the kind of error, such as UnknownMessage"},
        "code": {"type": "integer"},
        "retryable": {"type": "boolean", "description": "does trying again later help?"},
        "field": {"type": "string", "description": "the parameter that is wrong"},
        "hint": {"type": "string"},
        "keys": {"type": "array", "items": {"type": "string"}},
        "retry_after": {"type": "number", "description": "in how many seconds to try again"},
    },
}


def openapi() -> dict[str, Any]:
    """Return the OpenAPI document of `POST /v1/VERB`."""
    found = wire_verbs()
    results, components = _result_schemas(found.values())
    paths = {VERBS_AT + name: {"post": _operation(name, cls, results[cls])} for name, cls in found.items()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Postroom", "version": __version__, "description": "Durable mail for AI agents."},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": components | {"Error": _ERROR},
        },
    }


def _operation(name: str, cls: type[Verb], result: dict[str, Any]) -> dict[str, Any]:
    schema = params_schema(cls)
    about = inspect.getdoc(cls) or ""
    return {
        "operationId": name,
        "summary": cls.declaration().about,
        "description": about,
        "requestBody": {"required": _is_needed(schema), "content": {"application/json": {"schema": schema}}},
        "responses": {
            "200": {"description": "The result.", "content": {"application/json": {"schema": result}}},
            "default": {
                "description": "The call was refused.",
                "content": {"application/json": {"schema": {"$ref": _REF.format(name="Error")}}},
            },
        },
    }


def _is_needed(schema: dict[str, Any]) -> bool:
    """Return whether any parameter must be given."""
    return not schema.keys().isdisjoint({"required", "allOf"})


def openrpc() -> dict[str, Any]:
    """Return the OpenRPC document of the methods in JSON-RPC."""
    found = {PREFIX + name: cls for name, cls in wire_verbs().items()} | SESSION | MAIL
    results, components = _result_schemas(found.values())
    return {
        "openrpc": "1.3.2",
        "info": {"title": "Postroom", "version": __version__, "description": "Durable mail for AI agents."},
        "methods": [
            {
                "name": name,
                "summary": cls.declaration().about,
                "paramStructure": "by-name",
                "params": [
                    {"name": name, "required": name in required, "schema": schema}
                    | ({"deprecated": True} if schema.get("deprecated") else {})
                    for shown in [params_schema(cls)]
                    for required in [shown.get("required", [])]
                    for name, schema in shown["properties"].items()
                ],
                "result": {"name": "result", "schema": results[cls]},
            }
            for name, cls in found.items()
        ],
        "components": {"schemas": components},
    }


# -- schemas


def params_schema(cls: type[Verb]) -> dict[str, Any]:
    """Return the JSON Schema of a verb's parameters, older names marked as deprecated."""
    known = parameters(cls)
    properties = {name: parameter_schema(one) for name, one in known.items()}
    for one in known.values():
        for old in one.deprecated:
            plain = {**properties[one.name], "description": f"the older name of {one.name}", "deprecated": True}
            properties[old] = plain
    # One that has an older name may be given by either, so neither is required.
    required = [name for name, one in known.items() if one.required and not one.deprecated]
    either = [{"anyOf": [{"required": [word]} for word in (one.name, *one.deprecated)]}
              for one in known.values() if one.required and one.deprecated]  # fmt: skip
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    schema |= {"required": required} if required else {}
    schema |= {"allOf": either} if either else {}
    return schema | ({"additionalProperties": False} if cls.declaration().strict else {})


def parameter_schema(one: Parameter) -> dict[str, Any]:
    schema = {**msgspec.json.schema(one.type, schema_hook=_custom_schema), "description": one.help}
    has_default = one.default is not NODEFAULT and one.default is not UNSET and one.default is not None
    return schema | ({"default": to_plain(one.default)} if has_default else {})


def _result_schemas(
    verbs: Iterable[type[Verb]],
) -> tuple[Mapping[type[Verb], dict[str, Any]], dict[str, Any]]:
    """Return the schema of each verb's result, and the components to which they refer."""
    results = {cls: cls.declaration().result for cls in verbs}
    types = {result: json_type(result) for result in results.values() if not isinstance(result, str)}
    schemas, components = msgspec.json.schema_components(
        list(types.values()), schema_hook=_custom_schema, ref_template=_REF
    )
    by_type = dict(zip(types, schemas, strict=True))
    return {cls: _result_schema(cls.declaration(), by_type) for cls in results}, components


def _result_schema(verb: Declaration, by_type: Mapping[Any, dict[str, Any]]) -> dict[str, Any]:
    if isinstance(verb.result, str):
        return {"type": "object", "description": verb.result}
    schema = by_type[verb.result]
    if verb.under is None:
        return schema
    return {"type": "object", "properties": {verb.under: schema}, "required": [verb.under]}


def _custom_schema(custom: type) -> dict[str, Any]:
    if custom is Part:
        return {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}},
                "additionalProperties": True}  # fmt: skip
    return {}


# -- types in words, for the reference pages

_KINDS: tuple[tuple[str, set[Any]], ...] = (
    ("text", {str}), ("object", {dict}), ("list", {list}), ("texts", {str, list}), ("address", {str, dict}),
    ("addresses", {str, dict, list}), ("count", {int}), ("seconds", {float, int}), ("flag", {bool}),
    ("when", {datetime, float}), ("time", {datetime, Milliseconds}),
)  # fmt: skip


def kind_of(one: Parameter) -> str:
    """Return the word for the kind of values that a parameter takes."""
    if one.default is UNSET:
        return "json"
    types = set(get_args(one.type)) if get_origin(one.type) in {Union, UnionType} else {one.type}
    plain_types = {_plain_type(kind) for kind in types} - {type(None)}
    return next((kind for kind, of in _KINDS if plain_types <= of), "any")


def _plain_type(wanted: Any) -> Any:
    if wanted == Milliseconds:
        return wanted
    origin = get_origin(wanted)
    if origin is Annotated:
        return _plain_type(get_args(wanted)[0])
    return str if origin is Literal else origin or wanted
