"""JSON-RPC 2.0: from a value that came in to the calls in it, and from what became of them to the reply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..model.codec import to_plain
from .problems import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, rpc_error

if TYPE_CHECKING:
    from ..errors import PostroomError
    from .mail_problems import Problem

MOST = 100  # calls in one batch


class Call(Struct, frozen=True):
    """One call. Without an id it is a notification, and nobody waits for an answer."""

    method: str
    said: dict[str, Any]
    id: str | int | float | None = None
    is_notification: bool = False

    def answer(self, result: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": self.id, "result": result}

    def refuse(self, error: PostroomError) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": self.id, "error": rpc_error(error)}


def is_rpc(value: Any) -> bool:
    """Is this JSON-RPC, where another dialect is spoken too?"""
    return isinstance(value, list) or (isinstance(value, dict) and "jsonrpc" in value)


def read_batch(value: list[Any]) -> list[Call | dict[str, Any]]:
    """The calls of a batch; an error in place of each that is none. One that is empty or too long is one error."""
    if not value:
        return [failure(INVALID_REQUEST, "an empty batch asks nothing")]
    if len(value) > MOST:
        return [failure(INVALID_REQUEST, f"a batch of {len(value)} calls; {MOST} at most")]
    return [read_call(one) for one in value]


def read_call(value: Any) -> Call | dict[str, Any]:
    """The call, or what is wrong with it."""
    if not isinstance(value, dict):
        return failure(INVALID_REQUEST, "a call is an object")
    id = value.get("id")
    if not isinstance(id, str | int | float | None) or isinstance(id, bool):
        return failure(INVALID_REQUEST, "id must be text, a number or null")
    if value.get("jsonrpc") != "2.0":
        return failure(INVALID_REQUEST, 'jsonrpc must be "2.0"', id)
    method, said = value.get("method"), value.get("params")
    if not isinstance(method, str):
        return failure(INVALID_REQUEST, "method must be text", id)
    if not isinstance(said, dict | None):  # null says nothing, as in its fields
        return failure(INVALID_PARAMS, "params are given by name, in an object", id)
    return Call(method, said or {}, id, is_notification="id" not in value)


def unreadable(why: str) -> dict[str, Any]:
    return failure(PARSE_ERROR, why)


def failure(code: int, why: str, id: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": why}}


def failed(id: Any, problem: Problem) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "error": to_plain(problem)}


def notification(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}
