"""`read --save`: files of strangers, into one folder, under safe names, over nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.cli.read import LONGEST, safe_name
from tests.cli.shell import Shell

HELLO = "aGVsbG8="  # hello, in base64


def send(shell: Shell, *paths: str) -> str:
    """A letter with files that its sender calls so."""
    with shell.room() as room:
        parts = [{"type": "file", "path": path, "bytes": HELLO} for path in paths]
        return room.mailbox("ann").send("bob", ["see there", *parts]).id


def test_the_files_of_a_letter_are_saved_for_their_owner_alone(shell: Shell) -> None:
    (shell.home / "a.txt").write_text("written by ann")
    sent = shell.json("send", "bob", "--as", "ann", "--body", "x", "--file", "a.txt")["id"]
    done = shell.json("read", sent, "--as", "bob", "--save", "files")
    assert done["saved"] == [{"path": "a.txt", "file": "files/a.txt", "bytes": 14}]
    saved = shell.home / "files/a.txt"
    assert saved.read_text() == "written by ann"
    assert [oct(path.stat().st_mode & 0o777) for path in (saved.parent, saved)] == ["0o700", "0o600"]


def test_people_are_shown_where_they_are(shell: Shell) -> None:
    assert shell.run("read", send(shell, "a.txt"), "--as", "bob", "--save", ".").out.endswith(
        "Saved a.txt (5 bytes).\n"
    )
    assert shell.run("read", send(shell), "--as", "bob", "--save", ".").out.endswith("It encloses no file.\n")


def test_nothing_is_overwritten(shell: Shell) -> None:
    (shell.home / "a.txt").write_text("mine")
    (shell.home / "b").symlink_to(shell.home / "nowhere")
    sent = send(shell, "a.txt", "x/a.txt", "b")
    for expected in (["a-2.txt", "a-3.txt", "b-2"], ["a-4.txt", "a-5.txt", "b-3"]):
        saved = shell.json("read", sent, "--as", "bob", "--save", ".")["saved"]
        assert [one["file"] for one in saved] == expected
    assert (shell.home / "a.txt").read_text() == "mine"
    assert not (shell.home / "nowhere").exists()


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("report.pdf", "report.pdf"),
        ("/etc/passwd", "passwd"),
        ("../../up.txt", "up.txt"),
        ("..", "file"),
        ("../", "file"),
        ("", "file"),
        ("C:\\Users\\ann\\x.doc", "x.doc"),
        (".bashrc", "bashrc"),
        ("--force", "force"),
        ("a\u202etxt.exe", "atxt.exe"),
        ("a\nb\x1b[31m.txt", "ab[31m.txt"),
        ("caf\u00e9.txt", "caf\u00e9.txt"),
        (".tar", "tar"),
        ("x" * 300 + ".txt", "x" * (LONGEST - 4) + ".txt"),
    ],
)
def test_a_name_is_made_safe(path: str, name: str) -> None:
    assert safe_name(path) == name


@given(st.text())
def test_whatever_a_file_is_called_its_name_stays_in_the_folder(path: str) -> None:
    name = safe_name(path)
    assert name not in {"", ".", ".."}
    assert name[0] not in ".-"
    assert "/" not in name and "\0" not in name
    assert len(os.fsencode(name)) <= LONGEST


def test_names_that_lead_elsewhere_end_in_the_folder(shell: Shell) -> None:
    sent = send(shell, "../../out.txt", str(shell.home / "out.txt"), "..")
    shell.json("read", sent, "--as", "bob", "--save", "files")
    assert sorted(path.name for path in (shell.home / "files").iterdir()) == ["file", "out-2.txt", "out.txt"]
    assert not list(shell.home.glob("out*"))


def test_no_file_is_planted_beside_the_room_as_one_of_its_own(shell: Shell) -> None:
    with shell.room() as room:
        store = Path(room.settings.store.removeprefix("sqlite:"))
    sent = send(shell, f"{store.name}-journal", f"{store.name}.search")
    saved = shell.json("read", sent, "--as", "bob", "--save", os.fspath(store.parent))["saved"]
    assert [Path(one["file"]).name for one in saved] == [
        f"saved-{store.name}-journal",
        f"saved-{store.name}.search",
    ]


@pytest.mark.parametrize("place", ["a file", "nowhere/files"])
def test_a_folder_that_cannot_be_is_refused_before_the_letter_is_read(shell: Shell, place: str) -> None:
    (shell.home / "a file").write_text("")
    sent = send(shell, "a.txt")
    done = shell.run("read", sent, "--as", "bob", "--save", place)
    assert done.code == 73
    assert done.err.startswith(f"postroom: --save: '{place}' cannot be used: ")
    assert shell.json("counts", "--as", "bob")["total"] == 1
