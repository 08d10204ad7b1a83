"""Taking a letter back: from all or none, before the first claim, for good, and unseen by who had not looked."""

from __future__ import annotations

import threading

import pytest

from postroom import IllegalMove, LeaseLost, Room, State, UnknownMessage
from postroom.model.query import Query
from tests.rooms import FakeClock, RoomFactory, spoken, texts


def states(factory: RoomFactory, id: str) -> dict[str, str]:
    found = factory.store.find(Query(message_ids=(id,)))
    return {f.delivery.mailbox: f"{f.delivery.state} {f.delivery.reason}" for f in found}


def test_an_unsent_letter_is_dead_everywhere_and_offered_to_nobody(factory: RoomFactory, room: Room) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    id = ann.send(["bob", "carol"], "oops", bcc="dave").id
    assert ann.unsend(id).text == "oops"
    assert states(factory, id) == dict.fromkeys(("bob", "carol", "dave"), "dead unsent")
    assert bob.check() == [] and bob.claim() is None and bob.wait(0) is None
    assert bob.counts()["total"] == 0
    factory.reopen()
    assert states(factory, id) == dict.fromkeys(("bob", "carol", "dave"), "dead unsent")
    assert factory.room().mailbox("ann").check() == []  # no bounce


def test_who_had_not_looked_never_sees_it(room: Room) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    start = room.cursor()
    id = ann.send("bob", "secret", thread_tag="t").id
    ann.unsend(id)
    assert bob.dead() == [] and bob.thread(id) == [] and bob.tagged("t") == [] and bob.conversations() == []
    assert bob.wait(0, since=start) is None
    for act in (bob.read, bob.reply, bob.revive, bob.purge):
        with pytest.raises(UnknownMessage):
            act(id)
    assert spoken(ann.thread(id)) == ["secret"]  # its sender still has it


def test_who_had_looked_sees_that_it_was_taken_back_and_cannot_revive_it(room: Room) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    id = ann.send("bob", "read by now").id
    seen = bob.read(id)
    ann.unsend(id)
    assert [(x.text, x.delivery.reason) for x in bob.dead()] == [("read by now", "unsent")]
    with pytest.raises(IllegalMove, match="took the letter back"):
        bob.revive(id)
    with pytest.raises(IllegalMove):
        seen.ack()
    assert bob.read(id).state is State.DEAD
    assert bob.purge(id) == 1


@pytest.mark.parametrize("what", ["claimed", "done", "dead", "tried it before"])
def test_it_is_too_late_once_one_of_them_has_it(factory: RoomFactory, room: Room, what: str) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    id = ann.send(["bob", "carol"], "x").id
    work = bob.claim()
    assert work
    if what == "done":
        work.ack()
    elif what != "claimed":
        work.fail("no", retry=what != "dead")
    before = states(factory, id)
    with pytest.raises(IllegalMove, match=rf"bob \({what}\)") as refused:
        ann.unsend(id)
    assert refused.value.field == "id"
    assert states(factory, id) == before
    assert room.mailbox("carol").check()


def test_a_refusal_names_a_few(room: Room) -> None:
    ann = room.mailbox("ann")
    names = [f"n{number}" for number in range(5)]
    id = ann.send(names, "x").id
    for name in names:
        room.mailbox(name).read(id).ack()
    with pytest.raises(IllegalMove, match=r"n0 \(done\), n1 \(done\), n2 \(done\) and 2 more"):
        ann.unsend(id)


def test_what_was_given_back_may_still_be_unsent(factory: RoomFactory, room: Room) -> None:
    id = room.mailbox("ann").send("bob", "x").id
    work = room.mailbox("bob").claim()
    assert work
    work.release()
    room.mailbox("ann").unsend(id)
    assert states(factory, id) == {"bob": "dead unsent"}
    with pytest.raises((LeaseLost, IllegalMove)):
        work.ack()


def test_a_letter_for_later_never_comes(factory: RoomFactory, room: Room, clock: FakeClock) -> None:
    id = room.mailbox("ann").send("bob", "x", at=60).id
    room.mailbox("ann").unsend(id)
    clock.advance(61)
    assert room.mailbox("bob").check() == []
    assert room.sweep().delivered == 0
    assert states(factory, id) == {"bob": "dead unsent"}


def test_unsending_twice_is_the_same_as_once(factory: RoomFactory, room: Room) -> None:
    id = room.mailbox("ann").send("bob", "x").id
    room.mailbox("ann").unsend(id)
    before = factory.store.cursor()
    room.mailbox("ann").unsend(id)
    assert factory.store.cursor() == before


def test_only_its_sender_may_and_others_learn_nothing(room: Room) -> None:
    id = room.mailbox("ann").send("bob", "x").id
    errors = []
    for wrong in (id, "0" * len(id)):
        with pytest.raises(UnknownMessage) as refused:
            room.mailbox("bob").unsend(wrong)
        errors.append(str(refused.value).replace(wrong, "ID"))
    assert errors[0] == errors[1]
    assert texts(room.mailbox("bob").check()) == ["x"]


def test_a_key_is_spent_though_its_letter_was_unsent(room: Room) -> None:
    ann = room.mailbox("ann")
    first = ann.send("bob", "x", key="k")
    ann.unsend(first.id)
    again = ann.send("bob", "x", key="k")
    assert again.repeated and again.id == first.id
    assert room.mailbox("bob").check() == []


def test_a_broadcast_is_unsent_everywhere(room: Room) -> None:
    for name in ("bob", "carol", "dave"):
        room.mailbox(name).register(scopes=["team"])
    id = room.mailbox("ann").broadcast("team", "x").id
    room.mailbox("ann").unsend(id)
    assert [room.mailbox(name).check() for name in ("bob", "carol", "dave")] == [[], [], []]


def test_an_unsent_letter_survives_export_and_retention(
    factory: RoomFactory, room: Room, clock: FakeClock
) -> None:
    id = room.mailbox("ann").send("bob", "x").id
    room.mailbox("ann").unsend(id)
    assert any(b'"unsent"' in line for line in room.export())
    clock.advance(91 * 24 * 3600)
    assert room.sweep().purged == 1


def test_a_claim_and_an_unsend_at_once_have_one_winner(factory: RoomFactory) -> None:
    """Each letter ends with its worker or with nobody, never with both."""
    room = factory.room()
    ids = [room.mailbox("ann").send("bob", str(number)).id for number in range(40)]
    start = threading.Barrier(2)
    won: list[str] = []
    lost: list[str] = []

    def take_back() -> None:
        ann = factory.room().mailbox("ann")
        start.wait(10)
        for id in reversed(ids):
            try:
                ann.unsend(id)
            except IllegalMove:
                lost.append(id)

    def work() -> None:
        bob = factory.room().mailbox("bob")
        start.wait(10)
        while claimed := bob.claim():
            won.append(claimed.id)
            claimed.ack()

    threads = [threading.Thread(target=target) for target in (take_back, work)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(won) == sorted(lost)
    ends = [states(factory, id)["bob"] for id in ids]
    assert ends == ["done None" if id in won else "dead unsent" for id in ids]
