"""What is told to those who subscribe over MAP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

import postroom
from postroom.formats.map import request
from tests.map.people import agent, refused, visitor
from tests.server.http.running import Daemon, make_token, open_server, port_of


def test_agents_scopes_and_messages_are_reported(port: int, operator: str) -> None:
    with visitor(port) as client:
        client.join(operator, kind="client", name="desk")
        result = client.ask("map/subscribe", filter={})
        with agent(port, operator, "ann", role="worker") as ann, agent(port, operator, "bob") as bob:
            came = client.event("agent.registered")
            assert (result["subscriptionId"], 1, "ann") == (
                came["subscriptionId"], came["sequenceNumber"], came["event"]["data"]["agentId"],
            )  # fmt: skip
            assert ("ann", "worker") == tuple(came["event"]["data"][word] for word in ("name", "role"))
            ann.ask("map/agents/update", agentId="ann", state="busy")
            changed = client.event("agent.state.changed")["event"]["data"]
            assert ("idle", "busy") == (changed["previousState"], changed["newState"])
            ann.ask("map/agents/update", agentId="ann", metadata={"x": 1})
            assert {"x": 1} == client.event("agent.updated")["event"]["data"]["agent"]["metadata"]
            ann.ask("map/scopes/create", scopeId="team")
            ann.ask("map/scopes/join", scopeId="team")
            assert "team" == client.event("scope.created")["event"]["data"]["scopeId"]
            assert "ann" == client.event("scope.member.joined")["event"]["data"]["agentId"]
            ann.ask("map/scopes/leave", scopeId="team")
            assert "ann" == client.event("scope.member.left")["event"]["data"]["agentId"]
            ann.ask("map/scopes/delete", scopeId="team")
            assert client.event("scope.deleted")
            sent = ann.send("bob", {"n": 1}, correlationId="c-1")["messageId"]
            assert sent == bob.message()["id"]
            assert "map/ping" == bob.hear()["method"]  # behind it; its answer is the receipt
            notice = client.event("message.sent")["event"]["data"]
            assert (sent, sent, "ann", "bob", "c-1", {"n": 1}) == (
                notice["id"], notice["messageId"], notice["from"], notice["to"], notice["correlationId"],
                notice["message"]["payload"],
            )  # fmt: skip
            got = client.event("message.delivered")["event"]["data"]
            assert (sent, "bob", ["bob"], "ann", "c-1") == tuple(
                got[word] for word in ("messageId", "agentId", "deliveredTo", "from", "correlationId")
            )
            bob.ask("map/agents/unregister", agentId="bob")
            assert "bob" == client.event("agent.unregistered")["event"]["data"]["agentId"]
        cut = client.event("agent.state.changed")["event"]["data"]
        assert ("ann", "busy", "orphaned", "orphaned", "worker", None) == (
            cut["agentId"], cut["previousState"], cut["newState"], cut["agent"]["state"], cut["role"],
            cut["ownerId"],
        )  # fmt: skip
        closed = client.ask("map/unsubscribe", subscriptionId=result["subscriptionId"])
        assert result["subscriptionId"] == closed["subscription"]["id"]


def test_an_agent_that_falls_silent_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Away with its connection, then stopped."""
    monkeypatch.setattr("postroom.map.events.SCAN_EVERY", 0.05)

    async def story() -> list[tuple[str, str, str]]:
        serving = open_server(tmp_path, with_map=True, settings={"away_grace": 1})
        async with serving as (server, room, _, _), asyncio.timeout(20):
            url, header = f"ws://127.0.0.1:{port_of(server)}/map", {"authorization": f"Bearer {make_token(room)}"}

            async def opened(kind: str, method: str, **message: Any) -> Any:
                line = await connect(url, additional_headers=header)
                who = {"protocolVersion": 1, "participantType": kind}
                for number, call in enumerate((("map/connect", who), (method, message))):
                    await line.send(json.dumps(request(number, call[0], **call[1])))
                    await line.recv()
                return line

            wanted = {"eventTypes": ["agent.state.changed"]}
            client = await opened("client", "map/subscribe", filter=wanted)
            ann = await opened("agent", "map/agents/register", name="ann")
            await ann.close()
            results: list[tuple[str, str, str]] = []
            while not results or results[-1][2] != "stopped":
                data = json.loads(await client.recv())["params"]["event"]["data"]
                results.append((data["agent"]["id"], data["previousState"], data["newState"]))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await client.recv()
            await client.close()
            return results

    assert [("ann", "idle", "orphaned"), ("ann", "orphaned", "stopped")] == asyncio.run(story())


def test_types_are_reported_as_they_were_asked_for(port: int, operator: str) -> None:
    """The SDK's constants have underscores, its server's events have dots."""
    with visitor(port) as client, agent(port, operator, "una") as una:
        client.join(operator, kind="client", name="desk")
        both = ["message.sent", "message_sent", "agent_state_changed", "message_delivered"]
        client.ask("map/subscribe", filter={"eventTypes": both, "fromAgents": ["una"]})
        una.ask("map/agents/update", agentId="una", state="busy")
        assert client.event("agent_state_changed")
        una.send("una", "to myself")
        assert client.event("message.sent")
        assert "to myself" == una.message()["payload"] and una.hear()
        assert client.event("message_delivered")
        result = una.ask("map/replay", filter={"eventTypes": ["message_sent"], "fromAgents": ["una"]})["events"]
        assert ["message_sent"] == [one["event"]["type"] for one in result]


