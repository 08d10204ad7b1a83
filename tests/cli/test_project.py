"""A project has a room of its own, found from anywhere below it: by commands, quick or not, and by the library."""

from __future__ import annotations

import stat

import pytest

from tests.cli.shell import Shell


@pytest.fixture
def project(shell: Shell) -> Shell:
    """A user who names no room, in a folder below a project."""
    del shell.environment["POSTROOM_STORE"]
    (shell.home / "project/src").mkdir(parents=True)
    return shell


def test_a_project_is_made_once_and_for_its_owner_alone(project: Shell) -> None:
    first, again = project.json("init", "project"), project.json("init", "project")
    assert (first["made"], again["made"]) == (True, False)
    folder = project.home / "project/.postroom"
    assert first["path"] == str(folder / "room.db")
    assert (folder / ".gitignore").read_text(encoding="utf-8") == "*\n"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "room.db").stat().st_mode) == 0o600


def test_it_is_found_from_below_also_by_the_quick_look(project: Shell) -> None:
    project.json("init", "project")
    home, project.home = project.home, project.home / "project/src"
    path = home / "project/.postroom/room.db"
    assert project.json("room")["store"] == f"sqlite:{path}"
    project.json("send", "bob", "--as", "ann", "--body", "x")
    assert len(project.json("check", "--as", "bob", "--peek")["letters"]) == 1
    assert project.json("check", "--as", "ann")["letters"] == []
    project.home = home
    assert project.json("room")["store"] == f"sqlite:{home}/.local/share/postroom/room.db"
    assert project.json("check", "--as", "bob")["letters"] == []
    assert project.run("check", "--as", "bob", "--json", POSTROOM_STORE=str(path)).json["letters"] != []


def test_mail_of_a_project_whose_room_is_gone_goes_nowhere_else(project: Shell) -> None:
    project.json("init", "project")
    home, project.home = project.home, project.home / "project/src"
    for path in (home / "project/.postroom").glob("room.db*"):
        path.unlink()
    for words in (["send", "bob", "--body", "x"], ["check"], ["counts"], ["room"], ["wait", "--timeout", "0"]):
        refused = project.run(*words, "--as", "ann", "--json")
        assert (refused.code, refused.error["field"]) == (78, "store"), refused
        assert "project/.postroom/room.db is gone" in refused.error["message"]
        assert "postroom init" in refused.error["hint"]
    assert not (home / ".local").exists()
    assert project.run("doctor").code == 70
    assert project.run("check", "--as", "ann", "--room", str(home / "other.db")).code == 66
    assert project.json("init", "..")["made"]
    assert project.json("check", "--as", "ann")["letters"] == []


def test_what_cannot_be_made_is_reported(project: Shell) -> None:
    (project.home / "file").write_text("", encoding="utf-8")
    (project.home / "taken/.postroom").mkdir(parents=True)
    (project.home / "taken/.postroom/room.db").mkdir()
    for folder in ("file", "nowhere", "taken"):
        assert project.run("init", folder).code == 73
    assert project.run("init", "--room", "x.db").code == 64
