"""Links on the way to a host's files: one's own are followed and stay, those of a project lead nobody out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from postroom.errors import Refused
from postroom.hosts.install import plan as install_plan
from postroom.hosts.install.layouts import NAME
from postroom.hosts.install.plan import has_rules, install_state

from .places import Home


def _kept_elsewhere(path: Path, to: Path) -> None:
    """As those do who keep their files elsewhere."""
    to.parent.mkdir(parents=True, exist_ok=True)
    path.rename(to)
    path.symlink_to(to)


@pytest.mark.parametrize("where", ["home/dot", "elsewhere"])
@pytest.mark.parametrize("what", ["files", "folder"])
def test_links_of_ones_own_are_followed_and_stay(
    theirs: Home, host: str, tmp_path: Path, where: str, what: str
) -> None:
    folder, to = theirs.folder / f".{host}", tmp_path / where
    for path in sorted(folder.iterdir()) if what == "files" else [folder]:
        _kept_elsewhere(path, to / path.name.lstrip("."))
    as_it_was = {path: path.read_bytes() for path in to.rglob("*") if path.is_file()}
    before = theirs.all()
    theirs.install(host)
    assert install_state(theirs.layout(host)).is_all and has_rules(theirs.layout(host))
    links = [path for path in before if (theirs.folder / path).is_symlink()]
    assert links and all((theirs.folder / path).is_symlink() for path in links)
    theirs.uninstall(host)
    assert before == theirs.all()
    assert as_it_was == {path: path.read_bytes() for path in to.rglob("*") if path.is_file()}


def test_the_skills_folder_may_be_a_link_and_our_own_in_it_may_not(home: Home, tmp_path: Path) -> None:
    skills = tmp_path / "skills"
    skills.mkdir()
    (home.folder / ".claude").mkdir()
    (home.folder / ".claude/skills").symlink_to(skills)
    home.install("claude")
    assert (skills / NAME / "hooks/hooks.json").is_file()
    home.uninstall("claude")
    assert [] == list(skills.iterdir())
    (tmp_path / "theirs").mkdir()
    (skills / NAME).symlink_to(tmp_path / "theirs")
    with pytest.raises(Refused):
        home.install("claude")
    assert [] == list((tmp_path / "theirs").iterdir())


def check_that_a_project_leads_nobody_out(home: Home, host: str, tmp_path: Path, what: str) -> None:
    """A stranger's project holds links to files of the user."""
    project, outside = tmp_path / "project", tmp_path / "outside"
    project.mkdir()
    outside.mkdir()
    if what == "folder":
        (project / f".{host}").symlink_to(outside)
    for name in ("hooks.json", "settings.json", "config.toml", "CLAUDE.md", "AGENTS.md", "GEMINI.md"):
        (outside / name).write_bytes(b"{}" if name.endswith("json") else b"")
        if what == "files":
            (project / f".{host}").mkdir(exist_ok=True)
            (project / (name if name.endswith("md") else f".{host}/{name}")).symlink_to(outside / name)
    before = {path: path.read_bytes() for path in outside.iterdir()}
    with pytest.raises(Refused, match="is a link"):
        home.install(host, project=str(project))
    assert before == {path: path.read_bytes() for path in outside.iterdir()}


@pytest.mark.parametrize("what", ["files", "folder"])
def test_no_link_leads_out_of_a_project(home: Home, host: str, tmp_path: Path, what: str) -> None:
    check_that_a_project_leads_nobody_out(home, host, tmp_path, what)


@pytest.mark.parametrize("what", ["files", "folder"])
def test_an_installer_that_follows_every_link_is_found_out(
    home: Home, host: str, tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install_plan, "resolve_link", lambda path, _within: os.path.realpath(path))
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        check_that_a_project_leads_nobody_out(home, host, tmp_path, what)


def test_two_hosts_that_read_one_file_have_a_block_each(home: Home, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    rules = project / "CLAUDE.md"
    rules.write_bytes(b"# Mine")
    (project / "AGENTS.md").symlink_to("CLAUDE.md")
    for name in ("claude", "codex"):
        home.install(name, project=str(project))
    assert all(has_rules(home.layout(name, project=str(project))) for name in ("claude", "codex"))
    home.uninstall("claude", project=str(project))
    assert has_rules(home.layout("codex", project=str(project)))
    assert not has_rules(home.layout("claude", project=str(project)))
    home.uninstall("codex", project=str(project))
    assert rules.read_bytes().rstrip() == b"# Mine" and (project / "AGENTS.md").is_symlink()
