"""Which connection has an agent: it keeps it when another is refused, and loses it when the agent goes."""

from __future__ import annotations

import pytest

from tests.map.people import Person, agent, closed, refused, visitor
from tests.server.http.running import Daemon


def still_has(person: Person, name: str, payload: str) -> None:
    """Its mail comes here."""
    person.ask("map/send", **{"from": name}, to=name, payload=payload)
    assert payload == person.message()["payload"]


@pytest.mark.parametrize("verb", ["suspend", "stop", "unregister"])
def test_who_is_paused_from_another_connection_is_handed_nothing(port: int, operator: str, verb: str) -> None:
    name = f"paused-{verb}"
    with agent(port, operator, name) as held, visitor(port) as client:
        assert held.hears_nothing()
        client.join(operator, kind="client", name="desk")
        client.ask(f"map/agents/{verb}", agentId=name)
        client.send(name, "kept back")
        assert held.hears_nothing()
        if verb == "suspend":
            client.ask("map/agents/resume", agentId=name)
        else:
            held.register(name=name)
        assert "kept back" == held.message()["payload"]


def test_a_child_that_another_has_is_not_taken_from_it(running: Daemon, port: int, operator: str) -> None:
    with agent(port, operator, "una.kid") as held, agent(port, running.token("una"), "una") as una:
        assert 3000 == refused(una, "map/agents/spawn", parent="una", name="kid")
        still_has(held, "una.kid", "mine")


def test_a_child_comes_along_with_its_own_parents_token(running: Daemon, port: int) -> None:
    token = running.token("vic")
    with agent(port, token, "vic") as first, agent(port, token, "vic") as second:
        second.ask("map/agents/spawn", parent="vic", name="kid")
        with agent(port, token, "vic") as third:
            third.ask("map/agents/spawn", parent="vic", name="kid")
            still_has(third, "vic.kid", "here")
            assert (1008, 1008) == (closed(first), closed(second))


def test_an_agent_that_another_principal_has_now_does_not_come_back(running: Daemon, port: int) -> None:
    """The others of that connection do, and it is let in."""
    operator = running.token()
    with visitor(port) as first:
        first.join(operator)
        first.register(name="wes")
        first.register(name="wim")
        resume = first.ask("map/disconnect")["resumeToken"]
    with agent(port, running.token("wes"), "wes") as held, visitor(port) as back:
        welcome = back.join(operator, resumeToken=resume)
        assert (True, ["wim"]) == (welcome["reconnected"], welcome["ownedAgents"])
        assert ["wim"] == [one["id"] for one in welcome["reclaimedAgents"]]
        still_has(back, "wim", "back")
        still_has(held, "wes", "mine")


def test_a_registration_that_is_refused_leaves_the_agent_where_it_is(running: Daemon, port: int) -> None:
    token = running.token("xan")
    with agent(port, token, "xan") as held, visitor(port) as second:
        second.join(token)
        assert 3001 == refused(second, "map/agents/register", state="nonsense")
        still_has(held, "xan", "mine")


def test_a_stopped_agent_of_another_is_not_handed_over(running: Daemon, port: int, operator: str) -> None:
    with agent(port, operator, "yan.kid") as held:
        held.ask("map/agents/stop", agentId="yan.kid")
    with agent(port, running.token("yan"), "yan") as yan:
        assert 3000 == refused(yan, "map/agents/spawn", parent="yan", name="kid")
        yan.ask("map/agents/spawn", parent="yan", name="own")
        with visitor(port) as client:
            client.join(operator, kind="client")
            client.ask("map/agents/stop", agentId="yan.own")  # who stops it does not get it
        assert "idle" == yan.ask("map/agents/spawn", parent="yan", name="own")["agent"]["state"]


def test_nobody_becomes_the_child_of_anothers_agent(running: Daemon, port: int, operator: str) -> None:
    with agent(port, operator, "zed"), agent(port, running.token("zoe"), "zoe") as zoe:
        assert 1003 == refused(zoe, "map/agents/register", parent="zed")
        assert "parent" not in zoe.ask("map/agents/get", agentId="zoe")["agent"]


def test_a_first_message_that_is_refused_is_reported(port: int, operator: str) -> None:
    with agent(port, operator, "abe") as abe:
        for name, meta in ("kid-1", "none"), ("kid-2", {"priority": "zzz"}):
            result = abe.ask(
                "map/agents/spawn", parent="abe", name=name, initialMessage={"payload": 1, "meta": meta}
            )
            assert (name, -32602, False) == (result["agent"]["id"], result["error"]["code"], "messageId" in result)


