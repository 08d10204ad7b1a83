"""An export into an empty room loses nothing (M16): both rooms are compared whole, over every pair of stores."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import postroom
from postroom import Handoff, Room, Task, TaskState
from postroom.core import portable
from postroom.model import record
from postroom.model.delivery import Delivery, State
from postroom.model.query import LetterQuery, Query
from postroom.model.record import CLOSED_ESCALATION, DUE, FORMER, MEMBER, OPEN_ESCALATION, SESSION, TASKS, TEMPLATE
from postroom.model.thread import conversation_of
from postroom.store.protocol import Store, all_names, known_names, record_keys, spelling_of
from tests.contract.stores import STORES
from tests.renaming import rename
from tests.rooms import FakeClock, RoomFactory

EVERY_FIELD: dict[str, Any] = {
    "subject": "Grüße \u202eabc", "kind": "task", "priority": "urgent", "scope": "team", "expires": 9000,
    "thread_tag": "release", "conversation_id": "conv-7", "task": {"id": "t-1", "state": "accepted"},
    "callback": {"session": [1, None, {"deep": 1.5}]}, "context": {"k": "v"}, "attachments": ["a.py", "ü.py"],
    "tags": ["x", "y"], "metadata": {"n": 2**53, "f": 1e-300}, "key": "k-1", "id": "outside:1",
    "extra": {"strange": [True]}, "data": {"rows": [1, 2]}, "cc": "carol", "bcc": ["eve", "zoe"],
}  # fmt: skip


def fill(factory: RoomFactory) -> Room:
    """Everything a room can hold."""
    room, clock = factory.room(retain_for=10_000, escalation_after=30), factory.clock
    ann, bob, carol = (room.mailbox(name) for name in ("ann", "team/bob", "carol"))
    ann.register(display_name="Ann", capabilities=["sort"], scopes=["team", "red"], metadata={"k": [1]})
    bob.register(allow_from=["ann", "carol", "postmaster"], max_concurrent_tasks=0, model="m", program="p")
    bob.heartbeat(current_tasks=["t-1"], poll_interval=7.5, active=True)
    carol.register()
    carol.leave()
    ann.send("team/bob", [postroom.text("a"), postroom.event("e", {"x": 1})], **EVERY_FIELD)
    (Path(room.settings.file_root) / "note.txt").write_text("bytes \x07 travel")
    ann.send("carol", [postroom.file("note.txt", mime="text/plain"), postroom.reference("urn:x", "label")])
    ann.broadcast("team", "everyone", exclude=["carol"])
    ann.handoff("carol", Handoff(work_completed="half", files_modified=("a.py",), next_steps=("rest",)))
    carol.forward(ann.send("carol", "pass it on").id, "dave")
    _move_some(room, clock)
    ann.send("later", "not yet", at=5000, expires=8000)
    ann.send("late", "came late", at=1)
    clock.advance(2)
    room.sweep()
    _leave_only_names(room)
    _give_tasks(room)
    _escalate(room, clock)
    _rename_and_take_back(room)
    return room


def _move_some(room: Room, clock: FakeClock) -> None:
    ann, carol = room.mailbox("ann"), room.mailbox("carol")
    for text in ("done", "unarchived", "rejected", "failed", "held", "released", "lapsed", "revived", "read"):
        ann.send("worker", text, key=f"key-{text}")
    ann.send("worker", "expired", expires=5)
    worker = room.mailbox("worker")
    works = {work.text: work for work in worker.claim(9, lease=600)}
    works["done"].ack_and_reply("ok", bcc="eve")
    works["unarchived"].ack(archive=False)
    works["rejected"].fail("never", retry=False)
    works["failed"].fail("once")
    works["released"].release()
    works["lapsed"].renew(1)
    works["revived"].fail("oops", retry=False)
    worker.revive(works["revived"].id)
    works["read"].release()
    worker.read(works["read"].id)
    clock.advance(10)
    room.sweep()
    carol.check()


def _give_tasks(room: Room) -> None:
    """One in each state, with sessions and deadlines; one for a skill."""
    ann, worker = room.mailbox("ann"), room.mailbox("worker")
    worker.register(capabilities=["dig"], scopes=["team"], max_concurrent_tasks=9)
    steps: dict[str, list[Callable[[Task], object]]] = {
        "accepted": [Task.accept],
        "working": [Task.accept, Task.start],
        "input_required": [Task.accept, Task.start, lambda task: task.ask("Which?")],
        "completed": [Task.accept, Task.complete],
        "failed": [Task.accept, lambda task: task.fail("no")],
        "rejected": [lambda task: task.reject("no")],
        "pending": [],
    }
    for state, way in steps.items():
        id = ann.give_task("worker", state, deadline=7000, session={"chat": state}, key=f"task {state}").id
        for step in way:
            step(worker.task(id))
    canceled = ann.give_task("worker", "canceled").id
    worker.task(canceled).accept(ack=False)
    ann.task(canceled).cancel("never mind")
    ann.give_task("any:dig", "whoever can", session={"n": 1})
    room.save_template("sort", subject="Sort {what}", body="Please sort {what}.", kind="task")


def _escalate(room: Room, clock: FakeClock) -> None:
    """One that climbed and is open, one that is answered, one that is resolved."""
    ann = room.mailbox("ann")
    ann.escalate("open", reason="blocked", ladder=["lead", "coo", "human"], key="esc")
    clock.advance(31)
    room.sweep()
    room.mailbox("lead").reply(ann.escalate("answered", reason="question", ladder=["lead", "coo"]).id, "yes")
    room.sweep()
    ann.escalate("resolved", reason="risk", ladder=["lead", "coo"], id="esc-3")
    (one,) = [e for e in room.escalations() if "esc-3" in e.letters]
    room.mailbox("lead").resolve(one.id)


def _rename_and_take_back(room: Room) -> None:
    """Guards and names; letters and tasks that were taken back, seen and unseen; the human's other names."""
    ann, worker = room.mailbox("ann"), room.mailbox("worker")
    worker.block("eve")
    worker.block("zoe")
    for text in ("seen", "unseen"):
        id = ann.give_task("worker", text, deadline=60).id
        if text == "seen":
            worker.read(id)
        ann.unsend(id)
    ann.unsend(ann.send("worker", "for later", at=600).id)
    for name in ("user", "ceo", "human"):
        ann.send(name, f"to {name}")
    for old, new in (
        ("worker", "digger"),
        ("digger", "miner"),
        ("lead", "chief"),
        ("zoe", "Zoe"),
        ("ann", "anna"),
    ):
        rename(room, old, new)
    room.mailbox("anna").send("worker", "to the old name")


