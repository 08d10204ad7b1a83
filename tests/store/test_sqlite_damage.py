"""A damaged letter is set aside and reported; it is never shown, and stands in nobody's way."""

from __future__ import annotations

import logging
from pathlib import Path

import apsw
import pytest

import postroom
from postroom.model.query import LetterQuery
from postroom.store.protocol import Write


def damage(path: Path, sql: str) -> None:
    """Change the file as no Postroom would."""
    database = apsw.Connection(str(path))
    database.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    database.execute(sql)
    database.close()


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE letters SET body = replace(body, 'second', 'sekond') WHERE number = 2",
        "UPDATE letters SET body = substr(body, 1, 20) WHERE number = 2",
        "UPDATE letters SET body = x'' WHERE number = 2",
        "UPDATE letters SET body = 5 WHERE number = 2",
        "UPDATE deliveries SET kind = 9 WHERE number = 2",
        "UPDATE deliveries SET history = x'ff' WHERE number = 2",
    ],
)
def test_a_damaged_letter_is_set_aside_and_the_others_are_read(
    tmp_path: Path, sql: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "room.db"
    with postroom.open(str(path)) as room:
        receipts = room.mailbox("a").send_many([postroom.draft("b", t) for t in ("first", "second", "third")])
        damage(path, sql)
        with caplog.at_level(logging.WARNING, logger="postroom"):
            assert ["first", "third"] == [letter.text for letter in room.mailbox("b").check(peek=True)]
        assert "was set aside" in caplog.text
        assert [receipts[1].id] == room.quarantined()
        assert ["first", "third"] == [x.message.text for x in room.core.store.letters(LetterQuery())]


@pytest.mark.parametrize("sql", ["UPDATE changes SET state = 99", "UPDATE room SET trimmed = x'00'"])
def test_changes_that_make_no_sense_are_refused(tmp_path: Path, sql: str) -> None:
    path = tmp_path / "room.db"
    with postroom.open(str(path)) as room:
        since = room.cursor()
        room.mailbox("a").send("b", "x")
        room.mailbox("b").claim()
        damage(path, sql)
        with pytest.raises(postroom.Damaged):
            room.changes(since)


def test_a_claim_goes_on_behind_a_damaged_letter(tmp_path: Path) -> None:
    path = tmp_path / "room.db"
    with postroom.open(str(path)) as room:
        box = room.mailbox("b")
        room.mailbox("a").send_many([postroom.draft("b", t) for t in ("first", "second")])
        damage(path, "UPDATE letters SET body = 'junk' WHERE number = 1")
        work = box.claim()
        assert work is not None and "second" == work.text
        assert 1 == len(room.quarantined())


def test_damage_noticed_inside_a_commit_is_set_aside_with_it(tmp_path: Path) -> None:
    path = tmp_path / "room.db"
    with postroom.open(str(path)) as room:
        sent = room.mailbox("a").send("b", "first")
        damage(path, "UPDATE letters SET body = 'junk'")
        store = room.core.store

        def plan() -> list[Write]:
            assert {} == store.get([sent.id])
            return []

        store.commit(plan)
        assert [sent.id] == room.quarantined()


def test_the_number_of_a_damaged_letter_is_never_given_again(tmp_path: Path) -> None:
    path = tmp_path / "room.db"
    with postroom.open(path) as room:
        ann, bob = room.mailbox("ann"), room.mailbox("bob")
        first = ann.send("bob", "first")
        before = room.cursor()
        damage(path, "UPDATE letters SET body = 'junk'")
        assert [] == bob.check(peek=True)
        assert room.cursor().number > before.number
        second = ann.send("bob", "second")
        letter = bob.wait(0, since=before, peek=True)
        assert letter is not None and "second" == letter.text
        damage(path, "UPDATE letters SET body = 'junk'")
        assert [] == bob.check(peek=True)
        assert [first.id, second.id] == room.quarantined()


def test_a_room_that_was_emptied_beside_its_log_is_refused_and_not_made_again(tmp_path: Path) -> None:
    path = tmp_path / "room.db"
    with postroom.open(path) as room:
        room.mailbox("ann").send("bob", "in the log")
    path.write_bytes(b"")

    with pytest.raises(postroom.Damaged, match="empty, and its log is not"):
        postroom.open(path)
    assert b"in the log" in Path(f"{path}-wal").read_bytes()


def test_a_mailbox_whose_number_is_another_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "room.db"
    with postroom.open(path) as room:
        room.mailbox("ann").send(["bob", "cleo"], "x")
    database = apsw.Connection(str(path))
    assert 3 == database.execute("SELECT count(*) FROM mailboxes").get
    database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    database.close()
    whole = path.read_bytes()
    at = whole.index(b"bobbob") - 6  # its number; then come the length of a heading and four types
    assert 2 == whole[at]
    path.write_bytes(whole[:at] + b"\x06" + whole[at + 1 :])

    with pytest.raises(postroom.Damaged, match="names of its mailboxes"):
        postroom.open(path)
