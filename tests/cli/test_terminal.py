"""On a terminal: tables, colours, hints, an editor, progress. Nothing a peer writes gets loose, there or elsewhere."""

from __future__ import annotations

import json
import re
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest

from postroom.cli import views
from postroom.cli.answer import Screen
from postroom.cli.output import ago, body_lines, cut, one_line, says, table, width
from postroom.clock import SystemClock
from tests.cli.shell import Shell
from tests.cli.terminal import Terminal, editor, show

NASTY = "a\x1b[31mred\x07\x00\x9b\u202egnp.exe\u2066\u200b\u2028\x85end".replace("\x00", "")
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def test_an_inbox_is_a_table_in_colour_with_a_hint(shell: Shell) -> None:
    shell.json("send", "bob", "--as", "ann", "--body", "first line\nsecond", "-p", "urgent", "--letter-id", "m-1")
    code, shown = show(shell, "check", "--as", "bob", "--peek")
    assert code == 0
    assert "\x1b[1mID" in shown and "\x1b[31murgent" in shown
    plain = ESCAPES.sub("", shown).splitlines()
    assert plain[0].split() == ["ID", "AGE", "FROM", "PRIORITY", "ABOUT"]
    assert plain[1].split()[0] == "m-1" and plain[1].endswith("first line")
    assert plain[2:] == [
        "  postroom read ID --as bob  # shows one",
        "  postroom ack ID --as bob  # is done with it",
    ]
    _, whole = show(shell, "check", "--all", "--as", "bob", "--peek", NO_COLOR="1")
    assert whole.splitlines()[0].split() == ["ID", "AGE", "FROM", "PRIORITY", "STATE", "ABOUT"]


def hints(shown: str) -> list[str]:
    return [line for line in ESCAPES.sub("", shown).splitlines() if line.startswith("  postroom ")]


def test_hints_can_be_pasted(shell: Shell) -> None:
    ann, other = ("--as", "ann"), ("--room", "a room.db")
    _, shown = show(shell, "send", "bob", *ann, *other, "--letter-id", "m-1", "--body", "x")
    assert hints(shown) == ["  postroom wait --thread m-1 --as ann --room 'a room.db'  # waits for the answer"]
    _, shown = show(shell, "read", "m-1", *other, POSTROOM_AGENT="bob")
    assert hints(shown)[0] == "  postroom reply m-1 --room 'a room.db'  # answers it"
    _, shown = show(shell, "read", "m-1", "--as", "bob", *other, POSTROOM_AGENT="bob")
    assert hints(shown)[1] == "  postroom ack m-1 --room 'a room.db'  # is done with it"
    _, shown = show(shell, "read", "m-1", "--as", "bob", *other, POSTROOM_AGENT="ann")
    done = shell.type(hints(shown)[1])
    assert (done.code, done.err, "done" in done.out) == (0, "", True)


def test_what_was_claimed_together_is_done_together(shell: Shell) -> None:
    for id in ("m-1", "m-2", "m-3"):
        shell.json("send", "bob", "--as", "ann", "--body", "x", "--letter-id", id)
    _, shown = show(shell, "claim", "-n", "3", "--as", "bob")
    (hint,) = hints(shown)
    assert hint.startswith("  postroom ack m-1 m-2 m-3 --token ") and hint.endswith(" --as bob")
    assert shell.type(hint).code == 0
    assert shell.json("check", "--all", "--as", "bob")["letters"] == []


def test_what_wants_no_answer_says_nothing_of_one(shell: Shell) -> None:
    shell.json("register", "--as", "bob", "--scope", "team")
    shell.post("ann", "bob", "x", id="m-1")
    for command in (
        ("reply", "m-1", "--as", "bob", "--body", "y"),
        ("broadcast", "team", "--as", "ann", "--body", "y"),
        ("handoff", "bob", "--as", "ann", "--done", "all"),
    ):
        code, shown = show(shell, *command)
        assert (code, hints(shown), shown.startswith("Sent ")) == (0, [], True), shown


def test_new_names_are_reported_in_one_line(shell: Shell) -> None:
    done = shell.run("send", "bob", "carol", "human", "--as", "ann", "--letter-id", "m-1", "--body", "x")
    assert (
        done.out
        == "Sent m-1 to bob, carol, human.\nNo agent named bob or carol has been seen here yet. The letter will wait.\n"
    )
    assert "New here" not in shell.run("send", "human", "--as", "ann", "--body", "x").out
    shell.run("claim", "--as", "bob")
    again = shell.run("send", "bob", "carol", "--as", "ann", "--body", "x").out
    assert "No agent named carol has been seen here yet. The letter will wait.\n" in again  # bob is at work


