"""A client that sends very many small frames delays no other, and its frames are read in order."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.server.http.running import (
    Client,
    Daemon,
    daemon,
    in_background,
)
from tests.server.http.test_auth import UPGRADE
from tests.server.http.test_frames import Agent, frame, hear, rpc, talking

PING = frame("", first=0x89)
TEXT = frame("{")
NOTIFICATION = frame('{"jsonrpc": "2.0", "method": "mail/none"}')


@contextmanager
def upgraded(client: Client, path: str = "/ws", *, narrow: bool = False) -> Iterator[socket.socket]:
    with client.raw(narrow=narrow) as stream:
        stream.sendall(client.head(f"GET {path} HTTP/1.1", *UPGRADE))
        assert b" 101 " in stream.recv(4096)
        yield stream


def flood(stream: socket.socket, piece: bytes, *, reads: bool) -> None:
    """Until the other side ends it."""

    def send() -> None:
        with suppress(OSError):
            while True:
                stream.sendall(piece)

    def read() -> None:
        with suppress(OSError):
            while stream.recv(1 << 20):
                pass

    stream.settimeout(None)
    in_background(send)
    if reads:
        in_background(read)


@pytest.mark.parametrize("path", ["/ws", "/map"])
@pytest.mark.parametrize("piece", [PING, TEXT, NOTIFICATION], ids=["pings", "texts", "notifications"])
def test_a_flood_of_frames_holds_up_no_other_caller(
    agent: Agent, running: Daemon, path: str, piece: bytes
) -> None:
    other = agent("ora")
    with upgraded(agent("flo"), path) as stream:
        flood(stream, piece * 5000, reads=True)
        for _ in range(20):
            began = time.monotonic()
            other.call("mail/counts")
            assert time.monotonic() - began < 1
    assert running.process.poll() is None


@pytest.mark.parametrize("reads", [True, False])
def test_it_ends_soon_beside_a_flood_of_frames(tmp_path: Path, reads: bool) -> None:
    with daemon(tmp_path) as running:
        client = Client(running.port, running.token("ann"))
        with upgraded(client) as stream:
            flood(stream, PING * 5000, reads=reads)
            client.call("mail/counts")
            seconds, code, log = running.stop()
        client.close()
    assert (0, True) == (code, seconds < 2), (seconds, log)
    assert {"info"} == {json.loads(line)["level"] for line in log.splitlines()}, log


def test_it_ends_soon_and_in_silence_beside_one_who_does_not_read(tmp_path: Path) -> None:
    with daemon(tmp_path) as running:
        client = Client(running.port, running.token("ann"))
        for _ in range(6):
            client.call("mail/send", to="ann", body="x" * 900_000)
        with upgraded(client, narrow=True) as stream:
            stream.sendall(frame(rpc("mail/check", peek=True)))
            assert b'"jsonrpc"' in stream.recv(4096)  # so the reply was written, and fits nowhere
            seconds, code, log = running.stop()
        client.close()
    assert (0, True) == (code, seconds < 2), (seconds, log)
    assert {"info"} == {json.loads(line)["level"] for line in log.splitlines()}, log


def test_all_that_is_sent_at_once_is_received_in_order_to_the_close(agent: Agent) -> None:
    """Small and large ones, in pieces too, and pings between them."""
    client = agent("ben")
    message = []
    for number in range(120):
        text = rpc("mail/send", id=number, to="ben", body="x" * (number * 331 % 9000))
        message.append(
            frame(text[:40], first=0x01) + PING + frame(text[40:], first=0x80) if number % 3 else frame(text)
        )
    large = rpc("mail/send", id=120, to="ben", body="y" * 900_000)
    with talking(client, max_size=None) as talk:
        in_background(talk.socket.sendall, b"".join(message))
        assert [*range(120)] == [hear(talk)["id"] for _ in range(120)]
        talk.send(large)
        talk.socket.sendall(frame(rpc("mail/counts", id=121)))
        assert 120 == hear(talk)["id"]
        assert 121 == hear(talk)["result"]["total"]
    assert 1000 == talk.protocol.close_code
