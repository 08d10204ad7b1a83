"""A hub is killed at a step of either of its exchanges, and served again: each letter is there once, in order."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.conftest import LONG
from tests.daemons import PATIENCE
from tests.federation.audit import Mail
from tests.federation.faulty import STEPS
from tests.federation.systems import System, systems


def killed_at(folder: Path, step: str, bug: str = "") -> set[str]:
    """What went wrong with letters from `a` over the hub to `c`; a bug is the hub's."""
    a, hub, c = System(folder, "a", "ann", "amy"), System(folder, "hub"), System(folder, "c", "cat", "cid")
    with systems(a, hub, c):
        for leaf, other in ((a, "c"), (c, "a")):
            token = hub.trusts(leaf.name, relays_to=True)
            leaf.trusts("hub", url=hub.url, token=token, relays_for=(other,))
        mail = Mail(a, c, ("ann", "amy"), ("cat", "cid"), by=hub)
        mail.send(10)
        hub.serve(faults=f"{bug},kill:{step}:2".lstrip(","))
        a.serve()
        c.serve()
        assert hub.daemon is not None
        assert -signal.SIGKILL == hub.daemon.process.wait(PATIENCE)
        hub.stop()
        hub.serve()
        return mail.problems()


@pytest.mark.parametrize("step", [*STEPS] if LONG else ["sent", "confirmed", "written", "kept"])
def test_a_hub_that_is_killed_neither_loses_nor_doubles_nor_mixes(tmp_path: Path, step: str) -> None:
    assert set() == killed_at(tmp_path, step)


@pytest.mark.parametrize(("bug", "step", "shows"), [("hasty", "answered", "lost"), ("early", "sent", "lost")])
def test_a_bug_of_the_hub_is_found(tmp_path: Path, bug: str, step: str, shows: str) -> None:
    assert shows in killed_at(tmp_path, step, bug)
