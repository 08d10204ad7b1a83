"""The rules of the room, each at its edges."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from postroom.errors import DeadlinePassed, HopsSpent, LoopDetected, NotAllowed, QuotaFull
from postroom.model import delivery as model_delivery
from postroom.model.agent import Card, Guard, Heartbeat, Status, Warmth
from postroom.model.delivery import Delivery, State, open_delivery
from postroom.model.message import FIRST_HOPS, TaskNote
from postroom.model.task import open_task
from postroom.policy.admission import (
    MINUTE,
    check_admission,
    check_allowed,
    check_expiry,
    is_within,
    lacking,
    refusal,
    relay,
    too_fast,
    without_letter,
)
from postroom.policy.limits import LEAST_MEMORY, Limits, archive_cutoff, memory_cutoff, purge_cutoff
from postroom.policy.retry import after_failure, after_lapse, backoff, catch_up, has_lapsed
from postroom.policy.routing import is_routable, presence
from tests.letters import BOOT, NOW, after, attempt, lease, letter, moment

LIMITS = Limits()
UNREAD = open_delivery(letter("m1", expires_at=after(60)), "bob", "to", NOW)
CLAIMED = model_delivery.claim(UNREAD, lease(10))


# -- hops


def test_a_chain_of_relays_ends_after_the_third() -> None:
    first = letter("m1", sender="a", hops=FIRST_HOPS, trace=("a",))
    second = replace(first, sender="b", hops=(hops := relay(first, "b", ["c"], FIRST_HOPS))[0], trace=hops[1])
    third = replace(second, sender="c", hops=(hops := relay(second, "c", ["d"], FIRST_HOPS))[0], trace=hops[1])

    assert (third.hops, third.trace) == (1, ("a", "b", "c"))
    with pytest.raises(HopsSpent, match="a → b → c"):
        relay(third, "d", ["e"], FIRST_HOPS)


@pytest.mark.parametrize("target", ["ann", "ANN", "bob"])
def test_a_letter_is_never_relayed_to_an_agent_that_it_went_through(target: str) -> None:
    with pytest.raises(LoopDetected, match=target):
        relay(letter("m1", trace=("ann",)), "bob", ["cleo", target], FIRST_HOPS)


def test_a_relayer_stands_in_the_trace_once() -> None:
    came = letter("m1", trace=("ann", "bob"))
    assert relay(came, "bob", ["cleo"], FIRST_HOPS) == (FIRST_HOPS - 1, ("ann", "bob"))


def test_what_a_stranger_says_of_hops_is_bounded_and_its_name_is_in_the_trace() -> None:
    came = letter("m1", sender="eve", hops=1000, trace=())
    assert relay(came, "bob", ["cleo"], FIRST_HOPS) == (FIRST_HOPS - 1, ("eve", "bob"))
    with pytest.raises(LoopDetected):
        relay(came, "bob", ["eve"], FIRST_HOPS)


def test_an_answer_to_those_who_have_the_letter_is_no_relay() -> None:
    shown = letter("m1", ["bob", "cleo"])

    assert [] == without_letter(shown, ["ann", "CLEO"])
    assert ["dan"] == without_letter(shown, ["ann", "dan"])
    assert [] == without_letter(shown, [])


# -- admission


@pytest.mark.parametrize(
    ("allow_from", "allowed"),
    [(("*",), True), (("cleo", "Ann"), True), (("cleo",), False), ((), False)],
)
def test_only_the_allow_list_comes_in(allow_from: tuple[str, ...], allowed: bool) -> None:
    check_allowed("bob", "bob", allow_from)
    if allowed:
        check_allowed("ann", "bob", allow_from)
    else:
        with pytest.raises(NotAllowed):
            check_allowed("ann", "bob", allow_from)


def test_a_letter_that_has_expired_already_is_refused() -> None:
    check_expiry(None, NOW)
    check_expiry(after(0.001), NOW)
    with pytest.raises(DeadlinePassed):
        check_expiry(NOW, NOW)


def test_pace_is_by_the_minute() -> None:
    assert not is_within(MINUTE, after(-60), NOW)
    assert not is_within(MINUTE, after(1), NOW)  # the clock went back: nobody is punished for it
    for earlier in (NOW, after(-59.9)):
        assert is_within(MINUTE, earlier, NOW)
    refused = too_fast("thread t", 9, after(-50.5), NOW)
    assert refused.message == "you wrote 9 answers in thread t within a minute"
    assert "try again in 10 seconds" in str(refused)


# -- failures


def test_the_pause_doubles_up_to_the_most() -> None:
    pauses = [backoff(tries, LIMITS).total_seconds() for tries in (1, 2, 3, 8, 9, 1000)]

    assert pauses == [10, 20, 40, 1280, 1800, 1800]


def test_a_letter_dies_with_its_fifth_failure() -> None:
    delivery, actions = UNREAD, []
    for _ in range(LIMITS.max_attempts):
        claimed = model_delivery.claim(delivery, lease())
        delivery, action = after_failure(claimed, attempt(), LIMITS)
        actions.append(action)

    assert actions == ["retry"] * 4 + ["bury"]
    assert (delivery.state, delivery.attempts, len(delivery.history)) == (State.DEAD, 5, 5)
    assert after_failure(CLAIMED, attempt(), LIMITS)[0].due_at == after(10)


def test_a_lapsed_lease_is_a_failure_without_a_pause() -> None:
    back, action = after_lapse(CLAIMED, attempt(), LIMITS)
    assert (back.state, back.due_at, back.attempts, action) == (State.UNREAD, None, 1, "lapse")

    dead, action = after_lapse(replace(CLAIMED, attempts=4), attempt(), LIMITS)
    assert (dead.state, action) == (State.DEAD, "bury")


# -- time


def test_only_uptime_ends_a_lease() -> None:
    assert not has_lapsed(lease(10), moment(9.9))
    assert has_lapsed(lease(10), moment(10))
    assert has_lapsed(lease(10), moment(0, "boot-2"))
    assert not has_lapsed(lease(10), replace(moment(5), wall=after(9e6)))


@pytest.mark.parametrize(
    ("delivery", "seconds", "action"),
    [
        (UNREAD, 59, None),
        (UNREAD, 60, "expire"),
        (replace(UNREAD, expires_at=None), 9e6, None),
        (replace(UNREAD, state=State.QUEUED, due_at=after(5)), 4, None),
        (replace(UNREAD, state=State.QUEUED, due_at=after(5)), 5, "deliver"),
        (replace(UNREAD, state=State.QUEUED, due_at=after(5)), 60, "expire"),
        (replace(UNREAD, state=State.QUEUED), 5, None),
        (CLAIMED, 9, None),
        (CLAIMED, 10, "lapse"),
        (replace(CLAIMED, attempts=4), 10, "bury"),
        (replace(CLAIMED, lease=None), 99, None),
        (model_delivery.ack(CLAIMED, NOW, archive=False), 9e6, None),
        (model_delivery.bury(CLAIMED, attempt()), 9e6, None),
    ],
)
def test_time_does_what_the_table_allows(delivery: Delivery, seconds: float, action: str | None) -> None:
    caught = catch_up(delivery, moment(seconds), LIMITS)

    assert (caught and caught[1]) == action


# -- presence


def beat(**fields: Any) -> Heartbeat:
    return Heartbeat(**{"at": NOW, "steady": 1000.0, "boot": BOOT, "active_at": NOW, **fields})


@pytest.mark.parametrize(
    ("seconds", "warmth"),
    [
        (60, Warmth.ACTIVE),
        (60.1, Warmth.AWAY),
        (119, Warmth.AWAY),
        (120, Warmth.EXPIRED),
        (120 + 3599, Warmth.EXPIRED),
        (120 + 3600, Warmth.GONE),
    ],
)
def test_an_agent_fades_step_by_step(seconds: float, warmth: Warmth) -> None:
    seen = presence(beat(), moment(seconds), LIMITS)

    assert seen.warmth is warmth
    assert seen.status is (Status.IDLE if warmth is Warmth.ACTIVE else Status.OFFLINE)
    assert is_routable(seen) == (warmth in {Warmth.ACTIVE, Warmth.AWAY})
    assert (seen.last_heartbeat, seen.last_active_at) == (NOW, NOW)


def test_an_agent_with_tasks_is_busy_and_one_never_active_is_gone() -> None:
    assert presence(beat(current_tasks=("t1",)), moment(), LIMITS).status is Status.BUSY
    assert presence(beat(), moment(), LIMITS, ("t1",)).status is Status.BUSY
    both = presence(beat(current_tasks=("t2", "t1")), moment(), LIMITS, ("t1",))
    assert both.current_tasks == ("t1", "t2")
    away = presence(beat(left=True), moment(), LIMITS, ("t1",))
    assert (away.status, away.current_tasks) == (Status.OFFLINE, ("t1",))
    nobody = presence(None, moment(), LIMITS)
    assert (nobody.status, nobody.warmth, nobody.last_heartbeat) == (Status.OFFLINE, Warmth.GONE, None)


def test_a_slow_poller_is_given_three_of_its_rounds() -> None:
    assert presence(beat(poll_interval=100), moment(300), LIMITS).warmth is Warmth.ACTIVE
    assert presence(beat(poll_interval=100), moment(301), LIMITS).warmth is Warmth.AWAY


def test_an_agent_that_said_goodbye_is_away_at_once() -> None:
    assert presence(beat(left=True), moment(0), LIMITS).warmth is Warmth.AWAY
    assert presence(beat(left=True), moment(60), LIMITS).warmth is Warmth.EXPIRED


def test_nobody_survives_a_reboot_and_no_jumping_clock_kills() -> None:
    assert presence(beat(), moment(1, "boot-2"), LIMITS).warmth is Warmth.EXPIRED
    assert presence(beat(), moment(3600, "boot-2"), LIMITS).warmth is Warmth.GONE
    assert presence(beat(), replace(moment(5), wall=after(9e6)), LIMITS).warmth is Warmth.ACTIVE


# -- retention and limits


def test_cutoffs_are_as_old_as_the_limits_say() -> None:
    assert archive_cutoff(NOW, LIMITS) == NOW - timedelta(days=1)
    assert purge_cutoff(NOW, LIMITS) == NOW - timedelta(days=90)
    assert purge_cutoff(NOW, Limits(retain_for=0)) is None
    assert memory_cutoff(NOW, LIMITS) == NOW - timedelta(days=365)


@pytest.mark.parametrize(
    "wrong", [{"max_attempts": 0}, {"lease": -1}, {"remember_for": LEAST_MEMORY - 1}, {"unknown": "maybe"}]
)
def test_a_limit_that_would_break_a_promise_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, Limits)


# -- tasks


ALLOWED: dict[str, Any] = {"giver": ("ann", "anna"), "guard": Guard(), "busy_with": ("t1",), "most": 2, "now": NOW}


@pytest.mark.parametrize(
    ("changed", "refused", "word"),
    [
        ({}, None, ""),
        ({"guard": Guard(allow=("ANN",))}, None, ""),
        ({"guard": Guard(allow=("cleo",))}, NotAllowed, "unauthorized"),
        ({"guard": Guard(allow=())}, NotAllowed, "unauthorized"),
        ({"guard": Guard(allow=("Anna",))}, None, ""),
        ({"guard": Guard(block=("anna",))}, NotAllowed, "unauthorized"),
        ({"guard": Guard(block=("cleo",))}, None, ""),
        ({"now": after(59)}, None, ""),
        ({"now": after(60)}, DeadlinePassed, "deadline"),
        ({"busy_with": ("t1", "t2")}, QuotaFull, "quota"),
        ({"most": 0, "busy_with": ()}, QuotaFull, "quota"),
        ({"guard": Guard(allow=()), "now": after(60), "most": 0}, NotAllowed, "unauthorized"),
        ({"now": after(60), "most": 0}, DeadlinePassed, "deadline"),
    ],
)
def test_a_task_is_let_in_unless_a_rule_speaks_against_it(
    changed: dict[str, Any], refused: type[NotAllowed | DeadlinePassed | QuotaFull] | None, word: str
) -> None:
    task = open_task(letter("m1", kind="task", task=TaskNote(id="m1", deadline=after(60))))
    assert task is not None
    if refused is None:
        check_admission(task, **(ALLOWED | changed))
        return
    with pytest.raises(refused) as why:
        check_admission(task, **(ALLOWED | changed))
    assert refusal(why.value) == word


def test_a_task_without_a_deadline_is_never_late() -> None:
    task = open_task(letter("m1", kind="task", task=TaskNote(id="m1")))
    assert task is not None
    check_admission(task, **(ALLOWED | {"now": after(1e9)}))


def test_the_built_in_judge_names_what_is_missing() -> None:
    card = Card(id="bob", registered_at=NOW, capabilities=("sql",))
    assert lacking(card, letter("m1")) is None
    assert lacking(card, letter("m1", metadata={"required_capabilities": ["go", "sql"]})) == "lacks go"
