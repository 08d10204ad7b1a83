"""A copy of a room in use is whole, of one moment, and for its owner alone (B7)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import postroom
from postroom import BadStore, Conflict, Invalid, StoreFailing
from postroom.model.query import LetterQuery
from postroom.store.sqlite import backup
from postroom.store.sqlite.store import SqliteStore
from tests.letters import BootClock, letter, post
from tests.store.helpers import database, mode, opened
from tests.store.workers import WorkerPool, promises, send_for_ever


def names(path: Path) -> list[str]:
    with opened(path) as store:
        return [found.message.id for found in store.letters(LetterQuery())]


def test_a_copy_holds_all_letters_in_one_file(tmp_path: Path) -> None:
    with postroom.open(tmp_path / "room.db") as room:
        room.mailbox("ann").send_many([postroom.draft("bob", "x" * 1000) for _ in range(300)])
        results: list[tuple[int, int]] = []
        report = room.backup(tmp_path / "copy.db", progress=lambda *at: results.append(at))
    assert (report.path, report.letters, report.kept) == (str(tmp_path / "copy.db"), 300, None)
    assert report.bytes == (tmp_path / "copy.db").stat().st_size
    assert results and results[-1][0] == results[-1][1]
    assert mode(tmp_path / "copy.db") == 0o600
    assert sorted(p.name for p in tmp_path.glob("copy*")) == ["copy.db"]
    with database(tmp_path / "copy.db") as copy:
        assert (copy.pragma("journal_mode"), copy.pragma("integrity_check")) == ("delete", "ok")
    assert len(names(tmp_path / "copy.db")) == 300


def test_a_copy_is_of_one_moment_though_letters_come_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "PAGES", 1)
    with postroom.open(tmp_path / "room.db") as room:
        room.mailbox("ann").send_many([postroom.draft("bob", "x" * 3000) for _ in range(50)])
        sent: list[postroom.Receipt] = []

        def send(_done: int, _total: int) -> None:
            if len(sent) < 20:
                sent.append(room.mailbox("ann").send("bob", "meanwhile"))

        report = room.backup(tmp_path / "copy.db", progress=send)
        assert len(sent) == 20
        assert room.stats().letters == 70
    assert report.letters == 50
    assert len(names(tmp_path / "copy.db")) == 50
    with database(tmp_path / "copy.db") as copy:
        assert copy.pragma("integrity_check") == "ok"


def test_what_four_processes_were_promised_before_the_backup_is_in_it(tmp_path: Path) -> None:
    room = tmp_path / "room.db"
    with opened(room) as store:
        pool = WorkerPool(send_for_ever, 4, tmp_path)
        copies: list[set[str]] = []

        def enough() -> bool:
            if len(promises(tmp_path)) > 100 * (len(copies) + 1):
                before = set(promises(tmp_path))
                store.backup(tmp_path / f"copy{len(copies)}.db", overwrite=False, progress=lambda *_: None)
                copies.append(before)
            return len(copies) == 3

        pool.kill_once(enough)
    assert len(copies) == 3
    for number, before in enumerate(copies):
        path = tmp_path / f"copy{number}.db"
        assert before - set(names(path)) == set()
        with database(path) as copy:
            assert copy.pragma("integrity_check") == "ok"
            orphans = "SELECT count(*) FROM deliveries WHERE number NOT IN (SELECT number FROM letters)"
            assert copy.execute(orphans).get == 0
            assert (
                copy.execute("SELECT count(*) FROM letters").get * 2
                == copy.execute("SELECT count(*) FROM deliveries").get
            )


class Careless(SqliteStore):
    """Copies the room's file as if it were any file: what is in the log is missing."""

    def backup(self, path: Path, **_how: object) -> int:
        path.write_bytes(Path(self.path).read_bytes())
        return 0


