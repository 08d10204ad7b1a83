"""A message for a MAP agent is handed over for sure: kept while it is away, acknowledged by receipt."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom.model.query import Query
from tests.daemons import until
from tests.map.people import agent, refused, visitor
from tests.server.http.running import Daemon, daemon, in_thread, make_token, open_server, port_of

META = {"priority": "high", "correlationId": "c-7", "ttlMs": 600_000, "expectsResponse": True, "_meta": {"x": [1]}}


def states(place: Daemon | Path, mailbox: str) -> list[str]:
    """Of all letters of a mailbox, the oldest first."""
    with postroom.open(place if isinstance(place, Path) else place.room) as room:
        return [str(one.delivery.state) for one in room.core.store.find(Query(mailbox=mailbox, order="age"))]


def test_from_payload_and_meta_arrive_as_they_were_sent(port: int, operator: str) -> None:
    with agent(port, operator, "ann") as ann, agent(port, operator, "bob") as bob:
        payloads: list[Any] = ["text", {"type": "text", "text": "x"}, {"a": [1, None]}, 7, None, [], False]
        for payload in payloads:
            result = ann.send({"agent": "bob"}, payload, **META)
            assert ["bob"] == result["delivered"]
            got = bob.message()
            assert ("ann", {"agent": "bob"}, payload, META, result["messageId"]) == tuple(
                got[word] for word in ("from", "to", "payload", "meta", "id")
            )


def test_mail_for_one_who_is_away_waits_and_is_handed_over_once(running: Daemon, port: int, operator: str) -> None:
    with agent(port, operator, "cy"):
        pass
    with agent(port, operator, "dee") as dee:
        ids = [dee.send({"agentId": "cy"}, number)["messageId"] for number in range(100)]
    with agent(port, operator, "cy") as cy:
        assert ids == [cy.message()["id"] for _ in ids]
        cy.until(lambda: {"done"} == set(states(running, "cy")))
    with agent(port, operator, "cy") as cy:
        assert cy.hears_nothing()


def test_what_was_not_received_comes_again_under_the_same_id(running: Daemon, port: int, operator: str) -> None:
    """Somebody whose program hangs: the frame is in its buffer, and no pong comes."""
    with agent(port, operator, "ed"):
        pass
    with deaf(port, operator, "ed") as line, agent(port, operator, "fay") as fay:
        sent = fay.send({"agent": "ed"}, "are you there?")["messageId"]
        wait_for(line, sent.encode())
        assert ["unread"] == states(running, "ed")
    until(lambda: not is_here(running, "ed"))
    assert ["unread"] == states(running, "ed")
    with agent(port, operator, "ed") as ed:
        assert sent == ed.message()["id"]
        ed.until(lambda: ["done"] == states(running, "ed"))


def test_one_who_answers_no_questions_is_believed_by_its_pong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After ten seconds, here one; from then on at once."""
    monkeypatch.setattr("postroom.map.server.MUTE_AFTER", 1.0)

    async def story() -> None:
        async with open_server(tmp_path, with_map=True) as (server, room, _, _):
            await in_thread(be_mute, port_of(server), make_token(room), tmp_path / "room.db")

    asyncio.run(story())


def be_mute(port: int, operator: str, room: Path) -> None:
    with visitor(port) as amy, agent(port, operator, "abe") as abe:
        amy.is_mute = True
        amy.join(operator)
        amy.register(name="amy")
        abe.send("amy", 1)
        assert 1 == amy.message()["payload"]
        assert ["unread"] == states(room, "amy")
        amy.until(lambda: ["done"] == states(room, "amy"))
        abe.send("amy", 2)
        assert 2 == amy.message()["payload"]
        amy.until(lambda: ["done", "done"] == states(room, "amy"))


def test_one_who_acknowledges_itself_is_not_taken_at_its_pong(running: Daemon, port: int, operator: str) -> None:
    with visitor(port) as gus, agent(port, operator, "hal") as hal:
        welcome = gus.join(operator, capabilities={"delivery": {"acks": True}})
        assert {"acks": True} == welcome["capabilities"]["delivery"]
        gus.register(name="gus")
        first, second = (hal.send("gus", number)["messageId"] for number in range(2))
        assert [first, second] == [gus.message()["id"] for _ in range(2)]
        assert gus.hears_nothing()
        assert ["unread", "unread"] == states(running, "gus")
        assert [second] == gus.ask("map/message.ack", messageIds=[second, "no such"])["acked"]
        until(lambda: ["unread", "done"] == states(running, "gus"))
    with agent(port, operator, "gus") as gus:
        assert first == gus.message()["id"]


def test_a_killed_daemon_loses_nothing(tmp_path: Any) -> None:
    words = ("--http", "127.0.0.1:0", "--set", "durability=process", "--map", "open")
    with daemon(tmp_path, *words) as first, agent(first.port, None, "ike") as ike:
        sent = ike.send("jo", "before")["messageId"]
        line = deaf(first.port, None, "jo")
        wait_for(line, sent.encode())
        first.process.kill()
        line.close()
    with daemon(tmp_path, *words) as second, agent(second.port, None, "jo") as jo:
        assert sent == jo.message()["id"]


