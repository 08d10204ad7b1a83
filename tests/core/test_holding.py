"""Working on mail (M4 to M6, G5): one holder, leases by uptime alone, a final ack, ack and reply in one commit."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import pytest

from postroom import (
    LeaseLost,
    Mailbox,
    NotAllowed,
    PostroomError,
    Room,
    State,
    TooFast,
    UnknownMessage,
    Work,
    draft,
)
from postroom.model.query import Query
from postroom.settings import Settings
from postroom.store.protocol import Move, Plan, Post, Posted, Write
from tests.rooms import FakeClock, RoomFactory, texts


def given_work(room: Room, lease: float = 60, text: str = "x") -> Work:
    room.mailbox("ann").send("bob", text)
    work = room.mailbox("bob").claim(lease=lease)
    assert work
    return work


def test_a_claim_takes_the_most_urgent_then_the_oldest(room: Room) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    for text in ("1", "2", "3", "4"):
        ann.send("bob", text, priority="urgent" if text in {"2", "4"} else "normal")
    bob.check(1)  # being read changes nothing for workers
    assert [work.text for work in bob.claim(10)] == ["2", "4", "1", "3"]
    assert bob.claim() is None
    assert bob.claim(5) == []


def test_a_claim_has_one_holder_with_a_lease(room: Room, clock: FakeClock) -> None:
    work = given_work(room)
    lease = work.delivery.lease
    assert lease
    assert (work.state, lease.until) == (State.CLAIMED, clock.moment.steady + 60)
    assert lease.holder == f"bob (process {os.getpid()})"
    assert len(lease.token) >= 32
    assert room.mailbox("bob").claim() is None
    assert room.mailbox("bob").check(unread_only=False) == []


def test_every_letter_is_claimed_by_exactly_one_of_many_threads(room: Room) -> None:
    room.mailbox("ann").send_many([draft("bob", str(n)) for n in range(60)])
    taken: list[str] = []

    def worker() -> None:
        bob = room.mailbox("bob")
        while works := bob.claim(3):
            taken.extend(work.text for work in works)
            works.ack()

    workers = [threading.Thread(target=worker) for _ in range(6)]
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join(60)
    assert Counter(taken) == Counter(str(n) for n in range(60))


def test_an_ack_is_final_and_may_be_repeated(factory: RoomFactory, room: Room, clock: FakeClock) -> None:
    work = given_work(room)
    work.ack()
    clock.advance(1000)
    work.ack()
    assert (work.state, work.delivery.acked_at) == (State.DONE, work.delivery.archived_at)
    assert work.delivery.read_at == work.delivery.acked_at
    factory.reopen()
    bob = factory.room().mailbox("bob")
    assert bob.claim() is None
    assert bob.check(unread_only=False) == []


def test_an_end_may_be_said_twice_by_who_knows_of_no_answer(room: Room, clock: FakeClock) -> None:
    """As after a sync that failed: nobody was sure that the first word would last."""
    work = given_work(room)
    again, otherwise = copy(work), copy(work)
    work.fail("never", retry=False)
    clock.advance(1000)
    again.fail("never", retry=False)
    assert (State.DEAD, 1) == (again.state, len(room.mailbox("ann").check()))
    with pytest.raises(LeaseLost):
        otherwise.fail("for another reason", retry=False)


def test_nothing_else_follows_an_ack(room: Room) -> None:
    work = given_work(room)
    work.ack()
    with pytest.raises(LeaseLost):
        work.fail("changed my mind")
    with pytest.raises(LeaseLost):
        work.renew()
    with pytest.raises(LeaseLost):
        work.release()
    assert work.state is State.DONE
    assert room.mailbox("ann").check() == []


def test_a_lease_ends_by_uptime_and_the_letter_is_back(room: Room, clock: FakeClock) -> None:
    given_work(room)
    clock.tick(59.9)
    assert room.mailbox("bob").claim() is None
    clock.tick(0.1)
    again = room.mailbox("bob").claim()
    assert again
    assert (again.delivery.attempts, again.delivery.history[0].reason) == (1, "the lease ran out")
    assert again.delivery.history[0].holder == f"bob (process {os.getpid()})"


@pytest.mark.parametrize("jump", [-10_000_000, -61, 61, 10_000_000])
def test_the_wall_clock_neither_ends_nor_stretches_a_lease(room: Room, clock: FakeClock, jump: float) -> None:
    work = given_work(room)
    clock.jump(jump)
    assert room.mailbox("bob").claim() is None
    clock.tick(59)
    work.renew(60)
    clock.tick(59)
    clock.jump(-jump)
    assert room.mailbox("bob").claim() is None
    clock.tick(1)
    assert room.mailbox("bob").claim()


def test_no_lease_outlives_a_reboot(factory: RoomFactory, clock: FakeClock) -> None:
    if not factory.kind.lasts:
        pytest.skip("this room does not outlive its process")
    work = given_work(factory.room(), lease=600_000)
    clock.reboot()
    factory.reopen()
    again = factory.room().mailbox("bob").claim()
    assert again
    assert again.delivery.attempts == 1
    with pytest.raises(LeaseLost):
        factory.room().mailbox("bob").ack([work])


@pytest.mark.parametrize("then", ["nobody looked", "it lapsed", "another holds it", "it is done"])
def test_a_late_ack_is_refused(room: Room, clock: FakeClock, then: str) -> None:
    work = given_work(room)
    clock.tick(60)
    bob = room.mailbox("bob")
    if then == "it lapsed":
        bob.check()
    if then in {"another holds it", "it is done"}:
        other = bob.claim()
        assert other
        if then == "it is done":
            other.ack()
    with pytest.raises(LeaseLost):
        work.ack()
    with pytest.raises(LeaseLost):
        work.ack_and_reply("late")
    with pytest.raises(LeaseLost):
        work.fail("late")
    with pytest.raises(LeaseLost):
        work.renew()
    assert room.mailbox("ann").check() == []


def test_a_renewed_lease_counts_from_now(room: Room, clock: FakeClock) -> None:
    work = given_work(room)
    clock.tick(50)
    work.renew()
    clock.tick(50)
    work.renew(10)
    clock.tick(9)
    work.ack()


def test_what_is_given_back_counts_no_try(room: Room) -> None:
    work = given_work(room)
    work.release()
    again = room.mailbox("bob").claim()
    assert again
    assert (again.delivery.attempts, again.delivery.history) == (0, ())
    assert work.is_settled


def test_a_failed_try_waits_longer_each_time(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room(max_attempts=12)
    room.mailbox("ann").send("bob", "x")
    bob = room.mailbox("bob")
    waits = []
    for _ in range(10):
        work = bob.claim()
        assert work
        work.fail("broken")
        assert bob.claim() is None
        assert work.delivery.due_at
        waits.append((work.delivery.due_at - clock.wall).total_seconds())
        clock.advance(waits[-1] - 0.001)
        assert bob.claim() is None
        clock.advance(0.001)
    assert waits == [10, 20, 40, 80, 160, 320, 640, 1280, 1800, 1800]


def test_mail_is_dead_after_five_tries_and_its_sender_is_notified_in_the_same_commit(
    room: Room, clock: FakeClock
) -> None:
    room.mailbox("ann").send("bob", "x", subject="Job", thread_tag="t", conversation_id="c")
    bob, before = room.mailbox("bob"), room.cursor()
    for number in range(5):
        clock.advance(3600)
        work = bob.claim(holder=f"worker-{number}")
        assert work
        before = room.cursor()
        work.fail(f"reason {number}")
    changes, _ = room.changes(before)
    assert [(change.what, change.state) for change in changes] == [("moved", State.DEAD), ("posted", None)]
    clock.advance(3600)
    assert bob.claim() is None
    (dead,) = bob.dead()
    assert (dead.delivery.reason, dead.delivery.attempts) == ("reason 4", 5)
    assert [(a.holder, a.reason) for a in dead.delivery.history] == [
        (f"worker-{n}", f"reason {n}") for n in range(5)
    ]
    (bounce,) = room.mailbox("ann").check()
    assert (bounce.sender, bounce.kind, bounce.subject) == ("postmaster", "bounce", "Undeliverable: Job")
    assert bounce.data == {"message_id": dead.id, "mailbox": "bob", "reason": "reason 4"}
    assert (bounce.thread, bounce.message.thread_tag, bounce.message.conversation_id) == (dead.id, "t", "c")


def test_five_lapsed_leases_kill_too(room: Room, clock: FakeClock) -> None:
    room.mailbox("ann").send("bob", "x")
    for _ in range(5):
        assert room.mailbox("bob").claim(lease=1)
        clock.tick(1)
    assert room.mailbox("bob").claim() is None
    assert room.mailbox("bob").dead()[0].delivery.reason == "the lease ran out"
    assert [letter.kind for letter in room.mailbox("ann").check()] == ["bounce"]


def test_the_number_of_tries_and_the_pause_can_be_set(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room(max_attempts=2, backoff_first=1, backoff_most=1)
    given_work(room).fail("one")
    clock.advance(1)
    work = room.mailbox("bob").claim()
    assert work
    work.fail("two")
    assert work.state is State.DEAD


@pytest.mark.parametrize(
    ("text", "kept"),
    [("  a \n b\t", "a b"), ("", "no reason given"), ("x" * 3000, "x" * 2000), ("\ud800\0", "?"), (5, "5")],
    ids=range(5),
)
def test_any_reason_is_kept_on_one_line(room: Room, text: str, kept: str) -> None:
    work = given_work(room)
    work.fail(text, retry=False)
    assert work.delivery.reason == kept
    assert kept in room.mailbox("ann").check()[0].text


def test_done_and_answered_is_one_commit(room: Room) -> None:
    work = given_work(room)
    before = room.cursor()
    receipt = work.ack_and_reply("done")
    assert work.is_settled
    changes, _ = room.changes(before)
    assert sorted(change.what for change in changes) == ["moved", "posted"]
    (answer,) = room.mailbox("ann").check()
    assert (answer.id, answer.thread) == (receipt.id, work.id)
    assert work.ack_and_reply("done").repeated
    assert room.mailbox("ann").check() == []


ANSWERS: dict[str, Callable[[Mailbox, Work], object]] = {
    "ack_and_reply": lambda _bob, work: work.ack_and_reply("done"),
    "ack_and_send": lambda _bob, work: work.ack_and_send([draft("ann", "done")]),
    "accept": lambda bob, work: bob.task(work).accept(),
}


class Killed(BaseException):
    """The end of a process."""


class CutOff:
    """A store whose process is killed as soon as a commit of letters or states is over."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, verb: str) -> Any:
        return getattr(self.inner, verb)

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        planned: list[Write] = []

        def plan() -> Sequence[Write]:
            planned[:] = writes() if callable(writes) else writes
            return planned

        posted: tuple[Posted, ...] = self.inner.commit(plan)
        if any(isinstance(write, (Move, Post)) for write in planned):
            raise Killed
        return posted


