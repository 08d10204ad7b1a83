"""One file never stops a folder: it is indexed or set aside, and every other mailbox still works."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom import Room
from postroom.errors import PostroomError
from postroom.model.report import Level
from postroom.settings import Settings
from postroom.store.files import letter_files
from postroom.store.files.layouts.base import Layout, layout_named
from postroom.store.files.reconcile import Reconciler
from tests.conftest import LONG
from tests.faults.quick import quick_folder
from tests.files.folders import home, inbox, opened, rob
from tests.files.mutants import SECOND, Mutant, Mutants, samples_of
from tests.files.test_strangers import OLD, drop

COUNT = 1_700 if LONG else 100  # mutated files in each layout
DOCTOR = 50 if LONG else 20  # the doctor looks after so many of them
SEED = int(os.environ.get("POSTROOM_TEST_SEED", "19"))


def trouble(here: Room, text: str) -> list[str]:
    """What does not work for others."""
    try:
        here.mailbox("ann").send("carol", text)
        got = [letter.text for letter in here.mailbox("carol").check()]
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    return [] if [text] == got else [f"carol got {got}"]


def illness(here: Room, *, repair: bool, is_over: bool = False) -> list[str]:
    """Whether the doctor can say what he found, and whether anything is wrong once all `is_over`."""
    try:
        found = here.doctor(repair=repair, full=True).findings
        for finding in found:
            f"{finding.what} {finding.hint}".encode()
    except Exception as error:
        return [f"doctor: {type(error).__name__}: {error}"]
    return [f"doctor: {each}" for each in found if is_over and each.level is Level.ERROR and not each.repaired]


def complaints(root: Path, layout: Layout, count: int, seed: int) -> list[str]:
    """Of everybody else, after each of so many bad files."""
    samples = samples_of(root.with_name("samples"), layout)
    wrong: list[str] = []
    done: list[Mutant] = []

    def note(found: list[str]) -> None:
        wrong.extend(f"{each} (after {[one.how for one in done[-3:]]})" for each in found)

    with opened(root, layout, durable=False) as store:
        here = Room(store, Settings())
        note(trouble(here, "before"))
        for number, mutant in enumerate(Mutants(root, layout, samples, seed).make(count)):
            mutant.drop()
            done.append(mutant)
            note(trouble(here, f"letter {number}"))
            if number % DOCTOR == DOCTOR - 1:
                note(illness(here, repair=number % 3 == 0))
            if len(wrong) > 5:
                return wrong
        note(illness(here, repair=True))
        note(illness(here, repair=False, is_over=True))
    rob(root)
    try:
        with opened(root, layout, durable=False) as store:  # all of it at once
            here = Room(store, Settings())
            here.mailbox("carol").check(limit=10_000)
            note(trouble(here, "afterwards"))
            note(illness(here, repair=True))
            note(illness(here, repair=False, is_over=True))
    except PostroomError as refused:
        note([f"it cannot be opened: {refused}"])
    return wrong


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory, where files may have any time, and where thousands of them are quick."""
    with quick_folder() as folder:
        yield folder


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "postroom")


def test_no_file_of_many_stops_the_others(layout: Layout, tmp_path: Path) -> None:
    assert [] == complaints(tmp_path / "mail", layout, COUNT, SEED)


def set_aside(root: Path) -> list[str]:
    return sorted(path.name for path in root.rglob(".quarantine/*"))


def bad_key(root: Path, layout: Layout) -> None:
    """A second file with the same sender and key, under another id."""
    for number in (1, 2):
        path = drop(root, layout, number)
        fields = json.loads(path.read_text())
        layout.set_own(fields, {"key": "the same"})
        path.write_text(json.dumps(fields))
        os.utime(path, OLD)


def of_time(seconds: int) -> Callable[[Path, Layout], None]:
    def make(root: Path, layout: Layout) -> None:
        path = drop(root, layout, 1)
        os.utime(path, ns=(seconds * SECOND, seconds * SECOND))
        if path.stat().st_mtime_ns != seconds * SECOND:
            pytest.skip("this disk keeps no such time")

    return make


def with_field(name: str, value: Any) -> Callable[[Path, Layout], None]:
    def make(root: Path, layout: Layout) -> None:
        path = drop(root, layout, 1)
        fields = json.loads(path.read_text())
        layout.set_own(fields, {name: value})
        path.write_text(json.dumps(fields))
        os.utime(path, OLD)

    return make


