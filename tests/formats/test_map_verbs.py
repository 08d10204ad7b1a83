"""What MAP's methods do to a room: agents, scopes, messages, and who is meant by an address."""

from __future__ import annotations

from typing import Any

import pytest

import postroom
from postroom import Room
from postroom.core import outbox
from postroom.core.authorize import agent_principal
from postroom.errors import IdTaken, IllegalMove, Invalid, Missing, NameTaken, NotAllowed, TooLarge, UnknownAgent
from postroom.map.agents import BEAT_EVERY
from postroom.model.agent import Warmth
from postroom.model.peer import Peer
from tests.core.peering import know_peer
from tests.formats.map_asking import ask, register_all
from tests.rooms import FakeClock, RoomFactory


@pytest.fixture
def team(room: Room) -> Room:
    """A boss, two workers and a helper below one of them."""
    register_all(
        room,
        ("boss", None, "lead", ["all"]),
        ("ann", "boss", "worker", ["all", "red"]),
        ("bob", "boss", "worker", ["all"]),
        ("kid", "ann", "helper", []),
    )
    return room


ADDRESSES: list[tuple[str, Any, list[str]]] = [
    ("ann", {"agent": "bob"}, ["bob"]),
    ("ann", {"agentId": "bob"}, ["bob"]),
    ("ann", {"parent": True}, ["boss"]),
    ("boss", {"children": True}, ["ann", "bob"]),
    ("kid", {"ancestors": True}, ["ann", "boss"]),
    ("kid", {"ancestors": True, "depth": 1}, ["ann"]),
    ("boss", {"descendants": True}, ["ann", "bob", "kid"]),
    ("boss", {"descendants": True, "depth": 1}, ["ann", "bob"]),
    ("ann", {"siblings": True}, ["bob"]),
    ("boss", {"role": "worker"}, ["ann", "bob"]),
    ("ann", {"role": "worker"}, ["bob"]),
    ("boss", {"role": "worker", "within": "red"}, ["ann"]),
    ("boss", {"scope": "all"}, ["ann", "bob"]),
    ("ann", {"broadcast": True}, ["bob", "boss", "kid"]),
    ("ann", ["bob", {"scope": "all"}], ["bob", "boss"]),
    ("ann", {"agent": "never-seen"}, ["never-seen"]),
]


@pytest.mark.parametrize(("sender", "to", "got"), ADDRESSES)
def test_a_message_lies_in_the_inboxes_of_those_it_is_for(
    team: Room, sender: str, to: Any, got: list[str]
) -> None:
    result = ask(team, "send", **{"from": sender}, to=to, payload={"n": 1}, meta={"x": 1})
    assert got == sorted(result["delivered"])
    for name in ("boss", "ann", "bob", "kid", "never-seen"):
        found = team.mailbox(name).check()
        assert ([result["messageId"]] if name in got else []) == [letter.id for letter in found]


@pytest.mark.parametrize(
    ("to", "error", "field"),
    [
        ({"scope": "none"}, Missing, "scope"),
        ({"role": "none"}, Missing, "to"),
        ({"system": "elsewhere", "agent": "bob"}, Missing, "system"),
        ({"children": True}, Missing, "to"),
    ],
)
def test_an_address_without_a_listener_is_reported(team: Room, to: Any, error: Any, field: str) -> None:
    with pytest.raises(error) as refused:
        ask(team, "send", **{"from": "bob"}, to=to, payload=1)
    assert field == refused.value.field


def test_a_message_to_a_scope_without_other_members_is_delivered_to_nobody(team: Room) -> None:
    """As the server of MAP's SDK does it. A broadcast by our own verbs is refused, as before."""
    ask(team, "scopes/create", agent_id="ann", scopeId="empty")
    for scope in ("red", "empty"):
        result = ask(team, "send", **{"from": "ann"}, to={"scope": scope}, payload=1)
        assert [] == result["delivered"] and result["messageId"]
        with pytest.raises(UnknownAgent):
            team.mailbox("ann").send(f"broadcast:{scope}", "hello")
    result = ask(team, "send", **{"from": "ann"}, to=["bob", {"scope": "red"}], payload=1)
    assert ["bob"] == result["delivered"]


def test_a_system_of_ones_own_is_here(team: Room) -> None:
    result = ask(team, "send", **{"from": "ann"}, to={"system": team.system, "agent": "bob"}, payload=1)
    assert ["bob"] == result["delivered"]


