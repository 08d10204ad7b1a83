"""A letter that lies in many mailboxes is read once, whoever asks for all of its deliveries."""

from __future__ import annotations

import pytest

from postroom.model.codec import decode_message
from postroom.model.message import Message
from postroom.model.query import Query
from postroom.store.sqlite import rows
from postroom.store.sqlite.store import SqliteStore
from tests.letters import send
from tests.store.helpers import database


@pytest.mark.parametrize(
    "query",
    [
        Query(message_ids=("to-all", "to-one", "none"), order="age"),
        Query(after=0, until=9, unread_only=True, order="age"),
        Query(order="age"),
    ],
    ids=["by their ids", "what came since", "all"],
)
def test_a_letter_to_many_is_read_once_and_not_with_each_of_them(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, query: Query
) -> None:
    """With its recipients in it, it is as large as they are many: read with each, ten thousand took gigabytes."""
    names = tuple(f"reader-{number}" for number in range(300))
    send(store, "to-all", names)
    send(store, "to-one")
    read: list[bytes] = []

    def counted(body: bytes) -> Message:
        read.append(body)
        return decode_message(body)

    monkeypatch.setattr(rows, "decode_message", counted)
    found = store.find(query)

    assert [*names, "bob"] == [one.delivery.mailbox for one in found]
    assert {"to-all", "to-one"} == {one.message.id for one in found}
    assert 2 == len(read)


def test_a_damaged_letter_to_many_is_set_aside_with_all_its_deliveries(store: SqliteStore) -> None:
    send(store, "sound", ("bob", "eve"))
    send(store, "damaged", ("bob", "eve"))
    with database(store.path) as room:
        room.execute("UPDATE letters SET body = 'junk' WHERE id = 'damaged'")
    found = store.find(Query(message_ids=("sound", "damaged"), order="age"))

    assert [("sound", "bob"), ("sound", "eve")] == [(one.message.id, one.delivery.mailbox) for one in found]
    assert 1 == len(store.quarantined())
