"""`postroom dashboard`: a link from the daemon that runs, in a browser where there is one."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom.core.key_file import make_key
from postroom.server import client
from postroom.server.client import is_same_user
from tests.cli.shell import Shell
from tests.cli.terminal import Terminal
from tests.daemons import PATIENCE, until
from tests.rooms import texts
from tests.server.http.running import Daemon, daemon
from tests.server.http.visiting import enter, lending, tab, token_of

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
    assert "0 pages were ended.\n" == typed(served, "--lock").stdout
    token_of(served)
    assert "1 page was ended.\n" == typed(served, "--lock").stdout


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


# -- what the post room asks of the key


def acts_in_terminal(folder: Path, *words: str, types: tuple[str, ...]) -> tuple[list[str], str]:
    """Send from the page as a person whose key has a passphrase: the letters that arrived, and the terminal."""
    with daemon(folder) as served:
        key = folder / "protected.key"
        make_key(str(key), "secret")
        shell = Shell(served.folder)
        shell.environment = served.environment
        line = ("dashboard", "--print", "--room", str(served.room), *words)
        terminal = Terminal(shell, *line, columns=200, POSTROOM_HUMAN_KEY=str(key))
        terminal.read_until("Passphrase")
        terminal.type("secret\n")
        terminal.read_until("until you press Ctrl-C")
        code = terminal.shown.decode().partition("#code=")[2].split()[0]
        with tab(served, enter(served, code).json["token"]) as page, ThreadPoolExecutor() as beside:
            for number, answer in enumerate(types or ("",)):
                params = {"to": "coder", "body": f"letter {number}"}
                asked = beside.submit(page.ask, "visit/act", verb="send", params=params)
                terminal.read_until(f"letter {number}")
                if answer:
                    terminal.read_until("Do it? [y/N]" if number == 0 else f"letter {number}")
                    terminal.type(answer)
                asked.result(PATIENCE)
        terminal.interrupt()
        with postroom.open(served.room) as room:
            return texts(room.mailbox("coder").check()), terminal.finish()[1]


def test_a_key_with_a_passphrase_is_asked_for_each_act_in_the_terminal(tmp_path: Path) -> None:
    arrived, shown = acts_in_terminal(tmp_path, types=("n\n", "\n", "y\n"))
    assert ["letter 2"] == arrived
    assert shown.count("Do it? [y/N]") == 3 and "it was not confirmed" in shown


def test_with_yes_each_act_is_shown_and_done(tmp_path: Path) -> None:
    arrived, shown = acts_in_terminal(tmp_path, "--yes", types=())
    assert (["letter 0"], False) == (arrived, "Do it?" in shown)
    assert "send: to coder, body letter 0" in shown


def test_the_other_end_of_a_socket_is_of_the_same_user_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert is_same_user(ours)
        monkeypatch.setattr(client, "_CREDENTIALS", OtherUser("iII"))
        assert not is_same_user(ours)


class OtherUser(struct.Struct):
    """The credentials of a socket's other end, as of a user who is neither this one nor root."""

    def unpack(self, raw: Any, /) -> tuple[Any, ...]:
        pid, user, group = super().unpack(raw)
        return pid, user + 54321, group


@pytest.mark.parametrize(("has_key", "rights"), [
    (True, "It may act for you until you press Ctrl-C here."),
    (False, "No key here: you can write, but not approve. Run `postroom people add` once in a terminal."),
])  # fmt: skip
def test_it_says_at_once_what_the_page_may_do(served: Daemon, has_key: bool, rights: str) -> None:
    with lending(served, has_key=has_key) as (process, _):
        assert process.stdout is not None and "\n" == process.stdout.readline()
        assert process.stdout.readline().endswith(f" seconds. {rights}\n")


@pytest.mark.parametrize(
    "words", [("--look",), ("--look", "--as", "human"), ("--look", "--as", "coder"), ("--lock",), ("--print",)]
)
@pytest.mark.parametrize("mark", ["POSTROOM_AGENT", "CLAUDECODE", "GEMINI_CLI"])
def test_inside_an_agents_session_it_is_refused_in_every_form(
    served: Daemon, words: tuple[str, ...], mark: str
) -> None:
    done = typed(served, *words, **{mark: "coder"})
    assert (77, "") == (done.returncode, done.stdout), done
    assert mark in done.stderr


def test_a_person_who_is_named_by_the_environment_is_no_agent(served: Daemon) -> None:
    assert 0 == typed(served, "--look", POSTROOM_AGENT="ceo").returncode
