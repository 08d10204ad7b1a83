"""Tasks and tools without nanobot: what is passed on comes back, what goes on for ever is stopped."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

import postroom
from postroom.core.inbox import received
from postroom.model.delivery import State
from postroom.nanobot.channel import auto_reply, reception

from .agents import PATIENCE, ScriptedAgent, run, scripted_agent, until, use


def seen_more_than(one: ScriptedAgent, number: int) -> bool:
    return len(one.seen) > number


def test_a_question_of_three_steps_comes_back_the_same_way(tmp_path: Path) -> None:
    """A person asks a, a asks b, b asks c; the tasks end in the opposite order."""

    async def scene() -> None:
        async with (
            scripted_agent(tmp_path, "a") as a,
            scripted_agent(tmp_path, "b") as b,
            scripted_agent(tmp_path, "c", lambda _: "42") as c,
        ):
            assert "is given to b" in await use(a, "mail_task", to="b", text="how much?")
            [request] = await until(lambda: b.seen)
            assert "is given to c" in await use(b, "mail_task", request, to="c", text="how much?")
            await b.answer(request, "I asked c")
            result = await until(lambda: b.seen[1:])
            assert ("mailbox", request.session, "a") == (result[0].channel, result[0].session, result[0].chat)
            assert "busy" == (await a.post.room.agent("b")).presence.status
            assert "your last words" in await use(b, "mail_task", result[0], to="a", text="and you?")
            await b.answer(result[0], "c says 42")
            late = await use(
                b, "mail_send", request, to="c", text="one more thing"
            )  # in a turn that is settled already
            assert "Mailed to c" in late
            more = (await c.post.box.read(late.partition("id ")[2].partition(". ")[0])).message
            assert (2, ("a", "b")) == (more.hops, more.trace)
            [reply] = await until(lambda: a.seen)
            assert ("system", "person:sofa", "person:sofa") == (reply.channel, reply.chat, reply.session)
            assert "c says 42" in reply.content and "is completed" in reply.content
            assert "idle" == (await a.post.room.agent("b")).presence.status
            passed = (await c.post.box.read(c.seen[0].metadata["mailbox"]["id"])).message
            assert (2, ("a", "b")) == (passed.hops, passed.trace)

    run(scene)


def test_a_task_that_was_passed_on_to_two_is_done_when_both_have_answered(tmp_path: Path) -> None:
    """Also where they answer before the turn that asked them is over."""

    async def scene() -> None:
        async with (
            scripted_agent(tmp_path, "a") as a,
            scripted_agent(tmp_path, "b") as b,
            scripted_agent(tmp_path, "c", lambda _: "forty"),
            scripted_agent(tmp_path, "d", lambda _: "two"),
        ):
            await use(a, "mail_task", to="b", text="how much?")
            [request] = await until(lambda: b.seen)
            for peer in ("c", "d"):
                assert "is given" in await use(b, "mail_task", request, to=peer, text="your part?")
            await until(lambda: len(b.post.turns) == 3)  # their answers wait for the session
            await b.answer(request, "I asked them")
            await until(lambda: len(b.seen) == 2)
            await b.answer(b.seen[1], "one has answered")
            await until(lambda: len(b.seen) == 3)
            assert [] == a.seen
            await b.answer(b.seen[2], "both have answered")
            [result] = await until(lambda: a.seen)
            assert "both have answered" in result.content and "is completed" in result.content

    run(scene)


def test_rounds_without_a_word_of_the_person_come_to_an_end(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "boss") as boss, scripted_agent(tmp_path, "coder", lambda _: "done"):
            assert "is given" in await use(boss, "mail_task", to="coder", text="once more")
            message = ["is given"]
            while "is given" in message[-1]:
                await until(lambda: len(boss.seen) == len(message))
                message.append(await use(boss, "mail_task", boss.seen[-1], to="coder", text="once more"))
                await boss.answer(boss.seen[-1], "and again")
            assert "ask the person first" in message[-1]
            assert auto_reply.MOST_ROUNDS == len(boss.seen)

    run(scene)


def test_sending_follows_the_auto_reply_rules(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder") as coder:
            anna = coder.post.room.mailbox("anna")
            await anna.register()
            await anna.send("coder", "hello")
            [seen] = await until(lambda: coder.seen)
            assert "your last words in this turn are mailed" in await use(
                coder, "mail_send", seen, to="anna", text="x"
            )
            assert "that is you" in await use(coder, "mail_send", to="coder", text="x")
            assert "No tool is needed" in await use(
                coder, "mail_reply", seen, id=seen.metadata["mailbox"]["id"], text="x"
            )
            assert "not begun by a task" in await use(coder, "mail_decline", seen, reason="no")
            message = [await use(coder, "mail_send", to="anna", text="x") for _ in range(61)]
            assert all("Mailed to anna" in line for line in message[:-1])
            assert "Error: to: more than 60 mails to anna within a minute" in message[-1]

    run(scene)


def test_the_other_tools(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            scripted_agent(tmp_path, "coder") as coder,
            scripted_agent(tmp_path, "boss", capabilities=["asking"]) as boss,
        ):
            assert "- boss (idle) [can: 'asking']" in await use(coder, "mail_agents")
            assert "No other agent is registered." == await use(boss, "mail_agents", capability="asking")
            assert "No tasks." == await use(boss, "mail_tasks")
            value = await use(boss, "mail_task", to="coder", text="work", subject="a thing", deadline_minutes=5)
            id = value.partition("id ")[2].partition(". ")[0]
            await until(lambda: coder.seen)
            assert f"- {id} 'a thing' given to coder: accepted" in await use(boss, "mail_tasks", id=id)
            assert "taken back" in await use(boss, "mail_cancel", id=id, reason="changed my mind")
            await until(lambda: coder.seen[1:])
            assert "/stop" == coder.seen[1].content
            assert "canceled ('changed my mind')" in await use(coder, "mail_tasks")
            await coder.answer(coder.seen[0], "too late")
            assert "Error: " in await use(boss, "mail_cancel", id=id)
            assert "Error: " in await use(boss, "mail_reply", id="nothing-of-this-name", text="x")

    run(scene)


def test_declining_later_is_a_failure_and_asking_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reception, "BEFORE_WORKING", 0.0)

    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder") as coder, scripted_agent(tmp_path, "boss") as boss:
            value = await use(boss, "mail_task", to="coder", text="work")
            id = value.partition("id ")[2].partition(". ")[0]
            [seen] = await until(lambda: coder.seen)
            task = await boss.post.box.task(id)
            async with asyncio.timeout(PATIENCE):
                while await task.refresh() != "working":
                    await asyncio.sleep(0.05)
            assert "is asked" in await use(coder, "mail_ask", seen, question="which?")
            await coder.answer(seen, "I asked")
            [question] = await until(lambda: boss.seen)
            assert "waits for your answer" in question.content and "which?" in question.content
            assert "coder asks back: the question below is about the task" in question.content
            assert "input_required" not in question.content
            listed = await use(boss, "mail_tasks")
            assert "given to coder: waiting for an answer" in listed and "; it asks 'which?'" in listed
            refused = await use(boss, "mail_cancel", id=id)
            assert "coder asks back" in refused and "mail_reply" in refused
            assert "the task goes on" in await use(boss, "mail_reply", question, id=id, text="this one")
            again = (await until(lambda: coder.seen[1:]))[0]
            assert again.session == seen.session and "this one" in again.content
            assert "do not do it" in await use(coder, "mail_decline", again, reason="I cannot")
            await coder.answer(again, "no")
            result = (await until(lambda: boss.seen[1:]))[0]
            assert "has failed" in result.content and "I cannot" in result.content

    run(scene)


def test_an_answer_during_a_notice_of_work_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reception, "BEFORE_WORKING", 0.0)
    monkeypatch.setattr(reception, "BETWEEN_STARTS", 0.001)

    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder", lambda _: "done", maxConcurrentTasks=100) as coder:
            anna = coder.post.room.mailbox("anna")
            value = [await anna.give_task("coder", f"work {number}") for number in range(20)]
            async with asyncio.timeout(PATIENCE):
                for receipt in value:
                    while not (task := await anna.task(receipt.id)).is_final:
                        await asyncio.sleep(0.01)
                    letters = [letter.task.state for letter in await task.letters() if letter.task]
                    assert ["pending", "accepted", "working", "completed"] == letters

    run(scene)


def test_a_task_that_failed_says_why_and_a_mail_is_tried_again(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder") as coder:
            anna = coder.post.room.mailbox("anna")
            task, mail = await anna.give_task("coder", "work"), await anna.send("coder", "hello")
            await until(lambda: len(coder.seen) == 2)
            for turn, seen in zip(coder.post.turns.all(), coder.seen, strict=True):
                turn.failed = True
                await coder.answer(seen, "no model today")
            found = await anna.task(task.id)
            assert ("failed", "no model today") == (found.state, found.reason)
            delivery = received(coder.post.core, "coder", mail.id).delivery
            assert (State.UNREAD, 1, "no model today") == (delivery.state, delivery.attempts, delivery.reason)
            assert delivery.due_at is not None

    run(scene)


def test_a_result_that_could_not_be_reported_is_reported_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often: who did the work hears nothing of it."""
    monkeypatch.setattr(reception, "LONGEST_PAUSE", 0.1)
    often = 8  # more than a letter is tried

    async def scene() -> None:
        async with (
            scripted_agent(tmp_path, "coder", lambda _: "done") as coder,
            scripted_agent(tmp_path, "boss") as boss,
        ):
            await use(boss, "mail_task", to="coder", text="work")
            letter = ""
            for number in range(often):
                await until(partial(seen_more_than, boss, number))
                [turn] = boss.post.turns.all()
                letter, turn.failed = turn.id, True
                await boss.answer(boss.seen[-1], "no model today")
                assert (
                    []
                    == boss.post.turns.reporting_in("person:sofa")
                    == boss.post.turns.reporting_to("person", "sofa")
                )
            await until(partial(seen_more_than, boss, often))
            assert "done" in boss.seen[-1].content and boss.seen[0].session == boss.seen[-1].session
            await boss.answer(boss.seen[-1], "told")
            delivery = received(boss.post.core, "boss", letter).delivery
            assert (State.DONE, ()) == (delivery.state, delivery.history)
            assert 1 == len(coder.seen) and [] == await coder.post.box.check(peek=True, unread_only=False)

    run(scene)