@pytest.mark.parametrize(
    ("to", "mailbox"),
    [
        ({"agent": "bob", "system": "far"}, "bob@far"),
        ({"system": "far", "agent": "bob", "scope": "dev"}, "bob@far/dev"),
        ({"system": "far"}, "@far"),
        ("bob@far", "bob@far"),
        ({"agent": "bob@far/dev"}, "bob@far/dev"),
        ("@far", "@far"),
        ({"agent": "bob", "system": "moon"}, "bob@moon"),
    ],
)
def test_a_system_that_a_peer_leads_to_is_written_to(team: Room, to: Any, mailbox: str) -> None:
    know_peer(team, Peer(system="far", relays_for=("moon",)))
    result = ask(team, "send", to=to, payload="hello", **{"from": "ann"})
    assert [mailbox] == result["delivered"]
    assert [mailbox] == outbox.waiting_mailboxes(team.core)


def test_a_result_answers_the_message_it_names(team: Room) -> None:
    first = ask(team, "send", **{"from": "ann"}, to="bob", payload="q")["messageId"]
    meta = {"correlationId": first, "isResult": True}
    ask(team, "send", **{"from": "bob"}, to="ann", payload="a", meta=meta)
    ask(team, "send", **{"from": "kid"}, to="ann", payload="a", meta=meta)  # who does not know that letter
    assert [first, None] == [letter.message.in_reply_to for letter in team.mailbox("ann").check()]


# -- agents


def test_an_agent_comes_changes_and_goes(room: Room) -> None:
    came = ask(room, "agents/register", agent_id="ann", name="Ann", role="worker", scopes=["s"], metadata={"a": 1})
    assert ("ann", "Ann", "idle", "worker", ["s"], {"a": 1}) == tuple(
        came["agent"][word] for word in ("id", "name", "state", "role", "scopes", "metadata")
    )
    assert "busy" == ask(room, "agents/update", agent_id="ann", state="busy", metadata={"b": 2})["agent"]["state"]
    assert {"a": 1, "b": 2} == ask(room, "agents/get", agent_id="ann")["agent"]["metadata"]
    assert "suspended" == ask(room, "agents/suspend", agent_id="ann")["agent"]["state"]
    assert "idle" == ask(room, "agents/resume", agent_id="ann")["agent"]["state"]
    assert "x-thinking" == ask(room, "agents/update", agent_id="ann", state="x-thinking")["agent"]["state"]
    assert "stopped" == ask(room, "agents/stop", agent_id="ann")["agent"]["state"]
    assert 0 == ask(room, "agents/update", agent_id="ann", metadata={"exit": 0})["agent"]["metadata"]["exit"]
    with pytest.raises(IllegalMove) as stopped:
        ask(room, "agents/update", agent_id="ann", state="idle")
    assert "agent" == stopped.value.field
    assert "idle" == ask(room, "agents/register", agent_id="ann")["agent"]["state"]
    gone = ask(room, "agents/unregister", agent_id="ann")["agent"]
    assert ("stopped", [], None) == (gone["state"], gone["scopes"], gone["ownerId"])
    assert [] == ask(room, "agents/list")["agents"] == ask(room, "structure/graph")["nodes"]
    room.mailbox("bob").send("ann", "still there?")
    assert 1 == len(room.mailbox("ann").check())


def test_a_card_keeps_what_others_say_of_it(room: Room) -> None:
    room.mailbox("ann").register(allow_from=["bob"], capabilities=["python"], model="m")
    ask(room, "agents/register", agent_id="ann", name="Ann")
    ask(room, "agents/update", agent_id="ann", state="busy")
    card = room.agent("ann").card
    assert (("bob",), ("python",), "m") == (card.allow_from, card.capabilities, card.model)


def test_an_operators_hand_is_no_sign_of_life_and_takes_nothing(room: Room, clock: FakeClock) -> None:
    own = room.acting_as(agent_principal("ann"))
    ask(own, "agents/register", agent_id="ann", name="Ann", scopes=["s"])
    before = room.agent("ann")
    own.mailbox("ann").leave()
    clock.advance(5)
    for verb, message in (("update", {"metadata": {"k": 1}}), ("suspend", {}), ("resume", {}), ("stop", {})):
        ask(room, f"agents/{verb}", agent_id="ann", **message)
        after = room.agent("ann")
        assert (True, Warmth.AWAY) == (after.presence.left, after.presence.warmth)
        assert (before.card.principal, before.card.registered_at) == (
            after.card.principal,
            after.card.registered_at,
        )
    assert {"k": 1} == room.agent("ann").card.metadata


def test_what_an_agent_says_of_itself_is_a_sign_of_life_as_its_connection_gives_them(
    room: Room, clock: FakeClock
) -> None:
    own = room.acting_as(agent_principal("ann"))
    ask(own, "agents/register", agent_id="ann", name="Ann")
    clock.advance(100)
    ask(own, "agents/update", agent_id="ann", state="busy")
    clock.advance(2 * BEAT_EVERY)
    assert ("busy", Warmth.ACTIVE) == (
        ask(room, "agents/get", agent_id="ann")["agent"]["state"], room.agent("ann").presence.warmth,
    )  # fmt: skip


