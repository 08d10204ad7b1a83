"""Threads, forks and other processes: each has its own way into the room, and waits a bounded time."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import apsw
import pytest

import postroom
from postroom.errors import Damaged, PostroomError, StoreBusy, StoreFailing
from postroom.model.delivery import State
from postroom.model.query import Query
from postroom.store.protocol import RenewEpoch
from postroom.store.sqlite.connection import translate
from postroom.store.sqlite.lock import WriterLock
from postroom.store.sqlite.store import SqliteStore
from postroom.store.sqlite.wal import Log
from tests.letters import BootClock, ids, letter, note, post, send
from tests.renaming import rename
from tests.store.helpers import database, descriptors, opened

SOON = 60.0  # seconds; only a broken store takes this long


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with opened(tmp_path / "room.db", busy_timeout=0.05) as room:
        yield room


def in_thread(work: Callable[[], object]) -> None:
    """Do it in a thread, and fail as it fails."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(SOON)
    assert not thread.is_alive()
    if failed:
        raise failed[0]


# -- waiting


def test_a_held_room_is_busy_for_now_and_names_its_holder(store: SqliteStore) -> None:
    holder = WriterLock(Path(f"{store.path}.lock"), timeout=0)
    with holder, pytest.raises(StoreBusy, match=f"process {os.getpid()} for more than 0.05 s") as busy:
        send(store, "m1")
    holder.close()

    assert busy.value.temporary
    assert ids(store, Query()) == []
    send(store, "m1")


def test_a_holder_that_left_no_name_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    nameless, waiting = WriterLock(path, timeout=0), WriterLock(path, timeout=0)
    with nameless:
        os.pwrite(nameless._descriptor, b" " * 20, 0)
        with pytest.raises(StoreBusy, match="unknown"), waiting:
            pass
    nameless.close()
    waiting.close()


def test_a_held_room_can_be_read(store: SqliteStore) -> None:
    send(store, "m1")
    holder = WriterLock(Path(f"{store.path}.lock"), timeout=0)
    with holder:
        assert ids(store, Query()) == ["m1"]
    holder.close()


def test_a_waiting_process_gets_the_room_once_it_is_free(tmp_path: Path) -> None:
    with opened(tmp_path / "room.db", busy_timeout=SOON) as store:
        holder = WriterLock(Path(f"{store.path}.lock"), timeout=0)
        with holder:
            sender = threading.Thread(target=lambda: send(store, "m1"))
            sender.start()
            assert ids(store, Query()) == []
        sender.join(SOON)
        assert ids(store, Query()) == ["m1"]
        holder.close()


def test_another_programs_transaction_makes_the_room_busy(store: SqliteStore) -> None:
    store.commit([note(1), note(2, revision=1)])
    with database(store.path) as stranger:
        stranger.execute("BEGIN IMMEDIATE")
        for write in (lambda: send(store, "m1"), lambda: store.commit([RenewEpoch()]), lambda: store.trim(1)):
            with pytest.raises(StoreBusy, match="another program"):
                write()
    send(store, "m1")


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (apsw.BusyError(), StoreBusy),
        (apsw.LockedError(), StoreBusy),
        (apsw.FullError(), StoreFailing),
        (apsw.IOError(), StoreFailing),
        (apsw.ReadOnlyError(), StoreFailing),
        (apsw.CorruptError(), Damaged),
        (apsw.SchemaChangeError(), Damaged),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_sqlites_errors_become_our_errors(error: apsw.Error, wanted: type[PostroomError]) -> None:
    assert type(translate(error, Path("room.db"))) is wanted


def test_a_query_that_cannot_be_answered_raises_our_error(store: SqliteStore) -> None:
    with database(store.path) as stranger:
        stranger.execute("DROP TABLE letters")

    for ask in (lambda: store.find(Query()), lambda: store.commit([post(letter("m1"))])):
        with pytest.raises(PostroomError):
            ask()


# -- threads


def test_a_connection_is_closed_when_its_thread_ends(store: SqliteStore) -> None:
    send(store, "m1")
    in_thread(lambda: ids(store, Query()))  # SQLite keeps one descriptor to use again
    before = descriptors()

    for _ in range(10):
        in_thread(lambda: ids(store, Query()))
    assert descriptors() == before


