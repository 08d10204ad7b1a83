"""Clients that are wrong, slow, greedy or hostile: refused or bounded, logged once, nothing to the others."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from websockets.asyncio.client import connect as async_connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from postroom.errors import QuotaFull
from postroom.formats.map import number_of, request
from postroom.map.connection import MOST_JUNK, MOST_OF_ONE, MOST_SUBSCRIPTIONS, MOST_TRIES
from postroom.map.session import MOST_AGENTS, MapSession
from tests.daemons import until
from tests.map.people import Person, Refused, agent, closed, refused, visitor
from tests.server.http.running import Daemon, daemon, make_token, memory_of, open_server, port_of

MOST_MEMORY = 30_000_000  # bytes that a bad client may cost


@pytest.fixture(scope="module")
def pair(port: int, operator: str) -> Iterator[tuple[Person, Person]]:
    with agent(port, operator, "good") as good, agent(port, operator, "kind") as kind:
        yield good, kind


@pytest.fixture
def others(pair: tuple[Person, Person]) -> Iterator[None]:
    """Two who talk to each other before and after, on the same connections."""
    good, kind = pair
    for when in ("before", "after"):
        good.send("kind", when)
        assert when == kind.message()["payload"]
        if when == "before":
            yield


@pytest.fixture(scope="module")
def bad(port: int, operator: str) -> Iterator[Person]:
    """Somebody who says what is wrong, again and again."""
    with agent(port, operator, "bad") as person:
        yield person


pytestmark = pytest.mark.usefixtures("others")


@pytest.mark.parametrize("version", [2, 0, "2024-12", None, "x", [1], True])
def test_another_version_of_the_protocol_is_refused(port: int, operator: str, version: Any) -> None:
    with visitor(port) as person:
        auth = {"method": "api-key", "credential": operator}
        params = {"participantType": "agent", "auth": auth, "protocolVersion": version}
        assert -32602 == refused(person, "map/connect", **params)
        assert 1000 == refused(person, "map/agents/list")
        assert person.ask("map/connect", **params | {"protocolVersion": 1})["sessionId"]  # it may say it better


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("map/connect", {}),
        ("map/connect", {"protocolVersion": 1, "participantType": "boss"}),
        ("map/connect", {"protocolVersion": 1, "participantType": 7}),
        ("map/connect", {"protocolVersion": 1, "participantType": "agent", "auth": "token"}),
        ("map/authenticate", {}),
        ("map/authenticate", {"method": ["api-key"]}),
    ],
)
def test_a_first_word_without_its_fields_is_refused(port: int, method: str, params: dict[str, Any]) -> None:
    with visitor(port) as person:
        assert -32602 == refused(person, method, **params)


@pytest.mark.parametrize(
    ("method", "message", "code"),
    [
        ("map/send", {}, -32602),
        ("map/send", {"to": {}}, -32602),
        ("map/send", {"to": "no such name!"}, -32602),
        ("map/send", {"to": "x", "meta": "high"}, -32602),
        ("map/agents/get", {}, -32602),
        ("map/agents/register", {"name": "!!!"}, -32602),
        ("map/agents/register", {"name": "x", "scopes": "red"}, -32602),
        ("map/agents/register", {"name": "postmaster"}, -32602),
        ("map/agents/spawn", {"name": "x"}, -32602),
        ("map/scopes/join", {}, -32602),
        ("map/subscribe", {"filter": {"colour": "red"}}, -32602),
        ("map/subscribe", {"replayFrom": "nowhere"}, -32602),
        ("map/nothing", {}, -32601),
        ("mail/send", {}, -32601),
        ("map/inject", {"agentId": "bad"}, -32601),
        ("map/federation/route", {}, 5002),
        ("mail/get", {"conversationId": "none"}, 10000),
        ("map/agents/get", {"agentId": "nobody"}, 2001),
        ("map/scopes/get", {"scopeId": "nowhere"}, 2002),
    ],
)
def test_what_is_wrong_is_reported_by_a_number(bad: Person, method: str, message: Any, code: int) -> None:
    assert code == refused(bad, method, **message)
    assert bad.ask("map/agents/get", agentId="bad")["agent"]["id"] == "bad"


@pytest.mark.parametrize(
    "junk",
    ["", "{", "nonsense", "7", "null", "[]", "[" * 5000, '{"a": NaN}', "\x00", '{"jsonrpc": "1.0", "method": "x"}',
     '[{"jsonrpc": "2.0", "id": 1, "method": "map/agents/list"}]', '{"jsonrpc": "2.0", "id": {}, "method": "x"}'],
)  # fmt: skip
def test_an_invalid_message_is_reported_and_the_session_goes_on(bad: Person, junk: str) -> None:
    bad.line.send(junk)
    assert bad.hear()["error"]["code"] in {-32700, -32600}
    assert bad.ask("map/agents/list")["agents"]


@pytest.mark.parametrize(
    "payload", [r'"\u0000"', r'"\ud800"', "[" * 90 + "]" * 90, "NaN", '{"a": 1, "a": 2}', "1" * 400]
)
def test_a_call_that_holds_what_no_letter_may_is_answered_by_its_id(bad: Person, payload: str) -> None:
    params = f'{{"to": {{"agent": "bad"}}, "payload": {payload}}}'
    for _ in range(MOST_JUNK + 1):  # it is a call, and no junk
        bad.line.send(f'{{"jsonrpc": "2.0", "id": 77, "method": "map/send", "params": {params}}}')
        result = bad.hear()
        assert (77, -32602) == (result["id"], result["error"]["code"])


def test_notifications_and_answers_to_nothing_are_not_answered(bad: Person) -> None:
    for message in ({"method": "map/none"}, {"method": "map/agents/stop", "params": {}}, {"id": 9, "result": 1},
                 {"id": 9, "error": {}}, {"method": "map/send", "params": {}}):  # fmt: skip
        bad.line.send(json.dumps({"jsonrpc": "2.0", **message}))
    assert "idle" == bad.ask("map/agents/get", agentId="bad")["agent"]["state"]


def test_one_who_says_nothing_but_junk_is_ended(port: int) -> None:
    with visitor(port) as bad:
        for _ in range(100):
            bad.line.send("junk")
        assert 1008 == closed(bad)


def test_a_giant_frame_ends_it(running: Daemon, port: int) -> None:
    before = memory_of(running.process.pid)
    with visitor(port) as bad:
        with suppress(ConnectionClosed):  # it may be ended while it still sends
            bad.line.send("x" * 3_000_000)
        with pytest.raises(ConnectionClosed):
            bad.hear()
    assert memory_of(running.process.pid) < before + MOST_MEMORY


def test_frames_that_are_no_text_end_it(port: int) -> None:
    with visitor(port) as bad:
        bad.line.send(b"\x00\x01")
        assert 1003 == closed(bad)


def test_a_thousand_subscriptions_are_too_many(port: int, operator: str) -> None:
    with visitor(port) as greedy:
        greedy.join(operator, kind="client")
        last = [greedy.ask("map/subscribe", filter={"eventTypes": ["message.*"]}) for _ in range(100)][-1]
        assert {4002} == {refused(greedy, "map/subscribe") for _ in range(900)}
        greedy.ask("map/unsubscribe", subscriptionId=last["subscriptionId"])
        assert greedy.ask("map/subscribe")["subscriptionId"]


def test_many_connections_of_one_have_no_more_subscriptions_than_a_few(running: Daemon, port: int) -> None:
    greedy, modest = running.token(), running.token()
    with ExitStack() as stack:
        people = [stack.enter_context(visitor(port)) for _ in range(4)]
        for person in people[:3]:
            person.join(greedy, kind="client")
        for number in range(MOST_OF_ONE):
            people[number % 2].ask("map/subscribe", filter={"eventTypes": ["scope.created"]})
        assert 4002 == refused(people[2], "map/subscribe")
        people[3].join(modest, kind="client")
        assert people[3].ask("map/subscribe")["subscriptionId"]
        people[0].line.close()
        until(lambda: is_taken(people[2]))


def is_taken(person: Person) -> bool:
    try:
        return bool(person.ask("map/subscribe"))
    except Refused:
        return False


def test_agents_without_end_are_too_many() -> None:
    session = MapSession("s")
    session.step("admit")
    for number in range(MOST_AGENTS):
        session.take(f"a{number}")
    with pytest.raises(QuotaFull) as result:
        session.take("one-more")
    assert 4002 == number_of(result.value)


def test_one_who_does_not_read_costs_little_and_loses_nothing(running: Daemon, port: int, operator: str) -> None:
    """Ten megabytes of mail for somebody who does not read; when it reads, all of it is there."""
    with agent(port, operator, "lazy"):
        pass
    with agent(port, operator, "busy") as busy:
        for number in range(100):
            busy.send("lazy", {"n": number, "x": "x" * 100_000})
    before = memory_of(running.process.pid)
    with visitor(port, max_queue=1, close_timeout=0.1) as lazy:
        lazy.join(operator)
        lazy.say("map/agents/register", name="lazy")
        time.sleep(1.0)
        assert memory_of(running.process.pid) < before + MOST_MEMORY
        assert [*range(100)] == [lazy.message()["payload"]["n"] for _ in range(100)]


def test_slow_ones_who_do_not_say_who_they_are_are_bounded_and_ended(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A hundred at once; the next is told to come later; those who keep silent are ended."""
    monkeypatch.setattr("postroom.map.connection.ADMITTED_WITHIN", 4.0)
    caplog.set_level("INFO", "postroom")
    asyncio.run(many_silent_ones(tmp_path))
    assert ["a MAP connection is ended: it did not say who it is"] == [
        line for line in caplog.messages if "it did not say" in line
    ]


