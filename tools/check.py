"""What `make test` runs: style, types, rooms, every test with coverage, the faults. Prints where time went."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

BIN = Path(sys.executable).parent
WHOLE = 90  # per cent of branches, over everything
HEART = 95  # in the rooms where a mistake loses mail
HEART_ROOMS = "src/postroom/store/*,src/postroom/policy/*,src/postroom/core/*"
KILLED = (
    "test_bad_networks.py",
    "test_credulous.py",
    "test_hub_kills.py",
    "test_kills.py",
    "test_mount_faults.py",
)

# These try what mail does, not what a disk does: their rooms are kept in memory where there is enough of it.
IN_MEMORY = (
    "tests of files",
    "tests of the daemon",
    "tests of several systems",
    "tests of the nanobot channel",
)
MEMORY = Path("/dev/shm")  # noqa: S108 - each run has a folder of its own in it
ENOUGH = 4 * 2**30  # bytes

# Workers where tests wait for programs more than for a processor; two where they look at order and time.
MANY = "3"

# A test that fails and then passes alone met a busy machine, or a race: that is told, and does not stop the rest.
# Not where letters are counted while programs are killed: one that was lost once is lost.
NO_SECOND_LOOK = ("kills and bad networks between systems", "tests of the fault suite", "fault tests")
FEW = 3  # more that fail are no accident
FAILED_TESTS = 1  # the exit code of pytest
LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")

SDK = "@multi-agent-protocol/sdk@0.1.15"

# What runs beside other steps from the beginning: it works on one processor, or waits for another machine.
BESIDE = ("types", "packages from npm", "agent-inbox from npm", "node 22 from npm", "nanobot")

STEPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("style", (str(BIN / "ruff"), "check", "--quiet", ".")),
    ("format", (str(BIN / "ruff"), "format", "--check", "--quiet", ".")),
    ("rooms", (str(BIN / "lint-imports"), "--no-cache")),
    ("pages", (sys.executable, "tools/pages.py", "--check")),
    (
        "core tests",
        (
            *(sys.executable, "-m", "coverage", "run", "-m", "pytest", "-q", "-n", MANY, "--dist=worksteal"),
            *("--durations=8", "--ignore=tests/faults", "--ignore=tests/test_faults_ran.py"),
            "--ignore=tests/nanobot/channel",
            *("-m", "not files and not daemon and not federation and not nanobot"),
        ),
    ),
    ("types", (str(BIN / "mypy"),)),
    (
        "tests of files",
        (
            *(sys.executable, "-m", "coverage", "run", "-m", "pytest", "-q", "-n", "2", "--dist=worksteal"),
            *("--durations=8", "--ignore=tests/faults", "-m", "files"),
        ),
    ),
    ("packages from npm", (sys.executable, "tools/npm.py", SDK, "ws@8")),
    ("agent-inbox from npm", (sys.executable, "tools/npm.py", "agent-inbox@0.2.3", SDK)),
    ("node 22 from npm", (sys.executable, "tools/npm.py", "--scripts", "node@22")),
    (
        "tests of the daemon",
        (
            *(sys.executable, "-m", "coverage", "run", "-m", "pytest", "-q", "-n", MANY, "--dist=worksteal"),
            *("--durations=8", "--ignore=tests/faults", "-m", "daemon"),
        ),
    ),
    (
        "tests of several systems",
        (
            *(sys.executable, "-m", "coverage", "run", "-m", "pytest", "-q", "-n", MANY, "--dist=worksteal"),
            *("--durations=8", "-m", "federation", "tests/federation"),
            *(f"--ignore=tests/federation/{name}" for name in KILLED),
        ),
    ),
    # Without coverage, as the fault tests: who is killed reports nothing.
    (
        "kills and bad networks between systems",
        (
            *(sys.executable, "-m", "pytest", "-q", "-n", MANY, "--dist=worksteal", "--durations=8"),
            *(f"tests/federation/{name}" for name in KILLED),
        ),
    ),
    (
        "tests of the nanobot channel",
        (
            *(sys.executable, "-m", "coverage", "run", "-m", "pytest", "-q", "-n", "2", "--dist=worksteal"),
            *("--durations=8", "-m", "not files and not daemon and not nanobot", "tests/nanobot/channel"),
        ),
    ),
    # Without coverage: what runs is installed in another environment.
    (
        "nanobot",
        (sys.executable, "tools/nanobot.py"),
    ),  # one test with each version; in `make interop` all
    (
        "tests with nanobot",
        (
            *(sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist=loadgroup", "--durations=8"),
            *("-m", "nanobot", "tests/nanobot/channel"),
        ),
    ),
    ("coverage data", (sys.executable, "-m", "coverage", "combine", "--quiet")),
    ("coverage", (sys.executable, "-m", "coverage", "report", f"--fail-under={WHOLE}")),
    (
        "coverage of store, policy, core",
        (sys.executable, "-m", "coverage", "report", f"--include={HEART_ROOMS}", f"--fail-under={HEART}"),
    ),
    ("tests of the fault suite", (sys.executable, "-m", "pytest", "-q", "-n", "2", "tests/test_faults_ran.py")),
    # Without coverage: killed processes could not report theirs, and what is measured is not what users run.
    ("fault tests", (sys.executable, "-m", "pytest", "-q", "-n", "2", "--durations=8", "tests/faults")),
)


def main() -> None:
    os.environ.setdefault("COVERAGE_CORE", "ctrace")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what is started a thousand times is compiled once
    os.environ["POSTROOM_FAULTS_MUST_RUN"] = "1"  # a file of fault tests that is skipped as a whole proves nothing
    os.environ["POSTROOM_TMUX_MUST_RUN"] = "1"  # nor do tests of the inbox without tmux, where it can be had
    for old in Path().glob(".coverage*"):
        old.unlink()
    spent: list[tuple[str, float]] = []
    unsteady: list[str] = []
    under_way = {name: subprocess.Popen(command) for name, command in STEPS if name in BESIDE}
    for name, command in STEPS:
        print(f"== {name}", flush=True)
        began = time.monotonic()
        code = carried_out(name, command, under_way.pop(name, None), unsteady)
        spent.append((name, time.monotonic() - began))
        if code:
            for other in under_way.values():
                other.kill()
            report(spent, unsteady)
            raise SystemExit(f"{name} failed")
    report(spent, unsteady)


def carried_out(
    name: str, command: tuple[str, ...], process: subprocess.Popen[bytes] | None, unsteady: list[str]
) -> int:
    """One step, which may be under way: its exit code. Tests that only a second look lets pass are noted."""
    LAST_FAILED.unlink(missing_ok=True)
    with place_for(name) as (environment, more):
        code = ended(process or subprocess.Popen((*command, *more), env=environment))
        if code != FAILED_TESTS or "pytest" not in command or name in NO_SECOND_LOOK:
            return code
        failed: list[str] = list(json.loads(LAST_FAILED.read_bytes()))
        if len(failed) > FEW:
            return code
        print(f"== {name}: a second look", flush=True)
        alone = (*command, *more, "-n0", "--last-failed", "--last-failed-no-failures=none")
        code = ended(subprocess.Popen(alone, env=environment))
        if not code:
            unsteady += failed
        return code


@contextmanager
def place_for(name: str) -> Iterator[tuple[dict[str, str], tuple[str, ...]]]:
    """Where the tests of a step keep their rooms: its environment, and what else pytest is told. The path is
    short, for sockets lie below it.
    """
    if name not in IN_MEMORY or not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < ENOUGH:
        yield dict(os.environ), ()
        return
    with (
        TemporaryDirectory(prefix="pr-", dir=MEMORY, ignore_cleanup_errors=True) as folder,
        TemporaryDirectory(prefix="pr-", ignore_cleanup_errors=True) as disk,
    ):
        yield os.environ | {"TMPDIR": folder, "POSTROOM_TEST_DISK": disk}, (f"--basetemp={folder}/t",)


def ended(process: subprocess.Popen[bytes]) -> int:
    """Its exit code, in twenty minutes at most."""
    try:
        return process.wait(timeout=1200)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


def report(spent: list[tuple[str, float]], unsteady: list[str]) -> None:
    print("\nwhere the time went:")
    for name, seconds in spent:
        print(f"  {seconds:6.1f} s  {name}")
    print(f"  {sum(seconds for _, seconds in spent):6.1f} s  in all", flush=True)
    for test in unsteady:
        print(f"  passed only when it was alone, find out why: {test}", flush=True)


if __name__ == "__main__":
    main()
