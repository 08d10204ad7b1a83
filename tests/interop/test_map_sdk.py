"""Agents, clients and gateways of the real SDK of MAP, against our server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom.core import peers
from postroom.core.authorize import OWNER
from postroom.core.verb import perform
from postroom.map.server import MUTE_AFTER
from tests.daemons import until
from tests.interop.map_connections import Failed, Program
from tests.server.http.running import Daemon, daemon

META = {"priority": "urgent", "correlationId": "c-1", "ttlMs": 60_000, "_meta": {"any": ["thing"]}}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with daemon(tmp_path_factory.mktemp("room"), "--set", "sender_rate=0", "--http", "127.0.0.1:0") as one:
        yield one


@pytest.fixture
def program() -> Iterator[Program]:
    with Program() as one:
        yield one


def key(running: Daemon, agent: str | None = None, method: str = "api-key") -> dict[str, str]:
    return {"method": method, "credential": running.token(agent)}


def test_agents_of_the_sdk_register_send_and_are_answered(running: Daemon, program: Program) -> None:
    url = running.where["map"]
    came = program.do("agent", name="ann", role="worker", scopes=["red"], url=url, auth=key(running, "ann"))
    assert ("ann", "idle", 1) == (
        came["agent"]["id"],
        came["agent"]["state"],
        came["connection"]["protocolVersion"],
    )
    program.do(
        "plainAgent", name="bob", role="worker", scopes=["red"], url=url, auth=key(running, "bob", "bearer")
    )
    sent = program.do("send", "ann", {"agent": "bob"}, {"hello": [1, None]}, META)
    assert ["bob"] == sent["delivered"]
    got = program.message("bob")
    assert ("ann", {"hello": [1, None]}, META, sent["messageId"]) == tuple(
        got[word] for word in ("from", "payload", "meta", "id")
    )
    program.do("reply", "bob", got, "back")
    back = program.message("ann")
    assert ("bob", "back", "c-1", True) == (
        back["from"], back["payload"], back["meta"]["correlationId"], back["meta"]["isResult"],
    )  # fmt: skip
    program.do("sendToScope", "ann", "red", "to all")
    assert "to all" == program.message("bob")["payload"]
    program.do("send", "ann", {"role": "worker"}, "by role")
    assert "by role" == program.message("bob")["payload"]
    program.do("send", "ann", {"broadcast": True}, "all")
    assert "all" == program.message("bob")["payload"]
    assert "busy" == program.do("busy", "ann")["state"]
    assert "idle" == program.do("idle", "ann")["state"]
    program.do("updateMetadata", "ann", {"k": 1})
    child = program.do("spawn", "ann", {"name": "kid", "role": "helper", "initialMessage": {"payload": "go"}})
    assert ("ann.kid", "ann") == (child["agent"]["id"], child["agent"]["parent"])
    got = program.message("ann")
    assert ("ann", "go") == (got["from"], got["payload"])
    program.do("sendToChildren", "ann", "work")
    assert "work" == program.message("ann")["payload"]
    scope = program.do("createScope", "ann", {"name": "Blue"})
    assert "Blue" in program.do("joinScope", "bob", scope["id"])["agent"]["scopes"]
    program.do("leaveScope", "bob", scope["id"])
    program.do("done", "ann", {"exitCode": 0})
    program.do("disconnect", "ann")
    with postroom.open(running.room) as room:
        until(lambda: room.agent("ann").presence.left)


def test_a_message_to_a_scope_without_other_members_succeeds(running: Daemon, program: Program) -> None:
    program.do("agent", name="solo", scopes=["alone"], url=running.where["map"], auth=key(running, "solo"))
    assert [] == program.do("sendToScope", "solo", "alone", "anyone?")["delivered"]
    program.do("disconnect", "solo")


def test_after_disconnect_an_operators_token_gets_the_name_at_once(running: Daemon, program: Program) -> None:
    """Whosever it was. Of one whose connection was only cut, nobody else gets the name so soon."""
    url = running.where["map"]
    for auth in (key(running), key(running, "hal")):
        program.do("agent", name="hal", url=url, auth=auth)
        program.do("disconnect", "hal")
        came = program.do("agent", name="hal", url=url, auth=key(running))
        assert ("hal", "idle") == (came["agent"]["id"], came["agent"]["state"])
        program.do("disconnect", "hal")
    with Program() as other:
        other.do("agent", name="hal", url=url, auth=key(running, "hal"))
        other.kill()
    with postroom.open(running.room) as room:
        until(lambda: room.agent("hal").presence.left)
    with pytest.raises(Failed) as refused:
        program.do("agent", name="hal", url=url, auth=key(running))
    assert 3000 == refused.value.code


def test_a_client_looks_listens_and_uses_conversations(running: Daemon, program: Program) -> None:
    url, operator = running.where["map"], key(running)
    program.do("client", name="desk", url=url, auth=operator)
    program.do("listen", "desk", filter={"eventTypes": ["agent.registered", "message_sent", "message.delivered"]})
    program.do("agent", name="cy", role="worker", url=url, auth=operator)
    assert "cy" == program.event("agent.registered")["data"]["agentId"]
    assert "cy" in [agent["id"] for agent in program.do("listAgents", "desk")["agents"]]
    assert "worker" == program.do("getAgent", "desk", "cy")["agent"]["role"]
    assert "cy" in [node["id"] for node in program.do("getStructureGraph", "desk")["nodes"]]
    assert program.do("listScopes", "desk")["scopes"] is not None
    sent = program.do("sendToAgent", "desk", "cy", {"q": 1}, {"correlationId": "x"})
    got = program.message("cy")
    assert ("desk", {"q": 1}) == (got["from"], got["payload"])
    result = program.event("message_sent")["data"]
    assert (sent["messageId"], "desk", {"q": 1}) == (
        result["messageId"],
        result["from"],
        result["message"]["payload"],
    )
    assert "x" == program.event("message.delivered")["data"]["correlationId"]
    assert program.do("replay", "desk", {"limit": 10})["events"]
    talk = program.do("createConversation", "desk", {"subject": "plans", "initialParticipants": [{"id": "cy"}]})
    id = talk["conversation"]["id"]
    turn = program.do(
        "recordTurn", "desk", {"conversationId": id, "contentType": "text", "content": {"text": "hi"}}
    )
    assert ("desk", {"text": "hi"}) == (turn["turn"]["participant"], turn["turn"]["content"])
    assert "hi" in str(program.message("cy")["payload"])
    turns = program.do("listTurns", "desk", {"conversationId": id})["turns"]
    assert [turn["turn"]["id"]] == [one["id"] for one in turns]
    assert program.do("suspendAgent", "desk", "cy")["agent"]["state"] == "suspended"
    assert program.do("resumeAgent", "desk", "cy")["agent"]["state"] == "idle"
    assert program.do("stopAgent", "desk", "cy")["agent"]["state"] == "stopped"
    assert program.do("disconnect", "desk")


def test_a_client_asks_and_is_answered(running: Daemon, program: Program) -> None:
    url, operator = running.where["map"], key(running)
    program.do("client", name="asker", url=url, auth=operator)
    program.do("answerer", name="oracle", url=url, auth=operator, answer="42")
    got = program.do("request", "asker", {"agent": "oracle"}, "what is it?", {"timeout": 20_000})
    assert ("oracle", "42") == (got["from"], got["payload"])


def test_a_gateway_that_is_no_peer_connects_no_system(running: Daemon, program: Program) -> None:
    welcome = program.do("gateway", name="gate", url=running.where["map"], auth=key(running))
    assert (False, []) == (welcome["reconnected"], welcome["ownedAgents"])
    with pytest.raises(Failed) as refused:
        program.do("connectToSystem", "gate", "elsewhere", "ws://elsewhere")
    assert 5002 == refused.value.code
    program.do("disconnect", "gate")


def test_a_gateway_of_a_peer_routes_letters(running: Daemon, program: Program) -> None:
    with postroom.open(f"sqlite:{running.room}") as room:
        room.mailbox("gwen").register()
        token = perform(
            room.core, OWNER, peers.AddPeer(system="sdk", fields={"exposure": "all"}, ours="here")
        ).token
        auth = {"method": "api-key", "credential": token}
        program.do("gateway", name="sdk", url=running.where["map"], auth=auth)
        result = program.do("connectToSystem", "sdk", "sdk", "")
        assert result["connected"] and "gwen" in {row["agentId"] for row in result["exposure"]["agents"]}
        message = {"id": "sdk-1", "from": "zed", "to": {"agent": "gwen"}, "timestamp": 1, "payload": "hello"}
        routed = program.do("routeToSystem", "sdk", running.where["system"], message)
        assert {"routed": True, "messageId": "sdk-1"} == routed
        (letter,) = room.mailbox("gwen").check()
        assert ("zed@sdk", "hello") == (letter.sender, letter.text)
        program.do("disconnect", "sdk")


def test_numbers_of_errors_reach_the_sdk(running: Daemon, program: Program) -> None:
    url = running.where["map"]
    with pytest.raises(Failed) as unknown:
        program.do("agent", name="eve", url=url, auth={"method": "api-key", "credential": "pr_wrong"})
    assert (1000, "auth") == (unknown.value.code, unknown.value.data["category"])
    late = program.do("agent", name="dee", url=url, auth=key(running, "dee"), late=True)
    assert ["api-key", "bearer"] == late["first"]["authRequired"]["methods"]
    assert (True, "dee") == (late["proven"]["success"], late["agent"]["id"])
    for code, what, *args in ((2002, "sendToScope", "nowhere", 1), (2000, "send", {"role": "nobody"}, 1),
                              (-32602, "send", {}, 1), (3001, "updateState", "sleepy")):  # fmt: skip
        with pytest.raises(Failed) as refused:
            program.do(what, "dee", *args)
        assert code == refused.value.code
        assert {"category", "retryable"} <= set(refused.value.data)


def test_mail_for_an_agent_of_the_sdk_waits_while_its_program_is_dead(running: Daemon, program: Program) -> None:
    url, auth = running.where["map"], key(running, "fay")
    with Program() as other:
        other.do("agent", name="fay", url=url, auth=auth)
        other.kill()
    with postroom.open(running.room) as room:
        sent: list[Any] = [room.mailbox("gus").send("fay", f"{number}").id for number in range(20)]
    program.do("agent", name="fay", url=url, auth=auth)
    assert sent == [program.message("fay")["id"] for _ in sent]
    began = time.monotonic()
    with postroom.open(running.room) as room:
        until(lambda: not room.mailbox("fay").check(peek=True))
    assert time.monotonic() - began < MUTE_AFTER / 2  # by the SDK's own answer


def test_nobody_without_a_token_gets_in_unless_the_post_room_is_open(tmp_path: Path, program: Program) -> None:
    with daemon(tmp_path, "--set", "sender_rate=0", "--http", "127.0.0.1:0", "--map", "open") as one:
        program.do("plainAgent", name="ida", url=one.where["map"])
        program.do("plainAgent", name="jo", url=one.where["map"], auth={"method": "none"})
        program.do("send", "ida", {"agent": "jo"}, "open")
        assert "open" == program.message("jo")["payload"]
