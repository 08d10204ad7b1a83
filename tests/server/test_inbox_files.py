"""The folder of inbox.jsonl files: no line is lost between a writer and a reader, whoever the reader is."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from postroom.app.inbox_files import DOUBT_NS, DROPPED, SEEN_NS, TRIES, FileState, InboxFolder
from postroom.constants import safe_form
from postroom.errors import BadStore
from postroom.formats.inbox import notice_of
from tests.letters import NOW
from tests.server.reading import skip_where_no_reading_is_told

WRITER = """
import sys
from postroom.app.inbox_files import InboxFolder
folder = InboxFolder(sys.argv[1])
for n in range(int(sys.argv[3])):
    folder.append("bob", [f"{sys.argv[2]}-{n}\\n".encode()])
    if n % 10 == 9:
        folder.check("bob")
"""


@pytest.fixture
def folder(tmp_path: Path) -> InboxFolder:
    made = InboxFolder(str(tmp_path / "inboxes"))
    made.prepare()
    return made


def take(folder: InboxFolder, agent: str = "bob") -> list[bytes]:
    taken = folder.take(agent)
    if taken is None:
        return []
    taken.done()
    return taken.content.splitlines()


def files(folder: InboxFolder) -> set[str]:
    return {path.name for path in Path(folder.path).iterdir() if path.name.endswith(".inbox.jsonl")}


def test_every_line_reaches_a_reader_while_processes_write(folder: InboxFolder) -> None:
    """Two writers that are processes, two readers that are threads; each line is counted."""
    many = 400
    words = [sys.executable, "-c", WRITER, folder.path]
    writers = [subprocess.Popen([*words, name, str(many)]) for name in ("x", "y")]
    got: list[bytes] = []

    def read() -> None:
        own = InboxFolder(folder.path)
        while any(writer.poll() is None for writer in writers):
            got.extend(take(own))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    got += take(folder)
    assert [0, 0] == [writer.wait() for writer in writers]
    assert sorted(f"{name}-{n}".encode() for name in "xy" for n in range(many)) == sorted(got)


def test_what_a_reader_was_done_with_while_it_was_opened_is_nobodys(
    folder: InboxFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.append("bob", [b"1\n"])
    first = folder.take("bob")
    assert first is not None
    flock = fcntl.flock

    def lock_late(file: int, how: int) -> None:
        if how & fcntl.LOCK_NB and first.held:
            first.done()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    assert folder.take("bob") is None


def test_what_a_dead_reader_took_goes_to_the_next_and_what_a_living_one_has_does_not(folder: InboxFolder) -> None:
    folder.append("bob", [b"1\n"])
    first = folder.take("bob")
    assert first is not None and folder.take("bob") is None
    folder.append("bob", [b"2\n"])
    first.leave()
    assert [b"1", b"2"] == sorted(take(folder))
    assert [] == take(folder)
    assert b"" == folder.content("bob")


def test_a_line_that_a_stranger_wrote_into_a_taken_file_comes_back(folder: InboxFolder) -> None:
    folder.append("bob", [b"1\n"])
    with (Path(folder.path) / "bob.inbox.jsonl").open("ab") as stranger:
        taken = folder.take("bob")
        assert taken is not None and taken.content == b"1\n"
        stranger.write(b"2\n")
    taken.done()
    assert [b"2"] == take(folder)


@pytest.mark.mechanism
def test_a_line_that_was_emptied_away_at_once_is_written_again(folder: InboxFolder) -> None:
    """agent-inbox's reader: it reads, we write, it empties."""
    path = Path(folder.path) / "bob.inbox.jsonl"
    folder.append("bob", [b"old\n"])
    folder.check("bob")
    assert path.read_bytes() == b"old\n"
    folder.append("bob", [b"new\n"])
    path.write_bytes(b"")
    folder.check("bob")
    assert path.read_bytes() == b"new\n"
    path.write_bytes(b"")
    folder.check("bob")
    assert path.read_bytes() == b""  # it has been seen to stay before


@pytest.mark.mechanism
def test_a_line_that_is_in_doubt_comes_with_the_next(folder: InboxFolder) -> None:
    path = Path(folder.path) / "bob.inbox.jsonl"
    folder.append("bob", [b"1\n"])
    path.write_bytes(b"")
    folder.append("bob", [b"2\n"])
    assert path.read_bytes() == b"1\n2\n"


def was_read(path: Path, after: int) -> None:
    """As the file system tells of a reading so many nanoseconds after the last write."""
    written = path.stat().st_mtime_ns
    os.utime(path, ns=(written + after, written))


def empty_what_was_read(path: Path, after: int) -> None:
    """A reading so many nanoseconds after the last write, and then an emptying."""
    was_read(path, after)
    read = path.stat().st_atime_ns
    path.write_bytes(b"")
    os.utime(path, ns=(read, max(read, path.stat().st_mtime_ns)))


