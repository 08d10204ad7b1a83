"""An agent has one gateway: a second one is refused, and a successor takes its place. Without nanobot."""

from __future__ import annotations

import asyncio
import itertools
from datetime import timedelta
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

OTHER = "gateway of coder [4026531836@elsewhere 7] (process 1)"  # in another container: nothing is known of it


@pytest.fixture(autouse=True)
def _each_signs_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here they are one process, so each signature gets a number behind it."""
    numbers, real, look = itertools.count(), gateways.signature, gateways._signed_here
    monkeypatch.setattr(gateways, "signature", lambda agent: f"{real(agent)} {next(numbers)}")
    monkeypatch.setattr(gateways, "_signed_here", lambda holder: look(holder.rpartition(") ")[0] + ")"))


def room_at(folder: Path) -> postroom.Room:
    return postroom.open(f"files:{folder / 'mailboxes'}?layout=nanobot")


def dead_signature() -> str:
    ours = gateways.signature("coder")
    pid = ours.partition("(process ")[2].partition(")")[0]
    return ours.replace(f"(process {pid})", "(process 4194999)")


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


def test_a_gateway_that_looks_at_no_record_shares_the_mail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug."""
    monkeypatch.setattr(gateways, "running", lambda *_, **__: None)

    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder") as coder:
            second = asyncio.create_task(Reception(coder.post, coder, log := Log(), tmp_path).run())
            await until(lambda: log.lines)
            second.cancel()
            await asyncio.wait([second])

    run(scene)


@pytest.mark.parametrize("how", ["left", "dead", "old"])
def test_a_successor_takes_the_place_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    signed = dead_signature() if how == "dead" else OTHER
    if how == "old":
        monkeypatch.setattr(gateways, "ALIVE", timedelta(0))
    gateways.sign(room_at(tmp_path).core, "coder", signed, left=how == "left")

    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder"):
            pass
        assert "offline" == room_at(tmp_path).agent("coder").presence.status

    run(scene)


def test_one_in_another_container_is_awaited_until_it_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateways, "ALIVE", timedelta(seconds=0.5))
    monkeypatch.setattr(gateways, "LOOK", 0.05)
    gateways.sign(room_at(tmp_path).core, "coder", OTHER)

    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder"):
            pass

    run(scene)


def test_one_in_another_container_that_signs_again_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateways, "LOOK", 0.05)
    core = room_at(tmp_path).core
    gateways.sign(core, "coder", OTHER)

    async def scene() -> None:
        async with scripted_agent(tmp_path, "anna") as anna:
            coder = anna.post.room.room
            post = type("Post", (), {"room": anna.post.room, "core": coder.core, "name": "coder"})
            arriving = asyncio.create_task(gateways.OnlyGateway(post, "ours").arrive())  # type: ignore[arg-type]
            while not arriving.done():
                await asyncio.to_thread(gateways.sign, core, "coder", OTHER)
                await asyncio.sleep(0.02)
            with pytest.raises(NotAllowed, match="is running already"):
                await arriving

    run(scene)


def test_the_record_is_renewed_while_a_gateway_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateways, "BETWEEN_RECORDS", 0.0)

    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder") as coder:
            before = gateways.running(coder.post.core, "coder")
            assert before is not None
            await until(lambda: gateways.running(coder.post.core, "coder") != before)

    run(scene)


EARLIER = {"home": "4f", "signed": OTHER, "at": "2026-01-01T00:00:00Z", "left": False}


@pytest.mark.parametrize("value", [{"v": 2}, {"home": "x", "signed": "y", "at": "2026-01-01T00:00:00"}, EARLIER])
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
