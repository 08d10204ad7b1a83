"""Other programs may delete or rename the whole folder of a mailbox."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest

from postroom.model.delivery import State
from postroom.model.query import Query
from postroom.store.files.layouts.base import Layout
from postroom.store.files.store import FileStore
from postroom.store.files.watch import DirWatcher
from tests.files.folders import home, opened
from tests.letters import ack, held, send

Look = Callable[[str], dict[str, State]]
Way = Callable[[Path, Layout], AbstractContextManager[Look]]


@contextmanager
def by_the_kernel(root: Path, layout: Layout) -> Iterator[Look]:
    """A room that stays open is told."""
    with opened(root, layout) as store:
        for _ in range(3):
            states(store, "bob")
        yield lambda mailbox: states(store, mailbox)


def by_their_times(root: Path, layout: Layout) -> AbstractContextManager[Look]:
    """Short programs look at all folders."""

    def look(mailbox: str) -> dict[str, State]:
        with opened(root, layout) as store:
            return states(store, mailbox)

    return nullcontext(look)


def states(store: FileStore, mailbox: str) -> dict[str, State]:
    return {found.message.id: found.delivery.state for found in store.find(Query(mailbox=mailbox))}


def fill(root: Path, layout: Layout) -> None:
    with opened(root, layout) as store:
        send(store, "open")
        ack(store, send(store, "done"), archive=True)
    long_ago = 1_000_000_000
    for folder in (home(root, layout) / "bob").rglob("*"):
        if folder.is_dir():
            os.utime(folder, (long_ago, long_ago))  # it will have the same time when it comes back
    os.utime(home(root, layout) / "bob", (long_ago, long_ago))
    with by_their_times(root, layout) as look:
        look("bob")


ways = pytest.mark.parametrize("way", [by_the_kernel, by_their_times])


@ways
def test_mail_goes_with_the_folder_that_a_stranger_renamed_and_comes_back_with_it(
    layout: Layout, tmp_path: Path, way: Way
) -> None:
    fill(tmp_path, layout)
    here, there = home(tmp_path, layout) / "bob", home(tmp_path, layout) / "bert"
    with way(tmp_path, layout) as look:
        here.rename(there)
        assert look("bob") == {"open": State.DEAD}
        assert look("bert") == {"open": State.UNREAD, "done": State.DONE}
        there.rename(here)
        assert look("bob") == {"open": State.UNREAD, "done": State.DONE}
        assert look("bert") == {"open": State.DEAD}


@ways
def test_mail_is_gone_with_a_folder_that_a_stranger_deleted(layout: Layout, tmp_path: Path, way: Way) -> None:
    fill(tmp_path, layout)
    with way(tmp_path, layout) as look:
        shutil.rmtree(home(tmp_path, layout) / "bob")
        assert look("bob") == {"open": State.DEAD}
    with opened(tmp_path, layout) as store:
        assert held(store, "open").reason == "its file was deleted"
        send(store, "next")
        assert states(store, "bob")["next"] is State.UNREAD


@ways
def test_not_to_look_for_folders_that_are_gone_is_noticed(
    layout: Layout, tmp_path: Path, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DirWatcher, "_missing_folders", lambda *_: [])
    fill(tmp_path, layout)
    here = home(tmp_path, layout) / "bob"
    with way(tmp_path, layout) as look:
        here.rename(here.with_name("bert"))
        assert look("bob") == {"open": State.UNREAD, "done": State.DONE}  # in two places at once
        assert look("bert") == {"open": State.UNREAD, "done": State.DONE}
