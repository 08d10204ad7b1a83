"""Several gateways of one agent: what was asked in a session comes back to whoever has it. Without nanobot."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from msgspec.structs import replace

import postroom
from postroom.model.delivery import State
from postroom.model.record import GATEWAY, Record
from postroom.nanobot.channel import gateways, reception
from postroom.nanobot.channel.bus import Inbound
from postroom.store.protocol import Put

from .agents import PATIENCE, ScriptedAgent, run, scripted_agent, state_of, until, use

pytestmark = pytest.mark.mechanism  # of several gateways of one nanobot agent

SOME = 6  # so many that luck does not do


@pytest.fixture(autouse=True)
def _each_signs_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here they are one process."""
    numbers, real = itertools.count(), gateways.signature
    monkeypatch.setattr(gateways, "signature", lambda agent: f"{real(agent)} {next(numbers)}")


@asynccontextmanager
async def two(folder: Path, agent: str, **section: Any) -> AsyncIterator[tuple[ScriptedAgent, ScriptedAgent]]:
    async with (
        scripted_agent(folder, agent, home="first", **section) as first,
        scripted_agent(folder, agent, home="second", **section) as second,
    ):
        yield first, second


def results_in(seen: list[Inbound]) -> list[str]:
    return [inbound.session for inbound in seen]


@pytest.mark.parametrize("tool", ["mail_task", "mail_send"])
def test_results_and_answers_are_reported_where_they_were_asked_for(tmp_path: Path, tool: str) -> None:
    async def scene() -> None:
        async with two(tmp_path, "boss") as (first, second), scripted_agent(tmp_path, "coder", lambda _: "done"):
            for number in range(SOME):
                for at in (first, second):
                    assert "id " in await use(at, tool, to="coder", text=f"{at.post.home} {number}")
            await until(lambda: len(first.seen) + len(second.seen) == 2 * SOME)
            assert ["person:sofa"] * SOME == results_in(first.seen) == results_in(second.seen)

    run(scene)


def test_what_waits_for_its_gateway_holds_up_no_other_caller(tmp_path: Path) -> None:
    """The first one is away: its results wait for it, and the second goes on without a pause."""

    async def scene() -> None:
        async with scripted_agent(tmp_path, "boss", lambda _: "hello", home="second", pollInterval=60) as second:
            async with scripted_agent(tmp_path, "boss", home="first") as first:
                coder = first.post.room.mailbox("coder")
                await coder.register()
                await use(first, "mail_task", to="coder", text="work")
            letter = await coder_of(second).claim(timeout=PATIENCE)
            assert letter is not None
            task = await coder_of(second).task(letter)
            await task.accept()
            await task.complete("the result")
            await until(lambda: any("is left to the gateway" in line for line in second.log.lines))
            async with asyncio.timeout(reception.LEASE / 4):  # before the next poll
                await coder_of(second).send("boss", "and now?", priority="high")
                assert await coder_of(second).wait(PATIENCE, kinds="message")
            assert ["mailbox"] == [inbound.channel for inbound in second.seen]
            async with scripted_agent(tmp_path, "boss", home="first") as first:
                [inbound] = await until(lambda: first.seen)
                assert "the result" in inbound.content and "person:sofa" == inbound.session
                await first.answer(inbound, "told")
            await second.reception._gateways.look_again()
            assert not second.reception._gateways.left

    run(scene)


def coder_of(at: ScriptedAgent) -> Any:
    return at.post.room.mailbox("coder")


