"""Many processes, one room, no server. Every audit has a twin: a store with a bug that it must find."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from postroom.model.delivery import State
from postroom.model.query import Query
from postroom.store.sqlite.store import SqliteStore
from tests.conftest import LONG
from tests.letters import letter, post, send
from tests.store import workers
from tests.store.helpers import database, opened
from tests.store.workers import (
    PATIENCE,
    Doubling,
    Forgetful,
    Lossy,
    WorkerPool,
    claim_all,
    promises,
    send_for_a_while,
    send_for_ever,
    send_rudely,
    send_some,
)

ROUNDS = 20 if LONG else 3


def sent_letters(folder: Path) -> list[tuple[str, tuple[str, ...]]]:
    """Every letter in the room and the mailboxes that hold it."""
    with opened(folder / "room.db") as store:
        found = store.find(Query(order="age"))
    held: dict[str, list[str]] = {}
    for item in found:
        held.setdefault(item.message.id, []).append(item.delivery.mailbox)
    return [(id, tuple(sorted(mailboxes))) for id, mailboxes in held.items()]


# -- nothing lost, nothing doubled


def audit_of_sending(folder: Path) -> list[str]:
    """What is wrong: promised letters that are not there, and letters nobody was promised."""
    there = sorted(id for id, _ in sent_letters(folder))
    promised = sorted(promises(folder))
    lost = [f"lost {id}" for id in promised if id not in there]
    return lost + [f"not promised {id}" for id in there if id not in promised]


def test_eight_processes_make_one_room_and_lose_and_double_nothing(tmp_path: Path) -> None:
    assert WorkerPool(send_some, 8, tmp_path).finish() == {0}

    assert audit_of_sending(tmp_path) == []
    assert len(promises(tmp_path)) == 8 * 25
    assert {mailboxes for _, mailboxes in sent_letters(tmp_path)} == {("bob", "cleo")}


@pytest.mark.parametrize("bug", [Lossy, Doubling])
def test_the_audit_finds_a_store_that_loses_or_doubles(tmp_path: Path, bug: type[SqliteStore]) -> None:
    assert WorkerPool(send_some, 2, tmp_path, bug).finish() == {0}

    assert audit_of_sending(tmp_path) != []


# -- one holder


def audit_of_claims(folder: Path, count: int) -> list[str]:
    """What is wrong: letters nobody got, and letters that two got."""
    got = Counter(promises(folder))
    return [f"{id}: {got[id]}" for id in (f"m{number}" for number in range(count)) if got[id] != 1]


def fill_inbox(folder: Path, count: int) -> None:
    with opened(folder / "room.db", durable=False) as store:
        store.commit([post(letter(f"m{number}")) for number in range(count)])


def test_eight_processes_claim_every_letter_exactly_once(tmp_path: Path) -> None:
    fill_inbox(tmp_path, 300)

    assert WorkerPool(claim_all, 8, tmp_path).finish() == {0}

    assert audit_of_claims(tmp_path, 300) == []
    with opened(tmp_path / "room.db") as store:
        assert sum(store.count(Query(states=(State.CLAIMED,))).values()) == 300


def test_the_audit_finds_a_store_that_forgets_the_revision(tmp_path: Path) -> None:
    fill_inbox(tmp_path, 60)
    assert WorkerPool(claim_all, 3, tmp_path, Forgetful).finish() == {0}

    assert audit_of_claims(tmp_path, 60) != []


# -- killed in the middle


def kill_in_the_middle(folder: Path, kind: type[SqliteStore] = SqliteStore) -> None:
    """Processes that send, all killed once they have sent a good deal."""
    enough = len(promises(folder)) + 80
    pool = WorkerPool(send_for_ever, 3, folder, kind)
    assert pool.kill_once(lambda: len(promises(folder)) >= enough) == {-signal.SIGKILL}


def audit_of_killing(folder: Path) -> list[str]:
    """What is wrong: promised letters that are not there, and letters that did not reach all."""
    there = dict(sent_letters(folder))
    lost = [f"lost {id}" for id in promises(folder) if id not in there]
    return lost + [f"half {id}" for id, mailboxes in there.items() if mailboxes != ("bob", "cleo")]


def test_a_kill_in_the_middle_of_sending_loses_nothing_promised(tmp_path: Path) -> None:
    for number in range(ROUNDS):
        kill_in_the_middle(tmp_path)

        assert audit_of_killing(tmp_path) == []
        with opened(tmp_path / "room.db", busy_timeout=PATIENCE) as store:
            send(store, f"after-{number}", ["bob", "cleo"])
            with database(store.path) as room:
                assert room.pragma("integrity_check") == "ok"


def test_the_audit_finds_a_store_that_promises_too_early(tmp_path: Path) -> None:
    kill_in_the_middle(tmp_path, Lossy)

    assert audit_of_killing(tmp_path) != []


# -- fair


def is_fair(folder: Path, work: workers.Work) -> bool:
    """Of eight writers the slowest got at least half of what the fastest got."""
    folder.mkdir()
    assert WorkerPool(work, 8, folder).finish() == {0}
    sent = [int(line) for line in promises(folder)]
    assert len(sent) == 8
    return min(sent) * 2 >= max(sent)


def test_the_line_is_fair(tmp_path: Path) -> None:
    """Up to five looks: the machine may be busy with something else."""
    assert any(is_fair(tmp_path / str(look), send_for_a_while) for look in range(5))


def test_the_look_finds_a_line_that_is_not_fair(tmp_path: Path) -> None:
    """As many looks as above: whoever is busy with something else may slow the rude one down."""
    assert not all(is_fair(tmp_path / str(look), send_rudely) for look in range(5))
