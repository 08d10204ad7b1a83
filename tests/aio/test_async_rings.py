"""Waiting to ring, with threads and without: woken by mail and by the rules' own timers."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import postroom
from postroom import aio
from postroom.model.alert import Later, Rung

PATIENCE = 60.0  # seconds; a bound, not a pace


@pytest.fixture(params=["memory", "sqlite"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:{tmp_path}/room.db"


def test_who_waits_to_ring_is_woken_by_mail_and_again_when_the_pause_is_over(address: str) -> None:
    with postroom.open(address, ring_gather=0.05, ring_cooldown=0.1) as room:
        ann, bob = room.mailbox("ann"), room.mailbox("bob")
        bob.begin_alerts("exec")
        sender = threading.Thread(target=ann.send, args=("bob", "x"))
        sender.start()
        first = bob.wait_for_alert("exec", PATIENCE)
        sender.join()
        assert first and first.unread == 1
        second = ann.send("bob", "y").id
        again = bob.wait_for_alert("exec", PATIENCE)
        assert again and again.ids == (second,)
        assert bob.wait_for_alert("exec", 0.01) is None


def test_two_who_wait_in_one_way_ring_once(address: str) -> None:
    async def scene() -> None:
        async with aio.open(address, ring_gather=0, ring_cooldown=0) as room, asyncio.timeout(PATIENCE):
            ann, bob = room.mailbox("ann"), room.mailbox("bob")
            await bob.begin_alerts("exec")
            ringers = [asyncio.create_task(bob.wait_for_alert("exec", 1.0)) for _ in range(2)]
            other = asyncio.create_task(bob.wait_for_alert("desktop", PATIENCE))
            while sum(map(len, room._watcher._listeners.values())) < 3:
                await asyncio.sleep(0)
            sent = await ann.send("bob", "x")
            rung = [ring for ring in await asyncio.gather(*ringers) if ring]
            assert [(sent.id,)] == [ring.ids for ring in rung]
            result = await other
            assert result and result.ids == (sent.id,)

    asyncio.run(scene())


def test_the_async_face_has_the_verbs_of_rings(address: str) -> None:
    async def scene() -> None:
        async with aio.open(address, ring_gather=0, ring_tries=1) as room, asyncio.timeout(PATIENCE):
            bob = room.mailbox("bob")
            assert 0 == await bob.begin_alerts("exec")
            assert Later() == await bob.next_alert("exec")
            sent = await room.mailbox("ann").send("bob", "x")
            assert Later(1.0) == await bob.next_alert("exec", may_alert=lambda: False)
            assert isinstance(await bob.next_alert("exec"), Rung)
            assert 1 == await bob.alert_failed("exec", sent.id, "nobody there")
            assert [sent.id] == [lost.letter.id for lost in await bob.dead_alerts()]
            assert 1 == await bob.retry_alerts(way="exec", ids=sent.id)
            assert 1 == await bob.mark_shown(sent.id, "claude", "Stop")
            assert Later() == await bob.next_alert("exec")

    asyncio.run(scene())