@pytest.mark.parametrize("reached", [True, False])
def test_the_results_of_a_gateway_that_does_not_come_back_are_reported_by_who_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reached: bool
) -> None:
    monkeypatch.setattr(reception, "BETWEEN_LOOKS", 0.1)

    async def reaches(_: str) -> bool:
        return reached

    async def scene() -> None:
        async with scripted_agent(tmp_path, "boss", home="first") as first:
            coder = first.post.room.mailbox("coder")
            await coder.register()
            await use(first, "mail_task", to="coder", text="work")
        async with scripted_agent(tmp_path, "boss", home="second") as second:
            monkeypatch.setattr(second, "reaches", reaches)
            letter = await coder_of(second).claim(timeout=PATIENCE)
            task = await coder_of(second).task(letter)
            await task.accept()
            await task.complete("the result")
            await until(lambda: second.reception._gateways.left)
            monkeypatch.setattr(gateways, "AWAITED", timedelta(0))
            if reached:
                [inbound] = await until(lambda: second.seen)
                assert "the result" in inbound.content
            else:
                await asyncio.sleep(0.5)
                assert [] == second.seen
                [waiting] = second.reception._gateways.left
                assert State.UNREAD is state_of(second, waiting)

    run(scene)


def test_the_agent_is_there_until_its_last_gateway_leaves(tmp_path: Path) -> None:
    async def scene() -> None:
        room = postroom.open(f"files:{tmp_path / 'mailboxes'}?layout=nanobot")
        async with scripted_agent(tmp_path, "coder", home="first", pollInterval=60):
            async with scripted_agent(tmp_path, "coder", home="second", pollInterval=60):
                pass
            assert "idle" == room.agent("coder").presence.status
        assert "offline" == room.agent("coder").presence.status

    run(scene)


def test_a_gateway_that_died_keeps_nobody_from_leaving(tmp_path: Path) -> None:
    async def scene() -> None:
        room = postroom.open(f"files:{tmp_path / 'mailboxes'}?layout=nanobot")
        ours = gateways.signature("coder").rpartition(" ")[0]
        dead = ours.replace(ours.rpartition(" ")[2], "4194999)")
        gateways.sign(room.core, "coder", "first", dead)
        async with scripted_agent(tmp_path, "coder", home="second"):
            pass
        assert "offline" == room.agent("coder").presence.status

    run(scene)


def test_a_task_is_taken_back_and_a_question_answered_where_it_is_worked_on(tmp_path: Path) -> None:
    async def scene() -> None:
        async with two(tmp_path, "coder", maxConcurrentTasks=99) as both:
            anna = both[0].post.room.mailbox("anna")
            value = [(await anna.give_task("coder", f"work {number}")).id for number in range(SOME)]
            request = [(await anna.give_task("coder", f"riddle {number}")).id for number in range(SOME)]
            await until(lambda: sum(len(at.seen) for at in both) == 2 * SOME)
            sessions = [{inbound.session for inbound in at.seen} for at in both]
            for at in both:
                for inbound in [one for one in at.seen if "riddle" in one.content]:
                    await use(at, "mail_ask", inbound, question="which?")
                    await at.answer(inbound, "")
            for id in value:
                await (await anna.task(id)).cancel("no")
            for id in request:
                await (await anna.task(id)).answer("this one")
            await until(lambda: sum(len(at.seen) for at in both) == 4 * SOME)
            for at, own in zip(both, sessions, strict=True):
                assert {inbound.session for inbound in at.seen} == own
            assert SOME == sum(inbound.content == "/stop" for at in both for inbound in at.seen)

    run(scene)


def test_a_thread_goes_on_where_it_began_as_long_as_it_has_readers(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder", lambda _: "fine", home="second") as second:
            peers = [second.post.room.mailbox(f"peer{number}") for number in range(2 * SOME)]
            async with scripted_agent(tmp_path, "coder", lambda _: "fine", home="first") as first:
                begun = {peer: (await peer.send("coder", "hello")).id for peer in peers}
                for peer in peers:
                    await answer_to(peer)
                for _ in range(3):
                    for peer, thread in begun.items():
                        await peer.send("coder", "more", in_reply_to=thread)
                for peer in peers * 3:
                    await answer_to(peer)
                assert 4 * len(peers) == len(first.seen) + len(second.seen)
                sessions = [{inbound.session for inbound in at.seen} for at in (first, second)]
                assert not sessions[0] & sessions[1]
            for peer, thread in begun.items():
                await peer.send("coder", "still there?", in_reply_to=thread)
                await answer_to(peer)

    run(scene)


async def answer_to(peer: Any) -> None:
    answer = await peer.claim(timeout=PATIENCE)
    assert answer is not None and "fine" == answer.text
    await answer.ack()


def test_a_letter_that_two_gateways_left_to_each_other_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway that holds a thread may change while a letter of it waits."""
    monkeypatch.setattr(reception, "BETWEEN_LOOKS", 3600.0)

    async def scene() -> None:
        async with two(tmp_path, "coder") as both:
            anna = both[0].post.room.mailbox("anna")
            first = await anna.send("coder", "one")
            await until(lambda: both[0].seen or both[1].seen)
            has, other = both if both[0].seen else both[::-1]
            behind = await anna.send("coder", "two", in_reply_to=first.id)
            turn = await until(lambda: has.post.turns.get(behind.id))
            for at, home in ((has, other.post.home), (other, has.post.home)):
                at.reception._gateways._left[behind.id] = replace(turn.intent, home=home)
            await asyncio.sleep(0.5)  # until both have begun to claim anew
            has.post.turns.end(turn)
            await turn.work.release()
            await asyncio.sleep(0.5)
            assert State.UNREAD is state_of(has, behind.id)
            for at in both:
                await at.reception._gateways.look_again()
            await until(lambda: has.post.turns.get(behind.id))

    run(scene)


def test_a_home_is_known_by_what_is_kept_there(tmp_path: Path) -> None:
    first = gateways.home_at(tmp_path)
    assert first and first == gateways.home_at(tmp_path)
    moved = tmp_path.rename(tmp_path.with_name("elsewhere"))
    assert first == gateways.home_at(moved)
    assert [gateways.FILE] == [file.name for file in moved.iterdir()]
    (moved / "other").mkdir()
    assert first != gateways.home_at(moved / "other")
    assert str(moved / "none") == gateways.home_at(
        moved / "none"
    )  # where nothing can be kept, the place has to do


def test_silent_gateways_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = postroom.open(f"files:{tmp_path / 'mailboxes'}?layout=nanobot")
    gateways.sign(room.core, "coder", "first", "a gateway")
    gateways.forget_old(room.core, "coder")
    assert gateways.is_awaited(room.core, "coder", "first")
    monkeypatch.setattr(gateways, "KEPT", timedelta(0))
    gateways.forget_old(room.core, "coder")
    assert not gateways.is_awaited(room.core, "coder", "first")


def test_signs_are_renewed_while_a_gateway_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateways, "BETWEEN_SIGNS", 0.0)

    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder", home="first") as coder:
            core, before = coder.post.core, gateways._gateways(coder.post.core, "coder")
            await until(lambda: gateways._gateways(core, "coder") != before)

    run(scene)


@pytest.mark.parametrize("value", [{"v": 2}, {"home": "x", "signed": "y", "at": "2026-01-01T00:00:00"}])
def test_a_sign_that_cannot_be_read_keeps_nobody_from_starting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, value: dict[str, Any]
) -> None:
    room = postroom.open(f"files:{tmp_path / 'mailboxes'}?layout=nanobot")
    strange = Record(kind=GATEWAY, key="coder other-program", value=value)
    room.core.store.commit([Put(record=strange)])

    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder", lambda _: "fine", home="first") as coder:
            anna = coder.post.room.mailbox("anna")
            await anna.send("coder", "how are you?")
            assert await anna.wait(PATIENCE)
        assert "offline" == room.agent("coder").presence.status

    run(scene)
    assert 1 == caplog.text.count("'coder other-program', cannot be read and is ignored")
    assert value in [record.value for record in room.core.store.records(GATEWAY)]


def test_gateways_that_start_at_once_in_one_folder_agree_on_their_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both_have_written = Barrier(2, timeout=PATIENCE)

    def link_together(aside: Path, file: Path) -> None:
        both_have_written.wait()
        link(aside, file)

    link = os.link
    monkeypatch.setattr(os, "link", link_together)
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(gateways.home_at, [tmp_path, tmp_path]))
    assert found[0] == found[1] != str(tmp_path)
    assert [gateways.FILE] == [file.name for file in tmp_path.iterdir()]