@pytest.mark.parametrize("state", ["sleepy", "", "x" * 100, "X-own"])
def test_a_word_that_is_no_state_is_refused(team: Room, state: str) -> None:
    with pytest.raises(IllegalMove):
        ask(team, "agents/update", agent_id="ann", state=state)


def test_nobody_is_above_itself_and_a_child_is_not_taken_from_another(team: Room) -> None:
    with pytest.raises(Invalid):
        ask(team, "agents/register", agent_id="boss", parent="kid")
    with pytest.raises(NameTaken):
        ask(team, "agents/spawn", agent_id="kid", parent="bob")
    with pytest.raises(UnknownAgent):
        ask(team, "agents/spawn", agent_id="new", parent="nobody")
    assert "ann" == ask(team, "agents/spawn", agent_id="kid", parent="ann")["agent"]["parent"]


@pytest.mark.parametrize(
    "filter",
    [{"scopes": [{}]}, {"states": [[]]}, {"states": 5}, {"roles": [1]}, {"ownerId": []}, {"parent": {}}],
)
def test_a_filter_of_the_wrong_kind_is_refused(team: Room, filter: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        ask(team, "agents/list", filter=filter)


@pytest.mark.parametrize("depth", ["x", -1, True, [], 1.5])
@pytest.mark.parametrize("word", ["ancestors", "descendants"])
def test_a_depth_that_is_none_is_refused(team: Room, word: str, depth: Any) -> None:
    with pytest.raises(Invalid):
        ask(team, "agents/get", agentId="ann", include={word: True, "maxDepth": depth})


def test_a_list_is_narrowed_and_paged(team: Room) -> None:
    def names(**message: Any) -> list[str]:
        return [agent["id"] for agent in ask(team, "agents/list", **message)["agents"]]

    assert ["ann", "bob", "boss", "kid"] == names()
    assert ["ann", "bob"] == names(filter={"roles": ["worker"]}) == names(role="worker")
    assert ["ann"] == names(filter={"scopes": ["red"]})
    assert ["kid"] == names(filter={"parent": "ann"})
    assert ["ann", "boss"] == names(filter={"hasChildren": True})
    assert [] == names(filter={"states": ["busy"]}) == names(filter={"ownerId": "p"})
    first = ask(team, "agents/list", limit=3)
    assert ["kid"] == names(limit=3, cursor=first["nextCursor"])


def test_relatives_and_the_graph(team: Room) -> None:
    result = ask(team, "agents/get", agent_id="ann", include={
        "parent": True, "children": True, "siblings": True, "ancestors": True, "descendants": True})  # fmt: skip
    found = {
        word: [one["id"] for one in result[word]] for word in ("children", "siblings", "ancestors", "descendants")
    }
    assert {"children": ["kid"], "siblings": ["bob"], "ancestors": ["boss"], "descendants": ["kid"]} == found
    assert "boss" == result["parent"]["id"]
    graph = ask(team, "structure/graph", rootAgentId="ann")
    assert (["ann", "kid"], [{"from": "ann", "to": "kid", "type": "parent-child"}]) == (
        [node["id"] for node in graph["nodes"]],
        graph["edges"],
    )
    assert 3 == len(ask(team, "structure/graph")["edges"])
    for wrong in ({"agents/get": {"agent_id": "no"}}, {"structure/graph": {"rootAgentId": "no"}}):
        for name, message in wrong.items():
            with pytest.raises(UnknownAgent):
                ask(team, name, **message)


# -- scopes


def test_a_scope_is_made_joined_left_and_removed(team: Room) -> None:
    made = ask(team, "scopes/create", agent_id="ann", name="Blue team", joinPolicy="open")["scope"]
    assert ("Blue-team", "Blue team", "open", "ann") == tuple(
        made[word] for word in ("id", "name", "joinPolicy", "createdBy")
    )
    with pytest.raises(IdTaken):
        ask(team, "scopes/create", agent_id="bob", scopeId="Blue-team")
    joined = ask(team, "scopes/join", agent_id="bob", scopeId="Blue-team")
    assert (1, True) == (joined["scope"]["memberCount"], "Blue-team" in joined["agent"]["scopes"])
    assert ["bob"] == ask(team, "scopes/members", scopeId="Blue-team")["members"]
    assert ["bob"] == ask(team, "send", **{"from": "ann"}, to={"scope": "Blue-team"}, payload=1)["delivered"]
    ask(team, "scopes/leave", agent_id="bob", scopeId="Blue-team")
    assert [] == ask(team, "scopes/members", scopeId="Blue-team")["members"]
    ask(team, "scopes/join", agent_id="bob", scopeId="Blue-team")
    with pytest.raises(NotAllowed):
        ask(team.acting_as(agent_principal("bob")), "scopes/delete", agent_id="bob", scopeId="Blue-team")
    ask(team.acting_as(agent_principal("ann")), "scopes/delete", agent_id="ann", scopeId="Blue-team")
    assert "Blue-team" not in team.agent("bob").card.scopes
    for verb in ("get", "members", "join"):
        with pytest.raises(Missing) as gone:
            ask(team, f"scopes/{verb}", agent_id="bob", scopeId="Blue-team")
        assert "scope" == gone.value.field


def test_what_is_said_of_a_scope_and_how_many_one_is_in_is_bounded(factory: RoomFactory) -> None:
    room = factory.room(max_card_bytes=2000)
    ask(room, "agents/register", agent_id="ann", name="ann")
    with pytest.raises(TooLarge):
        ask(room, "scopes/create", agent_id="ann", scopeId="big", metadata={"k": "x" * 2000})

    def join_many() -> None:
        for number in range(20):
            ask(room, "scopes/create", agent_id="ann", scopeId=f"{number:0128}")
            ask(room, "scopes/join", agent_id="ann", scopeId=f"{number:0128}")

    with pytest.raises(TooLarge):
        join_many()
    assert 10 < len(room.agent("ann").card.scopes) < 16


def test_scopes_on_cards_are_scopes_and_a_made_one_outlives_its_last_member(team: Room) -> None:
    ask(team, "scopes/create", agent_id="ann", scopeId="empty", parent="all", metadata={"k": 1})
    listed = ask(team, "scopes/list")["scopes"]
    assert ["all", "empty", "red"] == [scope["id"] for scope in listed]
    assert ["empty"] == [scope["id"] for scope in ask(team, "scopes/list", parent="all")["scopes"]]
    assert {"k": 1} == ask(team, "scopes/get", scopeId="empty")["scope"]["metadata"]
    first = ask(team, "scopes/list", limit=1)
    rest = ask(team, "scopes/list", cursor=first["nextCursor"])["scopes"]
    assert ["empty", "red"] == [scope["id"] for scope in rest]
    assert "nextCursor" in ask(team, "scopes/members", scopeId="all", limit=1)
    with pytest.raises(UnknownAgent):
        ask(team, "scopes/join", agent_id="nobody", scopeId="empty")
    assert ask(team, "scopes/create", agent_id="ann", name="!!!")["scope"]["id"].startswith("scope-")


# -- what happened


def test_what_happened_is_reported_again_from_an_event_or_a_time_on(team: Room) -> None:
    for number in range(3):
        ask(team, "send", **{"from": "ann"}, to="bob", payload=number)
    wanted = {"eventTypes": ["message_sent"]}
    all_of_it = ask(team, "replay", filter=wanted)
    assert (3, False) == (len(all_of_it["events"]), all_of_it["hasMore"])
    first = all_of_it["events"][0]
    assert {"message_sent"} == {one["event"]["type"] for one in all_of_it["events"]}
    assert all_of_it["events"][1:] == ask(team, "replay", afterEventId=first["eventId"], filter=wanted)["events"]
    assert ask(team, "replay", limit=2, filter=wanted)["hasMore"]
    assert [] == ask(team, "replay", fromTimestamp=first["timestamp"] + 10**9, filter=wanted)["events"]
    bob = team.acting_as(agent_principal("bob"))
    kid = team.acting_as(agent_principal("kid"))
    assert (3, 0) == tuple(len(ask(one, "replay", filter=wanted)["events"]) for one in (bob, kid))
    with pytest.raises(Invalid):
        ask(team, "replay", afterEventId="no number")
    team.core.store.trim(1)
    assert ask(team, "replay", filter=wanted)["events"]  # what can still be told


# -- what becomes of it elsewhere


def test_agents_and_scopes_travel_with_an_export(team: Room) -> None:
    ask(team, "scopes/create", agent_id="ann", scopeId="made", description="d")
    lines = list(team.export())
    with postroom.open("memory:") as other:
        other.load(lines)
        assert "ann" == ask(other, "agents/get", agent_id="kid")["agent"]["parent"]
        assert "d" == ask(other, "scopes/get", scopeId="made")["scope"]["description"]


def test_a_scope_that_says_it_is_another_does_not_come_in(room: Room) -> None:
    ask(room, "scopes/create", agent_id="ann", scopeId="made")
    lines = [line.replace(b'"id":"made"', b'"id":"fake"') for line in room.export()]
    with postroom.open("memory:") as other, pytest.raises(Invalid):
        other.load(lines)
