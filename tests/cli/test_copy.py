"""`postroom rooms copy`: between rooms of any kind, again, cut off, and refused with clear words."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.cli.shell import PATIENCE, Shell
from tests.daemons import until

FILES = "files:mail?layout=nanobot"


@pytest.fixture
def busy(shell: Shell) -> Shell:
    for number in range(3):
        shell.post("ann", "bob", "hello", id=f"m-{number}")
    return shell


def test_a_room_goes_into_folders_and_comes_back(busy: Shell) -> None:
    first = busy.json("copy", "room.db", FILES)
    assert (first["letters"], first["refused"]) == (3, [])
    assert busy.run("copy", "room.db", FILES).out == "Nothing to do.\n"
    busy.json("ack", "m-1", "--as", "bob", "--room", FILES)
    assert busy.json("copy", FILES, "other.db")["letters"] == 3
    for room in ("other.db", FILES):
        assert busy.json("counts", "--as", "bob", "--room", room)["total"] == 2
    assert len(list((busy.home / "mail" / "bob" / "processed").iterdir())) == 1
    assert busy.run("copy", "room.db", "third.db").out.startswith("Letters 3")


def test_mistakes_are_reported_and_nothing_is_made(busy: Shell) -> None:
    before = sorted(busy.home.iterdir())
    for source, target, code, field in (
        ("none.db", "new.db", 66, "SRC"), ("room.db", "./room.db", 78, "DST"), ("room.db", "files:new", 78, "DST"),
        ("room.db", "files:new?layout=x", 78, "DST"), ("room.db", "no/new.db", 73, "DST"), ("x", "new.db", 78, "SRC"),
        ("room.db", "memory:", 78, "DST"), ("files:none?layout=swarm", "new.db", 66, "SRC"),
    ):  # fmt: skip
        refused = busy.run("copy", source, target, "--json")
        assert (refused.code, refused.error["field"]) == (code, field), (source, target, refused)
    assert busy.run("copy", "room.db", "new.db", "--room", "x.db").code == 64
    assert sorted(busy.home.iterdir()) == before


def test_what_is_refused_is_named_and_the_code_tells(busy: Shell) -> None:
    busy.run("send", "bob", "--as", "ann", "--body", "another", "--letter-id", "m-1", "--room", "other.db")
    done = busy.run("copy", "room.db", "other.db", "--json")
    assert (done.code, done.json["letters"], [each["what"] for each in done.json["refused"]]) == (69, 2, ["m-1"])
    assert "Refused m-1: " in busy.run("copy", "room.db", "other.db").out


def test_a_copy_that_is_killed_leaves_both_whole_and_goes_on(shell: Shell) -> None:
    with shell.room() as room:
        for number in range(600):
            room.mailbox("ann").send("bob", "x", id=f"m-{number}")
    deep = shell.home / "mail" / "bob" / "inbox"
    for signum in (signal.SIGINT, signal.SIGKILL):
        with shell.start("copy", "room.db", FILES) as copying:
            before = _count(deep)
            until(lambda: _count(deep) != before or copying.poll() is not None, step=0)  # noqa: B023
            copying.send_signal(signum)
            copying.communicate(timeout=PATIENCE)
    assert shell.json("copy", "room.db", FILES)["refused"] == []
    assert shell.json("counts", "--as", "bob", "--room", FILES)["total"] == 600
    assert len(list(deep.glob("*.msg.json"))) == 600


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("copy", "room.db", "other.db", "--move"), "mounts keep rooms in step"),
        (("copy", "room.db", "other.db", "--watch"), "mounts keep rooms in step"),
        (("rename", "bob", "bert"), "agents keep their names"),
    ],
)
def test_words_of_earlier_versions_are_told_to_be_retired(busy: Shell, words: tuple[str, ...], hint: str) -> None:
    refused = busy.run(*words, "--json")
    assert refused.code == 64
    assert refused.error["hint"].startswith(f"retired: {hint}")
    assert not (busy.home / "other.db").exists()


def _count(folder: Path) -> int:
    return sum(1 for _ in folder.glob("*.msg.json")) if folder.exists() else 0
