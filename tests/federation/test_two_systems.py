"""Two post rooms that serve, one of which dialled the other."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom.errors import NotAllowed, TooLarge
from postroom.model.delivery import State
from postroom.model.query import Query
from tests.conftest import LONG
from tests.daemons import until
from tests.federation.systems import System, join, systems

MANY = 240 if LONG else 120


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[System, System]]:
    """`a` is called, `b` calls."""
    with systems(System(tmp_path, "a", "ann", "amy"), System(tmp_path, "b", "bob", "ben")) as (a, b):
        join(b, a)
        yield a.serve(), b.serve()


def test_letters_go_both_ways_and_are_answered(pair: tuple[System, System]) -> None:
    a, b = pair
    sent = b.room.mailbox("bob").send("ann@a", "hello", subject="One", thread_tag="t")
    (letter,) = until(lambda: a.room.mailbox("ann").check())
    assert ("bob@b", "hello", "One", "t") == (
        letter.sender,
        letter.text,
        letter.subject,
        letter.message.thread_tag,
    )
    until(lambda: b.left(sent.id, "ann@a"))
    letter.reply("hello yourself")
    (answer,) = until(lambda: b.room.mailbox("bob").check())
    assert ("ann@a", "hello yourself", sent.id) == (answer.sender, answer.text, answer.message.in_reply_to)
    assert sent.id == answer.message.thread


def test_what_is_sent_while_the_other_is_away_waits_for_it(pair: tuple[System, System]) -> None:
    a, b = pair
    for here, there, to in ((b, a, "ann@a"), (a, b, "bob@b")):
        here.is_linked(there.name)
        assert 0 == there.stop()
        sent = [here.room.mailbox(here.room.agents()[0].card.id).send(to, str(n)) for n in range(3)]
        there.serve()
        until(lambda: ["0", "1", "2"] == there.texts(to.partition("@")[0]))  # noqa: B023 - called at once
        until(lambda: all(here.left(one.id, to) for one in sent))  # noqa: B023


def test_what_is_sent_while_no_server_runs_goes_when_one_does(pair: tuple[System, System]) -> None:
    a, b = pair
    b.stop()
    b.room.mailbox("bob").send("ann@a", "later")
    b.serve()
    until(lambda: ["later"] == a.texts("ann"))


def test_many_letters_come_once_and_in_order(pair: tuple[System, System]) -> None:
    a, b = pair
    for n in range(300):
        b.room.mailbox("bob").send("ann@a", str(n))
        a.room.mailbox("amy").send("ben@b", str(n))
    until(lambda: len(a.texts("ann")) == len(b.texts("ben")) == 300)
    assert [str(n) for n in range(300)] == a.texts("ann") == b.texts("ben")


def test_one_letter_goes_to_several_and_who_is_not_there_bounces(pair: tuple[System, System]) -> None:
    a, b = pair
    b.room.mailbox("bob").send(["ann@a", "ben"], "to all", cc=["amy@a"], bcc=["nobody@a"])
    until(lambda: a.texts("ann") == a.texts("amy") == b.texts("ben") == ["to all"])
    (letter,) = a.room.mailbox("ann").check()
    shown = {(one.address, one.kind) for one in letter.message.recipients}
    assert {("ann", "to"), ("ben@b", "to"), ("amy", "cc")} == shown
    (bounce,) = until(lambda: b.room.mailbox("bob").check())
    assert bounce.message.is_automatic
    assert "nobody" in bounce.text
    assert "nobody" not in {agent.card.id for agent in a.room.agents()}


def test_each_named_recipient_gets_it_whatever_the_others_do(pair: tuple[System, System]) -> None:
    a, b = pair
    a.trusts("b", exposure="gateway")
    sent = b.room.mailbox("bob").send(["@a", "ann@a"], "to you, and to all that are shown")
    until(lambda: 1 == len(a.texts("ann")))
    until(lambda: State.DEAD == b.delivery(sent.id, "@a").state)
    until(lambda: b.left(sent.id, "ann@a"))
    a.trusts("b", exposure="all", scopes={"default": ("b",)})
    sent = b.room.mailbox("bob").send(["amy@a/secret", "@a", "amy@a"], "in two scopes")
    until(lambda: State.DEAD == b.delivery(sent.id, "amy@a/secret").state)
    until(lambda: b.left(sent.id, "amy@a") and b.left(sent.id, "@a"))
    assert ["in two scopes"] == a.texts("amy")


def test_an_address_in_pieces_is_one_on_the_socket_too(pair: tuple[System, System]) -> None:
    a, b = pair
    assert b.daemon is not None
    here = {"agent": "ann", "system": "a"}
    for to in (here, [here], [here | {"kind": "cc"}, "bob"], {"agent_id": here}, {"system": "a", "scope": ""}):
        result = b.daemon.ask(action="send", to=to, payload="in pieces", **{"from": "bob"})
        assert result["ok"], result
    until(lambda: ["in pieces"] * 5 == a.texts("ann"))
    result = b.daemon.ask(action="send", to={"agent": "ann", "system": "mars"}, payload="x", **{"from": "bob"})
    assert ("Missing", "to") == (result["name"], result["field"])


def test_an_announced_name_is_found_without_its_system(pair: tuple[System, System]) -> None:
    a, b = pair
    a.is_linked("b")
    until(lambda: _sent_elsewhere(b, "ann"))
    until(lambda: "probe" in a.texts("ann"))
    a.room.mailbox("new").register()
    until(lambda: _sent_elsewhere(b, "new"))
    until(lambda: "probe" in a.texts("new"))


def _sent_elsewhere(system: System, name: str) -> bool:
    receipt = system.room.mailbox("bob").send(name, "probe")
    return bool(system.room.core.store.find(Query(mailbox=f"{name}@a", message_ids=(receipt.id,))))


def test_an_inbox_that_is_full_keeps_the_order_of_those_who_wait(tmp_path: Path) -> None:
    a = System(tmp_path, "a", "ann", "amy", inbox_quota="10")  # five for one sender
    with systems(a, System(tmp_path, "b", "bob", outbox_retry_base="0.05", outbox_retry_cap="0.1")) as (_, b):
        join(b, a)
        for n in range(40):
            b.room.mailbox("bob").send("ann@a", str(n))
        for n in range(5):
            b.room.mailbox("bob").send("amy@a", str(n))
        a.serve()
        b.serve()
        taken: list[str] = []
        until(lambda: len(_acked(a, "ann", taken)) == 40)
        assert [str(n) for n in range(40)] == taken
        assert [str(n) for n in range(5)] == a.texts("amy")


def _acked(system: System, agent: str, taken: list[str]) -> list[str]:
    for one in system.room.mailbox(agent).claim(2):
        taken.append(one.text)
        one.ack()
    return taken


@pytest.mark.parametrize("whom", ["a", "b"])
def test_a_kill_of_either_side_loses_nothing_and_repeats_nothing(tmp_path: Path, whom: str) -> None:
    with systems(System(tmp_path, "a", "ann"), System(tmp_path, "b", "bob")) as (a, b):
        join(b, a)
        a.serve()
        b.serve()
        victim = a if whom == "a" else b
        for n in range(MANY):
            b.room.mailbox("bob").send("ann@a", str(n))
            a.room.mailbox("ann").send("bob@b", str(n))
            if n % 40 == 39:
                victim.stop(signal.SIGKILL)
                victim.serve()
        until(lambda: len(a.texts("ann")) >= MANY and len(b.texts("bob")) >= MANY, 60)
        assert [str(n) for n in range(MANY)] == a.texts("ann") == b.texts("bob")
        until(lambda: not b.room.core.store.find(Query(mailbox="ann@a", states=(State.QUEUED,))))


def test_it_closes_at_once_though_the_other_is_linked(pair: tuple[System, System]) -> None:
    a, b = pair
    b.is_linked("a")
    for system in (a, b):
        began = time.monotonic()
        assert 0 == system.stop()
        assert time.monotonic() - began < 2


def test_the_end_of_a_link_is_reported_in_words(pair: tuple[System, System]) -> None:
    a, b = pair
    b.is_linked("a")
    a.stop()
    assert b.daemon is not None
    daemon = b.daemon
    until(lambda: "there is no link to the system a" in daemon.log())
    assert "the other side ended it: the link has ended" in daemon.log() and "1008" not in daemon.log()


def test_one_that_is_not_trusted_any_more_is_not_heard_nor_written_to(pair: tuple[System, System]) -> None:
    a, b = pair
    b.is_linked("a")
    a.trusts("b", trusted=False)
    until(lambda: b.states()["a"] != "connected")
    b.room.mailbox("bob").send("ann@a", "waits")
    with pytest.raises(NotAllowed, match="not trusted"):
        a.room.mailbox("ann").send("bob@b", "no")
    assert [] == a.texts("ann")
    a.trusts("b", trusted=True)
    until(lambda: ["waits"] == a.texts("ann"), 60)


def test_a_ping_tells_how_long_it_takes_or_what_is_wrong(pair: tuple[System, System]) -> None:
    a, b = pair
    b.is_linked("a")
    assert b.daemon is not None and a.daemon is not None
    result = b.daemon.ask(action="ping_peer", system="a")
    assert (True, "connected") == (result["answers"], result["state"]) and 0 < result["seconds"] < 5
    a.stop()
    until(lambda: b.states()["a"] != "connected")
    result = b.daemon.ask(action="ping_peer", system="a")
    assert (False, "disconnected") == (result["answers"], result["state"])
    assert "postroom serve" in result["hint"] and result["problem"]
    assert b.daemon.ask(action="ping_peer", system="zoo")["error"]


def test_a_letter_that_is_as_large_as_may_be_is_not_too_large_there(pair: tuple[System, System]) -> None:
    a, b = pair
    size = a.room.settings.max_message_bytes - 250
    with pytest.raises(TooLarge):
        a.room.mailbox("ann").send("bob@b", "a" * (size + 100))
    a.room.mailbox("ann").send("bob@b", "a" * size)
    (letter,) = until(lambda: b.room.mailbox("bob").check())
    assert size == len(letter.text)


def test_a_letter_of_many_parts_may_be_as_large_as_any(pair: tuple[System, System]) -> None:
    a, b = pair
    body: list[Any] = ["a" * 450_000, {"type": "data", "data": ["b" * 450_000]}]
    a.room.mailbox("ann").send("bob@b", body)
    a.room.mailbox("ann").send("bob@b", "and what comes after it")
    until(lambda: len(b.texts("bob")) == 2)
    large, after = b.room.mailbox("bob").check()
    assert ("a" * 450_000, "and what comes after it") == (large.text, after.text)
    assert body[1] == large.parts[1].to_json()
