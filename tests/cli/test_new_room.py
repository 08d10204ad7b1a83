"""Where there is no room yet: what sends makes one; what only looks, or is refused, leaves nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from postroom.cli.command import command_of
from postroom.cli.table import GROUPS
from tests.cli.shell import Shell

# All that may make a room: they put the first thing into it, or wait for mail. No other command does.
MAKERS = {
    "send", "ask", "broadcast", "handoff", "escalate", "tasks give", "register", "templates save", "block",
    "wait", "watch", "claim", "work", "mcp", "serve", "tokens create", "peers add", "peers invite", "peers join", "webhooks add", "mount",
    "chipset dispatch", "chipset nudge", "chipset note", "hook session-start", "hook claude", "hook codex", "hook gemini", "init", "rooms import", "rooms restore", "rooms copy",
}  # fmt: skip
ABOUT_THE_PROGRAM = {"help", "completion", "version"}
NO_ROOM = {  # they need none, or, as hooks, never fail
    "nanobot doctor", "swarm install", "service install", "service uninstall", "service status",
    "install agent-inbox-shim", "uninstall agent-inbox-shim", "hook prompt",
    *(f"{verb} {host}" for verb in ("install", "uninstall") for host in ("claude", "codex", "gemini")),
}  # fmt: skip
NEEDS_WHAT_IS_THERE = {
    "rooms backup", "rooms export", "dashboard",
    *(f"chipset {verb}" for verb in "remind activate touch report accept reassign clear answer handle".split()),
}  # fmt: skip
NAMES = [name for names in GROUPS.values() for name in names]
LOOKING = [name for name in NAMES if name not in MAKERS | ABOUT_THE_PROGRAM | NO_ROOM]


def words_of(name: str) -> list[str]:
    """A command with something in each of its places and in every option that must be said."""
    words = [*name.split(), *(["--once"] if name in {"top", "witness"} else [])]
    places = {option.name for option in command_of(name).options if option.is_place}
    for option in command_of(name).options:
        if option.is_place:
            words.append("m-1")
        elif option.required and option.name not in places:
            words += [option.names[-1], "x"]
    return words


def left_behind(shell: Shell) -> list[str]:
    return sorted(path.name for path in shell.home.iterdir() if path.name not in {"pycache", "bin"})


@pytest.mark.parametrize("name", LOOKING)
def test_a_command_that_only_looks_makes_no_room(shell: Shell, name: str) -> None:
    done = shell.run(*words_of(name), "--as", "ann", "--json", stdin="text")
    assert done.code in ({66} if name in NEEDS_WHAT_IS_THERE else {0, 64, 65, 67}), done
    assert "Traceback" not in done.err
    for typing_error in ("other.db", "no/such/folder/other.db"):
        named = shell.run(*words_of(name), "--as", "ann", "--room", typing_error, "--json", stdin="text")
        assert (named.code, named.error["field"]) in {(66, "--room"), (64, "--token")}, named
    assert left_behind(shell) == []


@pytest.mark.parametrize("name", sorted(ABOUT_THE_PROGRAM))
def test_what_is_about_the_program_makes_no_room(shell: Shell, name: str) -> None:
    shell.run(name, "--room", "other.db")
    assert left_behind(shell) == []


def test_the_table_says_who_may_make_a_room() -> None:
    rows = {name for name in NAMES if not command_of(name).looks}
    assert rows == MAKERS | ABOUT_THE_PROGRAM


def test_who_is_refused_where_there_is_no_room(shell: Shell) -> None:
    assert shell.json("block", "--as", "ann")["blocked"] == []
    assert shell.run("block", "--as", "ann", "--room", "other.db").code == 66
    assert left_behind(shell) == []


def test_a_room_that_is_not_there_yet_is_reported_without_making_it(shell: Shell) -> None:
    result = shell.json("room")
    assert (result["store"], result["exists"], result["cursor"]) == (str(shell.home / "room.db"), False, None)
    assert "not there yet" in shell.run("room").out
    assert shell.json("changes") | {"schema": 1} == {
        "schema": 1,
        "command": "changes",
        "changes": [],
        "cursor": None,
    }
    assert "no room yet" in shell.run("changes").out
    assert left_behind(shell) == []
    shell.json("register", "--as", "ann")
    assert shell.json("room")["exists"]
    assert shell.json("changes")["cursor"] == shell.json("room")["cursor"] is not None


@pytest.mark.parametrize(
    "words",
    [
        ("send", "bob", "--as", "ann", "--body", "x"),
        ("register", "--as", "ann"),
        ("claim", "--as", "ann"),
        ("wait", "--as", "ann", "--timeout", "0"),
        ("work", "--as", "ann", "--timeout", "0", "--", "true"),
        ("watch", "--as", "ann", "--timeout", "0"),
        ("import", "a.jsonl"),
        ("restore", "a.db"),
    ],
    ids=lambda words: words[0],
)
def test_a_room_named_by_hand_is_made_in_a_folder_that_is_there(shell: Shell, words: tuple[str, ...]) -> None:
    shell.post("ann", "bob", "x")
    shell.json("export", "a.jsonl")
    shell.json("backup", "a.db")
    before = left_behind(shell)
    done = shell.run("--room", "no such/folder/b.db", "--json", *words)
    assert (done.code, done.error["field"]) == (73, "--room"), done
    assert done.error["hint"] == f"mkdir -p '{shell.home}/no such/folder'"
    assert left_behind(shell) == before


def test_the_users_own_room_brings_its_folders(shell: Shell) -> None:
    del shell.environment["POSTROOM_STORE"]
    own = shell.home / ".local/share/postroom/room.db"
    shell.json("send", "bob", "--as", "ann", "--body", "x", "--room", str(own))
    assert own.exists()


def test_there_is_no_mail_where_nobody_has_sent_any(shell: Shell) -> None:
    assert shell.run("check", "--as", "ann").out == "No unread mail for ann.\n"
    assert shell.json("search", "word", "--as", "ann")["letters"] == []
    assert shell.json("agents")["agents"] == []
    assert shell.run("read", "m-1", "--as", "ann").code == 67


SAYS_NO = [
    ("send", "no one", "--as", "ann", "--body", "x"),
    ("send", "bob", "--as", "no one", "--body", "x"),
    ("send", "bob", "--as", "ann", "--body", "x", "--kind", "two words"),
    ("send", "bob", "--as", "ann", "--body", "x", "--set", "unknown=refuse"),
    ("send", "any:python", "--as", "ann", "--body", "x"),
    ("send", "bob", "--as", "ann", "--template", "nothing"),
    ("send", "bob", "--as", "ann", "--body", "x", "--file", "missing"),
    ("send", "bob", "--as", "ann", "--body", "x", "--file", "../outside"),
    ("block", "ann", "--as", "a b"),
    ("broadcast", "team", "--as", "ann", "--body", "x"),
    ("handoff", "no one", "--as", "ann", "--done", "x"),
    ("register", "--as", "ann", "--scope", "a b"),
    ("tasks", "give", "bob", "--as", "ann", "--body", "x", "--session", "1"),
    ("escalate", "--as", "ann", "--reason", "a b", "--body", "x"),
    ("templates", "save", "x", "--body", "{"),
    ("block", "no one", "--as", "ann"),
    ("claim", "--as", "no one"),
    ("claim", "--as", "ann", "--kind", "two words"),
    ("claim", "--as", "ann", "--lease", "0s"),
    ("wait", "--as", "ann", "--at-mailbox", "no one"),
    ("wait", "--as", "no one"),
    ("work", "--as", "ann", "--tag", "", "--", "true"),
]


@pytest.mark.parametrize("words", SAYS_NO, ids=lambda words: " ".join(words)[:50])
def test_what_is_refused_leaves_no_room_behind(shell: Shell, words: tuple[str, ...]) -> None:
    done = shell.run(*words, "--json")
    assert done.code in {64, 65, 66, 67, 77}, done
    assert left_behind(shell) == []


@pytest.mark.parametrize(
    "words",
    [
        ("send", "bob", "--as", "ann", "--body", "x"),
        ("register", "--as", "ann"),
        ("tasks", "give", "bob", "--as", "ann", "--body", "x"),
        ("escalate", "--as", "ann", "--reason", "blocked", "--body", "x"),
        ("templates", "save", "x", "--body", "y"),
        ("block", "bob", "--as", "ann"),
    ],
    ids=lambda words: words[0],
)
def test_what_is_done_makes_the_room_and_is_done_once(shell: Shell, words: tuple[str, ...]) -> None:
    shell.json(*words)
    assert (shell.home / "room.db").exists()
    with shell.room() as room:
        assert sum(conversation.turns for conversation in room.conversations()) <= 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look everywhere")
def test_a_folder_that_may_not_be_looked_into_is_not_an_empty_room(shell: Shell, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    try:
        assert shell.run("check", "--as", "ann", POSTROOM_STORE=str(closed / "room.db")).code != 0
    finally:
        closed.chmod(0o700)


@pytest.mark.parametrize("text", ["", "junk", "[]", "{}", '{"postroom": 99, "room": "x"}'])
def test_an_import_of_what_is_no_export_makes_no_room(shell: Shell, text: str) -> None:
    done = shell.run("import", "-", "--json", stdin=text)
    assert (done.code, done.error["field"]) == (65, "line 1"), done
    assert left_behind(shell) == []


def test_an_import_that_is_refused_later_goes_on_with_the_whole_file(shell: Shell) -> None:
    shell.json("send", "bob", "--as", "ann", "--body", "x")
    lines = shell.run("export").out.splitlines(keepends=True)
    done = shell.run("import", "-", "--room", "other.db", "--json", stdin="".join(lines[:-1]))
    assert (done.code, done.error["field"]) == (65, f"line {len(lines) - 1}"), done
    assert shell.json("import", "-", "--room", "other.db", stdin="".join(lines))["letters"] == 1
    assert shell.json("counts", "--as", "bob", "--room", "other.db")["total"] == 1
