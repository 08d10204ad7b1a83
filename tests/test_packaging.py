"""What is published: wheels and source archives, installed into an empty environment and taken out again."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

from tests.daemons import PATIENCE

ROOT = Path(__file__).parent.parent
PLUGIN = ROOT / "packages" / "postroom-nanobot"
TOOLS = runpy.run_path(str(ROOT / "tools" / "nanobot.py"))
NEEDED = ("apsw", "cffi", "cryptography", "msgspec", "pycparser", "tomlkit")
# Root may write everywhere until the capability that allows it is dropped (PR_CAPBSET_DROP, CAP_DAC_OVERRIDE).
UNPRIVILEGED = """
import ctypes, os, sys
if os.geteuid() == 0:
    ctypes.CDLL(None).prctl(24, 1)
os.execv(sys.argv[1], sys.argv[1:])
"""


def build(project: Path, kind: str, folder: Path) -> Path:
    """Build what would be published, as a build program does: by the backend."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert 0 == done.returncode, done.stderr
    [built] = folder.iterdir()
    return built


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.mark.parametrize("project", [ROOT, PLUGIN], ids=["postroom", "postroom-nanobot"])
def test_the_wheel_holds_our_folder_alone_and_can_be_built_from_the_source_archive(
    project: Path, tmp_path: Path
) -> None:
    names = names_in(build(project, "wheel", tmp_path / "wheel"))
    ours = "postroom/" if project == ROOT else "nanobot/channels/mailbox/"
    assert any(name.startswith(ours) for name in names)
    assert set() == {name for name in names if not name.startswith(ours) and ".dist-info/" not in name}
    with tarfile.open(build(project, "sdist", tmp_path / "sdist")) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    [source] = (tmp_path / "source").iterdir()
    assert names == names_in(build(source, "wheel", tmp_path / "again"))


@contextmanager
def closed(folder: Path) -> Iterator[None]:
    """Nobody may write to anything in the folder."""
    places = [place for place in (folder, *folder.rglob("*")) if not place.is_symlink()]
    before = {place: place.stat().st_mode for place in places}
    for place, mode in before.items():
        place.chmod(mode & 0o555)
    try:
        yield
    finally:
        for place, mode in before.items():
            place.chmod(mode)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(place.relative_to(folder)): b"" if place.is_dir() else place.read_bytes()
        for place in folder.rglob("*")
        if not place.is_symlink()
    }


class Environment:
    """An environment with what Postroom needs, and a user who may not write to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "environment"
        self.home = folder / "home"
        self.home.mkdir()
        venv.create(self.folder, with_pip=False, symlinks=True)
        self.python = self.folder / "bin" / "python"
        packages = next(self.folder.glob("lib/python*/site-packages"))
        for name in NEEDED:
            self._copy(name, packages)

    def _copy(self, name: str, packages: Path) -> None:
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or () if file.parts[0] != ".."}:
            place = Path(str(found.locate_file(top)))
            if place.is_dir():
                shutil.copytree(place, packages / top)
            else:
                shutil.copy(place, packages / top)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", UNPRIVILEGED, *words]
        surroundings = {"HOME": str(self.home), "PATH": os.defpath, "USER": "alice"}
        return subprocess.run(
            command, env=surroundings, cwd=self.home, capture_output=True, text=True, check=False, timeout=PATIENCE
        )

    def postroom(self, *words: str) -> dict[str, Any]:
        done = self.run(str(self.folder / "bin" / "postroom"), *words, "--json")
        assert 0 == done.returncode, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found


def test_a_user_who_may_not_write_to_the_environment_mails_and_nothing_is_left_of_us(tmp_path: Path) -> None:
    environment = Environment(tmp_path)
    before = contents(environment.folder)
    TOOLS["install"](environment.python, str(build(ROOT, "wheel", tmp_path / "wheel")))
    with closed(environment.folder):
        module = next(environment.folder.glob("lib/python*/site-packages/postroom/__init__.py"))
        assert 0 != environment.run("/bin/sh", "-c", f"echo >> {module}").returncode  # else this proves nothing
        assert 0 != environment.run(str(environment.python), "-c", "import nanobot").returncode
        sent = environment.postroom("send", "bob", "--as", "alice", "--body", "hello")
        [letter] = environment.postroom("check", "--as", "bob")["letters"]
        assert sent["id"] == letter["id"] and "hello" == letter["parts"][0]["text"]
        environment.postroom("ack", letter["id"], "--as", "bob")
        assert [] == environment.postroom("check", "--as", "bob")["letters"]
    TOOLS["pip"]("--python", str(environment.python), "uninstall", "--yes", "postroom")
    assert before == contents(environment.folder)


def test_a_linter_finds_nothing_in_the_dockerfile() -> None:
    linter = [str(Path(sys.executable).parent / "hadolint"), "--no-color"]
    read = subprocess.run([*linter, str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False)
    assert (0, "") == (read.returncode, read.stdout)
    wrong = subprocess.run(
        [*linter, "-"], input="FROM python\nRUN cd /x", capture_output=True, text=True, check=False
    )
    assert 1 == wrong.returncode and "Use WORKDIR" in wrong.stdout