def with_long_name(root: Path, layout: Layout) -> None:
    """So long that nothing can be added to it."""
    path = drop(root, layout, 1)
    bad = path.with_name(f"{layout.beginning}{'x' * (255 - len(layout.beginning + layout.ending))}{layout.ending}")
    path.rename(bad).write_text("{")
    os.utime(bad, OLD)


BAD: dict[str, Callable[[Path, Layout], None]] = {
    "the same key": bad_key,
    "of the year 2300": of_time(10_413_792_000),
    "of the year 1600": of_time(-11_676_096_000),
    "of no year": of_time(2**62),
    "created in 9999": with_field("created_at", "9999-12-31T23:59:59.999999Z"),
    "expires in 10000": with_field("expires_at", "9999-12-31T23:59:59-23:59"),
    "a huge number": with_field("hops", 2**64),
    "no such priority": with_field("priority", 7),
    "a long name": with_long_name,
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_file_is_set_aside_and_reported(layout: Layout, tmp_path: Path, bad: str) -> None:
    with opened(tmp_path, layout) as store:
        here = Room(store, Settings())
        BAD[bad](tmp_path, layout)
        assert [] == trouble(here, "after it")
        assert 1 == len(set_aside(tmp_path)) == len(store.quarantined())
        (found,) = [each for each in here.doctor().findings if each.check == "quarantine"]
        assert set_aside(tmp_path)[0][:100] in found.what
        assert [] == illness(here, repair=True, is_over=True)
    with opened(tmp_path, layout) as store:
        assert [] == trouble(Room(store, Settings()), "in another process")


def test_later_letters_do_not_stand_behind_one_from_the_end_of_time(layout: Layout, tmp_path: Path) -> None:
    with_field("order", 2**63 - 1)(tmp_path, layout)
    with opened(tmp_path, layout) as store:
        assert [] == trouble(Room(store, Settings()), "after it")
        assert [] == set_aside(tmp_path)  # its letter is sound; only its place in time is not


def test_the_time_of_a_folder_stops_nobody(layout: Layout, tmp_path: Path) -> None:
    for number in (1, 2):
        with opened(tmp_path, layout) as store:
            assert [] == trouble(Room(store, Settings()), "after it")
            drop(tmp_path, layout, number)
            os.utime(inbox(tmp_path, layout), (10_413_792_000, 10_413_792_000))
    with opened(tmp_path, layout) as store:
        assert 2 == len(Room(store, Settings()).mailbox("bob").check())


def test_a_file_that_cannot_be_set_aside_stops_nobody(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        here = Room(store, Settings())
        bad = drop(tmp_path, layout, 1)
        bad.write_text("{")
        os.utime(bad, OLD)
        (home(tmp_path, layout) / "bob" / ".quarantine").write_text("a file stands in its place")
        drop(tmp_path, layout, 2)
        assert [] == trouble(here, "after it")
        assert ["no. 2"] == [letter.text for letter in here.mailbox("bob").check()]
        assert any(bad.name in each.what for each in here.doctor().findings)
        (home(tmp_path, layout) / "bob" / ".quarantine").unlink()
        assert [] == illness(here, repair=True, is_over=True)
        assert 1 == len(set_aside(tmp_path))


# -- twins


def test_a_store_that_lets_out_what_one_file_causes_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reconciler, "_admit", Reconciler._import_letter)
    assert complaints(tmp_path / "mail", layout_named("nanobot"), 100, SEED)


def test_a_reader_that_lets_out_what_one_file_causes_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letter_files, "parse_file", letter_files._parse)
    assert complaints(tmp_path / "mail", layout_named("nanobot"), 100, SEED)


@pytest.mark.parametrize("layout", ["nanobot", "chipset", "swarm"])
def test_a_backup_by_hard_links_stops_no_mailbox(tmp_path: Path, layout: str) -> None:
    with postroom.open(f"files:{tmp_path}/mail?layout={layout}", durability="process") as room:
        for i in range(3):
            room.mailbox("ann").send("bob", f"letter {i}")
        for i, file in enumerate((tmp_path / "mail").rglob("*.json")):
            os.link(file, tmp_path / f"copy-{i}")
        room.mailbox("ann").send("bob", "afterwards")
        assert 4 == len(room.mailbox("bob").check())
        for _ in range(4):
            work = room.mailbox("bob").claim()
            assert work is not None
            work.ack()
        assert [] == room.quarantined()
