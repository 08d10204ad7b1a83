"""What MAP programs may do twice and what only one of them may: send under an id of its own, have a name."""

from __future__ import annotations

from typing import Any

import pytest

from postroom import Room
from postroom.core.authorize import Principal
from postroom.errors import NameTaken
from postroom.formats.map import GUEST
from tests.formats.map_asking import ask, register_all
from tests.rooms import FakeClock


def sent(to: Any, id: str, **meta: Any) -> dict[str, Any]:
    return {"from": "ann", "to": to, "payload": "x", "meta": {"messageId": id, **meta}}


def test_what_is_sent_again_is_one_letter(room: Room) -> None:
    register_all(room, ("ann", None, "worker", []), ("bob", None, "worker", []))
    first = ask(room, "send", **sent({"agent": "bob"}, "m-1", ttlMs=60_000))
    again = ask(room, "send", **sent({"agent": "bob"}, "m-1", ttlMs=50_000))  # of its time some has passed
    assert first == again
    assert [first["messageId"]] == [letter.id for letter in room.mailbox("bob").check()]


def test_one_message_for_several_and_the_same_id_of_another_are_letters_of_their_own(room: Room) -> None:
    register_all(room, *((name, None, "worker", []) for name in ("ann", "bob", "carl")))
    for to in ("bob", "carl"):
        ask(room, "send", **sent({"agent": to}, "m-1"))
    ask(room, "send", **(sent({"agent": "bob"}, "m-1") | {"from": "carl"}))
    assert (2, 1) == (len(room.mailbox("bob").check()), len(room.mailbox("carl").check()))


STRANGER = Principal("token:1", agent="ann", token="1")  # an operator's token, as it acts for an agent  # noqa: S106
OWN = Principal("agent:ann", agent="ann", token="2")  # noqa: S106
GUEST_OF = {"metadata": {GUEST: {"of": "berlin"}}}


def test_a_live_name_is_not_given_to_an_operators_token_and_its_own_token_has_it(
    room: Room, clock: FakeClock
) -> None:
    room.mailbox("ann").register()
    with pytest.raises(NameTaken):
        ask(room.acting_as(STRANGER), "agents/register", agent_id="ann", name="ann")
    ask(room.acting_as(OWN), "agents/register", agent_id="ann", name="ann")
    clock.advance(300)
    assert "ann" == ask(room.acting_as(STRANGER), "agents/register", agent_id="ann", name="ann")["agent"]["id"]


def test_a_guest_of_another_room_gets_no_name_of_this_one(room: Room, clock: FakeClock) -> None:
    room.mailbox("ann").register()
    clock.advance(10**6)  # long gone, and its mail is its own all the same
    for _ in range(2):
        with pytest.raises(NameTaken):
            ask(room.acting_as(STRANGER), "agents/register", agent_id="ann", name="ann", **GUEST_OF)
    other = Principal("token:1", agent="bob", token="1")  # noqa: S106
    room.mailbox("x").send("bob", "nobody of that name was ever here")
    ask(room.acting_as(other), "agents/register", agent_id="bob", name="bob", **GUEST_OF)
    ask(room.acting_as(other), "agents/register", agent_id="bob", name="bob", **GUEST_OF)  # and comes back
    room.mailbox("carl").send("x", "carl never registered")
    third = Principal("token:1", agent="carl", token="1")  # noqa: S106
    with pytest.raises(NameTaken):
        ask(room.acting_as(third), "agents/register", agent_id="carl", name="carl", **GUEST_OF)
