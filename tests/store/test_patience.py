"""A statement that takes long lets Ctrl-C in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemons import until

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc here")
PATIENCE = 60.0
COUNT = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"  # never ends
SCRIPT = f"""
import apsw
from contextlib import nullcontext
from postroom.store.sqlite.connection import interruptible

database = apsw.Connection(":memory:")
with GUARD:
    try:
        print("begun", flush=True)
        database.execute("{COUNT}").fetchall()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
print(database.execute("SELECT 1").get, flush=True)
"""


def wait_until_it_works(pid: int) -> None:
    """It has counted for a tenth of a second more than it had when we came: it is inside the statement."""
    began = worked(pid)
    until(lambda: worked(pid) >= began + os.sysconf("SC_CLK_TCK") / 10)


def worked(pid: int) -> int:
    """Ticks of a processor."""
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[11])


def interrupted(guard: str, patience: float) -> str:
    """What a program says whose long statement is interrupted."""
    script = SCRIPT.replace("GUARD", guard)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "begun\n"
        wait_until_it_works(process.pid)
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=patience)[0]
        finally:
            process.kill()


def test_ctrl_c_ends_a_long_statement_and_the_connection_goes_on() -> None:
    assert interrupted("interruptible(database)", PATIENCE) == "interrupted\n1\n"


def test_without_it_the_statement_goes_on() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        interrupted("nullcontext()", 1.0)
