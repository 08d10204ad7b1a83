"""Which connection has an agent: it keeps it when another is refused, and loses it when the agent goes."""

from __future__ import annotations

import pytest

from tests.map_server.people import Person, agent, closed, refused, visitor
from tests.web.running import Daemon


def still_has(person: Person, name: str, payload: str) -> None:
    """Its mail comes here."""
    person.ask("map/send", **{"from": name}, to=name, payload=payload)
    assert payload == person.message()["payload"]


@pytest.mark.parametrize("verb", ["suspend", "stop", "unregister"])
def test_who_is_paused_from_another_connection_is_handed_nothing(port: int, operator: str, verb: str) -> None:
    name = f"paused-{verb}"
    with agent(port, operator, name) as held, visitor(port) as desk:
        assert held.hears_nothing()
        desk.join(operator, kind="client", name="desk")
        desk.ask(f"map/agents/{verb}", agentId=name)
        desk.send(name, "kept back")
        assert held.hears_nothing()
        if verb == "suspend":
            desk.ask("map/agents/resume", agentId=name)
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
