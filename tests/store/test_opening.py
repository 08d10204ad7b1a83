"""From an address to a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from postroom.errors import BadStore
from postroom.model.query import Query
from postroom.store.address import open_store
from postroom.store.protocol import Store
from postroom.store.sqlite.memory import MemoryStore
from postroom.store.sqlite.store import SqliteStore
from tests.letters import BOOT, BootClock, ids, send


def opened(address: Any) -> Store:
    return open_store(address, clock=BootClock(BOOT), durable=True, busy_timeout=1.0)


def test_memory_is_a_room_of_its_own() -> None:
    one, other = opened("memory:"), opened("memory:")

    assert isinstance(one, MemoryStore)
    assert one.cursor().store != other.cursor().store


@pytest.mark.parametrize("address", ["sqlite:{}/room.db", "sqlite://{}/room.db", "{}/room.db", "{}/deep/room"])
def test_a_path_is_a_room_in_a_file(tmp_path: Path, address: str) -> None:
    store = opened(address.format(tmp_path))
    assert isinstance(store, SqliteStore)
    send(store, "m1")
    assert ids(store, Query()) == ["m1"]
    store.close()
    assert Path(store.path).is_relative_to(tmp_path)


def test_a_tilde_is_the_users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    store = opened("~/room.db")
    store.close()
    assert (tmp_path / "room.db").exists()


@pytest.mark.parametrize(
    "address",
    [
        None,
        "",
        "a\0b.db",
        "memory:name",
        "sqlite:",
        "sqlite:/tmp/",
        "sqlite:/tmp/a?b",
        "/tmp/a\nb.db",
        "room",
        "redis:x",
        "~nobody-of-this-name/a.db",
        "sqlite:/tmp/\ud800.db",
    ],
)
def test_what_names_no_store_is_refused(address: Any) -> None:
    with pytest.raises(BadStore):
        opened(address)
