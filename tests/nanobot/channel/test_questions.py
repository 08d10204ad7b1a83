"""Questions about tasks: how often one may be asked and answered, and until when. Without nanobot."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from postroom.aio import AsyncTask
from postroom.errors import IllegalMove
from postroom.nanobot.channel import reception, settlement
from postroom.nanobot.channel.auto_reply import MOST_ROUNDS
from postroom.nanobot.channel.bus import Inbound

from .agents import PATIENCE, ScriptedAgent, run, scripted_agent, until, use


async def given_to_anna(boss: ScriptedAgent) -> AsyncTask:
    """A task of boss's person that anna, who asks for more than she needs, works on."""
    anna = boss.post.room.mailbox("anna")
    await anna.register()
    await use(boss, "mail_task", to="anna", text="write a sort")
    letter = await anna.claim(timeout=PATIENCE)
    assert letter is not None
    task = await anna.task(letter)
    await task.accept()
    await task.start()
    return task


async def asked_by(task: AsyncTask, boss: ScriptedAgent) -> Inbound:
    """Her question, as boss's model sees it."""
    await task.refresh()
    await task.ask("which language?")
    await until(lambda: boss.seen)
    return boss.seen.pop()


def test_questions_are_answered_for_so_many_rounds_until_the_person_speaks(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "boss") as boss:
            task, message = await given_to_anna(boss), []
            for _ in range(MOST_ROUNDS):
                question = await asked_by(task, boss)
                message.append(await use(boss, "mail_reply", question, id=task.id, text="Rust"))
                await boss.answer(question, "answered")
            assert all("the task goes on" in line for line in message[:-1])
            assert message[-1].startswith("Error:") and "ask the person first" in message[-1]
            assert "the task goes on" in await use(boss, "mail_reply", id=task.id, text="the person says Rust")
            question = await asked_by(task, boss)
            assert "the task goes on" in await use(boss, "mail_reply", question, id=task.id, text="Rust")

    run(scene)


def test_who_asks_without_waiting_for_an_answer_is_not_listened_to_for_ever(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "boss", lambda _: "I do not know") as boss:
            task = await given_to_anna(boss)
            for number in range(MOST_ROUNDS + 5):
                await task.ask(f"question {number}?")
                await until(lambda: not len(boss.post.turns) and not inbox_of(boss))
                await task.start()
            assert MOST_ROUNDS == len(boss.seen)
            anna = boss.post.room.mailbox("anna")
            bounce = await anna.claim(timeout=PATIENCE)
            assert bounce is not None and "more than 10 questions" in bounce.text
            await task.ask("still there?")
            assert "the task goes on" in await use(boss, "mail_reply", id=task.id, text="yes, in Rust")
            await task.refresh()
            await task.ask("and now?")
            await until(lambda: len(boss.seen) == MOST_ROUNDS + 1)

    run(scene)


def inbox_of(at: ScriptedAgent) -> list[Any]:
    return at.post.mailbox.check(peek=True, unread_only=False)


def test_answers_to_questions_keep_the_pace(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "boss", mailsPerMinute=20) as boss:
            task = await given_to_anna(boss)
            await boss.answer(await asked_by(task, boss), "the person was asked")
            for _ in range(19):
                await use(boss, "mail_send", to="anna", text="x")
            message = await use(boss, "mail_reply", id=task.id, text="Rust")
            assert "Error: to: more than 20 mails to anna within a minute" in message

    run(scene)


def test_the_giver_of_a_task_is_asked_so_many_times_and_not_again(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder") as coder:
            anna = coder.post.room.mailbox("anna")
            await anna.register()
            sent = await anna.give_task("coder", "write a sort")
            for _ in range(MOST_ROUNDS):
                await until(lambda: coder.seen)
                seen = coder.seen.pop()
                assert "anna is asked" in await use(coder, "mail_ask", seen, question="which language?")
                await coder.answer(seen, "")
                await (await anna.task(sent.id)).answer("Rust")
            await until(lambda: coder.seen)
            message = await use(coder, "mail_ask", coder.seen.pop(), question="which language?")
            assert message.startswith("Error: anna was asked 10 times") and "mail_decline" in message

    run(scene)


def test_a_far_deadline_of_a_task_leaves_a_question_open_for_a_day_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reception, "BETWEEN_LOOKS", 0.1)

    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder") as coder:
            anna = coder.post.room.mailbox("anna")
            sent = await anna.give_task("coder", "work", deadline=timedelta(days=36_500).total_seconds())
            [seen] = await until(lambda: coder.seen)
            message = await use(coder, "mail_ask", seen, question="which?")
            await coder.answer(seen, "")
            asked_at = coder.post.mailbox.task(sent.id).standing.moved_at
            assert f"has until {asked_at + timedelta(days=1):%Y-%m-%d %H:%M} UTC" in message
            monkeypatch.setattr(settlement, "ANSWERED_WITHIN", timedelta(0))
            await until(lambda: coder.post.mailbox.task(sent.id).is_final)
            task = await anna.task(sent.id)
            assert "failed" == task.state and str(task.reason).startswith("a day is over")

    run(scene)


@pytest.mark.parametrize(("seconds", "text"), [(1.0, "the task was due at "), (100.0, "the task is due at ")])
def test_a_question_that_cannot_be_answered_in_time_is_not_asked(
    tmp_path: Path, seconds: float, text: str
) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder") as coder:
            anna = coder.post.room.mailbox("anna")
            sent = await anna.give_task("coder", "work", deadline=seconds)
            [seen] = await until(lambda: coder.seen)
            await asyncio.sleep(1.1)
            message = await use(coder, "mail_ask", seen, question="which?")
            assert message.startswith(f"Error: question: {text}") and "mail_decline" in message
            await coder.answer(seen, "done as I saw fit")
            assert "completed" == (await anna.task(sent.id)).state

    run(scene)


def test_a_crash_leaves_no_task_at_work_whose_question_was_not_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the commit after which it dies: the task waits still, or has failed."""

    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder") as coder:
            anna = coder.post.room.mailbox("anna")
            await anna.register()
            sent = await anna.give_task("coder", "work")
            [seen] = await until(lambda: coder.seen)
            await use(coder, "mail_ask", seen, question="which?")
            await coder.answer(seen, "")
            store, commit = coder.post.core.store, coder.post.core.store.commit
            states: list[str] = []

            def commit_and_look(*args: Any, **options: Any) -> Any:
                done = commit(*args, **options)
                states.append(coder.post.mailbox.task(sent.id).state)
                return done

            monkeypatch.setattr(store, "commit", commit_and_look)
            await settlement.fail_unanswered(coder.post, await coder.post.box.task(sent.id))
            assert "failed" == states[-1] and "working" not in states
            results = [letter.task.state for letter in await anna.thread(sent.id) if letter.task is not None]
            assert ["working", "failed"] == results[-2:]
            with pytest.raises(IllegalMove):
                await settlement.fail_unanswered(coder.post, await coder.post.box.task(sent.id))

    run(scene)
