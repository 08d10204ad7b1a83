"""Conversations with many letters: whoever changes one, or hears of it, keeps nobody waiting."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom.core import conversations
from postroom.core.authorize import OWNER, agent_principal
from postroom.formats.mail import turn_record
from postroom.model.message import Message
from postroom.model.query import LetterQuery
from postroom.room import Room, room_of
from postroom.server import mail
from postroom.server.broker import Broker
from postroom.server.callers import Caller
from postroom.server.executor import Executor
from tests import conversing
from tests.formats.asking import ask
from tests.server.test_executor import opened, run, until

LONG = "conv-long"


def talk_much(room: Room, letters: int = conversations.PAGE + 10) -> None:
    """Between two, and the last of it to a third."""
    drafts = [postroom.Draft(to="bob", body=str(n), conversation_id=LONG) for n in range(letters)]
    room.mailbox("ann").send_many([*drafts, postroom.Draft(to="eve", body="x", conversation_id=LONG)])


async def subscribed(executor: Executor, broker: Broker, name: str | None, received: list[str]) -> Caller:
    """An agent, or the operator."""

    def push(notice: dict[str, Any]) -> bool:
        received.append(notice["params"]["event"]["type"])
        return True

    caller = Caller(executor, broker, push=push, principal=OWNER if name is None else agent_principal(name))
    await caller.subscribe({})
    caller.replies_sent()
    return caller


def test_who_hears_of_a_long_conversation_is_found_out_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[int] = set()
    hears = conversations.is_notified

    def noted(*words: Any) -> bool:
        threads.add(threading.get_ident())
        return hears(*words)

    async def story() -> None:
        async with opened(tmp_path) as executor:
            talk_much(room_of(executor.core, OWNER))
            broker, result, stranger = Broker(executor), list[str](), list[str]()
            await subscribed(executor, broker, "eve", result)
            await subscribed(executor, broker, "joe", stranger)
            await asyncio.sleep(0.02)
            monkeypatch.setattr(conversations, "is_notified", noted)
            await executor.run_slow(lambda: conversing.join(executor.core, OWNER, LONG, "zoe"))
            await until(1, result)
            room_of(executor.core, OWNER).mailbox("ann").send("joe", "x")
            await until(2, stranger)
            assert ["mail.participant.joined"] == result
            assert ["message.sent", "mail.turn.added"] == stranger
            broker.close()

    run(story())
    assert threads and threading.get_ident() not in threads


def test_a_conversation_that_is_opened_over_many_letters_is_reported_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    view_of = conversations.view_of

    def noted(*words: Any) -> conversations.View:
        threads.append(threading.get_ident())
        return view_of(*words)

    async def story() -> None:
        async with opened(tmp_path) as executor:
            talk_much(room_of(executor.core, OWNER))
            broker, result = Broker(executor), list[str]()
            await subscribed(executor, broker, None, result)
            await asyncio.sleep(0.02)
            monkeypatch.setattr(
                conversations, "view_of", noted
            )  # what tells of it asks there, and who opens it does not
            opening = conversations.OpenConversation(id=LONG)
            await executor.run_slow(lambda: conversing.create(executor.core, OWNER, opening))
            await until(1, result)
            assert ["mail.created"] == result
            broker.close()

    run(story())
    assert threads and threading.get_ident() not in threads


def test_what_is_emitted_meanwhile_is_received_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go, hears = threading.Event(), conversations.is_notified

    def slow(*words: Any) -> bool:
        go.wait(5)
        return hears(*words)

    async def story() -> None:
        async with opened(tmp_path) as executor:
            talk_much(room_of(executor.core, OWNER))
            room_of(executor.core, OWNER).mailbox("eve").register(scopes=["default"])
            broker, result = Broker(executor), list[str]()
            await subscribed(executor, broker, "eve", result)
            await asyncio.sleep(0.02)
            monkeypatch.setattr(conversations, "is_notified", slow)
            await executor.run_slow(lambda: conversing.join(executor.core, OWNER, LONG, "zoe"))
            await asyncio.sleep(0.05)
            broker.publish({"event": {"type": "build.done"}}, "ann")
            await asyncio.sleep(0.02)
            go.set()
            await until(2, result)
            assert ["mail.participant.joined", "build.done"] == result
            broker.close()

    run(story())


def test_a_long_conversation_is_read_once_to_be_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with postroom.open(tmp_path / "room.db", durability="process") as room:
        talk_much(room)
        store = room.core.store
        read, letters = [0], type(store).letters

        def counted(self: Any, query: LetterQuery) -> Any:
            found = letters(self, query)
            read[0] += len(found)
            return found

        monkeypatch.setattr(type(store), "letters", counted)
        for verb, words in (
            (conversing.join, (LONG, "zoe")),
            (conversing.close, (LONG,)),
            (conversing.reopen, (LONG,)),
        ):
            read[0] = 0
            verb(room.core, OWNER, *words)
            assert read[0] <= conversations.PAGE + 12


def test_names_are_looked_up_once_however_often_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with postroom.open(tmp_path / "room.db", durability="process") as room:
        talk_much(room)
        conversing.join(room.core, OWNER, LONG, "zoe")
        store = room.core.store
        request, records = [0], type(store).records

        def counted(self: Any, *words: Any, **more: Any) -> Any:
            request[0] += 1
            return records(self, *words, **more)

        monkeypatch.setattr(type(store), "records", counted)
        assert {"ann", "bob", "eve", "zoe"} == {
            seat.agent for seat in conversing.get_view(room.core, OWNER, LONG).seats
        }
        assert request[0] < 50


def test_the_circle_of_a_long_conversation_is_that_of_all_its_letters(tmp_path: Path) -> None:
    """An agent let in by a letter on a later page is in; an agent that only wrote the id on a letter is not."""
    with postroom.open(tmp_path / "room.db", durability="process") as room:
        talk_much(room)
        room.mailbox("eve").send("kim", "come in", conversation_id=LONG)
        room.mailbox("mallory").send("trudy", "x", conversation_id=LONG)
        conversing.join(room.core, OWNER, LONG, "ann")
        talk = conversing.get_view(room.core, OWNER, LONG).talk
        assert {"ann", "bob", "eve", "kim"} == conversations.members_of(room.core, talk) - {""}
        for name, is_in in {"kim": True, "eve": True, "trudy": False, "mallory": False, "joe": False}.items():
            assert is_in == conversations.is_notified(room.core, agent_principal(name), talk), name


def test_a_page_puts_into_words_what_it_tells_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = list[str]()

    def noted(letter: Message) -> dict[str, Any]:
        result.append(letter.id)
        return turn_record(letter)

    monkeypatch.setattr(mail, "turn_record", noted)
    with postroom.open(tmp_path / "room.db", durability="process") as room:
        talk_much(room, 30)
        for method, order in (("turns/list", "asc"), ("turns/list", "desc"), ("replay", None)):
            result.clear()
            page = ask(room, method, conversationId=LONG, limit=3, order=order)
            assert (3, True, 4) == (len(page["turns"]), page["hasMore"], len(result))
        assert 31 == ask(room, "replay", conversationId=LONG, limit=3)["missedCount"]
