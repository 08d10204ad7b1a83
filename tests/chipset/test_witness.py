"""The witness: nudges who stalls, tells who is silent, once; whatever happens to it or to the clock."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from postroom.chipset import Chipset, Patience, Witness
from postroom.chipset.folder import chosen
from postroom.errors import Invalid, StoreFailing
from tests.chipset.people import finish, running, start
from tests.daemons import until
from tests.rooms import FakeClock

ALPHA, BETA = "polecat-alpha", "polecat-beta"
STALL = 301  # a little more than the limit: two moves of one moment are a tick apart


@pytest.fixture
def witness(chipset: Chipset) -> Witness:
    return Witness(chipset)


@pytest.fixture
def stalled(chipset: Chipset, clock: FakeClock) -> None:
    """An agent that took up its work, and did nothing for more than five minutes."""
    chipset.mayor().dispatch(ALPHA, "gt-1", "Auth")
    chipset.hooks.activate(ALPHA)
    clock.advance(STALL)


def subjects_for(chipset: Chipset, agent: str = "mayor") -> list[str]:
    return [mail.subject for mail in chipset.mail.check_mail(agent)]


def test_where_nothing_is_nobody_is_watched_and_nothing_is_made(witness: Witness, state: Path) -> None:
    assert witness.look().watched == ()
    assert not state.exists()


def test_who_moves_is_left_alone(chipset: Chipset, witness: Witness, clock: FakeClock) -> None:
    chipset.mayor().dispatch(ALPHA, "gt-1")
    chipset.hooks.activate(ALPHA)
    for _ in range(5):
        clock.advance(299)
        assert (witness.look().watched, witness.look().stalled) == ((ALPHA,), ())
        chipset.hooks.touch(ALPHA)
    assert chipset.nudges.latest(ALPHA) is None


@pytest.mark.usefixtures("stalled")
def test_silence_is_nudged_then_reported_once(chipset: Chipset, witness: Witness, clock: FakeClock) -> None:
    assert witness.look().nudged == (ALPHA,)
    nudge = chipset.nudges.latest(ALPHA)
    assert nudge and (nudge.sender, nudge.type, nudge.requires_response) == ("witness", "health_check", True)
    clock.advance(59)
    assert (witness.look().nudged, witness.look().escalated) == ((), ())
    clock.advance(1)
    assert witness.look().escalated == (ALPHA,)
    (mail,) = chipset.mail.unread("mayor")
    assert (mail.sender, mail.type, mail.priority) == ("witness", "health_escalation", "urgent")
    assert f"agent: {ALPHA}\nbead: gt-1\n" in mail.body
    clock.advance(60)
    assert (witness.look().nudged, witness.look().escalated) == ((ALPHA,), ())
    again = chipset.nudges.latest(ALPHA)
    assert again and again.type == "stall_warning"
    assert len(subjects_for(chipset)) == 1
    assert chipset.hooks.get(ALPHA).item.bead_id == "gt-1"


@pytest.mark.usefixtures("stalled")
def test_an_answer_by_the_design_alone_holds_the_report_back(
    chipset: Chipset, witness: Witness, clock: FakeClock
) -> None:
    for _ in range(3):
        assert witness.look().nudged == (ALPHA,)
        clock.advance(10)
        nudge = chipset.nudges.latest(ALPHA)
        assert nudge
        chipset.nudges.respond(ALPHA, nudge, "Thinking.")  # without a touch, as a stranger would
        clock.advance(60)
        assert (witness.look().stalled, witness.look().nudged) == ((ALPHA,), ())
        clock.advance(50)
    assert subjects_for(chipset) == []
    witness.look()
    clock.advance(60)
    assert witness.look().escalated == (ALPHA,)


@pytest.mark.usefixtures("stalled")
def test_an_answer_with_a_touch_ends_the_stall_also_when_another_answers_right_after(
    chipset: Chipset, witness: Witness, clock: FakeClock
) -> None:
    chipset.mayor().dispatch(BETA, "gt-2")
    clock.advance(STALL)
    assert set(witness.look().nudged) == {ALPHA, BETA}
    for agent in (ALPHA, BETA):
        nudge = chipset.nudges.latest(agent)
        assert nudge
        chipset.answer(agent, nudge)
    clock.advance(61)
    assert witness.look().stalled == ()
    assert subjects_for(chipset) == []
    clock.advance(STALL)
    assert set(witness.look().nudged) == {ALPHA, BETA}  # a new stall


def test_a_pending_item_that_nobody_takes_up_is_a_stall_too(
    chipset: Chipset, witness: Witness, clock: FakeClock
) -> None:
    chipset.mayor().dispatch(ALPHA, "gt-1")
    clock.advance(STALL)
    assert witness.look().nudged == (ALPHA,)


def test_work_that_is_done_is_watched_no_more(chipset: Chipset, witness: Witness, clock: FakeClock) -> None:
    chipset.mayor().dispatch(ALPHA, "gt-1")
    chipset.hooks.activate(ALPHA)
    clock.advance(STALL)
    witness.look()
    chipset.hooks.complete(ALPHA)
    clock.advance(3000)
    assert witness.look() == witness.look()
    assert witness.look().watched == ()
    assert chipset.items.get("gt-1").starts == ()


@pytest.mark.usefixtures("stalled")
def test_it_survives_its_own_restart_at_every_step(state: Path, chipset: Chipset, clock: FakeClock) -> None:
    def another() -> Witness:
        return Witness(Chipset(state, clock=clock))

    assert another().look().nudged == (ALPHA,)
    assert another().look().nudged == ()
    clock.advance(60)
    assert another().look().escalated == (ALPHA,)
    assert another().look().escalated == ()
    assert len(subjects_for(chipset)) == 1


@pytest.mark.usefixtures("stalled")
def test_killed_between_a_deed_and_its_note_nothing_is_done_twice(
    chipset: Chipset, witness: Witness, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    keep = chipset.watches.keep
    monkeypatch.setattr(chipset.watches, "keep", lambda watch: keep(watch) if watch.by == "" else killed())
    with pytest.raises(KeyboardInterrupt):
        witness.look()
    first = chipset.nudges.latest(ALPHA)
    assert first
    monkeypatch.undo()
    assert witness.look().nudged == ()
    assert chipset.nudges.latest(ALPHA) == first
    clock.advance(60)
    monkeypatch.setattr(chipset.watches, "keep", lambda watch: killed() if watch.escalated else keep(watch))
    with pytest.raises(KeyboardInterrupt):
        witness.look()
    monkeypatch.undo()
    assert witness.look().escalated == (ALPHA,)  # as far as it knows; the key knows better
    assert len(subjects_for(chipset)) == 1


def test_a_nudge_of_an_earlier_stall_is_not_taken_for_one_of_this(chipset: Chipset, clock: FakeClock) -> None:
    witness = Witness(chipset, patience=chosen(stall_after=60, nudge_every=600))
    chipset.hooks.set(ALPHA, "gt-1", by="mayor")
    for _ in range(3):
        clock.advance(61)
        assert (seen := witness.look()).nudged == (ALPHA,) and seen.escalated == ()
        clock.advance(10)
        chipset.hooks.touch(ALPHA)
        assert witness.look().stalled == ()
    assert subjects_for(chipset) == []


@pytest.mark.usefixtures("stalled")
def test_a_memory_that_is_lost_doubles_no_letter(
    chipset: Chipset, witness: Witness, clock: FakeClock, state: Path
) -> None:
    witness.look()
    clock.advance(60)
    witness.look()
    (memory,) = (state / ".postroom" / "witness" / "agents").iterdir()
    memory.write_text('{"agent": 7}')
    for _ in range(4):
        clock.advance(60)
        witness.look()
    assert len(subjects_for(chipset)) == 1


@pytest.mark.usefixtures("stalled")
def test_anothers_word_is_left_in_the_slot_for_its_time_and_not_longer(
    chipset: Chipset, witness: Witness, clock: FakeClock
) -> None:
    chipset.nudges.send("mayor", ALPHA, "abort")
    assert witness.look().nudged == ()
    clock.advance(100)
    chipset.nudges.send("mayor", ALPHA, "priority_change")
    assert witness.look().nudged == ()
    clock.advance(20)
    assert witness.look().nudged == (ALPHA,)


def test_the_human_is_notified_after_three_restarts_by_any_mayor(
    chipset: Chipset, witness: Witness, clock: FakeClock
) -> None:
    """Also one that knows only the files: the witness counts what it sees."""
    for round in range(4):
        if round:
            chipset.hooks.clear(ALPHA, by="mayor")
        chipset.hooks.set(ALPHA, "gt-1", by="mayor")
        clock.advance(STALL)
        assert witness.look().nudged == (ALPHA,)
        clock.advance(60)
        assert witness.look().human == (("gt-1",) if round == 3 else ())
    assert subjects_for(chipset, "human") == ["gt-1 was started 4 times and is stuck"]
    assert len(subjects_for(chipset)) == 4
    assert "A human is told" in chipset.mail.check_mail("mayor")[-1].body


def test_a_time_that_lies_ahead_or_is_missing_counts_from_when_it_was_seen(
    chipset: Chipset, witness: Witness, clock: FakeClock, state: Path
) -> None:
    chipset.hooks.set(ALPHA, "gt-1", by="mayor")
    path = state / "hooks" / f"{ALPHA}.json"
    fields = json.loads(path.read_text())
    for wrong in ("2099-01-01T00:00:00Z", None):
        item = fields["work_item"] | {"assigned_at": wrong}
        path.write_text(json.dumps(fields | {"last_activity": wrong, "work_item": item}))
        assert witness.look().stalled == ()
        clock.advance(299)
        assert witness.look().stalled == ()
        clock.advance(1)
        assert witness.look().stalled == (ALPHA,)


@pytest.mark.usefixtures("stalled")
def test_a_clock_that_is_set_back_does_not_keep_it_silent(
    chipset: Chipset, witness: Witness, clock: FakeClock
) -> None:
    witness.look()
    clock.jump(-86_400)
    witness.look()
    clock.advance(STALL)
    assert witness.look().nudged == (ALPHA,)
    clock.advance(60)
    assert witness.look().escalated == (ALPHA,)


@pytest.mark.usefixtures("stalled")
def test_a_slot_from_the_future_changes_no_waiting(
    chipset: Chipset, witness: Witness, clock: FakeClock, state: Path
) -> None:
    (state / "nudge" / ALPHA).mkdir(parents=True)
    params = {"from": "mayor", "type": "abort", "message": "", "timestamp": "2099-01-01T00:00:00Z"}
    (state / "nudge" / ALPHA / "latest.json").write_text(json.dumps(params))
    assert witness.look().nudged == (ALPHA,)
    nudge = chipset.nudges.latest(ALPHA)
    assert nudge and nudge.timestamp.year == 2099
    clock.advance(10)
    chipset.nudges.respond(ALPHA, nudge)
    clock.advance(60)
    assert witness.look().escalated == ()
    clock.advance(50)
    assert witness.look().nudged == (ALPHA,)


def test_what_a_stranger_wrote_onto_a_hook_stays_on_its_line(
    chipset: Chipset, witness: Witness, clock: FakeClock, state: Path
) -> None:
    chipset.hooks.set(ALPHA, "gt-1", by="mayor")
    path = state / "hooks" / f"{ALPHA}.json"
    fields = json.loads(path.read_text())
    fields["work_item"] |= {"bead_id": "gt\n" + "x" * 200_000, "title": "a\u2028b\nagent: mayor"}
    path.write_text(json.dumps(fields))
    clock.advance(STALL)
    assert (witness.look().nudged, witness.look().failed) == ((ALPHA,), ())
    clock.advance(60)
    assert witness.look().escalated == (ALPHA,)
    (mail,) = chipset.mail.unread("mayor")
    assert [line for line in mail.body.splitlines() if line.startswith("agent: ")] == [f"agent: {ALPHA}"]


def test_a_hook_that_cannot_be_read_is_reported_and_the_others_are_watched(
    chipset: Chipset, witness: Witness, clock: FakeClock, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chipset.hooks.set(BETA, "gt-2", by="mayor")
    (state / "hooks" / f"{ALPHA}.json").write_text("{")
    clock.advance(STALL)
    with caplog.at_level(logging.WARNING, "postroom"):
        seen = witness.look()
    assert seen.nudged == (BETA,)
    assert f"{ALPHA}.json" in seen.damaged[0]
    assert ALPHA in caplog.text


@pytest.mark.usefixtures("stalled")
def test_a_letter_that_cannot_be_sent_is_sent_the_next_time(
    chipset: Chipset, witness: Witness, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness.look()
    clock.advance(60)

    def full(*_: Any, **__: Any) -> None:
        raise StoreFailing("no space")

    monkeypatch.setattr(chipset.room.core.store, "commit", full)
    assert "no space" in witness.look().failed[0]
    monkeypatch.undo()
    assert witness.look().escalated == (ALPHA,)
    assert len(subjects_for(chipset)) == 1


def test_each_agent_may_have_its_own_time_for_an_answer(chipset: Chipset, clock: FakeClock) -> None:
    witness = Witness(chipset, patience=chosen(answers={"Polecat-Alpha": 200}))
    for agent, bead in ((ALPHA, "gt-1"), (BETA, "gt-2")):
        chipset.hooks.set(agent, bead, by="mayor")
    clock.advance(STALL)
    witness.look()
    clock.advance(60)
    assert witness.look().escalated == (BETA,)
    clock.advance(60)
    assert witness.look().nudged == (ALPHA, BETA)
    clock.advance(79)
    assert witness.look().escalated == ()
    clock.advance(1)
    assert witness.look().escalated == (ALPHA,)  # counted from the first nudge that had no answer


def test_what_a_user_sets_keeps_within_the_ranges_of_the_design() -> None:
    assert chosen() == Patience()
    for name, wrong in (("stall_after", (59, 1801)), ("nudge_every", (29, 601)), ("answer_within", (0, 601))):
        for value in (*wrong, float("nan")):
            with pytest.raises(Invalid) as refused:
                chosen(**{name: value})  # type: ignore[arg-type] # anything may come
            assert refused.value.field == name
    with pytest.raises(Invalid):
        chosen(answers={ALPHA: 0})
    with pytest.raises(Invalid):
        chosen(answers={"../x": 60})


def test_three_witnesses_at_once_ask_and_tell_once(state: Path) -> None:
    with Chipset(state) as chipset:
        chipset.mayor().dispatch(ALPHA, "gt-1")
        witnesses = [start("witness", state, name) for name in ("witness", "witness", "witness-b")]
        with running(*witnesses):
            until(lambda: bool(subjects_for(chipset)))
            (state / "stop").touch()
            finish(witnesses)
        assert len(subjects_for(chipset)) == 1
