"""A model that says what it is told to, over the three wires by which hosts reach theirs. It keeps what it was
asked.

A step is what it says: a text, which ends the turn, or a tool and what to call it with. Something may be done
before, as if it happened while the model thought. Hosts also ask for titles and the like: those get any answer.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, NamedTuple, Self


class Step(NamedTuple):
    text: str = ""
    tool: str = ""
    arguments: Mapping[str, str] = MappingProxyType({})
    before: Callable[[], object] | None = None


class Model:
    """Answers at an address of its own until the end of the block."""

    def __init__(self, shell: str, steps: Sequence[Step]) -> None:
        self.shell = shell  # the tool by which the agent's own requests are known
        self.requests: list[str] = []  # what each of its requests said, as JSON
        self._steps = list(steps)
        model = self

        class Answering(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_error(404)

            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}")
                self.send_response(200)
                kind = "text/event-stream" if message.get("stream", True) else "application/json"
                self.send_header("content-type", kind)
                self.end_headers()
                for piece in model.answer(self.path, message):
                    self.wfile.write(piece)

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, path: str, params: dict[str, Any]) -> Iterator[bytes]:
        step = self._next(params) if self.shell in json.dumps(params.get("tools", [])) else Step("ok")
        if "generateContent" in path.lower() or "GenerateContent" in path:
            yield from _gemini(step)
        elif path.endswith("/responses"):
            yield from _codex(step, len(self.requests))
        elif "count_tokens" in path:
            yield b'{"input_tokens":1}'
        else:
            yield from _claude(step, len(self.requests))

    def _next(self, params: dict[str, Any]) -> Step:
        self.requests.append(json.dumps(params, ensure_ascii=False))
        step = self._steps.pop(0) if self._steps else Step("There is nothing more to do.")
        if step.before:
            step.before()
        return step

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _event(params: dict[str, Any]) -> bytes:
    return f"event: {params['type']}\ndata: {json.dumps(params)}\n\n".encode()


def _claude(step: Step, number: int) -> Iterator[bytes]:
    about = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "scripted", "content": []}
    usage = {"input_tokens": 1, "output_tokens": 1}
    yield _event({"type": "message_start", "message": {**about, "stop_reason": None, "usage": usage}})
    if step.tool:
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": step.tool, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(dict(step.arguments))}
    else:
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": step.text}
    yield _event({"type": "content_block_start", "index": 0, "content_block": block})
    yield _event({"type": "content_block_delta", "index": 0, "delta": delta})
    yield _event({"type": "content_block_stop", "index": 0})
    why = "tool_use" if step.tool else "end_turn"
    yield _event({"type": "message_delta", "delta": {"stop_reason": why, "stop_sequence": None}, "usage": usage})
    yield _event({"type": "message_stop"})


def _codex(step: Step, number: int) -> Iterator[bytes]:
    item: dict[str, Any] = {"type": "message", "role": "assistant", "id": f"msg_{number}"}
    item["content"] = [{"type": "output_text", "text": step.text}]
    if step.tool:
        value = json.dumps(dict(step.arguments))
        item = {"type": "function_call", "call_id": f"call_{number}", "name": step.tool, "arguments": value}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    yield _event({"type": "response.created", "response": {"id": "r"}})
    yield _event({"type": "response.output_item.done", "output_index": 0, "item": item})
    yield _event({"type": "response.completed", "response": {"id": "r", "usage": usage}})


def _gemini(step: Step) -> Iterator[bytes]:
    part = (
        {"functionCall": {"name": step.tool, "args": dict(step.arguments)}} if step.tool else {"text": step.text}
    )
    params = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    yield f"data: {json.dumps({'candidates': [params], 'usageMetadata': usage})}\r\n\r\n".encode()
