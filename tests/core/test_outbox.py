"""Mail that waits for other systems: its order, what becomes of it, and what becomes of what nobody takes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from postroom import Draft, Room
from postroom.core import outbox, peers
from postroom.core.authorize import OWNER
from postroom.core.transfer import Copy
from postroom.core.verb import perform
from postroom.errors import IllegalMove, UnknownMessage
from postroom.model.delivery import State
from postroom.model.message import BOUNCE
from postroom.model.peer import Peer
from postroom.model.query import Found, Query
from postroom.settings import Settings
from postroom.store.protocol import outgoing
from postroom.store.sqlite.memory import MemoryStore
from tests.core.peering import know_peer
from tests.letters import NOW
from tests.rooms import FakeClock, RoomFactory

DAY = 24 * 3600


@pytest.fixture
def room(factory: RoomFactory) -> Room:
    room = factory.room(system="here")
    know_peer(room, Peer(system="far"))
    return room


def send(room: Room, text: str, sender: str = "ann", to: str = "bob@far", **fields: object) -> str:
    return room.mailbox(sender).send(to, text, **fields).id  # type: ignore[arg-type]


def next_texts(room: Room, limit: int = 100) -> list[str]:
    core = room.core
    return [found.message.text for found in outbox.next_letters(core, outbox.waiting_mailboxes(core), limit)]


def found_one(room: Room, id: str) -> Found:
    (found,) = room.core.store.find(Query(message_ids=(id,)))
    return found


def later(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def test_letters_go_in_order_of_acceptance_to_all_their_mailboxes(room: Room) -> None:
    for text, to in (("1", "bob@far"), ("2", "eve@far"), ("3", "bob@far")):
        send(room, text, to=to)

    assert outbox.waiting_mailboxes(room.core) == ["bob@far", "eve@far"]
    assert outbox.waiting_mailboxes(room.core, 1) == ["bob@far"]
    assert (next_texts(room), next_texts(room, 2)) == (["1", "2", "3"], ["1", "2"])


def test_what_is_there_is_done_here_and_says_where_it_went(room: Room, clock: FakeClock) -> None:
    id = send(room, "hello")
    clock.advance(5)
    outbox.record_departure(room.core, [found_one(room, id).delivery], "far")

    delivery = found_one(room, id).delivery
    assert (delivery.state, delivery.reason, delivery.has_left) == (State.DONE, "moved to far", True)
    assert (delivery.delivered_at, delivery.read_at) == (clock.wall, None)
    assert (outbox.waiting_mailboxes(room.core), outgoing(room.core.store)) == ([], {})
    (stop,) = room.mailbox("ann").trace(id).stops
    assert (stop.mailbox, stop.state, stop.reason) == ("bob@far", State.DONE, "moved to far")


def test_what_another_system_passes_on_says_so(room: Room) -> None:
    id = send(room, "hello")
    outbox.record_departure(room.core, [found_one(room, id).delivery], "hub")

    delivery = found_one(room, id).delivery
    assert (delivery.reason, delivery.has_left) == ("moved to hub, on its way to far", True)


def test_departing_twice_or_after_it_was_taken_back_is_no_error(room: Room) -> None:
    ids = [send(room, text) for text in ("1", "2")]
    deliveries = [found_one(room, id).delivery for id in ids]
    room.mailbox("ann").unsend(ids[0])
    outbox.record_departure(room.core, deliveries, "far")
    outbox.record_departure(room.core, deliveries, "far")

    assert [found_one(room, id).delivery.state for id in ids] == [State.DEAD, State.DONE]


def test_nothing_overtakes_a_letter_of_its_sender_that_is_tried_again(room: Room, clock: FakeClock) -> None:
    first = send(room, "1")
    send(room, "2")
    send(room, "3", sender="carl")
    send(room, "4", to="eve@far")
    outbox.record_delay(room.core, found_one(room, first), "busy", clock.wall + later(60))

    delivery = found_one(room, first).delivery
    assert (delivery.state, delivery.attempts, delivery.reason) == (State.QUEUED, 1, "busy")
    assert (delivery.history[0].holder, delivery.history[0].reason) == ("far", "busy")
    assert next_texts(room) == ["3", "4"]
    clock.advance(61)
    assert next_texts(room) == ["1", "2", "3", "4"]


def test_many_that_wait_behind_one_do_not_hide_those_of_others(room: Room, clock: FakeClock) -> None:
    first = send(room, "0")
    room.mailbox("ann").send_many([Draft(to="bob@far", body=str(n)) for n in range(1, 250)])
    send(room, "carl's", sender="carl")
    outbox.record_delay(room.core, found_one(room, first), "busy", clock.wall + later(60))

    assert next_texts(room, 5) == ["carl's"]


def test_mail_for_later_goes_when_its_time_has_come_and_holds_up_nobody(room: Room, clock: FakeClock) -> None:
    id = send(room, "later", at=NOW + later(60))
    send(room, "now")

    assert next_texts(room) == ["now"]
    clock.advance(61)
    room.sweep()
    delivery = found_one(room, id).delivery
    assert (delivery.state, delivery.due_at, delivery.delivered_at) == (State.QUEUED, None, clock.wall)
    assert next_texts(room) == ["later", "now"]


def test_what_expires_on_the_way_is_dead(room: Room, clock: FakeClock) -> None:
    id = send(room, "hello", expires=60)
    clock.advance(61)

    assert next_texts(room) == []
    assert (found_one(room, id).delivery.state, found_one(room, id).delivery.reason) == (State.DEAD, "expired")


def test_what_is_refused_is_dead_and_its_sender_is_notified(room: Room) -> None:
    id = send(room, "hello", subject="Plans")
    found = found_one(room, id)
    outbox.record_refusal(room.core, found, "nobody is called bob there")
    outbox.record_refusal(room.core, found, "nobody is called bob there")

    delivery = found_one(room, id).delivery
    assert (delivery.state, delivery.reason) == (State.DEAD, "nobody is called bob there")
    (bounce,) = room.mailbox("ann").check()
    assert (bounce.message.kind, bounce.message.in_reply_to) == (BOUNCE, id)
    assert "nobody is called bob there" in bounce.text


def test_what_waits_too_long_is_dead_and_its_sender_is_notified(room: Room, clock: FakeClock) -> None:
    old, scheduled = send(room, "old"), send(room, "later", at=NOW + later(DAY))
    clock.advance(DAY - 1)
    young = send(room, "young")
    assert room.sweep().buried == 0
    clock.advance(1)

    assert room.sweep().buried == 1
    assert [found_one(room, id).delivery.state for id in (old, scheduled, young)] == [
        State.DEAD,
        State.QUEUED,
        State.QUEUED,
    ]
    assert [letter.message.kind for letter in room.mailbox("ann").check()] == [BOUNCE]
    clock.advance(DAY)
    assert room.sweep().buried == 2


def test_many_that_are_too_old_go_in_one_round(room: Room, clock: FakeClock) -> None:
    room.mailbox("ann").send_many([Draft(to="bob@far", body=str(n)) for n in range(450)])
    clock.advance(DAY)

    assert room.sweep().buried == 450
    assert outbox.waiting_mailboxes(room.core) == []


def test_its_sender_sees_revives_and_deletes_what_died_on_the_way(room: Room, clock: FakeClock) -> None:
    ids = [send(room, text) for text in ("1", "2")]
    send(room, "carl's", sender="carl")
    clock.advance(DAY)
    room.sweep()
    box = room.mailbox("ann")

    assert [letter.text for letter in box.dead()] == ["1", "2"]
    assert [repr(letter) for letter in room.dead()][:2] == [repr(letter) for letter in box.dead()]
    assert room.dead()[2]._mailbox.name == "carl"  # each belongs to the mailbox of its sender
    with pytest.raises(UnknownMessage):
        room.mailbox("carl").revive(ids[0])
    (revived,) = box.revive(ids[0])
    assert (revived.state, revived.delivery.attempts) == (State.QUEUED, 0)
    assert next_texts(room) == ["1"]
    assert room.sweep().buried == 0  # its day begins anew
    assert box.purge(ids[1]) == 1
    assert box.dead() == []


def test_a_letter_can_be_taken_back_while_it_has_not_left(room: Room, clock: FakeClock) -> None:
    tried, gone = send(room, "1"), send(room, "2")
    outbox.record_delay(room.core, found_one(room, tried), "busy", clock.wall + later(60))
    outbox.record_departure(room.core, [found_one(room, gone).delivery], "far")
    room.mailbox("ann").unsend(tried)

    assert found_one(room, tried).delivery.reason == "unsent"
    with pytest.raises(IllegalMove, match=r"bob@far \(moved to far\)"):
        room.mailbox("ann").unsend(gone)
    assert room.mailbox("ann").dead() == [] == room.dead()


def test_numbers_and_the_doctor_know_mail_for_other_systems(room: Room) -> None:
    send(room, "1")
    stats = room.stats()

    assert (stats.states[State.QUEUED], stats.mailboxes[0].mailbox, stats.mailboxes[0].queued) == (1, "bob@far", 1)
    assert [finding for finding in room.doctor().findings if "bob@far" in finding.what] == []


def test_an_export_and_an_import_keep_mail_for_and_from_other_systems(room: Room, clock: FakeClock) -> None:
    ids = [send(room, text) for text in ("waits", "gone", "dead")]
    outbox.record_departure(room.core, [found_one(room, ids[1]).delivery], "far")
    outbox.record_refusal(room.core, found_one(room, ids[2]), "no")
    room.mailbox("ann").give_task("bob@far", "a task")
    room.mailbox("carl").register(allow_from=["ann@far", "@moon"])
    lines = [*room.export()]
    other = Room(MemoryStore(), Settings(system="here"), clock=clock)
    other.load(lines)

    assert outgoing(other.core.store) == {"bob@far": 2}
    for id in ids:
        before, after = found_one(room, id), found_one(other, id)
        assert (before.message, before.delivery.state) == (after.message, after.delivery.state)
        assert before.delivery.reason == after.delivery.reason
    assert [task.receiver for task in other.mailbox("ann").tasks()] == ["bob@far"]
    assert not any(b"peer" in line and b"token" in line for line in lines)


def test_a_copy_of_a_room_holds_its_mail_for_other_systems_and_can_be_made_again(
    room: Room, clock: FakeClock
) -> None:
    ids = [send(room, text) for text in ("waits", "gone")]
    other = Room(MemoryStore(), Settings(system="here"), clock=clock)
    perform(other.core, OWNER, Copy(source=room.core))
    outbox.record_departure(room.core, [found_one(room, ids[1]).delivery], "far")
    perform(other.core, OWNER, Copy(source=room.core))

    assert [found_one(other, id).delivery.state for id in ids] == [State.QUEUED, State.DONE]
    assert found_one(other, ids[1]).delivery.reason == "moved to far"
    outbox.record_departure(other.core, [found_one(other, ids[0]).delivery], "far")
    perform(other.core, OWNER, Copy(source=room.core))
    assert outbox.waiting_mailboxes(other.core) == []


def test_where_there_is_no_way_any_more_the_trace_and_the_doctor_say_so(room: Room, clock: FakeClock) -> None:
    id = send(room, "hello")
    assert room.mailbox("ann").trace(id).stops[0].reason == "waits: nobody serves this room"
    outbox.record_delay(room.core, found_one(room, id), "far: the disk is full", clock.wall + later(60))
    assert room.mailbox("ann").trace(id).stops[0].reason == "waits: far: the disk is full"
    assert ({"far": 1}, {}) == outbox.count_waiting(room.core)

    perform(room.core, OWNER, peers.RemovePeer(system="far"))
    assert ({}, {"far": 1}) == outbox.count_waiting(room.core)
    assert room.mailbox("ann").trace(id).stops[0].reason == "waits: there is no route to the system 'far'"
    results = [found for found in room.doctor().findings if found.check == "peers"]
    assert ["a letter waits for far, to which there is no route"] == [found.what for found in results]
    assert "peers add far" in results[0].hint
