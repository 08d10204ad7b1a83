"""Finding letters again (M12): at one's own mailbox, by the operator, the newest first or the best."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import postroom
from postroom import Invalid, LookAlike, Room, State, aio
from tests.rooms import FakeClock, RoomFactory, spoken


def test_a_mailbox_finds_what_it_sent_and_what_it_received(room: Room) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    first = ann.send("bob", "merge sort is stable", subject="Sorting")
    bob.reply(first.id, "is quick sort?")
    ann.send("carol", "sort it out")
    assert spoken(ann.search("sort")) == ["sort it out", "is quick sort?", "merge sort is stable"]
    assert spoken(bob.search("sort")) == ["is quick sort?", "merge sort is stable"]
    assert spoken(room.mailbox("carol").search("SORT")) == ["sort it out"]
    assert spoken(room.search("sort -quick")) == ["sort it out", "merge sort is stable"]
    assert spoken(bob.search(f"thread:{first.id} from:bob")) == ["is quick sort?"]
    assert [letter.subject for letter in bob.search("sorting")] == ["Re: Sorting", "Sorting"]


def test_mail_is_found_in_every_state_and_is_not_touched(room: Room) -> None:
    for text in ("word unread", "word read", "word done", "word dead"):
        room.mailbox("ann").send("bob", text)
    bob = room.mailbox("bob")
    letters = bob.check(peek=True)
    bob.read(letters[1].id)
    letters[2].ack()
    letters[3].reject("no")
    assert spoken(bob.search("word")) == ["word dead", "word done", "word read", "word unread"]
    (unread,) = [letter for letter in bob.check(peek=True, unread_only=False) if letter.text == "word unread"]
    assert (unread.state, unread.delivery.read_at) == (State.UNREAD, None)


def test_as_many_as_wanted_are_found(room: Room) -> None:
    for number in range(25):
        room.mailbox("ann").send("bob", f"word {number}")
    bob = room.mailbox("bob")
    assert spoken(bob.search("word", limit=2)) == ["word 24", "word 23"]
    assert len(bob.search("word")) == 20
    assert len(bob.search("word", limit=10_000)) == 25


def test_the_best_come_first_when_asked_for(room: Room) -> None:
    ann = room.mailbox("ann")
    ann.send("bob", "all about sort, and how to sort")
    ann.send("bob", "nothing much", subject="sort")
    ann.send("bob", "a very long letter " * 50 + "that mentions sort")
    best = room.mailbox("bob").search("sort", ranked=True)
    assert [letter.text[:6] for letter in best] == ["nothin", "all ab", "a very"]
    assert [letter.id for letter in room.mailbox("bob").search("sort", ranked=True, limit=1)] == [best[0].id]


def test_only_the_newest_are_compared_by_rank(factory: RoomFactory) -> None:
    room = factory.room(search_window=3)
    room.mailbox("ann").send("bob", "sort sort sort")
    for number in range(4):
        room.mailbox("ann").send("bob", f"sort {number}")
    bob = room.mailbox("bob")
    assert spoken(bob.search("sort", limit=2, ranked=True)) == ["sort 3", "sort 2"]
    assert spoken(bob.search("sort", limit=5, ranked=True))[0] == "sort sort sort"


def test_ages_go_by_the_rooms_clock(room: Room, clock: FakeClock) -> None:
    room.mailbox("ann").send("bob", "old word")
    clock.advance(3600)
    room.mailbox("ann").send("bob", "new word")
    bob = room.mailbox("bob")
    assert spoken(bob.search("word after:30m")) == ["new word"]
    assert spoken(bob.search("word before:30m")) == ["old word"]
    assert spoken(bob.search("after:1h")) == ["new word", "old word"]


def test_mail_for_later_is_found_once_its_time_has_come(room: Room, clock: FakeClock) -> None:
    room.mailbox("ann").send("bob", "surprise", at=60)
    room.sweep()
    assert room.mailbox("bob").search("surprise") == []
    clock.advance(60)
    assert spoken(room.mailbox("bob").search("surprise")) == ["surprise"]


def test_another_spelling_is_reported(room: Room) -> None:
    room.mailbox("ann").send("bob", "x")
    assert room.mailbox("bob").search("y") == []
    assert room.mailbox("nobody").search("x") == []
    with pytest.raises(LookAlike):
        room.mailbox("Bob").search("x")


def test_sweeping_and_reopening_change_no_answer(factory: RoomFactory, room: Room) -> None:
    ann = room.mailbox("ann")
    ann.send_many([postroom.draft("bob", f"word number{number % 7} caf\u00e9") for number in range(150)])

    def seen(room: Room) -> object:
        queries = ("number3", "cafe -number1", '"word number5"', "from:ann", "num*", "nothing")
        return [room.mailbox("bob").search(query, limit=1000) for query in queries]

    before = seen(room)
    indexed = room.sweep().indexed
    assert indexed == (150 if factory.kind.lasts else 0)
    assert seen(room) == before
    factory.reopen()
    assert seen(factory.room()) == before
    assert factory.room().sweep().indexed == 0


def test_the_async_face_finds_the_same(tmp_path: Path) -> None:
    async def ask() -> list[list[str]]:
        async with aio.open(str(tmp_path / "room.db")) as room:
            await room.mailbox("ann").send("bob", "a word")
            return [
                spoken(await room.mailbox("bob").search("word", limit=5, ranked=True)),
                spoken(await room.search("word")),
                spoken(await room.mailbox("carol").search("word")),
            ]

    assert asyncio.run(ask()) == [["a word"], ["a word"], []]


@pytest.fixture(scope="module")
def long_past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """A room with more letters than are searched without an index. Nobody changes it."""
    with postroom.open(tmp_path_factory.mktemp("past") / "room.db", durability="process") as room:
        room.mailbox("ann").send_many([postroom.draft("bob", f"a NEAR {n}") for n in range(101)])
        assert room.sweep().indexed == 101
        yield room


@settings(max_examples=settings().max_examples // 2)
@given(st.lists(st.text(max_size=30) | st.text('a"*^()-+:{}<>NEARORfromt', max_size=30), max_size=8))
def test_any_query_is_answered_or_refused(long_past: Room, queries: list[str]) -> None:
    for query in queries:
        with suppress(Invalid):
            assert long_past.mailbox("carol").search(query) == []
        with suppress(Invalid):
            assert isinstance(long_past.search(query, ranked=True), list)
