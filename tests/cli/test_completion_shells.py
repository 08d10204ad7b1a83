"""Completion in bash, zsh and fish themselves: a person types half a word and presses Tab."""

from __future__ import annotations

import os
import re
import select
import shlex
import shutil
import subprocess
import time

import pytest

from tests.cli.shell import PATIENCE, PROGRAM, Shell

ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\r|\x07")


@pytest.fixture
def busy(shell: Shell) -> Shell:
    """A room with some mail in it, and `postroom` on the path."""
    with shell.room() as room:
        room.mailbox("coder").register(scopes=["sorting"], capabilities=["python"])
        room.mailbox("coder").send("researcher", "x", id="m-1")
    bin = shell.home / "bin"
    bin.mkdir()
    program = bin / "postroom"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(PROGRAM)} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    shell.environment["PATH"] = f"{bin}{os.pathsep}{os.environ['PATH']}"
    (shell.home / "letters of may.jsonl").touch()
    return shell


def needs(interpreter: str) -> None:
    if shutil.which(interpreter) is None:
        pytest.skip(f"{interpreter} is not installed")


class Keyboard:
    """An interactive shell in a terminal."""

    def __init__(self, shell: Shell, command: list[str]) -> None:
        self.shown = b""
        self._screen, theirs = os.openpty()
        self._process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env=shell.environment | {"PS1": "> ", "PROMPT": "> ", "TERM": "dumb"},
            cwd=shell.home,
        )
        os.close(theirs)

    def type(self, text: str) -> None:
        os.write(self._screen, text.encode())

    def read_until(self, text: str) -> None:
        end = time.monotonic() + PATIENCE
        while text not in ESCAPES.sub(b"", self.shown).decode(errors="replace"):
            if time.monotonic() > end:
                raise TimeoutError(self.shown)
            if select.select([self._screen], [], [], 1.0)[0]:
                self.shown += os.read(self._screen, 65536)

    def close(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)
        os.close(self._screen)


PRESSED = [
    ("postroom send co\t", "postroom send coder "),
    ("postroom rel\t", "postroom release "),
    ("postroom send x --prio\t", "postroom send x --priority "),
    ("postroom read --as researcher m\t", "postroom read --as researcher m-1 "),
    ("postroom import lett\t", r"postroom import letters\ of\ may.jsonl "),
    ("postroom send any:py\t", "postroom send any:python "),
    ("postroom check --as=rese\t", "postroom check --as=researcher "),
]
SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(postroom completion bash)"; echo rea""dy\n'),
    "zsh": (
        ["zsh", "-f", "-i"],
        'autoload -U compinit; compinit -u -D; eval "$(postroom completion zsh)"; echo rea""dy\n',
    ),
}


@pytest.mark.parametrize("interpreter", SHELLS)
def test_tab_completes_on_the_keyboard(busy: Shell, interpreter: str) -> None:
    needs(interpreter)
    command, prepare = SHELLS[interpreter]
    keyboard = Keyboard(busy, command)
    try:
        keyboard.type(prepare)
        keyboard.read_until("\nready")
        for typed, completed in PRESSED:
            keyboard.shown = b""
            keyboard.type(typed)
            keyboard.read_until(completed)
            keyboard.type("\x15")  # the line is wiped
    finally:
        keyboard.close()


FISH = [
    ("postroom send co", ["coder"]),
    ("postroom rel", ["release"]),
    ("postroom send x --prio", ["--priority"]),
    ("postroom read --as researcher m", ["m-1"]),
    ("postroom import lett", ["letters of may.jsonl"]),
    ("postroom send x --priority u", ["urgent"]),
    ("postroom nonsense x", []),
]


def test_fish_completes(busy: Shell) -> None:
    needs("fish")
    place = busy.home / ".config" / "fish" / "completions"
    place.mkdir(parents=True)
    (place / "postroom.fish").write_text(busy.run("completion", "fish").out, encoding="utf-8")
    for typed, expected in FISH:
        done = subprocess.run(
            ["fish", "-c", f"complete -C {shlex.quote(typed)}"],
            env=busy.environment,
            cwd=busy.home,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        offered = [line.partition("\t")[0] for line in done.stdout.splitlines()]
        assert (expected, "") == (offered, done.stderr), typed


def test_a_script_without_the_program_says_nothing(busy: Shell) -> None:
    """A completion script left behind stays silent after Postroom is removed."""
    needs("bash")
    script = busy.run("completion", "bash").out
    line = f"{script}\nPATH=/nowhere; COMP_WORDS=(postroom send co); COMP_CWORD=2; _postroom"
    done = subprocess.run(
        ["bash", "-c", line], env=busy.environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ("", "") == (done.stdout, done.stderr)
