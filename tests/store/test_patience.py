"""A statement that takes long lets Ctrl-C in."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PATIENCE = 60.0
COUNT = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"  # never ends
SCRIPT = f"""
import apsw
from contextlib import nullcontext
from postroom.store.sqlite.patience import interruptible

database = apsw.Connection(":memory:")
with GUARD:
    try:
        print("begun", flush=True)
        database.execute("{COUNT}").fetchall()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
print(database.execute("SELECT 1").get, flush=True)
"""


def interrupted(guard: str, patience: float) -> str:
    """What a program says whose long statement is interrupted."""
    script = SCRIPT.replace("GUARD", guard)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "begun\n"
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
