"""A search is no side door (G8): nobody finds what is not theirs, nor learns who else got a letter."""

from __future__ import annotations

import pytest

from postroom import NotAllowed, Room
from postroom.core.authorize import agent_principal
from postroom.store.sqlite import search as sqlite_search
from tests.rooms import RoomFactory, addresses, spoken


@pytest.fixture(params=["new", "in the index"])
def secret(request: pytest.FixtureRequest, room: Room, monkeypatch: pytest.MonkeyPatch) -> str:
    """From ann to bob, cc carol, bcc dave and eve."""
    sent = room.mailbox("ann").send("bob", "psst", cc="carol", bcc=["dave", "eve"], metadata={"m": "private"})
    if request.param == "in the index":
        monkeypatch.setattr(sqlite_search, "FEW", 0)
        room.sweep()
    return sent.id


@pytest.mark.parametrize("query", ["psst", "from:ann", "to:bob", "-x", "after:1d", "kind:message", "pss*"])
def test_a_stranger_finds_nothing(room: Room, secret: str, query: str) -> None:
    room.mailbox("mallory").send("ann", "hello")
    room.mailbox("mallory").register()
    assert spoken(room.mailbox("bob").search(query)) == ["psst"]
    assert secret not in [letter.id for letter in room.mailbox("mallory").search(query, limit=10_000)]


@pytest.mark.parametrize(
    ("reader", "known"),
    [
        ("ann", {"bob", "carol", "dave", "eve"}),
        ("bob", {"bob", "carol"}),
        ("carol", {"bob", "carol"}),
        ("dave", {"bob", "carol", "dave"}),
        ("eve", {"bob", "carol", "eve"}),
    ],
)
def test_a_hidden_recipient_is_neither_shown_nor_found(
    room: Room, secret: str, reader: str, known: set[str]
) -> None:
    box = room.mailbox(reader)
    for ranked in (False, True):
        (letter,) = box.search("psst", ranked=ranked)
        assert set(addresses(letter)) == known
    for name in ("bob", "carol", "dave", "eve"):
        assert len(box.search(f"to:{name}")) == (name in known)
        assert len(box.search(f"psst -to:{name}")) == (name not in known)
        assert box.search(f"psst {name}") == []


def test_the_operator_is_shown_no_hidden_recipient(room: Room, secret: str) -> None:
    (letter,) = room.search("psst")
    assert set(addresses(letter)) == {"bob", "carol"}
    assert room.search("to:dave") == []
    assert spoken(room.search("psst -to:dave")) == ["psst"]


def test_private_fields_are_not_searched(room: Room, secret: str) -> None:
    assert room.search("private") == []


def test_only_the_operator_searches_the_room(factory: RoomFactory, secret: str) -> None:
    room = factory.room(agent_principal("bob"))
    assert spoken(room.mailbox("bob").search("psst")) == ["psst"]
    for search in (room.search, room.mailbox("ann").search, room.mailbox("not-there").search):
        with pytest.raises(NotAllowed):
            search("psst")
