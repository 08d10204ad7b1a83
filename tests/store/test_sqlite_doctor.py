"""The doctor at a file that something happened to (B7): damage, modes, logs, holders, strangers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import postroom
from postroom import Diagnosis, Finding, Level, Room
from postroom.store.sqlite import examine, ground
from postroom.store.sqlite import place as sqlite_place
from tests.rooms import texts
from tests.store.helpers import database, empty_log, mode

READER = """
import sys, apsw
room = apsw.Connection(sys.argv[1])
room.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
room.execute("BEGIN")
room.execute("SELECT count(*) FROM letters").fetchall()
print("reading", flush=True)
sys.stdin.readline()
"""
CLAIMER = """
import os, signal, sys, postroom
room = postroom.open(sys.argv[1])
assert room.mailbox("bob").claim(lease=600)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    with postroom.open(tmp_path / "room.db") as room:
        room.mailbox("ann").send_many([postroom.draft("bob", f"letter {n} " + "x" * 500) for n in range(200)])
        room.mailbox("bob").register()
    empty_log(tmp_path / "room.db")
    return tmp_path / "room.db"


@pytest.fixture
def room(path: Path) -> Iterator[Room]:
    with postroom.open(path) as opened:
        yield opened


def of(diagnosis: Diagnosis, check: str) -> list[Finding]:
    return [finding for finding in diagnosis.findings if finding.check == check]


def worst(diagnosis: Diagnosis, check: str) -> Finding:
    return max(of(diagnosis, check), key=lambda finding: finding.level)


def damage(path: Path, *statements: str) -> None:
    with database(path) as stranger:
        for sql in statements:
            stranger.execute(sql)


def test_every_check_of_an_intact_file_says_ok(path: Path) -> None:
    diagnosis = postroom.doctor(path, full=True)
    assert {finding.level for finding in diagnosis.findings} == {Level.OK}
    assert [*examine.CHECKS] == list(
        dict.fromkeys(f.check for f in diagnosis.findings if f.check in examine.CHECKS)
    )
    assert "200 letters" in worst(diagnosis, "letters").what


# -- damage


def test_flipped_bytes_in_a_letter_are_found_and_the_letter_is_set_aside(path: Path) -> None:
    pages = path.read_bytes()
    place = pages.index(b"letter 77 ")
    path.write_bytes(pages[:place] + b"LETTER" + pages[place + 6 :])
    found = worst(postroom.doctor(path), "letters")
    assert (found.level, found.repaired) == (Level.ERROR, False)
    assert found.what.startswith("1 letters are damaged")
    diagnosis = postroom.doctor(path, repair=True)
    assert worst(diagnosis, "letters").repaired
    assert worst(diagnosis, "quarantine").level is Level.WARNING
    with postroom.open(path) as room:
        assert len(room.quarantined()) == 1
        assert len(room.mailbox("bob").check(None, peek=True)) == 199
    assert worst(postroom.doctor(path), "letters").level is Level.OK


def test_a_damaged_page_is_found_and_nothing_inside_is_touched(path: Path) -> None:
    pages = bytearray(path.read_bytes())
    middle = len(pages) // 4096 // 2 * 4096
    pages[middle : middle + 4096] = os.urandom(4096)
    path.write_bytes(pages)
    diagnosis = postroom.doctor(path, repair=True)
    assert diagnosis.worst is Level.ERROR
    found = worst(diagnosis, "integrity")
    assert (found.level, found.repaired) == (Level.ERROR, False)
    assert "restore a backup" in found.hint
    assert not any(finding.repaired for finding in diagnosis.findings)
    assert "Traceback" not in str(diagnosis)


