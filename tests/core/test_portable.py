"""A whole room as JSON lines (M16): from any store into any store, without loss, and no way around the rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from postroom import Conflict, IdTaken, Invalid, LeaseLost, Resync, Room, TooLarge
from postroom.core import portable
from postroom.settings import Settings
from postroom.store.sqlite.memory import MemoryStore
from tests.contract.stores import STORES, Kind
from tests.rooms import FakeClock, RoomFactory, texts


def fill(room: Room, clock: FakeClock) -> None:
    """A bit of everything a room can hold."""
    ann, bob = room.mailbox("ann"), room.mailbox("team/bob")
    ann.register(scopes=["team"], capabilities=["sort"], metadata={"k": [1]})
    bob.register(allow_from=["ann", "postmaster"])
    bob.heartbeat(current_tasks=["t-1"])
    for name in ("done", "dead", "failed", "claimed", "unread", "purged"):
        ann.send("team/bob", name, key=name, subject="Grüße", priority="high", data={"n": 1.5}, cc="carol")
    ann.send("team/bob", "later", at=3600, expires=7200, bcc="eve", tags=["t"], task={"id": "t-1"})
    ann.broadcast("team", "all")
    ids = [ann.give_task("dave", text, session={"chat": text}, deadline=3600).id for text in ("open", "over")]
    for id in ids:
        room.mailbox("dave").task(id).accept()
    room.mailbox("dave").task(ids[1]).complete()
    ann.give_task("carol", "pending")
    works = {work.text: work for work in bob.claim(6, lease=600, kinds="message", min_priority="high")}
    works["done"].ack_and_reply("ok")
    works["dead"].fail("never", retry=False)
    works["failed"].fail("once")
    works["unread"].release()
    works["purged"].fail("x", retry=False)
    room.mailbox("carol").read(works["purged"].id).ack()
    bob.purge(works["purged"].id)
    clock.advance(1)


def sorted_lines(room: Room) -> list[Any]:
    found = []
    for line in room.export():
        value = json.loads(line)
        value["deliveries"] = sorted(value.get("deliveries", ()), key=lambda d: d["mailbox"])
        found.append(value)
    return found


@pytest.mark.parametrize("empty", STORES, ids=lambda kind: f"to-{kind.name}", indirect=True)
def test_a_room_comes_through_an_export_without_loss(room: Room, empty: RoomFactory, clock: FakeClock) -> None:
    fill(room, clock)
    lines = list(room.export())
    copy = empty.room()
    cursor = copy.cursor()
    imported = copy.load(line + b"\n" for line in lines)
    assert imported.letters + imported.records + imported.names == len(lines) - 2
    assert sorted_lines(copy)[1:] == sorted_lines(room)[1:]
    assert copy.mailboxes() == room.mailboxes()
    with pytest.raises(Resync):
        copy.changes(cursor)
    for same in (copy, room):
        bob = same.mailbox("team/bob")
        assert texts(bob.check(None, peek=True)) == ["failed", "unread", "all"]
        assert len(bob.dead()) == 1
        assert same.mailbox("ann").send("team/bob", "done", key="done", subject="Grüße", priority="high",
                                        data={"n": 1.5}, cc="carol").repeated  # fmt: skip
        with pytest.raises(IdTaken):
            same.mailbox("ann").send("team/bob", "new", key="purged")
        assert [agent.card.id for agent in same.agents(scope="team")] == ["ann", "team/bob"]
        assert same.agent("team/bob").presence.current_tasks == ("t-1",)
        assert [(t.state, t.session) for t in same.mailbox("ann").tasks(states=["accepted", "completed"])] == [
            (t.state, t.session) for t in room.mailbox("ann").tasks(states=["accepted", "completed"])
        ]
        (at_work,) = same.mailbox("dave").tasks(states="accepted")
        same.mailbox("dave").task(at_work.id).start()
        assert same.mailbox("ann").task(at_work.id).session == {"chat": "open"}


def test_a_lease_of_another_boot_is_over_in_the_copy(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room()
    room.mailbox("ann").send("bob", "x")
    work = room.mailbox("bob").claim(lease=600)
    assert work
    lines = list(room.export())
    same_boot, next_boot = (Room(MemoryStore(), Settings(), clock=clock) for name in ("one", "two"))
    same_boot.load(lines)
    assert same_boot.mailbox("bob").claim() is None
    clock.reboot()
    next_boot.load(lines)
    assert next_boot.mailbox("bob").claim()
    with pytest.raises(LeaseLost):
        next_boot.mailbox("bob").ack([work])


def test_an_import_that_was_cut_off_goes_on_where_it_stopped(
    factory: RoomFactory, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portable, "SLICE", 50)
    room = factory.room()
    fill(room, clock)
    for number in range(60):
        room.mailbox("ann").send("bob", str(number))
    lines = list(room.export())

    def cut() -> Iterator[bytes]:
        yield from lines[:58]
        raise KeyboardInterrupt

    copy = Room(MemoryStore(), Settings(), clock=clock)
    with pytest.raises(KeyboardInterrupt):
        copy.load(cut())
    with pytest.raises(Conflict):
        copy.load([b'{"postroom": 1, "room": "another"}'])
    copy.load(lines)
    assert sorted_lines(copy)[1:] == sorted_lines(room)[1:]
    with pytest.raises(Conflict):
        copy.load(lines)


def test_an_export_that_was_cut_off_is_refused_and_the_whole_one_goes_on(room: Room, clock: FakeClock) -> None:
    fill(room, clock)
    lines = list(room.export())
    for kept in (1, 2, len(lines) // 2, len(lines) - 1):
        copy = Room(MemoryStore(), Settings(), clock=clock)
        with pytest.raises(Invalid, match="cut off") as refused:
            copy.load(lines[:kept])
        assert refused.value.field == f"line {kept}"
        with pytest.raises(Invalid):
            copy.load(lines[:kept])
        copy.load(lines)
        assert sorted_lines(copy)[1:] == sorted_lines(room)[1:]


def test_an_export_with_lines_lost_or_added_is_refused(room: Room, clock: FakeClock) -> None:
    fill(room, clock)
    lines = list(room.export())
    for wrong, field in (
        ([*lines[:3], *lines[4:]], f"line {len(lines) - 1}"),
        ([*lines[:3], *lines[2:]], f"line {len(lines) + 1}"),
        ([*lines, lines[3]], f"line {len(lines) + 1}"),
        ([*lines, lines[-1]], f"line {len(lines) + 1}"),
        ([*lines[:-1], b'{"end": false}'], f"line {len(lines)}"),
        ([*lines[:-1], b'{"end": 1, "lines": %d}' % (len(lines) - 2)], f"line {len(lines)}"),
    ):
        copy = Room(MemoryStore(), Settings(), clock=clock)
        with pytest.raises(Invalid) as refused:
            copy.load(wrong)
        assert refused.value.field == field
        copy.load(lines)  # it is still not finished, so the right one goes on


def test_only_an_empty_room_is_filled(room: Room) -> None:
    room.mailbox("ann").register()
    with pytest.raises(Conflict, match="not empty"):
        room.load([b'{"postroom": 1, "room": "x"}'])


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"{}",
        b"[]",
        b"5",
        b'{"postroom": 3, "room": "x"}',
        b'{"postroom": 1}',
        "junk",
        5,
        b'{"postroom": [], "room": "x"}',
        b'{"postroom": 2, "room": "x", "lines": -1}',
    ],
)
def test_what_is_no_export_is_refused(room: Room, head: Any) -> None:
    with pytest.raises(Invalid) as refused:
        room.load([head])
    assert refused.value.field == "line 1"
    assert room.mailboxes() == []


LETTER: dict[str, Any] = {
    "id": "m-1", "sender": "ann", "recipients": [{"address": "bob"}], "created_at": "2030-01-01T00:00:00Z",
    "trace": ["ann"], "parts": [{"type": "text", "text": "x"}],
}  # fmt: skip
DELIVERY: dict[str, Any] = {"message_id": "m-1", "mailbox": "bob"}
STANDING: dict[str, Any] = {
    "letter": "m-1", "id": "t", "thread": "m-1", "giver": "ann", "receiver": "bob", "last": "m-1",
    "opened_at": "2030-01-01T00:00:00Z", "moved_at": "2030-01-01T00:00:00Z",
}  # fmt: skip
BAD_LETTERS: list[dict[str, Any]] = [
    {"id": "../x"}, {"id": 5}, {"sender": "../x"}, {"sender": "\u0430nn"}, {"recipients": [{"address": "../x"}]},
    {"recipients": []}, {"recipients": [{"address": "bob", "kind": "all"}]},
    {"recipients": [{"address": "postmaster"}]},
    {"created_at": "2030-01-01T00:00:00"}, {"created_at": 5}, {"expires_at": "2030-01-01T00:00:00"},
    {"kind": "two words"}, {"subject": "two\nlines"}, {"subject": "\u0000"}, {"scope": "a//b"}, {"priority": 9},
    {"parts": [{"type": "text"}]}, {"parts": [{"type": "odd"}]}, {"parts": [{}]}, {"parts": "x"},
    {"parts": [{"type": "file", "path": "a", "bytes": "not base64!"}]},
    {"parts": [{"type": "text", "text": "x"}] * 300},
    {"hops": -1}, {"hops": 2**62}, {"trace": ["../x"]}, {"thread_id": "../x"}, {"in_reply_to": "a b"},
    {"conversation_id": ""}, {"tags": [" x"]}, {"key": " k"}, {"metadata": []}, {"attachments": ["a", "a"]},
    {"task": {"id": "t", "state": "lost"}},
]  # fmt: skip
BAD_DELIVERIES: list[Any] = [
    None, {}, [{}], [DELIVERY | {"mailbox": "../x"}], [DELIVERY | {"message_id": "other"}], [DELIVERY, DELIVERY],
    [DELIVERY | {"state": "lost"}], [DELIVERY | {"state": "claimed"}], [DELIVERY | {"revision": 0}],
    [DELIVERY | {"revision": 2**62}], [DELIVERY | {"attempts": -1}],
    [DELIVERY | {"read_at": "2030-01-01T00:00:00"}],
    [DELIVERY | {"history": [{"at": "2030-01-01T00:00:00", "holder": "x", "reason": "y"}]}],
]  # fmt: skip
BAD_RECORDS: list[Any] = [
    None, {}, {"kind": "chore", "key": "k", "value": 1}, {"kind": "import", "key": "k", "value": True},
    {"kind": "card", "key": "../x", "value": {"id": "../x", "registered_at": "2030-01-01T00:00:00Z"}},
    {"kind": "card", "key": "ann", "value": {"id": "ann", "registered_at": "2030-01-01T00:00:00"}},
    {"kind": "card", "key": "ann", "value": {"id": "ann", "registered_at": "2030-01-01T00:00:00Z",
                                             "scopes": ["a//b"]}},
    {"kind": "card", "key": "ann", "value": {"id": "bob", "registered_at": "2030-01-01T00:00:00Z"}},
    {"kind": "card", "key": "ann", "value": None},
    {"kind": "beat", "key": "ann", "value": {"at": "2030-01-01T00:00:00", "steady": 1, "boot": "b",
                                             "active_at": "2030-01-01T00:00:00Z"}},
    {"kind": "guard", "key": "ann", "value": "everyone"}, {"kind": "guard", "key": "a b", "value": []},
    {"kind": "member:../x", "key": "ann", "value": True}, {"kind": "member:team", "key": "ann", "value": {"x": 1}},
    {"kind": "forgotten", "key": "m", "value": {}}, {"kind": "spent", "key": "m", "value": {"id": 1}},
    {"kind": "spent", "key": "m", "value": {"id": "m", "digest": "d", "at": "yesterday"}},
    {"kind": "tasks:", "key": "m-1", "value": STANDING}, {"kind": "tasks:../x", "key": "m-1", "value": STANDING},
    {"kind": "tasks:eve", "key": "m-1", "value": STANDING}, {"kind": "tasks:ann", "key": "m-2", "value": STANDING},
    {"kind": "tasks:ann", "key": "a b", "value": STANDING | {"letter": "a b"}},
    {"kind": "tasks:ann", "key": "m-1", "value": STANDING | {"state": "lost"}},
    {"kind": "tasks:ann", "key": "m-1", "value": STANDING | {"receiver": "../x"}},
    {"kind": "tasks:ann", "key": "m-1", "value": STANDING | {"thread": "../x"}},
    {"kind": "tasks:ann", "key": "m-1", "value": STANDING | {"moved_at": "2030-01-01T00:00:00"}},
    {"kind": "active", "key": "a b", "value": []}, {"kind": "active", "key": "bob", "value": ["../x"]},
    {"kind": "due", "key": "../x", "value": {"giver": "ann", "at": "2030-01-01T00:00:00Z"}},
    {"kind": "due", "key": "m-1", "value": {"giver": "ann", "at": "2030-01-01T00:00:00"}},
    {"kind": "session", "key": "ann", "value": {}}, {"kind": "session", "key": "../x m-1", "value": {}},
    {"kind": "session", "key": "ann m-1", "value": []},
    {"kind": "active", "key": "bob", "value": [], "revision": -1},
    {"kind": "active", "key": "bob", "value": [], "revision": 2**62},
]  # fmt: skip
BAD_NAMES: list[Any] = [
    None, {}, "ann", {"mailbox": "../x", "known": True}, {"mailbox": "ann"}, {"mailbox": "ann", "known": 1},
    {"mailbox": "\u0430nn", "known": False}, {"mailbox": 5, "known": True},
]  # fmt: skip
HOSTILE: list[bytes] = [
    *(json.dumps({"letter": LETTER | bad, "deliveries": [DELIVERY]}).encode() for bad in BAD_LETTERS),
    *(json.dumps({"letter": LETTER, "deliveries": bad}).encode() for bad in BAD_DELIVERIES),
    *(json.dumps({"record": bad}).encode() for bad in BAD_RECORDS),
    *(json.dumps({"name": bad}).encode() for bad in BAD_NAMES),
    b'{"letter": {}, "letter": {}}', b'{"record": NaN}', b'{"letter": null}', b"null", b"", b"\xff", b"{" * 9999,
    b'{"letter": ' + b"[" * 5000 + b"]" * 5000 + b"}", b'{"record": {"kind": "card", "key": "a", "value": 1e999}}',
]  # fmt: skip


@pytest.mark.parametrize("line", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_line_is_refused_by_its_number(room: Room, line: bytes) -> None:
    with pytest.raises(Invalid) as refused:
        room.load([b'{"postroom": 1, "room": "x"}', line])
    assert str(refused.value.field).startswith("line 2")
    assert room.mailboxes() == []
    assert room.agents() == []


def test_numbers_of_another_room_mean_nothing_here(room: Room, clock: FakeClock) -> None:
    room.mailbox("ann").send("bob", "late", at=60)
    for number in range(20):
        room.mailbox("ann").send("bob", str(number))
    clock.advance(61)
    room.sweep()
    line = json.dumps({"letter": LETTER, "deliveries": [DELIVERY | {"number": 999, "arrived": 999}]}).encode()
    copy = Room(MemoryStore(), Settings(), clock=clock)
    head, *lines, _end = room.export()
    copy.load([head.replace(b'"postroom":2', b'"postroom":1'), *lines, line])
    assert copy.mailbox("bob").wait(0, since=copy.cursor()) is None


def test_a_sound_line_is_taken(room: Room) -> None:
    line = json.dumps({"letter": LETTER, "deliveries": [DELIVERY]})
    assert room.load(['{"postroom": 1, "room": "x"}', line]).letters == 1
    assert texts(room.mailbox("bob").check()) == ["x"]


def test_an_import_keeps_the_limits_of_its_room(kind: Kind, factory: RoomFactory, clock: FakeClock) -> None:
    lines = ['{"postroom": 1, "room": "x"}', json.dumps({"letter": LETTER, "deliveries": [DELIVERY]})]
    with pytest.raises(TooLarge) as refused:
        factory.room(max_message_bytes=50).load(lines)
    assert str(refused.value.field).startswith("line 2")


def test_an_export_may_run_while_letters_go(factory: RoomFactory) -> None:
    room = factory.room()
    for number in range(3):
        room.mailbox("ann").send("bob", str(number))
    lines = room.export()
    next(lines)
    for letter in room.mailbox("bob").check():
        letter.reject("no")
    room.mailbox("bob").purge(*(letter.id for letter in room.mailbox("bob").dead()))
    exported = [json.loads(line) for line in lines]
    assert exported[-1] == {"end": True, "lines": len(exported) - 1}
    assert all(line["deliveries"] for line in exported if "letter" in line)


def test_what_is_no_list_of_lines_is_refused(factory: RoomFactory) -> None:
    for nothing in (None, 5):
        with pytest.raises(Invalid) as refused:
            factory.room().load(nothing)  # type: ignore[arg-type]
        assert refused.value.field == "lines"
