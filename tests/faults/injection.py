"""A session under strace, with one fault: a kill or an error at the n-th call of one kind."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import Struct

from tests.faults.kinds import SOUND, Kind
from tests.faults.ledger import NAME
from tests.faults.session import STEADY

ROOT = Path(__file__).parent.parent.parent
CALLS = {  # as users of a disk think of them, and as this machine may call them
    "fsync": "fsync",
    "fdatasync": "fdatasync",
    "pwrite64": "pwrite64",
    "write": "write",
    "rename": "?rename,?renameat",
    "renameat2": "?renameat2",
    "unlink": "?unlink,?unlinkat",
}
TELL = "writev"  # by which the ledger is written
KILL, EIO, ENOSPC = "signal=SIGKILL", "error=EIO", "error=ENOSPC"
SYNCS = ("fsync", "fdatasync")
_LINE = re.compile(r"\d+ +(\w+)\((?:AT_FDCWD[^,]*, |)(\d+)?(?:<([^>]*)>)?")

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


class Call(Struct, frozen=True):
    """One line of the trace."""

    name: str
    descriptor: str
    path: str
    failed: bool  # by our hand
    text: str

    def is_one(self, call: str) -> bool:
        return self.name in CALLS[call].replace("?", "").split(",")

    def tells(self) -> bool:
        """Is it a line in the ledger?"""
        return self.name == TELL and self.path.endswith(f"/{NAME}")


class Run(Struct, frozen=True):
    """How a session ended, and which system calls it made."""

    code: int
    errors: str
    calls: tuple[Call, ...]

    def count(self, call: str) -> int:
        return sum(each.is_one(call) for each in self.calls)

    @property
    def is_untouched(self) -> bool:
        """It needs fewer calls than the fault waited for."""
        return self.code == 0 and not any(call.failed for call in self.calls)


def run(folder: Path, kind: Kind, fault: str = "", call: str = "", nth: int = 0, **how: str) -> Run:
    """Run a session in this folder, with this fault at its n-th call."""
    folder.mkdir()
    trace = folder / "trace"
    inject = ["-e", f"inject={CALLS[call]}:{fault}:when={nth}"] if fault else []
    quick = [] if fault == KILL else ["--seccomp-bpf"]  # strace 6.1 injects no signals with it
    traced = ",".join([TELL, "close", "ftruncate", *CALLS.values()])
    watch = ["strace", "-f", *quick, "-qq", "-y", "-s", "300", "-o", str(trace), "-e", f"trace={traced}"]
    bug, pace = how.get("bug", SOUND), how.get("pace", STEADY)
    session = [sys.executable, "-m", "tests.faults.session", str(folder), kind.name, bug, pace]
    ended = subprocess.run(
        [*watch, *inject, *session], cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False, timeout=60
    )
    return Run(ended.returncode, ended.stderr, calls_in(trace))


def calls_in(trace: Path) -> tuple[Call, ...]:
    found = []
    for line in trace.read_text(errors="replace").splitlines():
        match = _LINE.match(line)
        if match:
            name, descriptor, path = match.groups(default="")
            found.append(Call(name, descriptor, path, "(INJECTED)" in line, line))
    return tuple(found)


def believed(calls: Sequence[Call]) -> list[str]:
    """Second syncs, after a failed one of the same descriptor, on whose strength something was told.

    The system may have dropped what it could not write, so a second sync means nothing. Where the file is written
    anew, emptied or removed before anything is told, nobody relies on it.
    """
    failed: set[str] = set()
    again: dict[str, str] = {}
    wrong: list[str] = []
    for call in calls:
        if call.name in {"close", "pwrite64", "ftruncate"}:
            failed.discard(call.descriptor)
            if call.name == "close" and call.descriptor in again and "/" in call.path:
                again[call.path] = again[call.descriptor]  # it may still get its name
            again.pop(call.descriptor, None)
        elif call.name.startswith("unlink"):
            again = {path: text for path, text in again.items() if f'"{path}"' not in call.text}
        elif call.name in SYNCS and call.descriptor in failed:
            again[call.descriptor] = f"believed: {call.text}"
        elif call.name in SYNCS and call.failed:
            failed.add(call.descriptor)
        elif call.tells():
            wrong += again.values()
            again.clear()
    return wrong


def places(calls: tuple[Call, ...], call: str, after: str, before: str) -> list[int]:
    """Which calls of a kind lie between the ledger lines that hold these words."""
    found: list[int] = []
    count, is_between = 0, False
    for each in calls:
        if each.tells():
            message = each.text.replace("\\", "")
            is_between = after in message or (is_between and before not in message)
        if each.is_one(call):
            count += 1
            found += [count] if is_between else []
    return found
