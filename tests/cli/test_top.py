"""The live view: drawn in place, cheap, and gone without a trace however it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import time

import pytest

from postroom.cli.output import span
from tests.cli.shell import PATIENCE, Shell
from tests.cli.terminal import Terminal

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@pytest.fixture
def busy(shell: Shell) -> Shell:
    with shell.room() as room:
        for number in range(3):
            room.mailbox("ann").send("bob", "x", id=f"m-{number}")
        room.mailbox("ann").send("carol", "x", id="m-9")
        room.mailbox("bob").read("m-0").ack()
        held = room.mailbox("carol").claim(lease=600)
        assert held
    return shell


def test_one_look_tells_what_waits(busy: Shell) -> None:
    result = busy.json("top", "--once")
    assert (result["backlog"], result["seconds"], result["sent"]) == (3, 0, 0)
    assert [(a["mailbox"], a["backlog"], a["unread"], a["claimed"]) for a in result["agents"]] == [
        ("bob", 2, 2, 0), ("carol", 1, 0, 1),
    ]  # fmt: skip
    shown = busy.run("top")
    assert (0, "") == (shown.code, shown.err)
    assert "| bob | 2 | 2 | 0 |" in shown.out and "\x1b" not in shown.out


def test_the_slow_ones_stand_first_when_asked(busy: Shell) -> None:
    by = {order: [a["mailbox"] for a in busy.json("top", "--once", "--sort", order)["agents"]]
          for order in ("backlog", "slow")}  # fmt: skip
    assert by == {"backlog": ["bob", "carol"], "slow": ["carol", "bob"]}
    assert busy.run("top", "--sort", "beauty").code == 64


@pytest.mark.parametrize("every", ["0", "0.05", "2h", "9999999w"])
def test_a_pace_out_of_range_is_refused(shell: Shell, every: str) -> None:
    refused = shell.run("top", "--every", every, "--json")
    assert (refused.code, refused.error["field"]) == (65, "--every")
    assert not (shell.home / "room.db").exists()


def test_for_programs_it_is_one_document_a_line_with_what_happened_between(busy: Shell) -> None:
    watching = busy.start("top", "--json", "--every", "0.1")
    assert watching.stdout
    first = json.loads(watching.stdout.readline())
    with busy.room() as room:
        room.mailbox("ann").send("dan", "x")
        room.mailbox("bob").read("m-1").ack()
    sent = settled = 0
    end = time.monotonic() + PATIENCE
    while (sent, settled) != (1, 1):
        if time.monotonic() > end:
            raise TimeoutError((sent, settled))
        look = json.loads(watching.stdout.readline())
        assert look["seconds"] > 0
        sent, settled = sent + look["sent"], settled + look["settled"]
    watching.send_signal(signal.SIGINT)
    _, err = watching.communicate(timeout=PATIENCE)
    assert (130, b"postroom: interrupted\n", 0) == (watching.returncode, err, first["seconds"])


def test_a_reader_that_leaves_ends_it(busy: Shell) -> None:
    watching = busy.start("top", "--json", "--every", "0.1")
    assert watching.stdout
    watching.stdout.close()
    assert watching.wait(PATIENCE) == 141
    assert watching.stderr
    watching.stderr.close()


def test_on_a_terminal_it_is_drawn_again_and_again_until_q(busy: Shell) -> None:
    terminal = Terminal(busy, "top", "--every", "0.1", NO_COLOR="1")
    terminal.read_until("per second")
    with busy.room() as room:
        room.mailbox("ann").send("newcomer", "x")
    terminal.read_until("newcomer")
    terminal.type("q")
    code, shown = terminal.finish()
    assert (code, shown.count(ENTER), shown.count(LEAVE)) == (0, 1, 1)
    assert shown.startswith(ENTER) and shown.endswith(LEAVE)
    assert "\x1b[2J" not in shown  # wiping the whole screen would flicker
    assert terminal.after == terminal.before


def test_mail_that_was_read_and_not_done_shows_its_age(shell: Shell) -> None:
    with shell.room() as room:
        room.mailbox("ann").send("bob", "x")
        room.mailbox("bob").check()
        (agent,) = shell.json("top", "--once")["agents"]
        assert (agent["backlog"], agent["unread"], agent["oldest_unread"]) == (1, 0, None)
        assert agent["oldest_seen"] >= 0
    line = next(line for line in shell.run("top", "--once").out.splitlines() if "bob" in line)
    assert re.search(r"\d(\.\d)? (ms|s|min)\b", line)
    (tally,) = shell.json("stats", "--everyone")["room"]["mailboxes"]
    assert tally["oldest_unread_at"] is None and tally["oldest_seen_at"]
    assert "now" in shell.run("stats", "--everyone").out or "ago" in shell.run("stats", "--everyone").out


def test_a_terminal_that_does_not_know_its_size_is_taken_for_a_usual_one(busy: Shell) -> None:
    terminal = Terminal(busy, "top", "--every", "1h", columns=0, lines=0, NO_COLOR="1")
    terminal.read_until("BACKLOG")
    terminal.type("q")
    code, shown = terminal.finish()
    assert code == 0
    assert all(title in shown for title in ("MAILBOX", "NEVER READ", "OLDEST", "TO DONE"))


def test_what_is_typed_meanwhile_is_not_shown(busy: Shell) -> None:
    terminal = Terminal(busy, "top", "--every", "0.1")
    terminal.read_until("bob")
    terminal.type("hello")
    terminal.read_until("per second")
    terminal.type("\x03")
    assert "hello" not in terminal.finish()[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_however_it_is_ended_the_terminal_is_as_before(busy: Shell, number: int) -> None:
    terminal = Terminal(busy, "top", "--every", "0.1")
    terminal.read_until("bob")
    if number == signal.SIGINT:
        terminal.type("\x03")
    else:
        terminal.send(number)
    code, shown = terminal.finish()
    assert code == (130 if number == signal.SIGINT else -number)
    assert shown.count(ENTER) == shown.count(LEAVE) == 1
    assert "Traceback" not in shown
    assert terminal.after == terminal.before


def test_ctrl_z_gives_the_screen_back_and_takes_it_again(busy: Shell) -> None:
    terminal = Terminal(busy, "top", "--every", "0.1")
    terminal.read_until("bob")
    terminal.send(signal.SIGTSTP)
    terminal.read_until(LEAVE)
    terminal.send(signal.SIGCONT)
    terminal.read_until(f"{LEAVE}{ENTER}")
    terminal.type("q")
    code, shown = terminal.finish()
    assert (code, shown.count(ENTER), shown.count(LEAVE)) == (0, 2, 2)
    assert terminal.after == terminal.before


def test_another_size_is_drawn_at_once(busy: Shell) -> None:
    terminal = Terminal(busy, "top", "--every", "1h", columns=120, NO_COLOR="1")
    terminal.read_until("HELD FOR")
    terminal.shown = b""
    terminal.resize(40, 8)
    terminal.read_until("MAILBOX")
    terminal.read_until("\x1b[J")
    terminal.type("q")
    frames = ESCAPES.sub("", terminal.finish()[1]).split("MAILBOX")
    assert "HELD FOR" not in frames[1]


def test_a_picture_is_never_larger_than_the_terminal(shell: Shell) -> None:
    with shell.room() as room:
        room.mailbox("ann").send([f"agent-with-a-long-name-{n:03}" for n in range(60)], "x")
    terminal = Terminal(shell, "top", "--every", "0.1", columns=44, NO_COLOR="1")
    terminal.resize(44, 10)
    terminal.read_until("per second")
    terminal.shown = b""
    terminal.read_until("\x1b[J\x1b[H")
    terminal.shown = b""
    terminal.read_until("\x1b[J")
    picture = terminal.shown.decode().partition("\x1b[J")[0]
    terminal.type("q")
    terminal.finish()
    lines = ESCAPES.sub("", picture).replace("\r", "").split("\n")
    assert len(lines) <= 10
    assert max(map(len, lines)) <= 44


def test_ctrl_c_at_any_moment_leaves_the_terminal_as_it_was(busy: Shell) -> None:
    """From its first line on; what Python does before that is not ours."""
    for step in range(12):
        terminal = Terminal(busy, "top", "--every", "0.1", counted=False)
        terminal.let_run(0.06 + 0.03 * step)
        terminal.interrupt()
        code, shown = terminal.finish()
        assert code in {130, -signal.SIGINT, 1}, shown
        assert shown.count(ENTER) == shown.count(LEAVE)
        assert "in _run" not in shown
        assert terminal.after == terminal.before


def test_an_impatient_person_gets_the_terminal_back_too(busy: Shell) -> None:
    for _ in range(6):
        terminal = Terminal(busy, "top", "--every", "0.1", counted=False)
        terminal.read_until("bob")
        for _ in range(40):
            terminal.send(signal.SIGINT)
        code, shown = terminal.finish()
        assert code in {130, -signal.SIGINT, 1}, shown
        assert shown.count(ENTER) == shown.count(LEAVE) == 1
        assert terminal.after == terminal.before


def test_a_hostile_path_of_a_room_does_no_harm(shell: Shell) -> None:
    """A room's path is somebody's text too."""
    nasty = shell.home / "a\x1b[31mb.db"
    shell.json("send", "bob", "--as", "ann", "--body", "x", "--room", str(nasty))
    terminal = Terminal(shell, "top", "--every", "0.1", "--room", os.fspath(nasty), NO_COLOR="1")
    terminal.read_until("per second")
    terminal.type("q")
    assert "\x1b[31m" not in terminal.finish()[1]


def test_spans_are_short() -> None:
    assert [span(s) for s in (None, 0.02, 5.25, 42.0, 300.0, 7200.0, 900_000.0)] == [
        "", "20 ms", "5.2 s", "42 s", "5 min", "2 h", "10 d",
    ]  # fmt: skip
