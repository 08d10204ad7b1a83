"""Bells between processes, with and without inotify."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from postroom.store import notification
from postroom.store.notification import (
    DeafWatch,
    InotifyWatch,
    LocalNotifier,
    PollWatch,
    ProcessNotifier,
    open_inotify,
)
from tests.store.helpers import descriptors

SOON = 60.0  # seconds; only a broken bell waits this long


@pytest.fixture
def doors(tmp_path: Path) -> ProcessNotifier:
    return ProcessNotifier(tmp_path / "bells")


def ring(doors: ProcessNotifier, *mailboxes: str) -> None:
    grasped = doors.grasp(mailboxes)
    doors.ring(grasped)
    doors.let_go(grasped)


class NoInotify:
    """A C library without inotify: fails with the error it is given."""

    def __init__(self, error: int) -> None:
        self._error = error

    def inotify_init1(self, _flags: int) -> int:
        ctypes.set_errno(self._error)
        return -1


def without_inotify(monkeypatch: pytest.MonkeyPatch, error: int = errno.EMFILE) -> None:
    monkeypatch.setattr(notification, "libc", lambda: NoInotify(error))


def test_a_bell_nobody_waited_at_is_not_made(doors: ProcessNotifier, tmp_path: Path) -> None:
    ring(doors, "bob")

    assert not (tmp_path / "bells").exists()


def test_names_become_safe_file_names(doors: ProcessNotifier) -> None:
    assert Path(doors.path("Swarm/Bob")).name == "swarm+bob.bell"


def test_a_system_without_inotify_polls(doors: ProcessNotifier, monkeypatch: pytest.MonkeyPatch) -> None:
    without_inotify(monkeypatch)
    with closing(doors.watch(["bob", "cleo"])) as watch:
        assert isinstance(watch, PollWatch)
        assert watch.fileno() == -1
        assert not watch.wait(0)
        ring(doors, "bob")
        assert watch.rung() == {"bob"}
        assert watch.rung() == set()
        ring(doors, notification.EVERYONE)
        assert watch.rung() == {"bob", "cleo"}


def test_a_polling_ear_wakes_while_it_waits(doors: ProcessNotifier, monkeypatch: pytest.MonkeyPatch) -> None:
    without_inotify(monkeypatch)
    with closing(doors.watch(["bob"])) as watch:
        ringer = threading.Timer(0.05, ring, [doors, "bob"])
        ringer.start()
        assert watch.wait(SOON)
        ringer.join(SOON)
        assert not watch.wait(0.03)


def test_another_system_than_linux_polls(doors: ProcessNotifier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert open_inotify() is None


def test_an_unexpected_failure_of_inotify_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    without_inotify(monkeypatch, errno.EPERM)
    with pytest.raises(OSError, match="inotify_init1"):
        open_inotify()


def test_an_overflowing_ear_hears_everyone(doors: ProcessNotifier) -> None:
    """When too many bells rang at once the system says so; then it may have been any of them."""
    with closing(doors.watch(["bob", "cleo"])) as watch:
        assert isinstance(watch, InotifyWatch)
        watch._mailboxes = {number + 1000: {name} for number, name in enumerate(("bob", "cleo"))}
        ring(doors, "dan")
        ring(doors, "bob")
        assert watch.rung() == {"bob", "cleo"}


def test_an_ear_at_a_bell_that_cannot_be_watched_says_so(doors: ProcessNotifier) -> None:
    watch = doors.watch([])
    watch.close()
    with pytest.raises(OSError, match="cannot watch"):
        watch.add("bob")


def test_a_full_pipe_still_rings() -> None:
    house = LocalNotifier()
    with closing(house.watch(["bob"])) as watch:
        for _ in range(70_000):
            house.ring(["bob"])
        assert watch.rung() == {"bob"}


def test_ears_leave_no_descriptors_behind(doors: ProcessNotifier) -> None:
    house, before = LocalNotifier(), descriptors()
    for _ in range(20):
        house.watch(["bob"]).close()
    assert descriptors() == before
    several = [doors.watch(["bob"]) for _ in range(2 * notification.KEPT_EARS)]
    for watch in several:
        watch.close()
        watch.close()
    assert descriptors() == before + notification.KEPT_EARS
    doors.close()
    assert descriptors() == before


def test_an_ear_that_was_used_before_hears_its_own_mailbox_only(doors: ProcessNotifier) -> None:
    with closing(doors.watch(["bob"])):
        ring(doors, "bob")
    with closing(doors.watch(["cleo"])) as watch:
        assert isinstance(watch, InotifyWatch)
        assert watch.rung() == set()
        ring(doors, "bob")
        assert watch.rung() == set()
        ring(doors, "cleo")
        assert watch.rung() == {"cleo"}


def test_a_forked_child_takes_no_ear_of_its_parent(doors: ProcessNotifier) -> None:
    doors.watch(["bob"]).close()
    kept = doors._take_ear()
    assert kept is not None
    doors.leave_ear(kept)
    doors._pid -= 1  # as if this were another process
    fresh = doors._take_ear()
    assert fresh is not None
    assert fresh != kept
    doors._pid -= 1
    doors.leave_ear(fresh)  # of a process that is not this one: closed, not kept
    assert doors._ears == []
    os.close(kept)


def test_where_no_bell_can_be_hung_whoever_waits_looks_often(
    doors: ProcessNotifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_doors: ProcessNotifier, _mailbox: str) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ProcessNotifier, "hang", fail)
    with closing(doors.watch(["bob"])) as watch:
        assert isinstance(watch, DeafWatch)
        watch.add("cleo")
        assert watch.wait(SOON)
        assert watch.fileno() == -1
        assert watch.rung() == {"bob", "cleo"}
    doors.close()