@pytest.mark.mechanism
def test_a_line_that_was_read_before_it_was_emptied_away_is_not_written_again(folder: InboxFolder) -> None:
    path = Path(folder.path) / "bob.inbox.jsonl"
    folder.append("bob", [b"1\n"])
    empty_what_was_read(path, SEEN_NS + 1)
    assert not folder.check("bob")
    assert path.read_bytes() == b""


@pytest.mark.mechanism
def test_where_a_reader_has_looked_again_meanwhile_a_line_is_written_again_once(folder: InboxFolder) -> None:
    """The last reading was that of an empty file: whether there was one before it cannot be told any more."""
    path = Path(folder.path) / "bob.inbox.jsonl"
    folder.append("bob", [b"1\n"])
    for left in (b"1\n", b""):
        path.write_bytes(b"")
        assert folder.is_emptied("bob")
        was_read(path, SEEN_NS + 1)
        folder.check("bob", is_over=False)
        assert path.read_bytes() == left


@pytest.mark.mechanism
def test_a_line_that_may_have_been_read_is_written_again_once(folder: InboxFolder) -> None:
    path = Path(folder.path) / "bob.inbox.jsonl"
    folder.append("bob", [b"1\n"])
    for _ in range(2):
        empty_what_was_read(path, SEEN_NS // 2)
        folder.append("bob", [b"next\n"])
    assert 0 == path.read_bytes().count(b"1\n")


@pytest.mark.mechanism
def test_a_line_that_surely_was_not_read_is_written_again_and_again_but_not_for_ever(folder: InboxFolder) -> None:
    path = Path(folder.path) / "bob.inbox.jsonl"
    folder.append("bob", [b"1\n"])
    for _ in range(TRIES):
        empty_what_was_read(path, -SEEN_NS)
        assert folder.check("bob")
        assert path.read_bytes() == b"1\n"
    empty_what_was_read(path, -SEEN_NS)
    assert not folder.check("bob")
    assert path.read_bytes() == b""


@pytest.mark.mechanism
def test_where_no_time_of_reading_is_kept_a_line_in_doubt_is_written_again_once(folder: InboxFolder) -> None:
    path = Path(folder.path) / "bob.inbox.jsonl"
    for n in range(5):
        folder.append("bob", [b"%d\n" % n])
        assert b"".join(b"%d\n" % one for one in range(max(n - 1, 0), n + 1)) == seen_from_afar(path)
        path.write_bytes(b"")


def seen_from_afar(path: Path) -> bytes:
    """Read, and no trace of it."""
    file = os.open(path, os.O_RDONLY | getattr(os, "O_NOATIME", 0))
    try:
        return os.read(file, 1000)
    finally:
        os.close(file)


@pytest.mark.mechanism
def test_our_own_looks_at_a_file_are_no_reading_of_it(folder: InboxFolder) -> None:
    path = Path(folder.path) / "bob.inbox.jsonl"
    folder.append("bob", [b"1\n"])
    os.utime(path, ns=(0, path.stat().st_mtime_ns))
    assert b"1\n" == folder.peek("bob")
    folder.append("bob", [b"2\n"])
    assert 0 == path.stat().st_atime_ns


def missed_by_a_reader_that_empties(folder: InboxFolder, many: int = 150) -> set[bytes]:
    """While mail keeps coming, it reads, takes its time, and empties."""
    path, got, is_over = Path(folder.path) / "bob.inbox.jsonl", [], threading.Event()
    folder.append("bob", [b"first\n"])
    skip_where_no_reading_is_told(path)

    def read() -> None:
        while not is_over.wait(0.05):
            if some := path.read_bytes():
                time.sleep(0.005)
                path.write_bytes(b"")
                got.extend(some.splitlines())

    reader = threading.Thread(target=read)
    reader.start()
    for n in range(many):
        folder.append("bob", [b"%d\n" % n])
        time.sleep(0.003)
    time.sleep(DOUBT_NS / 1e9)
    while folder.check("bob"):
        time.sleep(DOUBT_NS / 1e9)
    is_over.set()
    reader.join()
    got += path.read_bytes().splitlines()
    path.write_bytes(b"")
    assert len(got) < 2 * many, "too much is shown twice"
    return {b"first", *(b"%d" % n for n in range(many))} - set(got)


@pytest.mark.mechanism
def test_a_reader_that_empties_while_mail_keeps_coming_misses_nothing_and_sees_little_twice(
    folder: InboxFolder,
) -> None:
    """Where the machine lets one of the two stand still at the wrong moment, nobody can tell what was read; so one
    of three times will do.
    """
    assert any(not missed_by_a_reader_that_empties(folder) for _ in range(3))


@pytest.mark.mechanism
def test_a_writer_that_never_doubts_is_found_by_such_a_reader(
    folder: InboxFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileState, "lost", lambda *_: [])
    assert all(missed_by_a_reader_that_empties(folder) for _ in range(3))


@pytest.mark.mechanism
def test_what_was_read_a_while_after_is_not_written_again(folder: InboxFolder) -> None:
    path = Path(folder.path) / "bob.inbox.jsonl"
    folder.append("bob", [b"1\n"])
    path.write_bytes(b"")
    later = time.time_ns() + 10**9
    os.utime(path, ns=(later, later))
    folder.check("bob")
    assert path.read_bytes() == b""


@pytest.mark.mechanism
def test_only_the_last_moment_is_in_doubt_while_mail_keeps_coming(folder: InboxFolder) -> None:
    path = Path(folder.path) / "bob.inbox.jsonl"
    folder.append("bob", [b"old\n"])
    time.sleep(DOUBT_NS / 1e9 + 0.05)
    folder.append("bob", [b"new\n"])
    path.write_bytes(b"")
    folder.check("bob")
    assert path.read_bytes() == b"new\n"


@pytest.mark.mechanism
def test_a_new_file_is_not_taken_for_one_that_was_emptied(folder: InboxFolder) -> None:
    for n in range(50):
        folder.append("bob", [b"a long line, which makes the file longer than the next\n"])
        assert 1 == len(take(folder)), n
        folder.append("bob", [b"short\n"])
        assert [b"short"] == take(folder)


def test_a_full_file_keeps_the_newest_and_says_what_went(tmp_path: Path) -> None:
    folder = InboxFolder(str(tmp_path), lambda name, dropped: notice_of(name, dropped, NOW), most=10)
    path = tmp_path / "bob.inbox.jsonl"
    gone = [folder.append("bob", [f"{n}\n".encode()]) for n in range(25)]
    lines = path.read_bytes().splitlines()
    assert len(lines) <= 11
    assert lines[0].startswith(DROPPED + b"%d," % sum(gone))
    assert lines[1:] == [b"%d" % n for n in range(sum(gone), 25)]
    assert not list(tmp_path.glob("*.new"))


def test_a_file_is_bounded_in_bytes_too(tmp_path: Path) -> None:
    folder = InboxFolder(str(tmp_path), most_bytes=1000)
    for n in range(50):
        folder.append("bob", [b"%090d\n" % n])
    assert (tmp_path / "bob.inbox.jsonl").stat().st_size <= 1100
    assert take(folder)[-1] == b"%090d" % 49


def test_names_are_safe_and_two_agents_never_share_a_file(folder: InboxFolder) -> None:
    assert "a_b-c_D9" == safe_form("a.b-c/D9")
    for name in ("a.b", "a/b", "a_b"):
        folder.append(name, [name.encode() + b"\n"])
    assert "a_b.inbox.jsonl" in files(folder) and len(files(folder)) == 3
    again = InboxFolder(folder.path)
    for name in ("a_b", "a/b", "a.b"):
        assert [name.encode()] == take(again, name)
    assert [] == take(again, "a b")


def test_files_are_for_their_owner_alone(folder: InboxFolder) -> None:
    folder.append("bob", [b"1\n"])
    assert 0o700 == Path(folder.path).stat().st_mode & 0o777
    assert {0o600} == {path.stat().st_mode & 0o777 for path in Path(folder.path).iterdir()}


def test_a_link_is_not_followed_and_a_folder_that_cannot_be_is_reported(
    folder: InboxFolder, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"mine\n")
    (Path(folder.path) / "bob.inbox.jsonl").symlink_to(target)
    with pytest.raises(OSError, match="symbolic"):
        folder.append("bob", [b"1\n"])
    assert target.read_bytes() == b"mine\n"
    with pytest.raises(BadStore, match="cannot make"):
        InboxFolder(str(target / "below")).prepare()


def test_half_a_line_of_a_dead_process_spoils_no_other(folder: InboxFolder) -> None:
    (Path(folder.path) / "bob.inbox.jsonl").write_bytes(b'{"half')
    folder.append("bob", [b"1\n"])
    assert [b'{"half', b"1"] == take(folder)


def test_a_full_disk_leaves_no_half_line(folder: InboxFolder) -> None:
    folder.append("bob", [b"1\n"])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OSError, match="large"):
            folder.append("bob", [b"x" * 200 + b"\n"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    folder.append("bob", [b"2\n"])
    assert [b"1", b"2"] == take(folder)


def test_who_has_no_folder_has_no_mail(tmp_path: Path) -> None:
    folder = InboxFolder(str(tmp_path / "none"))
    assert folder.take("bob") is None and folder.peek("bob") == b""
    assert not (tmp_path / "none").exists()