def _leave_only_names(room: Room) -> None:
    """Names of which no letter is left: one that wrote, one that was only written to."""
    gone = room.mailbox("ghost-writer").send("ghost-reader", "gone", key="gone")
    room.mailbox("ghost-reader").check(peek=True)[0].reject("no")
    room.mailbox("ghost-reader").purge(gone.id)
    for notice in room.mailbox("ghost-writer").check():
        notice.reject("seen")
        room.mailbox("ghost-writer").purge(notice.id)


def _places(store: Store) -> list[Delivery]:
    return sorted((f.delivery for f in store.find(Query())), key=lambda d: (d.number, d.mailbox))


def everything(store: Store) -> dict[str, object]:
    """All that a room holds, but for numbers, which are its own."""
    names = [value for name, value in vars(record).items() if name.isupper()]
    kinds = [kind for kind in names if not kind.endswith(":")]
    kinds += [f"{MEMBER}{scope}" for scope in ("team", "red")] + [TASKS + name for name in all_names(store)]
    return {
        "letters": [letter.message for letter in store.letters(LetterQuery())],
        "deliveries": [replace(delivery, number=0, arrived=0) for delivery in _places(store)],
        "records": [held for kind in kinds for held in store.records(kind)],
        "names": (all_names(store), known_names(store)),
        "spellings": [
            spelling_of(store, name) for name in ("worker", "digger", "miner", "ann", "LEAD", "zoe", "user")
        ],
        "threads": sorted(one.message.thread for one in store.letters(LetterQuery(newest_of="thread"))),
        "conversations": sorted(
            conversation_of(one.message) for one in store.letters(LetterQuery(newest_of="conversation"))
        ),
        "tally": store.count(Query(), by="state"),
        "counts": (store.count(LetterQuery(), by="all"), store.count(Query(), by="all")),
    }


@pytest.mark.parametrize("empty", STORES, ids=lambda kind: f"to-{kind.name}", indirect=True)
def test_both_rooms_hold_the_same(factory: RoomFactory, empty: RoomFactory) -> None:
    fill(factory)
    before = everything(factory.store)
    empty.room().load(factory.room().export())
    assert everything(factory.store) == before
    after = everything(empty.store)
    for part, held in before.items():
        assert after[part] == held, part


