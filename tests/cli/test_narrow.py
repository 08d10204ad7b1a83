"""Tables fit the terminal they are shown on: columns get narrower, then the least important are left out."""

from __future__ import annotations

import re

import pytest

from postroom.cli.answer import Screen
from postroom.cli.output import table, width, wrapped
from postroom.clock import SystemClock
from tests.cli.shell import Shell
from tests.cli.terminal import show

COLUMNS = (40, 60, 80, 200)
ESCAPES = re.compile(r"\x1b\[[0-9;]*[a-zA-Z]")
HEADINGS = re.compile(r"[A-Z]+( +[A-Z]+)* *")


@pytest.fixture
def busy(shell: Shell) -> Shell:
    with shell.room() as room:
        ann = room.mailbox("ann-of-the-long-name")
        ann.register(scopes=["sorting", "releases"], capabilities=["python", "rust"], description="日本語 " * 20)
        sent = ann.send("bob-of-the-long-name", "some words " * 30, subject="日本語" * 30, priority="urgent")
        bob = room.mailbox("bob-of-the-long-name")
        bob.reply(sent.id, "an answer " * 20)
        work = bob.claim()
        assert work
        work.fail("a reason " * 30)
        (shell.home / "id").write_text(sent.id, encoding="ascii")
        bob.send("ann-of-the-long-name", "dead")
        ann.check()[0].reject("reason " * 30)
    (shell.home / "room.db").chmod(0o644)  # something for the doctor to say
    return shell


@pytest.mark.parametrize("columns", COLUMNS)
def test_no_table_is_wider_than_the_terminal(busy: Shell, columns: int) -> None:
    id = (busy.home / "id").read_text(encoding="ascii")
    commands = (
        ["check", "--all", "--peek", "--as", "bob-of-the-long-name"], ["agents"], ["stats"], ["top", "--once"],
        ["threads", "--as", "ann-of-the-long-name"], ["conversations", "--as", "ann-of-the-long-name"],
        ["trace", id], ["dead", "--as", "ann-of-the-long-name"], ["counts", "--as", "bob-of-the-long-name"],
        ["changes", "0-0"], ["doctor"],
    )  # fmt: skip
    for command in commands:
        _, shown = show(busy, *command, columns=columns)
        lines = ESCAPES.sub("", shown).splitlines()
        for number in [n for n, line in enumerate(lines) if HEADINGS.fullmatch(line)]:
            for line in lines[number:]:
                if not line or line.startswith("  "):  # the table's end, or a hint
                    break
                assert width(line) <= columns, (command, line)
        if command == ["doctor"]:
            assert max(map(width, lines)) <= columns


@pytest.mark.parametrize("columns", COLUMNS)
def test_of_an_id_as_much_is_shown_as_is_understood(busy: Shell, columns: int) -> None:
    """What one cannot copy is of no use."""
    id = (busy.home / "id").read_text(encoding="ascii")
    _, shown = show(
        busy, "check", "--all", "--peek", "--as", "bob-of-the-long-name", columns=columns, NO_COLOR="1"
    )
    heading, row, *_ = shown.splitlines()
    beginning = row.split()[0]
    assert len(beginning) >= 10
    assert busy.json("trace", beginning, "--as", "bob-of-the-long-name")["letter"]["id"] == id
    assert heading.split()[-1] == "ABOUT"
    assert ("PRIORITY" in heading) == (columns >= 80)


def screen(columns: int) -> Screen:
    return Screen(json=False, tables=True, colour=False, width=columns, now=SystemClock().now().wall)


@pytest.mark.parametrize("columns", range(8, 120, 3))
def test_a_table_of_any_width_fits(columns: int) -> None:
    rows = [("name", "x" * 70, "12", "日本語" * 20, "last " * 30), ("", "", "", "", "")]
    titles = ("FIRST", "SECOND", "THIRD", "FOURTH", "LAST")
    lines = table(screen(columns), titles, rows, drop=("THIRD", "FOURTH")).splitlines()
    assert max(map(width, lines)) <= columns
    assert lines[0].startswith("FIRST")


def test_columns_are_left_out_in_their_order() -> None:
    rows = [("a" * 10, "b" * 10, "c" * 10, "d" * 10)]
    shown = [
        table(screen(n), ("A", "B", "C", "D"), rows, drop=("C", "B")).split()[:-1] for n in (46, 45, 33, 21, 9)
    ]
    assert [[word for word in words if len(word) == 1] for words in shown] == [
        ["A", "B", "C", "D"], ["A", "B", "D"], ["A", "D"], ["A"], ["A"],
    ]  # fmt: skip


def test_a_wide_terminal_shows_the_last_column_whole() -> None:
    assert "z" * 120 in table(screen(200), ("A", "Z"), [("a", "z" * 120)])


def test_text_is_wrapped_at_blanks() -> None:
    assert wrapped("one two three", 7) == ["one two", "three"]
    assert wrapped("onetwothree x", 4) == ["onet", "woth", "ree", "x"]
    assert wrapped("日本語", 2) == ["日", "本", "語"]
    assert wrapped("日", 1) == ["日"]
    assert wrapped("", 5) == [""]


def test_errors_and_what_waits_are_folded(shell: Shell) -> None:
    shell.json("send", "human", "--as", "ann", "--letter-id", "m-1", "-s", "subject " * 9, "--body", "words " * 20)
    code, shown = show(shell, "waiting", columns=50, NO_COLOR="1")
    text = [line for line in shown.splitlines() if line.startswith("    │ ")]
    assert (code, len(text), max(map(width, text)) <= 50) == (0, 3, True)
    assert " ".join(line.removeprefix("    │ ") for line in text) == " ".join(["words"] * 20)
    code, shown = show(shell, "tasks", "nosuch", columns=50, NO_COLOR="1")
    assert (code, max(map(width, shown.splitlines())) <= 50, "complete" in shown) == (64, True, True)


def test_tasks_without_a_subject_show_their_text(shell: Shell) -> None:
    shell.json("tasks", "give", "bob", "--as", "ann", "--body", "Sort it.\nSoon.")
    assert "Sort it. |" in shell.run("tasks", "--as", "bob").out


@pytest.mark.parametrize("length", range(1, 45))
def test_a_word_of_any_length_is_broken_where_the_line_ends(length: int) -> None:
    lines = wrapped(f"a {'x' * length} {'宽' * length}", 10)
    assert max(map(width, lines)) <= 10
    assert "".join(lines).replace(" ", "") == "a" + "x" * length + "宽" * length
