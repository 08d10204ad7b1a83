"""Access over MAP: which connections are admitted, as whom their agents act, and how they resume."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

import postroom
from postroom.core.verb import parameters
from postroom.map.session import BEFORE, MAP, SessionState
from tests.daemons import Line, until
from tests.map.people import Refused, agent, closed, refused, visitor
from tests.server.http.running import PATIENCE, Client, Daemon, daemon

FILLED = {
    "participant_type": "agent", "method": "api-key", "subscription_id": "sub-1", "up_to_sequence": 1,
    "message_ids": ["x"], "to": "bob", "parent": "ann", "agent_id": "ann", "scope_id": "s",
    "system_id": "far", "exposure": {}, "agent": "ann",
}  # fmt: skip


def test_who_has_shown_no_token_hears_of_nothing(port: int) -> None:
    """Whatever the table has, before and after the first word."""
    with visitor(port) as silent, visitor(port) as person:
        welcome = person.join()
        assert (["api-key", "bearer"], False) == (welcome["authRequired"]["methods"], "sessionId" in welcome)
        for name, cls in MAP.items():
            params = {one.name: FILLED[one.name] for one in parameters(cls).values() if one.required}
            if name not in BEFORE[SessionState.AUTHENTICATING]:
                assert (1000, 1000) == (refused(person, name, **params), refused(silent, name, **params))


@pytest.mark.parametrize(
    ("auth", "code"),
    [
        ({"method": "api-key", "credential": "pr_x_y"}, "invalid_credentials"),
        ({"method": "bearer"}, "invalid_credentials"),
        ({"method": "none"}, "method_not_supported"),
        ({"method": "mtls", "credential": "x"}, "method_not_supported"),
        ({}, None),
    ],
)
def test_a_credential_that_is_none_lets_nobody_in(port: int, auth: dict[str, str], code: str | None) -> None:
    with visitor(port) as person:
        result = person.ask("map/connect", protocolVersion=1, participantType="agent", auth=auth)
        assert code == result.get("error", {}).get("code") and "authRequired" in result
        if auth:
            failed = person.ask("map/authenticate", **auth)
            assert (False, code) == (failed["success"], failed["error"]["code"])
        assert 1000 == refused(person, "map/agents/list")


def test_every_refusal_after_a_bad_token_names_the_token(port: int) -> None:
    """The SDK passes over what is wrong in the answer to `map/connect`, and registers."""
    with visitor(port) as person:
        auth = {"method": "api-key", "credential": "pr_x_y"}
        person.ask("map/connect", protocolVersion=1, participantType="agent", auth=auth)
        with pytest.raises(Refused, match="this token is not valid") as result:
            person.ask("map/agents/register", name="ann")
        assert 1000 == result.value.code


def test_a_client_that_guesses_is_ended(port: int) -> None:
    with visitor(port) as person:
        person.join()
        for _ in range(5):
            person.ask("map/authenticate", method="api-key", credential="pr_guess_1")
        assert 1008 == closed(person)


def test_an_agents_token_is_good_for_that_agent_and_children_below_its_name(running: Daemon, port: int) -> None:
    with visitor(port) as ann:
        ann.join(running.token("ann"), name="Somebody else")
        assert 1003 == refused(ann, "map/agents/register", agentId="bob")
        assert "ann" == ann.register(name="Ann, the first")["id"]
        assert "ann" == ann.register(name="Ann")["id"]  # again is no error
        kid = ann.ask("map/agents/spawn", parent="ann", name="kid")["agent"]
        assert ("ann.kid", "ann", "ann") == (kid["id"], kid["parent"], kid["ownerId"])
        assert "ann.kid" == ann.ask("map/agents/spawn", parent="ann", agentId="ann.kid")["agent"]["id"]
        assert 1003 == refused(ann, "map/agents/spawn", parent="bob", name="x")
        assert 1003 == refused(ann, "map/send", **{"from": "bob"}, to="ann", payload=1)
        for verb in ("update", "stop", "suspend", "resume", "unregister"):
            assert 1003 == refused(ann, f"map/agents/{verb}", agentId="bob")
        assert 1003 == refused(ann, "map/scopes/join", agentId="bob", scopeId="s")
        ann.ask("map/send", **{"from": "ann.kid"}, to="ann", payload="from below")
        got = ann.message()
        assert ("ann.kid", "from below") == (got["from"], got["payload"])
        assert ann.ask("map/agents/unregister", agentId="ann.kid")["success"]
        assert 1003 == refused(ann, "map/agents/update", agentId="ann.kid", state="busy")


def test_a_childs_name_is_compared_with_the_names_below_its_parents_alone(
    running: Daemon, port: int, operator: str
) -> None:
    """`Kid One` of gus is `gus.Kid-One`: an agent `Kid-One` is another, and `Kid:One` of gus would be the same."""
    with agent(port, operator, "Kid One"), visitor(port) as gus:
        gus.join(running.token("gus"))
        gus.register(name="gus")
        for name in ("Kid:One", "Kid:One"):  # again is no error
            kid = gus.ask("map/agents/spawn", parent="gus", name=name)["agent"]
            assert ("gus.Kid-One", "Kid:One") == (kid["id"], kid["name"])
        for name in ("Kid One", "gus.Kid:One"):
            assert 3000 == refused(gus, "map/agents/spawn", parent="gus", name=name)


def test_a_mailbox_or_a_sealed_agent_is_nobodys_child(running: Daemon, port: int) -> None:
    token = running.token("bea")
    running.token("bea.sealed")
    with postroom.open(running.room) as room:
        room.mailbox("cy").send("bea.box", "private")
    with visitor(port) as bea:
        bea.join(token)
        bea.register(name="bea")
        assert 1003 == refused(bea, "map/agents/spawn", parent="bea", name="sealed")
        assert 3000 == refused(bea, "map/agents/spawn", parent="bea", name="box")


def test_a_token_for_reading_registers_nobody_one_for_sending_hears_nothing(running: Daemon, port: int) -> None:
    with visitor(port) as dan:
        dan.join(running.token("dan", "read"), kind="client")
        assert 1003 == refused(dan, "map/agents/register", name="dan")
        assert 1003 == refused(dan, "map/send", to="ann", payload=1)
        assert dan.ask("map/subscribe")["subscriptionId"]
    with visitor(port) as eve:
        eve.join(running.token("eve", "send"), kind="client")
        assert ["ann"] == eve.send("ann", 1)["delivered"]
        assert (1003, 1003) == (refused(eve, "map/subscribe"), refused(eve, "map/replay"))


def test_a_token_that_is_revoked_ends_the_connection(running: Daemon, port: int) -> None:
    token = running.token("fay")
    with agent(port, token, "fay") as fay:
        running.revoke(token)
        assert 1008 == closed(fay)


def test_a_token_is_refreshed_by_one_of_the_same_agent(running: Daemon, port: int) -> None:
    first, second = running.token("gus"), running.token("gus")
    with agent(port, first, "gus") as gus:
        gus.ask("map/subscribe", filter={"eventTypes": ["message.sent"]})
        result = gus.ask("map/auth/refresh", method="api-key", credential=second)
        assert (True, "gus") == (result["success"], result["principal"]["id"])
        other = gus.ask("map/auth/refresh", method="api-key", credential=running.token("hal"))
        assert (False, "invalid_credentials") == (other["success"], other["error"]["code"])
        running.revoke(first)
        gus.send("gus", "still here")
        assert "still here" == gus.message()["payload"]
        assert gus.event("message.sent")
        assert 3001 == refused(gus, "map/authenticate", method="api-key", credential=first)


def test_a_token_in_the_header_does(running: Daemon, port: int) -> None:
    with visitor(port, additional_headers={"authorization": f"Bearer {running.token('ida')}"}) as ida:
        ida.join()
        assert "ida" == ida.register(name="x")["id"]
    for headers in ({"authorization": "Bearer pr_x_y"}, {"origin": "https://evil.example"}):
        with pytest.raises(InvalidStatus), visitor(port, additional_headers=headers):
            pass


# -- one agent, one connection


def test_the_first_wins_unless_the_second_is_the_same(running: Daemon, port: int, operator: str) -> None:
    with agent(port, operator, "jo") as jo, visitor(port) as other:
        other.join(operator)
        assert 3000 == refused(other, "map/agents/register", name="jo")
        jo.send("jo", 1)
        assert 1 == jo.message()["payload"]
    token = running.token("kim")
    with agent(port, token, "kim") as old, agent(port, token, "kim") as new:
        assert 1008 == closed(old)
        new.send("kim", 2)
        assert 2 == new.message()["payload"]


def test_a_session_is_resumed_with_its_agents(port: int, operator: str) -> None:
    with agent(port, operator, "leo") as leo:
        leo.ask("map/agents/spawn", parent="leo", name="cub")
        token = leo.ask("map/disconnect", reason="lunch")["resumeToken"]
        assert 1000 == closed(leo)
    with visitor(port) as stranger:
        assert not stranger.join(operator, resumeToken="x" * 40)["reconnected"]
    with visitor(port) as leo:
        welcome = leo.join(operator, resumeToken=token)
        assert (True, ["leo", "cub"]) == (welcome["reconnected"], welcome["ownedAgents"])
        assert ["leo", "cub"] == [one["id"] for one in welcome["reclaimedAgents"]]
        leo.send("cub", "hello")
        assert "hello" == leo.message()["payload"]
        assert token != welcome["resumeToken"]


def test_a_connection_that_is_cut_is_resumed_while_the_old_one_lingers(running: Daemon, port: int) -> None:
    with agent(port, running.token(), "max") as old, visitor(port) as new:
        assert not new.join(running.token(), resumeToken=old.welcome["resumeToken"])["reconnected"]  # another's
    operator = running.token()
    with agent(port, operator, "ned") as old, visitor(port) as new:
        assert new.join(operator, resumeToken=old.welcome["resumeToken"])["ownedAgents"] == ["ned"]
        assert 1008 == closed(old)


def test_agents_connected_when_the_server_stops_have_not_left(tmp_path: Path) -> None:
    with daemon(tmp_path, "--http", "127.0.0.1:0") as served:
        with agent(served.port, served.token(), "ola"), agent(served.port, served.token(), "pat") as pat:
            pat.ask("map/disconnect")
            served.stop()
        with postroom.open(served.room) as room:
            assert [room.agent(name).presence.left for name in ("ola", "pat")] == [False, True]


def test_who_goes_is_away_and_comes_back_idle(running: Daemon, port: int, operator: str) -> None:
    with agent(port, operator, "ola", role="r", scopes=["s"], metadata={"k": 1}) as ola:
        ola.ask("map/agents/update", agentId="ola", state="busy")
    with postroom.open(running.room) as room:
        until(lambda: room.agent("ola").presence.left)
    with visitor(port) as client:
        client.join(operator, kind="client")
        assert client.ask("map/agents/get", agentId="ola")["agent"]["ownerId"] is None
    with agent(port, operator, "ola") as ola:
        result = ola.ask("map/agents/get", agentId="ola")["agent"]
        assert ("idle", "r", ["s"], {"k": 1}, "ola") == tuple(
            result[word] for word in ("state", "role", "scopes", "metadata", "ownerId")
        )


# -- where no token is needed


def test_an_open_post_room_lets_in_who_shows_none(open_port: int) -> None:
    with agent(open_port, None, "ann") as ann, agent(open_port, None, "bob", role="worker") as bob:
        ann.send({"role": "worker"}, "hi")
        assert "hi" == bob.message()["payload"]
        assert 1003 == refused(ann, "map/send", **{"from": "bob"}, to="ann", payload=1)
        assert 10003 == refused(ann, "mail/create", participantId="bob", subject="x")
        made = ann.ask("mail/create", subject="x", initialParticipants=[{"id": "bob"}])
        assert "ann" == made["participant"]["id"]


def test_an_open_post_room_is_not_open_for_those_who_have_a_token(tmp_path: Any) -> None:
    with daemon(tmp_path, "--http", "127.0.0.1:0", "--map", "open") as one:
        token = one.token("pat")
        with visitor(one.port) as thief, agent(one.port, None, "quin") as quin:
            thief.join()
            assert 1003 == refused(thief, "map/agents/register", name="pat")
            assert 1003 == refused(quin, "map/agents/update", agentId="pat", state="busy")
            quin.ask("map/subscribe")
            quin.send("quin", "mine")
            assert "mine" == quin.message()["payload"]
            assert quin.ask("mail/list")["conversations"] is not None
            with agent(one.port, token, "pat") as pat:
                pat.send("quin", "verified")
                assert "verified" == quin.message()["payload"]
            one.token("quin")  # from now on quin is sealed, too
            assert 1003 == refused(quin, "map/send", to="pat", payload=1)


def test_a_child_is_closed_like_its_parent_to_callers_without_a_token(tmp_path: Any) -> None:
    """Over every surface: MAP where it is open, the socket in both dialects, HTTP and its WebSocket, and MCP."""
    with daemon(tmp_path, "--http", "127.0.0.1:0", "--map", "open") as one:
        token, other = one.token("pat"), one.token("rob")
        with agent(one.port, token, "pat") as pat:
            pat.ask("map/agents/spawn", parent="pat", name="kid")
            pat.ask("map/agents/unregister", agentId="pat.kid")
            pat.send("pat.kid", "private")
        with visitor(one.port) as thief, agent(one.port, None, "quin") as quin:
            thief.join()
            assert 1003 == refused(thief, "map/agents/register", agentId="pat.kid")
            assert 1003 == refused(quin, "map/send", **{"from": "pat.kid"}, to="quin", payload=1)
            assert 1003 == refused(quin, "map/agents/update", agentId="pat.kid", state="busy")
        check = {"jsonrpc": "2.0", "id": 1, "method": "mail/check", "params": {"agentId": "pat.kid"}}
        send = {"action": "send", "from": "pat.kid", "to": "quin", "payload": "forged"}
        with Line(tmp_path / "postroom.sock") as line:
            assert "error" in line.ask(check)
            for message in ({"action": "check_inbox", "agentId": "pat.kid"}, send):
                assert "NotAllowed" == line.ask(message)["name"]
            line.ask({"action": "authenticate", "token": one.token()})
            assert "private" in str(line.ask({"action": "check_inbox", "agentId": "pat.kid"}))
        with closing(Client(one.port)) as nobody, closing(Client(one.port, other)) as rob:
            assert [401, 401] == [nobody.post(check, path).status for path in ("/", "/mcp")]
            assert "private" not in str(rob.post(check).json)
        with (
            pytest.raises(InvalidStatus),
            connect(f"ws://127.0.0.1:{one.port}/ws", open_timeout=PATIENCE),
        ):
            pass


def test_a_subscriber_from_before_the_first_token_gets_nothing_from_then_on(tmp_path: Any) -> None:
    """In an open post room without tokens anybody hears everything; that ends with the first token."""
    with daemon(tmp_path, "--http", "127.0.0.1:0", "--map", "open") as one, visitor(one.port) as spy:
        spy.join(kind="client", name="spy")
        spy.ask("map/subscribe", filter={})
        with agent(one.port, None, "ann") as ann:
            ann.send("ann", "open")
            assert "open" == ann.message()["payload"] and ann.hear()
            assert "open" == spy.event("message.delivered")["event"]["data"]["message"]["payload"]
        assert spy.event("agent.state.changed")  # she is gone
        spy.events.clear()
        with agent(one.port, one.token("pat"), "pat") as pat:
            pat.ask("map/subscribe", filter={"eventTypes": ["message.delivered"]})
            pat.send("pat", "private")
            assert "private" == pat.message()["payload"] and pat.hear()
            assert pat.event("message.delivered")
            assert spy.hears_nothing() and [] == spy.events
            assert 1003 == refused(spy, "map/replay")


def test_maps_port_is_shut_where_it_is_said_so(tmp_path: Any) -> None:
    with daemon(tmp_path, "--http", "127.0.0.1:0", "--map", "off") as one:
        assert one.where["map"] is None
        with pytest.raises(InvalidStatus), visitor(one.port):
            pass


@pytest.mark.parametrize("words", [("--map", "open", "--http", "0.0.0.0:0"), ("--map", "perhaps")])
def test_what_would_be_unsafe_or_means_nothing_is_refused(tmp_path: Any, words: tuple[str, ...]) -> None:
    process = Daemon(tmp_path, *words)
    code, result = process.ended()
    assert code and ("map" in result or "TLS" in result)


def test_a_client_has_a_name_of_its_own(port: int, operator: str) -> None:
    with visitor(port) as client, agent(port, operator, "rob") as rob:
        client.join(operator, kind="client", name="The desk")
        client.send("rob", "do it")
        assert "The-desk" == rob.message()["from"]
        made = client.ask("mail/create", subject="x")
        assert "The-desk" == made["participant"]["id"]
        assert "The-desk" == client.ask("mail/turn", conversationId=made["id"], content="t")["turn"]["participant"]


def test_an_operators_agent_speaks_in_conversations_as_itself_alone(port: int, operator: str) -> None:
    with agent(port, operator, "sal") as sal, agent(port, operator, "tom") as tom:
        id = sal.ask("mail/create", subject="x")["id"]
        for method, message in (
            ("mail/turn", {"participantId": "sal", "content": "forged"}),
            ("mail/join", {"agentId": "sal"}),
        ):
            assert 10003 == refused(tom, method, conversationId=id, **message)
        assert 10003 == refused(tom, "mail/create", participantId="sal", subject="y")
        assert "tom" == tom.ask("mail/create", subject="z")["participant"]["id"]