class OneAfterTheOther(CutOff):
    """The bug: what belongs together is two commits, first the states and then the letters."""

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        planned = writes() if callable(writes) else writes
        self.inner.commit([write for write in planned if not isinstance(write, Post)])
        posted: tuple[Posted, ...] = self.inner.commit([write for write in planned if isinstance(write, Post)])
        return posted


def done_and_answered(factory: RoomFactory, answer: str, store: CutOff) -> tuple[bool, bool]:
    """Whether bob's letter is done and whether ann has the answer, after a kill at the end of the first commit."""
    factory.room().mailbox("ann").give_task("bob", "Sort it.")
    taken = factory.room().mailbox("bob").claim()
    assert taken and taken.delivery.lease
    bob = Room(store, Settings(), clock=factory.clock).mailbox("bob")
    work = bob.held(taken.id, taken.delivery.lease.token)
    with pytest.raises(Killed):
        ANSWERS[answer](bob, work)
    factory.reopen()
    (found,) = factory.store.find(Query(mailbox="bob"))
    return found.delivery.state is State.DONE, len(factory.room().mailbox("ann").check()) == 1


@pytest.mark.parametrize("answer", ANSWERS)
def test_no_kill_comes_between_done_and_answered(factory: RoomFactory, answer: str) -> None:
    assert (True, True) == done_and_answered(factory, answer, CutOff(factory.store))


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_kill_between_done_and_answered_is_found(factory: RoomFactory, answer: str) -> None:
    assert (True, False) == done_and_answered(factory, answer, OneAfterTheOther(CutOff(factory.store)))


