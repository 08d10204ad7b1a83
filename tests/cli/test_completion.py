"""Shells complete commands, options, agents and letters; the scripts are tried in the shells that are here."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

import pytest

from tests.cli.shell import PATIENCE, Shell


@pytest.fixture
def busy(shell: Shell) -> Shell:
    with shell.room() as room:
        room.mailbox("coder").register(scopes=["sorting"])
        room.mailbox("coder").send("researcher", "x", id="m-1")
        room.mailbox("coder").send("researcher", "y", id="m-2")
        room.mailbox("researcher").read("m-2").reject("no")
        room.mailbox("coder").give_task("researcher", "z", id="t-1")
        room.mailbox("coder").escalate("help", reason="blocked", ladder=["human"], id="m-3")
        room.save_template("review", body="x")
    return shell


def offered(shell: Shell, *words: str) -> list[str]:
    done = shell.run("__complete", "--", *words)
    assert (0, "") == (done.code, done.err)
    return done.out.splitlines()


CASES: list[tuple[Sequence[str], list[str]]] = [
    (["rel"], ["release"]),
    (["--as", "x", "rel"], ["release"]),
    (["dead", "re"], ["revive"]),
    (["send", "--su"], ["--subject"]),
    (["send", "--priority", ""], ["low", "normal", "high", "urgent"]),
    (["send", "co"], ["coder"]),
    (["send", "coder", "res"], ["researcher"]),
    (["broadcast", ""], ["sorting"]),
    (["read", "--as", "researcher", ""], ["m-1", "t-1"]),
    (["tasks", "acc"], ["accept"]),
    (["tasks", "show", "--as", "coder", ""], ["t-1"]),
    (["unsend", "--as", "coder", "m-3"], ["m-3"]),
    (["templates", "show", "r"], ["review"]),
    (["send", "x", "--template", ""], ["review"]),
    (["tasks", "--state", "ca"], ["canceled"]),
    (["dead", "revive", "--as", "researcher", "m"], ["m-2"]),
    (["check", "--from", "c"], ["coder"]),
    (["completion", "z"], ["zsh"]),
    (["help", "wai"], ["wait", "waiting"]),
    (["send", "x", "--file", ""], ["\t"]),
    (["import", ""], ["\t"]),
    (["read", "m-1", "m"], []),
    (["nonsense", ""], []),
    (["read", ""], []),
    (["send", "--room", "nowhere.db", "x"], []),
    (["__complete", ""], []),
]


def test_what_could_come_next_is_offered(busy: Shell) -> None:
    for words, expected in CASES:
        assert offered(busy, *words) == expected, words
    assert {"send", "check", "dead"} <= set(offered(busy, ""))
    (escalation,) = offered(busy, "resolve", "--as", "coder", "ESC")
    assert escalation.startswith("ESC-")
    assert not (busy.home / "nowhere.db").exists()


def test_completion_never_complains(busy: Shell) -> None:
    (busy.home / "broken.db").write_bytes(b"not a room" * 100)
    assert offered(busy, "send", "--room", "broken.db", "x") == []
    assert offered(busy, "send", "--room", "broken.db", "") == []


def test_bash_completes(busy: Shell) -> None:
    line = (
        'eval "$(postroom completion bash)"; COMP_WORDS=(postroom send co); COMP_CWORD=2; _postroom;'
        ' echo "${COMPREPLY[@]}"; touch file-a; COMP_WORDS=(postroom import fil); _postroom; echo "${COMPREPLY[@]}"'
    )
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    done = busy.type(f"exec bash -c '{line}'")
    assert ("coder\nfile-a\n", "") == (done.out, done.err)


@pytest.mark.parametrize(("name", "check"), [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")])
def test_a_script_is_one_its_shell_can_read(shell: Shell, name: str, check: str) -> None:
    script = shell.run("completion", name)
    assert (0, "") == (script.code, script.err)
    assert "postroom __complete --" in script.out
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    path = shell.home / f"script.{name}"
    path.write_text(script.out, encoding="utf-8")
    done = subprocess.run([name, check, str(path)], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (0, "") == (done.returncode, done.stderr)
