"""The numbers of the last day, a row for each minute, and digests where the store cannot notify or be read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import postroom
from postroom import Room, StoreBusy
from postroom.server import flow
from postroom.server.broker import Broker
from postroom.server.executor import Executor
from postroom.server.flow import COLUMNS


@asynccontextmanager
async def serving(room: Room) -> AsyncIterator[Broker]:
    executor = Executor(room.core)
    broker = Broker(executor)
    try:
        yield broker
    finally:
        broker.close()
        await executor.close()


async def told(heard: list[dict[str, Any]], wanted: int) -> None:
    async with asyncio.timeout(60):
        while sum(one["params"]["sent"] for one in heard) < wanted:
            await asyncio.sleep(0.01)


def test_each_minute_has_a_row_of_what_happened_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "MINUTE", 0.05)

    async def play() -> dict[str, Any]:
        with postroom.open("memory:") as room:
            room.mailbox("ann").send("bob", "before")
            async with serving(room) as broker:
                running = asyncio.ensure_future(broker.history.run())
                async with asyncio.timeout(60):
                    while not broker.history.describe()["minutes"]:
                        await asyncio.sleep(0.01)
                    for _ in range(3):
                        room.mailbox("ann").send("bob", "x")
                    work = room.mailbox("bob").claim()
                    assert work is not None
                    work.ack()
                    while sum(row[1] for row in broker.history.describe()["minutes"]) < 3:
                        await asyncio.sleep(0.01)
                    while sum(row[2] for row in broker.history.describe()["minutes"]) < 1:
                        await asyncio.sleep(0.01)
                running.cancel()
                return broker.history.describe()

    shown = asyncio.run(play())
    assert list(COLUMNS) == shown["columns"]
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in shown["minutes"]]
    assert (3, 1, 0) == tuple(sum(row[name] for row in rows) for name in ("sent", "settled", "died"))
    assert 3 == rows[-1]["backlog"] and rows[-1]["memory"] > 0 <= rows[-1]["cpu"]


def test_who_does_not_read_learns_that_it_missed_something() -> None:
    async def play() -> list[dict[str, Any]]:
        heard: list[dict[str, Any]] = []
        reads = [False]

        def push(notice: dict[str, Any]) -> bool:
            if reads[0]:
                heard.append(notice)
            return reads[0]

        with postroom.open("memory:") as room:
            async with serving(room) as broker:
                await broker.flow.watch("page", push, "human")
                room.mailbox("ann").send("bob", "missed")
                while "ann" not in (await broker.flow.watch("other", lambda _notice: True, ""))["names"]:
                    await asyncio.sleep(0.01)
                reads[0] = True
                room.mailbox("ann").send("human", "heard")
                await told(heard, 1)
        return heard

    (tick, *_) = asyncio.run(asyncio.wait_for(play(), 60))
    assert tick["params"]["missed"] and tick["params"]["from"] == 0
    assert {"ann", "bob", "human"} <= set(tick["params"]["names"]) and tick["params"]["waits"] == 1


def test_a_store_that_cannot_be_read_for_a_while_loses_no_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "RETRY", 0.01)
    failures = [3]

    async def play() -> None:
        heard: list[dict[str, Any]] = []
        with postroom.open("memory:") as room:
            async with serving(room) as broker:
                honest = broker.flow._count

                def count() -> Any:
                    if failures[0]:
                        failures[0] -= 1
                        raise StoreBusy
                    return honest()

                monkeypatch.setattr(broker.flow, "_count", count)

                def push(notice: dict[str, Any]) -> bool:
                    heard.append(notice)
                    return True

                await broker.flow.watch("page", push, "human")
                room.mailbox("ann").send("bob", "x")
                await told(heard, 1)

    asyncio.run(play())
    assert 0 == failures[0]