def test_the_room_to_export_holds_everything(factory: RoomFactory) -> None:
    """Or the comparison would prove little."""
    fill(factory)
    store = factory.store
    found = [f.delivery for f in store.find(Query())]
    assert {delivery.state for delivery in found} == set(State)
    assert {delivery.kind for delivery in found} == {"to", "cc", "bcc"}
    assert any(d.history for d in found) and any(d.archived_at for d in found) and any(d.arrived for d in found)
    assert any(d.state is State.DONE and d.archived_at is None for d in found)
    letters = [letter.message for letter in store.letters(LetterQuery())]
    full = next(message for message in letters if message.id == "outside:1")
    assert all(getattr(full, name) for name in EVERY_FIELD if name not in {"expires", "data", "cc", "bcc"})
    assert {part.type for message in letters for part in message.parts} == {
        "text",
        "data",
        "event",
        "file",
        "reference",
    }
    tasks = factory.room().mailbox("anna").tasks(limit=100)
    assert {task.state for task in tasks} == set(TaskState)
    assert {task.reason for task in tasks} >= {"unsent", "never mind"}
    for kind in (OPEN_ESCALATION, CLOSED_ESCALATION, DUE, SESSION, FORMER, TEMPLATE):
        assert record_keys(store, kind), kind
    assert {"ghost-reader", "ghost-writer"} <= set(all_names(store))
    assert "ghost-reader" not in known_names(store)
    assert "ghost-writer" in known_names(store)


def test_mail_goes_on_in_the_copy_as_in_the_original(factory: RoomFactory, clock: FakeClock) -> None:
    fill(factory)
    copy = Room(STORES[0].open(factory.folder, clock.moment.boot), factory.room().settings, clock=clock)
    copy.load(factory.room().export())
    clock.advance(timedelta(hours=2).total_seconds())
    for room in (factory.room(), copy):
        room.sweep()
    originals, copies = (_places(room.core.store) for room in (factory.room(), copy))
    assert [(d.mailbox, d.state, d.reason) for d in originals] == [(d.mailbox, d.state, d.reason) for d in copies]


def test_tasks_and_questions_go_on_in_the_copy(factory: RoomFactory, clock: FakeClock) -> None:
    fill(factory)
    copy = Room(STORES[0].open(factory.folder, clock.moment.boot), factory.room().settings, clock=clock)
    copy.load(factory.room().export())
    anna, miner = copy.mailbox("anna"), copy.mailbox("miner")
    pending = {task.standing.subject or task.id: task for task in miner.tasks(states="pending")}
    assert len(pending) == 2  # one by name, one for its skill
    for task in pending.values():
        miner.task(task.id).accept()
        miner.task(task.id).complete("done")
        assert anna.task(task.id).state is TaskState.COMPLETED
        assert anna.task(task.id).session
    (request,) = anna.escalations()
    copy.mailbox("coo").reply(request.letters[-1], "yes")
    assert anna.escalations() == []
    with pytest.raises(postroom.UnknownAgent, match="'digger' is now 'miner'"):
        copy.mailbox("digger").tasks()
    with pytest.raises(postroom.NotAllowed):
        copy.mailbox("Zoe").send("worker", "x")


def test_a_name_without_mail_is_still_taken_in_the_copy(factory: RoomFactory, clock: FakeClock) -> None:
    fill(factory)
    copy = Room(STORES[0].open(factory.folder, clock.moment.boot), factory.room().settings, clock=clock)
    copy.load(factory.room().export())
    with pytest.raises(postroom.LookAlike):
        copy.mailbox("anna").send("Ghost-Reader", "x")
    assert copy.mailbox("anna").send("ghost-writer", "x").unknown == ()
    assert copy.mailbox("anna").send("ghost-reader", "x").unknown == ("ghost-reader",)


def test_export_and_import_tell_how_far_they_are(
    factory: RoomFactory, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portable, "SLICE", 50)
    room = factory.room()
    room.mailbox("ann").send_many([postroom.draft("bob", str(n)) for n in range(120)])
    results: list[tuple[int, int]] = []
    lines = list(room.export(progress=lambda *at: results.append(at)))
    assert results == [(50, 122), (100, 122), (122, 122)]
    results.clear()
    copy = Room(STORES[0].open(factory.folder, clock.moment.boot), room.settings, clock=clock)
    copy.load(lines, progress=lambda *at: results.append(at))
    assert results == [(50, 122), (100, 122), (122, 122)]


def test_an_export_of_the_first_format_is_still_taken(room: Room) -> None:
    results: list[tuple[int, int]] = []
    imported = room.load([b'{"postroom": 1, "room": "x"}'], progress=lambda *at: results.append(at))
    assert (imported.letters, imported.records, imported.names) == (0, 0, 0)
    assert results == [(0, 0)]  # it does not say how many lines follow
