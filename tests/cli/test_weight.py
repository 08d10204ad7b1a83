"""No command loads what it does not use. Start-up is most of what a short command costs."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.cli.shell import Desk

HOME = Path(__file__).parent.parent.parent
TOOL = runpy.run_path(str(HOME / "tools" / "imports.py"))


def loaded(desk: Desk, *words: str) -> set[str]:
    bare = {name: value for name, value in desk.environment.items() if not name.startswith("COVERAGE")}
    found: set[str] = TOOL["loaded_by"](list(words), bare, desk.home)
    return found


@pytest.fixture
def room(desk: Desk) -> Desk:
    desk.json("send", "bob", "--as", "ann", "--body", "x")
    return desk


HEAVY = {
    "msgspec", "json", "re", "argparse", "pathlib", "dataclasses", "typing", "logging", "datetime", "enum", "inspect",
    "asyncio", "ctypes", "subprocess", "tomllib", "postroom.room", "postroom.model", "postroom.service",
}  # fmt: skip
# `inspect` would come with typing_extensions, which msgspec is kept from.
UNUSED = {
    "asyncio", "argparse", "tomllib", "subprocess", "logging", "dataclasses", "inspect", "hashlib",
    "tempfile", "shutil", "json", "secrets", "postroom.aio", "postroom.demo", "postroom.service.janitor",
    "postroom.service.portable", "postroom.cli.convert", "postroom.cli.working", "postroom.cli.meta",
    "postroom.store.memory", "postroom.service.templates", "postroom.service.search", "postroom.cli.finding",
    "postroom.cli.tasks", "postroom.cli.asking", "postroom.cli.templates", "postroom.cli.table.tasks",
}  # fmt: skip


@pytest.mark.parametrize(
    "words", [["check"], ["check", "--json"], ["digest"], ["counts", "--json"], ["check", "--peek"]]
)
def test_an_empty_inbox_is_told_without_the_library(room: Desk, words: list[str]) -> None:
    found = loaded(room, *words, "--as", "ann")
    assert found & HEAVY == set()
    assert "apsw" in found


def test_the_quick_answer_is_the_same_as_the_slow_one(room: Desk) -> None:
    room.json("check", "--as", "bob")
    for words in (["check"], ["check", "--json"], ["digest"], ["digest", "--json"], ["counts", "--json"]):
        quick = room.run(*words, "--as", "bob")
        slow = room.run(*words, "--as", "bob", "--set", "lease=60")
        assert quick == slow


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


def test_a_send_loads_what_it_uses(room: Desk) -> None:
    assert loaded(room, "send", "bob", "--as", "ann", "--body", "x") & UNUSED == set()


def test_words_that_need_converting_load_no_more(room: Desk) -> None:
    found = loaded(room, "claim", "--as", "bob", "--lease", "10m", "--count", "2")
    assert found & {"inspect", "argparse", "json"} == set()


def test_help_opens_no_room(desk: Desk) -> None:
    assert "apsw" not in loaded(desk, "help", "send")
    assert not (desk.home / "room.db").exists()
