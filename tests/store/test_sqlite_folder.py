"""The room's files are looked after one by one only when their folder has changed; then nothing goes unnoticed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from postroom.errors import StoreFailing
from postroom.store.sqlite.connection import FolderStamp
from postroom.store.sqlite.store import SqliteStore
from postroom.store.sqlite.wal import Log
from tests.letters import send
from tests.store.helpers import opened

SECOND = 1_000_000_000  # nanoseconds
LONG_AGO = (time.time_ns() // SECOND - 3600) * SECOND + 1


def settle(folder: Path, when: int = LONG_AGO) -> None:
    """As if its files had been there for long."""
    os.utime(folder, ns=(when, when))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Log]:
    """Every look at the log's path."""
    seen: list[Log] = []
    check = Log.check

    def look(log: Log) -> bool:
        seen.append(log)
        return check(log)

    monkeypatch.setattr(Log, "check", look)
    return seen


def trusting(store: SqliteStore) -> SqliteStore:
    """A store that has looked at its files, in a folder that has long been still."""
    send(store, "m1")
    settle(Path(store.path).parent)
    send(store, "m2")
    send(store, "m3")
    return store


def test_while_the_folder_is_still_its_files_are_not_asked_for(tmp_path: Path, looks: list[Log]) -> None:
    with opened(tmp_path / "room.db") as store:
        trusting(store)
        del looks[:]
        send(store, "m4")
        send(store, "m5")
        assert not looks

        (tmp_path / "something else").touch()
        send(store, "m6")
        assert len(looks) == 1


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
    """Another one stands in its place, as still as the first."""
    room.parent.rename(room.parent.parent / "moved")
    shutil.copytree(room.parent.parent / "moved", room.parent)
    settle(room.parent)


@pytest.mark.parametrize("strike", [delete_log, replace_log, delete_room, replace_room, move_folder])
def test_a_file_that_goes_is_noticed_at_once(tmp_path: Path, strike: Callable[[Path], None]) -> None:
    room = tmp_path / "folder" / "room.db"
    with opened(room) as store:
        trusting(store)
        strike(room)

        with pytest.raises(StoreFailing, match="replaced"):
            send(store, "m4")


def test_a_folder_that_has_just_changed_is_not_trusted_yet(tmp_path: Path) -> None:
    """What happens next may leave the same time."""
    folder = FolderStamp(str(tmp_path))
    settle(tmp_path, time.time_ns() // SECOND * SECOND + SECOND // 2 + 2 * SECOND)
    folder.is_untouched()
    folder.trust()
    assert not folder.is_untouched()

    settle(tmp_path)
    folder.is_untouched()
    folder.trust()
    assert folder.is_untouched()


def test_a_folder_that_knows_only_seconds_is_never_trusted(tmp_path: Path) -> None:
    folder = FolderStamp(str(tmp_path))
    settle(tmp_path, LONG_AGO // SECOND * SECOND)
    folder.is_untouched()
    folder.trust()
    assert not folder.is_untouched()
