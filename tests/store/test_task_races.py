"""Many processes and the tasks of one mailbox (D4, D5): each step is made once. Every audit has a twin."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from postroom import TaskState
from postroom.store.sqlite.store import SqliteStore
from tests.letters import fold_task
from tests.store.helpers import opened
from tests.store.task_workers import TASKS, Hasty, admit_all, room_of, take_all, take_and_cancel
from tests.store.workers import WorkerPool, promises


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A room in which bob was given every task, and may take on all of them."""
    with opened(tmp_path / "room.db") as store:
        room = room_of(store)
        room.mailbox("bob").register(max_concurrent_tasks=100)
        for id in TASKS:
            room.mailbox("ann").give_task("bob", "x", id=id)
    return tmp_path


def audit(folder: Path) -> list[str]:
    """What is wrong: steps made twice, steps the letters do not tell, tasks that stand otherwise in the book."""
    found = [f"{line} {count} times" for line, count in Counter(promises(folder)).items() if count > 1]
    with opened(folder / "room.db") as store:
        room = room_of(store)
        for id in TASKS:
            letters = room.thread(id)
            result = fold_task(letters)
            steps = [letter.task.state for letter in letters if letter.task]
            if len(steps) != len(set(steps)):
                found.append(f"{id} went {steps}")
            if result != room.mailbox("ann").task(id).standing or result != room.mailbox("bob").task(id).standing:
                found.append(f"{id} stands otherwise")
    return found


def states(folder: Path) -> Counter[TaskState]:
    with opened(folder / "room.db") as store:
        return Counter(task.state for task in room_of(store).mailbox("ann").tasks())


def busy_with(folder: Path) -> int:
    with opened(folder / "room.db") as store:
        return len(room_of(store).agent("bob").presence.current_tasks)


def test_each_step_of_a_task_is_made_by_one_of_many_processes(folder: Path) -> None:
    assert WorkerPool(take_all, 6, folder).finish() == {0}
    assert audit(folder) == []
    assert len(promises(folder)) == 3 * len(TASKS)
    assert states(folder) == {TaskState.COMPLETED: len(TASKS)}
    assert busy_with(folder) == 0


def test_the_audit_finds_a_store_that_looks_before_it_stands_in_line(folder: Path) -> None:
    assert WorkerPool(take_all, 6, folder, Hasty).finish() == {0}
    assert audit(folder) != []


def test_a_task_is_completed_or_canceled_but_never_both(folder: Path) -> None:
    with opened(folder / "room.db") as store:
        for id in TASKS:
            room_of(store).mailbox("bob").task(id).accept()
    assert WorkerPool(take_and_cancel, 4, folder).finish() == {0}
    assert audit(folder) == []
    assert len(promises(folder)) == len(TASKS)
    assert set(states(folder)) <= {TaskState.COMPLETED, TaskState.CANCELED}


def too_many(folder: Path, kind: type[SqliteStore]) -> int:
    """How many tasks over its three bob was let take on."""
    with opened(folder / "room.db") as store:
        room_of(store).mailbox("bob").register(max_concurrent_tasks=3)
    assert WorkerPool(admit_all, 4, folder, kind).finish() == {0}
    return sum(line.startswith("in ") for line in promises(folder)) - 3


def test_many_processes_never_take_on_one_task_too_many(folder: Path) -> None:
    assert too_many(folder, SqliteStore) == 0
    assert busy_with(folder) == 3
    assert audit(folder) == []
    assert len(promises(folder)) == len(TASKS)


def test_a_store_that_looks_too_early_takes_on_too_many(folder: Path) -> None:
    assert too_many(folder, Hasty) > 0
