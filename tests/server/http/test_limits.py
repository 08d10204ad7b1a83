"""Callers that are slow, many or idle; and the end, with all of them connected."""

from __future__ import annotations

import asyncio
import json
import resource
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from websockets.sync.client import connect

from postroom.server import http, http_server
from tests.daemons import until as wait_until
from tests.server.http.running import (
    Client,
    cpu_of,
    daemon,
    in_thread,
    make_token,
    memory_of,
    open_server,
    port_of,
    status,
    until_end,
)
from tests.server.http.test_frames import hear, rpc
from tests.server.http.test_stream import subscribe, until

SUBSCRIBERS = 500
IDLE = 2.0  # seconds that they are watched


@contextmanager
def many_handles(wanted: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"the system gives {hard} handles to a process")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nhost:", b"GET /healthz HTTP/1.1\r\n"])
def test_a_head_that_trickles_is_ended_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 0.3)

    def trickle(client: Client) -> float:
        began = time.monotonic()
        with client.raw() as stream:
            try:
                for byte in [sent, *(b"x" for _ in range(200))]:
                    stream.sendall(byte)
                    stream.settimeout(0.02)
                    try:
                        if not stream.recv(1):
                            break
                    except TimeoutError:
                        continue
            except ConnectionError:
                pass
        return time.monotonic() - began

    async def scenario() -> None:
        async with open_server(tmp_path) as (server, _room, _desk, _broker):
            assert await in_thread(trickle, Client(port_of(server))) < 3

    asyncio.run(scenario())


def test_a_body_that_does_not_come_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "BODY_SECONDS", 0.2)

    def half(client: Client) -> int:
        with client.raw() as stream:
            kind = ("content-type: application/json", "content-length: 100")
            stream.sendall(client.head("POST / HTTP/1.1", *kind) + b"{")
            return status(stream)

    async def scenario() -> None:
        async with open_server(tmp_path) as (server, room, _desk, _broker):
            assert 408 == await in_thread(half, Client(port_of(server), make_token(room, "ann")))

    asyncio.run(scenario())


def test_a_full_server_refuses_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 5)

    def crowd(port: int) -> None:
        client = Client(port)
        with ExitStack() as stack:
            for _ in range(5):
                stack.enter_context(client.raw())
            with client.raw() as late:
                assert 503 == status(late)
        with client.raw() as again:
            again.sendall(client.head("GET /healthz HTTP/1.1").replace(b"authorization", b"x-nothing"))
            assert 200 == status(again)

    async def scenario() -> None:
        async with open_server(tmp_path) as (server, _room, _desk, _broker):
            await in_thread(crowd, port_of(server))

    asyncio.run(scenario())


def test_junk_instead_of_http_harms_nobody(tmp_path: Path) -> None:
    def junk(port: int) -> None:
        client = Client(port)
        for bytes_ in (
            b"\x00" * 1000,
            b"\x16\x03\x01\x02\x00",
            b"A" * 100_000,
            b"GET / HTTP/9.9\r\n\r\n",
            b"\r\n" * 999,
        ):
            with client.raw() as stream:
                try:
                    stream.sendall(bytes_ + b"\r\n\r\n")
                except ConnectionError:
                    continue
                stream.settimeout(0.2)
                try:
                    until_end(stream)
                except TimeoutError:
                    continue
        assert 200 == client.ask("GET", "/healthz").status
        client.close()

    async def scenario() -> None:
        async with open_server(tmp_path) as (server, _room, _desk, _broker):
            await in_thread(junk, port_of(server))

    asyncio.run(scenario())


def test_hundreds_who_only_listen_cost_nothing(tmp_path: Path) -> None:
    with many_handles(2 * SUBSCRIBERS), daemon(tmp_path) as running, ExitStack() as stack:
        client = Client(running.port, running.token("ann"))
        alone = memory_of(running.process.pid)
        for _ in range(SUBSCRIBERS):
            stack.enter_context(subscribe(client))
        operator = Client(running.port, running.token())
        wanted = f"postroom_subscribers {SUBSCRIBERS}\n".encode()
        wait_until(lambda: wanted in operator.ask("GET", "/metrics").body)
        operator.close()
        time.sleep(0.2)
        before = cpu_of(running.process.pid)
        time.sleep(IDLE)
        spent = cpu_of(running.process.pid) - before
        memory = memory_of(running.process.pid)
        print(f"{running.seconds_to_start:.2f} s to start, {alone / 1e6:.0f} MB; {SUBSCRIBERS} subscribers:")
        print(f"{memory / 1e6:.0f} MB, {spent:.2f} s of CPU in {IDLE} s")
        assert alone < 80_000_000
        assert spent <= 0.1
        assert memory < alone + SUBSCRIBERS * 100_000


def test_it_ends_soon_with_clients_connected(tmp_path: Path) -> None:
    with daemon(tmp_path) as running, ExitStack() as stack:
        client = Client(running.port, running.token("ann"))
        stream = stack.enter_context(subscribe(client))
        until(stream, b":\n\n")
        shown = {"authorization": f"Bearer {client.token}"}
        talk = stack.enter_context(
            connect(f"ws://127.0.0.1:{running.port}/ws", additional_headers=shown, compression=None)
        )
        talk.send(rpc("mail/counts"))
        hear(talk)
        talk.send(rpc("mail/wait", timeout=60))
        client.call("mail/counts")  # a connection that is kept
        waiting = stack.enter_context(client.raw())
        body = rpc("mail/wait", timeout=60).encode()
        length = f"content-length: {len(body)}"
        waiting.sendall(client.head("POST / HTTP/1.1", "content-type: application/json", length) + body)
        stack.enter_context(client.raw())  # says nothing
        deaf = stack.enter_context(subscribe(client))  # never reads
        assert deaf.fileno() >= 0
        seconds, code, log = running.stop()
        client.close()
        assert (0, True) == (code, seconds < 2), (seconds, log)
        assert 503 == status(waiting)
        levels = [json.loads(line)["level"] for line in log.splitlines()]
        assert {"info"} == set(levels), log


def test_the_log_tells_no_token_and_no_query(tmp_path: Path) -> None:
    with daemon(tmp_path, "--http", "127.0.0.1:0", "--log-level", "debug") as running:
        client = Client(running.port, running.token("ann"))
        secret = client.token.split("_")[2]
        client.ask("GET", "/subscribe?nonsense=hidden")
        client.post({"jsonrpc": "2.0", "id": 1, "method": "authenticate", "params": {"token": client.token}})
        with connect(
            f"ws://127.0.0.1:{running.port}/ws?word=hidden",
            additional_headers={"authorization": f"Bearer {client.token}"},
        ) as talk:
            talk.send(rpc("mail/counts"))
            hear(talk)
        client.close()
        _, _, log = running.stop()
    assert secret not in log and "hidden" not in log, log
