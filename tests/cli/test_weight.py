"""No command loads what it does not use. Start-up is most of what a short command costs."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from postroom.cli.table import FILE_OF
from postroom.store.files.layouts.paths import NAMES
from tests.cli.shell import Desk
from tests.daemons import Daemon

HOME = Path(__file__).parent.parent.parent
TOOL = runpy.run_path(str(HOME / "tools" / "imports.py"))


def loaded(desk: Desk, *words: str, stdin: Path = Path("/dev/null")) -> set[str]:
    bare = {name: value for name, value in desk.environment.items() if not name.startswith("COVERAGE")}
    found: set[str] = TOOL["loaded_by"](list(words), bare, desk.home, stdin)
    return found


@pytest.fixture
def room(desk: Desk) -> Desk:
    desk.json("send", "bob", "--as", "ann", "--body", "x")
    return desk


HEAVY = {
    "msgspec", "json", "re", "argparse", "pathlib", "dataclasses", "typing", "logging", "datetime", "enum", "inspect",
    "asyncio", "ctypes", "subprocess", "tomllib", "postroom.room", "postroom.model", "postroom.core",
}  # fmt: skip
# `inspect` would come with typing_extensions, which msgspec is kept from.
# The files of commands that share a word or two with this one's.
_SHARED = {
    "claim": {"postroom.cli.read"}, "ack": {"postroom.cli.read"}, "tasks": {"postroom.cli.send"},
}  # fmt: skip

# What no short command has any use for.
NEVER = {
    "asyncio", "argparse", "tomllib", "subprocess", "logging", "dataclasses", "inspect", "hashlib", "tempfile",
    "shutil", "json", "secrets", "random", "threading", "pathlib", "urllib.parse", "textwrap", "ctypes",
    "mmap", "select", "msgspec.inspect", "msgspec._json_schema",
    "postroom.aio", "postroom.demo", "postroom.room", "postroom.settings", "postroom.store.memory",
    "postroom.store.notification",
}  # fmt: skip
_SERVICE = {
    "addressing", "admitting", "arriving", "auditing", "bouncing", "calling", "climbing", "compose", "conversing", "copying", "counting", "dead", "directory",
    "doctor", "elsewhere", "escalating", "files", "guarding", "holders", "holding", "identity", "janitor", "lost_rings", "moving", "naming",
    "mounting", "notices", "outbox", "overdue", "pace", "peer_rules", "peers", "portable", "present", "pulse", "rates", "reading", "renaming", "retelling",
    "ringbook", "ringing", "scopes", "search",
    "sending", "standing_down", "talks", "task_moves", "taskbook", "tasks", "templates", "threads", "tokens", "tracing",
    "transfer", "transfer_fence", "transfer_records", "turning", "unsending", "waiting", "webhooks",
}  # fmt: skip
_STORE = {
    "asking", "backup", "counting", "examining", "holders", "identity", "index", "index_words", "patience", "place",
    "renaming", "restoring", "searching", "turns",
}  # fmt: skip
_MODEL = {
    "card", "change", "escalation", "guard", "handoff", "health", "ring", "search", "stats", "task", "template", "trace",
    "words",
}  # fmt: skip

# A command, and the only parts it may load of rooms that have many. `make imports` shows all that each one loads.
USES: dict[str, tuple[str, set[str], set[str], set[str]]] = {
    # words                             service                                           store        model
    "counts --as bob": ("counts", {"moving", "reading", "present"}, {"asking"}, {"change"}),
    "check --as bob": ("check", {"moving", "reading", "present"}, {"asking"}, {"change"}),
    "read m-1 --as bob": ("read", {"moving", "reading", "present"}, {"asking"}, {"change"}),
    "send bob --as ann --body x": ("send", {"compose", "pace", "sending", "present"}, set(), set()),
    "claim --as bob": ("claim", {"holding", "moving", "reading", "waiting", "present"}, {"asking"}, {"change"}),
    "ack m-2 --as bob --token TOKEN": ("ack", {"holding", "moving", "reading", "present"}, {"asking"}, {"change"}),
    "tasks --as bob": (
        "tasks", {"moving", "naming", "present", "reading", "taskbook", "tasks"}, {"asking"},
        {"card", "change", "guard", "task"},
    ),
    "agents": ("agents", {"directory", "present", "taskbook"}, set(), {"card", "guard", "task"}),
}  # fmt: skip


@pytest.mark.parametrize(
    "words", [["check"], ["check", "--json"], ["digest"], ["counts", "--json"], ["check", "--peek"]]
)
def test_an_empty_inbox_is_told_without_the_library(room: Desk, words: list[str]) -> None:
    found = loaded(room, *words, "--as", "ann")
    assert found & HEAVY == set()
    assert "apsw" in found


@pytest.mark.parametrize(
    "words", [["check"], ["check", "--json"], ["digest"], ["counts", "--json"], ["hook", "prompt"]]
)
def test_where_no_room_was_made_yet_that_is_told_without_the_library(desk: Desk, words: list[str]) -> None:
    for store in (str(desk.home / "room.db"), f"sqlite:{desk.home}/folder/room.db", ""):
        desk.environment["POSTROOM_STORE"] = store
        assert loaded(desk, *words, "--as", "ann") & (HEAVY | {"apsw"}) == set()
        assert desk.run(*words, "--as", "ann") == desk.run(*words, "--as", "ann", "--set", "lease=60")


def test_a_room_that_cannot_be_there_gets_no_quick_answer(desk: Desk) -> None:
    (desk.home / "file").touch()
    for store in ("folder/", "sqlite:", "file/room.db"):
        desk.environment["POSTROOM_STORE"] = store
        assert desk.run("check", "--as", "ann") == desk.run("check", "--as", "ann", "--set", "lease=60")
    desk.environment["POSTROOM_STORE"] = ""
    assert 66 == desk.run("check", "--as", "ann", "--room", "other.db").code
    assert "other.db" in desk.run("hook", "prompt", "--as", "ann", "--room", "other.db").err


def test_the_quick_answer_is_the_same_as_the_slow_one(room: Desk) -> None:
    room.json("check", "--as", "bob")
    for words in (["check"], ["check", "--json"], ["digest"], ["digest", "--json"], ["counts", "--json"]):
        quick = room.run(*words, "--as", "bob")
        slow = room.run(*words, "--as", "bob", "--set", "lease=60")
        assert quick == slow


def test_a_hook_without_news_is_told_without_the_library(room: Desk) -> None:
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
def test_a_hook_of_a_host_without_news_is_told_without_the_library(room: Desk, host: str) -> None:
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
def test_in_folders_all_of_that_is_told_without_the_library(desk: Desk, layout: str) -> None:
    desk.environment["POSTROOM_STORE"] = f"files:{desk.home}/mail?layout={layout}"
    desk.json("send", "bob", "--as", "ann", "--body", "x")
    desk.json("check", "--as", "bob")
    loaded_by_hook(desk, "claude", "start")
    for found in (
        loaded(desk, "check", "--as", "bob"),
        loaded(desk, "hook", "prompt", "--as", "bob"),
        loaded_by_hook(desk, "claude", "prompt"),
    ):
        assert found & HEAVY == set() and "apsw" in found


def loaded_by_hook(desk: Desk, host: str, moment: str) -> set[str]:
    """What a hook loads at a moment of the one session. The host is this process."""
    events = {
        named: event for event, named in __import__(f"postroom.hosts.{host}", fromlist=["EVENTS"]).EVENTS.items()
    }
    params = {
        "session_id": "s",
        "cwd": str(desk.home),
        "hook_event_name": events[moment],
        "prompt": "Sort the list.",
    }
    (desk.home / "said").write_text(json.dumps(params), encoding="utf-8")
    return loaded(desk, "hook", host, stdin=desk.home / "said")


def test_what_is_unusual_gets_no_quick_answer(room: Desk) -> None:
    config = room.home / ".config" / "postroom" / "config.toml"
    for words in (["--limit", "5"], ["--kind", "x"], ["--all"], ["--room", "~/room.db"]):
        assert "msgspec" in loaded(room, "check", "--as", "ann", *words)
    room.environment["POSTROOM_HOPS"] = "4"
    assert "msgspec" in loaded(room, "check", "--as", "ann")
    del room.environment["POSTROOM_HOPS"]
    config.parent.mkdir(parents=True)
    config.write_text("", encoding="utf-8")
    assert "tomllib" in loaded(room, "check", "--as", "ann")


@pytest.mark.mechanism
@pytest.mark.parametrize("words", USES)
def test_a_command_loads_what_it_uses(room: Desk, words: str) -> None:
    room.json("send", "bob", "--as", "ann", "--body", "y", "--letter-id", "m-1")
    room.json("send", "bob", "--as", "ann", "--body", "z", "--letter-id", "m-2", "--priority", "urgent")
    token = room.json("claim", "--as", "bob")["letters"][0]["token"] if "TOKEN" in words else ""
    name, service, store, model = USES[words]
    found = loaded(room, *words.replace("TOKEN", token).split())
    others = {f"postroom.cli.{file}" for file in FILE_OF.values()} - {f"postroom.cli.{FILE_OF[name]}"}
    assert found & NEVER == set()
    assert {part for part in _SERVICE if f"postroom.core.{part}" in found} <= service
    assert {part for part in _STORE if f"postroom.store.sqlite.{part}" in found} <= store
    assert {part for part in _MODEL if f"postroom.model.{part}" in found} <= model
    assert found & others <= _SHARED.get(name, set())


@pytest.mark.mechanism
def test_every_part_of_the_house_is_watched() -> None:
    always = {"authorize", "given", "core", "records", "portable_records"}
    parts = {path.stem for path in (HOME / "src/postroom/service").glob("*.py")} - {"__init__"}
    assert parts - always == _SERVICE


def test_help_and_version_load_no_library(desk: Desk) -> None:
    for words in (["help"], ["help", "send"], ["send", "--help"], ["version"]):
        found = loaded(desk, *words)
        assert (
            found & {"msgspec", "typing", "datetime", "postroom.room", "postroom.mailbox", "postroom.settings"}
            == set()
        )


@pytest.mark.mechanism
def test_a_second_commit_and_a_second_writer_load_what_they_need(room: Desk) -> None:
    """What is left out of a send is there for whoever needs it."""
    script = (
        "import postroom, sys; from pathlib import Path; room = postroom.open(); ann = room.mailbox('ann');"
        "ann.send('bob', 'x'); before = 'ctypes' in sys.modules; ann.send('bob', 'y');"
        "print(before, 'ctypes' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=room.environment,
        cwd=room.home,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["False", "True"]


@pytest.mark.mechanism
def test_words_that_need_converting_load_no_more(room: Desk) -> None:
    found = loaded(room, "claim", "--as", "bob", "--lease", "10m", "--count", "2")
    assert found & {"inspect", "argparse", "json"} == set()


def test_help_opens_no_room(desk: Desk) -> None:
    assert "apsw" not in loaded(desk, "help", "send")
    assert not (desk.home / "room.db").exists()
