"""A project folder with swarms, and processes that work in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import postroom
from postroom.swarm import MailboxManager

SOURCE = Path(postroom.__file__).parent.parent
HERE = Path(__file__).parent
SECONDS = 60  # for a process to end


class Project:
    """One folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def mail(self) -> Path:
        return self.folder / "workspace" / "mailboxes"

    def member(self, swarm: str, *names: str) -> None:
        agents = self.folder / "swarms" / swarm / "agents"
        agents.mkdir(parents=True, exist_ok=True)
        for name in names:
            (agents / f"{name}.md").write_text(f"# {name}\n", encoding="utf-8")

    def manager(self, **more: Any) -> MailboxManager:
        """As another process would open it: nothing is shared but the folder."""
        return MailboxManager(**more)

    def files(self, place: str) -> list[str]:
        return sorted(path.name for path in (self.mail / place).glob("MSG-*.json"))

    def fields(self, place: str, id: str) -> dict[str, Any]:
        path = self.mail / place / f"{id}.json"
        fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return fields

    def stranger(self, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
        """What a program that knows only the files answers, in a process of its own."""
        words = [json.dumps(call) for call in calls]
        done = subprocess.run(
            [sys.executable, HERE / "stranger.py", self.mail, *words],
            capture_output=True,
            text=True,
            check=True,
            timeout=SECONDS,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    def python(self, code: str) -> subprocess.Popen[str]:
        """A program in this folder, started."""
        return self.talking(code, subprocess.DEVNULL)

    def talking(self, code: str, stdin: int = subprocess.PIPE) -> subprocess.Popen[str]:
        """A program that can be spoken to."""
        return subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": str(SOURCE)},  # this source, whatever else is installed
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def output_of(program: subprocess.Popen[str]) -> str:
    """What a program said; it must have gone well."""
    return told_by([program])[0]


def told_by(programs: list[subprocess.Popen[str]]) -> list[str]:
    """What programs said that run side by side; all must have gone well."""
    message = [program.communicate(timeout=SECONDS) for program in programs]
    assert not any(program.returncode for program in programs), "".join(error for _, error in message)
    return [out for out, _ in message]
