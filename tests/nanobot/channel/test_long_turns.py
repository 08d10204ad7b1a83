"""Turns that outlive their lease, or never end. Without nanobot."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from postroom.model.delivery import State
from postroom.nanobot.channel import reception
from postroom.nanobot.channel.turns import ModelTurn

from .agents import PATIENCE, ScriptedAgent, run, scripted_agent, state_of, until, use


async def lose_lease(at: ScriptedAgent, letter: str) -> None:
    """As if the machine had slept for longer than it. Then the letter is claimed again."""
    turn = at.post.turns.get(letter)
    assert turn is not None and turn.work.delivery.lease is not None
    before = turn.work
    held = await at.post.box.held(letter, turn.work.delivery.lease.token)
    await held.release()
    await until(lambda: (now := at.post.turns.get(letter)) is not None and now.work is not before)


def test_a_turn_whose_lease_ended_goes_on_and_its_thread_too(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder", pollInterval=60) as coder:
            anna = coder.post.room.mailbox("anna")
            sent = await anna.send("coder", "one")
            [seen] = await until(lambda: coder.seen)
            await lose_lease(coder, sent.id)
            await coder.answer(seen, "the answer")
            answer = await anna.wait(PATIENCE)
            assert answer is not None and "the answer" == answer.text
            assert State.DONE is state_of(coder, sent.id) and 1 == len(coder.seen)
            await anna.send("coder", "two", in_reply_to=sent.id)
            await until(lambda: len(coder.seen) == 2)

    run(scene)


@pytest.mark.parametrize("says", [True, False])
def test_a_result_counts_as_reported_by_the_clock_only_where_nanobot_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: bool
) -> None:
    """The person's session may be at something else for long, and break before the result is told."""
    monkeypatch.setattr(reception, "LONGEST_REPORT", 0.1)

    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder", lambda _: "done"), scripted_agent(tmp_path, "boss") as boss:
            boss.reports_turn_ends = says
            await use(boss, "mail_task", to="coder", text="work")
            [seen] = await until(lambda: boss.seen)
            letter = seen.metadata["mailbox"]["id"]
            if says:
                await asyncio.sleep(1.0)
                assert State.CLAIMED is state_of(boss, letter)
                await boss.answer(seen, "told")
            await until(lambda: state_of(boss, letter) is State.DONE)
            assert 1 == len(boss.seen)

    run(scene)


def test_a_turn_that_never_ends_is_given_up_and_its_sender_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder") as coder, scripted_agent(tmp_path, "boss") as boss:
            anna = coder.post.room.mailbox("anna")
            await anna.register()
            sent = await anna.send("coder", "one")
            behind = await anna.send("coder", "two", in_reply_to=sent.id)
            await use(boss, "mail_task", to="coder", text="work")
            await until(lambda: len(coder.post.turns) == 3 and len(coder.seen) == 2)
            monkeypatch.setattr(reception, "LONGEST_TURN", 0.1)
            await until(lambda: state_of(coder, sent.id) is State.DEAD)
            [result] = await until(lambda: boss.seen)
            monkeypatch.setattr(reception, "LONGEST_TURN", 3600.0)
            assert "has failed" in result.content and "its turn took longer than" in result.content
            bounce = await anna.wait(PATIENCE)
            assert bounce is not None and "its turn took longer than" in bounce.text
            session = coder.seen[0].session
            handed = await until(lambda: [one for one in coder.seen if one.session == session][2:])
            assert (behind.id, "/stop") == (handed[0].metadata["mailbox"]["id"], coder.seen[2].content)

    run(scene)


def test_a_turn_gets_older_from_when_it_is_handed_over(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder") as coder:
            await coder.post.room.mailbox("anna").send("coder", "one")
            await until(lambda: coder.seen)
            [turn] = coder.post.turns.all()
            assert turn.began is not None and 5.0 == turn.age(turn.began + 5.0)
            assert 0.0 == ModelTurn(turn.work, turn.intent).age(turn.began)

    run(scene)


def test_a_result_that_is_never_reported_is_reported_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder", lambda _: "done"), scripted_agent(tmp_path, "boss") as boss:
            await use(boss, "mail_task", to="coder", text="work")
            await until(lambda: boss.seen)
            monkeypatch.setattr(reception, "LONGEST_TURN", 0.1)
            await until(lambda: len(boss.seen) > 1)
            assert boss.seen[0].session == boss.seen[1].session and "done" in boss.seen[1].content

    run(scene)
