"""Notification between processes and threads, with and without inotify."""

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
    InotifyWatch,
    LocalNotifier,
    PollWatch,
    ProcessNotifier,
    open_inotify,
)
from tests.store.helpers import descriptors

SOON = 60.0  # seconds; only a lost signal waits this long


@pytest.fixture
def notifier(tmp_path: Path) -> ProcessNotifier:
    return ProcessNotifier(tmp_path / "bells")


def notify(notifier: ProcessNotifier, *mailboxes: str) -> None:
    signals = notifier.open_signals(mailboxes)
    notifier.notify(signals)
    notifier.close_signals(signals)


class NoInotify:
    """A C library without inotify: fails with the error it is given."""

    def __init__(self, error: int) -> None:
        self._error = error

    def inotify_init1(self, _flags: int) -> int:
        ctypes.set_errno(self._error)
        return -1


def without_inotify(monkeypatch: pytest.MonkeyPatch, error: int = errno.EMFILE) -> None:
    monkeypatch.setattr(notification, "libc", lambda: NoInotify(error))


def test_a_signal_file_is_made_only_by_a_waiter(notifier: ProcessNotifier, tmp_path: Path) -> None:
    notify(notifier, "bob")

    assert not (tmp_path / "bells").exists()


def test_names_become_safe_file_names(notifier: ProcessNotifier) -> None:
    assert Path(notifier.path("Swarm/Bob")).name == "swarm+bob.bell"


def test_a_system_without_inotify_polls(notifier: ProcessNotifier, monkeypatch: pytest.MonkeyPatch) -> None:
    without_inotify(monkeypatch)
    with closing(notifier.watch(["bob", "cleo"])) as watch:
        assert isinstance(watch, PollWatch)
        assert watch.fileno() == -1
        assert not watch.wait(0)
        notify(notifier, "bob")
        assert watch.notified() == {"bob"}
        assert watch.notified() == set()
        notify(notifier, notification.EVERYONE)
        assert watch.notified() == {"bob", "cleo"}


def test_a_polling_watch_wakes_while_it_waits(notifier: ProcessNotifier, monkeypatch: pytest.MonkeyPatch) -> None:
    without_inotify(monkeypatch)
    with closing(notifier.watch(["bob"])) as watch:
        ringer = threading.Timer(0.05, notify, [notifier, "bob"])
        ringer.start()
        assert watch.wait(SOON)
        ringer.join(SOON)
        assert not watch.wait(0.03)


def test_another_system_than_linux_polls(notifier: ProcessNotifier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert open_inotify() is None


def test_an_unexpected_failure_of_inotify_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    without_inotify(monkeypatch, errno.EPERM)
    with pytest.raises(OSError, match="inotify_init1"):
        open_inotify()


def test_an_overflowing_watch_reports_every_mailbox(notifier: ProcessNotifier) -> None:
    """The kernel reports a queue overflow without a watch: then any mailbox may be meant."""
    with closing(notifier.watch(["bob", "cleo"])) as watch:
        assert isinstance(watch, InotifyWatch)
        watch._mailboxes = {number + 1000: {name} for number, name in enumerate(("bob", "cleo"))}
        notify(notifier, "dan")
        notify(notifier, "bob")
        assert watch.notified() == {"bob", "cleo"}


def test_a_signal_file_that_cannot_be_watched_is_an_error(notifier: ProcessNotifier) -> None:
    watch = notifier.watch([])
    watch.close()
    with pytest.raises(OSError, match="cannot watch"):
        watch.add("bob")


def test_a_full_pipe_still_signals() -> None:
    local = LocalNotifier()
    with closing(local.watch(["bob"])) as watch:
        for _ in range(70_000):
            local.notify(["bob"])
        assert watch.notified() == {"bob"}


def test_watches_leave_no_descriptors_behind(notifier: ProcessNotifier) -> None:
    local, before = LocalNotifier(), descriptors()
    for _ in range(20):
        local.watch(["bob"]).close()
    assert descriptors() == before
    several = [notifier.watch(["bob"]) for _ in range(2 * notification.IDLE_INOTIFY)]
    for watch in several:
        watch.close()
        watch.close()
    assert descriptors() == before + notification.IDLE_INOTIFY
    notifier.close()
    assert descriptors() == before


def test_a_reused_inotify_descriptor_reports_its_own_mailbox_only(notifier: ProcessNotifier) -> None:
    with closing(notifier.watch(["bob"])):
        notify(notifier, "bob")
    with closing(notifier.watch(["cleo"])) as watch:
        assert isinstance(watch, InotifyWatch)
        assert watch.notified() == set()
        notify(notifier, "bob")
        assert watch.notified() == set()
        notify(notifier, "cleo")
        assert watch.notified() == {"cleo"}


def test_a_forked_child_takes_no_inotify_descriptor_of_its_parent(notifier: ProcessNotifier) -> None:
    notifier.watch(["bob"]).close()
    kept = notifier._acquire_inotify()
    assert kept is not None
    notifier.release_inotify(kept)
    notifier._pid -= 1  # as if this were another process
    fresh = notifier._acquire_inotify()
    assert fresh is not None
    assert fresh != kept
    notifier._pid -= 1
    notifier.release_inotify(fresh)  # of a process that is not this one: closed, not kept
    assert notifier._idle_inotify == []
    os.close(kept)


def test_where_no_signal_file_can_be_made_a_watch_polls(
    notifier: ProcessNotifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_doors: ProcessNotifier, _mailbox: str) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ProcessNotifier, "create_signal", fail)
    with closing(notifier.watch(["bob"])) as watch:
        assert isinstance(watch, PollWatch)
        watch.add("cleo")
        assert watch.wait(SOON)
        assert watch.fileno() == -1
        assert watch.notified() == {"bob", "cleo"}
    notifier.close()
