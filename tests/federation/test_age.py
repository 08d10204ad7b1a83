"""Mail for a system that never takes it: after the age limit it is dead, and its sender is told. Not before: a
partition of hours, by the clock of the process, loses none.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.core import outbox
from postroom.model.delivery import State
from tests.daemons import until
from tests.federation.systems import System, join, systems

AGE = 1.0  # seconds


class Waiting(System):
    """Its mail grows old soon. It has a peer that is away, and one that passes mail on to it."""

    def __init__(self, folder: Path, name: str, *agents: str) -> None:
        super().__init__(folder, name, *agents, outbox_max_age=str(AGE))


def has_bounced(here: System, id: str, words: str) -> None:
    (bounce,) = until(lambda: here.room.mailbox("ann").check())
    assert words in bounce.text
    assert id == bounce.message.in_reply_to


def test_a_letter_that_grew_old_is_dead_and_bounces(tmp_path: Path) -> None:
    with systems(Waiting(tmp_path, "a", "ann"), System(tmp_path, "b", "bob")) as (a, b):
        join(a, b)
        sent = a.room.mailbox("ann").send("bob@b", "in vain")
        a.serve(faults="tidy")
        has_bounced(a, sent.id, "b did not take it in time")
        dead = a.delivery(sent.id, "bob@b")
        assert State.DEAD == dead.state and dead.dead_at is not None
        assert AGE <= (dead.dead_at - sent.message.created_at).total_seconds()
        b.serve()
        a.is_linked("b")
        late = a.room.mailbox("ann").send("bob@b", "in time")
        until(lambda: a.left(late.id, "bob@b"))
        assert ["in time"] == b.texts("bob")


def test_one_that_grew_old_at_a_hub_bounces_to_where_it_came_from(tmp_path: Path) -> None:
    a, hub = System(tmp_path, "a", "ann"), Waiting(tmp_path, "hub")
    with systems(a, hub):
        a.trusts("hub", url=hub.url, token=hub.trusts("a", relays_to=True), relays_for=("c",))
        hub.trusts("c", relays_to=True)
        hub.serve(faults="tidy")
        a.serve()
        sent = a.room.mailbox("ann").send("carl@c", "in vain")
        has_bounced(a, sent.id, "c did not take it in time")


def is_tidied(here: System, seconds: float) -> None:
    """The janitor has come by after so long, and is done: after one letter that expired, it found another."""
    for expires in (seconds, 0.01):
        probe = here.room.mailbox("ann").send("amy", "so long ago", expires=expires).id
        until(lambda probe=probe: State.DEAD == here.delivery(probe, "amy").state)  # type: ignore[misc]


def is_not_kept_for_ever(tmp_path: Path, faults: str) -> None:
    with systems(Waiting(tmp_path, "a", "ann", "amy"), System(tmp_path, "b")) as (a, b):
        join(a, b)
        sent = a.room.mailbox("ann").send("bob@b", "in vain")
        a.serve(faults=faults)
        is_tidied(a, AGE)
        assert State.DEAD == a.delivery(sent.id, "bob@b").state, "it is kept for ever"


def test_no_letter_is_kept_for_ever(tmp_path: Path) -> None:
    is_not_kept_for_ever(tmp_path, "tidy")


def test_a_bug_that_keeps_it_for_ever_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "give_up_old", lambda *_: 0)  # this process does what is due, too
    with pytest.raises(AssertionError, match="it is kept for ever"):
        is_not_kept_for_ever(tmp_path, "hoarding")


def parted_for_hours(tmp_path: Path, faults: str) -> None:
    """`b` is away for most of a day. `a` tries all the time, and its janitor comes by."""
    with systems(System(tmp_path, "a", "ann", "amy"), System(tmp_path, "b", "bob")) as (a, b):
        join(a, b)
        ann = a.room.mailbox("ann")
        sent = [ann.send("bob@b", f"{number}") for number in range(3)]
        for hours in (6, 23):
            a.serve(faults=f"{faults},ahead:{hours}")
            is_tidied(a, 3600 * (hours - 1))
            assert "disconnected" == a.states()["b"]
            states = {a.delivery(one.id, "bob@b").state for one in sent}
            assert {State.QUEUED} == states, f"given up after {hours} hours: {states}"
            a.stop()
        a.serve(faults=f"{faults},ahead:23.5")
        b.serve(faults="tidy,ahead:23.5")
        until(lambda: all(a.left(one.id, "bob@b") for one in sent))
        assert ["0", "1", "2"] == b.texts("bob")


def test_mail_is_kept_through_a_partition_of_hours(tmp_path: Path) -> None:
    parted_for_hours(tmp_path, "tidy")


def test_a_bug_that_gives_up_within_hours_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="given up after 6 hours"):
        parted_for_hours(tmp_path, "tidy,brief")
