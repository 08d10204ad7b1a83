"""Another program is done with its copy of a letter while the commit that sends the letter still runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.model.delivery import State
from postroom.model.query import Query
from postroom.store.files import reconcile
from postroom.store.files.connection import FileConnection
from postroom.store.files.layouts.base import layout_named
from postroom.store.files.store import FileStore
from postroom.store.files.watch import FileChanges
from tests.letters import BOOT, BootClock


class Reader(FileStore):
    """A store that has the sender commit as soon as it knows which files changed."""

    sender: subprocess.Popen[str] | None = None

    def _reconcile(self, conn: FileConnection, changes: FileChanges) -> None:
        if self.sender is not None and self.sender.poll() is None:
            self.sender.communicate("\n")
        super()._reconcile(conn, changes)

    def states(self) -> dict[str, State]:
        return {found.delivery.mailbox: found.delivery.state for found in self.find(Query())}


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """An open room of bob, carol and a person, in which inotify tells of changes."""
    for mailbox in ("bob", "carol", "human"):
        for place in ("inbox", "processed"):
            (tmp_path / mailbox / place).mkdir(parents=True)
    store = Reader(tmp_path, layout_named("nanobot"), clock=BootClock(BOOT))
    assert [store.find(Query()), store.find(Query())] == [[], []]
    yield store
    store.close()


def send_and_move(reader: Reader, *to: str) -> None:
    """Send a letter from another process, and move each copy before it has committed."""
    command = [sys.executable, "-m", "tests.files.slow_sender", reader.root, *to]
    sender = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert sender.stdout is not None and sender.stdout.readline() == "written\n"
    reader.sender = sender
    for mailbox in to:
        (path,) = Path(reader.root, mailbox, "inbox").iterdir()
        path.rename(path.parent.parent / "processed" / path.name)


def test_a_letter_that_both_recipients_settled_before_it_was_committed_is_done(reader: Reader) -> None:
    send_and_move(reader, "bob", "carol")
    assert reader.states() == {"bob": State.DONE, "carol": State.DONE}
    assert reader.quarantined() == []
    assert [len(list(Path(reader.root, each, "processed").iterdir())) for each in ("bob", "carol")] == [1, 1]


def test_a_persons_copy_that_was_moved_before_the_commit_is_put_back(reader: Reader) -> None:
    send_and_move(reader, "bob", "human")
    assert reader.states() == {"bob": State.DONE, "human": State.UNREAD}
    assert len(list(Path(reader.root, "human", "inbox").iterdir())) == 1
    assert len(reader.quarantined()) == 1


def test_to_take_an_early_move_for_a_copy_is_noticed(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "is_gone", lambda _path: False)
    with pytest.raises(AssertionError, match="State"):
        test_a_letter_that_both_recipients_settled_before_it_was_committed_is_done(reader)
    assert len(reader.quarantined()) == 2
