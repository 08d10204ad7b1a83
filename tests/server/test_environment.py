"""agent-inbox's own variables say what they always said; ours beat them (I1, I7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest

from postroom import BadStore, Invalid
from postroom.app.options import Options, options

THEIRS = {
    "INBOX_SOCKET_PATH": "theirs.sock",
    "INBOX_SQLITE_PATH": "theirs.db",
    "INBOX_HTTP_PORT": "4711",
    "INBOX_DIR": "theirs",
    "INBOX_SYSTEM_ID": "theirs",
}
OURS = {
    "POSTROOM_SOCKET": "ours.sock",
    "POSTROOM_STORE": "sqlite:ours.db",
    "POSTROOM_HTTP": "127.0.0.1:4712",
    "POSTROOM_INBOXES": "ours",
    "POSTROOM_SYSTEM": "ours",
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in THEIRS.items():
        monkeypatch.setenv(name, value)


def summary(chosen: Options) -> tuple[str, str, int, str, str]:
    room = Path(chosen.settings.store.removeprefix("sqlite:")).name
    socket, inboxes = Path(chosen.sockets[0]).name, Path(chosen.inboxes).name
    return socket, room, chosen.port, inboxes, chosen.settings.system


def options_with(**more: Any) -> Options:
    return options(None, {}, **more)


def test_the_variables_of_agent_inbox_are_honoured() -> None:
    assert ("theirs.sock", "theirs.db", 4711, "theirs", "theirs") == summary(options(None, {}))


def test_where_it_listens_is_reported_to_those_in_other_folders(tmp_path: Path) -> None:
    chosen = options(None, {}, sockets=["a.sock", str(tmp_path / "a.sock"), "b/../b.sock"], inboxes="in")
    assert (str(tmp_path / "a.sock"), str(tmp_path / "b.sock")) == chosen.sockets
    assert str(tmp_path / "in") == chosen.inboxes
    assert str(tmp_path / "theirs.sock") == options(None, {}).sockets[0]


def test_a_scope_of_the_service_that_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INBOX_SCOPE", "swarm:team")
    assert "swarm:team" == options_with().scope
    monkeypatch.setenv("POSTROOM_SCOPE", "../team")
    with pytest.raises(Invalid) as refused:
        options_with()
    assert "scope" == refused.value.field


def test_port_0_of_agent_inbox_is_no_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INBOX_HTTP_PORT", "0")
    assert "" == options(None, {}).host


def test_our_own_beat_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in OURS.items():
        monkeypatch.setenv(name, value)
    assert ("ours.sock", "ours.db", 4712, "ours", "ours") == summary(options(None, {}))


def test_a_database_of_agent_inbox_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    database = apsw.Connection(str(tmp_path / "theirs.db"))
    for table in ("messages", "recipients", "conversations", "turns"):
        database.execute(f"CREATE TABLE {table} (id TEXT)")
    database.close()
    before = (tmp_path / "theirs.db").read_bytes()

    with pytest.raises(BadStore, match="agent-inbox's own database") as refused:
        options(None, {})

    assert "INBOX_SQLITE_PATH" == refused.value.field and refused.value.hint
    assert before == (tmp_path / "theirs.db").read_bytes()


def test_the_variables_of_agent_inbox_ask_for_a_link_to_a_map_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INBOX_MAP_SERVER", "ws://127.0.0.1:8080")
    assert options_with().map_link is None  # it is off unless it is turned on
    monkeypatch.setenv("INBOX_MAP_ENABLED", "true")
    monkeypatch.setenv("INBOX_SCOPE", "swarm:night")
    monkeypatch.setenv("INBOX_MAP_SYSTEM_ID", "berlin")
    wanted = options_with().map_link
    assert wanted is not None
    assert ("ws://127.0.0.1:8080", "swarm:night", "berlin", "all") == (
        wanted.server, wanted.scope, wanted.name, wanted.expose
    )  # fmt: skip
    monkeypatch.setenv("INBOX_MAP_SCOPE", "org/day")
    monkeypatch.setenv("POSTROOM_MAP_SERVER", "wss://map.example.com")
    monkeypatch.setenv("POSTROOM_MAP_EXPOSE", "ann, bob")
    wanted = options_with(map_name="paris").map_link
    assert wanted is not None
    assert ("wss://map.example.com", "org/day", "paris", "ann, bob") == (
        wanted.server, wanted.scope, wanted.name, wanted.expose
    )  # fmt: skip


def test_a_link_without_a_server_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INBOX_MAP_ENABLED", "true")
    with pytest.raises(Invalid) as refused:
        options_with()
    assert ("INBOX_MAP_ENABLED", "set INBOX_MAP_SERVER") == (refused.value.field, refused.value.hint)


@pytest.mark.parametrize(
    ("variables", "field"),
    [
        ({"SERVER": "http://127.0.0.1:1"}, "map-server"),
        ({"SERVER": "ws://"}, "map-server"),
        ({"SERVER": "ws://far.example.com", "TOKEN": "secret"}, "map-server"),
        ({"SERVER": "ws://127.0.0.1:1", "METHOD": "shout"}, "map-auth"),
        ({"SERVER": "ws://127.0.0.1:1", "SCOPE": "a//b"}, "map-scope"),
        ({"SERVER": "ws://127.0.0.1:1", "NAME": "../x"}, "map-name"),
        ({"SERVER": "ws://127.0.0.1:1", "EXPOSE": "ann,,"}, "map-expose"),
    ],
)
def test_a_link_that_cannot_be_meant_is_refused(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], field: str
) -> None:
    for name, text in variables.items():
        monkeypatch.setenv(f"POSTROOM_MAP_{name}", text)
    with pytest.raises(Invalid) as refused:
        options_with()
    assert field == refused.value.field and "secret" not in str(refused.value)
