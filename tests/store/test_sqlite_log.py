"""The log: synced before success is reported, made whole after a failure, kept small."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from postroom.errors import StoreFailing
from postroom.model.query import Query
from postroom.model.record import Record
from postroom.store.protocol import Put
from postroom.store.sqlite import wal
from postroom.store.sqlite.lock import WriterLock
from postroom.store.sqlite.store import SqliteStore
from tests.letters import ack, claim, held, ids, letter, note, post, read, send
from tests.store.helpers import database, opened

MEGABYTE = 1024 * 1024
BIG = "x" * 80_000  # about twenty pages


class Disk:
    """Counts the syncs, and fails the next ones when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.syncs = 0
        self.failures = 0
        self._sync = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", self.fdatasync)

    def fdatasync(self, descriptor: int) -> None:
        self.syncs += 1
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EIO, "Input/output error")
        self._sync(descriptor)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def size(store: SqliteStore) -> int:
    return Path(f"{store.path}-wal").stat().st_size


def in_main_file(store: SqliteStore, folder: Path) -> list[str]:
    """The letters the main file holds without its log."""
    shutil.copy(store.path, folder / "copy.db")
    with database(folder / "copy.db") as copy:
        return [str(id) for (id,) in copy.execute("SELECT id FROM letters ORDER BY number").fetchall()]


def is_warned(store: SqliteStore) -> bool:
    """Must the next writer make the log whole?"""
    lock = store.connection().lock
    with lock:
        return lock.sync_failed


def fill(store: SqliteStore, first: int, count: int) -> None:
    for number in range(first, first + count):
        store.commit([post(letter(f"big{number}", subject=BIG))])


# -- syncs


def test_what_must_last_is_synced_and_what_may_be_lost_is_not(tmp_path: Path, disk: Disk) -> None:
    with opened(tmp_path / "room.db") as store:

        def costs(write: Callable[[], object]) -> int:
            before = disk.syncs
            write()
            return disk.syncs - before

        beat = Put(record=Record(kind="beat", key="bob", value=1), durable=False)
        assert costs(lambda: store.commit([post(letter("m1"))])) == 1
        assert costs(lambda: store.commit([note(1)])) == 1
        assert costs(lambda: store.commit([beat])) == 0
        assert costs(lambda: read(store, held(store, "m1"))) == 0
        assert costs(lambda: claim(store, held(store, "m1"))) == 0
        assert costs(lambda: ack(store, held(store, "m1"))) == 1
        assert costs(lambda: store.commit(list)) == 0
        assert costs(lambda: store.commit(())) == 1


def test_a_room_that_need_not_survive_a_power_cut_is_never_synced(tmp_path: Path, disk: Disk) -> None:
    with opened(tmp_path / "room.db", durable=False) as store:
        before = disk.syncs
        send(store, "m1")
        store.commit(())
        assert disk.syncs == before


def test_a_failed_sync_fails_the_send_and_the_same_key_again_is_safe(tmp_path: Path, disk: Disk) -> None:
    with opened(tmp_path / "room.db") as store:
        disk.failures = 1
        with pytest.raises(StoreFailing) as failed:
            store.commit([post(letter("m1", key="k"))])
        assert failed.value.temporary

        (again,) = store.commit([post(letter("m2", key="k"))])
        assert (again.message_id, again.repeated) == ("m1", True)
        assert ids(store, Query()) == ["m1"]


def test_after_a_failed_sync_the_next_writer_makes_the_log_whole_first(tmp_path: Path, disk: Disk) -> None:
    with opened(tmp_path / "room.db") as store, opened(tmp_path / "room.db") as other:
        disk.failures = 1
        with pytest.raises(StoreFailing):
            store.commit([post(letter("m1"))])
        assert size(store) > 0

        send(other, "m2")
        assert in_main_file(store, tmp_path) == ["m1"]
        send(store, "m3")
        assert in_main_file(store, tmp_path) == ["m1"]
        assert ids(other, Query(order="age")) == ["m1", "m2", "m3"]


