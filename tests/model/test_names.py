"""The one validator of names: every name passes it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from postroom.errors import Invalid
from postroom.model.message import is_broadcast, same_name
from postroom.model.names import (
    check_agent,
    check_id,
    check_kind,
    check_name,
    check_party,
    check_scope,
    fold,
    format_address,
    parse_address,
)
from postroom.model.thread import general_conversation, general_scope

BAD_NAMES = [
    "",
    ".",
    "..",
    "../etc",
    "/abs",
    "a/b/c",
    "a/",
    "-x",
    "a b",
    "a\n",
    "\u0430nn",
    "ann\u200b",
    "a\0",
    "x" * 129,
    "x" * 999,
]


@pytest.mark.parametrize(
    "name", ["a", "0", "review-bot", "Coder.v2", "swarm/agent", "x" * 128, "a" * 128 + "/" + "b" * 128]
)
def test_a_good_name_is_kept_as_it_is(name: str) -> None:
    assert check_agent(name, "to") == name


@pytest.mark.parametrize("name", [*BAD_NAMES, None, 7, b"ann"])
def test_a_bad_name_is_refused_with_the_rule(name: Any) -> None:
    with pytest.raises(Invalid) as refused:
        check_agent(name, "to")
    assert refused.value.field == "to"
    assert "1 to 128" in str(refused.value)


def test_the_complaint_shows_no_hidden_character_and_no_flood() -> None:
    with pytest.raises(Invalid, match=r"\\u0430nn"):
        check_agent("\u0430nn", "to")
    with pytest.raises(Invalid, match="999 characters"):
        check_agent("x" * 999, "to")


@given(some.text())
def test_whatever_passes_is_one_safe_word(name: str) -> None:
    try:
        check_agent(name, "to")
    except Invalid:
        return
    assert name.isascii()
    assert name.isprintable()
    assert ".." != name
    assert not name.startswith((".", "/", "-"))


def test_ids_may_hold_colons_and_kinds_begin_with_a_letter() -> None:
    assert check_id("conv-general:team_1.x", "id") == "conv-general:team_1.x"
    assert check_id("x" * 200, "id") == "x" * 200
    assert check_kind("task.update:v2", "kind") == "task.update:v2"
    for bad in ("a/b", "x" * 201, ""):
        with pytest.raises(Invalid):
            check_id(bad, "id")
    for bad in ("9lives", "x" * 65):
        with pytest.raises(Invalid):
            check_kind(bad, "kind")


@pytest.mark.parametrize("scope", ["team", "swarm:team", "org/team", "a:b/c.d", "any:x", "broadcast:x", "a" * 128])
def test_a_scope_may_hold_colons_and_slashes_as_maps_do(scope: str) -> None:
    assert check_scope(scope, "scope") == scope
    assert format_address(parse_address(f"bob@far/{scope}", "to")) == f"bob@far/{scope}"
    assert check_party(f"bob@far/{scope}", "sender") == f"bob@far/{scope}"


@pytest.mark.parametrize(
    "scope",
    ["", "a:", "/a", ":a", "a//b", "a::b", "a/../b", "a/.b", "..", "a b", "a\n", "a" * 129, "ä", "a:" * 32 + "a"],
)
def test_a_scope_is_no_path_and_no_part_of_it_is_empty(scope: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_scope(scope, "scope")
    assert refused.value.field == "scope"


@given(some.from_regex(r"[a-z0-9][a-z0-9.]{0,3}([:/][a-z0-9][a-z0-9.]{0,3}){0,31}", fullmatch=True))
def test_each_scope_has_a_catch_all_of_its_own_whose_id_is_an_id(scope: str) -> None:
    if len(scope) <= 128:
        id = check_id(general_conversation(check_scope(scope, "scope")), "id")
        assert general_scope(id) == scope


def test_a_template_or_a_system_is_a_single_name() -> None:
    assert check_name("team", "template") == "team"
    for bad in ("team/one", "team:one"):
        with pytest.raises(Invalid):
            check_name(bad, "template")


def test_names_that_differ_in_case_alone_are_the_same() -> None:
    assert fold("Coder") == fold("cODER")
    assert same_name("Swarm/Bob", "swarm/bob")
    assert not same_name("bob", "bobby")
    assert is_broadcast("broadcast:team")
    assert not is_broadcast("broadcaster")
