"""Work and batches as blocks and loops: done on exit, back on error, given back when the loop is left."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from postroom import Batch, Invalid, LeaseLost, Room, State, UnknownMessage, Work, draft
from tests.letters import on_barrier
from tests.rooms import FakeClock, RoomFactory, texts


class Broken(Exception):
    """The worker's own trouble."""


def fill(room: Room, count: int = 1) -> None:
    room.mailbox("ann").send_many([draft("bob", str(n)) for n in range(count)])


def claimed(room: Room) -> Work:
    work = room.mailbox("bob").claim()
    assert work
    return work


def test_a_block_that_ends_well_is_done(room: Room) -> None:
    fill(room)
    with claimed(room) as work:
        assert not work.is_settled
    assert (work.state, work.is_settled) == (State.DONE, True)


def test_a_block_that_fails_counts_a_try_and_the_letter_is_back_later(room: Room, clock: FakeClock) -> None:
    fill(room)
    with pytest.raises(Broken), claimed(room) as work:
        raise Broken("no luck")
    assert (work.state, work.delivery.attempts) == (State.UNREAD, 1)
    assert work.delivery.reason == "Broken: no luck"
    assert room.mailbox("bob").claim() is None
    clock.advance(10)
    assert claimed(room).delivery.attempts == 1


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_ctrl_c_gives_the_letter_back_and_counts_nothing(room: Room, stop: type[BaseException]) -> None:
    fill(room, 2)
    with pytest.raises(stop), claimed(room) as work:
        raise stop
    assert (work.state, work.delivery.attempts) == (State.UNREAD, 0)
    with pytest.raises(stop), room.mailbox("bob").claim(2) as batch:
        raise stop
    assert [work.delivery.attempts for work in batch] == [0, 0]
    assert len(room.mailbox("bob").claim(2)) == 2


@pytest.mark.parametrize("settle", ["ack", "release", "fail", "reject"])
def test_what_was_settled_inside_the_block_stays_so(room: Room, settle: str) -> None:
    fill(room)
    with claimed(room) as work:
        if settle in {"fail", "reject"}:
            getattr(work, settle)("why")
        else:
            getattr(work, settle)()
        state = work.state
    assert work.state is state


def test_a_block_that_took_too_long_is_reported(room: Room, clock: FakeClock) -> None:
    fill(room)
    with pytest.raises(LeaseLost), claimed(room):
        clock.tick(61)


@pytest.mark.parametrize("error", [Broken, KeyboardInterrupt])
def test_an_error_in_a_block_is_not_hidden_by_a_lost_lease(
    room: Room, clock: FakeClock, error: type[BaseException]
) -> None:
    fill(room)

    def fail_late() -> None:
        clock.tick(61)
        raise error

    with pytest.raises(error), claimed(room):
        fail_late()
    with pytest.raises(error), room.mailbox("bob").claim(3):
        fail_late()


def test_a_batch_is_settled_in_one_commit_each(room: Room) -> None:
    fill(room, 3)
    batch = room.mailbox("bob").claim(3, lease=10)
    assert isinstance(batch, Batch)
    batch.renew(60)
    batch[0].ack()
    assert batch.unsettled == batch[1:]
    batch.ack()
    assert [work.state for work in batch] == [State.DONE] * 3
    batch.ack()
    batch.release()


def test_a_batch_block_is_done_or_fails_together(room: Room, clock: FakeClock) -> None:
    fill(room, 4)
    with room.mailbox("bob").claim(2) as batch:
        pass
    assert [work.state for work in batch] == [State.DONE] * 2
    batch = room.mailbox("bob").claim(2)
    batch[0].ack()
    with pytest.raises(Broken), batch:
        raise Broken
    assert [(work.state, work.delivery.attempts) for work in batch] == [(State.DONE, 0), (State.UNREAD, 1)]


def test_one_lost_lease_stops_the_whole_batch(room: Room, clock: FakeClock) -> None:
    fill(room, 2)
    batch = room.mailbox("bob").claim(2)
    batch[0].renew(600)
    clock.tick(61)
    with pytest.raises(LeaseLost):
        batch.ack()
    batch[0].ack()


def test_an_empty_batch_is_no_trouble_and_costs_no_sync(factory: RoomFactory) -> None:
    room = factory.room()
    syncs: list[int] = []
    on_barrier(factory.store, lambda _sync: syncs.append(1))
    with room.mailbox("bob").claim(3) as batch:
        assert batch == []
    batch.renew()
    assert syncs == []


def test_a_loop_acknowledges_nothing_that_nobody_settled(room: Room) -> None:
    fill(room, 3)
    bob = room.mailbox("bob")
    seen = []
    for work in bob.work(timeout=0):
        assert work.state is State.CLAIMED
        seen.append(work)
    assert [work.text for work in seen] == ["0", "1", "2"]
    assert [(work.state, work.delivery.attempts) for work in seen] == [(State.UNREAD, 0)] * 3
    assert texts(bob.check()) == ["0", "1", "2"]


@pytest.mark.parametrize("batch", [1, 2])
def test_a_loop_settles_what_leaves_its_block(room: Room, batch: int) -> None:
    fill(room, 3)
    bob = room.mailbox("bob")
    for work in bob.work(batch=batch, timeout=0):
        with work:
            pass
    assert bob.check(unread_only=False) == []


def test_a_loop_leaves_what_its_body_settled(room: Room) -> None:
    fill(room, 3)
    works = []
    for work in room.mailbox("bob").work(batch=3, timeout=0):
        works.append(work)
        if work.text == "0":
            work.ack_and_reply("answered")
        elif work.text == "1":
            work.fail("broken")
    assert [(work.state, work.delivery.attempts) for work in works] == [
        (State.DONE, 0), (State.UNREAD, 1), (State.UNREAD, 0),
    ]  # fmt: skip
    assert texts(room.mailbox("ann").check()) == ["answered"]


