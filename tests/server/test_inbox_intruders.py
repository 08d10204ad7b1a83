"""What somebody put into the folder of inbox files is refused and told, and keeps nobody else from their mail."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import postroom
from postroom.hosts import inbox_files
from postroom.hosts.inbox_files import InboxFolder
from postroom.server.executor import Executor
from tests.daemons import PATIENCE, Daemon, until

FULL = b"{}\n" * 1200


def link(path: Path, precious: Path) -> None:
    path.symlink_to(precious)


def second_name(path: Path, precious: Path) -> None:
    path.hardlink_to(precious)


def pipe(path: Path, _: Path) -> None:
    os.mkfifo(path)


def device(path: Path, _: Path) -> None:
    try:
        os.mknod(path, 0o20600, os.makedev(1, 5))  # it gives zeros for ever
    except PermissionError:
        pytest.skip("only root makes devices")


def folder_there(path: Path, _: Path) -> None:
    path.mkdir()


INTRUDERS = [link, second_name, pipe, device, folder_there]
Intrude = Callable[[Path, Path], None]


@pytest.fixture
def precious(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "precious"
    path.write_bytes(b"precious\n")
    yield path
    assert path.read_bytes() == b"precious\n"


@pytest.fixture
def folder(tmp_path: Path) -> InboxFolder:
    made = InboxFolder(str(tmp_path / "inboxes"))
    made.prepare()
    return made


@pytest.mark.parametrize("intrude", INTRUDERS)
def test_what_is_no_file_of_its_own_is_neither_written_nor_read_nor_waited_for(
    folder: InboxFolder, precious: Path, intrude: Intrude
) -> None:
    path = Path(folder.path) / "bob.inbox.jsonl"
    intrude(path, precious)
    for use in (
        lambda: folder.append("bob", [b"1\n"]),
        lambda: folder.read("bob"),
        lambda: folder.remove("bob", frozenset([b"1\n"])),
    ):
        with pytest.raises(OSError, match=r"bob\.inbox\.jsonl"):
            use()
    assert os.path.lexists(path)


def test_a_writer_that_checks_no_file_writes_into_another(
    folder: InboxFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug."""
    monkeypatch.setattr(inbox_files, "check", lambda _found, _path: None)
    other = tmp_path / "other"
    other.touch()
    second_name(Path(folder.path) / "bob.inbox.jsonl", other)
    folder.append("bob", [b"1\n"])
    assert other.read_bytes() == b"1\n"


@pytest.mark.parametrize("intrude", [link, second_name, pipe])
def test_a_draft_that_is_another_agents_is_not_written_into(
    tmp_path: Path, precious: Path, intrude: Intrude
) -> None:
    folder = InboxFolder(str(tmp_path / "inboxes"))
    folder.most = 10
    folder.prepare()
    intrude(Path(folder.path) / "bob.inbox.jsonl.new", precious)
    for n in range(25):
        folder.append("bob", [b"%d\n" % n])
    assert folder.read("bob")[-1] == b"24\n"


@pytest.mark.parametrize("first", [b'{"dropped":xyz,\n', b'{"dropped":\n', b'{"dropped":' + b"9" * 5000 + b",\n"])
def test_a_first_line_that_only_looks_like_ours_is_dropped_as_any_other(tmp_path: Path, first: bytes) -> None:
    folder = InboxFolder(str(tmp_path), lambda _, dropped: b'{"dropped":%d,\n' % dropped)
    folder.most = 10
    (tmp_path / "bob.inbox.jsonl").write_bytes(first + b"{}\n" * 20)
    folder.append("bob", [b"new\n"])
    lines = folder.read("bob")
    assert (lines[0], lines[-1]) == (b'{"dropped":13,\n', b"new\n")


def test_a_spoiled_line_among_the_names_spoils_no_other(tmp_path: Path) -> None:
    InboxFolder(str(tmp_path)).append("a.b", [b"a.b\n"])
    with (tmp_path / ".names").open("ab") as names:
        names.write(b"\xff\xfe")
    folder = InboxFolder(str(tmp_path))
    for name in ("a/b", "carol"):
        folder.append(name, [name.encode() + b"\n"])
    again = InboxFolder(str(tmp_path))
    assert [[b"a.b\n"], [b"a/b\n"], [b"carol\n"]] == [again.read(name) for name in ("a.b", "a/b", "carol")]


@pytest.mark.parametrize("intrude", INTRUDERS)
def test_what_stands_where_the_names_should_be_is_refused(
    tmp_path: Path, precious: Path, intrude: Intrude
) -> None:
    folder = InboxFolder(str(tmp_path / "inboxes"))
    folder.prepare()
    folder.append("a.b", [b"a.b\n"])
    names = Path(folder.path) / ".names"
    names.rename(tmp_path / "names")
    intrude(names, precious)
    for use in (lambda: folder.append("a/b", [b"1\n"]), lambda: folder.read("a.b")):
        with pytest.raises(OSError, match=r"\.names"):
            use()
    names.rmdir() if names.is_dir() else names.unlink()
    (tmp_path / "names").rename(names)
    assert [b"a.b\n"] == folder.read("a.b")


