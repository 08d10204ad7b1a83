"""Health, metrics, and a foreign app below `/mcp`."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from postroom.core.core import PULSE
from postroom.server import metrics
from postroom.server.executor import Counters
from postroom.server.http_app import AppMissing, HealthCheck, MountedApp
from tests.docs.pages import HOME, section
from tests.server.http.running import (
    PATIENCE,
    Client,
    Daemon,
    in_thread,
    make_token,
    open_server,
    port_of,
    until_end,
)

Agent = Callable[..., Client]
SAMPLE = re.compile(r'[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [0-9.e+-]+')


def test_health_is_shown_to_any_caller_and_details_to_known_ones(anonymous: Client, operator: Client) -> None:
    message = anonymous.ask("GET", "/healthz")
    assert (200, {"ok": True}) == (message.status, message.json)
    known = operator.ask("GET", "/healthz").json
    assert known["ok"] and known["problem"] is None and known["write_seconds"] > 0
    assert 200 == anonymous.ask("HEAD", "/healthz").status


def test_health_writes_at_most_once_a_second_and_leaves_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_server(tmp_path) as (_, room, executor, _broker):
            health, before = HealthCheck(executor), executor.counters.batches
            await asyncio.gather(*(health.check(is_detailed=False) for _ in range(100)))
            await health.check(is_detailed=True)
            assert before + 1 == executor.counters.batches
            assert [] == room.core.store.records(PULSE)

    asyncio.run(scenario())


def test_a_room_that_cannot_be_written_is_not_well(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_server(tmp_path) as (server, _room, _desk, _broker):
            client = Client(port_of(server))
            (tmp_path / "room.db").rename(tmp_path / "gone.db")
            message = await in_thread(client.ask, "GET", "/healthz")
            client.close()
            assert (503, {"ok": False}) == (message.status, message.json)
            (tmp_path / "gone.db").rename(tmp_path / "room.db")

    asyncio.run(scenario())


def test_numbers_are_for_operators(agent: Agent, operator: Client) -> None:
    assert 403 == agent("ann").ask("GET", "/metrics").status
    message = operator.ask("GET", "/metrics")
    assert (200, "text/plain; version=0.0.4; charset=utf-8") == (message.status, message.headers["content-type"])


def test_numbers_are_as_prometheus_reads_them(agent: Agent, operator: Client) -> None:
    ann = agent("ann")
    ann.call("mail/send", to="zoe", body="x")
    ann.post({"jsonrpc": "2.0", "id": 1, "method": "mail/read", "params": {"message_id": "none"}})
    text = operator.ask("GET", "/metrics").body.decode()
    lines = [line for line in text.splitlines() if not line.startswith("# ")]
    assert all(SAMPLE.fullmatch(line) for line in lines), lines
    for wanted in (
        'postroom_deliveries{state="unread"} 1',
        'postroom_unread{priority="normal"} 1',
        'postroom_calls_total{method="send",outcome="ok"} 1',
        'postroom_calls_total{method="read",outcome="UnknownMessage"} 1',
        'postroom_connections{rim="socket"} 0',
        "postroom_subscribers 0",
        "postroom_letters 1",
    ):
        assert wanted in lines, text
    for name in ("process_resident_memory_bytes", "process_cpu_seconds_total", "postroom_uptime_seconds"):
        assert any(line.startswith(f"{name} ") for line in lines)


# -- the seam


class Echo:
    """A foreign app that answers with the caller and what was sent."""

    def __init__(self) -> None:
        self.is_running = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.is_running = True
        try:
            yield
        finally:
            self.is_running = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            more = message["more_body"]
        result = f"{scope['postroom.principal'].agent} {scope['method']} ".encode() + body
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": result})


def test_a_mounted_app_is_loaded_once_and_knows_who_calls(tmp_path: Path) -> None:
    made: list[Echo] = []

    async def load() -> Echo:
        made.append(Echo())
        return made[-1]

    async def scenario() -> None:
        async with open_server(tmp_path, MountedApp(load)) as (server, room, _desk, _broker):
            ann = Client(port_of(server), make_token(room, "ann"))
            assert [] == made
            message = await in_thread(ann.ask, "POST", "/mcp", b"hello")
            assert (200, b"ann POST hello") == (message.status, message.body)
            assert b"ann GET " == (await in_thread(ann.ask, "GET", "/mcp/")).body
            assert 1 == len(made) and made[0].is_running
            assert 413 == (await in_thread(ann.ask, "POST", "/mcp", b"x" * 2_000_000)).status
            ann.close()
            stranger = Client(port_of(server))
            assert 401 == (await in_thread(stranger.ask, "POST", "/mcp", b"hello")).status
            stranger.close()
        assert not made[0].is_running

    asyncio.run(scenario())


def test_what_is_not_installed_is_reported_and_tried_again(tmp_path: Path) -> None:
    tries: list[int] = []

    async def load() -> Echo:
        tries.append(1)
        if len(tries) == 1:
            raise AppMissing("it is not here", hint='pip install "postroom[mcp]"')
        return Echo()

    async def scenario() -> None:
        async with open_server(tmp_path, MountedApp(load)) as (server, room, _desk, _broker):
            ann = Client(port_of(server), make_token(room, "ann"))
            message = await in_thread(ann.ask, "POST", "/mcp", b"hello")
            assert 503 == message.status and "postroom[mcp]" in message.json["error"]["message"]
            assert 200 == (await in_thread(ann.ask, "POST", "/mcp", b"hello")).status
            ann.close()

    asyncio.run(scenario())


def test_a_request_for_an_app_still_loading_at_the_end_is_asked_to_retry(tmp_path: Path) -> None:
    async def scenario() -> None:
        begun = asyncio.Event()

        async def load() -> Echo:
            begun.set()
            await asyncio.sleep(PATIENCE)
            return Echo()

        mounted = MountedApp(load)
        async with open_server(tmp_path, mounted) as (server, room, _desk, _broker):
            ann = Client(port_of(server), make_token(room, "ann"))
            request = asyncio.ensure_future(in_thread(ann.ask, "POST", "/mcp", b"hello"))
            await begun.wait()
            async with asyncio.timeout(1):
                await mounted.stop()
            message = await request
            assert (503, "1") == (message.status, message.headers["retry-after"])
            later = await in_thread(ann.ask, "POST", "/mcp", b"hello")
            assert 503 == later.status
            ann.close()

    asyncio.run(scenario())


def test_a_request_after_the_end_is_asked_to_retry(tmp_path: Path) -> None:
    async def load() -> Echo:
        return Echo()

    async def scenario() -> None:
        mounted = MountedApp(load)
        async with open_server(tmp_path, mounted) as (server, room, _desk, _broker):
            ann = Client(port_of(server), make_token(room, "ann"))
            assert 200 == (await in_thread(ann.ask, "POST", "/mcp", b"hello")).status
            await mounted.stop()
            assert 503 == (await in_thread(ann.ask, "POST", "/mcp", b"hello")).status
            ann.close()

    asyncio.run(scenario())


def test_mail_is_served_below_mcp(operator: Client) -> None:
    pytest.importorskip("mcp")
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}
    message = operator.post(call, "/mcp", accept="application/json, text/event-stream")
    assert 200 == message.status and b"serverInfo" in message.body


def test_a_revoked_token_ends_what_listens_below_mcp(agent: Agent, running: Daemon) -> None:
    pytest.importorskip("mcp")
    client = agent("lis")
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    wanted = {"notifications": {"resourceSubscriptions": ["inbox://lis"]}, "_meta": meta}
    call = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": wanted}
    body = json.dumps(call).encode()
    with client.raw() as stream:
        more = (
            "content-type: application/json",
            "accept: application/json, text/event-stream",
            "mcp-protocol-version: 2026-07-28",
            "mcp-method: subscriptions/listen",
            f"content-length: {len(body)}",
        )
        stream.sendall(client.head("POST /mcp HTTP/1.1", *more) + body)
        received = b""
        while b"data:" not in received:
            piece = stream.recv(65536)
            assert piece, received
            received += piece
        running.revoke(client.token)
        stream.settimeout(10)  # less than lies between two of its signs of life
        until_end(stream)


@pytest.mark.parametrize("path", ["/mcp/other", "/mcpx"])
def test_only_its_own_path_is_its(operator: Client, path: str) -> None:
    assert 405 == operator.ask("GET", path).status


def test_the_page_lists_every_number_and_no_other(operator: Client) -> None:
    counters = Counters()
    counters.rang("abcd", "rung")
    link = {"system": "paris", "state": "connected", "sent": 1, "taken": 1}
    at_times = [*metrics.server_lines(counters), *metrics.link_lines([link])]  # with webhooks and with peers
    lines = operator.ask("GET", "/metrics").body.decode().splitlines() + at_times
    served = {line.split()[2] for line in lines if line.startswith("# TYPE ")}
    written = re.findall(r'_(?:one|family)\("(\w+)"', inspect.getsource(metrics))
    assert set(written) - {name.removeprefix("postroom_") for name in served} == set()  # all it can serve
    result = section((HOME / "docs" / "http.md").read_text(encoding="utf-8"), "Health and numbers")
    assert served == set(re.findall(r"`((?:postroom|process)_\w+)", result))
