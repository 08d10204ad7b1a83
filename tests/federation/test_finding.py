"""Names without a system: peers are asked for them, or a hub above is left to find them."""

from __future__ import annotations

from pathlib import Path

from postroom.model.delivery import State
from postroom.model.query import Query
from tests.daemons import until
from tests.federation.systems import System, join, systems
from tests.people import person


def test_the_first_peer_with_the_agent_gets_the_letter(tmp_path: Path) -> None:
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


def test_mail_for_an_agent_that_only_a_peer_has_reaches_that_peer(tmp_path: Path) -> None:
    """Though the peer shows nobody. A name that nobody has keeps its mailbox here, as ever (M1)."""
    a = System(tmp_path, "a", "ann")
    with systems(a, System(tmp_path, "b", "Bob")) as (_, b):
        join(a, b, exposure="gateway")
        ann = a.room.mailbox("ann")
        sent = [ann.send("bob", "before anybody could be asked")]
        assert (("bob",), ["before anybody could be asked"]) == (sent[0].unknown, a.texts("bob"))
        a.serve()
        sent += [ann.send("bob", "before the peer is there"), ann.send("nobody", "stays")]
        b.serve()
        until(lambda: len(b.texts("Bob")) == 2)
        sent.append(ann.send("bob", "by the way that was found"))
        until(lambda: len(b.texts("Bob")) == 3)
        went = [sent[0], sent[1], sent[3]]
        assert [one.message.text for one in went] == b.texts("Bob")
        until(lambda: all(a.left(one.id, "Bob@b") for one in went))
        assert ["stays"] == a.texts("nobody")
        (letter, *_) = b.room.mailbox("Bob").check()
        letter.reply("found me")
        (answer,) = until(lambda: a.room.mailbox("ann").check())
        assert ("Bob@b", "found me", sent[0].id) == (answer.sender, answer.text, answer.message.in_reply_to)


def test_a_peer_that_refuses_it_leaves_it_to_the_next_that_has_the_name(tmp_path: Path) -> None:
    a = System(tmp_path, "a", "ann")
    with systems(a, System(tmp_path, "b", "bob"), System(tmp_path, "c", "bob")) as (_, b, c):
        for other in (b, c):
            join(a, other, exposure="gateway")
        b.room.mailbox("bob").block("ann@a")
        b.serve()
        a.serve()
        a.is_linked("b")
        ann = a.room.mailbox("ann")
        sent = [ann.send("bob", "refused by the first")]
        until(lambda: sent[0].id in _refusals_of(a))
        c.serve()
        until(lambda: ["refused by the first"] == c.texts("bob"))
        sent.append(ann.send("bob", "by the way that was found"))
        until(lambda: 2 == len(c.texts("bob")))
        until(lambda: all(a.left(one.id, "bob@*") for one in sent))
        assert [one.message.text for one in sent] == c.texts("bob") and not b.texts("bob")
        ann.send("bob@b", "and for that one alone")
        (bounce,) = until(lambda: [one for one in ann.check() if one.message.is_automatic])
        assert "bob@b" in bounce.text


def _refusals_of(system: System) -> list[str]:
    """The letters that were refused somewhere, and wait for another system."""
    queued = system.room.core.store.find(Query(states=(State.QUEUED,)))
    return [one.message.id for one in queued if one.delivery.history and one.delivery.mailbox.endswith("@*")]


def test_a_task_for_an_agent_that_only_a_peer_has_goes_on_as_its_task(tmp_path: Path) -> None:
    a = System(tmp_path, "a", "ann")
    with systems(a, System(tmp_path, "b", "bob")) as (_, b):
        join(a, b, exposure="gateway")
        a.room.mailbox("ann").give_task("bob", "dig")
        a.serve()
        b.serve()
        until(lambda: ["dig"] == b.texts("bob"))
        (value,) = a.room.mailbox("ann").tasks()
        assert ("bob@b", []) == (value.receiver, a.room.mailbox("bob").tasks())
        (task,) = b.room.mailbox("bob").tasks()
        task.accept()
        task.complete("dug")
        until(lambda: ["completed"] == [one.state for one in a.room.mailbox("ann").tasks()])


def test_an_agent_that_is_here_keeps_its_mail_when_others_have_its_name(tmp_path: Path) -> None:
    a = System(tmp_path, "a", "ann", "bob")
    with systems(a, System(tmp_path, "b", "bob", "eve")) as (_, b):
        person(b.room).register()
        join(a, b, exposure="gateway")
        a.serve()
        b.serve()
        a.is_linked("b")
        ann = a.room.mailbox("ann")
        for name in ("bob", "human", "eve"):
            ann.send(name, f"for {name}")
        until(lambda: ["for eve"] == b.texts("eve"))
        assert (["for bob"], ["for human"]) == (a.texts("bob"), a.texts("human"))


def test_a_hub_above_finds_agents_that_no_system_below_knows(tmp_path: Path) -> None:
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
