"""The tap on the shoulder: with futexes, and the pauses where there are none."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from postroom.store.sqlite import tray
from postroom.store.sqlite.lock import WriterLock
from postroom.store.sqlite.tray import Pauses, Turns, open_turns

pytestmark = pytest.mark.mechanism  # of futex turns

SOON = 60.0  # seconds; only a tap that is missed waits this long


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    yield descriptor
    os.close(descriptor)


def open_real_turns(file: int) -> Turns:
    opened = open_turns(file)
    assert isinstance(opened, Turns)
    return opened


def test_who_leaves_wakes_one_who_waits(file: int) -> None:
    mine, theirs = open_real_turns(file), open_real_turns(file)
    turn = mine.read()
    mine.expect()
    sleeper = threading.Thread(target=mine.wait, args=(turn, SOON))
    sleeper.start()
    theirs.tap()
    sleeper.join(SOON)
    assert not sleeper.is_alive()
    assert mine.read() == turn + 1
    mine.close()
    theirs.close()


def test_nobody_is_tapped_when_nobody_waits(file: int) -> None:
    mine = open_real_turns(file)
    turn = mine.read()
    mine.tap()
    assert mine.read() == turn
    mine.close()


def test_a_tap_between_reading_and_sleeping_is_not_slept_through(file: int) -> None:
    mine = open_real_turns(file)
    turn = mine.read()
    mine.expect()
    mine.tap()
    began = time.monotonic()
    mine.wait(turn, SOON)
    assert time.monotonic() - began < SOON / 2
    mine.close()


def test_a_sleeper_whose_tapper_was_killed_wakes_by_itself(file: int) -> None:
    mine = open_real_turns(file)
    began = time.monotonic()
    mine.wait(mine.read(), tray.NAP)
    assert time.monotonic() - began < SOON / 2
    mine.close()


@pytest.mark.parametrize(("system", "machine"), [("darwin", "arm64"), ("linux", "s390x")])
def test_without_futexes_there_are_pauses(
    file: int, monkeypatch: pytest.MonkeyPatch, system: str, machine: str
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine=machine))
    assert isinstance(open_turns(file), Pauses)


def test_on_a_disk_that_takes_nothing_there_are_pauses(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    readable = os.open(path, os.O_RDONLY)
    assert isinstance(open_turns(readable), Pauses)
    os.close(readable)


def test_the_line_moves_by_pauses_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="s390x"))
    first, second = WriterLock(tmp_path / "lock", SOON), WriterLock(tmp_path / "lock", SOON)
    entered = threading.Event()

    def enter() -> None:
        with second:
            entered.set()

    with first:
        waiting = threading.Thread(target=enter)
        waiting.start()
        assert not entered.wait(0.05)
    assert entered.wait(SOON)
    waiting.join(SOON)
    first.close()
    second.close()
