"""Settings: defaults, then the file, then the environment, then arguments; what nobody knows is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom import Invalid
from postroom.environment import config_path, own_room, project_room
from postroom.settings import Settings, load_settings


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith(("POSTROOM_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)  # a room of the project around the tests is none of theirs
    return tmp_path


def write(home: Path, text: str | bytes) -> Path:
    file = home / ".config/postroom/config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def test_without_a_word_the_defaults_hold(home: Path) -> None:
    assert load_settings() == Settings()
    assert Settings().durability == "power"


def test_each_layer_beats_the_one_below(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home, 'lease = 10\nmax_parts = 11\nunknown = "refuse"')
    monkeypatch.setenv("POSTROOM_MAX_PARTS", "12")
    monkeypatch.setenv("POSTROOM_LEASE", "13.5")
    settings = load_settings({"lease": 14, "unknown": None})
    assert (settings.lease, settings.max_parts, settings.unknown) == (14, 12, "refuse")


def test_the_environment_is_that_which_is_given(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTROOM_HOPS", "9")
    assert load_settings({}, {"POSTROOM_HOPS": "5", "HOPS": "7", "POSTROOM_AGENT": "me"}).hops == 5


BAD: list[tuple[str, Any]] = [
    ("lease", "soon"), ("lease", -1), ("lease", float("nan")), ("lease", float("inf")), ("max_parts", 0),
    ("max_parts", 2**60), ("unknown", "maybe"), ("durability", "none"), ("store", 5),
    ("remember_for", 60), ("retain_count", -1), ("hops", 1.5), ("colour", "red"), ("", 1),
    ("federation_strategy", "gossip"), ("federation_upstream", "a b"), ("outbox_retry", "never"),
    ("federation_strategy", "hierarchical"), ("federation_upstream", "hub"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), BAD, ids=str)
def test_a_bad_setting_is_named(home: Path, name: str, value: Any) -> None:
    with pytest.raises(Invalid) as refused:
        load_settings({name: value})
    assert refused.value.field == name
    assert refused.value.hint


@pytest.mark.parametrize(
    ("variable", "value"), [("POSTROOM_LEASE", "nan"), ("POSTROOM_HOPS", "three"), ("POSTROOM_UNKNOWN", "")]
)
def test_a_bad_variable_is_named(home: Path, variable: str, value: str) -> None:
    with pytest.raises(Invalid) as refused:
        load_settings({}, {variable: value})
    assert refused.value.field == variable.removeprefix("POSTROOM_").lower()


@pytest.mark.parametrize(
    "text", ["lease = ", b"\xff\xfe", "[limits]\nlease = 1", "leese = 1", "lease = 1\nlease = 2"]
)
def test_a_bad_file_is_named(home: Path, text: str | bytes) -> None:
    file = write(home, text)
    with pytest.raises(Invalid) as refused:
        load_settings()
    assert refused.value.field in {str(file), "limits", "leese"}


def test_a_file_that_cannot_be_read_is_named(home: Path) -> None:
    (home / ".config/postroom/config.toml").mkdir(parents=True)
    with pytest.raises(Invalid, match="correct or remove"):
        load_settings()


def test_the_folders_follow_xdg(home: Path) -> None:
    assert own_room({}) == f"{home}/.local/share/postroom/room.db"
    assert own_room({"XDG_DATA_HOME": "/data"}) == "/data/postroom/room.db"
    assert own_room({"XDG_DATA_HOME": "data"}) == f"{home}/.local/share/postroom/room.db"
    assert config_path({"XDG_CONFIG_HOME": "/etc/x"}) == "/etc/x/postroom/config.toml"
    assert config_path({"XDG_CONFIG_HOME": ""}) == f"{home}/.config/postroom/config.toml"


def test_postroom_store_chooses_the_room(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTROOM_STORE", f"sqlite:{home}/mine/room.db")
    with postroom.open() as room:
        room.mailbox("ann").send("bob", "x")
    assert (home / "mine/room.db").is_file()
    with postroom.open("memory:") as room:
        assert room.mailboxes() == []
    monkeypatch.setenv("POSTROOM_STORE", "memory:")
    with postroom.open() as room:
        assert room.mailboxes() == []


@pytest.mark.parametrize("store", ["carrier-pigeon:", "memory:x", "sqlite:", "sqlite:a\0b", "nowhere", "a/b/"])
def test_a_store_that_is_none_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch, store: str) -> None:
    with pytest.raises(postroom.BadStore) as refused:
        postroom.open(store)
    assert refused.value.field == "store"
    assert list(home.iterdir()) == []


# -- the room of a project


def make_project(folder: Path) -> Path:
    (folder / ".postroom").mkdir(parents=True)
    with postroom.open(folder / ".postroom/room.db") as room:
        room.mailbox("ann").send("bob", str(folder))
    return folder / ".postroom/room.db"


def test_the_nearest_room_upward_is_the_projects(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outer, inner = make_project(home / "project"), make_project(home / "project/a/b")
    (home / "project/a/b/c/d").mkdir(parents=True)
    for place, expected in {
        "project": outer,
        "project/a": outer,
        "project/a/b": inner,
        "project/a/b/c/d": inner,
    }.items():
        monkeypatch.chdir(home / place)
        assert load_settings().store == f"sqlite:{expected}"
        with postroom.open() as room:
            assert room.settings.store == f"sqlite:{expected}"
    monkeypatch.chdir(home)
    assert load_settings().store == ""


def test_a_project_beats_the_config_file_and_gives_way_to_options(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, 'store = "memory:"')
    monkeypatch.chdir(make_project(home / "project").parent.parent)
    assert load_settings().store.endswith("/project/.postroom/room.db")
    assert load_settings({}, {"POSTROOM_STORE": "memory:"}).store == "memory:"
    assert load_settings({"store": "memory:"}).store == "memory:"
    monkeypatch.chdir(home)
    assert load_settings().store == "memory:"


def test_a_strangers_project_is_passed_by(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_project(home / "project")
    (home / "project/below").mkdir()
    monkeypatch.chdir(home / "project/below")
    assert project_room() == str(home / "project/.postroom/room.db")
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    passed_by: list[tuple[str, str]] = []
    assert project_room(passed_by=passed_by) is None
    assert passed_by == [(str(home / "project/.postroom"), "belongs to another user")]


def test_a_link_is_no_project(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_project(home / "elsewhere")
    for place in ("folder", "file/.postroom"):
        (home / place).mkdir(parents=True)
    (home / "folder/.postroom").symlink_to(home / "elsewhere/.postroom")
    (home / "file/.postroom/room.db").symlink_to(home / "elsewhere/.postroom/room.db")
    for place, link in (("folder", ".postroom"), ("file", ".postroom/room.db")):
        passed_by: list[tuple[str, str]] = []
        assert project_room(str(home / place), passed_by) is None
        assert passed_by == [(str(home / place / link), "is a link")]


def test_a_working_folder_that_is_gone_is_in_no_project(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = home / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert project_room() is None
    assert load_settings().store == ""


NOT_KEPT: list[tuple[str, Any]] = [
    ("outbox_overflow", "drop-oldest"), ("outbox_overflow", "drop-newest"), ("outbox_persistence", "memory"),
    ("outbox_flush_on_reconnect", False), ("federation_require_auth", False),
    ("federation_auth_method", "did:wba"), ("federation_auth_method", "mtls"),
    ("federation_allowed_servers", ["berlin"]), ("federation_scope_permissions", {"dev": ["*"]}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), NOT_KEPT, ids=str)
def test_a_setting_that_nobody_would_keep_is_refused_wherever_it_is_set(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: Any
) -> None:
    with pytest.raises(Invalid, match="would not be kept") as refused:
        load_settings({name: value})
    assert name == refused.value.field and refused.value.hint
    monkeypatch.setenv(f"POSTROOM_{name.upper()}", str(value))
    with pytest.raises(Invalid, match="would not be kept"):
        postroom.open(home / "room.db")
    monkeypatch.delenv(f"POSTROOM_{name.upper()}")
    if isinstance(value, str):
        write(home, f'{name} = "{value}"')
        with pytest.raises(Invalid, match="would not be kept"):
            load_settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("outbox_overflow", "reject-new"),
        ("outbox_persistence", "sqlite"),
        ("outbox_flush_on_reconnect", True),
        ("federation_require_auth", "true"),
    ],
)
def test_a_setting_that_says_what_holds_anyway_is_taken(home: Path, name: str, value: Any) -> None:
    assert Settings() == load_settings({name: value})


def test_a_strategy_takes_only_what_it_asks_for(home: Path) -> None:
    upward = {"federation_strategy": "hierarchical", "federation_upstream": "hub, top"}
    assert load_settings(upward).federation_upstream == "hub, top"
    with pytest.raises(Invalid, match="nothing is left to hubs"):
        load_settings({**upward, "federation_strategy": "broadcast"})


def test_a_table_of_settings_is_refused_with_the_right_form(home: Path) -> None:
    write(home, '[outbox]\nretry = "fixed"')
    with pytest.raises(Invalid, match="no tables") as refused:
        load_settings()
    assert "outbox" == refused.value.field and "outbox_retry" in str(refused.value.hint)


@pytest.mark.parametrize("name", ["outbox_max_age", "federation_broadcast_timeout"])
def test_no_time_at_all_is_no_time_to_succeed_in(name: str) -> None:
    with pytest.raises(Invalid, match="> 0"):
        postroom.open("memory:", **{name: 0})