def test_who_is_suspended_stays_so_when_it_registers_again(port: int, operator: str) -> None:
    with agent(port, operator, "bix") as bix:
        bix.ask("map/agents/suspend", agentId="bix")
        assert "suspended" == bix.register(name="bix")["state"]
        bix.send("bix", 1)
        assert bix.hears_nothing()
        assert "idle" == bix.register(name="bix", state="idle")["state"]
        assert 1 == bix.message()["payload"]


def test_why_a_connection_is_ended_is_reported(running: Daemon, port: int) -> None:
    token = running.token("ben")
    with agent(port, token, "ben") as old, agent(port, token, "ben") as new:
        assert (1008, "replaced by another connection") == (closed(old), old.line.close_reason)
        running.revoke(token)
        assert (1008, "token revoked") == (closed(new), new.line.close_reason)


def test_a_header_and_a_word_of_two_agents_are_refused(running: Daemon, port: int) -> None:
    first, same, other = running.token("dee"), running.token("dee"), running.token("eli")
    with visitor(port, additional_headers={"authorization": f"Bearer {first}"}) as dee:
        params = {"protocolVersion": 1, "participantType": "agent"}
        assert 1006 == refused(dee, "map/connect", **params, auth={"method": "api-key", "credential": other})
        assert "dee" == dee.join(same)["participantId"]


# -- where no token is needed


def test_a_client_that_proves_nothing_speaks_for_itself_alone(open_port: int) -> None:
    with agent(open_port, None, "ann") as ann, visitor(open_port) as client, visitor(open_port) as namesake:
        client.join(kind="client", name="desk")
        assert 1003 == refused(client, "map/send", **{"from": "ann"}, to="bob", payload=1)
        for verb in ("update", "stop", "suspend", "resume", "unregister"):
            assert 1003 == refused(client, f"map/agents/{verb}", agentId="ann")
        assert ["ann"] == client.send("ann", "hello")["delivered"]
        assert ("desk", "hello") == (ann.message()["from"], "hello")
        namesake.join(kind="client", name="ann")
        assert 1003 == refused(namesake, "map/send", to="bob", payload=1)
        assert 10003 == refused(namesake, "mail/create", subject="x")
        assert "ann" in [one["id"] for one in namesake.ask("map/agents/list")["agents"]]


def test_who_is_away_for_a_moment_keeps_its_name(open_port: int) -> None:
    """Until it comes back with its token, or says that it goes for good."""
    with agent(open_port, None, "cal") as cal:
        cal.register(name="cal")  # again is no error
        token = cal.ask("map/disconnect")["resumeToken"]
    with visitor(open_port) as other, visitor(open_port) as back:
        other.join()
        assert 3000 == refused(other, "map/agents/register", name="cal")
        assert ["cal"] == back.join(resumeToken=token)["ownedAgents"]
        back.ask("map/agents/unregister", agentId="cal")
        assert "cal" == other.register(name="cal")["id"]


@pytest.mark.parametrize("name", ["Ann Lee", "swarm:ann", "Ann: the (second)"])
def test_a_name_that_no_mailbox_can_have_is_kept_beside_an_id_that_can(
    port: int, operator: str, name: str
) -> None:
    with visitor(port) as named, visitor(port) as other:
        named.join(operator, name=name)
        result = named.ask("map/agents/register", name=name)["agent"]
        assert name == result["name"] != result["id"]
        assert result["id"] == named.ask("map/agents/register", name=name)["agent"]["id"]  # it may come back
        other.join(operator, kind="client", name="desk")
        other.send(name, "by its name")
        other.send(result["id"], "by its id")
        assert ["by its name", "by its id"] == [named.message()["payload"] for _ in range(2)]
        for another in (result["id"], result["id"].replace("-", "?")):
            assert 3000 == refused(named, "map/agents/register", name=another)


def test_a_name_or_a_scope_that_cannot_be_is_refused_and_the_client_is_notified(port: int, operator: str) -> None:
    with visitor(port) as one:
        one.join(operator)
        assert -32602 == refused(one, "map/agents/register", name="x", agentId="swarm:x")
        assert -32602 == refused(one, "map/agents/register", name="x", scopes=["a b"])
        assert -32602 == refused(one, "map/send", to="no body", payload="x")


def test_a_scope_with_a_colon_is_joined_and_written_to(port: int, operator: str) -> None:
    with agent(port, operator, "col-a") as ann, agent(port, operator, "col-b", scopes=["swarm:colon"]) as bob:
        made = ann.ask("map/scopes/create", name="swarm:colon")["scope"]
        assert "swarm:colon" == made["id"]
        ann.ask("map/scopes/join", scopeId="swarm:colon", agentId="col-a")
        assert ["col-a", "col-b"] == ann.ask("map/scopes/members", scopeId="swarm:colon")["members"]
        for to in ({"scope": "swarm:colon"}, "scope:swarm:colon"):
            ann.ask("map/send", to=to, payload="all")
            assert "all" == bob.message()["payload"]
