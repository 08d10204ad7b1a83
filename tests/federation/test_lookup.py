"""Letters to an agent of which only the name is known: each goes to one system, whatever the others answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom.federation.link import Link
from postroom.federation.lookup import LookupResult, find
from postroom.model.peer import Peer
from postroom.policy.limits import Limits
from postroom.server.executor import Executor
from tests.daemons import until
from tests.federation.answering import answer, refuse, routed
from tests.federation.systems import System, systems
from tests.map.people import Person, visitor

QUICK = {
    "federation_strategy": "broadcast", "federation_broadcast_timeout": "0.2",
    "outbox_retry_base": "0.05", "outbox_retry_cap": "0.1",
}  # fmt: skip
FIND = "map/federation/find"


class Seeker(System):
    """One that asks its peers `near` and `other`, whom a test plays."""

    def __init__(self, folder: Path, faults: str = "", **agreed: Any) -> None:
        super().__init__(folder, "here", "ann", **QUICK)
        self.tokens = {"near": self.trusts("near", **agreed), "other": self.trusts("other")}
        self.serve(faults=faults)
        self.mailbox = self.room.mailbox("ann")

    @contextmanager
    def played(self, name: str) -> Iterator[Person]:
        with visitor(self.port) as person:
            person.join(self.tokens[name], "gateway", name=name)
            person.ask("map/federation/connect", systemId=name, postroom={"version": "1"})
            yield person


def next_request(person: Person, method: str = FIND, timeout: float = 20) -> dict[str, Any]:
    """The next question of this kind."""
    while True:
        result = person.hear(timeout)
        if result.get("method") == method:
            return result


def says(person: Person, has: bool) -> None:
    answer(person, next_request(person), result={"has": has})


def test_who_does_not_answer_has_not_said_no(tmp_path: Path) -> None:
    with systems(here := Seeker(tmp_path)), here.played("near") as near, here.played("other") as other:
        sent = here.mailbox.send("bob", "who has it?")
        says(other, has=False)
        next_request(near)
        says(near, has=True)  # when it is asked again
        answer(near, routed(near))
        until(lambda: here.left(sent.id, "bob@*"))


def test_a_bug_that_takes_silence_for_a_no_is_found(tmp_path: Path) -> None:
    with systems(here := Seeker(tmp_path, "deaf")), here.played("near") as near, here.played("other") as other:
        sent = here.mailbox.send("bob", "who has it?")
        says(other, has=False)
        next_request(near)
        until(lambda: "dead" == here.delivery(sent.id, "bob@*").state)


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_one_system_may_have_goes_to_no_other(tmp_path: Path, is_killed: bool) -> None:
    with systems(here := Seeker(tmp_path)):
        sent = here.mailbox.send("bob", "once")
        with here.played("near") as near:
            says(near, has=True)
            assert sent.id == routed(near)["params"]["envelope"]["payload"]["id"]
        if is_killed:
            here.stop(9)
            here.serve()
        with here.played("other") as other:
            until(lambda: "connected" == here.states()["other"])
            later = here.mailbox.send("carl", "for who comes later")
            answer(other, found := next_request(other), result={"has": True})
            assert "carl" == found["params"]["agent"]  # it is not even asked for the first
            letter = routed(other)
            assert later.id == letter["params"]["envelope"]["payload"]["id"]
            answer(other, letter)
            until(lambda: here.left(later.id, "carl@*"))
        with here.played("near") as near:
            letter = routed(near)
            assert sent.id == letter["params"]["envelope"]["payload"]["id"]
            answer(near, letter)
            until(lambda: here.left(sent.id, "bob@*"))


def test_one_that_may_have_it_and_is_busy_keeps_it(tmp_path: Path) -> None:
    """What it says of now says nothing of the time before the line was cut."""
    with systems(here := Seeker(tmp_path)):
        sent = here.mailbox.send("bob", "once")
        with here.played("near") as near:
            says(near, has=True)
            routed(near)
        with here.played("near") as near, here.played("other") as other:
            refuse(near, routed(near), 5000, "busy")
            later = here.mailbox.send("carl", "for who comes later")
            answer(other, found := next_request(other), result={"has": True})
            assert "carl" == found["params"]["agent"]
            answer(other, routed(other))
            until(lambda: here.left(later.id, "carl@*"))
            answer(near, routed(near))
            until(lambda: here.left(sent.id, "bob@*"))


def test_a_bug_that_takes_it_from_who_is_busy_is_found(tmp_path: Path) -> None:
    with systems(here := Seeker(tmp_path, "forgetful")):
        sent = here.mailbox.send("bob", "twice")
        with here.played("near") as near:
            says(near, has=True)
            routed(near)
        with here.played("near") as near, here.played("other") as other:
            refuse(near, routed(near), 5000, "busy")
            says(other, has=True)
            assert sent.id == routed(other)["params"]["envelope"]["payload"]["id"]


def test_one_that_is_busy_and_cannot_have_it_leaves_it_to_another(tmp_path: Path) -> None:
    with systems(here := Seeker(tmp_path)), here.played("near") as near, here.played("other") as other:
        sent = here.mailbox.send("bob", "once")
        says(near, has=True)
        refuse(near, routed(near), 5000, "busy")
        next_request(other)
        says(other, has=True)
        answer(other, routed(other))
        until(lambda: here.left(sent.id, "bob@*"))


def test_a_bug_that_gives_it_to_the_next_one_is_found(tmp_path: Path) -> None:
    with systems(here := Seeker(tmp_path, "generous")):
        sent = here.mailbox.send("bob", "twice")
        with here.played("near") as near:
            says(near, has=True)
            routed(near)
        with here.played("other") as other:
            says(other, has=True)
            assert sent.id == routed(other)["params"]["envelope"]["payload"]["id"]


def test_who_refuses_it_leaves_it_to_the_next_that_has_it(tmp_path: Path) -> None:
    with systems(here := Seeker(tmp_path)), here.played("near") as near, here.played("other") as other:
        sent = here.mailbox.send("bob", "for one of you")
        says(near, has=True)
        refuse(near, routed(near), 5003, "not in this scope")
        next_request(other)  # the first time, when the other one was quicker
        says(other, has=True)
        answer(other, routed(other))
        until(lambda: here.left(sent.id, "bob@*"))


def test_one_that_our_scopes_forbid_leaves_it_to_the_next(tmp_path: Path) -> None:
    here = Seeker(tmp_path, scopes={"ops": ("near",)})
    with systems(here), here.played("near") as near, here.played("other") as other:
        sent = here.mailbox.send("bob", "not of ops")
        says(near, has=True)
        next_request(other)
        says(other, has=True)
        answer(other, routed(other))
        until(lambda: here.left(sent.id, "bob@*"))


def test_where_all_refuse_it_the_sender_is_shown_why(tmp_path: Path) -> None:
    with systems(here := Seeker(tmp_path)), here.played("near") as near, here.played("other") as other:
        here.mailbox.send("bob", "for one of you")
        says(near, has=True)
        refuse(near, routed(near), 5003, "not in this scope")
        next_request(other)
        says(other, has=False)
        (bounce,) = until(here.mailbox.check)
        assert "near: not in this scope" in bounce.text


def test_a_system_above_that_is_away_is_waited_for() -> None:
    limits = Limits(federation_strategy="hierarchical", federation_upstream="hub")

    async def story(room: postroom.Room) -> None:
        executor = Executor(room.core)
        hub, side = (Link(executor, Peer(system=name), "here", lambda: None) for name in ("hub", "side"))
        assert LookupResult(None, False) == await find([hub, side], "bob", limits)
        assert LookupResult(None, True) == await find([side], "bob", limits)
        assert LookupResult(None, True) == await find([hub], "bob", limits, without={"hub"})
        await executor.close()

    with postroom.open("memory:") as room:
        asyncio.run(story(room))
