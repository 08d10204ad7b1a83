"""What is readable of a damaged room comes into a fresh one: letters as they were, deliveries, names, records."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import postroom
from postroom import Level
from postroom.model.query import Found, Query
from postroom.model.record import CARD
from postroom.store.protocol import spelling_of
from postroom.store.sqlite.salvage import salvage
from tests.renaming import rename
from tests.rooms import texts
from tests.store.helpers import database, empty_log

LONG_TEXT = "a letter over many pages " * 2000
HOLDER = """
import sys, apsw
room = apsw.Connection(sys.argv[1])
room.execute("SELECT count(*) FROM letters").fetchall()
print("open", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Letters in every state, one of them long; a renamed agent; one letter deleted on purpose."""
    path = tmp_path / "room.db"
    with postroom.open(path, retain_count=1) as room:
        ann, bob = room.mailbox("ann"), room.mailbox("bob")
        bob.register(capabilities=["reading"])
        ann.send("bob", "deleted on purpose")
        for letter in bob.check():
            letter.ack()
        assert room.purge(older_than=0) == 1
        ann.send_many([postroom.draft(["bob", "cleo"], f"letter {n} {'x' * 300}") for n in range(60)])
        ann.send("bob", LONG_TEXT)
        work = bob.claim()
        assert work is not None
        work.ack()
        rename(room, "cleo", "dora")
    empty_log(path)
    return path


def damage(path: Path, at: int, junk: bytes) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:at] + junk + content[at + len(junk) :])


def salvaged(path: Path) -> postroom.Room:
    saved = salvage(path, 5.0)
    assert saved is not None
    return postroom.open(saved.path)


def test_a_whole_room_comes_over_as_it_is(path: Path) -> None:
    with postroom.open(path) as room:
        before = [(f.message, f.delivery.mailbox, f.delivery.state) for f in everything(room)]
    with salvaged(path) as copy:
        assert [(f.message, f.delivery.mailbox, f.delivery.state) for f in everything(copy)] == before
        assert LONG_TEXT in {found.message.text for found in everything(copy)}
        assert "deleted on purpose" not in {found.message.text for found in everything(copy)}
        assert spelling_of(copy.core.store, "cleo") == "dora"
        assert [record.key for record in copy.core.store.records(CARD)] == ["bob"]


def everything(room: postroom.Room) -> list[Found]:
    return room.core.store.find(Query(order="age"))


def test_a_room_with_a_damaged_page_is_saved_by_the_doctor_and_restored(path: Path) -> None:
    with postroom.open(path) as room:
        ids = {found.message.id for found in everything(room)}
    empty_log(path)
    content = path.read_bytes()
    at = content.index(b"letter 30 ") // 4096 * 4096
    damage(path, at, os.urandom(4096))
    diagnosis = postroom.doctor(path, repair=True)
    assert diagnosis.worst is Level.ERROR
    (result,) = (finding for finding in diagnosis.findings if finding.check == "salvage")
    postroom.restore(f"{path}.salvaged", path, overwrite=True)
    with postroom.open(path) as room:
        saved = {found.message.id for found in everything(room)}
        assert 40 < len(saved) < 61
        assert f"{61 - len(saved)} others cannot be read: " in result.what
        assert ids - saved == set(re.findall(r"01[0-9A-Z]{24}", result.what))  # their senders may send them again
        room.mailbox("ann").send("bob", "the room works again")


def test_letters_beneath_a_damaged_index_are_all_saved(path: Path) -> None:
    """The numbers come from the table then, and the letters never needed the index."""
    with database(path) as room_file:
        sql = "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_letters_1'"
        root = room_file.execute(sql).get
    damage(path, (root - 1) * 4096, os.urandom(4096))
    with salvaged(path) as copy:
        assert len({found.message.id for found in everything(copy)}) == 61


def test_an_unreadable_room_is_reported_with_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "room.db"
    with postroom.open(path) as room:
        room.mailbox("ann").send("bob", "in the log alone")
    Path(f"{path}-wal").write_bytes(b"")
    (result,) = (finding for finding in postroom.doctor(path, repair=True).findings if finding.check == "salvage")
    assert "no letter could be read" == result.what
    assert f"postroom rooms restore FILE --room {path} --force" in result.hint
    with postroom.open(tmp_path / "other.db") as other:
        other.backup(tmp_path / "backup")
    postroom.restore(tmp_path / "backup", path, overwrite=True)
    assert postroom.doctor(path).worst < Level.ERROR


def test_letters_before_a_break_in_the_log_are_saved_and_the_others_reported(path: Path) -> None:
    with postroom.open(path) as room:
        for number in range(5):
            room.mailbox("ann").send("bob", f"in the log {number}")
    log = Path(f"{path}-wal")
    damage(log, log.read_bytes().index(b"in the log 3"), b"IN")
    assert postroom.doctor(path).worst is Level.ERROR
    before = log.read_bytes()
    diagnosis = postroom.doctor(path, repair=True)
    found = {f.check: f.what for f in diagnosis.findings if f.level > Level.OK}
    assert "were confirmed and are missing" in found["room"]
    assert "64 letters could be read" in found["salvage"]
    assert before == log.read_bytes()
    with postroom.open(f"{path}.salvaged") as copy:
        texts = {found.message.text for found in everything(copy)}
        assert {f"in the log {number}" for number in range(3)} == {t for t in texts if t.startswith("in the log")}


def test_the_doctor_counts_what_was_never_confirmed_behind_a_break_in_the_log(path: Path) -> None:
    """As after a power cut: then the lock file tells of no letter that the log lost."""
    with postroom.open(path) as room:
        for number in range(5):
            room.mailbox("ann").send("bob", f"in the log {number}")
    log = Path(f"{path}-wal")
    damage(log, log.read_bytes().index(b"in the log 3"), b"IN")
    Path(f"{path}.lock").unlink()
    diagnosis = postroom.doctor(path, repair=True)
    (found,) = (f for f in diagnosis.findings if f.check == "end of the log")
    assert (Level.WARNING, True) == (found.level, "2 commits lie behind that" in found.what)
    assert "salvage" not in {f.check for f in diagnosis.findings}


def test_a_damaged_page_of_the_log_puts_no_letter_into_the_mailbox_of_another(path: Path) -> None:
    """Sums say which page it is: of that one only letters are believed, which have sums of their own."""
    with postroom.open(path) as room:
        room.mailbox("ann").send("bob", "for bob alone")
    with database(path) as room_file:
        (bob, dora) = (
            room_file.execute("SELECT id FROM mailboxes WHERE name = ?", (n,)).get for n in ("bob", "dora")
        )
        number = room_file.execute("SELECT max(number) FROM letters").get
    log = Path(f"{path}-wal")
    content = log.read_bytes()
    row = re.compile(re.escape(bytes([number, bob, 0])) + b".")
    for match in row.finditer(content):
        damage(log, match.start() + 1, bytes([dora]))
    with salvaged(path) as saved:
        assert ["for bob alone"] == texts(saved.mailbox("bob").check(None, peek=True))[-1:]
        assert "for bob alone" not in texts(saved.mailbox("dora").check(None, peek=True))


def test_a_delivery_that_cannot_be_read_is_made_again(path: Path) -> None:
    with database(path) as stranger:
        stranger.execute("UPDATE deliveries SET kind = 77 WHERE number % 2 = 0")
    with salvaged(path) as copy:
        assert {found.delivery.kind for found in everything(copy)} == {"to"}
        assert len(everything(copy)) == 121


def test_a_name_that_is_damaged_is_refused_and_nothing_is_set_aside(path: Path) -> None:
    with database(path) as stranger:
        stranger.execute("UPDATE mailboxes SET name = 'rob' WHERE name = 'bob'")
    with postroom.open(path) as room:
        with pytest.raises(postroom.Damaged, match="name of a mailbox"):
            everything(room)
        assert room.quarantined() == []
    assert "names" in {f.check for f in postroom.doctor(path).findings if f.level is Level.ERROR}


def test_what_is_no_text_where_text_should_be_is_refused(path: Path) -> None:
    with database(path) as stranger:
        stranger.execute("UPDATE mailboxes SET name = CAST(x'ff' AS TEXT) WHERE name = 'dora'")
        stranger.execute("UPDATE records SET value = 'junk' WHERE kind = ?", (CARD,))
    with postroom.open(path) as room:
        for ask in (room.mailboxes, room.agents, room.stats, lambda: everything(room)):
            with pytest.raises(postroom.Damaged):
                ask()
    with database(path) as stranger:
        stranger.execute("UPDATE mailboxes SET name = x'07' WHERE folded = 'dora'")
    with postroom.open(path) as room:
        for ask in (room.mailboxes, room.stats):
            with pytest.raises(postroom.Damaged):
                ask()


@pytest.mark.parametrize(
    ("name", "back", "bit"),
    [
        ("cleo", 6, 0),
        ("bob", 4, 7),
    ],  # cleo has bob's number; a row of bob's that looks like a former name of ann's
)
def test_a_row_of_names_that_is_damaged_moves_no_letter_to_another(
    tmp_path: Path, name: str, back: int, bit: int
) -> None:
    path = tmp_path / "room.db"
    with postroom.open(path) as room:
        room.mailbox("ann").send("bob", "for bob")
        room.mailbox("bob").send("cleo", "for cleo")
    empty_log(path)
    at = path.read_bytes().index(2 * name.encode()) - back  # it stands twice: as it counts, and as it is spelt
    damage(path, at, bytes([path.read_bytes()[at] ^ (1 << bit)]))
    with salvaged(path) as copy:
        assert {"for bob": "bob", "for cleo": "cleo"} == {
            found.message.text: found.delivery.mailbox for found in everything(copy)
        }


def test_there_is_nothing_to_save_where_there_is_no_letter(tmp_path: Path) -> None:
    with postroom.open(tmp_path / "room.db"):
        pass
    assert salvage(tmp_path / "room.db", 5.0) is None
    assert not (tmp_path / "room.db.salvaged").exists()


def test_nobody_may_be_inside(path: Path) -> None:
    damage(path, path.read_bytes().index(b"letter 30 ") // 4096 * 4096, os.urandom(4096))
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout and holder.stdout.readline() == "open\n"
        diagnosis = postroom.doctor(path, repair=True)
        holder.communicate("\n")
    (result,) = (finding for finding in diagnosis.findings if finding.check == "salvage")
    assert str(holder.pid) in result.what
