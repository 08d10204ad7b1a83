"""Every test of the swarm works in a project folder of its own, with one swarm of three."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.swarm import MailboxManager
from tests.swarm.project import Project


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POSTROOM_DURABILITY", "process")  # no power is cut here
    made = Project(tmp_path)
    made.member("swarm_dev", "architect", "implementer", "critic", "_template")
    return made


@pytest.fixture
def manager(project: Project) -> MailboxManager:
    return project.manager()
