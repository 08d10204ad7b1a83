"""The table of a hook: every move that is in it is made by whom it names, every other is refused in its words."""

from __future__ import annotations

from itertools import product

import pytest

from postroom.chipset import hooks
from postroom.chipset.hooks import MOVES, TABLE, Roles, Status, check_move
from postroom.errors import IllegalMove, NotAllowed

WHO = {"owner": "polecat-alpha", "mayor": "mayor-a1b2c", "dispatcher": "dispatcher-1", "witness": "witness"}


def attempt(before: Status, after: Status, by: str) -> None:
    check_move(before, after, by=by, owner="polecat-alpha", roles=Roles())


@pytest.mark.parametrize(("before", "after"), list(product(Status, Status)))
@pytest.mark.parametrize("role", WHO)
def test_a_move_is_made_by_those_the_table_names_and_by_no_other(before: Status, after: Status, role: str) -> None:
    move = TABLE.get((before, after))
    if move is None:
        with pytest.raises(IllegalMove, match=f"{before} → {after} is not allowed"):
            attempt(before, after, WHO[role])
    elif role in move.roles:
        attempt(before, after, WHO[role])
    else:
        with pytest.raises(NotAllowed) as refused:
            attempt(before, after, WHO[role])
        assert move.words in refused.value.message


def test_the_head_of_the_file_says_the_same_as_the_table() -> None:
    results = [line.split() for line in (hooks.__doc__ or "").splitlines() if line.startswith("    ")]
    assert [(words[0], words[2], " ".join(words[3:])) for words in results] == [
        (move.before, move.after, move.words) for move in MOVES
    ]


def test_a_role_follows_from_the_name_or_an_option() -> None:
    assert Roles().of("mayor", "polecat") == {"mayor"}
    assert Roles().of("Mayor-x", "polecat") == {"mayor"}
    assert Roles({"Boss": "mayor"}).of("boss", "polecat") == {"mayor"}
    assert Roles().of("Polecat-Alpha", "polecat-alpha") == {"polecat", "owner"}
