"""A shell for tests: a user with an empty home, a folder, and the `postroom` program."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

import postroom
from tests.cli.warm import run_warm
from tests.coverage import uncounted
from tests.daemons import until

PATIENCE = 60.0  # seconds; a bound, not a pace
SOURCE = Path(postroom.__file__).parent.parent
SCRIPT = Path(sys.executable).parent / "postroom"
# The installed program, where there is one; it runs this source, whatever else is installed.
PROGRAM = [str(SCRIPT)] if SCRIPT.exists() else [sys.executable, "-m", "postroom"]
# Commands, each with one of its options, that went well while their lines were counted as covered: one in which all
# is known would pass the same lines, and counting takes four times as long as the command itself.
COUNTED: set[str] = set()


def wait_until_asleep(pid: int) -> None:
    """Until it waits for something, where the system tells. Python heeds a signal that comes in the instant before
    it goes to sleep only when it wakes: a test that sends one then would wait as long.
    """
    state = Path(f"/proc/{pid}/stat")
    until(lambda: not state.exists() or state.read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "S")


class Done(Struct, frozen=True, kw_only=True):
    """How a program ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]


def choices(*words: str | bytes) -> set[str]:
    """The command with each of its options, without their values."""
    texts = [os.fsdecode(word) for word in words]
    verb = " ".join(text for text in texts[:2] if text.isalpha())
    return {verb, *(f"{verb} {text}" for text in texts if text.startswith("-"))}


class Shell:
    """Run the `postroom` program in a folder, as one user. A warm program is loaded before it is needed."""

    def __init__(self, home: Path, *, measured: bool = False, durable: bool = True, warm: bool = True) -> None:
        self.home = home
        self.warm = warm
        self.measured = measured
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("POSTROOM_", "XDG_"))}
        for name in ("NO_COLOR", "EDITOR", "VISUAL", "COLUMNS", "PYTHONDONTWRITEBYTECODE"):
            kept.pop(name, None)
        if not measured:
            kept = uncounted(kept)
        own = {
            "HOME": str(home),
            "POSTROOM_STORE": str(home / "room.db"),
            "PYTHONPATH": str(SOURCE),
            "PYTHONPYCACHEPREFIX": str(home.parent / "pycache"),  # made once, as in an installed package
            "TERM": "xterm",
        }
        self.environment = kept | own | ({} if durable else {"POSTROOM_DURABILITY": "process"})

    def run(self, *words: str | bytes, stdin: bytes | str = b"", **variables: str) -> Done:
        """Run it to its end. Words and input may be any bytes."""
        return self._run(words, stdin, self.environment | variables)

    def json(self, *words: str | bytes, stdin: bytes | str = b"") -> Any:
        """What it answers with --json, when all goes well."""
        chosen = choices(*words, "-" if stdin else "")
        environment = uncounted(self.environment) if chosen <= COUNTED else self.environment
        done = self._run((*words, "--json"), stdin, environment)
        assert (0, "") == (done.code, done.err), done
        if self.measured:
            COUNTED.update(chosen)
        return done.json

    def post(self, sender: str, to: str, body: str, **fields: Any) -> str:
        """The id of a letter, sent by the library: for tests in which the sending is not the point."""
        with self.room() as room:
            return room.mailbox(sender).send(to, body, **fields).id

    def sign(self, person: str = "human") -> None:
        """Sign the person's commands from now on, as at a terminal: these have none."""
        from postroom.core.key_file import KeyFile

        path = self.home / ".config" / "postroom" / "human.key"
        with self.room() as room:
            KeyFile(str(path), at_terminal=True).key_for(room.core, person)
        self.environment["POSTROOM_HUMAN_KEY"] = str(path)

    def start(self, *words: str, **variables: str) -> subprocess.Popen[bytes]:
        """For what is stopped from outside. Its lines are not counted: a signal might hit the counting."""
        return subprocess.Popen(
            [*PROGRAM, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=uncounted(self.environment) | variables,
            cwd=self.home,
        )

    def type(self, script: str) -> Done:
        """Run a script as a person types it: `postroom` is on the path."""
        bin = self.home / "bin"
        bin.mkdir(exist_ok=True)
        program = bin / "postroom"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(PROGRAM)} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
        done = subprocess.run(
            ["sh", "-c", script],
            env=self.environment | {"PATH": f"{bin}{os.pathsep}{os.environ['PATH']}"},
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return Done(code=done.returncode, out=done.stdout, err=done.stderr)

    def room(self) -> postroom.Room:
        """Open the shell's room by the library."""
        return postroom.open(self.home / "room.db")

    def _run(self, words: Sequence[str | bytes], stdin: bytes | str, environment: dict[str, str]) -> Done:
        value = stdin.encode() if isinstance(stdin, str) else stdin
        order = ([str(SCRIPT), *map(os.fsdecode, words)], environment, str(self.home))
        code, out, err = (run_warm(order, value, PATIENCE) if self.warm else None) or self._start(
            words, value, environment
        )
        return Done(code=code, out=out.decode(), err=err.decode())

    def _start(
        self, words: Sequence[str | bytes], stdin: bytes, environment: dict[str, str]
    ) -> tuple[int, bytes, bytes]:
        done = subprocess.run(
            [*PROGRAM, *words],
            input=stdin,
            capture_output=True,
            env=environment,
            cwd=self.home,
            timeout=PATIENCE,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr
