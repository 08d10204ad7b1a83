"""Letters to other systems: who is meant, what waits here until it is there, what is refused at once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from postroom import Room, draft
from postroom.core import outbox, peers
from postroom.core.agents import ListAgents
from postroom.core.authorize import OWNER
from postroom.core.compose import Draft
from postroom.core.verb import from_params, perform
from postroom.errors import IdTaken, Invalid, Missing, NotAllowed, QuotaFull
from postroom.formats.plain import plain
from postroom.model.codec import to_plain
from postroom.model.delivery import State
from postroom.model.message import Recipient
from postroom.model.names import Address
from postroom.model.peer import Peer, Route
from postroom.model.query import Query
from postroom.model.record import ROUTE, Record
from postroom.server.protocol import find_action
from postroom.store.protocol import Put, outgoing, waiting_letters
from tests.core.peering import know_peer
from tests.letters import NOW
from tests.rooms import FakeClock, RoomFactory, addresses


@pytest.fixture
def room(factory: RoomFactory) -> Room:
    room = factory.room(system="here")
    know_peer(room, Peer(system="far", relays_for=("moon",)))
    return room


def route(room: Room, agent: str, system: str, seconds: float = 300) -> None:
    value = to_plain(Route(system=system, until=NOW + timedelta(seconds=seconds)))
    room.core.store.commit([Put(record=Record(kind=ROUTE, key=agent, value=value))])


def places(room: Room, id: str) -> dict[str, State]:
    found = room.core.store.find(Query(message_ids=(id,)))
    return {one.delivery.mailbox: one.delivery.state for one in found}


def test_a_letter_to_another_system_waits_until_it_is_there(room: Room) -> None:
    sent = room.mailbox("ann").send(["bob@far", "carl"], "hello", cc="@far/team")

    assert places(room, sent.id) == {
        "bob@far": State.QUEUED,
        "@far/team": State.QUEUED,
        "carl": State.UNREAD,
    }
    assert (sent.unknown, outbox.waiting_mailboxes(room.core)) == (("carl",), ["@far/team", "bob@far"])
    assert room.mailbox("carl").check()[0].text == "hello"


@pytest.mark.parametrize(
    "message", [{"agent": "bob", "system": "far"}, Address(agent="bob", system="far"), "bob@far"]
)
def test_an_address_may_be_passed_by_its_pieces(room: Room, message: Any) -> None:
    assert addresses(room.mailbox("ann").send(message, "hello").message) == ["bob@far"]
    assert addresses(room.mailbox("ann").send([message], "hello").message) == ["bob@far"]


def test_pieces_without_a_system_are_an_agent_here(room: Room) -> None:
    room.mailbox("bob").register(scopes=["team"])

    assert addresses(room.mailbox("ann").send({"agent": "bob"}, "hello").message) == ["bob"]
    assert addresses(room.mailbox("ann").send({"scope": "team"}, "hello").message) == ["broadcast:team"]


def test_our_own_system_is_here(room: Room) -> None:
    room.mailbox("bob").register(scopes=["team"])
    sent = room.mailbox("ann").send(["bob@here", "bob", "ceo@HERE", "@here/team"], "hello")

    assert sent.message.recipients == (Recipient("bob"), Recipient("human"), Recipient("broadcast:team"))
    assert set(places(room, sent.id)) == {"bob", "human"}
    with pytest.raises(Invalid, match="this room itself"):
        room.mailbox("ann").send("@here", "hello")


def test_a_system_is_spelt_as_its_peer_is(room: Room) -> None:
    assert addresses(room.mailbox("ann").send("bob@FAR", "hello").message) == ["bob@far"]


def test_a_system_that_nobody_leads_to_is_refused_and_nothing_is_written(room: Room) -> None:
    with pytest.raises(Missing) as refused:
        room.mailbox("ann").send(["carl", "bob@nowhere"], "hello")

    assert refused.value.field == "to"
    assert "postroom peers add nowhere" in str(refused.value)
    assert room.mailboxes() == []


def test_a_system_behind_a_peer_is_reached_through_it(room: Room) -> None:
    assert places(room, room.mailbox("ann").send("bob@moon", "hello").id) == {"bob@moon": State.QUEUED}


def test_a_scope_that_may_not_go_there_is_refused(room: Room) -> None:
    know_peer(room, Peer(system="far", scopes={"open": ("far",)}))

    room.mailbox("ann").send("bob@far", "hello", scope="open")
    with pytest.raises(NotAllowed):
        room.mailbox("ann").send("bob@far", "hello", scope="secret")


def test_a_peer_that_is_not_trusted_gets_nothing(room: Room) -> None:
    know_peer(room, Peer(system="far", trusted=False))

    with pytest.raises(NotAllowed):
        room.mailbox("ann").send("bob@far", "hello")


def test_too_many_letters_for_one_system_are_refused(factory: RoomFactory) -> None:
    room = factory.room(system="here", outbox_max_letters=2)
    know_peer(room, Peer(system="far"))
    know_peer(room, Peer(system="near"))
    room.mailbox("ann").send("bob@far", "1")
    room.mailbox("eve").send("eve@far", "2", at=NOW + timedelta(days=1))

    with pytest.raises(QuotaFull, match="2 letters wait for the system 'far', and at most 2 may"):
        room.mailbox("max").send("bob@far", "3")
    assert waiting_letters(room.core.store, "any@FAR", "ann") == (2, 1)
    room.mailbox("ann").send("bob@near", "3")


def test_one_sender_gets_half_of_what_is_free_in_the_outbox_for_a_system(factory: RoomFactory) -> None:
    room = factory.room(system="here", outbox_max_letters=10)
    know_peer(room, Peer(system="far"))
    for name, share in (("ann", 5), ("eve", 2), ("max", 1), ("zoe", 1)):
        for n in range(share):
            room.mailbox(name).send(f"bob{n}@far", "hello")
        with pytest.raises(QuotaFull, match=f"{share} letters of '{name}' wait for the system 'far'") as refused:
            room.mailbox(name).send("bob@far", "one too many")
        assert refused.value.temporary and "peers ping far" in str(refused.value)


def test_a_letter_to_many_counts_all_of_them(factory: RoomFactory) -> None:
    room = factory.room(system="here", outbox_max_letters=4)
    know_peer(room, Peer(system="far"))

    with pytest.raises(QuotaFull):
        room.mailbox("ann").send(["a@far", "b@far", "c@far"], "1")
    assert outgoing(room.core.store) == {}
    room.mailbox("ann").send(["a@far", "b@far"], "1")


def test_letters_that_are_sent_together_count_together(factory: RoomFactory) -> None:
    room = factory.room(system="here", outbox_max_letters=4)
    know_peer(room, Peer(system="far"))

    with pytest.raises(QuotaFull):
        room.mailbox("ann").send_many([draft("bob@far", text) for text in "123"])
    assert outgoing(room.core.store) == {}
    assert len(room.mailbox("ann").send_many([draft("bob@far", text) for text in "12"])) == 2


def test_a_letter_that_finds_no_space_can_be_sent_again_by_its_key(factory: RoomFactory) -> None:
    room = factory.room(system="here", outbox_max_letters=1)
    know_peer(room, Peer(system="far"))
    room.mailbox("ann").send("bob@far", "1")

    with pytest.raises(QuotaFull) as refused:
        room.mailbox("ann").send("bob@far", "2", id="two")
    assert ("two",) == refused.value.keys


def test_the_same_letter_again_is_known_whatever_became_of_the_way(factory: RoomFactory) -> None:
    room = factory.room(system="here", outbox_max_letters=1)
    know_peer(room, Peer(system="far"))
    ann = room.mailbox("ann")
    ann.send("bob@far", "hello", id="one")

    assert ann.send("bob@far", "hello", id="one").repeated
    perform(room.core, OWNER, peers.RemovePeer(system="far"))
    assert ann.send("bob@far", "hello", id="one").repeated


def test_full_inboxes_and_unknown_names_are_ours_alone(factory: RoomFactory) -> None:
    room = factory.room(system="here", inbox_quota=1, unknown="refuse")
    know_peer(room, Peer(system="far"))

    assert [room.mailbox("ann").send("bob@far", text).unknown for text in ("1", "2")] == [(), ()]


# -- a bare name


def test_a_bare_name_is_a_local_agent_if_one_has_it(room: Room) -> None:
    room.mailbox("bob").register()
    route(room, "bob", "far")

    assert places(room, room.mailbox("ann").send("bob", "hello").id) == {"bob": State.UNREAD}


def test_a_bare_name_that_the_table_knows_is_there(room: Room) -> None:
    route(room, "bob", "far")
    sent = room.mailbox("ann").send("bob", "hello")

    assert places(room, sent.id) == {"bob@far": State.QUEUED}
    assert (sent.routed, sent.unknown, addresses(sent.message)) == (("bob@far",), (), ["bob"])


def test_what_the_table_knew_once_does_not_count(room: Room, clock: FakeClock) -> None:
    route(room, "bob", "far", seconds=10)
    clock.advance(11)

    assert places(room, room.mailbox("ann").send("bob", "hello").id) == {"bob": State.UNREAD}


def test_a_bare_name_that_nobody_knows_is_here_as_ever(room: Room) -> None:
    sent = room.mailbox("ann").send("bob", "hello")

    assert (places(room, sent.id), sent.unknown) == ({"bob": State.UNREAD}, ("bob",))


@pytest.mark.parametrize(
    "settings",
    [
        {"federation_strategy": "broadcast"},
        {"federation_strategy": "hierarchical", "federation_upstream": "far"},
    ],
)
def test_a_bare_name_is_to_be_found_where_the_settings_say_so(
    factory: RoomFactory, settings: dict[str, Any]
) -> None:
    room = factory.room(system="here", **settings)
    alone = places(room, room.mailbox("ann").send("bob", "hello").id)
    know_peer(room, Peer(system="far"))
    room.mailbox("carl").register()

    assert alone == {"bob": State.UNREAD}
    assert places(room, room.mailbox("ann").send("bob", "hello").id) == {"bob@*": State.QUEUED}
    assert places(room, room.mailbox("ann").send("carl", "hello").id) == {"carl": State.UNREAD}


def test_lookup_is_optional_and_needs_a_system_to_ask(factory: RoomFactory, room: Room) -> None:
    assert places(room, room.mailbox("ann").send("bob@*", "hello").id) == {"bob@*": State.QUEUED}
    room.core.store.commit(
        [
            Put(record=Record(kind=record.kind, key=record.key, value=None, revision=record.revision))
            for record in room.core.store.records("peer")
        ]
    )
    with pytest.raises(Missing, match="no peer that could look up"):
        room.mailbox("ann").send("bob@*", "hello")


# -- a bare name of which nobody here has heard, and that a peer has


def test_mail_for_a_stranger_goes_on_to_the_system_that_has_it(room: Room) -> None:
    ann = room.mailbox("ann")
    sent = [ann.send("bob", f"{n}") for n in range(3)]
    assert ["bob"] == list(outbox.unknown_names(room.core))
    assert "Bob@far" == outbox.redirect_unknown(room.core, "bob", "Bob", "far")
    assert [{"Bob@far": State.QUEUED}] * 3 == [places(room, one.id) for one in sent]
    assert {} == outbox.unknown_names(room.core) and not room.mailbox("bob").check()
    assert ("Bob@far",) == ann.send("bob", "at once, as it was found").routed
    assert [] == outbox.announced_agents(room.core)  # who was only asked for is not listed


def test_what_is_not_a_strangers_letter_or_may_not_go_stays(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room(system="here", outbox_max_age=100)
    know_peer(room, Peer(system="far", scopes={"open": ("*",)}))
    ann, core = room.mailbox("ann"), room.core
    for name in ("bob", "eve"):
        ann.send(name, "closed", scope="shut")
    old = ann.send("bob", "too old", scope="open")
    clock.advance(101)
    young = ann.send("bob", "young", scope="open")
    ann.send("human", "for the person")
    assert {"bob", "eve"} == set(outbox.unknown_names(core))
    assert None is outbox.redirect_unknown(core, "eve", "eve", "far")
    assert "bob@far" == outbox.redirect_unknown(core, "bob", "bob", "far")
    assert [{"bob": State.UNREAD}, {"bob@far": State.QUEUED}] == [places(room, one.id) for one in (old, young)]
    ann.send("zoe", "unread, and she came while peers were asked", scope="open")
    room.mailbox("zoe").register()
    assert None is outbox.redirect_unknown(core, "zoe", "zoe", "far")


def test_no_more_goes_on_than_may_wait_for_that_system(factory: RoomFactory) -> None:
    room = factory.room(system="here", outbox_max_letters=2)
    know_peer(room, Peer(system="far"))
    sent = [room.mailbox("ann").send("bob", f"{n}") for n in range(3)]
    outbox.redirect_unknown(room.core, "bob", "bob", "far")
    assert ["bob@far", "bob@far", "bob"] == [next(iter(places(room, one.id))) for one in sent]


@pytest.mark.parametrize("settings", [{"federation_refresh_on_miss": False}, {"federation_strategy": "broadcast"}])
def test_peers_are_asked_for_strangers_unless_the_settings_say_otherwise(
    factory: RoomFactory, settings: dict[str, Any]
) -> None:
    assert outbox.refreshes_on_miss(factory.room().core)
    assert not outbox.refreshes_on_miss(factory.room(**settings).core)


# -- nobody here is somebody elsewhere


def test_nobody_here_sends_or_reads_as_an_agent_elsewhere(room: Room) -> None:
    with pytest.raises(Invalid):
        room.mailbox("bob@far")
    with pytest.raises(Invalid):
        room.wait(["bob@far"], 0)


def test_a_letter_is_answered_forwarded_and_found_by_names_elsewhere(room: Room) -> None:
    sent = room.mailbox("ann").send("bob@far", "pumpkin")

    again = room.mailbox("ann").reply(sent.id, "and another")
    assert addresses(again.message) == ["bob@far"]
    assert [letter.id for letter in room.mailbox("ann").search("to:bob@far pumpkin")] == [sent.id]


def test_case_does_not_count_elsewhere_either(room: Room) -> None:
    first = room.mailbox("ann").send("Bob@far", "one")
    for message in ("bob@FAR", ["BOB@far", "bob@far"]):
        sent = room.mailbox("ann").send(message, "two")
        assert (["Bob@far"], {"Bob@far": State.QUEUED}) == (addresses(sent.message), places(room, sent.id))
    route(room, "bob", "far")
    assert ["Bob@far"] == list(places(room, room.mailbox("ann").send("bob", "three").id))
    assert ["Bob@far"] == list(places(room, first.id))


def test_a_name_is_spelt_as_its_system_announced_it_before_the_first_letter(room: Room) -> None:
    value = to_plain(Route(system="far", until=NOW + timedelta(seconds=300), name="Zoe"))
    room.core.store.commit([Put(record=Record(kind=ROUTE, key="zoe", value=value))])
    ann = room.mailbox("ann")
    for message in ("zoe", "ZOE@far", "zoe@FAR/dev"):
        sent = ann.send(message, "one")
        assert f"Zoe@far{'/dev' if '/' in message else ''}" == next(iter(places(room, sent.id)))
    assert ["Zoe"] == [name for name, _ in outbox.announced_agents(room.core)]


def test_announcements_of_a_removed_peer_count_no_more(room: Room) -> None:
    know_peer(room, Peer(system="near"))
    route(room, "zoe", "near")
    assert {"zoe@near": State.QUEUED} == places(room, room.mailbox("ann").send("zoe", "one").id)
    know_peer(room, Peer(system="near", trusted=False))
    assert {"zoe": State.UNREAD} == places(room, room.mailbox("ann").send("zoe", "two").id)


@pytest.mark.parametrize("to", ["carl@here", "bob@FAR", {"agent": "BOB", "system": "far"}, ["bob@far", "Bob@far"]])
def test_a_letter_that_is_sent_again_with_its_key_is_the_same_however_its_address_is_written(
    room: Room, to: Any
) -> None:
    room.mailbox("ann").send("Bob@far", "before")
    first = room.mailbox("ann").send(to, "once", key="k")
    again = room.mailbox("ann").send(to, "once", key="k")
    assert (first.id, True) == (again.id, again.repeated)


def test_agents_that_other_systems_announced_are_listed_on_request(room: Room) -> None:
    room.mailbox("ann").register()
    route(room, "zoe", "far")
    route(room, "max", "gone")  # nobody leads there
    list_agents = find_action("list_agents")
    listed = from_params(list_agents, {"include_federated": True}).run(room.core, room.principal)
    far = {"agentId": "zoe", "peerId": "far", "scope": "default", "status": "active", "location": "federated"}
    assert (2, far) == (listed["count"], listed["agents"][1])
    assert [far] == plain(perform(room.core, OWNER, ListAgents(elsewhere=True)))["elsewhere"]
    for message in ({}, {"include_federated": True, "scope": "team"}):
        found = from_params(list_agents, message).run(room.core, room.principal)
        assert "federated" not in {one["location"] for one in found["agents"]}


def test_letters_that_are_sent_together_count_each_other(factory: RoomFactory) -> None:
    room = factory.room(system="here", outbox_max_letters=10)
    know_peer(room, Peer(system="far"))

    with pytest.raises(QuotaFull):
        room.mailbox("ann").send_many([Draft(to=f"b{n}@far", body="x") for n in range(6)])
    assert outgoing(room.core.store) == {}
    message = [Draft(to=f"b{n}@far", body="x", letter_id=f"id{n}") for n in range(5)]
    assert [[one.repeated for one in room.mailbox("ann").send_many(message)] for _ in range(2)] == [
        [False] * 5,
        [True] * 5,
    ]


@pytest.mark.parametrize("trusted", [True, False])
def test_a_letter_that_is_sent_again_by_its_id_is_known_though_it_could_not_go_now(
    factory: RoomFactory, trusted: bool
) -> None:
    room = factory.room(system="here", outbox_max_letters=1)
    know_peer(room, Peer(system="far"))
    room.mailbox("ann").send("bob@far", "hello", id="one")
    know_peer(room, Peer(system="far", trusted=trusted))

    assert room.mailbox("ann").send("bob@far", "hello", id="one").repeated
    with pytest.raises(IdTaken):
        room.mailbox("ann").send("bob@far", "something else", id="one")
    with pytest.raises((QuotaFull, NotAllowed)):
        room.mailbox("ann").send("bob@far", "hello", id="two")
