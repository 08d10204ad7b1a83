"""The demo is a program like any other: it must do what it says, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.conftest import takes_long
from tests.coverage import uncounted

DEMO = Path(__file__).parent.parent / "examples" / "demo.py"


def run_demo(home: Path, *arguments: str, around: Mapping[str, str] = os.environ) -> str:
    environment = {**around, "XDG_DATA_HOME": str(home)}
    command = [sys.executable, str(DEMO), *arguments]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False, cwd=home
    )
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout


def test_the_demo_shows_letters_a_handoff_a_crash_a_dead_letter_and_three_worlds(tmp_path: Path) -> None:
    shown = run_demo(tmp_path, "--slow")
    for line in (
        "acknowledges and answers the planner, in one commit",
        "the answer came back in the same thread, as 'Re: Sorting'",
        "takes over from coder: Merge sort written and measured.",
        "(to everyone)",
        "a new one gets “index the archive” (try 2) and finishes it",
        "Your letter to worker is dead",
        "← polecat@chipset: “Which sort is stable? Tell planner@moon.”",
        "(another Postroom, “moon”) ← researcher@nanobot: “Merge sort is stable.”",
        "Type next:",
    ):
        assert line in shown


@takes_long
def test_the_demo_can_be_run_again(tmp_path: Path) -> None:
    around = uncounted(os.environ)
    for _ in range(2):
        assert run_demo(tmp_path, around=around).count("Type next:") == 1
