"""Who is a peer, and who proves to be one (I6)."""

from __future__ import annotations

from typing import Any

import pytest

from postroom import Invalid, Missing, NotAllowed, Room
from postroom.core import peers
from postroom.core.authorize import OWNER, agent_principal
from postroom.core.portable import checked_record
from postroom.core.verb import perform
from postroom.formats.plain import plain
from postroom.model.codec import token_hash
from postroom.model.peer import Peer
from postroom.model.record import PEER, Record
from tests.rooms import FakeClock, RoomFactory

OLD, NEW = "sha256:" + "a" * 64, "sha256:" + "b" * 64


def added(room: Room, system: str = "berlin", **message: Any) -> str:
    return perform(room.core, OWNER, peers.AddPeer(system=system, fields=message, ours="paris")).token


def test_a_room_begins_without_peers_and_nobody_proves_to_be_one(room: Room) -> None:
    assert {} == peers.all_peers(room.core)
    for credential in ("", "prp_x", None, 7, "é", "x" * 5000):
        with pytest.raises(NotAllowed):
            peers.proven_peer(room.core, "berlin", credential)


def test_a_peer_that_dials_us_is_given_a_token_once_and_proves_itself_with_it(room: Room) -> None:
    token = added(room)
    assert token.startswith("prp_") and len(token) == 68
    assert "Berlin" != peers.proven_peer(room.core, "Berlin", token).system == "berlin"
    assert "" == added(room, exposure="all")
    for wrong in (token[:-1], token + "0", token_hash(token), "", None):
        with pytest.raises(NotAllowed):
            peers.proven_peer(room.core, "berlin", wrong)


def test_the_token_of_one_peer_proves_no_other(room: Room) -> None:
    token = added(room, "berlin")
    added(room, "rome")
    with pytest.raises(NotAllowed) as refused:
        peers.proven_peer(room.core, "rome", token)
    with pytest.raises(NotAllowed) as unknown:
        peers.proven_peer(room.core, "nowhere", token)
    assert str(refused.value) == str(unknown.value)


def test_who_is_no_longer_trusted_or_was_removed_proves_nothing(room: Room) -> None:
    token = added(room)
    perform(room.core, OWNER, peers.AddPeer(system="berlin", fields={"trusted": False}))
    with pytest.raises(NotAllowed):
        peers.proven_peer(room.core, "berlin", token)
    perform(room.core, OWNER, peers.AddPeer(system="berlin", fields={"trusted": True}))
    peers.proven_peer(room.core, "berlin", token)
    perform(room.core, OWNER, peers.RemovePeer(system="berlin"))
    with pytest.raises(NotAllowed):
        peers.proven_peer(room.core, "berlin", token)
    with pytest.raises(Missing):
        perform(room.core, OWNER, peers.RemovePeer(system="berlin"))


def test_an_old_token_is_good_until_the_new_one_was_shown(room: Room) -> None:
    old = added(room)
    new = perform(room.core, OWNER, peers.RotatePeer(system="berlin")).token
    peers.proven_peer(room.core, "berlin", old)
    peers.proven_peer(room.core, "berlin", new)
    with pytest.raises(NotAllowed):
        peers.proven_peer(room.core, "berlin", old)


def test_an_old_token_is_good_for_a_day_at_most(room: Room, clock: FakeClock) -> None:
    old = added(room)
    new = perform(room.core, OWNER, peers.RotatePeer(system="berlin")).token
    clock.advance(24 * 3600 - 1)
    peers.proven_peer(room.core, "berlin", old)
    clock.advance(2)
    with pytest.raises(NotAllowed):
        peers.proven_peer(room.core, "berlin", old)
    peers.proven_peer(room.core, "berlin", new)


def test_a_token_that_leaked_ends_when_it_is_rotated_twice(room: Room) -> None:
    old = added(room)
    perform(room.core, OWNER, peers.RotatePeer(system="berlin"))
    perform(room.core, OWNER, peers.RotatePeer(system="berlin"))
    with pytest.raises(NotAllowed):
        peers.proven_peer(room.core, "berlin", old)


def test_a_certificate_proves_a_peer_only_where_it_is_the_pinned_one(room: Room) -> None:
    added(room, auth="mtls", pin=OLD, certificate="PEM")
    peers.proven_peer(room.core, "berlin", None, certificate=OLD)
    for credential in (OLD, "", None):  # a fingerprint is no secret: who only says it has proven nothing
        with pytest.raises(NotAllowed):
            peers.proven_peer(room.core, "berlin", credential)


def test_a_changed_certificate_is_refused_and_reported_until_it_is_trusted(room: Room) -> None:
    added(room, auth="mtls", pin=OLD, certificate="PEM")
    with pytest.raises(NotAllowed, match="has changed") as refused:
        peers.proven_peer(room.core, "berlin", None, certificate=NEW)
    assert refused.value.field == "certificate" and "peers trust berlin" in str(refused.value)
    assert NEW == peers.known_peer(room.core, "berlin").alert
    perform(
        room.core, OWNER, peers.AddPeer(system="berlin", fields={"pin": NEW, "alert": "", "certificate": "PEM"})
    )
    assert "" == peers.proven_peer(room.core, "berlin", None, certificate=NEW).alert


def test_a_peer_without_a_pin_is_checked_by_nobody_here(room: Room) -> None:
    added(room)
    peers.check_certificate(room.core, peers.known_peer(room.core, "berlin"), NEW)
    assert "" == peers.known_peer(room.core, "berlin").alert


def test_names_count_as_one_whatever_their_case(room: Room) -> None:
    added(room, "Berlin")
    added(room, "BERLIN", exposure="all")
    assert ["Berlin"] == list(peers.all_peers(room.core))
    assert "all" == peers.known_peer(room.core, "berlin").exposure