def test_times_for_people(shell: Shell) -> None:
    done = shell.run("send", "bob", "--as", "ann", "--letter-id", "m-1", "--body", "x", "--at", "10m")
    assert done.out.startswith("Sent m-1 to bob.\nIt arrives in 10 min.\n")
    shell.json("send", "bob", "--as", "ann", "--letter-id", "m-2", "--body", "x")
    _, shown = show(shell, "read", "m-2", "--as", "bob", NO_COLOR="1")
    assert re.search(r"Sent  +just now \(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\)\n", shown)
    worked = shell.run("work", "--as", "bob", "--set", "backoff_first=100", "--", "false")
    assert re.search(r"\nm-2: next try in \d+ (s|min)\.\n", worked.out), worked


def test_a_letter_that_waits_for_another_process_shows_for_how_long(shell: Shell) -> None:
    with shell.room() as room:
        ann = room.mailbox("ann")
        with room.core.store.batch():  # holds the room until its end
            ann.send("bob", "x")
            terminal = Terminal(shell, "send", "bob", "y", "--as", "ann")
            terminal.read_until("send: 1 s")
    code, shown = terminal.finish()
    assert 0 == code and "Sent " in shown


def test_without_colour_where_nobody_wants_any(shell: Shell) -> None:
    shell.post("ann", "bob", "x")
    assert "\x1b" not in show(shell, "check", "--as", "bob", "--peek", NO_COLOR="1")[1]
    assert "\x1b" not in show(shell, "check", "--as", "bob", "--peek", TERM="dumb")[1]
    assert "\x1b" not in show(shell, "check", "--as", "bob", "--peek", "--color", "never")[1]
    assert "\x1b" not in shell.run("check", "--as", "bob", "--peek").out
    assert "\x1b" in shell.run("check", "--as", "bob", "--peek", "--color", "always").out


def test_a_table_fits_the_terminal(shell: Shell) -> None:
    shell.json("send", "bob", "--as", "ann", "--body", "日本語" * 60)
    for columns in (80, 100):
        _, shown = show(shell, "check", "--as", "bob", "--peek", columns=columns, NO_COLOR="1")
        row = shown.splitlines()[1]
        assert row.endswith("…")
        assert width(row) <= columns


def test_nothing_a_peer_writes_gets_loose(shell: Shell) -> None:
    with shell.room() as room:
        room.mailbox("ann").send(
            "bob", NASTY, tags=["x\u202ey"], subject="s\u202ex", id="m-1", thread_tag="\u200bt"
        )
        room.mailbox("ann").send("bob", "no subject\n│ Id  forged\n" + NASTY, id="m-2")
        room.mailbox("ann").register(description=NASTY.replace("\n", " "), scopes=["team"])
    words = (("check", "--peek"), ("read", "m-1"), ("read", "m-2"), ("agents",), ("thread", "m-2"), ("digest",))
    for command in words:
        for shown in (show(shell, *command, "--as", "bob")[1], shell.run(*command, "--as", "bob").out):
            assert not re.search("[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\u200b]", shown)
            assert "\x1b" not in ESCAPES.sub("", shown)
    _, shown = show(shell, "read", "m-2", "--as", "bob", NO_COLOR="1")
    assert "│ │ Id  forged" in shown


def test_errors_do_not_repeat_what_could_do_harm(shell: Shell) -> None:
    done = shell.run("send", "bob\x1b[31m", "--as", "ann", "--body", "x")
    assert "\x1b" not in done.err and "\\x1b" in done.err
    _, shown = show(shell, "check")
    assert "\x1b[1;31mpostroom:" in shown


def test_an_empty_inbox_is_reported_kindly(shell: Shell) -> None:
    shell.post("ann", "bob", "x")
    assert show(shell, "check", "--as", "ann") == (0, "No unread mail for ann.\n")
    assert "not registered" in show(shell, "agents")[1]
    assert show(shell, "wait", "--as", "ann", "-t", "0")[0] == 1