def test_no_damage_anywhere_makes_the_doctor_crash(path: Path, tmp_path: Path) -> None:
    """Each page in turn is overwritten: the answer is a diagnosis, and never 'all is well' with a letter lost."""
    whole = path.read_bytes()
    for page in range(len(whole) // 4096):
        folder = tmp_path / f"page{page}"
        folder.mkdir(mode=0o700)
        pages = bytearray(whole)
        pages[page * 4096 : (page + 1) * 4096] = b"\xa5" * 4096
        (folder / "room.db").write_bytes(pages)
        (folder / "room.db").chmod(0o600)
        assert postroom.doctor(folder / "room.db", full=True).worst is Level.ERROR, page


def test_a_truncated_file_is_found(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)
    diagnosis = postroom.doctor(path)
    assert diagnosis.worst is Level.ERROR


def test_wrong_indexes_are_found_by_a_full_look_and_rebuilt(path: Path) -> None:
    with database(path) as stranger:
        index = stranger.execute(
            "SELECT sql, rootpage FROM sqlite_schema WHERE name = 'deliveries_dead'"
        ).fetchall()[0]
        stranger.pragma("writable_schema", "on")
        stranger.execute("DELETE FROM sqlite_schema WHERE name = 'deliveries_dead'")
    damage(path, "UPDATE deliveries SET state = 4 WHERE number = 5")
    with database(path) as stranger:
        stranger.pragma("writable_schema", "on")
        row = ("index", "deliveries_dead", "deliveries", index[1], index[0])
        stranger.execute("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", row)
    found = worst(postroom.doctor(path, full=True), "integrity")
    assert (found.level, found.hint) == (Level.ERROR, "repair=True rebuilds them")
    found = worst(postroom.doctor(path, full=True, repair=True), "integrity")
    assert found.repaired
    assert worst(postroom.doctor(path, full=True), "integrity").level is Level.OK


def test_a_record_that_cannot_be_read_is_found_and_the_rest_is_saved(path: Path) -> None:
    damage(path, "UPDATE records SET value = x'7B22' WHERE key = 'bob'")
    found = worst(postroom.doctor(path, repair=True), "records")
    assert (Level.ERROR, True) == (found.level, "bob" in found.what)
    with postroom.open(f"{path}.salvaged") as saved:
        assert 200 == len(saved.mailbox("bob").check(None, peek=True))


@pytest.mark.parametrize(
    ("harm", "text"),
    [
        ("UPDATE room SET name = cast(x'FF41' AS TEXT)", "damaged in room"),
        ("UPDATE changes SET what = cast(x'FF41' AS TEXT)", "damaged in changes"),
        ("UPDATE room SET epoch = x'41'", "the row that describes the room (table room) is damaged"),
    ],
)
def test_rows_that_cannot_be_read_are_found_and_all_letters_are_saved(path: Path, harm: str, text: str) -> None:
    damage(path, harm)
    found = of(postroom.doctor(path, full=True, repair=True), "rows")[0]
    assert (Level.ERROR, text) == (found.level, found.what)
    with postroom.open(f"{path}.salvaged") as saved:
        assert 200 == len(saved.mailbox("bob").check(None, peek=True))


def test_deliveries_without_their_letter_are_found_and_removed(path: Path) -> None:
    damage(path, "DELETE FROM letters WHERE number = 3")
    found = worst(postroom.doctor(path), "deliveries")
    assert (found.level, found.repaired) == (Level.ERROR, False)
    assert "[3]" in found.what
    assert worst(postroom.doctor(path, repair=True), "deliveries").repaired
    assert worst(postroom.doctor(path), "deliveries").level is Level.OK


def test_a_letter_in_nobodys_mailbox_is_noticed(path: Path) -> None:
    damage(path, "DELETE FROM deliveries WHERE number = 3")
    assert worst(postroom.doctor(path), "deliveries").level is Level.WARNING


# -- rooms that do not open


@pytest.mark.parametrize(
    "content", [b"not a database at all, really" * 200, b"SQLite format 3\0" + b"\xff" * 4080]
)
def test_a_file_that_is_no_room_is_reported_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    diagnosis = postroom.doctor(path, repair=True)
    assert worst(diagnosis, "room").level is Level.ERROR
    assert not of(diagnosis, "permissions")  # it is not ours
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_reported_and_left_alone(tmp_path: Path) -> None:
    with database(tmp_path / "foreign.db") as stranger:
        stranger.execute("CREATE TABLE t (x)")
    assert "another program" in worst(postroom.doctor(tmp_path / "foreign.db", repair=True), "room").what


def test_a_room_of_a_newer_postroom_is_reported(path: Path) -> None:
    damage(path, "PRAGMA user_version = 99")
    found = worst(postroom.doctor(path), "room")
    assert "schema 99" in found.what
    assert "upgrade" in found.hint


# -- the place


def test_files_that_others_may_open_are_found_and_closed(path: Path) -> None:
    with postroom.open(path) as room:
        room.mailbox("bob").wait(0.001, sender="nobody")
        for end in ("", "-wal", ".lock"):
            Path(f"{path}{end}").chmod(0o644)
        found = worst(room.doctor(), "permissions")
        assert (found.level, found.repaired) == (Level.WARNING, False)
        assert "room.db-wal" in found.what
        assert worst(room.doctor(repair=True), "permissions").repaired
        assert {mode(Path(f"{path}{end}")) for end in ("", "-wal", ".lock")} == {0o600}
        assert worst(room.doctor(), "permissions").level is Level.OK


def test_the_folder_is_reported_and_never_changed(path: Path) -> None:
    for bits, level in ((0o755, Level.NOTE), (0o777, Level.WARNING), (0o1777, Level.NOTE)):
        path.parent.chmod(bits)
        assert worst(postroom.doctor(path, repair=True), "folder").level is level
        assert mode(path.parent) == bits
    path.parent.chmod(0o700)


def test_a_second_name_or_a_link_is_found(path: Path) -> None:
    os.link(path, path.parent / "second")
    assert "hard link" in worst(postroom.doctor(path), "permissions").what
    (path.parent / "second").unlink()
    Path(f"{path}.bells").symlink_to("/nowhere")
    assert "symbolic link" in worst(postroom.doctor(path), "permissions").what


def test_files_of_another_user_are_found(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    diagnosis = room.doctor(repair=True)
    assert worst(diagnosis, "permissions").level is Level.ERROR
    assert "belongs to uid" in worst(diagnosis, "permissions").what


@pytest.mark.parametrize(
    ("kind", "level"),
    [("nfs4", Level.ERROR), ("tmpfs", Level.WARNING), ("overlay", Level.NOTE), ("ext4", Level.OK), ("", Level.OK)],
)
def test_the_file_system_is_judged(room: Room, monkeypatch: pytest.MonkeyPatch, kind: str, level: Level) -> None:
    monkeypatch.setattr(ground, "file_system", lambda _folder: kind)
    assert worst(room.doctor(), "file system").level is level


def test_little_space_is_noticed(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_place, "LITTLE_SPACE", 2**62)
    assert worst(room.doctor(), "space").level is Level.WARNING
    monkeypatch.setattr(sqlite_place, "NO_SPACE", 2**62)
    assert worst(room.doctor(), "space").level is Level.ERROR


def test_signal_files_are_counted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with postroom.open(path) as room:
        room.mailbox("bob").wait(0.001, sender="nobody")
    assert "2 signal files" in worst(postroom.doctor(path), "bells").what
    monkeypatch.setattr(sqlite_place, "MANY_SIGNALS", 1)
    assert worst(postroom.doctor(path), "bells").level is Level.NOTE
    folder = Path(f"{path}.bells")
    for signal_file in folder.iterdir():
        signal_file.unlink()
    folder.rmdir()
    folder.write_text("in the way")
    assert worst(postroom.doctor(path), "bells").level is Level.ERROR


def test_a_place_that_cannot_be_reached_is_a_finding(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_folder: Path) -> str:
        raise OSError(5, "Input/output error")

    with postroom.open(path) as room:
        monkeypatch.setattr(ground, "file_system", fail)
        assert "Input/output error" in worst(room.doctor(), "place").what


# -- versions, durability, log


def test_older_copies_beside_the_room_are_noted(path: Path) -> None:
    Path(f"{path}.before-schema-2").touch()
    assert "before-schema-2" in worst(postroom.doctor(path), "versions").what


def test_what_durability_means_is_reported(path: Path) -> None:
    assert "power cut" in worst(postroom.doctor(path), "durability").what
    found = worst(postroom.doctor(path, durability="process"), "durability")
    assert found.level is Level.NOTE
    assert "kill -9" in found.what


def test_a_reader_that_holds_the_log_back_is_named(
    room: Room, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examine, "PATIENCE", 0.2)
    room.mailbox("ann").send("bob", "before")
    with subprocess.Popen(
        [sys.executable, "-c", READER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdout and reader.stdout.readline() == "reading\n"
        room.mailbox("ann").send("bob", "meanwhile")
        found = worst(room.doctor(), "log")
        reader.communicate("\n", timeout=60)
    assert found.level is Level.WARNING
    if sys.platform == "linux":
        assert f"process {reader.pid} (" in found.what
    assert worst(room.doctor(), "log").level is Level.OK


def test_a_reader_without_a_name_is_noticed_too(room: Room, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine, "PATIENCE", 0.0)
    monkeypatch.setattr(sqlite_place, "_PROC", Path("/nowhere"))
    with database(path) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM letters").fetchall()
        room.mailbox("ann").send("bob", "meanwhile")
        assert "process unknown" in worst(room.doctor(), "log").what
        reader.execute("ROLLBACK")


def test_a_log_that_once_grew_is_noted_and_made_small(
    room: Room, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.mailbox("ann").send("bob", "x")
    monkeypatch.setattr(examine, "LARGE", 0)
    found = worst(room.doctor(), "log")
    assert (found.level, found.repaired) == (Level.NOTE, False)
    with postroom.open(path) as other:
        other.mailbox("ann").send("bob", "y")
        assert worst(room.doctor(repair=True), "log").repaired
        other.mailbox("ann").send("bob", "z")
        room.mailbox("ann").send("bob", "last")
    monkeypatch.undo()
    assert room.doctor(full=True).is_healthy
    assert room.stats().letters == 204


def test_a_claim_of_a_killed_process_is_noted(path: Path) -> None:
    subprocess.run([sys.executable, "-c", CLAIMER, str(path)], check=False, timeout=60)
    found = worst(postroom.doctor(path), "leases")
    assert found.level is Level.NOTE
    assert "bob (process " in found.what


def test_a_check_that_fails_is_a_finding_and_the_others_go_on(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(_visit: object) -> Iterator[Finding]:
        raise apsw.BusyError

    def gone(_visit: object) -> Iterator[Finding]:
        raise FileNotFoundError(2, "no such file")

    monkeypatch.setitem(examine.CHECKS, "letters", busy)
    monkeypatch.setitem(examine.CHECKS, "log", gone)
    diagnosis = room.doctor()
    assert {worst(diagnosis, "letters").level, worst(diagnosis, "log").level} == {Level.ERROR}
    assert worst(diagnosis, "backlog").level is Level.OK


def test_mail_goes_on_after_every_repair(path: Path) -> None:
    damage(path, "DELETE FROM letters WHERE number = 3", "UPDATE letters SET body = 'junk' WHERE number = 4")
    postroom.doctor(path, repair=True, full=True)
    with postroom.open(path) as room:
        room.mailbox("ann").send("carol", "after")
        assert texts(room.mailbox("carol").check()) == ["after"]
        assert len(room.mailbox("bob").check(None)) == 198
        assert room.stats().states[postroom.State.UNREAD] == 199


def test_what_is_no_room_is_left_as_it_is(tmp_path: Path) -> None:
    stranger = tmp_path / "notes.txt"
    stranger.write_text("hello\n")
    stranger.chmod(0o644)
    diagnosis = postroom.doctor(stranger, repair=True)
    assert [finding.check for finding in diagnosis.findings] == ["room"]
    assert (stranger.stat().st_mode & 0o777, stranger.read_text()) == (0o644, "hello\n")


def test_a_doctor_who_may_only_look_sets_no_letter_aside(path: Path) -> None:
    damage(path, "UPDATE letters SET sum = sum + 1")
    diagnosis = postroom.doctor(path)
    assert worst(diagnosis, "letters").level is Level.ERROR
    assert "not looked at" in worst(diagnosis, "clock").what
    with postroom.open(path) as room:
        assert room.quarantined() == []
