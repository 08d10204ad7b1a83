"""A process that carries mail to a mounted folder, or from it, is killed at each step. Would a bug be noticed?"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.model.delivery import State
from postroom.model.query import Query
from postroom.store.files.layouts.base import layout_named
from tests.daemons import PATIENCE, until
from tests.federation.killed import STEPS
from tests.federation.mounted import Mounted
from tests.federation.systems import System, systems


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Mounted]:
    with systems(System(tmp_path, "home", "ann")) as (home,):
        yield Mounted(home, tmp_path / "mail", layout_named("nanobot"))


def send(mounted: Mounted, way: str) -> None:
    if way == "there":
        mounted.home.room.mailbox("ann").send("researcher@folder", "x")
        return
    mounted.home.serve()  # until the programs there know of us
    until(lambda: mounted.host() is not None)
    mounted.home.stop()
    with mounted.room() as room:
        room.mailbox("researcher").send("ann@home", "x")


def serve_until_killed(mounted: Mounted, step: str, bug: str) -> None:
    home = mounted.home
    words = ["serve", "--room", str(home.folder / "room.db"), "--socket", str(home.folder / "s"), "--http", "off"]
    more = ["--set", "durability=process", "--set", f"system={home.name}"]
    command = [sys.executable, "-m", "tests.federation.killed", step, bug, *words, *more]
    done = subprocess.run(command, timeout=PATIENCE, capture_output=True, check=False)
    assert -signal.SIGKILL == done.returncode, done.stderr


def come(mounted: Mounted, way: str) -> list[str]:
    return mounted.texts() if way == "there" else mounted.home.texts("ann")


def waits(mounted: Mounted, way: str) -> int:
    """Deliveries that are not written down as handed over."""
    at = Query(mailbox="researcher@folder" if way == "there" else "ann@home", states=(State.QUEUED,))
    if way == "there":
        return len(mounted.home.room.core.store.find(at))
    with mounted.room() as room:
        return len(room.core.store.find(at))


@pytest.mark.parametrize("way", ["there", "here"])
@pytest.mark.parametrize("step", STEPS)
def test_a_letter_comes_once_wherever_its_carrier_is_killed(mounted: Mounted, step: str, way: str) -> None:
    send(mounted, way)
    serve_until_killed(mounted, step, "")
    assert (["x"] if step != "before" else []) == come(mounted, way)
    mounted.home.serve()
    until(lambda: come(mounted, way))
    until(lambda: not waits(mounted, way))
    assert ["x"] == come(mounted, way)


@pytest.mark.parametrize("way", ["there", "here"])
def test_a_carrier_that_writes_it_down_here_first_would_lose_it(mounted: Mounted, way: str) -> None:
    send(mounted, way)
    serve_until_killed(mounted, "before", "bug")
    assert ([], 0) == (come(mounted, way), waits(mounted, way))
