"""The end of a daemon while threads of it are at work: nothing is closed under them, and nobody waits for them."""

from __future__ import annotations

import asyncio
import signal
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import postroom
from postroom.server.executor import Executor
from tests.daemons import PATIENCE, Daemon
from tests.server.http.running import Client
from tests.server.http.running import daemon as served
from tests.server.http.test_starting import make_certificate


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """Its lines are not counted: that is written down at the end, while a thread of it is still at work."""
    with Daemon(tmp_path, COVERAGE_PROCESS_START="", COVERAGE_PROCESS_CONFIG="") as running:
        yield running


def test_it_ends_in_time_though_a_thread_sits_inside_sqlite(daemon: Daemon) -> None:
    """A stranger has the room's file locked, and a call of ours waits for it in the middle of a statement."""
    daemon.ask(action="send", **{"from": "a", "to": "b", "payload": "x"})
    stranger = apsw.Connection(str(daemon.room))
    stranger.execute("BEGIN IMMEDIATE")
    with daemon.line() as line:
        line.say({"action": "send", "from": "a", "to": "b", "payload": "y"})
        time.sleep(0.2)  # by now it has begun; were it not, the test would only prove less
        began = time.monotonic()
        assert 0 == daemon.stop()
        assert time.monotonic() - began < 2
    stranger.close()

    assert "Traceback" not in daemon.log() and "busy in another thread" not in daemon.log(), daemon.log()
    assert not daemon.socket.exists()


def test_a_thread_whose_caller_gave_up_is_still_at_work(tmp_path: Path) -> None:
    """Else the room would be closed under it."""

    async def story() -> None:
        with postroom.open(tmp_path / "room.db", durability="process") as room:
            executor = Executor(room.core)
            begun, go = threading.Event(), threading.Event()

            def look_long() -> None:
                begun.set()
                go.wait(PATIENCE)

            looking = asyncio.ensure_future(executor.run_slow(look_long))
            await asyncio.to_thread(begun.wait, PATIENCE)
            looking.cancel()
            await asyncio.wait([looking])
            assert not executor.is_idle
            closing = asyncio.ensure_future(executor.close())
            await asyncio.wait([closing], timeout=0.05)
            assert not closing.done()
            go.set()
            await closing
            assert executor.is_idle

    asyncio.run(story())


def test_a_terminal_that_is_closed_ends_it_in_good_order(daemon: Daemon) -> None:
    assert 0 == daemon.stop(signal.SIGHUP)
    assert not daemon.socket.exists()


def test_a_websocket_that_its_client_is_closing_disturbs_no_end(tmp_path: Path) -> None:
    """Over TLS the connection lives on until the client has ended TLS, too."""
    certificate, key = make_certificate(tmp_path)
    words = ("--http", "127.0.0.1:0", "--tls-cert", str(certificate), "--tls-key", str(key))
    with served(tmp_path, *words) as running:
        client = Client(running.port, running.token("bob"))
        upgrade = ("connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13")
        with ssl.create_default_context(cafile=str(certificate)).wrap_socket(
            client.raw(), server_hostname="127.0.0.1"
        ) as stream:
            stream.sendall(client.head("GET /ws HTTP/1.1", *upgrade, "sec-websocket-key: " + 22 * "A" + "=="))
            assert stream.recv(65536).startswith(b"HTTP/1.1 101")
            stream.sendall(b"\x88\x80\0\0\0\0")  # a close frame
            assert stream.recv(65536)[:1] == b"\x88"  # the answer to it
            seconds, code, log = running.stop()

    assert (0, []) == (code, [line for line in log.splitlines() if "Traceback" in line]), log
    assert seconds < 2
