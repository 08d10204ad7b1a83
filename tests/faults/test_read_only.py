"""A disk that fails in the middle of a commit and is read-only from then on, as ext4 is after an error.

The fault comes at the n-th call of a commit, and stays. Whatever is refused from there on is StoreFailing, and a
letter has its key: with it, its sender can try again once the disk is writable.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from msgspec import Struct

from tests.conftest import LONG
from tests.faults.injection import CALLS, ROOT, SYNCS, Call, calls_in, needs_strace
from tests.faults.kinds import SOUND, SQLITE
from tests.faults.ledger import lines, lines_with

pytestmark = [needs_strace, pytest.mark.costly]

CHANGING = ("fsync", "fdatasync", "pwrite64", "write", "rename", "renameat2", "unlink")


class Stage(Struct, frozen=True):
    """A call of a commit, and how many of each kind there were before it."""

    name: str
    before: tuple[tuple[str, int], ...]

    def faults(self) -> list[str]:
        """The call itself fails as a disk does; all others from there on as on a read-only one."""
        counts = dict(self.before)
        words = []
        for kind in CHANGING:
            error = "EIO" if kind == self.name and kind in SYNCS else "EROFS"
            words += ["-e", f"inject={CALLS[kind]}:error={error}:when={counts.get(kind, 0) + 1}+"]
        return words


def run(folder: Path, *faults: str, bug: str = SOUND) -> tuple[Call, ...]:
    folder.mkdir()
    trace = folder / "trace"
    watch = ["strace", "-f", "--seccomp-bpf", "-qq", "-y", "-s", "300", "-o", str(trace)]
    watch += ["-e", f"trace={','.join(['writev', *CALLS.values()])}", *faults]
    worker = [sys.executable, "-m", "tests.faults.read_only_worker", str(folder), SQLITE.name, bug]
    ended = subprocess.run([*watch, *worker], cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert not ended.returncode, ended.stderr
    return calls_in(trace)


def stages(calls: tuple[Call, ...]) -> list[Stage]:
    """The calls of the second send: in the first, more is prepared."""
    counts: Counter[str] = Counter()
    found, inside = [], False
    for call in calls:
        if call.tells():
            inside = '"try","send 1"' in call.text.replace("\\", "")
            continue
        name = next(kind for kind in CHANGING if call.is_one(kind))
        if inside:
            found.append(Stage(name, tuple(counts.items())))
        counts[name] += 1
    return found


def complaints(folder: Path) -> list[str]:
    written = lines(folder)
    assert lines_with(written, "ready")
    refused = lines_with(written, "refused")
    wrong = [f"{what}: {error}" for what, error, _ in refused if error != "StoreFailing"]
    return wrong + [f"{what}: key {key!r}" for what, _, key in refused if what.startswith("send") and key != what]


def test_whatever_a_disk_refuses_that_turns_read_only_is_store_failing_with_the_key(tmp_path: Path) -> None:
    found = stages(run(tmp_path / "clean"))
    syncs = [stage for stage in found if stage.name in SYNCS]
    assert syncs
    for number, stage in enumerate(found if LONG else [found[0], syncs[-1], found[-1]]):
        folder = tmp_path / f"{number}"
        run(folder, *stage.faults())
        assert [] == complaints(folder), stage
        assert lines_with(lines(folder), "refused"), "nothing was refused: where is the fault?"


def test_it_finds_a_store_that_passes_on_what_the_system_says(tmp_path: Path) -> None:
    sync = next(stage for stage in stages(run(tmp_path / "clean", bug="unwarned")) if stage.name in SYNCS)
    run(tmp_path / "failing", *sync.faults(), bug="unwarned")
    assert any("OSError" in each for each in complaints(tmp_path / "failing"))