def test_only_an_operator_says_who_is_a_peer(room: Room) -> None:
    stranger, core = agent_principal("mallory"), room.core
    added(room)
    for call in (
        lambda: perform(core, stranger, peers.AddPeer(system="rome", fields={})),
        lambda: perform(core, stranger, peers.RotatePeer(system="berlin")),
        lambda: perform(core, stranger, peers.RemovePeer(system="berlin")),
        lambda: perform(core, stranger, peers.TrustPeer(system="berlin")),
    ):
        with pytest.raises(NotAllowed):
            call()


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"url": "http://berlin.example"}, "url"),
        ({"url": "ws://berlin.example:4650"}, "url"),  # over a net, without TLS
        ({"url": "wss://"}, "url"),
        ({"url": "wss://user:secret@berlin.example"}, "url"),
        ({"url": "wss://berlin.example/map?token=secret"}, "url"),
        ({"url": "wss://berlin.example:99999"}, "url"),
        ({"url": "wss://berlin.example"}, "token"),
        ({"auth": "did:wba"}, "auth"),
        ({"auth": "none", "url": "wss://berlin.example"}, "auth"),
        ({"auth": "mtls", "url": "ws://127.0.0.1:4650"}, "url"),
        ({"exposure": "some"}, "exposure"),
        ({"exposure": "tagged"}, "tag"),
        ({"exposure": "all", "tags": ("public",)}, "tag"),
        ({"pin": "sha256:abc"}, "pin"),
        ({"pin": OLD, "auth": "mtls"}, "pin"),  # who calls us is let in by its certificate itself
        ({"relays_for": ("a/b",)}, "relays-for"),
        ({"scopes": {"dev": ()}}, "scope"),
        ({"scopes": {"dev": ("../x",)}}, "scope"),
        ({"scopes": {"d v": ("*",)}}, "scope"),
        ({"token": "two\nlines"}, "token"),
        ({"auth": "none", "token": "of-no-use"}, "token"),
    ],
)
def test_what_would_not_hold_is_refused_and_nothing_kept(room: Room, params: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as refused:
        added(room, **params)
    assert field == refused.value.field and refused.value.hint is not None
    assert {} == peers.all_peers(room.core)


@pytest.mark.parametrize("name", ["", "a b", "../x", "a/b", "a@b", "é", 7])
def test_a_system_is_named_like_an_agent(room: Room, name: Any) -> None:
    with pytest.raises(Invalid):
        added(room, name)


def test_who_proves_itself_otherwise_now_has_no_token_any_more(room: Room) -> None:
    token = perform(room.core, OWNER, peers.AddPeer(system="paris", fields={})).token
    changed = perform(room.core, OWNER, peers.AddPeer(system="paris", fields={"auth": "none"})).peer
    assert token and ("", "", "") == (changed.token, changed.proof, changed.former_proof)
    with pytest.raises(Invalid, match="a token has no effect"):
        perform(room.core, OWNER, peers.RotatePeer(system="paris"))


def test_nobody_is_a_peer_of_itself(room: Room) -> None:
    with pytest.raises(Invalid, match="this system itself"):
        added(room, "Paris")


def test_an_address_without_a_path_means_the_one_that_postroom_serves(room: Room) -> None:
    added(room, url="wss://berlin.example:4650", token="t")  # noqa: S106
    assert "wss://berlin.example:4650/map" == peers.known_peer(room.core, "berlin").url
    added(room, url="ws://127.0.0.1:3001/")
    assert "ws://127.0.0.1:3001/" == peers.known_peer(room.core, "berlin").url


def test_nothing_that_shows_a_peer_shows_its_secrets() -> None:
    peer = Peer(system="berlin", token="secret-1", proof="secret-2", former_proof="secret-3")  # noqa: S106
    assert "secret" not in f"{peer!r} {peer} {plain(peer)}"
    assert plain(peer)["shows_token"] and plain(peer)["knows_token"]


def test_a_doctor_tells_of_a_certificate_that_changed(room: Room) -> None:
    def listed() -> list[tuple[str, str]]:
        return [(found.level.name, found.what) for found in room.doctor().findings if found.check == "peers"]

    assert [] == listed()
    added(room, auth="mtls", pin=OLD, certificate="PEM")
    assert [("OK", "1 other systems are known: berlin")] == listed()
    with pytest.raises(NotAllowed):
        peers.proven_peer(room.core, "berlin", None, certificate=NEW)
    ((level, message),) = listed()
    assert "WARNING" == level and NEW in message


def test_what_we_show_lies_in_files_that_only_their_owner_reads(factory: RoomFactory) -> None:
    added(factory.room(), url="wss://berlin.example", token="prp_lies-somewhere")  # noqa: S106
    files = [path for path in factory.folder.rglob("*") if path.is_file()]
    holding = [path for path in files if b"prp_lies-somewhere" in path.read_bytes()]
    assert bool(holding) == (factory.kind.lasts and factory.kind.in_files)
    assert [] == [path for path in holding if path.stat().st_mode & 0o077]


def test_peers_do_not_travel_with_a_rooms_mail(room: Room) -> None:
    token = added(room)
    added(room, "rome", url="wss://rome.example", token="prp_ours")  # noqa: S106
    lines = b"".join(room.export())
    assert not [secret for secret in ("prp_ours", token, token_hash(token)) if secret.encode() in lines]
    with pytest.raises(Invalid):
        checked_record(room.core, Record(kind=PEER, key="mallory", value={"system": "mallory"}, revision=1))
