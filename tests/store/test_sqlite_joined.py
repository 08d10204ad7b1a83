"""Several commits in one transaction: each all or nothing, all of them there at the end or none."""

from __future__ import annotations

import apsw
import pytest

from postroom.errors import StaleRevision, StoreFailing
from postroom.model.query import LetterQuery
from postroom.store.protocol import Undone, Write
from postroom.store.sqlite.commit import MOST, Joint
from postroom.store.sqlite.store import SqliteStore
from tests.letters import letter, note, post, send

pytestmark = pytest.mark.mechanism  # of joint commits


def ids(store: SqliteStore) -> list[str]:
    return [found.message.id for found in store.letters(LetterQuery())]


def test_others_see_all_of_it_at_the_end(store: SqliteStore, other: SqliteStore) -> None:
    with store.gathered(joined=True):
        send(store, "first")
        send(store, "second")
        assert ["first", "second"] == ids(store)
        assert [] == ids(other)

    assert ["first", "second"] == ids(other)


def test_it_is_one_transaction_and_not_one_for_each(store: SqliteStore) -> None:
    send(store, "before")
    pages: list[int] = []

    def committed(_database: apsw.Connection, _name: str, now: int) -> int:
        pages.append(now)
        return apsw.SQLITE_OK

    store._connection().database.set_wal_hook(committed)
    with store.gathered(joined=True):
        for number in range(MOST + 1):
            send(store, f"letter-{number}")

    assert 2 == len(pages)  # nobody outside waits for ever


def test_one_that_is_refused_takes_nothing_of_the_others_along(store: SqliteStore) -> None:
    with store.gathered(joined=True):
        send(store, "first")
        with pytest.raises(StaleRevision):
            store.commit([post(letter("refused")), note("x", revision=5)])
        send(store, "second")

    assert ["first", "second"] == ids(store)
    assert [1, 2] == [found.number for found in store.letters(LetterQuery())]


def test_a_plan_sees_what_was_gathered_before_it(store: SqliteStore) -> None:
    seen: list[str] = []

    def plan() -> list[object]:
        seen.extend(ids(store))
        return [post(letter("second"))]

    with store.gathered(joined=True):
        send(store, "first")
        store.commit(plan)  # type: ignore[arg-type]

    assert ["first"] == seen
    assert ["first", "second"] == ids(store)


def fail_to_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(joint: Joint) -> None:
        joint._conn.database.execute("ROLLBACK")
        raise Undone from apsw.FullError()

    monkeypatch.setattr(Joint, "_commit", full)


def test_if_it_cannot_be_committed_nothing_of_it_is_there(
    store: SqliteStore, other: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(store, "before")
    with monkeypatch.context() as broken, pytest.raises(Undone), store.gathered(joined=True):  # noqa: PT012
        fail_to_commit(broken)
        send(store, "first")
        send(store, "second", to="new")
    send(other, "after")
    send(store, "last", to="new")

    assert ["before", "after", "last"] == ids(store)
    assert [1, 2, 3] == [found.number for found in store.letters(LetterQuery())]


def test_what_ends_the_transaction_undoes_all_of_it(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended() -> list[object]:
        store._connection().database.execute("ROLLBACK")  # as SQLite does by itself after some errors
        raise apsw.FullError

    with pytest.raises(Undone), store.gathered(joined=True):  # noqa: PT012
        send(store, "first")
        with pytest.raises(StoreFailing):
            store.commit(ended)  # type: ignore[arg-type]
        with pytest.raises(Undone):
            send(store, "second")

    assert [] == ids(store)
    send(store, "after")
    assert ["after"] == ids(store)


def test_what_was_written_in_part_is_not_called_undone(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreFailing), store.gathered(joined=True):  # noqa: PT012
        send(store, "first")
        store.sync()
        fail_to_commit(monkeypatch)
        send(store, "second")

    assert ["first"] == ids(store)


def test_who_stands_outside_comes_in_when_it_ends(store: SqliteStore, other: SqliteStore) -> None:
    with store.gathered(joined=True):
        send(store, "first")
        assert not other._connection().lock.try_acquire()
    send(other, "second")

    assert ["first", "second"] == ids(store)


def test_what_needs_the_lock_meanwhile_ends_the_transaction_first(store: SqliteStore, other: SqliteStore) -> None:
    with store.gathered(joined=True):
        send(store, "first")
        store.sync()
        assert ["first"] == ids(other)
        send(store, "second")

    assert ["first", "second"] == ids(other)


def test_a_connection_given_up_in_the_midst_keeps_nobody_out(store: SqliteStore, other: SqliteStore) -> None:
    """Nor the thread itself, which goes on with another one."""

    def fails() -> list[Write]:
        raise StoreFailing("a read failed")

    store._busy_timeout = 1.0  # of the next connection
    with store.gathered(joined=True):
        send(store, "before")
        with pytest.raises(StoreFailing):
            store.commit(fails)
        send(store, "after")
        assert ["before", "after"] == ids(store)

    assert ["before", "after"] == ids(other)
