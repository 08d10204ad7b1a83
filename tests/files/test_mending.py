"""Damaged, interrupted or moved rooms are repaired when they are next opened, and the doctor reports it."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

from postroom.errors import StaleRevision, StoreFailing
from postroom.model import delivery
from postroom.model.query import LetterQuery, Query
from postroom.model.report import Level
from postroom.store.files import durable, journal, transaction
from postroom.store.files.layouts.base import Layout
from postroom.store.files.store import FileStore
from postroom.store.protocol import Introduce, Move, Rename, Write, record_keys, spelling_of
from postroom.store.sqlite import ground
from tests.files.folders import inbox, letters_in, opened, rob
from tests.letters import NOW, ack, claim, forget, held, ids, letter, names, note, post, send

AGAIN = "another boot"


def complaints(store: FileStore, *, repair: bool = False) -> list[str]:
    found = store.examine(repair=repair, full=True, progress=lambda _done, _all: None)
    return [each.check for each in found if each.level is Level.ERROR]


def the_file(root: Path, layout: Layout) -> Path:
    (found,) = [path for path in inbox(root, layout).iterdir() if path.is_file()]
    return found


# -- letters


def test_a_file_that_says_something_else_is_set_aside_and_written_again(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        send(store, "m1", subject="what was accepted")
        store.find(Query())  # a second look: from now on the kernel tells, also of a folder whose time stays
        file = the_file(tmp_path, layout)
        message = file.read_bytes()
        file.write_bytes(message.replace(b"was accepted", b"was excepted"))
        assert store.get(["m1"])["m1"].message.subject == "what was accepted"
        assert file.read_bytes() == message
        (aside,) = store.quarantined()
        assert b"was excepted" in (tmp_path / aside).read_bytes()


def test_the_doctor_reads_every_file_and_sets_right_what_rotted(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        send(store, "m1", subject="what was accepted")
        assert complaints(store) == []
        file = the_file(tmp_path, layout)
        message, was = file.read_bytes(), file.stat()
        file.write_bytes(message.replace(b"was accepted", b"was excepted"))
        os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))  # as a disk does it: without a word
        store._watcher.poll()
        assert complaints(store) == ["files"]
        assert complaints(store, repair=True) == ["files"]
        assert complaints(store) == []
        assert file.read_bytes() == message


def test_a_field_whose_name_is_misspelt_is_damage_and_no_strangers_field(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        send(store, "m1")
        file = the_file(tmp_path, layout)
        file.write_bytes(file.read_bytes().replace(b'"type"', b'"tyqe"'))
        assert store.get(["m1"])["m1"].message.extra == {}
        assert b'"type"' in file.read_bytes()


def test_a_letter_that_the_index_lost_comes_back_from_its_file(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        send(store, "m1")
        store.connection().database.execute("UPDATE letters SET sum = sum + 1")
        assert names(store.letters(LetterQuery())) == ["m1"]
        assert "index" in complaints(store)


# -- the journal


def test_a_damaged_line_is_passed_over_and_those_behind_it_count(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        for key in ("first", "second", "third"):
            store.commit([note(key, key=key)])
    path = tmp_path / ".postroom" / "journal"
    path.write_bytes(path.read_bytes().replace(b'"second"', b'"sekond"', 1) + b'0badbad0 {"n":99')
    with opened(tmp_path, layout) as store:
        assert complaints(store) == ["journal"]
    (tmp_path / ".postroom" / "index.db").unlink()
    with opened(tmp_path, layout) as store:
        assert record_keys(store, "note") == ["first", "third"]
        assert complaints(store, repair=True) == ["journal"]
        assert complaints(store) == []
    rob_index(tmp_path)
    with opened(tmp_path, layout) as store:
        assert record_keys(store, "note") == ["first", "third"]


def rob_index(root: Path) -> None:
    for path in (root / ".postroom").glob("index.db*"):
        if path.is_file():
            path.unlink()


def test_a_long_journal_is_written_again_and_says_the_same(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "COMPACT_AT", 500)
    with opened(tmp_path, layout) as store:
        send(store, "m1", ("bob", "cleo"))
        store.commit([Rename("bob", "bert")])
        store.commit([Rename("bert", "bart")])
        store.commit([Introduce("dora", known=True)])
        for revision in range(20):
            store.commit([note({"at": revision}, revision)])
    assert (tmp_path / ".postroom" / "journal").stat().st_size < 2000
    rob_index(tmp_path)
    with opened(tmp_path, layout) as store:
        assert [record.value for record in store.records("note")] == [{"at": 19}]
        assert [spelling_of(store, name) for name in ("bob", "bert", "bart", "dora")] == [
            "bart",
            "bart",
            "bart",
            "dora",
        ]


def test_a_room_whose_mailboxes_changed_names_opens_after_a_boot(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        send(store, "m1")
        store.commit([Rename("bob", "bert")])
        store.commit([Rename("bert", "bart")])
    with opened(tmp_path, layout, AGAIN) as store:
        assert spelling_of(store, "bob") == "bart"
        assert ids(store, Query(mailbox="bart")) == ["m1"]


def test_what_was_forgotten_stays_so_where_the_index_is_older(layout: Layout, tmp_path: Path) -> None:
    root, older = tmp_path / "mail", tmp_path / "older"
    with opened(root, layout) as store:
        ack(store, send(store, "m1"))
    shutil.copytree(root / ".postroom", older)
    with opened(root, layout) as store:
        store.commit(forget(store.get(["m1"])["m1"].message))
    shutil.copy(root / ".postroom" / "journal", older / "journal")
    shutil.rmtree(root / ".postroom")
    older.rename(root / ".postroom")
    with opened(root, layout, AGAIN) as store:
        assert store.letters(LetterQuery()) == []
        assert store.find(Query()) == []


def test_steps_are_stored_in_the_journal_by_the_words_of_earlier_versions() -> None:
    words = {kind.__struct_config__.tag for kind in get_args(transaction.Step)}
    assert {"Create", "Rewrite", "Shift", "Remove"} == words


def test_a_renamed_folder_in_the_journal_of_an_earlier_version_keeps_nobody_out(
    layout: Layout, tmp_path: Path
) -> None:
    with opened(tmp_path, layout) as store:
        send(store, "m1")
        conn = store.connection()
        line = {
            "n": conn.ledger.next_line() + 1,
            "writes": [{"rename": ["bob", "bert"]}],
            "steps": [{"type": "Resettle", "former": layout.folder("bob"), "folder": layout.folder("bert")}],
        }
        conn.journal.append(line, durable=False)
    with opened(tmp_path, layout, AGAIN) as store:
        assert [each.message.id for each in store.find(Query(mailbox="bert"))] == ["m1"]
        assert spelling_of(store, "bob") == "bert"
        assert store.quarantined() == []


def test_a_commit_that_was_cut_off_is_finished_wherever_the_room_lies_by_then(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "here", layout) as store:
        send(store, "first")
        monkeypatch.setattr(transaction.FileTransaction, "undo", transaction.FileTransaction.doubt)
        monkeypatch.setattr(durable, "write_new", _refuse)
        with pytest.raises(StoreFailing):
            store.commit([post(letter("m1", ["bob", "cleo"]))])
        monkeypatch.undo()
    (tmp_path / "here").rename(tmp_path / "there")
    with opened(tmp_path / "there", layout) as store:
        send(store, "next")
        assert sorted(each.delivery.mailbox for each in store.find(Query(message_ids=("m1",)))) == ["bob", "cleo"]


def test_a_letter_is_not_taken_back_by_the_failure_of_the_commit_after_it(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, layout) as store:
        send(store, "m1")
        monkeypatch.setattr(transaction.FileTransaction, "settle", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            send(store, "m2")
        monkeypatch.undo()
        before = letters_in(tmp_path)
        with pytest.raises(StaleRevision):
            store.commit(_too_late)
        assert len(before) == 2
        assert letters_in(tmp_path) == before


def _interrupt(*_args: object) -> None:
    raise KeyboardInterrupt


def _too_late() -> list[Write]:
    raise StaleRevision


def _refuse(*_args: object, **_how: object) -> None:
    raise OSError(5, "Input/output error")


# -- what is short


def test_without_another_inode_the_spare_file_takes_the_place_of_a_letter(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, layout) as store:
        held_one = claim(store, send(store, "m1"))
        monkeypatch.setattr(durable, "write_temporary", _no_space)
        ack(store, held_one)
        monkeypatch.undo()
    rob(tmp_path)
    with opened(tmp_path, layout) as store:
        assert held(store, "m1").state.value == "done"


def _no_space(*_args: object, **_how: object) -> None:
    raise OSError(28, "No space left on device")


def test_what_a_killed_writer_left_unfinished_is_removed(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        send(store, "m1")
        left = inbox(tmp_path, layout) / f".{'0' * 18}.tmp"
        left.write_bytes(b"half a let")
        others = inbox(tmp_path, layout) / ".theirs.tmp"
        others.write_bytes(b"of somebody else")
    with opened(tmp_path, layout, AGAIN):
        assert (left.exists(), others.exists()) == (False, True)


def test_the_spare_handle_is_used_when_there_is_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    durable.sync_path(str(tmp_path))
    opening, refusals = os.open, [OSError(24, "Too many open files")]

    def open_or_refuse(path: str, flags: int, mode: int = 0o777) -> int:
        if path != "/" and refusals:
            raise refusals.pop()
        return opening(path, flags, mode)

    monkeypatch.setattr(os, "open", open_or_refuse)
    durable.sync_path(str(tmp_path))
    assert refusals == []


def refuse_once(monkeypatch: pytest.MonkeyPatch, room: ModuleType, refusal: OSError) -> None:
    """The next sync of a folder, where this room makes it."""
    sync, refusals = room.sync_path, [refusal]

    def sync_or_refuse(path: str) -> None:
        if refusals:
            raise refusals.pop()
        sync(path)

    monkeypatch.setattr(room, "sync_path", sync_or_refuse)


def test_a_room_whose_folder_cannot_be_made_to_last_is_refused_and_made_at_the_second_try(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_once(monkeypatch, ground, OSError(errno.EIO, "Input/output error"))
    with pytest.raises(StoreFailing, match="Input/output error"), opened(tmp_path, layout):
        pass
    assert [] == list(tmp_path.iterdir())
    with opened(tmp_path, layout) as store:
        send(store, "m1")
        assert ["m1"] == ids(store, Query())


def test_a_sync_of_folders_that_failed_is_not_tried_again_on_a_full_disk_either(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, layout) as store:
        claimed = claim(store, send(store, "m1"))
        refuse_once(monkeypatch, transaction, OSError(errno.ENOSPC, "No space left on device"))
        with pytest.raises(StoreFailing, match="did not take"):
            store.commit([Move(claimed, delivery.ack(claimed, NOW, archive=False), "ack"), note("v")])
        assert claimed == held(store, "m1")
        ack(store, claimed)
