"""What a system is refused that is no peer, or says what it may not, on connections to a post room that serves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

import postroom
from postroom import Room
from postroom.core import peers, tokens
from postroom.core.authorize import OWNER
from postroom.core.verb import perform
from postroom.federation.link import Link
from postroom.federation.peer_calls import PeerHandler
from postroom.formats.federation import read_refusal
from postroom.model.peer import Peer
from postroom.model.query import Query
from postroom.model.record import ROUTE
from postroom.server.executor import Executor
from tests.federation.systems import System, systems
from tests.map.people import Person, Refused, closed, refused, visitor

NOW = 1_900_000_000_000


class ReceivingSystem:
    """A post room `here` with two peers, one of which may go further."""

    def __init__(self, folder: Path) -> None:
        self.system = System(folder, "here", "ann", "amy", "full", inbox_quota="30")
        self.tokens = {
            "near": self.system.trusts("near"),
            "other": self.system.trusts("other", relays_for=("far",), relays_to=True),
        }
        self.system.serve()

    def texts(self) -> list[str]:
        return self.system.texts("ann")


@pytest.fixture(scope="module")
def receiving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReceivingSystem]:
    found = ReceivingSystem(tmp_path_factory.mktemp("room"))
    with systems(found.system):
        yield found


@pytest.fixture
def near(receiving: ReceivingSystem) -> Iterator[Person]:
    with peer(receiving, "near") as person:
        yield person


class peer:  # noqa: N801 - reads as a word
    """One that has connected as a system, with that system's token or another's."""

    def __init__(self, receiving: ReceivingSystem, name: str, token: str | None = None) -> None:
        self._house, self._name = receiving, name
        self._token = receiving.tokens.get(name, "") if token is None else token

    def __enter__(self) -> Person:
        self._visitor = visitor(self._house.system.port)
        person = self._visitor.__enter__()
        person.join(self._token, "gateway", name=self._name)
        person.ask("map/federation/connect", systemId=self._name)
        return person

    def __exit__(self, *_: object) -> None:
        self._visitor.__exit__(None, None, None)


def envelope(id: str, to: Any = "ann", **text: Any) -> dict[str, Any]:
    way = {"sourceSystem": "near", "targetSystem": "here", "hopCount": 0, "path": ["near"], "originTimestamp": NOW}
    message = {"id": id, "from": "eve", "to": {"agent": to}, "timestamp": NOW, "payload": text.pop("text", id)}
    return {"payload": message | text.pop("message", {}), "federation": way | text}


def route(person: Person, *value: Any, method: str = "map/federation/route", **message: Any) -> Any:
    return person.ask(method, systemId="here", envelope=envelope(*value, **message))


def refusal(person: Person, *value: Any, **message: Any) -> int:
    return refused(person, "map/federation/route", systemId="here", envelope=envelope(*value, **message))


# -- who it is


def test_a_peer_is_let_in_by_its_token_and_its_letter_is_kept(receiving: ReceivingSystem, near: Person) -> None:
    assert {"routed": True, "messageId": "first"} == route(near, "first")
    assert {"routed": True, "messageId": "dotted"} == route(near, "dotted", method="map/federation.route")
    assert {"first", "dotted"} <= set(receiving.texts())


def test_who_is_no_peer_or_shows_a_wrong_token_is_not_let_in(receiving: ReceivingSystem) -> None:
    for name, token in (("near", "wrong"), ("nobody", "wrong"), ("nobody", receiving.tokens["near"])):
        with visitor(receiving.system.port) as person:
            text = person.join(token, "gateway", name=name)
            if "sessionId" in text:  # a token that is good, by another name: it is found when it says who it is
                assert 5002 == refused(person, "map/federation/connect", systemId=name)
            else:
                assert text["authRequired"]["required"]
                proof = {"method": "bearer", "credentials": token}
                assert 5002 == refused(person, "map/federation/connect", systemId=name, auth=proof)
            assert refused(person, "map/federation/route", envelope=envelope("never")) in {1000, 5002}


def test_another_peers_token_is_not_good_for_this_one(receiving: ReceivingSystem) -> None:
    with visitor(receiving.system.port) as person:
        person.join(receiving.tokens["other"], "gateway", name="other")
        assert 5002 == refused(person, "map/federation/connect", systemId="near")


def test_a_token_may_be_shown_with_the_first_word_of_the_federation(receiving: ReceivingSystem) -> None:
    with visitor(receiving.system.port) as person:
        proof = {"method": "bearer", "credentials": receiving.tokens["near"]}
        result = person.ask("map/federation.connect", systemId="near", endpoint="", auth=proof)
        assert (True, "here") == (result["connected"], result["systemId"])
        assert {"ann", "amy", "full"} == {row["agentId"] for row in result["exposure"]["agents"]}
        assert route(person, "mesh")["routed"]


def test_who_is_removed_or_rotated_after_its_proof_is_not_welcome(receiving: ReceivingSystem) -> None:
    core = receiving.system.room.core

    def remove(system: str) -> None:
        perform(core, OWNER, peers.RemovePeer(system=system))

    def rotate(system: str) -> None:
        perform(core, OWNER, peers.RotatePeer(system=system))

    def distrust(system: str) -> None:
        perform(core, OWNER, peers.TrustPeer(system=system, trusted=False))

    for change in (rotate, distrust, remove):
        if peers.peer(core, "brief") is not None:
            remove("brief")
        token = receiving.system.trusts("brief")
        with visitor(receiving.system.port) as person:
            person.join(token, "gateway", name="brief")
            change("brief")
            params = {"systemId": "brief", "exposure": {"agents": [{"agentId": "everybody"}]}}
            assert 5002 == refused(person, "map/federation/connect", **params)
    assert not core.store.records(ROUTE, "everybody")


def test_agents_and_operators_speak_for_no_system(receiving: ReceivingSystem) -> None:
    room = receiving.system.room
    for agent in ("ann", None):
        token = perform(room.core, room.principal, tokens.CreateToken(agent=agent)).text
        with visitor(receiving.system.port) as person:
            person.join(token, "agent", name="ann")
            proof = {"method": "bearer", "credentials": receiving.tokens["near"]}
            assert 5002 == refused(person, "map/federation/connect", systemId="near", auth=proof)
            assert 5002 == refused(person, "map/federation/route", envelope=envelope("never"))
    assert "never" not in receiving.texts()


def test_a_peer_reads_no_directory_and_has_no_agents(near: Person) -> None:
    for method, message in (
        ("map/agents/list", {}),
        ("map/agents/register", {"name": "spy"}),
        ("map/send", {"to": {"agent": "ann"}, "payload": "x"}),
        ("map/subscribe", {}),
        ("map/replay", {}),
        ("mail/list", {}),
    ):
        with pytest.raises(Refused):
            near.ask(method, **message)


# -- what it says


@pytest.mark.parametrize(
    ("code", "params"),
    [
        (5003, {"sourceSystem": "other", "path": ["other"]}),  # it does not speak for that
        (5003, {"sourceSystem": "here"}),
        (5010, {"path": ["near", "here"]}),
        (5011, {"hopCount": 10}),
        (5011, {"hopCount": 2, "maxHops": 2}),
        (5003, {"targetSystem": "other"}),  # this peer goes no further
        (5003, {"message": {"from": "eve@other"}}),
        (5003, {"message": {"from": "postmaster", "to": {}}}),
        (5003, {"message": {"to": {"agent": "nobody"}}}),
        (5003, {"message": {"id": "../etc"}}),
        (5003, {"path": "near"}),
    ],
)
def test_what_a_peer_may_not_say_is_refused(
    receiving: ReceivingSystem, near: Person, code: int, params: dict[str, Any]
) -> None:
    assert code == refusal(near, "forged", **params)
    assert "forged" not in receiving.texts()


@pytest.mark.parametrize(
    "ours",
    [
        {"created_at": "2026-01-01T00:00:00"},
        {"expires_at": "2096-01-01T00:00:00"},
        {"task": {"id": "t", "state": "pending", "deadline": "2096-01-01T00:00:00"}, "kind": "task"},
    ],
)
def test_a_time_without_a_zone_is_refused(receiving: ReceivingSystem, near: Person, ours: dict[str, Any]) -> None:
    assert 5003 == refusal(near, "zoneless", message={"meta": {"_meta": {"postroom": ours}}})
    assert "zoneless" not in receiving.texts()


def test_what_is_said_in_the_wrong_shape_is_answered_all_the_same(
    receiving: ReceivingSystem, near: Person
) -> None:
    odd = {"meta": {"_meta": {"postroom": {"targets": [{"agent": ["ann"], "scope": "x"}]}}}}
    assert route(near, "odd", message=odd)["routed"]
    after = {"systemId": "here", "envelope": envelope("behind"), "after": {"ann": [1]}}
    assert near.ask("map/federation/route", **after)["routed"]


def test_a_fault_of_ours_is_answered_and_the_letter_waits() -> None:
    class Faulty(PeerHandler):
        def _find(self, params: dict[str, Any]) -> dict[str, Any]:
            raise ZeroDivisionError(params)

    async def ask(room: Room) -> dict[str, Any]:
        executor = Executor(room.core)
        try:
            serving = Faulty(Link(executor, Peer(system="near"), "here", lambda: None))
            return await serving.answer("map/federation/find", {"agent": "ann"})
        finally:
            await executor.close()

    with postroom.open("memory:") as room:
        result = asyncio.run(ask(room))
    assert (5000, True) == (result["error"]["code"], read_refusal(result["error"]).waits)


def test_a_system_that_nobody_leads_to_is_not_found(receiving: ReceivingSystem) -> None:
    with peer(receiving, "other") as other:
        code = refused(
            other,
            "map/federation/route",
            envelope=envelope("lost", sourceSystem="far", path=["far", "other"], targetSystem="mars"),
        )
        assert 5001 == code


def test_a_letter_that_comes_again_is_confirmed_and_another_of_its_id_is_not(
    receiving: ReceivingSystem, near: Person
) -> None:
    for _ in range(3):
        assert route(near, "again", text="the same")["routed"]
    assert 5003 == refusal(near, "again", text="something else")
    assert 1 == receiving.texts().count("the same") and "something else" not in receiving.texts()
    with peer(receiving, "near") as once_more:
        assert route(once_more, "again", text="the same")["routed"]
    assert 1 == receiving.texts().count("the same")


def test_one_that_waits_keeps_those_behind_it(receiving: ReceivingSystem, near: Person) -> None:
    room = receiving.system.room
    for n in range(30):
        room.mailbox(f"sender{n}").send("full", str(n))
    params = {"systemId": "here", "envelope": envelope("one", "full")}
    assert 4002 == refused(near, "map/federation/route", **params)
    for work in room.mailbox("full").claim(10):
        work.ack()
    later = {"systemId": "here", "envelope": envelope("two", "full"), "after": {"full": "one"}}
    with pytest.raises(Refused) as result:
        near.ask("map/federation/route", **later)
    assert (5000, "after") == (result.value.code, result.value.data["details"]["field"])
    third = {"systemId": "here", "envelope": envelope("three", "full"), "after": {"full": "two"}}
    assert 5000 == refused(near, "map/federation/route", **third)
    for again in (params, later, third):
        assert near.ask("map/federation/route", **again)["routed"]
    assert ["one", "two", "three"] == receiving.system.texts("full")[-3:]


def test_some_of_those_a_letter_is_for_may_not_be_there(receiving: ReceivingSystem, near: Person) -> None:
    result = route(near, "several", message={"to": {"agents": ["ann", "nobody"]}})
    (row,) = result["refused"]
    assert (True, "nobody", 5003, False) == (result["routed"], row["agent"], row["code"], row["temporary"])
    assert "several" in receiving.texts()


def test_only_agents_that_may_be_written_to_are_found(near: Person) -> None:
    assert {"has": True, "status": "idle", "agentId": "ann"} == near.ask("map/federation/find", agent="ANN")
    assert {"has": False} == near.ask("map/federation/find", agent="nobody")


def test_agents_that_a_peer_announces_are_in_the_table(receiving: ReceivingSystem, near: Person) -> None:
    def announced(*names: str) -> None:
        rows = [{"agentId": name, "status": "active"} for name in names]
        assert near.ask("map/federation/announce", systemId="near", exposure={"agents": rows})["announced"]

    def goes_to(name: str) -> str:
        receipt = receiving.system.room.mailbox("ann").send(name, "x")
        (found,) = receiving.system.room.core.store.find(Query(message_ids=(receipt.id,)))
        return found.delivery.mailbox

    announced("zoe", "yan")
    assert "zoe@near" == goes_to("zoe")
    announced("yan")
    assert ("zoe", "yan@near") == (goes_to("zoe"), goes_to("yan"))


def test_who_tells_faster_than_is_noted_fills_no_memory() -> None:
    """Of what was told meanwhile, the last counts."""
    noted: list[Any] = []

    class Counting(PeerHandler):
        def _announce(self, params: dict[str, Any]) -> dict[str, Any]:
            noted.append(params["exposure"])
            return {}

    async def announce(room: Room) -> None:
        executor = Executor(room.core)
        serving = Counting(Link(executor, Peer(system="near"), "here", lambda: None))
        for n in range(1000):
            serving.notified("map/federation/announce", {"exposure": {"agents": [n]}})
        while not noted or noted[-1] != {"agents": [999]}:
            await asyncio.sleep(0)
        await serving.call("map/federation/announce", {"exposure": {"agents": ["at once"]}})
        while noted[-1] != {"agents": ["at once"]}:
            await asyncio.sleep(0.01)
        await executor.close()

    with postroom.open("memory:") as room:
        asyncio.run(asyncio.wait_for(announce(room), 20))
    assert 2 == len(noted)


def test_after_it_parted_it_is_not_heard(near: Person) -> None:
    assert {"disconnected": True} == near.ask("map/federation/disconnect", systemId="near")
    assert 5002 == refusal(near, "late")
    near.ask("map/federation/connect", systemId="near")
    assert route(near, "late")["routed"]


def test_a_new_dial_ends_the_connection_before(receiving: ReceivingSystem, near: Person) -> None:
    with peer(receiving, "near") as again:
        assert 1008 == closed(near)
        assert route(again, "anew")["routed"]


def test_another_system_may_speak_in_lines_on_the_socket(receiving: ReceivingSystem) -> None:
    assert receiving.system.daemon is not None
    proof = {"method": "bearer", "credentials": receiving.tokens["near"]}
    with receiving.system.daemon.line() as line:

        def ask(method: str, **params: Any) -> Any:
            result = line.ask({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
            while "method" in result:  # mail for it, which it leaves unanswered
                result = line.hear()
            return result

        assert ask("map/federation.connect", systemId="near", auth=proof)["result"]["connected"]
        assert ask("map/federation.route", systemId="here", envelope=envelope("lines"))["result"]["routed"]
        assert "error" in ask("map/agents.list")
    with receiving.system.daemon.line() as line:
        wrong = {"method": "bearer", "credentials": "wrong"}
        assert 5002 == ask("map/federation.connect", systemId="near", auth=wrong)["error"]["code"]


def test_the_log_says_once_who_was_refused_and_why_and_nothing_of_pings(tmp_path: Path) -> None:
    with systems(System(tmp_path, "here")) as (here,):
        token = here.trusts("near")
        here.trusts("former", trusted=False)
        here.serve()
        for name in ("near", "nobody", "former", "near", "nobody"):
            with visitor(here.port) as person:
                person.join("wrong", "gateway", name=name)
        with visitor(here.port) as person:
            person.join(token, "gateway", name="near")
            assert 5002 == refused(person, "map/federation/connect", systemId="other")
            assert -32601 == refused(person, "map/ping")
        with pytest.raises(InvalidStatus, match="403"):
            visitor(here.port, origin="https://elsewhere.example").__enter__()
        assert here.daemon is not None
        log = here.daemon.log()
    reasons = {"near": "did not prove", "nobody": "no peer of", "former": "not trusted", "other": "is 'near'"}
    for name, why in reasons.items():
        (line,) = [line for line in log.splitlines() if f"calls itself '{name}' is refused" in line]
        assert why in line
    assert "page of another site" in log and "map/ping" not in log and "wrong" not in log
