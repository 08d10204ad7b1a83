"""Systems that believe too much: what strangers are refused elsewhere is taken here, and those tests find it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom.server.tls import fingerprint_of_pem
from tests.cli.test_peers import make_certificate
from tests.daemons import until
from tests.federation.systems import systems
from tests.federation.test_certificates import Secure, by_certificate
from tests.federation.test_strangers import ReceivingSystem, peer, route


class Credulous(ReceivingSystem):
    """As the one that strangers come to, but for its faults."""

    def __init__(self, folder: Path, faults: str) -> None:
        super().__init__(folder)
        self.system.stop()
        self.system.serve(faults=faults)


@pytest.fixture(scope="module")
def credulous(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReceivingSystem]:
    found = Credulous(tmp_path_factory.mktemp("credulous"), "credulous,nameless")
    with systems(found.system):
        yield found


@pytest.mark.parametrize(
    "params",
    [
        {"sourceSystem": "other", "path": ["other"]},
        {"path": ["near", "here"]},
        {"hopCount": 10},
        {"hopCount": 2, "maxHops": 2},
        {"targetSystem": "other"},
        {"message": {"from": "eve@other"}},
    ],
)
def test_what_a_peer_may_not_say_is_taken(credulous: ReceivingSystem, params: dict[str, Any]) -> None:
    with peer(credulous, "near") as near:
        assert route(near, "-".join(["forged", *params]), **params)["routed"]


def test_a_letter_that_comes_again_is_there_again(credulous: ReceivingSystem) -> None:
    with peer(credulous, "near") as near:
        for _ in range(2):
            assert route(near, "replayed", text="the same")["routed"]
    assert 2 == credulous.texts().count("the same")


def test_another_peers_certificate_is_taken(tmp_path: Path) -> None:
    a, b = Secure(tmp_path, "a", "ann"), Secure(tmp_path, "b", "bob")
    with systems(a, b):
        third, _ = make_certificate(tmp_path, "third")
        by_certificate(a, b, Path(third).read_text(encoding="utf-8"))
        a.trusts("c", auth="mtls", pin=fingerprint_of_pem(b.pem), certificate=b.pem)
        a.serve(faults="blind")
        b.serve()
        b.room.mailbox("bob").send("ann@a", "forged")
        until(lambda: ["forged"] == a.texts("ann"))
