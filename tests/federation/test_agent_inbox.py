"""agent-inbox as a peer: it registers as a gateway, as an agent does, and shows no token."""

from __future__ import annotations

import ipaddress
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from postroom.model.delivery import State
from postroom.model.query import Query
from postroom.server.streams import MAX_WAITING_BYTES
from postroom.store.protocol import spelling_of
from tests.daemons import until
from tests.federation.systems import System, systems
from tests.federation.test_certificates import Secure
from tests.map.people import Person, Refused, refused, visitor


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with systems(System(tmp_path_factory.mktemp("near"), "here", "ann")) as (one,):
        one.trusts("inbox", auth="none")
        one.trusts("other")
        yield one.serve()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[System]:
    """A post room to which nothing happened before."""
    with systems(System(tmp_path, "here", "ann")) as (one,):
        one.trusts("inbox", auth="none")
        yield one.serve()


@pytest.fixture
def inbox(here: System) -> Iterator[Person]:
    with gateway(here) as person:
        yield person


@contextmanager
def gateway(here: System, name: str = "inbox") -> Iterator[Person]:
    with visitor(here.port) as person:
        person.join(name=name)
        person.register(name=name, role="gateway", scopes=["federation"])
        yield person


def meta(id: str, **more: Any) -> dict[str, Any]:
    return {"messageId": id, "senderId": "bob", "sourceSystem": "inbox", "targetAgent": "ann"} | more


def test_it_is_a_system_and_no_agent(here: System, inbox: Person) -> None:
    assert "inbox" == inbox.id
    assert "inbox" not in {agent.card.id for agent in here.room.agents()}
    for method, message in (
        ("map/agents/list", {}),
        ("map/agents/register", {"name": "spy"}),
        ("map/agents/spawn", {"parent": "inbox", "name": "spy"}),
        ("map/subscribe", {}),
        ("mail/list", {}),
        ("map/federation/connect", {"systemId": "inbox"}),
    ):
        with pytest.raises(Refused):
            inbox.ask(method, **message)


def test_a_letter_that_it_sends_again_is_one_letter(here: System, inbox: Person) -> None:
    message = meta("m-1", ttlMs=60_000)
    for _ in range(2):
        assert {"messageId": "m-1", "delivered": ["ann"]} == inbox.send({"agentId": "ann"}, "again", **message)
    with gateway(here) as anew:
        anew.send({"agentId": "ann"}, "again", **message)
        with pytest.raises(Refused):
            anew.send({"agentId": "ann"}, "something else", **message)
    assert 1 == here.texts("ann").count("again")


