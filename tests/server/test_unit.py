"""`postroom service`: a unit for systemd, and nobody else's file."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

import postroom
from postroom.app.unit import FOLDER, MARK, quoted
from postroom.cli.main import main
from tests.cli.shell import Shell

UNIT = ".config/systemd/user/postroom.service"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, measured=True, durable=False)


def test_a_unit_is_written_once_with_whole_paths_and_taken_away_again(shell: Shell) -> None:
    path = shell.home / UNIT
    words = ("service", "install", "--http", "127.0.0.1:9", "--socket", "some/s.sock", "--set", "lease=5")
    result = shell.json(*words)
    assert ("written", str(path)) == (result["outcome"], result["path"])
    assert "systemctl --user enable --now postroom.service" in result["next"]
    text = path.read_text(encoding="utf-8")
    assert text == result["unit"] and text.startswith(MARK)
    (line,) = [line for line in text.splitlines() if line.startswith("ExecStart=")]
    command = shlex.split(line.removeprefix("ExecStart="))
    assert Path(command[0]).is_absolute()
    for pair in (
        ["--room", f"sqlite:{shell.home}/room.db"],
        ["--socket", f"{shell.home}/some/s.sock"],
        ["--http", "127.0.0.1:9"],
        ["--set", "lease=5"],
    ):
        assert pair[1] == command[command.index(pair[0]) + 1]
    assert "unchanged" == shell.json(*words)["outcome"]
    again = shell.json("service", "install")
    assert ("replaced", f"sqlite:{shell.home}/room.db") == (again["outcome"], again["served"])
    assert "systemctl --user restart postroom.service" in again["next"]
    assert "ours" == shell.json("service", "status")["file"]
    assert "removed" == shell.json("service", "uninstall")["outcome"]
    assert not path.exists()
    assert "missing" == shell.json("service", "uninstall")["outcome"]
    assert "missing" == shell.json("service", "status")["file"]
    assert not (shell.home / "room.db").exists()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_only_its_user_reads_it_whatever_the_umask(shell: Shell, umask: int) -> None:
    before = os.umask(0)
    (shell.home / UNIT).parent.mkdir(parents=True)
    os.umask(umask)
    try:
        install_in(shell.home)
    finally:
        os.umask(before)
    assert 0o600 == stat.S_IMODE((shell.home / UNIT).stat().st_mode)


def test_folders_made_for_it_are_its_users_alone(shell: Shell) -> None:
    """A user who may write in one of these folders could replace the unit."""
    before = os.umask(0)
    try:
        install_in(shell.home)
    finally:
        os.umask(before)
    folders = [folder for folder in (shell.home / UNIT).parents if shell.home in folder.parents]
    assert [0o700] * 3 == [stat.S_IMODE(folder.stat().st_mode) for folder in folders]


def install_in(home: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
        assert 0 == main(["service", "install"])


def test_its_working_folder_is_empty_and_its_own(shell: Shell) -> None:
    """Neither the room's folder nor the user's home, where a file could be named by a short path."""
    lines = shell.json("service", "install", "--dry-run")["unit"].splitlines()
    assert {f"RuntimeDirectory={FOLDER}", "RuntimeDirectoryMode=0700", f"WorkingDirectory=%t/{FOLDER}"} <= {*lines}


def test_a_dry_run_only_says(shell: Shell) -> None:
    shown = shell.run("service", "install", "--dry-run")
    assert shown.code == 0 and "Restart=on-failure" in shown.out
    assert f"# {shell.home / UNIT} would be written\n" == shown.out.splitlines(keepends=True)[0]
    assert not (shell.home / ".config").exists()


def test_it_says_what_the_unit_will_not_know(shell: Shell) -> None:
    result = shell.run("service", "install", POSTROOM_HTTP="127.0.0.1:9", POSTROOM_AGENT="me", INBOX_DIR="x").out
    assert ": INBOX_DIR, POSTROOM_DURABILITY, POSTROOM_HTTP\n" in result
    del shell.environment["POSTROOM_DURABILITY"]
    assert "unknown to the unit" not in shell.run("service", "install").out


def test_a_unit_of_another_room_is_replaced_and_reported(shell: Shell) -> None:
    shell.run("service", "install", "--room", "a % $b.db")
    served = f"(it served sqlite:{shell.home}/a % $b.db)"
    assert f"would be replaced {served}\n" in shell.run("service", "install", "--dry-run").out
    assert shell.run("service", "install").out.startswith(f"Replaced {served}: ")
    assert "(it served" not in shell.run("service", "install", "--http", "off").out


def test_while_systemd_uses_it_the_file_stays(shell: Shell) -> None:
    """Without it systemd could not disable it."""
    shell.run("service", "install")
    bin = shell.home / "bin"
    bin.mkdir()
    program = bin / "systemctl"
    program.write_text('#!/bin/sh\ntest "$2" = is-enabled && echo enabled || echo inactive\n', encoding="utf-8")
    program.chmod(0o755)
    path = f"{bin}:{shell.environment['PATH']}"
    refused = shell.run("service", "uninstall", "--json", PATH=path)
    assert 77 == refused.code and "disable --now postroom.service" in refused.error["hint"]
    assert "disable --now" in shell.run("service", "uninstall", "--dry-run", PATH=path).out
    assert (shell.home / UNIT).exists()
    program.write_text("#!/bin/sh\necho inactive\n", encoding="utf-8")
    assert 0 == shell.run("service", "uninstall", PATH=path).code


def test_what_another_program_wrote_stays(shell: Shell) -> None:
    path = shell.home / UNIT
    path.parent.mkdir(parents=True)
    path.write_text("[Service]\nExecStart=/bin/true\n", encoding="utf-8")
    for verb in ("install", "uninstall"):
        refused = shell.run("service", verb, "--json")
        assert 73 == refused.code and "not written by Postroom" in refused.error["message"]
    path.unlink()
    elsewhere = shell.home / "elsewhere"
    elsewhere.write_text(MARK, encoding="utf-8")
    path.symlink_to(elsewhere)
    assert 73 == shell.run("service", "install").code
    assert MARK == elsewhere.read_text(encoding="utf-8")
    assert "not ours" == shell.json("service", "status")["file"]


def test_its_place_follows_the_users_folders(shell: Shell) -> None:
    shell.environment["XDG_CONFIG_HOME"] = str(shell.home / "own")
    assert str(shell.home / "own/systemd/user/postroom.service") == shell.json("service", "install")["path"]


def test_without_systemd_there_is_nobody_to_ask(shell: Shell) -> None:
    result = shell.run("service", "status", "--json", PATH="/nowhere")
    assert (0, None, None) == (result.code, result.json["enabled"], result.json["active"])


@pytest.mark.parametrize(
    ("word", "expected"),
    [("a b", '"a b"'), ('a"b\\', '"a\\"b\\\\"'), ("50%$HOME", '"50%%$$HOME"'), ("Grüße", '"Grüße"')],
)
def test_a_word_in_a_unit_stays_one_word(word: str, expected: str) -> None:
    assert expected == quoted(word)


def test_a_word_that_would_begin_a_new_line_is_refused() -> None:
    with pytest.raises(postroom.Invalid):
        quoted("a\nExecStartPre=/bin/sh")


def test_systemd_takes_it(shell: Shell) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here")
    shell.run("service", "install", "--room", f"{shell.home}/a % $room.db")
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--user", str(shell.home / UNIT)],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env=shell.environment | {"XDG_RUNTIME_DIR": str(shell.home)},
    )
    complaints = [line for line in checked.stderr.splitlines() if "postroom.service" in line]
    assert [] == complaints


def test_a_unit_starts_it_with_every_option_of_serve(shell: Shell) -> None:
    message = (
        "--map",
        "off",
        "--map-server",
        "ws://127.0.0.1:9",
        "--map-expose",
        "none",
        "--peers",
        "some/peers.toml",
    )
    unit = shell.json("service", "install", "--dry-run", *message)["unit"]
    for words in (
        "--map off",
        "--map-server ws://127.0.0.1:9",
        "--map-expose none",
        f"{shell.home}/some/peers.toml",
    ):
        assert words in unit.replace('"', ""), unit
    assert "--peers off" in shell.json("service", "install", "--dry-run", "--peers", "off")["unit"].replace(
        '"', ""
    )
