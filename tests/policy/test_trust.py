"""What another system may, and what may go there (I6): tables of who, what and by whom."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from postroom import HopsSpent, LoopDetected, Missing, NotAllowed
from postroom.errors import PostroomError
from postroom.model.agent import Card
from postroom.model.names import Address
from postroom.model.peer import Peer
from postroom.policy.limits import Limits
from postroom.policy.trust import (
    check_incoming,
    check_outgoing,
    check_relaying,
    check_way,
    is_reachable,
    is_shown,
    no_route,
    route_to,
    routes_to,
    speaks_for,
    upstream,
)
from tests.letters import NOW, letter

TABLE = Limits()


def below(*hubs: str) -> Limits:
    return Limits(federation_strategy="hierarchical", federation_upstream=",".join(hubs))


def to(system: str = "berlin", scope: str | None = None) -> Address:
    return Address(system=system, scope=scope or "")


def peers(*found: Peer) -> dict[str, Peer]:
    return {peer.system: peer for peer in found}


def berlin(**message: Any) -> Peer:
    return Peer(system="berlin", **message)


def says_no(call: Any) -> PostroomError | None:
    try:
        call()
    except (NotAllowed, LoopDetected) as refused:
        return refused if refused.field and refused.hint else pytest.fail(f"says too little: {refused}")
    return None


# -- by whom


def test_an_empty_allow_list_is_nobody() -> None:
    assert route_to({}, "berlin", TABLE) is None
    error = no_route({}, "berlin")
    assert isinstance(error, Missing) and error.field == "to" and "postroom peers add berlin" in str(error)


ROUTES: list[tuple[str, list[Peer], Limits, list[str]]] = [
    ("itself", [berlin()], TABLE, ["berlin"]),
    ("itself, whatever its case", [Peer(system="BERLIN")], TABLE, ["BERLIN"]),
    ("by one that leads there", [Peer(system="hub", relays_for=("rome", "Berlin"))], TABLE, ["hub"]),
    ("itself first", [Peer(system="hub", relays_for=("berlin",)), berlin()], TABLE, ["berlin", "hub"]),
    ("not by one that leads elsewhere", [Peer(system="hub", relays_for=("rome",))], TABLE, []),
    ("by the one above", [Peer(system="hub")], below("hub"), ["hub"]),
    (
        "itself, who leads there, the ones above in their order",
        [
            Peer(system="above"),
            Peer(system="first"),
            Peer(system="hub", relays_for=("berlin",)),
            berlin(),
        ],
        below("first", "above", "gone", "hub"),
        ["berlin", "hub", "first", "above"],
    ),
    ("nobody that is not trusted", [Peer(system="hub", relays_for=("berlin",), trusted=False)], TABLE, []),
    ("no one above that is not trusted", [Peer(system="h", trusted=False)], below("h"), []),
    (
        "one that is distrusted is reached by nobody",
        [berlin(trusted=False), Peer(system="hub", relays_for=("berlin",))],
        below("hub"),
        [],
    ),
]


@pytest.mark.parametrize(("known", "limits", "by"), [row[1:] for row in ROUTES], ids=[row[0] for row in ROUTES])
def test_the_peer_by_which_a_system_is_reached(known: list[Peer], limits: Limits, by: list[str]) -> None:
    assert by == [peer.system for peer in routes_to(peers(*known), "berlin", limits)]
    first = route_to(peers(*known), "berlin", limits)
    assert (first and first.system) == (by[0] if by else None)


def test_why_a_distrusted_system_is_not_reached() -> None:
    error = no_route(peers(berlin(trusted=False)), "berlin")
    assert isinstance(error, NotAllowed) and "postroom peers trust berlin" in str(error)


def test_the_hubs_above_are_named_with_commas() -> None:
    assert ["hub", "top"] == upstream(Limits(federation_upstream="hub , top"))
    assert [] == upstream(Limits())


@pytest.mark.parametrize(
    ("system", "relays_for", "speaks"),
    [
        ("berlin", (), True),
        ("BERLIN", (), True),
        ("rome", (), False),
        ("rome", ("rome",), True),
        ("Rome", ("rome",), True),
        ("*", ("rome",), False),
        ("", (), False),
    ],
)
def test_a_peer_speaks_for_itself_and_for_those_it_relays_for(
    system: str, relays_for: tuple[str, ...], speaks: bool
) -> None:
    peer = berlin(relays_for=relays_for)
    assert speaks == speaks_for(peer, system)
    refused = says_no(lambda: check_incoming(peer, system, "default", to("paris")))
    assert speaks == (refused is None)


@pytest.mark.parametrize(
    ("path", "hops", "most", "error"),
    [
        (["berlin"], 1, None, None),
        (["berlin", "Paris"], 2, None, LoopDetected),
        ([], 9, None, None),
        ([], 10, None, HopsSpent),
        ([], 3, 3, HopsSpent),
        ([], 2, 3, None),
        ([], 10, 99, HopsSpent),  # who sends it allows more than we do
    ],
)
def test_a_letter_goes_neither_in_a_circle_nor_too_far(
    path: list[str], hops: int, most: int | None, error: type[PostroomError] | None
) -> None:
    if error is None:
        check_way("paris", path, hops, most, Limits())
        return
    with pytest.raises(error):
        check_way("paris", path, hops, most, Limits())


@pytest.mark.parametrize(
    ("coming_from", "going_to", "passes"),
    [
        (berlin(relays_to=True), Peer(system="rome"), True),
        (berlin(), Peer(system="rome", relays_to=True), False),
        (berlin(relays_to=True, trusted=False), Peer(system="rome"), False),
        (berlin(relays_to=True), Peer(system="rome", trusted=False), False),
        (berlin(relays_to=True), berlin(relays_to=True), False),  # back where it came from
        (berlin(relays_to=True), None, True),  # who is to be found
        (berlin(), None, False),
    ],
)
def test_a_hub_passes_on_only_for_permitted_peers(coming_from: Peer, going_to: Peer | None, passes: bool) -> None:
    assert passes == (says_no(lambda: check_relaying(coming_from, going_to)) is None)


# -- what

# permissions, our scope, their system, their scope, whether mail passes
PERMISSIONS: list[tuple[dict[str, tuple[str, ...]], str, str, str, bool]] = [
    ({}, "dev", "berlin", "ops", True),  # nothing is named: no limit
    ({"dev": ("berlin",)}, "dev", "berlin", "ops", True),
    ({"dev": ("berlin",)}, "dev", "berlin", "dev", True),
    ({"dev": ("berlin",)}, "dev", "rome", "dev", False),
    ({"dev": ("berlin",)}, "ops", "berlin", "dev", False),
    ({"dev": ("berlin",)}, "default", "berlin", "default", False),  # what is not named does not pass
    ({"default": ("berlin",)}, "default", "berlin", "default", True),
    ({"dev": ("berlin/ops",)}, "dev", "berlin", "ops", True),
    ({"dev": ("berlin/ops",)}, "dev", "berlin", "dev", False),
    ({"dev": ("berlin/ops",)}, "dev", "rome", "ops", False),
    ({"dev": ("berlin/ops", "rome")}, "dev", "rome", "any", True),
    ({"dev": ("*",)}, "dev", "rome", "any", True),
    ({"dev": ("*",)}, "ops", "berlin", "any", False),
    ({"*": ("berlin",)}, "ops", "berlin", "any", True),
    ({"*": ("berlin",)}, "ops", "rome", "any", False),
    ({"dev": ("rome",), "*": ("berlin/x",)}, "dev", "berlin", "x", True),
    ({"Dev": ("BERLIN/Ops",)}, "dEV", "Berlin", "oPS", True),
]


@pytest.mark.parametrize(("scopes", "ours", "system", "theirs", "passes"), PERMISSIONS)
def test_scopes_exchange_mail_only_where_they_may_both_ways(
    scopes: dict[str, tuple[str, ...]], ours: str, system: str, theirs: str, passes: bool
) -> None:
    peer = berlin(scopes=scopes, relays_for=("rome",))
    message = letter("m", ["bob@berlin"], scope=ours)
    out = says_no(lambda: check_outgoing(peer, message, to(system, theirs)))
    coming = says_no(lambda: check_incoming(peer, system, theirs, to("paris", ours)))
    assert (passes, passes) == (out is None, coming is None)
    for refused in (out, coming):
        assert refused is None or refused.field == "scope"


def test_without_a_scope_of_its_own_an_address_is_in_the_letters() -> None:
    peer = berlin(scopes={"dev": ("berlin/dev",)})
    message = letter("m", scope="dev")
    assert says_no(lambda: check_outgoing(peer, message, to())) is None
    assert says_no(lambda: check_outgoing(peer, message, to(scope="ops"))) is not None
    assert says_no(lambda: check_incoming(peer, "berlin", "dev", to("paris"))) is None
    assert says_no(lambda: check_incoming(peer, "berlin", "ops", to("paris"))) is not None


def test_nothing_passes_to_or_from_one_that_is_not_trusted() -> None:
    peer = berlin(trusted=False, exposure="all")
    assert says_no(lambda: check_outgoing(peer, letter("m"), to())) is not None
    assert says_no(lambda: check_incoming(peer, "berlin", "default", to("paris"))) is not None
    assert not is_shown(peer, CARD) and not is_reachable(peer, CARD)


# -- who of ours

CARD = Card(id="ann", registered_at=NOW)
PUBLIC = replace(CARD, scopes=("public",))
TAGGED = replace(CARD, metadata={"tags": ["other", "Public"]})

# exposure and tags, the card, is it shown, is its mail taken
EXPOSURES: list[tuple[str, tuple[str, ...], Card, bool, bool]] = [
    ("none", (), CARD, False, False),
    ("gateway", (), CARD, False, True),
    ("tagged", ("public",), CARD, False, False),
    ("tagged", ("public",), PUBLIC, True, True),
    ("tagged", ("x", "public"), TAGGED, True, True),
    ("tagged", ("x",), TAGGED, False, False),
    ("tagged", ("public",), replace(CARD, metadata={"tags": "public"}), False, False),
    ("tagged", ("public",), replace(CARD, metadata={"tags": [7]}), False, False),
    ("all", (), CARD, True, True),
]


@pytest.mark.parametrize(("exposure", "tags", "card", "shown", "reached"), EXPOSURES)
def test_who_of_ours_a_peer_sees_and_who_it_reaches(
    exposure: Any, tags: tuple[str, ...], card: Card, shown: bool, reached: bool
) -> None:
    peer = berlin(exposure=exposure, tags=tags)
    assert (shown, reached) == (is_shown(peer, card), is_reachable(peer, card))


@pytest.mark.parametrize(
    ("scopes", "card", "reached"),
    [
        ({"public": ("*",)}, PUBLIC, True),
        ({"public": ("*",)}, CARD, False),  # nobody is reached by naming a scope that it is not in
        ({"default": ("*",)}, CARD, True),
        ({"default": ("*",)}, PUBLIC, False),
        ({"*": ("berlin",)}, CARD, True),
    ],
)
def test_where_scopes_are_limited_only_who_is_in_one_is_seen_and_reached(
    scopes: dict[str, tuple[str, ...]], card: Card, reached: bool
) -> None:
    peer = berlin(exposure="all", scopes=scopes)
    assert (reached, reached) == (is_shown(peer, card), is_reachable(peer, card))


@pytest.mark.parametrize(
    ("scopes", "source", "scope", "reached"),
    [
        ({}, "berlin", "dev", True),
        ({"public": ("berlin/dev",)}, "berlin", "dev", True),
        ({"public": ("berlin/dev",)}, "berlin", "", False),
        ({"dev": ("berlin/dev",), "public": ("rome",)}, "berlin", "dev", False),  # though both scopes are named
        ({"dev": ("berlin/dev",), "public": ("rome",)}, "rome", "dev", True),
        ({"*": ("berlin",)}, "berlin", "dev", True),
        ({"*": ("rome",)}, "berlin", "dev", False),
    ],
)
def test_a_letter_reaches_only_who_is_in_a_scope_that_exchanges_mail_with_its_own(
    scopes: dict[str, tuple[str, ...]], source: str, scope: str, reached: bool
) -> None:
    assert reached == is_reachable(berlin(scopes=scopes), PUBLIC, source, scope)
