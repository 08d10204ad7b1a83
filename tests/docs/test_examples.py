"""Every example on every page is run, every command named there exists."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import takes_long
from tests.docs.pages import HOME, PAGES, Block, blocks, name_of, prose

PATIENCE = 60.0  # seconds; a bound, not a pace
PLAYED = [page for page in PAGES if any(block.language == "python" for block in blocks(page))]
TUTORIAL = HOME / "docs" / "tutorial.md"
RECIPES = HOME / "docs" / "recipes.md"


def recipes(page: Path) -> dict[str, str]:
    """Each section by its title, after the opening lines of its page."""
    opening, *sections = re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {section.splitlines()[0]: f"{opening}## {section}" for section in sections}


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    """The environment of a user with an empty home, in a folder of their own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("POSTROOM_", "COVERAGE"))}
    home = {
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    compiled = {"PYTHONPYCACHEPREFIX": str(tmp_path.parent / "pycache")}  # made once, as in an installed package
    source = os.pathsep.join([str(HOME / "src"), str(HOME)])  # this source, whatever else is installed
    return kept | home | compiled | {"PYTHONPATH": source}


def play(page: Path, folder: Path, environment: dict[str, str]) -> None:
    command = [sys.executable, "-W", "error", "-m", "tests.docs.play", str(page)]
    played = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (0, "") == (played.returncode, played.stderr), played.stderr + played.stdout


@pytest.mark.parametrize("page", [page for page in PLAYED if page != RECIPES], ids=name_of)
def test_the_examples_of_a_page_run_as_they_stand(page: Path, elsewhere: dict[str, str], tmp_path: Path) -> None:
    play(page, tmp_path, elsewhere)


@takes_long
def test_the_examples_are_right_again_in_a_room_that_has_seen_them(
    elsewhere: dict[str, str], tmp_path: Path
) -> None:
    again = [page for page in PLAYED if page != TUTORIAL]  # it begins in an empty folder
    for page in (*again, *again):
        play(page, tmp_path, elsewhere)


@pytest.mark.parametrize("title", recipes(RECIPES))
def test_each_recipe_stands_alone(title: str, elsewhere: dict[str, str], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(recipes(RECIPES)[title], encoding="utf-8")
    play(page, tmp_path, elsewhere)


def test_an_example_that_is_wrong_is_found(elsewhere: dict[str, str], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for wrong in ("1 / 0", "print(1 + 1)  # 3", "print(2)  # 2\nprint(3)  # 2"):
        page.write_text(f"# A page\n\n```python\n{wrong}\n```\n", encoding="utf-8")
        command = [sys.executable, "-m", "tests.docs.play", str(page)]
        played = subprocess.run(command, env=elsewhere, cwd=tmp_path, capture_output=True, check=False)
        assert played.returncode != 0, wrong


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_of_data_or_shell_can_be_read(page: Path) -> None:
    for block in blocks(page):
        if block.language == "json":
            json.loads(block.code)
        elif block.language == "toml":
            tomllib.loads(block.code)
        elif block.language == "sh":
            subprocess.run(["bash", "-n"], input=block.code, text=True, check=True, timeout=PATIENCE)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_make_command_on_a_page_is_in_the_makefile(page: Path) -> None:
    makefile = (HOME / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][\w-]*):", makefile, re.MULTILINE))
    shell = "".join(block.code for block in blocks(page) if block.language in {"sh", "console"})
    named = re.findall(r"^(?:\$ )?make ([a-z-]+)", shell, re.MULTILINE) + re.findall(
        r"`make ([a-z-]+)`", prose(page)
    )
    assert set(named) - targets == set()


# -- the tutorial's programs, played as the page tells it


def programs() -> dict[str, Block]:
    return {block.program: block for block in blocks(TUTORIAL) if block.program}


def save(folder: Path, step: float = 1) -> None:
    """As a reader saves them, but faster. The lease stays long against a step: a slow moment must not end one."""
    for name, block in programs().items():
        (folder / name).write_text(block.code.replace("STEP = 1 ", f"STEP = {step} "), encoding="utf-8")


@contextmanager
def started(name: str, folder: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-u", name], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        bound = threading.Timer(PATIENCE, process.kill)  # then it prints nothing more, and the test says so
        bound.start()
        try:
            yield process
        finally:
            bound.cancel()
            process.kill()


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip()


def finished(process: subprocess.Popen[str]) -> list[str]:
    printed, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    return printed.splitlines()


def printed_by(program: str) -> list[str]:
    """What the page says a program prints, by the comment above the block: <!-- prints: NAME -->."""
    return [
        line
        for block in blocks(TUTORIAL)
        if block.before == f"<!-- prints: {program} -->"
        for line in block.code.splitlines()
    ]


def test_every_program_of_the_tutorial_is_played() -> None:
    assert {"researcher.py", "coder.py", "worker.py", "boss.py"} == set(programs())


def test_two_agents_talk_as_the_tutorial_tells(elsewhere: dict[str, str], tmp_path: Path) -> None:
    save(tmp_path)
    with started("researcher.py", tmp_path, elsewhere) as researcher:
        first = next_line(researcher)
        with started("coder.py", tmp_path, elsewhere) as coder:
            assert printed_by("coder.py") == finished(coder)
        researcher.send_signal(signal.SIGINT)
        assert printed_by("researcher.py") == [first, *finished(researcher)]


def test_the_worker_of_the_tutorial_survives_its_own_death(elsewhere: dict[str, str], tmp_path: Path) -> None:
    save(tmp_path, step=0.5)  # time enough to be killed in
    with started("boss.py", tmp_path, elsewhere) as boss, started("worker.py", tmp_path, elsewhere) as victim:
        assert next_line(boss).startswith("sent ")
        assert next_line(victim) == f"process {victim.pid} waits for work"
        assert next_line(victim) == "try 1: Index the archive"
        assert next_line(victim) == "  step 1"
        victim.send_signal(signal.SIGKILL)
        save(tmp_path, step=0.01)
        with started("worker.py", tmp_path, elsewhere) as successor:
            assert next_line(successor) == f"process {successor.pid} waits for work"
            assert next_line(successor) == "try 2: Index the archive"
            assert ["worker: Index the archive: done"] == finished(boss)
    with started("boss.py", tmp_path, elsewhere) as again:
        assert next_line(again).startswith("was sent before ")
