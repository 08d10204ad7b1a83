"""The pace of answers: one for each sender, one for all senders together, in a thread, a conversation or a tag."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom import Letter, Mailbox, Room, TooFast, draft
from postroom.core import messages, outbox
from postroom.core.authorize import OWNER
from postroom.core.conversations import Guest, OpenConversation, TakeTurn
from postroom.settings import Settings
from postroom.store.sqlite.store import SqliteStore
from tests.conftest import LONG
from tests.conversing import create, turn
from tests.core.peering import know_peer
from tests.core.test_arriving import FAR, bring, letter, refusal
from tests.people import person
from tests.rooms import FakeClock, RoomFactory

TEAM = "team"
Answer = Callable[[Mailbox, Letter], object]


def by_thread(mailbox: Mailbox, got: Letter) -> object:
    return mailbox.reply(got.id, "re", to_all=True)


def by_broadcast(mailbox: Mailbox, got: Letter) -> object:
    return mailbox.broadcast(TEAM, "re", in_reply_to=got.id)


def by_tag(mailbox: Mailbox, got: Letter) -> object:
    return mailbox.broadcast(TEAM, "re", thread_tag=got.message.thread_tag or "")


def by_conversation(mailbox: Mailbox, got: Letter) -> object:
    return mailbox.broadcast(TEAM, "re", conversation_id=got.message.conversation_id or "")


def by_turn(mailbox: Mailbox, _: Letter) -> object:
    return turn(mailbox.core, OWNER, "conv-1", mailbox.name, TakeTurn(body=["re"]))


ANSWERS: dict[str, tuple[Answer, dict[str, Any]]] = {
    "thread": (by_thread, {}),
    "broadcast": (by_broadcast, {}),
    "tag": (by_tag, {"thread_tag": "release"}),
    "conversation": (by_conversation, {"conversation_id": "conv-1"}),
    "turn": (by_turn, {"conversation_id": "conv-1"}),
}
AGENTS, HOURLY = (30, 240) if LONG else (30, 20)
MOST = 2 * HOURLY  # letters, after which nobody believes that they will come to rest


@pytest.fixture
def team(tmp_path: Path, clock: FakeClock) -> Iterator[Room]:
    """Thirty agents of one scope."""
    store = SqliteStore(tmp_path / "room.db", clock=clock, durable=False)
    room = Room(store, Settings(thread_hourly=HOURLY), clock=clock)
    for name in agents():
        room.mailbox(name).register(scopes=[TEAM])
    guests = tuple(Guest(agent=name) for name in agents())
    create(room.core, OWNER, OpenConversation(id="conv-1", scope=TEAM, creator="agent-0", guests=guests[1:]))
    yield room
    store.close()


def agents() -> list[str]:
    return [f"agent-{number}" for number in range(AGENTS)]


def storm(room: Room, clock: FakeClock, answer: Answer) -> int:
    """Each agent in turn answers the next of its letters to everyone, which takes ten seconds; an answer that is
    refused is not written. Until nobody has mail left, or too many letters are written: how many those are.
    """
    written, busy = 1, True
    while busy and written < MOST:
        clock.advance(10)
        busy = False
        for name in agents():
            mailbox = room.mailbox(name)
            for got in mailbox.check(1):
                busy = True
                try:
                    answer(mailbox, got)
                    written += 1
                except TooFast:
                    pass
    return written


@pytest.mark.parametrize("kind", ANSWERS)
def test_thirty_agents_that_answer_everything_to_everyone_come_to_rest(
    team: Room, clock: FakeClock, kind: str
) -> None:
    answer, fields = ANSWERS[kind]
    team.mailbox("agent-0").broadcast(TEAM, "What do you think?", **fields)
    assert HOURLY < storm(team, clock, answer) + 1 < MOST


@pytest.mark.parametrize("kind", ANSWERS)
def test_the_storm_finds_senders_that_share_no_pace(
    team: Room, clock: FakeClock, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "_check_group_rate", lambda *_: None)
    answer, fields = ANSWERS[kind]
    team.mailbox("agent-0").broadcast(TEAM, "What do you think?", **fields)
    assert storm(team, clock, answer) >= MOST


# -- what has no pace


def test_a_producer_that_nobody_writes_to_has_no_pace(factory: RoomFactory) -> None:
    """A work queue under one tag: the workers answer in threads, and those answers have the tag too."""
    room = factory.room(thread_rate=2, thread_hourly=2)
    boss, other = room.mailbox("boss"), room.mailbox("other")
    task = boss.send("worker", "first", thread_tag="queue")
    for number in range(5):
        boss.send("worker", str(number), thread_tag="queue")
        other.send(["worker", "helper"], str(number), thread_tag="queue")
    boss.send_many([draft("worker", str(number), thread_tag="queue") for number in range(9)])
    room.mailbox("worker").reply(task.id, "done")


def test_an_agent_written_to_under_a_tag_answers_there(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room(thread_rate=2)
    boss, worker = room.mailbox("boss"), room.mailbox("worker")
    tagged = draft("boss", "more", thread_tag="queue")
    worker.send_many([tagged] * 2)
    boss.send("worker", "task", thread_tag="queue")
    with pytest.raises(TooFast, match="conversation conv-") as refused:
        worker.send_many([tagged])
    assert refused.value.temporary
    assert "try again in 60 seconds" in str(refused.value)
    worker.send("boss", "elsewhere")
    worker.send("boss", "in another scope", thread_tag="queue", scope="other")
    clock.advance(61)
    worker.send_many([tagged] * 2)


def test_the_catch_all_of_a_scope_has_no_pace(factory: RoomFactory) -> None:
    room = factory.room(thread_rate=1, thread_hourly=1)
    for _ in range(4):
        room.mailbox("ann").send(["bob", "cleo"], "news")
        room.mailbox("bob").send(["ann", "cleo"], "news")


def test_a_person_who_writes_gives_the_others_their_pace_back(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room(thread_hourly=3)
    human, ann = person(room), room.mailbox("ann")
    root = human.send(["ann", "bob"], "What now?")
    for _ in range(2):
        clock.advance(10)
        for _ in range(3):
            ann.reply(root.id, "this", to_all=True)
        with pytest.raises(TooFast, match="3 answers to several") as refused:
            room.mailbox("bob").reply(root.id, "that", to_all=True)
        assert "try again in 3600 seconds" in str(refused.value)
        ann.reply(root.id, "to one alone")
        for _ in range(4):
            human.reply(root.id, "go on", to_all=True)
    clock.advance(3601)
    ann.reply(root.id, "this", to_all=True)


@pytest.mark.parametrize(("rate", "hourly"), [(3, 0), (0, 3)])
def test_either_pace_can_be_turned_off(factory: RoomFactory, rate: int, hourly: int) -> None:
    root = factory.room().mailbox("ann").send(["bob", "cleo"], "q")
    bob = factory.room(thread_rate=rate, thread_hourly=hourly).mailbox("bob")
    for _ in range(3):
        bob.reply(root.id, "a", to_all=True)
    with pytest.raises(TooFast):
        bob.reply(root.id, "a", to_all=True)
    factory.room(thread_rate=0, thread_hourly=0).mailbox("bob").reply(root.id, "a", to_all=True)


def test_the_error_names_the_key_with_which_to_send_again(factory: RoomFactory, clock: FakeClock) -> None:
    """Of one letter, and of many: a caller that waits and sends again with it sends nothing twice."""
    room = factory.room(thread_rate=2)
    root, bob = room.mailbox("ann").send("bob", "q"), room.mailbox("bob")
    for _ in range(2):
        bob.reply(root.id, "a")
    with pytest.raises(TooFast) as refused:
        bob.reply(root.id, "b")
    assert refused.value.key and refused.value.retry_after
    with pytest.raises(TooFast) as own:
        bob.reply(root.id, "b", key="own")
    assert "own" == own.value.key
    with pytest.raises(TooFast) as many:
        bob.send_many([draft("cleo", "no answer", key="k-1"), draft("ann", "b", in_reply_to=root.id)])
    assert 2 == len(many.value.keys) and "k-1" == many.value.keys[0]
    clock.advance(refused.value.retry_after)
    again = [bob.reply(root.id, "b", key=refused.value.key).repeated for _ in range(2)]
    assert [False, True] == again


# -- over links


@pytest.mark.parametrize("by", [{"thread_tag": "t"}, {"conversation_id": "c-1"}, {"thread_id": "there"}])
def test_answers_from_another_system_have_the_same_pace(factory: RoomFactory, by: dict[str, Any]) -> None:
    room = factory.room(system="here", thread_rate=2)
    know_peer(room, FAR)
    room.mailbox("bob").register()
    message = [letter(id=f"r{number}", **by) for number in range(5)]
    assert [None, None] == [problem for one in message[:2] for problem in bring(room, one)]
    if "thread_id" not in by:
        room.mailbox("bob").send("ann@far", "and then?", **by)
        departed(room)
    assert isinstance(refusal(room, message[2]), TooFast)


def departed(room: Room) -> None:
    """The link has brought what waits to the other system."""
    waiting = outbox.next_letters(room.core, ["ann@far"], 9)
    outbox.record_departure(room.core, [found.delivery for found in waiting], "far")