async def many_silent_ones(folder: Any) -> None:
    async with open_server(folder, with_map=True) as (server, room, _, _):
        url, header = f"ws://127.0.0.1:{port_of(server)}/map", {"authorization": f"Bearer {make_token(room)}"}
        silent = [await async_connect(url, compression=None) for _ in range(100)]
        with pytest.raises(InvalidStatus) as full:
            await async_connect(url)
        assert 503 == full.value.response.status_code
        async with async_connect(url, additional_headers=header) as known:  # who is known comes in
            await known.send(json.dumps(request(1, "map/connect", protocolVersion=1, participantType="client")))
            assert "sessionId" in str(await known.recv())
        for one in silent:
            await one.wait_closed()
            assert 1008 == one.close_code


def test_what_is_refused_is_logged_once_however_many_do_it(tmp_path: Any) -> None:
    with daemon(tmp_path, "--http", "127.0.0.1:0") as one:
        token = one.token()
        for _ in range(3):
            with visitor(one.port) as bad:
                assert -32602 == refused(bad, "map/connect", protocolVersion=7, participantType="agent")
                assert -32602 == refused(bad, "map/connect", protocolVersion=1)
                bad.join(token)
                for _ in range(5):
                    assert -32601 == refused(bad, "map/no/such")
                    bad.line.send("junk")
                for _ in range(MOST_SUBSCRIPTIONS):
                    bad.ask("map/subscribe", filter={})
                assert 4002 == refused(bad, "map/subscribe", filter={})
                with suppress(ConnectionClosed):
                    bad.line.send("x" * 3_000_000)
                    closed(bad)
        _, _, log = one.stop()
    message = (
        "version 1 of MAP",
        "participant_type: is missing",
        "map/no/such",
        "is not JSON",
        "may hold at most",
        "too large",
    )
    assert dict.fromkeys(message, 1) == {words: log.count(words) for words in message}


