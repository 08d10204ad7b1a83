"""Threads, conversations and turns (M11): folds of the letters, the same over every restart."""

from __future__ import annotations

import pytest

from postroom import Room, UnknownMessage
from tests.rooms import FakeClock, House, spoken


@pytest.fixture
def talk(room: Room, clock: FakeClock) -> list[str]:
    """Ann asks bob, bob answers, ann asks again; then a letter of another scope."""
    ids = [room.mailbox("ann").send("bob", "1", subject="Sort", conversation_id="c-1").id]
    clock.advance(1)
    ids.append(room.mailbox("bob").reply(ids[0], "2").id)
    clock.advance(1)
    ids.append(room.mailbox("ann").reply(ids[1], "3", cc="carol").id)
    room.mailbox("ann").send("bob", "apart", scope="research")
    return ids


def test_a_thread_is_its_letters_the_oldest_first(room: Room, talk: list[str]) -> None:
    for name in ("ann", "bob"):
        assert spoken(room.mailbox(name).thread(talk[0])) == ["1", "2", "3"]
    assert spoken(room.mailbox("carol").thread(talk[0])) == ["3"]
    assert spoken(room.thread(talk[0])) == ["1", "2", "3"]
    assert room.mailbox("ann").thread("not-there") == []


def test_a_reply_chain_goes_from_the_root_to_the_letter(room: Room, talk: list[str]) -> None:
    assert spoken(room.mailbox("ann").reply_chain(talk[2])) == ["1", "2", "3"]
    assert spoken(room.mailbox("ann").reply_chain(talk[1])) == ["1", "2"]
    assert spoken(room.mailbox("carol").reply_chain(talk[2])) == ["3"]  # what it may not see ends the chain
    for id in (talk[0], "not-there"):
        with pytest.raises(UnknownMessage):
            room.mailbox("carol").reply_chain(id)


def test_threads_are_listed_by_their_last_letter(room: Room, talk: list[str], clock: FakeClock) -> None:
    other = room.mailbox("bob").send("ann", "other", subject="Other").id
    assert [thread.id for thread in room.mailbox("ann").threads()] == [talk[0]]  # a letter alone is no thread
    clock.advance(1)
    room.mailbox("ann").reply(other, "yes")
    assert [thread.id for thread in room.mailbox("ann").threads()] == [other, talk[0]]
    assert [thread.id for thread in room.mailbox("ann").threads(1)] == [other]
    (thread,) = [thread for thread in room.threads() if thread.id == talk[0]]
    assert (thread.subject, thread.count, thread.participants) == ("Sort", 3, ("ann", "bob", "carol"))
    assert (thread.last_at - thread.started_at).total_seconds() == 2


def test_conversations_come_from_id_then_tag_then_scope(room: Room, talk: list[str]) -> None:
    room.mailbox("ann").send("bob", "t1", thread_tag="plan")
    room.mailbox("bob").send("ann", "t2", thread_tag="plan")
    room.mailbox("bob").send("ann", "t3", thread_tag="plan", scope="research")
    found = {conversation.id: conversation for conversation in room.conversations()}
    assert {c.id: c.turns for c in found.values() if c.id.startswith(("c-1", "conv-general"))} == {
        "c-1": 3, "conv-general:research": 1,
    }  # fmt: skip
    assert sorted(c.turns for c in found.values() if c.subject == "plan") == [1, 2]
    assert found["c-1"].threads == 1
    assert {c.id for c in room.mailbox("carol").conversations()} == {"c-1"}
    research = room.mailbox("ann").conversations(scope="research")
    assert {(c.scope, c.turns) for c in research} == {("research", 1)}
    assert len(research) == 2
    assert len(room.conversations(limit=1)) == 1


def test_a_conversation_is_replayed_turn_by_turn(room: Room, talk: list[str]) -> None:
    turns = room.mailbox("ann").turns("c-1")
    assert [(turn.participant, turn.message_id) for turn in turns] == list(
        zip(("ann", "bob", "ann"), talk, strict=True)
    )
    assert [turn.in_reply_to for turn in turns] == [None, f"turn-{talk[0]}", f"turn-{talk[1]}"]
    assert room.turns("c-1") == turns
    assert room.mailbox("bob").conversation("c-1").participants == ("ann", "bob", "carol")
    assert len(room.mailbox("carol").turns("c-1")) == 1
    for id in ("c-2", "conv-general:default"):
        with pytest.raises(UnknownMessage) as refused:
            room.mailbox("carol").conversation(id)
        assert refused.value.field == "conversation"


def test_all_of_it_is_the_same_after_a_restart(house: House, room: Room, talk: list[str]) -> None:
    room.mailbox("ann").send("bob", "tagged", thread_tag="plan")

    def seen(room: Room) -> object:
        ann = room.mailbox("ann")
        return (
            ann.threads(), ann.conversations(), ann.turns("c-1"), ann.thread(talk[0]), ann.reply_chain(talk[2]),
            ann.tagged("plan"), room.threads(), room.conversations(),
        )  # fmt: skip

    before = seen(room)
    house.reopen()
    assert seen(house.room()) == before


def test_letters_with_a_tag_are_found_by_it(room: Room) -> None:
    room.mailbox("ann").send("bob", "1", thread_tag="plan")
    room.mailbox("ann").send("bob", "2", thread_tag="plan", scope="research")
    room.mailbox("ann").send("carol", "3", thread_tag="plan")
    assert spoken(room.mailbox("bob").tagged("plan")) == ["1", "2"]
    assert spoken(room.mailbox("bob").tagged("plan", "research")) == ["2"]
    assert spoken(room.mailbox("bob").tagged("plan", "default")) == ["1"]
    assert room.mailbox("bob").tagged("other") == []


def test_a_long_chain_of_replies_is_walked_once(room: Room) -> None:
    letter = room.mailbox("ann").send("bob", "0")
    for number in range(1, 120):
        letter = room.mailbox(("ann", "bob")[number % 2]).reply(letter.id, str(number))
    assert spoken(room.mailbox("ann").reply_chain(letter.id)) == [str(n) for n in range(120)]
