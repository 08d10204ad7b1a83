"""A disk that fails in the middle of a call, for a moment or for good: the answer is true, and the same call again
is done once. In folders; a disk that fails is told as such, whichever of its errors it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from postroom.store.files.journal import Journal
from tests.conftest import LONG
from tests.faults.kinds import SOUND, named
from tests.faults.planting import BOOT
from tests.faults.test_crash_states import MOST, audit

ROOT = Path(__file__).parent.parent.parent
VERBS = ("send", "send to two", "ack", "ack and reply", "bury", "claim", "check", "wait", "register")
STRIDE = 1 if LONG else 5

pytestmark = [
    pytest.mark.costly,
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler"),
    pytest.mark.skipif(sys.platform != "linux", reason="calls are caught as Linux makes them"),
]


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Something to stand before the C library."""
    made = tmp_path_factory.mktemp("disk") / "failing_disk.so"
    source = Path(__file__).with_name("failing_disk.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", made, source, "-ldl"], check=True, timeout=60)
    return made


def complaints(disk: Path, kind: str, *verbs: str, bug: str = SOUND, stride: int = STRIDE) -> list[str]:
    command = [sys.executable, "-m", "tests.faults.failing_disk", kind, bug, str(stride), *verbs]
    quiet = {**os.environ, "LD_PRELOAD": str(disk)}
    ended = subprocess.run(
        command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False, timeout=3600 if LONG else 120
    )
    assert ended.returncode == 0, ended.stderr
    *found, tried = ended.stdout.splitlines()
    assert found or int(tried) > len(verbs)
    return found


@pytest.mark.parametrize("kind", ["nanobot", "chipset", "swarm"])
def test_a_failing_disk_is_reported_as_such_and_everything_is_done_once(disk: Path, kind: str) -> None:
    verbs = VERBS if LONG else ("ack", "send to two", "check")[: 3 if kind == "nanobot" else 1]
    assert [] == complaints(disk, kind, *verbs)


TWINS = [
    ("ack", "forgetful", "not again: LeaseLost"),
    ("send to two", "raw", "not as failing: "),
    ("send", "unkeyed", "without a key: "),
]


@pytest.mark.parametrize(("verb", "bug", "complaint"), TWINS)
def test_a_store_with_a_planted_bug_is_noticed(disk: Path, verb: str, bug: str, complaint: str) -> None:
    assert any(complaint in each for each in complaints(disk, "nanobot", verb, bug=bug, stride=3))


def test_a_store_that_looks_at_its_journal_only_after_a_boot_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Journal, "is_settled", lambda _journal, _lines: True)
    _, wrong = audit(named("nanobot"), tmp_path, boot=BOOT, most=MOST // 2)

    assert any(": half " in complaint for complaint in wrong)