def test_a_suspended_agent_is_handed_nothing_until_it_is_resumed(port: int, operator: str) -> None:
    with agent(port, operator, "kim") as kim, agent(port, operator, "leo") as leo:
        assert "suspended" == kim.ask("map/agents/suspend", agentId="kim")["agent"]["state"]
        leo.send("kim", 1)
        assert kim.hears_nothing()
        kim.ask("map/agents/resume", agentId="kim")
        assert 1 == kim.message()["payload"]


def test_more_than_fits_on_the_way_at_once_comes_in_order(port: int, operator: str) -> None:
    with agent(port, operator, "max"), agent(port, operator, "ned") as ned:
        numbers = [ned.say("map/send", to="max2", payload=number) for number in range(500)]
        for _ in numbers:
            ned.hear()
    with agent(port, operator, "max2") as late:
        assert [*range(500)] == [late.message()["payload"] for _ in range(500)]


def test_letters_of_other_wires_come_too_and_answers_go_back(running: Daemon, port: int, operator: str) -> None:
    with agent(port, operator, "ola") as ola, postroom.open(running.room) as room:
        letter = room.mailbox("pat").send("ola", "hello", subject="greeting", thread_tag="t")
        got = ola.message()
        assert (letter.id, "pat", {"type": "text", "text": "hello"}) == (got["id"], got["from"], got["payload"])
        assert "greeting" == got["meta"]["subject"]
        ola.send({"agent": got["from"]}, "back", correlationId=got["id"], isResult=True)
        back = room.mailbox("pat").check()[0]
        assert (letter.id, "back") == (back.message.in_reply_to, back.text)


def test_an_answer_without_an_address_goes_to_who_wrote_the_letter(port: int, operator: str) -> None:
    with agent(port, operator, "una") as una, agent(port, operator, "vic") as vic:
        request = una.send({"agent": "vic"}, "?")["messageId"]
        vic.message()
        params: dict[str, Any] = {"payload": "!", "meta": {"inReplyTo": request, "messageId": "own-1"}}
        result, again = vic.ask("map/send", **params), vic.ask("map/send", **params)
        assert result == again and ["una"] == result["delivered"]
        got = una.message()
        assert ("vic", "!", result["messageId"]) == (got["from"], got["payload"], got["id"])
        for meta in ({}, {"inReplyTo": "no-such-letter"}):
            assert -32602 == refused(vic, "map/send", payload="to nobody", meta=meta)


def is_here(running: Daemon, name: str) -> bool:
    with postroom.open(running.room) as room:
        return not room.agent(name).presence.left


def deaf(port: int, token: str | None, name: str) -> socket.socket:
    """An agent whose program reads no frames after it has registered: its kernel takes them."""
    line = socket.create_connection(("127.0.0.1", port), timeout=20)
    line.sendall(
        f"GET /map HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-version: 13\r\n\r\n".encode()
    )
    wait_for(line, b"\r\n\r\n")
    auth = {"auth": {"method": "bearer", "credential": token}} if token else {}
    for number, (method, message) in enumerate(
        (
            ("map/connect", {"protocolVersion": 1, "participantType": "agent", **auth}),
            ("map/agents/register", {"name": name}),
        )
    ):
        line.sendall(frame(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": message})))
    wait_for(line, b'"state":"idle"')
    return line


def wait_for(line: socket.socket, piece: bytes) -> None:
    found = b""
    while piece not in found:
        more = line.recv(65536)
        assert more, found
        found += more


def frame(text: str) -> bytes:
    """A text frame, masked with zeros."""
    data = text.encode()
    size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + len(data).to_bytes(2)
    return b"\x81" + size + bytes(4) + data


def test_calls_that_do_not_wait_for_each_other_are_carried_out_in_their_order(port: int, operator: str) -> None:
    with visitor(port) as one:
        auth = {"method": "api-key", "credential": operator}
        first = one.say("map/connect", protocolVersion=1, participantType="agent", name="the-program", auth=auth)
        one.say("map/agents/register", name="hasty")
        one.say("map/send", to={"agent": "hasty"}, payload=1)
        last = one.say("map/agents/nothing")
        result = {}
        while last not in result:
            message = one.hear()
            result[message.get("id")] = message
        assert [True, True, True, False] == ["result" in result[number] for number in range(first, last + 1)]
        assert ("hasty", 1) == (one.message()["from"], len(result[first + 2]["result"]["delivered"]))


def test_two_agents_of_one_connection_see_for_which_each_message_is(port: int, operator: str) -> None:
    with agent(port, operator, "pam", scopes=["both"]) as two, agent(port, operator, "rex") as rex:
        rex.send("pam", "alone")
        assert "_meta" not in two.message()
        two.register(name="pat", scopes=["both"])
        sent = rex.send({"scope": "both"}, "to you two")["messageId"]
        got = [two.message(), two.message()]
        assert [sent, sent] == [one["id"] for one in got]
        assert ["pam", "pat"] == sorted(one["_meta"]["postroom"]["for"] for one in got)


def test_stop_suspend_and_resume_say_what_they_did(port: int, operator: str) -> None:
    with agent(port, operator, "sid") as sid:
        for verb, word in (("suspend", "suspended"), ("resume", "resumed"), ("stop", "stopping")):
            assert True is sid.ask(f"map/agents/{verb}", agentId="sid")[word]


def test_a_scope_that_is_there_is_not_made_again(port: int, operator: str) -> None:
    with agent(port, operator, "ted") as ted:
        ted.ask("map/scopes/create", scopeId="once")
        assert 3000 == refused(ted, "map/scopes/create", scopeId="once")
