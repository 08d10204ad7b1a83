"""Asking sessions (D7): recorded on our side, found by our own record; what a peer writes of them is echoed."""

from __future__ import annotations

import json

import pytest

from postroom import DeadlinePassed, NotAllowed, Room, UnknownMessage
from postroom.model.record import SESSION
from postroom.store.protocol import record_keys
from tests.rooms import FakeClock, RoomFactory, texts

OURS = {"channel": "feishu", "chat_id": "ceo", "deep": {"k": [1, None]}}
THEIRS = {"channel": "feishu", "chat_id": "ceo", "session_id": "s-1"}


def test_the_result_finds_the_session_it_was_asked_for_in(factory: RoomFactory) -> None:
    ann = factory.room().mailbox("ann")
    id = ann.give_task("bob", "x", session=OURS).id
    factory.reopen()
    room = factory.room()
    room.mailbox("bob").task(id).accept()
    room.mailbox("bob").task(id).complete("42")
    for letter in room.mailbox("ann").check():
        assert room.mailbox("ann").task(letter).session == OURS
    assert [task.session for task in room.mailbox("ann").tasks("given")] == [OURS]


def test_a_session_is_in_no_letter_and_no_other_agent_sees_it(factory: RoomFactory) -> None:
    room = factory.room()
    id = room.mailbox("ann").give_task("bob", "x", session=OURS, callback=THEIRS, cc="carol").id
    letter = room.mailbox("bob").read(id)
    assert letter.message.callback == THEIRS
    assert "deep" not in json.dumps(str(letter.message))
    assert room.mailbox("bob").task(id).session is None
    assert room.mailbox("bob").tasks()[0].session is None


def test_a_strangers_callback_is_echoed_in_every_update_and_never_a_session(room: Room) -> None:
    id = room.mailbox("eve").give_task("bob", "x", callback=THEIRS).id
    task = room.mailbox("bob").task(id)
    for sent in (task.accept(), task.start(), task.ask("?"), task.start(), task.complete("42")):
        assert sent.message.callback == THEIRS
    assert room.mailbox("bob").task(id).session is room.mailbox("eve").task(id).session is None
    assert record_keys(room.core.store, SESSION) == []


def test_a_peer_cannot_name_a_session_of_ours(room: Room) -> None:
    """Neither by the task's id, nor by a key, a callback or another task of theirs."""
    ann, bob, eve = (room.mailbox(name) for name in ("ann", "bob", "eve"))
    secret = ann.give_task("carol", "x", session=OURS).id
    own = ann.give_task("bob", "y", session={"channel": "own"}).id
    note = {"id": secret, "state": "accepted"}
    forged = [
        eve.send("ann", "done", kind="task_update", task=note, callback=OURS, metadata={"session": OURS}),
        eve.send("ann", "done", kind="task_update", task=note, conversation_id=secret, thread_tag=secret),
        eve.give_task("ann", "done", key=secret),
    ]
    for sent in forged[:2]:
        with pytest.raises(UnknownMessage):
            ann.task(sent.id)
    assert ann.task(forged[2].id).session is None
    with pytest.raises(UnknownMessage):
        eve.reply(secret, "done", kind="task_update", task=note)
    bob.reply(own, "done", kind="task_update", task=note, callback=OURS)
    (answer,) = ann.check(sender="bob")
    assert ann.task(answer).session == {"channel": "own"}
    assert ann.task(secret).state == "pending"


def test_a_copy_of_a_task_leads_to_no_session(room: Room) -> None:
    ann = room.mailbox("ann")
    id = ann.give_task("bob", "x", session=OURS, cc="carol").id
    room.mailbox("carol").reply(id, "the task is done", task={"id": id, "state": "completed"}, kind="task_update")
    (letter,) = ann.check()
    assert texts([letter]) == ["the task is done"]
    with pytest.raises(UnknownMessage):
        ann.task(letter)


def test_giving_again_keeps_the_first_session(room: Room) -> None:
    ann = room.mailbox("ann")
    first = ann.give_task("bob", "x", session=OURS, key="k")
    assert ann.give_task("bob", "x", session={"channel": "other"}, key="k").repeated
    assert ann.task(first.id).session == OURS
    assert record_keys(room.core.store, SESSION) == [f"ann {first.id}"]


def test_a_task_that_is_not_given_leaves_no_session(room: Room) -> None:
    room.mailbox("bob").register(allow_from=["carol"])
    ann = room.mailbox("ann")
    with pytest.raises(NotAllowed):
        ann.give_task("bob", "x", session=OURS)
    with pytest.raises(DeadlinePassed):
        ann.give_task("eve", "x", session=OURS, deadline=-1)
    assert record_keys(room.core.store, SESSION) == []


def test_a_task_that_goes_on_outlives_any_retention_by_count(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room(retain_count=1)
    id = room.mailbox("ann").give_task("bob", "x", session=OURS).id
    room.mailbox("bob").task(id).accept()
    for letter in room.mailbox("ann").check():
        letter.ack()
    for number in range(5):
        room.mailbox("bob").read(room.mailbox("ann").send("bob", str(number)).id).ack()
    clock.advance(1)
    assert room.sweep().purged == 5  # the update, and all but one of the others
    room.mailbox("bob").task(id).complete()
    assert (room.mailbox("ann").task(id).state, room.mailbox("ann").task(id).session) == ("completed", OURS)


def test_a_session_goes_with_retention_when_the_task_is_over(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room(retain_for=3600)
    id = room.mailbox("ann").give_task("bob", "x", session=OURS).id
    bob = room.mailbox("bob")
    bob.task(id).accept()
    clock.advance(7200)
    assert room.sweep().purged == 0  # its letter is done, the task is not
    assert room.mailbox("ann").task(id).session == OURS
    bob.task(id).complete()
    room.sweep()
    assert record_keys(room.core.store, SESSION) == []
    assert room.mailbox("ann").tasks() == bob.tasks() == []
    with pytest.raises(UnknownMessage):
        room.mailbox("ann").task(id)