@pytest.mark.parametrize(
    "params",
    [
        {"sourceSystem": "other"},
        {"sourceSystem": "here"},
        {"sourceSystem": 7},
        {"senderId": "bob@other"},
        {"senderId": None},
        {"messageId": "../x"},
        {"messageId": None},
    ],
)
def test_it_speaks_for_its_own_agents_alone(here: System, inbox: Person, params: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        inbox.send({"agentId": "ann"}, "forged", **meta("forged", **params))
    assert "forged" not in here.texts("ann")


def test_without_its_words_it_says_nothing(inbox: Person) -> None:
    assert -32602 == refused(inbox, "map/send", to={"agentId": "ann"}, payload="x")


def test_nothing_is_handed_to_it_before_it_hears(alone: System) -> None:
    alone.room.mailbox("ann").send("bob@inbox", "waits")
    with gateway(alone) as person:
        person.is_mute = True
        question = person.hear()
        assert "map/ping" == question["method"] and person.hears_nothing()
        person.line.send(json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": {}}))
        assert "bob" == person.message()["meta"]["targetAgent"]


def test_a_letter_without_a_receipt_stays_and_comes_again(alone: System) -> None:
    with gateway(alone) as person:
        alone.is_linked("inbox")
        sent = alone.room.mailbox("ann").send("bob@inbox", "unheard", thread_tag="t")
        first = person.message()
        assert {"messageId": sent.id, "targetAgent": "bob", "threadTag": "t"}.items() <= first["meta"].items()
        assert State.QUEUED == alone.delivery(sent.id, "bob@inbox").state
    with gateway(alone) as person:
        assert first == person.message()
        person.until(lambda: alone.left(sent.id, "bob@inbox"))


def test_a_letter_that_fills_the_connection_waits_for_room_and_ends_nothing(alone: System) -> None:
    """The question for the receipt finds no room behind it, and is asked once there is some."""
    big = "x" * (MAX_WAITING_BYTES + 1000)
    with gateway(alone) as person:
        alone.is_linked("inbox")
        for subject in ("first", "second"):
            sent = alone.room.mailbox("ann").send("bob@inbox", big, subject=subject)
            assert subject == person.message()["meta"]["subject"]
            person.until(partial(alone.left, sent.id, "bob@inbox"))


def test_no_other_client_is_let_in_without_a_token(here: System) -> None:
    for name in ("stranger", "other"):  # the second is a peer, with a token
        with visitor(here.port) as person:
            assert "authRequired" in person.join(name=name)
            assert 1000 == refused(person, "map/agents/register", name=name, role="gateway")


def test_under_the_name_of_a_system_only_a_gateway_registers(here: System) -> None:
    with visitor(here.port) as person:
        person.join(name="inbox")
        for message in ({"name": "inbox", "role": "worker"}, {"name": "ann", "role": "gateway"}):
            with pytest.raises(Refused):
                person.register(**message)
        with pytest.raises(Refused):
            person.send({"agentId": "ann"}, "early", **meta("early"))
    assert "early" not in here.texts("ann")


def test_its_sender_is_notified_once_that_a_letter_was_refused(alone: System) -> None:
    alone.trusts("inbox", exposure="tagged", tags=("public",))
    lost = {"to": {"agentId": "nobody"}, "payload": "x", "meta": meta("lost", subject="S")}
    with gateway(alone) as person:
        for _ in range(2):
            assert 2001 == refused(person, "map/send", **lost)
        result = person.message()
        assert ("postmaster", "Undeliverable: S", "lost") == (
            result["from"], result["meta"]["subject"], result["meta"]["inReplyTo"],
        )  # fmt: skip
        assert not spelling_of(alone.room.core.store, "nobody")
        alone.room.mailbox("nobody").register()
        assert 1003 == refused(person, "map/send", **lost)  # for another reason now
        with pytest.raises(Refused):  # one that answers everything is not answered
            person.send({"agentId": "postmaster"}, "thank you", **meta("thanks"))
        assert person.hears_nothing()


def test_a_temporary_refusal_is_not_reported_to_the_sender(tmp_path: Path) -> None:
    with systems(System(tmp_path, "here", "ann", inbox_quota="1")) as (one,):
        one.trusts("inbox", auth="none")
        one.serve()
        with gateway(one) as person:
            person.send({"agentId": "ann"}, "first", **meta("first"))
            assert 4002 == refused(person, "map/send", to={"agentId": "ann"}, payload="x", meta=meta("second"))
            assert person.hears_nothing()
            one.room.mailbox("ann").check()
            person.send({"agentId": "ann"}, "x", **meta("second"))
        assert ["first", "x"] == one.texts("ann")


def test_one_that_is_distrusted_is_ended(alone: System) -> None:
    with gateway(alone) as person:
        alone.trusts("inbox", trusted=False)
        with pytest.raises((Refused, ConnectionClosed)):
            person.send({"agentId": "ann"}, "late", **meta("late"))
    assert "late" not in alone.texts("ann")
    with visitor(alone.port) as person:
        until(lambda: "inbox" not in alone.states())
        assert "authRequired" in person.join(name="inbox")


def test_in_an_open_room_only_a_peer_is_one(tmp_path: Path) -> None:
    with systems(System(tmp_path, "here", "ann")) as (one,):
        one.trusts("inbox", auth="none")
        one.serve("--map", "open")
        with gateway(one, "stranger") as person:
            person.send({"agentId": "ann"}, "as an agent", **meta("s-1"))
        with visitor(one.port) as person:
            person.join(name="worker")
            person.register(name="inbox", role="worker")
        with gateway(one) as person:
            person.send({"agentId": "ann"}, "as a system", **meta("s-2"))
        found = one.room.core.store.find(Query(mailbox="ann", order="age"))
        assert ["stranger", "bob@inbox"] == [letter.message.sender for letter in found]
        assert {"stranger", "inbox"} <= {agent.card.id for agent in one.room.agents()}


def test_one_on_another_machine_is_not_let_in_without_a_token(tmp_path: Path) -> None:
    """As it looks to the post room: a connection that does not come from an address of loopback."""
    address = ""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as place:
        place.connect(("192.0.2.1", 9))  # sends nothing
        address = place.getsockname()[0]
    if not address or ipaddress.ip_address(address).is_loopback:
        pytest.skip("this machine has no address but its own")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with systems(Secure(tmp_path, "here", "ann")) as (one,):
        one.trusts("inbox", auth="none")
        one.serve("--http", f"0.0.0.0:{one.port}", "--http-name", address)
        for host, is_let_in in (("127.0.0.1", True), (address, False)):
            with connect(f"wss://{host}:{one.port}/map", ssl=context, compression=None) as line:
                assert is_let_in is ("sessionId" in Person(line).join(name="inbox"))
