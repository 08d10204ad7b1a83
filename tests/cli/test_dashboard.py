"""`postroom dashboard`: a link from the daemon that runs, in a browser where there is one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemons import PATIENCE, until
from tests.server.http.running import Daemon, daemon
from tests.server.http.visiting import enter, lending, token_of

pytestmark = pytest.mark.daemon


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with daemon(tmp_path_factory.mktemp("room")) as one, lending(one):  # from now on the room knows the person
        yield one


def typed(served: Daemon, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "postroom", "dashboard", "--room", str(served.room), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=served.environment | environment,
        cwd=served.folder,
        timeout=PATIENCE,
        check=False,
    )


def test_without_a_daemon_it_says_which_command_starts_one(tmp_path: Path) -> None:
    with daemon(tmp_path) as gone:
        gone.stop()
    done = typed(gone)
    assert (75, "") == (done.returncode, done.stdout)
    assert "no post room is served here" in done.stderr and "postroom serve" in done.stderr


def test_a_link_for_a_page_that_only_looks(served: Daemon) -> None:
    done = typed(served, "--look", "--json")
    shown = json.loads(done.stdout)
    assert (0, False, 60) == (done.returncode, shown["acts"], shown["seconds"]), done
    visit = enter(served, shown["link"].partition("#code=")[2]).json["visit"]
    assert ("human", False) == (visit["person"], visit["acts"])


def test_lock_says_how_many_pages_it_ended(served: Daemon) -> None:
    for _ in range(2):
        token_of(served)
    assert json.loads(typed(served, "--lock", "--json").stdout)["ended"] >= 2
    assert "0 open pages" in typed(served, "--lock").stdout


@pytest.mark.parametrize(
    ("words", "around", "opens"),
    [
        ((), {"DISPLAY": ":0"}, True),
        (("--print",), {"DISPLAY": ":0"}, False),
        ((), {"DISPLAY": ":0", "SSH_CONNECTION": "1 2 3 4"}, False),
        ((), {"DISPLAY": "", "WAYLAND_DISPLAY": ""}, False),
    ],
)
def test_a_browser_is_opened_where_a_person_can_see_it(
    served: Daemon, tmp_path: Path, words: tuple[str, ...], around: dict[str, str], opens: bool
) -> None:
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n', encoding="utf-8")
    browser.chmod(0o700)
    done = typed(served, "--look", *words, **{"SSH_CONNECTION": ""} | around, BROWSER=str(browser))
    link = done.stdout.splitlines()[0]
    assert "/dashboard/#code=" in link and done.returncode == 0, done
    if opens:
        assert link == until(lambda: opened.exists() and opened.read_text(encoding="utf-8").strip())
    else:
        assert not opened.exists()
