"""Space set aside for a full disk: letters wait, and whoever has some is done with them."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest

from postroom.errors import StoreFailing
from postroom.model import delivery as model_delivery
from postroom.model.delivery import State
from postroom.model.message import BOUNCE
from postroom.model.query import Query
from postroom.store.protocol import Posted, Write
from postroom.store.sqlite import connection, wal
from postroom.store.sqlite.store import SqliteStore
from postroom.store.sqlite.writes import WriteTransaction
from tests.letters import ack, bury, claim, held, ids, letter, move, post, send
from tests.store.helpers import mode, opened


class Full:
    """A disk without space: so many transactions fail, and nothing can be set aside while `is_full`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failures = 0
        self.is_full = False
        apply, keep = WriteTransaction.apply, wal.Reserve.ensure

        def apply_or_fail(writing: WriteTransaction, writes: Sequence[Write]) -> tuple[Posted, ...]:
            posted = apply(writing, writes)
            if self.failures:
                self.failures -= 1
                raise apsw.FullError
            return posted

        def keep_or_fail(kept: wal.Reserve, size: int) -> None:
            if self.is_full:
                raise OSError(errno.ENOSPC, "no space")
            keep(kept, size)

        monkeypatch.setattr(WriteTransaction, "apply", apply_or_fail)
        monkeypatch.setattr(wal.Reserve, "ensure", keep_or_fail)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Full:
    return Full(monkeypatch)


def set_aside(store: SqliteStore) -> int:
    return Path(f"{store.path}.reserve").stat().st_size


def log_size(store: SqliteStore) -> int:
    return Path(f"{store.path}-wal").stat().st_size


def test_as_much_is_set_aside_as_the_log_holds_and_more(tmp_path: Path) -> None:
    with opened(tmp_path / "room.db", durable=False) as store:
        for number in range(40):
            send(store, f"m{number}", subject="x" * 50_000)
            assert set_aside(store) >= log_size(store) + wal.MARGIN
        assert mode(Path(f"{store.path}.reserve")) == 0o600


def test_blocks_are_set_aside_and_not_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for allocate in (wal._allocate, None):
        monkeypatch.setattr(wal, "_allocate", allocate)
        folder = tmp_path / str(allocate is None)
        folder.mkdir()
        wal.Reserve(str(folder / "room.db")).ensure(100_000)
        kept = (folder / "room.db.reserve").stat()
        assert kept.st_size == 100_000 + wal.MARGIN
        assert kept.st_blocks * 512 >= kept.st_size


def test_a_reserve_that_cannot_grow_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = wal.Reserve(str(tmp_path / "room.db"))
    kept.ensure(100_000)

    def refuse(descriptor: int, _offset: int, length: int) -> None:
        os.ftruncate(descriptor, length // 2)
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(wal, "_allocate", refuse)
    with pytest.raises(OSError, match="no space"):
        kept.ensure(5_000_000)
    assert (tmp_path / "room.db.reserve").stat().st_size == 100_000 + wal.MARGIN


def test_on_a_full_disk_an_ack_uses_what_was_set_aside(tmp_path: Path, disk: Full) -> None:
    with opened(tmp_path / "room.db") as store:
        claimed = claim(store, send(store, "m1"))
        disk.failures = 1
        ack(store, claimed)
        assert held(store, "m1").state is State.DONE
        assert set_aside(store) == 0


def test_a_letter_does_not_and_waits_until_it_is_there_again(tmp_path: Path, disk: Full) -> None:
    with opened(tmp_path / "room.db") as store, opened(tmp_path / "room.db") as other:
        claimed = claim(store, send(store, "m1"))
        disk.failures, disk.is_full = 1, True
        with pytest.raises(StoreFailing, match="no space") as refused:
            send(store, "m2")
        assert refused.value.temporary
        assert set_aside(store) > 0

        disk.failures = 1
        ack(store, claimed)
        for sender in (store, other):
            with pytest.raises(StoreFailing, match="no space"):
                send(sender, "m2")
        disk.is_full = False
        send(other, "m2")
        assert set_aside(store) >= log_size(store) + wal.MARGIN
        send(store, "m3")
        assert ids(store, Query(order="age")) == ["m1", "m2", "m3"]


def test_letters_wait_as_soon_as_nothing_can_be_set_aside(tmp_path: Path, disk: Full) -> None:
    disk.is_full = True
    with opened(tmp_path / "room.db") as store:
        with pytest.raises(StoreFailing, match="no space"):
            send(store, "m1")
        disk.is_full = False
        send(store, "m1")


def test_the_notice_of_a_death_is_part_of_it(tmp_path: Path, disk: Full) -> None:
    with opened(tmp_path / "room.db") as store:
        first = send(store, "m1")
        disk.failures = 1
        bury(store, claim(store, first))
        notice = post(letter("m2", ["ann"], sender="postroom", kind=BOUNCE))
        disk.failures, disk.is_full = 1, True
        store.commit([notice])
        assert ids(store, Query(mailbox="ann")) == ["m2"]


def test_when_nothing_is_left_an_ack_fails_for_a_time(tmp_path: Path, disk: Full) -> None:
    with opened(tmp_path / "room.db") as store:
        claimed = claim(store, send(store, "m1"))
        disk.failures = 2
        with pytest.raises(StoreFailing, match="no space") as failed:
            ack(store, claimed)
        assert failed.value.temporary
        ack(store, claimed)


def test_while_space_is_short_the_log_does_not_grow(tmp_path: Path, disk: Full) -> None:
    with opened(tmp_path / "room.db", durable=False) as store:
        delivery = send(store, "m1")
        disk.failures, disk.is_full = 1, True
        delivery = claim(store, delivery)
        before = log_size(store)
        for _ in range(300):
            delivery = claim(store, move(store, delivery, model_delivery.release(delivery), "release"))
        assert log_size(store) == before


def test_a_planted_link_is_never_followed_and_stops_nobody(tmp_path: Path, disk: Full) -> None:
    (tmp_path / "precious").write_text("keep")
    (tmp_path / "room.db.reserve").symlink_to(tmp_path / "precious")
    with opened(tmp_path / "room.db") as store:
        claimed = claim(store, send(store, "m1"))
        disk.failures = 1
        ack(store, claimed)
        send(store, "m2")
    assert (tmp_path / "precious").read_text() == "keep"


def test_a_room_on_a_full_disk_opens_after_a_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path / "room.db") as store:
        claim(store, send(store, "m1"))
    enter, failures = connection.enter, [apsw.FullError]

    def enter_or_fail(database: apsw.Connection, boot: str) -> None:
        enter(database, boot)
        if failures:
            raise failures.pop()

    monkeypatch.setattr(connection, "enter", enter_or_fail)
    with opened(tmp_path / "room.db", boot="another") as store:
        assert set_aside(store) > 0  # there was space after all
        assert held(store, "m1").lease is not None
    assert failures == []


def test_without_a_handle_for_the_log_a_send_fails_for_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a room without a note the log is opened at the first commit, and by then there may be none left."""

    def fail(_log: wal.Log) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with opened(tmp_path / "room.db") as store:
        send(store, "m1")
    (tmp_path / "room.db.lock").unlink()
    with opened(tmp_path / "room.db") as store:
        with monkeypatch.context() as poor:
            poor.setattr(wal.Log, "_open", fail)
            with pytest.raises(StoreFailing, match="Too many open files") as failed:
                store.commit([post(letter("m2"))])
            assert failed.value.temporary
        (again,) = store.commit([post(letter("m2"))])
        assert again.repeated
