"""The flows end to end, every agent a process of its own: dispatch, and stall with reassignment and the human."""

from __future__ import annotations

from pathlib import Path

from postroom.chipset import Chipset, Status
from tests.chipset.people import PATIENCE, finish, running, start
from tests.daemons import until

ALPHA, BETA = "polecat-alpha", "polecat-beta"


def test_dispatch_work_report_accept(state: Path) -> None:
    with Chipset(state) as chipset:
        chipset.mayor().dispatch(ALPHA, "gt-1", "Auth", "As in the plan.")
        polecat, mayor = start("polecat", state, ALPHA), start("mayor", state, ALPHA)
        with running(polecat, mayor):
            assert mayor.communicate(timeout=PATIENCE)[0].strip() == f"accepted from {ALPHA}"
            (state / "stop").touch()
            finish([polecat])
        hook = chipset.hooks.get(ALPHA)
        assert (hook.status, hook.work_item) == (Status.EMPTY, None)
        (assignment,) = chipset.mail.check_mail(ALPHA)
        assert (assignment.type, assignment.read) == ("work_assignment", True)
        (report,) = chipset.mail.check_mail("mayor")
        assert (report.type, report.sender, report.read) == ("completion_report", ALPHA, True)


def test_an_agent_that_is_killed_at_work_goes_on_when_it_is_started_again(state: Path) -> None:
    with Chipset(state) as chipset:
        chipset.mayor().dispatch(ALPHA, "gt-1")
        with running(start("polecat", state, ALPHA)):
            until(lambda: chipset.hooks.get(ALPHA).status is not Status.PENDING)
        polecat, mayor = start("polecat", state, ALPHA), start("mayor", state, ALPHA)
        with running(polecat, mayor):
            assert mayor.communicate(timeout=PATIENCE)[0].strip() == f"accepted from {ALPHA}"
        assert [mail.type for mail in chipset.mail.check_mail("mayor")] == ["completion_report"]


def test_a_stalled_agents_work_is_reassigned_and_done_by_another(state: Path) -> None:
    with Chipset(state) as chipset:
        chipset.mayor().dispatch(ALPHA, "gt-1", "Auth")
        polecat = start("polecat", state, BETA)
        until((state / f"{BETA}-is-there").exists)  # who works must not look stalled on a slow machine
        people = [polecat, start("sleeper", state, ALPHA), start("witness", state, "witness", "3")]
        mayor = start("mayor", state, ALPHA, BETA)
        with running(*people, mayor):
            assert mayor.communicate(timeout=PATIENCE)[0].strip() == f"accepted from {BETA}"
        assert chipset.hooks.get(ALPHA).status is Status.EMPTY
        assert chipset.hooks.get(BETA).status is Status.EMPTY
        assert [mail.type for mail in chipset.mail.check_mail("mayor")] == [
            "health_escalation", "completion_report",
        ]  # fmt: skip
        nudge = chipset.nudges.latest(ALPHA)
        assert nudge and nudge.sender == "witness"


def test_a_witness_that_is_killed_and_started_again_changes_nothing(state: Path) -> None:
    with Chipset(state) as chipset:
        chipset.mayor().dispatch(ALPHA, "gt-1")
        for _ in range(6):
            witness = start("witness", state, "witness")
            with running(witness):
                until(lambda: chipset.nudges.latest(ALPHA) is not None)
        last = start("witness", state, "witness")
        with running(last):
            until(lambda: bool(chipset.mail.check_mail("mayor")))
        assert len(chipset.mail.check_mail("mayor")) == 1
        assert chipset.hooks.get(ALPHA).item.bead_id == "gt-1"


def test_after_three_restarts_a_human_is_notified(state: Path) -> None:
    with Chipset(state) as chipset:
        chipset.mayor().dispatch(ALPHA, "gt-1", "Auth")
        people = [
            start("sleeper", state, ALPHA),
            start("sleeper", state, BETA),
            start("witness", state, "witness"),
        ]
        mayor = start("mayor", state, ALPHA, BETA)
        with running(*people, mayor):
            assert "restarted 3 times" in mayor.communicate(timeout=PATIENCE)[0]
        (mail,) = chipset.mail.check_mail("human")
        assert (mail.type, mail.subject) == ("health_escalation", "gt-1 was started 4 times and is stuck")
        assert len(chipset.mail.check_mail("mayor")) == 4
        on = [chipset.hooks.get(agent).work_item for agent in (ALPHA, BETA)]
        assert sorted(item.bead_id for item in on if item) == ["gt-1"]  # nothing was destroyed
