"""Many processes send, search and fill one index; some are killed. What was told is always found."""

from __future__ import annotations

import signal
from pathlib import Path

from postroom.model.search import read_query
from postroom.store.sqlite.store import SqliteStore
from tests.conftest import LONG
from tests.letters import NOW, letter, names, post
from tests.store.helpers import database, opened
from tests.store.search_workers import ROUNDS, Boastful, fill_for_ever, send_and_search
from tests.store.workers import WorkerPool, promises

KILLS = 12 if LONG else 3


def missed(folder: Path, kind: type[SqliteStore] = SqliteStore) -> list[str]:
    """Letters that were told of before a search began, and that it did not find."""
    assert WorkerPool(send_and_search, 4, folder, kind).finish() == {0}
    return [line for line in promises(folder) if line.startswith("missing")]


def test_what_was_sent_before_a_search_is_found_by_it(tmp_path: Path) -> None:
    assert missed(tmp_path) == []
    with opened(tmp_path / "room.db") as store:
        assert len(store.search(read_query("common", NOW), "bob", 10_000)) == 4 * ROUNDS


def test_the_audit_finds_a_store_that_trusts_its_index(tmp_path: Path) -> None:
    assert missed(tmp_path, Boastful) != []


def kill_while_filling(folder: Path) -> None:
    """Two processes that make an index, killed once they have added a good deal."""
    enough = len(promises(folder)) + 40
    pool = WorkerPool(fill_for_ever, 2, folder)
    assert pool.kill_once(lambda: len(promises(folder)) >= enough) == {-signal.SIGKILL}


def test_an_index_whose_maker_was_killed_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "room.db"
    with opened(path, durable=False) as store:
        store.commit([post(letter(f"m{n}", subject=f"common w{n}")) for n in range(300)])
    for _ in range(KILLS):
        kill_while_filling(tmp_path)
        with opened(path) as store:
            assert len(store.search(read_query("common", NOW), None, 1000)) == 300
            assert names(store.search(read_query("w7", NOW), "bob", 10)) == ["m7"]
            store.trim()
            assert names(store.search(read_query("w299", NOW), "bob", 10)) == ["m299"]
        with database(Path(f"{path}.search")) as held:
            assert held.pragma("integrity_check") == "ok"
