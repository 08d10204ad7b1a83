"""The mayor's commands: hand out, accept, reassign; and where they are cut off, the item still lies on a hook."""

from __future__ import annotations

import pytest

from postroom.chipset import Chipset, Status
from postroom.errors import Busy, IllegalMove, Invalid, NotAllowed, PostroomError, Refused, StaleRevision
from tests.rooms import FakeClock

ALPHA, BETA = "polecat-alpha", "polecat-beta"


def subjects(chipset: Chipset, agent: str) -> list[str]:
    return [mail.subject for mail in chipset.mail.check_mail(agent)]


def test_dispatch_sets_the_hook_and_sends_the_assignment(chipset: Chipset) -> None:
    hook = chipset.mayor().dispatch(ALPHA, "gt-1", "Auth", "As in the plan.")
    assert (hook.status, hook.item.bead_id) == (Status.PENDING, "gt-1")
    (mail,) = chipset.mail.unread(ALPHA)
    assert (mail.sender, mail.type, mail.subject, mail.body) == (
        "mayor", "work_assignment", "gt-1 is on your hook: Auth", "As in the plan.",
    )  # fmt: skip
    with pytest.raises(IllegalMove, match="gt-1"):
        chipset.mayor().dispatch(ALPHA, "gt-2")
    with pytest.raises(NotAllowed):
        chipset.mayor("polecat-gamma").dispatch(BETA, "gt-2")
    with pytest.raises(Invalid):
        chipset.mayor().dispatch(BETA, "gt-2", body="\0")
    assert chipset.hooks.get(BETA).status is Status.EMPTY


def test_an_assignment_that_a_crash_left_unsent_is_sent_once(chipset: Chipset) -> None:
    chipset.hooks.set(ALPHA, "gt-1", by="mayor")
    for _ in range(2):
        chipset.mayor().remind(ALPHA, "As in the plan.")
        chipset.hooks.touch(ALPHA)
    assert len(subjects(chipset, ALPHA)) == 1
    with pytest.raises(IllegalMove):
        chipset.mayor().remind(BETA)


def test_a_report_that_a_crash_left_unsent_is_sent_once(chipset: Chipset) -> None:
    chipset.mayor().dispatch(ALPHA, "gt-1", "Auth")
    with pytest.raises(IllegalMove):
        chipset.report(ALPHA)
    chipset.hooks.activate(ALPHA)
    chipset.hooks.complete(ALPHA)  # and then the power went
    for _ in range(2):
        assert chipset.report(ALPHA, "On branch auth.").status is Status.COMPLETED
    (mail,) = chipset.mail.unread("mayor")
    assert (mail.sender, mail.type, mail.subject) == (ALPHA, "completion_report", "gt-1 is done")


def test_only_completed_work_is_accepted(chipset: Chipset) -> None:
    mayor = chipset.mayor()
    mayor.dispatch(ALPHA, "gt-1")
    chipset.hooks.activate(ALPHA)
    with pytest.raises(IllegalMove):
        mayor.accept(ALPHA)
    chipset.hooks.complete(ALPHA)
    with pytest.raises(IllegalMove):
        mayor.reassign(ALPHA, BETA)
    with pytest.raises(NotAllowed):
        chipset.mayor("polecat-gamma").accept(ALPHA)
    assert mayor.accept(ALPHA).status is Status.EMPTY


def test_reassigning_moves_the_item_and_counts(chipset: Chipset, clock: FakeClock) -> None:
    mayor = chipset.mayor()
    seen = mayor.dispatch(ALPHA, "gt-1", "Auth")
    with pytest.raises(Busy, match="just now"):
        mayor.reassign(ALPHA, BETA)
    clock.advance(60)
    chipset.hooks.touch(ALPHA)
    with pytest.raises(StaleRevision):
        mayor.reassign(ALPHA, BETA, expect=seen)
    value = mayor.reassign(ALPHA, BETA, expect=chipset.hooks.get(ALPHA))
    assert (value.agent_id, value.item.title) == (BETA, "Auth")
    assert chipset.hooks.get(ALPHA).status is Status.EMPTY
    assert chipset.items.get("gt-1").restarts == 1
    assert subjects(chipset, BETA) == ["gt-1 is on your hook: Auth"]


def test_a_busy_agent_is_given_nothing_and_the_item_stays(chipset: Chipset, clock: FakeClock) -> None:
    mayor = chipset.mayor()
    mayor.dispatch(ALPHA, "gt-1")
    mayor.dispatch(BETA, "gt-2")
    clock.advance(60)
    with pytest.raises(IllegalMove, match="gt-2"):
        mayor.reassign(ALPHA, BETA)
    assert chipset.hooks.get(ALPHA).item.bead_id == "gt-1"
    assert chipset.items.get("gt-1").restarts == 0


def test_a_command_cut_off_between_two_hooks_is_completed_by_the_next(
    chipset: Chipset, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    mayor = chipset.mayor()
    mayor.dispatch(ALPHA, "gt-1")
    clock.advance(60)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(chipset.hooks, "clear", killed)
    with pytest.raises(KeyboardInterrupt):
        mayor.reassign(ALPHA, BETA)
    monkeypatch.undo()
    on = [chipset.hooks.get(agent).work_item for agent in (ALPHA, BETA)]
    assert [item and item.bead_id for item in on] == ["gt-1", "gt-1"]
    mayor.reassign(ALPHA, BETA)
    assert chipset.hooks.get(ALPHA).status is Status.EMPTY
    assert chipset.items.get("gt-1").restarts == 1


def test_after_three_restarts_a_human_is_notified_once_and_the_mayor_is_refused(
    chipset: Chipset, clock: FakeClock
) -> None:
    mayor = chipset.mayor()
    mayor.dispatch(ALPHA, "gt-1")
    for _ in range(3):
        clock.advance(60)
        mayor.reassign(ALPHA, ALPHA)
    clock.advance(60)
    for _ in range(2):
        with pytest.raises(Refused, match="restarted 3 times"):
            mayor.reassign(ALPHA, BETA)
    assert subjects(chipset, "human") == ["gt-1 was started 4 times and is stuck"]
    assert chipset.hooks.get(ALPHA).item.bead_id == "gt-1"  # nothing was destroyed


def test_work_that_was_accepted_begins_again(chipset: Chipset, clock: FakeClock) -> None:
    mayor = chipset.mayor()
    for _ in range(5):
        mayor.dispatch(ALPHA, "gt-1")
        chipset.hooks.activate(ALPHA)
        chipset.hooks.complete(ALPHA)
        mayor.accept(ALPHA)
    assert chipset.items.get("gt-1").restarts == 0


def test_a_count_that_cannot_be_read_begins_again(chipset: Chipset) -> None:
    chipset.mayor().dispatch(ALPHA, "gt-1")
    (path,) = (chipset.folder.path + "/.postroom/witness/items/" + name for name in
               chipset.folder.names(".postroom", "witness", "items"))  # fmt: skip
    with open(path, "w", encoding="utf-8") as file:
        file.write("{")
    assert chipset.items.get("gt-1").starts == ()
    with pytest.raises(PostroomError):
        chipset.mayor("../x")
