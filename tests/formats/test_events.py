"""Events (I3): what happened, once each, from any cursor, as one caller may hear it."""

from __future__ import annotations

from typing import Any

import pytest

from postroom import Invalid, Room
from postroom.core.authorize import Principal, agent_principal
from postroom.formats.events import TYPES, Event, map_event
from postroom.server.events import EventFilter, LoadedChanges, check_filter, events, wanted
from tests.formats.asking import ask
from tests.rooms import FakeClock, RoomFactory

FILTERS: list[tuple[Any, int]] = [  # and how many events pass, of those in `test_a_filter_narrows`
    ({}, 9),
    (None, 9),
    ({"eventTypes": ["message_sent"]}, 3),
    ({"eventTypes": ["message.created", "mail.created"]}, 4),
    ({"eventTypes": ["mail.*"]}, 6),
    ({"eventTypes": []}, 0),
    ({"scopes": ["team"]}, 2),
    ({"fromAgents": ["bob"]}, 3),
    ({"priorities": ["high"]}, 2),
    ({"mailbox": "carol"}, 2),
    ({"mail": {"conversationId": "c-1"}}, 5),
    ({"mail": {"participantId": "bob", "conversationId": "c-1"}}, 1),
    ({"mail": {"contentType": "data"}}, 2),
    ({"mail": {"threadId": "thread-x"}}, 0),
    ({"fromAgents": ["ann"], "eventTypes": ["mail.turn.added"], "scopes": ["team", "default"]}, 2),
]


def events_of(factory: RoomFactory, since: Any, by: str | None = None, step: int = 1000) -> list[Event]:
    """All that this caller hears since, as if it came back for a few changes at a time."""
    store = factory.store
    results: list[Event] = []
    room = factory.room() if by is None else factory.room(agent_principal(by))
    while True:
        changes, since = store.changes(since, step)
        if not changes:
            return results
        results += events(room.principal, LoadedChanges(room.core, changes))


def types(results: list[Event]) -> list[str]:
    return [event.type for event in results]


def test_everything_that_happens_to_a_conversation_is_reported_once(
    factory: RoomFactory, clock: FakeClock
) -> None:
    room, start = factory.room(), factory.store.cursor()
    ask(room, "create", id="c-1", subject="S", agentId="ann")
    clock.advance(1)
    ask(room, "join", conversationId="c-1", agentId="bob")
    ask(room, "join", conversationId="c-1", agentId="bob")
    turn = ask(room, "turn", conversationId="c-1", participantId="ann", content="hi")
    ask(room, "thread/create", conversationId="c-1", rootTurnId=turn["id"])
    ask(room, "close", id="c-1", status="archived")
    ask(room, "close", id="c-1", status="archived")
    ask(room, "reopen", id="c-1")
    ask(room, "leave", conversationId="c-1", agentId="bob")
    result = events_of(factory, start)
    assert types(result) == [
        "mail.created", "mail.participant.joined", "mail.participant.joined", "message.created", "mail.turn.added",
        "mail.thread.created", "mail.closed", "mail.reopened", "mail.participant.left",
    ]  # fmt: skip
    assert set(TYPES) == set(types(result))
    data = [event.data for event in result]
    assert ("c-1", "S", "ann") == tuple(data[0][k] for k in ("id", "subject", "createdBy"))
    assert {"conversation_id": "c-1", "agent_id": "bob"}.items() <= data[2].items()
    assert "bob" == data[2]["participant"]["id"]
    assert data[3]["id"] == turn["source_message_id"] and data[3]["conversation_id"] == "c-1"
    assert (turn["id"], "hi") == (data[4]["id"], data[4]["turn"]["content"])
    assert {"conversation_id": "c-1", "status": "archived"}.items() <= data[6].items()
    assert {"conversation_id": "c-1", "status": "active"}.items() <= data[7].items()
    assert 1 == (result[2].timestamp - result[1].timestamp).total_seconds()
    assert len(result) == len({event.id for event in result})
    factory.reopen()
    assert result == events_of(factory, start) == events_of(factory, start, step=1)
    assert [False] == [event.last for event in result if not event.last]


def test_an_agent_hears_of_what_it_sent_or_received(factory: RoomFactory) -> None:
    room, start = factory.room(), factory.store.cursor()
    ask(room, "create", id="c-1", agentId="ann", initialParticipants=[{"id": "bob"}])
    ask(room, "turn", conversationId="c-1", participantId="ann", content="hi")
    room.mailbox("ann").send("zoe", "aside", conversation_id="c-1")
    for name in ("ann", "bob"):
        assert "mail.created" in types(events_of(factory, start, name))
    assert ["hi"] == [
        e.data["content"]["text"] for e in events_of(factory, start, "bob") if e.type == "message.created"
    ]
    assert ["message.created", "mail.turn.added"] == [
        t for t in types(events_of(factory, start, "zoe")) if "created" != t
    ][-2:]
    assert [] == events_of(factory, start, "eve")
    loaded = LoadedChanges(factory.room(Principal("nobody")).core, factory.store.changes(start, 100)[0])
    assert [] == events(Principal("nobody"), loaded)