def test_what_a_caller_says_makes_no_complaint_another_one(
    caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    caplog.set_level("INFO", "postroom")

    async def story() -> None:
        async with open_server(tmp_path, with_map=True) as (server, room, _, _):
            header = {"authorization": f"Bearer {make_token(room)}"}
            async with async_connect(f"ws://127.0.0.1:{port_of(server)}/map", additional_headers=header) as bad:
                await bad.send(json.dumps(request(0, "map/connect", protocolVersion=1, participantType="client")))
                await bad.recv()
                for number in range(50):
                    await bad.send(json.dumps(request(number, f"map/none-{number}\nforged")))
                    await bad.recv()
                    await bad.send(json.dumps(request(number, "map/subscribe", filter={f"f{number}": 1})))
                    await bad.recv()
            for number in range(5):
                async with async_connect(f"ws://127.0.0.1:{port_of(server)}/map") as bad:
                    for guess in range(MOST_TRIES):
                        auth = {"method": f"none-{number}-{guess}"}
                        params = {"protocolVersion": 1, "participantType": "agent", "auth": auth}
                        await bad.send(json.dumps(request(1, "map/connect", **params)))
                        await bad.send(json.dumps(request(2, "map/agents/list")))
                    await bad.wait_closed()

    asyncio.run(story())
    results = [line for line in caplog.messages if line.startswith("a MAP connection")]
    kinds = (
        "Method not found: map/none-0",
        "filter.f0",
        "'none-0-0' is not a supported auth method",
        "credentials that are none",
    )
    assert [1] * len(kinds) == [sum(kind in line for line in results) for kind in kinds]
    assert len(kinds) == len(results) and not any("\n" in line for line in results)
