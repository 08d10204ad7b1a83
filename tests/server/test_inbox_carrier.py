"""A daemon tells of each new letter in its recipients' inbox.jsonl files, whoever sent it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom.hosts.inbox_files import is_local
from tests.daemons import PATIENCE, Daemon, until


def serve(folder: Path) -> Daemon:
    return Daemon(folder, "--http", "off", "--inboxes", str(folder / "inboxes"))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with serve(tmp_path) as daemon:
        yield daemon


def lines(folder: Path, name: str, count: int) -> list[dict[str, Any]]:
    """As soon as there are so many."""
    path = folder / "inboxes" / f"{name}.inbox.jsonl"

    def found() -> list[dict[str, Any]]:
        return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    return until(lambda: now if len(now := found()) >= count else [], show=found)


def test_a_line_has_the_fields_of_both_designs(daemon: Daemon, tmp_path: Path) -> None:
    params = {"subject": "S", "threadTag": "t", "importance": "high", "conversationId": "c-1"}
    id = daemon.ask(action="send", **{"from": "ann", "to": "bob", "payload": "hi", **params})["messageId"]
    (line,) = lines(tmp_path, "bob", 1)
    assert line.pop("timestamp").endswith("Z")
    content = {"type": "text", "text": "hi"}
    assert {"messageId": id, "from": "ann", "to": "bob", "payload": "hi", "content": content, **params} == line
    daemon.ask(action="send", **{"from": "ann", "to": "bob", "payload": {"n": [1]}})
    bare = lines(tmp_path, "bob", 2)[1]
    assert {"messageId", "from", "to", "payload", "content", "importance", "timestamp", "conversationId"} == set(
        bare
    )
    assert {"n": [1]} == bare["payload"] and {"type": "data", "data": {"n": [1]}} == bare["content"]


def test_mail_of_other_processes_is_reported_and_a_hidden_copy_to_its_reader_alone(
    daemon: Daemon, tmp_path: Path
) -> None:
    with postroom.open(daemon.room) as room:
        room.mailbox("ann").send("bob", "x", cc=["team/eve"], bcc=["mallory"])
    for name in ("bob", "team_eve", "mallory"):
        (line,) = lines(tmp_path, name, 1)
        assert name.replace("_", "/") == line["to"]
        assert ("mallory" in json.dumps(line)) == (name == "mallory")


def test_after_a_restart_nothing_is_missed_and_nothing_doubled(tmp_path: Path) -> None:
    room = postroom.open(tmp_path / "room.db")
    ann = room.mailbox("ann")
    ann.send("bob", "0")  # before there ever was a daemon
    with serve(tmp_path) as daemon:
        lines(tmp_path, "bob", 1)
        ann.send("bob", "1")
        lines(tmp_path, "bob", 2)
        daemon.stop()
    ann.send("bob", "2")
    read = ann.send("bob", "read meanwhile")
    room.mailbox("bob").read(read.id)
    with serve(tmp_path) as daemon:
        lines(tmp_path, "bob", 3)
        daemon.stop()
    for cursor in (tmp_path / "inboxes").glob(".cursor-*"):
        cursor.unlink()  # as if it had died before it wrote it
    with serve(tmp_path):
        ann.send("bob", "3")
        assert ["0", "1", "2", "3"] == [line["payload"] for line in lines(tmp_path, "bob", 4)]
    room.close()


def test_a_daemon_that_is_killed_again_and_again_tells_each_letter_once(tmp_path: Path) -> None:
    """Nobody reads meanwhile, so what was told can be seen, and is not told again."""
    script = "import postroom, sys; ann = postroom.open(sys.argv[1], durability='process').mailbox('ann')\n"
    script += "for n in range(400): ann.send('bob', str(n))"
    with serve(tmp_path) as daemon:
        sender = subprocess.Popen([sys.executable, "-c", script, str(daemon.room)])
        lines(tmp_path, "bob", 1)
    for _ in range(2):
        with serve(tmp_path) as daemon:
            lines(tmp_path, "bob", len(lines(tmp_path, "bob", 1)) + 1 if sender.poll() is None else 1)
            daemon.stop(signal.SIGKILL)
    with serve(tmp_path):
        assert 0 == sender.wait(PATIENCE)
        results = [line["payload"] for line in lines(tmp_path, "bob", 400)]
        assert [str(n) for n in range(400)] == sorted(results, key=int)


def test_mail_for_later_is_reported_when_it_comes(tmp_path: Path) -> None:
    room = postroom.open(tmp_path / "room.db")
    with serve(tmp_path):
        room.mailbox("ann").send("bob", "later", at=0.3)
        room.mailbox("ann").send("bob", "now")
        assert ["now"] == [line["payload"] for line in lines(tmp_path, "bob", 1)]
        assert room.wait(["bob"], 0, peek=True) is not None
        while len(room.mailbox("bob").check(peek=True)) < 2:
            time.sleep(0.02)
        assert ["now", "later"] == [line["payload"] for line in lines(tmp_path, "bob", 2)]
    room.close()


def test_a_folder_that_was_cleared_away_is_made_again(daemon: Daemon, tmp_path: Path) -> None:
    daemon.ask(action="send", **{"from": "ann", "to": "bob", "payload": "1"})
    lines(tmp_path, "bob", 1)
    (tmp_path / "inboxes").rename(tmp_path / "away")
    daemon.ask(action="send", **{"from": "ann", "to": "bob", "payload": "2"})
    assert "2" in [line["payload"] for line in lines(tmp_path, "bob", 1)]


def test_what_is_in_one_agents_way_is_reported_and_stops_no_other_agent(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "inboxes" / "bob.inbox.jsonl").symlink_to(tmp_path / "elsewhere")
    daemon.ask(action="send", **{"from": "ann", "to": ["bob", "carol"], "payload": "x"})
    assert 1 == len(lines(tmp_path, "carol", 1))
    assert "the inbox file of bob cannot be written" in daemon.log()
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_that_is_full_says_so_and_so_does_the_log(daemon: Daemon, tmp_path: Path) -> None:
    with postroom.open(daemon.room) as room:
        ann = room.mailbox("ann")
        for n in range(1101):
            ann.send("bob", str(n))
        until(lambda: "was full" in daemon.log())
        first, *rest = lines(tmp_path, "bob", 999)
        assert "postmaster" == first["from"] and f"{first['dropped']} older letter(s)" in first["payload"]
        assert "1100" == rest[-1]["payload"] and len(rest) <= 1100
        assert 1101 == room.mailbox("bob").counts()["total"]


def test_agents_of_other_systems_have_no_files_here() -> None:
    assert is_local("bob") and is_local("team/bob") and not is_local("bob@elsewhere")
