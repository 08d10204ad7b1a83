"""Postroom is put into a host where others write in the same moment, or where it stands in another place, too."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from postroom.errors import Refused
from postroom.hosts.install import plan as install_plan
from postroom.hosts.install.layouts import other_places
from postroom.hosts.install.plan import FileChange, install_state
from postroom.hosts.recipes import RECIPES
from tests.hosts.places import HOSTS, Home

TRUST = 'model = "x"\n[hooks.state]\ntrusted = true\n'


def warnings_of(home: Home, host: str, project: str | None = None) -> list[str]:
    return other_places(home.order(host, project=project), home.layout(host, project=project))


@pytest.fixture
def project(tmp_path: Path) -> str:
    folder = tmp_path / "shop"
    folder.mkdir()
    return str(folder)


@pytest.mark.parametrize("host", HOSTS)
def test_who_puts_it_in_for_everything_hears_of_the_folder_that_has_it(
    home: Home, project: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.install(host, project=project)
    assert [] == warnings_of(home, host)
    monkeypatch.chdir(project)
    assert [
        f"{project} has Postroom too: in that folder type postroom uninstall {host} --project."
    ] == warnings_of(home, host)
    assert [] == warnings_of(home, host, project)
    assert all([] == warnings_of(home, other) for other in HOSTS if other != host)
    home.uninstall(host, project=project)
    assert [] == warnings_of(home, host)


def test_ones_home_is_no_project(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.install("codex")
    monkeypatch.chdir(home.folder)
    assert [] == warnings_of(home, "codex")


def test_a_project_that_is_gone_or_cannot_be_read_is_passed_by(
    home: Home, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.install("gemini", project=project)
    monkeypatch.chdir(project)
    Path(project, ".gemini", "settings.json").write_text("{", encoding="utf-8")
    assert [] == warnings_of(home, "gemini")
    Path(project, ".gemini", "settings.json").unlink()
    assert [] == warnings_of(home, "gemini")


@pytest.mark.parametrize("name", ["settings.json", "settings.local.json"])
def test_hooks_that_were_put_in_by_hand_are_reported(home: Home, name: str) -> None:
    entry = '{"type": "command", "command": "postroom hook claude"}'
    path = home.put(f".claude/{name}", f'{{"hooks": {{"Stop": [{{"hooks": [{entry}]}}]}}}}')
    assert [f"{path} runs hooks of Postroom too: remove them there."] == warnings_of(home, "claude")
    for other in ("{", "[]", '{"hooks": []}', '{"hooks": {"Stop": {}}}', '{"hooks": {"Stop": [1, {"hooks": 1}]}}'):
        home.put(f".claude/{name}", other)
        assert [] == warnings_of(home, "claude")


# -- an older version


@pytest.mark.parametrize(
    ("host", "less"),
    [
        ("claude", {"waits": ("SessionStart", "Stop")}),
        ("codex", {"waits": ()}),
        ("gemini", {"events": ("AfterTool",)}),
    ],
)
def test_hooks_of_an_older_version_are_not_all_there_until_it_is_installed_again(
    home: Home, host: str, less: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setitem(RECIPES, host, RECIPES[host]._replace(**less))
        home.install(host, options=("--as", "coder"))
        assert install_state(home.layout(host)).is_all
    found = install_state(home.layout(host))
    assert found.is_any and not found.is_all
    home.install(host)
    assert install_state(home.layout(host)).is_all


# -- others write, too


def trusted_meanwhile(home: Home, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a file holds into which the host writes while everything is laid ready beside it."""
    home.put(".codex/config.toml", 'model = "x"\n')
    real = install_plan._write_draft

    def late(path: str, text: str, mode: int) -> str:
        draft = real(path, text, mode)
        if path.endswith("AGENTS.md"):
            home.put(".codex/config.toml", TRUST)
        return draft

    monkeypatch.setattr(install_plan, "_write_draft", late)
    with suppress(Refused):
        home.install("codex")
    return home.text(".codex/config.toml")


def test_what_a_host_writes_in_the_last_moment_stays(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    assert TRUST == trusted_meanwhile(home, monkeypatch)
    assert {".codex", ".codex/config.toml"} == home.all().keys()


def test_a_check_only_before_the_write_is_found_out(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def blindly(_change: FileChange, _root: str) -> None: ...

    monkeypatch.setattr(install_plan, "_check_unchanged", blindly)
    assert "trusted" not in trusted_meanwhile(home, monkeypatch)
