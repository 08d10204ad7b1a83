"""A model of our own: an OpenAI-compatible server on this machine that says what a function of the test says."""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(frozen=True)
class Call:
    """The model calls a tool."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Origin:
    """What the model is asked: the conversation so far."""

    messages: list[dict[str, Any]]
    tools: list[str]

    @property
    def last(self) -> str:
        """The last message that is no result of a tool."""
        text = [message for message in self.messages if message["role"] == "user"]
        return _RUNTIME.sub("", text_of(text[-1])) if text else ""

    @property
    def results(self) -> list[str]:
        """What tools said since then."""
        found: list[str] = []
        for message in reversed(self.messages):
            if message["role"] == "user":
                break
            if message["role"] == "tool":
                found.insert(0, text_of(message))
        return found


Script = Callable[[Origin], "str | Call | list[Call]"]


def text_of(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)


class Model:
    """The server. `asked` holds everything it was asked; `broken` makes it fail."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.origin: list[Origin] = []
        self.broken = False
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        request = Origin(body["messages"], [tool["function"]["name"] for tool in body.get("tools", [])])
        self.origin.append(request)
        message = self.script(request)
        if isinstance(message, str):
            return {"role": "assistant", "content": message}
        calls = [message] if isinstance(message, Call) else message
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "index": number,
                    "id": f"call_{next(_NUMBERS)}",
                    "type": "function",
                    "function": {"name": call.tool, "arguments": json.dumps(call.arguments)},
                }
                for number, call in enumerate(calls)
            ],
        }

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if model.broken:
                    self._send(400, "application/json", b'{"error": {"message": "the model is broken"}}')
                    return
                message = model.answer(body)
                reason = "tool_calls" if "tool_calls" in message else "stop"
                if body.get("stream"):
                    self._send(200, "text/event-stream", _stream(message, reason))
                else:
                    self._send(200, "application/json", _whole(message, reason))

            def _send(self, status: int, kind: str, content: bytes) -> None:
                with suppress(ConnectionError):  # whoever asked may be dead by now
                    self.send_response(status)
                    self.send_header("Content-Type", kind)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


_RUNTIME = re.compile(r"\s*\[Runtime Context.*?\[/Runtime Context\]\s*", re.DOTALL)  # added by old versions
_NUMBERS = itertools.count()
_USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
_HEAD = {"id": "c1", "created": 1, "model": "scripted"}


def _whole(message: dict[str, Any], reason: str) -> bytes:
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return json.dumps(_HEAD | {"object": "chat.completion", "choices": [choice], "usage": _USAGE}).encode()


def _stream(message: dict[str, Any], reason: str) -> bytes:
    chunk = _HEAD | {"object": "chat.completion.chunk"}
    pieces = [
        chunk | {"choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        chunk | {"choices": [], "usage": _USAGE},
    ]
    return b"".join(f"data: {json.dumps(piece)}\n\n".encode() for piece in pieces) + b"data: [DONE]\n\n"