def test_who_is_gone_is_not_forgotten_and_no_room_is_not_called_healthy(shell: Shell) -> None:
    assert "There is nothing to examine." in show(shell, "doctor")[1]
    shell.json("register", "--as", "ann")
    assert 0 == shell.json("agents")["gone"]
    screen = Screen(json=False, tables=False, colour=False, width=80, now=SystemClock().now().wall)
    assert "Nobody is here; 2 not active for long." in views.agents(screen, {"agents": [], "gone": 2})


def test_every_view_is_shown(shell: Shell) -> None:
    shell.json("register", "--as", "ann", "--scope", "team")
    sent = shell.json("send", "bob", "--as", "ann", "--body", "x", "--data", "1", "--kind", "request", "-s", "Hi")[
        "id"
    ]
    shell.json("reply", sent, "--as", "bob", "--body", "y")
    for command, message in {
        ("read", sent): "Kind", ("threads",): "LETTERS", ("conversations",): "TURNS", ("room",): "Mailboxes",
        ("room", "--settings"): "max_parts", ("agents",): "STATUS", ("agents", "show", "ann"): "Takes mail from",
        ("thread", sent): "Subject", ("turns", "conv-general:default"): "WHO", ("changes",): "Cursor",
        ("counts",): "URGENT", ("dead",): "No dead letters.", ("janitor",): "Nothing to do.", ("digest",): "unread",
        ("claim",): "--token", ("send", "bob", "--body", "z"): "waits for the answer", ("version",): "SQLite",
        ("conversation", "conv-general:default"): "TURNS", ("tagged", "none"): "No letters.",
        ("export", "x.jsonl"): "Lines", ("init", "."): ".postroom",
    }.items():  # fmt: skip
        code, shown = show(shell, *command, "--as", "bob", columns=120)
        assert (code, message in shown) == (0, True), (command, shown)


def test_a_dead_letter_shows_why(shell: Shell) -> None:
    sent = shell.post("ann", "bob", "x")
    assert "dead" in show(shell, "reject", sent, "--as", "bob", "--reason", "too hard")[1]
    _, shown = show(shell, "dead", "show", sent, "--as", "bob")
    assert shown.count("too hard") == 2
    assert f"postroom dead revive {sent} --as bob  # gives it another chance" in shown
    assert "WHEN" in shown and "TRY" not in shown


# -- an editor


def test_a_letter_is_written_in_the_editor(shell: Shell) -> None:
    code, shown = show(
        shell, "send", "bob", "--as", "ann", EDITOR="false", VISUAL=editor(shell.home, "from the editor")
    )
    assert (code, "Sent " in shown) == (0, True)
    assert shell.json("check", "--as", "bob")["letters"][0]["text"] == "from the editor"


@pytest.mark.parametrize(("text", "ends"), [("", 0), ("  ", 0), ("something", 1)])
def test_an_empty_text_or_a_failing_editor_sends_nothing(shell: Shell, text: str, ends: int) -> None:
    code, shown = show(shell, "send", "bob", "--as", "ann", EDITOR=editor(shell.home, text, ends))
    assert (code, "nothing was sent" in shown) == (1, True)
    assert shell.json("check", "--as", "bob")["letters"] == []


def test_what_was_written_is_kept_when_it_cannot_be_sent(shell: Shell) -> None:
    code, shown = show(shell, "send", "no one", "--as", "ann", columns=300, EDITOR=editor(shell.home, "precious"))
    assert code == 65
    kept = re.search(r"your text is kept in (\S+)", shown)
    assert kept
    assert Path(kept[1]).read_text(encoding="utf-8") == "precious"
    assert Path(kept[1]).is_relative_to(tempfile.gettempdir())


@pytest.mark.parametrize("editor", ["nosuch-editor", "false", "'"])
def test_what_was_never_written_is_not_said_to_be_kept(shell: Shell, editor: str) -> None:
    (shell.home / "drafts").mkdir()
    tmp = str(shell.home / "drafts")
    code, shown = show(shell, "send", "bob", "--as", "ann", columns=300, EDITOR=editor, TMPDIR=tmp)
    assert (code, "kept" in shown) == (1 if editor == "false" else 64, False), shown
    assert list((shell.home / "drafts").iterdir()) == []


def test_without_an_editor_a_person_is_shown_what_to_do(shell: Shell) -> None:
    code, shown = show(shell, "send", "bob", "--as", "ann")
    assert (code, "set EDITOR" in shown) == (64, True)
    assert shell.run("send", "bob", "--as", "ann", "--edit", stdin="x").code == 64


# -- progress and Ctrl-C


