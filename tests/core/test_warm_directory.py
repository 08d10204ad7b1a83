"""The warm directory (D2): a table of what each step does to an agent's warmth, and what happens to its mail."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom import NameTaken, Room
from postroom.core.authorize import agent_principal
from postroom.errors import IllegalMove, Invalid
from postroom.model.agent import Heartbeat, Status, Warmth
from postroom.policy.limits import Limits
from postroom.policy.routing import is_routable, presence
from postroom.settings import load_settings
from tests.rooms import FakeClock, RoomFactory, texts

ACTIVE, AWAY, EXPIRED, GONE, DORMANT = (
    Warmth.ACTIVE, Warmth.AWAY, Warmth.EXPIRED, Warmth.GONE, Warmth.DORMANT,
)  # fmt: skip
GRACE, KEPT = 60.0, 3600.0

# What is said -> how warm it is afterwards, from each warmth. None: it is refused, and nothing changes.
STEPS: dict[str, dict[Warmth, Warmth | None]] = {
    "register": dict.fromkeys(Warmth, ACTIVE),
    "heartbeat": dict.fromkeys(Warmth, ACTIVE),
    "leave": dict.fromkeys(Warmth, AWAY),
    "sleep": {ACTIVE: DORMANT, AWAY: DORMANT, DORMANT: DORMANT, EXPIRED: None, GONE: None},
}


def step(room: Room, text: str) -> None:
    box = room.mailbox("coder")
    if text == "sleep":
        box.leave(dormant=True)
    else:
        getattr(box, text)()


def bring(room: Room, clock: FakeClock, warmth: Warmth) -> None:
    """An agent that is this warm."""
    room.mailbox("coder").register()
    if warmth is not ACTIVE:
        room.mailbox("coder").leave(dormant=warmth is DORMANT)
    clock.advance({EXPIRED: GRACE, GONE: GRACE + KEPT}.get(warmth, 0))
    assert room.agent("coder").presence.warmth is warmth


@pytest.mark.parametrize("before", Warmth)
@pytest.mark.parametrize("text", STEPS)
def test_every_step_from_every_warmth(room: Room, clock: FakeClock, text: str, before: Warmth) -> None:
    bring(room, clock, before)
    after = STEPS[text][before]
    if after is None:
        with pytest.raises(IllegalMove) as refused:
            step(room, text)
        assert "dormant" == refused.value.field
    else:
        step(room, text)
    assert (after or before) is room.agent("coder").presence.warmth


ORDER = [ACTIVE, AWAY, EXPIRED, GONE]


@given(
    st.floats(0, 500), st.floats(0, 500), st.floats(0, 500), st.floats(0.1, 200), st.booleans(),
    st.lists(st.floats(0, 2000), min_size=2, max_size=6),
)  # fmt: skip
def test_silence_only_cools_and_no_step_is_left_out(
    offline_after: float, grace: float, kept: float, poll: float, left: bool, times: list[float]
) -> None:
    clock = FakeClock()
    limits = Limits(offline_after=offline_after, away_grace=grace, expired_kept=kept)
    moment = clock.now()
    beat = Heartbeat(
        at=moment.wall,
        steady=moment.steady,
        boot=moment.boot,
        active_at=moment.wall,
        poll_interval=poll,
        left=left,
    )
    began, warm = 0.0, 0
    for time in sorted(times):
        clock.advance(time - began)
        began = time
        seen = presence(beat, clock.now(), limits)
        assert ORDER.index(seen.warmth) >= warm
        warm = ORDER.index(seen.warmth)
        assert is_routable(seen) == (seen.warmth in {ACTIVE, AWAY})
        assert (seen.status is Status.OFFLINE) == (seen.warmth is not ACTIVE)


def test_who_sleeps_neither_expires_nor_is_lost_at_a_reboot(factory: RoomFactory, clock: FakeClock) -> None:
    bring(factory.room(), clock, DORMANT)
    clock.advance(10**7)
    clock.reboot()
    factory.reopen()
    room = factory.room()
    (shown,) = room.agents()
    assert (DORMANT, Status.OFFLINE) == (shown.presence.warmth, shown.presence.status)
    room.mailbox("ann").send("coder", "for your waking")
    assert room.mailbox("coder").heartbeat().presence.warmth is ACTIVE
    assert ["for your waking"] == texts(room.mailbox("coder").check())


def test_a_name_that_sleeps_may_be_taken_as_one_that_expired(factory: RoomFactory, clock: FakeClock) -> None:
    owner, agent = factory.room(), factory.room(agent_principal("coder"))
    agent.mailbox("coder").register()
    agent.mailbox("coder").leave()
    with pytest.raises(NameTaken):
        owner.mailbox("coder").register()
    agent.mailbox("coder").leave(dormant=True)
    assert "owner" == owner.mailbox("coder").register().card.principal


def test_who_left_and_comes_back_finds_what_it_had_claimed(room: Room) -> None:
    coder = room.mailbox("coder")
    coder.register()
    room.mailbox("ann").send("coder", "half done")
    assert coder.claim(lease=3600)
    coder.register()  # it was here all the time: what it holds it keeps
    assert coder.claim() is None
    coder.leave()
    assert coder.claim() is None
    coder.register()
    again = coder.claim()
    assert again is not None and ("half done", 0) == (again.text, again.delivery.attempts)


def test_a_room_may_leave_claims_to_their_leases(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room(requeue_on_return=False)
    coder = room.mailbox("coder")
    coder.register()
    room.mailbox("ann").send("coder", "half done")
    coder.claim(lease=30)
    coder.leave()
    coder.register()
    assert coder.claim() is None
    clock.advance(31)
    assert coder.claim() is not None


@pytest.mark.parametrize(
    ("name", "value"),
    [("away_grace", "-1"), ("away_grace", "soon"), ("expired_kept", "1e99"), ("requeue_on_return", "maybe")],
)
def test_knobs_that_mean_nothing_are_refused(name: str, value: Any) -> None:
    with pytest.raises(Invalid) as refused:
        load_settings({"store": "memory:"}, {f"POSTROOM_{name.upper()}": value})
    assert name == refused.value.field
