"""Links by TLS: whose certificate it is counts, on both sides, and nothing is said to anybody else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.server.tls import fingerprint_of_pem
from tests.cli.test_peers import make_certificate
from tests.daemons import until
from tests.federation.systems import System, systems


class Secure(System):
    """One that has a certificate, and listens with it."""

    def __init__(self, folder: Path, name: str, *agents: str, **settings: str) -> None:
        super().__init__(folder, name, *agents, **settings)
        self.certificate, self.key = make_certificate(self.folder, "own")
        self.pem = Path(self.certificate).read_text(encoding="utf-8")

    @property
    def url(self) -> str:
        return f"wss://127.0.0.1:{self.port}"

    def serve(self, *options: str, faults: str = "") -> Secure:
        super().serve("--tls-cert", self.certificate, "--tls-key", self.key, *options, faults=faults)
        return self


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Secure, Secure]]:
    a, b = Secure(tmp_path, "a", "ann"), Secure(tmp_path, "b", "bob")
    with systems(a, b):
        yield a, b


def by_token(a: Secure, b: Secure, pem: str) -> None:
    b.trusts("a", url=a.url, token=a.trusts("b"), pin=fingerprint_of_pem(pem))


def by_certificate(a: Secure, b: Secure, pem: str) -> None:
    a.trusts("b", auth="mtls", pin=fingerprint_of_pem(pem), certificate=pem)
    b.trusts("a", url=a.url, auth="mtls", pin=fingerprint_of_pem(a.pem))


def test_a_pinned_certificate_needs_nobody_to_vouch_for_it(pair: tuple[Secure, Secure]) -> None:
    a, b = pair
    by_token(a, b, a.pem)
    a.serve()
    b.serve()
    b.room.mailbox("bob").send("ann@a", "safe")
    until(lambda: ["safe"] == a.texts("ann"))


def test_a_server_with_another_certificate_is_sent_nothing_and_an_alert_stands(
    pair: tuple[Secure, Secure],
) -> None:
    a, b = pair
    by_token(a, b, b.pem)
    a.serve()
    b.serve()
    b.room.mailbox("bob").send("ann@a", "not to you")
    until(lambda: b.peer("a").alert == fingerprint_of_pem(a.pem))
    assert b.daemon is not None
    result = b.daemon.ask(action="ping_peer", system="a")
    assert not result["answers"] and "certificate" in result["problem"] and "peers trust a" in result["hint"]
    b.trusts("a", pin=fingerprint_of_pem(a.pem), alert="")
    until(lambda: ["not to you"] == a.texts("ann"))


def test_without_a_pin_an_authority_must_have_signed_it(pair: tuple[Secure, Secure]) -> None:
    a, b = pair
    b.trusts("a", url=a.url, token=a.trusts("b"))
    a.serve()
    b.serve()
    assert b.daemon is not None
    result = b.daemon.ask(action="ping_peer", system="a")
    assert not result["answers"] and "peers trust a" in result["hint"]


def test_a_system_is_known_by_its_own_certificate(pair: tuple[Secure, Secure]) -> None:
    a, b = pair
    by_certificate(a, b, b.pem)
    a.serve()
    b.serve()
    b.room.mailbox("bob").send("ann@a", "it is me")
    until(lambda: ["it is me"] == a.texts("ann"))


def test_another_peers_certificate_is_not_good_for_this_one(pair: tuple[Secure, Secure], tmp_path: Path) -> None:
    a, b = pair
    third, _ = make_certificate(tmp_path, "third")
    pem = Path(third).read_text(encoding="utf-8")
    by_certificate(a, b, pem)
    a.trusts("c", auth="mtls", pin=fingerprint_of_pem(b.pem), certificate=b.pem)  # b comes with c's
    a.serve()
    b.serve()
    b.room.mailbox("bob").send("ann@a", "forged")
    until(lambda: a.peer("b").alert == fingerprint_of_pem(b.pem))
    assert "connected" not in (b.states()["a"], a.states()["b"]) and [] == a.texts("ann")


def test_a_post_room_that_has_a_peer_may_be_opened_to_others(pair: tuple[Secure, Secure]) -> None:
    a, b = pair
    by_token(a, b, a.pem)
    a.serve("--http", f"0.0.0.0:{a.port}")
    b.serve()
    b.room.mailbox("bob").send("ann@a", "from outside")
    until(lambda: ["from outside"] == a.texts("ann"))
