"""Where there is no room yet: what sends makes one; what only looks, or is refused, leaves nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from postroom.cli.table import FILE_OF, HIDDEN, row
from tests.cli.shell import Desk

LOOKING = [name for name in FILE_OF if name not in HIDDEN and row(name).looks]


def words_of(name: str) -> list[str]:
    """A command with something in each of its places and in every option that must be said."""
    words = name.split()
    for option in row(name).options:
        if option.is_place:
            words.append("m-1")
        elif option.required:
            words += [option.names[-1], "x"]
    return words


def left_behind(desk: Desk) -> list[str]:
    return sorted(path.name for path in desk.home.iterdir() if path.name not in {"pycache", "bin"})


@pytest.mark.parametrize("name", LOOKING)
def test_a_command_that_only_looks_makes_no_room(desk: Desk, name: str) -> None:
    done = desk.run(*words_of(name), "--as", "ann", "--json", stdin="text")
    assert done.code in {0, 64, 65, 67}, done
    assert "Traceback" not in done.err
    named = desk.run(*words_of(name), "--as", "ann", "--room", "other.db", "--json", stdin="text")
    assert (named.code, named.error["field"]) in {(66, "--room"), (64, "--token")}, named
    assert left_behind(desk) == []


def test_there_is_no_mail_where_nobody_has_sent_any(desk: Desk) -> None:
    assert desk.run("check", "--as", "ann").out == "No unread mail for ann.\n"
    assert desk.json("search", "word", "--as", "ann")["letters"] == []
    assert desk.json("agents")["agents"] == []
    assert desk.run("read", "m-1", "--as", "ann").code == 67


SAYS_NO = [
    ("send", "no one", "--as", "ann", "--body", "x"),
    ("send", "bob", "--as", "no one", "--body", "x"),
    ("send", "bob", "--as", "ann", "--body", "x", "--kind", "two words"),
    ("send", "bob", "--as", "ann", "--body", "x", "--set", "unknown=refuse"),
    ("send", "any:python", "--as", "ann", "--body", "x"),
    ("send", "bob", "--as", "ann", "--template", "nothing"),
    ("send", "bob", "--as", "ann", "--body", "x", "--file", "missing"),
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
def test_what_is_refused_leaves_no_room_behind(desk: Desk, words: tuple[str, ...]) -> None:
    done = desk.run(*words, "--json")
    assert done.code in {65, 67, 77}, done
    assert left_behind(desk) == []


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
def test_what_is_done_makes_the_room_and_is_done_once(desk: Desk, words: tuple[str, ...]) -> None:
    desk.json(*words)
    assert (desk.home / "room.db").exists()
    with desk.room() as room:
        assert sum(conversation.turns for conversation in room.conversations()) <= 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look everywhere")
def test_a_folder_that_may_not_be_looked_into_is_not_an_empty_room(desk: Desk, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    try:
        assert desk.run("check", "--as", "ann", POSTROOM_STORE=str(closed / "room.db")).code != 0
    finally:
        closed.chmod(0o700)


@pytest.mark.parametrize("text", ["", "junk", "[]", "{}", '{"postroom": 99, "room": "x"}'])
def test_an_import_of_what_is_no_export_makes_no_room(desk: Desk, text: str) -> None:
    done = desk.run("import", "-", "--json", stdin=text)
    assert (done.code, done.error["field"]) == (65, "line 1"), done
    assert left_behind(desk) == []


def test_an_import_that_is_refused_later_goes_on_with_the_whole_file(desk: Desk) -> None:
    desk.json("send", "bob", "--as", "ann", "--body", "x")
    lines = desk.run("export").out.splitlines(keepends=True)
    done = desk.run("import", "-", "--room", "other.db", "--json", stdin="".join(lines[:-1]))
    assert (done.code, done.error["field"]) == (65, f"line {len(lines) - 1}"), done
    assert desk.json("import", "-", "--room", "other.db", stdin="".join(lines))["letters"] == 1
    assert desk.json("counts", "--as", "bob", "--room", "other.db")["total"] == 1
