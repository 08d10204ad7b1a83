"""HTTP and MCP: statuses and bodies by path, names of metrics, events of the stream, tools with parameters."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.daemons import PATIENCE, Daemon
from tests.pinned.pins import check_pin, shape

pytest.importorskip("uvicorn", reason="needs the extra postroom[serve]")
pytest.importorskip("mcp_types", reason="needs the extra postroom[mcp]")

JSON = {"Content-Type": "application/json"}
CURSOR = b'{"jsonrpc": "2.0", "id": 1, "method": "mail/cursor"}'
LETTER = {"to": "bob", "body": "hello", "conversation_id": "c-1"}
SEND = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "mail/send", "params": LETTER}).encode()
# (method, path, body, further headers, whose token)
REQUESTS: tuple[tuple[str, str, bytes | None, dict[str, str], str], ...] = (
    ("GET", "/healthz", None, {}, ""),
    ("GET", "/healthz", None, {}, "operator"),
    ("GET", "/metrics", None, {}, ""),
    ("GET", "/metrics", None, {}, "agent"),
    ("POST", "/rpc", SEND, JSON, "agent"),
    ("POST", "/", CURSOR, JSON, "operator"),
    ("POST", "/rpc", CURSOR, JSON, ""),
    ("POST", "/rpc", CURSOR, JSON | {"Authorization": "Bearer pr_nonsense"}, ""),
    ("POST", "/rpc", b'{"jsonrpc": "2.0", "method": "mail/cursor"}', JSON, "operator"),
    ("POST", "/rpc", b'{"jsonrpc": "2.0", "id": 1, "method": "mail/nonsense"}', JSON, "operator"),
    ("POST", "/rpc", b"[" + CURSOR + b"]", JSON, "operator"),
    ("POST", "/rpc", b"nonsense", JSON, "operator"),
    ("POST", "/rpc", CURSOR, {"Content-Type": "text/plain"}, "operator"),
    ("POST", "/rpc", CURSOR, JSON | {"Origin": "https://elsewhere.example"}, "operator"),
    ("POST", "/rpc", CURSOR, JSON | {"Host": "elsewhere.example"}, "operator"),
    ("GET", "/nonsense", None, {}, "operator"),
    ("PUT", "/rpc", CURSOR, JSON, "operator"),
    ("GET", "/subscribe?nonsense=1", None, {}, "operator"),
    ("GET", "/subscribe", None, {}, ""),
    ("GET", "/ws", None, {}, "operator"),
    ("POST", "/mcp", CURSOR, JSON, ""),
)


class Caller:
    """Calls a daemon over HTTP, as nobody, as an agent or as an operator."""

    def __init__(self, daemon: Daemon) -> None:
        self.where = urlsplit(daemon.where["http"])
        self.closing = ExitStack()
        self.tokens = {"": ""}
        for whose, options in (("agent", ["--agent", "ann"]), ("operator", ["--scope", "operator"])):
            words = ["token", "create", *options, "--room", str(daemon.room), "--json"]
            done = subprocess.run([sys.executable, "-m", "postroom", *words], capture_output=True, check=True)
            self.tokens[whose] = json.loads(done.stdout)["token"]

    def ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str], whose: str) -> Any:
        token = self.tokens[whose]
        connection = HTTPConnection(self.where.hostname or "", self.where.port, timeout=PATIENCE)
        connection.request(method, path, body, headers | ({"Authorization": f"Bearer {token}"} if token else {}))
        self.closing.callback(connection.close)
        return self.closing.enter_context(connection.getresponse())


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("http"), "--http", "127.0.0.1:0") as daemon:
        yield daemon


@pytest.fixture(scope="module")
def caller(daemon: Daemon) -> Iterator[Caller]:
    caller = Caller(daemon)
    with caller.closing:
        yield caller


def test_requests_are_answered_as_they_were(daemon: Daemon, caller: Caller) -> None:
    found = []
    for request in REQUESTS:
        answer = caller.ask(*request)
        kind, body = answer.headers["content-type"], answer.read()
        message = json.loads(body) if kind == "application/json" and body else None
        error = message.get("error") if isinstance(message, dict) else None
        method, path, sent, headers, whose = request
        found.append(
            {
                "request": f"{method} {path} {(sent or b'').decode()} {headers} {whose}",
                "status": answer.status,
                "type": kind,
                "body": shape(message),
                "code": error["code"] if isinstance(error, dict) else None,
            }
        )
    check_pin("http-requests", {"requests": found, "where": shape(daemon.where)})


def test_the_metrics_are_called_as_they_were(caller: Caller) -> None:
    caller.ask("POST", "/rpc", SEND, JSON, "agent").read()
    answer = caller.ask("GET", "/metrics", None, {}, "operator")
    text = answer.read().decode()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    labels = {
        name: re.findall(r"(\w+)=", found) for name, found in re.findall(r"^(\w+)\{(.*)\} ", text, re.MULTILINE)
    }
    check_pin("http-metrics", {"type": answer.headers["content-type"], "kinds": kinds, "labels": labels})


def test_the_stream_tells_events_as_it_did(caller: Caller) -> None:
    stream = caller.ask("GET", "/subscribe", None, {}, "operator")
    assert 200 == stream.status
    caller.ask("POST", "/rpc", SEND, JSON, "agent").read()
    found: dict[str, Any] = {}
    fields: dict[str, str] = {}
    while "mail.turn.added" not in found:
        line = stream.readline().decode().rstrip("\n")
        if not line and "event" in fields:
            found[fields["event"]] = {"fields": sorted(fields), "data": shape(json.loads(fields["data"]))}
        if not line:
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value
    check_pin("http-events", {"type": stream.headers["content-type"], "events": found})


def test_the_tools_of_mcp_are_as_they_were(tmp_path: Path) -> None:
    info = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    calls: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": info},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
        {"id": 3, "method": "prompts/list"},
        {"id": 4, "method": "resources/list"},
        {"id": 5, "method": "resources/templates/list"},
        {
            "id": 6,
            "method": "tools/call",
            "params": {"name": "send_message", "arguments": {"to": "bob", "body": "x"}},
        },
    ]
    room = ["--room", str(tmp_path / "room.db"), "--as", "ann"]
    with subprocess.Popen(
        [sys.executable, "-m", "postroom", "mcp", *room],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"HOME": str(tmp_path)},
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        replies: dict[int, Any] = {}
        for call in calls:
            server.stdin.write(json.dumps({"jsonrpc": "2.0", **call}).encode() + b"\n")
            server.stdin.flush()
            while call.get("id") is not None and call["id"] not in replies:
                reply = json.loads(server.stdout.readline())
                replies[reply.get("id", 0)] = reply.get("result", reply)
        server.stdin.close()
    check_pin(
        "mcp",
        {
            "server": {"name": replies[1]["serverInfo"]["name"], "capabilities": replies[1]["capabilities"]},
            "tools": {tool["name"]: tool_shape(tool) for tool in replies[2]["tools"]},
            "prompts": {
                prompt["name"]: [(one["name"], one.get("required", False)) for one in prompt.get("arguments", [])]
                for prompt in replies[3]["prompts"]
            },
            "resources": sorted(one["uri"] for one in replies[4]["resources"]),
            "templates": sorted(one["uriTemplate"] for one in replies[5]["resourceTemplates"]),
            "call": shape(replies[6]),
        },
    )


def tool_shape(tool: dict[str, Any]) -> dict[str, Any]:
    """Show a tool's parameters without their descriptions."""
    schema = tool["inputSchema"]
    return {
        "parameters": {name: without_text(one) for name, one in schema.get("properties", {}).items()},
        "required": sorted(schema.get("required", [])),
        "answers": sorted(tool.get("outputSchema", {}).get("properties", {})),
        "annotations": {key: value for key, value in (tool.get("annotations") or {}).items() if key != "title"},
    }


def without_text(schema: Any) -> Any:
    match schema:
        case dict():
            return {
                key: without_text(value)
                for key, value in schema.items()
                if key not in {"description", "title"} or isinstance(value, dict)
            }
        case list():
            return [without_text(one) for one in schema]
        case _:
            return schema
