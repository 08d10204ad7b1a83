"""A mailbox folder is renamed in one commit with the other changes to its mail, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from postroom.errors import NameTaken, StaleRevision, StoreFailing
from postroom.model import delivery
from postroom.model.delivery import State
from postroom.model.query import Query
from postroom.store.files import transaction
from postroom.store.files.layouts.base import Layout
from postroom.store.files.store import FileStore
from postroom.store.files.transaction import FileTransaction
from postroom.store.protocol import Move, Rename, Write
from tests.files.folders import home, inbox, letters_in, opened, rob
from tests.letters import NOW, everything, held, ids, letter, post, send

pytestmark = pytest.mark.mechanism  # of renaming agents

STEPS = 3  # of the commit that all of this is about


def commit_all(store: FileStore) -> None:
    """A letter is written, one is moved, and the mailbox of both gets another name."""
    before = held(store, "m1")
    writes: list[Write] = [post(letter("m2")), Rename("bob", "bert")]
    store.commit([*writes, Move(before, delivery.ack(before, NOW, archive=False), "ack")])


def complaints(root: Path, layout: Layout) -> list[str]:
    """What is wrong with a room in which all of it should have happened."""
    with opened(root, layout, "another boot") as store:
        wrong = [f"set aside: {path}" for path in store.quarantined()]
        if store.spelling("bob") != "bert" or home(root, layout).joinpath("bob").exists():
            wrong.append("not renamed")
    rob(root)
    with opened(root, layout) as store:
        states = {found.message.id: found.delivery.state for found in store.find(Query(mailbox="bert"))}
    return wrong if states == {"m1": State.DONE, "m2": State.UNREAD} else [*wrong, f"the mail is {states}"]


def cut_off_after(done: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fails once so many steps are done."""
    left = [None] * done

    def failing(do: Callable[..., Any]) -> Callable[..., Any]:
        def do_or_fail(step: transaction.Step, **how: Any) -> Any:
            if not left:
                raise OSError(5, "Input/output error")
            left.pop()
            return do(step, **how)

        return do_or_fail

    for kind in (transaction.CreateFile, transaction.RewriteFile, transaction.MoveFile, transaction.RenameFolder):
        monkeypatch.setattr(kind, "do", failing(kind.do))


def cut_off(root: Path, layout: Layout, done: int) -> None:
    """As a kill would do it: what was begun is left to whoever comes next."""
    with opened(root, layout) as store, pytest.MonkeyPatch.context() as planted:
        send(store, "m1")
        cut_off_after(done, planted)
        planted.setattr(FileTransaction, "undo", FileTransaction.doubt)
        with pytest.raises(StoreFailing):
            commit_all(store)


def test_the_folder_of_all_its_mail_is_the_one_of_the_new_name(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        send(store, "m1")
        commit_all(store)
    assert complaints(tmp_path, layout) == []


@pytest.mark.parametrize("done", range(STEPS))
def test_a_commit_that_was_cut_off_after_any_step_is_finished(layout: Layout, tmp_path: Path, done: int) -> None:
    cut_off(tmp_path, layout, done)
    assert complaints(tmp_path, layout) == []


@pytest.mark.parametrize("done", range(STEPS))
def test_a_commit_that_failed_after_any_step_left_nothing(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    with opened(tmp_path, layout) as store:
        send(store, "m1")
        before, files = everything(store), letters_in(tmp_path)
        cut_off_after(done, monkeypatch)
        with pytest.raises(StoreFailing):
            commit_all(store)
        assert (everything(store), letters_in(tmp_path)) == (before, files)
        monkeypatch.undo()
        commit_all(store)
    assert complaints(tmp_path, layout) == []


def test_a_folder_taken_before_a_commit_is_finished_keeps_nobody_out(layout: Layout, tmp_path: Path) -> None:
    cut_off(tmp_path, layout, 0)
    theirs = home(tmp_path, layout) / "bert"
    theirs.mkdir()
    (theirs / "README").write_text("mine")
    with opened(tmp_path, layout) as store:
        assert ids(store, Query(mailbox="bert", order="age")) == ["m1", "m2"]
        assert store.quarantined() == []
    assert (theirs / "README").read_text() == "mine"


def test_empty_folders_of_the_new_name_make_room(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        send(store, "m1")
        inbox(tmp_path, layout, "bert").mkdir(parents=True)
        commit_all(store)
    assert complaints(tmp_path, layout) == []


def test_a_folder_that_is_not_empty_is_left_to_its_owner(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        send(store, "m1")
        theirs = inbox(tmp_path, layout, "bert")
        theirs.mkdir(parents=True)
        (theirs / "README").write_text("mine")
        before, files = everything(store), letters_in(tmp_path)
        with pytest.raises(NameTaken, match="is there, and not empty"):
            commit_all(store)
        assert (everything(store), letters_in(tmp_path)) == (before, files)
        (theirs / "README").unlink()
        commit_all(store)
        assert ids(store, Query(mailbox="bert", order="age")) == ["m1", "m2"]


# -- twins


def test_looking_for_mail_under_a_name_that_it_does_not_have_yet_is_noticed(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileTransaction, "_current_path", lambda _self, path: path)
    with opened(tmp_path, layout) as store:
        send(store, "m1")
        with pytest.raises(StaleRevision):
            commit_all(store)


def test_a_rename_that_is_not_done_again_is_noticed(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget_renames(
        step: transaction.Step, do_again: Callable[[transaction.Step], None] = transaction.do_again
    ) -> None:
        if not isinstance(step, transaction.RenameFolder):
            do_again(step)

    cut_off(tmp_path, layout, 0)
    monkeypatch.setattr(transaction, "do_again", forget_renames)
    assert "not renamed" in complaints(tmp_path, layout)