@pytest.mark.parametrize(
    ("filter", "kind"),
    [({}, "message_delivered"), ({"eventTypes": ["message.delivered"]}, "message.delivered"),
     ({"eventTypes": ["message_delivered"]}, "message_delivered")],
)  # fmt: skip
def test_a_client_is_notified_of_letters_for_its_name(
    running: Daemon, port: int, operator: str, filter: dict[str, object], kind: str
) -> None:
    with visitor(port) as client, agent(port, operator, "vi") as vi:
        client.join(operator, kind="client", name="front")
        client.ask("map/subscribe", filter=filter)
        sent = vi.send("front", "an answer", correlationId="q-1")["messageId"]
        vi.send("somebody", "else")
        got = client.event(kind)["event"]["data"]
        assert (sent, ["front"], "q-1", "an answer") == (
            got["messageId"], got["deliveredTo"], got["correlationId"], got["message"]["payload"],
        )  # fmt: skip
        assert client.hears_nothing() and not [one for one in client.events if "delivered" in one["event"]["type"]]
        with postroom.open(running.room) as room:  # it is told, and has not said that it took it
            assert sent in [letter.id for letter in room.mailbox("front").check(peek=True)]


def test_nobody_hears_of_the_messages_of_others(port: int, operator: str) -> None:
    with agent(port, operator, "cy") as cy, agent(port, operator, "dee") as dee, agent(port, operator, "ed") as ed:
        for one in (dee, ed):
            one.ask("map/subscribe", filter={"eventTypes": ["message.*"]})
        cy.send("dee", "private")
        assert "private" == dee.message()["payload"]
        assert dee.event("message.sent") and dee.event("message.delivered")
        assert ed.hears_nothing() and ed.events == []


@pytest.mark.parametrize(
    ("filter", "received"),
    [
        ({"eventTypes": ["message_sent"]}, True),
        ({"fromAgents": ["fay"]}, True),
        ({"fromRoles": ["worker"]}, True),
        ({"roles": ["lead"]}, False),
        ({"correlationIds": ["c-9"]}, True),
        ({"correlationIds": ["other"]}, False),
        ({"metadataMatch": {"k": 1}}, True),
        ({"metadataMatch": {"k": 2}}, False),
        ({"priorities": ["urgent"]}, True),
        ({"scopes": ["elsewhere"]}, False),
    ],
)
def test_every_word_of_a_filter_narrows(
    port: int, operator: str, filter: dict[str, object], received: bool
) -> None:
    with visitor(port) as client, agent(port, operator, "fay", role="worker") as fay:
        client.join(operator, kind="client")
        client.ask("map/subscribe", filter=filter | {"eventTypes": ["message.sent"]})
        client.ask("map/subscribe", filter={"eventTypes": ["scope.created"]})
        fay.send("nobody", 1, correlationId="c-9", k=1, priority="urgent")
        client.ask("map/agents/list")
        if received:
            assert client.event("message.sent")
        else:
            assert client.hears_nothing() and client.events == []


def test_what_was_missed_is_reported_from_a_cursor_on_and_by_replay(port: int, operator: str) -> None:
    wanted = {"eventTypes": ["message.sent"], "fromAgents": ["gus"]}
    with agent(port, operator, "gus") as gus:
        since = gus.ask("map/subscribe", filter=wanted)["cursor"]
        ids = [gus.send("hal", number)["messageId"] for number in range(3)]
        assert ids == [gus.event("message.sent")["event"]["data"]["id"] for _ in ids]
    with agent(port, operator, "gus") as gus:
        gus.ask("map/subscribe", filter=wanted, replayFrom=since)
        first, *rest = (gus.event("message.sent") for _ in ids)
        assert ids == [one["event"]["data"]["id"] for one in (first, *rest)]
        later = gus.ask("map/events.replay", afterEventId=first["eventId"], filter=wanted)["events"]
        assert ids[1:] == [one["event"]["data"]["id"] for one in later]
        again = gus.ask("map/subscribe", filter=wanted, replayFrom=first["eventId"])
        assert ids[1:] == [gus.event("message.sent")["event"]["data"]["id"] for _ in ids[1:]], again


def test_acks_of_events_are_taken(port: int, operator: str) -> None:
    with agent(port, operator, "ida") as ida:
        id = ida.ask("map/subscribe")["subscriptionId"]
        assert {"success": True} == ida.ask("map/subscribe.ack", subscriptionId=id, upToSequence=1)
        assert {"success": False} == ida.ask("map/subscribe.ack", subscriptionId="sub-0", upToSequence=1)
        assert -32602 == refused(ida, "map/unsubscribe", subscriptionId="sub-0")


def test_what_was_subscribed_to_stays_when_an_agent_goes(port: int, operator: str) -> None:
    with agent(port, operator, "jan") as jan:
        jan.register(name="jil")
        id = jan.ask("map/subscribe", filter={"eventTypes": ["agent.registered"]})["subscriptionId"]
        jan.ask("map/agents/unregister", agentId="jan")
        jan.register(name="joy")
        result = jan.event("agent.registered")
        assert (id, "joy") == (result["subscriptionId"], result["event"]["data"]["agentId"])
        assert id == jan.ask("map/unsubscribe", subscriptionId=id)["subscription"]["id"]
