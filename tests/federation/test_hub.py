"""Three systems: two that know only the hub between them, which has no agents of its own."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom.errors import Missing
from tests.daemons import until
from tests.federation.systems import System, systems


@pytest.fixture
def three(tmp_path: Path) -> Iterator[tuple[System, System, System]]:
    """`a` and `c` dial the hub."""
    with systems(System(tmp_path, "a", "ann"), System(tmp_path, "hub"), System(tmp_path, "c", "carl")) as found:
        a, hub, c = found
        for leaf, other in ((a, "c"), (c, "a")):
            token = hub.trusts(leaf.name, relays_to=True)
            leaf.trusts("hub", url=hub.url, token=token, relays_for=(other,))
        yield a.serve(), hub.serve(), c.serve()


def test_letters_pass_a_hub_and_are_answered(three: tuple[System, System, System]) -> None:
    a, hub, c = three
    sent = a.room.mailbox("ann").send("carl@c", "over the hub", subject="Far")
    (letter,) = until(lambda: c.room.mailbox("carl").check())
    assert ("ann@a", "over the hub", sent.id) == (letter.sender, letter.text, letter.id)
    assert ["a", "hub"] == letter.message.extra["federation"]["path"]
    letter.reply("and back")
    (answer,) = until(lambda: a.room.mailbox("ann").check())
    assert ("carl@c", "and back", sent.id) == (answer.sender, answer.text, answer.message.in_reply_to)
    until(lambda: hub.left(sent.id, "carl@c"))
    reasons = [one.room.trace(sent.id).stops[0].reason for one in (a, hub)]
    assert ["moved to hub, on its way to c", "moved to c"] == reasons
    assert [] == hub.room.agents()


def test_who_is_not_there_bounces_over_the_hub(three: tuple[System, System, System]) -> None:
    a, _, c = three
    sent = a.room.mailbox("ann").send("nobody@c", "lost")
    (bounce,) = until(lambda: a.room.mailbox("ann").check())
    assert bounce.message.is_automatic and sent.id == bounce.message.in_reply_to
    assert "nobody" in bounce.text
    assert [] == c.texts("nobody")


def test_what_waits_in_a_hub_outlives_it(three: tuple[System, System, System]) -> None:
    a, hub, c = three
    c.stop(signal.SIGKILL)
    sent = [a.room.mailbox("ann").send("carl@c", str(n)) for n in range(20)]
    until(lambda: all(a.left(one.id, "carl@c") for one in sent))
    hub.stop(signal.SIGKILL)
    hub.serve()
    c.serve()
    until(lambda: len(c.texts("carl")) == 20)
    assert [str(n) for n in range(20)] == c.texts("carl")


def test_who_may_not_go_further_bounces(three: tuple[System, System, System]) -> None:
    a, hub, c = three
    hub.trusts("a", relays_to=False)
    a.room.mailbox("ann").send("carl@c", "no further")
    (bounce,) = until(lambda: a.room.mailbox("ann").check())
    assert "does not reach other systems through this one" in bounce.text
    assert [] == c.texts("carl")
    with pytest.raises(Missing, match="no route to the system 'mars'"):
        a.room.mailbox("ann").send("carl@mars", "nowhere")


def test_agents_behind_a_hub_are_listed_as_they_are_spelt(three: tuple[System, System, System]) -> None:
    """And reached by their bare names, while the hub leads there."""
    a, hub, c = three
    c.room.mailbox("Clara").register()
    listed = until(lambda: [row for row in _elsewhere(a) if row["agentId"] == "Clara"])
    assert [("Clara", "c")] == [(row["agentId"], row["peerId"]) for row in listed]
    sent = a.room.mailbox("ann").send("clara", "by her name alone")
    assert ("Clara@c",) == sent.routed
    (letter,) = until(lambda: c.room.mailbox("Clara").check())
    letter.reply("here")
    (answer,) = until(lambda: a.room.mailbox("ann").check())
    assert "Clara@c" == answer.sender
    hub.trusts("a", relays_to=False)
    until(lambda: not _elsewhere(a))


def _elsewhere(system: System) -> list[dict[str, Any]]:
    assert system.daemon is not None
    rows: list[dict[str, Any]] = system.daemon.ask(action="list_agents", includeFederated=True)["agents"]
    return [row for row in rows if row["location"] == "federated"]
