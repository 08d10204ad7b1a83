"""Two commands link two systems: one prints an invitation, the other uses it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import postroom
from postroom import Room
from postroom.core import peers
from postroom.core.authorize import OWNER
from postroom.core.verb import perform
from postroom.errors import Conflict, Invalid
from postroom.model.peer import Peer
from postroom.server.tls import fingerprint_of_pem
from tests.cli.shell import Done, Shell
from tests.daemons import until
from tests.federation.systems import System, systems
from tests.federation.test_certificates import Secure

URL = "wss://rome.example:4650/map"
PIN = f"sha256:{'a1' * 32}"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Secure, Secure]]:
    rome, paris = Secure(tmp_path, "rome", "ann"), Secure(tmp_path, "paris", "bob")
    with systems(rome, paris):
        yield rome, paris


def run(at: System, *words: str, stdin: str = "") -> Done:
    done = Shell(at.folder).run("peers", *words, stdin=stdin, POSTROOM_SYSTEM=at.name)
    assert done.code == 0, done
    return done


# -- between two servers


def test_an_invitation_links_two_servers_and_pins_the_certificate(pair: tuple[Secure, Secure]) -> None:
    rome, paris = pair
    rome.serve()
    paris.serve()
    invitation = run(rome, "invite", "paris").out.strip()
    assert "rome is a peer. This room is called paris there" in run(paris, "join", stdin=invitation).out
    assert (fingerprint_of_pem(rome.pem), rome.url + "/map") == (paris.peer("rome").pin, paris.peer("rome").url)
    rome.is_linked("paris")
    paris.room.mailbox("bob").send("ann@rome", "there")
    rome.room.mailbox("ann").send("bob@paris", "and back")
    until(lambda: (["there"], ["and back"]) == (rome.texts("ann"), paris.texts("bob")))
    # The same invitation once more.
    assert not json.loads(run(paris, "join", "-", "--json", stdin=invitation).out)["changed"]
    rome.is_linked("paris")


def test_a_server_with_another_certificate_than_the_invited_one_is_sent_nothing(
    pair: tuple[Secure, Secure],
) -> None:
    rome, paris = pair
    certificate = ("--url", rome.url, "--certificate", paris.certificate)  # not the one that rome shows
    run(paris, "join", stdin=run(rome, "invite", "paris", *certificate).out)
    rome.serve()
    paris.serve()
    until(lambda: paris.peer("rome").alert == fingerprint_of_pem(rome.pem))
    assert {"paris": "disconnected"} == rome.states()


def test_inviting_again_makes_another_token_and_ends_the_old_one_when_it_is_used(
    pair: tuple[Secure, Secure],
) -> None:
    rome, paris = pair
    rome.serve()
    first, second = (run(rome, "invite", "paris").out.strip() for _ in range(2))
    run(paris, "join", stdin=second)
    paris.serve()
    rome.is_linked("paris")
    with pytest.raises(postroom.NotAllowed):
        peers.proven_peer(rome.room.core, "paris", peers.read_invitation(first).token)


# -- by itself


def room(name: str = "") -> Room:
    return postroom.open("memory:", **({"system": name} if name else {}))


def invite(at: Room, guest: str, url: str = URL, pin: str = PIN) -> str:
    made = perform(at.core, OWNER, peers.InvitePeer(system=guest, url=url, pin=pin))
    return made.invitation


def join(at: Room, text: str) -> peers.Joined:
    return perform(at.core, OWNER, peers.JoinPeer(invitation=text))


def test_a_room_without_a_name_takes_the_one_by_which_it_is_invited() -> None:
    with room("rome") as rome, room() as paris:
        peers.system_id(paris.core, gives_way=True)  # made by a server that has told nobody
        joined = join(paris, invite(rome, "paris"))
        assert ("paris", "paris", True) == (joined.system, paris.system, joined.is_new)
        assert joined.peer == Peer(system="rome", url=URL, token=joined.peer.token, pin=PIN)
        assert peers.proven_peer(rome.core, "paris", joined.peer.token).system == "paris"


def test_a_room_that_has_another_name_is_told_which_invitation_it_needs() -> None:
    with room("rome") as rome, room("lyon") as lyon:
        with pytest.raises(Conflict) as refused:
            join(lyon, invite(rome, "paris"))
        assert refused.value.hint is not None and "peers invite lyon" in refused.value.hint
        assert {} == peers.all_peers(lyon.core)


def tampered(text: str) -> Iterator[str]:
    prefix, body, checksum = text.split(".")
    other = base64.urlsafe_b64encode(b'{"system": "rome"}').decode()
    no_text = base64.urlsafe_b64encode(b'{"system": "\xff"}').decode()
    yield from (text[:-1], text[1:], text[: len(text) // 2], "", "x" * 20_000, other)
    yield f"{prefix}.{body[:-1]}{'A' if body[-1] != 'A' else 'B'}.{checksum}"
    yield f"{prefix}.\udcff.{checksum}"
    for wrong in (other, no_text, "%%%", "é"):
        yield f"{prefix}.{wrong}.{peers.checksum_of(wrong)}"


def test_a_string_that_was_changed_is_refused_and_the_room_takes_no_name() -> None:
    with room("rome") as rome, room() as paris:
        for text in tampered(invite(rome, "paris")):
            with pytest.raises(Invalid) as refused:
                join(paris, text)
            assert "invitation" == refused.value.field
        forged = peers.write_invitation(
            peers.Invitation(system="rome", guest="paris", url="ws://rome.example/map", token="t" * 20)
        )
        with pytest.raises(Invalid, match="TLS"):  # whatever its checksum is, no token goes in the clear
            join(paris, forged)
        assert not peers.is_ours(paris.core, "paris") and {} == peers.all_peers(paris.core)


def test_one_that_we_call_is_not_invited() -> None:
    with room("rome") as rome, room("paris") as paris:
        join(paris, invite(rome, "paris"))
        with pytest.raises(Conflict, match="already"):
            invite(paris, "rome")


def test_a_new_invitation_takes_the_place_of_the_old_one() -> None:
    with room("rome") as rome, room("paris") as paris:
        first = join(paris, invite(rome, "paris")).peer.token
        again = invite(rome, "paris", URL, "")
        assert not join(paris, again).peer.pin
        second = peers.read_invitation(again).token
        assert first != second == peers.known_peer(paris.core, "rome").token
        for token in (first, second):  # the old one until the new one is used
            peers.proven_peer(rome.core, "paris", token)
        with pytest.raises(postroom.NotAllowed):
            peers.proven_peer(rome.core, "paris", first)
