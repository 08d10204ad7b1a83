"""Deadlines (D6): the giver of a task that is not over by then is told, once, by the house."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from postroom import Invalid, Letter, Room, TaskState, draft
from postroom.model.record import DUE
from postroom.store.protocol import record_keys
from tests.rooms import FakeClock, RoomFactory


def notices(room: Room) -> list[Letter]:
    return room.mailbox("ann").check(None, kinds="task_overdue", unread_only=False)


def test_the_giver_is_notified_once_when_nobody_answers_in_time(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room()
    sent = room.mailbox("ann").give_task("bob", "x", subject="Rows", deadline=60, scope="team", priority="high")
    due = clock.wall + timedelta(seconds=60)
    clock.advance(59)
    assert room.sweep().overdue == 0
    clock.advance(1)
    assert room.sweep().overdue == 1
    (notice,) = notices(room)
    assert (notice.sender, notice.subject, notice.thread) == ("postmaster", "Overdue: Rows", sent.id)
    assert notice.message.in_reply_to == sent.id
    assert (notice.message.scope, notice.priority.name) == ("team", "HIGH")
    assert notice.data == {
        "task": sent.id, "letter": sent.id, "receiver": "bob", "state": "pending", "deadline": due.isoformat()
    }  # fmt: skip
    assert "bob has not answered" in notice.text
    notice.ack()
    factory.reopen()
    clock.advance(3600)
    assert factory.room().sweep().overdue == 0
    assert factory.room().mailbox("ann").task(notice.id).state is TaskState.PENDING  # nothing moved by itself


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ((), "has not answered"),
        (("accept",), "has not finished"),
        (("accept", "start"), "has not finished"),
        (("accept", "start", "ask"), "waits for your answer"),
        (("reject",), None),
        (("accept", "complete"), None),
        (("accept", "fail"), None),
    ],
)
def test_an_overdue_notice_says_how_the_task_stands(
    room: Room, clock: FakeClock, steps: tuple[str, ...], says: str | None
) -> None:
    id = room.mailbox("ann").give_task("bob", "x", deadline=60).id
    for step in steps:
        act = getattr(room.mailbox("bob").task(id), step)
        act("so it is") if step in {"reject", "fail", "ask"} else act()
    clock.advance(61)
    assert room.sweep().overdue == (says is not None)
    assert [says in notice.text for notice in notices(room) if says] == [True] * (says is not None)
    assert record_keys(room.core.store, DUE) == []


def test_a_canceled_task_is_due_no_more(room: Room, clock: FakeClock) -> None:
    id = room.mailbox("ann").give_task("bob", "x", deadline=60).id
    room.mailbox("bob").task(id).accept()
    room.mailbox("ann").task(id).cancel()
    clock.advance(61)
    assert room.sweep().overdue == 0


def test_the_receiver_cannot_put_its_deadline_off(room: Room, clock: FakeClock) -> None:
    id = room.mailbox("ann").give_task("bob", "x", deadline=60).id
    later = {"id": id, "state": "accepted", "deadline": "2040-01-01T00:00:00Z"}
    room.mailbox("bob").reply(id, "ok", kind="task_update", task=later)
    clock.advance(61)
    assert room.sweep().overdue == 1


def test_a_notice_is_the_post_rooms_own_and_never_bounces(room: Room, clock: FakeClock) -> None:
    ann = room.mailbox("ann")
    with pytest.raises(Invalid) as refused:
        room.mailbox("eve").send("ann", "you are late", kind="task_overdue")
    assert refused.value.field == "kind"
    ann.register(allow_from=["bob"])
    ann.give_task("bob", "x", deadline=60)
    clock.advance(61)
    room.sweep()
    (notice,) = notices(room)
    notice.reject("do not bother me")
    assert room.mailbox("postmaster").counts()["total"] == 0
    assert room.sweep().overdue == 0


def test_many_deadlines_take_as_many_commits_as_they_need(room: Room, clock: FakeClock) -> None:
    note = {"id": "t", "deadline": (clock.wall + timedelta(seconds=60)).isoformat()}
    drafts = [draft("bob", str(n), kind="task", task=note) for n in range(450)]
    room.mailbox("ann").send_many(drafts)
    clock.advance(61)
    assert room.sweep().overdue == 450
    assert len(notices(room)) == 450


def test_many_janitors_at_once_tell_once(room: Room, clock: FakeClock) -> None:
    for n in range(20):
        room.mailbox("ann").give_task("bob", str(n), deadline=60)
    clock.advance(61)
    start = threading.Barrier(4)
    results: list[int] = []

    def sweep() -> None:
        start.wait(30)
        results.append(room.sweep().overdue)

    janitors = [threading.Thread(target=sweep) for _ in range(4)]
    for janitor in janitors:
        janitor.start()
    for janitor in janitors:
        janitor.join(60)
    assert sum(results) == len(notices(room)) == 20


def test_a_janitor_that_comes_second_tells_nobody_again(
    factory: RoomFactory, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = factory.room()
    room.mailbox("ann").give_task("bob", "x", deadline=60)
    room.sweep()
    clock.advance(61)
    commit, others = factory.store.commit, [room.sweep]

    def overtaken(writes: Any) -> Any:
        """Between looking and writing, another janitor does all there is to do."""
        while others:
            assert others.pop()().overdue == 1
        return commit(writes)

    monkeypatch.setattr(factory.store, "commit", overtaken)
    assert room.sweep().overdue == 0
    assert len(notices(room)) == 1


def test_a_deadline_whose_letter_is_gone_is_forgotten(room: Room, clock: FakeClock) -> None:
    id = room.mailbox("ann").give_task("bob", "x", deadline=60).id
    room.mailbox("bob").read(id).reject("no")
    room.mailbox("bob").purge(id)
    assert room.mailbox("ann").tasks() == []
    clock.advance(61)
    assert room.sweep().overdue == 0
