"""Backup, restore, export and import as commands: with progress, without leavings, and with clear refusals."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from tests.cli.shell import PATIENCE, PROGRAM, Shell
from tests.cli.terminal import Terminal, show
from tests.conftest import LONG

pytestmark = pytest.mark.disk  # the doctor warns of rooms in memory


@pytest.fixture
def busy(shell: Shell) -> Shell:
    with shell.room() as room:
        room.mailbox("ann").send("bob", "x" * 100_000, id="m-1")
        for _ in range(20):
            room.mailbox("ann").send("bob", "y" * 20_000)
    return shell


def files(shell: Shell) -> set[str]:
    return {path.name for path in shell.home.iterdir()}


# -- backup and restore


def test_a_backup_is_put_back(busy: Shell) -> None:
    made = busy.json("backup", "copy.db")
    assert (made["path"], made["letters"], made["kept"]) == (str(busy.home / "copy.db"), 21, None)
    assert made["bytes"] == (busy.home / "copy.db").stat().st_size
    busy.json("send", "bob", "--as", "ann", "--body", "after")
    back = busy.json("restore", "copy.db", "--force")
    assert (back["letters"], Path(back["kept"]).name) == (21, "room.db.before-restore")
    assert busy.json("counts", "--as", "bob")["total"] == 21
    assert "Copied 21 letters" in busy.run("backup", "other.db").out
    assert "Restored 21 letters" in busy.run("restore", "copy.db", "--room", "new.db").out
    assert busy.json("counts", "--as", "bob", "--room", "new.db")["total"] == 21


def test_a_backup_that_was_looked_at_is_put_back(busy: Shell) -> None:
    busy.json("backup", "copy.db")
    for words in (["doctor"], ["check", "--as", "bob"], ["stats"]):
        assert busy.run(*words, "--room", "copy.db").code == 0
    assert busy.json("restore", "copy.db", "--room", "new.db")["letters"] == 21
    assert busy.json("doctor", "--room", "new.db")["healthy"]


def test_what_is_there_is_not_replaced_by_chance(busy: Shell) -> None:
    busy.json("backup", "copy.db")
    for words, code, field in (
        (["backup", "copy.db"], 73, "FILE"),
        (["export", "copy.db"], 73, "FILE"),
        (["restore", "copy.db"], 69, "store"),
    ):
        refused = busy.run(*words, "--json")
        assert (refused.code, refused.error["field"]) == (code, field)
        assert "--force" in refused.error["hint"]
    assert busy.run("backup", "copy.db", "--force").code == 0


def test_a_place_that_cannot_be_is_reported(busy: Shell) -> None:
    (busy.home / "folder").mkdir()
    before = files(busy)
    for command in ("backup", "export"):
        for target, force in (
            ("folder", []),
            ("folder", ["--force"]),
            ("no/such/folder/x", []),
            ("room.db/x", []),
        ):
            refused = busy.run(command, target, *force, "--json")
            assert (refused.code, refused.error["field"]) == (73, "FILE"), (command, target, refused)
    itself = busy.run("backup", "room.db", "--force", "--json")
    assert (itself.code, itself.error["field"]) == (73, "FILE")
    assert busy.run("backup", "a\0b".replace("\0", "\n") + "/x").code == 73
    assert files(busy) == before
    assert busy.json("counts", "--as", "bob")["total"] == 21


@pytest.mark.parametrize("command", ["backup", "export"])
def test_a_copy_never_takes_the_place_of_the_rooms_own_files_or_of_what_is_no_file(
    busy: Shell, command: str
) -> None:
    os.mkfifo(busy.home / "pipe")
    (busy.home / "link").symlink_to("room.db")
    busy.json("search", "word", "--as", "bob")
    busy.json("janitor")
    before = files(busy)
    own = ["", "-wal", "-shm", ".lock", ".bells", ".bells/bob", ".search", ".search-wal", ".search.lock"]
    for target in ["pipe", "/dev/null", "link", *(f"room.db{end}" for end in own)]:
        refused = busy.run(command, target, "--force", "--json")
        assert (refused.code, refused.error["field"]) == (73, "FILE"), (target, refused)
    assert files(busy) == before
    assert (busy.home / "pipe").is_fifo()
    assert busy.json("counts", "--as", "bob")["total"] == 21


def test_what_is_no_backup_is_refused_and_the_room_stays(busy: Shell) -> None:
    busy.json("backup", "copy.db")
    (busy.home / "text").write_bytes(b"not a backup" * 1000)
    (busy.home / "torn.db").write_bytes((busy.home / "copy.db").read_bytes()[:50_000])
    (busy.home / "empty").touch()
    shutil.copy(busy.home / "copy.db", busy.home / "newer.db")
    database = apsw.Connection(str(busy.home / "newer.db"))
    database.pragma("user_version", 99)
    database.close()
    for source, code, name in (
        ("nothing", 66, "NoInput"), (".", 66, "NoInput"), ("text", 65, "Invalid"), ("empty", 65, "Invalid"),
        ("torn.db", 70, "Damaged"), ("newer.db", 78, "SchemaTooNew"), ("room.db", 65, "Invalid"),
    ):  # fmt: skip
        refused = busy.run("restore", source, "--force", "--json")
        assert (refused.code, refused.error["name"], refused.error["field"]) == (code, name, "FILE"), source
    assert busy.json("counts", "--as", "bob")["total"] == 21


def test_a_room_with_a_waiting_process_is_not_replaced_and_the_process_is_named(busy: Shell) -> None:
    busy.json("backup", "copy.db")
    waiting = busy.start("wait", "--as", "carol", "--timeout", "60")
    while not list(busy.home.glob("room.db.bells/carol*")):
        assert waiting.poll() is None
    refused = busy.run("restore", "copy.db", "--force", "--json")
    waiting.send_signal(signal.SIGINT)
    waiting.communicate(timeout=PATIENCE)
    assert (refused.code, refused.error["name"], refused.error["temporary"]) == (75, "StoreBusy", True)
    assert str(waiting.pid) in refused.error["message"]
    assert busy.run("restore", "copy.db", "--force").code == 0


def test_a_room_in_memory_has_no_file_to_restore(busy: Shell) -> None:
    busy.json("backup", "copy.db")
    assert busy.run("restore", "copy.db", "--room", "memory:").code == 78


# -- a full disk


def limited(shell: Shell, size: int, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Run it where no file can grow beyond this."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return subprocess.run(
        [*PROGRAM, *words], env=shell.environment, cwd=shell.home, capture_output=True, timeout=PATIENCE, check=False,
        preexec_fn=limit,
    )  # fmt: skip


@pytest.mark.parametrize("command", ["backup", "export"])
def test_a_full_disk_leaves_nothing_behind(busy: Shell, command: str) -> None:
    busy.json("doctor", "--repair")
    before = files(busy)
    done = limited(busy, 200_000, command, "copy")
    assert (done.returncode, b"Traceback" in done.stderr) == (74, False), done
    assert b"cannot be written" in done.stderr or b"full" in done.stderr
    assert files(busy) == before
    assert busy.json("counts", "--as", "bob")["total"] == 21
    (busy.home / "copy").write_text("precious", encoding="ascii")
    assert limited(busy, 200_000, command, "copy", "--force").returncode == 74
    assert (busy.home / "copy").read_text(encoding="ascii") == "precious"


def test_a_full_disk_leaves_the_room_as_it_was(busy: Shell) -> None:
    busy.json("backup", "copy.db")
    before = files(busy)
    done = limited(busy, 200_000, "restore", "copy.db", "--force")
    assert (done.returncode, b"Traceback" in done.stderr) == (74, False), done
    assert {name for name in files(busy) - before if not name.startswith("room.db")} == set()
    assert not [name for name in files(busy) if name.endswith(".part")]
    assert busy.json("counts", "--as", "bob")["total"] == 21


# -- progress


def test_every_long_command_shows_how_far_it_is(busy: Shell) -> None:
    with busy.room() as room:
        for letter in room.mailbox("bob").check(20):
            letter.ack(archive=False)
    for words, message in (
        (["export", "a.jsonl"], "export ["),
        (["import", "a.jsonl", "--room", "other.db"], "import ["),
        (["backup", "a.db"], "backup ["),
        (["restore", "a.db", "--room", "third.db"], "restore ["),
        (["doctor"], "doctor ["),
        (["archive", "--older-than", "0"], "archive ["),
        (["purge", "--older-than", "0"], "purge ["),
        (["janitor", "--room", "other.db", "--set", "archive_after=0", "--set", "retain_for=0.001"], "janitor ["),
    ):
        for columns in (80, 30):
            again = ["--force"] if columns == 30 and words[0] in {"export", "backup", "restore"} else []
            if columns == 30 and words[0] in {"import", "archive", "purge", "janitor"}:
                continue
            _, shown = show(busy, *words, *again, columns=columns)
            assert message in shown, (words, shown)
            for line in shown.replace("\x1b[K", "").split("\r"):
                if message in line:
                    assert len(line) < columns, line
    assert "\r" not in busy.run("export", "b.jsonl").err


# -- Ctrl-C


def moments(whole: float) -> Iterator[float]:
    """Spread over a command that takes so long as a whole, none the same: ten of them, and as many more as wanted."""
    dice = random.Random(7)
    for step in range(10):
        yield whole * (step + dice.random()) / 10
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        yield whole * dice.random()


def time_of(shell: Shell, *words: str) -> float:
    """How long it takes here and now, in a terminal."""
    began = time.monotonic()
    assert show(shell, *words)[0] == 0
    return time.monotonic() - began


@pytest.mark.parametrize("command", [*(["export", "backup", "doctor"] if LONG else []), "import", "restore"])
def test_ctrl_c_at_any_moment_leaves_nothing_half_written(busy: Shell, command: str) -> None:
    busy.json("export", "whole.jsonl")
    busy.json("backup", "whole.db")
    before = files(busy)
    words = {
        "export": ["export", "out"], "backup": ["backup", "out"], "doctor": ["doctor"],
        "import": ["import", "whole.jsonl", "--room", "out.db"], "restore": ["restore", "whole.db", "--room", "out.db"],
    }[command]  # fmt: skip
    whole = time_of(busy, *words)
    start_over(busy, before)
    ends = set()
    for tried, moment in enumerate(moments(whole)):
        if tried >= 10 and 130 in ends:
            break
        terminal = Terminal(busy, *words, counted=False)
        terminal.let_run(moment)
        terminal.interrupt()
        code, shown = terminal.finish()
        ends.add(code)
        assert "in _run" not in shown, shown
        assert terminal.after == terminal.before
        left = {name for name in files(busy) - before if not name.startswith(("room.db", "out.db"))}
        assert left <= {"out"}
        assert not [name for name in left | files(busy) if name.endswith(".part") or name.startswith(".out")]
        if (busy.home / "out").exists():
            check_whole(busy, command)
        if command != "import" or code in {0, 69}:  # an import goes on where it stopped, until it is done
            start_over(busy, before)
    assert 130 in ends
    assert ends <= {0, 130, 1, -signal.SIGINT} | ({69} if command == "import" else set())  # 69: it was done before
    if command == "import":  # the same again goes on where it stopped
        assert busy.run(*words).code in {0, 69}
        assert busy.json("counts", "--as", "bob", "--room", "out.db")["total"] == 21
    assert busy.json("counts", "--as", "bob")["total"] == 21


def start_over(shell: Shell, before: set[str]) -> None:
    """Put away what the command made."""
    for name in files(shell) - before:
        path = shell.home / name
        if name.startswith("out"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def check_whole(shell: Shell, command: str) -> None:
    """What has its name is all there."""
    if command == "export":
        whole = (shell.home / "whole.jsonl").read_bytes().count(b"\n")
        assert (shell.home / "out").read_bytes().count(b"\n") == whole
    else:
        assert shell.json("restore", "out", "--room", "check.db", "--force")["letters"] == 21
        for path in shell.home.glob("check.db*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
