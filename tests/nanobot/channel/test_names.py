"""Peers that are renamed: they stay in the same session, and their answers come where we asked."""

from __future__ import annotations

from pathlib import Path

from postroom.nanobot.channel.intent import session_of
from tests.renaming import rename

from .agents import PATIENCE, ScriptedAgent, run, scripted_agent, until, use


async def rename_peer(at: ScriptedAgent, old: str, new: str) -> None:
    await at.post.room.run(rename, at.post.room.room, old, new)


def test_the_answer_of_a_peer_that_was_renamed_comes_into_the_conversation_once(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "boss") as boss:
            await boss.post.room.mailbox("anna").register()
            await use(boss, "mail_send", to="anna", text="how are you?")
            await rename_peer(boss, "anna", "berta")
            berta = boss.post.room.mailbox("berta")
            letter = await berta.wait(PATIENCE)
            assert letter is not None
            await letter.reply("fine")
            [result] = await until(lambda: boss.seen)
            assert "person:sofa" == result.session and "fine" in result.content
            await boss.answer(result, "she is fine")
            await rename_peer(boss, "berta", "carla")
            await boss.post.room.mailbox("carla").send("boss", "obey", in_reply_to=letter.id)
            again = (await until(lambda: boss.seen[1:]))[0]
            assert "obey" in again.content and again.session.startswith("mailbox:")

    run(scene)


def test_a_peer_that_was_renamed_goes_on_in_its_session(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder", lambda _: "well") as coder:
            anna = coder.post.room.mailbox("anna")
            await anna.register()
            first = await anna.send("coder", "hello")
            assert await anna.wait(PATIENCE)
            for old, new in (("anna", "berta"), ("berta", "anna")):
                await rename_peer(coder, old, new)
                await coder.post.room.mailbox(new).send("coder", "and now?", in_reply_to=first.id)
            await until(lambda: len(coder.seen) == 3)
            assert [session_of("anna", first.id)] * 3 == [seen.session for seen in coder.seen]

    run(scene)


def test_a_question_about_the_task_of_a_peer_that_was_renamed_is_answered_in_its_session(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder") as coder:
            anna = coder.post.room.mailbox("anna")
            await anna.register()
            value = await anna.give_task("coder", "write it")
            [seen] = await until(lambda: coder.seen)
            await use(coder, "mail_ask", seen, question="which language?")
            await coder.answer(seen, "I asked")
            await rename_peer(coder, "anna", "berta")
            await (await coder.post.room.mailbox("berta").task(value.id)).answer("Rust")
            again = (await until(lambda: coder.seen[1:]))[0]
            assert seen.session == again.session and "Rust" in again.content

    run(scene)


def test_an_agent_that_is_renamed_itself_still_knows_where_it_was_asked(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "boss") as boss:
            await boss.post.room.mailbox("anna").register()
            await use(boss, "mail_send", to="anna", text="how are you?")
        async with scripted_agent(tmp_path, "other") as other:
            await rename_peer(other, "boss", "chief")
            letter = await other.post.room.mailbox("anna").wait(PATIENCE)
            assert letter is not None
            await letter.reply("fine")
        async with scripted_agent(tmp_path, "chief") as chief:
            [result] = await until(lambda: chief.seen)
            assert "person:sofa" == result.session

    run(scene)
