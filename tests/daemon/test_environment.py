"""agent-inbox's own variables say what they always said; ours beat them (I1, I7)."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from postroom import BadStore
from postroom.daemon.options import Options, options, unheeded

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


def said(chosen: Options) -> tuple[str, str, int, str, str]:
    room = Path(chosen.settings.store.removeprefix("sqlite:")).name
    socket, inboxes = Path(chosen.sockets[0]).name, Path(chosen.inboxes).name
    return socket, room, chosen.port, inboxes, chosen.settings.system


def test_the_variables_of_agent_inbox_are_honoured() -> None:
    assert ("theirs.sock", "theirs.db", 4711, "theirs", "theirs") == said(options(None, {}))


def test_where_it_listens_is_told_to_those_in_other_folders(tmp_path: Path) -> None:
    chosen = options(None, {}, sockets=["a.sock", str(tmp_path / "a.sock"), "b/../b.sock"], inboxes="in")
    assert (str(tmp_path / "a.sock"), str(tmp_path / "b.sock")) == chosen.sockets
    assert str(tmp_path / "in") == chosen.inboxes
    assert str(tmp_path / "theirs.sock") == options(None, {}).sockets[0]


def test_port_0_of_agent_inbox_is_no_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INBOX_HTTP_PORT", "0")
    assert "" == options(None, {}).host


def test_our_own_beat_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in OURS.items():
        monkeypatch.setenv(name, value)
    assert ("ours.sock", "ours.db", 4712, "ours", "ours") == said(options(None, {}))


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


def test_what_is_not_heeded_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [] == unheeded()
    monkeypatch.setenv("INBOX_MAP_ENABLED", "true")
    assert ["INBOX_MAP_ENABLED"] == unheeded()
