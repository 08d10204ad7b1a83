"""Full disks, no inodes, no handles, read-only folders: sends wait, reads and acks go on, and all recovers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.kinds import SOUND, Kind

ROOT = Path(__file__).parent.parent.parent
MOUNT = {"disk": "size=16m", "inodes": "size=64m,nr_inodes={inodes}", "read-only": "size=64m"}
pytestmark = pytest.mark.costly


def complaints(folder: Path, kind: Kind, wall: str, bug: str = SOUND) -> list[str]:
    """What the process behind the wall complains about."""
    inside = folder / "inside"
    inside.mkdir()
    command = [sys.executable, "-m", "tests.faults.straits", str(folder), str(inside), kind.name, bug, wall]
    if wall in MOUNT:
        command = _mounted(inside, MOUNT[wall].format(inodes=kind.inodes), command)
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split("\n")[:-1] if ended.stdout.strip() else []


def _mounted(inside: Path, options: str, command: list[str]) -> list[str]:
    """The command, seeing a small disk that only it can see, and that is gone when it ends."""
    if os.geteuid() or not (shutil.which("unshare") and shutil.which("mount")):
        pytest.skip("a small disk needs root, unshare and mount")
    alone = ["unshare", "--mount", "--propagation", "private"]
    if subprocess.run([*alone, "true"], check=False, capture_output=True).returncode:
        pytest.skip("mounts are forbidden here")
    mount = f'mount -t tmpfs -o {options} tmpfs "$0" && exec "$@"'
    return [*alone, "sh", "-c", mount, str(inside), *command]


@pytest.mark.parametrize("wall", ["disk", "inodes", "handles", "read-only"])
def test_reads_and_acks_go_on_and_all_recovers(kind: Kind, tmp_path: Path, wall: str) -> None:
    assert [] == complaints(tmp_path, kind, wall)


TWINS = [
    ("disk", "careless", "ack: refused: "),
    ("disk", "pretending", "lost: "),
    ("disk", "raw", "send: not ours: "),
    ("inodes", "raw", "open a new room: not ours: "),
    ("handles", "raw", "open a new room: not ours: "),
    ("handles", "sulking", "send afterwards: refused: "),
    ("read-only", "sulking", "send afterwards: refused: "),
]


@pytest.mark.parametrize(("wall", "bug", "complaint"), TWINS)
def test_the_process_finds_a_store_with_a_planted_bug(
    kind: Kind, tmp_path: Path, wall: str, bug: str, complaint: str
) -> None:
    assert any(each.startswith(complaint) for each in complaints(tmp_path, kind, wall, bug))
