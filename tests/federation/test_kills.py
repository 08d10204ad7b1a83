"""One of two systems is killed at a step of the exchange: nothing is lost, nothing comes twice, all in order."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.conftest import LONG
from tests.daemons import PATIENCE
from tests.federation.audit import Mail
from tests.federation.faulty import SENDING, STEPS
from tests.federation.systems import System, join, systems

CALLS, CALLED = "the one that calls", "the one that is called"


def killed_at(folder: Path, step: str, times: int, sender: str, bug: str = "") -> set[str]:
    """What went wrong. A bug is that of the one who could have it. The first call has many letters; a later one
    comes only where each has few.
    """
    called, calls = System(folder, "a", "ann", "amy"), System(folder, "b", "ann", "amy")
    with systems(called, calls):
        join(calls, called)
        here, there = (calls, called) if sender == CALLS else (called, calls)
        mail = Mail(here, there, ("ann", "amy"), ("ann", "amy"))
        mail.send(10)
        victim, other = (here, there) if step in SENDING else (there, here)
        manners = "frugal" if times > 1 else ""
        is_victims = victim is (here if bug == "early" else there)
        own, others = (bug, "") if is_victims else ("", bug)
        victim.serve(faults=",".join(filter(None, (manners, own, f"kill:{step}:{times}"))))
        other.serve(faults=",".join(filter(None, (manners, others))))
        assert victim.daemon is not None
        assert -signal.SIGKILL == victim.daemon.process.wait(PATIENCE)
        victim.stop()
        victim.serve()
        return mail.problems()


def cases() -> list[tuple[str, int, str]]:
    """Each step at its first and at a later time, by either side; in the short form these take turns."""
    once = {"looked", "noting", "noted"}  # there need not be a second time
    every = [(step, times, who) for who in (CALLS, CALLED) for step in STEPS for times in (1, 9)]
    every = [case for case in every if case[1] == 1 or case[0] not in once]
    return every if LONG else [case for case in every if (case[1] == 1) == (case[2] == CALLED)]


@pytest.mark.parametrize(("step", "times", "sender"), cases())
def test_a_kill_at_any_step_leaves_each_letter_there_once(
    tmp_path: Path, step: str, times: int, sender: str
) -> None:
    assert set() == killed_at(tmp_path, step, times, sender)


@pytest.mark.parametrize(
    ("bug", "step", "shows"),
    [
        ("early", "came", "lost"),
        ("hasty", "answered", "lost"),
        ("nameless", "sent", "twice"),
        ("nameless", "kept", "twice"),
    ],
)
def test_a_bug_at_that_step_is_found(tmp_path: Path, bug: str, step: str, shows: str) -> None:
    assert shows in killed_at(tmp_path, step, 9, CALLS, bug)
