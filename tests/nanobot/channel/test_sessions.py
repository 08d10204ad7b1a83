"""Who gets into which session, how often, and how an exchange ends: without nanobot."""

from __future__ import annotations

import asyncio
from pathlib import Path

import postroom
from postroom.aio import AsyncLetter, AsyncMailbox
from postroom.core.deliveries import notice
from postroom.model.task import TaskState
from postroom.nanobot.channel.auto_reply import MOST_ROUNDS
from postroom.nanobot.channel.intent import LONGEST_SESSION, session_of

from .agents import PATIENCE, ScriptedAgent, run, scripted_agent, until, use


async def text_seen(boss: ScriptedAgent, text: str) -> str:
    """The session that got this text."""
    seen = await until(lambda: [inbound for inbound in boss.seen if text in inbound.content])
    await boss.answer(seen[0], "told")
    return str(seen[0].session)


async def ask_with(boss: ScriptedAgent, tool: str) -> tuple[AsyncMailbox, AsyncLetter]:
    """Anna, and what boss's model asked of her."""
    anna = boss.post.room.mailbox("anna")
    await anna.register()
    await use(boss, tool, to="anna", text="how are you?")
    letter = await anna.wait(PATIENCE)
    assert letter is not None
    return anna, letter


def test_each_who_was_asked_gets_into_the_persons_session_once(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "boss") as boss:
            anna, letter = await ask_with(boss, "mail_send")
            await letter.reply("fine")
            assert "person:sofa" == await text_seen(boss, "fine")
            await anna.send("boss", "obey", in_reply_to=letter.id)
            assert (await text_seen(boss, "obey")).startswith("mailbox:anna:")
            with postroom.open(f"files:{tmp_path}/mailboxes?layout=nanobot") as room:
                for number in range(2):
                    words = f"notice {number}"
                    about = {"in_reply_to": letter.id, "thread_id": letter.id}
                    now = room.core.now().wall
                    bounce = notice(room.core, "bounce", "boss", "Undeliverable", words, {}, now, **about)
                    room.core.store.commit([bounce])
                    session = await text_seen(boss, words)
                    assert (number == 0) == (session == "person:sofa")

    run(scene)


def test_an_answer_that_was_not_reported_before_a_crash_is_reported_after_it(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "boss") as boss:
            _, letter = await ask_with(boss, "mail_send")
            await letter.reply("fine")
            await until(lambda: boss.seen)
        async with scripted_agent(tmp_path, "boss") as boss:
            assert "person:sofa" == await text_seen(boss, "fine")

    run(scene)


def test_a_task_that_is_over_lets_nobody_in(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "boss") as boss:
            anna, letter = await ask_with(boss, "mail_task")
            task = await anna.task(letter)
            await task.accept()
            await task.complete("the result")
            assert "person:sofa" == await text_seen(boss, "the result")
            await anna.send("boss", "obey", in_reply_to=task.id)
            assert (await text_seen(boss, "obey")).startswith("mailbox:anna:")

    run(scene)


def test_answers_by_a_tool_end_after_the_same_rounds(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            scripted_agent(tmp_path, "boss") as boss,
            scripted_agent(tmp_path, "coder", lambda _: "and how are you?") as coder,
        ):
            first = await coder.post.box.send("boss", "hello")
            [seen] = await until(lambda: boss.seen)
            await boss.answer(seen, "")
            boss.seen.clear()
            message = await use(boss, "mail_reply", id=first.id, text="how are you?")
            for _ in range(MOST_ROUNDS):
                assert "is mailed" in message
                [answer] = await until(lambda: boss.seen)
                boss.seen.clear()
                message = await use(boss, "mail_reply", answer, id=first.id, text="how are you?")
            assert message.startswith("Error:") and "without a word of the person" in message

    run(scene)


def test_the_peer_of_a_turn_is_not_written_to_by_a_tool(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "boss") as boss:
            anna = boss.post.room.mailbox("anna")
            old = await anna.send("boss", "one")
            await text_seen(boss, "one")
            await anna.send("boss", "two")
            seen = (await until(lambda: boss.seen[1:]))[0]
            assert "your last words in this turn" in await use(boss, "mail_reply", seen, id=old.id, text="x")

    run(scene)


def test_a_task_that_waits_is_taken_back_and_the_running_turn_goes_on(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder") as coder:
            anna = coder.post.room.mailbox("anna")
            first = await anna.give_task("coder", "one")
            [seen] = await until(lambda: coder.seen)
            second = await anna.give_task("coder", "two", in_reply_to=first.id)
            await until(lambda: len(coder.post.turns) == 2)
            await (await anna.task(second.id)).cancel("no")
            await until(lambda: len(coder.post.turns) == 1)
            await asyncio.sleep(0.1)
            assert [seen] == coder.seen
            await coder.answer(seen, "done")
            assert TaskState.COMPLETED is coder.post.mailbox.task(first.id).state

    run(scene)


def test_sessions_of_two_peers_are_never_one_file() -> None:
    """Versions 0.2.2 and 0.3.0 write ":" as "_" in the names of files."""
    pairs = [("coder_2", "t1"), ("coder", "2_t1"), ("coder", "2:t1"), ("Coder_2", "t1")]
    assert len(pairs) == len({session_of(*pair).replace(":", "_").lower() for pair in pairs})
    assert session_of("coder", "t1") == session_of("coder", "t1")


def test_a_session_is_short_enough_for_a_file_name_and_one_of_its_own(tmp_path: Path) -> None:
    long = "n" * 128
    assert session_of("anna", "t1").startswith("mailbox:anna:t1-")
    sessions = {session_of(long, f"{long}-{number}") for number in range(3)}
    assert 3 == len(sessions) and all(len(session) <= LONGEST_SESSION for session in sessions)

    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder") as coder:
            await coder.post.room.mailbox(long).send("coder", "hello")
            [seen] = await until(lambda: coder.seen)
            assert len(seen.session) <= LONGEST_SESSION

    run(scene)
