"""The sender of a letter: proven by a token, or only claimed (G8)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import postroom
from postroom import Invalid, Room
from postroom.core import tokens
from postroom.core.authorize import Principal, agent_principal
from postroom.core.verb import perform
from postroom.store.files.layouts.base import layout_named

FOLDERS = ("nanobot", "chipset", "swarm")


def shown(room: Room, agent: str | None) -> Principal:
    """Return the principal of a new token of this agent, or of the operator if none is named."""
    text = perform(room.core, room.principal, tokens.CreateToken(agent=agent)).text
    return tokens.authenticate(room.core, text)


def origin_of(room: Room, id: str) -> str:
    return room.mailbox("bob").read(id).message.origin


def test_only_the_token_of_its_sender_verifies_a_letter(tmp_path: Path) -> None:
    with postroom.open(tmp_path / "room.db") as room:
        by_token = room.acting_as(shown(room, "ann")).mailbox("ann").send("bob", "x").id
        by_operator = room.acting_as(shown(room, None)).mailbox("ann").send("bob", "x").id
        by_name = room.acting_as(agent_principal("ann")).mailbox("ann").send("bob", "x").id
        by_owner = room.mailbox("ann").send("bob", "x").id

        assert "ann (verified)" == origin_of(room, by_token)
        assert {"ann (unverified)"} == {origin_of(room, id) for id in (by_operator, by_name, by_owner)}


def test_answers_tasks_and_repeats_are_verified_too(room: Room) -> None:
    first = room.mailbox("bob").send("ann", "Can you?")
    ann = room.acting_as(shown(room, "ann")).mailbox("ann")
    ids = [ann.reply(first.id, "Yes.").id, ann.give_task("bob", "Then do.").id, ann.send("bob", "x", key="k").id]
    assert room.mailbox("ann").send("bob", "x", key="k").repeated  # the same letter, whoever says it again
    is_kept = room.core.store.vouches
    assert {f"ann ({'verified' if is_kept else 'unverified'})"} == {origin_of(room, id) for id in ids}


def test_no_caller_can_say_it(room: Room) -> None:
    with pytest.raises(Invalid) as refused:
        room.mailbox("ann").send("bob", "x", proven=True)  # type: ignore[call-arg]
    assert "proven" == refused.value.field


@pytest.mark.parametrize("layout", FOLDERS)
def test_in_a_folder_that_others_may_write_nothing_is_proven(layout: str, tmp_path: Path) -> None:
    with postroom.open(f"files:{tmp_path / 'mail'}?layout={layout}") as room:
        id = room.acting_as(shown(room, "ann")).mailbox("ann").send("bob", "x", tags=["forged"]).id
        assert "ann (unverified)" == origin_of(room, id)
        (path,) = [p for p in (tmp_path / "mail").rglob("*.json*") if "forged" in p.read_text() and p.is_file()]
        forged = json.loads(path.read_text())
        assert "proven" not in path.read_text()
        design = layout_named(layout)
        design.set_own(forged, design.own(forged) | {"proven": True})
        path.write_text(json.dumps(forged))
    (tmp_path / "mail" / ".postroom" / "index.db").unlink()
    with postroom.open(f"files:{tmp_path / 'mail'}?layout={layout}") as room:
        assert ["ann (unverified)"] == [
            letter.message.origin for letter in room.mailbox("bob").check(unread_only=False)
        ]


def test_it_is_kept_by_an_export(tmp_path: Path) -> None:
    with postroom.open(tmp_path / "room.db") as room, postroom.open(tmp_path / "other.db") as other:
        id = room.acting_as(shown(room, "ann")).mailbox("ann").send("bob", "x").id
        other.load(list(room.export()))
        assert "ann (verified)" == origin_of(other, id)


@pytest.mark.parametrize("layout", FOLDERS)
def test_a_copy_into_a_folder_does_not_keep_it(layout: str, tmp_path: Path) -> None:
    with postroom.open(tmp_path / "room.db") as room:
        id = room.acting_as(shown(room, "ann")).mailbox("ann").send("bob", "x").id
    there = f"files:{tmp_path / 'mail'}?layout={layout}"
    for _ in range(2):  # the second time it is there
        postroom.copy_room(tmp_path / "room.db", there)
    with postroom.open(there) as folder:
        assert "ann (unverified)" == origin_of(folder, id)
