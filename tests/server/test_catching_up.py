"""Many who listen, did not read for a while, and go on from the same place."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import postroom
from postroom.server import events
from postroom.server.broker import Broker
from postroom.server.callers import Caller
from postroom.server.executor import Executor

MANY = 50


class Reader:
    """One that may not read just now."""

    def __init__(self) -> None:
        self.reads = False
        self.received: list[dict[str, Any]] = []

    def push(self, notice: dict[str, Any]) -> bool:
        if self.reads:
            self.received.append(notice["params"])
        return self.reads

    def texts(self, id: str) -> list[str]:
        of_one = [result["event"]["data"] for result in self.received if result["subscriptionId"] == id]
        return [data["message"]["payload"]["text"] for data in of_one]


async def until(true: Any) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.01)


def test_what_they_missed_is_found_once_and_each_hears_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    found = events.events

    def counted(room: Any, past: Any) -> Any:
        looks.append(len(past.changes))
        return found(room, past)

    monkeypatch.setattr(events, "events", counted)

    async def story() -> None:
        with postroom.open("memory:") as room:
            executor = Executor(room.core)
            broker, reader = Broker(executor), Reader()
            caller = Caller(executor, broker, push=reader.push)
            ids = [
                (await caller.subscribe({"filter": {"event_types": ["message.sent"]}}))["subscriptionId"]
                for _ in range(MANY)
            ]
            for number in range(3):
                room.mailbox("ann").send("bob", str(number))
            reader.reads = True
            caller.replies_sent()
            await until(lambda: len(reader.received) == 3 * MANY)
            room.mailbox("ann").send("bob", "3")
            await until(lambda: len(reader.received) == 4 * MANY)
            assert {("0", "1", "2", "3")} == {tuple(reader.texts(id)) for id in ids}
            broker.close()
            await executor.close()

    asyncio.run(story())
    assert len(looks) < MANY / 5
