"""Bells between processes, with and without inotify."""

from __future__ import annotations

import ctypes
import errno
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from postroom.store import bells
from postroom.store.bells import DoorBells, HouseBells, InotifyWatch, PollWatch, open_inotify
from tests.store.helpers import descriptors

SOON = 10.0  # seconds; only a broken bell waits this long


@pytest.fixture
def doors(tmp_path: Path) -> DoorBells:
    return DoorBells(tmp_path / "bells")


class NoInotify:
    """A C library without inotify: fails with the error it is given."""

    def __init__(self, error: int) -> None:
        self._error = error

    def inotify_init1(self, _flags: int) -> int:
        ctypes.set_errno(self._error)
        return -1


def without_inotify(monkeypatch: pytest.MonkeyPatch, error: int = errno.EMFILE) -> None:
    monkeypatch.setattr(bells, "_libc", lambda: NoInotify(error))


def test_a_bell_nobody_waited_at_is_not_made(doors: DoorBells, tmp_path: Path) -> None:
    doors.ring(["bob"])

    assert not (tmp_path / "bells").exists()


def test_names_become_safe_file_names(doors: DoorBells) -> None:
    assert doors.path("Swarm/Bob").name == "swarm+bob.bell"


def test_a_system_without_inotify_polls(doors: DoorBells, monkeypatch: pytest.MonkeyPatch) -> None:
    without_inotify(monkeypatch)
    with closing(doors.watch(["bob", "cleo"])) as watch:
        assert isinstance(watch, PollWatch)
        assert watch.fileno() == -1
        assert not watch.wait(0)
        doors.ring(["bob"])
        assert watch.rung() == {"bob"}
        assert watch.rung() == set()
        doors.ring([bells.EVERYONE])
        assert watch.rung() == {"bob", "cleo"}


def test_a_polling_ear_wakes_while_it_waits(doors: DoorBells, monkeypatch: pytest.MonkeyPatch) -> None:
    without_inotify(monkeypatch)
    with closing(doors.watch(["bob"])) as watch:
        ringer = threading.Timer(0.05, doors.ring, [["bob"]])
        ringer.start()
        assert watch.wait(SOON)
        ringer.join(SOON)
        assert not watch.wait(0.03)


def test_another_system_than_linux_polls(doors: DoorBells, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert open_inotify() is None


def test_an_unexpected_failure_of_inotify_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    without_inotify(monkeypatch, errno.EPERM)
    with pytest.raises(OSError, match="inotify_init1"):
        open_inotify()


def test_an_overflowing_ear_hears_everyone(doors: DoorBells) -> None:
    """When too many bells rang at once the system says so; then it may have been any of them."""
    with closing(doors.watch(["bob", "cleo"])) as watch:
        assert isinstance(watch, InotifyWatch)
        watch._mailboxes = {number + 1000: name for number, name in enumerate(("bob", "cleo"))}
        doors.ring(["dan"])
        doors.ring(["bob"])
        assert watch.rung() == {"bob", "cleo"}


def test_an_ear_at_a_bell_that_cannot_be_watched_says_so(doors: DoorBells) -> None:
    watch = doors.watch([])
    watch.close()
    with pytest.raises(OSError, match="cannot watch"):
        watch.add("bob")


def test_a_full_pipe_still_rings() -> None:
    house = HouseBells()
    with closing(house.watch(["bob"])) as watch:
        for _ in range(70_000):
            house.ring(["bob"])
        assert watch.rung() == {"bob"}


@pytest.mark.parametrize("make", [HouseBells, lambda: None], ids=["house", "door"])
def test_ears_leave_no_descriptors_behind(doors: DoorBells, make: Callable[[], HouseBells | None]) -> None:
    hung = make() or doors
    before = descriptors()
    for _ in range(20):
        hung.watch(["bob"]).close()
    assert descriptors() == before
