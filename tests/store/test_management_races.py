"""Many processes at once: unsend and claim, escalate. Each has one winner, and loses nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from postroom.store.sqlite.store import SqliteStore
from tests.conftest import takes_long
from tests.letters import letter, post
from tests.store.helpers import opened
from tests.store.management_workers import HOURS, LETTERS, claim_or_unsend, room_of, sweep
from tests.store.workers import Forgetful, WorkerPool, promises


def claims_and_unsends(folder: Path, kind: type[SqliteStore] = SqliteStore) -> list[str]:
    """What is wrong: letters that were both worked on and taken back, or neither."""
    with opened(folder / "room.db", durable=False) as store:
        store.commit([post(letter(f"m{number}")) for number in range(LETTERS)])
    assert WorkerPool(claim_or_unsend, 4, folder, kind).finish() == {0}
    result = set(promises(folder))  # two may be told that the same letter is unsent: it is
    ends = Counter(line.split()[1] for line in result)
    return [f"m{number}: {ends[f'm{number}']}" for number in range(LETTERS) if ends[f"m{number}"] != 1]


def test_a_letter_is_claimed_or_unsent_and_never_both(tmp_path: Path) -> None:
    assert claims_and_unsends(tmp_path) == []


def test_the_audit_finds_a_store_that_looks_before_it_stands_in_line(tmp_path: Path) -> None:
    assert claims_and_unsends(tmp_path, Forgetful) != []


@takes_long
def test_many_janitors_let_each_question_climb_once(tmp_path: Path) -> None:
    with opened(tmp_path / "room.db", durable=False) as store:
        room_of(store).mailbox("coo").register()
        for number in range(10):
            room_of(store).mailbox(f"a{number}").escalate("x", reason="blocked")

    assert WorkerPool(sweep, 4, tmp_path).finish() == {0}

    assert sum(map(int, promises(tmp_path))) == 10
    with opened(tmp_path / "room.db") as store:
        room = room_of(store, HOURS)
        assert len(room.mailbox("human").check()) == 10
        assert [len(room.mailbox(f"a{number}").check()) for number in range(10)] == [1] * 10
