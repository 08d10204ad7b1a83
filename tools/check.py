"""What `make test` runs: style, types, rooms, every test, the faults. Prints where the time went.

Two lanes of steps run at once: tests that want a processor, and tests that wait for programs and disks.
With `--coverage` (`make coverage`) the tests count which lines they reach, and too few of them is a failure.
With `--quick` (`make test-quick`) only what a change breaks most often runs, without servers and disks.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

COVERED = "--coverage" in sys.argv
QUICK = "--quick" in sys.argv
WHOLE = 90  # per cent of branches, over everything
HEART = 95  # in the rooms where a mistake loses mail
HEART_ROOMS = "src/postroom/store/*,src/postroom/policy/*,src/postroom/core/*"

BIN = Path(sys.executable).parent
PYTHON = (sys.executable,)
PYTEST = (*PYTHON, "-m", "pytest", "-q", "--durations=8")
COUNTED = (*PYTHON, "-m", "coverage", "run", *PYTEST[1:]) if COVERED else PYTEST
SPREAD = ("--dist=worksteal",)
KILLS = ("bad_networks", "credulous", "hub_kills", "kills", "mount_faults")
KILLED = tuple(f"tests/federation/test_{name}.py" for name in KILLS)
TYPESCRIPT = "typescript@5.9.3"
SDK = "@multi-agent-protocol/sdk@0.1.15"

# One after the other, before all tests: they take seconds.
RULES = {
    "style": (str(BIN / "ruff"), "check", "--quiet", "."),
    "format": (str(BIN / "ruff"), "format", "--check", "--quiet", "."),
    "rooms": (str(BIN / "lint-imports"), "--no-cache"),
    "pages": (*PYTHON, "tools/pages.py", "--check"),
}

# Begun first and waited for where a lane names them: they work on one processor, or wait for another machine.
BESIDE = {
    "packages from npm": (*PYTHON, "tools/npm.py", SDK, "ws@8"),
    "agent-inbox from npm": (*PYTHON, "tools/npm.py", "agent-inbox@0.2.3", SDK),
    "typescript from npm": (*PYTHON, "tools/npm.py", TYPESCRIPT),
    "node 22 from npm": (*PYTHON, "tools/npm.py", "--scripts", "node@22"),
    "nanobot": (*PYTHON, "tools/nanobot.py"),  # one test with each version; in `make interop` all
}

# Workers: three where tests wait for programs more than for a processor; two where they look at order and time.
LANES = (
    {
        "types": (str(BIN / "mypy"),),
        "core tests": (
            *(*COUNTED, "-n", "3", *SPREAD, "--ignore=tests/faults", "--ignore=tests/test_faults_ran.py"),
            *(
                "--ignore=tests/nanobot/channel",
                "-m",
                "not files and not daemon and not federation and not nanobot and not browser and not postgres",
            ),
        ),
        "typescript from npm": (),
        # Two browsers; the tests of a file share one post room.
        "tests of the dashboard in a browser": (
            *PYTEST,
            "-n",
            "2",
            "--dist=loadfile",
            "-m",
            "browser",
            "tests/dashboard",
        ),
        "tests of files": (*COUNTED, "-n", "2", *SPREAD, "--ignore=tests/faults", "-m", "files"),
        "tests of the nanobot channel": (
            *(*COUNTED, "-n", "2", *SPREAD, "-m", "not files and not daemon and not nanobot"),
            "tests/nanobot/channel",
        ),
        "nanobot": (),
        # Without coverage: what runs is installed in another environment.
        "tests with nanobot": (*PYTEST, "-n", "2", "--dist=loadgroup", "-m", "nanobot", "tests/nanobot/channel"),
    },
    {
        # Without coverage, as the fault tests: a process that is killed reports nothing.
        "tests of the fault suite": (*PYTEST, "-n", "2", "tests/test_faults_ran.py"),
        "fault tests": (*PYTEST, "-n", "2", "tests/faults"),
        # Each worker starts a server.
        "tests of rooms on PostgreSQL": (
            *COUNTED,
            "-n",
            "2",
            *SPREAD,
            "-m",
            "postgres",
            "tests/postgres",
            "tests/contract",
        ),
        "packages from npm": (),
        "agent-inbox from npm": (),
        "node 22 from npm": (),
        "tests of the daemon": (*COUNTED, "-n", "3", *SPREAD, "--ignore=tests/faults", "-m", "daemon"),
        "tests of several systems": (
            *(*COUNTED, "-n", "3", *SPREAD, "-m", "federation", "tests/federation"),
            *(f"--ignore={path}" for path in KILLED),
        ),
        "kills and bad networks between systems": (*PYTEST, "-n", "3", *SPREAD, *KILLED),
    },
)

# What a change breaks most often: rules, values, codecs, verbs over one store, public names.
QUICK_FOLDERS = ("model", "policy", "formats", "core", "api", "pinned", "docs", "test_house.py")
QUICK_LANES: tuple[dict[str, tuple[str, ...]], ...] = (
    {"types": (str(BIN / "mypy"),)},
    {
        "quick tests": (
            *(*PYTEST, "-n", "2", *SPREAD, "-m", "not files and not daemon and not postgres and not disk"),
            *(f"tests/{name}" for name in QUICK_FOLDERS),
        )
    },
)

COVERAGE = {
    "coverage data": (*PYTHON, "-m", "coverage", "combine", "--quiet"),
    "coverage": (*PYTHON, "-m", "coverage", "report", f"--fail-under={WHOLE}"),
    "coverage of store, policy, core": (
        *(*PYTHON, "-m", "coverage", "report"),
        *(f"--include={HEART_ROOMS}", f"--fail-under={HEART}"),
    ),
}

# These try what mail does, not what a disk does: their rooms are kept in memory where there is enough of it.
IN_MEMORY = (
    "quick tests",
    "core tests",
    "tests of files",
    "tests of the daemon",
    "tests of several systems",
    "tests of the nanobot channel",
)
MEMORY = Path("/dev/shm")  # noqa: S108 - each run has a folder of its own in it
ENOUGH = 4 * 2**30  # bytes

# A test that fails and then passes alone met a busy machine, or a race: that is reported, and stops nothing.
# Not where letters are counted while programs are killed: one that was lost once is lost.
NO_SECOND_LOOK = ("kills and bad networks between systems", "tests of the fault suite", "fault tests")
FEW = 3  # more that fail are no accident
FAILED_TESTS = 1  # the exit code of pytest
LONGEST = 1200  # seconds of one step
TOO_LONG = 124  # the exit code of one that took longer


class Run:
    """One run of all steps: what is under way, what was spent, and which tests were unsteady."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self.unsteady: list[str] = []
        self.failed = ""
        self._under_way: set[subprocess.Popen[bytes]] = set()
        self._output = threading.Lock()
        beside = {} if QUICK else BESIDE
        self._beside = {name: self._begin(command, dict(os.environ), None) for name, command in beside.items()}

    def steps(self, steps: dict[str, tuple[str, ...]]) -> None:
        """Run steps one after the other, until one of them fails here or in another lane."""
        for name, command in steps.items():
            if self.failed:
                return
            began = time.monotonic()
            code = self._step(name, command)
            self.spent[name] = time.monotonic() - began
            if code and not self.failed:
                self.failed = name
                for process in tuple(self._under_way):
                    process.kill()

    def lanes(self, *lanes: dict[str, tuple[str, ...]]) -> None:
        with ThreadPoolExecutor(len(lanes)) as pool:
            for lane in [pool.submit(self.steps, lane) for lane in lanes]:
                lane.result()

    def report(self) -> None:
        print("\nwhere the time went:")
        for name, seconds in self.spent.items():
            print(f"  {seconds:6.1f} s  {name}")
        for test in self.unsteady:
            print(f"  passed only when it was alone, find out why: {test}")
        sys.stdout.flush()

    def _step(self, name: str, command: tuple[str, ...]) -> int:
        """Run one step, or wait for one that was begun before; return its exit code."""
        if not command:
            return self._end(self._beside[name])
        cache = Path(".pytest_cache") / name.replace(" ", "-")
        last_failed = cache / "v/cache/lastfailed"
        last_failed.unlink(missing_ok=True)
        with place_for(name) as (environment, more):
            options = (*more, "-o", f"cache_dir={cache}") if "pytest" in command else ()
            code = self._print(name, (*command, *options), environment)
            if code != FAILED_TESTS or "pytest" not in command or name in NO_SECOND_LOOK:
                return code
            failed: list[str] = list(json.loads(last_failed.read_bytes()))
            if len(failed) > FEW:
                return code
            alone = (*command, *options, "-n0", "--last-failed", "--last-failed-no-failures=none")
            code = self._print(f"{name}: a second look", alone, environment)
            if not code:
                self.unsteady += failed
            return code

    def _print(self, name: str, command: tuple[str, ...], environment: dict[str, str]) -> int:
        """Run a command to its end, then print its output in one piece: two lanes print."""
        with TemporaryDirectory() as folder:
            path = Path(folder) / "output"
            with path.open("wb") as output:
                code = self._end(self._begin(command, environment, output.fileno()))
            with self._output:
                print(f"== {name}", flush=True)
                sys.stdout.buffer.write(path.read_bytes())
                sys.stdout.flush()
        return code

    def _begin(
        self, command: tuple[str, ...], environment: dict[str, str], output: int | None
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        self._under_way.add(process)
        return process

    def _end(self, process: subprocess.Popen[bytes]) -> int:
        try:
            return process.wait(timeout=LONGEST)
        except subprocess.TimeoutExpired:
            process.kill()
            print(f"took more than {LONGEST} seconds: {process.args!r}", flush=True)
            return TOO_LONG
        finally:
            self._under_way.discard(process)


@contextmanager
def place_for(name: str) -> Iterator[tuple[dict[str, str], tuple[str, ...]]]:
    """Yield the environment and more options of a step's pytest, which say where its tests keep their rooms.

    The path is short, because sockets lie below it.
    """
    if name not in IN_MEMORY or not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < ENOUGH:
        yield dict(os.environ), ()
        return
    with (
        TemporaryDirectory(prefix="pr-", dir=MEMORY, ignore_cleanup_errors=True) as folder,
        TemporaryDirectory(prefix="pr-", ignore_cleanup_errors=True) as disk,
    ):
        yield os.environ | {"TMPDIR": folder, "POSTROOM_TEST_DISK": disk}, (f"--basetemp={folder}/t",)


def main() -> None:
    os.environ.setdefault("COVERAGE_CORE", "ctrace")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what is started a thousand times is compiled once
    os.environ["POSTROOM_FAULTS_MUST_RUN"] = "1"  # a file of fault tests that is skipped as a whole proves nothing
    os.environ["POSTROOM_TMUX_MUST_RUN"] = "1"  # nor do tests of the inbox without tmux, where it can be had
    os.environ["POSTROOM_BROWSER_MUST_RUN"] = "1"  # nor do those of the dashboard without a browser
    for old in Path().glob(".coverage*"):
        old.unlink()
    began = time.monotonic()
    run = Run()
    run.steps(RULES)
    run.lanes(*(QUICK_LANES if QUICK else LANES))
    if COVERED:
        run.steps(COVERAGE)
    run.report()
    print(f"  {time.monotonic() - began:6.1f} s  in all", flush=True)
    if run.failed:
        raise SystemExit(f"{run.failed} failed")


if __name__ == "__main__":
    main()
