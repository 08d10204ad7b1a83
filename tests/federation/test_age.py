"""Mail for a system that never takes it: after the age limit it is dead, and its sender is told. Not before."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.model.delivery import State
from tests.federation.systems import System, join, systems, until

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


def test_a_bug_that_keeps_it_for_ever_is_found(tmp_path: Path) -> None:
    with systems(Waiting(tmp_path, "a", "ann"), System(tmp_path, "b")) as (a, b):
        join(a, b)
        sent = a.room.mailbox("ann").send("bob@b", "in vain")
        a.serve(faults="hoarding")
        with pytest.raises(AssertionError, match="it did not come to be"):
            until(lambda: State.DEAD == a.delivery(sent.id, "bob@b").state, AGE + 1)
