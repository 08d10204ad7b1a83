"""A file of the room that another program deletes or replaces is noticed at the next commit."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from postroom.errors import StoreFailing
from tests.letters import send
from tests.store.helpers import opened


def delete_log(room: Path) -> None:
    Path(f"{room}-wal").unlink()


def replace_log(room: Path) -> None:
    copy = shutil.copy(f"{room}-wal", f"{room}-copy")
    Path(copy).replace(f"{room}-wal")


def delete_room(room: Path) -> None:
    room.unlink()


def replace_room(room: Path) -> None:
    copy = shutil.copy(room, f"{room}-copy")
    Path(copy).replace(room)


def move_folder(room: Path) -> None:
    """Another one stands in its place."""
    room.parent.rename(room.parent.parent / "moved")
    shutil.copytree(room.parent.parent / "moved", room.parent)


@pytest.mark.parametrize("strike", [delete_log, replace_log, delete_room, replace_room, move_folder])
def test_a_file_that_goes_is_noticed_at_once(tmp_path: Path, strike: Callable[[Path], None]) -> None:
    room = tmp_path / "folder" / "room.db"
    with opened(room) as store:
        send(store, "m1")
        send(store, "m2")
        strike(room)

        with pytest.raises(StoreFailing, match="replaced"):
            send(store, "m4")
