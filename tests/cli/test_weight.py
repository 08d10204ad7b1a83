"""The quick path loads no library: an empty check, and hooks without news. Start-up is most of what they cost."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from postroom.hosts.dialects import DIALECTS
from postroom.store.files.layouts.paths import NAMES
from tests.cli.shell import Shell
from tests.daemons import Daemon

HOME = Path(__file__).parent.parent.parent
TOOL = runpy.run_path(str(HOME / "tools" / "imports.py"))


def loaded(shell: Shell, *words: str, stdin: Path = Path("/dev/null")) -> set[str]:
    bare = {name: value for name, value in shell.environment.items() if not name.startswith("COVERAGE")}
    found: set[str] = TOOL["loaded_by"](list(words), bare, shell.home, stdin)
    return found


@pytest.fixture
def room(shell: Shell) -> Shell:
    shell.json("send", "bob", "--as", "ann", "--body", "x")
    return shell


HEAVY = {
    "msgspec", "json", "re", "argparse", "pathlib", "dataclasses", "typing", "logging", "datetime", "enum", "inspect",
    "asyncio", "ctypes", "subprocess", "tomllib", "postroom.room", "postroom.model", "postroom.core",
}  # fmt: skip
# `inspect` comes with msgspec, by way of typing_extensions.


@pytest.mark.parametrize(
    "words", [["check"], ["check", "--json"], ["digest"], ["counts", "--json"], ["check", "--peek"]]
)
def test_an_empty_inbox_is_reported_without_the_library(room: Shell, words: list[str]) -> None:
    found = loaded(room, *words, "--as", "ann")
    assert found & HEAVY == set()
    assert "apsw" in found


@pytest.mark.parametrize(
    "words", [["check"], ["check", "--json"], ["digest"], ["counts", "--json"], ["hook", "prompt"]]
)
def test_where_no_room_was_made_yet_that_is_reported_without_the_library(shell: Shell, words: list[str]) -> None:
    for store in (str(shell.home / "room.db"), f"sqlite:{shell.home}/folder/room.db", ""):
        shell.environment["POSTROOM_STORE"] = store
        assert loaded(shell, *words, "--as", "ann") & (HEAVY | {"apsw"}) == set()
        assert shell.run(*words, "--as", "ann") == shell.run(*words, "--as", "ann", "--set", "lease=60")


def test_a_room_that_cannot_be_there_gets_no_quick_answer(shell: Shell) -> None:
    (shell.home / "file").touch()
    for store in ("folder/", "sqlite:", "file/room.db"):
        shell.environment["POSTROOM_STORE"] = store
        assert shell.run("check", "--as", "ann") == shell.run("check", "--as", "ann", "--set", "lease=60")
    shell.environment["POSTROOM_STORE"] = ""
    assert 66 == shell.run("check", "--as", "ann", "--room", "other.db").code
    assert "other.db" in shell.run("hook", "prompt", "--as", "ann", "--room", "other.db").err


def test_the_quick_answer_is_the_same_as_the_slow_one(room: Shell) -> None:
    room.json("check", "--as", "bob")
    for words in (["check"], ["check", "--json"], ["digest"], ["digest", "--json"], ["counts", "--json"]):
        quick = room.run(*words, "--as", "bob")
        slow = room.run(*words, "--as", "bob", "--set", "lease=60")
        assert quick == slow


def test_a_hook_without_news_is_reported_without_the_library(room: Shell) -> None:
    found = loaded(room, "hook", "prompt", "--as", "ann")
    assert found & HEAVY == set()
    assert "apsw" in found
    (room.home / "inboxes").mkdir()
    del room.environment["POSTROOM_STORE"]
    room.environment |= {"INBOX_DIR": str(room.home / "inboxes"), "INBOX_AGENT_ID": "ann"}
    assert loaded(room, "hook", "prompt") & (HEAVY | {"apsw"}) == set()
    with Daemon(room.home, "--room", str(room.home / "room.db"), "--http", "off") as daemon:
        room.environment["INBOX_SOCKET_PATH"] = str(daemon.socket)
        assert loaded(room, "hook", "prompt") & (HEAVY | {"apsw", "socket"}) == set()
    del room.environment["INBOX_AGENT_ID"]
    assert loaded(room, "hook", "session-start") & (HEAVY | {"apsw", "select"}) == set()


@pytest.mark.parametrize("host", ["claude", "codex", "gemini"])
def test_a_hook_of_a_host_without_news_is_reported_without_the_library(room: Shell, host: str) -> None:
    assert "msgspec" in loaded_by_hook(room, host, "start")
    for moment in ("between", "prompt", "stop"):
        found = loaded_by_hook(room, host, moment)
        assert found & HEAVY == set() and "apsw" in found
    with Daemon(room.home, "--room", str(room.home / "room.db"), "--http", "off") as daemon:
        room.environment["POSTROOM_SOCKET"] = str(daemon.socket)
        loaded_by_hook(room, host, "start")
        for moment in ("between", "prompt", "stop"):
            assert loaded_by_hook(room, host, moment) & (HEAVY | {"apsw", "socket"}) == set()


@pytest.mark.parametrize("layout", NAMES)
def test_in_folders_all_of_that_is_reported_without_the_library(shell: Shell, layout: str) -> None:
    shell.environment["POSTROOM_STORE"] = f"files:{shell.home}/mail?layout={layout}"
    shell.json("send", "bob", "--as", "ann", "--body", "x")
    shell.json("check", "--as", "bob")
    loaded_by_hook(shell, "claude", "start")
    for found in (
        loaded(shell, "check", "--as", "bob"),
        loaded(shell, "hook", "prompt", "--as", "bob"),
        loaded_by_hook(shell, "claude", "prompt"),
    ):
        assert found & HEAVY == set() and "apsw" in found


def loaded_by_hook(shell: Shell, host: str, moment: str) -> set[str]:
    """What a hook loads at a moment of the one session. The host is this process."""
    events = {named: event for event, named in DIALECTS[host].events.items()}
    params = {
        "session_id": "s",
        "cwd": str(shell.home),
        "hook_event_name": events[moment],
        "prompt": "Sort the list.",
    }
    (shell.home / "said").write_text(json.dumps(params), encoding="utf-8")
    return loaded(shell, "hook", host, stdin=shell.home / "said")


def test_what_is_unusual_gets_no_quick_answer(room: Shell) -> None:
    config = room.home / ".config" / "postroom" / "config.toml"
    for words in (["--limit", "5"], ["--kind", "x"], ["--all"], ["--room", "~/room.db"]):
        assert "msgspec" in loaded(room, "check", "--as", "ann", *words)
    room.environment["POSTROOM_HOPS"] = "4"
    assert "msgspec" in loaded(room, "check", "--as", "ann")
    del room.environment["POSTROOM_HOPS"]
    config.parent.mkdir(parents=True)
    config.write_text("", encoding="utf-8")
    assert "tomllib" in loaded(room, "check", "--as", "ann")


def test_help_opens_no_room(shell: Shell) -> None:
    assert "apsw" not in loaded(shell, "help", "send")
    assert not (shell.home / "room.db").exists()


@pytest.mark.parametrize("words", [["help"], ["help", "all"], ["help", "options"], ["-V"]])
def test_help_and_the_version_are_shown_without_the_library(shell: Shell, words: list[str]) -> None:
    assert loaded(shell, *words) & {"msgspec", "pathlib", "postroom.room", "postroom.core"} == set()


def test_a_send_loads_only_what_it_uses(room: Shell) -> None:
    found = loaded(room, "send", "bob", "--as", "ann", "--body", "x")
    rare = {
        "agents",
        "alerts",
        "arrivals",
        "conversations",
        "escalation",
        "portable",
        "retention",
        "stats",
        "tasks",
        "work",
    }
    assert found & {f"postroom.core.{name}" for name in rare} == set()
    assert (
        found & {"ctypes", "ipaddress", "pathlib", "shlex", "subprocess", "tempfile", "urllib.parse", "weakref"}
        == set()
    )


def test_a_name_that_nobody_has_is_quick_too_unless_it_is_like_another(room: Shell) -> None:
    assert loaded(room, "check", "--as", "xyz") & HEAVY == set()  # as long as `bob`, and not like it
    assert "did you mean 'bob'?" in room.run("check", "--as", "bop").err


def test_the_version_is_printed_without_the_library(room: Shell) -> None:
    assert loaded(room, "-V") & HEAVY == set()
    assert room.run("-V") == room.run("version")


def test_a_letter_is_sent_without_the_verbs_of_other_nouns(room: Shell) -> None:
    found = loaded(room, "send", "bob", "hello", "--as", "ann")
    unneeded = {
        f"postroom.core.{name}" for name in ("agents", "conversations", "tasks", "threads", "tokens", "work")
    }
    assert found & (unneeded | {"postroom.model.webhook"}) == set()
