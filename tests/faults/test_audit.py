"""The audit complains about each kind of broken promise, and about nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.letter import Work
from postroom.room import Room
from postroom.store.protocol import Store
from tests.faults import audit
from tests.faults.kinds import Kind
from tests.faults.ledger import Ledger, Line, lines
from tests.faults.storm_worker import DESK, WORK, room_over, text_of
from tests.letters import bury

SOUND: list[Line] = [
    ("ann", "try", "ann:0", WORK),
    ("ann", "sent", "ann:0"),
    ("ann", "try", "ann:1", DESK),
    ("ann", "sent", "ann:1"),
]


@pytest.fixture
def store(kind: Kind, tmp_path: Path) -> Iterator[Store]:
    """A room with two letters of ann."""
    opened = kind.open(tmp_path)
    send(room_over(opened), "ann:0", WORK)
    send(room_over(opened), "ann:1", DESK)
    yield opened
    opened.close()


def send(room: Room, key: str, *to: str) -> str:
    return room.mailbox("ann").send(list(to), text_of(key), key=key).id


def claim(store: Store, box: str) -> Work:
    work = room_over(store).mailbox(box).claim(lease=60)
    assert work is not None
    return work


def complaints(store: Store, *more: Line) -> list[str]:
    return audit.audit(store, [*SOUND, *more], text_of)


def test_a_room_that_kept_its_promises_is_not_complained_about(store: Store) -> None:
    work, question = claim(store, WORK), claim(store, DESK)
    work.fail("never", retry=False)
    question.ack_and_reply("so be it")
    results: list[Line] = [("bob", "ask", "1"), ("bob", "got", "1", work.id, WORK), ("bob", "dead", work.id, WORK)]
    assert [] == complaints(store, *results, ("bob", "done", question.id, DESK))
    assert [] == [*audit.unanswered(store, DESK), *audit.unbounced(store), *audit.unsettled(store, (WORK, DESK))]


def test_lost_and_changed_and_half_letters(store: Store) -> None:
    assert complaints(store, ("ann", "sent", "ann:2")) == ["lost: ann:2"]
    assert complaints(store, ("ann", "try", "ann:1", DESK, WORK)) == ["half: ann:1"]
    room_over(store).mailbox("ann").send(WORK, "something else", key="ann:2")
    assert complaints(store, ("ann", "try", "ann:2", WORK)) == ["changed: ann:2"]


def test_letters_nobody_sent_and_letters_sent_twice(store: Store) -> None:
    send(room_over(store), "ann:2", WORK)
    assert complaints(store) == ["ghost: ann:2"]
    room_over(store).mailbox("bob").send(WORK, text_of("ann:2"), key="ann:2")
    assert complaints(store, ("ann", "try", "ann:2", WORK)) == ["twice: ann:2"]


def test_letters_in_another_order(store: Store) -> None:
    for key in ("ann:3", "ann:2"):
        send(room_over(store), key, WORK)
    tries: list[Line] = [("ann", "try", "ann:2", WORK), ("ann", "try", "ann:3", WORK)]
    assert complaints(store, *tries) == ["disorder: ann:2"]


def test_acks_that_did_not_last_and_acks_that_were_given_twice(store: Store) -> None:
    work = claim(store, WORK)
    done: Line = ("bob", "done", work.id, WORK)
    assert complaints(store, done) == [f"not done: {work.id} in {WORK} is claimed"]
    work.ack()
    assert complaints(store, done, done) == [f"completed twice: {work.id} in {WORK}"]


def test_letters_handed_out_after_their_ack(store: Store) -> None:
    """Only to a look that began after it: one that began before may be told late."""
    work = claim(store, WORK)
    work.ack()
    ask: Line = ("cleo", "ask", "1")
    got: Line = ("cleo", "got", "1", work.id, WORK)
    done: Line = ("bob", "done", work.id, WORK)
    assert complaints(store, ask, done, got) == []
    assert complaints(store, done, ask, got) == [f"handed out again: {work.id} in {WORK}"]


def test_questions_done_without_an_answer_and_deaths_without_a_notice(store: Store) -> None:
    question = claim(store, DESK)
    question.ack()
    assert audit.unanswered(store, DESK) == [f"done with 0 answers: {question.id}"]
    assert audit.unsettled(store, (WORK, DESK)) == ["never settled: ann:0"]
    work = claim(store, WORK)
    bury(store, work.delivery)
    assert audit.unbounced(store) == [f"dead 1 times, told 0 times: {work.id}"]


def test_a_ledger_cut_off_in_a_line_is_read_up_to_it(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "ann")
    ledger.write("sent", "ann:0")
    with ledger.path.open("ab") as file:
        file.write(b'["ann","se')
    assert lines(tmp_path) == [("ann", "sent", "ann:0")]
    assert ledger.own() == [("ann", "sent", "ann:0")]
    ledger.close()