def test_leaving_a_loop_counts_a_try_of_the_letter_in_hand_and_gives_back_the_rest(
    room: Room, clock: FakeClock
) -> None:
    fill(room, 3)
    bob = room.mailbox("bob")
    for work in bob.work(batch=3, timeout=0):
        if work.text == "1":
            break
    assert [(work.text, work.delivery.attempts) for work in bob.claim(3)] == [("0", 0), ("2", 0)]
    clock.advance(10)
    again = bob.claim(3)
    assert [(work.text, work.delivery.attempts) for work in again] == [("1", 1)]
    assert again[0].delivery.reason == "the worker left its loop"


def test_leaving_a_loop_after_the_lease_ended_is_no_trouble(room: Room, clock: FakeClock) -> None:
    fill(room)
    loop = room.mailbox("bob").work(timeout=0)
    next(loop)
    clock.tick(61)
    loop.close()
    assert claimed(room).delivery.attempts == 1


def test_a_letter_that_always_breaks_its_worker_dies_at_last(room: Room, clock: FakeClock) -> None:
    fill(room)

    def run() -> None:
        for _ in room.mailbox("bob").work(timeout=0):
            raise Broken

    for _ in range(5):
        with pytest.raises(Broken) as caught:
            run()
        del caught  # the loop goes with the error that left it
        clock.advance(1800)
    assert [letter.text for letter in room.mailbox("bob").dead()] == ["0"]


def test_a_loop_takes_the_filters_of_a_claim(room: Room) -> None:
    room.mailbox("ann").send("bob", "note", kind="note")
    room.mailbox("ann").send("bob", "task", kind="task")
    for work in room.mailbox("bob").work(timeout=0, kinds="task", lease=5):
        with work:
            assert work.text == "task"
    assert texts(room.mailbox("bob").check()) == ["note"]


class Stopwatch:
    """The time of a worker loop, which passes as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed = 0.0
        monkeypatch.setattr("postroom.letter.time", SimpleNamespace(monotonic=lambda: self.passed))


def test_a_slow_loop_renews_what_is_ahead_and_gives_back_what_it_left_behind(
    room: Room, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(room, 4)
    bob, stopwatch = room.mailbox("bob"), Stopwatch(monkeypatch)
    for number, work in enumerate(bob.work(batch=4, timeout=0)):
        assert work.text == str(number)
        stopwatch.passed += 40
        clock.tick(40)
        if number == 3:
            break
    back = bob.check(unread_only=False, peek=True)
    assert [(letter.text, letter.delivery.attempts) for letter in back] == [("0", 0), ("1", 0), ("2", 0), ("3", 1)]


def test_a_loop_that_waits_for_mail_gives_back_in_time_what_it_left_behind(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(room)
    bob, stopwatch = room.mailbox("bob"), Stopwatch(monkeypatch)
    loop = bob.work(timeout=30, lease=0.2)
    first = next(loop)
    stopwatch.passed += 0.1
    assert (next(loop).text, first.delivery.attempts) == ("0", 0)  # the same letter again, after half its lease
    loop.close()


def test_letters_ahead_whose_lease_was_lost_are_left_out(
    room: Room, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(room, 3)
    bob, stopwatch = room.mailbox("bob"), Stopwatch(monkeypatch)
    seen = []
    for work in bob.work(batch=3, timeout=0):
        seen.append((work.text, work.delivery.reason))
        if len(seen) == 2:
            break
        stopwatch.passed += 70
        clock.tick(70)
    assert seen == [("0", None), ("0", "the lease ran out")]  # claimed anew, instead of one that is not held


# -- held by its token


def token_of(work: Work) -> str:
    assert work.delivery.lease
    return work.delivery.lease.token


def test_a_claim_is_found_again_by_its_token_and_settled_once(factory: RoomFactory) -> None:
    fill(factory.room())
    taken = claimed(factory.room())
    again = factory.room().mailbox("bob").held(taken.id, token_of(taken))  # in another process
    assert (again.id, again.state, again.is_settled) == (taken.id, State.CLAIMED, False)
    receipt = again.ack_and_reply("done")
    assert receipt.thread == taken.id
    factory.room().mailbox("bob").held(taken.id, token_of(taken)).ack()  # twice is the same as once
    with pytest.raises(LeaseLost):
        factory.room().mailbox("bob").held(taken.id, token_of(taken)).fail("too late")


def test_a_wrong_token_holds_nothing(room: Room) -> None:
    fill(room, 2)
    bob = room.mailbox("bob")
    taken = claimed(room)
    with pytest.raises(LeaseLost, match="held by bob"):
        bob.held(taken.id, "guess")
    unclaimed = bob.check(1)[0]
    with pytest.raises(LeaseLost, match="is unread"):
        bob.held(unclaimed.id, token_of(taken))
    for wrong in ("", 5, None, "a\nb"):
        with pytest.raises(Invalid) as refused:
            bob.held(taken.id, wrong)  # type: ignore[arg-type] # anything may come
        assert refused.value.field == "token"
    with pytest.raises(UnknownMessage):
        room.mailbox("carol").held(taken.id, token_of(taken))


def test_a_token_whose_lease_ran_out_settles_nothing(room: Room, clock: FakeClock) -> None:
    fill(room)
    taken = claimed(room)
    clock.advance(61)
    with pytest.raises(LeaseLost):
        room.mailbox("bob").held(taken.id, token_of(taken)).ack()
    room.sweep()
    with pytest.raises(LeaseLost):
        room.mailbox("bob").held(taken.id, token_of(taken))