def count(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def spoil(inboxes: Path, precious: Path) -> None:
    """Everything at once."""
    for name, intrude in (("link", link), ("second", second_name), ("pipe", pipe), ("dir", folder_there)):
        intrude(inboxes / f"{name}.inbox.jsonl", precious)
    (inboxes / "full.inbox.jsonl").write_bytes(b'{"dropped":xyz,\n' + FULL)
    with (inboxes / ".names").open("ab") as names:
        names.write(b"\xff\n")


@pytest.mark.daemon
def test_the_writer_tells_what_is_in_the_way_and_writes_for_all_others(tmp_path: Path, precious: Path) -> None:
    inboxes = tmp_path / "inboxes"
    with Daemon(tmp_path, "--http", "off", "--inboxes", str(inboxes)) as daemon:
        daemon.ask(action="send", **{"from": "ann", "to": "carol", "payload": "1"})
        until(lambda: count(inboxes / "carol.inbox.jsonl") == 1)
        spoil(inboxes, precious)
        refused = ["link", "second", "pipe", "dir"]
        for name in (*refused, "full", "carol"):
            daemon.ask(action="send", **{"from": "ann", "to": name, "payload": "2"})
        until(lambda: count(inboxes / "carol.inbox.jsonl") == 2)
        assert count(inboxes / "full.inbox.jsonl") <= 1000
        assert 0 == daemon.stop()
    results = [json.loads(line) for line in daemon.log().splitlines()]
    for name in refused:
        assert any(f"the inbox file of {name} cannot be written" in line["message"] for line in results), name
    assert not any("trace" in line for line in results)


async def write_files(
    room: postroom.Room, inboxes: Path, is_done: Callable[[], bool], kind: type[InboxFolder]
) -> None:
    """Until that is so."""
    executor = Executor(room.core)
    carrier = inbox_files.InboxFileWriter(executor, str(inboxes))
    carrier.folder = kind(str(inboxes))
    writing = asyncio.ensure_future(carrier.run())
    async with asyncio.timeout(PATIENCE):
        while not is_done():
            assert not writing.done()
            await asyncio.sleep(0.02)
    writing.cancel()
    await asyncio.wait([writing])
    await executor.close()


@pytest.mark.parametrize("intrude", [*INTRUDERS, None])
def test_what_stands_where_the_writer_notes_how_far_it_is_stops_nothing(
    tmp_path: Path, precious: Path, caplog: pytest.LogCaptureFixture, intrude: Intrude | None
) -> None:
    inboxes = tmp_path / "inboxes"
    path = inboxes / "bob.inbox.jsonl"

    def cursors() -> list[Path]:
        return [one for one in inboxes.glob(".cursor-*") if one.suffix != ".new"]

    with postroom.open(tmp_path / "room.db") as room:
        room.mailbox("ann").send("bob", "1")
        asyncio.run(write_files(room, inboxes, lambda: bool(cursors()), InboxFolder))
        (cursor,) = cursors()
        cursor.unlink()
        if intrude:
            intrude(cursor, precious)
        else:
            cursor.write_bytes(b"\xff garbage")
        room.mailbox("ann").send("bob", "2")
        asyncio.run(write_files(room, inboxes, lambda: count(path) >= 2, InboxFolder))
    assert 2 == count(path)
    assert ".cursor-" in caplog.text


class Stumbling(InboxFolder):
    """With a fault of ours for one agent."""

    def append(self, agent: str, lines: Sequence[bytes]) -> int:
        if agent == "bob":
            raise ZeroDivisionError("a fault of ours")
        return super().append(agent, lines)


class Falling(InboxFolder):
    """With a fault of ours for all, once."""

    falls = 1

    def prepare(self) -> None:
        super().prepare()
        self.falls -= 1
        if self.falls == 0:
            raise ZeroDivisionError("a fault of ours")


@pytest.mark.parametrize("kind", [Stumbling, Falling])
def test_a_fault_of_ours_is_reported_and_does_not_end_the_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: type[InboxFolder]
) -> None:
    monkeypatch.setattr(inbox_files, "RETRY_SECONDS", 0.01)
    inboxes = tmp_path / "inboxes"
    with postroom.open(tmp_path / "room.db") as room:
        room.mailbox("ann").send(["bob", "carol"], "x")
        asyncio.run(write_files(room, inboxes, lambda: count(inboxes / "carol.inbox.jsonl") == 1, kind))
    assert "ZeroDivisionError: a fault of ours" in caplog.text
    assert (inboxes / "bob.inbox.jsonl").exists() == (kind is Falling)
