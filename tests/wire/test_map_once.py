"""A MAP sender with ids of its own (`meta.messageId`) may send again what it did not hear was taken: once."""

from __future__ import annotations

from typing import Any

from postroom import Room
from tests.wire.map_asking import ask, crew


def said(to: Any, id: str, **meta: Any) -> dict[str, Any]:
    return {"from": "ann", "to": to, "payload": "x", "meta": {"messageId": id, **meta}}


def test_what_is_sent_again_is_one_letter(room: Room) -> None:
    crew(room, ("ann", None, "worker", []), ("bob", None, "worker", []))
    first = ask(room, "send", **said({"agent": "bob"}, "m-1", ttlMs=60_000))
    again = ask(room, "send", **said({"agent": "bob"}, "m-1", ttlMs=50_000))  # of its time some has passed
    assert first == again
    assert [first["messageId"]] == [letter.id for letter in room.mailbox("bob").check()]


def test_one_message_for_several_and_the_same_id_of_another_are_letters_of_their_own(room: Room) -> None:
    crew(room, *((name, None, "worker", []) for name in ("ann", "bob", "carl")))
    for to in ("bob", "carl"):
        ask(room, "send", **said({"agent": to}, "m-1"))
    ask(room, "send", **(said({"agent": "bob"}, "m-1") | {"from": "carl"}))
    assert (2, 1) == (len(room.mailbox("bob").check()), len(room.mailbox("carl").check()))
