"""Addresses: who is here, who is at another system, in text and by their pieces."""

from __future__ import annotations

from typing import Any

import pytest

from postroom.errors import Invalid
from postroom.model.names import (
    AT,
    Address,
    agent_of,
    check_agent,
    check_party,
    format_address,
    parse_address,
    system_of,
)

SAME = [
    ("bob", Address(agent="bob")),
    ("bob@far", Address(agent="bob", system="far")),
    ("swarm/bob@far", Address(agent="swarm/bob", system="far")),
    ("bob@far/team", Address(agent="bob", system="far", scope="team")),
    ("@far", Address(system="far")),
    ("@far/team", Address(system="far", scope="team")),
    ("bob@*", Address(agent="bob", system="*")),
]


@pytest.mark.parametrize(("text", "address"), SAME)
def test_an_address_is_the_same_in_text_and_by_its_pieces(text: str, address: Address) -> None:
    pieces = {name: getattr(address, name) for name in ("agent", "system", "scope") if getattr(address, name)}

    assert [parse_address(message, "to") for message in (text, pieces, address)] == [address] * 3
    assert (format_address(address), str(address)) == (text, text)
    assert (AT in text, system_of(text)) == (bool(address.system), address.system)
    assert check_party(text, "sender") == text


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "@",
        "bob@",
        "bob@far/",
        "bob@a@b",
        "bob@far/a//b",
        "@*",
        "bob@fär",
        "bob@ far",
        "a/b/c@far",
        "../x@far",
        "bob@**",
        "bob@far\n",
        7,
        None,
        ["bob"],
        {"agent": "bob", "sytem": "far"},
        {"agent": 7},
        {"system": "*"},
        {"agent": "bob", "scope": "team"},
        {},
        {"system": "a@b", "agent": "bob"},
    ],
)
def test_what_is_no_address_is_refused_with_its_field(wrong: Any) -> None:
    with pytest.raises(Invalid) as refused:
        parse_address(wrong, "to")
    assert str(refused.value.field).startswith("to")


def test_nobody_here_has_a_name_with_a_system_in_it() -> None:
    with pytest.raises(Invalid):
        check_agent("bob@far", "mailbox")
    for wrong in ("bob@", "@", "bob@a@b", "bob@far/"):
        with pytest.raises(Invalid):
            check_party(wrong, "sender")


def test_the_human_of_another_system_is_not_ours() -> None:
    assert parse_address("ceo", "to").agent == "human"
    assert parse_address("ceo@far", "to").agent == "ceo"
    assert (agent_of("ceo@far"), agent_of("@far")) == ("ceo", "")
