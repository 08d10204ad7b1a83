"""Several commits in one transaction and with one sync (G1), at the end of the batch whatever happens in it."""

from __future__ import annotations

import os
from typing import Any

import apsw
import pytest

from postroom.errors import PostroomError, StoreBusy, StoreFailing
from postroom.model.query import LetterQuery
from postroom.store.sqlite.store import SqliteStore
from tests.letters import claim, held, letter, note, post, send


class Syncs:
    """Counts the syncs; the next one fails when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.fails = False
        self._sync = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", self._fdatasync)

    def _fdatasync(self, descriptor: int) -> None:
        self.count += 1
        if self.fails:
            self.fails = False
            raise OSError(5, "Input/output error")
        self._sync(descriptor)


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch, store: SqliteStore) -> Syncs:
    send(store, "before")  # by now the log has its first size
    return Syncs(monkeypatch)


def ids(store: SqliteStore) -> list[str]:
    return [found.message.id for found in store.letters(LetterQuery())]


def test_several_commits_share_one_sync(store: SqliteStore, syncs: Syncs) -> None:
    with store.batch():
        send(store, "first")
        send(store, "second")
        assert syncs.count == 0
    assert syncs.count == 1
    send(store, "third")
    assert syncs.count == 2


def test_a_batch_of_what_may_be_lost_is_not_synced(store: SqliteStore, syncs: Syncs) -> None:
    with store.batch():
        claim(store, held(store, "before"))
    assert syncs.count == 0


def test_a_barrier_in_a_batch_is_kept_at_its_end(store: SqliteStore, syncs: Syncs) -> None:
    with store.batch():
        store.commit(())
        assert syncs.count == 0
    assert syncs.count == 1


def test_another_writer_waits_for_the_batch_and_sees_all_of_it_at_once(
    store: SqliteStore, other: SqliteStore
) -> None:
    other.connection().lock.timeout = 0.01
    with store.batch():
        send(store, "first")
        with pytest.raises(StoreBusy):
            send(other, "second")
        send(store, "third")
        assert ids(other) == []
    assert ids(other) == ["first", "third"]
    send(other, "second")
    assert ids(store) == ["first", "third", "second"]


class FullDisk:
    """In place of the cursor that writes: its next COMMIT fails, as on a full disk."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor
        self.is_full = True

    def execute(self, sql: str, *values: Any) -> Any:
        if self.is_full and sql == "COMMIT":
            self.is_full = False
            raise apsw.FullError
        return self._cursor.execute(sql, *values)

    def executemany(self, sql: str, *values: Any) -> Any:
        return self._cursor.executemany(sql, *values)


def test_if_the_transaction_fails_each_commit_is_tried_by_itself(store: SqliteStore, other: SqliteStore) -> None:
    send(store, "before")
    names = store.connection().names
    with store.batch():
        claimed = claim(store, held(store, "before"))
        send(store, "first")
        names.cursor = FullDisk(names.cursor)  # type: ignore[assignment]
    assert ids(other) == ["before", "first"]
    assert held(other, "before") == claimed


def test_a_commit_that_cannot_be_repeated_fails_the_batch(store: SqliteStore, other: SqliteStore) -> None:
    send(store, "before")
    conn = store.connection()
    disk = FullDisk(conn.names.cursor)
    release = conn.lock.release

    def let_another_claim_it() -> None:
        release()
        if not disk.is_full and held(other, "before").lease is None:
            claim(other, held(other, "before"))

    with pytest.raises(PostroomError), store.batch():  # noqa: PT012
        claim(store, held(store, "before"))
        send(store, "first")
        conn.names.cursor = disk  # type: ignore[assignment]
        conn.lock.release = let_another_claim_it  # type: ignore[method-assign]
    assert ids(other) == ["before", "first"]


def test_if_the_sync_fails_the_end_of_the_batch_says_so(store: SqliteStore, syncs: Syncs) -> None:
    with pytest.raises(StoreFailing), store.batch():  # noqa: PT012
        send(store, "first")
        syncs.fails = True
    send(store, "second")  # the log is rebuilt first
    assert ids(store) == ["before", "first", "second"]


def test_after_an_error_what_was_committed_before_it_is_synced(store: SqliteStore, syncs: Syncs) -> None:
    with pytest.raises(LookupError), store.batch():  # noqa: PT012
        send(store, "first")
        raise LookupError
    assert syncs.count == 1


def test_a_connection_given_up_in_a_batch_is_synced_too(
    store: SqliteStore, other: SqliteStore, syncs: Syncs
) -> None:
    def fails() -> list[object]:
        raise StoreFailing("a read failed")

    with store.batch():
        send(store, "first")
        with pytest.raises(StoreFailing):
            store.commit(fails)  # type: ignore[arg-type]
        syncs.count = 0  # opening another connection may sync, too
        store.commit([post(letter("second")), note(1)])
    assert syncs.count == 2  # one for each connection
    assert ids(other) == ["before", "first", "second"]