@pytest.mark.parametrize("write", ["commit", "barrier", "trim"])
def test_the_store_refuses_writes_until_the_log_is_whole(tmp_path: Path, disk: Disk, write: str) -> None:
    with opened(tmp_path / "room.db", busy_timeout=0.01) as store:
        disk.failures = 1
        with pytest.raises(StoreFailing):
            store.commit([post(letter("m1"))])
        writes: dict[str, Callable[[], object]] = {
            "commit": lambda: store.commit([post(letter("m2"))]),
            "barrier": lambda: store.commit(()),
            "trim": lambda: store.trim(1),
        }
        again = writes[write]

        with database(store.path) as reader:
            reader.execute("BEGIN; SELECT * FROM letters").fetchall()
            with pytest.raises(StoreFailing, match="earlier sync failed") as refused:
                again()
            assert refused.value.temporary
            assert ids(store, Query()) == ["m1"]
        again()
        assert in_main_file(store, tmp_path) == ["m1"]


def test_a_deleted_log_is_noticed(tmp_path: Path) -> None:
    with opened(tmp_path / "room.db") as store:
        send(store, "m1")
        Path(f"{store.path}-wal").unlink()

        with pytest.raises(StoreFailing, match="replaced or deleted"):
            send(store, "m2")


class Refusing:
    """A database whose checkpoints fail."""

    def __init__(self, error: apsw.Error) -> None:
        self._error = error

    def wal_checkpoint(self, **_how: int) -> None:
        raise self._error


@pytest.mark.parametrize(
    ("error", "mended"), [(apsw.IOError(), True), (apsw.BusyError(), False), (apsw.FullError(), False)]
)
def test_a_failed_checkpoint_fails_no_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: apsw.Error, mended: bool
) -> None:
    """If the disk failed, the next writer makes the log whole; if somebody was reading, there is no hurry."""
    monkeypatch.setattr(wal, "CHECKPOINT_PAGES", 1)
    with opened(tmp_path / "room.db") as store, opened(tmp_path / "room.db") as other:
        monkeypatch.setattr(store.connection().log, "_database", Refusing(error))
        send(store, "m1")
        assert is_warned(store) == mended
        send(other, "m2")
        assert ids(other, Query(order="age")) == ["m1", "m2"]
        assert not is_warned(store)


# -- size


def test_the_log_is_filled_ahead(tmp_path: Path) -> None:
    with opened(tmp_path / "room.db") as store:
        send(store, "m1")
        first = size(store)
        assert wal.STEP <= first < 2 * MEGABYTE
        sizes = set()
        for number in range(100):
            send(store, f"n{number}")
            sizes.add(size(store))
        assert {grown - first for grown in sizes} <= {steps * wal.STEP for steps in range(8)}


def test_the_log_stays_small_over_many_commits(tmp_path: Path) -> None:
    with opened(tmp_path / "room.db", durable=False) as store:
        largest = 0
        for round_ in range(12):
            fill(store, round_ * 30, 30)
            largest = max(largest, size(store))

        assert 8 * MEGABYTE < largest < 16 * MEGABYTE
        assert len(in_main_file(store, tmp_path)) > 200
        assert sum(store.count(Query()).values()) == 360


def test_a_long_reader_does_not_make_every_commit_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []
    checkpoint = wal.Log._checkpoint

    def counted(log: wal.Log, lock: WriterLock) -> None:
        tries.append(lock)
        checkpoint(log, lock)

    monkeypatch.setattr(wal.Log, "_checkpoint", counted)
    with opened(tmp_path / "room.db", durable=False) as store, database(store.path) as reader:
        send(store, "m1")
        reader.execute("BEGIN; SELECT * FROM letters").fetchall()
        fill(store, 0, 200)  # twice what a log should hold
        assert 1 <= len(tries) <= 10


def test_once_a_long_reader_is_gone_the_log_stays_small_for_everyone(tmp_path: Path) -> None:
    with opened(tmp_path / "room.db", durable=False) as store, opened(store.path, durable=False) as other:
        with database(store.path) as reader:
            send(store, "m1")
            reader.execute("BEGIN; SELECT * FROM letters").fetchall()
            fill(store, 0, 450)
        held_back = size(store)
        assert held_back > 16 * MEGABYTE
        fill(other, 1000, 30)  # the other one starts the log over

        with database(store.path) as watcher:
            fill(store, 2000, 300)
            watcher.execute("SELECT 1 FROM letters LIMIT 1").fetchall()
            frames, _ = watcher.wal_checkpoint()
        assert frames * wal.FRAME < 16 * MEGABYTE
