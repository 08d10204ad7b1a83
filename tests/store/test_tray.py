"""What whoever is in the room takes along for those who wait: each is written once, and told once it is safe."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

import postroom
from postroom.errors import PostroomError, QuotaFull, StaleRevision, StoreFailing
from postroom.model import delivery
from postroom.model.delivery import State
from postroom.model.query import Query
from postroom.store.protocol import Move, Post, Posted, Write
from postroom.store.sqlite import commit, ground, lock
from postroom.store.sqlite import tray as sqlite_tray
from postroom.store.sqlite.commit import Committed, make_safe
from postroom.store.sqlite.store import SqliteStore
from postroom.store.sqlite.tray import SIZE, TAKEN, WAITING, NoTray, Tray
from tests.daemons import until
from tests.letters import NOW, ack, claim, held, ids, letter, post, send
from tests.store.helpers import opened

pytestmark = pytest.mark.mechanism  # of the shared-memory tray

SOON = 60.0  # seconds; only a letter that is never carried waits this long


@pytest.fixture
def carrier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqliteStore]:
    """One who lives, however long it takes: a busy machine must not look like its death."""
    monkeypatch.setattr(sqlite_tray, "SLOW", SOON)
    with opened(tmp_path / "room.db") as store:
        yield store


class Sender:
    """Somebody who sends while the room is held, and what it is told."""

    def __init__(self, path: Path, write: Write) -> None:
        self._path, self._write = path, write
        self.posted: Sequence[Posted] = ()
        self.error: Exception | None = None
        self._is_there, self._may_send, self.sleeps = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._send)
        self._thread.start()
        assert self._is_there.wait(SOON)

    def send(self) -> None:
        self._may_send.set()

    def _send(self) -> None:
        with opened(self._path) as store:
            if isinstance(held := store._connection().lock.tray, Tray):
                _tell_of_sleep(held, self.sleeps)
            self._is_there.set()
            self._may_send.wait(SOON)
            try:
                self.posted = store.commit([self._write])
            except PostroomError as error:
                self.error = error

    def finish(self) -> Sequence[Posted]:
        self._thread.join(SOON)
        assert not self._thread.is_alive()
        return self.posted

    def is_told(self) -> bool:
        return not self._thread.is_alive()


def _tell_of_sleep(tray: Tray, sleeps: threading.Event) -> None:
    wait = tray.wait

    def noted(called: int, seconds: float) -> None:
        sleeps.set()
        wait(called, seconds)

    setattr(tray, "wait", noted)  # noqa: B010 - of this one alone


def packed(write: Write) -> bytes:
    made = sqlite_tray.pack([write], durable=True)
    assert made is not None
    return made[0]


def open_one(descriptor: int) -> Tray:
    opened = sqlite_tray.open_tray(descriptor)
    assert isinstance(opened, Tray)
    return opened


def tray_of(store: SqliteStore) -> Tray:
    held = store._connection().lock.tray
    assert isinstance(held, Tray)
    return held


def wait_until_laid(store: SqliteStore) -> None:
    until(lambda: WAITING in tray_of(store)._states.tolist(), SOON, step=0.001)


def carry(store: SqliteStore, theirs: Write, *ours: Post) -> tuple[Sender, Committed]:
    """Hold the room until somebody has laid its letter into the tray; then write, and leave."""
    conn, sender = store._connection(), Sender(Path(store.path), theirs)
    with conn.lock:
        sender.send()
        assert sender.sleeps.wait(SOON)  # else it may get in just behind us, with what we have written for it
        conn.lock.is_laid = True  # as it is for one who gets in now
        conn.recover()
        return sender, commit._write(conn, ours, durable=True)


def get_in_late(store: SqliteStore, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
    """At its next send it finds somebody in, lays its letter out, and gets in when this has happened."""
    held = store._connection().lock
    take, tries = held.try_acquire, iter((False, True))

    def take_late() -> bool:
        if not next(tries):
            return False
        meanwhile()
        return take()

    monkeypatch.setattr(held, "try_acquire", take_late)


def inbox(store: SqliteStore, name: str = "bob") -> list[str]:
    return ids(store, Query(mailbox=name, states=(State.UNREAD,), order="age"))


def test_who_is_in_takes_along_the_letter_of_one_who_waits(carrier: SqliteStore) -> None:
    sender, done = carry(carrier, post(letter("theirs")), post(letter("ours")))
    assert done.must_sync
    assert not sender.is_told()  # it is written, but not safe
    make_safe(carrier._connection(), done)
    (posted,) = sender.finish()
    assert (posted.message_id, posted.number, posted.repeated) == ("theirs", 2, False)
    assert inbox(carrier) == ["ours", "theirs"]


def test_one_who_only_looks_takes_letters_along_too(carrier: SqliteStore) -> None:
    sender, done = carry(carrier, post(letter("theirs")))
    make_safe(carrier._connection(), done)
    assert sender.finish()[0].number == 1
    assert inbox(carrier) == ["theirs"]


def acknowledged(store: SqliteStore) -> Move:
    before = claim(store, send(store, "m1"))
    return Move(before, delivery.ack(before, NOW, archive=False), "ack")


def test_an_acknowledgement_is_carried_too(carrier: SqliteStore) -> None:
    sender, done = carry(carrier, acknowledged(carrier))
    assert done.must_sync
    make_safe(carrier._connection(), done)
    assert sender.finish() == ()
    assert sender.error is None
    assert held(carrier, "m1").state is State.DONE


def test_an_acknowledgement_that_comes_too_late_is_refused_to_its_own_writer(carrier: SqliteStore) -> None:
    theirs = acknowledged(carrier)
    ack(carrier, held(carrier, "m1"))
    sender, done = carry(carrier, theirs, post(letter("ours")))
    make_safe(carrier._connection(), done)
    sender.finish()
    assert isinstance(sender.error, StaleRevision)
    assert inbox(carrier) == ["ours"]


def test_an_acknowledgement_whose_carrier_was_killed_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_tray, "SLOW", 0.05)
    with postroom.open(tmp_path / "room.db") as room:
        room.mailbox("ann").send("bob", "x")
        work = room.mailbox("bob").claim()
        assert work is not None
        store = room.core.store
        assert isinstance(store, SqliteStore)
        is_there, may_ack = threading.Event(), threading.Event()

        def ack_when_told() -> None:
            store._connection()
            is_there.set()
            may_ack.wait(SOON)
            work.ack()

        acking = threading.Thread(target=ack_when_told)
        acking.start()
        assert is_there.wait(SOON)
        with store._connection().lock:
            may_ack.set()
            wait_until_laid(store)
            store._connection().lock.is_laid = True
            commit._write(store._connection(), [], durable=True)  # and no answer
        acking.join(SOON)
        assert not acking.is_alive()
        assert room.mailbox("bob").claim() is None
        assert len(room.mailbox("bob").check()) == 0


@pytest.mark.parametrize("action", ["claim", "retry", "release", "renew", "bury"])
def test_what_must_not_be_said_twice_is_not_carried(carrier: SqliteStore, action: str) -> None:
    before = send(carrier, "m1")
    assert sqlite_tray.pack([Move(before, before, action)], durable=True) is None


def test_a_long_batch_is_not_carried() -> None:
    assert sqlite_tray.pack([post(letter(f"m{number}")) for number in range(4)], durable=True) is not None
    assert sqlite_tray.pack([post(letter(f"m{number}")) for number in range(5)], durable=True) is None


def test_a_letter_whose_recipient_must_be_chosen_is_not_carried() -> None:
    assert sqlite_tray.pack([post(letter("m1"), routes=True)], durable=True) is None


def test_what_is_not_known_of_a_recipient_is_reported(carrier: SqliteStore) -> None:
    sender, done = carry(carrier, post(letter("theirs", ["bob", "cleo"])))
    make_safe(carrier._connection(), done)
    assert sender.finish()[0].unknown == ("bob", "cleo")


def test_a_letter_whose_carrier_was_killed_is_there_once(
    carrier: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_tray, "SLOW", 0.05)
    sender, _never_answered = carry(carrier, post(letter("theirs")))
    (posted,) = sender.finish()
    assert (posted.message_id, posted.repeated) == ("theirs", False)
    assert inbox(carrier) == ["theirs"]


def test_a_letter_whose_carrier_was_killed_before_it_wrote_is_there_once(
    carrier: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_tray, "SLOW", 0.05)
    sender = Sender(Path(carrier.path), post(letter("theirs")))
    with carrier._connection().lock:
        sender.send()
        wait_until_laid(carrier)
        assert tray_of(carrier).take()
    (posted,) = sender.finish()
    assert (posted.number, posted.repeated) == (1, False)
    assert inbox(carrier) == ["theirs"]


def test_a_late_answer_to_an_earlier_letter_is_not_believed(
    carrier: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_tray, "SLOW", 0.05)
    late = sqlite_tray.unpack(packed(post(letter("other")))).answer([Posted(message_id="other", number=9)])
    sender = Sender(Path(carrier.path), post(letter("theirs")))
    with carrier._connection().lock:
        sender.send()
        wait_until_laid(carrier)
        ((slot, _),) = tray_of(carrier).take()
        tray_of(carrier).reply(slot, late)
    (posted,) = sender.finish()
    assert posted.message_id == "theirs"
    assert inbox(carrier) == ["theirs"]


def test_one_who_is_answered_for_while_it_gets_in_leaves_again(
    carrier: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(Path(carrier.path)) as other:
        get_in_late(other, monkeypatch, lambda: carrier.commit([post(letter("ours"))]))
        (posted,) = other.commit([post(letter("theirs"))])
        assert posted.number == 2
        assert carrier._connection().lock.try_acquire()  # nobody is in
        carrier._connection().lock.release()


def test_a_refusal_is_heard_by_its_own_writer_and_stops_nobody(carrier: SqliteStore) -> None:
    carrier.commit([post(letter("first"))])
    full = post(letter("theirs"), quota=1)
    sender, done = carry(carrier, full, post(letter("ours", ["cleo"])))
    make_safe(carrier._connection(), done)
    assert sender.finish() == ()
    assert isinstance(sender.error, QuotaFull)
    assert inbox(carrier) == ["first"]
    assert inbox(carrier, "cleo") == ["ours"]


def test_when_the_carrier_is_refused_the_others_come_in_person(carrier: SqliteStore) -> None:
    conn = carrier._connection()
    carrier.commit([post(letter("first"))])
    sender = Sender(Path(carrier.path), post(letter("theirs")))
    with conn.lock:
        sender.send()
        wait_until_laid(carrier)
        conn.lock.is_laid = True
        with pytest.raises(QuotaFull):
            commit._write(conn, [post(letter("ours"), quota=1)], durable=True)
    assert sender.finish()[0].message_id == "theirs"
    assert inbox(carrier) == ["first", "theirs"]


def test_when_the_disk_fails_the_carrier_no_false_success_is_reported(
    carrier: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    sender, done = carry(carrier, post(letter("theirs")), post(letter("ours")))
    with monkeypatch.context() as broken:
        broken.setattr("postroom.store.sqlite.wal.sync_file", fail)
        with pytest.raises(StoreFailing):
            make_safe(carrier._connection(), done)
    (posted,) = sender.finish()  # it came in person, and made the log whole first
    assert posted.message_id == "theirs"
    assert not carrier._connection().lock.sync_failed
    assert sorted(inbox(carrier)) == ["ours", "theirs"]


def test_a_letter_whose_sender_is_gone_is_not_sent_for_it(carrier: SqliteStore) -> None:
    """Its process was killed: nobody would know when the letter comes, be it after a week."""
    parcel = packed(post(letter("theirs")))
    descriptor = os.open(f"{carrier.path}.lock", os.O_RDWR)
    gone = open_one(descriptor)
    assert gone.lay(parcel)
    gone.close()
    os.close(descriptor)
    carrier.commit([post(letter("ours"))])
    assert inbox(carrier) == ["ours"]


def test_what_a_dead_sender_left_is_not_taken_for_the_letter_of_the_next(
    carrier: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    descriptors = [os.open(f"{carrier.path}.lock", os.O_RDWR) for _ in range(2)]
    gone = open_one(descriptors[0])
    assert gone.lay(packed(post(letter("theirs"))))
    gone.close()
    os.close(descriptors[0])
    following, write = open_one(descriptors[1]), Tray._write

    def write_late(self: Tray, slot: int, body: bytes) -> None:
        carrier.commit([post(letter("ours"))])  # in between: the slot has an owner again, and no letter of its own
        write(self, slot, body)

    monkeypatch.setattr(Tray, "_write", write_late)
    following._memory[lock.LAID_AT] = 1
    assert following.lay(b"x")
    assert inbox(carrier) == ["ours"]
    following.close()
    os.close(descriptors[1])


def test_a_letter_taken_and_written_between_two_looks_is_no_repeat(
    carrier: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def carry_and_die() -> None:
        conn = carrier._connection()
        with conn.lock:
            commit._write(conn, [], durable=True)  # and is killed before it answers

    with opened(Path(carrier.path)) as other:
        get_in_late(other, monkeypatch, carry_and_die)
        (posted,) = other.commit([post(letter("theirs"))])
        assert (posted.message_id, posted.repeated) == ("theirs", False)


def test_a_true_repeat_is_reported_as_one_though_its_carrier_was_killed(
    carrier: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_tray, "SLOW", 0.05)
    carrier.commit([post(letter("first", key="k"))])
    sender, _never_answered = carry(carrier, post(letter("again", key="k")))
    (posted,) = sender.finish()
    assert (posted.message_id, posted.repeated) == ("first", True)


def test_a_letter_that_was_written_and_turned_back_is_no_repeat(carrier: SqliteStore) -> None:
    sender, done = carry(carrier, post(letter("theirs")))
    commit.turn_back(carrier._connection(), done.carried)  # as after a sync that failed
    (posted,) = sender.finish()
    assert (posted.message_id, posted.repeated) == ("theirs", False)


def test_what_another_version_laid_out_is_turned_back(carrier: SqliteStore) -> None:
    descriptor = os.open(f"{carrier.path}.lock", os.O_RDWR)
    other = open_one(descriptor)
    assert other.lay(b"\x91\x02")
    carrier.commit([post(letter("ours"))])
    assert other.look()[0] == sqlite_tray.TURNED_BACK
    assert inbox(carrier) == ["ours"]
    other.close()
    os.close(descriptor)


def test_half_a_parcel_is_left_where_it_is(carrier: SqliteStore) -> None:
    descriptor = os.open(f"{carrier.path}.lock", os.O_RDWR)
    other = open_one(descriptor)
    assert other.lay(b"whole")
    other._memory[sqlite_tray._SLOTS_AT + 8] = 0
    carrier.commit([post(letter("ours"))])
    assert other.look()[0] == WAITING
    other.close()
    os.close(descriptor)


@pytest.mark.parametrize("body", ["x" * SIZE, "x"])
def test_large_and_small_letters_arrive(carrier: SqliteStore, body: str) -> None:
    conn = carrier._connection()
    sender = Sender(Path(carrier.path), post(letter("theirs", subject=body)))
    with conn.lock:
        sender.send()
        time.sleep(0.05)
    assert sender.finish()[0].message_id == "theirs"


def test_one_who_finds_no_place_in_the_tray_waits_its_turn(
    carrier: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_tray, "SLOTS", 0)
    sender = Sender(Path(carrier.path), post(letter("theirs")))
    with carrier._connection().lock:
        sender.send()
        time.sleep(0.05)
    assert sender.finish()[0].message_id == "theirs"


def test_each_owns_another_slot(carrier: SqliteStore) -> None:
    descriptors = [os.open(f"{carrier.path}.lock", os.O_RDWR) for _ in range(sqlite_tray.SLOTS + 1)]
    trays = [open_one(descriptor) for descriptor in descriptors]
    assert [one.lay(b"x") for one in trays] == [True] * sqlite_tray.SLOTS + [False]
    assert sorted(one._slot for one in trays) == [-1, *range(sqlite_tray.SLOTS)]
    for one, descriptor in zip(trays, descriptors, strict=True):
        one.close()
        os.close(descriptor)


def test_who_leaves_calls_one_after_the_other(carrier: SqliteStore) -> None:
    descriptors = [os.open(f"{carrier.path}.lock", os.O_RDWR) for _ in range(3)]
    trays = [open_one(descriptor) for descriptor in descriptors]
    tray_of(carrier).call()  # nobody is there
    assert all(one.lay(b"x") for one in trays)
    for _ in range(4):
        tray_of(carrier).call()
    assert [one.look() for one in trays] == [(WAITING, 2), (WAITING, 1), (WAITING, 1)]
    for one, descriptor in zip(trays, descriptors, strict=True):
        one.close()
        os.close(descriptor)


def test_without_futexes_there_is_no_tray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="s390x"))
    with opened(tmp_path / "room.db") as store:
        assert isinstance(store._connection().lock.tray, NoTray)
        sender = Sender(Path(store.path), post(letter("theirs")))
        with store._connection().lock:
            sender.send()
            time.sleep(0.05)
        assert sender.finish()[0].message_id == "theirs"


def test_on_a_disk_that_takes_nothing_there_is_no_tray(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    readable = os.open(path, os.O_RDONLY)
    assert isinstance(sqlite_tray.open_tray(readable), NoTray)
    os.close(readable)


def test_an_interrupted_sender_takes_its_letter_back(
    carrier: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with opened(carrier.path) as other, carrier._connection().lock:
        monkeypatch.setattr(sqlite_tray.Tray, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            other.commit([post(letter("theirs"))])
        assert tray_of(carrier).take() == []


# -- the planted bugs: what these tests look for can be seen


def test_a_carrier_that_answers_before_it_is_safe_would_be_seen(
    carrier: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    sync, reply = ground.sync_file, Tray.reply

    def noted_sync(descriptor: int) -> None:
        order.append("sync")
        sync(descriptor)

    def noted_reply(self: Tray, slot: int, answer: bytes | None) -> None:
        order.append("answer")
        reply(self, slot, answer)

    monkeypatch.setattr("postroom.store.sqlite.wal.sync_file", noted_sync)
    monkeypatch.setattr(Tray, "reply", noted_reply)
    sender, done = carry(carrier, post(letter("theirs")))
    make_safe(carrier._connection(), done)
    sender.finish()
    assert order[-2:] == ["sync", "answer"]


def test_a_carrier_that_only_says_it_wrote_is_found_out(
    carrier: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def boast(_writing: object, parcels: Sequence[tuple[int, sqlite_tray.Parcel]]) -> list[tuple[int, bytes]]:
        return [(slot, parcel.answer([Posted(message_id="theirs", number=1)])) for slot, parcel in parcels]

    monkeypatch.setattr(commit, "_carry", boast)
    sender, done = carry(carrier, post(letter("theirs")))
    make_safe(carrier._connection(), done)
    assert sender.finish()
    assert inbox(carrier) == []  # what every test above would have seen


def test_a_slot_taken_and_never_answered_is_not_carried_again(carrier: SqliteStore) -> None:
    descriptor = os.open(f"{carrier.path}.lock", os.O_RDWR)
    other = open_one(descriptor)
    parcel = packed(post(letter("theirs")))
    assert other.lay(parcel)
    assert tray_of(carrier).take()
    assert other.look()[0] == TAKEN
    assert tray_of(carrier).take() == []
    other.close()
    os.close(descriptor)