def refused_replies(room: Room) -> list[tuple[type[PostroomError], dict[str, object]]]:
    room.mailbox("ann").block("bob")
    return [(NotAllowed, {}), (PostroomError, {"cc": "../x"}), (PostroomError, {"metadata": {"k": float("nan")}})]


def test_when_the_reply_is_refused_the_work_stays_claimed(room: Room) -> None:
    work = given_work(room)
    for error, fields in refused_replies(room):
        with pytest.raises(error):
            work.ack_and_reply("done", **fields)  # type: ignore[arg-type]
        assert work.state is State.CLAIMED
        assert room.mailbox("bob").claim() is None
    work.ack()


def test_when_one_of_the_letters_is_refused_none_is_sent(factory: RoomFactory) -> None:
    room = factory.room(thread_rate=1)
    work = given_work(room)
    with pytest.raises(PostroomError):
        work.ack_and_send([draft("carol", "good"), draft("../x", "bad")])
    room.mailbox("bob").reply(work.id, "one")
    with pytest.raises(TooFast):
        work.ack_and_reply("two")
    assert work.state is State.CLAIMED
    assert room.mailbox("carol").check() == []
    assert len(work.ack_and_send([draft("carol", "a"), draft("dave", "b")])) == 2
    assert texts(room.mailbox("carol").check()) == ["a"]