def test_who_left_hears_of_it_and_of_nothing_after(factory: RoomFactory) -> None:
    room = factory.room()
    ask(room, "create", id="c-1", agentId="ann", initialParticipants=[{"id": "bob"}])
    start = factory.store.cursor()
    ask(room, "leave", conversationId="c-1", agentId="bob")
    ask(room, "close", id="c-1")
    assert ["mail.participant.left"] == types(events_of(factory, start, "bob"))
    assert ["mail.participant.left", "mail.closed"] == types(events_of(factory, start, "ann"))


def test_nobody_hears_of_those_in_bcc(factory: RoomFactory) -> None:
    start = factory.store.cursor()
    factory.room().mailbox("ann").send("bob", "psst", bcc="eve")
    assert "eve" not in str(events_of(factory, start, "bob"))
    assert "eve" not in str([event.data for event in events_of(factory, start)])
    (seen, _) = events_of(factory, start, "eve")
    assert ["bob", "eve"] == [r["agent_id"] for r in seen.data["recipients"]]
    mine = check_filter({"agent": "eve"})
    assert [] == [e for e in events_of(factory, start, "bob") if wanted(e, mine)]
    assert 2 == len([e for e in events_of(factory, start) if wanted(e, mine)])  # the operator may watch a mailbox


def test_a_letter_that_is_due_later_is_reported_when_it_comes(factory: RoomFactory, clock: FakeClock) -> None:
    room, start = factory.room(), factory.store.cursor()
    room.mailbox("ann").send("bob", "later", at=60)
    assert [] == events_of(factory, start, "bob")
    assert 2 == len(events_of(factory, start, "ann"))
    clock.advance(61)
    room.sweep()
    room.mailbox("bob").check()
    assert ["message.created", "mail.turn.added"] == types(events_of(factory, start, "bob"))
    assert 2 == len(events_of(factory, start, "ann")) == len(events_of(factory, start))


def test_what_is_deleted_by_now_is_reported_to_nobody(factory: RoomFactory) -> None:
    room, start = factory.room(), factory.store.cursor()
    room.mailbox("ann").send("bob", "x")
    changes, _ = factory.store.changes(start, 10)
    room.mailbox("bob").check()[0].ack()
    factory.clock.advance(10)
    room.purge(older_than=1)
    assert [] == events(room.principal, LoadedChanges(room.core, changes))


def test_a_filter_narrows(factory: RoomFactory) -> None:
    room, start = factory.room(), factory.store.cursor()
    ask(room, "create", id="c-1", agentId="ann", initialParticipants=[{"id": "bob"}])
    ask(room, "turn", conversationId="c-1", participantId="ann", content={"n": 1}, contentType="data")
    room.mailbox("ann").send("bob", "2", scope="team")
    room.mailbox("bob").send("carol", "3", priority="high")
    result = events_of(factory, start)
    for filter, count in FILTERS:
        checked = check_filter(filter)
        assert count == len([event for event in result if wanted(event, checked)]), filter


@pytest.mark.parametrize(
    "wrong",
    [
        7,
        {"agentTypes": ["x"]},
        {"metadataMatch": []},
        {"roles": 7},
        {"mail": {"subject": "x"}},
        {"mail": []},
        {"scopes": 7},
        {"scopes": [7]},
        {"mail": {"threadId": 7}},
        {"agent": "a b"},
    ],
)
def test_a_filter_that_is_not_understood_is_refused(wrong: Any) -> None:
    with pytest.raises(Invalid):
        check_filter(wrong)
    assert EventFilter() == check_filter({"scopes": None})


def test_an_event_as_map_writes_it(factory: RoomFactory) -> None:
    start = factory.store.cursor()
    factory.room().mailbox("ann").send("bob", "x")
    first, second = map(map_event, events_of(factory, start))
    assert ("message.sent", "mail.turn.added") == (first["type"], second["type"])
    assert {"id", "type", "timestamp", "source", "data"} == first.keys()
    assert (1_893_499_200_000, "ann") == (first["timestamp"], first["source"])


def test_records_of_other_kinds_are_no_events(room: Room, factory: RoomFactory) -> None:
    start = factory.store.cursor()
    room.mailbox("ann").register()
    room.save_template("t", body="x")
    assert [] == events_of(factory, start)
