"""Where a room may live: files for their owner alone, and places that are refused."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.errors import BadStore, PostroomError, SchemaTooNew, StoreFailing
from postroom.model.query import Query
from postroom.store.sqlite import ground
from postroom.store.sqlite.connection import check_library
from postroom.store.sqlite.schema import STEPS
from postroom.store.sqlite.store import SqliteStore
from tests.letters import BOOT, BootClock, held, ids, letter, post, send
from tests.store.helpers import database, empty_log, mode, opened

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can do this")


def refused(path: Path) -> PostroomError:
    with pytest.raises(PostroomError) as error:
        SqliteStore(path, clock=BootClock(BOOT))
    return error.value


# -- what is made


def test_folders_and_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with opened(tmp_path / "a" / "b" / "room.db") as store:
            store.watch(["bob"]).close()
            send(store, "m1")
            made = {str(path.relative_to(tmp_path)): mode(path) for path in tmp_path.rglob("*")}
    finally:
        os.umask(before)

    assert made == {
        "a": 0o700,
        "a/b": 0o700,
        "a/b/room.db": 0o600,
        "a/b/room.db-wal": 0o600,
        "a/b/room.db-shm": 0o600,
        "a/b/room.db.lock": 0o600,
        "a/b/room.db.reserve": 0o600,
        "a/b/room.db.bells": 0o700,
        "a/b/room.db.bells/bob.bell": 0o600,
        "a/b/room.db.bells/+everyone.bell": 0o600,
    }


def test_a_folder_that_is_there_is_used_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with opened(tmp_path / "room.db"):
        assert mode(tmp_path) == 0o755


def test_a_room_reached_by_a_symbolic_link_is_the_same_room(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "room.db")
    with opened(tmp_path / "real" / "room.db") as real, opened(tmp_path / "link" / "room.db") as by_folder:
        send(real, "m1")
        assert ids(by_folder, Query()) == ["m1"]
        with opened(tmp_path / "link.db") as by_file:
            assert by_file.path == real.path == by_folder.path
            assert ids(by_file, Query()) == ["m1"]


# -- what is refused


def test_a_folder_is_no_room(tmp_path: Path) -> None:
    error = refused(tmp_path)

    assert isinstance(error, BadStore)
    assert f"sqlite:{tmp_path}/room.db" in str(error)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    for path in (tmp_path / "file" / "room.db", tmp_path / "file" / "deeper" / "room.db"):
        assert isinstance(refused(path), BadStore)


def test_a_pipe_is_no_room(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "room.db")

    assert "regular" in str(refused(tmp_path / "room.db"))


def test_a_name_that_is_too_long_is_refused(tmp_path: Path) -> None:
    assert isinstance(refused(tmp_path / ("x" * 300)), BadStore)


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "room.db"
    path.write_bytes(b"dear diary, " * 100)

    error = refused(path)
    assert isinstance(error, BadStore)
    assert not error.temporary
    assert path.read_bytes() == b"dear diary, " * 100
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE t (x)",
        "PRAGMA application_id = 7",
        "PRAGMA user_version = 1",
    ],
)
def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path, sql: str) -> None:
    path = tmp_path / "room.db"
    with database(path) as strangers:
        strangers.execute(sql)
    before = path.read_bytes()

    error = refused(path)
    assert isinstance(error, BadStore)
    assert "another program" in str(error)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_room_of_a_newer_postroom_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "room.db"
    with opened(path):
        pass
    with database(path) as room:
        room.pragma("user_version", len(STEPS) + 1)

    error = refused(path)
    assert isinstance(error, SchemaTooNew)
    assert "upgrade" in str(error)


def test_a_damaged_room_is_called_so(tmp_path: Path) -> None:
    path = tmp_path / "room.db"
    with opened(path) as store:
        send(store, "m1", subject="x" * 100_000)
    empty_log(path)
    pages = path.read_bytes()
    path.write_bytes(pages[:100] + b"\xff" * 3000 + pages[3100:])

    error = refused(path)
    assert (error.code // 1000, error.temporary) == (6, False)


def test_a_file_with_a_second_name_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "room.db"):
        pass
    os.link(tmp_path / "room.db", tmp_path / "other.db")

    assert "hard link" in str(refused(tmp_path / "other.db"))


@as_root
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "room.db"
    path.touch()
    os.chown(path, 12345, -1)

    assert "uid 12345" in str(refused(path))


@pytest.mark.parametrize("beside", ["room.db.lock", "room.db-wal", "room.db-shm"])
def test_a_planted_symbolic_link_is_never_followed(tmp_path: Path, beside: str) -> None:
    with opened(tmp_path / "room.db") as store:
        send(store, "m1")
    empty_log(tmp_path / "room.db")
    (tmp_path / "precious").write_text("keep")
    (tmp_path / beside).unlink()
    (tmp_path / beside).symlink_to(tmp_path / "precious")

    assert isinstance(refused(tmp_path / "room.db"), StoreFailing)
    assert (tmp_path / "precious").read_text() == "keep"


def test_a_planted_signal_file_is_never_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("keep")
    with opened(tmp_path / "room.db") as store:
        store.watch(["cleo"]).close()
        signal_file = tmp_path / "room.db.bells" / "bob.bell"
        signal_file.symlink_to(tmp_path / "precious")
        send(store, "m1")

        assert (tmp_path / "precious").read_text() == "keep"
        with pytest.raises(StoreFailing, match=r"bob\.bell"):
            store.watch(["bob"])


def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ground, "file_system", lambda _folder: "nfs4")

    error = refused(tmp_path / "room.db")
    assert isinstance(error, BadStore)
    assert "network" in str(error)
    assert not (tmp_path / "room.db").exists()


def test_a_system_that_does_not_tell_its_file_systems_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert ground.file_system(tmp_path) == ""


def test_the_kind_of_file_system_is_known(tmp_path: Path) -> None:
    assert ground.file_system(Path("/proc")) == "proc"
    assert ground.file_system(tmp_path) not in ground.NETWORK


@pytest.mark.parametrize(
    ("version", "good"), [("3.51.2", False), ("3.40.1", False), ("3.51.3", True), ("4.0.0", True)]
)
def test_a_sqlite_that_can_lose_mail_is_refused(version: str, good: bool) -> None:
    if good:
        check_library(version)
    else:
        with pytest.raises(BadStore, match="older"):
            check_library(version)


# -- disks that are full or cannot be written


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir(mode=0o700)
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("only root can mount")
    made = subprocess.run([mount, "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], check=False)
    if made.returncode != 0:
        pytest.skip("mounting is not allowed here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def send_until_full(store: SqliteStore) -> list[str]:
    """The letters that were accepted."""
    sent = []
    with contextlib.suppress(StoreFailing):
        for number in range(100):
            send(store, f"m{number}", subject="x" * 100_000)
            sent.append(f"m{number}")
    return sent


def test_a_full_disk_is_a_temporary_failure_that_loses_nothing(small_disk: Path) -> None:
    path = small_disk / "room.db"
    with opened(path) as store:
        sent = send_until_full(store)

        assert 0 < len(sent) < 100
        assert sent == ids(store, Query(order="age"))
        with pytest.raises(StoreFailing) as full:
            store.commit([post(letter("again", subject="x" * 100_000))])
        assert full.value.temporary
        subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
        send(store, "again")
        assert held(store, "again").number > 0


def test_a_room_cannot_be_made_on_a_full_disk(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(bytes(2 * 1024 * 1024 - 4096))

    assert isinstance(refused(small_disk / "room.db"), StoreFailing)
    (small_disk / "ballast").unlink()
    with opened(small_disk / "room.db") as store:
        send(store, "m1")


def test_a_disk_that_is_read_only_is_a_failure_in_plain_words(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)

    for path in (small_disk / "room.db", small_disk / "deeper" / "room.db"):
        error = refused(path)
        assert isinstance(error, (StoreFailing, BadStore))
        assert "ead-only" in str(error)


def test_a_place_that_cannot_be_used_for_now_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_given: object, **_named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "mkdir", fail)
        error = refused(tmp_path / "new" / "room.db")
    assert isinstance(error, StoreFailing)
    assert error.temporary


def test_without_a_file_handle_a_room_may_be_opened_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_folder: Path) -> str:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(ground, "file_system", fail)
    assert isinstance(refused(tmp_path / "room.db"), StoreFailing)


@pytest.mark.parametrize("end", ["", "-wal", ".lock"])
def test_a_file_of_the_room_with_a_second_name_is_refused_with_what_to_do(tmp_path: Path, end: str) -> None:
    with opened(tmp_path / "room.db"):
        pass
    (tmp_path / "second").hardlink_to(tmp_path / f"room.db{end}")
    result = refused(tmp_path / "room.db")
    assert f"room.db{end} has a second name (a hard link)" in str(result)
    assert "-samefile" in (result.hint or "")
    (tmp_path / "second").unlink()
    with opened(tmp_path / "room.db"):
        pass