def test_threads_write_side_by_side(tmp_path: Path) -> None:
    with opened(tmp_path / "room.db") as store:
        threads = [
            threading.Thread(target=lambda n=n: [send(store, f"m{n}-{i}") for i in range(20)]) for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SOON)

        assert sorted(ids(store, Query())) == sorted(f"m{n}-{i}" for n in range(4) for i in range(20))


def test_a_failed_opening_leaves_nothing_open(tmp_path: Path) -> None:
    (tmp_path / "room.db").write_bytes(b"no database at all " * 100)
    before = descriptors()

    for _ in range(5):
        with pytest.raises(PostroomError), opened(tmp_path / "room.db"):
            pass
    assert descriptors() == before


# -- closing


def test_a_closed_store_leaves_nothing_open_and_can_be_used_again(tmp_path: Path) -> None:
    before = descriptors()
    store = SqliteStore(tmp_path / "room.db", clock=BootClock())
    send(store, "m1")
    store.close()
    assert descriptors() == before

    send(store, "m2")
    assert ids(store, Query(order="age")) == ["m1", "m2"]
    store.close()
    store.close()
    assert descriptors() == before


def test_closing_closes_the_connections_of_other_threads(store: SqliteStore) -> None:
    used, closed = threading.Event(), threading.Event()

    def use() -> None:
        send(store, "m1")
        used.set()
        assert closed.wait(SOON)
        send(store, "m2")

    def close() -> None:
        assert used.wait(SOON)
        store.close()
        closed.set()

    closer = threading.Thread(target=close)
    closer.start()
    in_thread(use)
    closer.join(SOON)
    assert ids(store, Query(order="age")) == ["m1", "m2"]


# -- forks


def fork(work: Callable[[], object]) -> int:
    """Do it in a forked child; its exit code, 0 when all went well."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that a fork among threads may hang is why we test
        child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        work()
    except BaseException:
        os._exit(1)
    os._exit(0)


def test_a_forked_child_has_its_own_way_in_and_the_parent_keeps_its_own(store: SqliteStore) -> None:
    send(store, "m1")

    def in_child() -> None:
        assert ids(store, Query()) == ["m1"]
        for number in range(5):
            send(store, f"child{number}")

    assert fork(in_child) == 0
    assert len(ids(store, Query())) == 6
    send(store, "m2")
    assert fork(lambda: send(store, "late")) == 0
    assert ids(store, Query(order="age"))[-2:] == ["m2", "late"]
    with database(store.path) as room:
        assert room.pragma("integrity_check") == "ok"


def test_a_child_that_closes_takes_nothing_from_its_parent(store: SqliteStore) -> None:
    send(store, "m1")
    holder = WriterLock(Path(f"{store.path}.lock"), timeout=0)
    with holder:
        assert fork(store.close) == 0
        with pytest.raises(StoreBusy):
            send(store, "m2")
    holder.close()
    send(store, "m2")


def test_a_thread_that_ends_while_the_store_is_closed_closes_nothing_twice(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = store.connection()
    inside, closed = threading.Event(), []
    close_log = Log.close

    def close_slowly(log: Log) -> None:
        closed.append(log)
        inside.set()
        threading.Event().wait(0.05)
        close_log(log)

    monkeypatch.setattr(Log, "close", close_slowly)
    thread = threading.Thread(target=connection.close)
    thread.start()
    assert inside.wait(SOON)
    connection.close()
    thread.join(SOON)

    assert len(closed) == 1


def test_a_name_that_was_known_and_is_another_agents_by_now_takes_none_of_its_mail(tmp_path: Path) -> None:
    path = str(tmp_path / "room.db")
    with postroom.open(path) as here, postroom.open(path) as elsewhere:
        here.mailbox("ann").send("bob", "first")
        assert here.mailbox("bob").claim() is not None  # from now on its number is known here
        rename(elsewhere, "bob", "robert")
        elsewhere.mailbox("ann").send("robert", "second")

        found = here.core.store.find(_offers_to("bob", here.core.now().wall))

    assert not found


def _offers_to(mailbox: str, now: datetime) -> Query:
    return Query(mailbox=mailbox, states=(State.UNREAD,), offered_at=now, due_at=now, order="priority", limit=1)
