"""Names without a system: peers are asked for them, or a hub above is left to find them."""

from __future__ import annotations

from pathlib import Path

from tests.federation.systems import System, join, systems, until


def test_the_first_peer_that_has_somebody_gets_the_letter(tmp_path: Path) -> None:
    a = System(tmp_path, "a", "ann", federation_strategy="broadcast")
    with systems(a, System(tmp_path, "b", "bob"), System(tmp_path, "c", "carl")) as (_, b, c):
        join(a, b, exposure="gateway")
        join(a, c, exposure="gateway")
        for system in (a, b, c):
            system.serve()
        a.is_linked("b", "c")
        a.room.mailbox("ann").send("carl", "found")
        until(lambda: ["found"] == c.texts("carl"))
        a.room.mailbox("ann").send(["bob", "nobody"], "and who is nowhere")
        until(lambda: ["and who is nowhere"] == b.texts("bob"))
        (bounce,) = until(lambda: a.room.mailbox("ann").check())
        assert "no system that we know has 'nobody'" in bounce.text
        assert not b.texts("carl") and not c.texts("bob")


def test_a_table_that_is_refreshed_asks_for_whom_it_does_not_know(tmp_path: Path) -> None:
    a = System(tmp_path, "a", "ann", federation_refresh_on_miss="true")
    with systems(a, System(tmp_path, "b", "bob")) as (_, b):
        join(a, b, exposure="gateway")
        a.serve()
        b.serve()
        a.room.mailbox("ann").send("bob", "asked for")
        until(lambda: ["asked for"] == b.texts("bob"))


def test_a_hub_above_finds_whom_nobody_below_knows(tmp_path: Path) -> None:
    leaf = System(tmp_path, "a", "ann", federation_strategy="hierarchical", federation_upstream="Hub")
    hub = System(tmp_path, "hub", federation_strategy="broadcast")
    with systems(leaf, hub, System(tmp_path, "c", "carl")) as (a, _, c):
        a.trusts("hub", url=hub.url, token=hub.trusts("a", relays_to=True), relays_for=("c",))
        c.trusts("hub", url=hub.url, token=hub.trusts("c", relays_to=True), relays_for=("a",))
        for system in (hub, a, c):
            system.serve()
        hub.is_linked("a", "c")
        a.room.mailbox("ann").send("carl", "up and down")
        until(lambda: ["up and down"] == c.texts("carl"))
        (letter,) = c.room.mailbox("carl").check()
        letter.reply("found you")
        until(lambda: "found you" in a.texts("ann"))
