"""Ask: a request, its answer or its return, and the same request again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import postroom
from postroom import Invalid, Letter, NoAnswer, Room, State, Undeliverable, aio
from postroom.core import work
from postroom.core.authorize import OWNER
from postroom.core.verb import from_params, perform
from postroom.formats.plain import plain
from postroom.server.executor import Executor
from tests.rooms import texts

PATIENCE = 60.0  # seconds; a bound, not a pace


def meanwhile(act: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=act)
    thread.start()
    return thread


def answer_next(room: Room, words: str) -> None:
    letter = room.mailbox("bob").wait(PATIENCE, kinds="request")
    assert letter
    letter.ack_and_reply(words)


def test_an_answer_is_returned_and_acknowledged(room: Room) -> None:
    other = meanwhile(lambda: answer_next(room, "merge sort"))
    answer = room.mailbox("ann").ask("bob", "Which sort is stable?", subject="Sorting", timeout=PATIENCE)
    other.join()
    assert (type(answer), answer.text, answer.subject) == (Letter, "merge sort", "Re: Sorting")
    assert answer.state is State.DONE
    assert room.mailbox("ann").check(unread_only=False) == []


def test_other_letters_of_the_thread_are_no_answer(room: Room) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    first = bob.send("ann", "hello")
    with pytest.raises(NoAnswer):
        ann.ask("bob", "?", timeout=0, key="q", in_reply_to=first.id)
    request = bob.claim(kinds="request")
    assert request
    bob.send("ann", "by the way", in_reply_to=first.id)
    with pytest.raises(NoAnswer):
        ann.ask("bob", "?", timeout=0, key="q", in_reply_to=first.id)
    request.ack_and_reply("yes")
    assert ann.ask("bob", "?", timeout=0, key="q", in_reply_to=first.id).text == "yes"
    assert texts(ann.check()) == ["hello", "by the way"]


def test_a_bounce_is_an_error_with_its_reason(room: Room) -> None:
    ann = room.mailbox("ann")
    with pytest.raises(NoAnswer):
        ann.ask("bob", "?", timeout=0, key="q")
    room.mailbox("bob").check()[0].reject("not my trade")
    for _ in range(2):
        with pytest.raises(Undeliverable, match="bob did not take the request: not my trade"):
            ann.ask("bob", "?", timeout=0, key="q")
    assert ann.check(unread_only=False) == []


def test_one_of_several_may_refuse_while_another_answers(room: Room) -> None:
    ann = room.mailbox("ann")
    with pytest.raises(NoAnswer):
        ann.ask(["bob", "cleo"], "?", timeout=0, key="q")
    room.mailbox("bob").check()[0].reject("no")
    with pytest.raises(NoAnswer):
        ann.ask(["bob", "cleo"], "?", timeout=0, key="q")
    room.mailbox("cleo").check()[0].reply("yes")
    assert ann.ask(["bob", "cleo"], "?", timeout=0, key="q").text == "yes"


def test_without_an_answer_in_time_the_error_has_the_key_to_go_on(room: Room) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    with pytest.raises(NoAnswer) as late:
        ann.ask("bob", "?", timeout=0.01)
    assert late.value.temporary
    assert late.value.key
    answer_next(room, "late")
    assert ann.ask("bob", "?", timeout=0, key=late.value.key).text == "late"
    assert len(bob.check(unread_only=False)) == 0


def test_an_answer_that_came_before_the_wait_is_returned_however_often(room: Room) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    ann.send("bob", "?", kind="request", key="q")
    answer_next(room, "soon")
    answers = [ann.ask("bob", "?", timeout=0, key="q") for _ in range(3)]
    assert len({answer.id for answer in answers}) == 1
    assert len(ann.sent()) == 1
    assert bob.check(unread_only=False) == []
    with pytest.raises(postroom.IdTaken):
        ann.ask("bob", "another question", timeout=0, key="q")


@pytest.mark.parametrize("fields", [{"cc": "cleo"}, {"at": 5}, {"colour": "red"}, {"timeout": -1}])
def test_what_a_request_cannot_have_is_refused(room: Room, fields: dict[str, object]) -> None:
    with pytest.raises(Invalid) as refused:
        room.mailbox("ann").ask("bob", "?", **fields)  # type: ignore[arg-type] # anything may come
    assert refused.value.field in fields


def test_over_a_wire_nothing_yet_is_an_answer_without_a_letter(room: Room) -> None:
    def ask() -> dict[str, object]:
        params = {"agentId": "ann", "to": "bob", "body": "?", "timeout": 0, "key": "q"}
        found: dict[str, object] = plain(perform(room.core, room.principal, from_params(work.Ask, params)))
        return found

    first = ask()
    assert (first["letter"], first["key"]) == (None, "q")
    answer_next(room, "yes")
    again = ask()
    assert again["id"] == first["id"]
    assert isinstance(letter := again["letter"], dict) and letter["text"] == "yes"


def test_a_call_over_a_wire_waits_and_may_be_repeated(room: Room) -> None:
    async def scene() -> None:
        executor = Executor(room.core)
        params = {"agent_id": "ann", "to": "bob", "body": "?", "timeout": PATIENCE, "key": "q"}
        try:
            asked = [asyncio.ensure_future(executor.call(OWNER, "ask", params)) for _ in range(3)]
            await asyncio.to_thread(answer_next, room, "yes")
            answers = [await one for one in asked] + [await executor.call(OWNER, "ask", params)]
        finally:
            await executor.close()
        assert ["yes"] * 4 == [answer["letter"]["text"] for answer in answers]
        assert 1 == len(room.mailbox("ann").sent())

    asyncio.run(scene())


def test_an_async_ask_that_is_cancelled_leaves_the_answer_in_the_inbox(tmp_path: Path) -> None:
    async def scene() -> None:
        async with aio.open(tmp_path / "room.db") as room, asyncio.timeout(PATIENCE):
            ann, bob = room.mailbox("ann"), room.mailbox("bob")
            asking = asyncio.create_task(ann.ask("bob", "?", timeout=PATIENCE, key="q"))
            request = await bob.claim(timeout=PATIENCE)
            while not room._watcher._watch:
                await asyncio.sleep(0)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert request is not None
            await request.ack_and_reply("too late")
            assert ["too late"] == [letter.text for letter in await ann.check(peek=True)]
            again = await ann.ask("bob", "?", timeout=0, key="q")
            assert (again.text, again.state) == ("too late", State.DONE)
            with pytest.raises(NoAnswer):
                await ann.ask("cleo", "?", timeout=0.01)

    asyncio.run(scene())


def test_many_tasks_ask_at_once(tmp_path: Path) -> None:
    async def scene() -> None:
        async with aio.open(tmp_path / "room.db") as room, asyncio.timeout(PATIENCE):
            ann, bob = room.mailbox("ann"), room.mailbox("bob")
            asked = [asyncio.create_task(ann.ask("bob", str(n), timeout=PATIENCE)) for n in range(20)]
            for _ in asked:
                request = await bob.claim(timeout=PATIENCE)
                assert request
                await request.ack_and_reply(f"{request.text}!")
            answers = await asyncio.gather(*asked)
            assert [f"{n}!" for n in range(20)] == [answer.text for answer in answers]

    asyncio.run(scene())
