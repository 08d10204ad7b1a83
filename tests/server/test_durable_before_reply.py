"""Nobody is told that a letter was sent before it is on the disk: seen from outside, call by call."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.daemons import PATIENCE, Line

CLIENTS = 4
LETTERS = 5  # of each
CALLS = "pwrite64,fdatasync,sendto,write"
_REPLY = re.compile(r'\\"messageId\\":\\"([0-9A-Z]{26})')

# A daemon that tells before it is safe: what the audit must find.
HASTY = """
from postroom.store.sqlite import commit
commit.make_safe = lambda conn, *, must_sync: None
"""
START = """
import sys
from postroom.cli.main import entry
sys.argv = ["postroom", "serve", "--room", {room!r}, "--socket", {socket!r}, "--http", "off", "--json"]
entry()
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize(
    ("bug", "finds"), [("", False), (HASTY, True)], ids=["as it is", "one that tells too early"]
)
def test_every_reply_follows_the_sync_of_its_letter(tmp_path: Path, bug: str, finds: bool) -> None:
    result, trace = traced(tmp_path, bug)

    assert CLIENTS * LETTERS == len(result)
    assert finds is bool(told_too_early(trace, result))


def traced(folder: Path, bug: str) -> tuple[set[str], str]:
    """The letters that were told as sent, and every call that wrote or synced."""
    place, out = folder / "s", folder / "trace"
    program = bug + START.format(room=str(folder / "room.db"), socket=str(place))
    words = ["strace", "-f", "-qq", "-e", f"trace={CALLS}", "-s", "20000", "-o", str(out)]
    process = subprocess.Popen(
        [*words, sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"COVERAGE_PROCESS_START": ""},
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    result: set[str] = set()
    writers = [threading.Thread(target=send_some, args=(place, name, result)) for name in range(CLIENTS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(PATIENCE)
    pid = Line(place)
    with pid:
        os.kill(pid.ask({"action": "ping"})["pid"], 15)
    process.wait(PATIENCE)
    process.stdout.close()
    return result, out.read_text(encoding="utf-8", errors="replace")


def send_some(place: Path, number: int, result: set[str]) -> None:
    with Line(place) as line:
        for letter in range(LETTERS):
            params = {"action": "send", "from": f"w-{number}", "to": "reader", "payload": f"{letter}"}
            result.add(line.ask(params)["messageId"])


def told_too_early(trace: str, result: set[str]) -> list[str]:
    """Letters whose reply went out before a sync that began after they were written."""
    lines = trace.splitlines()
    early = []
    for id in result:
        written = next(n for n, line in enumerate(lines) if "pwrite64(" in line and id in line)
        reply = next(
            n for n, line in enumerate(lines) if ("sendto(" in line or " write(" in line) and _replies(line, id)
        )
        syncs = [line for line in lines[written:reply] if "fdatasync(" in line]
        if not syncs:
            early.append(id)
    return early


def _replies(line: str, id: str) -> bool:
    return ("sendto(" in line or " write(" in line) and id in _REPLY.findall(line)
