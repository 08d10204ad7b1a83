"""An agent has one gateway: a second one is refused, and a successor takes its place. Without nanobot."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom.errors import NotAllowed
from postroom.model.record import GATEWAY, Record
from postroom.nanobot.channel import gateways
from postroom.nanobot.channel.reception import Reception
from postroom.store.protocol import Put

from .agents import PATIENCE, Log, run, scripted_agent, until


def room_at(folder: Path) -> postroom.Room:
    return postroom.open(f"files:{folder / 'mailboxes'}?layout=nanobot")


def test_a_second_gateway_is_refused_with_a_hint_and_the_first_goes_on(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder", lambda _: "fine") as coder:
            second = Reception(coder.post, coder, Log(), tmp_path)
            with pytest.raises(NotAllowed, match=r"is running already.*end that one, or choose another agentId"):
                await second.run()
            await second.leave()
            anna = coder.post.room.mailbox("anna")
            await anna.send("coder", "still there?")
            assert await anna.wait(PATIENCE)
            assert "idle" == (await coder.post.room.agent("coder")).presence.status
        assert "offline" == room_at(tmp_path).agent("coder").presence.status

    run(scene)


def test_a_gateway_that_takes_no_lock_shares_the_mail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug."""
    monkeypatch.setattr(gateways.GatewayLock, "take", lambda _: True)

    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder") as coder:
            second = asyncio.create_task(Reception(coder.post, coder, log := Log(), tmp_path).run())
            await until(lambda: log.lines)
            second.cancel()
            await asyncio.wait([second])

    run(scene)


HOLD = """
import sys
from postroom.nanobot.channel.gateways import GatewayLock
assert GatewayLock(sys.argv[1], "Coder").take()
print("taken", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("store", ["sqlite:{}/room.db", "files:{}/mailboxes?layout=nanobot"])
def test_a_successor_takes_the_place_of_one_that_was_killed_at_once(tmp_path: Path, store: str) -> None:
    address = store.format(tmp_path)
    with postroom.open(address) as room:
        room.mailbox("anna").send("coder", "one")
        work = room.mailbox("coder").claim(lease=3600, holder=gateways.holder("coder"))
        assert work is not None
    first = subprocess.Popen([sys.executable, "-c", HOLD, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with first:
        assert first.stdout is not None and b"taken\n" == first.stdout.readline()
        assert gateways.GatewayLock(address, "coder").is_held()
        first.kill()
        first.wait()

    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder", store=address) as coder:
            await until(lambda: coder.seen)

    run(scene)
    assert not gateways.GatewayLock(address, "coder").is_held()


def test_agents_whose_names_look_alike_in_a_file_have_a_lock_each(tmp_path: Path) -> None:
    address = f"sqlite:{tmp_path}/room.db"
    locks = [gateways.GatewayLock(address, name) for name in ("a.b", "a_b", "a/b")]
    assert [True, True, True] == [lock.take() for lock in locks]
    assert not gateways.GatewayLock(address, "A.B").take()
    for lock in locks:
        lock.release()
    assert gateways.GatewayLock("memory:", "coder").take()


EARLIER = {"home": "4f", "signed": "gateway of coder", "at": "2026-01-01T00:00:00Z", "left": False}


@pytest.mark.parametrize("value", [{"v": 2}, EARLIER])
def test_what_others_and_earlier_versions_recorded_keeps_nobody_from_starting(
    tmp_path: Path, value: dict[str, Any]
) -> None:
    room = room_at(tmp_path)
    room.core.store.commit([Put(record=Record(kind=GATEWAY, key="coder other-program", value=value))])

    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder", lambda _: "fine") as coder:
            anna = coder.post.room.mailbox("anna")
            await anna.send("coder", "how are you?")
            assert await anna.wait(PATIENCE)

    run(scene)
    assert value in [record.value for record in room.core.store.records(GATEWAY)]
