"""The state folder: whole files, modes, order of keys, the lock, a full disk, what a killed process leaves."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from postroom.chipset.folder import StateFolder
from postroom.errors import StoreBusy, StoreFailing, Unreadable
from postroom.store.files import durable


def test_files_are_for_their_owner_alone_with_sorted_keys(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "a" / "b")
    folder.write({"b": 1, "a": "é"}, "hooks", "x.json")
    path = tmp_path / "a" / "b" / "hooks" / "x.json"
    assert path.read_bytes() == '{\n  "a": "é",\n  "b": 1\n}\n'.encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


def test_a_folder_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "hooks").mkdir(mode=0o755)
    StateFolder(tmp_path).write({}, "hooks", "x.json")
    assert stat.S_IMODE((tmp_path / "hooks").stat().st_mode) == 0o755


def test_content_is_synced_before_its_name_and_the_folder_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = StateFolder(tmp_path)
    did: list[str] = []
    folder.write({}, "hooks", "x.json")

    def watch(name: str) -> None:
        real = getattr(os, name)

        def noted(*message: Any) -> Any:
            did.append(name)
            return real(*message)

        monkeypatch.setattr(os, name, noted)

    for name in ("fdatasync", "fsync", "rename"):
        watch(name)
    folder.write({"a": 1}, "hooks", "x.json")
    assert did == ["fdatasync", "rename", "fsync"]


def test_a_full_disk_is_reported_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = StateFolder(tmp_path)
    folder.write({"a": 1}, "hooks", "x.json")

    def full(descriptor: int, content: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StoreFailing, match="No space"):
        folder.write({"a": 2}, "hooks", "x.json")
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / "hooks").iterdir()] == ["x.json"]
    assert folder.read("hooks", "x.json") == {"a": 1}


def test_what_a_killed_process_left_is_cleared_by_the_next_writer(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    folder.write({"a": 1}, "hooks", "x.json")
    unfinished, _ = durable.write_temporary(str(tmp_path / "hooks"), b"{", durable=False)
    (tmp_path / "hooks" / ".msg.tmp").touch()  # a stranger's: not ours to remove
    assert folder.names("hooks") == ["x.json"]
    with folder.lock():
        folder.write({"a": 2}, "hooks", "x.json")
    assert not os.path.lexists(unfinished)
    assert sorted(path.name for path in (tmp_path / "hooks").iterdir()) == [".msg.tmp", "x.json"]


def test_the_lock_is_held_by_one_and_may_be_taken_again_by_its_holder(tmp_path: Path) -> None:
    folder, other = StateFolder(tmp_path), StateFolder(tmp_path, busy_timeout=0.05)
    with folder.lock():
        with folder.lock():
            pass
        with pytest.raises(StoreBusy), other.lock():
            pass
        results: list[type[BaseException]] = []
        thread = threading.Thread(
            target=lambda: results.append(_refusal(StateFolder(tmp_path, busy_timeout=0.05)))
        )
        thread.start()
        thread.join()
        assert results == [StoreBusy]
    with other.lock():
        pass


def _refusal(folder: StateFolder) -> type[BaseException]:
    try:
        with folder.lock():
            return AssertionError
    except StoreBusy as busy:
        return type(busy)


def test_what_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    folder.write({}, "x.json")
    os.link(tmp_path / "x.json", tmp_path / "second.json")
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    for name in ("x.json", "pipe.json", "folder.json"):
        with pytest.raises(Unreadable):
            folder.read(name)
    assert folder.read("gone.json") is None
    assert folder.names("gone") == []


def test_a_file_in_the_place_of_a_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "hooks").touch()
    with pytest.raises(StoreFailing):
        StateFolder(tmp_path).write({}, "hooks", "x.json")
