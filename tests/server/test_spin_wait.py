"""Staying awake for who comes back at once, and for nobody else."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import postroom
from postroom.server import unix_socket
from postroom.server.executor import Executor, JobFuture
from postroom.server.unix_socket import SpinWait

LONG = 20.0


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def quick(ours: socket.socket, monkeypatch: pytest.MonkeyPatch) -> SpinWait:
    """For one who has come back at once, and is waited for long."""
    monkeypatch.setattr(unix_socket, "SPIN_SECONDS", LONG)
    waits = SpinWait(ours.fileno())
    waits.wait()  # its first answer
    waits.note_request()
    return waits


def lingered(waits: SpinWait) -> float:
    began = time.monotonic()
    waits.wait()
    return time.monotonic() - began


def test_who_comes_back_at_once_is_waited_for(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = ends
    waits = quick(ours, monkeypatch)
    speaking = threading.Timer(0.05, theirs.sendall, (b"again\n",))
    speaking.start()
    assert lingered(waits) < LONG
    ours.setblocking(False)
    assert b"again\n" == ours.recv(100)  # it is left to the loop to read it
    speaking.join()


def test_who_hangs_up_is_not_waited_for(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = ends
    waits = quick(ours, monkeypatch)
    theirs.close()
    assert lingered(waits) < LONG


def test_who_takes_its_time_is_not_waited_for(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, _ = ends
    waits = SpinWait(ours.fileno())
    waits.wait()
    monkeypatch.setattr(unix_socket, "SPIN_SECONDS", 0.0)
    waits.note_request()
    monkeypatch.setattr(unix_socket, "SPIN_SECONDS", LONG)
    assert lingered(waits) < LONG


def test_nobody_is_waited_for_longer_than_a_moment(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix_socket, "SPIN_SECONDS", 0.2)
    ours, _ = ends
    waits = SpinWait(ours.fileno())
    waits.wait()
    waits._is_quick = True  # however busy the machine is
    assert 0.2 <= lingered(waits) < LONG


def test_nobody_is_waited_for_while_there_is_something_else_to_do(tmp_path: Path) -> None:
    async def story() -> None:
        with postroom.open(tmp_path / "room.db", durability="process") as room:
            executor, ann, bob = Executor(room.core), object(), object()

            def ask(caller: object) -> JobFuture:
                return executor.submit(lambda: "done", caller)

            await ask(ann)
            assert executor.is_only_caller(ann)
            assert not executor.is_only_caller(bob)
            later = ask(bob)
            assert not executor.is_only_caller(ann)
            await later
            assert not executor.is_only_caller(ann)
            may_end = threading.Event()
            slow = asyncio.ensure_future(executor.run_slow(may_end.wait))
            await ask(ann)
            assert not executor.is_only_caller(ann)
            may_end.set()
            await slow
            await executor.close()

    asyncio.run(asyncio.wait_for(story(), LONG))
