"""Notes on the desktop: by the system's own program, with words that nobody takes for anything else."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from postroom.hosts import desktop
from postroom.model.alert import AlertLetter, Rung
from postroom.model.message import Priority
from tests.cli.conftest import shell
from tests.cli.shell import Shell

__all__ = ["shell"]
HOSTILE = '--urgency=low <b>x</b> & $(touch pwned) `touch pwned` \u202e\n"; do shell script "touch pwned'


def ring(*subjects: str, priority: Priority = Priority.NORMAL) -> Rung:
    letters = tuple(
        AlertLetter(id=f"m-{n}", sender="eve", subject=subject, thread="t", priority=priority)
        for n, subject in enumerate(subjects)
    )
    return Rung(mailbox="human", way="desktop", letters=letters, unread=7)


def program(folder: Path, name: str, ending: str = "") -> Path:
    """Keeps what it is told, in the place of the system's own."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    keeps = (
        f"import json, sys; open({str(folder / 'told')!r}, 'a').write(json.dumps(sys.argv[1:]) + chr(10)){ending}"
    )
    path.write_text(f"#!{sys.executable} -SE\n{keeps}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def notes_in(folder: Path) -> list[list[str]]:
    return [json.loads(line) for line in (folder / "told").read_text(encoding="utf-8").splitlines()]


def test_a_note_says_who_wrote_and_about_what_and_counts_the_rest() -> None:
    title, lines = desktop.words(ring(*(f"subject {n}" for n in range(7)), ""))
    assert "Postroom: 7 unread for human" == title
    assert ["eve: subject 0", "and 3 more"] == [lines[0], lines[-1]] and 6 == len(lines)
    assert ["eve: (no subject)"] == desktop.words(ring(""))[1]
    assert 200 == len(desktop.words(ring("x" * 999))[1][0])


def test_what_a_stranger_wrote_is_one_word_and_no_markup(tmp_path: Path) -> None:
    path = program(tmp_path / "bin", desktop.OTHERS)
    assert desktop.show(str(path), ring(HOSTILE, priority=Priority.URGENT)) is None
    [[app, urgency, end, title, body]] = notes_in(tmp_path / "bin")
    assert ("--app-name=Postroom", "--urgency=critical", "--") == (app, urgency, end)
    assert title.startswith("Postroom: ") and "&lt;b&gt;x&lt;/b&gt; &amp; $(touch pwned)" in body
    assert "\n" not in body and "\u202e" not in body and "<" not in body


def test_a_script_gets_the_words_as_its_arguments(tmp_path: Path) -> None:
    path = program(tmp_path / "bin", desktop.MACOS)
    assert desktop.show(str(path), ring(HOSTILE)) is None
    [words] = notes_in(tmp_path / "bin")
    script = [word for at, word in enumerate(words) if words[at - 1 : at] == ["-e"]]
    assert "eve" not in str(script) and ["on run argv", "end run"] == [script[0], script[-1]]
    assert words[-2].startswith("Postroom: ") and 'do shell script "touch pwned' in words[-1]


def test_a_note_that_is_not_shown_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "exit 3" == desktop.show(str(program(tmp_path / "bin", desktop.OTHERS, "; sys.exit(3)")), ring("x"))
    moans = program(tmp_path / "moans", desktop.OTHERS, "; sys.exit('at first\\nCould not\\x1b connect')")
    assert "exit 1: Could not\\u{1b} connect" == desktop.show(str(moans), ring("x"))
    assert "cannot be started" in str(desktop.show(str(tmp_path / "nothing"), ring("x")))
    monkeypatch.setattr(desktop, "PATIENCE", 0.2)
    slow = program(tmp_path / "slow", desktop.OTHERS, "; import time; time.sleep(20)")
    assert "it took longer than 0.2 s" == desktop.show(str(slow), ring("x"))


def test_a_person_is_shown_what_comes(shell: Shell) -> None:
    path = program(shell.home / "bin", desktop.OTHERS)
    shell.environment |= {"PATH": f"{path.parent}:{shell.environment['PATH']}", "POSTROOM_RING_GATHER": "0"}
    shell.post("coder", "human", "the body", subject="May I?")
    done = shell.run("watch", "--desktop", "--as", "human", "--backlog", "--once", "--json")
    assert (0, None) == (done.code, done.json["failed"])
    assert [["Postroom: 1 unread for human", "coder: May I?"]] == [words[-2:] for words in notes_in(path.parent)]
    with shell.room() as room:
        assert ["desktop"] == [one.way for one in room.trace(done.json["letters"][0]["id"]).stops[0].rings]


def test_what_is_missing_or_said_twice_is_reported_before_anything_begins(shell: Shell) -> None:
    (shell.home / "empty").mkdir()
    message = ("watch", "--as", "human", "--desktop", "--json")
    twice = shell.run(*message, "--exec", "true")
    assert (64, "--desktop") == (twice.code, twice.error["field"])
    shell.environment["PATH"] = str(shell.home / "empty")
    missing = shell.run(*message)
    assert (65, "--desktop") == (missing.code, missing.error["field"])
    assert "notify-send" in missing.error["message"] and "libnotify" in missing.error["hint"]
    assert not (shell.home / "room.db").exists()