def test_long_commands_show_how_far_they_are_on_a_terminal_alone(shell: Shell) -> None:
    with shell.room() as room:
        for _ in range(5):
            room.mailbox("ann").send("bob", "x")
    code, shown = show(shell, "export", "a.jsonl")
    assert (code, "export " in shown) == (0, True)
    assert "import [" in show(shell, "import", "a.jsonl", "--room", "other.db")[1]
    assert "export " not in show(shell, "export", "b.jsonl", "--json")[1]
    assert shell.run("rooms", "export", "c.jsonl").err == ""


def test_ctrl_c_on_the_keyboard_ends_a_wait(shell: Shell) -> None:
    shell.json("register", "--as", "bob")
    terminal = Terminal(shell, "wait", "--as", "bob", "--follow", "--timeout", "60")
    shell.post("ann", "bob", "ping")
    terminal.read_until("ping")
    terminal.wait_until_asleep()
    terminal.type("\x03")
    code, shown = terminal.finish()
    assert (code, "interrupted" in shown, "Traceback" in shown) == (130, True, False)


# -- pieces


def test_widths_cuts_and_ages() -> None:
    assert (width("abc"), width("日本"), width("e\u0301")) == (3, 4, 1)
    assert (cut("abcdef", 4), cut("日本語", 4), cut("abc", 3)) == ("abc…", "日…", "abc")
    now = SystemClock().now().wall
    results = [ago(now.replace(microsecond=0), now), ago(None, now)]
    assert results == ["just now", ""]
    spans = [ago(now + timedelta(seconds=seconds), now) for seconds in (7170, 599.9, 80.6, -5410, -100_000)]
    assert spans == ["in 2 h", "in 10 min", "in 81 s", "90 min ago", "28 h ago"]
    assert [one_line("a\nb\tc"), body_lines("a\n\x1bb")] == ["a\\nb c", ["│ a", "│ \\u{1b}b"]]
    assert one_line("\ud800") == "\\ud800"


def test_markdown_tables_hold_any_text() -> None:
    screen = Screen(json=False, tables=False, colour=False, width=80, now=SystemClock().now().wall)
    assert table(screen, ("A", "B"), [("x|y", "a\nb\\")]) == "| A | B |\n| --- | --- |\n| x\\|y | a\\\\nb\\\\ |\n"


HIDING = (
    "\x7f\x85\x9b\xad\u061c\u200b\u200d\u202e\u2028\u2029\u2066\u2069\ufeff\U000e0041\U000e007f\ue000\U0010fffd"
)


def test_json_holds_nothing_that_hides_or_reorders_and_loses_nothing(shell: Shell) -> None:
    text = f"Grüße 日本 😀 {HIDING}"
    shell.json("send", "bob", "--as", "ann", "--body", text, "--data", json.dumps({HIDING: 1}))
    refused = shell.run("read", HIDING, "--as", "bob", "--json")
    assert refused.code in {65, 67}
    for message in (
        shell.run("check", "--as", "bob", "--peek", "--json").out, shell.run("export").out, refused.err,
    ):  # fmt: skip
        assert not [character for character in HIDING if character in message]
        assert all(character.isprintable() for character in message.replace("\n", ""))
    read = shell.json("check", "--as", "bob", "--peek")["letters"][0]
    assert read["text"] == text
    assert "Grüße 日本 😀" in shell.run("check", "--as", "bob", "--peek", "--json").out
    shell.run("export", "room.jsonl")
    shell.json("import", "room.jsonl", "--room", "other.db")
    (same,) = shell.json("check", "--as", "bob", "--peek", "--room", "other.db")["letters"]
    assert (same["text"], same["parts"]) == (text, read["parts"])


def test_a_line_without_its_value_is_left_out_and_what_to_type_is_quoted() -> None:
    screen = Screen(json=False, tables=True, colour=False, width=80)
    view = says("A {a}.", "B {b.c}.", "  {all}", "By {seconds:.1f} s.", "$ read {id}  # shows it", none="Nothing.")
    data = {"a": 0, "b": None, "all": ["x", "y\x1b"], "seconds": 0.0, "id": "a  # b"}
    shown = "A 0.\n  x\n  y\\u{1b}\nBy 0.0 s.\n  postroom read 'a  # b'  # shows it\n"
    assert shown == view(screen, data)
    assert "Nothing.\n" == says("B {b.c}.", none="Nothing.")(screen, {"b": {}})
