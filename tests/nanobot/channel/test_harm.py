"""Letters made to do harm, and words that cannot be mailed: each is its own trouble, and nobody else's."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from postroom.core.inbox import received
from postroom.model.delivery import State
from postroom.model.task import TaskState
from postroom.nanobot.channel import reception, settlement
from postroom.nanobot.channel import text as channel_text
from postroom.nanobot.channel.bus import Inbound

from .agents import PATIENCE, content_and_mode, run, scripted_agent, state_of, until, use


def drop(folder: Path, agent: str, name: str, **mail: Any) -> None:
    """A file of a stranger, past the door."""
    path = folder / "mailboxes" / agent / "inbox" / f"{name}.msg.json"
    path.write_text(json.dumps(mail), encoding="utf-8")


def test_a_part_that_lacks_its_fields_is_shown_as_it_is(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder") as coder:
            parts = [{"type": kind} for kind in ("reference", "text", "data", "file", "event")]
            drop(tmp_path, "coder", "1_stranger", **{"from": "stranger", "content": {"parts": parts}})
            [seen] = await until(lambda: coder.seen)
            assert '{"type":"reference"}' in seen.content

    run(scene)


def test_a_letter_that_cannot_be_handed_over_costs_itself_a_try_and_the_channel_goes_on(tmp_path: Path) -> None:
    def says(inbound: Inbound) -> str:
        if "poison" in inbound.content:
            raise ValueError("not for me")
        return "fine"

    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder", says) as coder:
            anna = coder.post.room.mailbox("anna")
            bad = await anna.send("coder", "poison")
            behind = await anna.send("coder", "hello", in_reply_to=bad.id)
            answer = await anna.wait(PATIENCE)
            assert answer is not None and ("fine", behind.id) == (answer.text, answer.message.in_reply_to)
            delivery = received(coder.post.core, "coder", bad.id).delivery
            assert (State.UNREAD, 1) == (delivery.state, delivery.attempts)
            assert "not for me" in str(delivery.reason) and "not for me" in str(coder.log.lines)
            assert coder.post.turns.get(bad.id) is None

    run(scene)


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("here\0it is", "hereit is\n\n(Characters that cannot be mailed were left out.)"),
        ("here \ud800 it is", "here ? it is\n\n(Characters that cannot be mailed were left out.)"),
        ("x" * 1_200_000, "(Cut: only the first "),
        ("\x01" * 600_000, "(Cut: only the first "),
    ],
    ids=["nul", "surrogate", "long", "long as JSON"],
)
def test_a_last_word_is_made_so_that_it_can_be_mailed(tmp_path: Path, word: str, text: str) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder", lambda _: word) as coder:
            anna = coder.post.room.mailbox("anna")
            await anna.send("coder", "hello")
            answer = await anna.wait(PATIENCE)
            assert answer is not None and text in answer.text
            task = await anna.give_task("coder", "work")
            await until(lambda: coder.post.mailbox.task(task.id).is_final)
            assert TaskState.COMPLETED is coder.post.mailbox.task(task.id).state

    run(scene)


def test_where_an_answer_is_refused_all_the_same_the_task_fails_and_the_letter_is_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settlement, "mailable", lambda text: text)

    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder", lambda _: "a\0b") as coder:
            anna = coder.post.room.mailbox("anna")
            sent = await anna.send("coder", "hello")
            await until(lambda: state_of(coder, sent.id) is State.DEAD)
            assert "NUL" in str(received(coder.post.core, "coder", sent.id).delivery.reason)
            task = await anna.give_task("coder", "work")
            await until(lambda: coder.post.mailbox.task(task.id).is_final)
            found = coder.post.mailbox.task(task.id)
            assert TaskState.FAILED is found.state and "NUL" in str(found.reason)
            await until(lambda: state_of(coder, task.id) is State.DONE)

    run(scene)


def test_a_path_is_never_followed_and_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_text, "MOST_FILES", 3)
    monkeypatch.setattr(channel_text, "MOST_BYTES", 10)

    def enclosed(content: bytes) -> dict[str, str]:
        return {"type": "file", "path": "a.txt", "bytes": base64.b64encode(content).decode()}

    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder") as coder:
            (tmp_path / "coder-workspace" / "secret.txt").write_text("a secret", encoding="utf-8")
            named = {"type": "file", "path": "secret.txt", "size": 8}
            parts = [named, enclosed(b"x" * 11), *[enclosed(b"xx")] * 5]
            drop(tmp_path, "coder", "1_stranger", **{"from": "stranger", "content": {"parts": parts}})
            [seen] = await until(lambda: coder.seen)
            assert "[file secret.txt, 8 bytes: it came without its content]" in seen.content
            assert 3 == len(seen.media) and 3 == seen.content.count("was not taken: a letter may bring")
            assert 3 == sum(path.is_file() for path in (tmp_path / "coder-media").rglob("*"))

    run(scene)


def test_the_files_of_a_letter_are_out_of_reach_of_one_with_a_name_alike(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder", store=f"sqlite:{tmp_path / 'room.db'}") as coder:
            anna = coder.post.room.mailbox("anna")
            for id in ("a_b", "a:b", "..a_b"):
                file = {"type": "file", "path": "a.txt", "bytes": base64.b64encode(id.encode()).decode()}
                await anna.send("coder", [file], id=id)
            await until(lambda: len(coder.seen) == 3)
            for seen in coder.seen:
                [path] = seen.media
                assert seen.metadata["mailbox"]["id"] == content_and_mode(path)[0]

    run(scene)


def test_waiting_letters_of_one_peer_hold_up_no_other_peer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reception, "MOST_IN_HAND", 4)
    monkeypatch.setattr(reception, "MOST_OF_ONE", 6)
    monkeypatch.setattr(reception, "SLICE", 3)

    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder") as coder:
            anna, bert = coder.post.room.mailbox("anna"), coder.post.room.mailbox("bert")
            first = await anna.send("coder", "first")
            sent = [(await anna.send("coder", "more", in_reply_to=first.id)).id for _ in range(18)]
            await until(lambda: len(coder.post.turns) >= 6)
            await bert.send("coder", "of bert")
            seen = await until(lambda: [inbound for inbound in coder.seen if inbound.sender == "bert"])
            await coder.answer(seen[0], "hello bert")
            assert await bert.wait(PATIENCE) is not None
            left = [received(coder.post.core, "coder", id).delivery for id in sent]
            assert any(one.state is State.UNREAD for one in left) and not any(one.attempts for one in left)
            coder.says = lambda _: "done"
            await coder.answer(next(one for one in coder.seen if one.sender == "anna"), "done")
            await until(lambda: state_of(coder, sent[-1]) is State.DONE)
            assert all(state_of(coder, id) is State.DONE for id in sent)

    run(scene)


def test_questions_that_nobody_answers_in_time_do_not_keep_other_tasks_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reception, "BETWEEN_LOOKS", 0.1)
    monkeypatch.setattr(settlement, "LEAST_TO_ANSWER", timedelta(0))

    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder", maxConcurrentTasks=1) as coder:
            anna = coder.post.room.mailbox("anna")
            await anna.register()
            sent = await anna.give_task("coder", "work", deadline=1.0)
            patient = await anna.give_task("coder", "more work")
            [seen] = await until(lambda: coder.seen)
            await use(coder, "mail_ask", seen, question="which?")
            await coder.answer(seen, "")
            assert TaskState.INPUT_REQUIRED is coder.post.mailbox.task(sent.id).state
            await until(lambda: coder.post.mailbox.task(sent.id).is_final)
            task = coder.post.mailbox.task(sent.id)
            assert (TaskState.FAILED, True) == (task.state, "was not answered" in str(task.reason))
            assert TaskState.REJECTED is coder.post.mailbox.task(patient.id).state
            after = await anna.give_task("coder", "new work")
            await until(lambda: coder.post.mailbox.task(after.id).state is TaskState.ACCEPTED)

    run(scene)


def test_a_question_about_a_task_without_a_deadline_is_not_open_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reception, "BETWEEN_LOOKS", 0.1)

    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder") as coder:
            anna = coder.post.room.mailbox("anna")
            sent = await anna.give_task("coder", "work")
            [seen] = await until(lambda: coder.seen)
            message = await use(coder, "mail_ask", seen, question="which?")
            await coder.answer(seen, "")
            asked_at = coder.post.mailbox.task(sent.id).standing.moved_at
            assert f"has until {asked_at + timedelta(days=1):%Y-%m-%d %H:%M} UTC" in message
            monkeypatch.setattr(settlement, "ANSWERED_WITHIN", timedelta(0))
            await until(lambda: coder.post.mailbox.task(sent.id).is_final)
            task = await anna.task(sent.id)
            assert ("failed", "a day is over, and the question about it was not answered") == (
                task.state,
                task.reason,
            )

    run(scene)


@pytest.mark.parametrize("task", [None, {}, "work", {"id": 7}, {"id": "t1", "state": "completed"}])
def test_what_calls_itself_a_task_and_holds_none_is_refused_with_the_reason(tmp_path: Path, task: Any) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder") as coder:
            text = {"parts": [{"type": "text", "text": "write it"}]}
            drop(tmp_path, "coder", "1_anna", **{"from": "anna", "type": "task", "task": task, "content": text})
            bounce = await coder.post.room.mailbox("anna").wait(PATIENCE)
            assert bounce is not None and '`task` needs an `id` and the `state` "pending"' in bounce.text
            assert [] == coder.seen

    run(scene)


def test_a_refused_sender_gets_nowhere_by_calling_it_a_task(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder", allowFrom=["boss"]) as coder:
            drop(tmp_path, "coder", "1_anna", **{"from": "anna", "type": "task", "content": "write it"})
            bounce = await coder.post.room.mailbox("anna").wait(PATIENCE)
            assert bounce is not None and "unauthorized" in bounce.text
            assert [] == coder.seen

    run(scene)


def test_what_calls_itself_a_task_in_the_thread_of_another_is_not_taken_for_it(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder") as coder:
            anna = coder.post.room.mailbox("anna")
            sent = await anna.give_task("coder", "work")
            await until(lambda: coder.seen)
            drop(tmp_path, "coder", "1_anna", **{"from": "anna", "type": "task", "reply_to": sent.id})
            bounce = await anna.wait(PATIENCE, sender="postmaster")
            assert bounce is not None and "there is none in it" in bounce.text
            assert 1 == len(coder.seen) and 1 == len(coder.post.turns)

    run(scene)


def test_a_copy_of_a_task_is_only_read(tmp_path: Path) -> None:
    async def scene() -> None:
        store = f"sqlite:{tmp_path / 'room.db'}"
        async with scripted_agent(tmp_path, "coder", store=store) as coder:
            anna = coder.post.room.mailbox("anna")
            await coder.post.room.mailbox("writer").register()
            await anna.give_task("writer", "work", cc=["coder"])
            [seen] = await until(lambda: coder.seen)
            assert "[Mail from agent anna" in seen.content and "No answer is expected" in seen.content

    run(scene)


def test_a_letter_with_the_longest_id_is_answered(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder", lambda _: "fine") as coder:
            anna = coder.post.room.mailbox("anna")
            await anna.send("coder", "hello", id="i" * 200)
            answer = await anna.wait(PATIENCE)
            assert answer is not None and "fine" == answer.text

    run(scene)
