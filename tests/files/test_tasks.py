"""Tasks that other programs give and answer with their files alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from postroom.model.task import TaskState
from postroom.nanobot import MailboxManager
from postroom.store.files.layouts.base import Layout, layout_named
from tests.files.folders import inbox, letters_in, rob, room
from tests.files.test_strangers import drop

NANOBOT = layout_named("nanobot")
NOTE = {"id": "sort-it", "state": "pending", "deadline": "2040-01-01T00:00:00Z"}


def give(root: Path, number: int = 1, **more: Any) -> None:
    drop(root, NANOBOT, number, sender="eve", to="bob", **({"type": "task", "task": NOTE} | more))


def answer(root: Path, number: int, state: str, reply_to: str | None, task: str = "sort-it", **who: str) -> None:
    note = {"id": task, "state": state, "reason": "as told"}
    parties = {"sender": "bob", "to": "eve"} | who
    drop(root, NANOBOT, number, **parties, type="task_update", task=note, reply_to=reply_to)


def test_a_strangers_task_is_listed_taken_on_and_done(tmp_path: Path) -> None:
    with room(tmp_path, NANOBOT) as post:
        give(tmp_path)
        bob = post.mailbox("bob")
        (task,) = bob.tasks("received")
        assert (task.state, task.giver, task.receiver) == (TaskState.PENDING, "eve", "bob")
        task.accept()
        task.complete("sorted")
        assert post.mailbox("eve").task("sort-it").state is TaskState.COMPLETED
    results = [fields["task"]["state"] for path, fields in letters_in(tmp_path).items() if path.startswith("eve/")]
    assert sorted(results) == ["accepted", "completed"]


@pytest.mark.parametrize("reply_to", ["the letter", "another letter", None])
@pytest.mark.parametrize("states", [("accepted", "working", "completed"), ("completed",), ("rejected",)])
def test_a_strangers_answer_moves_our_task(tmp_path: Path, states: tuple[str, ...], reply_to: str | None) -> None:
    with room(tmp_path, NANOBOT) as post:
        ann = post.mailbox("ann")
        id = ann.give_task("bob", "sort it").id
        reminder = ann.reply(id, "How far are you?").id
        for number, state in enumerate(states, 2):
            answer(
                tmp_path,
                number,
                state,
                id if reply_to == "the letter" else reply_to and reminder,
                task=id,
                to="ann",
            )
            assert (ann.task(id).state, ann.task(id).reason) == (state, "as told")


def test_what_may_not_move_a_task_is_only_a_letter(tmp_path: Path) -> None:
    with room(tmp_path, NANOBOT) as post:
        give(tmp_path)
        (task,) = post.mailbox("bob").tasks()
        answer(tmp_path, 2, "completed", task.id, sender="mallory")
        answer(tmp_path, 3, "canceled", task.id, sender="eve", to="bob")
        answer(tmp_path, 4, "finished", task.id)
        answer(tmp_path, 5, "completed", None, task="another")
        give(tmp_path, 6)
        answer(tmp_path, 7, "completed", None)  # there are two of that name by now
        assert [task.state for task in post.mailbox("bob").tasks()] == [TaskState.PENDING] * 2
        assert len(post.mailbox("eve").check(kinds="task_update")) == 4


@pytest.mark.parametrize("lost", ["index", "all of it"])
def test_tasks_come_back_from_the_files(tmp_path: Path, lost: str) -> None:
    answer(tmp_path, 1, "completed", None)  # its clock is behind, so it seems to answer what comes later
    give(tmp_path, 2)
    with room(tmp_path, NANOBOT) as post:
        ann, bob = post.mailbox("ann"), post.mailbox("bob")
        request = ann.give_task("bob", "two").id
        bob.task(request).accept()
        bob.task(request).start()
        bob.task(request).ask("which?")
        early = ann.give_task("bob", "three").id
        bob.reply(early, "done", kind="task_update", task={"id": early, "state": "completed"})  # says nothing
        bob.task(early).accept()
        before = {task.id: task.state for task in bob.tasks()}
    if lost == "index":
        (tmp_path / ".postroom" / "index.db").unlink()
    else:
        rob(tmp_path)
        before[early] = TaskState.COMPLETED  # a result says that it was accepted
    with room(tmp_path, NANOBOT) as post:
        assert {task.id: task.state for task in post.mailbox("bob").tasks()} == before
    assert before[request] is TaskState.INPUT_REQUIRED


def test_tasks_come_back_in_every_layout(layout: Layout, tmp_path: Path) -> None:
    with room(tmp_path, layout) as post:
        ann, bob = post.mailbox("ann"), post.mailbox("bob")
        value = [ann.give_task("bob", text, cc="cleo").id for text in ("taken on", "refused", "taken back", "new")]
        bob.task(value[0]).accept()
        bob.task(value[1]).reject("no time")
        ann.unsend(value[2])
        del value[2]
    rob(tmp_path)
    with room(tmp_path, layout) as post:
        result = {task.id: task.state for task in post.mailbox("bob").tasks()}
        assert result == dict(zip(value, ("accepted", "rejected", "pending"), strict=True))
        assert post.mailbox("ann").task(value[1]).reason == "no time"
        assert post.mailbox("cleo").tasks() == []


def test_a_busy_stranger_is_shown_busy(tmp_path: Path) -> None:
    with MailboxManager(tmp_path) as manager:
        manager.register("bob", {})
        id = manager.room.mailbox("ann").give_task("bob", "x").id
        answer(tmp_path, 2, "accepted", id, task=id, to="ann")
        manager.poll("ann")
        shown = json.loads((tmp_path / "_registry.json").read_bytes())["bob"]
        assert (shown["status"], shown["current_tasks"]) == ("busy", [id])


def test_the_manager_takes_answers_as_the_design_writes_them(tmp_path: Path) -> None:
    with MailboxManager(tmp_path) as manager:
        manager.send("ann", "bob", {"type": "task", "task": {"id": "t1", "state": "pending"}})
        manager.send("bob", "ann", {"type": "task_update", "task": {"id": "t1", "state": "completed"}})
        assert manager.room.mailbox("ann").task("t1").state is TaskState.COMPLETED
        assert inbox(tmp_path, NANOBOT, "ann").exists()