def test_the_audit_finds_a_copy_that_forgets_the_log(tmp_path: Path) -> None:
    store = Careless(tmp_path / "room.db", clock=BootClock())
    store.commit([post(letter("m1"))])
    store.backup(tmp_path / "copy.db", overwrite=False, progress=None)
    store.close()
    assert {"m1"} - set(names(tmp_path / "copy.db")) == {"m1"}


def test_nothing_is_overwritten_unless_asked_for(tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    copy.write_text("precious")
    with postroom.open(tmp_path / "room.db") as room:
        with pytest.raises(Conflict) as refused:
            room.backup(copy)
        assert refused.value.field == "path"
        assert copy.read_text() == "precious"
        room.backup(copy, overwrite=True)
    assert names(copy) == []


def test_a_file_that_appears_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with postroom.open(tmp_path / "room.db") as room, pytest.raises(Conflict):
        room.backup(copy, progress=lambda *_: copy.write_text("precious"))
    assert copy.read_text() == "precious"
    assert [p.name for p in tmp_path.glob("*.part*")] == []


def test_a_copy_that_was_cut_off_leaves_nothing_behind(tmp_path: Path) -> None:
    def cut(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with postroom.open(tmp_path / "room.db") as room:
        with pytest.raises(KeyboardInterrupt):
            room.backup(tmp_path / "copy.db", progress=cut)
        room.mailbox("ann").send("bob", "goes on")
    assert [p.name for p in tmp_path.iterdir() if "copy" in p.name] == []


def test_a_copy_gets_its_name_when_it_is_on_stable_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, synced = tmp_path / "copy.db", []

    def sync(path: Path) -> None:
        synced.append((path.name.rpartition(".")[2] if path != tmp_path else "folder", copy.exists()))

    with postroom.open(tmp_path / "room.db") as room:
        monkeypatch.setattr(backup, "sync_path", sync)
        room.backup(copy)
    assert synced == [("part", False), ("folder", True)]


def test_a_place_that_cannot_hold_a_copy_is_refused(tmp_path: Path) -> None:
    with postroom.open(tmp_path / "room.db") as room:
        for bad in (tmp_path / "no" / "copy.db", tmp_path):
            with pytest.raises(BadStore) as refused:
                room.backup(bad)
            assert refused.value.field == "path"
        with pytest.raises(Invalid):
            room.backup(tmp_path / "copy.db", progress=5)  # type: ignore[arg-type]


@pytest.mark.parametrize("end", ["", "-wal", "-shm", ".lock"])
def test_a_room_is_never_its_own_backup(tmp_path: Path, end: str) -> None:
    path = tmp_path / "room.db"
    (tmp_path / "link.db").symlink_to(f"room.db{end}")
    with postroom.open(path) as room:
        room.mailbox("ann").send("bob", "x")
        for name in (f"{path}{end}", tmp_path / "link.db"):
            with pytest.raises(BadStore, match="room itself"):
                room.backup(name, overwrite=True)
        assert room.doctor(full=True).worst < postroom.Level.ERROR


def test_a_file_system_without_hard_links_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_old: Path, _new: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    copy = tmp_path / "copy.db"
    with postroom.open(tmp_path / "room.db") as room:
        monkeypatch.setattr(os, "link", refuse)
        room.backup(copy)
        copy.unlink()
        with pytest.raises(Conflict):
            room.backup(copy, progress=lambda *_: copy.write_text("precious"))
    assert copy.read_text() == "precious"


def test_a_disk_that_fails_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> None:
        raise OSError(28, "No space left on device")

    with postroom.open(tmp_path / "room.db") as room:
        monkeypatch.setattr(backup, "sync_path", fail)
        with pytest.raises(StoreFailing, match="No space"):
            room.backup(tmp_path / "copy.db")
    assert not os.path.lexists(tmp_path / "copy.db")


def test_a_room_in_memory_is_not_copied_but_exported() -> None:
    with postroom.open("memory:") as room, pytest.raises(BadStore) as refused:
        room.backup("/tmp/never.db")
    assert "export" in str(refused.value.hint)
