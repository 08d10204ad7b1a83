"""The desk, the hub and the chores inside this process: turns, faults, closing."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom.app import app
from postroom.app.app import JsonFormatter
from postroom.core.authorize import OWNER, agent_principal
from postroom.errors import PostroomError, StoreBusy
from postroom.room import room_of
from postroom.server import broker, events
from postroom.server.broker import INITIAL_SLICE, Broker, next_slice
from postroom.server.callers import Caller
from postroom.server.executor import Executor
from postroom.server.requests import Schedule
from postroom.store.sqlite import commit
from postroom.store.sqlite.lock import WriterLock

PATIENCE = 20.0


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE):
            await work

    asyncio.run(bounded())


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Executor]:
    with postroom.open(folder / "room.db", durability="process") as room:
        executor = Executor(room.core)
        yield executor
        await executor.close()


def test_callers_take_turns_and_each_keeps_its_order(tmp_path: Path) -> None:
    order: list[tuple[str, int]] = []

    async def story() -> None:
        async with opened(tmp_path) as executor:
            go = threading.Event()
            held = executor.submit(partial(go.wait, PATIENCE))
            while executor.is_idle:
                await asyncio.sleep(0)
            kinds = [Schedule.WRITE, Schedule.READ, Schedule.SLOW, Schedule.WRITE, Schedule.LARGE]
            calls = [
                executor.submit(partial(order.append, ("much", n)), "much", kind) for n, kind in enumerate(kinds)
            ]
            calls.append(executor.submit(partial(order.append, ("little", 0)), "little"))
            go.set()
            await asyncio.gather(held, *calls)

    run(story())
    assert [("much", n) for n in range(5)] == [one for one in order if one[0] == "much"]
    assert order.index(("little", 0)) <= 1


def test_the_calls_that_come_while_a_batch_is_written_join_it(tmp_path: Path) -> None:
    order: list[str] = []

    async def story() -> None:
        async with opened(tmp_path) as executor:
            go = threading.Event()
            held = executor.submit(partial(go.wait, PATIENCE))
            while executor.is_idle:
                await asyncio.sleep(0)
            calls = [
                executor.submit(partial(order.append, f"{caller}{n}"), caller) for n in (1, 2) for caller in "ab"
            ]
            go.set()
            await asyncio.gather(held, *calls)
            assert (1, 5) == (executor.counters.batches, executor.counters.batched)

    run(story())
    assert ["a1", "b1", "a2", "b2"] == order


def test_a_reader_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as executor:
            go = threading.Event()
            held = executor.submit(partial(go.wait, PATIENCE), "writer")
            assert "pid" in await executor.call(OWNER, "ping", {})
            assert not held.done()
            go.set()
            await held

    run(story())


def test_a_long_batch_is_reported_bit_by_bit(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as executor:
            calls = [executor.submit(lambda: time.sleep(0.02)) for _ in range(20)]
            await calls[0]
            assert 20 > sum(call.done() for call in calls)
            await asyncio.gather(*calls)

    run(story())


def test_what_was_not_begun_is_refused_at_the_end_and_nothing_is_served_after_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as executor:
            calls = [executor.submit(lambda: time.sleep(0.05)) for _ in range(40)]
            await calls[0]
            began = time.monotonic()
            await executor.close()
            assert time.monotonic() - began < 1
            ends = await asyncio.gather(*calls, executor.submit(int), return_exceptions=True)
            assert isinstance(ends[-1], StoreBusy)
            assert {None} == {end for end in ends if not isinstance(end, StoreBusy)}

    run(story())


def test_a_fault_while_making_safe_is_reported_to_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("a bug")

    async def story() -> None:
        async with opened(tmp_path) as executor:
            monkeypatch.setattr(commit, "make_safe", broken)
            params = {"agent_id": "a", "to": "b", "body": "x"}
            calls = [executor.call(OWNER, "send", params) for _ in range(3)]
            for end in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(end, PostroomError)
            monkeypatch.undo()

    run(story())
    assert "a bug" in caplog.text


def test_nothing_is_carried_out_on_the_thread_of_the_loop(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as executor:
            kinds = [Schedule.WRITE, Schedule.READ, Schedule.MANY, Schedule.SLOW, Schedule.LARGE]
            threads = await asyncio.gather(*[executor.submit(threading.get_ident, kind=kind) for kind in kinds])
            assert len(kinds) == len({*threads} - {threading.get_ident()})

    run(story())


def test_the_heartbeat_of_an_agent_joins_a_batch(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as executor:
            room_of(executor.core, OWNER).mailbox("ann").register()
            before = room_of(executor.core, OWNER).agent("ann").presence
            caller = Caller(executor, Broker(executor))
            await caller.call("send", {"agent_id": "ann", "to": "bob", "body": "x"})
            await executor.submit(int)  # goes with the heartbeat, or after it
            assert before != room_of(executor.core, OWNER).agent("ann").presence
            await caller.call("send", {"agent_id": "zoe", "to": "bob", "body": "x"})  # she never registered

    run(story())


def test_a_wait_that_was_given_up_never_looks_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as executor:
            go = threading.Event()
            held = executor.submit(partial(go.wait, PATIENCE))
            while executor.is_idle:
                await asyncio.sleep(0)
            claim = asyncio.ensure_future(executor.call(OWNER, "claim", {"agent_id": "b", "timeout": 9.0}))
            await asyncio.sleep(0)
            claim.cancel()
            room_of(executor.core, OWNER).mailbox("a").send("b", "x")
            go.set()
            await held
            await executor.submit(int)
            assert 1 == len(room_of(executor.core, OWNER).mailbox("b").claim(count=9))

    run(story())


def test_chores_go_on_after_a_bug(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    rounds = 0

    class Broken:
        core = None

        async def run_slow(self, _run: Any) -> None:
            nonlocal rounds
            rounds += 1
            raise ValueError("a bug")

    async def story() -> None:
        monkeypatch.setattr(app, "SWEEP_SECONDS", 0.001)
        task = asyncio.ensure_future(app.run_janitor(Broken()))  # type: ignore[arg-type]
        while rounds < 3 and not task.done():
            await asyncio.sleep(0.001)
        assert not task.done()
        task.cancel()

    run(story())
    assert "a bug" in caplog.text


# -- the hub


async def subscribe(executor: Executor, broker: Broker, name: str, received: list[dict[str, Any]]) -> Caller:
    def push(notice: dict[str, Any]) -> bool:
        received.append(notice["params"]["event"])
        return True

    caller = Caller(executor, broker, push=push, principal=agent_principal(name))
    await caller.subscribe({"filter": {"eventTypes": ["message.created"]}})
    caller.replies_sent()
    return caller


async def until(number: int, received: list[Any]) -> None:
    while len(received) < number:
        await asyncio.sleep(0.005)


def test_who_is_not_concerned_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request: list[str] = []
    original = events._events_of_letter

    def counted(principal: Any, *words: Any) -> Any:
        request.append(principal.agent)
        return original(principal, *words)

    async def story() -> None:
        async with opened(tmp_path) as executor:
            broker, received = Broker(executor), list[dict[str, Any]]()
            for name in ("eve", "bob", "joe"):
                await subscribe(executor, broker, name, received)
            await asyncio.sleep(0.02)
            monkeypatch.setattr(events, "_events_of_letter", counted)
            room_of(executor.core, OWNER).mailbox("ann").send("bob", "x")
            await until(1, received)
            broker.close()

    run(story())
    assert {"bob"} == set(request)


def test_to_emit_costs_the_same_however_many_agents_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    async def story() -> None:
        async with opened(tmp_path) as executor:
            for number in range(20):
                room_of(executor.core, OWNER).mailbox(f"a{number}").register(scopes=["team"])
            room_of(executor.core, OWNER).mailbox("joe").register(scopes=["apart"])
            broker, received = Broker(executor), list[str]()
            callers = [
                Caller(executor, broker, push=partial(_noted, received, name), principal=agent_principal(name))
                for name in ("a1", "joe", "eve")
            ]
            for caller in callers:
                await caller.subscribe({})
            for caller in callers:
                caller.replies_sent()
            await asyncio.sleep(0.02)
            store = type(executor.core.store)
            records = store.records

            def counted(*words: Any) -> Any:
                found = records(*words)
                read.append(len(found))
                return found

            monkeypatch.setattr(store, "records", counted)
            broker.publish({"event": {"type": "build.done"}, "scope": "team"}, "a2")
            await until(1, received)
            assert ["a1"] == received
            broker.close()

    run(story())
    assert sum(read) <= 3


def _noted(received: list[str], name: str, _notice: dict[str, Any]) -> bool:
    received.append(name)
    return True


def test_a_fault_of_ours_loses_no_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original, faults = events.events, ["once"]

    def faulty(*words: Any) -> Any:
        if faults:
            raise ValueError(faults.pop())
        return original(*words)

    async def story() -> None:
        async with opened(tmp_path) as executor:
            broker, received = Broker(executor), list[dict[str, Any]]()
            await subscribe(executor, broker, "bob", received)
            await asyncio.sleep(0.02)
            monkeypatch.setattr(events, "events", faulty)
            sent = [room_of(executor.core, OWNER).mailbox("ann").send("bob", str(n)).id for n in range(3)]
            await until(3, received)
            assert sent == [event["data"]["id"] for event in received]
            broker.close()

    monkeypatch.setattr(broker, "RETRY_SECONDS", 0.01)
    run(story())


def test_a_burst_is_reported_in_pieces_that_take_a_moment() -> None:
    """Letters may be large: a burst is begun with few of them, and what took long is followed by fewer."""
    sizes, slice = list[int](), INITIAL_SLICE
    for seen, seconds in ((4, 0.0), (8, 0.0), (16, 1.0), (4, 1.0), (1, 1.0), (1, 0.0), (1, 0.0)):
        slice = next_slice(slice, seen, seconds)
        sizes.append(slice)
    assert [8, 16, 4, 1, 1, 2, INITIAL_SLICE] == sizes


def test_a_resync_that_was_not_taken_is_reported_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as executor:
            broker, received = Broker(executor), list[str]()
            is_deaf = True

            def push(notice: dict[str, Any]) -> bool:
                if not is_deaf:
                    received.append(notice["params"]["event"]["type"])
                return not is_deaf

            caller = Caller(executor, broker, push=push)
            await caller.subscribe({"since": f"{'0' * 16}:{'0' * 8}:1"})
            caller.replies_sent()
            await asyncio.sleep(0.05)
            is_deaf = False
            caller.resume()
            await until(1, received)
            assert ["resync"] == received
            broker.close()

    run(story())


# -- below


def test_a_lock_is_closed_once_by_however_many_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = WriterLock(tmp_path / "lock", 1)
    mine, closed, original = lock._descriptor, list[int](), os.close
    meet = threading.Barrier(2, timeout=0.3)

    def slowly(descriptor: int) -> None:
        if descriptor == mine:
            closed.append(descriptor)
            with pytest.raises(threading.BrokenBarrierError):
                meet.wait()
        original(descriptor)

    monkeypatch.setattr(os, "close", slowly)
    threads = [threading.Thread(target=lock.close) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [mine] == closed


def test_any_record_becomes_a_line_of_json() -> None:
    record = logging.makeLogRecord({"msg": "odd \udcff", "levelname": "ERROR", "large": 2**80, "bytes": b"x"})
    assert '"level":"error"' in JsonFormatter().format(record)
