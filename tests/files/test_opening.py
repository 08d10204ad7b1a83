"""The layout of a folder is recognised by its files before anything is written there."""

from __future__ import annotations

from pathlib import Path

import pytest

import postroom
from postroom.errors import BadStore
from postroom.store.address import open_store
from postroom.store.files.layouts.base import Layout
from postroom.store.files.layouts.paths import NAMES
from postroom.store.files.store import FileStore
from tests.files.folders import rob, room
from tests.files.test_strangers import drop


def files(root: Path) -> list[str]:
    return sorted(str(path) for path in root.rglob("*"))


@pytest.mark.parametrize("whose", ["a stranger's", "ours", "all of it done"])
def test_a_folder_of_another_design_is_refused_and_left_as_it_is(
    layout: Layout, tmp_path: Path, whose: str
) -> None:
    if whose == "a stranger's":
        drop(tmp_path, layout)
    else:
        with room(tmp_path, layout) as here:
            here.mailbox("ann").send("bob", "hello")
            if whose == "all of it done" and (work := here.mailbox("bob").claim()):
                work.ack()
        rob(tmp_path)
    before = files(tmp_path)
    for other in set(NAMES) - {layout.name}:
        with pytest.raises(BadStore, match=f"is laid out as {layout.name}'s") as result:
            postroom.open(f"files:{tmp_path}?layout={other}")
        assert result.value.hint == f"files:{tmp_path}?layout={layout.name}"
    assert files(tmp_path) == before
    with postroom.open(f"files:{tmp_path}?layout={layout.name}") as right:
        assert right.stats().letters == 1


def test_a_folder_that_says_nothing_is_opened_as_one_likes(layout: Layout, tmp_path: Path) -> None:
    (tmp_path / "bob" / "inbox").mkdir(parents=True)
    (tmp_path / "mail" / "notes.json").parent.mkdir()
    (tmp_path / "mail" / "notes.json").write_text("{}")
    with postroom.open(f"files:{tmp_path}?layout={layout.name}") as right:
        assert right.mailbox("ann").send("bob", "hello").unknown == ("bob",)


def test_a_folder_that_was_taken_away_is_not_made_again(tmp_path: Path, layout: Layout) -> None:
    """Not by who makes the folder of a mailbox, nor by who opens what must be there."""
    root, aside = tmp_path / "mail", tmp_path / "aside"
    address = f"files:{root}?layout={layout.name}"
    with postroom.open(address) as room:
        store = room.core.store
        assert isinstance(store, FileStore)
        root.rename(aside)
        with pytest.raises(postroom.StoreFailing):
            store.make_folder("ann@home")
        with pytest.raises(postroom.StoreFailing):
            open_store(address, durable=False, busy_timeout=1, makes=False)
        assert not root.exists()
        aside.rename(root)
        store.make_folder("ann@home")
        assert store.has_folder("ann@home")
