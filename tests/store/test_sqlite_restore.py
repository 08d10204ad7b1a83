"""A backup becomes the room again, whole or not at all, and under nobody's feet (B7)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import apsw
import pytest

import postroom
from postroom import BadStore, Conflict, Damaged, Invalid, Resync, SchemaTooNew, StoreBusy, StoreFailing
from postroom.store.sqlite import backup as sqlite_backup
from postroom.store.sqlite import ground, place, search
from tests.contract.stores import STORES
from tests.core.test_lossless import everything, fill
from tests.renaming import rename
from tests.rooms import FakeClock, RoomFactory, spoken, texts
from tests.store.helpers import database, mode

HOLD = """
import sys, postroom
room = postroom.open(sys.argv[1])
room.mailbox("ann").send("bob", "from the other process")
print("open", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """A room with one letter, and a backup of it as `copy.db`; then a second letter came."""
    with postroom.open(tmp_path / "room.db") as opened:
        opened.mailbox("ann").send("bob", "first")
        opened.backup(tmp_path / "copy.db")
        opened.mailbox("ann").send("bob", "second")
    return tmp_path / "room.db"


def read(path: Path) -> list[str]:
    with postroom.open(path) as opened:
        return texts(opened.mailbox("bob").check(peek=True))


def test_a_backup_is_put_into_a_new_place(room: Path) -> None:
    results: list[tuple[int, int]] = []
    new = room.parent / "new" / "room.db"
    report = postroom.restore(room.parent / "copy.db", new, progress=lambda *at: results.append(at))
    assert (report.path, report.letters, report.kept) == (str(new), 1, None)
    assert results[-1][0] == results[-1][1] == report.bytes
    assert read(new) == ["first"]
    assert mode(new) == 0o600
    assert read(room) == ["first", "second"]


def test_an_empty_room_may_be_filled(room: Path) -> None:
    empty = room.parent / "empty.db"
    postroom.open(empty).close()
    assert postroom.restore(room.parent / "copy.db", empty).kept is None
    assert read(empty) == ["first"]


def test_a_room_with_mail_is_replaced_only_when_asked_for_and_then_kept(room: Path) -> None:
    with pytest.raises(Conflict) as refused:
        postroom.restore(room.parent / "copy.db", room)
    assert "overwrite" in str(refused.value.hint)
    assert read(room) == ["first", "second"]
    for number, kept in enumerate([".before-restore", ".before-restore-2"]):
        report = postroom.restore(room.parent / "copy.db", room, overwrite=True)
        assert report.kept == str(room) + kept
        assert read(room) == ["first"]
        assert read(Path(report.kept)) == (["first", "second"] if number == 0 else ["first"])
        assert mode(Path(report.kept)) == 0o600


def test_cursors_of_before_need_a_resync(room: Path) -> None:
    with postroom.open(room) as opened:
        cursor = opened.cursor()
    postroom.restore(room.parent / "copy.db", room, overwrite=True)
    with postroom.open(room) as opened, pytest.raises(Resync):
        opened.changes(cursor)


def test_the_restored_room_takes_mail_and_is_healthy(room: Path) -> None:
    postroom.restore(room.parent / "copy.db", room, overwrite=True)
    with postroom.open(room) as opened:
        opened.mailbox("ann").send("bob", "third")
        assert opened.doctor(full=True).is_healthy
    assert read(room) == ["first", "third"]


def test_tasks_names_and_words_come_back_and_what_came_later_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index of words lies beside the room and is in no backup: it may know letters of the other life."""
    monkeypatch.setattr(search, "FEW", 0)
    factory = RoomFactory(STORES[1], tmp_path, FakeClock())
    room = fill(factory)
    room.sweep()
    room.backup(tmp_path / "copy.db")
    before = everything(factory.store)
    for number in range(3):
        room.mailbox("anna").send("worker", f"came later {number}")
    rename(room, "miner", "smith")
    assert room.sweep().indexed
    factory.store.close()
    report = postroom.restore(tmp_path / "copy.db", tmp_path / "room.db", overwrite=True)
    assert report.kept
    factory.reopen()
    assert everything(factory.store) == before
    room = factory.room()
    assert room.search("later -for") == []
    assert spoken(room.mailbox("miner").search("from:anna name")) == ["to the old name"]
    room.mailbox("anna").send("digger", "came after the restore")
    room.sweep()
    assert spoken(room.search("came -late")) == ["came after the restore"]
    assert spoken(room.search("restore")) == ["came after the restore"]
    assert room.doctor(full=True).is_healthy
    factory.store.close()


def test_a_room_that_another_process_has_open_is_left_alone(room: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(room)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout and other.stdout.readline() == "open\n"
        with pytest.raises(StoreBusy, match=rf"is open in process {other.pid} \(.*python.*\)"):
            postroom.restore(room.parent / "copy.db", room, overwrite=True)
        other.communicate("\n", timeout=60)
    assert read(room) == ["first", "second", "from the other process"]
    assert not Path(f"{room}.before-restore").exists()
    postroom.restore(room.parent / "copy.db", room, overwrite=True)
    assert read(room) == ["first"]


def test_who_cannot_be_named_is_noticed_all_the_same(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another container, or a system that tells nothing: SQLite's own locks tell."""
    monkeypatch.setattr(place, "_PROC", Path("/nowhere"))
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(room)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout and other.stdout.readline() == "open\n"
        with pytest.raises(StoreBusy, match="another program has"):
            postroom.restore(room.parent / "copy.db", room, overwrite=True)
        other.communicate("\n", timeout=60)
    assert read(room) == ["first", "second", "from the other process"]


def test_a_room_that_this_process_has_open_is_left_alone(room: Path) -> None:
    with postroom.open(room) as opened:
        with pytest.raises(StoreBusy, match="this process"):
            postroom.restore(room.parent / "copy.db", room, overwrite=True)
        opened.mailbox("ann").send("bob", "third")
    assert read(room) == ["first", "second", "third"]


def test_a_room_that_is_used_again_after_a_restore_is_the_new_one(room: Path) -> None:
    opened = postroom.open(room)
    opened.close()
    postroom.restore(room.parent / "copy.db", room, overwrite=True)
    opened.mailbox("ann").send("bob", "third")
    assert texts(opened.mailbox("bob").check(peek=True)) == ["first", "third"]
    opened.close()


def test_a_damaged_room_can_be_replaced_and_is_kept(room: Path) -> None:
    room.write_bytes(b"junk" * 3000)
    Path(f"{room}-wal").write_bytes(b"half a log")
    report = postroom.restore(room.parent / "copy.db", room, overwrite=True)
    assert report.kept
    assert Path(report.kept).read_bytes() == b"junk" * 3000
    assert Path(f"{report.kept}-wal").read_bytes() == b"half a log"
    assert read(room) == ["first"]


def test_a_log_without_its_room_never_meets_the_new_one(room: Path) -> None:
    room.unlink()
    assert Path(f"{room}-wal").stat().st_size > 0
    postroom.restore(room.parent / "copy.db", room)
    assert read(room) == ["first"]


def test_a_restore_that_is_cut_off_leaves_the_old_room(room: Path) -> None:
    def cut(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        postroom.restore(room.parent / "copy.db", room, overwrite=True, progress=cut)
    assert read(room) == ["first", "second"]
    assert [p.name for p in room.parent.glob("*.part*")] == []


def test_at_every_sync_the_old_room_or_the_new_one_is_whole(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a power cut would leave, at each moment that something was made to last."""
    found: list[list[str]] = []
    true_sync = ground.sync_path

    def look(path: Path) -> None:
        true_sync(path)
        snapshot = room.parent / f"cut{len(found)}"
        snapshot.mkdir()
        for end in ("", "-wal"):
            if Path(f"{room}{end}").exists():
                (snapshot / f"room.db{end}").write_bytes(Path(f"{room}{end}").read_bytes())
        found.append(read(snapshot / "room.db"))

    monkeypatch.setattr("postroom.store.sqlite.backup.sync_path", look)
    monkeypatch.setattr(ground, "sync_path", look)
    postroom.restore(room.parent / "copy.db", room, overwrite=True)
    assert found[0] == ["first", "second"]
    assert found[-1] == ["first"]
    assert all(state in (["first", "second"], ["first"]) for state in found)


def test_a_log_left_beside_the_new_room_would_be_noticed(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore without emptying the log (a planted bug): the old log lies over the new room."""
    monkeypatch.setattr(sqlite_backup, "_empty_log", lambda _path: True)
    monkeypatch.setattr(sqlite_backup, "_is_empty", lambda _path: False)
    monkeypatch.setattr(sqlite_backup, "_drop_log", lambda _log: None)
    postroom.restore(room.parent / "copy.db", room, overwrite=True)
    assert read(room) == ["first", "second"]


@pytest.mark.parametrize("content", [b"", b"junk" * 3000, b"SQLite format 3\0" + b"\xff" * 8000])
def test_what_is_no_backup_is_refused(room: Path, content: bytes) -> None:
    bad = room.parent / "bad.db"
    bad.write_bytes(content)
    with pytest.raises((BadStore, Damaged, StoreFailing)) as refused:
        postroom.restore(bad, room, overwrite=True)
    assert refused.value.field == "backup"
    assert read(room) == ["first", "second"]


def test_a_database_of_another_program_is_refused_on_both_sides(room: Path) -> None:
    foreign = room.parent / "foreign.db"
    with database(foreign) as other:
        other.execute("CREATE TABLE t (x)")
    with pytest.raises(BadStore, match="another program") as refused:
        postroom.restore(foreign, room, overwrite=True)
    assert refused.value.field == "backup"
    with pytest.raises(BadStore, match="another program"):
        postroom.restore(room.parent / "copy.db", foreign, overwrite=True)


def test_a_damaged_backup_is_refused(room: Path) -> None:
    copy = room.parent / "copy.db"
    pages = bytearray(copy.read_bytes())
    pages[8192:12288] = b"\xff" * 4096
    copy.write_bytes(pages)
    with pytest.raises(Damaged) as refused:
        postroom.restore(copy, room, overwrite=True)
    assert refused.value.field == "backup"


def test_a_truncated_backup_is_refused(room: Path) -> None:
    copy = room.parent / "copy.db"
    copy.write_bytes(copy.read_bytes()[:20_000])
    with pytest.raises((Damaged, StoreFailing)) as refused:
        postroom.restore(copy, room, overwrite=True)
    assert refused.value.field == "backup"


def test_a_backup_of_a_newer_postroom_is_refused(room: Path) -> None:
    copy = apsw.Connection(str(room.parent / "copy.db"))
    copy.pragma("user_version", 99)
    copy.close()
    with pytest.raises(SchemaTooNew) as refused:
        postroom.restore(room.parent / "copy.db", room, overwrite=True)
    assert refused.value.field == "backup"


def test_a_backup_that_was_used_as_a_room_is_restored_with_its_log(room: Path) -> None:
    copy = room.parent / "copy.db"
    with postroom.open(copy) as opened:
        before = opened.stats().letters
        opened.mailbox("ann").send("bob", "written into the backup")
    assert Path(f"{copy}-wal").stat().st_size
    kept = copy.read_bytes(), Path(f"{copy}-wal").read_bytes()
    assert postroom.restore(copy, room.parent / "other.db").letters == before + 1
    with postroom.open(room.parent / "other.db") as opened:
        assert opened.stats().letters == before + 1
        assert opened.doctor().is_healthy
    assert kept == (copy.read_bytes(), Path(f"{copy}-wal").read_bytes())


def test_a_room_that_this_process_has_open_is_no_backup(room: Path) -> None:
    with postroom.open(room), pytest.raises(StoreBusy, match="this process has"):
        postroom.restore(room, room.parent / "other.db")


def test_the_log_of_an_earlier_file_never_meets_a_new_backup(room: Path) -> None:
    copy = room.parent / "copy.db"
    with postroom.open(copy) as opened:
        opened.mailbox("ann").send("bob", "written into the backup")
    log = Path(f"{copy}-wal").read_bytes()
    with postroom.open(room) as opened:
        opened.mailbox("ann").send("bob", "new" * 10_000)
        letters = opened.backup(copy, overwrite=True).letters
    assert not Path(f"{copy}-wal").exists()
    Path(f"{copy}-wal").write_bytes(log)  # somebody copied the file there by hand
    assert postroom.restore(copy, room.parent / "other.db").letters == letters
    with postroom.open(room.parent / "other.db") as opened:
        assert opened.doctor().is_healthy


def test_a_room_is_no_backup_of_itself(room: Path) -> None:
    with pytest.raises(BadStore, match="itself"):
        postroom.restore(room, room, overwrite=True)
    with postroom.open(room) as opened:
        opened.backup(room.parent / "again.db")
    postroom.restore(room.parent / "again.db", room.parent / "again2.db")
    with pytest.raises(BadStore, match="itself"):
        postroom.restore(room.parent / "again.db", room.parent / "again.db", overwrite=True)


def test_bad_values_are_named(room: Path) -> None:
    for backup in (None, 5, "", "a\0", b"x"):
        with pytest.raises(Invalid) as refused:
            postroom.restore(backup, room)  # type: ignore[arg-type]
        assert refused.value.field == "backup"
    for missing in (room.parent / "nothing.db", room.parent):
        with pytest.raises(BadStore, match="there is no file"):
            postroom.restore(missing, room)
    with pytest.raises(BadStore, match="memory"):
        postroom.restore(room.parent / "copy.db", "memory:")
    with pytest.raises(Invalid):
        postroom.restore(room.parent / "copy.db", room, progress=5)  # type: ignore[arg-type]