def test_when_the_lease_is_lost_no_letter_is_sent(room: Room, clock: FakeClock) -> None:
    work = given_work(room)
    clock.tick(60)
    with pytest.raises(LeaseLost):
        work.ack_and_send([draft("carol", "late")])
    assert "carol" not in room.mailboxes()


def test_each_of_a_batch_can_be_answered(room: Room) -> None:
    room.mailbox("ann").send_many([draft("bob", str(n)) for n in range(3)])
    same = draft("carol", "one finished")
    for work in room.mailbox("bob").claim(3):
        assert not work.ack_and_send([same, draft("dave", "x")])[0].repeated
    assert texts(room.mailbox("carol").check()) == ["one finished"] * 3
    room.mailbox("ann").send_many([draft("bob", str(n)) for n in range(3)])
    for work in room.mailbox("bob").claim(3):
        work.ack_and_reply(f"done {work.text}")
    assert texts(room.mailbox("ann").check()) == ["done 0", "done 1", "done 2"]


def test_a_holder_keeps_its_work_though_others_look_at_it(room: Room) -> None:
    work = given_work(room)
    room.mailbox("bob").read(work.id)  # stamps it, so that its revision moves on
    work.renew()
    room.mailbox("bob").read(work.id)
    work.ack()
    assert work.delivery.read_at


def test_what_was_given_back_can_no_longer_be_renewed(room: Room) -> None:
    work = given_work(room)
    work.release()
    with pytest.raises(LeaseLost):
        work.renew()


def test_a_letter_sent_with_an_ack_keeps_a_key_of_its_own(room: Room) -> None:
    (sent,) = given_work(room).ack_and_send([draft("carol", "x", key="mine")])
    assert sent.message.key == "mine"


def test_work_whose_letter_was_deleted_is_unknown(room: Room, clock: FakeClock) -> None:
    work = given_work(room)
    clock.tick(60)
    room.mailbox("bob").check()[0].reject("too slow")
    room.mailbox("bob").purge(work.id)
    with pytest.raises(UnknownMessage):
        work.ack()


def test_what_is_deleted_meanwhile_is_unknown(room: Room) -> None:
    room.mailbox("ann").send("bob", "x")
    bob = room.mailbox("bob")
    letter, other = bob.check()[0], bob.check(unread_only=False)[0]
    other.reject("no")
    bob.purge(letter.id)
    with pytest.raises(UnknownMessage):
        letter.ack()
