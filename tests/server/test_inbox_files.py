"""The folder of inbox.jsonl files: no line is lost between a writer and a reader, whoever the reader is."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from postroom.constants import safe_form
from postroom.errors import BadStore
from postroom.formats.inbox import notice_of
from postroom.hosts.inbox_files import InboxFolder
from tests.letters import NOW

WRITER = """
import sys
from postroom.hosts.inbox_files import InboxFolder
folder = InboxFolder(sys.argv[1])
for n in range(int(sys.argv[3])):
    folder.append("bob", [f"{sys.argv[2]}-{n}\\n".encode()])
"""


@pytest.fixture
def folder(tmp_path: Path) -> InboxFolder:
    made = InboxFolder(str(tmp_path / "inboxes"))
    made.prepare()
    return made


def take(folder: InboxFolder, agent: str = "bob") -> list[bytes]:
    """As a hook does: the lines are shown, and then removed."""
    lines = folder.read(agent)
    folder.remove(agent, frozenset(lines))
    return [line.removesuffix(b"\n") for line in lines]


def files(folder: InboxFolder) -> set[str]:
    return {path.name for path in Path(folder.path).iterdir() if path.name.endswith(".inbox.jsonl")}


def read_while_two_write(folder: InboxFolder, many: int) -> list[bytes]:
    """Two writers that are processes, two readers that are threads; return the lines that were read."""
    words = [sys.executable, "-c", WRITER, folder.path]
    writers = [subprocess.Popen([*words, name, str(many)]) for name in ("x", "y")]
    got: list[bytes] = []

    def read() -> None:
        own = type(folder)(folder.path)
        while any(writer.poll() is None for writer in writers):
            got.extend(take(own))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert [0, 0] == [writer.wait() for writer in writers]
    return got + take(folder)


def lines_of_two(many: int) -> set[bytes]:
    return {f"{name}-{n}".encode() for name in "xy" for n in range(many)}


def test_every_line_reaches_a_reader_while_processes_write(folder: InboxFolder) -> None:
    assert lines_of_two(400) == set(read_while_two_write(folder, 400))


class Emptying(InboxFolder):
    """The planted bug: it removes what came since it was read, too."""

    def remove(self, agent: str, lines: frozenset[bytes]) -> None:
        if lines:
            super().remove(agent, frozenset(self.read(agent)))


def test_a_reader_that_removes_more_than_it_showed_is_found(folder: InboxFolder) -> None:
    """It loses a line as soon as one is written between its two steps."""
    careless = Emptying(folder.path)
    folder.append("bob", [b"1\n"])
    lines = careless.read("bob")
    folder.append("bob", [b"2\n"])
    careless.remove("bob", frozenset(lines))
    assert [] == take(folder)


def test_what_came_while_a_reader_showed_lines_stays(folder: InboxFolder) -> None:
    folder.append("bob", [b"1\n"])
    lines = folder.read("bob")
    folder.append("bob", [b"2\n"])
    folder.remove("bob", frozenset(lines))
    assert [b"2"] == take(folder)
    assert [] == take(folder)


def test_a_reader_that_dies_leaves_its_lines_to_the_next(folder: InboxFolder) -> None:
    folder.append("bob", [b"1\n"])
    assert [b"1\n"] == folder.read("bob")
    folder.append("bob", [b"2\n"])
    assert [b"1", b"2"] == take(folder)


def test_a_line_that_is_there_is_not_written_twice(folder: InboxFolder) -> None:
    folder.append("bob", [b"1\n", b"2\n"])
    folder.append("bob", [b"2\n", b"3\n"])
    assert [b"1", b"2", b"3"] == take(folder)


def test_a_file_that_another_program_empties_is_written_on(folder: InboxFolder) -> None:
    """agent-inbox's reader knows no lock."""
    folder.append("bob", [b"1\n"])
    (Path(folder.path) / "bob.inbox.jsonl").write_bytes(b"")
    folder.append("bob", [b"2\n"])
    assert [b"2"] == take(folder)


def test_a_full_file_keeps_the_newest_and_says_what_went(tmp_path: Path) -> None:
    folder = InboxFolder(str(tmp_path), lambda name, dropped: notice_of(name, dropped, NOW))
    folder.most = 10
    path = tmp_path / "bob.inbox.jsonl"
    gone = [folder.append("bob", [f"{n}\n".encode()]) for n in range(25)]
    lines = path.read_bytes().splitlines()
    assert len(lines) <= 11
    assert lines[0].startswith(b'{"dropped":%d,' % sum(gone))
    assert lines[1:] == [b"%d" % n for n in range(sum(gone), 25)]
    assert not list(tmp_path.glob("*.new"))


def test_a_file_is_bounded_in_bytes_too(tmp_path: Path) -> None:
    folder = InboxFolder(str(tmp_path))
    folder.most_bytes = 1000
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
    folder.remove("bob", frozenset())
    assert folder.read("bob") == []
    assert not (tmp_path / "none").exists()
