"""The pace of answers: one for each sender, one for all senders together, in a thread, a conversation or a tag."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from postroom import Letter, Mailbox, Room, TooFast
from postroom.service import pace
from postroom.service.arriving import accept_together
from postroom.service.authorize import OWNER
from postroom.service.conversing import Guest, Opening, create
from postroom.service.turning import Saying, turn
from postroom.settings import Settings
from postroom.store.sqlite.store import SqliteStore
from tests.conftest import LONG
from tests.rooms import FakeClock, House
from tests.service.peering import know_peer
from tests.service.test_arriving import FAR, arrival, letter, refusal

TEAM = "team"
Answer = Callable[[Mailbox, Letter], object]


def by_thread(mailbox: Mailbox, got: Letter) -> object:
    return mailbox.reply(got.id, "re", to_all=True)


def by_broadcast(mailbox: Mailbox, got: Letter) -> object:
    return mailbox.broadcast(TEAM, "re", in_reply_to=got.id)


def by_tag(mailbox: Mailbox, got: Letter) -> object:
    return mailbox.broadcast(TEAM, "re", thread_tag=got.message.thread_tag)


def by_conversation(mailbox: Mailbox, got: Letter) -> object:
    return mailbox.broadcast(TEAM, "re", conversation_id=got.message.conversation_id)


def by_turn(mailbox: Mailbox, _: Letter) -> object:
    return turn(mailbox._office, OWNER, "conv-1", mailbox.name, Saying(body=["re"]))


ANSWERS: dict[str, tuple[Answer, dict[str, str]]] = {
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
    store = SqliteStore(tmp_path / "room.db", boot=clock.moment.boot, durable=False)
    room = Room(store, Settings(thread_hourly=HOURLY), clock=clock)
    for name in agents():
        room.mailbox(name).register(scopes=[TEAM])
    guests = tuple(Guest(agent=name) for name in agents())
    create(room._office, OWNER, Opening(id="conv-1", scope=TEAM, creator="agent-0", guests=guests[1:]))
    yield room
    store.close()


def agents() -> list[str]:
    return [f"agent-{number}" for number in range(AGENTS)]


def storm(room: Room, clock: FakeClock, answer: Answer) -> int:
    """Each agent in turn answers the next of its letters to everyone, which takes it ten seconds; an answer that is
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
    monkeypatch.setattr(pace, "_check_crowd", lambda *_: None)
    answer, fields = ANSWERS[kind]
    team.mailbox("agent-0").broadcast(TEAM, "What do you think?", **fields)
    assert storm(team, clock, answer) >= MOST
