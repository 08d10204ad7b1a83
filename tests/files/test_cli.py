"""Rooms in folders from the command line: by --room, by POSTROOM_STORE, and as the doctor finds them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import apsw
import pytest

from postroom.store.files.layouts.base import Layout
from tests.cli.shell import Shell
from tests.files.folders import inbox, letters_in
from tests.files.test_strangers import drop

pytestmark = pytest.mark.disk  # the doctor warns of rooms in memory
HOURS_AGO = (time.time() - 7200,) * 2


@pytest.fixture
def shell(tmp_path: Path, layout: Layout) -> Shell:
    shell = Shell(tmp_path, durable=False)
    shell.environment["POSTROOM_STORE"] = f"files:{tmp_path}/mail?layout={layout.name}"
    return shell


def found(shell: Shell, *words: str) -> dict[str, dict[str, str]]:
    """What the doctor says, by check; the worst of each."""
    done = shell.run("doctor", *words, "--json")
    findings = sorted(done.json["findings"], key=lambda each: each["level"] != "ok")
    return {each["check"]: each for each in findings}


def test_every_kind_of_command_works_there(shell: Shell, layout: Layout) -> None:
    for line in ("check --as bob", "stats", "top --once", "room", "doctor"):
        assert shell.run(*line.split()).code == 0, line
    assert not (shell.home / "mail").exists()  # who only looks makes no room
    sent = shell.json("send", "bob", "--as", "ann", "--body", "hello")["id"]
    (path,) = letters_in(shell.home / "mail")
    assert str(inbox(shell.home / "mail", layout).relative_to(shell.home / "mail")) in path
    for line in (
        "check --as bob", "counts --as bob", "digest --as bob", "search hello --as bob", "sent --as ann", "agents",
        "register --as bob", "templates save t --body x", "tasks give bob --as ann --body y", "changes", "janitor",
        "archive", "purge", "stats", "top --once", "room", "export out.jsonl", "doctor --full",
    ):  # fmt: skip
        done = shell.run(*line.split(), "--json")
        assert (done.code, done.err) == (0, ""), (line, done)
    assert shell.json("ack", sent, "--as", "bob")
    assert shell.run("check", "--as", "nobody").out.startswith("No unread mail")
    assert shell.json("import", "out.jsonl", "--room", f"files:{shell.home}/other?layout=swarm")["letters"] == 2


@pytest.mark.parametrize("layout", ["nanobot"], indirect=True)  # only its letters have parts
def test_a_path_in_a_letter_or_in_json_is_not_followed(shell: Shell, layout: Layout) -> None:
    """The file part came without its bytes: it is passed on so. What `--file` names is read."""
    (shell.home / "secret.txt").write_text("secret", encoding="utf-8")
    named = {"type": "file", "path": "secret.txt"}
    drop(shell.home / "mail", layout, content={"parts": [named]})
    (letter,) = shell.json("check", "--as", "bob")["letters"]
    assert [named] == shell.json("forward", letter["id"], "carol", "--as", "bob")["letter"]["parts"]
    draft = json.dumps({"to": "carol", "body": [named]})
    for words in (("carol", "--part", json.dumps(named)), ("--drafts", "-")):
        refused = shell.run("send", *words, "--as", "bob", "--json", stdin=draft if "-" in words else "")
        assert (65, "body[0].bytes") == (refused.code, refused.error["field"])
        assert "--file" in refused.error["hint"]
    sent = shell.json("send", "carol", "--file", "secret.txt", "--as", "bob")["letter"]
    assert {**named, "bytes": "c2VjcmV0", "size": 6} == sent["parts"][0]


def test_what_cannot_be_is_reported(shell: Shell, layout: Layout) -> None:
    shell.run("send", "bob", "--as", "ann", "--body", "hello")
    shell.run("send", "bob", "--as", "ann", "--body", "hello", "--room", "room.db")
    shell.run("backup", "copy.db", "--room", "room.db")
    other = "swarm" if layout.name != "swarm" else "nanobot"
    for line, code, word in (
        ("restore copy.db", 78, "copy"),
        ("export mail/x.json", 73, "choose another name"),
        (f"stats --room files:{shell.home}/none?layout=swarm", 66, "send makes one"),
        (f"stats --room files:{shell.home}/mail", 78, "layout=nanobot"),
        (f"stats --room files:{shell.home}/mail?layout=maildir", 78, "layout=nanobot"),
        (f"stats --room files:{shell.home}/mail?layout={other}", 78, f"layout={layout.name}"),
        (f"send bob --as ann --body x --room files:{shell.home}/no/mail?layout=swarm", 73, "mkdir -p"),
    ):
        refused = shell.run(*line.split(), "--json")
        assert (refused.code, word in refused.error["hint"]) == (code, True), (line, refused)
    assert not (shell.home / "new.db").exists()
    assert not (shell.home / "none").exists()


def test_a_backup_is_a_room_in_one_file(shell: Shell) -> None:
    shell.run("send", "bob", "--as", "ann", "--body", "hello")
    assert shell.json("backup", "copy.db")["letters"] == 1
    assert shell.json("check", "--as", "bob", "--room", "copy.db")["letters"][0]["text"] == "hello"


def test_a_healthy_room_is_reported_healthy(shell: Shell) -> None:
    shell.run("send", "bob", "--as", "ann", "--body", "hello")
    findings = found(shell, "--full")
    assert {each["level"] for each in findings.values()} <= {"ok", "note"}
    assert findings["durability"]["what"].startswith("process")
    assert findings["index"]["what"] == "1 letters in files, and the index says what they say"
    assert found(shell, "--set", "durability=power")["durability"]["what"].startswith("power")


def test_open_folders_are_reported_and_left_as_they_are(shell: Shell, layout: Layout) -> None:
    shell.run("send", "bob", "--as", "ann", "--body", "hello")
    inbox(shell.home / "mail", layout).chmod(0o755)
    result = found(shell, "--repair")["folders"]
    assert (result["level"], "used as they are" in result["what"]) == ("warning", True)
    assert inbox(shell.home / "mail", layout).stat().st_mode & 0o777 == 0o755


def test_leavings_and_what_is_no_letter_are_reported_with_their_reasons(shell: Shell, layout: Layout) -> None:
    shell.run("send", "bob", "--as", "ann", "--body", "hello")
    folder = inbox(shell.home / "mail", layout)
    old, young = folder / ".0123.tmp", folder / ".4567.tmp"
    bad = folder / f"MSG-1{layout.ending}"
    for path in (old, young, bad):
        path.write_text("{")
        if path != young:
            os.utime(path, HOURS_AGO)
    result = found(shell)
    assert "not a letter" in result["quarantine"]["what"] and bad.name in result["quarantine"]["what"]
    assert "1 temporary file" in result["leavings"]["what"] and "--repair" in result["leavings"]["hint"]
    assert old.exists()
    assert found(shell, "--repair")["leavings"]["repaired"]
    assert (old.exists(), young.exists()) == (False, True)


def test_an_index_that_is_wrong_is_found_and_mended(shell: Shell) -> None:
    shell.run("send", "bob", "--as", "ann", "--body", "hello")
    database = apsw.Connection(str(shell.home / "mail" / ".postroom" / "index.db"))
    database.execute("UPDATE deliveries SET state = 3")
    database.close()
    assert shell.json("counts", "--as", "bob")["total"] == 0
    assert "says unread, the index done" in found(shell, "--full")["index"]["what"]
    assert found(shell, "--full", "--repair")["index"]["repaired"]
    assert found(shell, "--full")["index"]["level"] == "ok"
    assert shell.json("counts", "--as", "bob")["total"] == 1