def test_what_cannot_be_reported_for_days_is_left_to_mail_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reception, "MOST_REPORTS", 0)

    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder", lambda _: "done"), scripted_agent(tmp_path, "boss") as boss:
            await use(boss, "mail_task", to="coder", text="work")
            [seen] = await until(lambda: boss.seen)
            await boss.reception.stop_turn(letter := seen.metadata["mailbox"]["id"])
            assert State.DONE is received(boss.post.core, "boss", letter).delivery.state
            assert 0 == len(boss.post.turns) and "mail_tasks shows it" in boss.log.lines[-1]

    run(scene)


def test_a_task_beyond_its_abilities_or_its_deadline_is_rejected_with_the_reason(tmp_path: Path) -> None:
    async def scene() -> None:
        room = postroom.open(f"files:{tmp_path / 'mailboxes'}?layout=nanobot")
        anna = room.mailbox("anna")
        late = anna.give_task("coder", "be quick", deadline=0.01)
        java = anna.give_task("coder", "write Java", metadata={"required_capabilities": ["java"]})
        python = anna.give_task("coder", "write Python", metadata={"required_capabilities": ["python"]})
        async with scripted_agent(tmp_path, "coder", lambda _: "done", capabilities=["python"]) as coder:
            await until(lambda: anna.task(python.id).state == "completed")
            assert ("rejected", "deadline") == (anna.task(late.id).state, anna.task(late.id).reason)
            assert ("rejected", "lacks java") == (anna.task(java.id).state, anna.task(java.id).reason)
            assert 1 == len(coder.seen)

    run(scene)
